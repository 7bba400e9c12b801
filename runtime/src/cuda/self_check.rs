//! What a user runs first on several GPUs: every rank reduces and sends numbers that are known,
//! looks whether the right ones came, and says how long its stream took.

use super::{
    CudaError, IDLE,
    arena::allocate,
    bounce::{Bounce, Unreached, alone, wait},
    driver::{
        Address, Communicator, Device, DeviceMemory, DriverError, Event, Nccl, NcclError,
        Reduction, Stream,
    },
    rank::{Peers, ordinal_of},
};
use crate::ranks::{Control, Seat, Trouble};
use roundelay_schedule::{Bytes, BytesPerSecond, Nanos};
use serde::{Deserialize, Serialize};
use std::{fs, sync::Arc, time::Duration};

/// Every message is this many times as large as the one before.
const GROWTH: u64 = 32;

/// The first one.
const SMALLEST: u64 = 64 << 10;

/// How often a message is sent while the time is taken.
const REPEATS: u32 = 5;

/// Numbers below this are sums of whole numbers, whatever their order.
const PERIOD: u64 = 61;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exercise {
    /// Everyone gets the sum of what all bring.
    AllReduce,
    /// Rank k gets part k of it.
    ReduceScatter,
    /// Everyone sends to the next rank and receives from the one before.
    Ring,
    /// The same in two halves, one message after the other.
    InTurn,
    /// Everyone sends part k to rank k, all at once.
    AllToAll,
}

impl Exercise {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::AllReduce, Self::ReduceScatter, Self::Ring, Self::InTurn, Self::AllToAll];

    /// Whether it consists of messages, which need another rank, as those of trainings do.
    fn sends(self) -> bool {
        match self {
            Self::AllReduce | Self::ReduceScatter => false,
            Self::Ring | Self::InTurn | Self::AllToAll => true,
        }
    }

    /// How many times in turn each rank has messages.
    fn groups(self) -> u64 {
        match self {
            Self::AllReduce | Self::ReduceScatter | Self::Ring | Self::AllToAll => 1,
            Self::InTurn => 2,
        }
    }

    /// Bytes that pass through the link of one rank, for each byte of a row on `size` ranks, as a
    /// fraction: what bandwidths of different exercises are compared by.
    fn traffic(self, size: u64) -> (u64, u64) {
        match self {
            Self::AllReduce => (2 * (size - 1), size),
            Self::ReduceScatter | Self::AllToAll => (size - 1, size),
            Self::Ring | Self::InTurn => (1, 1),
        }
    }
}

/// What a rank says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankFacts {
    /// Its number.
    pub rank: u32,
    /// Name of its machine.
    pub host: String,
    /// Its device in words.
    pub device: String,
    /// Version of NCCL.
    pub nccl: String,
}

/// How an exercise went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfCheckRow {
    /// What was done.
    pub exercise: Exercise,
    /// Bytes of every rank's row.
    pub size: Bytes,
    /// Time of one, on the slowest rank.
    pub time: Nanos,
    /// Bytes through the link of one rank in that time.
    pub bandwidth: BytesPerSecond,
    /// Ranks that got other numbers than they should.
    pub wrong: Vec<u32>,
}

/// What rank 0 knows when all is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfCheck {
    /// All ranks.
    pub ranks: Vec<RankFacts>,
    /// All exercises.
    pub rows: Vec<SelfCheckRow>,
}

impl SelfCheck {
    /// Whether all numbers were right.
    pub fn is_right(&self) -> bool {
        self.rows.iter().all(|row| row.wrong.is_empty())
    }
}

/// What one rank found in one exercise.
#[derive(Serialize, Deserialize)]
struct Found {
    nanos: u64,
    right: bool,
}

