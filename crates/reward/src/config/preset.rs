//! Routes for data sets that users of the field share.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::RewardConfig;
use crate::math::MathConfig;

/// A table of verifiers by data source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SourcePreset {
    /// The names that data files made for verl carry in `data_source`:
    ///
    /// | data source | verifier | right, wrong |
    /// |---|---|---|
    /// | `openai/gsm8k` | `gsm8k` | 1, 0 |
    /// | `lighteval/MATH`, `DigitalLearningGmbH/MATH-lighteval`, `HuggingFaceH4/MATH-500` | `math_verify` | 1, 0 |
    /// | `math`, `math_dapo`, `math_dapo_reasoning`, `aime*` | `dapo` | 1, −1 |
    /// | `numina_*` | `prime` | 1, 0 |
    ///
    /// Sources of programs have no route, since building one asks for a sandbox, nor have those of images and searches: give them one.
    ///
    /// *Reference*: `default_compute_score` of verl, which routes by the same names to graders of its own.
    Verl,
}

impl SourcePreset {
    /// The routes.
    pub fn routes(self) -> BTreeMap<String, RewardConfig> {
        let math = RewardConfig::MathVerify(MathConfig::default());
        let dapo = RewardConfig::Dapo(MathConfig::default());
        let routes = [
            ("openai/gsm8k", RewardConfig::Gsm8k(MathConfig::default())),
            ("lighteval/MATH", math.clone()),
            ("DigitalLearningGmbH/MATH-lighteval", math.clone()),
            ("HuggingFaceH4/MATH-500", math),
            ("math", dapo.clone()),
            ("math_dapo", dapo.clone()),
            ("math_dapo_reasoning", dapo.clone()),
            ("aime*", dapo),
            ("numina_*", RewardConfig::Prime(MathConfig::default())),
        ];
        routes.into_iter().map(|(source, config)| (source.to_owned(), config)).collect()
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Prompt, RewardVerifier, Sample};
    use serde_json::json;

    use super::*;

    fn build(config: serde_json::Value) -> Box<dyn RewardVerifier> {
        serde_json::from_value::<RewardConfig>(config).unwrap().build().unwrap()
    }

    fn reward(verifier: &dyn RewardVerifier, source: &str, text: &str) -> Option<f64> {
        let prompt = Prompt::new("p", "?", "4").with_data_source(source);
        verifier.verify(&Sample::of_text(&prompt, text)).unwrap().reward()
    }

    #[test]
    fn the_names_of_verl_have_their_verifiers() {
        let verifier = build(json!({"type": "by_data_source", "preset": "verl"}));
        let rewards = |source| {
            ["#### 4", r"\boxed{4}", "Answer: 4", "none"].map(|text| reward(&verifier, source, text))
        };
        let (one, zero) = (Some(1.0), Some(0.0));
        assert_eq!([rewards("openai/gsm8k")[0], rewards("openai/gsm8k")[3]], [one, zero]);
        assert_eq!([rewards("HuggingFaceH4/MATH-500")[1], rewards("HuggingFaceH4/MATH-500")[3]], [one, zero]);
        assert_eq!([rewards("numina_olympiads")[1], rewards("numina_olympiads")[3]], [one, zero]);
        assert_eq!(rewards("aime2025"), [Some(-1.0), one, one, Some(-1.0)]);
        assert_eq!(rewards("geometry3k"), [None; 4]);
        assert_eq!(rewards("codecontests"), [None; 4]);
    }

    #[test]
    fn a_source_of_the_users_takes_the_place_of_the_presets() {
        let verifier = build(json!({"type": "by_data_source", "preset": "verl", "sources": {
            "aime*": {"type": "exact_answer"}, "mine": {"type": "exact_answer"},
        }}));
        assert_eq!(reward(&verifier, "aime2025", "none"), Some(0.0));
        assert_eq!(reward(&verifier, "mine", "#### 4"), Some(1.0));
        assert_eq!(reward(&verifier, "math_dapo", "none"), Some(-1.0));
    }
}
