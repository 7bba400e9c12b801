//! Copies from one place of a GPU to another at several sizes, and the line that fits them.

use super::{
    CudaError, IDLE,
    arena::allocate,
    bounce::{alone, wait},
    driver::{Device, DriverError, Event, Stream},
};
use crate::profile::{BLOCK, REPETITIONS, SIZES, fit, quartiles};
use roundelay_schedule::{Bytes, Copies, CopyTime, Nanos};

/// Measures copies on a GPU that walk through two blocks, as between devices that share it.
///
/// # Errors
/// When there is no such GPU, or it fails.
pub fn gpu_copies(ordinal: u32) -> Result<Copies, CudaError> {
    let device = Device::open(ordinal)?;
    let refused =
        |reason| CudaError::refused(device.facts(), "copies of its memory", reason);
    device.enter().map_err(refused)?;
    let (block, stream) = (BLOCK as u64, Stream::new().map_err(refused)?);
    let memory = allocate(&device, "copies", Bytes(2 * block))?;
    let start = memory.start();
    let point = |bytes: u64| {
        let stride = (block / REPETITIONS as u64).max(bytes);
        let each = (0..block / stride).map(|number| {
            let from = start.plus(number * stride);
            time(&stream, || stream.copy(from, from.plus(block), bytes))
        });
        let times = each.collect::<Result<Vec<_>, _>>()?;
        Ok(CopyTime { bytes: Bytes(bytes), nanos: quartiles(&times)[1] })
    };
    let points: Result<Vec<_>, DriverError> = SIZES.into_iter().map(point).collect();
    Ok(fit(points.map_err(refused)?))
}

/// How long a stream takes for what it is given.
fn time(
    stream: &Stream,
    work: impl FnOnce() -> Result<(), DriverError>,
) -> Result<Nanos, DriverError> {
    let [start, end] = [Event::timed()?, Event::timed()?];
    stream.record(&start)?;
    work()?;
    stream.record(&end)?;
    wait(&end, IDLE, &mut alone).map_err(|unreached| unreached.reason("a copy", IDLE))?;
    end.since(&start)
}
