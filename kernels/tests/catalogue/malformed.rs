//! `parse` refuses every call that does not follow the table, and never panics.

use crate::common::{
    Build, call,
    sample::{Draw, sample},
};
use roundelay_kernels::{Kernel, NAMES};
use roundelay_schedule::{
    Access, Attribute, Bytes, Call, Element, Float, Flops, Footprint, Unit,
};

fn refused(call: &Call, expected: &str) {
    let mistake = Kernel::parse(call).expect_err(expected);
    assert!(mistake.contains(expected), "{mistake:?} does not say {expected:?}");
    assert!(!mistake.ends_with('.'), "{mistake:?} ends with a full stop");
}

/// Attributes that a call may leave out, whatever its kernel.
const OPTIONAL: [&str; 26] = [
    "accumulate",
    "accumulate_sums",
    "again",
    "averaged",
    "causal",
    "centered",
    "copied",
    "gradients",
    "nesterov",
    "inner",
    "inverse",
    "lowest",
    "masked",
    "opened",
    "packed",
    "relu",
    "residual",
    "running",
    "scale",
    "spared",
    "squares",
    "still",
    "transpose_a",
    "transpose_b",
    "turned",
    "window",
];

#[test]
fn every_sample_is_well_formed() {
    for name in NAMES {
        for seed in 0..50 {
            let call = sample(name, &mut Draw::new(seed));
            let kernel = Kernel::parse(&call).unwrap();
            assert_eq!(kernel.accesses().len(), call.operands.len());
            assert_eq!(kernel.sizes(Float::F32).count(), call.operands.len());
        }
    }
}

#[test]
fn a_call_with_one_mistake_is_refused() {
    for name in NAMES {
        for seed in 0..20 {
            let good = sample(name, &mut Draw::new(seed));
            for (place, _) in good.operands.iter().enumerate() {
                let mutate = |change: &dyn Fn(&mut Call)| {
                    let mut bad = good.clone();
                    change(&mut bad);
                    bad
                };
                refused(&mutate(&|bad| bad.operands.truncate(place)), "is missing");
                let extend = |bad: &mut Call, extent| {
                    let shape = &mut bad.operands[place].shape;
                    *shape = shape.iter().copied().chain([extent]).collect();
                };
                refused(&mutate(&|bad| extend(bad, 0)), "zero");
                let huge = |bad: &mut Call| extend(bad, 1 << 60);
                refused(
                    &mutate(&|bad| {
                        huge(bad);
                        huge(bad);
                    }),
                    "any memory",
                );
                let far =
                    |bad: &mut Call| bad.operands[place].offset = Bytes(u64::MAX - 3);
                refused(&mutate(&far), "any memory");
                let other = |bad: &mut Call| {
                    let element = &mut bad.operands[place].element;
                    *element = match element {
                        Element::Real | Element::Wide => Element::I32,
                        Element::I32 => Element::Real,
                    };
                };
                refused(&mutate(&other), "must be");
            }
            refused(&good.clone().real(&[1]), "operands, but has");
            refused(
                &good.clone().flag("acumulate", true),
                "has no attribute `acumulate`",
            );
            for attribute in good.attributes.keys() {
                let text = good.clone().with(attribute, Attribute::Integers(vec![3]));
                refused(&text, &format!("attribute `{attribute}` must be"));
                let mut lacking = good.clone();
                lacking.attributes.remove(attribute);
                let optional_here = match &**attribute {
                    "cap" => name.starts_with("attention"),
                    "epsilon" => name.contains("_norm"),
                    "first" => *name == "rotary",
                    "factor" => *name == "rotary" && !good.attributes.contains_key("low"),
                    "before" | "own" | "row_stride" => true,
                    other => OPTIONAL.contains(&other),
                };
                if !optional_here {
                    refused(&lacking, &format!("attribute `{attribute}` is missing"));
                }
            }
        }
    }
}

/// Growing one operand alone breaks every kernel, but where it only says how many rows there
/// are, or how many zeros.
#[test]
fn a_shape_that_does_not_fit_is_refused() {
    for name in NAMES {
        for seed in 0..20 {
            let good = sample(name, &mut Draw::new(seed));
            for place in 0..good.operands.len() {
                let rows_are_free = [
                    ("add_rows", 1),
                    ("sum_rows", 0),
                    ("zero", 0),
                    ("embedding", 1),
                    ("embedding_backward", 2),
                    ("cross_entropy_join", 0),
                    ("pixel_norm_statistics", 0),
                    ("squares", 0),
                ];
                let fits = rows_are_free.contains(&(name, place));
                let mut bad = good.clone();
                bad.operands[place].shape[0] += 1009;
                assert_eq!(Kernel::parse(&bad).is_ok(), fits, "{name} operand {place}");
            }
        }
    }
}

