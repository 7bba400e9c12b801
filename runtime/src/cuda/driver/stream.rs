//! Streams, which do what they are given in order, and events, which say how far they are.

use super::{Address, DriverError, Function, Graph, Parameters, Pinned, driver};
use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUevent, CUevent_flags as EventFlags, CUmemorytype as MemoryType,
    CUresult, CUstream, CUstream_flags as StreamFlags, CUstreamCaptureMode as Mode,
    cuEventQuery, culib,
};
use roundelay_kernels::cuda::Launch;
use roundelay_schedule::Nanos;
use std::{ops::Range, ptr};

/// Work in order.
pub(crate) struct Stream(CUstream);

/// A moment of a stream.
pub(crate) struct Event(CUevent);

// SAFETY: the driver takes handles from any thread whose context is theirs.
unsafe impl Send for Stream {}
// SAFETY: as for streams.
unsafe impl Send for Event {}

/// Whether a moment has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It has.
    Passed,
    /// Not yet.
    Ahead,
}

/// Rows of bytes at a distance from each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rectangle {
    /// First byte of the first row.
    pub(crate) start: Address,
    /// Bytes from one row to the next.
    pub(crate) pitch: u64,
}

impl Event {
    /// A moment that has not been set, and so has passed.
    pub(crate) fn new() -> Result<Self, DriverError> {
        let mut raw = ptr::null_mut();
        let flags = EventFlags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: a handle is written.
        unsafe { driver!(cuEventCreate(&raw mut raw, flags)) }?;
        Ok(Self(raw))
    }

    /// A moment whose time is kept.
    pub(crate) fn timed() -> Result<Self, DriverError> {
        let mut raw = ptr::null_mut();
        let flags = EventFlags::CU_EVENT_DEFAULT as u32;
        // SAFETY: a handle is written.
        unsafe { driver!(cuEventCreate(&raw mut raw, flags)) }?;
        Ok(Self(raw))
    }

    /// Time from another moment until this one; both are timed and have passed.
    ///
    /// # Errors
    /// When one of them was not set, or the device failed.
    pub(crate) fn since(&self, start: &Self) -> Result<Nanos, DriverError> {
        // Bindings know a later form alone, which only new drivers have.
        type Elapsed = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;
        let call = "cuEventElapsedTime";
        let mut milliseconds = 0f32;
        // SAFETY: the library is loaded, and the function has this type; a number is written,
        // and both handles are live.
        let result = unsafe {
            match culib().get::<Elapsed>(call.as_bytes()) {
                Ok(elapsed) => elapsed(&raw mut milliseconds, start.0, self.0),
                Err(_) => CUresult::CUDA_ERROR_NOT_FOUND,
            }
        };
        super::check(call, result)?;
        Ok(Nanos((f64::from(milliseconds) * 1e6).round().max(0.0) as u64))
    }

    /// Whether it has passed; does not wait.
    ///
    /// # Errors
    /// When the device failed.
    pub(crate) fn state(&self) -> Result<State, DriverError> {
        // SAFETY: the handle is live.
        match unsafe { cuEventQuery(self.0) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(State::Ahead),
            result => super::check("cuEventQuery", result).map(|()| State::Passed),
        }
    }
}

impl Stream {
    /// A stream that no other waits for by itself.
    pub(crate) fn new() -> Result<Self, DriverError> {
        let mut raw = ptr::null_mut();
        let flags = StreamFlags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: a handle is written.
        unsafe { driver!(cuStreamCreate(&raw mut raw, flags)) }?;
        Ok(Self(raw))
    }

    /// The driver's handle.
    pub(crate) fn raw(&self) -> CUstream {
        self.0
    }

    /// Sets an event to the moment after everything given so far.
    pub(crate) fn record(&self, event: &Event) -> Result<(), DriverError> {
        // SAFETY: both handles are live.
        unsafe { driver!(cuEventRecord(event.0, self.0)) }
    }

    /// Whatever is given from now on waits for what an event is set to now.
    pub(crate) fn wait(&self, event: &Event) -> Result<(), DriverError> {
        // SAFETY: both handles are live.
        unsafe { driver!(cuStreamWaitEvent(self.0, event.0, 0)) }
    }

