//! Which calls stages launch where one kernel does what neighbouring nodes say, and that the
//! costs of nodes add up to these calls.

use crate::support::{
    build::{Build, Numbers, nodes},
    random::random_model,
};
use roundelay_codegen::{
    BackwardCode, BackwardForm, Everywhere, NodeCost, PassCost, StageCode, StageForm,
    Stages, Storage, node_costs, stages, stages_in,
};
use roundelay_dsl::{Extent, Model, Operation, Source};
use roundelay_schedule::{
    Attribute, Call, Float, Id, Recompute, Role, Routine, Stage, Tensor,
};
use std::collections::BTreeSet;

const EXAMPLES: u64 = 3;
const ROWS: [Extent; 2] =
    [Extent { size: 1, per_example: true }, Extent { size: 4, per_example: false }];

/// batch_norm(linear(x)).
fn normal(build: &mut Build, x: Source) -> Source {
    let weight = build.parameter(&[4, 4]);
    let h = build.node(Operation::Linear, &[x, weight], &ROWS);
    let [gain, bias] = [(); 2].map(|()| build.parameter(&[4]));
    let [mean, variance] = [(); 2].map(|()| build.average(&[4]));
    build.node(Operation::BatchNorm, &[h, gain, bias, mean, variance], &ROWS)
}

/// r = relu(normal(x)), y = relu(normal(r) + r): nodes 0, 1 and 2, 3 to 6, the loss.
fn residual() -> Model {
    let mut build = Build::default();
    let x = build.input("x", &ROWS);
    let n = normal(&mut build, x);
    let r = build.node(Operation::Relu, &[n], &ROWS);
    let n = normal(&mut build, r);
    let sum = build.node(Operation::Add, &[n, r], &ROWS);
    let y = build.node(Operation::Relu, &[sum], &ROWS);
    build.mean_squared_error(y, &ROWS)
}

/// linear(gelu_tanh(linear(x))), of something that has a gradient, with biases: nodes 0 to 3, the loss.
fn bent() -> Model {
    let mut build = Build::default();
    let mut y = build.input("x", &ROWS);
    let affine = |build: &mut Build, x: Source| {
        let (weight, bias) = (build.parameter(&[4, 4]), build.parameter(&[4]));
        build.node(Operation::Linear, &[x, weight, bias], &ROWS)
    };
    y = affine(&mut build, y);
    y = affine(&mut build, y);
    y = build.node(Operation::GeluTanh, &[y], &ROWS);
    y = affine(&mut build, y);
    build.mean_squared_error(y, &ROWS)
}

fn cut(model: &Model, cuts: &[u32]) -> Stages {
    stages(model, cuts, EXAMPLES, Float::F32, 16).expect("no parameter is shared")
}

/// The kernels of a routine, each with the flags that are set.
fn kernels(routine: &Routine) -> Vec<String> {
    let name = |call: &Call| {
        let set = call.attributes.iter().filter(|(_, a)| **a == Attribute::Flag(true));
        set.fold(call.kernel.to_string(), |name, (flag, _)| format!("{name} {flag}"))
    };
    routine.calls.iter().map(name).collect()
}

#[test]
fn batch_norms_take_in_residuals_and_activations() {
    let stages = cut(&residual(), &[]);
    let StageCode { forward, backward, .. } = &stages.stages[Stage::new(0)];
    let made = ["batch_norm relu", "matmul transpose_b", "batch_norm relu residual"];
    let expected = [&["matmul transpose_b"], &made[..], &["mse"]].concat();
    assert_eq!(kernels(forward), expected);
    // All that is made is read again: nothing is left to workspace.
    assert!(forward.arguments.iter().all(|argument| argument.role != Role::Workspace));
    let backward = kernels(backward.first()[0]);
    let norms = backward.iter().filter(|name| name.contains("norm"));
    let norms: Vec<&String> = norms.collect();
    // The gradient of the sum is that of the residual too: it is made besides.
    let [sum, first] =
        ["opened", "again"].map(|of| format!("batch_norm_backward {of} relu"));
    assert_eq!(norms, [&sum, &first]);
    assert!(!backward.contains(&"relu_backward".to_owned()));
}

