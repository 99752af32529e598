//! The default executor: a process that the kernel shuts in.

use std::sync::Arc;

use super::{
    Executor, ExecutorError, Job, LocalSandboxConfig, Offers, Outcome, Session,
    sandbox::{Core, Settings, Walls, landlock::Readable, offers::unavailable},
};

/// Runs each program in a fresh Python process of its own, which gives up its rights before it begins.
///
/// What holds a program back, and what does not, is said in [`crate::program`]. It takes any number of threads; a program that
/// finds all slots taken waits. A [`Session`] holds its slot until it is finished or dropped; who needs two at a time takes them by
/// [`Executor::open_pair`], since threads that each hold one and wait for another would wait for each other.
///
/// A slot is a place, not a process: nothing of one program is left for the next.
///
/// Of [`super::Limits`]: the kernel stops a program at a whole second of processor time, the next one up, and what took longer than
/// `cpu_seconds` counts as over its limit. With more than one process, `processes` counts threads too, and the limits of memory,
/// time and files hold for each process. The wall time of a session goes on while nobody calls it, and ends the program at the
/// next call.
///
/// Python runs with its standard library and the packages of its installation, a fixed seed of hashes, and no `/proc`.
#[derive(Debug, Clone)]
pub struct LocalSandbox {
    core: Arc<Core>,
}

impl LocalSandbox {
    /// Looks at what the machine offers, finds a Python, and runs a test that tries to break out.
    ///
    /// # Errors
    /// - [`ExecutorError::Unavailable`], naming what is missing and what to do.
    /// - [`ExecutorError::OutOfRange`], naming the key.
    pub fn new(config: &LocalSandboxConfig) -> Result<Self, ExecutorError> {
        Self::with_offers(config, Offers::of_this_machine())
    }

    /// The same on a machine that offers less than this one; what it does not offer is not used.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_offers(config: &LocalSandboxConfig, offers: Offers) -> Result<Self, ExecutorError> {
        offers.check_local(config.without_landlock, config.without_seccomp)?;
        let settings = Settings {
            python: config.python.as_deref(),
            slots: config.slots,
            slot_wait_seconds: config.slot_wait_seconds,
            directory: config.directory.as_deref(),
            disk_mib: config.disk_mib,
        };
        let (landlock, seccomp) = (offers.landlock_abi > 0, offers.seccomp);
        let core = Core::new("local", &settings, offers, seccomp, |interpreter| {
            if !landlock {
                return Ok(Walls::Landlock(None));
            }
            let readable = Readable::open(&interpreter.read, &interpreter.execute).map_err(|error| {
                unavailable(
                    "local",
                    format!("a file of Python cannot be opened: {error}"),
                    "set `python` to another",
                )
            })?;
            Ok(Walls::Landlock(Some(readable)))
        })?;
        Ok(Self { core })
    }
}

impl Executor for LocalSandbox {
    fn run(&self, job: &Job) -> Result<Outcome, ExecutorError> {
        self.core.run(job)
    }

    fn open(&self, job: &Job) -> Result<Box<dyn Session>, ExecutorError> {
        Ok(Box::new(self.core.start(job, &[])?))
    }

    fn open_pair(&self, first: &Job, second: &Job) -> Result<[Box<dyn Session>; 2], ExecutorError> {
        let [first, second] = self.core.start_pair([first, second])?;
        Ok([Box::new(first), Box::new(second)])
    }

    fn name(&self) -> &'static str {
        "local"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_refused() {
        let text = r#"{"without_landlok": true}"#;
        let error = serde_json::from_str::<LocalSandboxConfig>(text).unwrap_err().to_string();
        assert!(error.contains("without_landlok") && error.contains("without_landlock"), "{error}");
    }

    #[test]
    fn a_setting_out_of_range_is_named_before_anything_runs() {
        let mut offers = Offers::of_this_machine();
        (offers.landlock_abi, offers.seccomp) = (1, true);
        let refusal = |config: LocalSandboxConfig| {
            LocalSandbox::with_offers(&config, offers.clone()).unwrap_err().to_string()
        };
        let config = LocalSandboxConfig { slots: Some(0), ..Default::default() };
        assert_eq!(refusal(config), "slots = 0: allowed is 1 to 256");
        let config = LocalSandboxConfig { slot_wait_seconds: -1.0, ..Default::default() };
        assert_eq!(refusal(config), "slot_wait_seconds = -1: allowed is 0 to 1000000");
    }
}
