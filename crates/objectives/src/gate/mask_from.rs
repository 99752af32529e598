//! The mask of one weight on another.

use std::fmt::Debug;

use firebrick_core::{
    Binding, Bounds, ClipSchedule, Gate, Gated, ImportanceEstimator, LOG_RATIO_LIMIT, OptimizerBatch,
    Requirements, ResponseTokens, StateError, Stateful,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::beyond;
use crate::{ConfigError, EstimatorConfig, ScheduleConfig};

/// Keeps the tokens that another estimator and schedule would keep, under the weight of the objective's own estimator.
///
/// ```text
/// v_t = exp(log-weight of `estimator`),  [low_t, high_t] = window of `schedule`
/// M_t = 0 where v_t lies outside the window, else 1
///       sign-aware: 0 only where A > 0 and v_t > high_t, or A < 0 and v_t < low_t
/// J_t = M_t w_t A_t
/// ```
///
/// It tells the effect of a weight from the effect of the mask that comes with it: with the same estimator in both places
/// it is the masked objective itself, with a constant weight its mask alone. The objective's own window plays no
/// part. A masked token stays in every denominator; its binding is the end of the other window that masked it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaskFrom {
    /// What the mask weighs.
    pub estimator: EstimatorConfig,
    /// What the mask compares with.
    pub schedule: ScheduleConfig,
    /// Whether a token is masked only on the side that its advantage pushes towards, as PPO does.
    pub sign_aware: bool,
}

impl MaskFrom {
    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.estimator.validate().map_err(|error| error.within("estimator"))?;
        self.schedule.validate().map_err(|error| error.within("schedule"))
    }

    /// The gate.
    pub fn build(&self) -> Box<dyn Gate> {
        Box::new(Masking::new(self.estimator.build(), self.schedule.build(), self.sign_aware))
    }
}

#[derive(Debug)]
struct Masking {
    estimator: Box<dyn ImportanceEstimator>,
    schedule: Box<dyn ClipSchedule>,
    sign_aware: bool,
    /// State of the two parts, which changes when a batch is prepared or a state loaded; `None` when neither has any.
    state: Option<Value>,
}

impl Masking {
    fn new(
        estimator: Box<dyn ImportanceEstimator>,
        schedule: Box<dyn ClipSchedule>,
        sign_aware: bool,
    ) -> Self {
        let mut mask = Self { estimator, schedule, sign_aware, state: None };
        if mask.parts().next().is_some() {
            mask.keep_state();
        }
        mask
    }

    fn parts(&mut self) -> impl Iterator<Item = (&'static str, &mut dyn Stateful)> {
        let estimator = self.estimator.stateful().map(|part| ("estimator", part));
        estimator.into_iter().chain(self.schedule.stateful().map(|part| ("schedule", part)))
    }

    fn keep_state(&mut self) {
        let saved = self.parts().map(|(name, part)| (name.to_owned(), part.save())).collect();
        self.state = Some(Value::Object(saved));
    }
}

impl Gate for Masking {
    fn gate(&self, response: &ResponseTokens<'_>, log_weights: &[f64], _: &[Bounds], out: &mut [Gated]) {
        let len = log_weights.len();
        let mut masking = vec![0.0; len];
        self.estimator.log_weights(response, &mut masking);
        let mut windows = vec![Bounds::OPEN; len];
        self.schedule.bounds(response, &mut windows);
        for (index, out) in out.iter_mut().enumerate() {
            let weight = masking[index].clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp();
            let advantage = response.advantages()[index];
            let binding = match beyond(weight, windows[index]) {
                Binding::High if self.sign_aware && advantage <= 0.0 => Binding::None,
                Binding::Low if self.sign_aware && advantage >= 0.0 => Binding::None,
                binding => binding,
            };
            let value = if binding == Binding::None { log_weights[index].exp() * advantage } else { 0.0 };
            *out = Gated { value, slope: value, binding };
        }
    }

    fn requirements(&self) -> Requirements {
        self.estimator.requirements().union(self.schedule.requirements())
    }

    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        if self.state.is_some() { Some(self) } else { None }
    }
}

impl Stateful for Masking {
    fn prepare(&mut self, batch: &OptimizerBatch<'_>) -> Result<(), StateError> {
        self.parts().try_for_each(|(_, part)| part.prepare(batch))?;
        self.keep_state();
        Ok(())
    }

    fn save(&self) -> Value {
        self.state.clone().unwrap_or_else(|| json!({}))
    }

