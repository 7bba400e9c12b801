//! This process among its peers: the communicator by which devices send each other data, and the
//! control by which whatever goes wrong ends all ranks.

use super::super::{
    CudaError, IDLE,
    bounce::{Unreached, alone, wait},
    driver::{
        Communicator, Device, DeviceMemory, DriverError, Event, Nccl, NcclError,
        Readiness, Stream,
    },
};
use crate::ranks::{Control, Seat, Trouble};
use std::{
    mem::ManuallyDrop,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// For so long the host asks again at once; then it sleeps in between.
const EAGER: Duration = Duration::from_micros(100);
const TICK: Duration = Duration::from_micros(50);

/// The GPU of a rank: the one with its number on the machine, or the only one that it sees.
///
/// # Errors
/// When there is none.
pub(crate) fn of_rank(seat: &Seat) -> Result<Device, CudaError> {
    let Seat { rank, local, .. } = *seat;
    let ordinal = match Device::count()? {
        1 => 0,
        count if local < count => local,
        count => return Err(CudaError::NoGpu { rank, local, count }),
    };
    Ok(Device::open(ordinal)?)
}

/// All ranks, seen from this one.
pub(crate) struct Peers {
    /// None once it was aborted.
    communicator: Option<Communicator>,
    control: Arc<Control>,
}

impl Peers {
    /// Makes the communicator of all ranks, whose messages the stream will take, and connects each
    /// with each; the context of the device is that of this thread.
    ///
    /// # Errors
    /// When there is no NCCL on one of them, or they do not come together.
    pub(crate) fn join(
        control: Arc<Control>,
        device: &Device,
        stream: &Stream,
    ) -> Result<Self, Trouble> {
        let failed = |what: &dyn ToString| control.fail(&what.to_string());
        let seat = control.seat().clone();
        let library = Nccl::load().map_err(|missing| failed(&missing))?;
        let identity = match seat.rank {
            0 => library.identity().map_err(|error| failed(&error))?.to_vec(),
            _ => Vec::new(),
        };
        let all = control.gather(identity)?;
        let identity = all[0].as_slice().try_into();
        let identity = identity
            .map_err(|_| failed(&"rank 0 has another version of NCCL's types"))?;
        let begun = Communicator::begin(library, identity, seat.rank, seat.size);
        let communicator = Some(begun.map_err(|error| failed(&error))?);
        let mut peers = Self { communicator, control };
        peers.ready()?;
        if let Err(trouble) = peers.greet(device, stream) {
            peers.abort();
            drain(stream);
            return Err(trouble);
        }
        Ok(peers)
    }

    /// Sends each rank a byte and takes one of each, in one group that is the same everywhere.
    ///
    /// NCCL connects two ranks at the first group with a message between them, and that call waits
    /// for the other rank's, one peer after the other. Later groups are not the same on all ranks,
    /// so they must find every connection made, or ranks wait for each other in a circle.
    fn greet(&self, device: &Device, stream: &Stream) -> Result<(), Trouble> {
        let Seat { rank, size, .. } = *self.control.seat();
        if size == 1 {
            return Ok(());
        }
        let made = DeviceMemory::new(device, 1 + u64::from(size))
            .and_then(|memory| Ok((memory, Event::new()?)));
        let (memory, done) = made.map_err(|error| self.failed(&error))?;
        // Where the end is not seen, the device may still write there.
        let memory = ManuallyDrop::new(memory);
        self.together(|own| {
            (0..size).filter(|peer| *peer != rank).try_for_each(|peer| {
                let place = memory.start().plus(1 + u64::from(peer));
                own.send(memory.start(), 1, peer, stream)?;
                own.receive(place, 1, peer, stream)
            })
        })?;
        stream.record(&done).map_err(|error| self.failed(&error))?;
        let seen = wait(&done, self.control.patience(), &mut || self.check());
        seen.map_err(|unreached| self.unreached(unreached))?;
        drop(ManuallyDrop::into_inner(memory));
        Ok(())
    }

    /// The device failed.
    fn failed(&self, error: &DriverError) -> Trouble {
        self.control.fail(&error.to_string())
    }

    /// What the device did not get to the end of.
    pub(crate) fn unreached(&self, unreached: Unreached) -> Trouble {
        match unreached {
            Unreached::Broken(error) => self.failed(&error),
            Unreached::Late => self.control.late(),
            Unreached::Called(trouble) => *trouble,
        }
    }

    /// The control of the ranks.
    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// What has gone wrong, here or elsewhere, since the last call was done.
    pub(crate) fn check(&self) -> Result<(), Trouble> {
        self.state().map(drop)
    }

    /// Whether the communicator takes another call.
    fn state(&self) -> Result<Readiness, Trouble> {
        if let Some(trouble) = self.control.trouble() {
            return Err(trouble);
        }
        self.communicator()?.state().map_err(|error| self.blame(&error))
    }

    fn communicator(&self) -> Result<&Communicator, Trouble> {
        let aborted = || self.control.fail("its communicator was aborted");
        self.communicator.as_ref().ok_or_else(aborted)
    }

    /// Whatever the device still does for other ranks ends.
    pub(crate) fn abort(&mut self) {
        self.communicator = None;
    }

    /// Does several things at once on all their streams, and returns when these have them.
    ///
    /// # Errors
    /// When something goes wrong on any rank.
    pub(crate) fn together(
        &self,
        work: impl FnOnce(&Communicator) -> Result<(), NcclError>,
    ) -> Result<(), Trouble> {
        let communicator = self.communicator()?;
        let given = communicator.together(|| work(communicator));
        given.map_err(|error| self.blame(&error))?;
        self.ready()
    }

    /// Waits until the communicator takes another call.
    fn ready(&self) -> Result<(), Trouble> {
        let start = Instant::now();
        loop {
            match self.state()? {
                Readiness::Ready => return Ok(()),
                Readiness::Busy if start.elapsed() > self.control.patience() => {
                    return Err(self.control.late());
                }
                Readiness::Busy if start.elapsed() > EAGER => thread::sleep(TICK),
                Readiness::Busy => thread::yield_now(),
            }
        }
    }

    /// What NCCL says may come of another rank's end, which then says more.
    fn blame(&self, error: &NcclError) -> Trouble {
        match error.may_be_remote() {
            true => self.control.echo(&error.to_string()),
            false => self.control.fail(&error.to_string()),
        }
    }

    /// Ends well, when all ranks are done.
    ///
    /// # Errors
    /// When one of them is not.
    pub(crate) fn leave(&mut self) -> Result<(), Trouble> {
        self.communicator()?.finalize().map_err(|error| self.blame(&error))?;
        self.ready()?;
        // Nobody goes while another one may still look after the communicator.
        self.control.gather(Vec::new())?;
        let destroyed = self.communicator.take().map_or(Ok(()), Communicator::destroy);
        destroyed.map_err(|error| self.control.fail(&error.to_string()))
    }
}

/// Waits a moment until a stream has nothing to do, so that what it may use can be given back.
fn drain(stream: &Stream) {
    let end = Event::new().and_then(|end| stream.record(&end).map(|()| end));
    if let Ok(end) = end {
        let _ = wait(&end, IDLE, &mut alone);
    }
}
