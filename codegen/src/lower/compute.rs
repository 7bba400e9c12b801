//! Launches of the passes, and the values that go with them: inputs from the host, boundary
//! values forward, their gradients back, losses to the host.

use super::{
    LowerError,
    arrivals::{self, Arrival},
    draft::{Crossing, Draft, DraftWork, Hold, Instance, Side, Slotting},
    order::Slot,
    site::BESIDE,
    state::{Addition, StageRows},
};
use crate::{BackwardCode, Differentiated};
use roundelay_schedule::{
    Argument, BufferId, Bytes, Content, Id, InputId, MicroBatch, Pass, Place, Plan,
    RingId, Role, Routine, RoutineId, Stage, Subject, Table,
};
use std::{collections::BTreeMap, rc::Rc};

/// The routines of one stage, as the schedule numbers them.
struct Passes {
    forward: RoutineId,
    /// Per pass that makes gradients: for the first micro-batch of a sum, and for later ones.
    backward: BTreeMap<Pass, [RoutineId; 2]>,
}

/// Adds all passes, given where each stage, counted without slices, finds its state.
pub(crate) fn add(
    draft: &mut Draft<'_>,
    states: &Table<Stage, StageRows>,
) -> Result<(), LowerError> {
    let passes: Table<Stage, Passes> =
        draft.order.stages().map(|s| number(draft, s)).collect();
    let inputs: Table<Stage, Vec<InputId>> =
        draft.order.stages().map(|stage| inputs(draft, stage)).collect();
    let slots: Vec<(u32, Slot)> = draft.order.iter().collect();
    let mut seats = Seats::default();
    // A pass mostly has one message; room that is not used costs nothing.
    draft.actions.reserve(2 * slots.len());
    for (number, slot) in slots {
        let state = &states[Stage::new(draft.plan.whole_stage(slot.stage) as usize)];
        let routine = routine_of(draft.plan, &passes[slot.stage], state, slot);
        feed(draft, number, slot, &inputs[slot.stage]);
        launch(draft, number, slot, routine, (state, &mut seats));
        report(draft, number, slot, routine);
        match slot.pass {
            Pass::Forward => send_values(draft, slot)?,
            Pass::Backward | Pass::InputGradient => {
                send_gradients(draft, number, slot)?;
            }
            Pass::WeightGradient => {}
            Pass::Combine | Pass::Update => {
                unreachable!("the order lists compute passes only")
            }
        }
    }
    arrivals::order(draft);
    Ok(())
}

fn number(draft: &mut Draft<'_>, stage: Stage) -> Passes {
    let code = &draft.code.stages[stage];
    let begins = draft.plan.slice(stage) + 1 == draft.plan.slices;
    let mut push = |routine: &Routine| draft.routines.push(routine.clone());
    let forward = push(&code.forward);
    let backward = match &code.backward {
        // Only the last slice, which comes first, begins a sum.
        BackwardCode::Whole { next, .. } if !begins => {
            [(Pass::Backward, [push(next); 2])].into()
        }
        BackwardCode::Whole { first, next } => {
            [(Pass::Backward, [first, next].map(push))].into()
        }
        BackwardCode::Split { input, weight_first, weight_next } => {
            let input = push(input);
            let weight = [weight_first, weight_next].map(push);
            [(Pass::InputGradient, [input; 2]), (Pass::WeightGradient, weight)].into()
        }
    };
    Passes { forward, backward }
}

/// Of the micro-batch that starts a sum the last slice does, which comes first.
fn routine_of(plan: &Plan, passes: &Passes, state: &StageRows, slot: Slot) -> RoutineId {
    let first = plan.slice(slot.stage) + 1 == plan.slices;
    match (slot.pass, state.gradient[&slot.micro_batch].1) {
        (Pass::Forward, _) => passes.forward,
        (pass, Addition::First) if first => passes.backward[&pass][0],
        (pass, Addition::First | Addition::Next) => passes.backward[&pass][1],
    }
}

/// A buffer with one value per micro-batch.
fn hold(
    draft: &mut Draft<'_>,
    home: RingId,
    subject: Subject,
    size: Bytes,
    i: MicroBatch,
) -> Hold {
    let which = match subject {
        Subject::Value(value) | Subject::ValueGradient(value) => {
            let row = &draft.code.values[value];
            draft.sites.lane_of(home, i, (row.producer, row.last))
        }
        _ => 0,
    };
    let buffer = draft.buffer(home, subject, which, size, Slotting::PerMicroBatch);
    Hold { buffer, instance: Instance::MicroBatch(i) }
}

