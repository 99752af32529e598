//! What an optimizer's numbers may be.

use crate::{OptimizerSettings, PlanError, plan::require};

impl OptimizerSettings {
    /// Checks every range. Keys are named as in the table around `optimizer`.
    ///
    /// # Errors
    /// Names the key, its value and what is allowed.
    pub fn validate(&self) -> Result<(), PlanError> {
        let at_least_0 = |value: f64| value.is_finite() && value >= 0.0;
        let finite = "a finite number, at least 0";
        require(at_least_0(self.learning_rate), "optimizer.learning_rate", self.learning_rate, finite)?;
        for (key, value) in [("optimizer.beta_1", self.beta_1), ("optimizer.beta_2", self.beta_2)] {
            require((0.0..1.0).contains(&value), key, value, "in [0, 1)")?;
        }
        require(self.epsilon > 0.0, "optimizer.epsilon", self.epsilon, "above 0")?;
        require(self.weight_decay >= 0.0, "optimizer.weight_decay", self.weight_decay, "at least 0")?;
        let (norm, allowed) = (self.max_grad_norm, "at least 0; 0 turns clipping off");
        require(norm >= 0.0, "optimizer.max_grad_norm", norm, allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_refused_by_name_outside_of_its_range() {
        let usual = OptimizerSettings::new(1e-3);
        usual.validate().unwrap();
        for (settings, start) in [
            (OptimizerSettings::new(f64::INFINITY), "optimizer.learning_rate = inf: allowed is"),
            (OptimizerSettings { beta_1: 1.0, ..usual.clone() }, "optimizer.beta_1 = 1: allowed is"),
            (OptimizerSettings { beta_2: -0.1, ..usual.clone() }, "optimizer.beta_2 = -0.1: allowed is"),
            (OptimizerSettings { epsilon: 0.0, ..usual.clone() }, "optimizer.epsilon = 0: allowed is"),
            (
                OptimizerSettings { weight_decay: f64::NAN, ..usual.clone() },
                "optimizer.weight_decay = NaN: allowed is",
            ),
            (OptimizerSettings { max_grad_norm: -1.0, ..usual }, "optimizer.max_grad_norm = -1: allowed is"),
        ] {
            let error = settings.validate().unwrap_err().to_string();
            assert!(error.starts_with(start), "{error}");
        }
    }
}
