//! A loss that makes its own logits, chunk by chunk: the same bits as the loss of a linear map, less
//! memory, and replays like any other loss.

use crate::{
    columns::{descending, grids, trains_like_one_device},
    models::{even_cuts, job, program},
    oracle::{RESTS, compare_one},
    plans::{kinds, pipelines},
    support::{compiled, plan, saved},
};
use roundelay::{
    Checked, Plan, Program,
    parts::{
        runtime::{Cpu, CpuOptions, Dataset, Fill, State},
        schedule::{
            Contraction, DeviceId, Float, Id, Kind, Order, Placement, Rule, Sequence,
            States, Tensor,
        },
    },
};

const CHUNKED: &str =
    "linear_cross_entropy(layer_norm(x), targets, weight = table, chunks = 3)";
const WHOLE: &str =
    "cross_entropy(linear(layer_norm(x), weight = table, bias = false), targets)";

fn text(loss: &str) -> String {
    format!(
        "model tied {{
            input tokens:  i32[batch, 8]
            input targets: i32[batch, 8]
            param table: [60, 16] = normal(0.02)
            x = embedding(tokens, table) + positions(8, 16)
            repeat 2 as layer {{
                x = x + dropout(attention(layer_norm(x), 2, causal = true), 0.1)
                x = x + linear(gelu(linear(layer_norm(x), 32)), 16)
            }}
            loss {loss}
        }}"
    )
}

fn tied(loss: &str, batch: u32) -> Program {
    program(&format!("{}\n{}", text(loss), job(batch)))
}

/// All examples in one micro-batch on one device.
fn alone(program: &Program) -> Checked {
    let kind = (Rule::Sync, Placement::Accumulate, Order::Sequential, States::Replicated);
    compiled(program, &plan(program, kind, 1, 1))
}

/// The losses of six steps, and what is there then.
fn trained(program: &Program) -> (Vec<f64>, State) {
    let schedule = alone(program);
    let data = Dataset::open(&schedule.job, None).unwrap();
    let options = CpuOptions { fill: Fill::Poison, ..CpuOptions::default() };
    let mut cpu = Cpu::new(&schedule, Box::new(data), options).unwrap();
    cpu.load(&State::initial(&schedule.job)).unwrap();
    let mut losses = Vec::new();
    cpu.replay(6, &mut |loss| losses.push(loss.loss)).unwrap();
    (losses, saved(&mut cpu))
}

/// With one micro-batch nothing is added to a gradient before that of the table.
#[test]
fn chunks_train_to_the_bits_of_all_logits_together() {
    for masked in ["", ", masked = true"] {
        let [chunked, whole] = [CHUNKED, WHOLE].map(|loss| {
            let loss = format!("{}{masked})", loss.strip_suffix(')').unwrap());
            trained(&tied(&loss, 4))
        });
        assert_eq!(chunked.0, whole.0, "losses");
        assert!(chunked.1 == whole.1, "weights and states");
    }
}

/// Of the logits of 32 tokens in 60 classes 11 rows are there at a time, and until the backward pass
/// two gradients stay instead of logits, their statistics and what goes into the map.
#[test]
fn logits_take_the_memory_of_one_chunk() {
    let key = (DeviceId::new(0), Kind::Activation);
    let [chunked, whole] =
        [CHUNKED, WHOLE].map(|loss| alone(&tied(loss, 4)).facts().kinds[&key].0);
    let (logits, lse, x, weight) = (32 * 60 * 4, 32 * 4, 32 * 16 * 4, 60 * 16 * 4);
    assert_eq!(whole - chunked, (logits + lse + x) - (x + weight));
}

/// Rows of logits are whole multiples of 16 bytes in 16 bits, and of 128 where there are many: 11 rows of 61
/// classes have room for 64, one row of 50,257 has it for 50,304.
#[test]
fn rows_of_logits_have_room_to_be_aligned() {
    let cases = [
        (61, 3, [11, 64]),
        (64, 3, [11, 64]),
        (4096, 32, [1, 4096]),
        (50_257, 32, [1, 50_304]),
    ];
    for (classes, chunks, expected) in cases {
        let loss = CHUNKED.replace("chunks = 3", &format!("chunks = {chunks}"));
        let model = text(&loss).replace("[60, 16]", &format!("[{classes}, 16]"));
        let schedule = alone(&program(&format!("{model}\n{}", job(4))));
        let calls = schedule.routines.iter().flat_map(|(_, routine)| &routine.calls);
        let losses = calls.filter(|call| &*call.kernel == "linear_cross_entropy");
        let shapes: Vec<&[u64]> =
            losses.map(|call| &call.operands[3].shape[..]).collect();
        assert_eq!(shapes, [&expected[..]], "{classes} classes");
    }
}

