//! Contract checks must catch plug-ins that break the contract, one broken rule each.

use std::sync::atomic::{AtomicUsize, Ordering};

use firebrick_core::{
    Advantage, AdvantageError, AdvantageEstimator, Advantages, Binding, Bounds, ClipSchedule, Gate, Gated,
    ImportanceEstimator, Objective, Prompt, ResponseTerms, ResponseTokens, RewardBatch, RewardVerifier,
    Sample, Verdict, VerifyError,
};
use firebrick_testkit::{
    check_advantage_estimator, check_causality, check_estimator, check_gate, check_objective, check_schedule,
    check_verifier,
};

#[derive(Debug)]
enum Estimator {
    LeavesTheLastUnwritten,
    SquaresThePullBack,
    LooksAhead,
}

impl ImportanceEstimator for Estimator {
    fn log_weights(&self, response: &ResponseTokens<'_>, out: &mut [f64]) {
        let written = match self {
            Self::LeavesTheLastUnwritten => out.len().saturating_sub(1),
            _ => out.len(),
        };
        out[..written].copy_from_slice(&response.log_ratios()[..written]);
        if matches!(self, Self::LooksAhead) {
            out.reverse();
        }
    }

    fn pull_back(&self, _: &ResponseTokens<'_>, upstream: &[f64], out: &mut [f64]) {
        out.copy_from_slice(upstream);
        if matches!(self, Self::SquaresThePullBack) {
            out.iter_mut().for_each(|value| *value *= *value);
        }
    }
}

#[test]
#[should_panic(expected = "log-weights must all be written and finite")]
fn an_unwritten_log_weight_is_caught() {
    check_estimator(Estimator::LeavesTheLastUnwritten);
}

#[test]
#[should_panic(expected = "pull_back must be linear")]
fn a_pull_back_that_is_not_linear_is_caught() {
    check_estimator(Estimator::SquaresThePullBack);
}

#[test]
#[should_panic(expected = "reaches an earlier one")]
fn an_estimator_that_looks_ahead_is_caught() {
    check_estimator(Estimator::LooksAhead); // not causal, but no breach of the contract
    check_causality(&Estimator::LooksAhead);
}

#[derive(Debug)]
enum Schedule {
    UpsideDown,
    Drifts(AtomicUsize),
}

impl ClipSchedule for Schedule {
    fn bounds(&self, _: &ResponseTokens<'_>, out: &mut [Bounds]) {
        out.fill(match self {
            Self::UpsideDown => Bounds { low: 1.2, high: 0.8 },
            Self::Drifts(calls) => Bounds::around_one(0.0, calls.fetch_add(1, Ordering::Relaxed) as f64),
        });
    }
}

#[test]
#[should_panic(expected = "with low <= high")]
fn a_window_upside_down_is_caught() {
    check_schedule(Schedule::UpsideDown);
}

#[test]
#[should_panic(expected = "two calls give different windows")]
fn a_schedule_that_drifts_is_caught() {
    check_schedule(Schedule::Drifts(AtomicUsize::new(0)));
}

#[derive(Debug)]
enum Weight {
    WrongSlope,
    Overflows,
}

impl Gate for Weight {
    fn gate(&self, response: &ResponseTokens<'_>, log_weights: &[f64], _: &[Bounds], out: &mut [Gated]) {
        for ((out, log_weight), advantage) in out.iter_mut().zip(log_weights).zip(response.advantages()) {
            let value = log_weight.exp() * advantage;
            *out = match self {
                Self::WrongSlope => Gated { value, slope: 2.0 * value, binding: Binding::None },
                Self::Overflows => Gated { value: (50.0 * log_weight).exp(), ..Gated::default() },
            };
        }
    }
}

#[test]
#[should_panic(expected = "is not the derivative")]
fn a_wrong_slope_is_caught() {
    check_gate(Weight::WrongSlope);
}

#[test]
#[should_panic(expected = "every entry must be written and finite")]
fn a_gate_that_overflows_is_caught() {
    check_gate(Weight::Overflows);
}

#[derive(Debug)]
enum Loss {
    IgnoresTheWeight,
    PushesSaturatedTokens,
    MissesACoefficient,
}

