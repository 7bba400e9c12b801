//! One replay on a GPU, as the machine that the replay loop drives.

use super::{
    CudaError, Engine,
    bounce::{Unreached, wait},
    driver::{DriverError, State},
    issue::Turn,
    lanes::Mark,
    periods::{Mode, Periods},
    rank::Share,
};
use crate::{
    machine::{Loss, describe},
    ranks::Trouble,
};
use roundelay_schedule::{Action, ActionId, Instance, Issue, Machine};
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
            .map_err(|reason| self.engine.refused("the beginning of a period", reason))?;
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
        if let Err(unreached) = engine.end_messages() {
            return Err(engine.unreached(self.next - 1, unreached));
        }
        let ended = engine.end_period();
        ended.map_err(|reason| self.engine.refused("the end of a period", reason))
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

    /// An action that could not be issued.
    fn failed(&self, turn: &Turn<'_>, reason: DriverError) -> CudaError {
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
        let (action, queue) = self.first_unfinished(period);
        let device = self.device.facts().to_string();
        match (unreached, &self.share) {
            (Unreached::Broken(reason), _) => {
                CudaError::Broken { action, period, queue, device, reason }
            }
            (Unreached::Called(trouble), Share::Part(rank)) => rank.ended(*trouble),
            (Unreached::Late, Share::Part(rank)) => rank.late(),
            (Unreached::Late | Unreached::Called(_), Share::Whole) => {
                let patience = self.patience;
                CudaError::Stuck { action, period, queue, device, patience }
            }
        }
    }

    /// Waits until a period is done; with other ranks for as long as something is completed on any.
    fn wait_to_end(&self, period: i64) -> Result<(), Unreached> {
        let mut patience = self.patience;
        loop {
            let ended = self.periods.ended(period);
            let waited = wait(ended, patience, &mut || self.watch(period));
            let more = match (&waited, &self.share) {
                (Err(Unreached::Late), Share::Part(rank)) => {
                    rank.among.control.more_time()
                }
                (Ok(()) | Err(_), Share::Whole | Share::Part(_)) => None,
            };
            match more {
                Some(more) => patience = more,
                None => return waited,
            }
        }
    }

    /// Looks after the other ranks while a period is waited for.
    fn watch(&self, period: i64) -> Result<(), Trouble> {
        match &self.share {
            Share::Whole => Ok(()),
            Share::Part(rank) => rank.watch(|| self.position(period)),
        }
    }

    /// The first action of a period whose end is not seen, and its queue in words. In a graph only
    /// the graph's end is seen.
    pub(super) fn first_unfinished(&self, period: i64) -> (ActionId, String) {
        let actions = || self.schedule.actions.iter();
        let unfinished = |(id, action): &(ActionId, &Action)| match self.share {
            Share::Whole => self.is_open_whole(*id, action, period),
            Share::Part(_) => self.is_open(*id, period),
        };
        let found = actions().find(unfinished);
        let (id, action) =
            found.or_else(|| actions().next()).expect("whatever runs has actions");
        (id, describe(self.schedule.queue(action, period)))
    }

    /// Whether an instance is not known to be done; what nobody waits for is.
    fn is_open_whole(&self, id: ActionId, action: &Action, period: i64) -> bool {
        let queue = self.queues.number(self.schedule.queue(action, period));
        let width = self.queues.threads_of(queue).len();
        let Some(first) = self.marked.first(id, period, width) else { return false };
        let mut events = (first..first + width).map(|event| self.marked.event(event));
        events.any(|event| event.state() != Ok(State::Passed))
    }
}
