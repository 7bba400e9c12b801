//! Local rules replay bit for bit like the plain recursion of the same local objective, whatever
//! the timing of devices; one unit is backpropagation.

#[allow(dead_code, reason = "each test file uses its part")]
mod support;

use roundelay_codegen::lower_halved;
use roundelay_dsl::{Model, Node, NodeId, Operation, Program, Source};
use roundelay_kernels::Kernels;
use roundelay_runtime::{Evaluator, Oracle, State, Timing};
use roundelay_schedule::{
    Order, Placement, Plan, Recompute, Rule, Sequence, States, Tensor, check,
};
use support::{
    Examples,
    models::{job, program},
    runs::{compile, machine, recursion, replayed},
};

const STEPS: u64 = 3;

/// A language model with dropout in units.
fn gpt(layers: u32, units: u32, batch: u32) -> Program {
    let whole = program(&format!(
        "model gpt {{
            input tokens:  i32[batch, 8]
            input targets: i32[batch, 8]
            x = embedding(tokens, 24, 16) + positions(8, 16)
            repeat {layers} as layer {{
                x = x + dropout(attention(layer_norm(x), 2, causal = true), 0.1)
                x = x + linear(relu(linear(layer_norm(x), 32)), 16)
            }}
            logits = linear(layer_norm(x), 24)
            loss cross_entropy(logits, targets)
            metric accuracy(logits, targets)
        }}
        {}",
        job(batch)
    ));
    whole.under(Rule::Local { units }).expect("there are enough layers").into_owned()
}

/// Boundaries, and besides them a cut in the middle of each unit where `finer`.
fn cuts(program: &Program, finer: bool) -> Vec<u32> {
    let end = program.model.cuttable() as u32;
    let boundaries = program.model.boundaries();
    let mut cuts = boundaries.clone();
    if finer {
        let starts = [0].into_iter().chain(boundaries.clone());
        let ends = boundaries.iter().copied().chain([end]);
        cuts.extend(starts.zip(ends).map(|(start, end)| start.midpoint(end)));
        cuts.sort_unstable();
    }
    cuts
}

fn plan(
    program: &Program,
    (placement, order, states): (Placement, Order, States),
    n: u32,
    finer: bool,
) -> Plan {
    let boundaries = program.model.boundaries();
    let rule = Rule::Local { units: boundaries.len() as u32 + 1 };
    Plan::new(rule, placement, order, states, n, cuts(program, finer))
        .with_boundaries(boundaries)
}

const PIPELINE: (Placement, Order, States) =
    (Placement::Pipeline, Order::OneForwardOneBackward, States::Replicated);
const ACCUMULATE: (Placement, Order, States) =
    (Placement::Accumulate, Order::Sequential, States::Replicated);

fn kinds() -> Vec<(Placement, Order, States)> {
    use States as T;
    let data = [T::Replicated, T::Zero1, T::Zero2, T::Zero3];
    let data = data.map(|states| (Placement::Data, Order::Parallel, states));
    [PIPELINE, ACCUMULATE].into_iter().chain(data).collect()
}

fn hold(program: &Program, plan: &Plan) {
    let schedule = compile(program, plan);
    let expected = recursion(&schedule, STEPS);
    for (seed, rests) in [(1, vec![STEPS]), (2, vec![1, STEPS])] {
        let mut cpu = machine(&schedule, Timing::Jittered(seed));
        let found = replayed_all(&mut cpu, &rests, &schedule.plan);
        assert!(found == expected, "{plan:?}");
    }
}

/// As `replayed`, for the losses of all replicas.
fn replayed_all(
    cpu: &mut roundelay_runtime::Cpu,
    rests: &[u64],
    plan: &Plan,
) -> support::runs::Outcome {
    let all = plan.all_micro_batches() as usize;
    let mut losses = vec![vec![u64::MAX; all]; STEPS as usize];
    for rest in rests {
        cpu.replay(*rest, &mut |loss| {
            losses[loss.step as usize][loss.micro_batch as usize] = loss.loss.to_bits();
        })
        .expect("nothing fails");
    }
    support::runs::Outcome { losses, state: cpu.save().expect("the machine rests") }
}

#[test]
fn every_placement_replays_like_the_recursion_whatever_the_timing() {
    for (layers, units) in [(2, 2), (3, 2), (3, 3)] {
        let program = gpt(layers, units, 8);
        for kind in kinds() {
            for finer in [false, true] {
                hold(&program, &plan(&program, kind, 4, finer));
            }
        }
    }
}

