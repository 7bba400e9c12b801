//! What is minimised, and whether the program says what that needs.

use super::{
    definitions::{Definitions, beginning},
    optimizer::{called, no_arguments},
    settings::{Settings, single, unknown_word},
};
use crate::{
    Code, Learning, Mistake, Objective, Program, Span, Value,
    report::{Known, Report},
    syntax::{Entry, Setting},
};
use std::collections::BTreeSet;

/// `minimize step_time`.
pub(super) fn objective(entry: &Entry, report: &mut Report) -> Known<Objective> {
    let (name, given) =
        called(single(entry, report)?, "what to minimize, such as `step_time`", report)?;
    let known = Objective::ALL.map(Objective::name);
    let found = Objective::ALL.into_iter().find(|known| known.name() == name.text);
    let found = found.ok_or_else(|| {
        unknown_word("objective", &name.text, &known, name.span, report)
    })?;
    no_arguments(&name, given, report)?;
    Ok(found)
}

/// Entries of `result { … }`.
pub(super) const RESULT_KEYS: [&str; 3] = ["least_steps", "critical_batch", "staleness"];

/// `result { least_steps 1000, critical_batch 512, staleness 1 }`; keys that are not there stay
/// as they are.
pub(super) fn learning(
    learning: &mut Learning,
    entry: &Entry,
    report: &mut Report,
) -> Known<()> {
    if !matches!(entry.value, Setting::Nothing) {
        let mistake = Mistake::new(Code::Type, "`result` takes entries in braces");
        return Err(report.error(entry.key.span, mistake.hint(RESULT)));
    }
    let inner = Settings::new("result", &entry.entries, &RESULT_KEYS, report);
    let steps = inner.whole("least_steps", 1, 1 << 40, report);
    let batch = inner.whole("critical_batch", 0, 1 << 40, report);
    let staleness = inner.get("staleness").map(|entry| thousandths(entry, report));
    let (steps, batch, staleness) = (steps?, batch?, staleness.transpose()?);
    learning.least_steps = steps.or(learning.least_steps);
    learning.critical_batch = batch.or(learning.critical_batch);
    learning.staleness = staleness.or(learning.staleness);
    Ok(())
}

/// A number from 0 to 1000, in thousandths.
fn thousandths(entry: &Entry, report: &mut Report) -> Known<u64> {
    let expression = single(entry, report)?;
    let value = super::constant::constant(expression, report)?;
    let number = match &value {
        Value::Integer(_) | Value::Real(_) => value.real(),
        _ => None,
    };
    match number.filter(|number| (0.0..=1000.0).contains(number)) {
        Some(number) => Ok((number * 1000.0).round() as u64),
        None => {
            let message = format!("`{}` is a number from 0 to 1000", entry.key.text);
            Err(report.error(expression.span, Mistake::new(Code::Value, message)))
        }
    }
}

const RESULT: &str =
    "write `result { least_steps 1000, critical_batch 512, staleness 1 }` in `plan`";

/// Whether a program of one file says what its objective needs; each mistake has its place.
pub(super) fn check(
    program: &Program,
    definitions: &Definitions<'_>,
    report: &mut Report,
) {
    let asked =
        definitions.plan().ok().flatten().and_then(|plan| {
            plan.entries.iter().find(|entry| entry.key.text == "minimize")
        });
    let asked = asked.map_or(beginning(), |entry| entry.key.span);
    for (device, mistake) in lacking(program) {
        let place = device.and_then(|name| definitions.devices.get(name));
        let span: Span = place.map_or(asked, |device| device.name.span);
        let labels = place.map(|_| (asked, "because of this".to_owned()));
        report.error_with(span, mistake, labels.into_iter().collect());
    }
}

/// What a program does not say that its objective needs, each with the device that does not say
/// it.
pub(super) fn lacking(program: &Program) -> Vec<(Option<&str>, Mistake)> {
    match program.search.objective {
        Objective::StepTime | Objective::Memory | Objective::Devices => Vec::new(),
        Objective::Cost => {
            let unpriced = program
                .target
                .devices
                .iter()
                .filter(|(id, _)| !program.prices.contains_key(id))
                .map(|(_, device)| kind_of(&device.name));
            let unpriced: BTreeSet<&str> = unpriced.collect();
            unpriced.into_iter().map(|name| (Some(name), no_price(name))).collect()
        }
        Objective::TimeToResult => no_constant(program.search.learning)
            .map(|mistake| (None, mistake))
            .into_iter()
            .collect(),
    }
}

/// Why there are no models for its local rules.
pub(super) fn unmade(program: &Program) -> Vec<Mistake> {
    program.under_each().into_iter().filter_map(Result::err).collect()
}

impl Program {
    /// What its objective and its local rules need and it does not say, and numbers that kernels do not hold,
    /// with what to do; a program that was read has none of these.
    pub fn lacking(&self) -> Vec<Mistake> {
        let lacking = lacking(self).into_iter().map(|(_, mistake)| mistake);
        lacking.chain(unmade(self)).chain(self.lost_constants()).collect()
    }
}

/// The name that the device `core.3` has in the program: `core`.
pub fn kind_of(label: &str) -> &str {
    label.rsplit_once('.').map_or(label, |(kind, _)| kind)
}

fn no_price(device: &str) -> Mistake {
    let message = format!("device `{device}` has no price, which `minimize cost` needs");
    Mistake::new(Code::Missing, message)
        .hint(format!("write `price 2.5 USD/h` in `device {device}`"))
}

fn no_constant(learning: Learning) -> Option<Mistake> {
    let missing = learning.missing();
    let message = format!(
        "`minimize time_to_result` needs {} of `result`: steps to the result are \
         least_steps · (1 + staleness · τ + critical_batch / batch)",
        missing.join(", ")
    );
    let mistake = Mistake::new(Code::Missing, message).hint(RESULT);
    (!missing.is_empty())
        .then(|| mistake.hint("only runs of this model on its data tell the constants"))
}

impl Objective {
    /// Every objective.
    pub const ALL: [Self; 5] =
        [Self::StepTime, Self::Memory, Self::Devices, Self::Cost, Self::TimeToResult];

    /// Its name in the language.
    pub fn name(self) -> &'static str {
        match self {
            Self::StepTime => "step_time",
            Self::Memory => "memory",
            Self::Devices => "devices",
            Self::Cost => "cost",
            Self::TimeToResult => "time_to_result",
        }
    }
}
