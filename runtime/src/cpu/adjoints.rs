//! Every move of a schedule against the adjoint that its kind declares, by the machine's own code:
//! ⟨F x, y⟩ = ⟨x, F* y⟩ for random values x and gradients y in f64 (arXiv 2006.03108), and not for
//! an adjoint of which one move is scaled.
#![allow(unsafe_code, reason = "one thread alone executes actions one by one")]

mod boundaries;
mod collectives;
#[allow(dead_code, reason = "tests of several crates share it, and each uses its part")]
#[path = "../../../tests/support/models.rs"]
mod models;
#[allow(dead_code, reason = "tests of several crates share it, and each uses its part")]
#[path = "../../../tests/support/plans.rs"]
mod plans;
mod state;

use super::{
    Shared,
    execute::{Executor, Turn},
    record::Recording,
};
use crate::{feed::Feed, machine::Span, memory::Claim, ranks::Share};
use roundelay_codegen::{Everywhere, lower_with};
use roundelay_dsl::Program;
use roundelay_kernels::{Kernels, random::Stream};
use roundelay_schedule::{
    Access, Action, ActionId, Checked, Float, InputId, Order, Place, Placement, Plan,
    Role, RoutineId, Row, Rule, States, Work, check,
};

/// How many members, workers or stages there are.
const MEMBERS: std::ops::RangeInclusive<u32> = 2..=8;

/// The step that is looked at; nothing of the first one is in its way.
const STEP: i64 = 4;

/// What a wrong adjoint is scaled by.
const SCALE: f64 = 1.001;

/// A machine without threads.
struct Bench {
    shared: Shared,
}

/// An instance of an action.
#[derive(Clone, Copy)]
struct Moment<'a> {
    id: ActionId,
    action: &'a Action,
    period: i64,
    /// The step that it serves.
    step: i64,
}

/// A row of a device in one period.
#[derive(Clone, Copy)]
struct Seat {
    at: Place,
    row: Row,
    period: i64,
    coordinate: usize,
}

/// A sum of products, and what it is small or large against.
#[derive(Clone, Copy, Default)]
struct Product {
    sum: f64,
    squares: [f64; 2],
}

/// No test feeds anything.
struct Nothing;

impl Feed for Nothing {
    fn fill(&mut self, input: InputId, _: u64, _: u64, _: &mut [u8]) {
        panic!("{input} is not wanted");
    }
}

impl Bench {
    fn new(schedule: &Checked) -> Self {
        assert_eq!(schedule.job.dtype, Float::F64);
        let all = (Box::new(Nothing) as Box<dyn Feed>, Share::Whole);
        let shared = Shared::new(schedule, all, Recording::Off);
        Self { shared: shared.expect("small arenas fit") }
    }

    fn schedule(&self) -> &Checked {
        &self.shared.schedule
    }

    fn coordinates(&self) -> impl Iterator<Item = usize> + use<> {
        0..self.shared.coordinates.len()
    }

    fn claim() -> Claim {
        // SAFETY: a bench has no threads, and its owner holds one claim at a time.
        unsafe { Claim::new() }
    }

    /// Executes an action at all coordinates, by what threads of a machine do.
    fn execute(&self, moment: Moment<'_>) {
        let Moment { id, action, period, step } = moment;
        let mut executor = Executor::new(&self.shared, 0);
        let together = matches!(action.work, Work::Collective { .. });
        for coordinate in self.coordinates().take(if together { 1 } else { usize::MAX }) {
            let turn = Turn { id, action, period, step, coordinate };
            let done = executor.execute(turn, Self::claim());
            assert!(done.is_continue(), "nothing stops {id}");
        }
    }

