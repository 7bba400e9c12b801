//! What the routines of stages declare: arguments, accesses, sizes, errors.

use crate::support::{
    build::{Build, Numbers, fixed, nodes, per_example},
    random::random_model,
};
use roundelay_codegen::{
    BackwardForm, Differentiated, Everywhere, Portion, StageError, StageForm, Stages,
    Storage, UpdateForm, stages, stages_in, update,
};
use roundelay_dsl::{Extent, Model, NodeId, Operation, Source};
use roundelay_schedule::{
    Access, Attribute, Bytes, Element, Float, GradientSums, Id, Method, Optimizer, Rate,
    Role, Routine, Stage, Tensor, Tie, ValueId,
};

const ROWS: [Extent; 2] =
    [Extent { size: 1, per_example: true }, Extent { size: 4, per_example: false }];

fn linear(build: &mut Build, x: Source) -> Source {
    let weight = build.parameter(&[4, 4]);
    build.node(Operation::Linear, &[x, weight], &ROWS)
}

/// a = linear(x); b = linear(a); c = linear(b); y = linear(c) + a, and perhaps b + a early.
fn skipping() -> Model {
    let mut build = Build::default();
    let x = build.input("x", &ROWS);
    let a = linear(&mut build, x);
    let near = build.node(Operation::Gelu, &[a], &ROWS);
    let b = linear(&mut build, near);
    let c = build.node(Operation::Add, &[b, a], &ROWS);
    let d = linear(&mut build, c);
    let e = linear(&mut build, d);
    let y = build.node(Operation::Add, &[e, a], &ROWS);
    build.mean_squared_error(y, &ROWS)
}

fn cut(model: &Model, cuts: &[u32]) -> Result<Stages, StageError> {
    stages(model, cuts, 3, Float::F32, 16)
}

#[test]
fn a_value_has_arguments_only_where_it_is_read() {
    // Nodes: 0 a, 1 gelu, | 2 b, 3 add, | 4 d, | 5 e, 6 add, 7 loss.
    let stages = cut(&skipping(), &[2, 4, 5]).expect("no parameter is shared");
    let values: Vec<_> = stages.values.values().collect();
    let places = |v: &roundelay_codegen::CrossingValue| {
        (v.producer.index(), v.last.index(), v.size, v.gradient)
    };
    let size = Bytes(3 * 4 * 4);
    let expected = [(0, 3), (0, 1), (1, 2), (2, 3)].map(|(producer, last)| {
        (producer, last, size, Differentiated::From(Stage::new(last)))
    });
    assert_eq!(values.into_iter().map(places).collect::<Vec<_>>(), expected);
    let value = Role::Value(ValueId::new(0));
    let gradient = Role::ValueGradient(ValueId::new(0));
    let code = |index| &stages.stages[Stage::new(index)];
    let found = [0, 1, 2, 3].map(|index| {
        (
            code(index).forward.access(value),
            code(index).backward.first()[0].access(gradient),
        )
    });
    let expected = [
        (Some(Access::Write), Some(Access::Update)),
        (Some(Access::Read), Some(Access::Update)),
        (None, None),
        (Some(Access::Read), Some(Access::Write)),
    ];
    assert_eq!(found, expected);
    let passed_on = Role::ValueGradient(ValueId::new(2));
    assert_eq!(code(1).backward.next()[0].access(passed_on), Some(Access::Read));
}

#[test]
fn the_first_backward_writes_the_gradient_and_later_ones_add() {
    let stages = cut(&skipping(), &[2, 4]).expect("no parameter is shared");
    for (stage, code) in stages.stages.iter() {
        assert_eq!(code.backward.first()[0].access(Role::Gradient), Some(Access::Write));
        assert_eq!(code.backward.next()[0].access(Role::Gradient), Some(Access::Update));
        let number = stage.index();
        let names = [&code.forward, code.backward.first()[0], code.backward.next()[0]]
            .map(|routine| routine.name.clone());
        assert_eq!(
            names,
            [format!("F{number}"), format!("B{number}"), format!("B{number}+")]
        );
        let bytes = |routine: &Routine| {
            routine.argument(Role::Activation).map(|argument| argument.size)
        };
        assert_eq!(bytes(&code.forward), bytes(code.backward.next()[0]));
    }
    assert_eq!(
        stages.stages[Stage::new(2)].forward.access(Role::Metric),
        Some(Access::Write)
    );
}

