//! Convolution and pooling of images (batch, height, width, channels).

use super::{
    Operator,
    linear::{Bias, Drawn},
};
use crate::{
    Code, Extent, Mistake, Operation, TensorValue,
    graph::{Graph, bounded},
    limit,
    signature::{Arguments, Fallback, optional, required},
    value::spelled,
};

/// Parameters `weight` (filters, kernel, kernel, channels / groups) and `bias` (filters), both
/// uniform(1/√(kernel² · channels / groups)), as PyTorch's `nn.Conv2d`. Files of weights have PyTorch's
/// (filters, channels / groups, kernel, kernel).
pub(super) const CONV2D: Operator = Operator {
    name: "conv2d",
    summary: "x (batch, height, width, channels) → (batch, height', width', filters); \
              padding is kernel / 2 unless given",
    formals: &[
        required("x"),
        required("filters"),
        optional("kernel", Fallback::Number(3.0)),
        optional("stride", Fallback::Number(1.0)),
        optional("padding", Fallback::Absent),
        optional("groups", Fallback::Number(1.0)),
        optional("bias", Fallback::Truth(true)),
    ],
    build: conv2d,
};

/// Squares of `size` pixels through one affine map (arXiv 2010.11929).
pub(super) const PATCHES: Operator = Operator {
    name: "patches",
    summary: "x (batch, height, width, channels) → (batch, tokens, width), an affine map of \
              every square of size × size pixels; `deviation`: its weight is drawn from \
              normal(deviation), its bias is zero",
    formals: &[
        required("x"),
        required("size"),
        required("width"),
        optional("deviation", Fallback::Absent),
    ],
    build: patches,
};

/// Padding is never the greatest.
pub(super) const MAX_POOL: Operator = Operator {
    name: "max_pool",
    summary: "the maximum over every window of size × size pixels; stride is size unless given",
    formals: POOL,
    build: |arguments, graph| {
        let pool = |[size, stride, padding]: [u64; 3]| Operation::MaxPool {
            size,
            stride,
            padding,
        };
        pooled(pool, arguments, graph)
    },
};

/// Padding counts as zeros.
pub(super) const AVG_POOL: Operator = Operator {
    name: "avg_pool",
    summary: "the mean over every window of size × size pixels, padding counted as zeros; \
              stride is size unless given",
    formals: POOL,
    build: |arguments, graph| {
        let pool = |[size, stride, padding]: [u64; 3]| Operation::AvgPool {
            size,
            stride,
            padding,
        };
        pooled(pool, arguments, graph)
    },
};

/// Over height and width.
pub(super) const GLOBAL_POOL: Operator = Operator {
    name: "global_pool",
    summary: "x (batch, height, width, channels) → (batch, channels), the mean over all pixels",
    formals: &[required("x")],
    build: global_pool,
};

/// The nearest pixel of the smaller image.
pub(super) const UPSAMPLE: Operator = Operator {
    name: "upsample",
    summary: "x (batch, height, width, channels) → (batch, factor · height, factor · width, \
              channels), every pixel factor by factor times; the factor is a power of two",
    formals: &[required("x"), optional("factor", Fallback::Number(2.0))],
    build: upsample,
};

const POOL: &[crate::signature::Formal] = &[
    required("x"),
    required("size"),
    optional("stride", Fallback::Absent),
    optional("padding", Fallback::Number(0.0)),
];

/// Extents of images.
#[derive(Clone, Copy)]
struct Images {
    batch: Extent,
    height: u64,
    width: u64,
    channels: u64,
}

fn images(x: &TensorValue) -> Result<Images, Mistake> {
    match x.shape[..] {
        [batch, height, width, channels]
            if ![height, width, channels].iter().any(|extent| extent.per_example) =>
        {
            let [height, width, channels] = [height.size, width.size, channels.size];
            Ok(Images { batch, height, width, channels })
        }
        _ => {
            let found = spelled(&x.shape);
            let message = format!(
                "expected images (batch, height, width, channels), found {found}"
            );
            let hint = "channels come last; `reshape` gives them a place";
            Err(Mistake::new(Code::Shape, message).hint(hint).argument("x"))
        }
    }
}

