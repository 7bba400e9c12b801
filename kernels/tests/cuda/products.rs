//! Products and sums that machines launch themselves: every way in which matrices may lie, every
//! mix of types, every epilogue, against sums written down.

use crate::{
    common::{Array, CONTEXT, sample::Draw},
    emulation::{
        Bound, can_compile, run_steps,
        stored::{Placement, Stored},
    },
};
use roundelay_kernels::{
    Store,
    cuda::{
        Addend, Argument, CallPlace, Epilogue, MOST_SUMMED, Matrix, Number, Product,
        Step, Steps, sum,
    },
};
use roundelay_schedule::{Bytes, Element, Float, GradientSums};

const NUMBERS: [Number; 4] = [Number::Bf16, Number::F16, Number::F32, Number::F64];

fn dtype(number: Number) -> Float {
    match number {
        Number::Bf16 => Float::Bf16(GradientSums::Same),
        Number::F16 => Float::F16(GradientSums::Same),
        Number::F32 => Float::F32,
        Number::F64 => Float::F64,
    }
}

fn tolerance(number: Number) -> f64 {
    match number {
        Number::Bf16 => 1e-2,
        Number::F16 => 2e-3,
        Number::F32 => 3e-5,
        Number::F64 => 1e-10,
    }
}

fn operand(index: usize) -> CallPlace {
    CallPlace::Operand(index, Bytes(0))
}

fn stored(draw: &mut Draw, number: Number, length: usize) -> Stored {
    Stored::new(&Array::Real(draw.normals(length)), Element::Real, dtype(number))
}

fn run(step: Step, operands: &mut [Stored]) {
    let operands: Vec<*mut u8> = operands.iter_mut().map(Stored::pointer).collect();
    let steps = Steps { steps: vec![step], scratch: Bytes(0) };
    run_steps(&steps, &Bound { operands: &operands, context: &CONTEXT });
}

/// A matrix with some room behind its rows and between its batches.
fn matrix(
    draw: &mut Draw,
    (index, number): (usize, Number),
    [rows, columns]: [usize; 2],
    transposed: bool,
) -> Matrix {
    let [rows, columns] = if transposed { [columns, rows] } else { [rows, columns] };
    // Multiples of eight take the way that moves 16 bytes at once.
    let room = if draw.flag() { 8 } else { 3 };
    let row = (columns + draw.below(2) as usize * room).next_multiple_of(room);
    let batch = rows * row + draw.below(2) as usize * room;
    Matrix { place: operand(index), number, transposed, row, batch }
}

fn at(matrix: &Matrix, batch: usize, i: usize, j: usize) -> usize {
    let [i, j] = if matrix.transposed { [j, i] } else { [i, j] };
    batch * matrix.batch + i * matrix.row + j
}

