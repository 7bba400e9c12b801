//! The golden numbers of pipeline orders, on compiled schedules that ran on the clock: a whole
//! forward pass of a device takes 1, a backward pass 2, each half of it 1, messages take none
//! (sources beside the builders in `codegen/src/lower/order`; times of arXiv 2401.10241).

use crate::support::program;
use roundelay_codegen::lower;
use roundelay_dsl::Program;
use roundelay_kernels::Kernels;
use roundelay_schedule::{
    BytesPerSecond, Checked, DeviceId, Nanos, Order, Pass, PhysicalQueue, Placement,
    Plan, Rule, States, Thousandths, check, simulate,
};
use std::collections::BTreeMap;

/// Times of one micro-batch on a device, and of a message between devices, in nanoseconds.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    pub(crate) forward: u64,
    pub(crate) input: u64,
    pub(crate) weight: u64,
    pub(crate) message: u64,
}

/// One time unit.
const UNIT: u64 = 1_000_000;

const EQUAL: Times = Times { forward: UNIT, input: UNIT, weight: UNIT, message: 0 };

/// What one training step took.
pub(crate) struct Step {
    /// From the first start to the last end of a pass.
    pub(crate) span: u64,
    /// The longest such time on one device.
    pub(crate) stage_span: u64,
    /// The most micro-batches of a stage that a device keeps between a forward pass and the
    /// last backward pass.
    pub(crate) kept: Vec<usize>,
}

pub(crate) fn pipeline(order: Order, p: u32, chunks: u32, n: u32) -> Plan {
    let cuts = (1..p * chunks).collect();
    let (rule, states) = (Rule::Sync, States::Replicated);
    Plan::new(rule, Placement::Pipeline, order, states, n, cuts).with_chunks(chunks)
}

/// Compiles a plan with these times.
pub(crate) fn compiled(plan: &Plan, times: Times) -> Checked {
    compiled_hiding(plan, times, 0)
}

/// The same where a pair hides this many thousandths of its shorter pass.
fn compiled_hiding(plan: &Plan, times: Times, overlap: u32) -> Checked {
    let program = program(plan.stages, plan.all_micro_batches());
    compiled_from(&program, plan, times, overlap)
}

/// The same with gradients whose norm is bounded; to find it takes no time but that of messages.
pub(crate) fn compiled_clipping(plan: &Plan, times: Times) -> Checked {
    let mut program = program(plan.stages, plan.all_micro_batches());
    program.train.optimizer.clip = 1.0;
    compiled_from(&program, plan, times, 0)
}

fn compiled_from(program: &Program, plan: &Plan, times: Times, overlap: u32) -> Checked {
    let chunks = u64::from(plan.chunks);
    let mut schedule = lower(program, plan).unwrap();
    for (_, routine) in schedule.routines.iter_mut() {
        let whole = match routine.pass {
            Pass::Forward => times.forward,
            Pass::Backward => times.input + times.weight,
            Pass::InputGradient => times.input,
            Pass::WeightGradient => times.weight,
            Pass::Combine | Pass::Norm | Pass::Update => 0,
        };
        routine.predicted = Nanos(whole / chunks);
    }
    for (_, device) in schedule.target.devices.iter_mut() {
        device.overlap = Thousandths(overlap);
    }
    for (_, link) in schedule.target.links.iter_mut() {
        link.bandwidth = BytesPerSecond(u64::MAX);
        link.latency = Nanos(times.message);
    }
    check(schedule, &Kernels).unwrap_or_else(|wrong| panic!("{wrong}"))
}

/// One training step from rest.
pub(crate) fn step(schedule: &Checked) -> Step {
    let timeline = simulate(schedule, 1);
    let mut passes: BTreeMap<DeviceId, Vec<(u64, u64, Pass)>> = BTreeMap::new();
    for entry in timeline.entries() {
        let PhysicalQueue::Lane(device, _) = entry.queue else { continue };
        let task = schedule.task(&schedule.actions[entry.action]).unwrap();
        if task.micro_batch.is_some() {
            let row = (entry.start.0, entry.end.0, task.pass);
            passes.entry(device).or_default().push(row);
        }
    }
    let ends = |list: &Vec<(u64, u64, Pass)>| {
        let first = list.iter().map(|pass| pass.0).min().unwrap();
        let last = list.iter().map(|pass| pass.1).max().unwrap();
        (first, last)
    };
    let spans: Vec<(u64, u64)> = passes.values().map(ends).collect();
    let first = spans.iter().map(|span| span.0).min().unwrap();
    let last = spans.iter().map(|span| span.1).max().unwrap();
    Step {
        span: last - first,
        stage_span: spans.iter().map(|span| span.1 - span.0).max().unwrap(),
        kept: passes.into_values().map(kept).collect(),
    }
}

