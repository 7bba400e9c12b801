//! The threads of a machine: one per physical queue and coordinate, one in all for the host and
//! for every group, because their actions take all coordinates together.

use roundelay_schedule::{PhysicalQueue, Schedule};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// All queues that a schedule uses, numbered, and their threads.
pub(crate) struct Queues {
    /// The number of the first coordinate that has threads.
    first: usize,
    numbers: BTreeMap<PhysicalQueue, usize>,
    threads: Vec<Range<usize>>,
    queues: Vec<PhysicalQueue>,
}

impl Queues {
    /// The queues of every action in every period, with threads for all coordinates.
    pub(crate) fn new(schedule: &Schedule) -> Self {
        Self::at(schedule, 0..schedule.coordinates().len())
    }

    /// The same with threads for some coordinates. Where one waits for another, those of one coordinate
    /// do so alike at all, so nothing is out of order among these if the others are not there.
    pub(crate) fn at(schedule: &Schedule, coordinates: Range<usize>) -> Self {
        let longest = schedule.rings.values().map(|ring| ring.devices.len()).max();
        let periods = 0..longest.unwrap_or(1) as i64;
        let queues = schedule.actions.values().flat_map(|action| {
            periods.clone().map(move |period| schedule.queue(action, period))
        });
        Self::over(queues.collect(), coordinates)
    }

    fn over(queues: BTreeSet<PhysicalQueue>, coordinates: Range<usize>) -> Self {
        let mut threads: Vec<Range<usize>> = Vec::with_capacity(queues.len());
        for queue in &queues {
            let start = threads.last().map_or(0, |range| range.end);
            let count = if is_joint(*queue) { 1 } else { coordinates.len() };
            threads.push(start..start + count);
        }
        let numbers = queues.iter().copied().zip(0..).collect();
        let queues = queues.into_iter().collect();
        Self { first: coordinates.start, numbers, threads, queues }
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

    /// The queue and the coordinate of a thread; one that takes all coordinates says the first.
    pub(crate) fn home(&self, thread: usize) -> (usize, usize) {
        let queue = self.threads.partition_point(|range| range.end <= thread);
        (queue, self.first + thread - self.threads[queue].start)
    }

    /// The queue of a thread.
    pub(crate) fn queue_of(&self, thread: usize) -> PhysicalQueue {
        let (queue, _) = self.home(thread);
        self.queue(queue)
    }

    /// The threads that an instance on `thread` waits for when it waits for an instance on
    /// `queue`: that of its own coordinate, unless one of the two takes all coordinates together.
    pub(crate) fn sources(&self, thread: usize, queue: usize) -> Range<usize> {
        let (own, coordinate) = self.home(thread);
        let all = self.threads_of(queue);
        match (is_joint(self.queues[own]), is_joint(self.queues[queue])) {
            (_, true) | (true, _) => all,
            (false, false) => {
                let same = all.start + coordinate - self.first;
                same..same + 1
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_schedule::{DeviceId, GroupId, Id};

    fn queues(coordinates: Range<usize>) -> Queues {
        let devices = [0, 1].map(DeviceId::new);
        let own = devices.into_iter().flat_map(|device| {
            let lane = PhysicalQueue::Lane(device, 0);
            [lane, PhysicalQueue::Arrival(device), PhysicalQueue::Host(device)]
        });
        let group = PhysicalQueue::Group(GroupId::new(0));
        Queues::over(own.chain([group]).collect(), coordinates)
    }

    #[test]
    fn a_coordinate_alone_waits_for_itself_where_it_does_among_all() {
        let (all, alone) = (queues(0..3), queues(2..3));
        assert_eq!((all.threads(), alone.threads()), (4 * 3 + 3, 7));
        assert_eq!(all.len(), alone.len());
        let names = |of: &Queues, threads: Range<usize>| {
            let homes = threads.map(|thread| of.home(thread));
            let joint = |queue: usize| is_joint(of.queue(queue));
            let own = homes.filter(|(queue, at)| joint(*queue) || *at == 2);
            own.map(|(queue, _)| queue).collect::<Vec<_>>()
        };
        for queue in 0..all.len() {
            assert_eq!(all.queue(queue), alone.queue(queue));
            assert_eq!(alone.threads_of(queue), queue..queue + 1);
            assert_eq!(alone.home(queue), (queue, 2));
            let own = all.threads_of(queue).end - 1;
            for other in 0..all.len() {
                let (found, wanted) =
                    (alone.sources(queue, other), all.sources(own, other));
                assert_eq!(names(&alone, found), names(&all, wanted));
            }
        }
    }
}
