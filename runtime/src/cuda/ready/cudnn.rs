//! cuDNN, started once somebody wants it, and why it does not do something.
#![expect(unsafe_code, reason = "cuDNN is called here")]

mod attribute;
pub(super) mod descriptor;
pub(super) mod engine;
pub(super) mod graph;

use super::{
    super::driver::{
        Device, DriverError, Stream,
        cudnn::{self, Answer},
    },
    code::Operand,
    multiplier::{offset, power_of_two_in},
};
use roundelay_kernels::cuda::{CallPlace, Number};
use std::{
    ffi::{CStr, c_int},
    fmt, ptr,
};

/// `CUDNN_STATUS_SUCCESS`.
pub(super) const SUCCESS: Answer = 0;

/// `CUDNN_DATA_FLOAT`, `CUDNN_DATA_HALF` and `CUDNN_DATA_BFLOAT16`.
pub(super) const SINGLE: c_int = 0;
const HALF: c_int = 2;
const BFLOAT16: c_int = 9;

/// What arrays start at multiples of, in bytes: the library's kernels load whole vectors, and not all of
/// them are told of less.
pub(super) const ALIGNMENT: u64 = 16;

/// Why the library does not do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// What it answered, when it was not success.
    Answered(Answer),
    /// Libraries are missing that it consists of.
    Incomplete,
    /// It has no engine that makes the same bits every time, within the workspace.
    Offerless,
}

pub(super) type Done<T = ()> = Result<T, Refused>;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // SAFETY: the library is loaded, and its words are constant strings.
            Self::Answered(answer) => unsafe {
                let words = cudnn::cudnnGetErrorString(*answer);
                let words = (!words.is_null()).then(|| CStr::from_ptr(words));
                let words = words.map(CStr::to_string_lossy);
                write!(
                    f,
                    "answers {}",
                    words.unwrap_or_else(|| answer.to_string().into())
                )
            },
            Self::Incomplete => {
                write!(f, "lacks its `libcudnn_engines` or `libcudnn_heuristic`")
            }
            Self::Offerless => {
                write!(
                    f,
                    "has no deterministic engine within the memory that it may take"
                )
            }
        }
    }
}

impl Refused {
    /// As the error of a plan that is run.
    pub(super) fn of_run(self) -> DriverError {
        let code = match self {
            Refused::Answered(answer) => answer as u32,
            Refused::Incomplete | Refused::Offerless => 0,
        };
        DriverError { call: "cudnnBackendExecute", reason: format!("it {self}"), code }
    }
}

pub(super) fn check(answer: Answer) -> Done {
    if answer == SUCCESS { Ok(()) } else { Err(Refused::Answered(answer)) }
}

/// How the library calls a type of number; none where it takes no such.
pub(super) fn data_type(number: Number) -> Option<c_int> {
    match number {
        Number::F32 => Some(SINGLE),
        Number::F16 => Some(HALF),
        Number::Bf16 => Some(BFLOAT16),
        Number::F64 => None,
    }
}

/// The library, started.
pub(super) struct Handle(cudnn::Handle);

// SAFETY: the library takes a handle from any thread, one at a time.
unsafe impl Send for Handle {}

impl Handle {
    /// Starts it on the current context.
    fn new() -> Done<Self> {
        if !cudnn::has_engines() {
            return Err(Refused::Incomplete);
        }
        let mut raw = ptr::null_mut();
        // SAFETY: a handle is written.
        check(unsafe { cudnn::cudnnCreate(&raw mut raw) })?;
        Ok(Self(raw))
    }

    pub(super) fn raw(&self) -> cudnn::Handle {
        self.0
    }

    /// What is made from now on is given to this stream.
    pub(super) fn work_on(&self, stream: &Stream) -> Done {
        // SAFETY: both handles are live.
        check(unsafe { cudnn::cudnnSetStream(self.0, stream.raw().cast()) })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is live, and the streams that it worked on are done.
        let _ = unsafe { cudnn::cudnnDestroy(self.0) };
    }
}

/// Why the library makes nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unusable {
    /// Nobody wants it.
    #[error("our own kernels were requested")]
    Unwanted,
    /// It is not there.
    #[error(
        "there is no cuDNN 8.9 or newer here; install it, as `pip install nvidia-cudnn-cu13` does, \
         or name its folder in ROUNDELAY_CUDA_LIBRARIES"
    )]
    Absent,
    /// It does not start.
    #[error("cuDNN does not start: it {0}")]
    Start(Refused),
    /// An array lies where it may not load it.
    #[error(
        "an array starts at a multiple of {0} bytes, and cuDNN may load {ALIGNMENT} at once"
    )]
    Unaligned(u64),
}

/// The library, or why there is none.
pub(super) struct Cudnn {
    version: Result<usize, Unusable>,
    /// What the first byte of every row is a multiple of.
    alignment: u64,
    /// It takes time and memory to start, so that waits for who needs it first.
    handle: Option<Done<Handle>>,
}

impl Cudnn {
    /// For rows that start at multiples of `alignment`; without it nobody wants the library.
    pub(super) fn new(device: &Device, alignment: Option<u64>) -> Self {
        let version = match (device.libraries.convolutions, alignment) {
            (Some(version), Some(_)) => Ok(version),
            (None, Some(_)) => Err(Unusable::Absent),
            (_, None) => Err(Unusable::Unwanted),
        };
        Self { version, alignment: alignment.unwrap_or(1), handle: None }
    }

    /// Its version, where it is there and wanted.
    pub(super) fn version(&self) -> Result<usize, Unusable> {
        self.version
    }

    /// Whether arrays at these places of a call with such operands lie where it may load them.
    pub(super) fn reaches(
        &self,
        places: impl IntoIterator<Item = CallPlace>,
        operands: &[Operand],
    ) -> Result<(), Unusable> {
        let offsets = places.into_iter().map(|place| offset(place, operands));
        let start = power_of_two_in(offsets.chain([self.alignment]));
        if start < ALIGNMENT { Err(Unusable::Unaligned(start)) } else { Ok(()) }
    }

    /// The library, started now if it was not before.
    pub(super) fn start(&mut self) -> Result<&Handle, Unusable> {
        self.version?;
        let handle = self.handle.get_or_insert_with(Handle::new);
        handle.as_ref().map_err(|refused| Unusable::Start(*refused))
    }

    /// The library, which was started.
    pub(super) fn started(&self) -> &Handle {
        let started = self.handle.as_ref().and_then(|handle| handle.as_ref().ok());
        started.expect("who has plans has their library")
    }
}
