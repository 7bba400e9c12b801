//! Backward passes in halves: one planted fault each, refused with the right violation.

use crate::tiny::{
    Builder, Letters, action, at,
    halves::{halves, line, whole},
    id, row,
};
use roundelay_schedule::{
    Action, Duty, Held, Id, MicroBatch, Nanos, Pass, Schedule, Task, Violation,
    Violations, Work, check, grid, simulate, trace,
};

const N: usize = 2;

/// The violations of two micro-batches in halves, after a change.
fn refused(fault: impl FnOnce(&mut Schedule)) -> Violations {
    let mut schedule = halves(N as u32);
    fault(&mut schedule);
    check(schedule, &Letters).expect_err("the fault must be found")
}

/// Lists the lines anew, and chains them.
fn relisted(schedule: &mut Schedule, change: impl FnOnce(&mut Vec<Action>)) {
    let mut lines: Vec<Action> = schedule.actions.values().cloned().collect();
    change(&mut lines);
    schedule.actions = lines.into_iter().collect();
    *schedule = schedule.clone().chained();
}

fn duty(pass: Pass, i: usize) -> Duty {
    Duty::Task(Task { pass, stage: id(0), micro_batch: Some(MicroBatch::new(i)) })
}

#[test]
fn a_weight_gradient_before_its_input_gradient_reads_what_is_not_there() {
    let [input, weight] =
        [Pass::InputGradient, Pass::WeightGradient].map(|pass| line(pass, 0, N));
    let found = refused(|s| {
        relisted(s, |lines| {
            let early = lines.remove(weight);
            lines.insert(input, early);
        });
    });
    let reads = |violation: &Violation| match violation {
        Violation::Content { action, expected: Held::Adjoint(..), .. } => {
            action.index() == input
        }
        _ => false,
    };
    assert!(found.iter().any(reads), "{found}");
    assert!(found.to_string().contains("expected adjoint(s0, i0, t)"), "{found}");
}

#[test]
fn each_half_stands_once() {
    for pass in [Pass::InputGradient, Pass::WeightGradient] {
        let own = line(pass, 1, N);
        let missing = refused(|s| relisted(s, |lines| drop(lines.remove(own))));
        let lacks = |v: &Violation| *v == Violation::Missing { duty: duty(pass, 1) };
        assert!(missing.iter().any(lacks), "{missing}");
        let twice = refused(|s| {
            relisted(s, |lines| lines.insert(own, lines[own].clone()));
        });
        let repeats = |violation: &Violation| {
            let duty = duty(pass, 1);
            let first = action(own);
            let action = action(own + 1);
            *violation == Violation::Repeated { action, first, duty }
        };
        assert!(twice.iter().any(repeats), "{twice}");
    }
}

#[test]
fn a_stage_takes_whole_passes_or_halves() {
    let found = refused(|s| {
        let backward = whole(s);
        s.launch(at(0, 0), backward, Some(0), &[row(0, 0), row(2, 0), row(1, 0)]);
        *s = s.clone().chained();
    });
    let first = action(line(Pass::InputGradient, 0, N));
    let mixed = |violation: &Violation| match violation {
        Violation::Mixed { first: known, task, other, .. } => {
            let passes = (task.pass, other.pass);
            *known == first && passes == (Pass::Backward, Pass::InputGradient)
        }
        _ => false,
    };
    assert!(found.iter().any(mixed), "{found}");
    let text = found.to_string();
    assert!(text.contains("a11 does B of s0 on i0, but a3 does I of s0 on i0"), "{text}");
    assert!(text.contains("either B or both I and W"), "{text}");
}

#[test]
fn rows_of_the_wrong_micro_batch_are_refused() {
    let weight = action(line(Pass::WeightGradient, 0, N));
    for place in 0..2 {
        let found = refused(|s| match &mut s.actions[weight].work {
            Work::Launch { rows, .. } => rows[place].place = 1,
            other => panic!("no launch: {other:?}"),
        });
        let wrong = |violation: &Violation| match violation {
            Violation::Content { action, found, expected, .. } => {
                let retained = place == 0;
                *action == weight
                    && matches!(found, Held::Retained(_, i, 0) | Held::Adjoint(_, i, 0) if i.index() == 1)
                    && matches!(expected, Held::Retained(..)) == retained
            }
            _ => false,
        };
        assert!(found.iter().any(wrong), "{found}");
    }
}

#[test]
fn halves_do_only_what_is_theirs() {
    use roundelay_schedule::{Access, Role};
    let refuse = |routine: usize, (role, access): (Role, Access)| {
        let found = refused(|s| {
            let argument = &mut s.routines[id(routine)].arguments[2];
            (argument.role, argument.access) = (role, access);
        });
        assert!(found.to_string().contains("must not"), "{found}");
    };
    refuse(1, (Role::Gradient, Access::Write));
    refuse(2, (Role::ValueGradient(id(0)), Access::Write));
    refuse(2, (Role::Activation, Access::Read));
    refuse(2, (Role::Adjoint, Access::Write));
}

#[test]
fn halves_are_shown() {
    let checked = check(halves(N as u32), &Letters).expect("it is sound");
    let run = simulate(&checked, 2);
    let text = grid(&run, &run, Nanos(0), run.makespan());
    let cells = "0F 0I 1F 1I 0W 1W U";
    assert_eq!(text.matches(cells).count(), 2, "{text}");
    let legend = "F forward, I input gradient, W weight gradient, U update";
    assert!(text.contains(legend), "{text}");
    let trace = format!("{:?}", trace(&run));
    assert!(trace.contains("\"I0\"") && trace.contains("\"W0\""), "{trace}");
}
