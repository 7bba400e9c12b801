//! Parameters, gradients, optimizer state and updates of one stage: who holds which version, and
//! how it gets there. One file per way.

mod axis;
mod local;
mod mirror;
mod norm;
mod pool;
mod shards;
mod workers;

use super::{
    LowerError,
    dense::Dense,
    draft::{Draft, DraftWork, Hold, Instance, Moment, Slotting},
    site::Site,
};
use crate::{Normed, Portion, UpdateForm, update};
pub(crate) use norm::Bounded;
use roundelay_schedule::{
    BufferId, Id, MicroBatch, Pass, Placement, RingId, Role, Routine, RoutineId, Stage,
    States, Subject,
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

impl Addition {
    /// Of the n-th gradient that is added up in one place, counted from zero.
    fn nth(number: usize) -> Self {
        if number == 0 { Self::First } else { Self::Next }
    }
}

/// Lays out the state of a stage, and adds its moves and its update.
pub(crate) fn lay_out(
    draft: &mut Draft<'_>,
    stage: Stage,
) -> Result<StageRows, LowerError> {
    let plan = draft.plan;
    let sync = plan.rule.is_synchronous();
    let mirrored = plan.is_mirrored();
    let folded = !draft.sites.batch_axes().is_empty();
    match (plan.placement, plan.states) {
        (_, States::Handoff) => workers::handoff(draft, stage),
        (_, States::Zero1 | States::Zero2 | States::Zero3 | States::Hsdp) => {
            shards::lay_out(draft, stage)
        }
        (_, States::Replicated) if mirrored => mirror::lay_out(draft, stage),
        (Placement::Data, States::Replicated) if !sync => {
            workers::replicated(draft, stage)
        }
        (Placement::Shared, States::Replicated) if !sync => pool::lay_out(draft, stage),
        (_, States::Replicated) if folded => axis::lay_out(draft, stage),
        (_, States::Replicated) => local::lay_out(draft, stage),
    }
}

/// Adds the updates that wait for the norm of all stages.
pub(crate) fn close(draft: &mut Draft<'_>) -> Result<(), LowerError> {
    let stages = std::mem::take(&mut draft.bounded);
    norm::close(draft, &stages)
}

/// The rows that an update binds.
#[derive(Clone, Copy)]
pub(crate) struct UpdateRows {
    pub(crate) parameter: BufferId,
    pub(crate) gradient: BufferId,
    pub(crate) optimizer: Option<BufferId>,
    /// Number of shards; one for whole arrays.
    pub(crate) shards: u64,
}

impl UpdateRows {
    /// Those of whole arrays.
    fn whole(
        parameter: BufferId,
        gradient: BufferId,
        optimizer: Option<BufferId>,
    ) -> Self {
        Self { parameter, gradient, optimizer, shards: 1 }
    }
}

impl Draft<'_> {
    /// How a version follows another on a buffer: in place when there is one slot.
    fn update_form(&self, parameter: BufferId) -> UpdateForm {
        match self.buffers[parameter].slots {
            Slotting::PerStep(1) | Slotting::InTurn(_) => UpdateForm::InPlace,
            Slotting::PerStep(_) | Slotting::PerMicroBatch => UpdateForm::Next,
        }
    }

    /// Adds the update of a stage right after its last pass that makes its gradient, where `owner` is
    /// handled.
    fn push_last_update(
        &mut self,
        stage: Stage,
        owner: MicroBatch,
        rows: &UpdateRows,
    ) -> Result<(), LowerError> {
        let moment = self.released(stage, self.last());
        let site = self.sites.site(stage, owner, moment.lag());
        self.push_update(stage, site, moment, rows)
    }

    /// Adds the update of a stage, where its gradient is there: at once, or with those of the stages
    /// that have one norm with it.
    pub(crate) fn push_update(
        &mut self,
        stage: Stage,
        site: Site,
        gradient: Moment,
        rows: &UpdateRows,
    ) -> Result<(), LowerError> {
        if !self.is_bounded(rows.shards) {
            self.push_step(stage, site, gradient, rows, None);
            return Ok(());
        }
        self.bound(Bounded { stage, site, gradient, rows: *rows, split: None })
    }

    /// Adds an update that bounds a norm of which its gradient is a part.
    fn bound(&mut self, bounded: Bounded) -> Result<(), LowerError> {
        if !self.plan.has_joint_norm() {
            return norm::close(self, &[bounded]);
        }
        let gradient = bounded.gradient.closing();
        self.bounded.push(Bounded { gradient, ..bounded });
        Ok(())
    }

    /// θ_t, the whole sum and the optimizer's state to θ_{t+1}; with the square of the norm, where
    /// that is given.
    fn push_step(
        &mut self,
        stage: Stage,
        site: Site,
        moment: Moment,
        rows: &UpdateRows,
        squares: Option<BufferId>,
    ) {
        let form = self.update_form(rows.parameter);
        let (code, job) = (self.code, self.job);
        let n = self.plan.all_micro_batches();
        let portion = self.portion(rows.shards);
        let routine = update(code, stage, &job.optimizer, n, job.dtype, form, portion);
        let routine = self.routines.push(routine);
        let at =
            |buffer: BufferId, offset| Hold { buffer, instance: Instance::Step(offset) };
        let known = [
            (Role::Parameter, at(rows.parameter, 0)),
            (Role::NextParameter, at(rows.parameter, 1)),
            (Role::Gradient, at(rows.gradient, 0)),
        ];
        let squares = squares.map(|squares| (Role::Squares, at(squares, 0)));
        let optimizer = rows.optimizer.map(|state| (Role::Optimizer, at(state, 0)));
        let known: Vec<(Role, Hold)> =
            known.into_iter().chain(squares).chain(optimizer).collect();
        let bound = self.bind_state(site, routine, &known);
        self.push_launch(site, moment, routine, None, bound);
    }

    /// Adds what adds a received gradient sum of a stage to the one of a device, both in this many shards.
    fn push_combine(
        &mut self,
        (stage, shards): (Stage, u64),
        site: Site,
        moment: Moment,
        [sum, received]: [Hold; 2],
    ) {
        let routine = self.combination(stage, shards);
        let known = [(Role::Gradient, sum), (Role::Received, received)];
        let bound = self.bind_state(site, routine, &known);
        self.push_launch(site, moment, routine, None, bound);
    }

    /// The routine that adds up two gradient sums of a stage, each in this many shards.
    fn combination(&mut self, stage: Stage, shards: u64) -> RoutineId {
        let known = self
            .routines
            .iter()
            .find(|(_, routine)| routine.pass == Pass::Combine && routine.stage == stage);
        let known = known.map(|(id, _)| id);
        known.unwrap_or_else(|| {
            let whole = self.code.stages[stage].combine.clone();
            self.routines.push(part_of(whole, shards))
        })
    }

    /// Binds the rows of a routine that works on nothing but the state of a stage.
    fn bind_state(
        &mut self,
        site: Site,
        routine: RoutineId,
        known: &[(Role, Hold)],
    ) -> Vec<Hold> {
        self.bind(site, routine, |role| {
            let found = known.iter().find(|(known, _)| *known == role);
            found.map(|(_, hold)| *hold).expect("each role of it has a row")
        })
    }

    /// What a device has of a stage's state, in this many shards.
    fn portion(&self, shards: u64) -> Portion {
        let is_joint = self.plan.has_joint_norm();
        let normed = if is_joint { Normed::Together } else { Normed::Alone };
        Portion { shards, tensor: self.plan.tensor, normed }
    }

    /// Whether a norm is bounded of which a device with one of this many shards has a part.
    fn is_bounded(&self, shards: u64) -> bool {
        self.job.optimizer.clip > 0.0 && !self.portion(shards).is_whole()
    }

    /// Adds a launch.
    pub(crate) fn push_launch(
        &mut self,
        site: Site,
        moment: Moment,
        routine: RoutineId,
        micro_batch: Option<MicroBatch>,
        rows: impl IntoIterator<Item = Hold>,
    ) {
        let Site { at, lane } = site;
        let place = |holds: &[Hold]| u32::try_from(holds.len()).expect("rows are few");
        let first = place(&self.holds);
        self.holds.extend(rows);
        let rows = first..place(&self.holds);
        self.push(moment, DraftWork::Launch { at, lane, routine, micro_batch, rows });
    }

    /// The optimizer state's buffer of a stage, if the optimizer keeps any.
    pub(crate) fn optimizer(&mut self, home: RingId, stage: Stage) -> Option<BufferId> {
        let keeps = self.job.optimizer_width() > 0;
        keeps.then(|| self.state_buffer(home, Subject::Optimizer, stage, 1))
    }

    /// Updates that the parameters of a pass lag behind.
    pub(crate) fn delay(&self, stage: Stage, i: MicroBatch) -> i32 {
        let stage = self.plan.whole_stage(stage) as usize;
        let delay = self.plan.delays.delay(i.index(), stage);
        i32::try_from(delay).expect("a delay is a small number")
    }
}

/// A routine on shards: every array of it is one of as many equal parts.
fn part_of(mut routine: Routine, parts: u64) -> Routine {
    routine.arguments.iter_mut().for_each(|argument| argument.size.0 /= parts);
    let operands = routine.calls.iter_mut().flat_map(|call| &mut call.operands);
    let extents = operands.flat_map(|operand| operand.shape.iter_mut());
    extents.for_each(|extent| *extent /= parts);
    routine
}

/// The row that holds the version which a pass of this delay reads.
pub(crate) fn version(buffer: BufferId, delay: i32) -> Hold {
    Hold { buffer, instance: Instance::Step(-delay) }
}
