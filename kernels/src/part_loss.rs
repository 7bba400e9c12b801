//! Cross-entropy where each of several devices has the logits of some classes:
//! `cross_entropy_part` before the sums meet, `cross_entropy_join` after, and the gradient.

use crate::{
    Context, Real,
    fast::loss as fast,
    kernel::Define,
    loss::{Slopes, logits_and_targets},
    operand::Operands,
    part::{no_more, own, whole},
    plain::part as plain,
    signature::{Signature, product},
    store::Store,
    team::{for_each_part, rows_per_part},
};
use roundelay_schedule::Access;
use std::ops::Range;

/// sums (2, m): lse of the own logits (m, c), and the target's logit where it is among them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CrossEntropyPart {
    pub(crate) rows: usize,
    pub(crate) each: usize,
    pub(crate) all: All,
}

/// lse (m) and the loss from sums (p, 2, m) of all parts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CrossEntropyJoin {
    pub(crate) rows: usize,
    pub(crate) parts: usize,
    pub(crate) all: All,
}

/// dlogits (m, c) = (softmax − one-hot) / count for the own classes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CrossEntropyPartBackward {
    pub(crate) rows: usize,
    pub(crate) each: usize,
    pub(crate) all: All,
    pub(crate) store: Store,
}

/// Which targets there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct All {
    pub(crate) classes: usize,
    /// The number of classes itself stands for none.
    pub(crate) masked: bool,
}

/// The classes of one device.
pub(crate) struct Classes {
    pub(crate) all: All,
    /// Room for so many in a row.
    pub(crate) each: usize,
    /// Those that exist.
    pub(crate) own: Range<usize>,
}

impl All {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        Ok(Self { classes: whole(call)?, masked: call.flag("masked")? })
    }
    /// The own logits (m, c) and the targets (m).
    fn logits_and_targets(
        self,
        call: &mut Signature<'_>,
    ) -> Result<(usize, usize), String> {
        let (rows, each) = logits_and_targets(call)?;
        no_more(each, self.classes).map(|()| (rows, each))
    }
    fn of(self, context: &Context, each: usize) -> Classes {
        Classes { all: self, each, own: own(context, self.classes, each) }
    }
}

impl Classes {
    /// All classes are here.
    pub(crate) fn whole(all: All) -> Self {
        Self { all, each: all.classes, own: 0..all.classes }
    }
    /// Whether a row with this target counts.
    pub(crate) fn counts(&self, target: i32) -> bool {
        let All { classes, masked } = self.all;
        let class = usize::try_from(target).unwrap_or(usize::MAX);
        let none = masked && class == classes;
        assert!(
            none || class < classes,
            "target {target} is outside of {classes} classes"
        );
        !none
    }
    /// Where a target stands among the own classes.
    pub(crate) fn place(&self, target: i32) -> Option<usize> {
        let class = target as usize;
        let here = self.counts(target) && self.own.contains(&class);
        here.then(|| class - self.own.start)
    }
    /// One over the number of rows that count; zero without any.
    pub(crate) fn share(&self, targets: &[i32]) -> f64 {
        let count = targets.iter().filter(|target| self.counts(**target)).count();
        if count == 0 { 0.0 } else { 1.0 / count as f64 }
    }
    /// Σ of lse − logit of the target over the rows that count, from the first to the last.
    pub(crate) fn losses<R: Real>(
        &self,
        logits: &[R],
        targets: &[i32],
        lse: &[R],
    ) -> f64 {
        let rows = logits.chunks(self.each).zip(targets).zip(lse);
        let each = rows.filter_map(|((row, target), lse)| {
            self.place(*target).map(|class| (*lse - row[class]).widen())
        });
        each.sum()
    }
    /// dlogits = (softmax − one-hot) · mean for the own classes in the rows that count, zero in the
    /// others, on all threads.
    pub(crate) fn slopes<R: Real>(
        &self,
        slopes: Slopes<'_, R>,
        mean: R,
        store: Store,
        context: &Context,
    ) {
        slopes.each_row(context, |row, lse, target, out| {
            let share = if self.counts(target) { mean } else { R::ZERO };
            let (out, behind) = out.split_at_mut(self.own.len());
            row.part(0..out.len()).replace(out, |_, row, out| {
                fast::softmax_share(row, out, lse, share, store);
            });
            store.clear(behind);
            if let Some(class) = self.place(target) {
                out[class] -= share;
            }
        });
    }
}

