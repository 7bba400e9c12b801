//! One place computes with a stage and keeps its state: a ring of 1 + τ versions, nothing moves.

use super::{Addition, StageRows, UpdateRows, version};
use crate::lower::{LowerError, draft::Draft};
use roundelay_schedule::{Id, Stage, Subject};

pub(super) fn lay_out(
    draft: &mut Draft<'_>,
    stage: Stage,
) -> Result<StageRows, LowerError> {
    let (rows, bound) = kept(draft, stage);
    draft.push_last_update(stage, draft.last(), &bound)?;
    Ok(rows)
}

/// The whole state of a stage on its ring; gradients are added up where they are made.
pub(super) fn kept(draft: &mut Draft<'_>, stage: Stage) -> (StageRows, UpdateRows) {
    let ring = draft.sites.ring(stage, draft.last());
    let whole = draft.plan.whole_stage(stage) as usize;
    let versions = 1 + draft.plan.delays.staleness(whole);
    let parameter = draft.state_buffer(ring, Subject::Parameter, stage, versions);
    let gradient = draft.state_buffer(ring, Subject::Gradient, stage, 1);
    let optimizer = draft.optimizer(ring, stage);
    let mut rows = StageRows::default();
    for i in draft.order.micro_batches() {
        let addition = Addition::nth(i.index());
        rows.gradient.insert(i, (version(gradient, 0), addition));
        for pass in draft.order.passes(stage) {
            rows.parameter.insert((*pass, i), version(parameter, draft.delay(stage, i)));
        }
    }
    (rows, UpdateRows::whole(parameter, gradient, optimizer))
}
