//! The verifier of exact answers.

use firebrick_core::{FinishReason, Prompt, RewardVerifier, Sample, UnscoredReason, Verdict, VerifyError};
use serde::{Deserialize, Serialize};

use crate::answer::Answer;
use crate::config::{RewardConfigError, check_methods, check_rewards};
use crate::extraction::{ExtractionSpec, extract_answer};
use crate::rational::MAX_NUMBER_BYTES;

/// Settings of [`ExactAnswer`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExactAnswerConfig {
    /// How the answer is found in the response.
    pub extraction: ExtractionSpec,
    /// Reward of a right answer. Default 1.
    pub correct_reward: f64,
    /// Reward of a wrong answer and of none. Default 0.
    pub wrong_reward: f64,
}

impl Default for ExactAnswerConfig {
    fn default() -> Self {
        Self { extraction: ExtractionSpec::default(), correct_reward: 1.0, wrong_reward: 0.0 }
    }
}

impl ExactAnswerConfig {
    /// Checks the settings.
    ///
    /// # Errors
    /// When a reward is not finite, a right answer does not earn more than a wrong one, or the extraction
    /// order is empty or names a method twice.
    pub fn validate(&self) -> Result<(), RewardConfigError> {
        check_rewards(self.correct_reward, self.wrong_reward)?;
        check_methods("extraction.order", &self.extraction.order)
    }

    /// Builds the verifier.
    ///
    /// # Errors
    /// As [`Self::validate`].
    pub fn build(self) -> Result<ExactAnswer, RewardConfigError> {
        self.validate()?;
        Ok(ExactAnswer { config: self })
    }
}

/// Rewards a response whose answer equals the reference exactly: as rational numbers, or else as text
/// ([`Answer`]).
///
/// * The rule of the score is `rational` or `text`, after what decided; a response that states no answer
///   earns the wrong reward under `no_answer`, with nothing extracted. So failed extraction is counted apart
///   from wrong answers.
/// * The reference may be bare (`42`) or stand where an answer stands (`\boxed{42}`, a solution that ends in
///   `#### 42`): it is read by the same extractor. One that is empty, has several lines or is longer than
///   [`MAX_NUMBER_BYTES`] leaves the completion unscored, whatever it says.
/// * A truncated response is graded like any other; one whose generation was aborted is unscored.
///
/// The verifier is pure, total, linear in the length of the response, and needs no time limit. It does no
/// algebra: `x+1` is not `1+x`, and `28\%` is not `0.28`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ExactAnswer {
    config: ExactAnswerConfig,
}

impl ExactAnswer {
    /// The settings.
    pub fn config(&self) -> &ExactAnswerConfig {
        &self.config
    }

    fn reference(&self, answer: &str) -> Result<Answer, UnscoredReason> {
        let bad = |problem: &str| UnscoredReason::BadReference(format!("the reference answer {problem}"));
        let stated = match extract_answer(answer, &self.config.extraction) {
            Some(extracted) => extracted.text,
            None => answer.trim(),
        };
        if stated.contains('\n') {
            return Err(bad(
                "has several lines and states no answer that the extractor finds: give the answer alone",
            ));
        }
        if stated.len() > MAX_NUMBER_BYTES {
            let length = stated.len();
            return Err(bad(&format!(
                "has {length} bytes; the limit is {MAX_NUMBER_BYTES}: give the answer alone"
            )));
        }
        Answer::parse(stated).ok_or_else(|| bad(&format!("`{stated}` is empty")))
    }
}

