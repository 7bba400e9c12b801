//! NCCL's communicators as far as ranks need them: no call waits, and none is made while an earlier
//! one is under way.

mod library;

pub(crate) use library::Nccl;

use super::{Address, Stream};
use cudarc::nccl::sys::{ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclUniqueId};
use library::{Config, Functions};
use std::{
    ffi::{CStr, c_char},
    mem::ManuallyDrop,
    ptr,
    sync::mpsc,
    thread,
    time::Duration,
};

/// How long the end of a communicator that failed is waited for.
const ABORT: Duration = Duration::from_secs(10);

/// Results that are no errors.
const SUCCESS: u32 = 0;
const IN_PROGRESS: u32 = 7;

/// A call of CUDA failed, for want of memory or else.
const CUDA: u32 = 1;

/// Results that tell of another rank's failure.
const REMOTE: [u32; 2] = [2, 6];

/// Bytes of an identity.
pub(crate) const IDENTITY: usize = size_of::<ncclUniqueId>();

/// A call that NCCL refused, or what went wrong after one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {reason}")]
pub(crate) struct NcclError {
    pub(crate) call: &'static str,
    pub(crate) reason: String,
    pub(crate) code: u32,
}

impl NcclError {
    /// Whether another rank's failure may be behind it.
    pub(crate) fn may_be_remote(&self) -> bool {
        REMOTE.contains(&self.code)
    }

    /// Whether a call of CUDA failed.
    pub(crate) fn is_of_cuda(&self) -> bool {
        self.code == CUDA
    }
}

/// Whether what was asked for is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// The next call may be made.
    Ready,
    /// Not yet.
    Busy,
}

/// What ranks reduce in the self-check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    /// Everyone gets the sum.
    AllReduce,
    /// Rank k gets part k of the sum.
    ReduceScatter,
}

/// This process among all ranks.
pub(crate) struct Communicator {
    library: &'static Nccl,
    raw: ncclComm_t,
}

// SAFETY: NCCL takes a communicator from any thread, one at a time, and this is no reference.
unsafe impl Send for Communicator {}

impl Nccl {
    /// What all ranks of a communicator begin with; made by one of them.
    pub(crate) fn identity(&self) -> Result<[u8; IDENTITY], NcclError> {
        let mut id = ncclUniqueId { internal: [0; IDENTITY] };
        // SAFETY: an identity is written.
        let result = unsafe { (self.functions.unique_id)(&raw mut id) };
        self.check("ncclGetUniqueId", result, ptr::null_mut())?;
        Ok(id.internal.map(|letter| letter.to_ne_bytes()[0]))
    }

    fn check(
        &self,
        call: &'static str,
        result: u32,
        communicator: ncclComm_t,
    ) -> Result<Readiness, NcclError> {
        match result {
            SUCCESS => Ok(Readiness::Ready),
            IN_PROGRESS => Ok(Readiness::Busy),
            code => {
                let reason = self.describe(code, communicator);
                Err(NcclError { call, reason, code })
            }
        }
    }

    fn describe(&self, code: u32, communicator: ncclComm_t) -> String {
        // SAFETY: both give a text that stays, or none.
        let (name, last) = unsafe {
            let Functions { error_string, last_error, .. } = &self.functions;
            (text(error_string(code)), text(last_error(communicator)))
        };
        match last.is_empty() {
            true => name,
            false => format!("{name} ({last})"),
        }
    }
}

/// # Safety
/// The pointer is null, or that of a text.
unsafe fn text(start: *const c_char) -> String {
    if start.is_null() {
        return String::new();
    }
    // SAFETY: as the caller says.
    let text = unsafe { CStr::from_ptr(start) };
    text.to_string_lossy().trim().to_owned()
}

impl Communicator {
    /// Begins to meet the other ranks; it must be ready before anything else is asked of it.
    pub(crate) fn begin(
        library: &'static Nccl,
        identity: [u8; IDENTITY],
        rank: u32,
        size: u32,
    ) -> Result<Self, NcclError> {
        let internal = identity.map(|byte| c_char::from_ne_bytes([byte]));
        let mut config = Config::without_blocking();
        let mut raw = ptr::null_mut();
        // SAFETY: a handle is written; the configuration is read before the call returns.
        let result = unsafe {
            (library.functions.begin)(
                &raw mut raw,
                size as i32,
                ncclUniqueId { internal },
                rank as i32,
                &raw mut config,
            )
        };
        let begun = Self { library, raw };
        begun.check("ncclCommInitRankConfig", result)?;
        Ok(begun)
    }

    fn check(&self, call: &'static str, result: u32) -> Result<Readiness, NcclError> {
        self.library.check(call, result, self.raw)
    }

