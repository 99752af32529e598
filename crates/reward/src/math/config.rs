//! Settings of the grader, and the presets that stand for public graders.

use serde::{Deserialize, Serialize};

use super::verifier::MathVerifier;
use crate::config::{RewardConfigError, check_methods, check_rewards};
use crate::extraction::ExtractionMethod;

/// The public grader whose rules are followed; other keys override single ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MathPreset {
    /// Formulas, sets, relations and matrices by what they mean.
    ///
    /// *Reference*: Kydlíček, Gandenberger, "Math-Verify", 2025, version 0.9.0.
    #[default]
    MathVerify,
    /// The last `Answer:` line or box, as normalised text; +1 and −1.
    ///
    /// *Reference*: Yu et al., "DAPO", 2025, arXiv:2503.14476.
    Dapo,
    /// The number behind the last `####`, or else the last number, wherever it stands.
    ///
    /// *Reference*: Cobbe et al., "Training verifiers to solve math word problems", 2021, arXiv:2110.14168.
    Gsm8k,
    /// The last box or answer; expressions, tuples and intervals by what they mean, with a factor of 100 forgiven.
    ///
    /// *Reference*: Lightman et al., "Let's verify step by step", 2023, arXiv:2305.20050; Cui et al., "Process
    /// reinforcement through implicit rewards", 2025, arXiv:2502.01456.
    Prime,
}

impl MathPreset {
    /// `math_verify`, `dapo`, `gsm8k` or `prime`.
    pub fn name(self) -> &'static str {
        match self {
            Self::MathVerify => "math_verify",
            Self::Dapo => "dapo",
            Self::Gsm8k => "gsm8k",
            Self::Prime => "prime",
        }
    }
}

/// What is looked for in a response besides boxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchType {
    /// Formulas between math delimiters.
    Latex,
    /// Numbers and arithmetic in plain text, and words behind a mark.
    Expr,
}

/// Settings of [`MathVerifier`]. A key that is left out has the preset's value.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MathConfig {
    /// The grader that is followed; in a [`crate::RewardConfig`] its `type` says so.
    #[serde(skip)]
    pub preset: MathPreset,
    /// What is looked for; by default both. Applies to the order of the preset `math_verify`, not to `extraction`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_types: Option<Vec<MatchType>>,
    /// Where boxes stand in the order of the preset `math_verify`: 0, the default, before all but a closing statement; up
    /// to 50 behind "final answer is"; up to 200 behind "answer"; above that last; −1 for not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boxed_match_priority: Option<i32>,
    /// The methods of extraction in order, in place of the preset's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extraction: Option<Vec<ExtractionMethod>>,
    /// Decimals, 0 to 15, to which a number is compared when one side writes it with a decimal point. Default 6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<u32>,
    /// Whether the names of variables matter. Default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// Whether an inequality answers for the set of its solutions where the reference is that set. Default false. A set
    /// always answers for an inequality.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_set_relation_comp: Option<bool>,
    /// Reward of a right answer. Default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correct_reward: Option<f64>,
    /// Reward of a wrong answer and of none. Default 0, in the preset `dapo` −1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrong_reward: Option<f64>,
}

/// Most decimals that can be compared.
const MAX_PRECISION: u32 = 15;

