//! Copies of gradients: where a value goes two ways, its gradient comes back two ways, and one array
//! is enough for both until one of them is added to. That it changes no bit, the tests of derivatives
//! hold for every operation, and halves, which copy more, have the bits of whole passes.

use crate::support::{
    build::Build,
    machine::{Machine, context},
};
use roundelay_codegen::{
    BackwardForm, Everywhere, StageForm, Stages, Storage, stages, stages_in,
};
use roundelay_dsl::{Extent, Model, Operation, Source};
use roundelay_schedule::{Float, Id, Recompute, Role, Routine, Stage, Tensor};

const EXAMPLES: u64 = 4;
const WIDTH: u64 = 4;

fn copies(routine: &Routine) -> usize {
    routine.calls.iter().filter(|call| call.kernel == "copy").count()
}

fn in_form(model: &Model, form: StageForm) -> Stages {
    let whole = (&[][..], Tensor::WHOLE);
    let storage = Storage { dtype: Float::F32, padding: 16 };
    stages_in(model, whole, EXAMPLES, storage, |_| form, &Everywhere)
        .expect("an uncut model has no ties")
}

fn transformer(layer: &str) -> Model {
    let program = crate::models::program(&format!(
        "model gpt {{
            input tokens:  i32[batch, 8]
            input targets: i32[batch, 8]
            x = embedding(tokens, 48, 16) + positions(8, 16)
            repeat 3 as layer {{ {layer} }}
            loss cross_entropy(linear(layer_norm(x), 48), targets)
        }}
        {}",
        crate::models::job(4)
    ));
    program.model
}

/// Attention and a perceptron, each added to the stream that goes past it, on either side.
const LAYERS: [&str; 4] = [
    "x = x + attention(layer_norm(x), 2, causal = true)
     x = x + linear(gelu(linear(layer_norm(x), 64)), 16)",
    "x = attention(layer_norm(x), 2, causal = true) + x
     x = linear(gelu(linear(layer_norm(x), 64)), 16) + x",
    "x = x + dropout(attention(layer_norm(x), 2, causal = true), 0.1)
     x = x + dropout(linear(gelu(linear(layer_norm(x), 64)), 16), 0.1)",
    "x = layer_norm(x + attention(x, 2, causal = true))
     x = layer_norm(x + linear(relu(linear(x, 64)), 16))",
];

#[test]
fn a_layer_of_a_transformer_copies_no_gradient() {
    for layer in LAYERS {
        let model = transformer(layer);
        for recompute in Recompute::ALL {
            let form = StageForm { backward: BackwardForm::Whole, recompute: *recompute };
            let stages = in_form(&model, form);
            let backward = &stages.stages[Stage::new(0)].backward;
            for routine in backward.routines() {
                assert_eq!(copies(routine), 0, "{layer}, recompute {recompute}");
            }
        }
    }
}

const ROWS: [Extent; 2] =
    [Extent { size: 1, per_example: true }, Extent { size: WIDTH, per_example: false }];

/// y = w x; then what `branches` makes of y, and its mean squared distance to a target.
fn branched(branches: impl FnOnce(&mut Build, Source) -> Source) -> Model {
    let mut build = Build::default();
    let x = build.input("x", &ROWS);
    let weight = build.parameter(&[WIDTH, WIDTH]);
    let y = build.node(Operation::Linear, &[x, weight], &ROWS);
    let z = branches(&mut build, y);
    build.mean_squared_error(z, &ROWS)
}

/// The gradient of `w` after one micro-batch, in 64 bits.
fn gradient(model: &Model) -> Vec<f64> {
    let stages =
        stages(model, &[], EXAMPLES, Float::F64, 16).expect("an uncut model has no ties");
    let mut machine = Machine::new::<f64>(&stages, 0);
    machine.feed::<f64>(3);
    machine.forward::<f64>(&context(0, 0));
    machine.backward::<f64>(&context(0, 0));
    let own = 0..WIDTH * WIDTH;
    own.map(|k| machine.get::<f64>(Stage::new(0), Role::Gradient, k)).collect()
}

fn backward_copies(model: &Model) -> usize {
    let form = StageForm { backward: BackwardForm::Whole, recompute: Recompute::None };
    copies(in_form(model, form).stages[Stage::new(0)].backward.next()[0])
}

/// d(y + gelu(y)) = dz + gelu'(y) dz: the slope is added to dz while dz is read, so one array would
/// read what it has just written.
#[test]
fn a_gradient_that_is_read_while_it_is_added_to_is_copied() {
    let past = branched(|build, y| {
        let slope = build.node(Operation::Gelu, &[y], &ROWS);
        build.node(Operation::Add, &[y, slope], &ROWS)
    });
    assert_eq!(backward_copies(&past), 1);
    // Half of 2 y + 2 gelu(y), each part of which has a gradient of its own.
    let apart = branched(|build, y| {
        let slope = build.node(Operation::Gelu, &[y], &ROWS);
        let [y, slope] =
            [y, slope].map(|x| build.node(Operation::Scale { factor: 2.0 }, &[x], &ROWS));
        let both = build.node(Operation::Add, &[y, slope], &ROWS);
        build.node(Operation::Scale { factor: 0.5 }, &[both], &ROWS)
    });
    assert_eq!(backward_copies(&apart), 0);
    let (one, other) = (gradient(&past), gradient(&apart));
    assert!(one.iter().any(|slope| *slope != 0.0));
    for (one, other) in one.iter().zip(&other) {
        assert!((one - other).abs() <= 1e-12 * one.abs().max(1.0), "{one} for {other}");
    }
}

/// x + x: both contributions go to one sum.
#[test]
fn a_value_that_is_added_to_itself_counts_twice() {
    let doubled = branched(|build, y| build.node(Operation::Add, &[y, y], &ROWS));
    let scaled =
        branched(|build, y| build.node(Operation::Scale { factor: 2.0 }, &[y], &ROWS));
    assert_eq!(gradient(&doubled), gradient(&scaled));
}

/// W reads the gradient of every map, so the copies that are kept for it are made.
#[test]
fn what_is_kept_for_the_second_half_is_copied() {
    let form = StageForm { backward: BackwardForm::Split, recompute: Recompute::None };
    let stages = in_form(&transformer(LAYERS[0]), form);
    let [input, weight] = stages.stages[Stage::new(0)].backward.next()[..] else {
        panic!("there are two halves");
    };
    let adjoint = |routine: &Routine| routine.place_of(Role::Adjoint);
    let kept = adjoint(input).expect("W reads what I keeps") as u32;
    let made = input.calls.iter().filter(|call| call.kernel == "copy");
    assert!(made.clone().count() > 0);
    assert!(made.clone().all(|call| call.operands.iter().any(|o| o.argument == kept)));
    assert!(adjoint(weight).is_some());
}
