//! The classes of a loss: which of them are here, which targets count, and what follows for a row.

use crate::{Context, Real, fast::loss as fast, loss::Slopes, store::Store};
use std::ops::Range;

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
    /// A sum over the rows that count, divided by their number; zero without any.
    pub(crate) fn mean(&self, sum: f64, targets: &[i32]) -> f64 {
        let count = targets.iter().filter(|target| self.counts(**target)).count();
        if count == 0 { 0.0 } else { sum / count as f64 }
    }
    /// One over the number of rows that count; zero without any.
    pub(crate) fn share(&self, targets: &[i32]) -> f64 {
        self.mean(1.0, targets)
    }
    /// A sum, and lse − logit of the target of each row that counts, one after another.
    pub(crate) fn add_losses<R: Real>(
        &self,
        sum: f64,
        (logits, targets, lse): (&[R], &[i32], &[R]),
    ) -> f64 {
        let rows = logits.chunks(self.each).zip(targets).zip(lse);
        let each = rows.filter_map(|((row, target), lse)| {
            self.place(*target).map(|class| (*lse - row[class]).widen())
        });
        each.fold(sum, |sum, loss| sum + loss)
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
