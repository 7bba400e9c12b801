//! Every kernel's steps for CUDA devices, run by the emulation, against its plain reference.

use crate::{
    common::{
        Array, Body, Build, CONTEXT, call, run,
        sample::{Draw, Mix, contents, large, mixed, sample, sample_in},
    },
    emulation::{
        can_compile,
        compare::{compare, steps, tolerance},
        compile_where,
        stored::Placement,
    },
};
use roundelay_kernels::{Context, Kernel, Mode, NAMES, cuda::Step};
use roundelay_schedule::{Call, Element, Float, GradientSums};

const CALLS_PER_KERNEL: u64 = 6;

/// Kernels without steps: the machine makes exchanges.
const REFUSED: [&str; 3] = ["all_reduce", "all_gather", "reduce_scatter"];

/// Whether a source may have functions for numbers of a type: attention by tiles has sources for each.
fn takes(source: &str, dtype: Float) -> bool {
    let other = match dtype {
        Float::F16(_) => "_bf16_",
        Float::Bf16(_) => "_f16_",
        Float::F32 | Float::F64 => "flash_",
    };
    !source.contains(other)
}

fn compare_samples(dtype: Float, mixes: &[Mix]) {
    if !can_compile() {
        return;
    }
    compile_where(|source| takes(source.name, dtype));
    for name in NAMES.iter().filter(|name| !REFUSED.contains(name)) {
        for seed in 0..CALLS_PER_KERNEL {
            let draw = &mut Draw::new(seed);
            let call = sample_in(dtype, name, draw);
            let start = contents::<f64>(&call, draw);
            let mode = if seed % 4 == 0 { Mode::Evaluation } else { Mode::Training };
            let context = Context { mode, slice_offset: seed % 3, ..CONTEXT };
            let mix = mixes[seed as usize % mixes.len()];
            let way = (
                dtype,
                if seed % 3 == 2 { Placement::Unaligned } else { Placement::Aligned },
            );
            compare(&mixed(call, mix), &start, way, &context, tolerance(dtype));
        }
    }
}

#[test]
fn every_kernel_in_f32() {
    compare_samples(Float::F32, &[Mix::Narrow]);
}

#[test]
fn every_kernel_in_f64() {
    compare_samples(Float::F64, &[Mix::Narrow]);
}

#[test]
fn every_kernel_in_bf16() {
    let mixes = [Mix::Narrow, Mix::Statistics, Mix::Gradients];
    compare_samples(Float::Bf16(GradientSums::F32), &mixes);
}

#[test]
fn every_kernel_in_f16() {
    compare_samples(Float::F16(GradientSums::Same), &[Mix::Statistics]);
}

#[test]
fn large_calls() {
    if !can_compile() {
        return;
    }
    for name in NAMES.iter().filter(|name| !REFUSED.contains(name)) {
        let draw = &mut Draw::new(1);
        let call = large(name, draw);
        let start = contents::<f64>(&call, draw);
        let dtype = Float::Bf16(GradientSums::Same);
        compare(
            &mixed(call, Mix::Statistics),
            &start,
            (dtype, Placement::Aligned),
            &CONTEXT,
            tolerance(dtype),
        );
    }
}

/// A kernel that is new needs a form, or a refusal by name.
#[test]
fn every_kernel_has_a_form_or_is_refused_by_name() {
    for name in NAMES {
        let call = sample(name, &mut Draw::new(2));
        let form =
            Kernel::parse(&call).expect("the call is well formed").cuda(Float::F32);
        assert_eq!(form.is_err(), REFUSED.contains(name), "{name}: {form:?}");
    }
}

/// What programs use every step is not converted.
#[test]
fn usual_mixes_of_types_need_no_conversion() {
    let copies = ["copy", "accumulate", "scale"];
    for name in NAMES.iter().filter(|name| !REFUSED.contains(name)) {
        for mix in [Mix::Statistics, Mix::Gradients] {
            let call = mixed(sample(name, &mut Draw::new(3)), mix);
            let steps = steps(&call, Float::Bf16(GradientSums::F32));
            let converts = steps.steps.iter().any(|step| match step {
                Step::Launch(launch) => launch.function.symbol.starts_with("scale_"),
                Step::Product(_)
                | Step::Gradients(_)
                | Step::Convolution(_)
                | Step::Either(_) => false,
            });
            assert_eq!(converts, copies.contains(name), "{name} {mix:?}");
        }
    }
}

