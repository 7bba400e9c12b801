//! Shapes at which kernels for CUDA devices go another way: long rows, many rows, many tokens, many
//! ranges; and bad input, which must be seen.

use crate::{
    common::{
        Array, Body, Build, CONTEXT, call, run,
        sample::{Draw, Mix, contents, mixed},
    },
    emulation::{
        Bound, can_compile,
        compare::{compare, steps, tolerance},
        run_steps,
        stored::{Placement, Stored},
    },
};
use roundelay_kernels::{Context, cuda::Step};
use roundelay_schedule::{Attribute, Call, Element, Float, GradientSums};

const BF16: Float = Float::Bf16(GradientSums::Same);
const F16: Float = Float::F16(GradientSums::Same);

fn check(call: &Call, dtype: Float, context: &Context) {
    let start = contents::<f64>(call, &mut Draw::new(4));
    compare(call, &start, (dtype, Placement::Aligned), context, tolerance(dtype));
}

/// Rows of one, of a warp's, of a block's, and of a large block's numbers.
#[test]
fn rows_of_every_length() {
    if !can_compile() {
        return;
    }
    for columns in [1u64, 31, 1024, 1032, 2001, 16392] {
        let (array, count, row): (&[u64], &[u64], &[u64]) =
            (&[3, columns], &[3], &[columns]);
        let norm = call("layer_norm").reals(&[array, row, row, array, count, count]);
        let loss =
            call("cross_entropy").real(array).integers(count).reals(&[count, &[1]]);
        let calls = [
            call("softmax").reals(&[array; 2]),
            call("softmax_backward").reals(&[array; 3]),
            norm,
            loss,
            call("accuracy").real(array).integers(count).real(&[1]),
        ];
        calls.iter().for_each(|call| check(call, Float::F32, &CONTEXT));
        let wide = calls.map(|mut call| {
            let statistics: &[usize] = match &*call.kernel {
                "layer_norm" => &[4, 5],
                "cross_entropy" => &[2, 3],
                _ => &[],
            };
            statistics.iter().for_each(|at| call.operands[*at].element = Element::Wide);
            call
        });
        wide.iter().for_each(|call| check(call, BF16, &CONTEXT));
    }
}

/// Logits of −∞, as masks leave them: in all that a thread meets first, and everywhere but at the
/// target.
#[test]
fn classes_that_are_masked_away() {
    if !can_compile() {
        return;
    }
    for (columns, masked) in [(1000u64, 600), (1000, 999), (40_000, 30_000), (13, 12)] {
        let (array, count): (&[u64], &[u64]) = (&[3, columns], &[3]);
        let forward = call("cross_entropy").real(array).integers(count);
        let forward = forward.operand(Element::Wide, count).operand(Element::Wide, &[1]);
        let mut logits = Draw::new(columns).normals(3 * columns as usize);
        logits[..masked].fill(f64::NEG_INFINITY);
        let last = columns as i32 - 1;
        let targets = Array::Integer(vec![last, 0, last]);
        for dtype in [Float::F32, BF16] {
            let statistics = [3, 1].map(|length| Array::Real(vec![0.0; length]));
            let given = [Array::Real(logits.clone()), targets.clone()];
            let mut start = [&given[..], &statistics[..]].concat();
            let way = (dtype, Placement::Aligned);
            compare(&forward, &start, way, &CONTEXT, tolerance(dtype));
            run(&forward, &mut start, Body::Plain, &CONTEXT);
            assert!(start[2].numbers().iter().all(|lse| lse.is_finite()));
            let slopes = call("cross_entropy_backward").real(array).integers(count);
            let slopes = slopes.operand(Element::Wide, count).real(array);
            start[3] = Array::Real(vec![0.0; logits.len()]);
            compare(&slopes, &start, way, &CONTEXT, tolerance(dtype));
        }
    }
}

