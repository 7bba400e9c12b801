//! What is made of the gradients of a stage: sums that are added up, and updates.

use super::{norm, norm::Split, version};
use crate::{
    Normed, Portion, UpdateForm, combine,
    lower::{
        LowerError,
        draft::{Draft, Hold, Moment, Slotting},
        site::Site,
    },
    update,
};
use roundelay_schedule::{BufferId, MicroBatch, Role, Routine, RoutineId, Stage};

/// The rows that an update binds.
#[derive(Clone, Copy)]
pub(super) struct UpdateRows {
    pub(super) parameter: BufferId,
    pub(super) gradient: BufferId,
    pub(super) optimizer: Option<BufferId>,
    /// Number of shards; one for whole arrays.
    pub(super) shards: u64,
}

/// An update that is laid out but for the norm that it may bound.
#[derive(Clone, Copy)]
pub(crate) struct Update {
    pub(super) stage: Stage,
    pub(super) site: Site,
    /// When its gradient is there, in step 0.
    pub(super) gradient: Moment,
    pub(super) rows: UpdateRows,
    pub(super) split: Option<Split>,
}

impl Update {
    /// That of a stage where `owner` is handled.
    pub(super) fn new(
        draft: &Draft<'_>,
        (stage, owner): (Stage, MicroBatch),
        gradient: Moment,
        rows: UpdateRows,
    ) -> Self {
        let site = draft.sites.site(stage, owner, gradient.lag());
        Self { stage, site, gradient, rows, split: None }
    }

    /// The same right after the stage's last pass that makes its gradient.
    pub(super) fn last(
        draft: &Draft<'_>,
        (stage, owner): (Stage, MicroBatch),
        rows: UpdateRows,
    ) -> Self {
        let gradient = draft.released(stage, draft.last());
        Self::new(draft, (stage, owner), gradient, rows)
    }
}

impl Draft<'_> {
    /// Adds an update where its gradient is there: at once, or with those of the stages that have one
    /// norm with it.
    pub(super) fn push_update(&mut self, update: Update) -> Result<(), LowerError> {
        let is_whole = self.portion(update.rows.shards).is_whole();
        let bounds_a_part = self.job.optimizer.clip > 0.0 && !is_whole;
        if !bounds_a_part {
            self.push_step(&update, update.gradient, None);
            return Ok(());
        }
        if !self.plan.has_joint_norm() {
            return norm::close(self, &[update]);
        }
        let gradient = update.gradient.closing();
        self.bounded.push(Update { gradient, ..update });
        Ok(())
    }

    /// θ_t, the whole sum and the optimizer's state to θ_{t+1} at a moment; with the square of the norm,
    /// where that is given.
    pub(super) fn push_step(
        &mut self,
        update: &Update,
        moment: Moment,
        squares: Option<BufferId>,
    ) {
        let UpdateRows { parameter, gradient, optimizer, shards } = update.rows;
        let form = self.update_form(parameter);
        let (code, job) = (self.code, self.job);
        let n = self.plan.all_micro_batches();
        let portion = self.portion(shards);
        let stage = update.stage;
        let routine =
            self::update(code, stage, &job.optimizer, n, job.dtype, form, portion);
        let routine = self.routines.push(routine);
        let own = |role: Role, buffer: BufferId| (role, version(buffer, 0));
        let known = [
            own(Role::Parameter, parameter),
            (Role::NextParameter, version(parameter, -1)),
            own(Role::Gradient, gradient),
        ];
        let squares = squares.map(|squares| own(Role::Squares, squares));
        let optimizer = optimizer.map(|state| own(Role::Optimizer, state));
        let known: Vec<(Role, Hold)> =
            known.into_iter().chain(squares).chain(optimizer).collect();
        self.push_on_state(update.site, moment, routine, &known);
    }

    /// How a version follows another on a buffer: in place when there is one slot.
    fn update_form(&self, parameter: BufferId) -> UpdateForm {
        match self.buffers[parameter].slots {
            Slotting::PerStep(1) | Slotting::InTurn(_) => UpdateForm::InPlace,
            Slotting::PerStep(_) | Slotting::PerMicroBatch => UpdateForm::Next,
        }
    }

    /// Adds what adds a received gradient sum to the one of the device where a micro-batch is handled,
    /// both in this many shards.
    pub(super) fn push_combine(
        &mut self,
        (stage, i): (Stage, MicroBatch),
        moment: Moment,
        [sum, received]: [Hold; 2],
        shards: u64,
    ) {
        let site = self.sites.site(stage, i, moment.lag());
        let routine = self.combination(stage, shards);
        let known = [(Role::Gradient, sum), (Role::Received, received)];
        self.push_on_state(site, moment, routine, &known);
    }

    /// The routine that adds up two gradient sums of a stage, each in this many shards.
    fn combination(&mut self, stage: Stage, shards: u64) -> RoutineId {
        let Self { combinations, routines, code, job, .. } = self;
        *combinations.entry((stage, shards)).or_insert_with(|| {
            routines.push(part_of(combine(code, stage, job.dtype), shards))
        })
    }

    /// Adds a launch that works on nothing but the state of a stage.
    pub(super) fn push_on_state(
        &mut self,
        site: Site,
        moment: Moment,
        routine: RoutineId,
        known: &[(Role, Hold)],
    ) {
        let rows = self.bind(site, routine, |role| {
            let found = known.iter().find(|(known, _)| *known == role);
            found.map(|(_, hold)| *hold).expect("each role of it has a row")
        });
        self.push_launch(site, moment, routine, None, rows);
    }

    /// What a device has of a stage's state, in this many shards.
    pub(super) fn portion(&self, shards: u64) -> Portion {
        let is_joint = self.plan.has_joint_norm();
        let normed = if is_joint { Normed::Together } else { Normed::Alone };
        Portion { shards, tensor: self.plan.tensor, normed }
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