fn gelu(x: f64) -> f64 {
    0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

/// GELU by a hyperbolic tangent, and its slope.
fn gelu_tanh(x: f64) -> [f64; 2] {
    let inner = (2.0 / std::f64::consts::PI).sqrt();
    let bent = libm::tanh(inner * (x + 0.044715 * x * x * x));
    let steepness = inner * (1.0 + 3.0 * 0.044715 * x * x);
    [0.5 * x * (1.0 + bent), 0.5 * (1.0 + bent + x * (1.0 - bent * bent) * steepness)]
}

/// What is stored of element (i, j): before the activation, and after.
fn expected(
    product: &Product,
    values: &[Vec<f64>],
    [batch, i, j]: [usize; 3],
) -> [f64; 2] {
    let term = |p: usize| {
        values[0][at(&product.a, batch, i, p)] * values[1][at(&product.b, batch, p, j)]
    };
    let total = f64::from(product.scale) * (0..product.k).map(term).sum::<f64>();
    let stands = at(&product.out, batch, i, j);
    let before = match product.addend {
        Addend::Nothing => 0.0,
        Addend::Out => values[2][stands],
        Addend::Other(_) => values[5][stands],
    };
    let biased = total + before + values[3][j];
    match product.epilogue {
        Epilogue::Plain => [0.0, total + before],
        Epilogue::Bias(_) => [0.0, biased],
        Epilogue::BiasRelu(_) => [0.0, biased.max(0.0)],
        Epilogue::BiasGelu { .. } => [biased, gelu(biased)],
        Epilogue::BiasGeluTanh { .. } => [biased, gelu_tanh(biased)[0]],
        Epilogue::GeluTanhSlope { .. } => {
            let at = values[4][stands];
            [at, (total + before) * gelu_tanh(at)[1]]
        }
    }
}

fn random_product(draw: &mut Draw, [a, b, out]: [Number; 3]) -> Product {
    let [m, n, k] = [(); 3].map(|()| (draw.extent() * (1 + draw.below(3))) as usize);
    let epilogue = match draw.below(6) {
        0 => Epilogue::Plain,
        1 => Epilogue::Bias(operand(3)),
        2 => Epilogue::BiasRelu(operand(3)),
        3 => Epilogue::BiasGelu { bias: operand(3), before: operand(4) },
        4 => Epilogue::BiasGeluTanh { bias: operand(3), before: operand(4) },
        _ => Epilogue::GeluTanhSlope { before: operand(4) },
    };
    let turned = [draw.flag(), draw.flag()];
    Product {
        m,
        n,
        k,
        batches: 1 + draw.below(3) as usize,
        a: matrix(draw, (0, a), [m, k], turned[0]),
        b: matrix(draw, (1, b), [k, n], turned[1]),
        out: matrix(draw, (2, out), [m, n], false),
        scale: if draw.flag() { 1.0 } else { 0.5 },
        addend: match draw.below(3) {
            0 => Addend::Nothing,
            1 => Addend::Out,
            _ => Addend::Other(operand(5)),
        },
        epilogue,
    }
}

fn check_product(numbers: [Number; 3], seed: u64) {
    let draw = &mut Draw::new(seed);
    let product = random_product(draw, numbers);
    let length =
        |matrix: &Matrix, rows: usize| product.batches * matrix.batch + rows * matrix.row;
    let rows = |matrix: &Matrix, rows: usize, columns: usize| {
        if matrix.transposed { columns } else { rows }
    };
    let outputs = length(&product.out, product.m);
    let mut operands = vec![
        stored(
            draw,
            numbers[0],
            length(&product.a, rows(&product.a, product.m, product.k)),
        ),
        stored(
            draw,
            numbers[1],
            length(&product.b, rows(&product.b, product.k, product.n)),
        ),
        stored(draw, numbers[2], outputs),
        stored(draw, numbers[0], product.n),
        stored(draw, numbers[2], outputs),
        stored(draw, numbers[2], outputs),
    ];
    let values: Vec<Vec<f64>> = operands.iter().map(Stored::values).collect();
    run(Step::Product(product), &mut operands);
    let (found, before) = (operands[2].values(), operands[4].values());
    let mut untouched = vec![true; outputs];
    for batch in 0..product.batches {
        for (i, j) in (0..product.m).flat_map(|i| (0..product.n).map(move |j| (i, j))) {
            let place = at(&product.out, batch, i, j);
            untouched[place] = false;
            let [bent, out] = expected(&product, &values, [batch, i, j]);
            let most = tolerance(numbers[2]).max(tolerance(numbers[0])) * 2.0;
            let near =
                |found: f64, out: f64| (found - out).abs() <= most * (4.0 + out.abs());
            assert!(near(found[place], out), "{} for {out}: {product:?}", found[place]);
            match product.epilogue {
                Epilogue::Plain | Epilogue::Bias(_) | Epilogue::BiasRelu(_) => {}
                Epilogue::BiasGelu { .. } | Epilogue::BiasGeluTanh { .. } => assert!(
                    near(before[place], bent),
                    "{} for {bent}: {product:?}",
                    before[place]
                ),
                Epilogue::GeluTanhSlope { .. } => assert_eq!(before[place], bent),
            }
        }
    }
    let spoiled = (0..outputs)
        .find(|place| untouched[*place] && found[*place] != values[2][*place]);
    assert_eq!(spoiled, None, "nothing is written between the rows: {product:?}");
}

#[test]
fn products_of_one_type() {
    if !can_compile() {
        return;
    }
    for seed in 0..12 {
        for number in NUMBERS {
            check_product([number; 3], seed);
        }
        check_product([Number::Bf16, Number::Bf16, Number::F32], seed);
        check_product([Number::F16, Number::F16, Number::F32], seed);
    }
}

#[test]
fn products_of_every_mix_of_types() {
    if !can_compile() {
        return;
    }
    for (seed, a) in NUMBERS.into_iter().enumerate() {
        for b in NUMBERS {
            NUMBERS.iter().for_each(|out| check_product([a, b, *out], seed as u64));
        }
    }
}

/// out (m, n) = a (m, k) · b (k, n), of the first three operands.
fn plain(number: Number, [m, n, k]: [usize; 3]) -> Product {
    let matrix = |index, row| {
        let place = operand(index);
        Matrix { place, number, transposed: false, row, batch: 0 }
    };
    Product {
        m,
        n,
        k,
        batches: 1,
        a: matrix(0, k),
        b: matrix(1, n),
        out: matrix(2, n),
        scale: 1.0,
        addend: Addend::Nothing,
        epilogue: Epilogue::Plain,
    }
}

/// No bit depends on how many stages of tiles are under way, nor on how wide a tile is.
#[test]
fn stages_and_tiles_change_no_bit() {
    if !can_compile() {
        return;
    }
    let number = Number::Bf16;
    for ([m, n, k], stages, shared) in
        [([130, 40, 300], 4, 4 * 192 * 80), ([20, 24, 255], 2, 2 * 192 * 80)]
    {
        let slim = plain(number, [m, n, k]).launch();
        assert_eq!(slim.function.symbol, "product_slim_bf16_bf16");
        assert_eq!(slim.shared, Bytes(shared));
        assert_eq!(slim.arguments.last(), Some(&Argument::Unsigned(stages)));
        let mut other = slim.clone();
        *other.arguments.last_mut().expect("there are arguments") =
            Argument::Unsigned(6 - stages);
        other.shared = Bytes(4 * 256 * 80);
        let mut wide = other.clone();
        wide.function.symbol = "product_bf16_bf16".to_owned();
        let [first, others @ ..] = [slim, other, wide].map(|launch| {
            let draw = &mut Draw::new(9);
            let mut operands: Vec<Stored> =
                [m * k, k * n, m * n].map(|length| stored(draw, number, length)).into();
            run(Step::Launch(launch), &mut operands);
            operands[2].values()
        });
        others.iter().for_each(|other| assert_eq!(*other, first));
    }
}

/// A product with GELU is what a library's product and our own GELU make of it; one with a slope
/// has the same bits.
#[test]
fn products_apart_from_their_activations() {
    if !can_compile() {
        return;
    }
    let [m, n, k] = [5, 24, 40];
    let (bias, before) = (operand(3), operand(4));
    let epilogues = [
        Epilogue::BiasGelu { bias, before },
        Epilogue::BiasGeluTanh { bias, before },
        Epilogue::GeluTanhSlope { before },
    ];
    for (epilogue, number) in epilogues
        .into_iter()
        .flat_map(|epilogue| NUMBERS.map(|number| (epilogue, number)))
    {
        let product = Product { epilogue, ..plain(number, [m, n, k]) };
        let (part, pass) = product.apart().expect("there is an activation");
        let apart = vec![Step::Product(part), Step::Launch(pass)];
        let [whole, apart] = [vec![Step::Product(product)], apart].map(|steps| {
            let draw = &mut Draw::new(8);
            let mut operands: Vec<Stored> = [m * k, k * n, m * n, n, m * n]
                .map(|length| stored(draw, number, length))
                .into();
            steps.into_iter().for_each(|step| run(step, &mut operands));
            [operands[2].values(), operands[4].values()]
        });
        assert_eq!(whole[1], apart[1]);
        for (whole, apart) in whole[0].iter().zip(&apart[0]) {
            let allowed = match epilogue {
                Epilogue::GeluTanhSlope { .. } => 0.0,
                _ => tolerance(number) * (1.0 + whole.abs()),
            };
            assert!((whole - apart).abs() <= allowed, "{whole} {apart}");
        }
        let plain = Product { epilogue: Epilogue::Plain, ..product };
        assert_eq!(plain.apart(), None);
    }
}

/// What numbers of a type are summed in holds them until they are rounded once; so sums in 32 and 64 bits are
/// those from the first to the last bit for bit.
fn check_sum(
    (parts, number, accumulate): (usize, Number, Store),
    placed: impl Fn(usize) -> Placement,
) {
    let draw = &mut Draw::new(parts as u64);
    let mut operands: Vec<Stored> = (0..=parts)
        .map(|operand| stored(draw, number, 777).placed(placed(operand)))
        .collect();
    let values: Vec<Vec<f64>> = operands.iter().map(Stored::values).collect();
    let launch = sum(parts, number, 777, accumulate).expect("so many can be summed");
    run(Step::Launch(launch), &mut operands);
    for (i, found) in operands[0].values().into_iter().enumerate() {
        let own = values[1..].iter().map(|part| part[i]);
        let total = match accumulate {
            Store::Write => in_order(number, own),
            Store::Add => in_order(number, own.chain([values[0][i]])),
        };
        let allowed = match number {
            Number::F32 | Number::F64 => 0.0,
            Number::Bf16 | Number::F16 => tolerance(number) * (4.0 + total.abs()),
        };
        assert!(
            (found - total).abs() <= allowed,
            "{parts} of {number:?}: {found} {total}"
        );
    }
}

/// Sums from the first to the last in the type that numbers are computed in.
fn in_order(number: Number, parts: impl Iterator<Item = f64>) -> f64 {
    match number {
        Number::F64 => parts.reduce(|sum, part| sum + part),
        Number::F32 | Number::Bf16 | Number::F16 => {
            parts.reduce(|sum, part| f64::from((sum + part) as f32))
        }
    }
    .expect("there is a part")
}

/// Each has 16 bytes of every part, or a sum of two would take as many instructions as memory moves words.
#[test]
fn threads_of_a_sum_have_sixteen_bytes() {
    for number in NUMBERS {
        let all = 10 * 256 * 16 / number.size();
        let launch = sum(2, number, all, Store::Write);
        assert_eq!(launch.expect("two can be summed").grid, [10, 1, 1]);
    }
}

#[test]
fn sums_of_parts_go_from_the_first_to_the_last() {
    if !can_compile() {
        return;
    }
    for (parts, accumulate) in [
        (1, Store::Write),
        (2, Store::Write),
        (3, Store::Add),
        (8, Store::Add),
        (MOST_SUMMED, Store::Write),
    ] {
        for number in NUMBERS {
            check_sum((parts, number, accumulate), |_| Placement::Aligned);
            let one_elsewhere = |operand| match operand == parts {
                true => Placement::Unaligned,
                false => Placement::Aligned,
            };
            check_sum((parts, number, accumulate), one_elsewhere);
        }
    }
    assert!(sum(0, Number::F32, 1, Store::Add).is_err());
    assert!(sum(MOST_SUMMED + 1, Number::F32, 1, Store::Add).is_err());
}

/// Numbers behind the rows of a matrix are no factors, also where rows end inside of 16 bytes that are moved
/// at once: whatever is there, no bit of the result is another.
#[test]
fn what_is_behind_rows_is_no_factor() {
    if !can_compile() {
        return;
    }
    let [m, n, k] = [45, 70, 77];
    for number in NUMBERS {
        for turned in [[false, false], [false, true], [true, false], [true, true]] {
            let roomy = |index, [rows, columns]: [usize; 2], transposed| {
                let stored = if transposed { [columns, rows] } else { [rows, columns] };
                let row = stored[1].next_multiple_of(8);
                let matrix =
                    Matrix { place: operand(index), number, transposed, row, batch: 0 };
                (matrix, stored)
            };
            let (a, of_a) = roomy(0, [m, k], turned[0]);
            let (b, of_b) = roomy(1, [k, n], turned[1]);
            let (out, of_out) = roomy(2, [m, n], false);
            let product = Product {
                m,
                n,
                k,
                batches: 1,
                a,
                b,
                out,
                scale: 1.0,
                addend: Addend::Nothing,
                epilogue: Epilogue::Plain,
            };
            let made = [0.0, f64::NAN].map(|behind| {
                let draw = &mut Draw::new(5);
                let mut operands = [of_a, of_b, of_out].map(|[rows, columns]| {
                    let row = columns.next_multiple_of(8);
                    let mut values = draw.normals(rows * row);
                    let rows = values.chunks_mut(row);
                    rows.for_each(|row| row[columns..].fill(behind));
                    Stored::new(&Array::Real(values), Element::Real, dtype(number))
                });
                run(Step::Product(product), &mut operands);
                let values = operands[2].values();
                let rows = values.chunks(of_out[1].next_multiple_of(8));
                rows.flat_map(|row| row[..n].to_vec()).collect::<Vec<f64>>()
            });
            assert_eq!(made[0], made[1], "{number:?} {turned:?}");
        }
    }
}

/// What rectifiers treat apart.
const SUMS: [f64; 8] =
    [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.5, -1.5, 6e-5];

/// A product whose rows are n times each of the sums, and what follows it.
fn made_of_sums([a, b, out]: [Number; 3], n: usize, epilogue: Epilogue) -> Vec<f64> {
    let of = |number| plain(number, [SUMS.len(), n, 1]);
    let product = Product { b: of(b).b, out: of(out).out, epilogue, ..of(a) };
    let arrays = [
        (SUMS.to_vec(), a),
        (vec![1.0; n], b),
        (vec![7.0; SUMS.len() * n], out),
        (vec![-0.0; n], a),
    ];
    let mut operands = arrays.map(|(values, number)| {
        Stored::new(&Array::Real(values), Element::Real, dtype(number))
    });
    run(Step::Product(product), &mut operands);
    operands[2].values()
}

/// It makes the sum where that is above zero, +0 where it is not, none where it is none: of all mixes of types,
/// which have functions of their own or not, in tiles of both widths.
#[test]
fn a_rectifier_behind_a_product_keeps_what_is_no_number() {
    if !can_compile() {
        return;
    }
    let pairs = NUMBERS.into_iter().flat_map(|a| NUMBERS.map(|b| [a, b]));
    for numbers in pairs.flat_map(|[a, b]| NUMBERS.map(|out| [a, b, out])) {
        for n in [3, 70] {
            let bias = operand(3);
            let [before, after] = [Epilogue::Bias(bias), Epilogue::BiasRelu(bias)]
                .map(|epilogue| made_of_sums(numbers, n, epilogue));
            assert_eq!(before.iter().filter(|x| x.is_nan()).count(), n);
            for (x, y) in before.into_iter().zip(after) {
                let expected = if x.is_nan() || x > 0.0 { x } else { 0.0 };
                let none = x.is_nan() && y.is_nan();
                let is_same = y.to_bits() == expected.to_bits() || none;
                assert!(is_same, "{numbers:?}: {x:?} becomes {y:?}");
            }
        }
    }
}