/// Zeros stand where they do on the CPU, element by element, in whole tensors and in parts.
#[test]
fn masks_are_those_of_the_cpu() {
    if !can_compile() {
        return;
    }
    let shape: &[u64] = &[37, 24];
    let whole = call("dropout").number("rate", 0.4).integer("operator", 9);
    let part = whole.clone().integer("parts", 3).integer("columns", 24);
    for (call, part) in [(whole, 0), (part, 2)] {
        let call = call.reals(&[shape; 2]);
        let context = Context { part, step: 71, micro_batch: 5, ..CONTEXT };
        let start = [Array::Real(vec![1.0; 37 * 24]), Array::Real(vec![0.0; 37 * 24])];
        for dtype in [Float::F32, Float::Bf16(GradientSums::Same)] {
            compare(&call, &start, (dtype, Placement::Aligned), &context, 2e-3);
        }
    }
}

/// Heads of the sizes that tensor cores take, with everything that may change what is seen.
struct Sight {
    batch: u64,
    key_heads: u64,
    group: u64,
    depth: u64,
    sequence: u64,
    /// Keys before the first query's own.
    before: u64,
    causal: bool,
    window: Option<i64>,
    cap: Option<f64>,
    accumulate: bool,
    /// Whether queries, keys and values lie in one array.
    packed: bool,
    placement: Placement,
}

impl Sight {
    fn heads(&self) -> u64 {
        self.key_heads * self.group
    }
    fn call(&self, name: &str) -> Call {
        let call = call(name).integer("heads", self.heads() as i64);
        let call = call.integer("key_heads", self.key_heads as i64);
        let call = call.flag("causal", self.causal).flag("packed", self.packed);
        let call = match self.window {
            Some(window) => call.integer("window", window),
            None => call,
        };
        match self.cap {
            Some(cap) => call.number("cap", cap),
            None => call,
        }
    }
    /// An array of rows of this many heads.
    fn rows(&self, positions: u64, heads: u64) -> [u64; 3] {
        [self.batch, positions, heads * self.depth]
    }
    /// The call with queries, keys and values, or with their gradients.
    fn tokens(&self, call: Call) -> Call {
        let (heads, positions) = (self.heads(), self.before + self.sequence);
        if self.packed {
            return call.real(&self.rows(self.sequence, heads + 2 * self.key_heads));
        }
        let keys = self.rows(positions, self.key_heads);
        call.reals(&[&self.rows(self.sequence, heads), &keys, &keys])
    }
    /// lse and o of the backward pass are those of the forward pass, as in a training.
    fn compare(&self, dtype: Float, draw: &mut Draw) {
        let wide: &[u64] = &self.rows(self.sequence, self.heads());
        let statistics: &[u64] = &[self.batch, self.heads(), self.sequence];
        let results = |call: Call| call.real(wide).operand(Element::Wide, statistics);
        let forward = results(self.tokens(self.call("attention")));
        let start = contents::<f64>(&forward, draw);
        let way = (dtype, self.placement);
        compare(&forward, &start, way, &CONTEXT, tolerance(dtype));
        let mut done = start.clone();
        run(&forward, &mut done, Body::Plain, &CONTEXT);
        let backward = self.call("attention_backward");
        let backward = backward.flag("accumulate", self.accumulate);
        let backward = self.tokens(results(self.tokens(backward)).real(wide));
        let slopes = contents::<f64>(&backward, draw);
        let start = [&done[..], &slopes[done.len()..]].concat();
        compare(&backward, &start, way, &CONTEXT, 2.0 * tolerance(dtype));
    }
}

