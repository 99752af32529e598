//! The threads of a grader: workers that verify, and a watchman who gives up on what takes too long.
//!
//! A thread cannot be stopped from outside. One whose verification is overdue is left behind: its verdict is `Timeout`, another
//! thread takes its place, and if it ever comes back it works on or ends. Invariants, held whenever the lock is free:
//!
//! * a verification is queued, running or answered; `running` holds the worker of each running one;
//! * an abandoned worker is not in `running`: who removes the entry answers, so that each is answered once;
//! * `present`, the workers that wait or run, is the number asked for, unless so many are abandoned that no more may be.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use firebrick_core::{RewardVerifier, UnscoredReason, Verdict};

use super::grade::{OwnedSample, grade};

/// A sample on its way to a worker, and where its verdict goes.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) sample: OwnedSample,
    pub(super) reply: Reply,
}

/// Sends a verdict to the batch that waits for it.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) index: usize,
    pub(super) verdicts: Sender<(usize, Verdict)>,
}

impl Reply {
    fn send(self, verdict: Verdict) {
        // A batch that was dropped wants no verdict.
        let _ = self.verdicts.send((self.index, verdict));
    }
}

/// A verification that a worker is at.
#[derive(Debug)]
struct Running {
    worker: u64,
    deadline: Instant,
    prompt: String,
    reply: Reply,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Job>,
    /// By the order of their start, which is that of their deadlines too.
    running: BTreeMap<u64, Running>,
    started: u64,
    workers: u64,
    present: usize,
    abandoned: HashSet<u64>,
    threads: HashMap<u64, JoinHandle<()>>,
    closed: bool,
}

/// What the threads of a grader share.
#[derive(Debug)]
pub(super) struct Slots {
    verifier: Arc<dyn RewardVerifier>,
    workers: usize,
    limit: Duration,
    max_abandoned: usize,
    state: Mutex<State>,
    work: Condvar,
    watch: Condvar,
}

impl Slots {
    /// Starts the workers and the watchman, whose handle is returned.
    pub(super) fn start(
        verifier: Arc<dyn RewardVerifier>,
        workers: usize,
        limit: Duration,
        max_abandoned: usize,
    ) -> io::Result<(Arc<Self>, JoinHandle<()>)> {
        let slots = Arc::new(Self {
            verifier,
            workers,
            limit,
            max_abandoned,
            state: Mutex::default(),
            work: Condvar::new(),
            watch: Condvar::new(),
        });
        let started = (0..workers).try_for_each(|_| slots.add_worker(&mut slots.lock())).and_then(|()| {
            let watched = Arc::clone(&slots);
            thread::Builder::new().name("verify-watch".into()).spawn(move || watched.run_watchman())
        });
        match started {
            Ok(watchman) => Ok((slots, watchman)),
            Err(error) => {
                slots.close();
                Err(error)
            }
        }
    }

    /// Queues a job. Returns false, with the job dropped, where too many verifications are abandoned.
    pub(super) fn submit(&self, job: Job) -> bool {
        let mut state = self.lock();
        if self.refuses(&state) {
            return false;
        }
        state.queue.push_back(job);
        drop(state);
        self.work.notify_one();
        true
    }

    /// Verifications that were given up on and have not come back.
    pub(super) fn abandoned(&self) -> usize {
        self.lock().abandoned.len()
    }

