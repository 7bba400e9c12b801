//! Random models: where they begin, what they do, and the loss in which they end.

use crate::{
    draft::{Draft, Shape},
    parts::{part, steady},
    random::Random,
};

/// The text of a model, with its blocks.
pub(crate) fn model(random: &mut Random) -> String {
    let shape = Shape::Features(8);
    let (blocks, head, lines) = (Vec::new(), Vec::new(), Vec::new());
    let passes = Vec::new();
    let mut draft = Draft { random, blocks, head, lines, passes, shape, names: 0 };
    begin(&mut draft);
    let statements = 1 + draft.random.below(5);
    for _ in 0..statements {
        statement(&mut draft);
    }
    end(&mut draft);
    let Draft { blocks, head, lines, .. } = draft;
    let body = head.into_iter().chain(lines).collect::<Vec<_>>().join("\n    ");
    format!("{}model random {{\n    {body}\n}}\n", blocks.concat())
}

/// Where the running value comes from.
fn begin(draft: &mut Draft<'_>) {
    match draft.random.below(8) {
        0..4 => tokens(draft),
        4..7 => {
            let height = draft.of(&[1, 4, 6, 8, 8, 16]);
            let width = draft.of(&[1, 4, 5, 8, height]);
            let channels = draft.of(&[1, 3, 3, 4]);
            input(draft, Shape::Images { height, width, channels });
        }
        _ => {
            let width = draft.of(&[1, 4, 8, 12]);
            let length = draft.of(&[1, 4, 6]);
            let shape =
                draft.of(&[Shape::Features(width), Shape::Sequence { length, width }]);
            input(draft, shape);
        }
    }
}

/// A table of tokens, which a tied head may share, and mostly positions.
fn tokens(draft: &mut Draft<'_>) {
    let (length, width) = (draft.of(&[1, 4, 6, 8, 8]), draft.of(&[4, 8, 12, 16]));
    let words = draft.of(&[2, 11, 16, 24, 160]);
    draft.head.push(format!("input tokens: i32[batch, {length}]"));
    draft.shape = Shape::Sequence { length, width };
    let mut value = format!("embedding(tokens, {words}, {width})");
    if draft.once_in(3) {
        draft.head.push(format!("param table: [{words}, {width}] = normal(0.3)"));
        value = "embedding(tokens, table)".to_owned();
    }
    if !draft.once_in(3) {
        value += &format!(" + positions({length}, {width})");
    }
    draft.lines.push(format!("x = {value}"));
}

fn input(draft: &mut Draft<'_>, shape: Shape) {
    draft.head.push(format!("input given: real{}", shape.spelled()));
    draft.shape = shape;
    draft.lines.push("x = given".to_owned());
}

/// One or several lines that make `x` anew.
fn statement(draft: &mut Draft<'_>) {
    match draft.random.below(10) {
        0..3 => bind(draft),
        3..5 => residual(draft),
        5 => repeated(draft),
        6 => block(draft),
        7 => skip(draft),
        8 => shared(draft),
        _ => layer(draft),
    }
}

fn bind(draft: &mut Draft<'_>) {
    let (text, shape) = part(draft, "x");
    draft.lines.push(format!("x = {text}"));
    draft.shape = shape;
}

/// Back to a width, where parts have changed it.
fn back(draft: &mut Draft<'_>, name: &str, to: Shape) {
    if draft.shape == to {
        return;
    }
    let width = to.width();
    let text = match to {
        Shape::Images { .. } if draft.once_in(2) => {
            format!("conv2d({name}, {width}, kernel = 1)")
        }
        _ => format!("linear({name}, {width})"),
    };
    draft.lines.push(format!("{name} = {text}"));
    draft.shape = to;
}

/// x + f(x), with one to three parts that keep all extents but the last.
fn residual(draft: &mut Draft<'_>) {
    let outer = draft.shape;
    let name = draft.name("y");
    let mut from = "x".to_owned();
    for _ in 0..=draft.random.below(3) {
        let (text, shape) = steady(draft, &from);
        draft.lines.push(format!("{name} = {text}"));
        draft.shape = shape;
        from.clone_from(&name);
    }
    back(draft, &name, outer);
    draft.lines.push(format!("x = x + {name}"));
}

