//! Streams, one for each queue at each coordinate, their memory, and the events by which actions
//! wait for each other.

use super::{
    CudaError,
    arena::{ALIGNMENT, allocate},
    driver::{Address, Device, DeviceMemory, DriverError, Event, Stream},
    ready::{Code, Ready},
    staging::HALVES,
};
use crate::machine::Queues;
use roundelay_schedule::{Action, ActionId, Bytes, Id, Schedule, Table};

/// Which stream each thread of the queues has; none where others do its work.
pub(super) struct Homes {
    pub(super) of: Vec<Option<usize>>,
    pub(super) streams: usize,
}

impl Homes {
    /// One for each.
    pub(super) fn all(queues: &Queues) -> Self {
        let streams = queues.threads();
        Self { of: (0..streams).map(Some).collect(), streams }
    }
}

/// All streams of a machine.
pub(super) struct Lanes {
    streams: Vec<Stream>,
    pub(super) homes: Homes,
    /// How far each of them is, then how far the courier is.
    ends: Vec<Event>,
    /// Where periods begin and end.
    pub(super) origin: Stream,
    /// Brings scalars to the device.
    pub(super) courier: Stream,
    /// Sends inputs ahead; never part of a graph.
    pub(super) feeder: Stream,
    /// How far the feeder was when somebody last waited for it.
    fed: Event,
    /// By stream: when rows show what they bring to an exchange, and when they have looked at it.
    meetings: Vec<[Event; 2]>,
    /// Memory of each stream, for products and for kernels.
    scratch: Vec<[Address; 2]>,
    memory: DeviceMemory,
    bytes: Bytes,
}

impl Lanes {
    /// A stream for every queue, with as much memory as its routines take.
    ///
    /// # Errors
    /// When the device has too little of something.
    pub(super) fn new(
        schedule: &Schedule,
        queues: &Queues,
        code: &Code,
        (device, homes): (&Device, Homes),
    ) -> Result<Self, CudaError> {
        let sizes = scratch_sizes(schedule, queues, code, &homes);
        let bytes = Bytes(sizes.iter().flatten().sum());
        let memory = allocate(device, "scratch of kernels and products", bytes)?;
        let mut next = memory.start();
        let mut place = |size: u64| {
            let start = next;
            next = next.plus(size);
            start
        };
        let scratch = sizes.into_iter().map(|sizes| sizes.map(&mut place)).collect();
        Self::with(homes, scratch, memory, bytes).map_err(|reason| {
            CudaError::refused(device.facts(), "streams and events", reason)
        })
    }

    fn with(
        homes: Homes,
        scratch: Vec<[Address; 2]>,
        memory: DeviceMemory,
        bytes: Bytes,
    ) -> Result<Self, DriverError> {
        let count = homes.streams;
        Ok(Self {
            streams: (0..count).map(|_| Stream::new()).collect::<Result<_, _>>()?,
            homes,
            ends: (0..=count).map(|_| Event::new()).collect::<Result<_, _>>()?,
            origin: Stream::new()?,
            courier: Stream::new()?,
            feeder: Stream::new()?,
            fed: Event::new()?,
            meetings: (0..count)
                .map(|_| Ok([Event::new()?, Event::new()?]))
                .collect::<Result<_, DriverError>>()?,
            scratch,
            memory,
            bytes,
        })
    }

    /// The stream of a thread of the queues whose work is done here.
    pub(super) fn stream(&self, thread: usize) -> &Stream {
        &self.streams[self.home(thread)]
    }

    /// A stream by its number.
    pub(super) fn numbered(&self, number: usize) -> &Stream {
        &self.streams[number]
    }

    fn home(&self, thread: usize) -> usize {
        self.homes.of[thread].expect("whoever has work here has a stream")
    }

    /// Memory of a stream for the library of products, and for kernels.
    pub(super) fn scratch(&self, thread: usize) -> [Address; 2] {
        self.scratch[self.home(thread)]
    }

    /// When a thread shows what it brings to an exchange, and when it has looked at it.
    pub(super) fn meeting(&self, thread: usize) -> &[Event; 2] {
        &self.meetings[self.home(thread)]
    }

    /// Memory of all streams.
    pub(super) fn scratch_bytes(&self) -> Bytes {
        debug_assert!(self.bytes == Bytes(0) || self.memory.start() != Address(0));
        self.bytes
    }

