//! Local rules replay bit for bit like the plain recursion of the same local objective, whatever
//! the timing of devices; one unit is backpropagation.

use crate::support::{
    Examples,
    models::{job, program},
    runs::{compile, machine, recursion, replayed},
};
use roundelay_codegen::lower_halved;
use roundelay_dsl::{Model, Node, NodeId, Operation, Program, Source};
use roundelay_kernels::Kernels;
use roundelay_runtime::{Evaluated, Evaluator, Oracle, State, Timing};
use roundelay_schedule::{
    Hop, Id, Kind, Order, Placement, Plan, Recompute, Rule, Sequence, States, Subject,
    Tensor, check,
};

const STEPS: u64 = 3;

/// A language model with dropout in units.
fn gpt(layers: u32, units: u32, batch: u32) -> Program {
    hopping(layers, (units, Hop::None), batch)
}

/// The same, with what comes back between units.
fn hopping(layers: u32, (units, hop): (u32, Hop), batch: u32) -> Program {
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
    let rule = Rule::Local { units, hop };
    whole.under(rule).expect("there are enough layers").into_owned()
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
    let rule =
        Rule::Local { units: boundaries.len() as u32 + 1, hop: program.model.hop() };
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
        let found = replayed(&mut cpu, &rests);
        assert!(found == expected, "{plan:?}");
    }
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

const HOPS: [Hop; 2] = [Hop::Added, Hop::Alone];

#[test]
fn what_hops_back_replays_like_the_recursion_whatever_the_timing() {
    for hop in HOPS {
        for (layers, units) in [(2, 2), (3, 3), (4, 4), (5, 3)] {
            let program = hopping(layers, (units, hop), 8);
            for kind in kinds() {
                hold(&program, &plan(&program, kind, 4, false));
            }
        }
    }
}

#[test]
fn replicas_rows_and_what_is_computed_again_hop_back_alike() {
    for hop in HOPS {
        let program = hopping(4, (4, hop), 8);
        for recompute in [Recompute::Selective, Recompute::Full] {
            for kind in [PIPELINE, ACCUMULATE] {
                hold(&program, &plan(&program, kind, 4, false).recomputing(recompute));
            }
        }
        for states in [States::Replicated, States::Zero1, States::Zero2, States::Zero3] {
            let (placement, order, _) = PIPELINE;
            let plan = plan(&program, (placement, order, states), 2, false);
            hold(&program, &plan.replicated(2, 1));
        }
        for sequence in [Sequence::Whole, Sequence::Split] {
            let tensor = Tensor::rows(2, sequence);
            hold(&program, &plan(&program, PIPELINE, 2, false).with_tensor(tensor));
        }
    }
}

/// The rules train differently, each alike wherever it is placed and whatever is computed again.
#[test]
fn what_hops_back_changes_what_is_trained() {
    let trained = |hop| {
        let program = hopping(4, (4, hop), 8);
        let of = |plan: Plan| recursion(&compile(&program, &plan), 2);
        let found = of(plan(&program, PIPELINE, 4, false));
        let other = plan(&program, ACCUMULATE, 4, false);
        assert!(of(other.clone()) == found, "{hop:?}");
        assert!(of(other.recomputing(Recompute::Full)) == found, "{hop:?}");
        found
    };
    let all = [Hop::None, Hop::Added, Hop::Alone].map(trained);
    for (one, other) in [(0, 1), (1, 2), (0, 2)] {
        assert!(all[one].losses[0] == all[other].losses[0], "all start alike");
        assert!(all[one].losses[1] != all[other].losses[1], "{one} and {other}");
    }
}

/// Layers without residual paths, whose features rows split.
fn plain_layers() -> Program {
    program(&format!(
        "model plain {{
            input tokens:  i32[batch, 8]
            input targets: i32[batch, 8]
            x = embedding(tokens, 24, 16)
            repeat 4 as layer {{ x = relu(linear(x, 16)) }}
            loss cross_entropy(linear(x, 24), targets)
        }}
        {}",
        job(8)
    ))
}