impl RewardVerifier for ExactAnswer {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        if sample.finish_reason == FinishReason::Aborted {
            return Ok(Verdict::Unscored(UnscoredReason::Aborted));
        }
        let reference = match self.reference(&sample.prompt.answer) {
            Ok(reference) => reference,
            Err(reason) => return Ok(Verdict::Unscored(reason)),
        };
        let wrong = self.config.wrong_reward;
        let Some(extracted) = extract_answer(sample.text, &self.config.extraction) else {
            return Ok(Verdict::graded(wrong, None, "no_answer"));
        };
        let Some(answer) = Answer::parse(extracted.text) else {
            return Ok(Verdict::graded(wrong, None, "no_answer")); // a box of markup only
        };
        let comparison = reference.compare(&answer);
        let reward = if comparison.equal { self.config.correct_reward } else { wrong };
        Ok(Verdict::graded(reward, Some(extracted.text.to_owned()), comparison.rule.name()))
    }

    fn check_reference(&self, prompt: &Prompt) -> Result<(), UnscoredReason> {
        self.reference(&prompt.answer).map(drop)
    }

    fn name(&self) -> &str {
        "exact_answer"
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::Prompt;
    use proptest::prelude::*;

    use super::*;
    use crate::config::{RewardConfig, refusal};
    use crate::extraction::ExtractionMethod;

    fn verdict(response: &str, reference: &str) -> Verdict {
        let prompt = Prompt::new("p", "?", reference);
        ExactAnswer::default().verify(&Sample::of_text(&prompt, response)).unwrap()
    }

    fn graded(reward: f64, extracted: &str, rule: &'static str) -> Verdict {
        Verdict::graded(reward, Some(extracted.to_owned()), rule)
    }

    /// slime #543, ms-swift #10147, tinker-cookbook #903, slime #2150.
    #[test]
    fn boxes_are_graded_by_the_last_one_whole() {
        assert_eq!(verdict(r"Answer: \boxed{5}", "5"), graded(1.0, "5", "rational"));
        assert_eq!(verdict(r"\boxed{\frac{1}{2}}", "1/3"), graded(0.0, r"\frac{1}{2}", "rational"));
        assert_eq!(verdict(r"\boxed{\frac{1}{2}}", "0.5"), graded(1.0, r"\frac{1}{2}", "rational"));
        assert_eq!(verdict(r"\boxed{5} or rather \boxed{7}", "7"), graded(1.0, "7", "rational"));
        assert_eq!(verdict(r"\fbox{42}", "42"), graded(1.0, "42", "rational"));
    }

    /// verl #7274, open-instruct #1530, opencompass #2343.
    #[test]
    fn position_sign_and_currency_are_graded_right() {
        assert_eq!(verdict(&format!("#### 42\n{}", "y".repeat(500)), "42"), graded(1.0, "42", "rational"));
        assert_eq!(verdict("#### -3", "3"), graded(0.0, "-3", "rational"));
        assert_eq!(verdict("#### -3", "-3"), graded(1.0, "-3", "rational"));
        assert_eq!(verdict("Answer: $200,000", "200000"), graded(1.0, "$200,000", "rational"));
    }

    #[test]
    fn a_response_without_an_answer_is_wrong_under_a_rule_of_its_own() {
        for response in
            ["", "I give up", r"\boxed{}", r"\boxed{4", r"\boxed{$ $}", r"<think>\boxed{4}</think>"]
        {
            assert_eq!(verdict(response, "4"), Verdict::graded(0.0, None, "no_answer"), "{response}");
        }
    }

    #[test]
    fn words_are_graded_as_text() {
        assert_eq!(verdict("Answer: blue", "blue"), graded(1.0, "blue", "text"));
        assert_eq!(verdict("Answer: red", "blue"), graded(0.0, "red", "text"));
        assert_eq!(verdict("Answer: 5 apples", "5"), graded(0.0, "5 apples", "text"));
    }

    #[test]
    fn the_reference_is_read_by_the_same_extractor() {
        assert_eq!(verdict("#### 18", "9 * 2 = 18\n#### 18"), graded(1.0, "18", "rational"));
        assert_eq!(verdict("#### 18", r"\boxed{18}"), graded(1.0, "18", "rational"));
    }

    #[test]
    fn a_reference_that_cannot_be_used_leaves_the_completion_unscored() {
        for reference in ["", "  ", "$$", "first\nsecond", &"7".repeat(MAX_NUMBER_BYTES + 1)] {
            for response in ["Answer: 7", "nothing", r"\boxed{}"] {
                let verdict = verdict(response, reference);
                let Verdict::Unscored(UnscoredReason::BadReference(message)) = &verdict else {
                    panic!("{reference:?}: {verdict:?}");
                };
                assert!(message.starts_with("the reference answer "), "{message}");
                let refused = ExactAnswer::default().check_reference(&Prompt::new("p", "?", reference));
                assert_eq!(Verdict::Unscored(refused.unwrap_err()), verdict);
            }
        }
    }

    #[test]
    fn an_aborted_completion_is_unscored_and_a_truncated_one_is_graded() {
        let prompt = Prompt::new("p", "?", "4");
        let verify = |reason| {
            ExactAnswer::default().verify(&Sample::new(&prompt, "Answer: 4", &[], reason)).unwrap().reward()
        };
        assert_eq!(verify(FinishReason::Aborted), None);
        assert_eq!(verify(FinishReason::Length), Some(1.0));
    }

    #[test]
    fn the_rewards_are_the_configured_ones() {
        let config: ExactAnswerConfig = serde_json::from_str(
            r#"{"correct_reward": 1.0, "wrong_reward": -1.0, "extraction": {"order": ["answer_line"]}}"#,
        )
        .unwrap();
        let verifier = config.build().unwrap();
        let prompt = Prompt::new("p", "?", "4");
        let reward = |text| verifier.verify(&Sample::of_text(&prompt, text)).unwrap().reward();
        assert_eq!(reward("Answer: 4"), Some(1.0));
        assert_eq!(reward("Answer: 5"), Some(-1.0));
        assert_eq!(reward("#### 4"), Some(-1.0));
    }

    #[test]
    fn unusable_settings_are_refused_by_name() {
        let error = |change: fn(&mut ExactAnswerConfig)| {
            let mut config = ExactAnswerConfig::default();
            change(&mut config);
            refusal(&RewardConfig::ExactAnswer(config))
        };
        assert_eq!(error(|c| c.wrong_reward = f64::NAN), "wrong_reward = NaN: a reward must be finite");
        assert_eq!(error(|c| c.wrong_reward = 1.0), "correct_reward = 1 must be above wrong_reward = 1");
        assert_eq!(
            error(|c| c.extraction.order.clear()),
            "extraction.order = []: allowed is at least one method, such as boxed"
        );
        assert_eq!(
            error(|c| c.extraction.order = vec![ExtractionMethod::Boxed; 2]),
            "extraction.order names Boxed twice: remove one"
        );
        assert!(serde_json::from_str::<ExactAnswerConfig>(r#"{"corect_reward": 1}"#).is_err());
    }

    proptest! {
        #[test]
        fn any_response_and_reference_return_a_verdict(
            response in any::<String>(),
            reference in any::<String>(),
        ) {
            let again = verdict(&response, &reference);
            prop_assert_eq!(verdict(&response, &reference), again);
        }

        #[test]
        fn a_boxed_integer_is_right_exactly_when_it_is_the_reference(a in -20i64..20, b in -20i64..20) {
            let reward = verdict(&format!("So \\boxed{{{a}}}."), &b.to_string()).reward();
            prop_assert_eq!(reward, Some(f64::from(u8::from(a == b))));
        }
    }
}
