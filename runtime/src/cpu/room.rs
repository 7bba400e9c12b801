//! Whether there is the memory that a run takes, asked before any is touched: a system may promise
//! what it does not have, and end the process that uses it, and a limit may turn down what there is no
//! way on without.

use super::CpuError;
use crate::{
    Evaluator,
    machine::{MemoryBound, Queues, Room, arena_sizes},
    ranks::{Control, Seated},
    state::gather,
};
use roundelay_schedule::{
    Bytes, DeviceId, Evaluation, Parameter, PhysicalQueue, Schedule,
};
use serde::{Deserialize, Serialize};
use std::{env, fmt, fs, ops::Range, thread};

/// Addresses that a thread has for its stack: what `std` gives it.
const STACK: Bytes = Bytes(2 << 20);

/// Addresses that glibc sets aside for what a thread allocates, used or not, where there are some;
/// for at most this many threads on each core, or for as many as the environment says. What is allocated
/// while they run, to look at held-out data, lacks them.
const HEAP: Bytes = Bytes(64 << 20);
const HEAPS_PER_CORE: u64 = 8;
const HEAPS_MOST: &str = "MALLOC_ARENA_MAX";

/// What is taken of the host's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The arenas of devices, if there are any.
    pub arenas: Option<ArenaDemand>,
    /// Whatever else there will be at one time with them, and what it is.
    pub beside: Vec<(&'static str, Bytes)>,
}

/// What the arenas of a schedule take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArenaDemand {
    /// The device that is told: of the largest arena, or of the one that was refused.
    pub device: String,
    /// Its arena.
    pub arena: Bytes,
    /// All arenas together.
    pub all: Bytes,
    /// How many there are.
    pub devices: usize,
}

impl ArenaDemand {
    /// What the devices of a schedule that are here take; the largest arena is told.
    fn of(schedule: &Schedule, here: impl Fn(DeviceId) -> bool) -> Self {
        let mut sizes = arena_sizes(schedule);
        sizes.retain(|device, _| here(*device));
        let largest = sizes.iter().max_by_key(|(device, size)| (**size, **device));
        let (device, arena) = match largest {
            Some((device, arena)) => (name(schedule, *device), *arena),
            None => (String::new(), Bytes(0)),
        };
        let all = sizes.values().copied().sum();
        Self { device, arena, all, devices: sizes.len() }
    }
}

impl Demand {
    /// What a schedule takes; a device's arena was refused.
    pub(super) fn refused(
        schedule: &Schedule,
        (device, arena): (DeviceId, Bytes),
        here: impl Fn(DeviceId) -> bool,
    ) -> Self {
        let device = name(schedule, device);
        let arenas = ArenaDemand { device, arena, ..ArenaDemand::of(schedule, here) };
        Self { arenas: Some(arenas), beside: Vec::new() }
    }

    fn total(&self) -> Bytes {
        let arenas = self.arenas.iter().map(|arenas| arenas.all);
        arenas.chain(self.beside.iter().map(|(_, bytes)| *bytes)).sum()
    }
}

fn name(schedule: &Schedule, device: DeviceId) -> String {
    schedule.target.devices[device].name.clone()
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = self.beside.iter().filter(|(_, bytes)| bytes.0 > 0);
        let told = told.map(|(what, bytes)| format!("{what} {bytes}"));
        let beside = told.collect::<Vec<_>>().join(" and ");
        let Some(ArenaDemand { device, arena, all, devices }) = &self.arenas else {
            return write!(f, "there should be {beside}");
        };
        write!(f, "the arena of `{device}` takes {arena}")?;
        if *devices > 1 {
            write!(f, ", those of all {devices} devices together {all}")?;
        }
        match beside.is_empty() {
            true => Ok(()),
            false => write!(f, ", and {beside} more"),
        }
    }
}

/// What a run gathers from its devices to keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Nothing.
    Nothing,
    /// The newest parameters, for a file of weights; checkpoints are written array by array.
    Parameters,
}

impl Kept {
    /// How much it is.
    fn bytes(self, schedule: &Schedule) -> Bytes {
        let job = &schedule.job;
        let elements = job.parameters.iter().map(|own| Bytes(own.whole_elements()));
        match self {
            Self::Nothing => Bytes(0),
            Self::Parameters => elements.map(|own| own * job.dtype.size()).sum(),
        }
    }
}