impl MathConfig {
    /// Settings of a preset.
    pub fn preset(preset: MathPreset) -> Self {
        Self { preset, ..Self::default() }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// When a reward is not finite, a right answer does not earn more than a wrong one, the precision is above 15,
    /// `boxed_match_priority` is below −1, or the methods of extraction are none or repeated.
    pub fn validate(&self) -> Result<(), RewardConfigError> {
        let (correct, wrong) = self.rewards();
        check_rewards(correct, wrong)?;
        let refuse =
            |key: &str, value: String, allowed| Err(RewardConfigError::out_of_range(key, value, allowed));
        if let Some(value) = self.precision.filter(|value| *value > MAX_PRECISION) {
            return refuse("precision", value.to_string(), "0 to 15 decimals");
        }
        if let Some(value) = self.boxed_match_priority.filter(|value| *value < -1) {
            return refuse(
                "boxed_match_priority",
                value.to_string(),
                "-1 for never, or 0 and more, 0 for first",
            );
        }
        if self.match_types.as_ref().is_some_and(Vec::is_empty) {
            return refuse("match_types", "[]".to_owned(), "at least one of latex, expr");
        }
        check_methods("extraction", &self.order())
    }

    /// Builds the verifier.
    ///
    /// # Errors
    /// As [`Self::validate`].
    pub fn build(self) -> Result<MathVerifier, RewardConfigError> {
        self.validate()?;
        let order = self.order();
        Ok(MathVerifier::new(self, order))
    }

    /// Rewards of a right and of a wrong answer.
    pub(crate) fn rewards(&self) -> (f64, f64) {
        let wrong = if self.preset == MathPreset::Dapo { -1.0 } else { 0.0 };
        (self.correct_reward.unwrap_or(1.0), self.wrong_reward.unwrap_or(wrong))
    }

    /// The methods of extraction in order.
    fn order(&self) -> Vec<ExtractionMethod> {
        use ExtractionMethod::{
            AnswerLine, AnswerWord, Boxed, ClosingStatement, Expression, FinalAnswer, Hashes, Latex, Whole,
        };
        if let Some(order) = &self.extraction {
            return order.clone();
        }
        match self.preset {
            MathPreset::Dapo => return vec![AnswerLine, Boxed],
            MathPreset::Gsm8k => return vec![Hashes, Expression],
            MathPreset::Prime => return vec![Boxed, Hashes, AnswerLine, Whole],
            MathPreset::MathVerify => {}
        }
        let wanted = |kind: MatchType| self.match_types.as_ref().is_none_or(|kinds| kinds.contains(&kind));
        let mut order = vec![ClosingStatement, FinalAnswer, Hashes, AnswerLine, AnswerWord, Whole];
        if wanted(MatchType::Latex) {
            order.push(Latex);
        }
        if wanted(MatchType::Expr) {
            order.push(Expression);
        }
        match self.boxed_match_priority.unwrap_or(0) {
            ..0 => {}
            0 => order.insert(1, Boxed),
            1..=50 => order.insert(2, Boxed),
            51..=200 => order.insert(5, Boxed),
            _ => order.push(Boxed),
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{RewardConfig, refusal};

    #[test]
    fn unusable_settings_are_refused_by_name() {
        let error = |text: &str| refusal(&RewardConfig::MathVerify(serde_json::from_str(text).unwrap()));
        assert_eq!(error(r#"{"wrong_reward": 1.0}"#), "correct_reward = 1 must be above wrong_reward = 1");
        assert_eq!(error(r#"{"precision": 16}"#), "precision = 16: allowed is 0 to 15 decimals");
        assert!(
            error(r#"{"boxed_match_priority": -2}"#).starts_with("boxed_match_priority = -2: allowed is -1")
        );
        assert!(error(r#"{"extraction": []}"#).starts_with("extraction = []: allowed is at least one"));
        assert!(error(r#"{"match_types": []}"#).starts_with("match_types = []: allowed is at least one"));
        assert_eq!(
            error(r#"{"extraction": ["boxed", "boxed"]}"#),
            "extraction names Boxed twice: remove one"
        );
        let infinite = MathConfig { correct_reward: Some(f64::INFINITY), ..MathConfig::default() };
        assert_eq!(
            refusal(&RewardConfig::MathVerify(infinite)),
            "correct_reward = inf: a reward must be finite"
        );
        assert!(serde_json::from_str::<MathConfig>(r#"{"precison": 3}"#).is_err());
    }

    #[test]
    fn a_preset_decides_what_no_key_says() {
        assert_eq!(MathConfig::default().rewards(), (1.0, 0.0));
        let dapo = MathConfig::preset(MathPreset::Dapo);
        assert_eq!(dapo.rewards(), (1.0, -1.0));
        assert_eq!(MathConfig { wrong_reward: Some(0.0), ..dapo }.rewards(), (1.0, 0.0));
    }

    #[test]
    fn the_priority_of_boxes_moves_them() {
        let place = |priority| {
            let config = MathConfig { boxed_match_priority: Some(priority), ..MathConfig::default() };
            config.order().iter().position(|method| *method == ExtractionMethod::Boxed)
        };
        assert_eq!(place(0), Some(1));
        assert_eq!(place(50), Some(2));
        assert_eq!(place(100), Some(5));
        assert_eq!(place(-1), None);
    }
}