impl Images {
    /// The extents after a window of `size` pixels has moved over padded images.
    fn windows(
        self,
        size: u64,
        stride: u64,
        padding: u64,
        argument: &'static str,
    ) -> Result<(u64, u64), Mistake> {
        let Self { height, width, .. } = self;
        let places = |extent: u64| {
            let room = padding.checked_mul(2)?.checked_add(extent)?.checked_sub(size)?;
            Some(room / stride + 1)
        };
        let both = places(height).zip(places(width));
        both.ok_or_else(|| {
            let message = format!(
                "a window of {size} x {size} pixels is larger than images of {height} x \
                 {width} with padding {padding}"
            );
            let hint = "take a smaller window or more padding";
            Mistake::new(Code::Shape, message).hint(hint).argument(argument)
        })
    }
}

/// So many pixels, within the declared limits.
fn pixels(arguments: &Arguments, name: &'static str) -> Result<u64, Mistake> {
    let number = arguments.whole(name)?;
    match number <= limit::PIXELS {
        true => Ok(number),
        false => {
            let message = format!("`{name}` is at most {} pixels", limit::PIXELS);
            Err(Mistake::new(Code::Limit, message).argument(name))
        }
    }
}

/// The same, at least one.
fn step(arguments: &Arguments, name: &'static str) -> Result<u64, Mistake> {
    let number = pixels(arguments, name)?;
    let message = format!("`{name}` must be at least 1, found 0");
    let wrong = || Mistake::new(Code::Value, message).argument(name);
    (number > 0).then_some(number).ok_or_else(wrong)
}

fn conv2d(arguments: &Arguments, graph: &mut Graph) -> Result<TensorValue, Mistake> {
    let x = arguments.real_tensor("x")?;
    let filters = arguments.size("filters")?;
    let kernel = step(arguments, "kernel")?;
    let stride = step(arguments, "stride")?;
    let padding = arguments.optional("padding", pixels)?.unwrap_or(kernel / 2);
    let groups = step(arguments, "groups")?;
    let window = Window { kernel, stride, padding };
    let how = (Bias::of(arguments)?, Drawn::Uniform);
    convolution(graph, "", &x, window, [filters, groups], how)
}

/// How a square of `kernel` pixels moves over images.
#[derive(Clone, Copy)]
struct Window {
    kernel: u64,
    stride: u64,
    padding: u64,
}

/// A convolution at the present path.
fn convolution(
    graph: &mut Graph,
    role: &str,
    x: &TensorValue,
    Window { kernel, stride, padding }: Window,
    [filters, groups]: [u64; 2],
    (bias, drawn): (Bias, Drawn),
) -> Result<TensorValue, Mistake> {
    let images = images(x)?;
    divides(groups, images.channels, "channels", "x")?;
    divides(groups, filters, "filters", "filters")?;
    let (height, width) = images.windows(kernel, stride, padding, "kernel")?;
    let depth = [kernel, kernel, images.channels / groups];
    let fan_in = depth.iter().try_fold(1u64, |all, extent| all.checked_mul(*extent));
    let shape = vec![images.batch, height.into(), width.into(), filters.into()];
    let work = fan_in.and_then(|fan_in| bounded(&shape).ok()?.checked_mul(fan_in));
    let Some(fan_in) = fan_in.filter(|_| work.is_some_and(|work| work <= limit::WORK))
    else {
        return Err(Mistake::new(Code::Limit, "the convolution is too large"));
    };
    let [for_weight, for_bias] = drawn.initials(fan_in);
    let [tall, wide, channels] = depth;
    let weight = graph.filters("weight", [filters, tall, wide, channels], for_weight)?;
    let mut operands = vec![x.clone(), weight];
    if bias == Bias::With {
        operands.push(graph.parameter("bias", vec![filters], for_bias)?);
    }
    let operation = Operation::Conv2d { stride, padding, groups };
    graph.node(role, operation, &operands.iter().collect::<Vec<_>>(), shape)
}

