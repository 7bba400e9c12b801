//! What evaluation and reports count on: one forward pass for each stage, in the order of stages, and
//! a loss for every micro-batch.

use crate::tiny::{Builder, Letters, accumulate, action, id, pipeline, row};
use roundelay_schedule::{
    Access, Argument, Duty, Metric, Operand, Reading, Role, Routine, Schedule, Subject,
    Violation, Work, check,
};

/// Violations of a schedule with a fault, as text.
fn told(mut schedule: Schedule, fault: impl FnOnce(&mut Schedule)) -> String {
    fault(&mut schedule);
    check(schedule, &Letters).expect_err("the fault must be found").to_string()
}

#[test]
fn workspace_is_bound_once() {
    let twice = told(accumulate(1), |s| {
        let routine = &mut s.routines[id(0)];
        let size = routine.arguments[0].size;
        let workspace = Argument { role: Role::Workspace, access: Access::Write, size };
        routine.arguments.extend([workspace.clone(), workspace]);
    });
    assert!(twice.contains("binds workspace twice"), "{twice}");
}

#[test]
fn all_micro_batches_of_a_stage_take_one_forward_pass() {
    let another = told(accumulate(2), |s| {
        let own = s.routines.push(s.routines[id(0)].clone());
        let Work::Launch { routine, .. } = &mut s.actions[action(5)].work else {
            panic!("a forward pass")
        };
        *routine = own;
    });
    let law = "as the forward pass of s0, but k0 is launched before";
    assert!(another.contains("a5") && another.contains(law), "{another}");
}

/// A routine that also touches another argument.
fn touching(routine: &mut Routine, role: Role, access: Access) {
    let size = routine.arguments[0].size;
    routine.arguments.push(Argument { role, access, size });
    let mut call = routine.calls[0].clone();
    let letter = if access == Access::Read { "r" } else { "w" };
    call.kernel = format!("{}{letter}", call.kernel).into();
    let argument = call.operands.len() as u32;
    call.operands.push(Operand { argument, ..call.operands[0].clone() });
    routine.calls = vec![call].into();
}

/// Adds a value that one forward pass of [`pipeline`] makes and the other one reads.
fn crossing(schedule: &mut Schedule, (from, to): (usize, usize)) {
    for (stage, access) in [(from, Access::Write), (to, Access::Read)] {
        let buffer = schedule.buffer(stage, Subject::Value(id(1)), 1, 0);
        touching(&mut schedule.routines[id(stage)], Role::Value(id(1)), access);
        for (_, line) in schedule.actions.iter_mut() {
            if let Work::Launch { routine, rows, .. } = &mut line.work
                && *routine == id(stage)
            {
                *rows = rows.iter().copied().chain([row(buffer, 0)]).collect();
            }
        }
    }
}

#[test]
fn values_go_to_later_stages() {
    let law = "reads values of stages before it";
    let back = told(pipeline(), |s| crossing(s, (1, 0)));
    assert!(back.contains("reads v1, which s1 makes") && back.contains(law), "{back}");
    let on = told(pipeline(), |s| crossing(s, (0, 1)));
    assert!(!on.contains(law), "{on}");
}

#[test]
fn every_micro_batch_reports_its_loss() {
    let mut schedule = accumulate(1);
    let forward = &mut schedule.routines[id(0)];
    forward.arguments.pop();
    let mut call = forward.calls[0].clone();
    call.kernel = "rrw".into();
    call.operands.pop();
    forward.calls = vec![call].into();
    let Work::Launch { rows, .. } = &mut schedule.actions[action(1)].work else {
        panic!("a forward pass")
    };
    *rows = rows[..3].into();
    let kept = [0, 1, 3, 4].map(|line| schedule.actions[action(line)].clone());
    schedule.actions = kept.into_iter().collect();
    let found = check(schedule.chained(), &Letters).expect_err("no loss is reported");
    let missing = Violation::Missing { duty: Duty::Report(id(0)) };
    assert!(found.iter().any(|violation| *violation == missing), "{found}");
}

/// Earlier stages may make metrics, but only by passes that are launched.
#[test]
fn what_is_never_launched_measures_nothing() {
    let measured = |launched: bool| {
        let mut schedule = pipeline();
        let metric = Metric { name: "accuracy".into(), reading: Reading::Mean };
        schedule.job.metrics = vec![metric];
        // The last forward pass makes the loss alone.
        let mut call = schedule.routines[id(1)].calls[0].clone();
        let loss = call.operands.last_mut().expect("the loss comes last");
        loss.shape = [1][..].into();
        schedule.routines[id(1)].calls = vec![call].into();
        let mut maker = schedule.routines[id(0)].clone();
        touching(&mut maker, Role::Metric, Access::Write);
        if launched {
            schedule.routines[id(0)] = maker;
        } else {
            schedule.routines.push(maker);
        }
        match check(schedule, &Letters) {
            Ok(_) => String::new(),
            Err(found) => found.to_string(),
        }
    };
    let law = "never writes the loss and every metric";
    assert!(measured(false).contains(law), "{}", measured(false));
    assert!(!measured(true).contains(law), "{}", measured(true));
}
