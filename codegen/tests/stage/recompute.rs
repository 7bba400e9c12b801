//! What recomputation saves and costs, in closed form. That it changes no bit, the tests of
//! derivatives hold for every operation.

use crate::support::blocks::{self, Begin, Extents};
use roundelay_codegen::{
    BackwardForm, Everywhere, StageCode, StageForm, Stages, Storage, stages_in,
};
use roundelay_dsl::Model;
use roundelay_kernels::Kernel;
use roundelay_schedule::{
    Bytes, Call, Float, Id, Recompute, Role, Routine, Share, Stage, Tensor,
};

const EXAMPLES: u64 = 4;
const LENGTH: u64 = 16;
const WIDTH: u64 = 32;
const HEADS: u64 = 2;
const TOKENS: u64 = EXAMPLES * LENGTH;
const FORMS: [BackwardForm; 2] = [BackwardForm::Whole, BackwardForm::Split];

const EXTENTS: Extents =
    Extents { examples: EXAMPLES, length: LENGTH, width: WIDTH, heads: HEADS };

fn gpt(layers: u32) -> Model {
    blocks::gpt(EXTENTS, layers, ", causal = true")
}

fn stages(
    model: &Model,
    cuts: &[u32],
    backward: BackwardForm,
    recompute: Recompute,
) -> Stages {
    let form = |_| StageForm { backward, recompute };
    let storage = Storage { dtype: Float::F32, padding: 16 };
    stages_in(model, (cuts, Tensor::WHOLE), EXAMPLES, storage, form, &Everywhere)
        .expect("nothing is shared")
}

fn code(layers: u32, backward: BackwardForm, recompute: Recompute) -> StageCode {
    stages(&gpt(layers), &[], backward, recompute).stages[Stage::new(0)].clone()
}

fn bytes(routine: &Routine, roles: &[Role]) -> u64 {
    let arguments = routine.arguments.iter();
    arguments.filter(|a| roles.contains(&a.role)).map(|a| a.size.0).sum()
}

/// Bytes that forward keeps.
fn kept_in_all(code: &StageCode) -> u64 {
    bytes(&code.forward, &[Role::Activation, Role::Retained])
}

/// Bytes that forward keeps of one layer.
fn kept(backward: BackwardForm, recompute: Recompute) -> u64 {
    let all = |layers| kept_in_all(&code(layers, backward, recompute));
    all(4) - all(3)
}

fn flops(call: &Call) -> u64 {
    Kernel::parse(call).expect("stages admits calls").footprint(Float::F32).flops.0
}

fn work(routines: &[&Routine]) -> u64 {
    routines.iter().flat_map(|routine| &routine.calls).map(flops).sum()
}

/// arXiv 2205.05198 counts 34 bytes per token and width, and 5 per head and pair of tokens, in 16
/// bits with dropout masks. Here numbers have 32 bits, masks come from seeds, and attention keeps
/// one statistic per head and token instead of its weights; GELU and its product keep an array
/// each. So: x, norm, q, k, v, attention, x, norm, and twice four widths.
#[test]
fn a_layer_keeps_what_the_law_says() {
    let (token, number) = (TOKENS * WIDTH * 4, TOKENS * 4);
    let statistics = (4 + HEADS) * number;
    for form in FORMS {
        assert_eq!(kept(form, Recompute::None), 16 * token + statistics, "{form:?}");
        // Both norms and the GELU are computed again.
        assert_eq!(kept(form, Recompute::Selective), 10 * token + statistics, "{form:?}");
        assert_eq!(kept(form, Recompute::Full), token, "{form:?}");
    }
}

/// What passes layers by is no reason to keep what is inside of them: those of a decoder, which all read
/// what the encoder made, keep what goes into them as those of the encoder do.
#[test]
fn a_value_may_pass_layers_by() {
    let kept = |begin, layers| {
        let model = blocks::translator(EXTENTS, layers, begin);
        let stages = stages(&model, &[], BackwardForm::Whole, Recompute::Full);
        let forward = &stages.stages[Stage::new(0)].forward;
        bytes(forward, &[Role::Activation, Role::Retained])
    };
    for begin in [Begin::Before, Begin::Memory, Begin::Class] {
        let each = [[3, 4], [4, 4], [4, 5], [2, 7]].map(|layers| kept(begin, layers));
        let more = [each[1] - each[0], each[2] - each[1]];
        assert_eq!(more, [TOKENS * WIDTH * 4; 2], "{begin:?}");
        assert_eq!(each[3], each[2], "{begin:?}");
    }
}