    /// Copies between places of the device.
    pub(crate) fn copy(
        &self,
        from: Address,
        to: Address,
        bytes: u64,
    ) -> Result<(), DriverError> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: addresses are the device's matter.
        unsafe { driver!(cuMemcpyDtoDAsync_v2(to.0, from.0, bytes as usize, self.0)) }
    }

    /// Copies `rows` rows of `width` bytes between places of the device. Of a single row the pitch says
    /// nothing, and may be larger than the driver takes.
    pub(crate) fn copy_rows(
        &self,
        from: Rectangle,
        to: Rectangle,
        width: u64,
        rows: u64,
    ) -> Result<(), DriverError> {
        if width == 0 || rows == 0 {
            return Ok(());
        }
        if rows == 1 {
            return self.copy(from.start, to.start, width);
        }
        // SAFETY: every field is a number, an address or an enumeration that has no zero, and is
        // therefore set below.
        let mut copy: CUDA_MEMCPY2D = unsafe {
            let mut copy = std::mem::MaybeUninit::<CUDA_MEMCPY2D>::zeroed();
            (&raw mut (*copy.as_mut_ptr()).srcMemoryType)
                .write(MemoryType::CU_MEMORYTYPE_DEVICE);
            (&raw mut (*copy.as_mut_ptr()).dstMemoryType)
                .write(MemoryType::CU_MEMORYTYPE_DEVICE);
            copy.assume_init()
        };
        (copy.srcDevice, copy.srcPitch) = (from.start.0, from.pitch as usize);
        (copy.dstDevice, copy.dstPitch) = (to.start.0, to.pitch as usize);
        (copy.WidthInBytes, copy.Height) = (width as usize, rows as usize);
        // SAFETY: the description is copied; addresses are the device's matter.
        unsafe { driver!(cuMemcpy2DAsync_v2(&raw const copy, self.0)) }
    }

    /// Copies a range of host memory to the device; it stays as it is until that is done.
    pub(crate) fn upload(
        &self,
        host: &Pinned,
        range: Range<usize>,
        to: Address,
    ) -> Result<(), DriverError> {
        if range.is_empty() {
            return Ok(());
        }
        let from = host.address(&range).cast_const().cast();
        // SAFETY: the range lies inside of pinned memory, which outlives the machine's streams.
        unsafe { driver!(cuMemcpyHtoDAsync_v2(to.0, from, range.len(), self.0)) }
    }

    /// Copies from the device to a range of host memory, which nobody reads until that is done.
    pub(crate) fn download(
        &self,
        from: Address,
        host: &Pinned,
        range: Range<usize>,
    ) -> Result<(), DriverError> {
        if range.is_empty() {
            return Ok(());
        }
        let to = host.address(&range).cast();
        // SAFETY: as for `upload`.
        unsafe { driver!(cuMemcpyDtoHAsync_v2(to, from.0, range.len(), self.0)) }
    }

    /// Sets bytes of the device.
    pub(crate) fn fill(
        &self,
        start: Address,
        byte: u8,
        bytes: u64,
    ) -> Result<(), DriverError> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: addresses are the device's matter.
        unsafe { driver!(cuMemsetD8Async(start.0, byte, bytes as usize, self.0)) }
    }

    /// Runs a function on a grid of blocks.
    pub(crate) fn launch(
        &self,
        function: &Function,
        shape: &Launch,
        parameters: &mut Parameters,
    ) -> Result<(), DriverError> {
        let ([x, y, z], [bx, by, bz]) = (shape.grid, shape.block);
        let shared = u32::try_from(shape.shared.0).unwrap_or(u32::MAX);
        // SAFETY: the function was loaded from a module that is kept, and there is a value for
        // each of its parameters, as the kernels say.
        unsafe {
            driver!(cuLaunchKernel(
                function.raw(),
                x,
                y,
                z,
                bx,
                by,
                bz,
                shared,
                self.0,
                parameters.pointers(),
                ptr::null_mut(),
            ))
        }
    }

    /// From here on work is recorded instead of done, on this stream and all that wait for it.
    pub(crate) fn begin_capture(&self) -> Result<(), DriverError> {
        let mode = Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the handle is live.
        unsafe { driver!(cuStreamBeginCapture_v2(self.0, mode)) }
    }

    /// What was recorded, ready to be launched.
    ///
    /// # Errors
    /// When a stream was not joined, or something was called that cannot be recorded.
    pub(crate) fn end_capture(&self) -> Result<Graph, DriverError> {
        let mut graph = ptr::null_mut();
        // SAFETY: the handle is live; a graph is written.
        unsafe { driver!(cuStreamEndCapture(self.0, &raw mut graph)) }?;
        Graph::new(graph)
    }

    /// Does everything that was recorded.
    pub(crate) fn launch_graph(&self, graph: &Graph) -> Result<(), DriverError> {
        // SAFETY: both handles are live.
        unsafe { driver!(cuGraphLaunch(graph.raw(), self.0)) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the handle is live.
        let _ = unsafe { driver!(cuStreamDestroy_v2(self.0)) };
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the handle is live.
        let _ = unsafe { driver!(cuEventDestroy_v2(self.0)) };
    }
}
