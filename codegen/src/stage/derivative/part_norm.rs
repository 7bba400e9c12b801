//! Normalisation over an extent that several devices divide: sums of own features meet, in the
//! forward pass and in the backward pass.

use super::{Derivative, Site, norm::with_epsilon, part::along};
use crate::stage::call::{Step, Term, call};
use roundelay_schedule::{Element, Line};

/// What becomes of own sums, one or more for each row: everybody has those of all.
struct Sums<'a> {
    site: &'a Site<'a>,
    line: Line,
    next: u32,
}

impl Sums<'_> {
    /// The array that a call writes, the one behind the exchange, and the exchange.
    fn meet(&mut self, elements: u64) -> (Term, Term, Step) {
        let [own, all] = [self.next, self.next + 1].map(|number| Term {
            element: Element::Wide,
            ..self.site.scratch(number, &[elements])
        });
        self.next += 2;
        let rows = |term: &Term| term.clone().rows_of(elements);
        let step = along(call("all_reduce", [rows(&own), rows(&all)]), self.line);
        (own, all, step)
    }
}

/// y = (x − mean) / σ · gain + bias: totals meet, then squares around the mean of all.
pub(super) fn layer_norm(
    site: &Site<'_>,
    epsilon: f64,
    (whole, line): (u64, Line),
) -> Derivative {
    let [x, gain, bias] = site.operands();
    let (x, y, dy) = (x.matrix(), site.result().matrix(), site.gradient().matrix());
    let rows = x.shape[0];
    let [mean, rstd] = [0, 1].map(|number| site.auxiliary(number, &[rows]));
    let [gain, bias] = [gain, bias].map(Term::flat);
    let of = |step: Step| step.flag("centered").count("whole", whole);
    let mut sums = Sums { site, line, next: 0 };
    let (own, totals, total) = sums.meet(rows);
    let (around, squares, square) = sums.meet(rows);
    let norm = [x.clone(), gain.clone(), bias, totals.clone(), squares, y];
    let norm = norm.into_iter().chain([mean.clone(), rstd.clone()]);
    let mut last = call("norm_part", []);
    last.terms.extend(norm);
    let forward = vec![
        call("norm_part_sums", [x.clone(), own]),
        total,
        of(call("norm_part_squares", [x.clone(), totals, around])),
        square,
        with_epsilon(of(last), epsilon),
    ];
    let mut backward = Vec::new();
    if let Some(dx) = site.contribution(0) {
        let (own, slopes, meet) = sums.meet(2 * rows);
        let terms =
            [x.clone(), gain.clone(), mean.clone(), rstd.clone(), dy.clone(), own];
        let first = call("norm_part_slopes", terms).flag("centered");
        let kept = [mean.clone(), rstd.clone(), dy.clone(), slopes, dx.matrix()];
        let mut last = call("norm_part_backward", [x.clone(), gain]);
        last.terms.extend(kept);
        backward.extend([first, meet, of(last)]);
    }
    if site.wanted(1) || site.wanted(2) {
        let dgain = site.contribution_or_scratch(1, 0).flat();
        let dbias = site.contribution_or_scratch(2, 1).flat();
        let terms = [x, mean, rstd, dy, dgain, dbias];
        backward.push(call("layer_norm_parameters", terms));
    }
    Derivative { forward, backward }
}

/// y = x · rstd · gain: squares meet.
pub(super) fn rms_norm(
    site: &Site<'_>,
    epsilon: f64,
    (whole, line): (u64, Line),
) -> Derivative {
    let [x, gain] = site.operands();
    let (x, y, dy) = (x.matrix(), site.result().matrix(), site.gradient().matrix());
    let (rows, gain) = (x.shape[0], gain.flat());
    let rstd = site.auxiliary(0, &[rows]);
    let of = |step: Step| step.count("whole", whole);
    let mut sums = Sums { site, line, next: 0 };
    let (own, squares, square) = sums.meet(rows);
    let norm = call("norm_part", [x.clone(), gain.clone(), squares, y, rstd.clone()]);
    let forward = vec![
        of(call("norm_part_squares", [x.clone(), own])),
        square,
        with_epsilon(of(norm), epsilon),
    ];
    let mut backward = Vec::new();
    if let Some(dx) = site.contribution(0) {
        let (own, slopes, meet) = sums.meet(rows);
        let terms = [x.clone(), gain.clone(), rstd.clone(), dy.clone(), own];
        let kept = [x.clone(), gain, rstd.clone(), dy.clone(), slopes, dx.matrix()];
        let first = call("norm_part_slopes", terms);
        backward.extend([first, meet, of(call("norm_part_backward", kept))]);
    }
    let gain = |dgain: Term| {
        call("norm_part_gain", [x.clone(), rstd.clone(), dy.clone(), dgain.flat()])
    };
    backward.extend(site.each([(1, &gain)]));
    Derivative { forward, backward }
}
