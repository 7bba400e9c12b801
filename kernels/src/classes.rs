//! The classes of a loss: which of them are here, which targets count, and what follows for a row.

use crate::{
    Context, Real, fast::loss as fast, loss::Slopes, operand::Operands,
    signature::Signature, store::Store,
};
use roundelay_schedule::Access;
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
    /// Room for this many in a row.
    pub(crate) each: usize,
    /// Those that exist.
    pub(crate) own: Range<usize>,
}

/// What rows count in a sum over them.
#[derive(Clone, Copy)]
pub(crate) enum Weights<'a, R> {
    /// Each the same, of this many.
    Same(usize),
    /// Of each this many neighbours what one number says, from row `first` on.
    Shares { numbers: &'a [R], alike: usize, first: usize },
}

impl All {
    /// The next operand where some rows do not count, which has shares of `rows` rows: how many
    /// neighbours have one in common.
    pub(crate) fn shares(
        self,
        call: &mut Signature<'_>,
        rows: usize,
    ) -> Result<usize, String> {
        if !self.masked {
            return Ok(rows);
        }
        let shares = call.any("shares", Access::Read)?;
        match shares > 0 && rows.is_multiple_of(shares) {
            true => Ok(rows / shares),
            false => Err(format!("there are {shares} `shares` for {rows} rows")),
        }
    }
}

impl<'a, R: Real> Weights<'a, R> {
    /// Those of `rows` rows: the next operand where some of them do not count.
    pub(crate) fn new(all: All, rows: usize, operands: &mut Operands<'a, R>) -> Self {
        if !all.masked {
            return Self::Same(rows);
        }
        let numbers = operands.read();
        Self::Shares { numbers, alike: rows / numbers.len(), first: 0 }
    }
    /// Those of the rows from number `rows` on.
    pub(crate) fn behind(self, rows: usize) -> Self {
        match self {
            Self::Same(count) => Self::Same(count),
            Self::Shares { numbers, alike, first } => {
                Self::Shares { numbers, alike, first: first + rows }
            }
        }
    }
    /// What a sum grows by with a row that counts.
    pub(crate) fn term(self, row: usize, number: R) -> f64 {
        match self {
            Self::Same(_) => number.widen(),
            Self::Shares { .. } => number.widen() * self.share(row).widen(),
        }
    }
    /// What comes of the sum of all terms.
    pub(crate) fn mean(self, sum: f64) -> R {
        match self {
            Self::Same(rows) => R::of(sum / rows as f64),
            Self::Shares { .. } => R::of(sum),
        }
    }
    /// The share of a row that counts.
    pub(crate) fn share(self, row: usize) -> R {
        match self {
            Self::Same(rows) => R::of(1.0 / rows as f64),
            Self::Shares { numbers, alike, first } => numbers[(first + row) / alike],
        }
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
    /// A sum, and the term of lse − logit of the target for each row that counts, one after another.
    pub(crate) fn add_losses<R: Real>(
        &self,
        sum: f64,
        (logits, targets, lse): (&[R], &[i32], &[R]),
        weights: Weights<'_, R>,
    ) -> f64 {
        let rows = logits.chunks(self.each).zip(targets).zip(lse).enumerate();
        let each = rows.filter_map(|(i, ((row, target), lse))| {
            self.place(*target).map(|class| weights.term(i, *lse - row[class]))
        });
        each.fold(sum, |sum, loss| sum + loss)
    }
    /// dlogits = (softmax − one-hot) · share for the own classes in the rows that count, zero in the
    /// others, on all threads.
    pub(crate) fn slopes<R: Real>(
        &self,
        slopes: Slopes<'_, R>,
        store: Store,
        context: &Context,
    ) {
        slopes.each_row(context, |row, lse, (target, share), out| {
            let share = if self.counts(target) { share } else { R::ZERO };
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
