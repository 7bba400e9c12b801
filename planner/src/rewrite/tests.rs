//! The algebra against lowering that applies every rule wherever it fits, and against what it must
//! not do.

use super::*;
use crate::sample;
use roundelay_codegen::{
    ArrayUse, Everywhere, FORMS, StageForm, Stages, Storage, lower, lower_with, stages_in,
};
use roundelay_dsl::{NoFiles, Program, SourceFile, parse};
use roundelay_schedule::{
    Attributes, Float, Order, Placement, Plan, Recompute, Rewrites, Rule, Schedule,
    Sequence, Tensor,
};

const GPT: &str = "
    input tokens:  i32[batch, 8]
    input targets: i32[batch, 8]
    x = embedding(tokens, 512, 16) + positions(8, 16)
    repeat 2 as layer {
        x = x + attention(layer_norm(x), 4, causal = true)
        x = x + linear(gelu(linear(layer_norm(x), 32)), 16)
    }
    loss cross_entropy(linear(layer_norm(x), 512), targets)";

const RESIDUAL: &str = "
    input x: real[batch, 4, 4, 3]
    input y: real[batch, 8]
    x = relu(batch_norm(conv2d(x, 8, 3, padding = 1)))
    repeat 2 as layer {
        x = relu(x + batch_norm(conv2d(x, 8, 3, padding = 1)))
    }
    x = global_pool(x)
    loss mse(linear(gelu_tanh(linear(relu(linear(x, 8)), 8)), 8), y)";

fn program(model: &str) -> Program {
    let text = format!(
        "model test {{ {model} }}
         device core {{ memory 1 GB, compute 40 GFLOP/s, bandwidth 10 GB/s }}
         link bus {{ bandwidth 8 GB/s, latency 2 us }}
         cluster test {{ 4 x core joined by bus }}
         train {{ data synthetic, batch 4, optimizer sgd(lr = 0.1), steps 1, seed 1 }}"
    );
    match parse(&SourceFile::new("test.rdl", text.as_str()), &NoFiles) {
        Ok((program, _)) => program,
        Err(mistakes) => panic!("{mistakes}"),
    }
}

fn stages(
    program: &Program,
    form: StageForm,
    tensor: Tensor,
    choice: &dyn LoweringChoice,
) -> Stages {
    let cut = (&[][..], tensor);
    let storage = Storage { dtype: Float::F32, padding: 16 };
    stages_in(&program.model, cut, 2, storage, |_| form, choice)
        .expect("the model is sound")
}

/// Rules never stand in each other's way, so whatever fits is worth it; and every rule fits
/// somewhere but one, which no exchange of these models needs.
#[test]
fn the_cheapest_way_applies_all_that_fits() {
    let algebra = Algebra::default();
    let mut applied = BTreeSet::new();
    let split = |sequence| Tensor::rows(2, sequence);
    let grid = Tensor::grid(2, 2);
    let tensors = [Tensor::WHOLE, split(Sequence::Whole), split(Sequence::Split), grid];
    for (model, tensors) in [(GPT, &tensors[..]), (RESIDUAL, &tensors[..1])] {
        let program = program(model);
        for recompute in Recompute::STEPS {
            for tensor in tensors {
                let form = StageForm { recompute: *recompute, ..StageForm::default() };
                let found = stages(&program, form, *tensor, &algebra);
                assert_eq!(found, stages(&program, form, *tensor, &Everywhere));
                applied.extend(found.rewrites.iter().map(|(rewrite, _)| rewrite));
            }
        }
    }
    let mut missing: BTreeSet<Rewrite> = Rewrite::ALL.iter().copied().collect();
    missing.retain(|rewrite| !applied.contains(rewrite));
    assert_eq!(missing, BTreeSet::from([Rewrite::PartOfSum]));
    assert_eq!(algebra.stops().keys().collect::<Vec<_>>(), [&Stop::Saturated]);
}

