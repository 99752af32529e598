//! The verifier of a response's form.

use firebrick_core::{FinishReason, RewardVerifier, Sample, UnscoredReason, Verdict, VerifyError};
use serde::{Deserialize, Serialize};

use crate::answer::Answer;
use crate::config::{RewardConfigError, check_rewards};
use crate::extraction::{ExtractionSpec, extract_answer};

/// Settings of [`FormatReward`]: what a response must look like. At least one of `think_tags`, `tags` and `has_answer` is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FormatConfig {
    /// Whether the response thinks once and then answers: exactly one `</think>` with something behind it, and at most one
    /// `<think>`, which then opens the response. Prompts that end in `<think>` leave that one out. Default false.
    pub think_tags: bool,
    /// Names of tags that each stand in the response once, closed, in this order and not within one another: `["reasoning",
    /// "answer"]` asks for `<reasoning>…</reasoning>…<answer>…</answer>`. With `think_tags` they are looked for behind
    /// `</think>`. Default none.
    pub tags: Vec<String>,
    /// Whether nothing but white space may stand outside of `tags`. Default false.
    pub only_tags: bool,
    /// Whether the response states an answer that `extraction` finds. Default false.
    pub has_answer: bool,
    /// How the answer is found.
    pub extraction: ExtractionSpec,
    /// Reward of a response in the form. Default 1.
    pub correct_reward: f64,
    /// Reward of any other. Default 0.
    pub wrong_reward: f64,
}

impl Default for FormatConfig {
    fn default() -> Self {
        Self {
            think_tags: false,
            tags: Vec::new(),
            only_tags: false,
            has_answer: false,
            extraction: ExtractionSpec::default(),
            correct_reward: 1.0,
            wrong_reward: 0.0,
        }
    }
}

impl FormatConfig {
    /// Checks the settings.
    ///
    /// # Errors
    /// When nothing is asked for, a tag's name is not a word or is given twice, the extraction order is empty, or the rewards are
    /// not finite or not in order.
    pub fn validate(&self) -> Result<(), RewardConfigError> {
        let refuse =
            |key: String, value: String, allowed| Err(RewardConfigError::out_of_range(key, value, allowed));
        if !self.think_tags && self.tags.is_empty() && !self.has_answer {
            return refuse(
                "think_tags".into(),
                "false".into(),
                "true, unless tags or has_answer ask for something",
            );
        }
        for (index, tag) in self.tags.iter().enumerate() {
            let is_word = |c: char| c.is_alphanumeric() || "_-".contains(c);
            let allowed = if tag.is_empty() || !tag.chars().all(is_word) {
                "a name of letters, digits, `_` and `-`, without angle brackets"
            } else if self.tags[..index].contains(tag) {
                "a name that is not given before"
            } else if self.think_tags && tag == "think" {
                "another name, since think_tags asks for this one"
            } else {
                continue;
            };
            return refuse(format!("tags[{index}]"), format!("{tag:?}"), allowed);
        }
        if self.only_tags && self.tags.is_empty() {
            return refuse("only_tags".into(), "true".into(), "false where there are no tags");
        }
        if self.has_answer && self.extraction.order.is_empty() {
            return refuse(
                "extraction.order".into(),
                "[]".into(),
                "at least one of boxed, hashes, answer_line",
            );
        }
        check_rewards(self.correct_reward, self.wrong_reward)
    }

    /// Builds the verifier.
    ///
    /// # Errors
    /// As [`Self::validate`].
    pub fn build(self) -> Result<FormatReward, RewardConfigError> {
        self.validate()?;
        Ok(FormatReward { config: self })
    }
}

/// Rewards a response for its form, whatever it says.
///
/// The rule of the score is `format` where the form is kept, and otherwise the first demand that is not met: `think_tags`, `tags`
/// or `no_answer`. `extracted` is the answer where one is asked for, the empty text where the form is kept without one, and `None`
/// where the form is not kept, since then an answer could not be looked for where it belongs.
///
/// A truncated response is graded like any other; one whose generation was aborted is unscored. It takes time linear in the
/// length of the response and needs no reference answer.
///
/// *Reference*: the format reward of Guo et al., "DeepSeek-R1", 2025, arXiv:2501.12948.
#[derive(Debug, Clone, PartialEq)]
pub struct FormatReward {
    config: FormatConfig,
}

