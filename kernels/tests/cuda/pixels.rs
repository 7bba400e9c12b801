//! Images whose pixels several devices divide, on CUDA devices, run by the emulation: norms of all
//! widths, and exchanges of rows held bit for bit to what the CPU makes of them.

use crate::{
    common::{
        Array, Build, CONTEXT, call,
        sample::{Draw, contents},
    },
    emulation::{
        Bound, can_compile,
        compare::{compare, near, steps, tolerance},
        run_steps,
        stored::{Placement, Stored},
    },
};
use roundelay_kernels::{
    Context, Exchange, Kernel, Mode, Store,
    cuda::{Halos, Launch, Lies, Number, Step, Steps},
};
use roundelay_schedule::{Bytes, Call, Element, Float, GradientSums};

const BF16: Float = Float::Bf16(GradientSums::F32);
const F16: Float = Float::F16(GradientSums::Same);

/// Some calls have operands at odd addresses.
fn placement(seed: u64) -> Placement {
    if seed % 3 == 2 { Placement::Unaligned } else { Placement::Aligned }
}

/// Examples, positions, groups, columns of a group.
type Shape = [u64; 4];

/// All calls that read images of such a shape; statistics are wide, and so are sums of gradients.
fn norms([examples, positions, groups, width]: Shape, accumulate: bool) -> [Call; 5] {
    let columns = groups * width;
    let (x, row): (&[u64], &[u64]) = (&[examples, positions, columns], &[columns]);
    let (one, both): (&[u64], &[u64]) = (&[examples, groups], &[2, examples, groups]);
    let of = |name| call(name).integer("groups", groups as i64);
    let adding = |name| of(name).flag("accumulate", accumulate);
    let wide = |call: Call, shapes: &[&[u64]]| {
        shapes.iter().fold(call, |call, shape| call.operand(Element::Wide, shape))
    };
    let statistics = |call: Call| wide(call, &[one, one]);
    let all = (positions * width * 3) as i64;
    let backward = adding("pixel_norm_backward").integer("count", all);
    let backward = wide(statistics(backward.reals(&[x, row])).real(x), &[both]).real(x);
    let parameters = statistics(adding("pixel_norm_parameters").real(x)).real(x);
    [
        wide(of("pixel_norm_moments").real(x), &[both]),
        statistics(of("pixel_norm").reals(&[x, row, row])).real(x),
        wide(statistics(of("pixel_norm_slopes").reals(&[x, row])).real(x), &[both]),
        backward,
        wide(parameters, &[row, row]),
    ]
}

/// One example with a statistic for every column as of batch norms, and groups of several examples;
/// rows of stretches that end within a block, and more of them than fit one.
#[test]
fn norms_of_all_widths() {
    if !can_compile() {
        return;
    }
    let shapes: [Shape; 12] = [
        [1, 1, 1, 1],
        [1, 300, 7, 1],
        [1, 77, 64, 1],
        [1, 5, 300, 1],
        [1, 2000, 8, 1],
        [3, 50, 4, 2],
        [2, 333, 2, 12],
        [5, 9, 3, 5],
        [2, 40, 8, 32],
        [1, 700, 1, 24],
        [40, 3, 2, 8],
        [2, 1, 5, 1],
    ];
    for (seed, shape) in (0..).zip(shapes) {
        let draw = &mut Draw::new(seed);
        for dtype in [BF16, Float::F32, Float::F64, F16] {
            for call in norms(shape, seed % 2 == 1) {
                let start = contents::<f64>(&call, draw);
                let way = (dtype, placement(seed));
                compare(&call, &start, way, &CONTEXT, tolerance(dtype));
            }
        }
    }
}

/// Sums of squares that are small against the square of the mean keep their digits: over many
/// stretches, and where the columns of a group are far from each other.
#[test]
fn moments_far_from_zero() {
    if !can_compile() {
        return;
    }
    for (shape, apart) in [([1, 9_000, 4, 1], 0.0), ([2, 600, 2, 8], 50.0)] {
        let [call, ..] = norms(shape, false);
        let mut start = contents::<f64>(&call, &mut Draw::new(5));
        let columns = (shape[2] * shape[3]) as usize;
        if let Array::Real(x) = &mut start[0] {
            let far = |column: usize| 3000.0 + apart * column as f64;
            x.iter_mut().enumerate().for_each(|(at, x)| *x += far(at % columns));
        }
        let way = (Float::F32, Placement::Aligned);
        compare(&call, &start, way, &CONTEXT, tolerance(Float::F32));
    }
}

/// Squares are much larger than means, and hide nothing of them.
#[test]
#[should_panic(expected = "operand 1[1]")]
fn a_wrong_mean_beside_large_squares_is_seen() {
    let call = call("pixel_norm_moments").integer("groups", 2).real(&[1, 900, 2]);
    let call = call.operand(Element::Wide, &[2, 1, 2]);
    let (found, expected) = ([0.5, 0.25, 900.0, 910.0], [0.5, 0.251, 900.0, 910.0]);
    near(&call, 1, &found, &expected, tolerance(BF16));
}

