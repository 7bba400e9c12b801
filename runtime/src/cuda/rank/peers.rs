//! This process among its peers: the communicator by which devices send each other data, and the
//! control by which whatever goes wrong ends all ranks.

use super::super::{
    CudaError, IDLE,
    bounce::{Unreached, alone, wait},
    driver::{
        Communicator, Device, DeviceMemory, DriverError, Event, IDENTITY, Nccl,
        NcclError, Readiness, Stream,
    },
};
use crate::ranks::{Control, Seat, Trouble};
use roundelay_schedule::Bytes;
use std::{
    collections::BTreeSet,
    mem,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// For so long the host asks again at once; then it sleeps in between. The end of a group takes NCCL
/// the start and the end of a thread, and every message of a launch waits for that.
const EAGER: Duration = Duration::from_millis(2);
const TICK: Duration = Duration::from_micros(50);

/// The number of a rank's GPU: its own number on the machine, or that of the only one that it sees.
///
/// # Errors
/// When there is none.
pub(crate) fn ordinal_of(seat: &Seat) -> Result<u32, CudaError> {
    let Seat { rank, local, .. } = *seat;
    match Device::count()? {
        1 => Ok(0),
        count if local < count => Ok(local),
        count => Err(CudaError::NoGpu { rank, local, count }),
    }
}

/// All ranks, seen from this one.
pub(crate) struct Peers {
    /// None once it was aborted.
    communicator: Option<Communicator>,
    control: Arc<Control>,
    phase: Phase,
}

/// How far ranks are with each other.
enum Phase {
    /// They are being connected; so much memory was free before.
    Meeting(Bytes),
    /// They are connected; NCCL took so much for that.
    Met(Bytes),
}

/// Which neighbours another rank says that it has.
fn told(words: &[u8]) -> impl Iterator<Item = u32> {
    words.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word))
}

impl Peers {
    /// Makes the communicator of all ranks, whose messages the stream will take, and connects this
    /// one with its neighbours, with which alone it ever exchanges messages; the context of the
    /// device is that of this thread.
    ///
    /// # Errors
    /// When there is no NCCL on one of them, or they do not come together.
    pub(crate) fn join(
        control: Arc<Control>,
        device: &Device,
        stream: &Stream,
        neighbours: &BTreeSet<u32>,
    ) -> Result<Self, Trouble> {
        let failed = |what: &dyn ToString| control.fail(&what.to_string());
        let seat = control.seat().clone();
        let library = Nccl::load().map_err(|missing| failed(&missing))?;
        let identity = match seat.rank {
            0 => library.identity().map_err(|error| failed(&error))?,
            _ => [0; IDENTITY],
        };
        let identity = introduce(&control, identity, neighbours)?;
        let free = device.free().unwrap_or_default();
        let begun = Communicator::begin(library, identity, seat.rank, seat.size);
        let phase = Phase::Meeting(free);
        let mut peers = Self { communicator: None, control, phase };
        peers.communicator = Some(begun.map_err(|error| peers.blame(&error))?);
        peers.ready()?;
        let made = DeviceMemory::new(device, 1 + neighbours.len() as u64);
        let memory = made.map_err(|error| peers.failed(&error))?;
        if let Err(trouble) = peers.greet(&memory, stream, neighbours) {
            peers.abort();
            // Where the end is not seen, the device may still write there.
            if let Err(Unreached::Late) = drain(stream) {
                mem::forget(memory);
            }
            return Err(trouble);
        }
        drop(memory);
        let left = device.free().unwrap_or_default();
        peers.phase = Phase::Met(Bytes(free.0.saturating_sub(left.0)));
        Ok(peers)
    }

    /// Sends each neighbour a byte and takes one of each, in one group; there is room for these in
    /// the memory.
    ///
    /// NCCL connects two ranks at the first group with a message between them, and that call waits
    /// for the other process: rank after rank by their distance, which is one for both ends of a
    /// message, so that no circle comes of it where both ends of all are in such a group. Later calls
    /// must wait for no other process, so they must find every connection made.
    fn greet(
        &self,
        memory: &DeviceMemory,
        stream: &Stream,
        neighbours: &BTreeSet<u32>,
    ) -> Result<(), Trouble> {
        if neighbours.is_empty() {
            return Ok(());
        }
        let done = Event::new().map_err(|error| self.failed(&error))?;
        self.together(|own| {
            (1..).zip(neighbours).try_for_each(|(place, peer)| {
                own.send(memory.start(), 1, *peer, stream)?;
                own.receive(memory.start().plus(place), 1, *peer, stream)
            })
        })?;
        stream.record(&done).map_err(|error| self.failed(&error))?;
        let seen = wait(&done, self.control.deadline(), &mut || self.check());
        seen.map_err(|unreached| self.unreached(unreached))
    }

    /// What NCCL took of the device's memory to connect ranks.
    pub(crate) fn taken(&self) -> Bytes {
        match self.phase {
            Phase::Meeting(_) => Bytes(0),
            Phase::Met(taken) => taken,
        }
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
    pub(crate) fn control(&self) -> &Arc<Control> {
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
                Readiness::Busy if start.elapsed() > self.control.deadline() => {
                    return Err(self.control.late());
                }
                Readiness::Busy if start.elapsed() > EAGER => thread::sleep(TICK),
                Readiness::Busy => thread::yield_now(),
            }
        }
    }

    /// What NCCL says may come of another rank's end, which then says more.
    fn blame(&self, error: &NcclError) -> Trouble {
        let said = match self.phase {
            Phase::Meeting(free) if error.is_of_cuda() => format!(
                "{error}; memory of the device may be missing: {free} were free, and NCCL takes \
                 some for each rank that this one exchanges messages with, less with a smaller \
                 NCCL_MAX_P2P_NCHANNELS or NCCL_BUFFSIZE; or plan with less `memory`"
            ),
            Phase::Meeting(_) | Phase::Met(_) => error.to_string(),
        };
        match error.may_be_remote() {
            true => self.control.echo(&said),
            false => self.control.fail(&said),
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

/// Hands on what rank 0 begins with, and looks whether all ranks agree on who is whose neighbour: a
/// greeting that is not returned would be waited for.
fn introduce(
    control: &Control,
    identity: [u8; IDENTITY],
    neighbours: &BTreeSet<u32>,
) -> Result<[u8; IDENTITY], Trouble> {
    let words = neighbours.iter().flat_map(|rank| rank.to_le_bytes());
    let all = control.gather(identity.into_iter().chain(words).collect())?;
    let own = control.seat().rank;
    let mut theirs = (0u32..).zip(&all).filter(|(rank, _)| *rank != own);
    let differs = theirs.find(|(rank, said)| {
        let returned =
            said.get(IDENTITY..).is_some_and(|words| told(words).any(|to| to == own));
        returned != neighbours.contains(rank)
    });
    if let Some((rank, _)) = differs {
        let said = format!(
            "it and rank {rank} do not agree on whether they exchange messages; give all ranks \
             the same files and options"
        );
        return Err(control.fail(&said));
    }
    let identity = all[0].first_chunk::<IDENTITY>().copied();
    identity.ok_or_else(|| control.fail("rank 0 has another version of NCCL's types"))
}

/// Waits a moment until a stream has nothing to do, so that what it may use can be given back.
fn drain(stream: &Stream) -> Result<(), Unreached> {
    let end = Event::new()?;
    stream.record(&end)?;
    wait(&end, IDLE, &mut alone)
}