    /// A stream goes on when all inputs that were sent so far are there.
    pub(super) fn wait_for_inputs(&self, stream: &Stream) -> Result<(), DriverError> {
        self.feeder.record(&self.fed)?;
        stream.wait(&self.fed)
    }

    /// All streams but the origin and the feeder.
    pub(super) fn all(&self) -> impl Iterator<Item = &Stream> {
        self.streams.iter().chain([&self.courier])
    }

    /// All streams go on when an event has passed.
    pub(super) fn fork(&self, event: &Event) -> Result<(), DriverError> {
        self.all().try_for_each(|stream| stream.wait(event))
    }

    /// The origin goes on when all streams have done what they were given.
    pub(super) fn join(&self) -> Result<(), DriverError> {
        self.all().zip(&self.ends).try_for_each(|(stream, end)| {
            stream.record(end)?;
            self.origin.wait(end)
        })
    }
}

/// What each stream takes, for products and for kernels.
fn scratch_sizes(
    schedule: &Schedule,
    queues: &Queues,
    code: &Code,
    homes: &Homes,
) -> Vec<[u64; 2]> {
    let rounded = |Bytes(bytes): Bytes| bytes.next_multiple_of(ALIGNMENT);
    let mut sizes = vec![[0, 0]; homes.streams];
    let turns = schedule.rings.values().map(|ring| ring.devices.len()).max();
    for action in schedule.actions.values() {
        let Some((routine, _)) = action.work.routine() else { continue };
        let Ready { scratch, workspace, .. } = &code.routines[routine];
        for period in 0..turns.unwrap_or(1) as i64 {
            let queue = queues.number(schedule.queue(action, period));
            for stream in homes.of[queues.threads_of(queue)].iter().flatten() {
                let [products, kernels] = &mut sizes[*stream];
                *products = rounded(*workspace).max(*products);
                *kernels = rounded(*scratch).max(*kernels);
            }
        }
    }
    sizes
}

/// Where an instance of an action stands, for those that wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) queue: usize,
    /// Instances before it in its queue.
    pub(super) sequence: u64,
    /// Number of its first event; of a rank, its row of the clocks.
    pub(super) first: usize,
    /// Number of the fence before it.
    pub(super) fence: u64,
}

/// An event per thread of every action, for as many periods as waits look back and for all that are
/// under way at one time, so that it is seen how far each of these is.
pub(super) struct Marked {
    events: Vec<Event>,
    actions: Table<ActionId, Row>,
}

/// The events of an action.
struct Row {
    first: usize,
    /// In a period.
    width: usize,
    periods: usize,
}

impl Marked {
    /// Events for all actions of a schedule.
    pub(super) fn new(schedule: &Schedule, queues: &Queues) -> Result<Self, DriverError> {
        let mut periods = vec![HALVES; schedule.actions.len()];
        for wait in schedule.actions.values().flat_map(|action| &action.after) {
            let own = &mut periods[wait.action.index()];
            *own = (*own).max(1 + wait.distance as usize);
        }
        let mut count = 0;
        let place = |(action, periods): (&Action, usize)| {
            let (first, width) = (count, width(schedule, queues, action));
            count += periods * width;
            Row { first, width, periods }
        };
        let actions = schedule.actions.values().zip(periods).map(place).collect();
        let events = (0..count).map(|_| Event::new()).collect::<Result<_, _>>()?;
        Ok(Self { events, actions })
    }

    /// No event of any action.
    pub(super) fn none() -> Self {
        Self { events: Vec::new(), actions: Table::default() }
    }

    /// Number of the first event of an instance.
    pub(super) fn first(&self, action: ActionId, period: i64) -> usize {
        let Row { first, width, periods } = self.actions[action];
        first + period.rem_euclid(periods as i64) as usize * width
    }

    /// All events of an instance.
    pub(super) fn events(&self, action: ActionId, period: i64) -> &[Event] {
        let width = self.actions[action].width;
        &self.events[self.first(action, period)..][..width]
    }

    /// An event by its number.
    pub(super) fn event(&self, number: usize) -> &Event {
        &self.events[number]
    }
}

/// Threads of an action's queue; the same in every period.
fn width(schedule: &Schedule, queues: &Queues, action: &Action) -> usize {
    queues.threads_of(queues.number(schedule.queue(action, 0))).len()
}
