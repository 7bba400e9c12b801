//! The `train` section: data, batch, optimizer, steps, seed, evaluation, element type.

use super::{
    definitions::{Definitions, beginning},
    optimizer::{self, NoDecay, called, optimizer},
    settings::{Settings, no_entries, single, unknown_word},
};
use crate::{
    Code, Mistake, Model, Span, Train,
    report::{Known, Report},
    syntax::{Argument, Entry, Expression, ExpressionKind, Name, Section, Setting},
};
use roundelay_schedule::{Data, Element, Evaluation, Float, TokenWidth};

const KEYS: [&str; 7] =
    ["data", "batch", "optimizer", "steps", "seed", "evaluate", "dtype"];

impl Default for Train {
    /// What holds when a program says nothing: synthetic data, batches of 32, 100 steps of AdamW.
    fn default() -> Self {
        Self {
            data: Data::Synthetic,
            batch: 32,
            seed: 0,
            steps: 100,
            dtype: Float::F32,
            optimizer: optimizer::usual(),
            evaluate: Evaluation::Never,
        }
    }
}

/// How the model is trained, and which parameters weight decay spares.
pub(super) fn resolve(
    definitions: &Definitions<'_>,
    report: &mut Report,
) -> Known<(Train, NoDecay)> {
    match definitions.train().map_err(|m| report.error(beginning(), m))? {
        None => Ok((Train::default(), NoDecay::default())),
        Some(section) => resolve_section(section, report),
    }
}

fn resolve_section(section: &Section, report: &mut Report) -> Known<(Train, NoDecay)> {
    let settings = Settings::new("train", &section.entries, &KEYS, report);
    let usual = Train::default();
    let data = settings.get("data").map(|entry| data(entry, report));
    let batch = settings.whole("batch", 1, 1 << 24, report);
    let chosen = settings
        .get("optimizer")
        .map(|entry| single(entry, report).and_then(|value| optimizer(value, report)));
    let steps = settings.whole("steps", 0, 1 << 40, report);
    let seed = settings.whole("seed", 0, i64::MAX as u64, report);
    let evaluate = settings.get("evaluate").map(|entry| evaluate(entry, report));
    let dtype = settings.get("dtype").map(|entry| dtype(entry, report));
    let (optimizer, no_decay) =
        chosen.transpose()?.unwrap_or_else(|| (usual.optimizer, NoDecay::default()));
    let train = Train {
        data: data.transpose()?.unwrap_or(usual.data),
        batch: batch?.and_then(|batch| u32::try_from(batch).ok()).unwrap_or(usual.batch),
        seed: seed?.unwrap_or(usual.seed),
        steps: steps?.unwrap_or(usual.steps),
        dtype: dtype.transpose()?.unwrap_or(usual.dtype),
        optimizer,
        evaluate: evaluate.transpose()?.unwrap_or(usual.evaluate),
    };
    Ok((train, no_decay))
}

/// `text("*.md")`, `tokens("file.bin", u16)`, `synthetic`.
fn data(entry: &Entry, report: &mut Report) -> Known<Data> {
    let value = single(entry, report)?;
    let (name, given) = called(value, "data such as `text(\"*.md\")`", report)?;
    let root = report.file(name.span.file).folder().to_owned();
    match name.text.as_str() {
        "text" => {
            globs(given, value.span, report).map(|globs| Data::Text { root, globs })
        }
        "tokens" => tokens(root, given, value.span, report),
        "synthetic" if given.is_empty() => Ok(Data::Synthetic),
        "synthetic" => {
            let mistake = Mistake::new(Code::Type, "`synthetic` takes no arguments");
            Err(report.error(value.span, mistake))
        }
        other => {
            let known = ["text", "tokens", "synthetic"];
            Err(unknown_word("kind of data", other, &known, name.span, report))
        }
    }
}

fn globs(given: &[Argument], span: Span, report: &mut Report) -> Known<Vec<String>> {
    let texts: Vec<Known<String>> =
        given.iter().map(|argument| text(&argument.value, report)).collect();
    let globs = texts.into_iter().collect::<Known<Vec<String>>>()?;
    if globs.is_empty() {
        let mistake =
            Mistake::new(Code::Missing, "`text` needs at least one file pattern");
        return Err(report.error(span, mistake.hint("write `text(\"**/*.md\")`")));
    }
    Ok(globs)
}