/// Layers that are no passes of a repeat: the first unit ends in a sum with positions, which rows
/// have whole.
fn positioned() -> Program {
    program(&format!(
        "model positioned {{
            input tokens:  i32[batch, 8]
            input targets: i32[batch, 8]
            x = embedding(tokens, 24, 16) + positions(8, 16)
            x = relu(linear(x, 16))
            x = relu(linear(x, 16))
            loss cross_entropy(linear(x, 24), targets)
        }}
        {}",
        job(8)
    ))
}

/// Splitting tensors changes the order of sums alone.
#[test]
fn rows_train_what_hops_back_like_whole_tensors() {
    let all = HOPS.into_iter().flat_map(|hop| {
        let under = |program: Program, units| {
            let own = program.under(Rule::Local { units, hop });
            own.expect("there are layers").into_owned()
        };
        let positioned = under(positioned(), 3);
        let first = positioned.model.boundaries()[0];
        let operands = &positioned.model.nodes[NodeId::new(first as usize)].operands;
        let Source::Node(end) = operands[0] else { panic!("a boundary stops a node") };
        assert_eq!(positioned.model.nodes[end].operation, Operation::Add);
        [
            (hop, hopping(4, (4, hop), 8)),
            (hop, under(plain_layers(), 4)),
            (hop, positioned),
        ]
    });
    for (hop, program) in all {
        let plan = plan(&program, PIPELINE, 2, false);
        let of = |plan: &Plan| recursion(&compile(&program, plan), STEPS).losses;
        let whole = of(&plan);
        for sequence in [Sequence::Whole, Sequence::Split] {
            let split = of(&plan.clone().with_tensor(Tensor::rows(2, sequence)));
            for (one, other) in whole.iter().flatten().zip(split.iter().flatten()) {
                let [one, other] = [*one, *other].map(f64::from_bits);
                assert!(
                    (one - other).abs() < 1e-5,
                    "{hop:?}, {sequence}: {one}, {other}"
                );
            }
        }
    }
}