    /// Instances of the periods that have to do with a step, in an order in which they may run.
    fn moments(&self) -> impl Iterator<Item = Moment<'_>> {
        let schedule = self.schedule();
        let later = schedule.span().0 + schedule.plan.delays.max() + 2;
        (0..STEP + i64::from(later)).flat_map(|period| {
            schedule.actions.iter().map(move |(id, action)| {
                let step = period - i64::from(action.lag);
                Moment { id, action, period, step }
            })
        })
    }

    fn span(&self, seat: Seat) -> Span {
        let Seat { at, row, period, coordinate } = seat;
        let coordinate = &self.shared.coordinates[coordinate];
        Span::of(self.schedule(), at, row, period, coordinate)
    }

    fn read(&self, seat: Seat) -> Vec<f64> {
        let span = self.span(seat);
        self.shared.arenas.of(span.device).numbers(&Self::claim(), span.bytes).to_vec()
    }

    /// Changes each number of a row.
    fn change(&self, seat: Seat, mut change: impl FnMut(usize, f64) -> f64) {
        let span = self.span(seat);
        let (arena, mut claim) = (self.shared.arenas.of(span.device), Self::claim());
        let numbers = arena.numbers_mut(&mut claim, span.bytes);
        numbers.iter_mut().enumerate().for_each(|(k, x)| *x = change(k, *x));
    }

    /// Writes numbers over a row.
    fn write(&self, seat: Seat, numbers: &[f64]) {
        assert_eq!(self.span(seat).len() as usize, size_of_val(numbers));
        self.change(seat, |k, _| numbers[k]);
    }

    /// Fills all memory anew, with the same numbers each time.
    fn fill(&self, number: impl Fn(u64) -> f64) {
        for device in self.shared.arenas.sizes().into_keys() {
            let (arena, mut claim) = (self.shared.arenas.of(device), Self::claim());
            let all = 0..arena.len() / 8 * 8;
            let numbers = arena.numbers_mut(&mut claim, all);
            (0..).zip(numbers).for_each(|(k, x)| *x = number(k));
        }
    }

    /// Scales what a move has brought.
    fn scale(&self, moment: Moment<'_>) {
        for coordinate in self.coordinates() {
            for (at, row) in self.destinations(moment.action) {
                let seat = Seat { at, row, period: moment.period, coordinate };
                self.change(seat, |_, x| x * SCALE);
            }
        }
    }

    fn destinations(&self, action: &Action) -> Vec<(Place, Row)> {
        match &action.work {
            Work::Transfer { to, .. } => vec![(to.at, to.row)],
            Work::Collective { group, to, .. } => {
                let places = &self.schedule().groups[*group].places;
                places.iter().map(|at| (*at, *to)).collect()
            }
            Work::Launch { .. } | Work::Feed { .. } | Work::Report { .. } => Vec::new(),
        }
    }

    /// What a launch binds to arguments, with their places in the memory of each coordinate.
    fn bound(
        &self,
        moment: Moment<'_>,
        wanted: impl Fn(Role, Access) -> bool,
    ) -> Vec<(Role, Access, Seat)> {
        let Work::Launch { at, routine, rows, .. } = &moment.action.work else {
            panic!("{} is no launch", moment.id)
        };
        let arguments = &self.routine(*routine).arguments;
        let bound = arguments.iter().zip(rows);
        let bound = bound.filter(|(argument, _)| wanted(argument.role, argument.access));
        let seats = bound.flat_map(|(argument, row)| {
            self.coordinates().map(|coordinate| {
                let (at, row, period) = (*at, *row, moment.period);
                let seat = Seat { at, row, period, coordinate };
                (argument.role, argument.access, seat)
            })
        });
        seats.collect()
    }

    fn routine(&self, id: RoutineId) -> &roundelay_schedule::Routine {
        &self.schedule().routines[id]
    }
}

impl Product {
    fn add(&mut self, one: &[f64], other: &[f64]) {
        assert_eq!(one.len(), other.len(), "both are of one space");
        for (x, y) in one.iter().zip(other) {
            self.sum += x * y;
            self.squares[0] += x * x;
            self.squares[1] += y * y;
        }
    }

    fn size(self) -> f64 {
        (self.squares[0] * self.squares[1]).sqrt()
    }

    /// |⟨F x, y⟩ − ⟨x, F* y⟩| / max(‖F x‖ ‖y‖, ‖x‖ ‖F* y‖).
    fn error(self, back: Self) -> f64 {
        assert!(self.size() > 0.0 && back.size() > 0.0, "something moves");
        (self.sum - back.sum).abs() / self.size().max(back.size())
    }
}

/// An adjoint passes, and does not with any of its moves scaled; `error` tells of either how far
/// both sides are apart.
fn hold(what: &str, moves: usize, error: impl Fn(Option<usize>) -> f64) {
    let found = error(None);
    assert!(found < 1e-14, "{what}: {found}");
    for number in 0..moves {
        let scaled = error(Some(number));
        assert!(scaled > 1e-9, "{what}, move {number} scaled: {scaled}");
    }
}

/// Random numbers of a place that labels name.
fn random(labels: &[u64], count: usize) -> Vec<f64> {
    let stream = Stream::new(17, labels);
    (0..count as u64).map(|k| stream.normal(k)).collect()
}

fn compiled(program: &Program, plan: &Plan) -> Checked {
    let schedule = lower_with(program, plan, &Everywhere)
        .unwrap_or_else(|wrong| panic!("{plan:?}: {wrong}"));
    check(schedule, &Kernels).unwrap_or_else(|wrong| panic!("{plan:?}: {wrong}"))
}

/// Synchronous workers with a stage or several each.
pub(super) fn workers(n: u32, states: States, stages: u32) -> Checked {
    let program = in_doubles(models::mlp(3, 2 * n));
    let kind = (Rule::Sync, Placement::Data, Order::Parallel, states);
    let cuts = models::even_cuts(&program, stages);
    compiled(&program, &plans::plan(kind, n, cuts))
}

/// A program whose numbers have 64 bits.
fn in_doubles(mut program: Program) -> Program {
    program.train.dtype = Float::F64;
    program
}