/// Scores of −∞ in all keys that a query meets first, row by row and by tiles.
#[test]
fn keys_whose_scores_are_minus_infinity_weigh_nothing() {
    if !can_compile() {
        return;
    }
    let (hidden, keys) = (130, 200);
    for (depth, dtype) in [(2, Float::F32), (2, BF16), (64, BF16), (128, BF16)] {
        let row = |first: f64, second: f64| {
            let mut row = vec![0.0; depth];
            row[..2].copy_from_slice(&[first, second]);
            row
        };
        let queries: Vec<f64> = row(1e30, 1.0).repeat(keys);
        let all = (0..keys).flat_map(|j| match j < hidden {
            true => row(-1e30, 0.0),
            false => row(0.0, (j as f64).sin()),
        });
        let values = Draw::new(3).normals(keys * depth);
        let (x, lse): (&[u64], &[u64]) = (&[1, 200, depth as u64], &[1, 1, 200]);
        let call = call("attention").integer("heads", 1).integer("key_heads", 1);
        let call = call.reals(&[x, x, x, x]).operand(Element::Wide, lse);
        let made = [keys * depth, keys].map(|length| Array::Real(vec![0.0; length]));
        let given = [queries, all.collect(), values].map(Array::Real);
        let start = [&given[..], &made[..]].concat();
        let way = (dtype, Placement::Aligned);
        compare(&call, &start, way, &CONTEXT, tolerance(dtype));
    }
}

/// A logit that is no number is seen, also where a thread has met nothing else, or nothing but −∞.
#[test]
fn a_class_that_is_no_number_makes_none_of_the_loss() {
    if !can_compile() {
        return;
    }
    let (rows, columns): (usize, usize) = (3, 13);
    for (row, bad) in [(0, 0), (1, 0), (1, 3), (2, 12)] {
        for beside in [0.5, f64::NEG_INFINITY] {
            let shape: &[u64] = &[rows as u64, columns as u64];
            let count: &[u64] = &[rows as u64];
            let loss = call("cross_entropy").real(shape).integers(count);
            let loss = loss.reals(&[count, &[1]]);
            let mut logits = vec![beside; rows * columns];
            logits[row * columns + bad] = f64::NAN;
            let start = [
                Array::Real(logits),
                Array::Integer(vec![7; rows]),
                Array::Real(vec![0.0; rows]),
                Array::Real(vec![0.0]),
            ];
            for dtype in [Float::F32, BF16] {
                let found = run_from(&loss, (&start, dtype), 2);
                let place = format!("{row} {bad} {beside} {found:?}");
                let seen = found.iter().position(|lse| lse.is_nan());
                assert_eq!(seen, Some(row), "{place}");
                assert!(run_from(&loss, (&start, dtype), 3)[0].is_nan(), "{place}");
            }
            let mut plain = start;
            run(&loss, &mut plain, Body::Plain, &CONTEXT);
            assert!(plain[3].numbers()[0].is_nan(), "{row} {bad} {beside}");
        }
    }
}

/// Odd rows begin at every place of 16 bytes, by themselves and together with those of slopes that are
/// wider or lie elsewhere. The target is any class of a row, some rows do not count.
#[test]
fn rows_of_classes_begin_anywhere() {
    if !can_compile() {
        return;
    }
    for columns in [13u64, 1031, 16_391] {
        let (array, count): (&[u64], &[u64]) = (&[9, columns], &[9]);
        let loss = call("cross_entropy").real(array).integers(count);
        let slopes = |add| {
            let call = call("masked_cross_entropy_backward").flag("accumulate", add);
            call.real(array).integers(count).reals(&[&[3], count, array])
        };
        let together = call("linear_cross_entropy").flag("gradients", true);
        let together = together.flag("masked", true).reals(&[&[9, 3], &[columns, 3]]);
        let together = together.integers(count).reals(&[&[3], array, count, &[1]]);
        let together = together.reals(&[&[9, 3], &[columns, 3]]);
        let calls = [loss.reals(&[count, &[1]]), slopes(false), slopes(true), together];
        for (call, dtype) in calls.iter().flat_map(|call| [(call, BF16), (call, F16)]) {
            let mut start = contents::<f64>(call, &mut Draw::new(columns));
            let targets = start.iter_mut().find_map(|array| match array {
                Array::Integer(targets) => Some(targets),
                Array::Real(_) => None,
            });
            let masked = if call.kernel == "cross_entropy" { 0 } else { columns };
            let last = columns as i32 - 1;
            let chosen = [0, last, masked as i32, 1, 7, last - 1, 8, last / 2, 12];
            targets.unwrap().copy_from_slice(&chosen);
            for (mix, placement) in [
                (Mix::Narrow, Placement::Unaligned),
                (Mix::Statistics, Placement::Aligned),
            ] {
                let call = mixed(call.clone(), mix);
                let way = (dtype, placement);
                compare(&call, &start, way, &CONTEXT, tolerance(dtype));
            }
        }
    }
}

