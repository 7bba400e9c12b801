//! Calls and their contents.

use super::{Array, Build, call, images, norms, parts};
use crate::{Kernel, Real, random::Stream};
use roundelay_schedule::{Access, Attribute, Call, Element, Float};

/// Draws small numbers one after another.
pub struct Draw {
    stream: Stream,
    next: u64,
}

impl Draw {
    /// From the beginning.
    pub fn new(seed: u64) -> Self {
        Self { stream: Stream::new(seed, &[]), next: 0 }
    }
    /// Less than `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next += 1;
        self.stream.below(self.next, bound)
    }
    /// An extent up to 70: odd ones, ones of few, and multiples of eight.
    pub fn extent(&mut self) -> u64 {
        match self.below(4) {
            0 => 1 + self.below(4),
            1 => 8 * (1 + self.below(6)),
            _ => 1 + self.below(70),
        }
    }
    /// True or false.
    pub fn flag(&mut self) -> bool {
        self.below(2) == 1
    }
    /// From the standard normal distribution.
    pub fn normal(&mut self) -> f64 {
        self.next += 1;
        self.stream.normal(self.next)
    }
    /// So many of them.
    pub fn normals<R: Real>(&mut self, length: usize) -> Vec<R> {
        (0..length).map(|_| R::of(self.normal())).collect()
    }
}

/// A random call of this kernel, which is one of [`NAMES`](crate::NAMES).
///
/// # Panics
/// When it is none of them.
pub fn sample(name: &str, draw: &mut Draw) -> Call {
    let accumulate = draw.flag();
    let plain = call(name);
    let adding = plain.clone().flag("accumulate", accumulate);
    let (batch, m, n) = (1 + draw.below(3), draw.extent(), draw.extent());
    let array: &[u64] = &[batch, m, n];
    match name {
        "matmul" | "affine_gradients" => sample_product(adding, draw),
        "affine" | "affine_relu" | "affine_gelu" | "affine_gelu_tanh" | "affine_add" => {
            sample_affine(plain, [m, n, draw.extent()])
        }
        "matmul_gelu_tanh_backward" => product_back(plain, [m, n, draw.extent()]),
        "add" => {
            let shapes: [&[u64]; 3] = [array, &[m, n], &[n]];
            plain.real(array).real(shapes[draw.below(3) as usize]).real(array)
        }
        "add_rows" => plain.real(&[n]).real(array),
        "accumulate" | "copy" | "relu" | "gelu" | "gelu_tanh" | "silu" | "softmax" => {
            plain.reals(&[array; 2])
        }
        "zero" => plain.real(array),
        "sum_rows" => adding.real(array).real(&[m, n][draw.below(2) as usize..]),
        "multiply" => adding.reals(&[array, &[m, n], array]),
        "multiply_sum_rows" => adding.reals(&[array, array, &[n]]),
        "scale" => adding.number("factor", draw.normal()).reals(&[array; 2]),
        "relu_backward" | "gelu_backward" | "gelu_tanh_backward" | "silu_backward"
        | "softmax_backward" => adding.reals(&[array; 3]),
        "soft_cap" => plain.number("cap", 1.5).reals(&[array; 2]),
        "soft_cap_backward" => adding.number("cap", 1.5).reals(&[array; 3]),
        "dropout" | "dropout_backward" if draw.flag() => parts::sample(adding, draw),
        "dropout" => plain.number("rate", 0.3).integer("operator", 5).reals(&[array; 2]),
        "dropout_backward" => {
            adding.number("rate", 0.3).integer("operator", 5).reals(&[array; 2])
        }
        "embedding" => plain.integers(&[batch, m]).real(&[17, n]).real(array),
        "embedding_backward" => adding.integers(&[batch, m]).real(array).real(&[17, n]),
        "attention" | "attention_backward" => sample_attention(plain, accumulate, draw),
        "scores" | "mix" | "mix_backward" => sample_stored(adding, draw),
        "rotary" => sample_rotary(adding, draw, [batch, m]),
        "slice" => sample_slice(adding, draw, [batch, m, n]),
        "slice_backward" => {
            let mut call = sample_slice(adding, draw, [batch, m, n]);
            call.operands.swap(0, 1);
            call
        }
        "slice_integers" => sample_slice_of_integers(plain, draw, [batch, m]),
        "prepend" => plain.reals(&[array, &[n], &[batch, m + 1, n]]),
        _ if name.ends_with("cross_entropy") || name == "accuracy" => {
            sample_loss(plain, draw, [batch, m, n])
        }
        "cross_entropy_backward" | "masked_cross_entropy_backward" => {
            sample_loss(adding, draw, [batch, m, n])
        }
        "mse" => plain.reals(&[array, array, &[1]]),
        "mse_backward" => {
            adding.integer("sign", if draw.flag() { 1 } else { -1 }).reals(&[array; 3])
        }
        "squares" | "sgd" | "adamw" => sample_update([plain, adding], m * n, draw),
        "all_reduce" | "all_gather" | "reduce_scatter" => parts::sample(adding, draw),
        "halo" | "halo_add" => images::halo(plain, accumulate, draw),
        _ if name.starts_with("pixel_norm") => norms::of_pixels(plain, accumulate, draw),
        _ if name.contains("part") || name.ends_with("join") => {
            parts::sample(adding, draw)
        }
        _ if norms::has(name) => norms::sample(plain, accumulate, draw),
        _ => images::sample(plain, accumulate, draw),
    }
}

