//! One place computes with a stage and keeps its state: a ring of 1 + τ versions, nothing moves.

use super::{StageRows, Update, UpdateRows};
use crate::lower::{LowerError, draft::Draft};
use roundelay_schedule::Stage;

pub(super) fn lay_out(
    draft: &mut Draft<'_>,
    stage: Stage,
) -> Result<StageRows, LowerError> {
    let (rows, state) = kept(draft, stage);
    let update = Update::last(draft, (stage, draft.last()), state);
    draft.push_update(update)?;
    Ok(rows)
}

/// The whole state of a stage on its ring; gradients are added up where they are made.
pub(super) fn kept(draft: &mut Draft<'_>, stage: Stage) -> (StageRows, UpdateRows) {
    let ring = draft.sites.ring(stage, draft.last());
    let versions = 1 + draft.plan.staleness(stage);
    let state = draft.whole_state(ring, stage, versions);
    let all = draft.order.micro_batches().enumerate();
    (StageRows::alike(draft, stage, &state, all), state)
}