/// Rows of logits with room behind their classes, whose contents are no numbers at the beginning, for few
/// classes and for more than a tile of products has. Losses leave zeros there with the slopes; what products
/// do with other numbers behind rows, `products` asks.
#[test]
fn room_behind_classes_is_never_read() {
    if !can_compile() {
        return;
    }
    let (rows, depth) = (9u64, 40u64);
    for (classes, room) in [(13, 16), (13, 14), (257, 264), (1031, 1088)] {
        for (gradients, masked) in [(true, false), (true, true), (false, false)] {
            let (x, weight): (&[u64], &[u64]) = (&[rows, depth], &[classes, depth]);
            let loss = call("linear_cross_entropy");
            let loss = if masked { loss.flag("masked", true) } else { loss };
            let loss = loss.reals(&[x, weight]).integers(&[rows]);
            let loss = if masked { loss.real(&[rows]) } else { loss };
            let loss = loss.reals(&[&[4, room], &[rows], &[1]]);
            let loss = match gradients {
                true => loss.flag("gradients", true).reals(&[x, weight]),
                false => loss,
            };
            let start = contents::<f64>(&loss, &mut Draw::new(room));
            let dtypes =
                [(BF16, Mix::Statistics), (F16, Mix::Narrow), (Float::F32, Mix::Narrow)];
            for (dtype, mix) in dtypes {
                let loss = mixed(loss.clone(), mix);
                for placement in [Placement::Aligned, Placement::Unaligned] {
                    let way = (dtype, placement);
                    compare(&loss, &start, way, &CONTEXT, tolerance(dtype));
                }
            }
        }
    }
}

/// Several segments of rows, also where they do not end together.
#[test]
fn sums_over_many_rows() {
    if !can_compile() {
        return;
    }
    for (rows, columns) in [(1u64, 1u64), (40_000, 3), (2500, 257), (33, 2100)] {
        let (array, count, row): (&[u64], &[u64], &[u64]) =
            (&[rows, columns], &[rows], &[columns]);
        check(&call("sum_rows").reals(&[array, row]), BF16, &CONTEXT);
        check(
            &call("multiply_sum_rows").reals(&[array, array, row]),
            Float::F32,
            &CONTEXT,
        );
        if rows < 10_000 {
            let call = call("layer_norm_parameters");
            check(
                &call.reals(&[array, count, count, array, row, row]),
                Float::F32,
                &CONTEXT,
            );
        }
    }
}

/// Rows that a warp has, or several, or a block that is too small for their columns; few rows, and
/// so many that a block takes some in turn, also where they do not end together.
#[test]
fn norms_that_sum_over_rows_on_the_way() {
    if !can_compile() {
        return;
    }
    for (rows, columns) in [(1u64, 1u64), (2500, 40), (600, 800), (41, 2100), (19, 6200)]
    {
        for (dtype, accumulate) in [(BF16, false), (Float::F32, true)] {
            let (array, count, row): (&[u64], &[u64], &[u64]) =
                (&[rows, columns], &[rows], &[columns]);
            let build = |name| call(name).flag("accumulate", accumulate);
            let layer = build("layer_norm_backward").reals(&[array, row]);
            let layer = layer.operand(Element::Wide, count).operand(Element::Wide, count);
            check(&layer.reals(&[array, array, row, row]), dtype, &CONTEXT);
            let square = build("rms_norm_backward").reals(&[array, row]);
            let square = square.operand(Element::Wide, count);
            check(&square.reals(&[array, array, row]), dtype, &CONTEXT);
        }
    }
}

/// No bias is there, so nobody makes its slopes: by one function, and by two.
#[test]
fn norms_around_zero_sum_no_slopes_of_a_bias() {
    for columns in [64, 6400] {
        let (array, count, row): (&[u64], &[u64], &[u64]) =
            (&[2500, columns], &[2500], &[columns]);
        let wide = |call: Call| call.operand(Element::Wide, count);
        let layer = wide(wide(call("layer_norm_backward").reals(&[array, row])));
        let layer = layer.reals(&[array, array, row, row]);
        let square = wide(call("rms_norm_backward").reals(&[array, row]));
        let square = square.reals(&[array, array, row]);
        let [layer, square] = [layer, square].map(|call| steps(&call, BF16).scratch.0);
        assert_eq!(layer, 2 * square);
    }
}