#[test]
fn mistakes_come_with_the_nearest_name() {
    refused(&call("matmull"), "unknown kernel `matmull`; nearest is `matmul`");
    let scaled = call("scale").number("factor", 2.0).real(&[3]).real(&[3]);
    refused(&scaled.flag("acumulate", true), "nearest is `accumulate`");
}

#[test]
fn values_out_of_range_are_refused() {
    let dropout = |rate: f64| {
        call("dropout").integer("operator", 1).number("rate", rate).real(&[3]).real(&[3])
    };
    assert!(Kernel::parse(&dropout(0.0)).is_ok());
    for rate in [-0.1, 1.0, f64::NAN, f64::INFINITY] {
        refused(&dropout(rate), "in 0 .. 1");
    }
    let x: &[u64] = &[2, 4, 6];
    let attention = call("attention").reals(&[x, x, x, x, &[2, 4, 4]]);
    let attention = attention.integer("heads", 2).integer("key_heads", 2);
    refused(&attention.clone().integer("heads", 4), "not a multiple of 4 heads");
    refused(&attention.clone().integer("heads", 3), "not a multiple of 2 key heads");
    refused(&attention.clone().integer("heads", 0), "at least 1");
    refused(&attention.clone().integer("window", 0), "at least 1");
    refused(&attention.clone().number("scale", 0.0), "above 0");
    refused(&attention.number("cap", -1.0), "above 0");
    let packed = call("attention").flag("packed", true).reals(&[x, x, &[2, 2, 4]]);
    let packed = packed.integer("heads", 2).integer("key_heads", 1);
    let uneven = "not a multiple of 2 queries, 1 keys and 1 values";
    refused(&packed, uneven);
    let rotary = call("rotary").number("base", 100.0).reals(&[x, x]);
    refused(&rotary.clone().integer("heads", 2), "no pairs for 2 heads");
    let rotary = rotary.integer("heads", 1);
    refused(&rotary.clone().number("base", 0.0), "at least 1");
    let still = rotary.clone().integer("heads", 3).integer("still", 2);
    refused(&still, "3 heads are not a multiple of 2");
    for turned in [3, 8] {
        refused(&rotary.clone().integer("turned", turned), "no pairs for 1 heads");
    }
    refused(&rotary.clone().integer("turned", 0), "at least 2");
    stretches_out_of_range_are_refused(&rotary);
    let norm = call("rms_norm").reals(&[x, &[6], x, &[8]]);
    refused(&norm.number("epsilon", 0.0), "above 0");
    let slice = call("slice").reals(&[x, &[2, 2, 6]]);
    refused(&slice.clone().integer("first", 3), "are no (4, 6)");
    refused(&slice.integer("first", -1), "at least 0");
    let mse = call("mse_backward").integer("sign", 2).real(&[3]).real(&[3]).real(&[3]);
    refused(&mse, "1 or -1");
    let sgd = sample("sgd", &mut Draw::new(1));
    for spared in [vec![1], vec![3, 1], vec![-1, 2], vec![0, 4, 3, 5]] {
        let bad = sgd.clone().with("spared", Attribute::Integers(spared));
        refused(&bad, "ascending pairs");
    }
    let both = |averaged: Vec<i64>| {
        let call = sgd.clone().with("spared", Attribute::Integers(vec![0, 4]));
        call.with("averaged", Attribute::Integers(averaged))
    };
    let momentum = |momentum: f64| both(vec![4, 6]).number("average_momentum", momentum);
    assert!(Kernel::parse(&momentum(1.0)).is_ok());
    refused(&momentum(1.5), "from 0 to 1");
    refused(&both(vec![3, 6]).number("average_momentum", 0.1), "overlap");
    let squares = call("squares").integer("micro_batches", 2).reals(&[&[9], &[1]]);
    for copied in [vec![0, 4], vec![0, 4, -1], vec![4, 0, 1], vec![0, 4, 1, 3, 5, 1]] {
        let bad = squares.clone().with("copied", Attribute::Integers(copied));
        refused(&bad, "ascending begins and ends, with a number each");
    }
    let given = call("sgd").number("weight_decay", 0.0).number("clip", 1.0);
    let given = given.integer("micro_batches", 1).number("momentum", 0.0);
    let given = given.flag("squares", true).reals(&[&[9][..]; 3]);
    refused(&given, "operand 3, `squares`, is missing");
    refused(&given.real(&[2]), "must be [1]");
    let statistics = |count: i64| {
        let call = call("pixel_norm_statistics").integer("count", count);
        call.reals(&[&[4, 6], &[3], &[3]])
    };
    assert!(Kernel::parse(&statistics(i64::MAX / 2)).is_ok());
    refused(&statistics(1 << 62), "attribute `count` is too large for 4 parts");
}

