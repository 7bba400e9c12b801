//! Vector clocks over queues: what is certainly done before an instance starts.
//!
//! The clock of a queue says for every other queue how many of its instances are done before the
//! next one of its own starts. Clocks are shared until they differ, and kept only while somebody
//! may still wait for the instance that they belong to. Counts are signed: every processor compares
//! many of those at once.

use std::ops::Range;

/// A clock in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClockId(u32);

/// An instance: the queue that it stands in, and its number there, from one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    /// The queue.
    pub(super) queue: u32,
    /// Its number in the queue.
    pub(super) number: i32,
}

/// An issued instance that others may wait for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    stamp: Stamp,
    clock: ClockId,
    waiters: u32,
}

/// The clocks of all queues.
#[derive(Debug)]
pub(super) struct Clocks {
    queues: usize,
    heads: Vec<ClockId>,
    numbers: Vec<i32>,
    rows: Counts,
    users: Vec<u32>,
    free: Vec<ClockId>,
}

impl Clocks {
    /// Queues on which nothing was issued yet.
    pub(super) fn new(queues: usize) -> Self {
        Self {
            queues,
            heads: vec![ClockId(0); queues],
            numbers: vec![0; queues],
            rows: Counts::new(queues),
            users: vec![queues as u32],
            free: Vec::new(),
        }
    }

    fn row(&self, clock: ClockId) -> Range<usize> {
        let start = clock.0 as usize * self.queues;
        start..start + self.queues
    }

    fn release(&mut self, clock: ClockId) {
        let users = &mut self.users[clock.0 as usize];
        *users -= 1;
        if *users == 0 {
            self.free.push(clock);
        }
    }

    /// A clock of the queue's own, to change.
    fn own(&mut self, queue: u32) -> ClockId {
        let head = self.heads[queue as usize];
        if self.users[head.0 as usize] == 1 {
            return head;
        }
        let fresh = self.free.pop().unwrap_or_else(|| {
            self.users.push(0);
            self.rows.grow(self.queues);
            ClockId(self.users.len() as u32 - 1)
        });
        let (source, target) = (self.row(head), self.row(fresh));
        self.rows.copy(source, target);
        self.users[head.0 as usize] -= 1;
        self.users[fresh.0 as usize] = 1;
        self.heads[queue as usize] = fresh;
        fresh
    }

    /// The next instance of `queue` waits for a mark.
    pub(super) fn wait(&mut self, queue: u32, mark: &mut Mark) {
        if !self.done(queue, mark.stamp) {
            let own = self.own(queue);
            let [own, other] = [own, mark.clock].map(|clock| self.row(clock));
            let place = own.start + mark.stamp.queue as usize;
            self.rows.join(own, other);
            self.rows.set(place, mark.stamp.number);
        }
        mark.waiters -= 1;
        if mark.waiters == 0 {
            self.release(mark.clock);
        }
    }

    /// Whether an instance is done before the next one of `queue` starts.
    pub(super) fn done(&self, queue: u32, earlier: Stamp) -> bool {
        let head = self.heads[queue as usize];
        queue == earlier.queue
            || self.rows.get(self.row(head).start + earlier.queue as usize)
                >= earlier.number
    }

    /// Issues the next instance of `queue`, for which this many others wait.
    pub(super) fn issue(&mut self, queue: u32, waiters: u32) -> Mark {
        let number = &mut self.numbers[queue as usize];
        *number += 1;
        let stamp = Stamp { queue, number: *number };
        let clock = self.heads[queue as usize];
        if waiters > 0 {
            self.users[clock.0 as usize] += 1;
        }
        Mark { stamp, clock, waiters }
    }

    /// Entries of all clocks in the store.
    pub(super) fn size(&self) -> usize {
        self.rows.len()
    }

    /// The instance that comes next in `queue`.
    pub(super) fn next(&self, queue: u32) -> Stamp {
        Stamp { queue, number: self.numbers[queue as usize] + 1 }
    }
}

/// The counts of all clocks, row after row. They are narrow until some queue has more instances
/// than those can count: less is moved, and a processor compares more of them at once.
#[derive(Debug)]
enum Counts {
    Narrow(Vec<i16>),
    Wide(Vec<i32>),
}

impl Counts {
    /// One row, in which nothing is done.
    fn new(queues: usize) -> Self {
        Self::Narrow(vec![0; queues])
    }

    fn len(&self) -> usize {
        match self {
            Self::Narrow(counts) => counts.len(),
            Self::Wide(counts) => counts.len(),
        }
    }

    /// Makes room for another row.
    fn grow(&mut self, queues: usize) {
        let len = self.len() + queues;
        match self {
            Self::Narrow(counts) => counts.resize(len, 0),
            Self::Wide(counts) => counts.resize(len, 0),
        }
    }

    fn get(&self, place: usize) -> i32 {
        match self {
            Self::Narrow(counts) => counts[place].into(),
            Self::Wide(counts) => counts[place],
        }
    }

    fn set(&mut self, place: usize, count: i32) {
        match (&mut *self, i16::try_from(count)) {
            (Self::Narrow(counts), Ok(count)) => counts[place] = count,
            (Self::Narrow(counts), Err(_)) => {
                let mut wide: Vec<i32> =
                    counts.iter().map(|count| (*count).into()).collect();
                wide[place] = count;
                *self = Self::Wide(wide);
            }
            (Self::Wide(counts), _) => counts[place] = count,
        }
    }

    fn copy(&mut self, from: Range<usize>, to: Range<usize>) {
        match self {
            Self::Narrow(counts) => counts.copy_within(from, to.start),
            Self::Wide(counts) => counts.copy_within(from, to.start),
        }
    }

    /// Raises the counts of a row to those of another one.
    fn join(&mut self, own: Range<usize>, other: Range<usize>) {
        match self {
            Self::Narrow(counts) => join(counts, [own, other]),
            Self::Wide(counts) => join(counts, [own, other]),
        }
    }
}

fn join<N: Copy + Ord>(counts: &mut [N], rows: [Range<usize>; 2]) {
    let apart = counts.get_disjoint_mut(rows);
    let [own, other] = apart.expect("nobody waits with the clock of a mark");
    for (known, seen) in own.iter_mut().zip(&*other) {
        *known = (*known).max(*seen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_instances_than_narrow_counts_hold_are_still_counted() {
        let mut clocks = Clocks::new(3);
        let many = i32::from(i16::MAX) + 2;
        let marks: Vec<Mark> = (0..many).map(|_| clocks.issue(0, 1)).collect();
        let [before, last] = [marks.len() - 2, marks.len() - 1].map(|at| marks[at].stamp);
        for mut mark in marks {
            assert!(!clocks.done(1, mark.stamp));
            clocks.wait(1, &mut mark);
            assert!(clocks.done(1, mark.stamp));
        }
        let mut through = clocks.issue(1, 1);
        assert!(!clocks.done(2, before));
        clocks.wait(2, &mut through);
        assert!(clocks.done(2, before) && clocks.done(2, last));
        assert!(!clocks.done(2, clocks.next(0)) && !clocks.done(2, clocks.next(1)));
    }
}