/// More tokens than one block sorts, more rows than three digits have, some of which nobody names.
#[test]
fn gradients_of_large_tables() {
    if !can_compile() {
        return;
    }
    let shapes = [(1u64, 1u64, 9), (9000, 5, 9), (6000, 300, 8), (300, 5000, 9)];
    for (tokens, rows, columns) in shapes {
        for accumulate in [false, true] {
            let call = call("embedding_backward").flag("accumulate", accumulate);
            let call = call.integers(&[tokens]).real(&[tokens, columns]);
            let call = call.real(&[rows, columns]);
            let draw = &mut Draw::new(tokens);
            let chosen = (0..tokens).map(|_| draw.below(rows) as i32).collect();
            let start = [
                Array::Integer(chosen),
                Array::Real(draw.normals((tokens * columns) as usize)),
                Array::Real(draw.normals((rows * columns) as usize)),
            ];
            let way = (Float::F64, Placement::Aligned);
            compare(&call, &start, way, &CONTEXT, tolerance(Float::F64));
        }
    }
}

/// Rows whose sorted tokens begin and end with pieces of 32, inside of them, and in the last one, which is
/// not full; that go on over several; of which one has tokens behind those of all others. As many as a
/// block sorts, and one more. Rows that have all of a group of 32 pieces, of the next one too, all of one but
/// for a token at either end, and groups between pieces before and behind them.
#[test]
fn gradients_of_rows_in_several_pieces() {
    if !can_compile() {
        return;
    }
    let runs: [&[usize]; 12] = [
        &[32],
        &[32, 32, 0, 64],
        &[31, 2, 31],
        &[1, 100, 0, 27, 5],
        &[33, 31, 96],
        &[1000, 1048],
        &[0, 1, 2048],
        &[1023, 1025],
        &[1024, 1024],
        &[1025, 1023],
        &[1000, 1047, 1100],
        &[40, 3000, 1000, 4000],
    ];
    for runs in runs {
        let (tokens, rows) = (runs.iter().sum::<usize>(), runs.len() + 1);
        let mut chosen: Vec<i32> = (0..runs.len() as i32)
            .flat_map(|row| std::iter::repeat_n(row, runs[row as usize]))
            .collect();
        // 7 has no factor in common with these numbers of tokens, but for those of 7 or less.
        let places =
            (0..tokens).map(|i| if tokens % 7 == 0 { i } else { i * 7 % tokens });
        let sorted = chosen.clone();
        places.zip(sorted).for_each(|(place, token)| chosen[place] = token);
        for (dtype, accumulate, columns) in
            [(Float::F64, true, 3u64), (BF16, false, 16), (BF16, true, 40)]
        {
            let call = call("embedding_backward").flag("accumulate", accumulate);
            let call = call.integers(&[tokens as u64]).real(&[tokens as u64, columns]);
            let call = call.operand(Element::Wide, &[rows as u64, columns]);
            let draw = &mut Draw::new(tokens as u64);
            let start = [
                Array::Integer(chosen.clone()),
                Array::Real(draw.normals(tokens * columns as usize)),
                Array::Real(draw.normals(rows * columns as usize)),
            ];
            let way = (dtype, Placement::Aligned);
            // Sums are in 32 bits at least, of numbers that both have.
            let tolerance = if dtype == BF16 { 3e-5 } else { tolerance(dtype) };
            compare(&call, &start, way, &CONTEXT, tolerance);
        }
    }
}

/// Two rows that have all tokens of a long text: no block goes through the pieces of a row one by one.
#[test]
fn pieces_of_one_row_are_joined_in_groups() {
    let call = call("embedding_backward").flag("accumulate", false);
    let call = call.integers(&[16384]).reals(&[&[16384, 8], &[2, 8]]);
    let launches = steps(&call, Float::F32).steps.into_iter().flat_map(Step::launches);
    let groups: Vec<_> = launches
        .filter(|launch| launch.function.symbol == "join_groups_f32")
        .map(|launch| launch.grid)
        .collect();
    assert_eq!(groups, [[15, 1, 1]]);
}

/// More ranges than one launch writes, slices that begin inside of one, and master copies.
#[test]
fn optimizers_with_many_ranges_and_masters() {
    if !can_compile() {
        return;
    }
    let count = 4000u64;
    let ends = |first: i64| {
        (0..40).flat_map(|r| [first + 100 * r, first + 100 * r + 30]).collect()
    };
    let rule = |name| {
        call(name)
            .number("weight_decay", 0.1)
            .number("clip", 0.5)
            .integer("micro_batches", 3)
            .with("spared", Attribute::Integers(ends(0)))
            .with("averaged", Attribute::Integers(ends(45)))
            .number("average_momentum", 0.1)
    };
    let sgd = rule("sgd").number("momentum", 0.9).flag("nesterov", true);
    let adamw = rule("adamw").number("beta1", 0.9).number("beta2", 0.99);
    let adamw = adamw.number("epsilon", 1e-8);
    let array: &[u64] = &[count];
    for slice_offset in [0, 17, 3990] {
        let context = Context { slice_offset, ..CONTEXT };
        let plain = [sgd.clone().reals(&[array; 4]), adamw.clone().reals(&[array; 5])];
        plain.iter().for_each(|call| check(call, Float::F32, &context));
        for gradient in [Element::Real, Element::Wide] {
            let mixed = |call: Call, states: usize| {
                let call = call.operand(gradient, array).reals(&[array; 2]);
                (0..=states).fold(call, |call, _| call.operand(Element::Wide, array))
            };
            check(&mixed(sgd.clone(), 1), BF16, &context);
            check(&mixed(adamw.clone(), 2), BF16, &context);
        }
    }
}

