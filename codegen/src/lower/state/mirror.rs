//! Two pipelines in opposite directions: two devices hold a stage. The one that takes the last
//! micro-batch gets the other's sum, updates, and gives the new version back before its first
//! use.

use super::{StageRows, Update, end, version};
use crate::lower::{
    LowerError,
    draft::{Draft, End, Moment, Side},
};
use roundelay_schedule::{BufferId, Content, MicroBatch, Pass, Stage, Subject, Sum};

pub(super) fn lay_out(
    draft: &mut Draft<'_>,
    stage: Stage,
) -> Result<StageRows, LowerError> {
    let ring = draft.sites.ring(stage, draft.last());
    let state = draft.whole_state(ring, stage, 1);
    let streams = draft.sites.visitors(ring);
    let numbered = streams.iter().flat_map(|stream| stream.iter().copied().enumerate());
    let rows = StageRows::alike(draft, stage, &state, numbered);
    let streams = [&streams[0], &streams[1]].map(Vec::as_slice);
    give_back(draft, stage, state.parameter, streams[0])?;
    let summed = join(draft, stage, state.gradient, streams)?;
    let moment = draft.following(summed);
    let update = Update::new(draft, (stage, draft.last()), moment, state);
    draft.push_update(update)?;
    Ok(rows)
}

/// The other device's copy is of the version before until its first micro-batch comes.
fn give_back(
    draft: &mut Draft<'_>,
    stage: Stage,
    parameter: BufferId,
    other: &[MicroBatch],
) -> Result<(), LowerError> {
    let moment = draft.beside(Pass::Forward, stage, other[0], Side::Before);
    let ends = [draft.last(), other[0]].map(|i| end_of(draft, stage, i, parameter));
    draft.carry(moment, ends, Content::Parameter(stage))?;
    Ok(())
}

/// Where the device of a micro-batch has version 0 in a buffer.
fn end_of(draft: &Draft<'_>, stage: Stage, i: MicroBatch, buffer: BufferId) -> End {
    end(draft.sites.site(stage, i, 0).at, buffer)
}

/// Sends the other device's sum and adds it to the sum of the device that updates; says when it is there.
fn join(
    draft: &mut Draft<'_>,
    stage: Stage,
    gradient: BufferId,
    [other, updating]: [&[MicroBatch]; 2],
) -> Result<Moment, LowerError> {
    let ring = draft.sites.ring(stage, draft.last());
    let received = draft.spare_buffer(ring, Subject::Gradient, stage, 1);
    let done = |draft: &Draft<'_>, stream: &[MicroBatch]| {
        let each = stream.iter().map(|i| draft.released(stage, *i));
        each.max().expect("each direction has micro-batches")
    };
    let sent = done(draft, other);
    let ends = [(other, gradient), (updating, received)]
        .map(|(stream, buffer)| end_of(draft, stage, stream[0], buffer));
    let sum = Box::new(Sum::list(other.iter().copied()));
    let arrived = draft.carry(sent, ends, Content::Gradient(stage, sum))?;
    let moment = draft.following(arrived.max(done(draft, updating)));
    let sums = [gradient, received].map(|sum| version(sum, 0));
    draft.push_combine((stage, updating[0]), moment, sums, 1);
    Ok(moment)
}
