//! A GPU and its primary context.

use super::{DriverError, Libraries, NoCuda, driver};
use cudarc::driver::sys::{CUcontext, CUdevice, CUdevice_attribute as Attribute};
use roundelay_schedule::Bytes;
use std::{ffi::CStr, fmt, ptr};

/// The compute capability that kernels need: asynchronous copies, products of bf16.
const OLDEST: (u32, u32) = (8, 0);

/// What is known of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Its number.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// All of its memory.
    pub memory: Bytes,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// The newest CUDA that the driver knows, major and minor.
    pub driver: (u32, u32),
    /// NVRTC's version, major and minor.
    pub compiler: (u32, u32),
    /// Version of cuBLASLt; none when own kernels make all products.
    pub products: Option<usize>,
    /// Version of cuDNN; none when own kernels make all convolutions.
    pub convolutions: Option<usize>,
}

/// A GPU whose primary context is held.
pub(crate) struct Device {
    raw: CUdevice,
    context: CUcontext,
    facts: DeviceFacts,
    pub(crate) libraries: Libraries,
}

impl Device {
    /// How many there are.
    ///
    /// # Errors
    /// When there is no CUDA.
    pub(crate) fn count() -> Result<u32, NoCuda> {
        Libraries::load()?;
        let mut count = 0;
        // SAFETY: one number is written; the driver is started.
        unsafe { driver!(cuDeviceGetCount(&raw mut count)) }.map_err(NoCuda::Start)?;
        match u32::try_from(count) {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(NoCuda::Device),
        }
    }

    /// What is known of a GPU, without a context on it.
    ///
    /// # Errors
    /// When there is no such GPU, or it is too old.
    pub(crate) fn look(ordinal: u32) -> Result<DeviceFacts, NoCuda> {
        Self::find(ordinal).map(|(_, facts)| facts)
    }

    fn find(ordinal: u32) -> Result<(CUdevice, DeviceFacts), NoCuda> {
        if ordinal >= Self::count()? {
            return Err(NoCuda::Device);
        }
        let libraries = Libraries::load()?;
        let mut raw = 0;
        // SAFETY: a device is written; the driver is started.
        let found = unsafe { driver!(cuDeviceGet(&raw mut raw, ordinal as i32)) };
        let facts = found.and_then(|()| facts(ordinal, raw, libraries));
        let facts = facts.map_err(NoCuda::Start)?;
        match facts.capability < OLDEST {
            true => Err(NoCuda::OldDevice { device: facts.to_string() }),
            false => Ok((raw, facts)),
        }
    }

    /// Holds the primary context of a GPU.
    ///
    /// # Errors
    /// When there is no such GPU, or its context cannot be made.
    pub(crate) fn open(ordinal: u32) -> Result<Self, NoCuda> {
        let libraries = Libraries::load()?;
        let (raw, facts) = Self::find(ordinal)?;
        let mut context = ptr::null_mut();
        // SAFETY: a context is written; the driver is started.
        unsafe { driver!(cuDevicePrimaryCtxRetain(&raw mut context, raw)) }
            .map_err(NoCuda::Start)?;
        Ok(Self { raw, context, facts, libraries })
    }

    /// What is known of it.
    pub(crate) fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    /// Makes its context that of the calling thread.
    pub(crate) fn enter(&self) -> Result<(), DriverError> {
        // SAFETY: the context is held until this is dropped.
        unsafe { driver!(cuCtxSetCurrent(self.context)) }
    }

    /// Memory that is free now.
    pub(crate) fn free(&self) -> Result<Bytes, DriverError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: two numbers are written.
        unsafe { driver!(cuMemGetInfo_v2(&raw mut free, &raw mut total)) }?;
        Ok(Bytes(free as u64))
    }

    /// Whether memory can be mapped at addresses of our own.
    pub(crate) fn maps_memory(&self) -> bool {
        let supported =
            Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED;
        attribute(self.raw, supported).is_ok_and(|supported| supported != 0)
    }

    /// The driver's handle.
    pub(super) fn raw(&self) -> CUdevice {
        self.raw
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: it was retained once.
        let _ = unsafe { driver!(cuDevicePrimaryCtxRelease_v2(self.raw)) };
    }
}

fn attribute(device: CUdevice, attribute: Attribute) -> Result<u32, DriverError> {
    let mut value = 0;
    // SAFETY: one number is written.
    unsafe { driver!(cuDeviceGetAttribute(&raw mut value, attribute, device)) }?;
    Ok(u32::try_from(value).unwrap_or(0))
}

fn facts(
    ordinal: u32,
    raw: CUdevice,
    libraries: Libraries,
) -> Result<DeviceFacts, DriverError> {
    let mut name = [0; 256];
    let mut memory = 0;
    // SAFETY: a name that ends within the room given, and one number, are written.
    let name = unsafe {
        driver!(cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, raw))?;
        driver!(cuDeviceTotalMem_v2(&raw mut memory, raw))?;
        CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
    };
    let unsigned = |number: i32| u32::try_from(number).unwrap_or(0);
    Ok(DeviceFacts {
        ordinal,
        name,
        memory: Bytes(memory as u64),
        capability: (
            attribute(raw, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(raw, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        multiprocessors: attribute(
            raw,
            Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
        )?,
        driver: (
            unsigned(libraries.driver / 1000),
            unsigned(libraries.driver % 1000 / 10),
        ),
        compiler: (unsigned(libraries.compiler.0), unsigned(libraries.compiler.1)),
        products: libraries.products,
        convolutions: libraries.convolutions,
    })
}

impl DeviceFacts {
    /// In words the versions of cuBLASLt and cuDNN, or that there is none.
    pub fn libraries(&self) -> String {
        let Self { products, convolutions, .. } = self;
        let found = [("cuBLASLt", products), ("cuDNN", convolutions)];
        let words = found.map(|(name, version)| match version {
            Some(version) => format!("{name} {version}"),
            None => format!("no {name}"),
        });
        words.join(", ")
    }

    /// Where own kernels make everything, whatever is there.
    pub(crate) fn without_libraries(&self) -> Self {
        Self { products: None, convolutions: None, ..self.clone() }
    }
}

impl fmt::Display for DeviceFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ordinal, name, capability: (major, minor), .. } = self;
        write!(f, "GPU {ordinal} ({name}, compute capability {major}.{minor})")
    }
}