fn text(expression: &Expression, report: &mut Report) -> Known<String> {
    match &expression.kind {
        ExpressionKind::Text(text) => Ok(text.clone()),
        _ => {
            let mistake = Mistake::new(Code::Type, "expected a text in quotes");
            Err(report.error(expression.span, mistake))
        }
    }
}

fn tokens(
    root: String,
    given: &[Argument],
    span: Span,
    report: &mut Report,
) -> Known<Data> {
    let [file, width] = given else {
        let mistake = Mistake::new(Code::Type, "`tokens` takes a file and a width");
        return Err(
            report.error(span, mistake.hint("write `tokens(\"train.bin\", u16)`"))
        );
    };
    let file = text(&file.value, report)?;
    let (name, _) = called(&width.value, "u8, u16 or u32", report)?;
    let width = match name.text.as_str() {
        "u8" => TokenWidth::U8,
        "u16" => TokenWidth::U16,
        "u32" => TokenWidth::U32,
        other => {
            let known = ["u8", "u16", "u32"];
            return Err(unknown_word("width", other, &known, name.span, report));
        }
    };
    Ok(Data::Tokens { root, file, width })
}

/// `evaluate { every 50 }`.
fn evaluate(entry: &Entry, report: &mut Report) -> Known<Evaluation> {
    let inner = Settings::new("evaluate", &entry.entries, &["every"], report);
    let every = inner.whole("every", 1, 1 << 40, report)?;
    match (&entry.value, every) {
        (Setting::Nothing, Some(every)) => Ok(Evaluation::Every(every)),
        (Setting::Nothing | Setting::OneOf(_) | Setting::AtMost(_), _)
        | (Setting::AtLeast(_) | Setting::Broken, _) => {
            let mistake =
                Mistake::new(Code::Missing, "`evaluate` needs `every` in braces");
            let hint = "write `evaluate { every 50 }`";
            Err(report.error(entry.key.span, mistake.hint(hint)))
        }
    }
}

/// `dtype f32`.
fn dtype(entry: &Entry, report: &mut Report) -> Known<Float> {
    no_entries(entry, report)?;
    let (Name { text, span }, _) = called(single(entry, report)?, "f32 or f64", report)?;
    match text.as_str() {
        "f32" => Ok(Float::F32),
        "f64" => Ok(Float::F64),
        other => Err(unknown_word("element type", other, &["f32", "f64"], span, report)),
    }
}

/// Bytes of a text are tokens below this bound.
const BYTES: u64 = 256;

/// Text and token files bring `tokens` and `targets`; the model must take these and nothing else.
pub(super) fn fit_data(
    train: &Train,
    model: &mut Model,
    place: Span,
    report: &mut Report,
) {
    let source = match train.data {
        Data::Synthetic => return,
        Data::Text { .. } => "text",
        Data::Tokens { .. } => "tokens",
    };
    for input in model.inputs.values() {
        let known = ["tokens", "targets"].contains(&input.name.as_str());
        if !known || input.element != Element::I32 {
            let message = format!("`{source}` data brings no input `{}`", input.name);
            let hint = "it brings `tokens` and `targets`, both i32[batch, seq]";
            report.error(place, Mistake::new(Code::Type, message).hint(hint));
        }
        if source == "text" && (1..BYTES).contains(&input.bound) {
            let message = format!(
                "text has {BYTES} different bytes, but `{}` must be below {}",
                input.name, input.bound
            );
            let hint = format!("set the vocabulary to {BYTES}");
            report.error(place, Mistake::new(Code::Value, message).hint(hint));
        }
    }
    let mut shapes = model.inputs.values().map(|input| &input.shape);
    let first = shapes.next();
    if shapes.any(|shape| Some(shape) != first) || first.is_none_or(|s| s.len() != 2) {
        let message = format!("`{source}` data needs inputs of one shape [batch, seq]");
        report.error(place, Mistake::new(Code::Shape, message));
    }
}
