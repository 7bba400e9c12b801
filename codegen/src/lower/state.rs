//! Parameters, gradients, optimizer state and updates of one stage: who holds which version, and
//! how it gets there. One file per way.

mod axis;
mod local;
mod mirror;
mod pool;
mod shards;
mod workers;

use super::{
    LowerError,
    dense::Dense,
    draft::{Draft, DraftWork, Hold, Instance, Key, Side, Slotting},
    site::Site,
};
use crate::{Portion, UpdateForm, norm, update};
use roundelay_schedule::{
    BufferId, Bytes, Fold, Id, MicroBatch, Pass, Placement, RingId, Role, RoutineId,
    Slice, Stage, States, Subject,
};

/// Where the passes of one stage find its state.
#[derive(Debug, Default)]
pub(crate) struct StageRows {
    /// Parameters that a pass on a micro-batch reads.
    pub(crate) parameter: Dense<(Pass, MicroBatch), Hold>,
    /// Gradient sum that a micro-batch's backward adds to.
    pub(crate) gradient: Dense<MicroBatch, (Hold, Addition)>,
}

/// What a micro-batch's gradient does to the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addition {
    /// It starts it.
    First,
    /// It adds to it.
    Next,
}

/// Lays out the state of a stage, and adds its moves and its update.
pub(crate) fn lay_out(
    draft: &mut Draft<'_>,
    stage: Stage,
) -> Result<StageRows, LowerError> {
    let plan = draft.plan;
    let sync = plan.rule.is_synchronous();
    let mirrored =
        plan.placement == Placement::Pipeline && plan.order.fold() == Fold::Mirror;
    let splits = match plan.placement {
        Placement::Accumulate | Placement::Data | Placement::Pipeline => sync,
        Placement::Concurrent | Placement::Shared => false,
    };
    let folded = !draft.sites.batch_axes().is_empty();
    match (plan.placement, plan.states) {
        (_, States::Replicated) if mirrored && !folded => mirror::lay_out(draft, stage),
        _ if mirrored => Err(unsupported(draft)),
        (Placement::Data, States::Handoff) if !sync => workers::handoff(draft, stage),
        (_, States::Zero1 | States::Zero2 | States::Zero3 | States::Hsdp)
            if splits && folded =>
        {
            shards::lay_out(draft, stage)
        }
        (_, states) if states != States::Replicated => Err(unsupported(draft)),
        (Placement::Data, _) if !sync => workers::replicated(draft, stage),
        (Placement::Shared, _) if !sync => pool::lay_out(draft, stage),
        _ if folded => axis::lay_out(draft, stage),
        _ => Ok(local::lay_out(draft, stage)),
    }
}

fn unsupported(draft: &Draft<'_>) -> LowerError {
    let plan = draft.plan;
    LowerError::States { placement: plan.placement, rule: plan.rule, states: plan.states }
}

/// The rows that an update binds.
#[derive(Clone, Copy)]
pub(crate) struct UpdateRows {
    pub(crate) parameter: BufferId,
    pub(crate) gradient: BufferId,
    pub(crate) optimizer: Option<BufferId>,
    /// Number of shards; one for whole arrays.
    pub(crate) shards: u64,
    /// The square of the norm of the whole gradient, where shards have added theirs up.
    pub(crate) squares: Option<BufferId>,
}

