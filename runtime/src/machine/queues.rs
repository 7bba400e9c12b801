//! The threads of a machine: one per physical queue and coordinate, one in all for the host and
//! for every group, because their actions take all coordinates together.

use roundelay_schedule::{PhysicalQueue, Schedule};
use std::{collections::BTreeMap, ops::Range};

/// All queues that a schedule uses, numbered, and their threads.
pub(crate) struct Queues {
    numbers: BTreeMap<PhysicalQueue, usize>,
    threads: Vec<Range<usize>>,
    queues: Vec<PhysicalQueue>,
}

impl Queues {
    /// The queues of every action in every period.
    pub(crate) fn new(schedule: &Schedule) -> Self {
        let longest = schedule.rings.values().map(|ring| ring.devices.len()).max();
        let periods = 0..longest.unwrap_or(1) as i64;
        let mut numbers = BTreeMap::new();
        for action in schedule.actions.values() {
            numbers.extend(periods.clone().map(|p| (schedule.queue(action, p), 0)));
        }
        let copies = schedule.coordinates().len();
        let mut threads: Vec<Range<usize>> = Vec::new();
        for (index, (queue, number)) in numbers.iter_mut().enumerate() {
            *number = index;
            let start = threads.last().map_or(0, |range| range.end);
            threads.push(start..start + if is_joint(*queue) { 1 } else { copies });
        }
        Self { queues: numbers.keys().copied().collect(), numbers, threads }
    }

    /// Number of queues.
    pub(crate) fn len(&self) -> usize {
        self.queues.len()
    }

    /// Number of threads.
    pub(crate) fn threads(&self) -> usize {
        self.threads.last().map_or(0, |range| range.end)
    }

    /// The number of a queue that some action uses.
    pub(crate) fn number(&self, queue: PhysicalQueue) -> usize {
        self.numbers[&queue]
    }

    /// The queue of a number.
    pub(crate) fn queue(&self, number: usize) -> PhysicalQueue {
        self.queues[number]
    }

    /// The threads of a queue, by coordinate.
    pub(crate) fn threads_of(&self, queue: usize) -> Range<usize> {
        self.threads[queue].clone()
    }

    /// The queue and the coordinate of a thread.
    pub(crate) fn home(&self, thread: usize) -> (usize, usize) {
        let queue = self.threads.partition_point(|range| range.end <= thread);
        (queue, thread - self.threads[queue].start)
    }

    /// The threads that an instance on `thread` waits for when it waits for an instance on
    /// `queue`: that of its own coordinate, unless one of the two takes all coordinates together.
    pub(crate) fn sources(&self, thread: usize, queue: usize) -> Range<usize> {
        let (own, coordinate) = self.home(thread);
        let all = self.threads_of(queue);
        match (is_joint(self.queues[own]), is_joint(self.queues[queue])) {
            (_, true) | (true, _) => all,
            (false, false) => all.start + coordinate..all.start + coordinate + 1,
        }
    }
}

/// Whether one thread takes all coordinates.
fn is_joint(queue: PhysicalQueue) -> bool {
    match queue {
        PhysicalQueue::Lane(..) | PhysicalQueue::Arrival(_) => false,
        PhysicalQueue::Group(_) | PhysicalQueue::Host(_) => true,
    }
}

/// A queue in words.
pub(crate) fn describe(queue: PhysicalQueue) -> String {
    match queue {
        PhysicalQueue::Lane(device, lane) => format!("lane {lane} of {device}"),
        PhysicalQueue::Arrival(device) => format!("arrivals at {device}"),
        PhysicalQueue::Group(group) => format!("collectives of {group}"),
        PhysicalQueue::Host(device) => format!("the host for {device}"),
    }
}
