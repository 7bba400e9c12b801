//! Vector clocks over queues: what is certainly done before an instance starts.
//!
//! The clock of a queue says for every other queue how many of its instances are done before the
//! next one of its own starts. Clocks are shared until they differ, and kept only while somebody
//! may still wait for the instance that they belong to. Counts are signed: every processor compares
//! many of those at once.

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
            numbers: vec![0; queues],
            rows: vec![0; queues],
            users: vec![queues as u32],
            free: Vec::new(),
        }
    }

    fn row(&self, clock: ClockId) -> std::ops::Range<usize> {
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

    /// The next instance of `queue` waits for a mark.
    pub(super) fn wait(&mut self, queue: u32, mark: &mut Mark) {
        if !self.done(queue, mark.stamp) {
            let own = self.own(queue);
            let rows = [own, mark.clock].map(|clock| self.row(clock));
            let apart = self.rows.get_disjoint_mut(rows);
            let [own, other] = apart.expect("nobody waits with the clock of a mark");
            for (known, seen) in own.iter_mut().zip(&*other) {
                *known = (*known).max(*seen);
            }
            let known = &mut own[mark.stamp.queue as usize];
            *known = mark.stamp.number.max(*known);
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
            || self.rows[self.row(head).start + earlier.queue as usize] >= earlier.number
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