fn kept(mut passes: Vec<(u64, u64, Pass)>) -> usize {
    passes.sort_by_key(|pass| pass.0);
    let (mut now, mut most) = (0usize, 0);
    for (_, _, pass) in passes {
        match pass {
            Pass::Forward => now += 1,
            Pass::Backward | Pass::WeightGradient => now -= 1,
            Pass::InputGradient | Pass::Combine | Pass::Norm | Pass::Update => {}
        }
        most = most.max(now);
    }
    most
}

/// Span and longest stage span in units, for one order and size.
fn spans(order: Order, p: u32, chunks: u32, n: u32) -> (f64, f64) {
    let step = step(&compiled(&pipeline(order, p, chunks, n), EQUAL));
    (units(step.span), units(step.stage_span))
}

/// Hundredths of a unit; what messages are rounded up to does not count.
pub(crate) fn units(time: u64) -> f64 {
    (time as f64 / UNIT as f64 * 100.0).round() / 100.0
}

#[test]
fn spans_of_four_and_eight_devices() {
    for (order, chunks, small, large) in [
        (Order::Gpipe, 1, 33.0, 117.0),
        (Order::OneForwardOneBackward, 1, 33.0, 117.0),
        (Order::Eager, 1, 33.0, 117.0),
        (Order::Interleaved, 2, 28.5, 106.5),
        (Order::BreadthFirst, 2, 28.5, 106.5),
        (Order::ZeroBubbleH1, 1, 27.0, 103.0),
        (Order::ZeroBubbleH2, 1, 27.0, 103.0),
        (Order::ZeroBubbleV, 2, 25.5, 99.5),
    ] {
        assert_eq!(spans(order, 4, chunks, 8).0, small, "{order}");
        assert_eq!(spans(order, 8, chunks, 32).0, large, "{order}");
    }
    assert_eq!(spans(Order::Interleaved, 8, 4, 32).0, 101.25);
    assert_eq!(spans(Order::OneForwardOneBackward, 8, 1, 16).0, 69.0);
}

#[test]
fn stage_spans_of_zero_bubble_orders() {
    for (order, chunks, small, large) in [
        (Order::ZeroBubbleH1, 1, 27.0, 103.0),
        (Order::ZeroBubbleH2, 1, 24.0, 96.0),
        (Order::ZeroBubbleV, 2, 24.0, 96.0),
        (Order::HalfV, 2, 26.5, 104.5),
        (Order::MinimalV, 2, 29.5, 107.5),
    ] {
        assert_eq!(spans(order, 4, chunks, 8).1, small, "{order}");
        assert_eq!(spans(order, 8, chunks, 32).1, large, "{order}");
    }
}

/// Where the halves of a backward pass differ, a V is no longer without a bubble.
#[test]
fn halves_of_unequal_length_cost_a_v_its_fit() {
    let times = Times { input: UNIT * 3 / 2, weight: UNIT / 2, ..EQUAL };
    for (p, n, excess) in [(4, 8, 3.0), (8, 32, 7.0)] {
        let plan = pipeline(Order::ZeroBubbleV, p, 2, n);
        let span = units(step(&compiled(&plan, times)).stage_span);
        assert_eq!(span - f64::from(3 * n), excess, "p = {p}");
    }
}

