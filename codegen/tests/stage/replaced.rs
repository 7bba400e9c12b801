//! Arrays that lie where others lay or will lie: which do, what that saves to the byte, and that each call reads
//! what was written for it. That it changes no bit, the tests of derivatives hold for every operation: halves,
//! which keep gradients apart, have the bits of whole passes.

use crate::support::{
    build::{Build, Numbers, fixed, nodes, per_example},
    random::random_model,
};
use roundelay_codegen::{
    BackwardForm, Everywhere, StageError, StageForm, Stages, Storage, stages, stages_in,
};
use roundelay_dsl::{Chunks, Masked, Model, Operation, Source};
use roundelay_kernels::Kernel;
use roundelay_schedule::{
    Access, Call, Float, Id, Operand, Pass, Recompute, Role, Routine, Stage, Tensor,
};
use std::collections::BTreeMap;

const ROWS: u64 = 6;
const WIDTH: u64 = 4;
const CLASSES: u64 = 50;

fn uncut(model: &Model) -> Stages {
    stages(model, &[], ROWS, Float::F32, 16).expect("an uncut model has no ties")
}

/// Stages whose passes all have one form.
fn formed(
    model: &Model,
    cuts: &[u32],
    examples: u64,
    (backward, recompute): (BackwardForm, Recompute),
) -> Result<Stages, StageError> {
    let form = |_| StageForm { backward, recompute };
    let storage = Storage { dtype: Float::F32, padding: 16 };
    stages_in(model, (cuts, Tensor::WHOLE), examples, storage, form, &Everywhere)
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

/// Whether a call makes all that it may where one of its operands lies.
fn is_in_place(call: &Call) -> bool {
    let place = |operand: usize| {
        let operand = &call.operands[operand];
        (operand.argument, operand.offset)
    };
    let kernel = Kernel::parse(call).expect("stages admits calls");
    let pairs = kernel.replaces();
    let mut one = pairs.iter().map(|[read, written]| place(*read) == place(*written));
    !pairs.is_empty() && one.all(|same| same)
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
    let form = (BackwardForm::Split, Recompute::None);
    let stages = formed(&model, &[], ROWS, form).expect("an uncut model has no ties");
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

/// What goes into a classifier whose loss makes gradients lies where its gradient is kept: each row of it is
/// read for the last time before its gradient is made.
#[test]
fn what_is_classified_lies_where_its_gradient_will() {
    let mut build = Build::default();
    let shape = [per_example(1), fixed(WIDTH)];
    let x = build.input("x", &shape);
    let [weight, classes] = [WIDTH, CLASSES].map(|rows| build.parameter(&[rows, WIDTH]));
    let made = build.node(Operation::Linear, &[x, weight], &shape);
    let targets = build.tokens("targets", &[per_example(1)], CLASSES);
    let loss =
        Operation::LinearCrossEntropy { chunks: Chunks::Number(2), masked: Masked::No };
    let loss = build.node(loss, &[made, classes, targets], &[]);
    let stages = uncut(&build.end(loss));
    let forward = &stages.stages[Stage::new(0)].forward;
    assert!(is_in_place(call(forward, "linear_cross_entropy")));
    let kept = (ROWS * WIDTH * 4).next_multiple_of(64) + CLASSES * WIDTH * 4;
    assert_eq!(bytes(forward, Role::Activation), kept);
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

/// A residual unit: what goes into its norm is read for the last time where its slope is made, by the
/// call that makes what of the slope counts in the place of what comes out of its relu, which says
/// so; hence the slope of the loss does not lie there.
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
    let norm = call(backward(&stages), "batch_norm_backward");
    let pairs = Kernel::parse(norm).expect("stages admits calls").replaces();
    assert_eq!(pairs.len(), 2);
    assert!(is_in_place(norm));
    assert!(!is_in_place(call(backward(&stages), "mse_backward")));
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

/// Ranges of a pass's own memory, by the argument: what lies there, and all that was ever written.
#[derive(Clone, Default)]
struct Written {
    there: BTreeMap<Role, Vec<Range>>,
    ever: BTreeMap<Role, Vec<Range>>,
}

/// First byte, and one past the last.
type Range = (u64, u64);

const OWN: [Role; 4] = [Role::Activation, Role::Retained, Role::Adjoint, Role::Workspace];

impl Written {
    /// Follows the calls of a routine: each reads what calls before it wrote, in this routine or an earlier
    /// one of the micro-batch, as a whole and with nothing written over it; and writes over nothing that it
    /// reads, but in place.
    fn follow(&mut self, routine: &Routine) {
        for memory in [&mut self.there, &mut self.ever] {
            memory.remove(&Role::Workspace);
        }
        for call in &routine.calls {
            let kernel = Kernel::parse(call).expect("stages admits calls");
            let sizes = kernel.sizes(Float::F32);
            let ranges = call.operands.iter().zip(sizes);
            let ranges = ranges.map(|(own, size)| (own, range_of(own, size.0)));
            let uses: Vec<_> = ranges.zip(kernel.accesses()).collect();
            for ((operand, range), access) in &uses {
                let role = routine.arguments[operand.argument as usize].role;
                if OWN.contains(&role) && **access != Access::Write {
                    let there = self.there.entry(role).or_default();
                    assert!(there.contains(range), "{}: {call:?}", routine.name);
                }
            }
            for ((operand, range), access) in &uses {
                let role = routine.arguments[operand.argument as usize].role;
                if !OWN.contains(&role) || **access != Access::Write {
                    continue;
                }
                let read = |((other, also), access): &((&Operand, Range), &Access)| {
                    other.argument == operand.argument
                        && meet(also, range)
                        && **access == Access::Read
                };
                let reads = uses.iter().any(read);
                assert!(!reads || is_in_place(call), "{}: {call:?}", routine.name);
                let there = self.there.entry(role).or_default();
                there.retain(|other| !meet(other, range));
                there.push(*range);
                self.ever.entry(role).or_default().push(*range);
            }
        }
    }

    /// Places in an argument that have been written more than once, or in parts.
    fn again(&self, role: Role) -> usize {
        let ever = self.ever.get(&role).map_or(&[][..], Vec::as_slice);
        let met = |at: usize| ever[..at].iter().any(|other| meet(other, &ever[at]));
        (0..ever.len()).filter(|at| met(*at)).count()
    }
}

fn range_of(operand: &Operand, size: u64) -> Range {
    (operand.offset.0, operand.offset.0 + size)
}

fn meet(one: &Range, other: &Range) -> bool {
    one.0 < other.1 && other.0 < one.1
}

/// A backward pass says that it writes over what was kept for it where it does.
fn declares(routine: &Routine) {
    let place = routine.place_of(Role::Activation);
    let writes = routine.calls.iter().any(|call| {
        let kernel = Kernel::parse(call).expect("stages admits calls");
        let mut uses = call.operands.iter().zip(kernel.accesses());
        uses.any(|(operand, access)| {
            Some(operand.argument as usize) == place && *access != Access::Read
        })
    });
    let expected = if writes { Access::Update } else { Access::Read };
    let declared = routine.access(Role::Activation);
    assert!(declared.is_none_or(|declared| declared == expected), "{}", routine.name);
}

#[test]
fn no_call_writes_over_what_is_read_later() {
    let (mut forward, mut backward) = (0, 0);
    for seed in 0..80 {
        let mut numbers = Numbers(3000 + seed);
        let model = random_model(&mut numbers, 10);
        let middle = numbers.below(u64::from(nodes(&model)) - 1) as u32 + 1;
        let ways = [BackwardForm::Whole, BackwardForm::Split]
            .into_iter()
            .flat_map(|form| Recompute::ALL.iter().map(move |way| (form, *way)));
        for (form, cuts) in ways.flat_map(|way| [(way, vec![]), (way, vec![middle])]) {
            let Ok(stages) = formed(&model, &cuts, 3, form) else { continue };
            for code in stages.stages.values() {
                let mut made = Written::default();
                made.follow(&code.forward);
                forward += made.again(Role::Activation) + made.again(Role::Retained);
                for routines in [code.backward.first(), code.backward.next()] {
                    let mut written = made.clone();
                    for routine in routines {
                        written.follow(routine);
                        if routine.pass != Pass::WeightGradient {
                            declares(routine);
                        }
                    }
                    let all = written.again(Role::Activation);
                    backward += all - made.again(Role::Activation);
                }
            }
        }
    }
    assert!(forward > 500 && backward > 2000, "{forward} and {backward} times");
}

/// The argument and the first byte of every operand of a stage's passes.
fn homes(stages: &Stages) -> Vec<(Role, u64)> {
    let code = &stages.stages[Stage::new(0)];
    let routines = [vec![&code.forward], code.backward.routines()].concat();
    let homes = routines.into_iter().flat_map(|routine| {
        let operands = routine.calls.iter().flat_map(|call| &call.operands);
        let role = |argument: u32| routine.arguments[argument as usize].role;
        operands.map(move |own| (role(own.argument), own.offset.0))
    });
    homes.collect()
}

/// Maps between wide arrays in front of a narrow classifier of many classes: the gradient of its weight is
/// kept, and is larger than the arrays of a few examples, but not than those of many.
fn classifier() -> Model {
    let mut build = Build::default();
    let wide = [per_example(1), fixed(64)];
    let mut x = build.input("x", &wide);
    for _ in 0..3 {
        let weight = build.parameter(&[64, 64]);
        let y = build.node(Operation::Linear, &[x, weight], &wide);
        let y = build.node(Operation::Gelu, &[y], &wide);
        x = build.node(Operation::Add, &[x, y], &wide);
    }
    let [narrow, classes] = [[8, 64], [512, 8]].map(|shape| build.parameter(&shape));
    let x = build.node(Operation::Linear, &[x, narrow], &[per_example(1), fixed(8)]);
    let targets = build.tokens("targets", &[per_example(1)], 512);
    let loss =
        Operation::LinearCrossEntropy { chunks: Chunks::Number(1), masked: Masked::No };
    let loss = build.node(loss, &[x, classes, targets], &[]);
    build.end(loss)
}

/// Two sizes of micro-batches say where everything lies among what is kept for a third one: on a line.
#[test]
fn what_takes_a_place_takes_it_for_micro_batches_of_all_sizes() {
    let mut places = 0;
    let random = (0..60).map(|seed| random_model(&mut Numbers(5000 + seed), 10));
    let models: Vec<Model> = random.chain([classifier()]).collect();
    for (model, recompute) in models
        .iter()
        .flat_map(|model| Recompute::STEPS.iter().map(move |way| (model, *way)))
    {
        let form = (BackwardForm::Whole, recompute);
        let of = |examples| Ok(homes(&formed(model, &[], examples, form)?));
        let all: [Result<_, StageError>; 3] = [16, 32, 48].map(of);
        let [Ok(low), Ok(high), Ok(third)] = all else { continue };
        for ((low, high), third) in low.into_iter().zip(high).zip(third) {
            assert!(low.0 == high.0 && high.0 == third.0, "{low:?} and {third:?}");
            if matches!(low.0, Role::Activation | Role::Retained) {
                assert_eq!(third.1 + low.1, 2 * high.1, "{recompute}");
                places += 1;
            }
        }
    }
    assert!(places > 1000, "{places}");
}

/// Of stages of a pyramid, each half as large as the one before: what backward makes of one finds room where
/// it is done with those behind it, and what forward makes and does not keep, where it keeps those. No array
/// there has the size of one that is free.
#[test]
fn scratch_of_large_stages_lies_among_what_is_kept_of_small_ones() {
    let widths = [64, 32, 16, 8, 4];
    let scratch = |depth: usize| {
        let mut build = Build::default();
        let mut x = build.input("x", &[per_example(1), fixed(128)]);
        let mut width = 128;
        for next in &widths[..depth] {
            let shape = [per_example(1), fixed(*next)];
            let weight = build.parameter(&[*next, width]);
            x = build.node(Operation::Linear, &[x, weight], &shape);
            for _ in 0..4 {
                let weight = build.parameter(&[*next, *next]);
                let y = build.node(Operation::Gelu, &[x], &shape);
                let y = build.node(Operation::Linear, &[y, weight], &shape);
                x = build.node(Operation::Add, &[x, y], &shape);
            }
            width = *next;
        }
        let model = build.mean_squared_error(x, &[per_example(1), fixed(width)]);
        let form = (BackwardForm::Whole, Recompute::Selective);
        let stages = formed(&model, &[], ROWS, form).expect("an uncut model has no ties");
        let code = &stages.stages[Stage::new(0)];
        [&code.forward, backward(&stages)].map(|own| bytes(own, Role::Workspace))
    };
    // One array of the smallest stage, as wide as its numbers.
    for (depth, width) in (1..).zip(widths) {
        assert_eq!(scratch(depth), [ROWS * 4 * width; 2]);
    }
}