/// A norm that is none cuts nothing to a number, as on the CPU.
#[test]
fn clipping_spreads_what_is_no_number() {
    if !can_compile() {
        return;
    }
    let count: &[u64] = &[1000];
    let call = call("sgd").number("weight_decay", 0.1).number("clip", 0.5);
    let call = call.integer("micro_batches", 3).number("momentum", 0.9);
    let call = call.reals(&[count; 4]);
    for bad in [0, 777] {
        let mut start = contents::<f64>(&call, &mut Draw::new(4));
        if let Array::Real(gradient) = &mut start[0] {
            gradient[bad] = f64::NAN;
        }
        for dtype in [Float::F32, Float::F64] {
            let next = run_from(&call, (&start, dtype), 2);
            assert!(next.iter().all(|next| next.is_nan()), "{bad} {dtype:?}");
        }
    }
}

/// Runs a call in f32 on whole numbers that may be out of range; gives an output.
fn run_on(call: &Call, indices: &[i32], output: usize) -> Vec<f64> {
    let mut start = contents::<f64>(call, &mut Draw::new(3));
    for array in &mut start {
        if let Array::Integer(values) = array {
            values.copy_from_slice(indices);
        }
    }
    run_from(call, (&start, Float::F32), output)
}

/// Runs a call; gives an output.
fn run_from(
    call: &Call,
    (start, dtype): (&[Array<f64>], Float),
    output: usize,
) -> Vec<f64> {
    let operands = call.operands.iter().zip(start);
    let mut stored: Vec<Stored> = operands
        .map(|(operand, array)| Stored::new(array, operand.element, dtype))
        .collect();
    let pointers: Vec<*mut u8> = stored.iter_mut().map(Stored::pointer).collect();
    let bound = Bound { operands: &pointers, context: &CONTEXT };
    run_steps(&steps(call, dtype), &bound);
    stored[output].values()
}

/// Nothing is read or written elsewhere, and what depends on it is no number.
#[test]
fn indices_out_of_range_make_no_numbers() {
    if !can_compile() {
        return;
    }
    let (tokens, rows): (&[u64], &[u64]) = (&[3], &[3, 5]);
    for bad in [-1, 7, i32::MAX, i32::MIN] {
        let indices = [2, bad, 0];
        let look_up = call("embedding").integers(tokens).real(&[7, 5]).real(rows);
        let found = run_on(&look_up, &indices, 2);
        for (i, value) in found.iter().enumerate() {
            assert_eq!(value.is_nan(), i / 5 == 1, "{bad} {i}");
        }
        let table = call("embedding_backward").integers(tokens).real(rows).real(&[7, 5]);
        assert!(run_on(&table, &indices, 2).iter().all(|value| value.is_finite()));
        if bad == 7 {
            continue;
        }
        let logits: &[u64] = &[3, 7];
        let shares: [&[&[u64]]; 2] = [&[], &[&[1]]];
        for (name, shares) in
            ["cross_entropy", "masked_cross_entropy"].into_iter().zip(shares)
        {
            let made = 3 + shares.len();
            let loss = call(name).real(logits).integers(tokens).reals(shares);
            let loss = run_on(&loss.reals(&[tokens, &[1]]), &indices, made);
            assert!(loss[0].is_nan(), "{name} {bad}");
            let slopes = call(&format!("{name}_backward")).real(logits).integers(tokens);
            let slopes = slopes.reals(shares).reals(&[tokens, logits]);
            let slopes = run_on(&slopes, &indices, made);
            for (i, value) in slopes.iter().enumerate() {
                assert_eq!(value.is_nan(), i / 7 == 1, "{name} {bad} {i}");
            }
        }
        let share = call("accuracy").real(logits).integers(tokens).real(&[1]);
        assert!(run_on(&share, &indices, 2)[0].is_nan());
    }
}