    /// Whether the last call is done, and whether all is well with all ranks.
    ///
    /// # Errors
    /// What has gone wrong, here or elsewhere.
    pub(crate) fn state(&self) -> Result<Readiness, NcclError> {
        let mut state = SUCCESS;
        // SAFETY: the handle is live; one number is written.
        let result = unsafe { (self.library.functions.state)(self.raw, &raw mut state) };
        self.check("ncclCommGetAsyncError", result)?;
        self.check("communication", state)
    }

    /// Does several things at once; none waits for another.
    ///
    /// # Errors
    /// When one of them is refused.
    pub(crate) fn together(
        &self,
        work: impl FnOnce() -> Result<(), NcclError>,
    ) -> Result<(), NcclError> {
        let Functions { group_start, group_end, .. } = &self.library.functions;
        // SAFETY: groups are begun and ended on one thread.
        self.check("ncclGroupStart", unsafe { group_start() })?;
        let done = work();
        // SAFETY: the group was begun above.
        let ended = self.check("ncclGroupEnd", unsafe { group_end() });
        done.and(ended.map(drop))
    }

    /// Sends bytes to a rank, which receives as many.
    pub(crate) fn send(
        &self,
        from: Address,
        bytes: u64,
        to: u32,
        stream: &Stream,
    ) -> Result<(), NcclError> {
        // SAFETY: the handles are live; addresses are the device's matter.
        let result = unsafe {
            (self.library.functions.send)(
                from.0 as *const _,
                bytes as usize,
                ncclDataType_t::ncclUint8,
                to as i32,
                self.raw,
                stream.raw().cast(),
            )
        };
        self.check("ncclSend", result).map(drop)
    }

    /// Receives bytes from a rank.
    pub(crate) fn receive(
        &self,
        to: Address,
        bytes: u64,
        from: u32,
        stream: &Stream,
    ) -> Result<(), NcclError> {
        // SAFETY: as for `send`.
        let result = unsafe {
            (self.library.functions.receive)(
                to.0 as *mut _,
                bytes as usize,
                ncclDataType_t::ncclUint8,
                from as i32,
                self.raw,
                stream.raw().cast(),
            )
        };
        self.check("ncclRecv", result).map(drop)
    }

    /// Sums numbers of 32 bits over all ranks, in an order of NCCL's own; `count` are those that
    /// a rank gets.
    pub(crate) fn reduce(
        &self,
        reduction: Reduction,
        (from, to): (Address, Address),
        count: u64,
        stream: &Stream,
    ) -> Result<(), NcclError> {
        let Functions { all_reduce, reduce_scatter, .. } = &self.library.functions;
        let (call, function) = match reduction {
            Reduction::AllReduce => ("ncclAllReduce", all_reduce),
            Reduction::ReduceScatter => ("ncclReduceScatter", reduce_scatter),
        };
        // SAFETY: as for `send`.
        let result = unsafe {
            function(
                from.0 as *const _,
                to.0 as *mut _,
                count as usize,
                ncclDataType_t::ncclFloat32,
                ncclRedOp_t::ncclSum,
                self.raw,
                stream.raw().cast(),
            )
        };
        self.check(call, result).map(drop)
    }

    /// Begins to end; ready once all ranks have come to that.
    pub(crate) fn finalize(&self) -> Result<(), NcclError> {
        // SAFETY: the handle is live.
        let result = unsafe { (self.library.functions.finalize)(self.raw) };
        self.check("ncclCommFinalize", result).map(drop)
    }

    /// Gives it back after it was finalized.
    pub(crate) fn destroy(mut self) -> Result<(), NcclError> {
        let raw = std::mem::replace(&mut self.raw, ptr::null_mut());
        // SAFETY: the handle is live, and not used any more.
        let result = unsafe { (self.library.functions.destroy)(raw) };
        self.library.check("ncclCommDestroy", result, ptr::null_mut()).map(drop)
    }
}

impl Drop for Communicator {
    /// Whatever it does on the device ends. NCCL gives that no deadline, so a thread of its own does
    /// it, and is left alone where it takes longer than [`ABORT`].
    fn drop(&mut self) {
        if self.raw.is_null() {
            return;
        }
        let own = ManuallyDrop::new(Self { library: self.library, raw: self.raw });
        let (done, ended) = mpsc::channel();
        let aborting = thread::Builder::new().spawn(move || {
            // SAFETY: the handle is live, and not used any more.
            let _ = unsafe { (own.library.functions.abort)(own.raw) };
            let _ = done.send(());
        });
        if aborting.is_ok() {
            let _ = ended.recv_timeout(ABORT);
        }
    }
}
