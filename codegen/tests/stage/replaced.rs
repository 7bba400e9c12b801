//! Gradients that lie where kept arrays lay: which do, what that saves to the byte, and that no call that
//! makes one, nor a later one, reads the other, but in place. That it changes no bit, the tests of derivatives
//! hold for every operation: halves, which keep gradients apart, have the bits of whole passes.

use crate::support::{
    build::{Build, Numbers, fixed, nodes, per_example},
    random::random_model,
};
use roundelay_codegen::{
    BackwardForm, Everywhere, StageForm, Stages, Storage, stages, stages_in,
};
use roundelay_dsl::{Model, Operation, Source};
use roundelay_kernels::Kernel;
use roundelay_schedule::{
    Access, Call, Float, Id, Operand, Recompute, Role, Routine, Stage, Tensor,
};

const ROWS: u64 = 6;
const WIDTH: u64 = 4;
const CLASSES: u64 = 50;

fn uncut(model: &Model) -> Stages {
    stages(model, &[], ROWS, Float::F32, 16).expect("an uncut model has no ties")
}

fn backward(stages: &Stages) -> &Routine {
    stages.stages[Stage::new(0)].backward.next()[0]
}

fn bytes(routine: &Routine, role: Role) -> u64 {
    routine.argument(role).map_or(0, |argument| argument.size.0)
}

fn call<'a>(routine: &'a Routine, kernel: &str) -> &'a Call {
    let found = routine.calls.iter().find(|call| call.kernel == kernel);
    found.unwrap_or_else(|| panic!("{} has no {kernel}", routine.name))
}

/// Whether a call makes something where one of its operands lies.
fn is_in_place(call: &Call) -> bool {
    let place = |operand: usize| {
        let operand = &call.operands[operand];
        (operand.argument, operand.offset)
    };
    let kernel = Kernel::parse(call).expect("stages admits calls");
    kernel.replaces().is_some_and(|[read, written]| place(read) == place(written))
}

/// Logits of a linear map of the input.
fn logits(build: &mut Build) -> Source {
    let x = build.input("x", &[per_example(1), fixed(WIDTH)]);
    let weight = build.parameter(&[CLASSES, WIDTH]);
    build.node(Operation::Linear, &[x, weight], &[per_example(1), fixed(CLASSES)])
}

fn classified(mut build: Build, logits: Source) -> Model {
    let targets = build.tokens("targets", &[per_example(1)], CLASSES);
    let loss = build.cross_entropy(logits, targets);
    build.end(loss)
}

/// Forward keeps the logits and a statistic per row; backward needs no byte besides.
#[test]
fn the_gradient_of_logits_lies_where_they_lay() {
    let mut build = Build::default();
    let made = logits(&mut build);
    let stages = uncut(&classified(build, made));
    let kept = (ROWS * CLASSES * 4).next_multiple_of(64) + ROWS * 4;
    let forward = &stages.stages[Stage::new(0)].forward;
    assert_eq!(bytes(forward, Role::Activation), kept);
    assert_eq!(backward(&stages).access(Role::Activation), Some(Access::Update));
    assert_eq!(backward(&stages).access(Role::Workspace), None);
    assert!(is_in_place(call(backward(&stages), "cross_entropy_backward")));
}

/// The slope of the branch is taken back after the loss, from the logits; so these stay.
#[test]
fn what_is_read_later_stays() {
    let mut build = Build::default();
    let made = logits(&mut build);
    let shape = [per_example(1), fixed(CLASSES)];
    let branch = build.node(Operation::Gelu, &[made], &shape);
    let joined = build.node(Operation::Add, &[made, branch], &shape);
    let stages = uncut(&classified(build, joined));
    let routine = backward(&stages);
    // The sum of both is nobody's but the loss's, whose gradient takes its place.
    assert!(is_in_place(call(routine, "cross_entropy_backward")));
    // The slope is added to what came past the branch, and the logits stay to the end.
    assert!(!is_in_place(call(routine, "gelu_backward")));

    let mut build = Build::default();
    let made = logits(&mut build);
    let branch = build.node(Operation::Gelu, &[made], &shape);
    let sums = build.parameter(&[WIDTH, CLASSES]);
    let small = [per_example(1), fixed(WIDTH)];
    let branch = build.node(Operation::Linear, &[branch, sums], &small);
    let target = build.input("y", &small);
    let other = build.node(Operation::MeanSquaredError, &[branch, target], &[]);
    let targets = build.tokens("targets", &[per_example(1)], CLASSES);
    let loss = build.cross_entropy(made, targets);
    let both = build.node(Operation::Add, &[loss, other], &[]);
    let stages = uncut(&build.end(both));
    assert!(!is_in_place(call(backward(&stages), "cross_entropy_backward")));
}

