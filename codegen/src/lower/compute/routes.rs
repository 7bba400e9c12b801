//! What passes send on: values to the next stage, their gradients to the one before. The way is
//! found once; thousands of micro-batches take it.

use super::{Turn, hold};
use crate::{
    Differentiated,
    lower::{
        LowerError,
        draft::{Crossing, Draft, DraftWork, End, Hold, Instance, Moment, Side},
        order::Slot,
    },
};
use roundelay_schedule::{
    BufferId, Content, Id, LinkId, MicroBatch, Pass, Stage, Subject, ValueId,
};

/// A way on which a pass sends something on.
#[derive(Clone, Debug)]
pub(super) struct Route {
    link: LinkId,
    /// From stage to stage.
    stages: [Stage; 2],
    /// From buffer to buffer.
    buffers: [BufferId; 2],
    value: ValueId,
    content: fn(ValueId, MicroBatch) -> Content,
    departure: Departure,
}

/// When something leaves.
#[derive(Clone, Copy, Debug)]
enum Departure {
    /// As soon as it is made.
    Made,
    /// Right before the pass of its taker, which has no room earlier.
    Taken,
}

/// What goes from stage to stage.
#[derive(Clone, Copy, Debug)]
struct Load {
    subject: fn(ValueId) -> Subject,
    content: fn(ValueId, MicroBatch) -> Content,
}

const VALUES: Load = Load { subject: Subject::Value, content: Content::Value };
const GRADIENTS: Load =
    Load { subject: Subject::ValueGradient, content: Content::ValueGradient };

/// Values go to the next stage, their gradients to the one before.
pub(super) fn routes(
    draft: &mut Draft<'_>,
    slot: Slot,
) -> Result<Vec<Route>, LowerError> {
    let slices = draft.plan.slices as usize;
    let (stage, own) = (slot.stage, slot.stage.index());
    let (load, other) = match slot.pass {
        Pass::Forward => (VALUES, Some(own + slices)),
        Pass::Backward | Pass::InputGradient => (GRADIENTS, own.checked_sub(slices)),
        Pass::WeightGradient => (GRADIENTS, None),
        Pass::Combine | Pass::Norm | Pass::Update => {
            unreachable!("the order lists compute passes only")
        }
    };
    let Some(other) = other.map(Stage::new) else { return Ok(Vec::new()) };
    let comes = |crossing: &Crossing| match crossing.gradient {
        _ if slot.pass == Pass::Forward => true,
        Differentiated::From(last) => last >= stage,
        Differentiated::No => false,
    };
    let mut routes = Vec::new();
    for crossing in draft.crossing(stage.min(other)).iter().copied().filter(comes) {
        routes.extend(route(draft, slot, [stage, other], (load, crossing))?);
    }
    Ok(routes)
}

/// None where both stages are on one device. A device of a turning ring holds one micro-batch at a
/// time: it takes a value right before its pass, when the last one is gone.
fn route(
    draft: &mut Draft<'_>,
    slot: Slot,
    stages: [Stage; 2],
    (load, crossing): (Load, Crossing),
) -> Result<Option<Route>, LowerError> {
    let (i, Crossing { value, size, gradient: _ }) = (slot.micro_batch, crossing);
    let [from, to] = stages.map(|stage| draft.sites.site(stage, i, slot.lag).at);
    if from == to {
        return Ok(None);
    }
    let subject = (load.subject)(value);
    let buffers = [from, to].map(|at| hold(draft, at.ring, subject, size, i).buffer);
    let turns = [from, to].iter().any(|at| draft.sites.turns(at.ring));
    let waits = turns && slot.pass == Pass::Forward;
    let departure = if waits { Departure::Taken } else { Departure::Made };
    let link = draft.link(from, to)?;
    Ok(Some(Route { link, stages, buffers, value, content: load.content, departure }))
}

/// Sends something on: as soon as it is made, or where the taker has room.
pub(super) fn send(draft: &mut Draft<'_>, turn: Turn, route: &Route) {
    let Turn { number, slot, .. } = turn;
    let (i, [from, to]) = (slot.micro_batch, route.stages);
    let (number, side, lag) = match route.departure {
        Departure::Taken => {
            let (number, found) = draft.order.find(Pass::Forward, to, i);
            (number, Side::Before, found.lag)
        }
        Departure::Made => (number, Side::After, slot.lag),
    };
    let end = |stage, buffer| {
        let at = draft.sites.site(stage, i, lag).at;
        End { at, hold: Hold { buffer, instance: Instance::MicroBatch(i) } }
    };
    let [giver, taker] = [end(from, route.buffers[0]), end(to, route.buffers[1])];
    if side == Side::After && draft.plan.order.is_of_pipelines() {
        let hops = draft.units.is_hopping();
        let pass = if from < to {
            Pass::Forward
        } else if hops {
            draft.order.closing(to)
        } else {
            draft.order.turn(to)
        };
        let (needed, _) = draft.order.find(pass, to, i);
        draft.arrivals.push(taker.at, draft.actions.len(), needed);
    }
    let content = (route.content)(route.value, i);
    let work = DraftWork::Transfer { link: route.link, from: giver, to: taker, content };
    draft.push(Moment::new(draft.key(number, side), lag), work);
}
