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
    rows: Vec<i32>,
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
            rows: vec![0; queues],
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
        let known = self.rows[self.row(head).start + earlier.queue as usize];
        if queue == earlier.queue || known >= earlier.number {
            return false;
        }
        let own = self.own(queue);
        let rows = [own, earlier.clock].map(|clock| self.row(clock));
        let apart = self.rows.get_disjoint_mut(rows);
        let [own, other] = apart.expect("nobody waits with the clock of an instance");
        for (known, seen) in own.iter_mut().zip(&*other) {
            *known = (*known).max(*seen);
        }
        own[earlier.queue as usize] = earlier.number.max(own[earlier.queue as usize]);
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
            self.rows.resize(self.rows.len() + self.queues, 0);
            ClockId(self.users.len() as u32 - 1)
        });
        let (source, target) = (self.row(head), self.row(fresh));
        self.rows.copy_within(source, target.start);
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
