//! Vector clocks over queues: what is certainly done before an instance starts.
//!
//! The clock of a queue says for every queue how many of its instances are done before the next
//! one of its own starts. A clock is shared until somebody changes it, and kept only while it is
//! a queue's or that of an instance which later ones may still conflict with. Counts are signed:
//! every processor compares many of those at once.
//!
//! The checker has clocks of its own (`schedule/src/check/clock.rs`): a mistake in these would leave out a
//! wait, and clocks with the same mistake would not miss it.

use std::ops::Range;

/// A clock in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClockId(u32);

/// An instance as others see it: its queue, its number there, counted from one, and the clock
/// that the queue had before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) queue: u32,
    number: i32,
    clock: ClockId,
}

/// The clocks of all queues, and of the instances that are held.
#[derive(Debug)]
pub(super) struct Clocks {
    queues: usize,
    heads: Vec<ClockId>,
    issued: Vec<i32>,
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
            issued: vec![0; queues],
            rows: Counts::new(queues),
            users: vec![queues as u32],
            free: Vec::new(),
        }
    }

    fn row(&self, clock: ClockId) -> Range<usize> {
        let start = clock.0 as usize * self.queues;
        start..start + self.queues
    }

    /// Makes the next instance of a queue wait for another; says whether that was news.
    pub(super) fn wait(&mut self, queue: u32, earlier: Stamp) -> bool {
        let head = self.heads[queue as usize];
        let known = self.rows.get(self.row(head).start + earlier.queue as usize);
        if queue == earlier.queue || known >= earlier.number {
            return false;
        }
        let own = self.own(queue);
        let [own, other] = [own, earlier.clock].map(|clock| self.row(clock));
        let place = own.start + earlier.queue as usize;
        self.rows.join(own, other);
        self.rows.set(place, earlier.number);
        true
    }

    /// A clock that only this queue has.
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

    /// Issues the next instance of a queue, which is held until it is released.
    pub(super) fn issue(&mut self, queue: u32) -> Stamp {
        let number = &mut self.issued[queue as usize];
        *number += 1;
        let clock = self.heads[queue as usize];
        self.users[clock.0 as usize] += 1;
        Stamp { queue, number: *number, clock }
    }

    /// Nobody will ask for an instance any more.
    pub(super) fn release(&mut self, stamp: Stamp) {
        let users = &mut self.users[stamp.clock.0 as usize];
        *users -= 1;
        if *users == 0 {
            self.free.push(stamp.clock);
        }
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
    let [own, other] = apart.expect("nobody waits with the clock of an instance");
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
        let least = clocks.issue(0);
        assert!(clocks.wait(1, least));
        let many = i32::from(i16::MAX) + 2;
        let stamps: Vec<Stamp> = (1..many).map(|_| clocks.issue(0)).collect();
        assert_eq!(stamps.last().map(|stamp| stamp.number), Some(many));
        for (number, stamp) in stamps.iter().enumerate().step_by(1000) {
            assert!(clocks.wait(1, *stamp), "{number}");
            assert!(!clocks.wait(1, least), "{number}");
        }
        let [before, last] = [stamps.len() - 2, stamps.len() - 1].map(|at| stamps[at]);
        assert!(clocks.wait(1, last));
        assert!(!clocks.wait(1, before));
        let through = clocks.issue(1);
        assert!(clocks.wait(2, through));
        assert!(!clocks.wait(2, last));
    }
}