/// W reads the gradient of the logits after I, so that lies in memory that lives on.
#[test]
fn what_lives_on_between_halves_lies_apart() {
    let mut build = Build::default();
    let made = logits(&mut build);
    let model = classified(build, made);
    let form =
        |_| StageForm { backward: BackwardForm::Split, recompute: Recompute::None };
    let whole = (&[][..], Tensor::WHOLE);
    let storage = Storage { dtype: Float::F32, padding: 16 };
    let stages = stages_in(&model, whole, ROWS, storage, form, &Everywhere)
        .expect("an uncut model has no ties");
    let [input, weight] = stages.stages[Stage::new(0)].backward.next()[..] else {
        panic!("there are two halves");
    };
    assert_eq!(input.access(Role::Activation), Some(Access::Read));
    assert_eq!(bytes(input, Role::Adjoint), ROWS * CLASSES * 4);
    assert_eq!(weight.access(Role::Adjoint), Some(Access::Read));
}

/// A loss that counts for a part of the whole is scaled where it is.
#[test]
fn one_gradient_after_another_takes_the_same_place() {
    let mut build = Build::default();
    let made = logits(&mut build);
    let targets = build.tokens("targets", &[per_example(1)], CLASSES);
    let loss = build.cross_entropy(made, targets);
    let part = build.node(Operation::Scale { factor: 0.5 }, &[loss], &[]);
    let stages = uncut(&build.end(part));
    let routine = backward(&stages);
    assert!(is_in_place(call(routine, "cross_entropy_backward")));
    assert!(is_in_place(call(routine, "scale")));
    assert_eq!(routine.access(Role::Workspace), None);
}

fn gpt(vocabulary: u64) -> Model {
    let program = crate::models::program(&format!(
        "model gpt {{
            input tokens:  i32[batch, 8]
            input targets: i32[batch, 8]
            x = embedding(tokens, 48, 16) + positions(8, 16)
            repeat 2 as layer {{
                x = x + attention(layer_norm(x), 2, causal = true)
                x = x + linear(gelu(linear(layer_norm(x), 4 * 16)), 16)
            }}
            loss cross_entropy(linear(layer_norm(x), {vocabulary}), targets)
        }}
        {}",
        crate::models::job(4)
    ));
    program.model
}

/// One more class is one more number per token in what is kept, and none in scratch memory: the
/// gradient of the logits takes no room of its own, whatever their number.
#[test]
fn scratch_memory_does_not_grow_with_the_vocabulary() {
    let tokens = ROWS * 8;
    let [few, many] = [512, 1024].map(|vocabulary| uncut(&gpt(vocabulary)));
    let scratch = [&few, &many].map(|own| bytes(backward(own), Role::Workspace));
    assert_eq!(scratch[0], scratch[1]);
    assert!(scratch[0] < tokens * 512 * 4);
    let kept = [&few, &many].map(|own| bytes(backward(own), Role::Activation));
    assert_eq!(kept[1] - kept[0], tokens * 512 * 4);
}

/// Of a GELU between two maps forward keeps both sides; the gradient of the inner side lies there.
#[test]
fn the_slope_of_an_activation_lies_where_that_lay() {
    let stages = uncut(&gpt(512));
    let slopes = backward(&stages).calls.iter().filter(|c| c.kernel == "gelu_backward");
    assert_eq!(slopes.map(is_in_place).collect::<Vec<_>>(), [true, true]);
}

