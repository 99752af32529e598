//! The executor of the tests of what stands above executors.

use std::sync::{Arc, OnceLock};

use firebrick_reward::program::{Executor, LocalSandboxConfig, Sandbox};

/// The local sandbox, one for all tests of a binary.
pub(crate) fn sandbox() -> Arc<dyn Executor> {
    static SANDBOX: OnceLock<Arc<Sandbox>> = OnceLock::new();
    let new = || Sandbox::local(&LocalSandboxConfig::default()).expect("this machine has a sandbox");
    SANDBOX.get_or_init(|| Arc::new(new())).clone()
}
