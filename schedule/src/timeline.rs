//! What a simulated run says about time: step time, idle share, where time goes.

mod endless;
mod grid;
mod memory;
mod page;
mod span;
mod trace;

pub use endless::Endless;
pub use grid::grid;
pub use page::page;
pub use trace::{Trace, trace};

use crate::{
    Checked, DeviceId, Entry, Nanos, Pass, PhysicalQueue, Schedule, Task, clock::Busy,
    lcm, simulate, turned::Wheel,
};
use std::{collections::BTreeMap, ops::Range};

/// The longest pattern of turning rings that a steady state is averaged over, in steps.
const CYCLE_MAX: u64 = 128;

/// Steps after which times repeat where a step waits for the last but one.
const ALTERNATING: u64 = 2;

/// Actions of one period from which on half as many steps are simulated: what differs from one
/// step to the next is small beside a step, and every instance is remembered.
const LONG: usize = 1 << 18;

/// Instances of the longest run that sees a whole pattern.
const INSTANCES_MAX: u64 = 1 << 24;

/// Instances of the longest run that is made until times repeat.
const LENGTHENED_MAX: usize = 1 << 19;

/// What a [`Clock`](crate::Clock) saw.
#[derive(Clone, Debug)]
pub struct Simulation<'a> {
    schedule: &'a Schedule,
    steps: u64,
    entries: Vec<Entry>,
    /// End of the last update of each training step.
    ends: Vec<Nanos>,
    makespan: Nanos,
}

/// A span of the steady state.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Window {
    time: Range<Nanos>,
    /// Those whose last updates end in that time.
    steps: Range<u64>,
}

impl Window {
    /// Whether an entry serves a step of it. Devices that wait for no other run ahead, so that it may
    /// lie before the window's time.
    fn has(&self, entry: &Entry) -> bool {
        u64::try_from(entry.step).is_ok_and(|step| self.steps.contains(&step))
    }
}

/// Runs a schedule on a [`Clock`](crate::Clock) for so many training steps that its steady state is
/// seen: over a whole pattern of the turning rings, where that takes at most 128 steps and memory
/// can hold it.
///
/// Where rings turn, the times of steps may repeat only after several turns. So the run is as long
/// as it takes until they do, unless that is much longer; then the step time is the mean of many
/// steps.
pub fn simulate_steady(schedule: &Checked) -> Simulation<'_> {
    let turning = cycle(schedule) > 1;
    let mut run = simulate(schedule, enough_steps(schedule));
    while turning && run.repeating().is_none() && 2 * run.entries.len() <= LENGTHENED_MAX
    {
        let steps = 2 * run.steps;
        run = simulate(schedule, steps);
    }
    run
}

/// Number of training steps in whose second half a whole pattern of the turning rings fits.
fn enough_steps(schedule: &Schedule) -> u64 {
    let actions = schedule.actions.len();
    let least = if actions > LONG { 4 } else { 8 };
    let most = (INSTANCES_MAX / actions.max(1) as u64).max(least);
    (2 * pattern(schedule)).clamp(least, most) + drain(schedule)
}

/// Steps after which times repeat where nothing but rings that turn and steps that alternate
/// makes them differ.
fn pattern(schedule: &Schedule) -> u64 {
    lcm(cycle(schedule), ALTERNATING)
}

/// Steps after which every ring stands as before: lcm of L / gcd(L, turn), at most
/// [`CYCLE_MAX`].
fn cycle(schedule: &Schedule) -> u64 {
    let cycles = schedule.rings.values().map(|ring| Wheel::of_ring(ring).cycle());
    cycles.fold(1, |all, own| lcm(all, own).min(CYCLE_MAX))
}

/// Steps at the end of a run that do not overlap with as many later ones as the others do.
fn drain(schedule: &Schedule) -> u64 {
    u64::from(schedule.span().0) + 1
}

impl<'a> Simulation<'a> {
    pub(crate) fn new(schedule: &'a Schedule, steps: u64, entries: Vec<Entry>) -> Self {
        let makespan = entries.iter().map(|entry| entry.end).max().unwrap_or_default();
        let mut run = Self { schedule, steps, entries, ends: Vec::new(), makespan };
        run.ends = run.step_ends();
        run
    }

    /// What a machine really did from step `first` on, for `steps` steps; `entries` in the order
    /// in which they started.
    pub fn of_replay(
        schedule: &'a Schedule,
        first: u64,
        steps: u64,
        entries: Vec<Entry>,
    ) -> Self {
        let first = i64::try_from(first).unwrap_or(i64::MAX);
        let shifted = |entry: Entry| Entry { step: entry.step - first, ..entry };
        Self::new(schedule, steps, entries.into_iter().map(shifted).collect())
    }