/// Checks all ranks; what came of it is on rank 0.
///
/// # Errors
/// When something is missing or fails on any rank, or nothing moves for `deadline`.
pub fn self_check(
    seat: &Seat,
    largest: Bytes,
    deadline: Duration,
) -> Result<Option<SelfCheck>, CudaError> {
    let control = Arc::new(Control::meet(seat, deadline)?);
    let together = |trouble| CudaError::from(control.ended(trouble));
    let opened = Bench::open(seat, largest);
    let mut bench = opened.map_err(|error| together(control.fail(&error.to_string())))?;
    let facts = bench.facts(seat).map_err(|missing| together(control.fail(&missing)))?;
    let others = (0..seat.size).filter(|rank| *rank != seat.rank).collect();
    let joined = Peers::join(Arc::clone(&control), &bench.device, &bench.stream, &others);
    let mut peers = joined.map_err(together)?;
    let found = bench.run(&peers, &facts);
    let left = found.and_then(|found| peers.leave().map(|()| found));
    peers.abort();
    bench.close(deadline.min(IDLE));
    left.map_err(together)
}

/// A device with two rows; dropped from first to last.
struct Bench {
    stream: Stream,
    start: Event,
    done: Event,
    bounce: Bounce,
    rows: DeviceMemory,
    /// Behind all that its context holds.
    device: Device,
    size: u64,
}

impl Bench {
    fn open(seat: &Seat, largest: Bytes) -> Result<Self, CudaError> {
        let device = Device::open(ordinal_of(seat)?)?;
        let refused = |reason| {
            CudaError::refused(device.facts(), "what the self-check takes", reason)
        };
        device.enter().map_err(refused)?;
        let size = largest.0.max(SMALLEST);
        Ok(Self {
            stream: Stream::new().map_err(refused)?,
            start: Event::timed().map_err(refused)?,
            done: Event::timed().map_err(refused)?,
            bounce: Bounce::new().map_err(refused)?,
            rows: allocate(&device, "the rows of the self-check", Bytes(2 * size))?,
            size,
            device,
        })
    }

    fn facts(&self, seat: &Seat) -> Result<RankFacts, String> {
        let nccl = Nccl::load().map_err(|missing| missing.to_string())?;
        let host = fs::read_to_string("/proc/sys/kernel/hostname");
        Ok(RankFacts {
            rank: seat.rank,
            host: host.map_or_else(|_| "?".to_owned(), |name| name.trim().to_owned()),
            device: self.device.facts().to_string(),
            nccl: nccl.version(),
        })
    }

    fn brought(&self) -> Address {
        self.rows.start()
    }

    fn got(&self) -> Address {
        self.rows.start().plus(self.size)
    }

    /// All exercises in all sizes.
    fn run(
        &mut self,
        peers: &Peers,
        facts: &RankFacts,
    ) -> Result<Option<SelfCheck>, Trouble> {
        let control = peers.control();
        let ranks = control.collect_as(facts)?;
        let mut rows = Vec::new();
        let sizes = (0..).map(|power| SMALLEST.saturating_mul(GROWTH.pow(power)));
        let mut sizes: Vec<u64> = sizes.take_while(|size| *size < self.size).collect();
        sizes.push(self.size);
        for size in sizes {
            for exercise in Exercise::ALL {
                if exercise.sends() && control.seat().size == 1 {
                    continue;
                }
                let turn = Turn { exercise, seat: control.seat(), size };
                let found = self.exercise(peers, &turn)?;
                let all = control.collect_as(&found)?;
                rows.extend(all.map(|all| turn.row(&all)));
            }
        }
        Ok(ranks.map(|ranks| SelfCheck { ranks, rows }))
    }

    fn exercise(&mut self, peers: &Peers, turn: &Turn<'_>) -> Result<Found, Trouble> {
        let control = peers.control();
        let failed = |unreached| peers.unreached(unreached);
        let (from, to) = (self.brought(), self.got());
        let brought = bytes_of(turn.brought());
        let (stream, deadline) = (&self.stream, control.deadline());
        self.bounce.write(stream, from, &brought, deadline).map_err(failed)?;
        let cleared = stream.fill(to, 0xff, turn.size);
        let kept = cleared.and_then(|()| turn.keep((from, to), stream));
        kept.map_err(|error| failed(error.into()))?;
        // Once without a clock, because the first time takes connections.
        self.repeat(peers, turn, 1).map_err(failed)?;
        control.gather(Vec::new())?;
        let taken = self.repeat(peers, turn, REPEATS).map_err(failed)?;
        let nanos = taken.0 / u64::from(REPEATS);
        let mut got = vec![0; turn.got_bytes() as usize];
        self.bounce.read(&self.stream, to, &mut got, deadline).map_err(failed)?;
        let right = got == bytes_of(turn.expected());
        Ok(Found { nanos, right })
    }

