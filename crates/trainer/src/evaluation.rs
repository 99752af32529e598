//! avg@k and unbiased pass@k with standard errors.

use firebrick_core::{FinishReason, Group, Tokenizer};
use serde::{Deserialize, Serialize};

use crate::{PlanError, plan::require};

/// How a policy is evaluated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluationSettings {
    /// Completions per problem.
    pub samples: usize,
    /// A completion counts as correct when its reward is at least this.
    #[serde(default = "EvaluationSettings::default_success_reward")]
    pub success_reward: f64,
    /// Steps between two evaluations in a run; 0 (default) evaluates before and after only.
    #[serde(default)]
    pub every: usize,
}

impl EvaluationSettings {
    /// `samples` completions per problem; a reward of 1 is correct.
    pub fn new(samples: usize) -> Self {
        Self { samples, success_reward: Self::default_success_reward(), every: 0 }
    }

    /// Checks every range.
    ///
    /// # Errors
    /// Names the key, its value and what is allowed.
    pub fn validate(&self) -> Result<(), PlanError> {
        require(self.samples >= 1, "samples", self.samples as f64, "a whole number, at least 1")?;
        require(self.success_reward.is_finite(), "success_reward", self.success_reward, "a finite number")
    }

    fn default_success_reward() -> f64 {
        1.0
    }
}

/// A mean over problems with its standard error.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Mean over problems.
    pub value: f64,
    /// Standard deviation over problems (n − 1) divided by √n; 0 for a single problem.
    pub standard_error: f64,
}

impl Estimate {
    /// Mean and standard error of one value per problem; `None` for no problem.
    pub fn of(values: &[f64]) -> Option<Self> {
        let n = values.len() as f64;
        if values.is_empty() {
            return None;
        }
        let value = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|x| (x - value).powi(2)).sum();
        let standard_error = if values.len() > 1 { (squares / (n - 1.0) / n).sqrt() } else { 0.0 };
        Some(Self { value, standard_error })
    }
}

impl std::fmt::Display for Estimate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.3} ± {:.3}", self.value, self.standard_error)
    }
}

/// Result of an evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvaluationReport {
    /// Problems with at least one scored completion.
    pub problems: usize,
    /// Completions per problem, k.
    pub k: usize,
    /// Mean accuracy of single completions.
    pub avg_at_k: Estimate,
    /// Probability that at least one of n completions is correct, for n = 1, 2, 4, ... ≤ k.
    pub pass_at: Vec<(usize, Estimate)>,
    /// Mean number of response tokens.
    pub mean_length: f64,
    /// Share of completions that hit the length limit.
    pub truncated: f64,
    /// Share of completions without a verdict; they enter no figure above.
    pub unscored: f64,
    /// The first completion of each of the first three problems.
    pub examples: Vec<EvaluationExample>,
}

impl EvaluationReport {
    /// The figures under the names that the field uses: `eval/avg@k`, `eval/pass@n`, lengths and shares.
    pub fn values(&self) -> Vec<(String, f64)> {
        let mut values = vec![
            (format!("eval/avg@{}", self.k), self.avg_at_k.value),
            ("eval/mean_length".to_owned(), self.mean_length),
            ("eval/clipped_ratio".to_owned(), self.truncated),
            ("eval/frac_unscored".to_owned(), self.unscored),
        ];
        values.extend(self.pass_at.iter().map(|(n, estimate)| (format!("eval/pass@{n}"), estimate.value)));
        values
    }
}

/// A completion of an evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvaluationExample {
    /// What the policy was shown.
    pub prompt: String,
    /// What it answered.
    pub response: String,
    /// The reference answer.
    pub answer: String,
    /// The reward; `None` when unscored.
    pub reward: Option<f64>,
}

/// Unbiased estimate of pass@k from `correct` of `samples` completions: 1 − C(n − c, k) / C(n, k).
///
/// *Reference*: Chen et al., "Evaluating large language models trained on code", 2021, arXiv:2107.03374.
///
/// # Panics
/// When `k` is 0 or exceeds `samples`, or `correct` exceeds `samples`.
pub fn pass_at_k(samples: usize, correct: usize, k: usize) -> f64 {
    assert!(k >= 1 && k <= samples && correct <= samples, "pass@{k} of {correct} correct in {samples}");
    if samples - correct < k {
        return 1.0;
    }
    1.0 - (samples - correct + 1..=samples).map(|i| 1.0 - k as f64 / i as f64).product::<f64>()
}

