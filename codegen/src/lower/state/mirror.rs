//! Two pipelines in opposite directions: two devices hold a stage. The one that takes the last
//! micro-batch gets the other's sum, updates, and gives the new version back before its first
//! use.

use super::{Addition, StageRows, UpdateRows, version, workers::carry};
use crate::lower::{
    LowerError,
    draft::{Draft, End, Moment, Side, Slotting},
};
use roundelay_schedule::{
    BufferId, Content, MicroBatch, Pass, Slice, Stage, Subject, Sum,
};

pub(super) fn lay_out(
    draft: &mut Draft<'_>,
    stage: Stage,
) -> Result<StageRows, LowerError> {
    let ring = draft.sites.ring(stage, draft.last());
    let parameter = draft.state_buffer(ring, Subject::Parameter, stage, 1);
    let gradient = draft.state_buffer(ring, Subject::Gradient, stage, 1);
    let optimizer = draft.optimizer(ring, stage);
    let streams = draft.sites.visitors(ring);
    let mut rows = StageRows::default();
    for stream in &streams {
        for (number, i) in stream.iter().enumerate() {
            let addition = Addition::nth(number);
            rows.gradient.insert(*i, (version(gradient, 0), addition));
            for pass in draft.order.passes(stage) {
                rows.parameter.insert((*pass, *i), version(parameter, 0));
            }
        }
    }
    let [other, updating] = [&streams[0], &streams[1]].map(Vec::as_slice);
    give_back(draft, stage, parameter, other)?;
    let summed = join(draft, stage, gradient, [other, updating])?;
    let site = draft.sites.site(stage, draft.last(), 0);
    let bound = UpdateRows::whole(parameter, gradient, optimizer);
    draft.push_update(stage, site, draft.following(summed), &bound)?;
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
    let ends = [draft.last(), other[0]].map(|i| end(draft, stage, i, parameter));
    carry(draft, moment, 0, ends, Content::Parameter(stage))?;
    Ok(())
}

/// Where the device of a micro-batch has version 0 in a buffer.
fn end(draft: &Draft<'_>, stage: Stage, i: MicroBatch, buffer: BufferId) -> End {
    End { at: draft.sites.site(stage, i, 0).at, hold: version(buffer, 0) }
}

/// Sends the other device's sum and adds it to the sum of the device that updates; says when it is there.
fn join(
    draft: &mut Draft<'_>,
    stage: Stage,
    gradient: BufferId,
    [other, updating]: [&[MicroBatch]; 2],
) -> Result<Moment, LowerError> {
    let ring = draft.sites.ring(stage, draft.last());
    let subject = Subject::Gradient(stage, Slice::Whole);
    let size = draft.state_size(subject);
    let received = draft.buffer(ring, subject, 1, size, Slotting::PerStep(1));
    let done = |draft: &Draft<'_>, stream: &[MicroBatch]| {
        let each = stream.iter().map(|i| draft.released(stage, *i));
        each.max().expect("each direction has micro-batches")
    };
    let sent = done(draft, other);
    let ends =
        [end(draft, stage, other[0], gradient), end(draft, stage, updating[0], received)];
    let sum = Box::new(Sum::list(other.iter().copied()));
    let content = Content::Gradient(stage, sum);
    let arrived = carry(draft, sent, 0, ends, content)?;
    let moment = draft.following(arrived.max(done(draft, updating)));
    let site = draft.sites.site(stage, updating[0], 0);
    let sums = [gradient, received].map(|sum| version(sum, 0));
    draft.push_combine((stage, 1), site, moment, sums);
    Ok(moment)
}
