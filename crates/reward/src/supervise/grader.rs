//! Verdicts of whole batches, from threads.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, available_parallelism};
use std::time::Duration;

use firebrick_core::{FinishReason, Prompt, RewardVerifier, TokenId, UnscoredReason, Verdict};
use serde::{Deserialize, Serialize};

use super::grade::OwnedSample;
use super::slots::{Job, Reply, Slots};

/// Settings of [`Grader`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GraderSettings {
    /// Verifications at the same time; 1 to 1024. Default: one for each processor. Verdicts do not depend on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<usize>,
    /// Seconds that one verification may take, waiting for its turn left out; above 0, at most 86400. It is for verifiers that
    /// never return, so it lies well above what one that does may need: programs have limits of their own. Default 300.
    pub deadline_seconds: f64,
    /// Verifications that may be left behind because they did not return; at least 1. When as many are, nothing more is graded
    /// until one comes back. Default 8.
    pub max_abandoned: usize,
    /// Share of a batch, 0 to 1, that may be left unscored by faults of the verifier; more is an error. Default 0.5.
    pub max_error_share: f64,
    /// Whether responses to one problem in one batch that are the same, token by token, are verified once and have that verdict
    /// in common: for verifiers that are slow and say the same each time, since a policy that has learned repeats itself. Default
    /// false.
    pub verify_equal_once: bool,
}

impl Default for GraderSettings {
    fn default() -> Self {
        Self {
            workers: None,
            deadline_seconds: 300.0,
            max_abandoned: 8,
            max_error_share: 0.5,
            verify_equal_once: false,
        }
    }
}

impl GraderSettings {
    /// Checks the ranges.
    ///
    /// # Errors
    /// Names the key, its value and what is allowed.
    pub fn validate(&self) -> Result<(), GraderError> {
        let check = |holds: bool, key, value: &dyn fmt::Display, allowed| {
            let error = GraderError::OutOfRange { key, value: value.to_string(), allowed };
            if holds { Ok(()) } else { Err(error) }
        };
        let Self { workers, deadline_seconds: seconds, max_abandoned, max_error_share: share, .. } = self;
        if let Some(workers) = workers {
            check((1..=1024).contains(workers), "workers", workers, "1 to 1024")?;
        }
        let in_range = *seconds > 0.0 && *seconds <= 86400.0;
        check(in_range, "deadline_seconds", seconds, "above 0, at most 86400")?;
        check(*max_abandoned > 0, "max_abandoned", max_abandoned, "at least 1")?;
        check((0.0..=1.0).contains(share), "max_error_share", share, "0 to 1")
    }
}

/// Why there are no verdicts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraderError {
    /// A setting is out of range.
    #[error("{key} = {value}: allowed is {allowed}")]
    OutOfRange {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// The threads cannot be started.
    #[error("the threads that verify cannot be started; lower workers")]
    Threads(#[source] std::io::Error),
    /// So many verifications never returned that nothing more is graded.
    #[error(
        "{abandoned} verifications did not return within {seconds} s and are left behind; max_abandoned = {most} allows no more: \
         the verifier hangs, or deadline_seconds is too short for it"
    )]
    TooManyAbandoned {
        /// Verifications that are left behind.
        abandoned: usize,
        /// How many may be.
        most: usize,
        /// The deadline, in seconds.
        seconds: f64,
    },
    /// The verifier failed on more of a batch than may be.
    #[error(
        "the verifier failed on {errors} of {samples} samples, a share of {share:.3} where max_error_share = {most}; first: {}",
        first.join("; ")
    )]
    TooManyVerifierErrors {
        /// Samples that the verifier failed on or did not return from.
        errors: usize,
        /// Samples of the batch.
        samples: usize,
        /// The one divided by the other.
        share: f64,
        /// What it may be.
        most: f64,
        /// The first three messages in the order of the batch, with the problems' ids.
        first: Vec<String>,
    },
}

