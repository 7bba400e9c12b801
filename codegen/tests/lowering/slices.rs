//! The golden numbers of sliced sequences, on compiled schedules that ran on the clock: a whole
//! forward pass of a device takes 1, a backward pass 2, one of k slices a k-th of it (arXiv
//! 2406.03488, 2102.07988), and what the checker says of slices in a wrong order.

use crate::{
    models,
    orders::{pipeline, step},
};
use roundelay_codegen::lower;
use roundelay_dsl::Program;
use roundelay_kernels::Kernels;
use roundelay_schedule::{
    Bytes, BytesPerSecond, Checked, Id, Nanos, Order, Pass, Plan, Schedule, Stage, Work,
    check,
};

/// One time unit.
const UNIT: u64 = 1_000_000;

/// `layers` layers that attend, equal but for the loss; operations of each.
fn program(layers: u32, batch: u32) -> Program {
    let layer = "x = attention(x, 2, causal = true)";
    let body = vec![layer; layers as usize].join("\n");
    models::program(&format!(
        "model layers {{
            input features: real[batch, 8, 4]
            input wanted: real[batch, 8, 4]
            x = features
            {body}
            loss mse(x, wanted)
        }}
        {}",
        models::job(batch)
    ))
}

/// A pipeline with a layer per stage.
fn plan(program: &Program, order: Order, (p, n, k): (u32, u32, u32)) -> Plan {
    let each = (program.model.cuttable() as u32 - 1) / p;
    let cuts = (1..p).map(|stage| stage * each).collect();
    Plan { cuts, ..pipeline(order, p, 1, n) }.with_slices(k)
}

fn lowered(order: Order, size: (u32, u32, u32)) -> Schedule {
    let program = program(size.0, size.1);
    let plan = plan(&program, order, size);
    let mut schedule = lower(&program, &plan).unwrap();
    for (_, routine) in schedule.routines.iter_mut() {
        let whole = match routine.pass {
            Pass::Forward => UNIT,
            Pass::Backward => 2 * UNIT,
            _ => 0,
        };
        routine.predicted = Nanos(whole / u64::from(size.2));
    }
    for (_, link) in schedule.target.links.iter_mut() {
        link.bandwidth = BytesPerSecond(u64::MAX);
        link.latency = Nanos(0);
    }
    schedule
}

fn compiled(order: Order, size: (u32, u32, u32)) -> Checked {
    check(lowered(order, size), &Kernels).unwrap_or_else(|wrong| panic!("{wrong}"))
}

#[test]
fn spans_and_what_is_kept_are_those_of_the_papers() {
    let (seq, tera) = (Order::SlicesOneForwardOneBackward, Order::TeraPipe);
    for (order, (p, n, k), kept) in [
        (seq, (4, 8, 4), vec![7, 6, 5, 4]),
        (seq, (4, 8, 2), vec![5, 4, 3, 2]),
        (seq, (2, 3, 8), vec![9, 8]),
        (seq, (4, 1, 4), vec![4, 4, 4, 4]),
        (tera, (4, 2, 4), vec![8; 4]),
        (tera, (2, 3, 2), vec![6; 2]),
    ] {
        let found = step(&compiled(order, (p, n, k)));
        // Every device idles (p − 1)(F + B) / k.
        let slices = 3 * (u64::from(n * k) + u64::from(p) - 1);
        let span = found.span as f64 / UNIT as f64;
        let expected = slices as f64 / f64::from(k);
        assert!((span - expected).abs() < 1e-3, "{order} {p} {n} {k}: {span}");
        assert_eq!(found.kept, kept, "{order} {p} {n} {k}");
    }
}

/// A later slice attends to more and takes longer; all keep as much but for what they share.
#[test]
fn slices_keep_equal_shares() {
    let schedule = compiled(Order::SlicesOneForwardOneBackward, (2, 2, 4));
    let sizes = |stage: usize| -> Vec<Bytes> {
        let own = schedule.buffers.values().filter(|buffer| {
            buffer.subject == roundelay_schedule::Subject::Activation(Stage::new(stage))
        });
        own.map(|buffer| buffer.size).collect()
    };
    let first = sizes(0);
    assert_eq!(first.len(), 1);
    assert!((0..8).all(|stage| sizes(stage)[0] <= first[0] * 2), "{first:?}");
}