#[test]
fn values_without_a_parameter_above_have_no_gradient() {
    let mut build = Build::default();
    let x = build.input("x", &ROWS);
    let fresh = build.node(Operation::Gelu, &[x], &ROWS);
    let a = linear(&mut build, fresh);
    let y = build.node(Operation::Multiply, &[a, fresh], &ROWS);
    let model = build.mean_squared_error(y, &ROWS);
    let stages = cut(&model, &[1, 2]).expect("no parameter is shared");
    let gradients: Vec<_> = stages.values.values().map(|value| value.gradient).collect();
    assert_eq!(gradients, [Differentiated::No, Differentiated::From(Stage::new(2))]);
    let without = Role::ValueGradient(ValueId::new(0));
    for code in stages.stages.values() {
        assert_eq!(code.backward.first()[0].access(without), None);
    }
    let idle = &stages.stages[Stage::new(0)];
    assert_eq!(stages.elements[Stage::new(0)], 16);
    assert_eq!(idle.backward.first()[0].calls.len(), 1, "zeros for the padding");
    assert_eq!(idle.backward.first()[0].access(Role::Parameter), None);
}

#[test]
fn parameters_lie_aligned_in_order_of_first_use() {
    for seed in 0..20 {
        let model = random_model(&mut Numbers(seed), 8);
        let stages = cut(&model, &[]).expect("an uncut model has no ties");
        let mut end = 0u64;
        for parameter in &stages.parameters {
            assert_eq!(parameter.offset, end.div_ceil(16) * 16);
            end = parameter.offset + parameter.elements();
        }
        assert_eq!(stages.elements[Stage::new(0)], end.div_ceil(16) * 16);
    }
}

/// A tensor that a call reads from workspace must be the last thing that was written there.
fn hold_workspace(routine: &Routine) {
    let workspace = routine.place_of(Role::Workspace);
    let mut owners: Vec<(u64, u64)> = Vec::new();
    for call in &routine.calls {
        let kernel = roundelay_kernels::Kernel::parse(call).expect("stages admits calls");
        let sizes: Vec<Bytes> = kernel.sizes(Float::F32).collect();
        let ranges = call.operands.iter().zip(sizes).zip(kernel.accesses());
        for ((operand, size), access) in ranges {
            if Some(operand.argument as usize) != workspace {
                continue;
            }
            let range = (operand.offset.0, operand.offset.0 + size.0);
            if *access == Access::Write {
                owners.retain(|other| other.1 <= range.0 || range.1 <= other.0);
                owners.push(range);
            }
            assert!(owners.contains(&range), "{}: {call:?}", routine.name);
        }
    }
}

#[test]
fn workspace_is_never_overwritten_while_it_is_needed() {
    for seed in 0..60 {
        let mut numbers = Numbers(1000 + seed);
        let model = random_model(&mut numbers, 10);
        let middle = numbers.below(u64::from(nodes(&model)) - 1) as u32 + 1;
        for cuts in [vec![], vec![middle]] {
            let Ok(stages) = cut(&model, &cuts) else { continue };
            for code in stages.stages.values() {
                hold_workspace(&code.forward);
                hold_workspace(code.backward.first()[0]);
                hold_workspace(code.backward.next()[0]);
            }
        }
    }
}

#[test]
fn decay_spares_what_the_model_says() {
    let mut build = Build::default();
    let x = build.input("x", &ROWS);
    let y = (0..4).fold(x, |x, _| linear(&mut build, x));
    let model = build.mean_squared_error(y, &ROWS);
    let stages = cut(&model, &[]).expect("an uncut model has no ties");
    let optimizer = Optimizer {
        method: Method::Adamw { beta1: 0.9, beta2: 0.99, epsilon: 1e-8 },
        rate: Rate::Constant(0.1),
        weight_decay: 0.1,
        clip: 0.0,
    };
    let form = UpdateForm::Next;
    let half = Portion { shards: 2, ..Portion::WHOLE };
    let routine = update(&stages, Stage::new(0), &optimizer, 2, Float::F32, form, half);
    // Every third parameter is spared; each has 16 elements.
    let spared = Attribute::Integers(vec![0, 16, 48, 64]);
    assert_eq!(routine.calls[0].attributes["spared"], spared);
    let sizes: Vec<u64> = routine.arguments.iter().map(|a| a.size.0 / 4).collect();
    assert_eq!(sizes, [32, 32, 32, 64]);
}