/// The longest flat array of a stage, on all parts of split tensors.
fn longest(schedule: &Schedule) -> Bytes {
    let job = &schedule.job;
    let longest = job.elements.values().max().copied().unwrap_or(0);
    let parts = u64::from(schedule.tensor_parts().max(1));
    Bytes(longest) * parts * job.dtype.wide_size()
}

/// An array of a parameter on its way to or from arenas: in 64 bits in a file, and converted; or as ranks
/// have sent it, and put together with a part of it.
fn on_its_way(schedule: &Schedule) -> Bytes {
    let job = &schedule.job;
    let elements = job.parameters.iter().map(Parameter::whole_elements);
    Bytes(elements.max().unwrap_or(0)) * job.dtype.wide_size() * 3
}

/// Threads of a machine, of those that help them with the devices that are here, and of an evaluator
/// if there is one.
fn threads(schedule: &Schedule, asker: Asker) -> u64 {
    let evaluator = match asker.looking(schedule) {
        Bytes(0) => 0,
        Bytes(_) => cores(),
    };
    let queues = Queues::at(schedule, asker.coordinates(schedule));
    let coordinates = schedule.coordinates();
    let helpers = |thread| {
        let (queue, coordinate) = queues.home(thread);
        match queues.queue(queue) {
            PhysicalQueue::Lane(device, _) => {
                let own = schedule.device_at(device, &coordinates[coordinate]);
                let threads = schedule.target.devices[own].threads;
                if asker.has(own) { threads.max(1) } else { 1 }
            }
            PhysicalQueue::Arrival(_)
            | PhysicalQueue::Group(_)
            | PhysicalQueue::Host(_) => 1,
        }
    };
    (0..queues.threads()).map(|thread| u64::from(helpers(thread))).sum::<u64>()
        + evaluator
}

fn cores() -> u64 {
    thread::available_parallelism().map_or(1, |cores| cores.get() as u64)
}

/// What this many threads take of what a bound counts; of memory that is used they take next to
/// nothing.
fn of_threads(bound: &MemoryBound, wanted: &Demand, threads: impl Fn() -> u64) -> Bytes {
    match bound {
        MemoryBound::Host | MemoryBound::Group(_) => Bytes(0),
        MemoryBound::Data => STACK * threads(),
        MemoryBound::Addresses => {
            let threads = threads();
            let looks = wanted.beside.iter().any(|(_, bytes)| bytes.0 > 0);
            let heaps = if looks { threads.min(heaps_most()) } else { 0 };
            STACK * threads + HEAP * heaps
        }
    }
}

fn heaps_most() -> u64 {
    let said = env::var(HEAPS_MOST).ok().and_then(|said| said.parse().ok());
    said.filter(|most| *most > 0).unwrap_or(HEAPS_PER_CORE * cores())
}

/// Looks whether what is left is enough.
fn fits(
    mut wanted: Demand,
    threads: impl Fn() -> u64,
    room: Room,
) -> Result<(), CpuError> {
    wanted.beside.push(("threads", of_threads(&room.bound, &wanted, threads)));
    let Room { bound, left } = room;
    match wanted.total() <= left {
        true => Ok(()),
        false => Err(CpuError::Memory { wanted, left, bound }),
    }
}

/// Who asks for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// A process that has all devices.
    Whole,
    /// The first of several ranks, which looks at held-out data for all, with its seat.
    First(Seated),
    /// Another rank, with its seat.
    Other(Seated),
}

impl Asker {
    /// Whether a device is its.
    pub(super) fn has(self, device: DeviceId) -> bool {
        match self {
            Self::Whole => true,
            Self::First(own) | Self::Other(own) => own.device == device,
        }
    }

    /// The coordinates at which it has devices.
    pub(super) fn coordinates(self, schedule: &Schedule) -> Range<usize> {
        match self {
            Self::Whole => 0..schedule.coordinates().len(),
            Self::First(own) | Self::Other(own) => own.coordinate..own.coordinate + 1,
        }
    }

    /// What looking at held-out data takes while a machine rests: an evaluator, and the parameters that it
    /// looks at, of which it takes those of one stage at a time.
    fn looking(self, schedule: &Schedule) -> Bytes {
        match (self, schedule.job.evaluate) {
            (Self::Other(_), _) | (_, Evaluation::Never) => Bytes(0),
            (Self::Whole | Self::First(_), Evaluation::Every(_)) => {
                let gathered = self.gathered(schedule, Kept::Parameters);
                Evaluator::bytes(schedule) + longest(schedule) + gathered
            }
        }
    }