#[test]
fn replicas_rows_and_what_is_computed_again_change_nothing() {
    let program = gpt(3, 2, 8);
    for recompute in [Recompute::Selective, Recompute::Full] {
        for kind in [PIPELINE, ACCUMULATE] {
            hold(&program, &plan(&program, kind, 4, true).recomputing(recompute));
        }
    }
    let split = [States::Replicated, States::Zero1, States::Zero2, States::Zero3];
    for states in split {
        let (placement, order, _) = PIPELINE;
        let plan = plan(&program, (placement, order, states), 2, false);
        hold(&program, &plan.replicated(2, 1));
    }
    let rows = [Sequence::Whole, Sequence::Split].map(|own| Tensor::rows(2, own));
    for tensor in rows.into_iter().chain([Tensor::grid(2, 2)]) {
        hold(&program, &plan(&program, PIPELINE, 2, true).with_tensor(tensor));
    }
}

/// All placements of one program train the same, whether backward passes are whole or in halves.
#[test]
fn numbers_do_not_depend_on_placement() {
    let program = gpt(3, 3, 8);
    let expected =
        recursion(&compile(&program, &plan(&program, ACCUMULATE, 4, false)), 3);
    let pipeline = plan(&program, PIPELINE, 4, true);
    assert!(recursion(&compile(&program, &pipeline), 3) == expected);
    let halved = lower_halved(&program, &pipeline).expect("it fits");
    let halved = check(halved, &Kernels).expect("it is sound");
    let mut cpu = machine(&halved, Timing::Jittered(5));
    assert!(replayed(&mut cpu, &[2, 3]) == expected);
}

#[test]
fn one_unit_is_backpropagation() {
    let program = gpt(2, 1, 8);
    for (placement, order, states) in kinds() {
        let local = plan(&program, (placement, order, states), 4, true);
        let sync = Plan { rule: Rule::Sync, ..local.clone() };
        let [local, sync] =
            [local, sync].map(|plan| recursion(&compile(&program, &plan), STEPS));
        assert!(local == sync, "{placement}");
    }
}

/// A model in units without stops, whose heads' losses have weight zero.
fn weightless(mut model: Model) -> Model {
    for (_, node) in model.nodes.iter_mut() {
        if matches!(node.operation, Operation::Stop | Operation::Dropout { .. }) {
            node.operation = Operation::Reshape;
        }
    }
    let add = |model: &mut Model, operation, operands: Vec<NodeId>| {
        let operands = operands.into_iter().map(Source::Node).collect();
        let name = "sum".to_owned();
        model.nodes.push(Node { name, operation, operands, shape: Vec::new() })
    };
    for loss in std::mem::take(&mut model.auxiliary) {
        let nothing = add(&mut model, Operation::Scale { factor: 0.0 }, vec![loss]);
        let all = vec![model.loss.expect("it has a loss"), nothing];
        model.loss = Some(add(&mut model, Operation::Add, all));
    }
    model
}

#[test]
fn without_stops_and_weights_of_heads_it_is_backpropagation() {
    let trained = |units| {
        let mut program = gpt(3, units, 8);
        program.model = weightless(program.model);
        let (placement, order, states) = ACCUMULATE;
        let plan = Plan::new(Rule::Sync, placement, order, states, 4, Vec::new());
        recursion(&compile(&program, &plan), STEPS)
    };
    let [whole, parted] = [1, 3].map(trained);
    assert_eq!(whole.losses, parted.losses);
}

/// The loss of a unit is measured where it is made, and the loss of the model stays its own.
#[test]
fn every_unit_reports_its_loss() {
    let program = gpt(3, 3, 8);
    let first = |kind| {
        let schedule = compile(&program, &plan(&program, kind, 4, false));
        let state = State::initial(&schedule.job);
        let mut evaluator = Evaluator::new(&schedule).expect("kernels are well formed");
        let mut feed = Examples::of(&schedule.job);
        let measures =
            evaluator.measure(&state, &mut feed, 4).expect("its own state fits");
        let mut oracle = Oracle::new(&schedule, &state).expect("it fits");
        assert!(oracle.advance(&mut feed).iter().all(|loss| loss.is_finite()));
        measures
    };
    let [one, other] = [PIPELINE, ACCUMULATE].map(first);
    assert_eq!(one, other);
    let names: Vec<&str> = one.metrics.keys().map(String::as_str).collect();
    assert_eq!(names, ["accuracy", "loss_unit0", "loss_unit1"]);
    let units = [one.metrics["loss_unit0"], one.metrics["loss_unit1"], one.loss];
    assert!(units.iter().all(|loss| loss.is_finite() && *loss > 1.0), "{units:?}");
    assert!(units[0] != units[1] && units[1] != units[2]);
}
