//! Machine code of a device and its functions.

use super::{DriverError, driver};
use cudarc::driver::sys::{CUfunction, CUfunction_attribute as Attribute, CUmodule};
use std::{
    ffi::{CString, c_void},
    ptr,
};

/// Loaded machine code.
pub(crate) struct Module(CUmodule);

/// A function of a module that is kept for as long as the machine.
#[derive(Clone, Copy)]
pub(crate) struct Function(CUfunction);

// SAFETY: the driver takes handles from any thread whose context is theirs.
unsafe impl Send for Module {}
// SAFETY: as for modules.
unsafe impl Send for Function {}

impl Module {
    /// Loads machine code.
    ///
    /// # Errors
    /// When it is none, or for another device.
    pub(crate) fn new(code: &[u8]) -> Result<Self, DriverError> {
        let mut raw = ptr::null_mut();
        // SAFETY: a cubin says itself how long it is, and other code ends with zero; the driver
        // reads no further.
        unsafe { driver!(cuModuleLoadData(&raw mut raw, code.as_ptr().cast())) }?;
        Ok(Self(raw))
    }

    /// A function by its symbol, with so much shared memory as its launches may want.
    pub(crate) fn function(
        &self,
        symbol: &str,
        shared: u64,
    ) -> Result<Function, DriverError> {
        let name = CString::new(symbol).unwrap_or_default();
        let mut raw = ptr::null_mut();
        // SAFETY: a handle is written; the name ends with zero.
        unsafe { driver!(cuModuleGetFunction(&raw mut raw, self.0, name.as_ptr())) }?;
        if shared > ALWAYS_SHARED {
            let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let shared = i32::try_from(shared).unwrap_or(i32::MAX);
            // SAFETY: the handle was just given.
            unsafe { driver!(cuFuncSetAttribute(raw, attribute, shared)) }?;
        }
        Ok(Function(raw))
    }
}

/// Shared memory that every function may have without being asked, beside what it declares itself:
/// together these are at most 48 KiB.
const ALWAYS_SHARED: u64 = 32 * 1024;

impl Function {
    /// The driver's handle.
    pub(super) fn raw(&self) -> CUfunction {
        self.0
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: the handle is live and no function of it is used any more.
        let _ = unsafe { driver!(cuModuleUnload(self.0)) };
    }
}

/// Values of the parameters of a launch; sized once.
#[derive(Default)]
pub(crate) struct Parameters {
    values: Vec<u64>,
    pointers: Vec<*mut c_void>,
}

impl Parameters {
    /// None.
    pub(crate) fn clear(&mut self) {
        self.values.clear();
    }

    /// The next one: its bytes from the lowest on, as the host and the device have them.
    pub(crate) fn push(&mut self, value: u64) {
        self.values.push(value);
    }

    /// Where the values are; valid until the next change.
    pub(super) fn pointers(&mut self) -> *mut *mut c_void {
        self.pointers.clear();
        let values = self.values.iter_mut();
        self.pointers.extend(values.map(|value| ptr::from_mut(value).cast::<c_void>()));
        self.pointers.as_mut_ptr()
    }
}