/// Angles are divided by a factor, or by one and three numbers more.
fn stretches_out_of_range_are_refused(rotary: &Call) {
    let even = rotary.clone().number("factor", 4.0);
    assert!(Kernel::parse(&even).is_ok());
    refused(&rotary.clone().number("factor", 0.5), "at least 1");
    refused(&rotary.clone().number("low", 1.0), "attribute `factor` is missing");
    refused(&even.clone().number("low", 1.0), "attribute `original` is missing");
    let long = |low: f64, high: f64| {
        let call = even.clone().integer("original", 32);
        call.number("low", low).number("high", high)
    };
    assert!(Kernel::parse(&long(1.0, 4.0)).is_ok());
    refused(&long(4.0, 4.0), "must be below `high`, which is 4");
    refused(&long(0.0, 4.0), "above 0");
    refused(&long(1.0, -4.0), "above 0");
    refused(&long(1.0, 4.0).integer("original", 0), "at least 1");
}

#[test]
fn footprint_counts_arithmetic_and_traffic() {
    let product = call("matmul").reals(&[&[6, 4], &[4, 5], &[6, 5]]);
    let written = Kernel::parse(&product).unwrap();
    assert_eq!(written.accesses(), [Access::Read, Access::Read, Access::Write]);
    let expected = Footprint {
        flops: Flops(2 * 6 * 5 * 4),
        bytes: Bytes(4 * (24 + 20 + 30)),
        unit: Unit::Product,
    };
    assert_eq!(written.footprint(Float::F32), expected);
    let added = Kernel::parse(&product.flag("accumulate", true)).unwrap();
    assert_eq!(added.accesses()[2], Access::Update);
    assert_eq!(added.footprint(Float::F64).bytes, Bytes(8 * (24 + 20 + 2 * 30)));
}

/// A table passes row by row, as its rows are named; a gradient that is written is written whole.
#[test]
fn footprint_counts_the_rows_that_are_looked_up() {
    let bytes = |call: &Call| Kernel::parse(call).unwrap().footprint(Float::F32).bytes;
    let (tokens, rows, table) = (4 * 3, 4 * 3 * 5, 4 * 100 * 5);
    let looked_up = call("embedding").integers(&[3]).reals(&[&[100, 5], &[3, 5]]);
    assert_eq!(bytes(&looked_up), Bytes(tokens + 2 * rows));
    let part = call("embedding_part").integers(&[3]).reals(&[&[100, 5], &[3, 5]]);
    assert_eq!(bytes(&part.integer("whole", 200)), Bytes(tokens + 2 * rows));
    let slopes = call("embedding_backward").integers(&[3]).reals(&[&[3, 5], &[100, 5]]);
    assert_eq!(bytes(&slopes), Bytes(tokens + rows + table));
    assert_eq!(bytes(&slopes.flag("accumulate", true)), Bytes(tokens + 3 * rows));
}

/// Law: what is sure of a call that writes is no more than what it passes, nor than what it passes
/// where it adds.
#[test]
fn what_is_sure_of_a_call_is_no_more_than_it_passes() {
    let mut both = 0;
    for name in NAMES {
        let mut draw = Draw::new(5);
        for _ in 0..20 {
            let mut call = sample(name, &mut draw);
            call.attributes.remove("accumulate");
            let Ok(written) = Kernel::parse(&call) else { continue };
            let added = Kernel::parse(&call.flag("accumulate", true)).ok();
            both += usize::from(added.is_some());
            let sure = written.sure_footprint(Float::F32);
            for all in [Some(&written), added.as_ref()].into_iter().flatten() {
                let all = all.footprint(Float::F32);
                assert!(sure.bytes <= all.bytes && sure.flops <= all.flops, "{name}");
            }
        }
    }
    assert!(both > 100, "only {both} calls may add");
}

/// Law: what a call does and takes follows from its kernel, constants and shapes, wherever its
/// operands lie.
#[test]
fn places_change_nothing() {
    let known = |call: &Call| {
        let kernel = Kernel::parse(call).unwrap();
        let (footprint, exchange) = (kernel.footprint(Float::F32), kernel.exchange());
        (kernel.accesses().to_vec(), footprint, exchange)
    };
    for name in NAMES {
        for seed in 0..20 {
            let call = sample(name, &mut Draw::new(seed));
            let mut moved = call.clone();
            for (operand, number) in moved.operands.iter_mut().zip(0..) {
                operand.argument = 7;
                operand.offset += Bytes(1 + 3 * number);
            }
            assert!(call.is_like(&moved), "{name}");
            assert_eq!(known(&call), known(&moved), "{name}");
        }
    }
}
