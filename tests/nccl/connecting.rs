//! Which ranks NCCL connects, what it says where it lacks memory for that, and that messages go to it in
//! groups that it may take in an order of its own.

use crate::{
    bench::{Bench, has_compiler, program},
    world::World,
};
use std::path::PathBuf;

/// Bytes that NCCL takes of a device for each rank that it connects with.
const EACH: u64 = 3 << 20;

/// Plans, their ranks, and how many pairs of these exchange messages.
const PLANS: [(&str, u32, u64, &str); 4] = [
    ("chain", 4, 3, "rule sync, placement pipeline, micro_batches 4, stages 4"),
    (
        "copies",
        4,
        6,
        "rule sync, placement data, micro_batches 4, stages 1, states replicated",
    ),
    ("turned", 3, 3, "rule cyclic_v2, placement shared, micro_batches 2, stages 2"),
    (
        "square",
        4,
        4,
        "rule sync, placement pipeline, order 1f1b, micro_batches 2, stages 2, tensor { rows 2 }",
    ),
];

#[test]
fn ranks_that_exchange_messages_are_connected_and_no_others() {
    if !has_compiler() {
        return;
    }
    for (name, ranks, pairs, plan) in PLANS {
        let world = World::new(&format!("connected-{name}"), ranks)
            .set("STANDIN_NCCL_TAKES", &EACH.to_string());
        let file = program(&world.bench, name, ranks, "steps 3", plan);
        // The stand-in ends a rank that has a message for one that it never met.
        let run = world.train("--device cuda", &file);
        assert_eq!(run.end["gpus"]["connection_bytes"], 2 * pairs * EACH, "{name}");
    }
}

#[test]
fn memory_that_nccl_lacks_is_named_with_what_makes_it_less() {
    let world =
        World::new("lacking", 2).on(1, "STANDIN_NCCL_TAKES", &(8u64 << 30).to_string());
    for own in world.run("devices --self-check --largest 1 --deadline 20", None) {
        assert_eq!(own.code, 3, "{own:?}");
        let said =
            "unhandled cuda error (out of memory); memory of the device may be missing: ";
        for word in ["rank 1 ", said, "NCCL_MAX_P2P_NCHANNELS or NCCL_BUFFSIZE"] {
            assert!(own.err.contains(word), "`{word}`: {}", own.err);
        }
    }
}

/// A network whose stages send each other several values, so that a rank often has several messages from
/// one, and others for another, with nothing of its own between them.
fn skipping(bench: &Bench, order: &str) -> PathBuf {
    let step = "linear(gelu(linear(layer_norm(";
    let text = format!(
        "model skipping {{
            seq = 8, width = 16, vocab = 24
            input tokens:  i32[batch, seq]
            input targets: i32[batch, seq]
            e = embedding(tokens, vocab, width) + positions(seq, width)
            x = {step}e), 2 * width)), width)
            y = e + {step}x), 2 * width)), width)
            z = y + {step}y), 2 * width)), width)
            w = e + {step}z), 2 * width)), width)
            loss cross_entropy(linear(layer_norm(w), vocab), targets)
        }}
        device core {{ memory 64 MB, compute 40 GFLOP/s, bandwidth 10 GB/s }}
        link bus {{ bandwidth 8 GB/s, latency 2 us }}
        cluster some {{ 3 x core joined by bus }}
        train {{ data synthetic, batch 8, optimizer adamw(lr = 1e-2), seed 11, steps 3 }}
        plan {{
            exactness delayed, rule sync, placement pipeline, {order}, micro_batches 4, stages 3
        }}"
    );
    bench.scratch.file("skipping.rdl", &text)
}

/// Were all neighbouring messages of a rank one group, NCCL would send the second one from a rank after
/// others that stand later in the list, and ranks would wait for each other in a circle.
#[test]
fn ranks_that_send_each_other_several_values_do_not_wait_in_a_circle() {
    if !has_compiler() {
        return;
    }
    for order in ["gpipe", "1f1b"] {
        let whole = World::new(&format!("skipping-{order}"), 1);
        let file = skipping(&whole.bench, &format!("order {order}"));
        let one = whole.bench.run("--device cuda", &file, &[]);
        let world = World::new(&format!("skipping-{order}-ranks"), 3)
            .set("STANDIN_CUDA_ORDER", "late")
            .set("STANDIN_NCCL_SENDS", "met");
        assert!(world.train("--device cuda", &file).is(&one), "{order}");
    }
}