#[test]
fn a_plan_lists_what_is_launched_and_lowers_to_the_same() {
    let program = program(GPT);
    let plan = sample::plan(Rule::Sync, Placement::Pipeline, Order::Gpipe, 2, 2);
    let half = u32::try_from(program.model.cuttable() / 2).unwrap();
    let plan = Plan { cuts: vec![half], ..plan };
    let found = lower_with(&program, &plan, &Algebra::default()).expect("it is lowered");
    assert!(!found.plan.rewrites.is_empty());
    assert_eq!(lower(&program, &found.plan), Ok(found.clone()));
    let bare = lower(&program, &plan).expect("nothing is one");
    let calls = |schedule: &Schedule| {
        schedule.routines.values().map(|routine| routine.calls.len()).sum::<usize>()
    };
    assert!(calls(&found) < calls(&bare));
    let mut wrong = found.plan.clone();
    wrong.rewrites.insert(Rewrite::AffineRelu, 0);
    let refused = lower(&program, &wrong).unwrap_err().to_string();
    assert!(refused.contains("rewrites o0 by affine_relu"), "{refused}");
    let mut fewer = Rewrites::default();
    fewer.insert(Rewrite::Affine, first_site(&found.plan.rewrites));
    let one = lower(&program, &Plan { rewrites: fewer.clone(), ..plan }).unwrap();
    assert_eq!(one.plan.rewrites, fewer);
    assert!(calls(&one) < calls(&bare) && calls(&one) > calls(&found));
}

fn first_site(rewrites: &Rewrites) -> u32 {
    let (first, sites) = rewrites.iter().next().expect("there are some");
    assert_eq!(first, Rewrite::Affine);
    sites.iter().next().expect("a rule has sites")
}

