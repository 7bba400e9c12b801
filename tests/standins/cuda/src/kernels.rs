//! Modules and kernels: shared objects of the emulation, loaded from memory.

use crate::{
    forbid,
    memory::is_of_device,
    work::Work,
    world::{INVALID_IMAGE, World},
};
use std::{
    ffi::{CStr, CString, c_void},
    slice, thread,
    time::Duration,
};

/// Opens an image: the shared object follows, after its length.
pub(crate) const MAGIC: &[u8; 8] = b"standin\0";

/// How the emulation runs a grid.
type Emulate = unsafe extern "C" fn(*const u32, *const u32, u64, *mut *mut c_void);
/// How the emulation says what parameters a kernel has.
type Parameters = unsafe extern "C" fn(*mut u64) -> u32;

/// How the emulation says how many threads a block may have.
type Threads = unsafe extern "C" fn() -> u32;

/// The most blocks of a grid in its first direction.
const MOST_BLOCKS: u32 = i32::MAX as u32;

/// The most parameters of a kernel.
const MOST: usize = 128;

/// A kernel of a loaded module; lives as long as the process.
pub(crate) struct Function {
    pub(crate) module: u64,
    symbol: String,
    emulate: Emulate,
    sizes: Vec<usize>,
    /// The most threads that it was compiled for.
    threads: u32,
    /// Dynamic shared memory that a launch may want.
    pub(crate) shared: u32,
}

/// A launch.
#[derive(Clone)]
pub(crate) struct Kernel {
    module: u64,
    symbol: String,
    emulate: Emulate,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    values: Vec<[u8; 8]>,
    /// How long it takes besides.
    sleeps: Duration,
}

impl Kernel {
    /// Runs the whole grid.
    pub(crate) fn run(&self) {
        if self.sleeps > Duration::ZERO {
            thread::sleep(self.sleeps);
        }
        let mut values = self.values.clone();
        let mut pointers: Vec<*mut c_void> =
            values.iter_mut().map(|value| value.as_mut_ptr().cast()).collect();
        // SAFETY: there is a value for each parameter; addresses among them were live when it was
        // launched, and what a kernel touches behind their blocks is unreadable.
        unsafe {
            (self.emulate)(
                self.grid.as_ptr(),
                self.block.as_ptr(),
                u64::from(self.shared),
                pointers.as_mut_ptr(),
            );
        }
    }
}

/// The bytes of an image that begins at an address.
///
/// # Safety
/// Whatever begins with the magic number is an image.
pub(crate) unsafe fn image<'a>(start: *const u8) -> Option<&'a [u8]> {
    // SAFETY: the caller says so; anything else is longer than its first bytes.
    unsafe {
        let head = slice::from_raw_parts(start, 16);
        let (magic, length) = head.split_at(8);
        if magic != MAGIC {
            return None;
        }
        let length = u64::from_ne_bytes(length.try_into().ok()?) as usize;
        Some(slice::from_raw_parts(start.add(16), length))
    }
}

/// Loads a shared object from memory; the handle of its module.
pub(crate) fn load(object: &[u8]) -> Result<u64, i32> {
    // SAFETY: a file in memory is made, filled and opened by the name that the system has for it.
    // It stays open, because a name that comes again would be taken for the module that had it.
    unsafe {
        let file = libc::memfd_create(c"standin".as_ptr(), 0);
        let written = libc::write(file, object.as_ptr().cast(), object.len());
        if written != object.len() as isize {
            return Err(INVALID_IMAGE);
        }
        let name = CString::new(format!("/proc/self/fd/{file}")).unwrap_or_default();
        let module = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        if module.is_null() { Err(INVALID_IMAGE) } else { Ok(module as u64) }
    }
}

/// A kernel of a module; none when it has no such one.
pub(crate) fn function(module: u64, symbol: &CStr) -> Option<Function> {
    let symbol = symbol.to_str().ok()?;
    let find = |prefix: &str| {
        let name = CString::new(format!("roundelay_{prefix}_{symbol}")).ok()?;
        // SAFETY: the module was loaded by `load` and never closed.
        let address = unsafe { libc::dlsym(module as *mut c_void, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    };
    // SAFETY: the emulation exports functions of these types under these names.
    let (emulate, parameters, threads) = unsafe {
        (
            std::mem::transmute::<*mut c_void, Emulate>(find("emulate")?),
            std::mem::transmute::<*mut c_void, Parameters>(find("parameters")?),
            std::mem::transmute::<*mut c_void, Threads>(find("threads")?),
        )
    };
    let mut sizes = [0u64; MOST];
    // SAFETY: no kernel has more parameters.
    let count = unsafe { parameters(sizes.as_mut_ptr()) } as usize;
    let sizes = sizes[..count].iter().map(|size| *size as usize).collect();
    // SAFETY: it has no parameters.
    let threads = unsafe { threads() };
    Some(Function {
        module,
        symbol: symbol.to_owned(),
        emulate,
        sizes,
        threads,
        shared: 48 << 10,
    })
}

impl World {
    /// Ends the process where recorded work is that of a function whose module is gone.
    pub(crate) fn hold(&self, work: &Work) {
        if let Work::Kernel(Kernel { module, symbol, .. }) = work {
            self.hold_module(*module, symbol);
        }
    }

    fn hold_module(&self, module: u64, symbol: &str) {
        if !self.modules.contains(&module) {
            forbid(&format!("{symbol}: its module was unloaded"));
        }
    }

    /// A launch of a kernel, whose values lie where the pointers say.
    ///
    /// # Safety
    /// There is a pointer to a value for each parameter.
    pub(crate) unsafe fn kernel(
        &self,
        function: &Function,
        (grid, block, shared): ([u32; 3], [u32; 3], u32),
        pointers: *mut *mut c_void,
    ) -> Kernel {
        let symbol = &function.symbol;
        self.hold_module(function.module, symbol);
        if shared > function.shared {
            forbid(&format!("{symbol}: more shared memory than it was told to expect"));
        }
        let threads: u64 = block.iter().map(|n| u64::from(*n)).product();
        if threads > u64::from(function.threads) {
            let most = function.threads;
            forbid(&format!("{symbol}: {threads} threads of at most {most}"));
        }
        if !(1..=1024).contains(&threads)
            || grid.contains(&0)
            || grid[1..].iter().any(|n| *n > 65_535)
            || grid[0] > MOST_BLOCKS
            || block[2] > 64
        {
            forbid(&format!(
                "{symbol}: no device has a grid {grid:?} of blocks {block:?}"
            ));
        }
        let value = |(number, size): (usize, &usize)| {
            let mut bytes = [0; 8];
            // SAFETY: the caller says so.
            unsafe {
                let from: *const u8 = (*pointers.add(number)).cast();
                std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), (*size).min(8));
            }
            let address = u64::from_ne_bytes(bytes);
            if is_of_device(address) && !self.memory.is_live(address, 1) {
                forbid(&format!(
                    "{symbol}: parameter {number} is an address of no memory"
                ));
            }
            bytes
        };
        let values = function.sizes.iter().enumerate().map(value).collect();
        let slow = self.settings.slow.iter().any(|part| symbol.contains(part));
        let sleeps = if slow { self.settings.slow_for } else { Duration::ZERO };
        let (symbol, emulate) = (symbol.clone(), function.emulate);
        Kernel {
            module: function.module,
            symbol,
            emulate,
            grid,
            block,
            shared,
            values,
            sleeps,
        }
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.symbol)
    }
}
