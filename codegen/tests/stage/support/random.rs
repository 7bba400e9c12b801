//! Random models over one shape of values, with ties, views and skips.

use super::build::{Build, Numbers, fixed, per_example};
use roundelay_dsl::{
    Cap, Extent, Heads, Model, Operation, Projections, Scale, Sight, Source, Still,
    Stretch, Turning, Window,
};

const WIDTH: u64 = 4;

/// Ways to make the angles of rotary positions smaller.
pub(crate) const STRETCHES: [Stretch; 4] = [
    Stretch::None,
    Stretch::Even { factor: 2.5 },
    Stretch::Long { factor: 4.0, original: 4, low: 0.1, high: 0.5 },
    Stretch::Long { factor: 2.0, original: 7, low: 0.2, high: 0.8 },
];

/// The shape of every value.
fn rows() -> [Extent; 2] {
    [per_example(2), fixed(WIDTH)]
}

/// A model of `size` operations (attention counts as one) and a loss.
pub(crate) fn random_model(numbers: &mut Numbers, size: usize) -> Model {
    let mut build = Build::default();
    let first = build.input("x", &rows());
    let start = weighted(&mut build, numbers, first);
    let mut values = vec![start];
    for _ in 0..size {
        let x = recent(numbers, &values);
        let next = operation(&mut build, numbers, &values, x);
        values.push(next);
    }
    let last = weighted(&mut build, numbers, values[size]);
    let other = numbers.pick(&values);
    let last = build.node(Operation::Add, &[last, other], &rows());
    match numbers.below(2) {
        0 => build.mean_squared_error(last, &rows()),
        _ => {
            let classes = build.tokens("classes", &[per_example(2)], WIDTH);
            let loss = build.cross_entropy(last, classes);
            build.end(loss)
        }
    }
}

/// One of the last three values, mostly.
fn recent(numbers: &mut Numbers, values: &[Source]) -> Source {
    let tail = &values[values.len().saturating_sub(3)..];
    match numbers.below(4) {
        0 => numbers.pick(values),
        _ => numbers.pick(tail),
    }
}

/// A parameter, sometimes one that is used already.
fn parameter(build: &mut Build, numbers: &mut Numbers, shape: &[u64]) -> Source {
    let known = build.model.parameters.iter();
    let equal: Vec<Source> = known
        .filter(|(_, known)| known.shape == shape)
        .map(|(id, _)| Source::Parameter(id))
        .collect();
    match numbers.below(8) {
        0 if !equal.is_empty() => numbers.pick(&equal),
        _ => build.parameter(shape),
    }
}

fn weighted(build: &mut Build, numbers: &mut Numbers, x: Source) -> Source {
    let mut operands = vec![x, parameter(build, numbers, &[WIDTH, WIDTH])];
    if numbers.below(2) == 0 {
        operands.push(parameter(build, numbers, &[WIDTH]));
    }
    build.node(Operation::Linear, &operands, &rows())
}

fn operation(
    build: &mut Build,
    numbers: &mut Numbers,
    values: &[Source],
    x: Source,
) -> Source {
    let other = match numbers.below(3) {
        0 => parameter(build, numbers, &[WIDTH]),
        _ => numbers.pick(values),
    };
    let (operation, operands) = match numbers.below(12) {
        0 => (Operation::Gelu, vec![x]),
        1 => (Operation::Relu, vec![x]),
        2 => (Operation::Softmax, vec![x]),
        3 => (Operation::Dropout { rate: 0.3 }, vec![x]),
        4 => (Operation::Scale { factor: 0.9 }, vec![x]),
        5 => (Operation::Multiply, vec![x, other]),
        6 | 7 => (Operation::Add, vec![x, other]),
        8 => return attention(build, numbers, values, x),
        9 => (Operation::Silu, vec![x]),
        10 => return turned(build, x),
        _ => return weighted(build, numbers, x),
    };
    build.node(operation, &operands, &rows())
}

const HEADS: Heads = Heads { all: 2, keys: 2 };

/// Attention over pairs of rows, through views.
fn attention(
    build: &mut Build,
    numbers: &mut Numbers,
    values: &[Source],
    x: Source,
) -> Source {
    let shape = [per_example(1), fixed(2), fixed(WIDTH)];
    let operands = [x, recent(numbers, values), recent(numbers, values)];
    let views = operands.map(|x| build.node(Operation::Reshape, &[x], &shape));
    let window = numbers.pick(&[Window::Open, Window::Nearest(1)]);
    let operation = Operation::Attention {
        heads: HEADS,
        projections: Projections::Apart,
        sight: Sight { causal: numbers.below(2) == 0, window },
        scale: Scale::Depth,
        cap: Cap::Open,
    };
    let y = match numbers.below(2) {
        0 => build.node(operation, &views, &shape),
        _ => stored(build, views, window),
    };
    build.node(Operation::Reshape, &[y], &rows())
}

/// Attention over pairs of rows with stored scores, of which some are dropped.
fn stored(build: &mut Build, [q, k, v]: [Source; 3], window: Window) -> Source {
    let grid = [per_example(1), fixed(2), fixed(2), fixed(2)];
    let (sight, scale) = (Sight { causal: true, window }, Scale::Depth);
    let scores = Operation::Scores { heads: HEADS, sight, scale };
    let scores = build.node(scores, &[q, k], &grid);
    let weights = build.node(Operation::Softmax, &[scores], &grid);
    let kept = build.node(Operation::Dropout { rate: 0.2 }, &[weights], &grid);
    let shape = [per_example(1), fixed(2), fixed(WIDTH)];
    build.node(Operation::Mix { heads: HEADS }, &[kept, v], &shape)
}

/// Rotary positions over pairs of rows, through views.
fn turned(build: &mut Build, x: Source) -> Source {
    let shape = [per_example(1), fixed(2), fixed(WIDTH)];
    let view = build.node(Operation::Reshape, &[x], &shape);
    let (heads, base, turned, stretch) = (2, 100.0, WIDTH / 2, STRETCHES[1]);
    let still = Still::None;
    let turning = Turning { heads, base, turned, still, stretch };
    let y = build.node(Operation::Rotary(turning), &[view], &shape);
    build.node(Operation::Reshape, &[y], &rows())
}