/// Calls by kernel and the numbers of their arrays; these are shared.
fn chosen(calls: &[(&'static str, &[u32])], shared: &[u32]) -> Vec<(usize, Rewrite)> {
    let flags = [("transpose_b".into(), Attribute::Flag(true))].into();
    let none = BTreeMap::new();
    let neighbour = |(kernel, arrays): &(&'static str, &[u32])| Neighbour {
        site: Some(0),
        kernel,
        attributes: if *kernel == "matmul" { &flags } else { &none },
        operands: arrays
            .iter()
            .map(|array| ArrayUse {
                array: *array,
                shape: &[4, 4],
                is_shared: shared.contains(array),
            })
            .collect(),
    };
    let neighbours: Vec<Neighbour<'_>> = calls.iter().map(neighbour).collect();
    Algebra::default().choose(&neighbours).into_iter().collect()
}

#[test]
fn a_product_is_not_made_twice() {
    let affine: [(&'static str, &[u32]); 2] =
        [("matmul", &[0, 1, 3]), ("add_rows", &[2, 3])];
    let with = |last: (&'static str, &'static [u32])| [affine[0], affine[1], last];
    let first = (1, Rewrite::Affine);
    let relu = with(("relu", &[3, 4]));
    assert_eq!(chosen(&relu, &[4]), [first, (2, Rewrite::AffineRelu)]);
    assert_eq!(chosen(&relu, &[3, 4]), [first]);
    let gelu = with(("gelu", &[3, 4]));
    assert_eq!(chosen(&gelu, &[4]), [first, (2, Rewrite::AffineGelu)]);
    assert_eq!(chosen(&gelu, &[3, 4]), [first, (2, Rewrite::AffineGelu)]);
    let add = with(("add", &[9, 3, 4]));
    assert_eq!(chosen(&add, &[4]), [first, (2, Rewrite::AffineAdd)]);
    assert_eq!(chosen(&add, &[3, 4]), [first]);
    let twice = with(("add", &[3, 3, 4]));
    assert_eq!(chosen(&twice, &[4]), [first]);
}

/// The gradients of a weight and of its bias are read by somebody else, and one call all the same; not
/// where sums are of another array.
#[test]
fn gradients_of_one_array_are_one_call() {
    let flags = |names: &[&'static str]| -> Attributes {
        names.iter().map(|name| ((*name).into(), Attribute::Flag(true))).collect()
    };
    let place = |array| ArrayUse { array, shape: &[4, 4], is_shared: true };
    let chosen = |attributes: [&Attributes; 2], summed| {
        let calls = [("matmul", vec![0, 1, 2]), ("sum_rows", vec![summed, 3])];
        let neighbour = |((kernel, arrays), attributes): (_, _)| Neighbour {
            site: Some(0),
            kernel,
            attributes,
            operands: Vec::into_iter(arrays).map(place).collect(),
        };
        let neighbours = calls.into_iter().zip(attributes).map(neighbour);
        let neighbours: Vec<Neighbour<'_>> = neighbours.collect();
        Algebra::default().choose(&neighbours).into_iter().collect::<Vec<_>>()
    };
    let [turned, none] = [flags(&["transpose_a"]), flags(&[])];
    let both = vec![(1, Rewrite::AffineGradients)];
    assert_eq!(chosen([&turned, &none], 0), both);
    let added = [flags(&["accumulate", "transpose_a"]), flags(&["accumulate"])];
    assert_eq!(chosen(added.each_ref(), 0), both);
    assert_eq!(chosen([&turned, &none], 1), []);
    assert_eq!(chosen([&none, &none], 0), []);
}

/// What one direction of a grid cuts is not what the other one gathers.
#[test]
fn exchanges_of_crossing_lines_are_left_alone() {
    let along = |stride| -> Attributes {
        let numbers = [("parts", 2), ("stride", stride)];
        let attribute = |(name, number): (&'static str, i64)| {
            (name.into(), Attribute::Integer(number))
        };
        numbers.map(attribute).into()
    };
    let place = |array, shape| ArrayUse { array, shape, is_shared: array != 1 };
    for (strides, expected) in [([2, 1], 0), ([1, 2], 0), ([2, 2], 1)] {
        let attributes = strides.map(along);
        let neighbour = |site, kernel, attributes, [from, to]: [&'static [u64]; 2]| {
            let operands = vec![place(site, from), place(site + 1, to)];
            Neighbour { site: Some(site), kernel, attributes, operands }
        };
        let neighbours = [
            neighbour(0, "part", &attributes[0], [&[3, 8], &[3, 4]]),
            neighbour(1, "all_gather", &attributes[1], [&[3, 4], &[3, 8]]),
        ];
        let found = Algebra::default().choose(&neighbours);
        assert_eq!(found.len(), expected, "{strides:?}");
    }
}

/// A limit that is met is said, and what is found by then still holds.
#[test]
fn why_it_stopped_is_said() {
    let all = [Stop::Saturated, Stop::Nodes, Stop::Rounds, Stop::Search, Stop::Other];
    let texts: BTreeSet<String> = all.iter().map(Stop::to_string).collect();
    assert_eq!(texts.len(), all.len());
    let algebra = Algebra::default();
    assert!(algebra.stops().is_empty());
    let flags = [("parts".into(), Attribute::Integer(2))].into();
    let place = |array, shape| ArrayUse { array, shape, is_shared: array != 1 };
    let calls = [("part", &[3, 8], &[3, 4]), ("all_gather", &[3, 4], &[3, 8])];
    let neighbours: Vec<Neighbour<'_>> = (0..)
        .zip(&calls)
        .map(|(number, (kernel, from, to))| Neighbour {
            site: Some(number),
            kernel,
            attributes: &flags,
            operands: vec![place(number, &from[..]), place(number + 1, &to[..])],
        })
        .collect();
    let expected = BTreeSet::from([(1, Rewrite::GatherOfPart)]);
    assert_eq!(algebra.choose(&neighbours), expected);
    assert_eq!(algebra.choose(&neighbours), expected);
    assert_eq!(algebra.stops(), BTreeMap::from([(Stop::Saturated, 1)]));
    assert_eq!(rules::rules().len(), FORMS.len());
}