/// The layer of a transformer, or of a residual network.
fn layer(draft: &mut Draft<'_>) {
    let width = draft.shape.width();
    let hidden = 2 * width;
    let first = match draft.shape {
        Shape::Sequence { .. } => {
            "attention(layer_norm(x), 2, head_width = 8, causal = true)"
        }
        Shape::Images { .. } => "conv2d(relu(group_norm(x, 1)), CHANNELS)",
        Shape::Features(_) | Shape::Folded { .. } => "gated(rms_norm(x), 12)",
    };
    let first = first.replace("CHANNELS", &width.to_string());
    let drop = draft.of(&["dropout(", "("]);
    let end = if drop == "(" { ")" } else { ", 0.1)" };
    draft.lines.push(format!("x = x + {drop}{first}{end}"));
    draft
        .lines
        .push(format!("x = x + linear(gelu(linear(layer_norm(x), {hidden})), {width})"));
}

fn repeated(draft: &mut Draft<'_>) {
    let times = 1 + draft.random.below(3);
    let outer = std::mem::take(&mut draft.lines);
    let shape = draft.shape;
    for _ in 0..=draft.random.below(2) {
        match draft.random.below(3) {
            0 => residual(draft),
            1 => layer(draft),
            _ => {
                let name = draft.name("z");
                let (text, inner) = steady(draft, "x");
                draft.lines.push(format!("{name} = {text}"));
                draft.shape = inner;
                back(draft, &name, shape);
                draft.lines.push(format!("x = {name}"));
            }
        }
    }
    let body = std::mem::replace(&mut draft.lines, outer).join("\n        ");
    let counter = draft.name("layer");
    draft.lines.push(format!("repeat {times} as {counter} {{\n        {body}\n    }}"));
    draft.passes.push((counter, draft.shape));
}

/// A block that is called once or twice.
fn block(draft: &mut Draft<'_>) {
    let outer = std::mem::take(&mut draft.lines);
    let shape = draft.shape;
    residual(draft);
    let (text, inner) = steady(draft, "x");
    draft.lines.push(format!("x = {text}"));
    draft.shape = inner;
    back(draft, "x", shape);
    let body = std::mem::replace(&mut draft.lines, outer).join("\n    ");
    let name = draft.name("block");
    draft.blocks.push(format!("block {name}(x) {{\n    {body}\n    return x\n}}\n"));
    let calls = draft.of(&["x = NAME(x)", "x = NAME(NAME(x))", "x = NAME(x) + NAME(x)"]);
    draft.lines.push(calls.replace("NAME", &name));
}

/// A value that is added again after other statements.
fn skip(draft: &mut Draft<'_>) {
    let shape = draft.shape;
    let early = draft.name("early");
    draft.lines.push(format!("{early} = x"));
    for _ in 0..=draft.random.below(2) {
        residual(draft);
        let (text, shape) = steady(draft, "x");
        draft.lines.push(format!("x = {text}"));
        draft.shape = shape;
    }
    back(draft, "x", shape);
    draft.lines.push(format!("x = x + {early}"));
}

/// One weight that two maps use.
fn shared(draft: &mut Draft<'_>) {
    let width = draft.shape.width();
    let name = draft.name("shared");
    draft.head.push(format!("param {name}: [{width}, {width}] = normal(0.2)"));
    let bias = draft.maybe(2, "bias = false");
    draft.lines.push(format!("x = x + tanh(linear(x, weight = {name}{bias}))"));
    if draft.once_in(2) {
        bind(draft);
        back(draft, "x", draft.shape.with_width(width));
    }
    draft.lines.push(format!("x = linear(x, weight = {name})"));
}