/// Grades samples on threads of its own, beside whatever the caller does meanwhile.
///
/// * Samples are submitted one by one as they are ready, and the verdicts collected in the order of submission. Neither depends on
///   the number of workers.
/// * What the verifier does wrong leaves one sample unscored, as in [`crate::grade`].
/// * A verification that takes longer than the deadline is unscored ([`UnscoredReason::Timeout`]) and left behind, since a thread
///   cannot be stopped; another thread takes its place. As many as `max_abandoned` may be left behind at a time; one that comes
///   back is no longer counted. When the bound is reached no verification is begun, and every call is an error. Those that run at
///   that moment may still be left behind above the bound, so at most `max_abandoned + workers − 1` are.
/// * A batch in which more than `max_error_share` of the samples met a fault of the verifier
///   ([`UnscoredReason::VerifierError`], [`UnscoredReason::Timeout`]) is an error: a broken verifier stops a run and does not empty
///   it. What is unscored for another reason is no fault of the verifier, and counts as a sample.
///
/// Dropping a grader ends its idle threads and waits for nothing that could hang.
///
/// ```
/// use std::sync::Arc;
///
/// use firebrick_core::Prompt;
/// use firebrick_reward::{ExactAnswer, Grader, GraderSettings, OwnedSample};
///
/// let grader = Grader::new(Arc::new(ExactAnswer::default()), GraderSettings::default())?;
/// let prompt = Arc::new(Prompt::new("p1", "What is 2 + 2?", "4"));
/// let mut batch = grader.batch();
/// for response in ["#### 4", "#### 5"] {
///     batch.submit(OwnedSample::of_text(prompt.clone(), response))?;
/// }
/// let rewards: Vec<_> = batch.collect()?.iter().map(|verdict| verdict.reward()).collect();
/// assert_eq!(rewards, [Some(1.0), Some(0.0)]);
/// # Ok::<(), firebrick_reward::GraderError>(())
/// ```
#[derive(Debug)]
pub struct Grader {
    settings: GraderSettings,
    pub(super) slots: Arc<Slots>,
    watchman: Option<JoinHandle<()>>,
}

impl Grader {
    /// Starts the threads.
    ///
    /// # Errors
    /// When a setting is out of range or the threads cannot be started.
    pub fn new(verifier: Arc<dyn RewardVerifier>, settings: GraderSettings) -> Result<Self, GraderError> {
        settings.validate()?;
        let processors = || available_parallelism().map_or(1, NonZeroUsize::get).min(1024);
        let workers = settings.workers.unwrap_or_else(processors);
        let limit = Duration::from_secs_f64(settings.deadline_seconds);
        let (slots, watchman) =
            Slots::start(verifier, workers, limit, settings.max_abandoned).map_err(GraderError::Threads)?;
        Ok(Self { settings, slots, watchman: Some(watchman) })
    }

    /// The settings.
    pub fn settings(&self) -> &GraderSettings {
        &self.settings
    }