    /// Lets idle workers and the watchman end, and waits for the workers that do. Those at a verification end after it, unless it
    /// never returns.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.queue.clear();
        let busy: HashSet<u64> = state.running.values().map(|running| running.worker).collect();
        let idle = |id: &u64| !busy.contains(id) && !state.abandoned.contains(id);
        let ids: Vec<u64> = state.threads.keys().copied().filter(idle).collect();
        let idle: Vec<_> = ids.iter().filter_map(|id| state.threads.remove(id)).collect();
        drop(state);
        self.work.notify_all();
        self.watch.notify_all();
        for thread in idle {
            let _ = thread.join(); // a worker that panicked has nothing to say any more
        }
    }

    fn refuses(&self, state: &State) -> bool {
        state.abandoned.len() >= self.max_abandoned || state.present == 0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic half way runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_worker(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let id = state.workers;
        let slots = Arc::clone(self);
        let thread =
            thread::Builder::new().name(format!("verify-{id}")).spawn(move || slots.run_worker(id))?;
        state.workers += 1;
        state.present += 1;
        state.threads.insert(id, thread);
        Ok(())
    }

    /// Life of a worker.
    fn run_worker(&self, id: u64) {
        loop {
            let mut state = self.lock();
            let job = loop {
                if state.closed {
                    return;
                }
                match state.queue.pop_front() {
                    Some(job) => break job,
                    None => state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
                }
            };
            let ticket = state.started;
            state.started += 1;
            let Job { sample, reply } = job;
            let running = Running {
                worker: id,
                deadline: Instant::now() + self.limit,
                prompt: sample.prompt.id.clone(),
                reply,
            };
            state.running.insert(ticket, running);
            if state.running.len() == 1 {
                self.watch.notify_one(); // he had nothing to wait for
            }
            drop(state);
            let verdict = grade(&*self.verifier, &sample.sample());
            let mut state = self.lock();
            if let Some(running) = state.running.remove(&ticket) {
                running.reply.send(verdict);
                continue;
            }
            state.abandoned.remove(&id);
            if state.present >= self.workers {
                state.threads.remove(&id);
                return;
            }
            state.present += 1;
        }
    }

    /// Life of the watchman.
    fn run_watchman(self: Arc<Self>) {
        let mut state = self.lock();
        while !state.closed {
            state = match state.running.values().next().map(|first| first.deadline) {
                None => self.watch.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let now = Instant::now();
                    if deadline <= now {
                        self.abandon_first(&mut state);
                        state
                    } else {
                        let waited = self.watch.wait_timeout(state, deadline - now);
                        waited.unwrap_or_else(PoisonError::into_inner).0
                    }
                }
            };
        }
    }

    /// Gives up on the verification that was started first.
    fn abandon_first(self: &Arc<Self>, state: &mut State) {
        let Some((_, running)) = state.running.pop_first() else { return };
        let Running { worker, prompt, reply, .. } = running;
        state.abandoned.insert(worker);
        state.present -= 1;
        let (abandoned, most) = (state.abandoned.len(), self.max_abandoned);
        let seconds = self.limit.as_secs_f64();
        tracing::warn!(
            prompt,
            seconds,
            abandoned,
            most,
            "a verification did not return in time and is left behind"
        );
        if abandoned < most
            && let Err(error) = self.add_worker(state)
        {
            tracing::warn!(%error, "no thread can be started in the place of one that is left behind");
        }
        if self.refuses(state) {
            state.queue.clear(); // their batches see that no verdict will come
        }
        reply.send(Verdict::Unscored(UnscoredReason::Timeout));
    }

    /// Gives up on everything that runs, as if its time were over.
    #[cfg(test)]
    pub(super) fn abandon_all(self: &Arc<Self>) {
        let mut state = self.lock();
        while !state.running.is_empty() {
            self.abandon_first(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use firebrick_core::{Prompt, Sample, VerifyError};

    use super::super::grader::{Grader, GraderError, GraderSettings};
    use super::*;

    /// Blocks on the response `block`: says so, and waits until it is let go, or for good when its caller is gone.
    #[derive(Debug)]
    struct Blocking {
        entered: Mutex<Sender<()>>,
        release: Mutex<Receiver<()>>,
    }

    impl RewardVerifier for Blocking {
        fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
            if sample.text == "block" {
                self.entered.lock().unwrap().send(()).unwrap();
                let _ = self.release.lock().unwrap().recv();
            }
            Ok(Verdict::scored(sample.text.len() as f64))
        }
    }

    struct Bench {
        grader: Grader,
        verifier: Arc<Blocking>,
        entered: Receiver<()>,
        release: Sender<()>,
    }

    fn bench(workers: usize, max_abandoned: usize, deadline_seconds: f64) -> Bench {
        let ((enter, entered), (release, released)) = (channel(), channel());
        let verifier = Arc::new(Blocking { entered: Mutex::new(enter), release: Mutex::new(released) });
        let settings = GraderSettings {
            workers: Some(workers),
            max_abandoned,
            deadline_seconds,
            max_error_share: 1.0,
            verify_equal_once: false,
        };
        let grader = Grader::new(Arc::<Blocking>::clone(&verifier), settings).unwrap();
        Bench { grader, verifier, entered, release }
    }

    const FOREVER: f64 = 86400.0;

    fn sample(text: &str) -> OwnedSample {
        OwnedSample::of_text(Arc::new(Prompt::new("p", "q", "a")), text)
    }

    fn timeout() -> Verdict {
        Verdict::Unscored(UnscoredReason::Timeout)
    }

    fn wait_until_back(grader: &Grader) {
        while grader.abandoned() > 0 {
            thread::yield_now();
        }
    }

    #[test]
    fn a_verification_beyond_its_deadline_is_a_timeout() {
        let bench = bench(1, 2, 0.001);
        assert_eq!(bench.grader.grade_all([sample("block")]).unwrap(), [timeout()]);
        assert_eq!(bench.grader.abandoned(), 1);
        drop(bench.release);
        wait_until_back(&bench.grader);
    }

    #[test]
    fn one_left_behind_holds_up_nobody_and_is_counted_back() {
        let bench = bench(1, 2, FOREVER);
        let mut batch = bench.grader.batch();
        for text in ["block", "1", "22"] {
            batch.submit(sample(text)).unwrap();
        }
        bench.entered.recv().unwrap();
        bench.grader.slots.abandon_all();
        assert_eq!(batch.collect().unwrap(), [timeout(), Verdict::scored(1.0), Verdict::scored(2.0)]);
        assert_eq!(bench.grader.abandoned(), 1);
        bench.release.send(()).unwrap();
        wait_until_back(&bench.grader);
        assert_eq!(bench.grader.grade_all([sample("333")]).unwrap(), [Verdict::scored(3.0)]);
    }

    #[test]
    fn at_the_bound_every_call_is_refused_until_one_comes_back() {
        let bench = bench(2, 2, FOREVER);
        let mut batch = bench.grader.batch();
        for text in ["block", "block", "1"] {
            batch.submit(sample(text)).unwrap();
        }
        bench.entered.recv().unwrap();
        bench.entered.recv().unwrap();
        bench.grader.slots.abandon_all();
        let refused = "2 verifications did not return within 86400 s and are left behind; max_abandoned = 2 allows no more: the \
                       verifier hangs, or deadline_seconds is too short for it";
        assert_eq!(batch.collect().unwrap_err().to_string(), refused, "the third was still queued");
        let error = bench.grader.batch().submit(sample("1")).unwrap_err();
        assert!(matches!(error, GraderError::TooManyAbandoned { abandoned: 2, most: 2, .. }), "{error}");
        drop(bench.release);
        wait_until_back(&bench.grader);
        let verdicts = bench.grader.grade_all([sample("1"), sample("22")]).unwrap();
        assert_eq!(verdicts, [Verdict::scored(1.0), Verdict::scored(2.0)]);
    }

    #[test]
    fn a_sample_may_be_submitted_while_others_are_verified() {
        let bench = bench(1, 1, FOREVER);
        let mut batch = bench.grader.batch();
        batch.submit(sample("block")).unwrap();
        bench.entered.recv().unwrap();
        batch.submit(sample("1")).unwrap();
        bench.release.send(()).unwrap();
        assert_eq!(batch.collect().unwrap(), [Verdict::scored(5.0), Verdict::scored(1.0)]);
        assert_eq!(bench.grader.abandoned(), 0);
    }

    #[test]
    fn dropping_a_grader_ends_all_its_idle_threads() {
        let Bench { grader, verifier, .. } = bench(4, 1, FOREVER);
        grader.grade_all([sample("1"), sample("22")]).unwrap();
        drop(grader);
        assert_eq!(Arc::strong_count(&verifier), 1, "no thread is left that could hold the verifier");
    }

    #[test]
    fn dropping_a_grader_waits_for_no_verification() {
        let Bench { grader, verifier, entered, release } = bench(2, 2, FOREVER);
        let mut batch = grader.batch();
        batch.submit(sample("block")).unwrap();
        entered.recv().unwrap();
        grader.slots.abandon_all();
        batch.submit(sample("block")).unwrap(); // still running, not left behind
        entered.recv().unwrap();
        drop(batch);
        drop(grader);
        assert!(Arc::strong_count(&verifier) > 1, "both are blocked and hold the verifier");
        drop(release);
        while Arc::strong_count(&verifier) > 1 {
            thread::yield_now(); // both end when they come back
        }
    }
}
