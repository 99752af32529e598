//! The probe that compares what the engine said with what the trainer computes, before the first optimizer step.

use firebrick_core::Group;

use crate::TrainerError;

/// A single token may differ by this many times the tolerance of the mean: sums of f32 in another order leave outliers.
const OUTLIER: f64 = 20.0;

/// How far engine and trainer are apart (nats).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Parity {
    /// Mean of the absolute differences over all policy tokens.
    pub(crate) mean: f64,
    /// Largest absolute difference.
    pub(crate) max: f64,
    /// KL(engine ‖ trainer), estimated by the mean of e^d − 1 − d over the policy tokens, d = trainer − engine.
    pub(crate) kl: f64,
}

/// Compares behaviour log-probs with those that the trainer computed from the same weights.
///
/// # Errors
/// When the mean absolute difference exceeds `tolerance`, or a single one twenty times that: every ratio of the run would be
/// wrong. Temperature, truncation of the support, positions and weights are what differs in practice. The error names the
/// token that differs most.
pub(crate) fn check(
    groups: &[Group],
    recomputed: &[Vec<f64>],
    tolerance: f64,
) -> Result<Parity, TrainerError> {
    let (mut sum, mut kl) = (0.0, 0.0);
    let mut tokens = 0usize;
    let mut worst: Option<(f64, &str, usize, f64, f64)> = None;
    let rows = groups.iter().flat_map(|group| group.rows.iter().map(move |row| (&group.prompt.id, row)));
    for ((prompt, row), recomputed) in rows.zip(recomputed) {
        let behaviour = row.completion.behaviour_log_probs();
        for (token, (engine, trainer)) in behaviour.values().iter().zip(recomputed).enumerate() {
            let difference = (engine - trainer).abs();
            sum += difference;
            kl += (trainer - engine).exp_m1() - (trainer - engine);
            tokens += 1;
            // Not a number is worse than everything.
            if worst.is_none_or(|(most, ..)| difference > most || (difference.is_nan() && !most.is_nan())) {
                worst = Some((difference, prompt, token, *engine, *trainer));
            }
        }
    }
    let Some((max, prompt, token, engine, trainer)) = worst else {
        return Ok(Parity { mean: 0.0, max: 0.0, kl: 0.0 });
    };
    let mean = sum / tokens as f64;
    if mean <= tolerance && max <= OUTLIER * tolerance {
        return Ok(Parity { mean, max, kl: kl / tokens as f64 });
    }
    Err(TrainerError::Parity { prompt: prompt.to_owned(), token, engine, trainer, mean, tolerance })
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Completion, FinishReason, Prompt, SamplingSpec, Verdict};

    use super::*;

    fn groups(log_probs: &[f64]) -> Vec<Group> {
        let mut completion = Completion::start(&[1], SamplingSpec::default(), 0);
        log_probs.iter().for_each(|log_prob| completion.push_policy(2, *log_prob, 0));
        completion.finish(FinishReason::Length);
        vec![Group::new(Prompt::new("p", "q", "a"), vec![completion], vec![Verdict::scored(1.0)]).unwrap()]
    }

    #[test]
    fn rounding_passes_and_is_measured() {
        let parity = check(&groups(&[-1.0, -2.0]), &[vec![-1.0 + 1e-5, -2.0]], 1e-5).unwrap();
        assert!((parity.max - 1e-5).abs() < 1e-12 && (parity.mean - 5e-6).abs() < 1e-12);
        // e^d − 1 − d is d²/2 for small d; half of the tokens have d = 1e-5.
        assert!((parity.kl - 2.5e-11).abs() < 1e-15, "{}", parity.kl);
    }

    #[test]
    fn a_small_shift_of_all_tokens_and_a_large_one_of_a_single_token_are_refused() {
        let engine = [-1.0; 1000];
        assert!(check(&groups(&engine), &[vec![-1.0 - 2e-5; 1000]], 1e-5).is_err());
        let mut one = vec![-1.0; 1000];
        one[700] -= 1e-3;
        let error = check(&groups(&engine), &[one.clone()], 1e-5).unwrap_err().to_string();
        assert!(error.contains("prompt `p`, response token 700"), "{error}");
        one[3] = f64::NAN;
        let error = check(&groups(&engine), &[one], 1e-5).unwrap_err().to_string();
        assert!(error.contains("token 3"), "{error}");
    }
}