/// A random call of a job of this type: in 16 bits every second optimizer keeps a master copy of
/// the parameters.
///
/// # Panics
/// As [`sample`].
pub fn sample_in(dtype: Float, name: &str, draw: &mut Draw) -> Call {
    let call = sample(name, draw);
    match dtype {
        Float::Bf16(_) | Float::F16(_)
            if matches!(name, "sgd" | "adamw") && draw.flag() =>
        {
            with_master(call)
        }
        Float::F32 | Float::F64 | Float::Bf16(_) | Float::F16(_) => call,
    }
}

/// The master copy stands behind the other states, before the square of the norm.
fn with_master(mut call: Call) -> Call {
    let shape = call.operands[0].shape.clone();
    let behind = usize::from(call.attributes.contains_key("squares"));
    let place = call.operands.len() - behind;
    call = call.real(&shape);
    call.operands[place..].rotate_right(1);
    call
}

fn sample_rotary(adding: Call, draw: &mut Draw, [batch, m]: [u64; 2]) -> Call {
    let (groups, pairs) = (1 + draw.below(3), 1 + draw.below(40));
    let still = (draw.below(3) == 0).then(|| 2 + draw.below(3));
    let heads = groups * still.unwrap_or(1);
    let behind = draw.flag().then(|| draw.below(5));
    let depth = 2 * pairs + behind.unwrap_or(0);
    let shape: &[u64] = &[batch, m, heads * depth];
    let call = adding.integer("heads", heads as i64).number("base", 500.0);
    let call = if draw.flag() { call.integer("first", 7) } else { call };
    let call = match behind {
        Some(_) => call.integer("turned", 2 * pairs as i64),
        None => call,
    };
    let call = match still {
        Some(still) => call.integer("still", still as i64),
        None => call,
    };
    let call = stretched(call, draw);
    call.flag("inverse", draw.flag()).reals(&[shape; 2])
}

/// Angles as they are, all divided, or only those of slow pairs: of 32 original positions the first
/// pairs keep theirs, the next ones in part.
fn stretched(call: Call, draw: &mut Draw) -> Call {
    match draw.below(3) {
        0 => call,
        1 => call.number("factor", 2.5),
        _ => {
            let call = call.number("factor", 8.0).integer("original", 32);
            call.number("low", 1.0).number("high", 4.0)
        }
    }
}

fn sample_product(call: Call, draw: &mut Draw) -> Call {
    let [m, n, k] = [(); 3].map(|()| draw.extent() * (1 + draw.below(3)));
    if call.kernel == "affine_gradients" {
        return gradients(call, [m, n, k]);
    }
    let (transpose_a, transpose_b) = (draw.flag(), draw.flag());
    call.flag("transpose_a", transpose_a)
        .flag("transpose_b", transpose_b)
        .real(&if transpose_a { [k, m] } else { [m, k] })
        .real(&if transpose_b { [n, k] } else { [k, n] })
        .real(&[m, n])
}

