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
    Update,
    axis::{Along, Exchange, Members},
    end, version,
};
use crate::{
    lower::{
        LowerError,
        draft::{Draft, Moment, Slotting},
    },
    norm,
};
use roundelay_schedule::{
    Access, AxisId, BufferId, Bytes, Collective, Content, Id, Place, Role, Slice, Stage,
    Subject,
};
use std::collections::BTreeSet;

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

impl Update {
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

/// Adds what finds the norm that these updates bound, and the updates. Their stages are
/// in order.
pub(super) fn close(draft: &mut Draft<'_>, updates: &[Update]) -> Result<(), LowerError> {
    let [Some(first), Some(last)] = [updates.first(), updates.last()] else {
        return Ok(());
    };
    let mut found = add_up(draft, updates, (first.stage, last.stage))?;
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
    for update in updates {
        let row = update.row(draft, Slice::Whole, first.stage);
        if known.insert(update.site.at) {
            let moment = hand_on(draft, found, (update.site.at, row), content.clone())?;
            found = Found { at: update.site.at, row, moment };
        }
    }
    for update in updates {
        let row = update.row(draft, Slice::Whole, first.stage);
        let earliest = update.split.map_or(update.gradient, |split| split.updated);
        draft.push_step(update, found.moment.max(earliest), Some(row));
    }
    Ok(())
}

/// What all stages have, from the last one to the first; it lies where the first one is.
fn add_up(
    draft: &mut Draft<'_>,
    updates: &[Update],
    (first, last): (Stage, Stage),
) -> Result<Found, LowerError> {
    let mut before: Option<(Found, Stage)> = None;
    for update in updates.iter().rev() {
        let row = update.row(draft, update.slice(), first);
        let (mut moment, mut access) = (update.gradient, Access::Write);
        if let Some((found, behind)) = before {
            let content = Content::Squares(behind, last);
            // Not before the gradient is there: a device has its messages in list order, and the way
            // back through a pipeline waits for no norm.
            let ready = Found { moment: found.moment.max(update.gradient), ..found };
            moment = hand_on(draft, ready, (update.site.at, row), content)?;
            access = Access::Update;
            if found.at != update.site.at {
                let members = Members::new(draft, update.stage);
                moment = members.a_turn_behind(draft, moment).closing();
            }
        }
        find(draft, update, (moment, access), row);
        before = Some((Found { at: update.site.at, row, moment }, update.stage));
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
    let ends = [(found.at, found.row), (at, row)].map(|(at, row)| end(at, row));
    draft.carry(found.moment, ends, content)
}

/// Adds the search for what a device has of the square of a stage's norm.
fn find(
    draft: &mut Draft<'_>,
    update: &Update,
    (moment, access): (Moment, Access),
    row: BufferId,
) {
    let (code, dtype) = (draft.code, draft.job.dtype);
    let n = draft.plan.all_micro_batches();
    let portion = draft.portion(update.rows.shards);
    let routine = norm(code, update.stage, n, dtype, (portion, access));
    let routine = draft.routines.push(routine);
    let known = [(Role::Squares, row), (Role::Gradient, update.rows.gradient)];
    let known = known.map(|(role, buffer)| (role, version(buffer, 0)));
    draft.push_on_state(update.site, moment, routine, &known);
}