/// Backward makes norms again from the statistics that forward kept, with what follows them.
#[test]
fn norms_that_are_made_again_take_their_statistics() {
    let form =
        |_| StageForm { backward: BackwardForm::Whole, recompute: Recompute::Selective };
    let (cut, storage) =
        ((&[], Tensor::WHOLE), Storage { dtype: Float::F32, padding: 16 });
    let made = stages_in(&residual(), cut, EXAMPLES, storage, form, &Everywhere);
    let made = made.expect("no parameter is shared");
    let backward = kernels(made.stages[Stage::new(0)].backward.first()[0]);
    let again = backward.into_iter().filter(|name| name.starts_with("batch_norm"));
    let again: Vec<String> =
        again.filter(|name| !name.starts_with("batch_norm_backward")).collect();
    assert_eq!(again, ["batch_norm_again relu", "batch_norm_again relu residual"]);
}

/// The product for what goes into the outer map stands behind the map's other gradients, where it
/// takes in the slope.
#[test]
fn an_activation_goes_with_its_products() {
    let whole = cut(&bent(), &[]);
    let StageCode { forward, backward, .. } = &whole.stages[Stage::new(0)];
    assert_eq!(kernels(forward), ["affine", "affine_gelu_tanh", "affine", "mse"]);
    let outer = ["affine_gradients", "matmul_gelu_tanh_backward"];
    let inner = ["affine_gradients", "matmul"];
    let expected = [&["mse_backward"], &outer[..], &inner, &inner[..1]].concat();
    let backward = kernels(backward.first()[0]);
    let first = backward.iter().position(|name| name == "mse_backward");
    assert_eq!(backward[first.expect("there is a loss")..], expected);
    let parted = cut(&bent(), &[3]);
    let code = |stage| parted.stages[Stage::new(stage)].backward.next();
    let [own, outer] = [0, 1].map(|stage| kernels(code(stage)[0]));
    assert!(own.contains(&"gelu_tanh_backward".to_owned()), "{own:?}");
    assert!(!outer.contains(&"matmul_gelu_tanh_backward".to_owned()), "{outer:?}");
}

#[test]
fn a_cut_parts_what_would_be_one_call() {
    let stages = cut(&residual(), &[2, 5, 6]);
    let code = |stage| &stages.stages[Stage::new(stage)];
    let forward: Vec<String> = (0..4).flat_map(|at| kernels(&code(at).forward)).collect();
    let parts = ["matmul transpose_b", "batch_norm", "relu", "matmul transpose_b"];
    let expected = [&parts[..], &["batch_norm", "add", "relu", "mse"]].concat();
    assert_eq!(forward, expected);
    let backward = [0, 1].map(|at| kernels(code(at).backward.next()[0]));
    assert!(!backward.iter().flatten().any(|name| {
        name.starts_with("batch_norm_backward") && name.ends_with("relu")
    }));
}

/// The calls of a pass, of which the costs of its nodes are parts.
fn launched<'a>(costs: impl Iterator<Item = &'a PassCost>) -> Vec<String> {
    let mut launched = Vec::new();
    for cost in costs {
        for inner in cost.contained.iter().map(Call::text) {
            assert_eq!(launched.pop(), Some(inner), "it was counted just before");
        }
        launched.extend(cost.calls.iter().map(Call::text));
    }
    launched
}

/// What the nodes of a whole model cost.
fn costs(model: &Model) -> Vec<NodeCost> {
    node_costs(model, (EXAMPLES, Tensor::WHOLE), Float::F32, &Everywhere)
        .expect("the model is sound")
}

/// Without copies: which of them a stage makes depends on its cuts, and costs say what is sure.
fn but_copies(calls: Vec<String>) -> Vec<String> {
    calls.into_iter().filter(|text| !text.starts_with("copy")).collect()
}

