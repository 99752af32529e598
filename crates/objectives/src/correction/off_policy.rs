//! How far the policy that sampled is from the proximal policy.

use firebrick_core::{Metrics, ResponseContext};

use super::{clamped, log_ratios};

/// Metrics of the gap between the behaviour policy and the proximal policy, over the policy tokens of `responses`.
///
/// ```text
/// log ρ_t = log π_old(y_t) − log π_roll(y_t)                 clamped to ± 20
/// over tokens:     off_policy/kl                             mean of −log ρ
///                  off_policy/k3                             mean of ρ − 1 − log ρ
///                  off_policy/chi2_token                     mean of ρ² − 1
/// over responses:  off_policy/proximal_log_perplexity        mean of ℓ_old,   ℓ = −(1/L) Σ_t log π(y_t)
///                  off_policy/behaviour_log_perplexity       mean of ℓ_roll
///                  off_policy/proximal_perplexity            mean of exp(ℓ_old)
///                  off_policy/behaviour_perplexity           mean of exp(ℓ_roll)
///                  off_policy/log_perplexity_gap             mean of ℓ_old − ℓ_roll; also its mean size (`_abs`),
///                                                            largest (`_max`) and smallest (`_min`)
///                  off_policy/perplexity_ratio               mean of exp(ℓ_old − ℓ_roll)
///                  off_policy/chi2_sequence                  mean of (Π_t ρ_t)² − 1
/// ```
///
/// kl and k3 estimate the KL divergence of the behaviour policy from the proximal policy (nats). Responses without tokens
/// are left out; of none there are no metrics. Metrics of parts of a batch merge exactly.
///
/// # Panics
/// When a response with tokens has no proximal log-probs.
pub fn off_policy_metrics<'a>(responses: impl IntoIterator<Item = &'a ResponseContext>) -> Metrics {
    let mut metrics = Metrics::default();
    for response in responses {
        if !response.is_empty() {
            add_response(&mut metrics, response);
        }
    }
    metrics
}

fn add_response(metrics: &mut Metrics, response: &ResponseContext) {
    let log_ratios = log_ratios(response);
    let tokens = log_ratios.len() as f64;
    let mut over_tokens = |name: &str, value: fn(f64) -> f64| {
        let sum = log_ratios.iter().map(|log_ratio| value(*log_ratio)).sum();
        metrics.add_mean(name, sum, tokens);
    };
    over_tokens("off_policy/kl", |log_ratio| -log_ratio);
    over_tokens("off_policy/k3", |log_ratio| log_ratio.exp_m1() - log_ratio);
    over_tokens("off_policy/chi2_token", |log_ratio| (2.0 * log_ratio).exp_m1());

    let log_perplexity = |log_probs: &[f64]| -log_probs.iter().sum::<f64>() / tokens;
    let proximal = log_perplexity(response.proximal().unwrap_or_default());
    let behaviour = log_perplexity(response.behaviour());
    let gap = proximal - behaviour;
    for (name, value) in [
        ("off_policy/proximal_log_perplexity", proximal),
        ("off_policy/behaviour_log_perplexity", behaviour),
        ("off_policy/proximal_perplexity", proximal.exp()),
        ("off_policy/behaviour_perplexity", behaviour.exp()),
        ("off_policy/log_perplexity_gap", gap),
        ("off_policy/log_perplexity_gap_abs", gap.abs()),
        ("off_policy/perplexity_ratio", gap.exp()),
        ("off_policy/chi2_sequence", (2.0 * clamped(log_ratios.iter().sum())).exp_m1()),
    ] {
        metrics.add_mean(name, value, 1.0);
    }
    metrics.add_max("off_policy/log_perplexity_gap_max", gap);
    metrics.add_min("off_policy/log_perplexity_gap_min", gap);
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, assert_close};

    use super::*;

    fn response(behaviour: &[f64], proximal: &[f64]) -> ResponseContext {
        TestResponse::new(behaviour, behaviour, &vec![0.0; behaviour.len()])
            .with_proximal(proximal)
            .context()
            .clone()
    }

    /// log ρ = [ln 2, −ln 2] and [ln 3]. kl = −ln 3/3; k3 = (1 − ln 2 + (−1/2 + ln 2) + 2 − ln 3)/3; chi2 = (3 − 3/4 + 8)/3
    /// over tokens and (0 + 8)/2 over responses. ℓ_old − ℓ_roll = 0 and −ln 3.
    #[test]
    fn the_metrics_are_those_worked_by_hand() {
        let (two, three) = (2f64.ln(), 3f64.ln());
        let rows = [
            response(&[-1.0, -2.0], &[-1.0 + two, -2.0 - two]),
            response(&[], &[]),
            response(&[-2.0], &[-2.0 + three]),
        ];
        let metrics = off_policy_metrics(&rows);
        for (name, value) in [
            ("kl", -three / 3.0),
            ("k3", (2.5 - three) / 3.0),
            ("chi2_token", (3.0 - 0.75 + 8.0) / 3.0),
            ("proximal_log_perplexity", (1.5 + 2.0 - three) / 2.0),
            ("behaviour_log_perplexity", 1.75),
            ("proximal_perplexity", (1.5f64.exp() + 2f64.exp() / 3.0) / 2.0),
            ("behaviour_perplexity", (1.5f64.exp() + 2f64.exp()) / 2.0),
            ("log_perplexity_gap", -three / 2.0),
            ("log_perplexity_gap_abs", three / 2.0),
            ("log_perplexity_gap_max", 0.0),
            ("log_perplexity_gap_min", -three),
            ("perplexity_ratio", (1.0 + 1.0 / 3.0) / 2.0),
            ("chi2_sequence", 4.0),
        ] {
            let found = metrics.get(&format!("off_policy/{name}")).unwrap();
            assert_close(found, value, 1e-9, name);
        }
        assert_eq!(metrics.values().count(), 13);
    }

    #[test]
    fn equal_policies_have_no_gap_and_no_response_no_metric() {
        let metrics = off_policy_metrics([&response(&[-1.0, -2.0], &[-1.0, -2.0])]);
        for name in ["kl", "k3", "chi2_token", "chi2_sequence", "log_perplexity_gap_abs"] {
            assert_eq!(metrics.get(&format!("off_policy/{name}")), Some(0.0), "{name}");
        }
        assert_eq!(off_policy_metrics([]).values().count(), 0);
    }

    #[test]
    fn parts_merge_to_the_whole_in_any_order() {
        let rows: Vec<_> = (0..9)
            .map(|row| {
                let log_probs: Vec<f64> = (0..=row).map(|t| -0.1 * (row * t) as f64 - 0.3).collect();
                let moved: Vec<f64> =
                    log_probs.iter().enumerate().map(|(t, p)| p + (t as f64).sin() / 3.0).collect();
                response(&log_probs, &moved)
            })
            .collect();
        let mut merged = off_policy_metrics(rows[5..].iter().rev());
        merged.merge(&off_policy_metrics(&rows[..5]));
        let values = |metrics: &Metrics| -> Vec<(String, f64)> {
            metrics.values().map(|(name, value)| (name.to_owned(), value)).collect()
        };
        assert_eq!(values(&merged), values(&off_policy_metrics(&rows)));
    }
}
