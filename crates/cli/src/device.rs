//! The choice of a device, and the probe that keeps a missing one from failing late.

use std::{fmt, str::FromStr};

/// A device that a run can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceChoice {
    /// The CPU, through burn-flex.
    Cpu,
    /// The CPU, through burn-ndarray.
    NdArray,
    /// An NVIDIA GPU, by its ordinal.
    Cuda(usize),
    /// Any GPU that wgpu finds.
    Wgpu,
}

impl FromStr for DeviceChoice {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        let unknown = || DeviceError::Unknown { found: text.to_owned() };
        match text.split_once(':') {
            None => match text {
                "cpu" => Ok(Self::Cpu),
                "ndarray" => Ok(Self::NdArray),
                "cuda" => Ok(Self::Cuda(0)),
                "wgpu" => Ok(Self::Wgpu),
                _ => Err(unknown()),
            },
            Some(("cuda", index)) => index.parse().map(Self::Cuda).map_err(|_| unknown()),
            Some(_) => Err(unknown()),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::NdArray => f.write_str("ndarray"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
            Self::Wgpu => f.write_str("wgpu"),
        }
    }
}

impl DeviceChoice {
    /// The cargo feature that compiles the device's backend in, and whether it is.
    fn feature(self) -> (&'static str, bool) {
        match self {
            Self::Cpu => ("flex", cfg!(feature = "flex")),
            Self::NdArray => ("ndarray", cfg!(feature = "ndarray")),
            Self::Cuda(_) => ("cuda", cfg!(feature = "cuda")),
            Self::Wgpu => ("wgpu", cfg!(feature = "wgpu")),
        }
    }

    /// Bytes of the device's memory that are free, where the system tells.
    pub(crate) fn free_memory(self) -> Option<u64> {
        match self {
            Self::Cpu | Self::NdArray => free_host_memory(),
            Self::Cuda(index) => free_cuda_memory(index),
            Self::Wgpu => None,
        }
    }

    /// Checks that the device can be used, before any tensor exists: Burn's CUDA backend panics in a worker thread when the
    /// driver is missing.
    ///
    /// # Errors
    /// When the backend is not compiled in, or driver or card are missing.
    pub(crate) fn probe(self) -> Result<(), DeviceError> {
        match self.feature() {
            (feature, false) => Err(DeviceError::NotCompiled { device: self, feature }),
            _ => match self {
                Self::Cuda(index) => probe_cuda(index),
                _ => Ok(()),
            },
        }
    }
}

/// Free memory of an NVIDIA GPU.
#[cfg(feature = "cuda")]
fn free_cuda_memory(index: usize) -> Option<u64> {
    let context = cudarc::driver::CudaContext::new(index).ok()?;
    context.mem_get_info().ok().map(|(free, _)| free as u64)
}

#[cfg(not(feature = "cuda"))]
fn free_cuda_memory(_index: usize) -> Option<u64> {
    None
}

/// What Linux can give to processes without swapping; of a control group, what its limit leaves.
fn free_host_memory() -> Option<u64> {
    let number = |text: &str| text.split_whitespace().next()?.parse::<u64>().ok();
    let table = std::fs::read_to_string("/proc/meminfo").ok()?;
    let available = table.lines().find_map(|line| number(line.strip_prefix("MemAvailable:")?))? * 1024;
    let group = |file: &str| number(&std::fs::read_to_string(format!("/sys/fs/cgroup/{file}")).ok()?);
    let of_group = group("memory.max").zip(group("memory.current"));
    Some(of_group.map_or(available, |(most, used)| available.min(most.saturating_sub(used))))
}

#[cfg(feature = "cuda")]
fn probe_cuda(index: usize) -> Result<(), DeviceError> {
    use cudarc::driver::{CudaContext, sys::is_culib_present};

    let device = DeviceChoice::Cuda(index);
    // SAFETY: the call loads the driver's shared library, if there is one, and looks nothing else up. Its initialisers are
    // those that any CUDA program runs, and no other thread of this process has started yet.
    #[expect(unsafe_code, reason = "asks whether the CUDA driver can be loaded; see the argument above")]
    let present = unsafe { is_culib_present() };
    if !present {
        return Err(DeviceError::NoDriver { device });
    }
    match CudaContext::device_count() {
        Ok(count) if index < usize::try_from(count).unwrap_or(0) => Ok(()),
        Ok(count) => Err(DeviceError::NoCard { device, count }),
        Err(error) => Err(DeviceError::Driver { device, message: error.to_string() }),
    }
}

#[cfg(not(feature = "cuda"))]
fn probe_cuda(_index: usize) -> Result<(), DeviceError> {
    Ok(()) // not reached: `probe` has found that the backend is not compiled in
}

/// A device that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeviceError {
    #[error("unknown device `{found}`; known are cpu, ndarray, cuda, cuda:N and wgpu")]
    Unknown { found: String },
    #[error("device {device} is not compiled in; build with `--features {feature}`")]
    NotCompiled { device: DeviceChoice, feature: &'static str },
    #[cfg(feature = "cuda")]
    #[error(
        "device {device}: no NVIDIA driver was found (libcuda cannot be loaded); install the driver or use --device cpu"
    )]
    NoDriver { device: DeviceChoice },
    #[cfg(feature = "cuda")]
    #[error("device {device}: the driver reports {count} card(s), numbered from 0; choose one of them")]
    NoCard { device: DeviceChoice, count: i32 },
    #[cfg(feature = "cuda")]
    #[error("device {device}: the NVIDIA driver answers with an error: {message}")]
    Driver { device: DeviceChoice, message: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_back_as_they_are_printed() {
        for text in ["cpu", "ndarray", "cuda:3", "wgpu"] {
            assert_eq!(text.parse::<DeviceChoice>().unwrap().to_string(), text);
        }
        assert_eq!("cuda".parse::<DeviceChoice>().unwrap(), DeviceChoice::Cuda(0));
    }

    #[test]
    fn an_unknown_device_is_named_with_the_known_ones() {
        for text in ["gpu", "cuda:x", "cpu:1", ""] {
            let error = text.parse::<DeviceChoice>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("cuda:N"), "{error}");
        }
    }

    #[cfg(not(feature = "wgpu"))]
    #[test]
    fn a_backend_that_is_not_compiled_in_names_its_feature() {
        let error = DeviceChoice::Wgpu.probe().unwrap_err().to_string();
        assert!(error.contains("--features wgpu"), "{error}");
    }
}