    /// An empty batch. Several may be open at a time.
    pub fn batch(&self) -> GradingBatch<'_> {
        let (sender, receiver) = channel();
        GradingBatch {
            grader: self,
            prompts: Vec::new(),
            verified_as: Vec::new(),
            seen: HashMap::new(),
            sender,
            receiver,
        }
    }

    /// The verdicts on `samples`, in their order.
    ///
    /// # Errors
    /// As [`GradingBatch::submit`] and [`GradingBatch::collect`].
    pub fn grade_all(
        &self,
        samples: impl IntoIterator<Item = OwnedSample>,
    ) -> Result<Vec<Verdict>, GraderError> {
        let mut batch = self.batch();
        for sample in samples {
            batch.submit(sample)?;
        }
        batch.collect()
    }

    /// Verifications that are left behind and have not come back.
    pub fn abandoned(&self) -> usize {
        self.slots.abandoned()
    }

    fn too_many_abandoned(&self) -> GraderError {
        GraderError::TooManyAbandoned {
            abandoned: self.abandoned(),
            most: self.settings.max_abandoned,
            seconds: self.settings.deadline_seconds,
        }
    }

    fn check_errors(&self, verdicts: &[Verdict], prompts: &[Arc<Prompt>]) -> Result<(), GraderError> {
        let messages: Vec<String> = verdicts
            .iter()
            .zip(prompts)
            .filter_map(|(verdict, prompt)| match verdict {
                Verdict::Unscored(UnscoredReason::VerifierError(message)) => {
                    Some(format!("{}: {message}", prompt.id))
                }
                Verdict::Unscored(UnscoredReason::Timeout) => {
                    let seconds = self.settings.deadline_seconds;
                    Some(format!("{}: no verdict within its time (deadline_seconds = {seconds})", prompt.id))
                }
                _ => None,
            })
            .collect();
        let (errors, samples) = (messages.len(), verdicts.len());
        let share = if samples == 0 { 0.0 } else { errors as f64 / samples as f64 };
        if share <= self.settings.max_error_share {
            return Ok(());
        }
        let first = messages.into_iter().take(3).collect();
        let most = self.settings.max_error_share;
        Err(GraderError::TooManyVerifierErrors { errors, samples, share, most, first })
    }
}

impl Drop for Grader {
    fn drop(&mut self) {
        self.slots.close();
        if let Some(watchman) = self.watchman.take() {
            let _ = watchman.join(); // he waits for the lock at most
        }
    }
}

/// Samples whose verdicts are collected together. Dropping it gives up on those that are not collected.
#[derive(Debug)]
pub struct GradingBatch<'a> {
    grader: &'a Grader,
    /// The problems, which also keeps their addresses from being used again.
    prompts: Vec<Arc<Prompt>>,
    /// For each sample the one whose verdict it has: itself, or an equal one before it.
    verified_as: Vec<usize>,
    /// The first sample of each kind, by its problem's address and what the response is.
    seen: HashMap<(usize, String, Vec<TokenId>, FinishReason), usize>,
    sender: Sender<(usize, Verdict)>,
    receiver: Receiver<(usize, Verdict)>,
}

