//! Nothing hangs: what fails or stops moving ends the replay with the place where it did.

use crate::support::{
    Examples,
    models::{gpt, mlp},
    runs::{compile, machine_with, plan},
};
use roundelay_runtime::{
    ArrayNumbers, Cpu, CpuError, CpuOptions, EvaluateError, Evaluator, Feed,
    MachineError, ParameterState, State, StateError, Unready,
};
use roundelay_schedule::{Checked, InputId, Order, Placement, Rule, States, Work};
use std::{
    borrow::Cow,
    panic::{self, AssertUnwindSafe},
    thread,
    time::Duration,
};

/// Examples that do something else at step 2.
struct Broken {
    examples: Examples,
    at_step_2: fn(),
}

impl Feed for Broken {
    fn fill(&mut self, input: InputId, t: u64, micro_batch: u64, bytes: &mut [u8]) {
        if t == 2 {
            (self.at_step_2)();
        }
        self.examples.fill(input, t, micro_batch, bytes);
    }
}

fn schedule() -> Checked {
    let program = mlp(4, 12);
    let kind = (Rule::CyclicV2, Placement::Data, Order::Cyclic, States::Replicated);
    compile(&program, &plan(&program, kind, (3, 3)))
}

fn broken(schedule: &Checked, at_step_2: fn(), deadline: Duration) -> Cpu {
    let examples = Examples::of(&schedule.job);
    let options = CpuOptions { deadline, ..CpuOptions::default() };
    machine_with(schedule, Broken { examples, at_step_2 }, options)
}

#[test]
fn a_panic_ends_the_replay_with_action_and_period() {
    let schedule = schedule();
    let mut cpu = broken(&schedule, || panic!("no data"), Duration::from_secs(60));
    let error = cpu.replay(6, &mut |_| {}).unwrap_err();
    let CpuError::Failed { action, period, queue, message } = &error else {
        panic!("{error}")
    };
    let line = &schedule.actions[*action];
    assert!(matches!(line.work, Work::Feed { .. }), "{error}");
    assert_eq!(period - i64::from(line.lag), 2);
    assert!(queue.starts_with("the host for d"), "{error}");
    assert_eq!(message, "no data");
    assert_eq!(cpu.replay(7, &mut |_| {}), Err(error.clone()));
    assert_eq!(cpu.save(), Err(error));
}

/// Whoever catches the panic finds a machine that knows no state: commands of it may still run.
#[test]
fn a_listener_that_panics_leaves_a_machine_that_says_so() {
    let schedule = schedule();
    let (none, deadline) = (|| {}, Duration::from_secs(60));
    for at_once in [true, false] {
        let mut cpu = broken(&schedule, none, deadline);
        let left = panic::catch_unwind(AssertUnwindSafe(|| {
            let mut listener = |_| assert!(!at_once, "a loss");
            cpu.replay_while(6, &mut listener, &mut || at_once || panic!("a wish"))
        }));
        assert!(left.is_err());
        assert_eq!(cpu.save(), Err(CpuError::Unready(Unready::Left)));
        assert_eq!(cpu.replay(7, &mut |_| {}), Err(CpuError::Unready(Unready::Left)));
        assert_eq!(
            cpu.load(&State::initial(&schedule.job)),
            Err(CpuError::Unready(Unready::Left))
        );
    }
}

#[test]
fn what_stops_moving_is_named_when_the_deadline_is_over() {
    let schedule = schedule();
    let slow = || thread::sleep(Duration::from_secs(2));
    let mut cpu = broken(&schedule, slow, Duration::from_millis(100));
    let error = cpu.replay(6, &mut |_| {}).unwrap_err();
    let CpuError::Stuck { action, period, queue, .. } = &error else { panic!("{error}") };
    let line = &schedule.actions[*action];
    assert!(matches!(line.work, Work::Feed { .. }), "{error}");
    assert!(queue.starts_with("the host for d"), "{error}");
    assert_eq!(period - i64::from(line.lag), 2);
}

