//! A device that is described to the library, which plans for it though it is not here.

use super::super::{
    attribute::DEVICEPROP_JSON_REPRESENTATION,
    descriptor::{Descriptor, Kind},
};
use crate::cuda::driver::{convolutions_version, cudnn};
use std::env;

/// What the library asks of a device, as an H200 answers.
const H200: &str = r#"{
    "deviceName": "NVIDIA H200", "deviceVer": 900, "driverVer": 13000,
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
    "multiProcessorCount": 132, "warpSize": 32, "regsPerBlock": 65536,
    "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
    "reservedSharedMemoryPerBlock": 1024, "oversizedSharedMemoryPerBlock": 0,
    "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048, "totalGlobalMem": 150000000000, "l2CacheSize": 62914560,
    "smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "memoryBusWidth": 6144,
    "cudaDeviceId": 0, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1
}"#;

/// An H200, where cuDNN is here; which it must be where the environment says so.
pub(in crate::cuda::ready) fn h200() -> Option<Descriptor> {
    let is_here = convolutions_version().is_some() && cudnn::has_engines();
    let is_wanted = env::var_os("ROUNDELAY_REQUIRE_CUDNN").is_some();
    assert!(is_here || !is_wanted, "there is no cuDNN here with all its parts");
    is_here.then(|| {
        let device = Descriptor::new(Kind::Device)
            .and_then(|device| {
                device.with(DEVICEPROP_JSON_REPRESENTATION, H200.as_bytes())
            })
            .and_then(Descriptor::finish);
        device.expect("all that is asked of a device is said")
    })
}