/// A loss, or the sum of two, and perhaps metrics and what units of local rules end in.
fn end(draft: &mut Draft<'_>) {
    if let Shape::Folded { times, width } = draft.shape {
        draft.shape = Shape::Features(times * width);
        draft.lines.push(format!("x = reshape(x, {})", draft.shape.spelled()));
    }
    let Loss { text, alike } = loss(draft);
    let second = draft.once_in(6).then(|| loss(draft).text);
    let second = second.map_or(String::new(), |second| format!(" + 0.5 * {second}"));
    draft.lines.push(format!("loss {text}{second}"));
    let rows = draft.shape.rows();
    let passes = draft.passes.last().filter(|(_, shape)| shape.rows() == rows).cloned();
    if let (Some((counter, _)), true) = (passes, draft.once_in(2)) {
        draft.lines.push(format!("head after {counter} {{ loss {alike} }}"));
    }
}

/// A loss, and another one of the same target that has nothing of its own outside.
struct Loss {
    text: String,
    alike: String,
}

fn loss(draft: &mut Draft<'_>) -> Loss {
    let name = draft.name("wanted");
    if draft.once_in(3) {
        return distance(draft, &name);
    }
    let classes = draft.of(&[1, 2, 5, 8, 10, 33]);
    let masked = draft.maybe(4, "masked = true");
    let norm = draft.of(&["x", "layer_norm(x)", "rms_norm(x)"]);
    let is_tied = draft.head.iter().any(|line| line.starts_with("param table"));
    let text = match draft.random.below(4) {
        0 if is_tied => return tied(draft, &name, &masked),
        1 => {
            let chunks = draft.of(&["", "", ", chunks = 3", ", chunks = 1000"]);
            format!("linear_cross_entropy({norm}, {name}, {classes}{chunks}{masked})")
        }
        _ => {
            let logits = draft.name("logits");
            let value = draft.of(&["linear(X, C)", "soft_cap(linear(X, C), 10)"]);
            let value = value.replace('X', norm).replace('C', &classes.to_string());
            draft.lines.push(format!("{logits} = {value}"));
            if draft.once_in(2) {
                let metric = draft.of(&["accuracy", "perplexity"]);
                draft.lines.push(format!("metric {metric}({logits}, {name}{masked})"));
            }
            format!("cross_entropy({logits}, {name}{masked})")
        }
    };
    draft.head.push(format!("input {name}: i32[{}]", draft.shape.rows()));
    Loss { text, alike: format!("cross_entropy(linear(x, {classes}), {name}{masked})") }
}

fn distance(draft: &mut Draft<'_>, name: &str) -> Loss {
    let norm = draft.of(&["x", "layer_norm(x)", "rms_norm(x)"]);
    let wanted = draft.shape.with_width(draft.of(&[1, 3, 4]));
    let width = wanted.width();
    draft.head.push(format!("input {name}: real{}", wanted.spelled()));
    let text = format!("mse(linear({norm}, {width}), {name})");
    Loss { text, alike: format!("mse(linear(x, {width}), {name})") }
}

/// A loss whose classifier is the table of tokens.
fn tied(draft: &mut Draft<'_>, name: &str, masked: &str) -> Loss {
    let table = draft.head.iter().find(|line| line.starts_with("param table"));
    let mut extents =
        table.into_iter().flat_map(|line| line.split(['[', ',', ']']).skip(1));
    let mut extent = || extents.next().and_then(|size| size.trim().parse::<usize>().ok());
    let (words, width) = extent().zip(extent()).expect("a table has two extents");
    back(draft, "x", draft.shape.with_width(width));
    let form = draft.of(&[
        "cross_entropy(linear(x, weight = table, bias = false), NAME)",
        "linear_cross_entropy(x, NAME, weight = table)",
    ]);
    let target = format!("{name}{masked}");
    draft.head.push(format!("input {name}: i32[{}]", draft.shape.rows()));
    let alike = format!("cross_entropy(linear(x, {words}), {target})");
    Loss { text: form.replace("NAME", &target), alike }
}