/// Where an argument of a launch lies.
#[derive(Clone, Copy, Debug)]
enum Seat {
    /// Where the stage has the parameters of a pass.
    Parameter,
    /// Where the stage adds to gradients.
    Gradient,
    /// In a buffer with one value per micro-batch.
    Value(BufferId),
    /// In scratch memory.
    Scratch(Hold),
}

/// What the seats of a launch depend on: its routine, its site, and which way it goes.
type Kind = (RoutineId, RingId, u32, bool);

/// Where launches of one kind find their arguments; thousands of micro-batches have the same.
#[derive(Default)]
struct Seats(BTreeMap<Kind, Rc<[Seat]>>);

impl Seats {
    fn of(
        &mut self,
        draft: &mut Draft<'_>,
        kind @ (routine, home, lane, _): Kind,
        (stage, i): (Stage, MicroBatch),
    ) -> Rc<[Seat]> {
        if let Some(known) = self.0.get(&kind) {
            return Rc::clone(known);
        }
        let count = draft.routines[routine].arguments.len();
        let seat = |place| {
            let Argument { role, size, access: _ } =
                draft.routines[routine].arguments[place];
            let subject = match role {
                Role::Parameter => return Seat::Parameter,
                Role::Gradient => return Seat::Gradient,
                Role::Workspace => {
                    return Seat::Scratch(draft.workspace(home, lane, size));
                }
                Role::Activation => Subject::Activation(stage),
                Role::Retained => Subject::Retained(stage),
                Role::Adjoint => Subject::Adjoint(stage),
                Role::Value(id) => Subject::Value(id),
                Role::ValueGradient(id) => Subject::ValueGradient(id),
                Role::Input(id) => Subject::Input(id),
                Role::Metric => Subject::Metric,
                Role::NextParameter | Role::Received | Role::Optimizer => {
                    unreachable!("a pass on a micro-batch has no such argument")
                }
            };
            Seat::Value(hold(draft, home, subject, size, i).buffer)
        };
        let seats: Rc<[Seat]> = (0..count).map(seat).collect();
        self.0.insert(kind, Rc::clone(&seats));
        seats
    }
}

fn launch(
    draft: &mut Draft<'_>,
    number: u32,
    slot: Slot,
    routine: RoutineId,
    (state, seats): (&StageRows, &mut Seats),
) {
    let Slot { pass, stage, micro_batch: i, lag, beside, .. } = slot;
    let mut site = draft.sites.site(stage, i, lag);
    if beside.is_some() {
        site.lane = BESIDE;
    }
    let key = (routine, site.at.ring, site.lane, draft.sites.goes_up(i));
    let row = |seat: &Seat| match seat {
        Seat::Parameter => state.parameter[&(pass, i)],
        Seat::Gradient => state.gradient[&i].0,
        Seat::Value(buffer) => {
            Hold { buffer: *buffer, instance: Instance::MicroBatch(i) }
        }
        Seat::Scratch(hold) => *hold,
    };
    let seats = seats.of(draft, key, (stage, i));
    let key = draft.key(number, Side::At);
    draft.push_launch(site, (key, lag), routine, Some(i), seats.iter().map(row));
}

/// What the forward pass of a stage, or its backward pass, reads of the inputs.
fn inputs(draft: &Draft<'_>, stage: Stage) -> Vec<InputId> {
    let code = &draft.code.stages[stage];
    let later = code.backward.next();
    let routines = [&code.forward].into_iter().chain(later);
    let arguments = routines.flat_map(|routine| &routine.arguments);
    let mut inputs: Vec<InputId> = arguments
        .filter_map(|one| if let Role::Input(id) = one.role { Some(id) } else { None })
        .collect();
    inputs.sort_unstable();
    inputs.dedup();
    inputs
}

/// The host brings a stage's inputs before its forward pass; slices all read the same.
fn feed(draft: &mut Draft<'_>, number: u32, slot: Slot, inputs: &[InputId]) {
    if slot.pass != Pass::Forward || draft.plan.keeper(slot.stage) != slot.stage {
        return;
    }
    let Slot { stage, micro_batch, lag, .. } = slot;
    let at = draft.sites.site(stage, micro_batch, lag).at;
    for input in inputs.iter().copied() {
        let size = input_size(draft, input);
        let row = hold(draft, at.ring, Subject::Input(input), size, micro_batch);
        let key = draft.key(number, Side::Before);
        draft.push(key, lag, DraftWork::Feed { at, micro_batch, row });
    }
}