pub(super) fn sample_affine(call: Call, [m, n, k]: [u64; 3]) -> Call {
    let (inputs, y): ([&[u64]; 3], &[u64]) = ([&[m, k], &[n, k], &[n]], &[m, n]);
    match &*call.kernel {
        "affine" | "affine_relu" => call.reals(&inputs).real(y),
        _ => call.reals(&inputs).reals(&[y; 2]),
    }
}

/// The gradient of what goes into an affine map, behind a GELU.
pub(super) fn product_back(call: Call, [m, n, k]: [u64; 3]) -> Call {
    call.reals(&[&[m, k], &[k, n], &[m, n], &[m, n]])
}

/// The gradients of a weight and of its bias.
pub(super) fn gradients(call: Call, [m, n, k]: [u64; 3]) -> Call {
    call.reals(&[&[m, n], &[m, k], &[n, k]]).real(&[n])
}

/// Some neighbouring rows.
fn sample_slice(call: Call, draw: &mut Draw, [batch, m, n]: [u64; 3]) -> Call {
    let first = draw.below(m);
    let count = 1 + draw.below(m - first);
    call.integer("first", first as i64).reals(&[&[batch, m, n], &[batch, count, n]])
}

/// Some neighbouring tokens.
fn sample_slice_of_integers(call: Call, draw: &mut Draw, [batch, m]: [u64; 2]) -> Call {
    let first = draw.below(m);
    let length = 1 + draw.below(m - first);
    let call = call.integer("first", first as i64);
    let call = call.integer("sequence", m as i64).integer("length", length as i64);
    call.integers(&[batch, m]).integers(&[batch, length])
}

/// Sequences that end inside of a block, or take several; windows, shared key heads, queries that
/// are the last of more keys, and all in one array.
fn sample_attention(call: Call, accumulate: bool, draw: &mut Draw) -> Call {
    let (batch, key_heads, group) =
        (1 + draw.below(2), 1 + draw.below(3), 1 + draw.below(2));
    let sequence = draw.extent() * (1 + draw.below(5));
    let (heads, depth) = (key_heads * group, 1 + draw.below(20));
    let array: &[u64] = &[batch, sequence, heads * depth];
    let causal = draw.flag();
    let before = if causal && draw.flag() { draw.below(200) } else { 0 };
    let keys: &[u64] = &[batch, before + sequence, key_heads * depth];
    let lse: &[u64] = &[batch, heads, sequence];
    let mut call = call
        .integer("heads", heads as i64)
        .integer("key_heads", key_heads as i64)
        .flag("causal", causal);
    if draw.flag() {
        call = call.integer("window", 1 + draw.below(2 * sequence) as i64);
    }
    if draw.below(3) == 0 {
        call = call.number("scale", 0.3);
    }
    if draw.below(3) == 0 {
        call = call.number("cap", 1.5);
    }
    if before == 0 && draw.below(3) == 0 {
        let packed: &[u64] = &[batch, sequence, (heads + 2 * key_heads) * depth];
        let call = call.flag("packed", true);
        return match &*call.kernel {
            "attention" => call.reals(&[packed, array, lse]),
            _ => call
                .flag("accumulate", accumulate)
                .reals(&[packed, array, lse, array, packed]),
        };
    }
    match &*call.kernel {
        "attention" => call.reals(&[array, keys, keys, array, lse]),
        _ => call
            .flag("accumulate", accumulate)
            .reals(&[array, keys, keys, array, lse, array, array, keys, keys]),
    }
}

