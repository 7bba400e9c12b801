//! The `train` section: batch, optimizer, steps, seed, evaluation, element type.

use super::{
    data::data,
    definitions::{Definitions, beginning},
    hold,
    optimizer::{self, NoDecay, called, no_arguments, optimizer},
    settings::{Settings, only_value, single, unknown_word},
};
use crate::{
    Code, Mistake, Train, held, limit,
    report::{Known, Report},
    syntax::{Entry, Section, Setting},
};
use roundelay_schedule::{Data, Evaluation, Float, GradientSums};
use std::collections::BTreeSet;

/// What a training may say of itself.
pub(super) const KEYS: [&str; 7] =
    ["data", "batch", "optimizer", "steps", "seed", "evaluate", "dtype"];
/// What `evaluate` says.
pub(super) const EVALUATE_KEYS: [&str; 1] = ["every"];
/// What a number type may say besides.
pub(super) const DTYPE_KEYS: [&str; 1] = ["gradients"];

/// The most steps.
pub(super) const STEPS_MAX: u64 = 1 << 40;
/// The greatest seed: every reader of files knows numbers up to it.
pub(super) const SEED_MAX: u64 = i64::MAX as u64;

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

/// What settings ask for that decides how a program is read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    /// The type of numbers.
    pub(super) dtype: Option<Float>,
    /// Whose optimizer has to have its numbers in this type.
    pub(super) optimizer: OptimizerIn,
}

/// Where the optimizer is written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum OptimizerIn {
    #[default]
    File,
    /// In the place of what the file says.
    Setting,
}

/// How the model is trained, in the type that was asked for if one was, and which parameters weight decay
/// spares.
pub(super) fn resolve(
    definitions: &Definitions<'_>,
    asked: Asked,
    report: &mut Report,
) -> Known<(Train, NoDecay)> {
    for other in definitions.other_trains() {
        let _: Known<(Train, NoDecay)> = resolve_section(other, Asked::default(), report);
    }
    match definitions.train().map_err(|m| report.error(beginning(), m))? {
        None => {
            let usual = Train::default();
            let dtype = asked.dtype.unwrap_or(usual.dtype);
            Ok((Train { dtype, ..usual }, NoDecay::default()))
        }
        Some(section) => resolve_section(section, asked, report),
    }
}

fn resolve_section(
    section: &Section,
    asked: Asked,
    report: &mut Report,
) -> Known<(Train, NoDecay)> {
    let settings = Settings::new("train", &section.entries, &KEYS, report);
    let usual = Train::default();
    let data = settings.get("data").map(|entry| data(entry, report));
    let batch = settings.whole("batch", 1, limit::BATCH.into(), report);
    let chosen = settings
        .get("optimizer")
        .map(|entry| single(entry, report).and_then(|value| optimizer(value, report)));
    let steps = settings.whole("steps", 0, STEPS_MAX, report);
    let seed = settings.whole("seed", 0, SEED_MAX, report);
    let evaluate = settings.get("evaluate").map(|entry| evaluate(entry, report));
    let dtype = settings.get("dtype").map(|entry| dtype(entry, report));
    let (optimizer, no_decay) =
        chosen.transpose()?.unwrap_or_else(|| (usual.optimizer, NoDecay::default()));
    let train = Train {
        data: data.transpose()?.unwrap_or(usual.data),
        batch: batch?.and_then(|batch| u32::try_from(batch).ok()).unwrap_or(usual.batch),
        seed: seed?.unwrap_or(usual.seed),
        steps: steps?.unwrap_or(usual.steps),
        dtype: asked.dtype.or(dtype.transpose()?).unwrap_or(usual.dtype),
        optimizer,
        evaluate: evaluate.transpose()?.unwrap_or(usual.evaluate),
    };
    match asked.optimizer {
        OptimizerIn::File => hold_optimizer(&train, &no_decay, report),
        OptimizerIn::Setting => {}
    }
    Ok((train, no_decay))
}

/// The type of the training has the numbers of its optimizer.
pub(super) fn hold_optimizer(train: &Train, no_decay: &NoDecay, report: &mut Report) {
    let constants = held::of_optimizer(&train.optimizer).into_iter();
    hold(constants.map(|constant| (no_decay.span, constant)), train.dtype, report);
}

/// `evaluate { every 50 }`.
fn evaluate(entry: &Entry, report: &mut Report) -> Known<Evaluation> {
    let inner = Settings::new("evaluate", &entry.entries, &EVALUATE_KEYS, report);
    let every = inner.whole("every", 1, STEPS_MAX, report)?;
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

/// `dtype f32`, `dtype bf16`, `dtype bf16 { gradients f32 }`.
pub(super) fn dtype(entry: &Entry, report: &mut Report) -> Known<Float> {
    let types = ["f32", "f64", "bf16", "f16"];
    let chosen = only_value(entry, report)?;
    let (name, given) = called(chosen, "f32, f64, bf16 or f16", report)?;
    let text = &name.text;
    let inner = Settings::new("dtype", &entry.entries, &DTYPE_KEYS, report);
    let gradients = match inner.get("gradients") {
        None => text.clone(),
        Some(entry) => gradients(entry, text, report)?,
    };
    let sums = if gradients == *text { GradientSums::Same } else { GradientSums::F32 };
    let dtype = match (text.as_str(), sums) {
        ("f32", _) => Float::F32,
        ("f64", GradientSums::Same) => Float::F64,
        ("f64", GradientSums::F32) => {
            let message = "gradients of f64 are summed in f64";
            let mistake = Mistake::new(Code::Value, message).hint("delete `gradients`");
            return Err(report.error(entry.key.span, mistake));
        }
        ("bf16", sums) => Float::Bf16(sums),
        ("f16", sums) => Float::F16(sums),
        (other, _) => {
            return Err(unknown_word("element type", other, &types, name.span, report));
        }
    };
    no_arguments(&name, given, report)?;
    Ok(dtype)
}

/// `gradients f32`, or the type itself.
fn gradients(entry: &Entry, dtype: &str, report: &mut Report) -> Known<String> {
    let (sums, given) = called(single(entry, report)?, "f32", report)?;
    let known: BTreeSet<&str> = ["f32", dtype].into();
    let known: Vec<&str> = known.into_iter().collect();
    if !known.contains(&sums.text.as_str()) {
        let what = "type of gradients";
        return Err(unknown_word(what, &sums.text, &known, sums.span, report));
    }
    no_arguments(&sums, given, report)?;
    Ok(sums.text)
}
