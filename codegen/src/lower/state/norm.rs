//! Updates that bound a norm of which each of several has a part: stages that have one norm, shards
//! of a stage, parts of its tensors.
//!
//! From the last stage to the first one, each finds what it has of the square and adds it to what the
//! stages behind have found, as soon as its gradient is there: that is the order in which gradients come
//! back through a pipeline, so one number goes with them from device to device. Where states are split,
//! the number of each shard goes so, and at the first stage all shards add theirs up. The square of the
//! whole then goes the way on, to each device once, and behind it come the updates: a device has it
//! before the first values of the next step.

use super::{
    UpdateRows,
    axis::{Along, Exchange, Members},
    version,
    workers::carry,
};
use crate::{
    lower::{
        LowerError,
        draft::{Draft, End, Moment, Slotting},
        site::Site,
    },
    norm,
};
use roundelay_schedule::{
    Access, AxisId, BufferId, Bytes, Collective, Content, Id, Place, Role, Slice, Stage,
    Subject,
};
use std::collections::BTreeSet;

/// An update that is laid out but for the norm that it bounds.
#[derive(Clone, Copy)]
pub(crate) struct Bounded {
    pub(super) stage: Stage,
    pub(super) site: Site,
    /// When its gradient is there, in step 0.
    pub(super) gradient: Moment,
    pub(super) rows: UpdateRows,
    pub(super) split: Option<Split>,
}

/// How members add up what their shards have.
#[derive(Clone, Copy)]
pub(super) struct Split {
    pub(super) axis: AxisId,
    pub(super) inside: Along,
    /// When they do at the earliest.
    pub(super) added: Moment,
    /// When the update stands at the earliest.
    pub(super) updated: Moment,
}

/// The square of a norm, where it lies and when it is there.
#[derive(Clone, Copy)]
struct Found {
    at: Place,
    row: BufferId,
    moment: Moment,
}

impl Bounded {
    /// Where the square lies: what the stage has a part of, or the whole.
    fn row(&self, draft: &mut Draft<'_>, slice: Slice, first: Stage) -> BufferId {
        let size = Bytes(draft.job.dtype.wide_size());
        let which = first.number();
        let subject = Subject::Squares(slice);
        draft.buffer(self.site.at.ring, subject, which, size, Slotting::PerStep(1))
    }

    fn slice(&self) -> Slice {
        self.split.map_or(Slice::Whole, |split| Slice::Shard(split.axis))
    }
}

/// Adds what finds the norm that the updates of these stages bound, and the updates. The stages are
/// in order.
pub(super) fn close(draft: &mut Draft<'_>, stages: &[Bounded]) -> Result<(), LowerError> {
    let [Some(first), Some(last)] = [stages.first(), stages.last()] else {
        return Ok(());
    };
    let mut found = add_up(draft, stages, (first.stage, last.stage))?;
    let content = Content::Squares(first.stage, last.stage);
    if let Some(Split { inside, added, .. }) = first.split {
        let row = first.row(draft, Slice::Whole, first.stage);
        let (from, to) = (version(found.row, 0), version(row, 0));
        let moment = found.moment.max(added);
        let (along, kind, content) = (inside, Collective::AllReduce, content.clone());
        Exchange { along, kind, from, to, content }.push(draft, moment);
        found = Found { row, moment, ..found };
    }
    let mut known = BTreeSet::from([found.at]);
    for bounded in stages {
        let row = bounded.row(draft, Slice::Whole, first.stage);
        if known.insert(bounded.site.at) {
            let moment = hand_on(draft, found, (bounded.site.at, row), content.clone())?;
            found = Found { at: bounded.site.at, row, moment };
        }
    }
    for bounded in stages {
        let row = bounded.row(draft, Slice::Whole, first.stage);
        let earliest = bounded.split.map_or(bounded.gradient, |split| split.updated);
        let moment = found.moment.max(earliest);
        draft.push_step(bounded.stage, bounded.site, moment, &bounded.rows, Some(row));
    }
    Ok(())
}

/// What all stages have, from the last one to the first; it lies where the first one is.
fn add_up(
    draft: &mut Draft<'_>,
    stages: &[Bounded],
    (first, last): (Stage, Stage),
) -> Result<Found, LowerError> {
    let mut before: Option<(Found, Stage)> = None;
    for bounded in stages.iter().rev() {
        let row = bounded.row(draft, bounded.slice(), first);
        let (mut moment, mut access) = (bounded.gradient, Access::Write);
        if let Some((found, behind)) = before {
            let content = Content::Squares(behind, last);
            // Not before the gradient is there: a device has its messages in list order, and the way
            // back through a pipeline waits for no norm.
            let ready = Found { moment: found.moment.max(bounded.gradient), ..found };
            moment = hand_on(draft, ready, (bounded.site.at, row), content)?;
            access = Access::Update;
            if found.at != bounded.site.at {
                let members = Members::new(draft, bounded.stage);
                moment = members.a_turn_behind(draft, moment).closing();
            }
        }
        find(draft, bounded, (moment, access), row);
        before = Some((Found { at: bounded.site.at, row, moment }, bounded.stage));
    }
    let (found, _) = before.expect("there is a stage");
    Ok(found)
}

/// Gives the square to another device, unless it is there; says when it is.
fn hand_on(
    draft: &mut Draft<'_>,
    found: Found,
    (at, row): (Place, BufferId),
    content: Content,
) -> Result<Moment, LowerError> {
    if found.at == at {
        return Ok(found.moment);
    }
    let ends = [(found.at, found.row), (at, row)]
        .map(|(at, row)| End { at, hold: version(row, 0) });
    carry(draft, found.moment, 0, ends, content)
}

/// Adds the search for what a device has of the square of a stage's norm.
fn find(
    draft: &mut Draft<'_>,
    bounded: &Bounded,
    (moment, access): (Moment, Access),
    row: BufferId,
) {
    let (code, dtype) = (draft.code, draft.job.dtype);
    let n = draft.plan.all_micro_batches();
    let portion = draft.portion(bounded.rows.shards);
    let routine = norm(code, bounded.stage, n, dtype, (portion, access));
    let routine = draft.routines.push(routine);
    let known = [(Role::Squares, row), (Role::Gradient, bounded.rows.gradient)];
    let known = known.map(|(role, buffer)| (role, version(buffer, 0)));
    let bound = draft.bind_state(bounded.site, routine, &known);
    draft.push_launch(bounded.site, moment, routine, None, bound);
}