/// Outside of training statistics are the running ones where there are such, and in training never.
#[test]
fn statistics_of_parts_and_running_ones() {
    if !can_compile() {
        return;
    }
    for (seed, (parts, count)) in (0..).zip([(1, 700), (4, 300), (3, 1)]) {
        let (both, one): (&[u64], &[u64]) = (&[parts, 2 * count], &[count]);
        for (running, mode) in [
            (true, Mode::Training),
            (true, Mode::Evaluation),
            (false, Mode::Training),
            (false, Mode::Evaluation),
        ] {
            let call = call("pixel_norm_statistics").integer("count", 48);
            let call = call.flag("running", running).operand(Element::Wide, both);
            let call = if running { call.reals(&[one, one]) } else { call };
            let call = call.operand(Element::Wide, one).operand(Element::Wide, one);
            let start = contents::<f64>(&call, &mut Draw::new(seed));
            let context = Context { mode, ..CONTEXT };
            for dtype in [BF16, Float::F32, Float::F64] {
                let way = (dtype, placement(seed));
                compare(&call, &start, way, &context, tolerance(dtype));
            }
        }
    }
}

/// What several devices exchange: rows of images of this many elements, in so many parts.
struct Case {
    exchange: Exchange,
    halos: Halos,
    dtype: Float,
    parts: usize,
    /// What each part brings, and what it has where it gets its result.
    brought: Vec<Vec<f64>>,
    before: Vec<Vec<f64>>,
    placement: Placement,
}

/// How device memory holds the numbers of a job.
fn number(dtype: Float) -> Number {
    match dtype {
        Float::Bf16(_) => Number::Bf16,
        Float::F16(_) => Number::F16,
        Float::F32 => Number::F32,
        Float::F64 => Number::F64,
    }
}

fn stored(values: &[f64], dtype: Float) -> Stored {
    Stored::new(&Array::Real(values.to_vec()), Element::Real, dtype)
}

/// Numbers with zeros of both signs among them.
fn with_zeros(draw: &mut Draw, length: usize) -> Vec<f64> {
    let one = |draw: &mut Draw| match draw.below(8) {
        0 => 0.0,
        1 => -0.0,
        _ => draw.normal(),
    };
    (0..length).map(|_| one(draw)).collect()
}

impl Case {
    /// Any exchange at all: windows that read a part, several or none, padding, rows that several
    /// windows read, widths that fill 16 bytes and that do not.
    fn new(seed: u64, dtype: Float) -> Self {
        let draw = &mut Draw::new(seed);
        let parts = [1 + draw.below(4), 1 + draw.below(12)][seed as usize % 2];
        let [images, height, width] = [3, 5, 4].map(|most| 1 + draw.below(most));
        let channels = [1 + draw.below(9), 8, 16][draw.below(3) as usize];
        let [before, side, step] = [4, 3, height + 2].map(|most| draw.below(most));
        let rows = 1 + draw.below(height * parts.min(9) + before + 2);
        let own: &[u64] = &[images, height, width, channels];
        let got: &[u64] = &[images, rows, width + 2 * side, channels];
        let with = |name| {
            let call = call(name).integer("parts", parts as i64);
            let call = call.integer("before", before as i64).flag("lowest", seed % 4 < 2);
            call.integer("step", step as i64).integer("side", side as i64)
        };
        let call = match draw.flag() {
            true => with("halo").reals(&[own, got]),
            false => {
                let call = with("halo_add").flag("accumulate", draw.flag());
                call.reals(&[got, own])
            }
        };
        let kernel = Kernel::parse(&call).unwrap_or_else(|wrong| panic!("{wrong}"));
        let exchange = kernel.exchange().expect("it is one");
        let halos = Halos::of(&exchange, number(dtype)).expect("it is one of rows");
        let mut arrays = |length: usize| -> Vec<Vec<f64>> {
            let one = |_| stored(&with_zeros(draw, length), dtype).values();
            (0..parts).map(one).collect()
        };
        let (brought, before) = (arrays(halos.brought()), arrays(halos.got()));
        let (parts, placement) = (parts as usize, placement(seed));
        Self { exchange, halos, dtype, parts, brought, before, placement }
    }
    /// What the CPU makes for a part, in as many bits, rounded once where there are fewer.
    fn expected(&self, part: usize) -> Vec<f64> {
        if self.dtype == Float::F64 {
            let brought: Vec<&[f64]> = self.brought.iter().map(Vec::as_slice).collect();
            let mut out = self.before[part].clone();
            self.exchange.join(&brought, part, &mut out);
            return out;
        }
        let narrow = |values: &[f64]| -> Vec<f32> {
            values.iter().map(|value| *value as f32).collect()
        };
        let brought: Vec<Vec<f32>> =
            self.brought.iter().map(|values| narrow(values)).collect();
        let brought: Vec<&[f32]> = brought.iter().map(Vec::as_slice).collect();
        let mut out = narrow(&self.before[part]);
        self.exchange.join(&brought, part, &mut out);
        let out: Vec<f64> = out.into_iter().map(f64::from).collect();
        stored(&out, self.dtype).values()
    }
    fn run(&self, launches: Vec<Launch>, operands: &mut [Stored]) {
        let operands: Vec<*mut u8> = operands.iter_mut().map(Stored::pointer).collect();
        let steps = launches.into_iter().map(Step::Launch).collect();
        let bound = Bound { operands: &operands, context: &CONTEXT };
        run_steps(&Steps { steps, scratch: Bytes(0) }, &bound);
    }
    /// What another part gets of what a part brings: no number more than it is said to need.
    fn packed(&self, ends: [usize; 2]) -> Stored {
        let needed = self.halos.needed(ends);
        let mut packed = stored(&vec![0.0; needed], self.dtype).placed(self.placement);
        packed.poison();
        let brought = stored(&self.brought[ends[0]], self.dtype).placed(self.placement);
        let launch = self.halos.pack(ends);
        assert_eq!(launch.is_some(), needed > 0);
        let mut operands = [packed, brought];
        self.run(launch.into_iter().collect(), &mut operands);
        let [packed, _] = operands;
        assert!(packed.values().iter().all(|value| value.is_finite()));
        packed
    }
    fn made(&self, part: usize, lies: impl Fn(usize) -> Lies) -> Vec<f64> {
        let mut out = stored(&self.before[part], self.dtype).placed(self.placement);
        if self.exchange.store == Store::Write {
            out.poison();
        }
        let brought = (0..self.parts).map(|place| match lies(place) {
            Lies::Whole => {
                stored(&self.brought[place], self.dtype).placed(self.placement)
            }
            Lies::Packed => self.packed([place, part]),
        });
        let mut operands: Vec<Stored> = [out].into_iter().chain(brought).collect();
        self.run(self.halos.join(part, lies), &mut operands);
        operands[0].values()
    }
    /// Parts of which a part needs rows.
    fn met(&self, part: usize) -> usize {
        (0..self.parts).filter(|place| self.halos.needed([*place, part]) > 0).count()
    }
}