/// The places of two launches in the list, by pass and stage, of the first micro-batch.
fn launches(schedule: &Schedule, of: [(Pass, usize); 2]) -> [usize; 2] {
    of.map(|(pass, stage)| {
        let is = |action: &roundelay_schedule::Action| {
            schedule.task(action).is_some_and(|task| {
                (task.pass, task.stage.index()) == (pass, stage)
                    && task.micro_batch.is_some_and(|i| i.index() == 0)
            })
        };
        schedule.actions.values().position(is).unwrap()
    })
}

/// What two launches run and touch is exchanged; their places and waits stay.
fn exchanged(schedule: &Schedule, places: [usize; 2]) -> Schedule {
    let mut wrong = schedule.clone();
    let works: Vec<Work> =
        schedule.actions.values().map(|action| action.work.clone()).collect();
    for (place, (_, action)) in wrong.actions.iter_mut().enumerate() {
        if let Some(at) = places.iter().position(|other| *other == place) {
            action.work = works[places[1 - at]].clone();
        }
    }
    wrong
}

#[test]
fn slices_in_a_wrong_order_are_refused() {
    // On the last device nothing but its own order keeps slices apart.
    let schedule = lowered(Order::SlicesOneForwardOneBackward, (2, 1, 4));
    check(schedule.clone(), &Kernels).unwrap_or_else(|wrong| panic!("{wrong}"));
    for (pass, stages, told) in [
        (Pass::Backward, [6, 5], "expected gradient(v"),
        (Pass::Backward, [7, 6], "expected gradient(v"),
        (Pass::Forward, [4, 5], "expected value(v"),
        (Pass::Forward, [5, 6], "expected value(v"),
    ] {
        let places = launches(&schedule, stages.map(|stage| (pass, stage)));
        let wrong = check(exchanged(&schedule, places), &Kernels);
        let wrong = wrong.expect_err("slices depend on each other").to_string();
        assert!(wrong.contains(told), "{pass} {stages:?}: {wrong}");
    }
}

#[test]
fn plans_that_take_no_slices_are_refused_by_name() {
    let program = program(2, 4);
    let seq = Order::SlicesOneForwardOneBackward;
    for (order, slices, told) in [
        (Order::OneForwardOneBackward, 2, "seq1f1b and terapipe"),
        (seq, 1, "takes slices of sequences"),
        (seq, 3, "do not divide its sequence of 8"),
    ] {
        let plan = plan(&program, order, (2, 2, slices));
        let wrong = lower(&program, &plan).unwrap_err().to_string();
        assert!(wrong.contains(told), "{wrong}");
    }
}

/// What mixes tokens has no slices.
#[test]
fn operations_that_mix_tokens_are_refused_by_name() {
    for (line, told) in [
        ("x = attention(x, 2)", "not causal"),
        (
            "x = attention(x, 2, causal = true, stored_scores = true, dropout = 0.1)",
            "stored scores",
        ),
        ("x = softmax(reshape(x, [batch, 4, 8]))", "mixes the tokens"),
        ("x = x + batch_norm(table)", "for every slice"),
        ("x = x + dropout(table, 0.1)", "what all tokens share"),
    ] {
        let program = models::program(&format!(
            "model layers {{
                input features: real[batch, 8, 4]
                input wanted: real[batch, 8, 4]
                param table: [8, 4] = normal(0.02)
                x = attention(features, 2, causal = true)
                y = x
                {line}
                x = reshape(x, [batch, 8, 4]) + y
                loss mse(attention(x, 2, causal = true), wanted)
            }}
            {}",
            models::job(4)
        ));
        let plan = plan(&program, Order::SlicesOneForwardOneBackward, (1, 2, 2));
        let wrong = lower(&program, &plan).unwrap_err().to_string();
        assert!(wrong.contains(told), "{line}: {wrong}");
    }
}