    /// How long the stream takes.
    fn repeat(
        &self,
        peers: &Peers,
        turn: &Turn<'_>,
        times: u32,
    ) -> Result<Nanos, Unreached> {
        let ends = (self.brought(), self.got());
        self.stream.record(&self.start)?;
        for _ in 0..times {
            for group in 0..turn.exercise.groups() {
                peers.together(|own| turn.give(own, ends, group, &self.stream))?;
            }
        }
        self.stream.record(&self.done)?;
        wait(&self.done, peers.control().deadline(), &mut || peers.check())?;
        Ok(self.done.since(&self.start)?)
    }

    /// The memory is given back unless the device still works on it.
    fn close(self, deadline: Duration) {
        let idle = self.stream.record(&self.done);
        let idle = idle.map(|()| wait(&self.done, deadline, &mut alone));
        if let Ok(Err(Unreached::Late)) = idle {
            std::mem::forget(self);
        }
    }
}

/// One exercise in one size.
struct Turn<'a> {
    exercise: Exercise,
    seat: &'a Seat,
    size: u64,
}

impl Turn<'_> {
    /// Numbers of the whole row; as many for each rank.
    fn numbers(&self) -> u64 {
        let ranks = u64::from(self.seat.size);
        self.size / 4 / ranks * ranks
    }

    /// Numbers that each rank gets.
    fn got(&self) -> u64 {
        match self.exercise {
            Exercise::AllReduce
            | Exercise::Ring
            | Exercise::InTurn
            | Exercise::AllToAll => self.numbers(),
            Exercise::ReduceScatter => self.numbers() / u64::from(self.seat.size),
        }
    }

    fn got_bytes(&self) -> u64 {
        4 * self.got()
    }

    fn brought(&self) -> impl Iterator<Item = u64> {
        let rank = u64::from(self.seat.rank);
        (0..self.numbers()).map(move |number| brought(rank, number))
    }

    /// What this rank must get.
    fn expected(&self) -> impl Iterator<Item = u64> {
        let (rank, size) = (u64::from(self.seat.rank), u64::from(self.seat.size));
        let exercise = self.exercise;
        let first = match exercise {
            Exercise::AllReduce
            | Exercise::Ring
            | Exercise::InTurn
            | Exercise::AllToAll => 0,
            Exercise::ReduceScatter => rank * self.got(),
        };
        let part = self.numbers() / size;
        (first..first + self.got()).map(move |number| match exercise {
            Exercise::AllReduce | Exercise::ReduceScatter => {
                (0..size).map(|rank| brought(rank, number)).sum()
            }
            Exercise::Ring | Exercise::InTurn => {
                brought((rank + size - 1) % size, number)
            }
            Exercise::AllToAll => brought(number / part, rank * part + number % part),
        })
    }

    /// Where part k of a row begins, and its bytes.
    fn part(&self, rank: u32) -> (u64, u64) {
        let bytes = 4 * self.numbers() / u64::from(self.seat.size);
        (u64::from(rank) * bytes, bytes)
    }

    /// What this rank gives itself.
    fn keep(
        &self,
        (from, to): (Address, Address),
        stream: &Stream,
    ) -> Result<(), DriverError> {
        match self.exercise {
            Exercise::AllReduce
            | Exercise::ReduceScatter
            | Exercise::Ring
            | Exercise::InTurn => Ok(()),
            Exercise::AllToAll => {
                let (start, bytes) = self.part(self.seat.rank);
                stream.copy(from.plus(start), to.plus(start), bytes)
            }
        }
    }

    /// The messages of a group.
    fn give(
        &self,
        own: &Communicator,
        (from, to): (Address, Address),
        group: u64,
        stream: &Stream,
    ) -> Result<(), NcclError> {
        let Seat { rank, size, .. } = *self.seat;
        let reduce = |how| own.reduce(how, (from, to), self.got(), stream);
        match self.exercise {
            Exercise::AllReduce => reduce(Reduction::AllReduce),
            Exercise::ReduceScatter => reduce(Reduction::ReduceScatter),
            Exercise::Ring | Exercise::InTurn => {
                let (all, count) = (self.numbers(), self.exercise.groups());
                let [start, end] = [group, group + 1].map(|cut| 4 * (all * cut / count));
                let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
                own.send(from.plus(start), end - start, next, stream)?;
                own.receive(to.plus(start), end - start, before, stream)
            }
            Exercise::AllToAll => {
                (0..size).filter(|peer| *peer != rank).try_for_each(|peer| {
                    let (start, bytes) = self.part(peer);
                    own.send(from.plus(start), bytes, peer, stream)?;
                    own.receive(to.plus(start), bytes, peer, stream)
                })
            }
        }
    }

    /// What all ranks found together.
    fn row(&self, all: &[Found]) -> SelfCheckRow {
        let nanos = all.iter().map(|own| own.nanos).max().unwrap_or(0).max(1);
        let (times, over) = self.exercise.traffic(u64::from(self.seat.size));
        let bytes = u128::from(4 * self.numbers() * times / over);
        let rate = bytes * 1_000_000_000 / u128::from(nanos);
        let wrong = (0..).zip(all).filter(|(_, own)| !own.right).map(|(rank, _)| rank);
        SelfCheckRow {
            exercise: self.exercise,
            size: Bytes(4 * self.numbers()),
            time: Nanos(nanos),
            bandwidth: BytesPerSecond(u64::try_from(rate).unwrap_or(u64::MAX)),
            wrong: wrong.collect(),
        }
    }
}