#[test]
fn a_machine_goes_on_from_a_state_that_there_can_be() {
    let schedule = schedule();
    let feed = Box::new(Examples::of(&schedule.job));
    let mut cpu = Cpu::new(&schedule, feed, CpuOptions::default()).unwrap();
    assert_eq!(cpu.replay(1, &mut |_| {}), Err(CpuError::Unready(Unready::Unloaded)));
    assert_eq!(cpu.save(), Err(CpuError::Unready(Unready::Unloaded)));
    let good = State::initial(&schedule.job);
    let [mut early, mut ahead, mut bare] = [0, 1, 2].map(|_| good.clone());
    early.origin = 1;
    ahead.optimizer_origin = 2;
    let tensor = bare.tensors.values_mut().next().expect("something is trained");
    tensor.versions.clear();
    let refused = |state: &State| match state.fits(&schedule.job) {
        Err(error) => error,
        Ok(()) => panic!("there is no such state"),
    };
    assert_eq!(refused(&early), StateError::Origin { origin: 1, step: 0 });
    assert_eq!(refused(&ahead), StateError::Origin { origin: 2, step: 0 });
    assert!(matches!(refused(&bare), StateError::Version { version: 0, .. }));
    assert_eq!(cpu.load(&early), Err(refused(&early).into()));
    cpu.load(&good).unwrap();
    cpu.replay(1, &mut |_| {}).unwrap();
}

/// An array of a file that is gone.
struct Gone(usize);

impl ArrayNumbers for Gone {
    fn length(&self) -> usize {
        self.0
    }

    fn bytes(&self) -> Result<Cow<'_, [u8]>, StateError> {
        Err(StateError::Read { path: "file".into(), reason: "gone".into() })
    }
}

/// Half of a state is none.
#[test]
fn a_state_that_cannot_be_read_leaves_nothing() {
    let schedule = schedule();
    let feed = Box::new(Examples::of(&schedule.job));
    let mut cpu = Cpu::new(&schedule, feed, CpuOptions::default()).unwrap();
    let good = State::initial(&schedule.job);
    cpu.load(&good).unwrap();
    let State { dtype, step, origin, optimizer_origin, ref tensors } = good;
    let tensors = tensors.iter().map(|(name, own)| {
        let gone = |all: &[Vec<u8>]| all.iter().map(|own| Gone(own.len())).collect();
        let (versions, optimizer) = (gone(&own.versions), gone(&own.optimizer));
        (name.clone(), ParameterState { shape: own.shape.clone(), versions, optimizer })
    });
    let tensors = tensors.collect();
    let gone = State { dtype, step, origin, optimizer_origin, tensors };
    let told = cpu.load(&gone).unwrap_err().to_string();
    assert!(told.starts_with("cannot read `file` any more: gone; "), "{told}");
    assert_eq!(cpu.save(), Err(CpuError::Unready(Unready::Unloaded)));
    cpu.load(&good).unwrap();
    cpu.replay(1, &mut |_| {}).unwrap();
}

#[test]
fn a_machine_can_be_dropped_at_any_time() {
    let schedule = schedule();
    drop(broken(&schedule, || {}, Duration::from_secs(60)));
    let mut cpu = broken(&schedule, || {}, Duration::from_secs(60));
    cpu.replay(1, &mut |_| {}).unwrap();
}

/// Examples with a token that no table has.
struct Beyond(Examples);

impl Feed for Beyond {
    fn fill(&mut self, input: InputId, t: u64, micro_batch: u64, bytes: &mut [u8]) {
        self.0.fill(input, t, micro_batch, bytes);
        bytes[..4].copy_from_slice(&1_000_000i32.to_ne_bytes());
    }
}

#[test]
fn an_evaluation_of_impossible_tokens_says_so() {
    let program = gpt(2, 4);
    let kind = (Rule::Sync, Placement::Accumulate, Order::Sequential, States::Replicated);
    let schedule = compile(&program, &plan(&program, kind, (2, 1)));
    let mut evaluator = Evaluator::new(&schedule).expect("kernels are well formed");
    let state = State::initial(&schedule.job);
    let mut examples = Examples::of(&schedule.job);
    let error = evaluator.measure(&state, &mut Beyond(examples.clone()), 1).unwrap_err();
    let EvaluateError::Machine(MachineError::Cpu(CpuError::Forward { message, .. })) =
        &error
    else {
        panic!("{error}")
    };
    assert!(message.contains("1000000"), "{error}");
    assert!(evaluator.measure(&state, &mut examples, 1).is_ok());
}
