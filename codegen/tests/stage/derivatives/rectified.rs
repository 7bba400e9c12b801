//! A rectifier right behind a batch norm: where the stage has both, backward makes the norm again to
//! know what counts, and reads and keeps no result. Elsewhere it reads the result; both are the same
//! bits.

use super::{EXAMPLES, halves::gradients, hold};
use crate::support::build::{Build, fixed, per_example};
use roundelay_codegen::{Everywhere, NodeCost, Stages, node_costs, stages};
use roundelay_dsl::{Extent, Model, Operation, Source};
use roundelay_kernels::Real;
use roundelay_schedule::{
    Attribute, Bytes, Call, Float, Id, Role, Routine, Stage, Tensor,
};

/// Channels; of the second number each array that is kept is whole lines of memory.
const WIDTHS: [u64; 2] = [5, 16];
const SCALE: Operation = Operation::Scale { factor: 1.5 };

/// Rows of this many channels, three for each example.
fn rows(width: u64) -> [Extent; 2] {
    [per_example(3), fixed(width)]
}

/// What stands between a norm and its rectifier, or beside the rectifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    Nothing,
    /// Another shape.
    View,
    /// An operation that reads the norm before the rectifier does: gradients add up.
    Reader,
    /// One that reads it after the rectifier.
    LateReader,
    /// A residual: the norm does not say where it is open.
    Sum,
}

const ALL: [Between; 5] =
    [Between::Nothing, Between::View, Between::Reader, Between::LateReader, Between::Sum];

/// scale(max(norm(map(x)), 0)), with what is between.
fn rectified(between: Between, width: u64) -> Model {
    let rows = rows(width);
    let mut build = Build::default();
    let x = build.input("x", &rows);
    let weight = build.parameter(&[width, width]);
    let map = build.node(Operation::Linear, &[x, weight], &rows);
    let mut operands = vec![map];
    operands.extend([(); 2].map(|()| build.parameter(&[width])));
    operands.extend([(); 2].map(|()| build.average(&[width])));
    let norm = build.node(Operation::BatchNorm, &operands, &rows);
    let other = |build: &mut Build| build.node(SCALE, &[norm], &rows);
    let add =
        |build: &mut Build, both: [Source; 2]| build.node(Operation::Add, &both, &rows);
    let open = |build: &mut Build, x| build.node(Operation::Relu, &[x], &rows);
    let open = match between {
        Between::Nothing => open(&mut build, norm),
        Between::View => {
            let flat = [per_example(3 * width)];
            let view = build.node(Operation::Reshape, &[norm], &flat);
            let open = build.node(Operation::Relu, &[view], &flat);
            build.node(Operation::Reshape, &[open], &rows)
        }
        Between::Reader => {
            let other = other(&mut build);
            let open = open(&mut build, norm);
            add(&mut build, [open, other])
        }
        Between::LateReader => {
            let open = open(&mut build, norm);
            let other = other(&mut build);
            add(&mut build, [open, other])
        }
        Between::Sum => {
            let sum = add(&mut build, [norm, map]);
            open(&mut build, sum)
        }
    };
    let end = build.node(SCALE, &[open], &rows);
    build.mean_squared_error(end, &rows)
}

fn cut(model: &Model, cuts: &[u32], dtype: Float) -> Stages {
    stages(model, cuts, EXAMPLES, dtype, 16).expect("nothing is shared")
}

/// Every bit of every gradient.
fn bits<R: Real>(model: &Model, cuts: &[u32]) -> Vec<(String, Vec<u64>)> {
    let mut all = gradients::<R>(&cut(model, cuts, R::DTYPE));
    all.sort();
    all
}

#[test]
fn their_gradients_are_those_of_differences() {
    for between in ALL {
        hold(&format!("{between:?} behind a norm"), &rectified(between, WIDTHS[0]));
    }
}

/// The kernels of the whole backward pass that say where a rectifier is open, and with which flags.
fn opening(stages: &Stages) -> Vec<String> {
    let code = stages.stages.values().rev();
    let routines: Vec<&Routine> = code.flat_map(|code| code.backward.first()).collect();
    let calls = routines.iter().flat_map(|routine| routine.calls.iter());
    let name = |call: &Call| {
        let set = call.attributes.iter().filter(|(_, a)| **a == Attribute::Flag(true));
        set.fold(call.kernel.to_string(), |name, (flag, _)| format!("{name} {flag}"))
    };
    let opens = |name: &String| name.contains("relu");
    calls.map(name).filter(opens).collect()
}

#[test]
fn a_cut_between_changes_how_it_is_known_and_no_bit() {
    let cases = [
        (Between::Nothing, "batch_norm_backward again relu"),
        (Between::View, "batch_norm_backward again relu"),
        (Between::Reader, "relu_backward_again"),
        (Between::LateReader, "relu_backward_again accumulate"),
        (Between::Sum, "relu_backward"),
    ];
    for (between, expected) in cases {
        let model = rectified(between, WIDTHS[0]);
        let whole = cut(&model, &[], Float::F32);
        assert_eq!(opening(&whole), [expected], "{between:?}");
        // The norm is node 1.
        let parted = cut(&model, &[2], Float::F32);
        let adds = between == Between::LateReader;
        let elsewhere = if adds { "relu_backward accumulate" } else { "relu_backward" };
        assert_eq!(opening(&parted), [elsewhere], "{between:?}");
        assert_eq!(bits::<f32>(&model, &[2]), bits::<f32>(&model, &[]), "{between:?}");
        assert_eq!(bits::<f64>(&model, &[2]), bits::<f64>(&model, &[]), "{between:?}");
    }
}

fn costs(model: &Model) -> Vec<NodeCost> {
    let size = (EXAMPLES, Tensor::WHOLE);
    node_costs(model, size, Float::F32, &Everywhere).expect("the model is sound")
}

/// What goes into the norm, its statistics, and what goes into the loss: a rectifier's result is kept
/// only where no norm of its own stage says the same.
#[test]
fn the_result_is_kept_where_something_is_added_before() {
    let width = WIDTHS[1];
    let (array, statistics) = (EXAMPLES * 3 * width * 4, 2 * width * 4);
    for (between, arrays) in [(Between::Nothing, 2), (Between::Sum, 3)] {
        let model = rectified(between, width);
        let kept: Bytes = costs(&model).iter().map(|cost| cost.kept).sum();
        assert_eq!(kept.0, arrays * array + statistics, "{between:?}");
        let stages = cut(&model, &[], Float::F32);
        let forward = &stages.stages[Stage::new(0)].forward;
        let activation = forward.argument(Role::Activation);
        assert_eq!(activation.map(|one| one.size), Some(kept), "{between:?}");
    }
}

/// What a node costs is sure wherever the model is cut: of the rectifier, the call that reads y, whether
/// it goes back so or not. So parameters are none of what it reads.
#[test]
fn costs_of_a_rectifier_are_those_behind_any_cut() {
    for (between, at) in [(Between::Nothing, 2), (Between::Reader, 3)] {
        let costs = costs(&rectified(between, WIDTHS[0]));
        let [call] = &costs[at].backward.calls[..] else { panic!("it is one call") };
        assert_eq!((&*call.kernel, call.operands.len()), ("relu_backward", 3));
        assert!(!costs[at].reads && costs[1].reads, "{between:?}");
    }
    let costs = costs(&rectified(Between::Nothing, WIDTHS[0]));
    assert_eq!(costs[1].backward.contained, costs[2].backward.calls);
}