/// Whether two operands are one parameter: what a node costs is what it does where no other node uses
/// its parameters.
fn shares_parameters(model: &Model) -> bool {
    let operands = model.nodes.values().flat_map(|node| &node.operands);
    let mut used = BTreeSet::new();
    let mut parameters = operands.filter_map(|operand| match operand {
        Source::Parameter(id) => Some(id.index()),
        Source::Node(_) | Source::Input(_) => None,
    });
    parameters.any(|id| !used.insert(id))
}

#[test]
fn costs_of_nodes_add_up_to_the_uncut_routines() {
    let random = (20..80).map(|seed| random_model(&mut Numbers(seed), 12));
    let models: Vec<Model> = random.chain([residual(), bent()]).collect();
    let apart: Vec<Model> =
        models.into_iter().filter(|model| !shares_parameters(model)).collect();
    assert!(apart.len() > 10, "only {} models share no parameters", apart.len());
    for model in apart {
        let costs = costs(&model);
        let stages = cut(&model, &[]);
        let code = &stages.stages[Stage::new(0)];
        let calls =
            |routine: &Routine| routine.calls.iter().map(Call::text).collect::<Vec<_>>();
        let forward = launched(costs.iter().map(|cost| &cost.forward));
        assert_eq!(forward, calls(&code.forward));
        let backward = launched(costs.iter().rev().map(|cost| &cost.backward));
        let backward = but_copies(backward);
        let mut expected = but_copies(calls(code.backward.first()[0]));
        let zeros = expected.len() - backward.len();
        assert_eq!(backward, expected.split_off(zeros));
        let parameters: u64 = costs.iter().map(|cost| cost.parameters).sum();
        let sizes = stages.parameters.iter().map(|parameter| parameter.elements());
        assert_eq!(parameters, sizes.sum::<u64>());
    }
}

/// The first half of a backward pass makes what costs say, and copies what it keeps.
#[test]
fn costs_of_the_turn_add_up_to_the_first_half() {
    let split = StageForm { backward: BackwardForm::Split, ..StageForm::default() };
    let random = (20..40).map(|seed| random_model(&mut Numbers(seed), 12));
    for model in random.chain([residual(), bent()]) {
        let costs = costs(&model);
        let turn = launched(costs.iter().rev().map(|cost| &cost.turn));
        let whole = (&[][..], Tensor::WHOLE);
        let storage = Storage { dtype: Float::F32, padding: 16 };
        let stages = stages_in(&model, whole, EXAMPLES, storage, |_| split, &Everywhere);
        let stages = stages.expect("the model is sound");
        let code = &stages.stages[Stage::new(0)];
        let BackwardCode::Split { input, .. } = &code.backward else {
            panic!("it is in halves")
        };
        let made = input.calls.iter().map(Call::text).collect();
        assert_eq!(but_copies(turn), but_copies(made));
    }
}

/// Every node of a chain that became one call costs something, in both passes; but a sum, whose
/// gradient is that of its terms.
#[test]
fn a_chain_is_counted_at_each_of_its_nodes() {
    let model = residual();
    let costs = costs(&model);
    let counts = |pass: fn(&PassCost) -> usize| {
        costs.iter().map(|cost| [pass(&cost.forward), pass(&cost.backward)]).collect()
    };
    let calls: Vec<[usize; 2]> = counts(|cost| cost.calls.len());
    let contained: Vec<[usize; 2]> = counts(|cost| cost.contained.len());
    assert_eq!(nodes(&model), 8);
    let expected = [[1, 1], [1, 1], [1, 1], [1, 2], [1, 1], [1, 0], [1, 1], [1, 1]];
    assert_eq!(calls, expected);
    let expected = [[0, 0], [0, 1], [1, 0], [0, 0], [0, 1], [1, 0], [1, 0], [0, 0]];
    assert_eq!(contained, expected);
}