#[test]
fn kept_micro_batches_of_four_devices() {
    for (order, chunks, kept) in [
        (Order::Gpipe, 1, [8, 8, 8, 8]),
        (Order::OneForwardOneBackward, 1, [4, 3, 2, 1]),
        (Order::Eager, 1, [7, 5, 3, 1]),
        (Order::Interleaved, 2, [11, 9, 7, 5]),
        (Order::BreadthFirst, 2, [16, 16, 16, 16]),
        (Order::ZeroBubbleH1, 1, [4, 4, 4, 4]),
        (Order::ZeroBubbleH2, 1, [7, 7, 7, 7]),
        (Order::ZeroBubbleV, 2, [8, 8, 8, 8]),
        (Order::HalfV, 2, [6, 6, 6, 6]),
        (Order::MinimalV, 2, [4, 4, 4, 4]),
        (Order::DualPipe, 1, [5, 5, 5, 5]),
        (Order::DualPipePaired, 1, [5, 5, 5, 5]),
    ] {
        let plan = pipeline(order, 4, chunks, 8);
        assert_eq!(step(&compiled(&plan, EQUAL)).kept, kept, "{order}");
    }
}

/// Idle share of 1, 2 and 4 waves, B = 2F, as many micro-batches as devices.
#[test]
fn waves_shrink_the_bubble() {
    for (p, ratios) in [(4, [0.333, 0.213, 0.119]), (8, [0.368, 0.238, 0.135])] {
        for (waves, ratio) in [1, 2, 4].into_iter().zip(ratios) {
            let plan = pipeline(Order::Wave, p, 2 * waves, p);
            let step = step(&compiled(&plan, EQUAL));
            let work = 3 * UNIT * u64::from(p);
            let idle = 1.0 - work as f64 / step.span as f64;
            assert!((idle - ratio).abs() < 6e-4, "p = {p}, {waves} waves: {idle:.4}");
            let most = (2 * waves * p) as usize;
            assert!(step.kept.iter().all(|kept| *kept <= most), "{:?}", step.kept);
        }
    }
}

/// F = B on the left: N micro-batches take 2N + p − 2. B = 2F on the right: a list scheduler is
/// known to get to 29 and 64 with the last two sizes.
#[test]
fn chimera_fills_its_bubbles_with_the_other_direction() {
    let halves = Times { input: UNIT / 2, weight: UNIT / 2, ..EQUAL };
    for (p, n, equal, double) in
        [(4, 4, 10, 16), (8, 8, 22, 36), (4, 8, 18, 28), (8, 16, 38, 60)]
    {
        let plan = pipeline(Order::Chimera, p, 1, n);
        assert_eq!(step(&compiled(&plan, halves)).span / UNIT, equal, "p = {p}, n = {n}");
        assert_eq!(step(&compiled(&plan, EQUAL)).span / UNIT, double, "p = {p}, n = {n}");
    }
    let kept = |p, n| step(&compiled(&pipeline(Order::Chimera, p, 1, n), halves)).kept;
    assert_eq!(kept(4, 4), [3, 4, 4, 3]);
    assert_eq!(kept(8, 8), [5, 6, 7, 8, 8, 7, 6, 5]);
    assert!(kept(4, 8).iter().all(|kept| *kept <= 4));
    assert!(kept(8, 16).iter().all(|kept| *kept <= 8));
}

/// A whole backward pass is two halves here, the first of which the next device need not wait
/// out: undivided, these would take 26, 102 and 66.
#[test]
fn dual_pipe_without_overlap() {
    for (p, n, span) in [(4, 8, 25), (8, 32, 99), (8, 20, 63)] {
        let step = step(&compiled(&pipeline(Order::DualPipe, p, 1, n), EQUAL));
        assert_eq!(step.span / UNIT, span, "p = {p}, n = {n}");
        assert_eq!(step.kept, vec![p as usize + 1; p as usize]);
    }
}