#[test]
fn every_kind_of_plan_replays_like_the_recursion() {
    let program = program(&format!(
        "{}\n{}",
        text("0.5 * linear_cross_entropy(layer_norm(x), targets, 60)"),
        job(3)
    ));
    for kind in kinds(3, 3) {
        compare_one(&program, &plan(&program, kind, 3, 3), &RESTS[2..]);
    }
    for plan in pipelines(3, &even_cuts(&program, 3)) {
        compare_one(&program, &plan, &RESTS[2..]);
    }
}

#[test]
fn slices_replay_like_the_recursion() {
    let program = tied("linear_cross_entropy(x, targets, 60, chunks = 2)", 2);
    let (rule, place, states) = (Rule::Sync, Placement::Pipeline, States::Replicated);
    let order = Order::SlicesOneForwardOneBackward;
    let plan = Plan::new(rule, place, order, states, 2, even_cuts(&program, 2));
    compare_one(&program, &plan.with_slices(4), &RESTS[2..]);
}

/// Also of classes that parts do not divide evenly, of fewer classes than parts, of a table that is stored in
/// parts, and of a matrix of the loss's own.
#[test]
fn split_tensors_train_like_one_device() {
    let masked = CHUNKED.replace("chunks = 3", "masked = true");
    let own =
        |classes: u64| format!("linear_cross_entropy(layer_norm(x), targets, {classes})");
    let (few, many) = (own(5), own(61));
    for (loss, rows) in [
        (CHUNKED, 60),
        (CHUNKED, 61),
        (CHUNKED, 600),
        (&masked, 60),
        (&masked, 3),
        (&few, 5),
        (&many, 60),
    ] {
        let text = text(loss).replace("[60, 16]", &format!("[{rows}, 16]"));
        let program = descending(&text, 4, "1e-1", Float::F64);
        let grids = grids().filter(|tensor| [2, 4].contains(&tensor.parts()));
        trains_like_one_device(&program, grids, 1e-12);
    }
    let program = descending(&text(CHUNKED), 4, "1e-1", Float::F64);
    let halves = Tensor::rows(2, Sequence::Split).in_halves();
    let gathered = Tensor { contraction: Contraction::Gather, ..Tensor::grid(1, 2) };
    trains_like_one_device(&program, [halves, gathered], 1e-12);
}

/// Each part has the logits of its own classes alone, of all tokens.
#[test]
fn parts_divide_the_classes_of_a_loss_that_makes_its_logits() {
    for (classes, tensor, own) in [
        (60, Tensor::rows(2, Sequence::Whole), Some(30)),
        (61, Tensor::rows(2, Sequence::Whole), Some(31)),
        (60, Tensor::grid(2, 2), Some(15)),
        (61, Tensor::grid(2, 2), Some(16)),
        (3, Tensor::rows(4, Sequence::Whole), None),
    ] {
        let text = text(CHUNKED).replace("[60, 16]", &format!("[{classes}, 16]"));
        let program = program(&format!("{text}\n{}", job(4)));
        let kind =
            (Rule::Sync, Placement::Accumulate, Order::Sequential, States::Replicated);
        let schedule =
            compiled(&program, &plan(&program, kind, 1, 1).with_tensor(tensor));
        let calls = || schedule.routines.iter().flat_map(|(_, routine)| &routine.calls);
        let whole = calls().any(|call| &*call.kernel == "linear_cross_entropy");
        assert_eq!(whole, own.is_none(), "{classes} classes among {tensor:?}");
        let parts = calls().filter(|call| &*call.kernel == "cross_entropy_part");
        let shapes: Vec<&[u64]> = parts.map(|call| &call.operands[0].shape[..]).collect();
        let expected: Vec<[u64; 3]> = own.map(|own| [4, 8, own]).into_iter().collect();
        assert_eq!(shapes, expected, "{classes} classes among {tensor:?}");
    }
}

/// Two losses, of which one counts less, and chunks of which the last is short.
#[test]
fn sums_of_losses_replay_like_the_recursion() {
    let loss = "linear_cross_entropy(layer_norm(x), targets, 60, chunks = 5, masked = true) \
                + 0.25 * linear_cross_entropy(x, targets, 60)";
    let program = tied(loss, 2);
    for kind in kinds(2, 2) {
        compare_one(&program, &plan(&program, kind, 2, 2), &RESTS[2..]);
    }
}