    /// The schedule that ran.
    pub fn schedule(&self) -> &'a Schedule {
        self.schedule
    }

    /// How many training steps ran.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// All instances that executed, in order of issue.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The end of everything.
    pub fn makespan(&self) -> Nanos {
        self.makespan
    }

    /// Time per training step in the steady state, rounded down.
    ///
    /// It is the time between the last updates of two steps that lie k apart, over k. The later
    /// one is the last whose successors ran as far as in the steady state; k is the largest
    /// multiple of the steps after which times repeat that leaves the first half of the run out. Where
    /// times do not repeat, they are taken to do so with the rings' pattern, an even one where
    /// there is one, because steps that wait for the last but one may alternate; else that half
    /// is taken. A run too short for this gives its makespan per step.
    /// [`simulate_steady`] takes as many steps as it needs. Where the clock came to the end of what it
    /// counts, a step never ends.
    pub fn step_time(&self) -> Nanos {
        let Window { time, steps } = self.window();
        if time.end == Nanos::NEVER {
            return Nanos::NEVER;
        }
        Nanos((time.end - time.start).0 / (steps.end - steps.start).max(1))
    }

    /// Whether step time and idle share are those of the steady state. A run too short for one has
    /// those of all its steps, with start and drain.
    pub fn is_steady(&self) -> bool {
        self.window().steps.start > 0
    }

    /// The span over which step time and idle share are taken.
    pub fn steady(&self) -> Range<Nanos> {
        self.window().time
    }

    /// What serves the steps of the steady state.
    pub fn steady_entries(&self) -> impl Iterator<Item = &Entry> {
        let window = self.window();
        self.entries.iter().filter(move |entry| window.has(entry))
    }

    /// Share of the steady state in which the devices that launch anything do nothing, from 0
    /// to 1.
    pub fn bubble(&self) -> f64 {
        let busy = self.busy();
        let Range { start, end } = self.steady();
        let all = (end - start).0 as f64 * busy.len() as f64;
        let used = busy.values().copied().sum::<Nanos>().0 as f64;
        if all > 0.0 { (1.0 - used / all).max(0.0) } else { 0.0 }
    }

    /// Time per device spent in launches for the steps of the steady state; what runs at once
    /// counts once.
    pub fn busy(&self) -> BTreeMap<DeviceId, Nanos> {
        let window = self.window();
        let mut all: BTreeMap<DeviceId, Vec<Busy>> = BTreeMap::new();
        for entry in &self.entries {
            if let PhysicalQueue::Lane(device, _) = entry.queue {
                let Entry { start, end, .. } = *entry;
                let own = all.entry(device).or_default();
                own.extend(window.has(entry).then_some(Busy { start, end }));
            }
        }
        all.into_iter().map(|(device, own)| (device, Busy::covered(own))).collect()
    }

    /// The task of an entry, when it is a launch.
    pub fn task(&self, entry: &Entry) -> Option<Task> {
        self.schedule.task(&self.schedule.actions[entry.action])
    }

    /// Per step the end of its last update; of its last action when nothing is updated.
    fn step_ends(&self) -> Vec<Nanos> {
        let updates = |entry: &Entry| {
            self.task(entry).is_some_and(|task| task.pass == Pass::Update)
        };
        let any = self.entries.iter().any(updates);
        let mut ends = vec![Nanos(0); usize::try_from(self.steps).unwrap_or(0)];
        for entry in self.entries.iter().filter(|entry| !any || updates(entry)) {
            let step = usize::try_from(entry.step).ok();
            if let Some(end) = step.and_then(|step| ends.get_mut(step)) {
                *end = entry.end.max(*end);
            }
        }
        ends
    }

    /// The last step whose successors ran as far as in the steady state.
    fn last(&self) -> Option<u64> {
        self.steps.checked_sub(1 + drain(self.schedule))
    }

    /// The fewest steps, whole patterns of the rings, after which the times of all steps repeat at the
    /// end of the run.
    fn repeating(&self) -> Option<u64> {
        let last = usize::try_from(self.last()?).ok()?;
        let pattern = usize::try_from(pattern(self.schedule)).ok()?;
        let repeats = |length: &usize| {
            let later = last + 1 - last / 2..last + 1;
            let mut spans = later.map(|step| self.ends[step] - self.ends[step - length]);
            spans.next().is_some_and(|first| spans.all(|span| span == first))
        };
        let lengths = (1..).map(|count| count * pattern);
        let found = lengths.take_while(|length| 2 * length <= last).find(repeats);
        found.map(|length| length as u64)
    }

    fn window(&self) -> Window {
        let whole = Window { time: Nanos(0)..self.makespan(), steps: 0..self.steps };
        let Some(last) = self.last() else { return whole };
        if last == 0 {
            return whole;
        }
        let (half, cycle) = (last.div_ceil(2), cycle(self.schedule));
        let patterns = [pattern(self.schedule), cycle];
        let pattern = patterns.into_iter().find(|steps| *steps <= half);
        let pattern = self.repeating().or(pattern).unwrap_or(half);
        let first = last - half / pattern * pattern;
        let end = |step: u64| self.ends[usize::try_from(step).unwrap_or(0)];
        Window { time: end(first)..end(last), steps: first + 1..last + 1 }
    }
}
