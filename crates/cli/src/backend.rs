//! From the choice of a device to a backend type, in one place.

use burn::{
    backend::Autodiff,
    tensor::backend::{AutodiffBackend, Backend},
};
use firebrick_models::FusedOps;

use crate::device::DeviceChoice;

/// What a command does once it has a backend.
pub(crate) trait DeviceTask {
    type Output;

    /// Runs on the autodiff backend `B`.
    fn run<B>(self, device: B::Device) -> anyhow::Result<Self::Output>
    where
        B: AutodiffBackend + FusedOps,
        B::InnerBackend: FusedOps;
}

/// Runs a task on the chosen device, which is probed before any tensor exists.
pub(crate) fn on_device<T: DeviceTask>(choice: DeviceChoice, task: T) -> anyhow::Result<T::Output> {
    choice.probe()?;
    match choice {
        #[cfg(feature = "flex")]
        DeviceChoice::Cpu => on::<burn::backend::Flex, T>(task, Default::default()),
        #[cfg(feature = "ndarray")]
        DeviceChoice::NdArray => on::<burn::backend::NdArray, T>(task, Default::default()),
        #[cfg(feature = "cuda")]
        DeviceChoice::Cuda(index) => {
            on::<burn::backend::Cuda, T>(task, burn::backend::cuda::CudaDevice::new(index))
        }
        #[cfg(feature = "wgpu")]
        DeviceChoice::Wgpu => on::<burn::backend::Wgpu, T>(task, Default::default()),
        #[cfg(not(all(feature = "flex", feature = "ndarray", feature = "cuda", feature = "wgpu")))]
        other => unreachable!("the probe refused {other}, which is not compiled in"),
    }
}

#[cfg_attr(
    not(any(feature = "flex", feature = "ndarray", feature = "cuda", feature = "wgpu")),
    expect(dead_code, reason = "no backend is compiled in")
)]
fn on<B, T: DeviceTask>(task: T, device: B::Device) -> anyhow::Result<T::Output>
where
    B: Backend + FusedOps,
    Autodiff<B>: FusedOps + AutodiffBackend<InnerBackend = B, Device = B::Device>,
{
    task.run::<Autodiff<B>>(device)
}
