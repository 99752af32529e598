//! Rewards that know nothing: the control arm of an experiment.

use firebrick_core::{RewardVerifier, RootSeed, Sample, SeedStream, Verdict, VerifyError};

/// Pays by chance and never looks at whether a completion is right. What a policy gains under it is not learned from
/// verdicts.
///
/// The coin of a completion follows from the seed, the problem's id and the response, so the verifier is pure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomReward {
    seed: RootSeed,
    probability: f64,
}

impl RandomReward {
    /// Pays 1 with `probability` (clamped to [0, 1]) and 0 otherwise.
    pub fn new(seed: RootSeed, probability: f64) -> Self {
        Self { seed, probability: probability.clamp(0.0, 1.0) }
    }
}

impl RewardVerifier for RandomReward {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        let text = [sample.prompt.id.as_bytes(), b"\0", sample.text.as_bytes()].concat();
        let indices: Vec<u64> = text.into_iter().map(u64::from).collect();
        let draw = (self.seed.seed(SeedStream::Control, &indices) >> 11) as f64 / (1u64 << 53) as f64;
        let reward = if draw < self.probability { 1.0 } else { 0.0 };
        Ok(Verdict::graded(reward, Some(String::new()), "random"))
    }

    fn name(&self) -> &str {
        "random"
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::Prompt;

    use super::*;

    fn reward(verifier: RandomReward, id: &str, text: &str) -> f64 {
        let prompt = Prompt::new(id, "1+1=", "2");
        verifier.verify(&Sample::of_text(&prompt, text)).unwrap().reward().unwrap()
    }

    #[test]
    fn pays_with_its_probability_whatever_the_answer() {
        let verifier = RandomReward::new(RootSeed(5), 0.3);
        for answer in ["Answer: 2", "Answer: 3"] {
            let paid: f64 = (0..4000).map(|i| reward(verifier, &format!("p{i}"), answer)).sum();
            // Binomial(4000, 0.3): mean 1200, standard deviation 29.
            assert!((paid - 1200.0).abs() < 120.0, "{paid}");
        }
    }

    #[test]
    fn is_pure_and_depends_on_seed_problem_and_response() {
        let rewards = |seed: u64| -> Vec<f64> {
            let verifier = RandomReward::new(RootSeed(seed), 0.5);
            (0..64).map(|i| reward(verifier, "p", &i.to_string())).collect()
        };
        assert_eq!(rewards(1), rewards(1));
        assert_ne!(rewards(1), rewards(2));
        assert!(rewards(1).contains(&0.0) && rewards(1).contains(&1.0));
        assert_eq!(reward(RandomReward::new(RootSeed(1), 1.0), "p", "x"), 1.0);
        assert_eq!(reward(RandomReward::new(RootSeed(1), 0.0), "p", "x"), 0.0);
    }
}