/// With two pairwise units the first is trained by the model's own loss alone.
#[test]
fn two_pairwise_units_are_backpropagation() {
    let unmasked = |units| {
        let mut program = hopping(4, (units, Hop::Alone), 8);
        without(&mut program.model, |one| matches!(one, Operation::Dropout { .. }));
        program
    };
    let program = unmasked(2);
    let pairwise = recursion(&compile(&program, &plan(&program, PIPELINE, 4, false)), 3);
    let whole = unmasked(1);
    let sync = plan(&whole, ACCUMULATE, 4, false);
    let sync = recursion(&compile(&whole, &Plan { rule: Rule::Sync, ..sync }), 3);
    assert_eq!(pairwise.losses, sync.losses);
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

/// Bounds of its norm are those of the whole model, too.
#[test]
fn one_unit_is_backpropagation() {
    let mut program = gpt(2, 1, 8);
    for clip in [0.0, 1e-2] {
        program.train.optimizer.clip = clip;
        for (placement, order, states) in kinds() {
            let local = plan(&program, (placement, order, states), 4, true);
            let with = |rule| {
                let plan = Plan { rule, ..local.clone() };
                let schedule = compile(&program, &plan);
                let expected = recursion(&schedule, STEPS);
                let mut cpu = machine(&schedule, Timing::Jittered(3));
                assert!(replayed(&mut cpu, &[STEPS]) == expected, "{placement}, {rule}");
                expected
            };
            let sync = with(Rule::Sync);
            for hop in [Hop::None, Hop::Added, Hop::Alone] {
                let unit = with(Rule::Local { units: 1, hop });
                assert!(unit == sync, "{placement}, {hop:?}, {clip}");
            }
        }
    }
}

/// Puts what passes everything on in the place of some operations.
fn without(model: &mut Model, is_left_out: impl Fn(Operation) -> bool) {
    for (_, node) in
        model.nodes.iter_mut().filter(|(_, node)| is_left_out(node.operation))
    {
        node.operation = Operation::Reshape;
    }
}

/// A model in units without boundaries, whose heads' losses have weight zero.
fn weightless(mut model: Model) -> Model {
    without(&mut model, |one| {
        matches!(one, Operation::Boundary(_) | Operation::Dropout { .. })
    });
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

/// The model as it is used has no losses of heads, and measures the same without.
#[test]
fn a_model_measures_the_same_without_heads() {
    for (program, rows) in [(gpt(3, 3, 8), 1), (hopping(3, (3, Hop::Added), 8), 2)] {
        let plan = plan(&program, PIPELINE, 4, false);
        let tensor = Tensor { rows, ..Tensor::WHOLE };
        let schedule = compile(&program, &plan.with_tensor(tensor));
        let measured = |evaluator: &mut Evaluator, state: &State| {
            let mut feed = Examples::of(&schedule.job);
            evaluator.measure(state, &mut feed, 4).expect("its own state fits")
        };
        let state = State::initial(&schedule.job);
        let mut all = Evaluator::new(&schedule).expect("kernels are well formed");
        let mut used = Evaluator::on_host(&schedule, Evaluated::Used)
            .expect("kernels are well formed");
        let (all, own) = (measured(&mut all, &state), measured(&mut used, &state));
        assert_eq!(own.loss, all.loss);
        assert_eq!(own.metrics["accuracy"], all.metrics["accuracy"]);
        assert_eq!(own.metrics.len() + 2, all.metrics.len(), "{:?}", own.metrics);
    }
}

/// What a replay touches of the activations of each device, and what one micro-batch takes there.
fn activations(program: &Program, plan: &Plan) -> Vec<(u64, u64)> {
    let schedule = compile(program, plan);
    let mut cpu = machine(&schedule, Timing::Natural);
    cpu.replay(6, &mut |_| {}).expect("nothing fails");
    let touched = cpu.touched().expect("the machine rests");
    let one = |stage: usize| {
        let own = schedule.buffers.values().filter(|buffer| match buffer.subject {
            Subject::Activation(own) | Subject::Retained(own) | Subject::Adjoint(own) => {
                own.index() == stage
            }
            _ => false,
        });
        own.map(|buffer| buffer.size.0).sum::<u64>()
    };
    let device = |stage: usize| {
        let span = touched[&(plan.devices[stage], Kind::Activation)].span.0;
        (span, one(stage))
    };
    (0..plan.stages as usize).map(device).collect()
}

/// Measured, not predicted: whatever the number of micro-batches, a unit keeps one, and one more
/// where a gradient hops back to it; a stage of 1F1B keeps one for each stage from it on.
#[test]
fn a_unit_keeps_one_micro_batch() {
    let share = |(found, one): &(u64, u64)| *found as f64 / *one as f64;
    for n in [4, 8] {
        for hop in [Hop::None, Hop::Added] {
            let program = hopping(4, (4, hop), 8);
            let found = activations(&program, &plan(&program, PIPELINE, n, false));
            let most = if hop == Hop::None { 1.0 } else { 2.0 };
            for (unit, own) in found.iter().enumerate() {
                let most = if unit == 3 { 1.0 } else { most };
                let share = share(own);
                assert!(
                    (0.9 * most..=most).contains(&share),
                    "{hop:?} {n} {unit}: {share}"
                );
            }
        }
        let whole = hopping(4, (1, Hop::None), 8);
        let end = whole.model.cuttable() as u32;
        let cuts = vec![end / 4, end / 2, 3 * end / 4];
        let (placement, order, states) = PIPELINE;
        let sync = Plan::new(Rule::Sync, placement, order, states, n, cuts);
        for (stage, own) in activations(&whole, &sync).iter().enumerate() {
            let (share, expected) = (share(own), 4.0 - stage as f64);
            assert!((0.9 * expected..=expected).contains(&share), "{stage}: {share}");
        }
    }
}