impl Draft<'_> {
    /// How a version follows another on a buffer: in place when there is one slot.
    fn update_form(&self, parameter: BufferId) -> UpdateForm {
        match self.buffers[parameter].slots {
            Slotting::PerStep(1) | Slotting::InTurn(_) => UpdateForm::InPlace,
            Slotting::PerStep(_) | Slotting::PerMicroBatch => UpdateForm::Next,
        }
    }

    /// Adds the update of a stage: θ_t, the whole sum and the optimizer's state to θ_{t+1}.
    pub(crate) fn push_update(
        &mut self,
        stage: Stage,
        site: Site,
        (key, lag): (Key, u32),
        rows: &UpdateRows,
    ) {
        let form = self.update_form(rows.parameter);
        let (code, job) = (self.code, self.job);
        let n = self.plan.all_micro_batches();
        let portion = self.portion(rows.shards);
        let routine = update(code, stage, &job.optimizer, n, job.dtype, form, portion);
        let routine = self.routines.push(routine);
        let squares = match (rows.squares, self.clips(portion)) {
            (None, true) => {
                let (moment, slice) = ((key, lag), Slice::Whole);
                Some(self.push_norm(stage, site, moment, (rows.gradient, slice), portion))
            }
            (squares, _) => squares,
        };
        let at =
            |buffer: BufferId, offset| Hold { buffer, instance: Instance::Step(offset) };
        let bound = self.bind(site, routine, |role| match role {
            Role::NextParameter => at(rows.parameter, 1),
            Role::Gradient => at(rows.gradient, 0),
            Role::Squares => at(squares.expect("a norm that is bounded is known"), 0),
            Role::Optimizer => {
                at(rows.optimizer.expect("an update with state has a place for it"), 0)
            }
            _ => at(rows.parameter, 0),
        });
        self.push_launch(site, (key, lag), routine, None, bound);
    }

    /// What a device has of a stage's state, in so many shards.
    pub(crate) fn portion(&self, shards: u64) -> Portion {
        Portion { shards, tensor: self.plan.tensor }
    }

    /// Whether a norm is bounded of which the devices have parts.
    pub(crate) fn clips(&self, portion: Portion) -> bool {
        self.job.optimizer.clip > 0.0 && !portion.is_whole()
    }

    /// Adds the search for what a slice of a gradient has of the square of its norm; gives the row.
    pub(crate) fn push_norm(
        &mut self,
        stage: Stage,
        site: Site,
        moment: (Key, u32),
        (gradient, slice): (BufferId, Slice),
        portion: Portion,
    ) -> BufferId {
        let (code, dtype) = (self.code, self.job.dtype);
        let n = self.plan.all_micro_batches();
        let routine = self.routines.push(norm(code, stage, n, dtype, portion));
        let squares = self.squares(self.buffers[gradient].home, stage, slice);
        let bound = self.bind(site, routine, |role| match role {
            Role::Squares => version(squares, 0),
            _ => version(gradient, 0),
        });
        self.push_launch(site, moment, routine, None, bound);
        squares
    }

    /// Room for the square of a norm.
    pub(crate) fn squares(
        &mut self,
        home: RingId,
        stage: Stage,
        slice: Slice,
    ) -> BufferId {
        let size = Bytes(self.job.dtype.wide_size());
        let subject = Subject::Squares(stage, slice);
        self.buffer(home, subject, 0, size, Slotting::PerStep(1))
    }

    /// Adds a launch.
    pub(crate) fn push_launch(
        &mut self,
        site: Site,
        (key, lag): (Key, u32),
        routine: RoutineId,
        micro_batch: Option<MicroBatch>,
        rows: impl IntoIterator<Item = Hold>,
    ) {
        let Site { at, lane } = site;
        let place = |holds: &[Hold]| u32::try_from(holds.len()).expect("rows are few");
        let first = place(&self.holds);
        self.holds.extend(rows);
        let rows = first..place(&self.holds);
        self.push(key, lag, DraftWork::Launch { at, lane, routine, micro_batch, rows });
    }

    /// The optimizer state's buffer of a stage, if the optimizer keeps any.
    pub(crate) fn optimizer(&mut self, home: RingId, stage: Stage) -> Option<BufferId> {
        let keeps = self.job.optimizer_width() > 0;
        keeps.then(|| self.state_buffer(home, Subject::Optimizer, stage, 1))
    }

    /// Right after a stage's last pass that makes its gradient: the key and the lag.
    pub(crate) fn after_last(&self, stage: Stage) -> (Key, u32) {
        let (slot, found) =
            self.order.find(self.order.closing(stage), stage, self.last());
        (self.key(slot, Side::After), found.lag)
    }

    /// Updates that the parameters of a pass lag behind.
    pub(crate) fn delay(&self, stage: Stage, i: MicroBatch) -> i32 {
        let stage = self.plan.whole_stage(stage) as usize;
        let delay = self.plan.delays.delay(i.index(), stage);
        i32::try_from(delay).expect("a delay is a small number")
    }
}

/// The row that holds the version which a pass of this delay reads.
pub(crate) fn version(buffer: BufferId, delay: i32) -> Hold {
    Hold { buffer, instance: Instance::Step(-delay) }
}