fn divides(
    groups: u64,
    count: u64,
    what: &str,
    argument: &'static str,
) -> Result<(), Mistake> {
    if count.is_multiple_of(groups) {
        return Ok(());
    }
    let message = format!("{groups} groups do not divide {count} {what}");
    let hint = "channels and filters must be multiples of the number of groups";
    Err(Mistake::new(Code::Shape, message).hint(hint).argument(argument))
}

fn patches(arguments: &Arguments, graph: &mut Graph) -> Result<TensorValue, Mistake> {
    let x = arguments.real_tensor("x")?;
    let size = step(arguments, "size")?;
    let width = arguments.size("width")?;
    let Images { height, width: wide, .. } = images(&x)?;
    if !(height.is_multiple_of(size) && wide.is_multiple_of(size)) {
        let message =
            format!("squares of {size} pixels do not cover images of {height} x {wide}");
        let hint = "height and width must be multiples of `size`";
        return Err(Mistake::new(Code::Shape, message).hint(hint).argument("size"));
    }
    let window = Window { kernel: size, stride: size, padding: 0 };
    let how = (Bias::With, Drawn::of(arguments)?);
    let map = convolution(graph, "map", &x, window, [width, 1], how)?;
    let tokens = (height / size) * (wide / size);
    let shape = vec![map.shape[0], tokens.into(), width.into()];
    graph.node("", Operation::Reshape, &[&map], shape)
}

fn pooled(
    operation: impl Fn([u64; 3]) -> Operation,
    arguments: &Arguments,
    graph: &mut Graph,
) -> Result<TensorValue, Mistake> {
    let x = arguments.real_tensor("x")?;
    let size = step(arguments, "size")?;
    let stride = arguments.optional("stride", step)?.unwrap_or(size);
    let padding = pixels(arguments, "padding")?;
    let images = images(&x)?;
    if padding > size / 2 {
        let message =
            format!("a padding of {padding} is more than half of the size {size}");
        return Err(Mistake::new(Code::Value, message).argument("padding"));
    }
    let (height, width) = images.windows(size, stride, padding, "size")?;
    let channels = images.channels.into();
    let shape = vec![images.batch, height.into(), width.into(), channels];
    let operation = operation([size, stride, padding]);
    graph.node("", operation, &[&x], shape)
}

fn global_pool(arguments: &Arguments, graph: &mut Graph) -> Result<TensorValue, Mistake> {
    let x = arguments.real_tensor("x")?;
    let images = images(&x)?;
    let shape = vec![images.batch, images.channels.into()];
    graph.node("", Operation::GlobalPool, &[&x], shape)
}

fn upsample(arguments: &Arguments, graph: &mut Graph) -> Result<TensorValue, Mistake> {
    let x = arguments.real_tensor("x")?;
    let factor = step(arguments, "factor")?;
    // Pixels are repeated by a mean that is handed back: other factors would round.
    if !factor.is_power_of_two() {
        let message = format!("`factor` must be a power of two, found {factor}");
        return Err(Mistake::new(Code::Value, message).argument("factor"));
    }
    let Images { batch, height, width, channels } = images(&x)?;
    let larger = |extent: u64| extent.checked_mul(factor).map(Extent::fixed);
    let Some((height, width)) = larger(height).zip(larger(width)) else {
        return Err(
            Mistake::new(Code::Limit, "the images are too large").argument("factor")
        );
    };
    let shape = vec![batch, height, width, channels.into()];
    bounded(&shape)?;
    graph.node("", Operation::Upsample { factor }, &[&x], shape)
}

impl From<u64> for Extent {
    fn from(size: u64) -> Self {
        Self::fixed(size)
    }
}