/// Sums up verified groups; `None` when nothing was scored.
pub(crate) fn report(
    groups: &[Group],
    settings: &EvaluationSettings,
    tokenizer: &dyn Tokenizer,
) -> Option<EvaluationReport> {
    let outcomes: Vec<(usize, usize)> = groups
        .iter()
        .map(|group| {
            let rewards = || group.rows.iter().filter_map(|row| row.verdict.reward());
            (rewards().count(), rewards().filter(|reward| *reward >= settings.success_reward).count())
        })
        .collect();
    let (avg_at_k, pass_at) = accuracy(&outcomes, settings.samples)?;
    let rows: Vec<_> = groups.iter().flat_map(|group| &group.rows).collect();
    let share = |count: usize| count as f64 / rows.len() as f64;
    let examples = groups.iter().filter_map(|group| Some((group, group.rows.first()?))).take(3);
    Some(EvaluationReport {
        problems: outcomes.iter().filter(|(samples, _)| *samples > 0).count(),
        k: settings.samples,
        avg_at_k,
        pass_at,
        mean_length: share(rows.iter().map(|row| row.completion.policy_len()).sum()),
        truncated: share(
            rows.iter().filter(|row| row.completion.finish_reason() == Some(FinishReason::Length)).count(),
        ),
        unscored: share(rows.iter().filter(|row| row.verdict.reward().is_none()).count()),
        examples: examples
            .map(|(group, row)| EvaluationExample {
                prompt: group.prompt.messages.iter().map(|message| message.content.as_str()).collect(),
                response: tokenizer.decode(row.completion.response_tokens()),
                answer: group.prompt.answer.clone(),
                reward: row.verdict.reward(),
            })
            .collect(),
    })
}

/// avg@k, and pass@n for n = 1, 2, 4, ... ≤ k, of problems given as `(samples, correct)`; problems without a scored sample are left
/// out. `None` when nothing was scored.
pub fn accuracy(outcomes: &[(usize, usize)], k: usize) -> Option<(Estimate, Vec<(usize, Estimate)>)> {
    let scored: Vec<_> = outcomes.iter().copied().filter(|(samples, _)| *samples > 0).collect();
    let average: Vec<f64> = scored.iter().map(|(n, c)| *c as f64 / *n as f64).collect();
    let average = Estimate::of(&average)?;
    let powers = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n <= k);
    let pass = powers.filter_map(|n| {
        let values: Vec<f64> = scored
            .iter()
            .filter(|(samples, _)| *samples >= n)
            .map(|(samples, correct)| pass_at_k(*samples, *correct, n))
            .collect();
        Some((n, Estimate::of(&values)?))
    });
    Some((average, pass.collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pass_at_k_of_known_cases() {
        assert_eq!(pass_at_k(4, 1, 1), 0.25);
        assert!((pass_at_k(4, 1, 2) - 0.5).abs() < 1e-15); // 1 − C(3,2)/C(4,2) = 1 − 3/6
        assert!((pass_at_k(10, 3, 5) - (1.0 - 21.0 / 252.0)).abs() < 1e-15); // C(7,5) = 21, C(10,5) = 252
        assert_eq!(pass_at_k(8, 0, 8), 0.0);
        assert_eq!(pass_at_k(8, 1, 8), 1.0);
    }

    #[test]
    fn the_standard_error_is_over_problems() {
        let estimate = Estimate::of(&[0.0, 1.0, 0.0, 1.0]).unwrap();
        assert_eq!(estimate.value, 0.5);
        // variance with n − 1: 4 · 0.25 / 3 = 1/3; divided by 4 problems: 1/12
        assert!((estimate.standard_error - (1.0f64 / 12.0).sqrt()).abs() < 1e-15);
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!(Estimate::of(&[0.3]).unwrap().standard_error, 0.0);
    }

    #[test]
    fn problems_without_a_verdict_are_left_out_and_k_goes_in_powers_of_two() {
        let (average, pass) = accuracy(&[(8, 8), (8, 0), (0, 0)], 8).unwrap();
        assert_eq!(average.value, 0.5);
        assert_eq!(pass.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 2, 4, 8]);
        assert!(pass.iter().all(|(_, estimate)| estimate.value == 0.5));
        assert!(accuracy(&[(0, 0)], 8).is_none());
    }

    proptest! {
        /// Unbiased: the mean over all subsets of size k of "one of them is correct".
        #[test]
        fn pass_at_k_is_the_mean_over_subsets(samples in 1usize..9, correct in 0usize..9, k in 1usize..9) {
            prop_assume!(correct <= samples && k <= samples);
            let subsets: Vec<u32> =
                (0u32..1 << samples).filter(|set| set.count_ones() as usize == k).collect();
            let hits = subsets.iter().filter(|set| **set & ((1u32 << correct) - 1) != 0).count();
            let expected = hits as f64 / subsets.len() as f64;
            prop_assert!((pass_at_k(samples, correct, k) - expected).abs() < 1e-12);
        }
    }
}
