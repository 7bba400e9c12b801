//! Sequences in slices: replays equal the recursion bit for bit, whatever else is decided, and train
//! like whole sequences but for rounding.

use crate::{
    models::{even_cuts, gpt, job, program},
    oracle::{RESTS, compare_one},
    support::{compiled, saved},
};
use roundelay::{
    Plan, Program,
    parts::{
        runtime::{Cpu, CpuOptions, Dataset, State},
        schedule::{Float, Order, Placement, Recompute, Rule, States},
    },
};

const SEQ: Order = Order::SlicesOneForwardOneBackward;

/// A pipeline over even cuts.
fn pipeline(program: &Program, order: Order, [n, s, slices]: [u32; 3]) -> Plan {
    let (rule, place, states) = (Rule::Sync, Placement::Pipeline, States::Replicated);
    let plan = Plan::new(rule, place, order, states, n, even_cuts(program, s));
    plan.with_slices(slices)
}

/// Shared key heads that see a window, rotary positions in a part of each head, gates, capped
/// scores, and a metric; no dropout, whose masks differ by nothing but let gradients vanish.
fn grouped(n: u32, dtype: Float) -> Program {
    let adamw = "adamw(lr = step(1e-2, 0.1, 3), weight_decay = 0.1)";
    let plain = job(n).replace(adamw, "sgd(lr = 1e-2)");
    let mut program = program(&format!(
        "model grouped {{
            input tokens:  i32[batch, 12]
            input targets: i32[batch, 12]
            x = embedding(tokens, 24, 16)
            repeat 2 as layer {{
                x = x + attention(
                    rms_norm(x), 4, key_heads = 2, causal = true, rotary = 100, window = 7,
                    rotary_factor = 2, rotary_original = 12, rotary_low = 0.5, rotary_high = 3
                )
                x = x + dropout(gated(rms_norm(x), 16), 0.2)
            }}
            logits = linear(layer_norm(x), 24)
            loss cross_entropy(logits, targets)
            metric accuracy(logits, targets)
        }}
        {plain}"
    ));
    program.train.dtype = dtype;
    program
}

#[test]
fn slices_replay_like_the_recursion() {
    let program = gpt(2, 4);
    for (order, size) in [
        (SEQ, [4, 4, 2]),
        (SEQ, [2, 3, 4]),
        (SEQ, [1, 2, 8]),
        (SEQ, [4, 1, 2]),
        (Order::TeraPipe, [2, 4, 4]),
    ] {
        compare_one(&program, &pipeline(&program, order, size), &RESTS);
    }
}

#[test]
fn slices_that_compute_again_replay_like_the_recursion() {
    let program = grouped(4, Float::F32);
    for recompute in Recompute::STEPS.iter().copied() {
        let plan = pipeline(&program, SEQ, [2, 3, 3]).recomputing(recompute);
        compare_one(&program, &plan, &RESTS[2..]);
    }
}

#[test]
fn replicas_of_slices_replay_like_the_recursion() {
    let program = gpt(2, 4);
    let plan = pipeline(&program, SEQ, [2, 2, 4]).replicated(2, 1);
    compare_one(&program, &plan, &RESTS[2..]);
}

/// The losses of a few steps, of which the later ones show the gradients of the earlier.
fn losses(program: &Program, plan: &Plan) -> Vec<f64> {
    const STEPS: u64 = 3;
    let schedule = compiled(program, plan);
    let data = Dataset::open(&schedule.job, None).unwrap();
    let mut cpu = Cpu::new(&schedule, Box::new(data), CpuOptions::default()).unwrap();
    cpu.load(&State::initial(&schedule.job)).unwrap();
    let all = plan.all_micro_batches() as usize;
    let mut losses = vec![0.0; STEPS as usize * all];
    cpu.replay(STEPS, &mut |loss| {
        losses[loss.step as usize * all + loss.micro_batch as usize] = loss.loss;
    })
    .unwrap();
    losses
}

#[test]
fn slices_train_like_whole_sequences() {
    for (dtype, most) in [(Float::F64, 1e-12), (Float::F32, 1e-5)] {
        let program = grouped(4, dtype);
        let whole = pipeline(&program, Order::OneForwardOneBackward, [2, 2, 1]);
        let expected = losses(&program, &whole);
        for slices in [2, 3, 4, 6, 12] {
            let plan = pipeline(&program, SEQ, [2, 3, slices]);
            for (one, other) in losses(&program, &plan).iter().zip(&expected) {
                let error = (one - other).abs() / other.abs();
                assert!(error < most, "{dtype} {slices}: {one} for {other}");
            }
        }
    }
}

/// Data, masks and parameters are those of whole sequences, and so is what is saved.
#[test]
fn a_state_goes_from_slices_to_whole_sequences() {
    let program = grouped(4, Float::F64);
    let plan = pipeline(&program, Order::Gpipe, [2, 2, 1]);
    let expected = losses(&program, &plan);
    let [whole, sliced] =
        [plan, pipeline(&program, SEQ, [2, 2, 4])].map(|plan| compiled(&program, &plan));
    let mut state = State::initial(&sliced.job);
    assert!(state == State::initial(&whole.job));
    let mut last = [0.0; 2];
    for (schedule, end) in [(&sliced, 2), (&whole, 3)] {
        let data = Dataset::open(&schedule.job, None).unwrap();
        let mut cpu = Cpu::new(schedule, Box::new(data), CpuOptions::default()).unwrap();
        cpu.load(&state).unwrap();
        cpu.replay(end, &mut |loss| last[loss.micro_batch as usize] = loss.loss).unwrap();
        state = saved(&mut cpu);
    }
    for (one, other) in last.iter().zip(&expected[4..]) {
        assert!((one - other).abs() < 1e-12 * other.abs(), "{one} for {other}");
    }
}