    /// What it has of a state beside arenas, when one is loaded or gathered: only the first of several ranks
    /// has what is kept, and ranks have what they send.
    fn gathered(self, schedule: &Schedule, kept: Kept) -> Bytes {
        let round = Bytes(gather::ROUND as u64);
        let beside = match self {
            Self::Whole => kept.bytes(schedule),
            Self::First(_) => kept.bytes(schedule) + round,
            Self::Other(_) => round,
        };
        beside + on_its_way(schedule)
    }
}

/// Looks whether this machine can hold the arenas of a schedule that are here, and what there will be
/// beside them.
///
/// # Errors
/// When it says that it has too little memory.
pub(super) fn for_arenas(schedule: &Schedule, asker: Asker) -> Result<(), CpuError> {
    let beside = vec![(LOOKING, asker.looking(schedule))];
    let arenas = Some(ArenaDemand::of(schedule, |device| asker.has(device)));
    look(&Demand { arenas, beside }, || threads(schedule, asker))
}

/// Looks whether this machine can hold the arenas of a schedule that are here and the state that is
/// gathered from them.
///
/// # Errors
/// When it says that it has too little memory.
pub(super) fn for_all(schedule: &Schedule, kept: Kept) -> Result<(), CpuError> {
    look(&wanted(schedule, Asker::Whole, kept), || threads(schedule, Asker::Whole))
}

/// The same for this one of several ranks, with what the others take where it is.
///
/// # Errors
/// When the machine says that it has too little memory, or something goes wrong on another rank.
pub(super) fn for_rank(
    schedule: &Schedule,
    (asker, kept): (Asker, Kept),
    control: &Control,
) -> Result<(), CpuError> {
    let wanted = wanted(schedule, asker, kept);
    let rooms = Room::read();
    let own = Neighbour::new(wanted.total(), &rooms);
    let all = control.exchange(&own).map_err(|trouble| control.ended(trouble))?;
    rooms.into_iter().try_for_each(|room| {
        let mut wanted = wanted.clone();
        let others = own.others(&room.bound, &all);
        wanted.beside.push(("what other ranks take there", others));
        fits(wanted, || threads(schedule, asker), room)
    })
}

/// What there is at one time: what is looked at is gone before anything is kept.
fn wanted(schedule: &Schedule, asker: Asker, kept: Kept) -> Demand {
    let gathered = asker.gathered(schedule, kept);
    let looking = asker.looking(schedule);
    let beside = match looking > gathered {
        true => (LOOKING, looking),
        false => (GATHERED, gathered),
    };
    let arenas = Some(ArenaDemand::of(schedule, |device| asker.has(device)));
    Demand { arenas, beside: vec![beside] }
}

/// A rank as others see it that may be on the same machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Neighbour {
    /// The start of the system, which names the machine; nothing where that does not say.
    machine: String,
    /// From where it sees control groups: others may call other groups so.
    sight: String,
    /// The control groups that bound it.
    groups: Vec<String>,
    /// What it takes, in bytes.
    wanted: u64,
}

impl Neighbour {
    fn new(wanted: Bytes, rooms: &[Room]) -> Self {
        let groups = rooms.iter().filter_map(|room| match &room.bound {
            MemoryBound::Group(folder) => Some(folder.to_string_lossy().into_owned()),
            MemoryBound::Host | MemoryBound::Addresses | MemoryBound::Data => None,
        });
        let groups = groups.collect();
        Self { machine: machine(), sight: sight(), groups, wanted: wanted.0 }
    }

    /// What others of all take of what a bound counts, this one among them.
    fn others(&self, bound: &MemoryBound, all: &[Self]) -> Bytes {
        let here =
            |other: &&Self| !self.machine.is_empty() && other.machine == self.machine;
        let meets = |other: &&Self| match bound {
            MemoryBound::Host => true,
            MemoryBound::Group(folder) => {
                let folder = folder.to_string_lossy();
                other.sight == self.sight && other.groups.iter().any(|own| *own == folder)
            }
            MemoryBound::Addresses | MemoryBound::Data => false,
        };
        let met = all.iter().filter(here).filter(meets);
        let together = met.map(|other| other.wanted).sum::<u64>();
        Bytes(together.saturating_sub(self.wanted))
    }
}

