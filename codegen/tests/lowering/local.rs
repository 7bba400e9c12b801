//! Local rules on the clock: T_local and T_1F1B of arXiv 2012.03837's pipelines, where they break
//! even, one micro-batch of activations per unit, and nobody waits for a unit further down.

use crate::{
    orders::{Times, step},
    support::program,
};
use roundelay_codegen::{LowerError, lower};
use roundelay_dsl::{Model, Program};
use roundelay_kernels::Kernels;
use roundelay_schedule::{
    BytesPerSecond, Checked, Content, DeviceId, Exactness, Hop, Id, Kind, Nanos, Order,
    Pass, PhysicalQueue, Placement, Plan, PlanFault, Rule, States, Work, check, simulate,
};

/// f, b and a, and what a message takes.
const F: u64 = 1_000_000;
const B: u64 = 2 * F;
const A: u64 = 3 * F / 10;

/// A model of `stages` equal layers in `units` units.
fn layers(stages: u32, units: u32, n: u32) -> Program {
    under(Rule::Local { units, hop: Hop::None }, stages, n)
}

pub(crate) fn under(rule: Rule, stages: u32, n: u32) -> Program {
    let program = program(stages, n);
    let local = program.under(rule).expect("layers have one width");
    local.into_owned()
}

/// A stage per layer: heads stand in the stage that they are behind.
fn cuts(model: &Model) -> Vec<u32> {
    let own = model.nodes.iter().filter(|(_, node)| {
        let linear = node.operation == roundelay_dsl::Operation::Linear;
        linear && !node.name.contains("head")
    });
    let boundaries = model.boundaries();
    let start = |(id, _): (roundelay_dsl::NodeId, &roundelay_dsl::Node)| {
        let node = id.index() as u32;
        node - u32::from(boundaries.contains(&(node.saturating_sub(1))))
    };
    own.skip(1).map(start).collect()
}

pub(crate) fn plan(
    program: &Program,
    units: u32,
    place: (Placement, Order),
    n: u32,
) -> Plan {
    let rule = Rule::Local { units, hop: program.model.hop() };
    let cuts = cuts(&program.model);
    Plan::new(rule, place.0, place.1, States::Replicated, n, cuts)
        .with_boundaries(program.model.boundaries())
}

pub(crate) const PIPELINE: (Placement, Order) =
    (Placement::Pipeline, Order::OneForwardOneBackward);

/// A pipeline whose stages take as long as `times` says of stage and pass.
pub(crate) fn timed(
    program: &Program,
    plan: &Plan,
    message: u64,
    times: impl Fn(usize, Pass) -> u64,
) -> Checked {
    let mut schedule = lower(program, plan).unwrap();
    for (_, routine) in schedule.routines.iter_mut() {
        routine.predicted = Nanos(times(routine.stage.index(), routine.pass));
    }
    for (_, link) in schedule.target.links.iter_mut() {
        link.bandwidth = BytesPerSecond(u64::MAX);
        link.latency = Nanos(message);
    }
    check(schedule, &Kernels).unwrap_or_else(|wrong| panic!("{wrong}"))
}

/// One stage per unit; all units take the same, heads in the backward pass.
fn equal(units: u32, n: u32, message: u64) -> Checked {
    let program = layers(units, units, n);
    timed(&program, &plan(&program, units, PIPELINE, n), message, |_, pass| match pass {
        Pass::Forward => F,
        Pass::Backward => B + A,
        _ => 0,
    })
}

fn span_of_1f1b(stages: u32, n: u32) -> u64 {
    let times = Times { forward: F, input: B / 2, weight: B / 2, message: 0 };
    let (order, n) = (Order::OneForwardOneBackward, n);
    step(&crate::orders::compiled(&crate::orders::pipeline(order, stages, 1, n), times))
        .span
}

/// What messages and updates are rounded up to does not count.
fn close(found: u64, expected: u64) {
    assert!(found.abs_diff(expected) < F / 1000, "{found} is not {expected}");
}

#[test]
fn a_step_takes_t_local() {
    for (j, m) in [(2, 1), (2, 5), (4, 8), (8, 3), (8, 16)] {
        let (units, n) = (u64::from(j), u64::from(m));
        let found = step(&equal(j, m, 0));
        close(found.span, n * (F + B + A) + (units - 1) * F);
        assert!(found.kept.iter().all(|kept| *kept == 1), "{:?}", found.kept);
        close(span_of_1f1b(j, m), (n + units - 1) * (F + B));
    }
}

/// M = (J − 1) b / a.
#[test]
fn local_units_break_even_where_heads_cost_what_the_bubble_does() {
    for (j, even) in [(4, 20), (3, 13), (8, 47)] {
        let gain = |m| span_of_1f1b(j, m) as i64 - step(&equal(j, m, 0)).span as i64;
        assert!(gain(even - 1) > 0, "{j} units gain below {even}");
        assert!(gain(even + 1) < 0, "{j} units lose above {even}");
    }
}

/// Eight units with eight micro-batches are 1.35 times as fast, with 128 they are 6 % slower.
#[test]
fn few_micro_batches_gain_and_many_lose() {
    for (m, expected) in [(8, 45.0 / 33.4), (128, 405.0 / 429.4)] {
        let found = span_of_1f1b(8, m) as f64 / step(&equal(8, m, 0)).span as f64;
        assert!((found - expected).abs() < 1e-3, "{m}: {found}, {expected}");
    }
}

