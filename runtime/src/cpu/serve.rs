//! The life of one queue's thread: take a command, wait for what it waits for, do it, say so.
#![expect(unsafe_code, reason = "the proof that an action may run now is made here")]

use super::{
    CpuError, Shared,
    command::{Command, Commands},
    counter::{Counter, Parking, Waited},
    execute::{Executor, Turn},
    jitter::{Jitter, Timing},
    record::Recorder,
};
use crate::{DataError, machine::describe, memory::Claim};
use roundelay_schedule::{Entry, Instance, Work};
use std::{
    any::Any,
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// What the driver and one queue's thread share.
pub(super) struct Lane {
    pub(super) commands: Commands,
    /// Number of commands written.
    pub(super) issued: Counter,
    /// Number of commands completed.
    pub(super) done: Counter,
}

impl Lane {
    /// A lane for `capacity` commands under way, each with at most `waits` waits.
    pub(super) fn new(parking: &Parking, capacity: u64, waits: usize) -> Self {
        let counter = || Counter::new(parking);
        Self {
            commands: Commands::new(capacity, waits),
            issued: counter(),
            done: counter(),
        }
    }
}

/// Serves queue thread `thread` until everything stops.
pub(super) fn serve(shared: &Shared, thread: usize, timing: Timing) {
    shared.parking.register(thread);
    let lane = &shared.lanes[thread];
    let mut executor = Executor::new(shared, thread);
    let mut jitter = Jitter::new(timing, thread);
    for number in 1.. {
        if lane.issued.wait(number, &shared.parking, thread) != Waited::Reached {
            return;
        }
        if await_all(shared, thread, number) != Waited::Reached {
            return;
        }
        if let Some(jitter) = &mut jitter {
            jitter.pause();
        }
        let command = lane.commands.read(number);
        match run(&mut executor, thread, command) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return,
            Err(message) => {
                shared.fail(failure(shared, thread, command, message));
                return;
            }
        }
        lane.done.publish(number, &shared.parking);
    }
}

/// Waits until everything that command `number` waits for is done.
fn await_all(shared: &Shared, thread: usize, number: u64) -> Waited {
    for mark in shared.lanes[thread].commands.waits(number) {
        for source in shared.queues.sources(thread, mark.queue) {
            let done = &shared.lanes[source].done;
            let waited = done.wait(mark.sequence, &shared.parking, thread);
            if waited != Waited::Reached {
                return waited;
            }
        }
    }
    Waited::Reached
}

/// Does what a command says, or breaks when everything stops before that is done.
fn run(
    executor: &mut Executor<'_>,
    thread: usize,
    command: Command,
) -> Result<ControlFlow<()>, String> {
    let Instance::Execute(step) = command.instance else {
        return Ok(ControlFlow::Continue(()));
    };
    let shared = executor.shared;
    let action = &shared.schedule.actions[command.action];
    let (_, coordinate) = shared.queues.home(thread);
    let id = command.action;
    let turn = Turn { id, action, period: command.period, step, coordinate };
    if !shared.share.takes(&shared.schedule, &turn) {
        return Ok(ControlFlow::Continue(()));
    }
    let recorder = shared.recorder.as_ref();
    let launches = matches!(action.work, Work::Launch { .. });
    executor.rendezvous.permit = recorder.filter(|_| launches).map(Recorder::permit);
    let start = recorder.map(Recorder::now);
    executor.times.clear();
    // SAFETY: `await_all` has seen every wait of this instance done, all earlier instances of
    // this queue are done because one thread takes them in order, and this one is marked done
    // only after the claim ends. A `Checked` schedule says that this order separates all
    // conflicting touches, and `execute` passes only what `Schedule::touches` lists.
    let claim = unsafe { Claim::new() };
    let execute = AssertUnwindSafe(|| executor.execute(turn, claim));
    let done = catch_unwind(execute).map_err(|panic| said(panic.as_ref()))?;
    if done.is_break() {
        return Ok(done);
    }
    if let Some((recorder, start)) = recorder.zip(start) {
        let (queue, end) = (shared.queues.queue_of(thread), recorder.now());
        let Command { action, period, .. } = command;
        let entry = Entry { action, period, step, queue, start, end };
        recorder.keep(thread, entry, coordinate, &executor.times);
        executor.rendezvous.permit = None;
    }
    Ok(done)
}

fn failure(
    shared: &Shared,
    thread: usize,
    command: Command,
    message: String,
) -> CpuError {
    let Command { action, period, .. } = command;
    let queue = describe(shared.queues.queue_of(thread));
    CpuError::Failed { action, period, queue, message }
}

/// What a panic says, or data that was lost.
pub(crate) fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    let text = text.or_else(|| panic.downcast_ref::<DataError>().map(lost));
    text.unwrap_or_else(|| "a panic without a message".to_string())
}

fn lost(error: &DataError) -> String {
    format!("{error}; it was read when the run began")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_data_is_told_as_its_error_says_it() {
        let error = DataError::TooLarge { pattern: "a".into(), found: 2, limit: 1 };
        let told = said(&error);
        assert!(told.starts_with(&error.to_string()), "{told}");
        assert!(told.ends_with("it was read when the run began"), "{told}");
    }
}
