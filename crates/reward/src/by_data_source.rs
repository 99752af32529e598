//! One verifier for each data set.

use std::collections::BTreeMap;

use firebrick_core::{Prompt, RewardVerifier, Sample, UnscoredReason, Verdict, VerifyError};

use crate::config::RewardConfigError;

/// Chooses the verifier by [`firebrick_core::Prompt::data_source`].
///
/// A key is the name of a data source, or the beginning of several, followed by `*`. The exact name wins, then the longest
/// beginning, then the default. A completion whose source has no verifier is unscored
/// ([`UnscoredReason::BadReference`]); ask [`crate::RewardConfig::check_sources`] before a run.
#[derive(Debug)]
pub struct ByDataSource {
    sources: BTreeMap<String, Box<dyn RewardVerifier>>,
    default: Option<Box<dyn RewardVerifier>>,
}

impl ByDataSource {
    /// A choice between `sources`, with `default` for all others.
    ///
    /// # Errors
    /// When there is no verifier at all, or a key has a `*` that is not at its end behind something else.
    pub fn new(
        sources: BTreeMap<String, Box<dyn RewardVerifier>>,
        default: Option<Box<dyn RewardVerifier>>,
    ) -> Result<Self, RewardConfigError> {
        check_routes(&sources, default.is_some())?;
        Ok(Self { sources, default })
    }

    /// The verifier of a data source.
    pub fn route(&self, data_source: &str) -> Option<&dyn RewardVerifier> {
        let named = route(&self.sources, data_source).map(|(_, verifier)| verifier);
        named.or(self.default.as_ref()).map(|verifier| &**verifier)
    }
}

impl RewardVerifier for ByDataSource {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        let source = &sample.prompt.data_source;
        match self.route(source) {
            Some(verifier) => verifier.verify(sample),
            None => Ok(Verdict::Unscored(no_verifier(source))),
        }
    }

    fn check_reference(&self, prompt: &Prompt) -> Result<(), UnscoredReason> {
        let verifier = self.route(&prompt.data_source).ok_or_else(|| no_verifier(&prompt.data_source))?;
        verifier.check_reference(prompt)
    }

    fn name(&self) -> &str {
        "by_data_source"
    }
}

fn no_verifier(data_source: &str) -> UnscoredReason {
    UnscoredReason::BadReference(format!("no verifier is given for the data source {data_source:?}"))
}

/// Refuses a choice without a verifier, and keys that name no source.
pub(crate) fn check_routes<V>(
    sources: &BTreeMap<String, V>,
    has_default: bool,
) -> Result<(), RewardConfigError> {
    if sources.is_empty() && !has_default {
        return Err(RewardConfigError::out_of_range("sources", "{}", "at least one source, or a default"));
    }
    for key in sources.keys() {
        if key.strip_suffix('*').unwrap_or(key).contains('*') || key == "*" {
            let allowed = "a name, or the beginning of names and `*`; `default` is for all others";
            return Err(RewardConfigError::out_of_range("sources", format!("{key:?}"), allowed));
        }
    }
    Ok(())
}

/// The key in `sources` that a data source belongs to, with what stands there; the default is left out.
pub(crate) fn route<'a, V>(sources: &'a BTreeMap<String, V>, data_source: &str) -> Option<(&'a str, &'a V)> {
    let begins =
        |key: &str| key.strip_suffix('*').is_some_and(|beginning| data_source.starts_with(beginning));
    let by_name = sources.get_key_value(data_source).filter(|(key, _)| !key.ends_with('*'));
    let longest = || sources.iter().filter(|(key, _)| begins(key)).max_by_key(|(key, _)| key.len());
    by_name.or_else(longest).map(|(key, verifier)| (key.as_str(), verifier))
}

#[cfg(test)]
mod tests {
    use firebrick_core::Prompt;

    use super::*;
    use crate::fixed_verdict::Fixed;

    fn paying(reward: f64) -> Box<dyn RewardVerifier> {
        Box::new(Fixed::scored(reward))
    }

    fn verdict(verifier: &ByDataSource, source: &str) -> Verdict {
        let prompt = Prompt::new("p", "q", "a").with_data_source(source);
        verifier.verify(&Sample::of_text(&prompt, "")).unwrap()
    }

    fn sources() -> BTreeMap<String, Box<dyn RewardVerifier>> {
        [("aime*", 1.0), ("aime24*", 2.0), ("aime24", 3.0), ("gsm8k", 4.0)]
            .map(|(key, reward)| (key.to_owned(), paying(reward)))
            .into()
    }

    #[test]
    fn the_exact_name_wins_then_the_longest_beginning_then_the_default() {
        let verifier = ByDataSource::new(sources(), Some(paying(9.0))).unwrap();
        let names = ["aime24", "aime24_2", "aime2025", "aime", "gsm8k", "gsm8k2", "", "AIME"];
        let rewards = names.map(|source| verdict(&verifier, source).reward().unwrap());
        assert_eq!(rewards, [3.0, 2.0, 1.0, 1.0, 4.0, 9.0, 9.0, 9.0]);
    }

    #[test]
    fn without_a_default_an_unknown_source_is_unscored_by_name() {
        let verifier = ByDataSource::new(sources(), None).unwrap();
        let Verdict::Unscored(UnscoredReason::BadReference(message)) = verdict(&verifier, "taco") else {
            panic!()
        };
        assert_eq!(message, "no verifier is given for the data source \"taco\"");
    }

    #[test]
    fn keys_that_no_source_could_be_meant_by_are_refused() {
        for key in ["*", "a*b", "*a", "a**"] {
            let sources = [(key.to_owned(), paying(1.0))].into();
            let error = ByDataSource::new(sources, None).unwrap_err().to_string();
            assert!(error.starts_with(&format!("sources = {key:?}")), "{error}");
        }
        assert!(ByDataSource::new(BTreeMap::new(), None).is_err());
    }
}
