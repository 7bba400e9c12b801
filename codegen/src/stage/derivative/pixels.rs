//! Images whose rows several devices divide: halos, and norms whose statistics meet.

use super::{Derivative, Site, part::along};
use crate::stage::call::{Step, Term, call};
use roundelay_dsl::Padding;
use roundelay_schedule::{Element, Line};

/// y = all rows that a window reads; dx = the sums of their gradients.
pub(super) fn halo(
    site: &Site<'_>,
    (before, step, side): (u64, u64, u64),
    padding: Padding,
    line: Line,
) -> Derivative {
    let with = |call: Step| {
        let call = along(call, line).count("before", before);
        let call = call.count("step", step).count("side", side);
        match padding {
            Padding::Zero => call,
            Padding::Lowest => call.flag("lowest"),
        }
    };
    let back = |dx| with(call("halo_add", [site.gradient(), dx]));
    Derivative {
        forward: vec![with(call("halo", [site.operand(0), site.result()]))],
        backward: site.each([(0, &back)]),
    }
}

/// One norm: x as (examples, positions, columns), with its statistics.
struct Norm<'a> {
    site: &'a Site<'a>,
    line: Line,
    groups: u64,
    /// x, y and dy have this shape.
    shape: [u64; 3],
    mean: Term,
    variance: Term,
}

/// Over all pixels of all examples, channel by channel. What adds up in the gradients of the running
/// statistics is the micro-batch's mean and unbiased variance, which all parts have alike.
pub(super) fn batch_norm(site: &Site<'_>, line: Line) -> Derivative {
    let x = site.operand(0).matrix();
    let (rows, columns) = (x.shape[0], x.shape[1]);
    let norm = Norm::new(site, line, columns, [1, rows, columns]);
    let running = [3, 4].map(|operand| site.operand(operand).flat());
    let mut statistics = norm.statistics();
    statistics.terms.splice(1..1, running);
    let mut derivative = norm.derivative(statistics.flag("running"));
    let all = (rows * u64::from(line.parts)) as f64;
    let (mean, variance) = (norm.mean.flat(), norm.variance.flat());
    derivative.backward.extend(site.each([
        (3, &|sum: Term| call("copy", [mean.clone(), sum.flat()])),
        (4, &|sum: Term| {
            let scaled = call("scale", [variance.clone(), sum.flat()]);
            scaled.real("factor", all / (all - 1.0))
        }),
    ]));
    derivative
}

/// Over all pixels of each example and the channels of one group.
pub(super) fn group_norm(site: &Site<'_>, groups: u64, line: Line) -> Derivative {
    let x = site.operand(0);
    let examples = x.shape.first().copied().unwrap_or(1);
    let columns = x.shape.last().copied().unwrap_or(1);
    let positions = x.elements() / examples.saturating_mul(columns).max(1);
    let norm = Norm::new(site, line, groups, [examples, positions, columns]);
    norm.derivative(norm.statistics())
}

impl<'a> Norm<'a> {
    fn new(site: &'a Site<'a>, line: Line, groups: u64, shape: [u64; 3]) -> Self {
        let kept = |which| site.auxiliary(which, &[shape[0], groups]);
        let (mean, variance) = (kept(0), kept(1));
        Self { site, line, groups, shape, mean, variance }
    }

    fn numbers(&self) -> u64 {
        self.shape[0] * self.groups
    }

    /// Elements of one statistic that each part has.
    fn count(&self) -> u64 {
        self.shape[1] * self.shape[2] / self.groups.max(1)
    }

    fn array(&self, term: Term) -> Term {
        Term { shape: self.shape[..].into(), ..term }
    }

    fn of(&self, step: Step) -> Step {
        step.count("groups", self.groups)
    }

    /// Sums of one part, or those of this many.
    fn sums(&self, which: u32, parts: u64) -> Term {
        let shape = [parts, 2 * self.numbers()];
        Term { element: Element::Wide, ..self.site.scratch(which, &shape) }
    }

    /// The call that joins the moments of all parts.
    fn statistics(&self) -> Step {
        let all = self.sums(1, u64::from(self.line.parts));
        let terms = [all, self.mean.clone().flat(), self.variance.clone().flat()];
        call("pixel_norm_statistics", terms).count("count", self.count())
    }

    /// The calls of both passes around the one that joins moments.
    fn derivative(&self, statistics: Step) -> Derivative {
        let site = self.site;
        let [gain, bias] = [1, 2].map(|operand| site.operand(operand).flat());
        let x = self.array(site.operand(0));
        let (own, all) = (self.sums(0, 1), self.sums(1, u64::from(self.line.parts)));
        let gathered = all.clone().flat();
        let terms = [
            own.clone(),
            Term { shape: [1, gathered.elements()][..].into(), ..gathered },
        ];
        let y = self.array(site.result());
        let (mean, variance) = (self.mean.clone(), self.variance.clone());
        let norm = [x.clone(), gain, bias, mean, variance, y];
        let forward = vec![
            self.of(call("pixel_norm_moments", [x, own])),
            along(call("all_gather", terms), self.line),
            statistics,
            self.of(call("pixel_norm", norm)),
        ];
        Derivative { forward, backward: self.backward() }
    }

    fn backward(&self) -> Vec<Step> {
        let site = self.site;
        let x = self.array(site.operand(0));
        let (gain, dy) = (site.operand(1).flat(), self.array(site.gradient()));
        let [mean, variance] = [&self.mean, &self.variance].map(Clone::clone);
        let mut backward = Vec::new();
        if let Some(dx) = site.contribution(0) {
            let [own, all] = [2, 3].map(|which| self.sums(which, 1));
            let kept = [x.clone(), gain, mean.clone(), variance.clone(), dy.clone()];
            let with = |name, more: Vec<Term>| {
                let mut step = self.of(call(name, kept.clone()));
                step.terms.extend(more);
                step
            };
            let count = self.count() * u64::from(self.line.parts);
            let first = with("pixel_norm_slopes", vec![own.clone()]);
            let meet = along(call("all_reduce", [own, all.clone()]), self.line);
            let last = with("pixel_norm_backward", vec![all, self.array(dx)]);
            backward.extend([first, meet, last.count("count", count)]);
        }
        if site.wanted(1) || site.wanted(2) {
            let dgain = site.contribution_or_scratch(1, 0).flat();
            let dbias = site.contribution_or_scratch(2, 1).flat();
            let terms = [x, mean, variance, dy, dgain, dbias];
            backward.push(self.of(call("pixel_norm_parameters", terms)));
        }
        backward
    }
}
