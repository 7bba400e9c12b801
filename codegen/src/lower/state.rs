//! Parameters, gradients, optimizer state and updates of one stage: who holds which version, and
//! how it gets there. One file per way.

mod axis;
mod local;
mod mirror;
mod norm;
mod pool;
mod shards;
mod tied;
mod update;
mod workers;

use super::{
    LowerError,
    dense::Dense,
    draft::{Draft, End, Hold, Instance, Moment},
};
use roundelay_schedule::{
    BufferId, Content, MicroBatch, Pass, Place, Placement, RingId, Stage, States, Subject,
};
use std::collections::BTreeMap;
pub(crate) use tied::lay_out as tie;
pub(crate) use update::Update;
use update::UpdateRows;

/// Where the passes of one stage find its state.
#[derive(Debug, Default)]
pub(crate) struct StageRows {
    /// Parameters that a pass on a micro-batch reads.
    pub(crate) parameter: Dense<(Pass, MicroBatch), Hold>,
    /// Gradient sum that a micro-batch's backward adds to.
    pub(crate) gradient: Dense<MicroBatch, (Hold, Addition)>,
    /// Parameters of each tie of the stage, and the sum to which the stage adds.
    pub(crate) tied: BTreeMap<Stage, [Hold; 2]>,
}

/// What a micro-batch's gradient does to the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addition {
    /// It starts it.
    First,
    /// It adds to it.
    Next,
}

impl StageRows {
    /// Those of passes that all find the whole state in the same buffers. Each micro-batch has the
    /// number of its gradient among those that its device adds up, counted from zero.
    fn alike(
        draft: &Draft<'_>,
        stage: Stage,
        state: &UpdateRows,
        numbered: impl IntoIterator<Item = (usize, MicroBatch)>,
    ) -> Self {
        let mut rows = Self::default();
        for (number, i) in numbered {
            rows.adds(i, state.gradient, number);
            rows.reads(draft, (stage, i), state.parameter);
        }
        rows
    }

    /// A micro-batch's gradient is the n-th that is added up in a buffer, counted from zero.
    fn adds(&mut self, i: MicroBatch, gradient: BufferId, number: usize) {
        self.gradient.insert(i, (version(gradient, 0), Addition::nth(number)));
    }

    /// All passes of a stage on a micro-batch read their version in a buffer.
    fn reads(
        &mut self,
        draft: &Draft<'_>,
        (stage, i): (Stage, MicroBatch),
        parameter: BufferId,
    ) {
        let hold = version(parameter, draft.delay(stage, i));
        for pass in draft.order.passes(stage) {
            self.parameter.insert((*pass, i), hold);
        }
    }
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
    let updates = std::mem::take(&mut draft.bounded);
    norm::close(draft, &updates)
}

impl Draft<'_> {
    /// The whole state of a stage on a ring, with this many versions of its parameters.
    fn whole_state(&mut self, home: RingId, stage: Stage, versions: u32) -> UpdateRows {
        UpdateRows {
            parameter: self.state_buffer(home, Subject::Parameter, stage, versions),
            gradient: self.state_buffer(home, Subject::Gradient, stage, 1),
            optimizer: self.optimizer(home, stage),
            shards: 1,
        }
    }

    /// The optimizer state's buffer of a stage, if the optimizer keeps any.
    fn optimizer(&mut self, home: RingId, stage: Stage) -> Option<BufferId> {
        let keeps = self.job.optimizer_width() > 0;
        keeps.then(|| self.state_buffer(home, Subject::Optimizer, stage, 1))
    }

    /// Updates that the parameters of a pass lag behind.
    fn delay(&self, stage: Stage, i: MicroBatch) -> i32 {
        let delay = self.plan.delay(stage, i);
        i32::try_from(delay).expect("a delay is a small number")
    }

    /// Adds a transfer of version 0 at a moment, and says when it is there.
    fn carry(
        &mut self,
        moment: Moment,
        ends: [End; 2],
        content: Content,
    ) -> Result<Moment, LowerError> {
        self.carry_reaching(moment, 0, ends, content)
    }

    /// The same for a transfer that later steps also need.
    fn carry_reaching(
        &mut self,
        moment: Moment,
        reach: u32,
        ends: [End; 2],
        content: Content,
    ) -> Result<Moment, LowerError> {
        let moment = self.following(moment);
        let work = self.transfer(ends, content)?;
        self.push_reaching(moment, reach, work);
        Ok(moment)
    }
}

/// The row that holds the version which a pass of this delay reads.
fn version(buffer: BufferId, delay: i32) -> Hold {
    Hold { buffer, instance: Instance::Step(-delay) }
}

/// Where a place has version 0 in a buffer.
fn end(at: Place, buffer: BufferId) -> End {
    End { at, hold: version(buffer, 0) }
}