/// The start of this system: two processes that see the same share its memory.
fn machine() -> String {
    let start = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    start.trim().to_owned()
}

/// What the system calls the place from which this process sees its control groups.
fn sight() -> String {
    let place = fs::read_link("/proc/self/ns/cgroup").unwrap_or_default();
    place.to_string_lossy().into_owned()
}

/// Looks whether this machine can hold what looks at held-out data, without arenas.
///
/// # Errors
/// When it says that it has too little memory.
pub(crate) fn for_evaluation(schedule: &Schedule) -> Result<(), CpuError> {
    let beside = vec![
        ("for a forward pass", Evaluator::bytes(schedule)),
        ("for parameters on their way there", on_its_way(schedule) + longest(schedule)),
    ];
    look(&Demand { arenas: None, beside }, cores)
}

const LOOKING: &str = "a look at held-out data";

/// What else there is beside arenas.
const GATHERED: &str = "what is loaded and gathered";

fn look(wanted: &Demand, threads: impl Fn() -> u64) -> Result<(), CpuError> {
    let mut rooms = Room::read().into_iter();
    rooms.try_for_each(|room| fits(wanted.clone(), &threads, room))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand() -> Demand {
        let (device, devices) = ("core.1".to_owned(), 2);
        let (arena, all) = (Bytes(3_000), Bytes(5_000));
        let arenas = Some(ArenaDemand { device, arena, all, devices });
        Demand { arenas, beside: vec![(GATHERED, Bytes(1_000))] }
    }

    fn refusal(bound: MemoryBound, threads: u64, needed: u64) -> String {
        let room = |left| Room { bound: bound.clone(), left: Bytes(left) };
        assert_eq!(fits(demand(), || threads, room(needed)), Ok(()));
        fits(demand(), || threads, room(needed - 1)).unwrap_err().to_string()
    }

    #[test]
    fn a_host_holds_what_is_not_more_than_it_has_left() {
        let expected = "this machine has 6.00 kB of memory left, but the arena of `core.1` takes \
                        3.00 kB, those of all 2 devices together 5.00 kB, and what is \
                        loaded and gathered 1.00 kB more; plan with less `memory` for each device \
                        or on fewer devices, or close what else runs here";
        assert_eq!(refusal(MemoryBound::Host, 10, 6_000), expected);
    }

    #[test]
    fn a_control_group_is_named() {
        let said = refusal(MemoryBound::Group("/groups/job".into()), 10, 6_000);
        assert!(
            said.starts_with("the control group `/groups/job` leaves 6.00 kB"),
            "{said}"
        );
        assert!(said.ends_with("or give the group more"), "{said}");
    }

    #[test]
    fn a_limit_on_addresses_counts_those_of_threads() {
        let needed = 6_000 + (2 << 20) + (64 << 20);
        let said = refusal(MemoryBound::Addresses, 1, needed);
        for part in [
            "(`ulimit -v`) leaves 69.21 MB",
            " and threads 69.21 MB more",
            "raise the limit",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        refusal(MemoryBound::Data, 3, 6_000 + 3 * (2 << 20));
    }

    #[test]
    fn ranks_of_one_machine_share_its_memory() {
        let rank = |machine: &str, group: &str, wanted| Neighbour {
            machine: machine.into(),
            sight: "whole".into(),
            groups: vec![group.into()],
            wanted,
        };
        let boxed = Neighbour { sight: "box".into(), ..rank("one", "/a", 11) };
        let all =
            [rank("one", "/a", 3), rank("one", "/b", 5), rank("two", "/a", 7), boxed];
        let others = |bound| all[0].others(&bound, &all).0;
        assert_eq!(others(MemoryBound::Host), 16);
        assert_eq!(others(MemoryBound::Group("/a".into())), 0);
        assert_eq!(others(MemoryBound::Group("/b".into())), 2);
        assert_eq!(others(MemoryBound::Addresses), 0);
        let lost = [rank("", "/a", 3), rank("", "/a", 5)];
        assert_eq!(lost[0].others(&MemoryBound::Host, &lost).0, 0, "who knows");
        let own = Neighbour::new(Bytes(4), &[]);
        let same = own.others(&MemoryBound::Host, &[own.clone(), own.clone()]);
        assert_eq!(same.0, if own.machine.is_empty() { 0 } else { 4 });
    }
}