/// A residual unit: what goes into its norm is read for the last time where its slope is made. What
/// comes out of its relu says where the slope counts, so the slope of the loss does not lie there.
#[test]
fn the_slope_of_a_norm_lies_where_its_operand_lay() {
    let shape = [per_example(2), fixed(WIDTH)];
    let mut build = Build::default();
    let x = build.input("x", &shape);
    let [first, second] = [(); 2].map(|()| build.parameter(&[WIDTH, WIDTH]));
    let stem = build.node(Operation::Linear, &[x, first], &shape);
    let inner = build.node(Operation::Linear, &[stem, second], &shape);
    let [gain, bias] = [(); 2].map(|()| build.parameter(&[WIDTH]));
    let [mean, variance] = [(); 2].map(|()| build.average(&[WIDTH]));
    let norm = [inner, gain, bias, mean, variance];
    let normal = build.node(Operation::BatchNorm, &norm, &shape);
    let sum = build.node(Operation::Add, &[normal, stem], &shape);
    let open = build.node(Operation::Relu, &[sum], &shape);
    let stages = uncut(&build.mean_squared_error(open, &shape));
    assert!(is_in_place(call(backward(&stages), "batch_norm_backward")));
    assert!(!is_in_place(call(backward(&stages), "mse_backward")));
    assert!(is_in_place(call(backward(&stages), "relu_backward")));
}

/// The slope of what goes into a map lies where that lay, which the gradients of the map read last.
#[test]
fn slopes_of_maps_lie_where_lay_what_went_into_them() {
    for depth in [3, 7] {
        let shape = [per_example(2), fixed(WIDTH)];
        let mut build = Build::default();
        let mut y = build.input("x", &shape);
        for _ in 0..depth {
            let weight = build.parameter(&[WIDTH, WIDTH]);
            y = build.node(Operation::Linear, &[y, weight], &shape);
        }
        let stages = uncut(&build.mean_squared_error(y, &shape));
        let one = 2 * ROWS * WIDTH * 4;
        let kept = bytes(&stages.stages[Stage::new(0)].forward, Role::Activation);
        assert_eq!((kept, bytes(backward(&stages), Role::Workspace)), (depth * one, 0));
    }
}

/// No call touches the range after one has replaced what was there, but by what replaced it, nor reads
/// what it writes over, but in place: so no later call reads what forward wrote there.
fn hold(routine: &Routine, reads: &mut usize) {
    let kept = routine.place_of(Role::Activation);
    let mut replaced: Vec<(u64, u64)> = Vec::new();
    for call in &routine.calls {
        let kernel = Kernel::parse(call).expect("stages admits calls");
        let sizes = kernel.sizes(Float::F32);
        let ranges = call.operands.iter().zip(sizes).zip(kernel.accesses());
        for ((operand, size), access) in ranges {
            if Some(operand.argument as usize) != kept {
                continue;
            }
            let range = (operand.offset.0, operand.offset.0 + size.0);
            let over = |other: &&(u64, u64)| other.0 < range.1 && range.0 < other.1;
            // Neither a part of it, nor it and something else.
            let known: Vec<_> = replaced.iter().filter(over).copied().collect();
            assert!(known.is_empty() || known == [range], "{}: {call:?}", routine.name);
            match access {
                Access::Read => *reads += known.len(),
                Access::Write => {
                    let read = |other: &Operand, access: &Access| {
                        other.argument == operand.argument
                            && other.offset == operand.offset
                            && *access == Access::Read
                    };
                    let mut uses = call.operands.iter().zip(kernel.accesses());
                    let reads = uses.any(|(other, access)| read(other, access));
                    assert!(!reads || is_in_place(call), "{}: {call:?}", routine.name);
                    replaced.retain(|other| *other != range);
                    replaced.push(range);
                }
                Access::Update => assert_eq!(known, [range], "{}", routine.name),
            }
        }
    }
    let declared = routine.access(Role::Activation);
    let expected = if replaced.is_empty() { Access::Read } else { Access::Update };
    assert!(declared.is_none_or(|declared| declared == expected), "{}", routine.name);
}

#[test]
fn no_call_writes_over_what_is_read_later() {
    let mut reads = 0;
    for seed in 0..80 {
        let mut numbers = Numbers(3000 + seed);
        let model = random_model(&mut numbers, 10);
        let middle = numbers.below(u64::from(nodes(&model)) - 1) as u32 + 1;
        for cuts in [vec![], vec![middle]] {
            let Ok(stages) = stages(&model, &cuts, 3, Float::F32, 16) else { continue };
            for code in stages.stages.values() {
                let routines = code.backward.routines();
                routines.into_iter().for_each(|routine| hold(routine, &mut reads));
            }
        }
    }
    assert!(reads > 0, "gradients that took a place are read there");
}
