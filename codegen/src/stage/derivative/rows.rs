//! Rows of sequences (b, s, n) and tables: one more in front, one alone, some of them.

use super::{Derivative, Site};
use crate::stage::call::{Step, Term, call};

/// y = the token, then x, in every example; dx = the later rows of dy, dtoken = the sum of its
/// first ones.
pub(super) fn class_token(site: &Site<'_>) -> Derivative {
    let [x, token] = site.operands();
    let (dy, width) = (site.gradient(), token.elements());
    let examples = dy.elements().saturating_sub(x.elements()) / width.max(1);
    let later = |dx| call("slice", [dy.clone(), dx]).integer("first", 1);
    let mut backward = site.each([(0, &later)]);
    if let Some(dtoken) = site.contribution(1) {
        let first = site.scratch(0, &[examples, width]);
        backward.push(call("slice", [dy.clone(), first.clone()]).integer("first", 0));
        backward.push(call("sum_rows", [first, dtoken.flat()]));
    }
    Derivative {
        forward: vec![call("prepend", [x, token.flat(), site.result()])],
        backward,
    }
}

/// y = row `index` of every example; dx = dy there, zero elsewhere.
pub(super) fn select(site: &Site<'_>, index: u64) -> Derivative {
    let back =
        |dx: Term| call("slice_backward", [site.gradient(), dx]).count("first", index);
    let forward = call("slice", [site.operand(0), site.result()]).count("first", index);
    Derivative { forward: vec![forward], backward: site.each([(0, &back)]) }
}

/// y = rows `first` .. of a table; dtable = dy there, zero elsewhere.
pub(super) fn rows(site: &Site<'_>, first: u64) -> Derivative {
    let cut = |step: Step| step.count("first", first);
    let back = |dtable: Term| cut(call("slice_backward", [site.gradient(), dtable]));
    let forward = cut(call("slice", [site.operand(0), site.result()]));
    Derivative { forward: vec![forward], backward: site.each([(0, &back)]) }
}