/// A pair of F and B takes F&B, and nothing of it goes on before its end. The bubble is
/// (p/2 − 1)(F&B + B − 3W).
#[test]
fn dual_pipe_in_pairs() {
    for (p, n, overlap, span, idle) in [
        (4, 8, 0, 26.0, vec![2.0; 4]),
        (4, 8, 500, 24.0, vec![1.5; 4]),
        (4, 8, 1000, 22.0, vec![1.0; 4]),
        (8, 32, 0, 102.0, vec![6.0; 8]),
        (8, 32, 1000, 76.0, vec![1.0, 2.0, 3.0, 3.0, 3.0, 3.0, 2.0, 1.0]),
        (8, 20, 0, 66.0, vec![6.0; 8]),
        (8, 20, 1000, 52.0, vec![1.0, 2.0, 3.0, 3.0, 3.0, 3.0, 2.0, 1.0]),
    ] {
        let plan = pipeline(Order::DualPipePaired, p, 1, n);
        let schedule = compiled_hiding(&plan, EQUAL, overlap);
        let step = step(&schedule);
        assert_eq!(units(step.span), span, "p = {p}, n = {n}, {overlap}");
        assert_eq!(step.kept, vec![p as usize + 1; p as usize]);
        let busy = simulate(&schedule, 1).busy();
        let rest: Vec<f64> =
            busy.values().map(|busy| units(step.span - busy.0)).collect();
        assert_eq!(rest, idle, "p = {p}, n = {n}, {overlap}");
        let bubble =
            f64::from(p / 2 - 1) * (3.0 - f64::from(overlap) / 1000.0 + 2.0 - 3.0);
        assert_eq!(rest.iter().copied().fold(0.0, f64::max), bubble);
    }
}

/// Half a unit per message: eager pipelines hide it, one forward and one backward do not.
#[test]
fn messages_of_half_a_unit() {
    let slow = Times { message: UNIT / 2, ..EQUAL };
    for (order, span) in [
        (Order::OneForwardOneBackward, 151.0),
        (Order::Eager, 124.0),
        (Order::Gpipe, 124.0),
        (Order::ZeroBubbleH1, 117.0),
        (Order::ZeroBubbleH2, 106.5),
    ] {
        let step = step(&compiled(&pipeline(order, 8, 1, 32), slow));
        assert_eq!(units(step.span), span, "{order}");
    }
}

/// Four devices, sixteen micro-batches, messages of 0, 1/4, 1/2 and 1 unit (arXiv 2211.05322).
#[test]
fn eager_pipelines_hide_messages_up_to_half_a_pass() {
    for (order, golden) in [
        (Order::OneForwardOneBackward, [57.0, 64.0, 71.0, 85.0]),
        (Order::Eager, [57.0, 58.5, 60.0, 63.0]),
    ] {
        for (quarters, span) in [0, 1, 2, 4].into_iter().zip(golden) {
            let times = Times { message: quarters * UNIT / 4, ..EQUAL };
            let step = step(&compiled(&pipeline(order, 4, 1, 16), times));
            assert_eq!(units(step.span), span, "{order}, {quarters}/4");
        }
    }
}

/// Bubble of the longest stage with the profiled times of arXiv 2401.10241, table 5.
#[test]
fn bubble_rates_of_profiled_models() {
    let micro = |milliseconds: f64| (milliseconds * 1e6).round() as u64;
    let times = |f, i, w, c| Times {
        forward: micro(f),
        input: micro(i),
        weight: micro(w),
        message: micro(c),
    };
    let first = times(18.522, 18.086, 9.337, 0.601);
    let second = times(29.718, 29.444, 19.927, 0.527);
    let third = times(11.347, 11.248, 8.132, 0.377);
    let fourth = times(10.419, 10.207, 7.715, 0.408);
    let orders = [Order::OneForwardOneBackward, Order::ZeroBubbleH1, Order::ZeroBubbleH2];
    for (times, p, n, rates) in [
        (first, 8, 24, [0.2431, 0.1585, 0.1083]),
        (first, 8, 64, [0.1187, 0.0660, 0.0436]),
        (second, 8, 24, [0.2347, 0.1323, 0.0698]),
        (third, 16, 48, [0.2552, 0.1397, 0.0672]),
        (fourth, 32, 96, [0.2646, 0.1421, 0.0641]),
    ] {
        for (order, rate) in orders.into_iter().zip(rates) {
            let step = step(&compiled(&pipeline(order, p, 1, n), times));
            let work = u64::from(n) * (times.forward + times.input + times.weight);
            let idle = (step.stage_span - work) as f64 / step.stage_span as f64;
            assert!((idle - rate).abs() < 6e-5, "{order}, p = {p}, n = {n}: {idle:.5}");
        }
    }
}
