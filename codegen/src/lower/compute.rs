//! Launches of the passes, and the values that go with them: inputs from the host, boundary
//! values forward, their gradients back, losses to the host.

mod routes;

use super::{
    LowerError,
    draft::{Draft, DraftWork, Hold, Instance, Moment, Side, Slotting},
    order::Slot,
    site::{BESIDE, Site},
    state::{Addition, StageRows},
};
use crate::BackwardCode;
use roundelay_schedule::{
    Argument, BufferId, Bytes, Id, InputId, MicroBatch, Pass, Place, Plan, RingId, Role,
    Routine, RoutineId, Stage, Subject, Table,
};
use routes::{Route, routes, send};
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
    let feeds = feeds(draft);
    let mut stops = Stops::new(&draft.routines);
    reserve(draft);
    for number in 0..draft.order.len() {
        let slot = draft.order.slot(number);
        let state = &states[Stage::new(draft.plan.whole_stage(slot.stage) as usize)];
        let routine = routine_of(draft.plan, &passes[slot.stage], state, slot);
        let turn = Turn { number, slot, routine, site: site(draft, slot) };
        for input in feeds.get(&number).into_iter().flatten() {
            feed(draft, turn, *input);
        }
        let stop = stops.of(draft, turn)?;
        launch(draft, turn, state, &stop.seats);
        report(draft, turn);
        for route in &stop.routes {
            send(draft, turn, route);
        }
    }
    let Draft { arrivals, actions, .. } = draft;
    arrivals.order(actions);
    Ok(())
}

/// A pass that is launched.
#[derive(Clone, Copy)]
struct Turn {
    /// That of its slot.
    number: u32,
    slot: Slot,
    routine: RoutineId,
    site: Site,
}

/// A pass mostly has one message. Room that is not used costs nothing.
fn reserve(draft: &mut Draft<'_>) {
    let passes = draft.order.len() as usize;
    let arguments = draft.routines.values().map(|routine| routine.arguments.len());
    draft.holds.reserve(passes * arguments.max().unwrap_or(0));
    draft.actions.reserve(2 * passes);
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
        Subject::Input(input) if draft.sites.goes_up(i) => {
            draft.sites.lane_of(home, i, readers(draft, input))
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
    /// Where the stage has the parameters of a tie.
    Tied(Stage),
    /// Where the stage adds to the gradients of a tie.
    TiedGradient(Stage),
    /// In a buffer with one value per micro-batch.
    Value(BufferId),
    /// In scratch memory.
    Scratch(Hold),
}

/// What launches have alike that are of one routine on one device; thousands of micro-batches have
/// the same.
struct Stop {
    seats: Vec<Seat>,
    routes: Vec<Route>,
}

/// What a stop depends on beside its routine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    ring: RingId,
    lane: u32,
    /// Whether its micro-batches go the other way through the devices.
    goes_up: bool,
}

struct Stops(Table<RoutineId, BTreeMap<Kind, Rc<Stop>>>);

impl Stops {
    fn new(routines: &Table<RoutineId, Routine>) -> Self {
        Self(routines.ids().map(|_| BTreeMap::new()).collect())
    }

    fn of(&mut self, draft: &mut Draft<'_>, turn: Turn) -> Result<Rc<Stop>, LowerError> {
        let Turn { slot, routine, site, number: _ } = turn;
        let goes_up = draft.sites.goes_up(slot.micro_batch);
        let kind = Kind { ring: site.at.ring, lane: site.lane, goes_up };
        if let Some(known) = self.0[routine].get(&kind) {
            return Ok(Rc::clone(known));
        }
        let seats = seats(draft, turn);
        let stop = Rc::new(Stop { seats, routes: routes(draft, slot)? });
        self.0[routine].insert(kind, Rc::clone(&stop));
        Ok(stop)
    }
}

/// Where the arguments of a launch lie.
fn seats(draft: &mut Draft<'_>, turn: Turn) -> Vec<Seat> {
    let Turn { slot, routine, site, number: _ } = turn;
    let (home, stage) = (site.at.ring, slot.stage);
    let count = draft.routines[routine].arguments.len();
    let seat = |place| {
        let Argument { role, size, access: _ } = draft.routines[routine].arguments[place];
        let subject = match role {
            Role::Parameter => return Seat::Parameter,
            Role::Gradient => return Seat::Gradient,
            Role::Tied(state) => return Seat::Tied(state),
            Role::TiedGradient(state) => return Seat::TiedGradient(state),
            Role::Workspace => {
                return Seat::Scratch(draft.workspace(home, site.lane, size));
            }
            Role::Activation => Subject::Activation(stage),
            Role::Retained => Subject::Retained(stage),
            Role::Adjoint => Subject::Adjoint(stage),
            Role::Value(id) => Subject::Value(id),
            Role::ValueGradient(id) => Subject::ValueGradient(id),
            Role::Input(id) => Subject::Input(id),
            Role::Metric => Subject::Metric,
            Role::NextParameter | Role::Received | Role::Optimizer | Role::Squares => {
                unreachable!("a pass on a micro-batch has no such argument")
            }
        };
        Seat::Value(hold(draft, home, subject, size, slot.micro_batch).buffer)
    };
    (0..count).map(seat).collect()
}