/// From whole arrays and from strips alone, as ranks have them of each other. Sums of more strips than
/// one launch takes are rounded more than once in 16 bits.
#[test]
fn rows_of_other_parts_are_what_the_cpu_makes_bit_for_bit() {
    if !can_compile() {
        return;
    }
    let (mut most, mut none) = (0, 0);
    for seed in 0..240 {
        let dtype = [BF16, Float::F32, Float::F64, F16][seed as usize / 3 % 4];
        let case = Case::new(seed, dtype);
        for part in 0..case.parts {
            let met = case.met(part);
            (most, none) = (most.max(met), none + usize::from(met == 0));
            let expected = case.expected(part);
            let own = |place| if place == part { Lies::Whole } else { Lies::Packed };
            for found in [case.made(part, |_| Lies::Whole), case.made(part, own)] {
                let is_rounded_once = met <= 8 || dtype.size() > 2;
                for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    let near = (found - expected).abs() < 0.05 * expected.abs().max(1.0);
                    let same = found.to_bits() == expected.to_bits()
                        || (!is_rounded_once && near);
                    let what = (seed, part, at, &case.exchange);
                    assert!(same, "{what:?}: {found} for {expected}");
                }
            }
        }
    }
    assert!(most > 8, "some take more than one launch: {most}");
    assert!(none > 0, "some get padding alone");
}

/// Rows that others need are counted as the plan counts what is sent.
#[test]
fn strips_are_as_long_as_is_counted() {
    for seed in 0..200 {
        let case = Case::new(seed, Float::F32);
        for part in 0..case.parts {
            let others = (0..case.parts).filter(|other| *other != part);
            let sent: usize = others.map(|to| case.halos.needed([part, to])).sum();
            assert_eq!(case.exchange.sent_by(part, Float::F32), Bytes(4 * sent as u64));
        }
    }
}

/// A part alone makes a call of it; several need a machine.
#[test]
fn exchanges_of_several_parts_are_no_steps_of_one_device() {
    let with = |parts: i64| {
        let call = call("halo").integer("parts", parts).integer("before", 1);
        let call = call.integer("step", 4).integer("side", 1);
        call.reals(&[&[1, 4, 4, 8], &[1, 6, 6, 8]])
    };
    assert!(matches!(steps(&with(1), BF16).steps[..], [Step::Launch(_)]));
    let several = Kernel::parse(&with(2)).expect("the call is well formed").cuda(BF16);
    let refusal = several.expect_err("it takes what others have");
    assert!(refusal.contains("made by the machine"), "{refusal}");
}