/// Blocks that end inside of a sequence, and shared key heads.
fn sample_stored(call: Call, draw: &mut Draw) -> Call {
    let (batch, key_heads, group) =
        (1 + draw.below(2), 1 + draw.below(3), 1 + draw.below(2));
    let sequence = draw.extent() * (1 + draw.below(2));
    let (heads, depth) = (key_heads * group, 1 + draw.below(20));
    let rows: &[u64] = &[batch, sequence, heads * depth];
    let keys: &[u64] = &[batch, sequence, key_heads * depth];
    let grid: &[u64] = &[batch, heads, sequence, sequence];
    let mut call = call.integer("heads", heads as i64);
    call = call.integer("key_heads", key_heads as i64);
    if draw.flag() {
        call = call.number("scale", 0.3);
    }
    match &*call.kernel {
        "mix" => call.reals(&[grid, keys, rows]),
        "mix_backward" => call.reals(&[grid, rows, keys]),
        _ => {
            if draw.flag() {
                call = call.integer("window", 1 + draw.below(sequence) as i64);
            }
            call.flag("causal", draw.flag()).reals(&[rows, keys, grid])
        }
    }
}

fn sample_update([plain, adding]: [Call; 2], count: u64, draw: &mut Draw) -> Call {
    match &*plain.kernel {
        "squares" => sample_squares(adding, count, draw),
        _ => sample_optimizer(plain, count, draw),
    }
}

/// Where three thirds begin and end, some of which this many hold, or do not count.
fn sample_squares(call: Call, count: u64, draw: &mut Draw) -> Call {
    let call = call.integer("micro_batches", 1 + draw.below(4) as i64);
    let third = (count / 3) as i64;
    let [one, other] = [draw.below(4), draw.below(4)].map(|copies| copies as i64);
    let copied = vec![0, third, one, third, 2 * third, other];
    let call = match draw.flag() {
        true => call.with("copied", Attribute::Integers(copied)),
        false => call,
    };
    call.reals(&[&[count], &[1]])
}

fn sample_optimizer(call: Call, count: u64, draw: &mut Draw) -> Call {
    let given = draw.flag();
    let call = if given { call.flag("squares", true) } else { call };
    let third = (count / 3) as i64;
    let spared = Attribute::Integers(vec![0, third / 2, third, 2 * third]);
    let array: &[u64] = &[count];
    let call = call
        .number("weight_decay", 0.1)
        .number("clip", if draw.flag() { 0.0 } else { 0.5 })
        .integer("micro_batches", 1 + draw.below(4) as i64)
        .with("spared", spared);
    let call = match draw.flag() {
        true => call
            .with(
                "averaged",
                Attribute::Integers(vec![third, third, 2 * third, count as i64]),
            )
            .number("average_momentum", 0.1),
        false => call,
    };
    let call = match (&*call.kernel, draw.flag()) {
        ("sgd", false) => call.number("momentum", 0.0).reals(&[array; 3]),
        ("sgd", true) => {
            call.number("momentum", 0.9).flag("nesterov", draw.flag()).reals(&[array; 4])
        }
        _ => call
            .number("beta1", 0.9)
            .number("beta2", 0.99)
            .number("epsilon", 1e-8)
            .reals(&[array; 5]),
    };
    if given { call.real(&[1]) } else { call }
}

/// A loss over classes, its gradient, or what is measured like it.
fn sample_loss(call: Call, draw: &mut Draw, [batch, m, n]: [u64; 3]) -> Call {
    let name = call.kernel.clone();
    if &*name == "linear_cross_entropy" {
        return sample_linear_loss(call, draw, [batch, m, n]);
    }
    let (array, rows): (&[u64], &[u64]) = (&[batch, m, n], &[batch, m]);
    let is_masked = name.starts_with("masked") || (&*name == "accuracy" && draw.flag());
    let call = call.real(array).integers(rows);
    let call = if is_masked { call.real(&[batch]) } else { call };
    match &*name {
        "accuracy" if is_masked => call.flag("masked", true).real(&[1]),
        "accuracy" => call.real(&[1]),
        _ if name.ends_with("backward") => call.reals(&[rows, array]),
        _ => call.reals(&[rows, &[1]]),
    }
}

