//! The operators as parts of random models: a table of what can become of a value.

use crate::draft::{Draft, Shape};

/// What a part makes of a value that is called like this, and its shape; nothing where it does not
/// fit.
type Part = fn(&mut Draft<'_>, &str) -> Option<(String, Shape)>;

/// How often each part is tried, and what it is.
const PARTS: [(usize, Part); 15] = [
    (4, affine),
    (3, activation),
    (3, norm),
    (3, elementwise),
    (1, gated),
    (5, attention),
    (1, positions),
    (1, gain),
    (6, convolution),
    (2, window),
    (1, enlarged),
    (1, flattened),
    (2, folded),
    (1, chosen_row),
    (1, token),
];

/// Widths that are drawn: divided by much, by little, and as heads of fast attention have them.
const WIDTHS: [usize; 10] = [1, 5, 6, 8, 8, 12, 16, 16, 24, 32];

/// Applies a random part to the named value.
pub(crate) fn part(draft: &mut Draft<'_>, x: &str) -> (String, Shape) {
    loop {
        let all: usize = PARTS.iter().map(|(weight, _)| weight).sum();
        let mut at = draft.random.below(all);
        let chosen = PARTS.iter().find(|(weight, _)| {
            let here = at < *weight;
            at = at.saturating_sub(*weight);
            here
        });
        if let Some(made) = chosen.and_then(|(_, part)| part(draft, x)) {
            return made;
        }
    }
}

/// The same with a part that keeps all extents but the last.
pub(crate) fn steady(draft: &mut Draft<'_>, x: &str) -> (String, Shape) {
    loop {
        let (text, shape) = part(draft, x);
        if shape.with_width(1) == draft.shape.with_width(1) {
            return (text, shape);
        }
    }
}

fn affine(draft: &mut Draft<'_>, x: &str) -> Option<(String, Shape)> {
    let width = draft.of(&WIDTHS);
    let bias = draft.maybe(4, "bias = false");
    let deviation = draft.maybe(6, "deviation = 0.2");
    let text = format!("linear({x}, {width}{bias}{deviation})");
    Some((text, draft.shape.with_width(width)))
}

/// An activation, or one right behind a map.
fn activation(draft: &mut Draft<'_>, x: &str) -> Option<(String, Shape)> {
    let name = draft.of(&["relu", "gelu", "gelu_tanh", "silu", "tanh"]);
    if draft.once_in(2) {
        return Some((format!("{name}({x})"), draft.shape));
    }
    let (inner, shape) = affine(draft, x)?;
    Some((format!("{name}({inner})"), shape))
}

fn norm(draft: &mut Draft<'_>, x: &str) -> Option<(String, Shape)> {
    let groups = draft.divisor(draft.shape.width(), 8);
    let text = match draft.random.below(6) {
        0 | 1 => format!("layer_norm({x})"),
        2 => format!("rms_norm({x}, epsilon = 1e-3)"),
        3 => format!("rms_norm({x})"),
        4 => format!("group_norm({x}, {groups})"),
        _ => format!("batch_norm({x}, momentum = 0.3)"),
    };
    Some((text, draft.shape))
}

fn elementwise(draft: &mut Draft<'_>, x: &str) -> Option<(String, Shape)> {
    let text = match draft.random.below(8) {
        0 | 1 => format!("dropout({x}, {})", draft.of(&["0.2", "0.2", "0", "0.9"])),
        2 => format!("soft_cap({x}, 3)"),
        3 => format!("softmax({x})"),
        4 => format!("{x} * 0.5"),
        5 => format!("-{x}"),
        6 => format!("{x} - tanh({x}) / 3"),
        _ => format!("{x} * tanh({x})"),
    };
    Some((text, draft.shape))
}

fn gated(draft: &mut Draft<'_>, x: &str) -> Option<(String, Shape)> {
    let hidden = draft.of(&WIDTHS);
    let gate = draft.of(&["silu", "gelu", "gelu_tanh", "relu"]);
    let bias = draft.maybe(3, "bias = true");
    let text = format!("gated({x}, {hidden}, activation = \"{gate}\"{bias})");
    Some((text, draft.shape))
}

fn attention(draft: &mut Draft<'_>, x: &str) -> Option<(String, Shape)> {
    let Shape::Sequence { length, width } = draft.shape else { return None };
    let heads = draft.of(&[1, 2, 2, 4]);
    let head_width = match width.is_multiple_of(heads) && !draft.once_in(4) {
        true => String::new(),
        false => format!(", head_width = {}", draft.of(&[1, 2, 4, 6, 8, 16, 32, 64, 64])),
    };
    let mut text = format!("attention({x}, {heads}{head_width}");
    if !draft.once_in(3) {
        text += ", causal = true";
    }
    if draft.once_in(3) {
        text += &format!(", key_heads = {}", draft.divisor(heads, heads));
    }
    if draft.once_in(3) {
        text += &format!(", window = {}", 1 + draft.random.below(length + 1));
    }
    let even = head_width.rsplit(' ').next().and_then(|own| own.parse().ok());
    let even = even.unwrap_or(width / heads).is_multiple_of(2);
    if even && draft.once_in(3) {
        text += ", rotary = 100";
        text += &draft.maybe(2, "turned = 2");
    }
    let packed = draft.once_in(4);
    text += &match packed {
        true => ", packed = true".to_owned(),
        false => draft.maybe(5, "head_norm = 1e-5"),
    };
    text += &draft.maybe(4, "bias = false");
    text += &draft.maybe(5, "scale = 0.3");
    text += &match draft.random.below(5) {
        0 => ", cap = 2.0".to_owned(),
        1 if !packed => {
            format!(", stored_scores = true{}", draft.maybe(2, "dropout = 0.1"))
        }
        _ => String::new(),
    };
    text += &draft.maybe(6, "output_bias = true");
    Some((text + ")", draft.shape))
}

fn positions(draft: &mut Draft<'_>, x: &str) -> Option<(String, Shape)> {
    let Shape::Sequence { length, width } = draft.shape else { return None };
    let more = draft.maybe(3, &format!("rows = {}, first = 1", length + 2));
    Some((format!("{x} + positions({length}, {width}{more})"), draft.shape))
}

/// A parameter that is added or multiplied as it is.
fn gain(draft: &mut Draft<'_>, x: &str) -> Option<(String, Shape)> {
    let name = draft.name("own");
    let width = draft.shape.width();
    let initial = draft.of(&["ones()", "normal(0.2)", "uniform(0.5)", "constant(0.7)"]);
    draft.lines.push(format!("param {name}: [{width}] = {initial}"));
    let sign = draft.of(&["*", "+", "-"]);
    Some((format!("{x} {sign} {name}"), draft.shape))
}

fn convolution(draft: &mut Draft<'_>, x: &str) -> Option<(String, Shape)> {
    let Shape::Images { height, width, channels } = draft.shape else { return None };
    let kernel = draft.of(&[1, 2, 3, 3, 3, 5]);
    let stride = draft.of(&[1, 1, 1, 2, 3]);
    let padding = draft.of(&[0, kernel / 2, kernel / 2, kernel / 2, 2]);
    let places =
        |extent: usize| Some((extent + 2 * padding).checked_sub(kernel)? / stride + 1);
    let (height, width) = places(height).zip(places(width))?;
    let groups = if draft.once_in(3) { draft.divisor(channels, channels) } else { 1 };
    let filters = groups * draft.of(&[2, 4, 4, 6, 8]);
    let bias = draft.maybe(3, "bias = false");
    let text = format!(
        "conv2d({x}, {filters}, kernel = {kernel}, stride = {stride}, padding = {padding}, \
         groups = {groups}{bias})"
    );
    (filters <= 32).then_some((text, Shape::Images { height, width, channels: filters }))
}

fn window(draft: &mut Draft<'_>, x: &str) -> Option<(String, Shape)> {
    let Shape::Images { height, width, channels } = draft.shape else { return None };
    let pool = draft.of(&["max_pool", "avg_pool"]);
    let size = draft.of(&[1, 2, 2, 3]);
    let stride = draft.of(&[1, 2, size]);
    let padding = draft.random.below(size / 2 + 1);
    let places =
        |extent: usize| Some((extent + 2 * padding).checked_sub(size)? / stride + 1);
    let (height, width) = places(height).zip(places(width))?;
    let text = format!("{pool}({x}, {size}, stride = {stride}, padding = {padding})");
    Some((text, Shape::Images { height, width, channels }))
}

fn enlarged(draft: &mut Draft<'_>, x: &str) -> Option<(String, Shape)> {
    let Shape::Images { height, width, channels } = draft.shape else { return None };
    let factor = draft.of(&[1, 2, 2, 4]);
    let shape =
        Shape::Images { height: height * factor, width: width * factor, channels };
    (height * width * factor * factor <= 256)
        .then_some((format!("upsample({x}, factor = {factor})"), shape))
}

/// What brings a value nearer to a few features.
fn flattened(draft: &mut Draft<'_>, x: &str) -> Option<(String, Shape)> {
    match draft.shape {
        Shape::Features(width) => {
            let length = draft.divisor(width, 4);
            let shape = Shape::Sequence { length, width: width / length };
            Some((format!("reshape({x}, {})", shape.spelled()), shape))
        }
        Shape::Sequence { length, width } => {
            let shape = Shape::Features(length * width);
            (length * width <= 96)
                .then_some((format!("reshape({x}, {})", shape.spelled()), shape))
        }
        Shape::Images { height, width, channels } => match draft.random.below(3) {
            0 => Some((format!("global_pool({x})"), Shape::Features(channels))),
            1 => {
                let shape = Shape::Sequence { length: height * width, width: channels };
                (height * width <= 16)
                    .then_some((format!("reshape({x}, {})", shape.spelled()), shape))
            }
            _ => {
                let size = draft.divisor(height, 4);
                let tokens = (height / size) * (width / size);
                let wide = draft.of(&WIDTHS);
                (width.is_multiple_of(size) && tokens <= 16).then_some((
                    format!("patches({x}, {size}, {wide})"),
                    Shape::Sequence { length: tokens, width: wide },
                ))
            }
        },
        Shape::Folded { .. } => None,
    }
}

/// What makes a row of all that an example has in one place, and what takes these rows together again.
fn folded(draft: &mut Draft<'_>, x: &str) -> Option<(String, Shape)> {
    let (times, width) = match draft.shape {
        Shape::Features(width) => {
            let times = draft.divisor(width, 8);
            (times, width / times)
        }
        Shape::Sequence { length, width } => (length, width),
        Shape::Images { height, width, channels } => (height * width, channels),
        Shape::Folded { times, width } => {
            let rows = Shape::Sequence { length: times, width };
            let shape = draft.of(&[rows, Shape::Features(times * width)]);
            return Some((format!("reshape({x}, {})", shape.spelled()), shape));
        }
    };
    let shape = Shape::Folded { times, width };
    (2..=16)
        .contains(&times)
        .then(|| (format!("reshape({x}, {})", shape.spelled()), shape))
}

fn chosen_row(draft: &mut Draft<'_>, x: &str) -> Option<(String, Shape)> {
    let Shape::Sequence { length, width } = draft.shape else { return None };
    let index = draft.random.below(length);
    Some((format!("select({x}, {index})"), Shape::Features(width)))
}

fn token(draft: &mut Draft<'_>, x: &str) -> Option<(String, Shape)> {
    let Shape::Sequence { length, width } = draft.shape else { return None };
    Some((format!("class_token({x})"), Shape::Sequence { length: length + 1, width }))
}