/// From the second step on the slowest unit alone says how long one takes: no unit waits for what
/// is further down, nor for messages.
#[test]
fn the_slowest_unit_is_the_period() {
    for (message, slow) in [(0, 0), (0, 2), (F, 1), (2 * F, 3)] {
        let (units, n) = (4, 6);
        let program = layers(units, units, n);
        let plan = plan(&program, units, PIPELINE, n);
        let times = |stage, pass| match pass {
            Pass::Forward => F,
            Pass::Backward if stage == slow => B + 2 * A,
            Pass::Backward => B,
            _ => 0,
        };
        let schedule = timed(&program, &plan, message, times);
        let [long, longer] = [6, 7].map(|steps| ends(&schedule, steps));
        close(longer - long, u64::from(n) * (F + B + 2 * A));
    }
}

/// When the last pass of this many steps ends.
fn ends(schedule: &Checked, steps: u64) -> u64 {
    let timeline = simulate(schedule, steps);
    let lanes = timeline.entries().iter();
    let ends = lanes.filter(|entry| matches!(entry.queue, PhysicalQueue::Lane(..)));
    ends.map(|entry| entry.end.0).max().unwrap()
}

/// A unit of several stages is a pipeline of its own, with its own warm-up.
#[test]
fn stages_inside_a_unit_take_turns_as_1f1b_does() {
    let (stages, units, n) = (6, 2, 8);
    let program = layers(stages, units, n);
    let schedule =
        timed(&program, &plan(&program, units, PIPELINE, n), 0, |_, pass| match pass {
            Pass::Forward => F,
            Pass::Backward => B,
            _ => 0,
        });
    let found = step(&schedule);
    assert_eq!(found.kept, [3, 2, 1, 3, 2, 1]);
    close(found.span, u64::from(n + 2) * (F + B) + 3 * F);
}

/// Values go on, gradients do not come back between units.
#[test]
fn no_gradient_is_sent_between_units() {
    let program = layers(4, 2, 4);
    let schedule = lower(&program, &plan(&program, 2, PIPELINE, 4)).unwrap();
    let mut pairs = Vec::new();
    for action in schedule.actions.values() {
        if let Work::Transfer { from, to, content: Content::ValueGradient(..), .. } =
            &action.work
        {
            pairs.push((from.at.ring.index(), to.at.ring.index()));
        }
    }
    pairs.sort_unstable();
    pairs.dedup();
    assert_eq!(pairs, [(1, 0), (3, 2)]);
}

/// On one device units follow each other, so activations of one unit live at a time, and those of
/// the others have the same addresses.
#[test]
fn one_device_keeps_the_activations_of_one_unit() {
    let peak = |units| {
        let program = layers(8, units, 2);
        let place = (Placement::Accumulate, Order::Sequential);
        let plan = plan(&program, units, place, 2);
        let schedule = check(lower(&program, &plan).unwrap(), &Kernels).unwrap();
        let own = [Kind::Activation, Kind::Boundary];
        let facts = schedule.facts();
        let live =
            own.map(|kind| facts.live_peak.get(&(DeviceId::new(0), kind)).copied());
        let live = live.map(|bytes| bytes.map_or(0, |bytes| bytes.0)).iter().sum::<u64>();
        let buffers = schedule.buffers.values();
        let places = buffers.filter(|buffer| own.contains(&buffer.subject.kind()));
        let (starts, ends): (Vec<u64>, Vec<u64>) = places
            .map(|buffer| (buffer.offset.0, buffer.offset.0 + buffer.total().0))
            .unzip();
        let laid_out = ends.iter().max().unwrap() - starts.iter().min().unwrap();
        // What stands side by side begins at whole multiples of the alignment.
        assert!(laid_out < live + 64 * starts.len() as u64, "{laid_out}, {live} live");
        live
    };
    let [one, two, four] = [1, 2, 4].map(peak);
    assert!(four < two && two < one && 3 * four < 2 * one, "{one}, {two}, {four}");
}

#[test]
fn the_class_of_a_local_plan_is_local() {
    let program = layers(4, 2, 4);
    assert_eq!(plan(&program, 2, PIPELINE, 4).exactness(), Exactness::Local);
    let program = layers(4, 1, 4);
    assert_eq!(plan(&program, 1, PIPELINE, 4).exactness(), Exactness::Exact);
}

#[test]
fn plans_that_units_do_not_fit_are_refused() {
    let program = layers(4, 2, 4);
    let fitting = plan(&program, 2, PIPELINE, 4);
    let wrong = |plan: &Plan| match lower(&program, plan) {
        Err(error @ (LowerError::Plan(PlanFault::Units(_)) | LowerError::Units(_))) => {
            error.to_string()
        }
        other => panic!("{:?}", other.map(|_| ())),
    };
    let gpipe = Plan { order: Order::Gpipe, ..fitting.clone() };
    assert!(wrong(&gpipe).contains("pipeline in 1f1b order"));
    let lanes = (Placement::Concurrent, Order::Parallel);
    assert!(wrong(&plan(&program, 2, lanes, 4)).contains("concurrent"));
    let moved = fitting.clone().with_boundaries(vec![fitting.cuts[0]]);
    assert!(wrong(&moved).contains("those of the model"));
    let sync = Plan { rule: Rule::Sync, ..fitting.clone() };
    assert!(wrong(&sync).contains("one ascending boundary less"));
    let plain = Plan { boundaries: Vec::new(), ..sync };
    assert!(wrong(&plain).contains("those of the model"));
}
