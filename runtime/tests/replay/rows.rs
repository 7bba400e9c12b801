//! Rows of split tensors on the machine: they meet under any timing and any number of permits, and
//! whatever stops one of them ends the replay for all.

use crate::support::{
    Examples,
    models::gpt,
    runs::{compile, machine, machine_with, plan, recursion, replayed},
};
use roundelay_kernels::{Kernel, Kernels};
use roundelay_runtime::{
    Collection, Cpu, CpuError, CpuOptions, Feed, Recording, Settling, Timing, sample,
};
use roundelay_schedule::{
    Catalogue, Checked, Id, InputId, Nanos, Order, Placement, Rule, Sequence, States,
    Tensor, Work,
};
use std::{collections::BTreeSet, time::Duration};

fn schedule(placement: Placement, order: Order, rows: u32) -> Checked {
    let program = gpt(1, 4);
    let kind = (Rule::Sync, placement, order, States::Replicated);
    let tensor = Tensor::rows(rows, Sequence::Split);
    compile(&program, &plan(&program, kind, (2, 2)).with_tensor(tensor))
}

#[test]
fn rows_meet_however_long_each_of_them_takes() {
    for (placement, order) in [
        (Placement::Data, Order::Parallel),
        (Placement::Concurrent, Order::Parallel),
        (Placement::Pipeline, Order::OneForwardOneBackward),
    ] {
        let schedule = schedule(placement, order, 2);
        let expected = recursion(&schedule, 5);
        for seed in 1..4 {
            let mut cpu = machine(&schedule, Timing::Jittered(seed));
            assert_eq!(replayed(&mut cpu, &[1, 5]), expected, "{placement}");
        }
    }
}

/// A feed that fails at step 2, when rows are on their way.
struct Broken(Examples);

impl Feed for Broken {
    fn fill(&mut self, input: InputId, t: u64, micro_batch: u64, bytes: &mut [u8]) {
        assert!(t < 2, "no data");
        self.0.fill(input, t, micro_batch, bytes);
    }
}

#[test]
fn rows_that_wait_for_each_other_end_with_what_fails() {
    let schedule = schedule(Placement::Pipeline, Order::Gpipe, 2);
    let feed = Broken(Examples::of(&schedule.job));
    let mut cpu = machine_with(&schedule, feed, CpuOptions::default());
    let error = cpu.replay(6, &mut |_| {}).unwrap_err();
    let CpuError::Failed { action, message, .. } = &error else { panic!("{error}") };
    assert!(matches!(schedule.actions[*action].work, Work::Feed { .. }), "{error}");
    assert_eq!(message, "no data");
}

/// Tokens beyond the table on one row alone: its kernel fails, the other row waits for it.
struct Wild {
    examples: Examples,
    rows: u32,
}

impl Feed for Wild {
    fn fill(&mut self, input: InputId, t: u64, micro_batch: u64, bytes: &mut [u8]) {
        self.examples.fill(input, t, micro_batch, bytes);
        if (t, micro_batch, input.index()) == (2, 0, 0) {
            if self.rows == 1 {
                bytes.fill(0x7f);
            }
            self.rows += 1;
        }
    }
}

#[test]
fn a_kernel_that_fails_on_one_row_does_not_leave_the_others_waiting() {
    let schedule = schedule(Placement::Accumulate, Order::Sequential, 2);
    let feed = Wild { examples: Examples::of(&schedule.job), rows: 0 };
    let mut cpu = machine_with(&schedule, feed, CpuOptions::default());
    let error = cpu.replay(6, &mut |_| {}).unwrap_err();
    let CpuError::Failed { action, .. } = &error else { panic!("{error}") };
    assert!(matches!(schedule.actions[*action].work, Work::Launch { .. }), "{error}");
}

#[test]
fn fewer_permits_than_rows_are_enough_and_change_no_bit() {
    let schedule = schedule(Placement::Data, Order::Parallel, 2);
    let expected = recursion(&schedule, 3);
    let recording = Recording::On { launches: 1 };
    let options = CpuOptions { recording, ..CpuOptions::default() };
    let mut cpu = machine_with(&schedule, Examples::of(&schedule.job), options);
    assert_eq!(replayed(&mut cpu, &[3]), expected);
    for ran in cpu.record().ran {
        let calls = match &schedule.actions[ran.entry.action].work {
            Work::Launch { routine, .. } => schedule.routines[*routine].calls.len(),
            _ => 0,
        };
        assert_eq!(ran.calls.len(), calls, "a time for every call");
    }
}

#[test]
fn a_table_of_kernels_has_no_calls_that_rows_make_together() {
    let schedule = schedule(Placement::Accumulate, Order::Sequential, 2);
    let feed = Box::new(Examples::of(&schedule.job));
    let settling = Settling { agreement: 1.0, patience: Duration::from_millis(1) };
    let recording = Recording::On { launches: 1 };
    let options = CpuOptions { recording, ..CpuOptions::default() };
    let cpu = Cpu::new(&schedule, feed, options).unwrap();
    let sample = sample(cpu.into(), 1, settling).unwrap();
    let mut table = Collection::default();
    table.add(&schedule, &sample).unwrap();
    assert!(table.knows(&schedule, sample.busy), "nothing else is missing");
    assert_eq!(sample.event(), Nanos(0), "to read a clock costs nothing");
    let timed: BTreeSet<_> = sample.calls.keys().copied().collect();
    for (id, routine) in schedule.routines.iter() {
        for (index, call) in routine.calls.iter().enumerate() {
            let alone = Kernel::parse(call).unwrap().exchange().is_none();
            assert_eq!(alone, Kernels.exchange(call, schedule.job.dtype).is_none());
            assert_eq!(timed.contains(&(id, index)), alone, "{}", call.kernel);
        }
    }
}
