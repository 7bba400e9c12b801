//! Replays a schedule until the times of its calls have settled.

use super::{
    events::{Events, Piece},
    quartiles, usual,
};
use crate::{AnyMachine, MachineError, Ran, Record, State};
use roundelay_kernels::Kernels;
use roundelay_schedule::{
    ActionId, Catalogue, Checked, InputId, Nanos, PhysicalQueue, RoutineId, Schedule,
    Simulation, Subject, Work,
};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Training steps between two looks at the times.
const ROUND: u64 = 8;
/// Rounds that must agree.
const AGREEING: usize = 3;

/// When the times of a schedule have settled: the sum over all calls of their usual times lay
/// within `agreement` of itself in three looks in a row, and so did the time of a step without
/// events, where that is looked at; or `patience` is over. The first eight steps never count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settling {
    /// Largest minus smallest of three sums, over the smallest.
    pub agreement: f64,
    /// When it is given up.
    pub patience: Duration,
}

/// What a replay showed.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Devices that computed at one time.
    pub busy: u32,
    /// Times of every call of every routine, but for those that rows of split tensors make
    /// together: what these take follows from links.
    pub calls: BTreeMap<(RoutineId, usize), Vec<Nanos>>,
    /// What launches took besides their calls, where they waited for nothing.
    pub launches: Vec<Nanos>,
    /// Times to fill every input at one coordinate.
    pub feeds: BTreeMap<InputId, Vec<Nanos>>,
    /// How long queues needed to go on after what they waited for was done.
    pub wakes: Vec<Nanos>,
    /// Time per training step in the steady state of each round in which calls were timed.
    pub steps: Vec<Nanos>,
    /// Whether the times settled before patience was over.
    pub settled: bool,
    events: Events,
}

/// Replays the schedule of a machine that keeps times from its initial state; at most `launches`
/// launches run there at one time. Where it costs something to time calls, rounds in which they
/// are timed and rounds in which they are not take turns, so that a clock that rises or falls
/// meets both alike.
///
/// # Errors
/// When the machine cannot run it.
pub fn sample(
    mut machine: AnyMachine,
    launches: usize,
    settling: Settling,
) -> Result<Sample, MachineError> {
    let schedule = machine.schedule().clone();
    machine.load(&State::drawn(&schedule.job))?;
    replay(&mut machine, ROUND)?;
    let mut sample = Sample::new(&schedule, launches);
    let (mut sums, mut paces) = (Vec::new(), Vec::new());
    let start = Instant::now();
    let over = || start.elapsed() >= settling.patience;
    while !over() && !sample.settled {
        let first = machine.step();
        let record = replay(&mut machine, first + ROUND)?;
        sample.take(&schedule, first, record);
        sums.push(sample.sum());
        if over() && sample.events.pace().is_some() {
            break;
        }
        let paced = match machine.pace(first + 2 * ROUND)? {
            None => true,
            Some(periods) => {
                sample.events.paced(&periods);
                paces.extend(sample.events.pace());
                settling.agrees(&paces)
            }
        };
        sample.settled = settling.agrees(&sums) && paced;
    }
    Ok(sample)
}

impl Settling {
    /// Whether the last times agree.
    fn agrees(&self, times: &[Nanos]) -> bool {
        let last = times.rchunks(AGREEING).next().unwrap_or_default();
        let (least, most) = (last.iter().min(), last.iter().max());
        last.len() == AGREEING
            && least.zip(most).is_some_and(|(least, most)| {
                (*most - *least).0 as f64 <= self.agreement * least.0 as f64
            })
    }
}

/// What a machine does up to a step.
fn replay(machine: &mut AnyMachine, end: u64) -> Result<Record, MachineError> {
    machine.replay_while(end, &mut |_| (), &mut || true)?;
    machine.record()
}

impl Sample {
    fn new(schedule: &Schedule, launches: usize) -> Self {
        let busy = schedule.plan.devices.len().min(launches.max(1));
        Self { busy: u32::try_from(busy).unwrap_or(u32::MAX), ..Self::default() }
    }

    /// The time of a training step: without events between calls where that is known, otherwise
    /// the median over rounds.
    pub fn step_time(&self) -> Nanos {
        self.events.pace().unwrap_or_else(|| quartiles(&self.steps)[1])
    }

    /// What an event costs whatever stands before it; nothing where no step was replayed without.
    pub fn event(&self) -> Nanos {
        self.events.cost(|piece| match piece {
            Piece::Call(routine, call) => {
                // What rows make together has no time in the table, and gives what is asked.
                let times = self.calls.get(&(routine, call));
                times.map_or(Nanos::NEVER, |times| usual(times))
            }
            Piece::Launch => usual(&self.launches),
        })
    }

