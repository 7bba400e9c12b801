//! Memory of a device, and host memory that it reaches.

use super::{Device, DriverError, driver};
use cudarc::driver::sys::{
    CUdeviceptr, CUmemAccess_flags as Access, CUmemAccessDesc,
    CUmemAllocationGranularity_flags as Granularity, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationType, CUmemGenericAllocationHandle,
    CUmemLocation, CUmemLocationType,
};
use std::{ops::Range, ptr, slice};

/// A byte of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address(pub(crate) u64);

impl Address {
    /// So many bytes on.
    pub(crate) fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

/// A block of device memory.
pub(crate) struct DeviceMemory {
    start: CUdeviceptr,
    kind: Kind,
}

enum Kind {
    /// Physical memory mapped at an address of our own.
    Mapped { handle: CUmemGenericAllocationHandle, size: usize, page: usize },
    /// What the driver gave.
    Block { size: usize },
    /// No bytes.
    Nothing,
}

impl DeviceMemory {
    /// At least `bytes`, mapped where the device can; what they hold is undefined.
    ///
    /// # Errors
    /// When there is too little memory.
    pub(crate) fn new(device: &Device, bytes: u64) -> Result<Self, DriverError> {
        match bytes {
            0 => Ok(Self { start: 0, kind: Kind::Nothing }),
            _ if device.maps_memory() => Self::mapped(device, bytes as usize),
            _ => Self::block(bytes as usize),
        }
    }

    fn block(bytes: usize) -> Result<Self, DriverError> {
        let mut start = 0;
        // SAFETY: one address is written.
        unsafe { driver!(cuMemAlloc_v2(&raw mut start, bytes)) }?;
        Ok(Self { start, kind: Kind::Block { size: bytes } })
    }

    fn mapped(device: &Device, bytes: usize) -> Result<Self, DriverError> {
        let location = CUmemLocation {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: device.raw(),
        };
        let properties = properties(location);
        let page = granularity(&properties)?;
        let size = bytes.next_multiple_of(page);
        let mut handle = 0;
        // SAFETY: a handle is written.
        unsafe { driver!(cuMemCreate(&raw mut handle, size, &raw const properties, 0)) }?;
        // From here on a failure gives back what was made, because dropping does.
        let mut memory = Self { start: 0, kind: Kind::Mapped { handle, size, page } };
        let access = CUmemAccessDesc {
            location,
            flags: Access::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: an address is written, at which the whole of the handle is then mapped.
        unsafe {
            driver!(cuMemAddressReserve(&raw mut memory.start, size, 0, 0, 0))?;
            driver!(cuMemMap(memory.start, size, 0, handle, 0))?;
            driver!(cuMemSetAccess(memory.start, size, &raw const access, 1))?;
        }
        Ok(memory)
    }

    /// Its first byte.
    pub(crate) fn start(&self) -> Address {
        Address(self.start)
    }

    /// Bytes that the driver handed out, and the page that they were rounded up to.
    pub(crate) fn handed(&self) -> (u64, u64) {
        match self.kind {
            Kind::Nothing => (0, 1),
            Kind::Block { size } => (size as u64, 1),
            Kind::Mapped { size, page, .. } => (size as u64, page as u64),
        }
    }
}

fn properties(location: CUmemLocation) -> CUmemAllocationProp {
    // SAFETY: every field is a number, an address or an enumeration that has zero.
    let mut properties: CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE;
    properties.location = location;
    properties
}

fn granularity(properties: &CUmemAllocationProp) -> Result<usize, DriverError> {
    let recommended = Granularity::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
    let mut granularity = 0;
    // SAFETY: one number is written.
    unsafe {
        driver!(cuMemGetAllocationGranularity(
            &raw mut granularity,
            ptr::from_ref(properties),
            recommended,
        ))
    }?;
    Ok(granularity.max(1))
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: the memory was made as the kind says, and whoever owns it has waited for the
        // streams that use it.
        unsafe {
            match self.kind {
                Kind::Nothing => {}
                Kind::Block { .. } => drop(driver!(cuMemFree_v2(self.start))),
                Kind::Mapped { handle, size, .. } => {
                    if self.start != 0 {
                        let _ = driver!(cuMemUnmap(self.start, size));
                        let _ = driver!(cuMemAddressFree(self.start, size));
                    }
                    let _ = driver!(cuMemRelease(handle));
                }
            }
        }
    }
}

/// Host memory at a fixed place, which a device reads and writes while this program goes on.
///
/// Nothing here sees to it that the two do not meet: whoever reads or writes a range has waited
/// for the device to be done with it.
pub(crate) struct Pinned {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: it is a block of bytes that belongs to whoever owns this.
unsafe impl Send for Pinned {}

impl Pinned {
    /// So many bytes, zero at first.
    ///
    /// # Errors
    /// When there is too little memory.
    pub(crate) fn new(bytes: usize) -> Result<Self, DriverError> {
        if bytes == 0 {
            return Ok(Self { start: ptr::NonNull::dangling().as_ptr(), bytes });
        }
        let mut start = ptr::null_mut();
        // SAFETY: an address of this many bytes is written, which are then this program's.
        let start: *mut u8 = unsafe {
            driver!(cuMemHostAlloc(&raw mut start, bytes, 0))?;
            ptr::write_bytes(start.cast::<u8>(), 0, bytes);
            start.cast()
        };
        Ok(Self { start, bytes })
    }

    /// Reads a range that the device does not write now.
    pub(crate) fn read(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.bytes);
        // SAFETY: the range lies inside, and was set when the block was made.
        unsafe { slice::from_raw_parts(self.start.add(range.start), range.len()) }
    }

    /// Writes a range that the device does not touch now.
    pub(crate) fn write(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(range.start <= range.end && range.end <= self.bytes);
        // SAFETY: as for `read`, and the block is borrowed for writing.
        unsafe { slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// The address of a range, for the device.
    pub(super) fn address(&self, range: &Range<usize>) -> *mut u8 {
        assert!(range.start <= range.end && range.end <= self.bytes);
        // SAFETY: the range lies inside.
        unsafe { self.start.add(range.start) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: it was allocated so; its owner has waited for the streams that use it.
            let _ = unsafe { driver!(cuMemFreeHost(self.start.cast())) };
        }
    }
}