impl Objective for Loss {
    fn evaluate(&self, response: &ResponseTokens<'_>, weight: f64) -> ResponseTerms {
        let kept = match self {
            Self::MissesACoefficient => response.len() / 2,
            _ => response.len(),
        };
        let coefficient = |index| match self {
            Self::PushesSaturatedTokens => weight,
            _ if response.is_saturated(index) => 0.0,
            _ => weight,
        };
        ResponseTerms {
            loss: if matches!(self, Self::IgnoresTheWeight) { 1.0 } else { weight },
            coefficients: (0..kept).map(coefficient).collect(),
            bindings: vec![Binding::None; response.len()],
            ..ResponseTerms::default()
        }
    }
}

#[test]
#[should_panic(expected = "the loss must be proportional to the weight")]
fn a_loss_without_the_weight_is_caught() {
    check_objective(Loss::IgnoresTheWeight);
}

#[test]
#[should_panic(expected = "a saturated token has the coefficient")]
fn a_coefficient_of_a_saturated_token_is_caught() {
    check_objective(Loss::PushesSaturatedTokens);
}

#[test]
#[should_panic(expected = "one coefficient per token")]
fn a_missing_coefficient_is_caught() {
    check_objective(Loss::MissesACoefficient);
}

#[derive(Debug)]
enum Advantager {
    UnscoredIsZero,
    NeverCentres,
    AcceptsNan,
}

impl AdvantageEstimator for Advantager {
    fn advantages(&mut self, batch: &RewardBatch) -> Result<Advantages, AdvantageError> {
        let scored: Vec<f64> = batch.rows.iter().filter_map(|row| row.reward).collect();
        let mean = match self {
            Self::NeverCentres => 0.0,
            _ if scored.iter().all(|reward| *reward == scored[0]) => scored[0],
            _ => scored.iter().sum::<f64>() / scored.len() as f64,
        };
        let advantage = |reward: Option<f64>| match (reward, &self) {
            (Some(reward), _) => Advantage::Response(reward - mean),
            (None, Self::UnscoredIsZero) => Advantage::Response(0.0),
            (None, _) => Advantage::Excluded,
        };
        Ok(batch.rows.iter().map(|row| advantage(row.reward)).collect::<Vec<_>>().into())
    }
}

#[test]
#[should_panic(expected = "unscored rows are excluded")]
fn a_zero_for_an_unscored_row_is_caught() {
    check_advantage_estimator(Advantager::UnscoredIsZero);
}

#[test]
#[should_panic(expected = "equal rewards must have advantages of exactly zero")]
fn an_advantage_out_of_equal_rewards_is_caught() {
    check_advantage_estimator(Advantager::NeverCentres);
}

#[test]
#[should_panic(expected = "a reward of NaN must be an error")]
fn a_reward_of_nan_that_passes_is_caught() {
    check_advantage_estimator(Advantager::AcceptsNan);
}

#[derive(Debug)]
enum Verifier {
    Sound,
    Infinite,
    Moody(AtomicUsize),
}

impl RewardVerifier for Verifier {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        if sample.text.is_empty() {
            return Err(VerifyError::new("there is no text"));
        }
        Ok(Verdict::scored(match self {
            Self::Sound => f64::from(u8::from(sample.text == sample.prompt.answer)),
            Self::Infinite => f64::INFINITY,
            Self::Moody(calls) => calls.fetch_add(1, Ordering::Relaxed) as f64,
        }))
    }
}

fn prompt() -> Prompt {
    Prompt::new("p", "1 + 1?", "2")
}

#[test]
fn a_sound_verifier_passes() {
    check_verifier(Verifier::Sound, &prompt(), &["2", "3"]);
}

#[test]
#[should_panic(expected = "is inf")]
fn an_infinite_reward_is_caught() {
    check_verifier(Verifier::Infinite, &prompt(), &["2"]);
}

#[test]
#[should_panic(expected = "two calls give different verdicts")]
fn a_verifier_that_changes_its_mind_is_caught() {
    check_verifier(Verifier::Moody(AtomicUsize::new(0)), &prompt(), &["2"]);
}
