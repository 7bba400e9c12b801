//! Metrics leave every bit of training as it was, whichever stage they read from, and say the same
//! at every cut.

use crate::{
    models::{job, program},
    plans::kinds,
    support::{compiled, plan, saved},
};
use roundelay::{
    Checked, Measures, Plan, Program,
    parts::runtime::{Cpu, CpuOptions, Dataset, Evaluator, Fill, HeldOut, Oracle, State},
};

const STEPS: u64 = 4;

/// A language model whose first value is read again by a metric alone.
fn model(metrics: &str) -> Program {
    program(&format!(
        "model gpt {{
            input tokens:  i32[batch, 8]
            input targets: i32[batch, 8]
            early = embedding(tokens, 24, 24) + positions(8, 24)
            x = early + attention(layer_norm(early), 2, causal = true)
            x = x + dropout(linear(relu(linear(layer_norm(x), 32)), 24), 0.1)
            logits = linear(layer_norm(x), 24)
            loss cross_entropy(logits, targets)
            {metrics}
        }}
        {}",
        job(12)
    ))
}

fn measured() -> Program {
    model(
        "metric perplexity(logits, targets)
         metric accuracy(logits, targets)
         first = accuracy(gelu(early), targets)
         metric first",
    )
}

/// Losses of every step in bits, and the state after the last.
type Outcome = (Vec<u64>, State);

fn recursion(schedule: &Checked) -> Outcome {
    let data = Dataset::open(&schedule.job, None).unwrap();
    let mut oracle = Oracle::new(schedule, &State::initial(&schedule.job)).unwrap();
    let step = |_| oracle.advance(&mut data.clone());
    let losses = (0..STEPS).flat_map(step).map(f64::to_bits).collect();
    (losses, oracle.state())
}

fn replay(schedule: &Checked) -> Outcome {
    let data = Dataset::open(&schedule.job, None).unwrap();
    let options = CpuOptions { fill: Fill::Poison, ..CpuOptions::default() };
    let mut cpu = Cpu::new(schedule, Box::new(data), options).unwrap();
    cpu.load(&State::initial(&schedule.job)).unwrap();
    let n = u64::from(schedule.plan.micro_batches);
    let mut losses = vec![0; (STEPS * n) as usize];
    let mut listen = |loss: roundelay::parts::runtime::Loss| {
        losses[(loss.step * n + loss.micro_batch) as usize] = loss.loss.to_bits();
    };
    cpu.replay(STEPS, &mut listen).unwrap();
    (losses, saved(&mut cpu))
}

fn measure(schedule: &Checked, state: &State) -> Measures {
    let data = Dataset::open(&schedule.job, None).unwrap();
    let mut held_out = data.held_out(HeldOut::EXAMPLES).unwrap();
    let count = held_out.micro_batches();
    let mut evaluator = Evaluator::new(schedule).unwrap();
    evaluator.measure(state, &mut held_out, count).unwrap()
}

/// The recursion without metrics, with them, and the replay with them are one.
fn compare(plain: &Program, measured: &Program, plan: &Plan) {
    let with = compiled(measured, plan);
    let expected = recursion(&compiled(plain, plan));
    assert!(recursion(&with) == expected, "recursion of {plan:?}");
    assert!(replay(&with) == expected, "replay of {plan:?}");
}

#[test]
fn metrics_change_no_bit_under_any_plan() {
    let (plain, measured) = (model(""), measured());
    for (n, s) in [(2, 2), (3, 3), (2, 3), (3, 2)] {
        for kind in kinds(n, s) {
            compare(&plain, &measured, &plan(&plain, kind, n, s));
        }
    }
}

#[test]
fn metrics_change_no_bit_at_any_cut_and_say_the_same() {
    let (plain, measured) = (model(""), measured());
    let mut said: Vec<Measures> = Vec::new();
    for at in 1..plain.model.nodes.len() as u32 {
        for kind in kinds(2, 2) {
            let uncut = plan(&plain, kind, 2, 2);
            compare(&plain, &measured, &Plan { cuts: vec![at], ..uncut });
        }
        let plan = Plan { cuts: vec![at], ..plan(&plain, kinds(2, 2)[0], 2, 2) };
        let schedule = compiled(&measured, &plan);
        said.push(measure(&schedule, &recursion(&schedule).1));
    }
    assert!(said.windows(2).all(|pair| pair[0] == pair[1]));
    let Measures { loss, metrics } = &said[0];
    assert_eq!(metrics["perplexity"], loss.exp());
    let names: Vec<&str> = metrics.keys().map(String::as_str).collect();
    assert_eq!(names, ["accuracy", "first", "perplexity"]);
    assert!(metrics["accuracy"] > metrics["first"] && metrics["accuracy"] <= 1.0);
}