impl FormatReward {
    /// The settings.
    pub fn config(&self) -> &FormatConfig {
        &self.config
    }

    /// The answer, empty if none is asked for, or the first demand that is not met.
    fn check<'a>(&self, text: &'a str) -> Result<&'a str, &'static str> {
        let said = if self.config.think_tags { after_thought(text).ok_or("think_tags")? } else { text };
        if !self.config.tags.is_empty() && !has_tags(said, &self.config.tags, self.config.only_tags) {
            return Err("tags");
        }
        if !self.config.has_answer {
            return Ok("");
        }
        let answer = extract_answer(text, &self.config.extraction).ok_or("no_answer")?.text;
        Answer::parse(answer).map(|_| answer).ok_or("no_answer")
    }
}

impl RewardVerifier for FormatReward {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        if sample.finish_reason == FinishReason::Aborted {
            return Ok(Verdict::Unscored(UnscoredReason::Aborted));
        }
        Ok(match self.check(sample.text) {
            Ok(answer) => Verdict::graded(self.config.correct_reward, Some(answer.to_owned()), "format"),
            Err(rule) => Verdict::graded(self.config.wrong_reward, None, rule),
        })
    }

    fn name(&self) -> &str {
        "format"
    }
}

/// What follows the only `</think>`, if the response thinks once and then says something.
fn after_thought(text: &str) -> Option<&str> {
    let (thought, said) = text.split_once("</think>")?;
    let opens = thought.trim_start();
    let thought = opens.strip_prefix("<think>").unwrap_or(opens);
    let once = !thought.contains("<think>") && !said.contains("<think>") && !said.contains("</think>");
    (once && !said.trim().is_empty()).then_some(said)
}

fn has_tags(text: &str, tags: &[String], only: bool) -> bool {
    let mut rest = text;
    for tag in tags {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        if text.matches(&open).count() != 1 || text.matches(&close).count() != 1 {
            return false;
        }
        let Some((before, inside)) = rest.split_once(&open) else { return false };
        let Some((_, after)) = inside.split_once(&close) else { return false };
        if only && !before.trim().is_empty() {
            return false;
        }
        rest = after;
    }
    !only || rest.trim().is_empty()
}

#[cfg(test)]
mod tests {
    use firebrick_core::Prompt;
    use proptest::prelude::*;

    use super::*;
    use crate::config::{RewardConfig, refusal};

    fn verdict(config: FormatConfig, text: &str) -> Verdict {
        let prompt = Prompt::new("p", "?", "4");
        config.build().unwrap().verify(&Sample::of_text(&prompt, text)).unwrap()
    }

    fn kept(answer: &str) -> Verdict {
        Verdict::graded(1.0, Some(answer.to_owned()), "format")
    }

    fn broken(rule: &'static str) -> Verdict {
        Verdict::graded(0.0, None, rule)
    }

    #[test]
    fn a_response_thinks_once_and_then_answers() {
        let config = || FormatConfig { think_tags: true, ..FormatConfig::default() };
        for text in ["<think>a</think>b", " \n<think></think>b", "a</think>b"] {
            assert_eq!(verdict(config(), text), kept(""), "{text}");
        }
        for text in [
            "",
            "b",
            "<think>a",
            "<think>a</think>",
            "<think>a</think> \n",
            "a<think>b</think>c",
            "<think><think>a</think>b",
            "<think>a</think>b</think>c",
            "<think>a</think>b<think>c",
            "<THINK>a</THINK>b",
        ] {
            assert_eq!(verdict(config(), text), broken("think_tags"), "{text}");
        }
    }