/// Values that all wait for the end stand in each other without being layers, however many they are.
#[test]
fn what_waits_for_the_end_is_no_layer() {
    let sum: Vec<String> = (0..2_000).map(|k| format!("y{k}")).collect();
    let each: Vec<String> =
        (1..2_000).map(|k| format!("y{k} = relu(y{})", k - 1)).collect();
    let job = crate::models::job(EXAMPLES as u32);
    let program = crate::models::program(&format!(
        "model dense {{
            input x: real[batch, 8]
            input targets: real[batch, 8]
            y0 = linear(x, 8)
            {}
            loss mse({}, targets)
        }}
        {job}",
        each.join("\n"),
        sum.join(" + ")
    ));
    let code = stages(&program.model, &[], BackwardForm::Whole, Recompute::Full);
    let forward = &code.stages[Stage::new(0)].forward;
    assert_eq!(bytes(forward, &[Role::Activation, Role::Retained]), 0, "all is one");
}

/// What W reads is kept from I to W, whether forward kept it or I made it again.
#[test]
fn halves_hold_the_same_between_them() {
    let [none, full] = [Recompute::None, Recompute::Full].map(|recompute| {
        let code = code(3, BackwardForm::Split, recompute);
        bytes(code.backward.next()[1], &[Role::Retained, Role::Adjoint])
    });
    assert_eq!(none, full);
}

/// `full`: one more forward of each layer, but for its last product, with what is added to it.
/// `selective`: norms and GELU again.
#[test]
fn a_layer_computes_again_what_the_law_says() {
    let extra = |form, recompute| {
        let all =
            |layers, recompute| work(&code(layers, form, recompute).backward.next());
        let layer = |recompute| all(4, recompute) - all(3, recompute);
        layer(recompute) - layer(Recompute::None)
    };
    let forward = |layers| code(layers, BackwardForm::Whole, Recompute::None).forward;
    let short = forward(3);
    let last = short.calls.iter().filter(|call| call.kernel == "affine_add").map(flops);
    let layer = work(&[&forward(4)]) - work(&[&forward(3)]);
    let full = layer - last.max().expect("a layer ends with a product");
    for form in FORMS {
        assert_eq!(extra(form, Recompute::Full), full, "{form:?}");
    }
    let called = |layers, recompute| {
        let code = code(layers, BackwardForm::Whole, recompute);
        let calls = code.backward.next()[0].calls.clone();
        let again = |kernel: &str| calls.iter().filter(|c| c.kernel == kernel).count();
        ["layer_norm", "gelu", "affine", "affine_gelu", "affine_add", "attention"]
            .map(again)
    };
    assert_eq!(called(4, Recompute::None), [0; 6]);
    let [three, four] = [3, 4].map(|layers| called(layers, Recompute::Selective));
    let layer: Vec<usize> =
        four.iter().zip(three).map(|(four, three)| four - three).collect();
    assert_eq!(layer, [2, 1, 0, 0, 0, 0]);
}

/// A share of four layers keeps what this many layers keep one way, and the others another.
#[test]
fn first_layers_may_do_otherwise_than_the_last_ones() {
    for form in FORMS {
        let whole = [Recompute::Selective, Recompute::Full];
        let [selective, full] = whole.map(|recompute| kept(form, recompute));
        let kept_by = |layers: u32| {
            let share = Share::nearest(f64::from(layers) / 4.0);
            let way = Recompute::FullIn(share.expect("it is none and not all"));
            kept_in_all(&code(4, form, way))
        };
        let found: Vec<u64> = (1..4).map(kept_by).collect();
        let steps = found.windows(2).map(|pair| pair[0] - pair[1]);
        let saved = selective - full;
        assert!(steps.into_iter().all(|step| step == saved), "{found:?} {form:?}");
    }
}