fn compare_attention(depth: u64, (least, longest): (u64, u64), dtype: Float, seed: u64) {
    let draw = &mut Draw::new(seed);
    let (batch, key_heads, group) =
        (1 + draw.below(2), 1 + draw.below(2), 1 + draw.below(2));
    let sequence = least + draw.below(longest);
    // A wide window and a long sequence have tiles that are wholly visible and tiles that are not.
    let window = if least > 200 { 100 } else { 20 };
    let sight = Sight {
        batch,
        key_heads,
        group,
        depth,
        sequence,
        before: if seed.is_multiple_of(2) { draw.below(longest) } else { 0 },
        causal: seed.is_multiple_of(2),
        window: seed.is_multiple_of(3).then_some(window),
        cap: (seed % 4 == 1).then_some(1.5),
        accumulate: seed.is_multiple_of(5),
        packed: false,
        placement: if seed % 4 == 3 { Placement::Unaligned } else { Placement::Aligned },
    };
    sight.compare(dtype, draw);
}

#[test]
fn attention_on_tensor_cores() {
    if !can_compile() {
        return;
    }
    for seed in 0..6 {
        compare_attention(64, (1, 150), Float::Bf16(GradientSums::Same), seed);
        compare_attention(128, (1, 150), Float::F16(GradientSums::Same), seed + 1);
    }
    for (depth, seed) in [(32, 3), (32, 8), (80, 0), (80, 5), (96, 1), (96, 6)] {
        compare_attention(depth, (1, 150), Float::Bf16(GradientSums::Same), seed);
        compare_attention(depth, (1, 150), Float::F16(GradientSums::Same), seed + 1);
    }
    compare_attention(128, (1, 150), Float::Bf16(GradientSums::Same), 8);
    compare_attention(64, (230, 40), Float::Bf16(GradientSums::Same), 6);
    compare_attention(128, (230, 40), Float::Bf16(GradientSums::Same), 3);
}

/// The sizes of heads that have warp groups, and in turn one that has none.
fn depths_in_turn(turn: u64) -> [(u64, Float); 3] {
    let [bf16, f16] = [Float::Bf16, Float::F16].map(|float| float(GradientSums::Same));
    let other = [(80, bf16), (32, f16), (96, bf16), (80, f16), (96, f16), (32, bf16)];
    [(64, bf16), (128, f16), other[turn as usize % 6]]
}

/// Queries, keys and values in one array, whatever else a call may ask for.
#[test]
fn attention_in_one_array_on_tensor_cores() {
    if !can_compile() {
        return;
    }
    for choice in 0..16 {
        let has = |bit: u64| choice >> bit & 1 == 1;
        for (depth, dtype) in depths_in_turn(choice) {
            let draw = &mut Draw::new(choice);
            let sight = Sight {
                batch: 1 + draw.below(2),
                key_heads: 2,
                group: if has(0) { 2 } else { 1 },
                depth,
                sequence: 30 + draw.below(120),
                before: 0,
                causal: has(1),
                window: (choice % 5 == 4).then_some(20),
                cap: has(2).then_some(1.5),
                accumulate: has(3),
                packed: true,
                placement: if choice % 7 == 6 {
                    Placement::Unaligned
                } else {
                    Placement::Aligned
                },
            };
            sight.compare(dtype, draw);
        }
    }
}

/// Sequences that end about where tiles, halves of tiles and a warp's rows do, with all else drawn.
#[test]
fn attention_about_the_ends_of_tiles() {
    if !can_compile() {
        return;
    }
    let lengths =
        [1, 15, 16, 17, 31, 33, 48, 63, 64, 65, 95, 97, 127, 128, 129, 161, 197, 257];
    for (seed, sequence) in (0..).zip(lengths) {
        for (depth, dtype) in depths_in_turn(seed) {
            let draw = &mut Draw::new(100 * depth + seed);
            let mut chance = |of: u64| draw.below(of) == 0;
            let (causal, capped, accumulate) = (chance(2), chance(4), chance(2));
            let (aligned, whole, windowed) = (!chance(4), chance(2), chance(2));
            let sight = Sight {
                batch: 1,
                key_heads: 1 + draw.below(2),
                group: 1 + draw.below(3),
                depth,
                sequence,
                before: if whole || !causal { 0 } else { draw.below(100) },
                causal,
                window: windowed.then(|| 1 + draw.below(90) as i64),
                cap: capped.then_some(1.5),
                accumulate,
                packed: false,
                placement: if aligned {
                    Placement::Aligned
                } else {
                    Placement::Unaligned
                },
            };
            sight.compare(dtype, draw);
        }
    }
}