    #[test]
    fn tags_stand_once_closed_and_in_order() {
        let config = |only_tags| FormatConfig {
            tags: vec!["r".into(), "answer".into()],
            only_tags,
            ..Default::default()
        };
        assert_eq!(verdict(config(false), "So <r>x</r> and\n<answer>4</answer>."), kept(""));
        assert_eq!(verdict(config(true), "\n<r>x</r>\n<answer>4</answer>\n"), kept(""));
        for text in
            ["So <r>x</r><answer>4</answer>", "<r>x</r>,<answer>4</answer>", "<r>x</r><answer>4</answer>."]
        {
            assert_eq!(verdict(config(true), text), broken("tags"), "{text}");
        }
        for text in [
            "",
            "<r>x</r>",
            "<answer>4</answer><r>x</r>",
            "<r>x<answer>4</answer></r>",
            "<r>x</r><answer>4",
            "<r>x</r><answer>4</answer><answer>5</answer>",
            "</r><r>x</r><answer>4</answer>",
        ] {
            assert_eq!(verdict(config(false), text), broken("tags"), "{text}");
        }
    }

    #[test]
    fn with_think_tags_the_tags_stand_behind_the_thought() {
        let config = || FormatConfig { think_tags: true, tags: vec!["answer".into()], ..Default::default() };
        assert_eq!(verdict(config(), "<think><answer>?</think><answer>4</answer>"), kept(""));
        assert_eq!(verdict(config(), "<think><answer>4</answer></think>four"), broken("tags"));
    }

    #[test]
    fn an_answer_is_found_as_graders_find_it() {
        let config = || FormatConfig { has_answer: true, ..Default::default() };
        assert_eq!(verdict(config(), r"So \boxed{5}."), kept("5"));
        assert_eq!(verdict(config(), "#### red"), kept("red"));
        for text in ["", "five", r"\boxed{}", r"\boxed{$ $}", r"<think>\boxed{5}</think>"] {
            assert_eq!(verdict(config(), text), broken("no_answer"), "{text}");
        }
    }

    #[test]
    fn an_aborted_completion_is_unscored_and_a_truncated_one_is_graded() {
        let prompt = Prompt::new("p", "?", "4");
        let format = FormatConfig { think_tags: true, ..Default::default() }.build().unwrap();
        let verify = |reason| format.verify(&Sample::new(&prompt, "x", &[], reason)).unwrap();
        assert_eq!(verify(FinishReason::Aborted), Verdict::Unscored(UnscoredReason::Aborted));
        assert_eq!(verify(FinishReason::Length), broken("think_tags"));
    }

    #[test]
    fn unusable_settings_are_refused_by_key() {
        let refused = |json: &str| refusal(&RewardConfig::Format(serde_json::from_str(json).unwrap()));
        assert!(refused("{}").starts_with("think_tags = false"));
        assert!(refused(r#"{"tags": ["a", "<b>"]}"#).starts_with(r#"tags[1] = "<b>""#));
        assert!(refused(r#"{"tags": ["a", "a"]}"#).starts_with(r#"tags[1] = "a""#));
        assert!(refused(r#"{"tags": ["think"], "think_tags": true}"#).starts_with(r#"tags[0] = "think""#));
        assert!(refused(r#"{"think_tags": true, "only_tags": true}"#).starts_with("only_tags = true"));
        assert!(
            refused(r#"{"has_answer": true, "extraction": {"order": []}}"#)
                .starts_with("extraction.order = []")
        );
        assert!(refused(r#"{"think_tags": true, "wrong_reward": 1.0}"#).starts_with("correct_reward = 1"));
        assert!(serde_json::from_str::<FormatConfig>(r#"{"think_tag": true}"#).is_err());
    }

    proptest! {
        #[test]
        fn any_response_has_one_of_the_two_rewards(text in "(<think>|</think>|<a>|</a>|x| |\\\\boxed\\{1\\}){0,8}") {
            let config = FormatConfig {
                think_tags: true,
                tags: vec!["a".into()],
                has_answer: true,
                correct_reward: 2.0,
                wrong_reward: -1.0,
                ..FormatConfig::default()
            };
            let Verdict::Scored(score) = verdict(config, &text) else { panic!() };
            prop_assert_eq!(score.reward, if score.extracted.is_some() { 2.0 } else { -1.0 });
            prop_assert_eq!(score.extracted.is_some(), score.rule == "format");
        }
    }
}
