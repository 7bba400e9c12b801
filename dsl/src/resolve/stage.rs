//! `stage` entries of the `plan` section: decisions that a program pins for some stages.

use super::{
    plan::range,
    recompute::recompute,
    settings::{Settings, single},
};
use crate::{
    Code, Mistake, PinnedStages,
    report::{Known, Report},
    syntax::{Choice, Entry, Setting},
};

/// What may be pinned for some stages.
pub(super) const STAGE_KEYS: [&str; 1] = ["recompute"];

/// `stage 0..1 { recompute full }`; stages count from zero.
pub(super) fn pinned(entry: &Entry, report: &mut Report) -> Known<PinnedStages> {
    let (first, last) = range(stages(entry, report)?, 0, report)?;
    let inner = Settings::new("stage", &entry.entries, &STAGE_KEYS, report);
    let Some(given) = inner.get("recompute") else {
        if !entry.entries.is_empty() {
            return Err(report.earlier());
        }
        let mistake = Mistake::new(Code::Missing, "`stage` pins nothing");
        let hint = "write `stage 0 .. 1 { recompute full }`";
        return Err(report.error(entry.key.span, mistake.hint(hint)));
    };
    let recompute = recompute(single(given, report)?, report)?;
    let number = |stage| u32::try_from(stage).unwrap_or(u32::MAX);
    Ok(PinnedStages { first: number(first), last: number(last), recompute })
}

/// One stage, or a range of them.
fn stages<'a>(entry: &'a Entry, report: &mut Report) -> Known<&'a Choice> {
    if let Setting::OneOf(choices) = &entry.value
        && let [choice] = &choices[..]
    {
        return Ok(choice);
    }
    let mistake = Mistake::new(Code::Type, "`stage` takes one stage or a range of them");
    let hint = "write `stage 0 .. 1 { recompute full }`, one entry per range";
    Err(report.error(entry.key.span, mistake.hint(hint)))
}