fn input_size(draft: &Draft<'_>, input: InputId) -> Bytes {
    let row = &draft.code.inputs[input];
    Bytes(row.shape.iter().product::<u64>() * row.element.size(draft.job.dtype))
}

/// The last stage tells the host the loss of a micro-batch.
fn report(draft: &mut Draft<'_>, number: u32, slot: Slot, routine: RoutineId) {
    let Slot { stage, micro_batch, lag, .. } = slot;
    let measured =
        draft.routines[routine].arguments.iter().find(|a| a.role == Role::Metric);
    let ends = stage.index() + 1 == draft.code.stages.len();
    if slot.pass != Pass::Forward || measured.is_none() || !ends {
        return;
    }
    let at = draft.sites.site(stage, micro_batch, lag).at;
    let row = hold(draft, at.ring, Subject::Metric, draft.job.measured(), micro_batch);
    let key = draft.key(number, Side::After);
    draft.push(key, lag, DraftWork::Report { at, micro_batch, row });
}

/// Sends values on when the next stage is elsewhere. A device of a turning ring holds one
/// micro-batch at a time: it takes the value right before its pass, when the last one is gone.
fn send_values(draft: &mut Draft<'_>, slot: Slot) -> Result<(), LowerError> {
    let i = slot.micro_batch;
    let next = Stage::new(slot.stage.index() + draft.plan.slices as usize);
    for Crossing { value, size, .. } in draft.crossing(slot.stage).iter().copied() {
        let at = |stage| draft.sites.site(stage, i, slot.lag).at;
        let (from, to) = (at(slot.stage), at(next));
        if from == to {
            continue;
        }
        let late = draft.sites.turns(from.ring) || draft.sites.turns(to.ring);
        let (pass_stage, side) =
            if late { (next, Side::Before) } else { (slot.stage, Side::After) };
        let (number, found) = draft.order.find(Pass::Forward, pass_stage, i);
        let content = Content::Value(value, i);
        let move_ = Move { subject: Subject::Value(value), size, content };
        send(draft, (number, side, found.lag), (slot.stage, next, i), move_)?;
    }
    Ok(())
}

fn send_gradients(
    draft: &mut Draft<'_>,
    number: u32,
    slot: Slot,
) -> Result<(), LowerError> {
    let i = slot.micro_batch;
    let slices = draft.plan.slices as usize;
    let Some(before) = slot.stage.index().checked_sub(slices).map(Stage::new) else {
        return Ok(());
    };
    for Crossing { value, size, gradient } in draft.crossing(before).iter().copied() {
        let at = |stage| draft.sites.site(stage, i, slot.lag).at;
        let (from, to) = (at(slot.stage), at(before));
        let comes = matches!(gradient, Differentiated::From(last) if last >= slot.stage);
        if from == to || !comes {
            continue;
        }
        let content = Content::ValueGradient(value, i);
        let move_ = Move { subject: Subject::ValueGradient(value), size, content };
        send(draft, (number, Side::After, slot.lag), (slot.stage, before, i), move_)?;
    }
    Ok(())
}

/// What goes from one stage's place to another's.
struct Move {
    subject: Subject,
    size: Bytes,
    content: Content,
}

fn send(
    draft: &mut Draft<'_>,
    (number, side, lag): (u32, Side, u32),
    (from, to, i): (Stage, Stage, MicroBatch),
    Move { subject, size, content }: Move,
) -> Result<(), LowerError> {
    let mut end = |stage| -> (Place, Hold) {
        let at = draft.sites.site(stage, i, lag).at;
        (at, hold(draft, at.ring, subject, size, i))
    };
    let (giver, taker) = (end(from), end(to));
    let key = draft.key(number, side);
    let work = draft.transfer(giver, taker, content)?;
    if side == Side::After && draft.plan.order.is_of_pipelines() {
        let hops = draft.units.is_hopping();
        let pass = match from < to {
            true => Pass::Forward,
            false if hops => draft.order.closing(to),
            false => draft.order.turn(to),
        };
        let (needed, _) = draft.order.find(pass, to, i);
        draft.arrivals.push(Arrival { action: draft.actions.len(), needed });
    }
    draft.push(key, lag, work);
    Ok(())
}
