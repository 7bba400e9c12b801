//! `cuts [3, 9]`: where stages begin, and what that must go with.

use super::settings::{single, whole};
use crate::{
    Code, Mistake, Numbers, Program, Search,
    report::{Known, Report},
    syntax::{Entry, ExpressionKind},
};
use roundelay_schedule::counted;

/// `cuts [3, 9]`.
pub(super) fn cuts(entry: &Entry, report: &mut Report) -> Known<Vec<u32>> {
    let value = single(entry, report)?;
    let ExpressionKind::Shape(items) = &value.kind else {
        let mistake = Mistake::new(Code::Type, "expected node numbers such as `[3, 9]`");
        return Err(report.error(value.span, mistake));
    };
    let mut cuts: Vec<u32> = Vec::new();
    for item in items {
        let cut = whole(item, 1, u64::from(u32::MAX), report)?;
        let cut = u32::try_from(cut).unwrap_or(u32::MAX);
        if cuts.last().is_some_and(|last| *last >= cut) {
            let mistake = Mistake::new(Code::Value, "cuts must ascend");
            return Err(report.error(item.span, mistake));
        }
        cuts.push(cut);
    }
    Ok(cuts)
}

/// The last cut, where it lies behind the model under every rule that the program names.
pub(super) fn behind(program: &Program) -> Option<Mistake> {
    let last = *program.search.cuts.as_ref()?.last()?;
    let models = program.under_each().into_iter().flatten();
    let nodes = models.map(|own| own.model.cuttable()).max()?;
    let message = format!("cut {last} lies behind the model's {nodes} operations");
    let hint =
        format!("cuts are the numbers of operations that begin a stage, below {nodes}");
    (last as usize >= nodes).then(|| Mistake::new(Code::Value, message).hint(hint))
}

/// What does not allow the number of stages that pinned cuts make: `stages`, or the lists of
/// `order`.
pub(super) fn other_stages(search: &Search) -> Option<(&'static str, Mistake)> {
    let made = search.cuts.as_ref()?.len() as u64 + 1;
    if search.stages_to_try().allows(made) {
        return None;
    }
    let (key, refuses, hint) = match search.stages {
        Numbers::Open => (
            "order",
            format!("the lists of `order` do not have {}", counted(made, "stage")),
            "name lists with as many, or other cuts".to_owned(),
        ),
        Numbers::Ranges(_) => (
            "stages",
            format!("`stages` does not allow {made}"),
            format!("write `stages {made}` or other cuts, or leave one of both out"),
        ),
    };
    let message = format!("{refuses}, which is how many `cuts` make");
    Some((key, Mistake::new(Code::Value, message).hint(hint)))
}
