//! One replay seen from the thread that drives it: issues commands, hands losses on, and notices
//! when nothing moves any more.

use super::{
    CpuError, LOSSES, Loss, Shared,
    command::{Command, Mark},
    counter::Waited,
};
use crate::{
    awake::{Awake, Clock},
    machine::describe,
    ranks::Position,
};
use roundelay_schedule::{ActionId, Id, Issue, Machine};
use std::{ops::ControlFlow, sync::atomic::Ordering, time::Duration};

/// How long the driver sleeps before it looks after losses again.
const TICK: Duration = Duration::from_millis(20);

/// What the driver knows, from one replay to the next.
pub(super) struct Driver {
    issued: Vec<u64>,
    begun: Vec<Vec<u64>>,
    period: usize,
    waits: Vec<Mark>,
    losses: Vec<Loss>,
    deadline: Duration,
    clock: Clock,
    progress: Progress,
}

/// How far all lanes were when they were looked at.
struct Progress {
    /// Commands that had ended.
    done: u64,
    /// When others had not.
    since: Awake,
}

impl Progress {
    /// Nothing has ended.
    fn none(clock: &mut Clock) -> Self {
        Self { done: 0, since: clock.now() }
    }
}

impl Driver {
    /// Nothing issued yet; `waits` is the most that one action has, `ahead` the number of periods
    /// that may be under way.
    pub(super) fn new(
        queues: usize,
        waits: usize,
        ahead: usize,
        deadline: Duration,
    ) -> Self {
        let mut clock = Clock::new();
        Self {
            issued: vec![0; queues],
            begun: vec![vec![0; queues]; ahead],
            period: 0,
            waits: Vec::with_capacity(waits),
            losses: Vec::with_capacity(LOSSES),
            deadline,
            progress: Progress::none(&mut clock),
            clock,
        }
    }

    /// The clock of a new replay.
    pub(super) fn start(&mut self) {
        self.progress = Progress::none(&mut self.clock);
    }

    /// The deadline.
    pub(super) fn deadline(&self) -> Duration {
        self.deadline
    }
}

/// The CPU as a machine, during one replay.
pub(super) struct Session<'a> {
    pub(super) shared: &'a Shared,
    pub(super) driver: &'a mut Driver,
    pub(super) listener: &'a mut dyn FnMut(Loss),
    pub(super) goes_on: &'a mut dyn FnMut() -> bool,
}

impl Machine for Session<'_> {
    type Mark = Mark;
    type Error = CpuError;

    fn issue(&mut self, issued: Issue<'_>, after: &[Mark]) -> Result<Mark, CpuError> {
        let physical = self.shared.schedule.queue(issued.action, issued.period);
        let queue = self.shared.queues.number(physical);
        let number = self.driver.issued[queue] + 1;
        self.gather(queue, after);
        for thread in self.shared.queues.threads_of(queue) {
            let lane = &self.shared.lanes[thread];
            self.wait(thread, number.saturating_sub(lane.commands.capacity()))?;
            let command = Command {
                action: issued.id,
                period: issued.period,
                instance: issued.instance,
            };
            lane.commands.write(number, &command, &self.driver.waits);
            lane.issued.publish(number, &self.shared.parking);
        }
        self.driver.issued[queue] = number;
        self.hand_on();
        Ok(Mark { queue, sequence: number })
    }

    /// Waits for the periods that began long ago, so that a replay that is to stop does not first
    /// finish all that queues have room for.
    fn begin(&mut self) -> Result<ControlFlow<()>, CpuError> {
        let row = self.driver.period % self.driver.begun.len();
        for queue in 0..self.shared.queues.len() {
            let target = self.driver.begun[row][queue];
            for thread in self.shared.queues.threads_of(queue) {
                self.wait(thread, target)?;
            }
            self.driver.begun[row][queue] = self.driver.issued[queue];
        }
        self.driver.period += 1;
        let goes_on = (self.goes_on)();
        match self.agree(goes_on)? {
            true => Ok(ControlFlow::Continue(())),
            false => Ok(ControlFlow::Break(())),
        }
    }

    fn rest(&mut self) -> Result<(), CpuError> {
        for queue in 0..self.shared.queues.len() {
            for thread in self.shared.queues.threads_of(queue) {
                self.wait(thread, self.driver.issued[queue])?;
            }
        }
        self.hand_on();
        self.agree(true).map(drop)
    }
}

