//! One replay on a GPU, as the machine that the replay loop drives.

use super::{
    CudaError, Engine,
    bounce::{Unreached, wait},
    driver::DriverError,
    issue::Turn,
    lanes::Mark,
    periods::{Mode, Periods},
};
use crate::{
    machine::{Loss, describe},
    ranks::{Position, Share, Trouble},
};
use roundelay_schedule::{Instance, Issue, Machine};
use std::ops::ControlFlow;

/// The GPU during one replay.
pub(super) struct Session<'a> {
    pub(super) engine: &'a mut Engine,
    /// The period that begins next.
    pub(super) next: i64,
    pub(super) listener: &'a mut dyn FnMut(Loss),
    pub(super) goes_on: &'a mut dyn FnMut() -> bool,
}

impl Machine for Session<'_> {
    type Mark = Mark;
    type Error = CudaError;

    fn issue(&mut self, issued: Issue<'_>, after: &[Mark]) -> Result<Mark, CudaError> {
        let engine = &mut *self.engine;
        let physical = engine.schedule.queue(issued.action, issued.period);
        let queue = engine.queues.number(physical);
        let Issue { id, action, period, instance } = issued;
        let turn = Turn { id, action, period, queue, instance };
        if let Instance::Execute(_) = instance {
            engine.count(&turn);
            let handed = engine.hand_over(&turn);
            handed.map_err(|reason| engine.failed(&turn, reason))?;
        }
        let mark = engine.mark(&turn);
        if engine.periods.open().1 != Mode::Launched {
            let given = engine.give(&turn, after, mark);
            given.map_err(|unreached| engine.halted(&turn, unreached))?;
            engine.look_while_giving(&turn);
        }
        Ok(mark)
    }

    /// Closes the period before and waits for the one before that, whose half of the host's memory
    /// is written now.
    fn begin(&mut self) -> Result<ControlFlow<()>, CudaError> {
        self.close()?;
        let period = self.next;
        self.next += 1;
        if let Some(before) = self.engine.periods.before(period) {
            self.finish(before)?;
        }
        let goes_on = (self.goes_on)();
        let goes_on = self.agree(goes_on)?;
        let engine = &mut *self.engine;
        if !goes_on {
            engine.periods.stop();
        }
        engine.staging.write_scalars(&engine.schedule, period, Periods::half(period));
        let Engine { periods, lanes, staging, .. } = engine;
        let begun = periods.begin(period, lanes, staging);
        begun
            .map_err(|reason| self.engine.stopped("the beginning of a period", reason))?;
        match goes_on {
            true => Ok(ControlFlow::Continue(())),
            false => Ok(ControlFlow::Break(())),
        }
    }

    fn rest(&mut self) -> Result<(), CudaError> {
        self.close()?;
        while let Some(period) = self.engine.periods.oldest() {
            self.finish(period)?;
        }
        self.agree(true).map(drop)
    }
}

impl Session<'_> {
    fn close(&mut self) -> Result<(), CudaError> {
        let engine = &mut *self.engine;
        let ended = match engine.share {
            Share::Whole => Ok(()),
            Share::Part(_) => engine.end_messages(),
        };
        if let Err(unreached) = ended {
            return Err(engine.unreached(self.next - 1, unreached));
        }
        let ended = engine.end_period();
        ended.map_err(|reason| self.engine.stopped("the end of a period", reason))
    }

    /// Waits until a period is done, and hands its losses on.
    fn finish(&mut self, period: i64) -> Result<(), CudaError> {
        let engine = &mut *self.engine;
        let waited = engine.wait_to_end(period);
        waited.map_err(|unreached| engine.unreached(period, unreached))?;
        engine.periods.finished(period);
        let (schedule, half) = (&engine.schedule, Periods::half(period));
        match &mut engine.share {
            Share::Whole => engine.staging.hand_on(schedule, half, self.listener),
            Share::Part(rank) => {
                let mut keep = |loss| rank.keep(loss);
                engine.staging.hand_on(schedule, half, &mut keep);
            }
        }
        Ok(())
    }

    /// Whether all ranks want to go on, and the losses that each of them has.
    fn agree(&mut self, goes_on: bool) -> Result<bool, CudaError> {
        let Share::Part(rank) = &mut self.engine.share else { return Ok(goes_on) };
        Ok(rank.agree(goes_on, self.listener)?)
    }
}

impl Engine {
    /// An action that could not be issued, or at which something else came up.
    fn halted(&self, turn: &Turn<'_>, unreached: Unreached) -> CudaError {
        match unreached {
            Unreached::Broken(reason) => self.failed(turn, reason),
            Unreached::Late | Unreached::Called(_) => {
                self.unreached(turn.period, unreached)
            }
        }
    }

    /// Something besides actions that was refused, unless the device had failed before.
    fn stopped(&self, what: &str, reason: DriverError) -> CudaError {
        match self.lost() {
            Some(period) => self.unreached(period, reason.into()),
            None => self.refused(what, reason),
        }
    }

    /// An action that could not be issued, unless the device had failed before.
    fn failed(&self, turn: &Turn<'_>, reason: DriverError) -> CudaError {
        if let Some(period) = self.lost() {
            return self.unreached(period, reason.into());
        }
        CudaError::Failed {
            action: turn.id,
            period: turn.period,
            queue: describe(self.queues.queue(turn.queue)),
            device: self.device.facts().to_string(),
            reason,
        }
    }

    /// What is said of a period that does not end.
    fn unreached(&self, period: i64, unreached: Unreached) -> CudaError {
        let oldest = self.periods.current().unwrap_or(period);
        let (action, period) = self.first_unfinished(oldest);
        let queue = self.schedule.queue(&self.schedule.actions[action], period);
        let queue = describe(queue);
        let device = self.device.facts().to_string();
        match (unreached, &self.share) {
            (Unreached::Broken(reason), _) => {
                CudaError::Broken { action, period, queue, device, reason }
            }
            (Unreached::Called(trouble), Share::Part(rank)) => rank.ended(*trouble),
            (Unreached::Late, Share::Part(rank)) => rank.late(),
            (Unreached::Late | Unreached::Called(_), Share::Whole) => {
                let deadline = self.deadline;
                CudaError::Stuck { action, period, queue, device, deadline }
            }
        }
    }

    /// Waits until a period is done, for as long as something is completed; with other ranks, on any
    /// of them.
    fn wait_to_end(&self, period: i64) -> Result<(), Unreached> {
        let mut left = self.deadline;
        loop {
            let ended = self.periods.ended(period);
            let waited = wait(ended, left, &mut || self.watch(period));
            let more = match (&waited, &self.share) {
                (Err(Unreached::Late), Share::Part(rank)) => {
                    rank.among.control.more_time()
                }
                (Err(Unreached::Late), Share::Whole) => {
                    self.progress.more_time(self.deadline)
                }
                (Ok(()) | Err(Unreached::Broken(_) | Unreached::Called(_)), _) => None,
            };
            match more {
                Some(more) => left = more,
                None => return waited,
            }
        }
    }

    /// Looks where a period is that is waited for, and after the other ranks.
    fn watch(&self, period: i64) -> Result<(), Trouble> {
        let looked = self.look_while_waiting(period);
        let Share::Part(rank) = &self.share else { return Ok(()) };
        if looked {
            let (action, period) = self.first_unfinished(period);
            rank.among.control.at(Position::Replaying { period, action });
        }
        rank.peers.check()
    }
}
