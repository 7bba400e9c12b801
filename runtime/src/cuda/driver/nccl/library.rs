//! `libnccl`, found and looked through before anything of it is called.
//!
//! The library's packages hold it under the name `libnccl.so.2` alone, so it is opened here and
//! its functions are kept in a table; the types are cudarc's.

use super::super::library::{Found, find_library};
use cudarc::nccl::sys::{ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclUniqueId};
use std::{
    env,
    ffi::{c_char, c_int, c_void},
    sync::OnceLock,
};

/// The oldest version: communicators that do not block, with a configuration as below.
const OLDEST: i32 = 21_800;

/// Why there is no NCCL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoNccl {
    /// No library.
    #[error(
        "there is no NCCL here (libnccl.so.2 was not found), by which several GPUs speak with \
         each other: install it, as `pip install nvidia-nccl-cu13` does, or name its folder in \
         ROUNDELAY_CUDA_LIBRARIES"
    )]
    Missing,
    /// One that is too old.
    #[error("NCCL is of version {found}; install 2.18 or newer")]
    Old {
        /// Its version.
        found: String,
    },
    /// One without a function that is called.
    #[error("NCCL has no `{symbol}`; install version 2.18 or newer")]
    Symbol {
        /// What it lacks.
        symbol: &'static str,
    },
    /// One whose calls wait, whatever a communicator asks for.
    #[error(
        "NCCL_COMM_BLOCKING is {value}, by which NCCL's calls wait for other ranks without an \
         end; unset it"
    )]
    Blocking {
        /// As the environment has it.
        value: String,
    },
}

/// The variable that decides for all communicators whether they block.
const BLOCKING: &str = "NCCL_COMM_BLOCKING";

/// A stream, as NCCL takes it.
pub(super) type RawStream = *mut c_void;

/// How a communicator is set up: NCCL's own structure as of version 2.18. Newer libraries look at
/// `size` and `version`, and fill in what came later.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    cluster_size: c_int,
    least_blocks: c_int,
    most_blocks: c_int,
    network: *const c_char,
    split_share: c_int,
}

impl Config {
    /// Calls return at once; all else as the library likes.
    pub(super) fn without_blocking() -> Self {
        const UNDEFINED: c_int = c_int::MIN;
        Self {
            size: size_of::<Self>(),
            magic: 0xcafe_beef,
            version: OLDEST as u32,
            blocking: 0,
            cluster_size: UNDEFINED,
            least_blocks: UNDEFINED,
            most_blocks: UNDEFINED,
            network: std::ptr::null(),
            split_share: UNDEFINED,
        }
    }
}

/// Declares the table of functions, and how it is filled.
macro_rules! functions {
    ($($field:ident = $symbol:ident($($argument:ty),* $(,)?) -> $result:ty;)*) => {
        /// The functions that are called.
        pub(super) struct Functions {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            fn of(library: &Found) -> Result<Self, NoNccl> {
                Ok(Self {
                    // SAFETY: the type is that of the library's header.
                    $($field: unsafe { library.symbol(stringify!($symbol)) }
                        .ok_or(NoNccl::Symbol { symbol: stringify!($symbol) })?,)*
                })
            }
        }
    };
}

functions! {
    error_string = ncclGetErrorString(u32) -> *const c_char;
    last_error = ncclGetLastError(ncclComm_t) -> *const c_char;
    unique_id = ncclGetUniqueId(*mut ncclUniqueId) -> u32;
    begin = ncclCommInitRankConfig(
        *mut ncclComm_t, c_int, ncclUniqueId, c_int, *mut Config
    ) -> u32;
    state = ncclCommGetAsyncError(ncclComm_t, *mut u32) -> u32;
    finalize = ncclCommFinalize(ncclComm_t) -> u32;
    destroy = ncclCommDestroy(ncclComm_t) -> u32;
    abort = ncclCommAbort(ncclComm_t) -> u32;
    group_start = ncclGroupStart() -> u32;
    group_end = ncclGroupEnd() -> u32;
    send = ncclSend(
        *const c_void, usize, ncclDataType_t, c_int, ncclComm_t, RawStream
    ) -> u32;
    receive = ncclRecv(
        *mut c_void, usize, ncclDataType_t, c_int, ncclComm_t, RawStream
    ) -> u32;
    all_reduce = ncclAllReduce(
        *const c_void, *mut c_void, usize, ncclDataType_t, ncclRedOp_t, ncclComm_t, RawStream
    ) -> u32;
    reduce_scatter = ncclReduceScatter(
        *const c_void, *mut c_void, usize, ncclDataType_t, ncclRedOp_t, ncclComm_t, RawStream
    ) -> u32;
}

/// The library.
pub(crate) struct Nccl {
    pub(super) functions: Functions,
    version: i32,
    /// Its functions are in it.
    _library: Found,
}

impl Nccl {
    /// Looks for it, once.
    ///
    /// # Errors
    /// When it is missing or too old.
    pub(crate) fn load() -> Result<&'static Self, NoNccl> {
        static FOUND: OnceLock<Result<Nccl, NoNccl>> = OnceLock::new();
        FOUND.get_or_init(find).as_ref().map_err(Clone::clone)
    }

    /// Its version in words.
    pub(crate) fn version(&self) -> String {
        dotted(self.version)
    }
}

/// Whether a value of [`BLOCKING`] has calls wait; NCCL reads a number, and takes another one than 0
/// and 1 for none.
fn blocks(value: &str) -> bool {
    value.trim().parse::<i64>() == Ok(1)
}

fn find() -> Result<Nccl, NoNccl> {
    if let Some(value) = env::var(BLOCKING).ok().filter(|value| blocks(value)) {
        return Err(NoNccl::Blocking { value });
    }
    let library = find_library("nccl", &["libnccl.so.2"]).ok_or(NoNccl::Missing)?;
    // SAFETY: the type is that of the library's header.
    let asked = unsafe {
        library.symbol::<unsafe extern "C" fn(*mut c_int) -> u32>("ncclGetVersion")
    };
    let asked = asked.ok_or(NoNccl::Symbol { symbol: "ncclGetVersion" })?;
    let mut version = 0;
    // SAFETY: one number is written.
    let _ = unsafe { asked(&raw mut version) };
    if version < OLDEST {
        return Err(NoNccl::Old { found: dotted(version) });
    }
    Ok(Nccl { functions: Functions::of(&library)?, version, _library: library })
}

/// A version as NCCL numbers them: 22809 is 2.28.9, and 2708 was 2.7.8.
fn dotted(version: i32) -> String {
    let unit = if version < 10_000 { 1_000 } else { 10_000 };
    format!("{}.{}.{}", version / unit, version % unit / 100, version % 100)
}

#[cfg(test)]
mod tests {
    use super::{blocks, dotted};

    #[test]
    fn versions_read_as_nccl_writes_them() {
        assert_eq!(dotted(22_809), "2.28.9");
        assert_eq!(dotted(2_708), "2.7.8");
    }

    #[test]
    fn only_a_one_has_calls_wait() {
        assert!(blocks("1") && blocks(" 1"));
        assert!(!blocks("0") && !blocks("") && !blocks("-2") && !blocks("yes"));
    }
}