impl GradingBatch<'_> {
    /// Hands a sample to the workers and returns at once.
    ///
    /// # Errors
    /// [`GraderError::TooManyAbandoned`].
    pub fn submit(&mut self, sample: OwnedSample) -> Result<(), GraderError> {
        let index = self.prompts.len();
        let prompt = Arc::clone(&sample.prompt);
        let first = match self.grader.settings.verify_equal_once {
            true => {
                let address = Arc::as_ptr(&prompt).addr();
                let key = (address, sample.text.clone(), sample.tokens.clone(), sample.finish_reason);
                *self.seen.entry(key).or_insert(index)
            }
            false => index,
        };
        let reply = Reply { index, verdicts: self.sender.clone() };
        if first == index && !self.grader.slots.submit(Job { sample, reply }) {
            return Err(self.grader.too_many_abandoned());
        }
        self.verified_as.push(first);
        self.prompts.push(prompt);
        Ok(())
    }

    /// Samples that were submitted.
    pub fn len(&self) -> usize {
        self.prompts.len()
    }

    /// Whether no sample was submitted.
    pub fn is_empty(&self) -> bool {
        self.prompts.is_empty()
    }

    /// Waits for the verdicts: one per sample, in the order of submission.
    ///
    /// # Errors
    /// [`GraderError::TooManyAbandoned`] when samples can no longer be graded, and [`GraderError::TooManyVerifierErrors`].
    pub fn collect(self) -> Result<Vec<Verdict>, GraderError> {
        let Self { grader, prompts, verified_as, sender, receiver, .. } = self;
        drop(sender); // so that the channel ends when nobody is left who could answer
        let mut verdicts: Vec<Option<Verdict>> = vec![None; prompts.len()];
        for (index, verdict) in receiver {
            verdicts[index] = Some(verdict);
        }
        let verdicts: Option<Vec<Verdict>> =
            verified_as.into_iter().map(|first| verdicts[first].clone()).collect();
        let verdicts = verdicts.ok_or_else(|| grader.too_many_abandoned())?;
        grader.check_errors(&verdicts, &prompts)?;
        Ok(verdicts)
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{FinishReason, Prompt, Sample, VerifyError};

    use super::*;

    /// Pays the number that the response is, and fails as it says otherwise.
    #[derive(Debug)]
    struct Obedient;

    impl RewardVerifier for Obedient {
        fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
            match sample.text.parse() {
                Ok(reward) => Ok(Verdict::scored(reward)),
                Err(_) if sample.text == "bad" => {
                    Ok(Verdict::Unscored(UnscoredReason::BadReference("empty".into())))
                }
                Err(_) if sample.text == "panic" => panic!("at the disco"),
                Err(_) => Err(VerifyError::new(sample.text)),
            }
        }
    }

    fn grader(workers: usize, max_error_share: f64) -> Grader {
        let settings =
            GraderSettings { workers: Some(workers), max_error_share, ..GraderSettings::default() };
        Grader::new(Arc::new(Obedient), settings).unwrap()
    }

    fn samples<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<OwnedSample> {
        let numbered = texts.into_iter().enumerate();
        numbered
            .map(|(i, text)| OwnedSample::of_text(Arc::new(Prompt::new(format!("p{i}"), "q", "a")), text))
            .collect()
    }

    #[test]
    fn verdicts_come_in_the_order_of_submission_for_any_number_of_workers() {
        let texts: Vec<String> = (0..200)
            .map(|i| match i % 10 {
                3 => "panic".to_owned(),
                6 => "down".to_owned(),
                8 => "bad".to_owned(),
                _ => i.to_string(),
            })
            .collect();
        let grade =
            |workers| grader(workers, 1.0).grade_all(samples(texts.iter().map(String::as_str))).unwrap();
        let one = grade(1);
        let failed = |message: &str| Verdict::Unscored(UnscoredReason::VerifierError(message.into()));
        assert_eq!(one[0], Verdict::scored(0.0));
        assert_eq!(one[3], failed("the verifier panicked: at the disco"));
        assert_eq!(one[6], failed("the verifier failed: down"));
        assert_eq!(one[199], Verdict::scored(199.0));
        for workers in [2, 7] {
            assert_eq!(grade(workers), one);
        }
    }

    /// Pays how often it was asked.
    #[derive(Debug, Default)]
    struct Counting(std::sync::atomic::AtomicU32);

    impl RewardVerifier for Counting {
        fn verify(&self, _: &Sample<'_>) -> Result<Verdict, VerifyError> {
            Ok(Verdict::scored(f64::from(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed))))
        }
    }

    #[test]
    fn equal_responses_to_one_problem_have_one_verdict_where_that_is_asked_for() {
        let prompts = ["p0", "p0"].map(|id| Arc::new(Prompt::new(id, "q", "a")));
        let of = |prompt: usize, text: &str, tokens: &[TokenId], reason| {
            OwnedSample::new(Arc::clone(&prompts[prompt]), text, tokens, reason)
        };
        let samples = || {
            [
                of(0, "x", &[1], FinishReason::Stop),
                of(0, "x", &[1], FinishReason::Stop),
                of(1, "x", &[1], FinishReason::Stop), // another problem, though of the same name
                of(0, "y", &[1], FinishReason::Stop),
                of(0, "x", &[2], FinishReason::Stop),
                of(0, "x", &[1], FinishReason::Length),
                of(0, "x", &[1], FinishReason::Stop),
            ]
        };
        for (verify_equal_once, verified) in [(false, 7), (true, 5)] {
            let settings =
                GraderSettings { workers: Some(1), verify_equal_once, ..GraderSettings::default() };
            let grader = Grader::new(Arc::new(Counting::default()), settings).unwrap();
            let verdicts = grader.grade_all(samples()).unwrap();
            let mut different: Vec<f64> = verdicts.iter().map(|verdict| verdict.reward().unwrap()).collect();
            assert_eq!(different.len(), 7);
            assert_eq!(different[0] == different[1] && different[1] == different[6], verify_equal_once);
            different.sort_by(f64::total_cmp);
            different.dedup();
            assert_eq!(different.len(), verified);
            // The next batch verifies anew.
            let again = grader.grade_all(samples()).unwrap();
            assert_eq!(again[0].reward(), Some(verified as f64));
        }
    }

    #[test]
    fn a_batch_can_be_handed_to_another_thread() {
        let grader = grader(1, 0.0);
        let mut batch = grader.batch();
        batch.submit(samples(["3"]).remove(0)).unwrap();
        let verdicts =
            std::thread::scope(|scope| scope.spawn(move || batch.collect()).join().unwrap().unwrap());
        assert_eq!(verdicts, [Verdict::scored(3.0)]);
    }

    #[test]
    fn batches_that_are_open_together_do_not_mix() {
        let grader = grader(3, 0.0);
        let (mut a, mut b) = (grader.batch(), grader.batch());
        for i in 0..50 {
            a.submit(samples([i.to_string().as_str()]).remove(0)).unwrap();
            b.submit(samples([(-i).to_string().as_str()]).remove(0)).unwrap();
        }
        assert_eq!((a.len(), b.is_empty()), (50, false));
        let rewards = |batch: GradingBatch<'_>| -> Vec<f64> {
            batch.collect().unwrap().iter().map(|verdict| verdict.reward().unwrap()).collect()
        };
        assert_eq!(rewards(b), (0..50).map(|i| f64::from(-i)).collect::<Vec<_>>());
        assert_eq!(rewards(a), (0..50).map(f64::from).collect::<Vec<_>>());
        assert_eq!(grader.batch().collect().unwrap(), [], "an empty batch has no verdicts and no error");
    }

    #[test]
    fn more_errors_than_allowed_stop_the_batch_with_the_first_messages() {
        let grader = grader(2, 0.5);
        let half = grader.grade_all(samples(["1", "down", "2", "down"])).unwrap();
        assert_eq!(half.len(), 4);
        let error = grader.grade_all(samples(["a", "1", "panic", "bad", "c", "d", "e"])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the verifier failed on 5 of 7 samples, a share of 0.714 where max_error_share = 0.5; first: p0: the verifier \
             failed: a; p2: the verifier panicked: at the disco; p4: the verifier failed: c"
        );
    }

    #[test]
    fn what_is_unscored_for_another_reason_is_no_fault_of_the_verifier() {
        let aborted =
            OwnedSample::new(Arc::new(Prompt::new("p", "q", "a")), "down", [], FinishReason::Aborted);
        let mut batch = samples(["bad", "bad"]);
        batch.push(aborted);
        let verdicts = grader(2, 0.0).grade_all(batch).unwrap();
        assert_eq!(verdicts[2], Verdict::Unscored(UnscoredReason::Aborted));
    }

    #[test]
    fn settings_out_of_range_are_refused_by_key() {
        let refused = |json: &str| {
            let settings: GraderSettings = serde_json::from_str(json).unwrap();
            Grader::new(Arc::new(Obedient), settings).unwrap_err().to_string()
        };
        assert_eq!(refused(r#"{"workers": 0}"#), "workers = 0: allowed is 1 to 1024");
        assert_eq!(
            refused(r#"{"deadline_seconds": 0}"#),
            "deadline_seconds = 0: allowed is above 0, at most 86400"
        );
        assert_eq!(refused(r#"{"max_abandoned": 0}"#), "max_abandoned = 0: allowed is at least 1");
        assert_eq!(refused(r#"{"max_error_share": 1.5}"#), "max_error_share = 1.5: allowed is 0 to 1");
        assert!(serde_json::from_str::<GraderSettings>(r#"{"worker": 1}"#).is_err());
    }
}
