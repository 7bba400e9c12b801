//! An update is the one step of the job's optimizer: nothing else of the same shape passes for it.

use crate::support::{compiled, plan};
use roundelay::{
    Kernels, Schedule, SourceFile, check, parse,
    parts::schedule::{
        Bytes, Method, Operand, Optimizer, Order, Pass, Placement, Role, Routine, Rule,
        States,
    },
};

/// Two pipelines in opposite directions, which add up their gradients: two stages of a clipped AdamW.
fn schedule() -> Schedule {
    let text = "model small {
        input x: real[batch, 8]
        input y: real[batch, 4]
        loss mse(linear(relu(linear(x, 16)), 4), y)
    }
    device core { memory 1 GB, compute 1 GFLOP/s, bandwidth 1 GB/s }
    link bus { bandwidth 1 GB/s, latency 1 us }
    cluster all { 2 x core joined by bus }
    train { data synthetic, batch 4, optimizer adamw(1e-2, clip = 0.5), steps 4 }";
    let mut program = parse(&SourceFile::new("small.rdl", text)).expect("it is right");
    program.search.exactness = None;
    let kind = (Rule::Sync, Placement::Pipeline, Order::Chimera, States::Replicated);
    compiled(&program, &plan(&program, kind, 2, 2)).into_inner()
}

fn routine(schedule: &mut Schedule, pass: Pass) -> &mut Routine {
    let all = schedule.routines.iter_mut();
    let mut own = all.filter(|(_, routine)| routine.pass == pass);
    own.next().expect("there is such a pass").1
}

fn refused(pass: Pass, change: impl FnOnce(&mut Routine), words: &str) {
    let mut schedule = schedule();
    let own = routine(&mut schedule, pass);
    let before = own.clone();
    change(own);
    assert!(*own != before, "nothing was changed");
    let found = check(schedule, &Kernels).expect_err(words).to_string();
    assert!(found.contains(words), "{words}: {found}");
}

fn operands(routine: &mut Routine) -> &mut Vec<Operand> {
    &mut routine.calls[0].operands
}

fn twice(routine: &mut Routine) {
    let call = routine.calls[0].clone();
    routine.calls = vec![call.clone(), call].into();
}

#[test]
fn an_update_is_one_step_of_the_optimizer() {
    refused(Pass::Update, twice, "must be the only call of its routine");
    let swap = |routine: &mut Routine| operands(routine).swap(3, 4);
    refused(Pass::Update, swap, "the operand `state` must begin at byte 0 of optimizer");
    let halve = |routine: &mut Routine| {
        for operand in operands(routine) {
            let half = operand.elements().expect("it is small").div_ceil(2);
            operand.shape = [half][..].into();
        }
    };
    refused(Pass::Update, halve, "the operand `state` must begin at byte");
    let other = |routine: &mut Routine| {
        let gradient = operands(routine)[0].clone();
        operands(routine)[1] = gradient;
    };
    refused(
        Pass::Update,
        other,
        "the operand `parameter` must begin at byte 0 of parameter",
    );
    let longer = |routine: &mut Routine| {
        let states = routine.arguments.iter_mut().find(|own| own.role == Role::Optimizer);
        states.expect("AdamW has states").size.0 += 4;
    };
    refused(Pass::Update, longer, "of which an update knows");
}

#[test]
fn what_is_received_is_added_once_and_as_a_whole() {
    refused(Pass::Combine, twice, "must be one call that adds all");
    let shift = |routine: &mut Routine| {
        let all = operands(routine)[0].elements().expect("it is small");
        operands(routine)[0].shape = [all - 1][..].into();
        operands(routine)[1].shape = [all - 1][..].into();
        operands(routine)[0].offset = Bytes(4);
    };
    refused(Pass::Combine, shift, "must be one call that adds all");
    // With another rule it reads and updates the same arrays.
    let other = |routine: &mut Routine| {
        let call = &mut routine.calls[0];
        call.kernel = "sum_rows".into();
        let shape = [&[1], &*call.operands[0].shape].concat();
        call.operands[0].shape = shape[..].into();
    };
    refused(Pass::Combine, other, "must be one call that adds all");
}

#[test]
fn the_schedule_itself_is_right() {
    let schedule = schedule();
    let Optimizer { method, clip, .. } = &schedule.job.optimizer;
    assert!(matches!(method, Method::Adamw { .. }) && *clip > 0.0);
    assert!(check(schedule, &Kernels).is_ok());
}