/// A share of what `selective` saves is saved to within one result, the largest of which has four widths per
/// token; a larger share saves no less, and takes no fewer calls.
#[test]
fn a_share_saves_what_it_says() {
    let largest = TOKENS * 4 * WIDTH * 4;
    for form in FORMS {
        let of = |way| {
            let code = code(4, form, way);
            let backward = code.backward.next();
            let calls: usize = backward.iter().map(|own| own.calls.len()).sum();
            (kept_in_all(&code), calls)
        };
        let [none, selective] = [Recompute::None, Recompute::Selective].map(of);
        let saved_by_all = none.0 - selective.0;
        let mut last = none;
        for sixteenths in 1..16 {
            let share = Share::nearest(f64::from(sixteenths) / 16.0).expect("a share");
            let way = Recompute::SelectiveIn(share);
            let (own, wanted) = (of(way), share.of_bytes(Bytes(saved_by_all)).0);
            let saved = none.0 - own.0;
            // Arrays are packed closer or less so, a cache line for each.
            assert!(saved + 64 * 16 >= wanted && saved <= wanted + largest, "{way}");
            assert!(own.0 <= last.0 && own.1 >= last.1, "{way}");
            last = own;
        }
        assert!(last.0 >= selective.0 && last.1 <= selective.1);
    }
}

/// A rectified norm comes from one array, and the sum behind a residual unit from two, so that comes last.
#[test]
fn what_takes_least_traffic_is_computed_again_first() {
    let job = crate::models::job(EXAMPLES as u32);
    let inner = "relu(batch_norm(linear(x, 8)))";
    let unit = format!("x = relu(x + batch_norm(linear({inner}, 8)))\n").repeat(4);
    let program = crate::models::program(&format!(
        "model units {{
            input inputs: real[batch, 8]
            input targets: real[batch, 8]
            x = linear(inputs, 8)
            {unit}
            loss mse(linear(x, 8), targets)
        }}
        {job}"
    ));
    let again = |way| {
        let code = stages(&program.model, &[], BackwardForm::Whole, way);
        let calls = &code.stages[Stage::new(0)].backward.next()[0].calls;
        let made = calls.iter().filter(|call| call.kernel == "batch_norm_again");
        let sums = made.clone().filter(|c| c.attributes.contains_key("residual"));
        [made.count(), sums.count()]
    };
    let some = |share| Recompute::SelectiveIn(Share::nearest(share).expect("a share"));
    let [all, sums] = again(Recompute::Selective);
    assert!(all == 4 + sums && sums > 0, "{all} and {sums}");
    let part = 4.0 / all as f64;
    assert_eq!(again(some(part / 2.0)), [2, 0]);
    assert_eq!(again(some(part)), [4, 0]);
    assert_eq!(again(some(part + 0.01)), [5, 1]);
}

/// What is made again lives one layer at a time. Where the last layers keep more than the first ones, more
/// of those leave more room.
#[test]
fn scratch_holds_one_layer() {
    for recompute in Recompute::STEPS {
        let scratch = |layers| {
            let code = code(layers, BackwardForm::Whole, *recompute);
            bytes(code.backward.next()[0], &[Role::Workspace])
        };
        let [few, many] = [3, 6].map(scratch);
        match recompute {
            Recompute::SelectiveIn(_) | Recompute::FullIn(_) => assert!(many <= few),
            _ => assert_eq!(few, many, "{recompute}"),
        }
    }
}

/// Wherever a model is cut, a stage keeps no more, and each stage decides for itself.
#[test]
fn stages_decide_for_themselves() {
    let model = gpt(3);
    let end = model.cuttable() as u32;
    for cut in 1..end {
        let [none, selective, full] = Recompute::ALL[..3].try_into().expect("three");
        let of = |recompute| stages(&model, &[cut], BackwardForm::Whole, recompute);
        let all = [none, selective, full].map(of);
        let form = |stage: Stage| StageForm {
            backward: BackwardForm::Whole,
            recompute: if stage.index() == 0 { full } else { none },
        };
        let storage = Storage { dtype: Float::F32, padding: 16 };
        let mixed = stages_in(
            &model,
            (&[cut], Tensor::WHOLE),
            EXAMPLES,
            storage,
            form,
            &Everywhere,
        )
        .expect("nothing is shared");
        for (stage, code) in mixed.stages.iter() {
            let same = if stage.index() == 0 { &all[2] } else { &all[0] };
            assert_eq!(code, &same.stages[stage], "cut at {cut}");
            let kept = |stages: &Stages| {
                bytes(&stages.stages[stage].forward, &[Role::Activation])
            };
            let [none, selective, full] = [0, 1, 2].map(|which| kept(&all[which]));
            assert!(selective <= none && full <= none, "{stage} cut at {cut}");
        }
    }
}