    fn load(&mut self, state: &Value) -> Result<(), StateError> {
        self.parts().try_for_each(|(name, part)| {
            let Some(state) = state.get(name) else {
                let reason = format!("there is none for its {name}");
                return Err(StateError::Mismatch { part: "mask_from".to_owned(), reason });
            };
            part.load(state)
        })?;
        self.keep_state();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use firebrick_testkit::{TestResponse, check_gate};

    use super::*;
    use crate::{ConstantClip, HardMask, MaskedValue, PrefixMean, SequenceMean, TokenRatio};

    fn mask(estimator: EstimatorConfig, sign_aware: bool) -> MaskFrom {
        let schedule = ScheduleConfig::Constant(ConstantClip { low: 0.2, high: 0.2 });
        MaskFrom { estimator, schedule, sign_aware }
    }

    fn gated(gate: &dyn Gate, log_weights: &[f64; 4], advantage: f64) -> Vec<Gated> {
        let response = TestResponse::from_log_ratios(&[0.5, -0.5, 0.1, -0.9], &[advantage; 4]);
        let mut out = vec![Gated::default(); 4];
        gate.gate(&response.tokens(), log_weights, &[Bounds { low: 0.8, high: 1.2 }; 4], &mut out);
        out
    }

    fn bindings(out: &[Gated]) -> Vec<Binding> {
        out.iter().map(|token| token.binding).collect()
    }

    #[test]
    fn the_mask_looks_at_its_own_weight_and_keeps_the_objectives() {
        use Binding::{High, Low, None};
        let either = mask(EstimatorConfig::TokenRatio(TokenRatio), false).build();
        let out = gated(either.as_ref(), &[1.0; 4], -2.0);
        assert_eq!(bindings(&out), [High, Low, None, Low]);
        let weight = -2.0 * 1.0_f64.exp();
        assert_eq!((out[0].slope, out[2].slope, out[2].value), (0.0, weight, weight));
        let aware = mask(EstimatorConfig::TokenRatio(TokenRatio), true).build();
        assert_eq!(bindings(&gated(aware.as_ref(), &[1.0; 4], -2.0)), [None, Low, None, Low]);
        assert_eq!(bindings(&gated(aware.as_ref(), &[1.0; 4], 2.0)), [High, None, None, None]);
    }

    #[test]
    fn with_the_same_weight_in_both_places_it_is_the_hard_mask() {
        let same = mask(EstimatorConfig::TokenRatio(TokenRatio), false).build();
        let hard = HardMask { value: MaskedValue::Weight };
        let d = [0.5, -0.5, 0.1, -0.9];
        assert_eq!(gated(same.as_ref(), &d, 1.5), gated(&hard, &d, 1.5));
    }

    /// A part with state, whose window is closed until it was shown a batch.
    #[derive(Debug, Default)]
    struct Closed(u64);

    impl ClipSchedule for Closed {
        fn bounds(&self, _: &ResponseTokens<'_>, out: &mut [Bounds]) {
            out.fill(if self.0 == 0 { Bounds { low: 1.0, high: 1.0 } } else { Bounds::OPEN });
        }
        fn requirements(&self) -> Requirements {
            Requirements { entropies: true, ..Requirements::default() }
        }
        fn stateful(&mut self) -> Option<&mut dyn Stateful> {
            Some(self)
        }
    }

    impl Stateful for Closed {
        fn prepare(&mut self, _: &OptimizerBatch<'_>) -> Result<(), StateError> {
            self.0 += 1;
            Ok(())
        }
        fn save(&self) -> Value {
            json!(self.0)
        }
        fn load(&mut self, state: &Value) -> Result<(), StateError> {
            self.0 = state.as_u64().unwrap_or(0);
            Ok(())
        }
    }

    #[test]
    fn the_masks_parts_are_prepared_saved_and_restored() {
        let mut gate = Masking::new(Box::new(TokenRatio), Box::new(Closed::default()), false);
        assert!(gate.requirements().entropies);
        assert_eq!(bindings(&gated(&gate, &[0.0; 4], 1.0))[2], Binding::High);
        let part = gate.stateful().unwrap();
        assert_eq!(part.save(), json!({ "schedule": 0 }));
        part.prepare(&OptimizerBatch { responses: &[], current: None }).unwrap();
        assert_eq!(part.save(), json!({ "schedule": 1 }));
        let saved = part.save();
        assert_eq!(bindings(&gated(&gate, &[0.0; 4], 1.0)), [Binding::None; 4]);
        let mut restored = Masking::new(Box::new(TokenRatio), Box::new(Closed::default()), false);
        assert!(restored.load(&json!({})).unwrap_err().to_string().contains("none for its schedule"));
        restored.load(&saved).unwrap();
        assert_eq!(restored.save(), saved);
        assert_eq!(bindings(&gated(&restored, &[0.0; 4], 1.0)), [Binding::None; 4]);
        let mut plain = mask(EstimatorConfig::TokenRatio(TokenRatio), false).build();
        assert!(plain.stateful().is_none());
    }

    #[test]
    fn a_number_out_of_range_is_refused_with_the_whole_path() {
        let schedule = ScheduleConfig::Constant(ConstantClip { low: -0.2, high: 0.2 });
        let mask = MaskFrom { schedule, ..mask(EstimatorConfig::TokenRatio(TokenRatio), true) };
        let error = mask.validate().unwrap_err();
        assert_eq!(error.to_string(), "schedule.low = -0.2: allowed is a finite number >= 0");
    }

    #[test]
    fn keeps_the_contract() {
        for estimator in [
            EstimatorConfig::PrefixMean(PrefixMean::default()),
            EstimatorConfig::SequenceMean(SequenceMean::default()),
        ] {
            check_gate(mask(estimator.clone(), true).build());
            check_gate(mask(estimator, false).build());
        }
    }
}