/// A number of a rank's row: small and whole, and another one on the next rank.
fn brought(rank: u64, number: u64) -> u64 {
    (7 * number + 13 * rank) % PERIOD
}

fn bytes_of(numbers: impl Iterator<Item = u64>) -> Vec<u8> {
    numbers.flat_map(|number| (number as f32).to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(exercise: Exercise, seat: &Seat) -> Turn<'_> {
        Turn { exercise, seat, size: 4 * 100 }
    }

    fn seat(rank: u32) -> Seat {
        Seat { rank, size: 3, local: rank, host: String::new(), port: 0 }
    }

    #[test]
    fn what_must_come_is_the_sum_or_the_neighbours_row() {
        let seats = [seat(0), seat(1), seat(2)];
        let row = |rank: usize| {
            let row: Vec<u64> = turn(Exercise::Ring, &seats[rank]).brought().collect();
            row.into_iter()
        };
        let sums: Vec<u64> =
            row(0).zip(row(1)).zip(row(2)).map(|((a, b), c)| a + b + c).collect();
        assert_eq!(sums.len(), 99);
        let whole = turn(Exercise::AllReduce, &seats[1]);
        assert!(whole.expected().eq(sums.iter().copied()));
        let part = turn(Exercise::ReduceScatter, &seats[1]);
        assert!(part.expected().eq(sums[33..66].iter().copied()));
        for exercise in [Exercise::Ring, Exercise::InTurn] {
            assert!(turn(exercise, &seats[0]).expected().eq(row(2)));
        }
        let middle = |rank| row(rank).skip(33).take(33);
        let parts = middle(0).chain(middle(1)).chain(middle(2));
        assert!(turn(Exercise::AllToAll, &seats[1]).expected().eq(parts));
        assert!(row(0).zip(row(1)).all(|(own, other)| own != other));
    }

    #[test]
    fn bandwidth_is_that_of_one_link_and_the_slowest_rank() {
        let seat = seat(0);
        let found = |nanos, right| Found { nanos, right };
        let all = [found(100, true), found(400, false), found(200, true)];
        let row = |exercise| turn(exercise, &seat).row(&all);
        assert_eq!(row(Exercise::Ring).bandwidth, BytesPerSecond(990_000_000));
        assert_eq!(row(Exercise::AllReduce).bandwidth, BytesPerSecond(1_320_000_000));
        assert_eq!(row(Exercise::InTurn).bandwidth, BytesPerSecond(990_000_000));
        assert_eq!(row(Exercise::ReduceScatter).bandwidth, BytesPerSecond(660_000_000));
        assert_eq!(row(Exercise::AllToAll).bandwidth, BytesPerSecond(660_000_000));
        assert_eq!(row(Exercise::Ring).wrong, [1]);
    }
}
