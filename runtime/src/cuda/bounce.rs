//! Bringing any amount of memory to a device and back, at rest, through a pinned buffer.

use super::driver::{Address, DriverError, Event, Pinned, State, Stream};
use crate::{awake::Clock, ranks::Trouble};
use std::{thread, time::Duration};

/// Bytes that are on their way at one time.
const CHUNK: usize = 4 << 20;

/// For so long the host asks again at once, since steps of small models are as short; then it sleeps in
/// between.
const EAGER: Duration = Duration::from_micros(200);
const TICK: Duration = Duration::from_micros(200);

/// A buffer between ordinary host memory and a device.
pub(super) struct Bounce {
    pinned: Pinned,
    moved: Event,
}

/// Why a moment was not waited for to its end.
pub(super) enum Unreached {
    /// The device failed.
    Broken(DriverError),
    /// The moment did not come in time.
    Late,
    /// Something has gone wrong on another rank.
    Called(Box<Trouble>),
}

impl Unreached {
    /// Why `what` was not done, where no other rank can call.
    pub(super) fn reason(self, what: &str, deadline: Duration) -> DriverError {
        match self {
            Self::Broken(reason) => reason,
            Self::Late | Self::Called(_) => DriverError {
                call: "cuEventQuery",
                reason: format!("{what} was not done within {deadline:?}"),
                code: 0,
            },
        }
    }
}

impl From<DriverError> for Unreached {
    fn from(error: DriverError) -> Self {
        Self::Broken(error)
    }
}

impl From<Trouble> for Unreached {
    fn from(trouble: Trouble) -> Self {
        Self::Called(Box::new(trouble))
    }
}

/// Nobody to look at while waiting.
pub(super) fn alone() -> Result<(), Trouble> {
    Ok(())
}

/// Waits until a moment has passed, at most so long while this process runs, and as long as `watch`
/// sees nothing wrong.
pub(super) fn wait(
    event: &Event,
    deadline: Duration,
    watch: &mut dyn FnMut() -> Result<(), Trouble>,
) -> Result<(), Unreached> {
    let mut clock = Clock::new();
    let start = clock.now();
    while event.state()? == State::Ahead {
        watch()?;
        match clock.now().since(start) {
            waited if waited > deadline => return Err(Unreached::Late),
            waited if waited > EAGER => thread::sleep(TICK),
            _ => thread::yield_now(),
        }
    }
    Ok(())
}

impl Bounce {
    /// A buffer of its own.
    pub(super) fn new() -> Result<Self, DriverError> {
        Ok(Self { pinned: Pinned::new(CHUNK)?, moved: Event::new()? })
    }

    /// Brings bytes to the device, after all that the stream was given.
    pub(super) fn write(
        &mut self,
        stream: &Stream,
        to: Address,
        bytes: &[u8],
        deadline: Duration,
    ) -> Result<(), Unreached> {
        for (number, chunk) in (0u64..).zip(bytes.chunks(CHUNK)) {
            self.pinned.write(0..chunk.len()).copy_from_slice(chunk);
            let to = to.plus(number * CHUNK as u64);
            stream.upload(&self.pinned, 0..chunk.len(), to)?;
            stream.record(&self.moved)?;
            wait(&self.moved, deadline, &mut alone)?;
        }
        Ok(())
    }

    /// Brings bytes from the device, after all that the stream was given.
    pub(super) fn read(
        &mut self,
        stream: &Stream,
        from: Address,
        bytes: &mut [u8],
        deadline: Duration,
    ) -> Result<(), Unreached> {
        for (number, chunk) in (0u64..).zip(bytes.chunks_mut(CHUNK)) {
            let from = from.plus(number * CHUNK as u64);
            stream.download(from, &self.pinned, 0..chunk.len())?;
            stream.record(&self.moved)?;
            wait(&self.moved, deadline, &mut alone)?;
            chunk.copy_from_slice(self.pinned.read(0..chunk.len()));
        }
        Ok(())
    }
}