fn message(result: Result<Stages, StageError>) -> String {
    result.expect_err("the model is wrong").to_string()
}

#[test]
fn wrong_models_and_cuts_are_refused_with_a_reason() {
    for cuts in [&[0][..], &[8], &[3, 3], &[4, 2]] {
        assert!(message(cut(&skipping(), cuts)).contains("not ascending"), "{cuts:?}");
    }
    let empty = stages(&skipping(), &[], 0, Float::F32, 16);
    assert_eq!(empty, Err(StageError::NoExamples));
    assert_eq!(cut(&Model::default(), &[]), Err(StageError::NoLoss));

    let mut build = Build::default();
    let x = build.input("x", &ROWS);
    let tied = build.parameter(&[4, 4]);
    let a = build.node(Operation::Linear, &[x, tied], &ROWS);
    let b = build.node(Operation::Linear, &[a, tied], &ROWS);
    let model = build.mean_squared_error(b, &ROWS);
    let tied = cut(&model, &[1]).expect("both stages use the table");
    assert_eq!((tied.ties, tied.elements.len()), (vec![Tie(vec![0, 1])], 3));

    let mut missing = skipping();
    missing.nodes[NodeId::new(2)].operands.pop();
    assert!(message(cut(&missing, &[])).contains("node2"));
    let mut forward = skipping();
    forward.nodes[NodeId::new(2)].operands[0] = Source::Node(NodeId::new(5));
    assert!(message(cut(&forward, &[])).contains("does not stand above"));
    let mut misshapen = skipping();
    misshapen.nodes[NodeId::new(4)].shape[1] = fixed(5);
    assert!(message(cut(&misshapen, &[])).contains("node4"));
    let mut unending = skipping();
    unending.loss = Some(NodeId::new(6));
    assert!(message(cut(&unending, &[])).contains("single number"));
}

#[test]
fn losses_without_a_gradient_kernel_are_refused() {
    let mut build = Build::default();
    let x = build.parameter(&[1]);
    let y = build.node(Operation::Gelu, &[x], &[fixed(1)]);
    assert!(message(cut(&build.end(y), &[])).contains("must be `cross_entropy`"));

    let mut build = Build::default();
    let x = build.input("x", &[per_example(1), fixed(4)]);
    let a = linear(&mut build, x);
    let inner = build.node(Operation::MeanSquaredError, &[a, x], &[]);
    let b = build.node(Operation::Multiply, &[a, inner], &ROWS);
    let model = build.mean_squared_error(b, &ROWS);
    assert!(message(cut(&model, &[])).contains("used inside the model"));
}

/// What a norm makes of its gain and bias in a later micro-batch is added to the sums, by its own call
/// or, in halves, by W, and rounded no more than they are.
#[test]
fn what_norms_add_is_as_wide_as_the_sums_of_parameters() {
    let mut build = Build::default();
    let x = build.input("x", &ROWS);
    let below = linear(&mut build, x);
    let [gain, bias] = [(); 2].map(|()| build.parameter(&[4]));
    let epsilon = 1e-5;
    let norm = Operation::LayerNorm { epsilon };
    let y = build.node(norm, &[below, gain, bias], &ROWS);
    let model = build.mean_squared_error(y, &ROWS);
    for (sums, element) in
        [(GradientSums::Same, Element::Real), (GradientSums::F32, Element::Wide)]
    {
        let storage = Storage { dtype: Float::Bf16(sums), padding: 16 };
        for backward in [BackwardForm::Whole, BackwardForm::Split] {
            let form = StageForm { backward, ..StageForm::default() };
            let whole = (&[][..], Tensor::WHOLE);
            let stages = stages_in(&model, whole, 3, storage, |_| form, &Everywhere);
            let stages = stages.expect("it is sound");
            let backward = &stages.stages[Stage::new(0)].backward;
            let calls = backward.next().into_iter().flat_map(|routine| &*routine.calls);
            let elements = |kernel: &str, first: usize| -> Vec<Element> {
                let calls = calls.clone().filter(|call| call.kernel == kernel);
                let operands = calls.flat_map(|call| &call.operands[first..]);
                operands.map(|operand| operand.element).collect()
            };
            assert_eq!(elements("layer_norm_backward", 6), [element; 2]);
            let added = if form == StageForm::default() { 0 } else { 4 };
            assert_eq!(elements("accumulate", 0), vec![element; added]);
        }
    }
}