impl Session<'_> {
    /// Whether all ranks want to go on, and the losses that each of them has.
    fn agree(&mut self, goes_on: bool) -> Result<bool, CpuError> {
        let Some(rank) = self.shared.share.rank() else { return Ok(goes_on) };
        match rank.agree(goes_on, self.listener) {
            Ok(agreed) => Ok(agreed),
            Err(ended) => {
                self.shared.fail(ended.into());
                Err(self.shared.failure())
            }
        }
    }

    /// Looks after the other ranks, and says where this one is.
    fn watch(&self) {
        let Some(rank) = self.shared.share.rank() else { return };
        if let Some(head) = self.oldest() {
            let Head { period, action, .. } = head;
            rank.at(Position::Replaying { period, action });
        }
        if let Some(trouble) = rank.control().trouble() {
            self.shared.fail(rank.ended(trouble));
        }
    }

    /// Of several waits on one queue the last is enough; its own queue is in order anyway.
    fn gather(&mut self, queue: usize, after: &[Mark]) {
        let waits = &mut self.driver.waits;
        waits.clear();
        for mark in after.iter().filter(|mark| mark.queue != queue) {
            match waits.iter_mut().find(|known| known.queue == mark.queue) {
                Some(known) => known.sequence = known.sequence.max(mark.sequence),
                None => waits.push(*mark),
            }
        }
    }

    /// Waits until a thread has completed `target` commands.
    fn wait(&mut self, thread: usize, target: u64) -> Result<(), CpuError> {
        let shared = self.shared;
        let place = shared.queues.threads();
        loop {
            let done = &shared.lanes[thread].done;
            match done.wait_for(target, &shared.parking, place, TICK) {
                Waited::Reached => return self.failed(),
                Waited::Stopped | Waited::Late => self.failed()?,
            }
            self.watch();
            self.hand_on();
            self.check_progress()?;
        }
    }

    fn failed(&self) -> Result<(), CpuError> {
        if self.shared.parking.is_stopped() {
            return Err(self.shared.failure());
        }
        Ok(())
    }

    /// Passes losses to the listener; two lists change places, so that nobody waits.
    fn hand_on(&mut self) {
        self.shared.take_losses(&mut self.driver.losses);
        for loss in self.driver.losses.drain(..) {
            match self.shared.share.rank() {
                Some(rank) => rank.keep(loss),
                None => (self.listener)(loss),
            }
        }
    }

    fn check_progress(&mut self) -> Result<(), CpuError> {
        let (done, now) = (self.done(), self.driver.clock.now());
        let Progress { done: before, since } = self.driver.progress;
        if done != before {
            self.driver.progress = Progress { done, since: now };
            if let Some(rank) = self.shared.share.rank() {
                rank.control().moved();
            }
        } else if now.since(since).min(self.others_still()) > self.driver.deadline
            && let Some(head) = self.oldest()
            // Where some command ended meanwhile, nothing was more than slow.
            && done == self.done()
        {
            self.shared.fail(self.stuck(head));
        }
        self.failed()
    }

    /// For how long other ranks have completed nothing either.
    fn others_still(&self) -> Duration {
        let rank = self.shared.share.rank();
        rank.map_or(Duration::MAX, |rank| rank.control().still())
    }

    /// Commands of all lanes that ended.
    fn done(&self) -> u64 {
        self.shared.lanes.iter().map(|lane| lane.done.value()).sum()
    }

    /// Names what holds everything up.
    fn stuck(&self, Head { period, action, queue }: Head) -> CpuError {
        if let Some(rank) = self.shared.share.rank() {
            return rank.ended(rank.control().late());
        }
        let queue = describe(self.shared.queues.queue(queue));
        CpuError::Stuck { action, period, queue, deadline: self.driver.deadline }
    }

    /// What stands at the head of its queue for longest.
    fn oldest(&self) -> Option<Head> {
        let shared = self.shared;
        let head = |thread: usize| {
            let lane = &shared.lanes[thread];
            let next = lane.done.value() + 1;
            let waiting = next <= lane.issued.value();
            let Command { action, period, .. } =
                waiting.then(|| lane.commands.read(next))?;
            Some(Head { period, action, queue: shared.queues.home(thread).0 })
        };
        let heads = || (0..shared.lanes.len()).filter_map(head);
        // One feed at a time: whatever waits for it is not what is stuck.
        let feeding = shared.feeding.load(Ordering::Relaxed).checked_sub(1);
        let busy = heads().find(|head| Some(head.action.index()) == feeding);
        busy.or_else(|| heads().min())
    }
}

/// A command that is not done, at the head of a queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    period: i64,
    action: ActionId,
    queue: usize,
}
