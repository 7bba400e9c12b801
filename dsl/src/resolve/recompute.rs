//! `recompute none | selective(share = 0.25) | full`: what stages compute again.

use super::{constant::made, optimizer::called, plan::word};
use crate::{
    report::{Known, Report},
    signature::{Fallback, Formal, optional},
    syntax::Expression,
};
use roundelay_schedule::{Recompute, Share};

/// What may be said of a way: for which share of each stage it holds.
const FORMALS: &[Formal] = &[optional("share", Fallback::Number(1.0))];

/// One way to compute again.
pub(super) fn recompute(value: &Expression, report: &mut Report) -> Known<Recompute> {
    let (name, given) = called(value, "a name of recompute such as `full`", report)?;
    let (callee, whole, some): (_, _, fn(Share) -> Recompute) = match &*name.text {
        "selective" => ("selective", Recompute::Selective, Recompute::SelectiveIn),
        "full" => ("full", Recompute::Full, Recompute::FullIn),
        _ => return word(value, "recompute", Recompute::ALL, report),
    };
    made(callee, FORMALS, given, value.span, report, |arguments| {
        let share = arguments.real_in("share", 0.001, 1.0)?;
        Ok(Share::nearest(share).map_or(whole, some))
    })
}