/// Keys all alike, of which the first tile alone has values: a maximum that stays over many tiles
/// leaves the sums of the first as they are, however large it is.
#[test]
fn attention_to_many_keys_with_large_scores() {
    if !can_compile() {
        return;
    }
    let (queries, positions, tile): (u64, u64, u64) = (16, 8192, 64);
    for depth in [32, 64, 80, 96, 128] {
        let rows: &[u64] = &[1, queries, depth];
        let keys: &[u64] = &[1, positions, depth];
        let forward = call("attention").integer("heads", 1).integer("key_heads", 1);
        let forward = forward.flag("causal", true).reals(&[rows, keys, keys]);
        let forward = forward.real(rows).operand(Element::Wide, &[1, 1, queries]);
        let of_size = |i: u64| (0..depth).map(move |_| 20.0 + i as f64 / 4.0);
        let alike = vec![10.0; (positions * depth) as usize];
        let mut values = vec![0.0; alike.len()];
        values[..(tile * depth) as usize].fill((positions / tile) as f64);
        let empty = vec![0.0; (queries * depth) as usize];
        let start = [
            (0..queries).flat_map(of_size).collect(),
            alike,
            values,
            empty,
            vec![0.0; queries as usize],
        ];
        let (dtype, start) = (Float::F16(GradientSums::Same), start.map(Array::Real));
        compare(&forward, &start, (dtype, Placement::Aligned), &CONTEXT, 1e-3);
    }
}

/// Scores that rise with the keys, a little in some rows and by hundreds in others, or fall: what came
/// before a larger score counts by how much less it was, whenever the sums are scaled for it.
#[test]
fn attention_to_keys_whose_scores_rise() {
    if !can_compile() {
        return;
    }
    let (queries, positions): (u64, u64) = (48, 333);
    let all = [32, 64, 80, 96, 128].map(|depth| [(depth, None), (depth, Some(30.0))]);
    for (depth, cap) in all.into_iter().flatten() {
        let rows: &[u64] = &[1, queries, depth];
        let keys: &[u64] = &[1, positions, depth];
        let forward = call("attention").integer("heads", 1).integer("key_heads", 1);
        let forward = cap.into_iter().fold(forward, |call, cap| call.number("cap", cap));
        let forward = forward.flag("causal", true).reals(&[rows, keys, keys]);
        let forward = forward.real(rows).operand(Element::Wide, &[1, 1, queries]);
        let row = |size: f64| (0..depth).map(move |_| size);
        let turns = |i: u64| if i % 3 == 2 { -1.0 } else { 1.0 };
        let start = [
            (0..queries).flat_map(|i| row(turns(i) * i as f64 / 12.0)).collect(),
            (0..positions).flat_map(|j| row(j as f64 / 32.0)).collect(),
            (0..positions * depth).map(|i| (i * 7 % 11) as f64 - 5.0).collect(),
            vec![0.0; (queries * depth) as usize],
            vec![0.0; queries as usize],
        ];
        for dtype in [Float::Bf16(GradientSums::Same), Float::F16(GradientSums::Same)] {
            let start = start.clone().map(Array::Real);
            let way = (dtype, Placement::Aligned);
            compare(&forward, &start, way, &CONTEXT, tolerance(dtype));
        }
    }
}

/// What sanitizers have the time for.
#[test]
fn short_sequences_on_tensor_cores() {
    if !can_compile() {
        return;
    }
    compare_attention(64, (1, 40), Float::Bf16(GradientSums::Same), 3);
    compare_attention(128, (1, 80), Float::F16(GradientSums::Same), 5);
    compare_attention(80, (1, 80), Float::Bf16(GradientSums::Same), 5);
    compare_attention(96, (1, 40), Float::F16(GradientSums::Same), 3);
}
