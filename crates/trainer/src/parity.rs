//! The probe that compares what the engine said with what the trainer computes, before the first optimizer step.

use firebrick_core::Group;

use crate::TrainerError;

/// Compares behaviour log-probs with those that the trainer computed from the same weights.
///
/// Returns the largest difference in nats.
///
/// # Errors
/// When it exceeds `tolerance`: every ratio of the run would be wrong. Temperature, truncation of the support, positions
/// and weights are what differs in practice.
pub(crate) fn check(
    groups: &[Group],
    recomputed: &[Vec<f64>],
    tolerance: f64,
) -> Result<f64, TrainerError> {
    let mut worst = 0.0;
    let rows = groups.iter().flat_map(|group| group.rows.iter().map(move |row| (&group.prompt.id, row)));
    for ((prompt, row), recomputed) in rows.zip(recomputed) {
        let behaviour = row.completion.behaviour_log_probs();
        for (token, (engine, trainer)) in behaviour.values().iter().zip(recomputed).enumerate() {
            let difference = (engine - trainer).abs();
            if difference.is_nan() || difference > tolerance {
                return Err(TrainerError::Parity {
                    prompt: prompt.clone(),
                    token,
                    engine: *engine,
                    trainer: *trainer,
                    tolerance,
                });
            }
            worst = f64::max(worst, difference);
        }
    }
    Ok(worst)
}
