//! The default executor: a process that the kernel shuts in.

use super::{
    ExecutorError, LocalSandboxConfig, Offers, Sandbox,
    sandbox::{Walls, landlock::Readable, offers::unavailable},
};

impl Sandbox {
    /// The executor `local`, which is the default: Landlock keeps a program from files, seccomp from calls.
    ///
    /// It looks at what the machine offers, finds a Python, and runs a test that tries to break out.
    ///
    /// # Errors
    /// - [`ExecutorError::Unavailable`], naming what is missing and what to do.
    /// - [`ExecutorError::OutOfRange`], naming the key.
    pub fn local(config: &LocalSandboxConfig) -> Result<Self, ExecutorError> {
        Self::local_with_offers(config, Offers::of_this_machine())
    }

    /// The same on a machine that offers less than this one; what it does not offer is not used.
    ///
    /// # Errors
    /// As [`Self::local`].
    pub fn local_with_offers(config: &LocalSandboxConfig, offers: Offers) -> Result<Self, ExecutorError> {
        offers.check_local(config.without_landlock, config.without_seccomp)?;
        let (landlock, seccomp) = (offers.landlock_abi > 0, offers.seccomp);
        Self::new("local", &config.into(), offers, seccomp, |interpreter| {
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
        })
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
            Sandbox::local_with_offers(&config, offers.clone()).unwrap_err().to_string()
        };
        let config = LocalSandboxConfig { slots: Some(0), ..Default::default() };
        assert_eq!(refusal(config), "slots = 0: allowed is 1 to 256");
        let config = LocalSandboxConfig { slot_wait_seconds: -1.0, ..Default::default() };
        assert_eq!(refusal(config), "slot_wait_seconds = -1: allowed is 0 to 1000000");
    }
}