impl Define for CrossEntropyPart {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let all = All::parse(call)?;
        let (rows, each) = all.logits_and_targets(call)?;
        call.vector("sums", Access::Write, 2 * rows)?;
        Ok(Self { rows, each, all })
    }
    fn flops(&self) -> u64 {
        product([11, self.rows, self.each])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (logits, targets) = (operands.read(), operands.integers());
        let (lse, picked) = operands.write().split_at_mut(self.rows);
        let classes = self.all.of(context, self.each);
        let rows = rows_per_part(context.threads, self.rows, 11 * self.each);
        let values = logits.chunks(rows * self.each).zip(targets.chunks(rows));
        let sums = lse.chunks_mut(rows).zip(picked.chunks_mut(rows));
        for_each_part(values.zip(sums), |((logits, targets), (lse, picked))| {
            let rows = logits.chunks(self.each).zip(targets);
            for ((row, target), (lse, picked)) in rows.zip(lse.iter_mut().zip(picked)) {
                let row = &row[..classes.own.len()];
                *lse = R::NEGATIVE_INFINITY;
                if !row.is_empty() {
                    fast::log_sums(row, std::slice::from_mut(lse));
                }
                *picked = classes.place(*target).map_or(R::ZERO, |class| row[class]);
            }
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (logits, targets) = (operands.read(), operands.integers());
        let classes = self.all.of(context, self.each);
        plain::cross_entropy_part(logits, targets, operands.write(), &classes);
    }
}

impl Define for CrossEntropyJoin {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let all = All::parse(call)?;
        let sums = call.any("sums", Access::Read)?;
        let rows = call.integers("targets")?;
        if sums == 0 || !sums.is_multiple_of(2 * rows) {
            return Err(format!("`sums` has {sums} numbers for {rows} targets"));
        }
        call.vector("lse", Access::Write, rows)?;
        call.vector("loss", Access::Write, 1)?;
        Ok(Self { rows, parts: sums / (2 * rows), all })
    }
    fn flops(&self) -> u64 {
        product([11, self.rows, self.parts])
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (sums, targets) = (operands.read(), operands.integers());
        let (lse, loss) = (operands.write(), operands.write());
        let classes = self.all.of(context, 0);
        loss[0] = plain::cross_entropy_join(sums, targets, lse, &classes);
    }
}

impl Define for CrossEntropyPartBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let all = All::parse(call)?;
        let (rows, each) = all.logits_and_targets(call)?;
        call.vector("lse", Access::Read, rows)?;
        call.shaped("dlogits", store.access(), (rows, each))?;
        Ok(Self { rows, each, all, store })
    }
    fn flops(&self) -> u64 {
        product([11, self.rows, self.each])
    }
    fn replaces(&self) -> Option<[usize; 2]> {
        self.store.replaces([0, 3])
    }
    fn fast<R: Real>(&self, operands: Operands<'_, R>, context: &Context) {
        let slopes = Slopes::new(operands);
        let classes = self.all.of(context, self.each);
        let mean = R::of(classes.share(slopes.targets));
        classes.slopes(slopes, mean, self.store, context);
    }
    fn plain<R: Real>(&self, operands: Operands<'_, R>, context: &Context) {
        let classes = self.all.of(context, self.each);
        let slopes = Slopes::new(operands);
        plain::cross_entropy_part_backward(slopes, &classes, self.store);
    }
}