    /// Training steps in which calls were timed.
    pub fn training_steps(&self) -> u64 {
        self.steps.len() as u64 * ROUND
    }

    /// What the calls of one launch take together, each its usual time, in the mean.
    fn sum(&self) -> Nanos {
        let whole = |times: &Vec<Nanos>| Nanos(usual(times).0 * times.len() as u64);
        let launches: u64 = self.calls.values().map(|times| times.len() as u64).sum();
        let sum: Nanos = self.calls.values().map(whole).sum();
        Nanos(sum.0 / launches.max(1))
    }

    /// Takes in a round.
    fn take(&mut self, schedule: &Checked, first: u64, record: Record) {
        self.events.timed(schedule, ROUND, &record);
        let Record { ran, times, .. } = record;
        ran.iter().for_each(|ran| self.instance(schedule, ran, &times));
        self.gaps(schedule, &ran, &times);
        let cell = ran.into_iter().filter(|ran| ran.coordinate == 0);
        let entries = cell.map(|ran| ran.entry).collect();
        let round = Simulation::of_replay(schedule, first, ROUND, entries);
        self.steps.push(round.step_time());
    }

    /// Takes in what one instance did.
    fn instance(&mut self, schedule: &Checked, ran: &Ran, times: &[Nanos]) {
        match &schedule.actions[ran.entry.action].work {
            Work::Launch { routine, .. } => {
                let calls = &schedule.routines[*routine].calls;
                let timed = times[ran.calls.clone()].iter().zip(calls).enumerate();
                for (index, (time, call)) in timed {
                    if Kernels.exchange(call, schedule.job.dtype).is_none() {
                        self.calls.entry((*routine, index)).or_default().push(*time);
                    }
                }
            }
            Work::Feed { row, .. } => {
                if let Subject::Input(input) = schedule.buffers[row.buffer].subject {
                    let copies = schedule.cell_count();
                    let time = Nanos((ran.entry.end - ran.entry.start).0 / copies);
                    self.feeds.entry(input).or_default().push(time);
                }
            }
            Work::Transfer { .. } | Work::Collective { .. } | Work::Report { .. } => {}
        }
    }

    /// What stands between the end of what an instance needs and its own start; what a launch
    /// takes anyway is no part of waking up.
    fn gaps(&mut self, schedule: &Schedule, ran: &[Ran], times: &[Nanos]) {
        let ends = Ends::new(ran);
        let mut resumed = Vec::new();
        let mut queues: BTreeMap<(PhysicalQueue, usize), Nanos> = BTreeMap::new();
        for ran in ran {
            let entry = &ran.entry;
            let queue = (entry.queue, ran.coordinate);
            let before = queues.insert(queue, entry.end);
            let Some(before) = before else { continue };
            let needed = ends.needed(schedule, ran);
            let calls: Nanos = times[ran.calls.clone()].iter().copied().sum();
            match (entry.queue, needed > before) {
                (PhysicalQueue::Lane(..), true) => {
                    resumed.push(entry.end - needed - calls);
                }
                (PhysicalQueue::Lane(..), false) => {
                    self.launches.push(entry.end - before - calls);
                }
                (_, true) => self.wakes.push(entry.start - needed),
                (_, false) => {}
            }
        }
        let launch = usual(&self.launches);
        self.wakes.extend(resumed.into_iter().map(|time| time - launch));
    }
}

/// When instances ended, by action, period and coordinate.
struct Ends(BTreeMap<(ActionId, i64), Vec<(usize, Nanos)>>);

impl Ends {
    fn new(ran: &[Ran]) -> Self {
        let mut ends: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for ran in ran {
            let key = (ran.entry.action, ran.entry.period);
            ends.entry(key).or_default().push((ran.coordinate, ran.entry.end));
        }
        Self(ends)
    }

    /// When the last of what an instance waits for ended: at its own coordinate, or at the only
    /// one there is, or at all for what all coordinates do together.
    fn needed(&self, schedule: &Schedule, ran: &Ran) -> Nanos {
        let joint =
            matches!(ran.entry.queue, PhysicalQueue::Group(_) | PhysicalQueue::Host(_));
        let waits = schedule.actions[ran.entry.action].after.iter();
        let sources = waits.filter_map(|wait| {
            self.0.get(&(wait.action, ran.entry.period - i64::from(wait.distance)))
        });
        let last = |source: &Vec<(usize, Nanos)>| {
            let own = |(coordinate, _): &&(usize, Nanos)| {
                joint || source.len() == 1 || *coordinate == ran.coordinate
            };
            source.iter().filter(own).map(|(_, end)| *end).max()
        };
        sources.filter_map(last).max().unwrap_or_default()
    }
}