/// The device and the lane of a pass.
fn site(draft: &Draft<'_>, slot: Slot) -> Site {
    let site = draft.sites.site(slot.stage, slot.micro_batch, slot.lag);
    if slot.beside.is_some() { Site { lane: BESIDE, ..site } } else { site }
}

fn launch(draft: &mut Draft<'_>, turn: Turn, state: &StageRows, seats: &[Seat]) {
    let Turn { number, slot, routine, site } = turn;
    let Slot { pass, micro_batch: i, lag, .. } = slot;
    let row = |seat: &Seat| match seat {
        Seat::Parameter => state.parameter[&(pass, i)],
        Seat::Gradient => state.gradient[&i].0,
        Seat::Tied(tie) => state.tied[tie][0],
        Seat::TiedGradient(tie) => state.tied[tie][1],
        Seat::Value(buffer) => {
            Hold { buffer: *buffer, instance: Instance::MicroBatch(i) }
        }
        Seat::Scratch(hold) => *hold,
    };
    let moment = Moment::new(draft.key(number, Side::At), lag);
    draft.push_launch(site, moment, routine, Some(i), seats.iter().map(row));
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

/// The first and the last stage that read an input.
fn readers(draft: &Draft<'_>, input: InputId) -> (Stage, Stage) {
    let mut readers =
        draft.order.stages().filter(|stage| inputs(draft, *stage).contains(&input));
    let first = readers.next().expect("an input is held where a stage reads it");
    (first, readers.next_back().unwrap_or(first))
}

/// The inputs that the host brings before each forward pass, by the number of its slot: a device has
/// each one brought once, before whichever of its stages reads it first, and slices all read the same.
/// To bring it again for the next stage would wait for those that read it, and let that stage wait.
fn feeds(draft: &Draft<'_>) -> BTreeMap<u32, Vec<InputId>> {
    let inputs: Table<Stage, Vec<InputId>> =
        draft.order.stages().map(|stage| inputs(draft, stage)).collect();
    let mut firsts = BTreeMap::new();
    for number in 0..draft.order.len() {
        let Slot { pass, stage, micro_batch: i, lag, .. } = draft.order.slot(number);
        if pass != Pass::Forward || draft.plan.keeper(stage) != stage {
            continue;
        }
        let Place { ring, place } = draft.sites.site(stage, i, lag).at;
        let device = draft.sites.rings[ring].device(place, i64::from(lag));
        for input in &inputs[stage] {
            let first = firsts.entry((ring, device, i, *input)).or_insert((lag, number));
            *first = (*first).min((lag, number));
        }
    }
    let mut feeds: BTreeMap<u32, Vec<InputId>> = BTreeMap::new();
    for ((.., input), (_, number)) in firsts {
        feeds.entry(number).or_default().push(input);
    }
    feeds
}

fn feed(draft: &mut Draft<'_>, turn: Turn, input: InputId) {
    let Turn {
        number, slot: Slot { micro_batch, lag, .. }, site: Site { at, .. }, ..
    } = turn;
    let size = draft.code.inputs[input].bytes(draft.job.dtype);
    let row = hold(draft, at.ring, Subject::Input(input), size, micro_batch);
    let moment = Moment::new(draft.key(number, Side::Before), lag);
    draft.push(moment, DraftWork::Feed { at, micro_batch, row });
}

/// The last stage tells the host the loss of a micro-batch.
fn report(draft: &mut Draft<'_>, turn: Turn) {
    let Turn { number, slot, site: Site { at, .. }, .. } = turn;
    let Slot { pass, stage, micro_batch, lag, .. } = slot;
    let ends = stage.index() + 1 == draft.code.stages.len();
    if pass != Pass::Forward || !ends {
        return;
    }
    if draft.code.stages[stage].forward.argument(Role::Metric).is_none() {
        return;
    }
    let row = hold(draft, at.ring, Subject::Metric, draft.job.measured(), micro_batch);
    let moment = Moment::new(draft.key(number, Side::After), lag);
    draft.push(moment, DraftWork::Report { at, micro_batch, row });
}
