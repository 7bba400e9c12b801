//! Backward passes that write over what they read for the last time: sound where the catalogue says
//! that two operands may be one memory, and nobody finds what was there before.

use crate::tiny::{Builder, Letters, accumulate, action, id};
use roundelay_schedule::{
    Access, Action, Bytes, Culprit, Held, Id, Schedule, Violation, Violations, check,
};

/// The routine that begins the sum, and the one that adds to it.
const BACKWARD: [usize; 2] = [1, 2];

/// Two micro-batches whose backward passes write over the activation, by a call of this name, before
/// they read it again.
fn in_place(kernel: &'static str) -> Schedule {
    let mut schedule = accumulate(2);
    for routine in BACKWARD {
        let routine = &mut schedule.routines[id(routine)];
        routine.arguments[1].access = Access::Update;
        let mut replace = routine.calls[0].clone();
        let activation = replace.operands[1].clone();
        replace.kernel = kernel.into();
        replace.operands = [activation.clone(), activation].into_iter().collect();
        let calls = [replace].into_iter().chain(routine.calls.iter().cloned());
        routine.calls = calls.collect::<Vec<_>>().into();
    }
    schedule
}

fn refused(schedule: Schedule) -> Violations {
    check(schedule, &Letters).expect_err("the fault must be found")
}

#[test]
fn what_is_read_last_may_be_written_over() {
    let found = check(in_place("~rw"), &Letters);
    assert!(found.is_ok(), "{}", found.unwrap_err());
}

#[test]
fn only_where_the_catalogue_says_so() {
    let found = refused(in_place("rw"));
    let culprit = Culprit::Call(id(BACKWARD[0]), 0);
    assert!(
        matches!(found.first(), Violation::Malformed { culprit: own, .. } if *own == culprit),
        "{found}"
    );
    assert!(found.to_string().contains("operands 0 and 1 overlap"), "{found}");
}

/// Half of the one over half of the other is no one memory.
#[test]
fn only_the_very_same_memory() {
    let mut schedule = in_place("~rw");
    for routine in BACKWARD {
        let routine = &mut schedule.routines[id(routine)];
        let mut calls: Vec<_> = routine.calls.iter().cloned().collect();
        for (operand, offset) in calls[0].operands.iter_mut().zip([0, 16]) {
            (operand.shape, operand.offset) = ([8][..].into(), Bytes(offset));
        }
        routine.calls = calls.into();
    }
    let found = refused(schedule);
    assert!(found.to_string().contains("operands 0 and 1 overlap"), "{found}");
}

#[test]
fn a_pass_that_writes_must_say_so() {
    let mut schedule = in_place("~rw");
    for routine in BACKWARD {
        schedule.routines[id(routine)].arguments[1].access = Access::Read;
    }
    let found = refused(schedule);
    assert!(found.to_string().contains("argument 1, which is only read"), "{found}");
}

/// The line of the first backward pass, and the same once more behind it.
fn twice(mut schedule: Schedule) -> (usize, Schedule) {
    let mut lines: Vec<Action> = schedule.actions.values().cloned().collect();
    let own = |line: &Action| {
        line.work.routine().is_some_and(|(routine, _)| routine.index() == BACKWARD[0])
    };
    let first = lines.iter().position(own).expect("there is a backward pass");
    lines.insert(first + 1, lines[first].clone());
    schedule.actions = lines.into_iter().collect();
    (first, schedule.chained())
}

/// Whoever comes after finds a gradient where the activation was, not the activation; where the
/// pass only reads, it is still there.
#[test]
fn nobody_reads_a_gradient_as_what_lay_there() {
    let stale = |(first, schedule): (usize, Schedule)| {
        let found = refused(schedule);
        let stale = |violation: &Violation| match violation {
            Violation::Content { action: line, expected, found, writer, .. } => {
                *line == action(first + 1)
                    && matches!(expected, Held::Activation(..))
                    && *found == Held::Nothing
                    && *writer == Some(action(first))
            }
            _ => false,
        };
        found.iter().any(stale)
    };
    assert!(stale(twice(in_place("~rw"))));
    assert!(!stale(twice(accumulate(2))));
}