/// x (m, k) with all its logits together, or fewer, and room behind each row of them, or none; with
/// gradients and targets that may be none, or not.
fn sample_linear_loss(
    plain: Call,
    draw: &mut Draw,
    [batch, each, depth]: [u64; 3],
) -> Call {
    let rows = batch * each;
    let (classes, together) = (draw.below(20) + 2, draw.below(rows) + 1);
    let room = (classes + draw.below(3)).next_multiple_of([1, 8][draw.below(2) as usize]);
    let (x, weight): (&[u64], &[u64]) = (&[rows, depth], &[classes, depth]);
    let call = plain.reals(&[x, weight]).integers(&[rows]);
    let call = match draw.flag() {
        true => call.flag("masked", true).real(&[batch]),
        false => call,
    };
    let call = call.reals(&[&[together, room], &[rows], &[1]]);
    match draw.flag() {
        true => call.flag("gradients", true).reals(&[x, weight]),
        false => call,
    }
}

/// Contents for every operand: normal numbers, tokens and classes in range, and squares that
/// are not negative.
///
/// # Panics
/// When the call is none of the samples.
pub fn contents<R: Real>(call: &Call, draw: &mut Draw) -> Vec<Array<R>> {
    let extent = |operand: usize, axis: usize| {
        let shape = &call.operands[operand].shape;
        if axis == 0 { shape[0] } else { shape[shape.len() - 1] }
    };
    let bound = match &*call.kernel {
        "embedding" => extent(1, 0),
        "embedding_backward" => extent(2, 0),
        "accuracy" if call.attributes.contains_key("masked") => extent(0, 1) + 1,
        "cross_entropy" | "cross_entropy_backward" | "accuracy" => extent(0, 1),
        "masked_cross_entropy" | "masked_cross_entropy_backward" => extent(0, 1) + 1,
        "linear_cross_entropy" if call.attributes.contains_key("masked") => {
            extent(1, 0) + 1
        }
        "linear_cross_entropy" => extent(1, 0),
        _ if call.attributes.contains_key("whole") => parts::classes(call),
        _ => 1,
    };
    let operands = call.operands.iter().enumerate();
    let fill = operands.map(|(index, operand)| {
        let length = operand.elements().expect("the sample is small") as usize;
        match operand.element {
            Element::I32 => {
                Array::Integer((0..length).map(|_| draw.below(bound) as i32).collect())
            }
            Element::Real | Element::Wide if is_square(call, index) => {
                Array::Real((0..length).map(|_| R::of(draw.normal().powi(2))).collect())
            }
            Element::Real | Element::Wide if makes_logits(call, index) => {
                let deviation = (extent(index, 1) as f64).sqrt().recip();
                let normals = (0..length).map(|_| R::of(deviation * draw.normal()));
                Array::Real(normals.collect())
            }
            Element::Real | Element::Wide => Array::Real(draw.normals(length)),
        }
    });
    fill.collect()
}

/// Whether an operand is the weight of logits, which a call stores rounded: a power is off by as much as
/// its logit, so these are drawn as large as those of a model.
fn makes_logits(call: &Call, operand: usize) -> bool {
    &*call.kernel == "linear_cross_entropy" && operand == 1
}

/// Whether an operand is a mean of squares, or a sum.
fn is_square(call: &Call, operand: usize) -> bool {
    if call.attributes.contains_key("squares") && operand + 1 == call.operands.len() {
        return true;
    }
    let squares = [
        ("adamw", 4),
        ("batch_norm", 4),
        ("batch_norm_again", 4),
        ("batch_norm_backward", 3),
        ("relu_backward_again", 4),
        ("pixel_norm", 4),
        ("pixel_norm_slopes", 3),
        ("pixel_norm_backward", 3),
        ("pixel_norm_parameters", 2),
        // With a bias before them, and without.
        ("norm_part", 4),
        ("norm_part", 2),
    ];
    squares.contains(&(&*call.kernel, operand))
}

/// The operands whose contents mean something after the call: not the room of logits.
///
/// # Panics
/// When the call is malformed.
pub fn results(call: &Call) -> Vec<usize> {
    let kernel = Kernel::parse(call).expect("the call is well formed");
    let room = match &*call.kernel {
        "linear_cross_entropy" if call.attributes.contains_key("masked") => Some(4),
        "linear_cross_entropy" => Some(3),
        _ => None,
    };
    let means =
        |index: &usize| kernel.accesses()[*index] != Access::Read && room != Some(*index);
    (0..call.operands.len()).filter(means).collect()
}
