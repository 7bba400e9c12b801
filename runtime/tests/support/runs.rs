//! Replays, and what they are compared with.

use super::{
    Examples,
    models::even_cuts,
    plans::{self, Kind, kinds},
};
use roundelay_codegen::{Everywhere, lower_with};
use roundelay_dsl::Program;
use roundelay_kernels::Kernels;
use roundelay_runtime::{Cpu, CpuOptions, Feed, Fill, Oracle, State, Timing};
use roundelay_schedule::{Checked, Plan, check};

/// Losses of every step as bits, micro-batches of all replicas in order, and the state at the end.
#[derive(Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) losses: Vec<Vec<u64>>,
    pub(crate) state: State,
}

/// A plan with cuts that split the nodes evenly.
pub(crate) fn plan(program: &Program, kind: Kind, (n, s): (u32, u32)) -> Plan {
    plans::plan(kind, n, even_cuts(program, s))
}

/// A plan of every kind.
pub(crate) fn all_plans(program: &Program, (n, s): (u32, u32)) -> Vec<Plan> {
    kinds(n, s).into_iter().map(|kind| plan(program, kind, (n, s))).collect()
}

/// Lowers and checks a plan.
pub(crate) fn compile(program: &Program, plan: &Plan) -> Checked {
    let schedule = lower_with(program, plan, &Everywhere)
        .unwrap_or_else(|error| panic!("{plan:?}: {error}"));
    check(schedule, &Kernels).unwrap_or_else(|faults| panic!("{plan:?}: {faults:?}"))
}

/// The oracle's training steps up to `end`, from the start.
pub(crate) fn recursion(schedule: &Checked, end: u64) -> Outcome {
    recursion_from(schedule, &State::initial(&schedule.job), end)
}

/// The oracle's training steps up to `end`, from a state.
pub(crate) fn recursion_from(schedule: &Checked, state: &State, end: u64) -> Outcome {
    let mut feed = Examples::of(&schedule.job);
    let mut oracle = Oracle::new(schedule, state).expect("the state fits");
    let step = |_| oracle.advance(&mut feed).iter().map(|loss| loss.to_bits()).collect();
    let losses = (state.step..end).map(step).collect();
    Outcome { losses, state: oracle.state() }
}

/// A machine at rest before step 0.
pub(crate) fn machine(schedule: &Checked, timing: Timing) -> Cpu {
    let options = CpuOptions { fill: Fill::Poison, timing, ..CpuOptions::default() };
    machine_with(schedule, Examples::of(&schedule.job), options)
}

/// A machine at rest before step 0, with a feed of its own.
pub(crate) fn machine_with(
    schedule: &Checked,
    feed: impl Feed + 'static,
    options: CpuOptions,
) -> Cpu {
    let mut cpu = Cpu::new(schedule, Box::new(feed), options).expect("threads start");
    cpu.load(&State::initial(&schedule.job)).expect("a new state fits");
    cpu
}

/// A replay from where the machine is that rests before each step of `rests`; the last is the
/// end.
pub(crate) fn replayed(cpu: &mut Cpu, rests: &[u64]) -> Outcome {
    let all = cpu.schedule().plan.all_micro_batches() as usize;
    let first = cpu.step();
    let steps = (rests.last().expect("a replay ends") - first) as usize;
    let mut losses = vec![vec![u64::MAX; all]; steps];
    for rest in rests {
        cpu.replay(*rest, &mut |loss| {
            losses[(loss.step - first) as usize][loss.micro_batch as usize] =
                loss.loss.to_bits();
        })
        .expect("nothing fails");
    }
    Outcome { losses, state: saved(cpu) }
}

/// The state of a machine that has all devices.
pub(crate) fn saved(cpu: &mut Cpu) -> State {
    cpu.save().expect("the machine rests").expect("it is the only rank")
}
