//! The square of the norm of a mean gradient, or what a part has of it: parts of it are added up, and
//! who holds an element together with others counts its share of it.

use crate::{
    Context, Real,
    fast::optimizer as fast,
    kernel::Define,
    operand::Operands,
    plain::optimizer as plain,
    signature::{Signature, product},
};
use roundelay_schedule::Access;
use std::ops::Range;

/// Σ (g · share)² over a slice of a stage's flat gradient.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Squares {
    pub(crate) count: usize,
    pub(crate) micro_batches: f64,
    /// What does not count in full; ascending, disjoint.
    pub(crate) copied: Vec<Copied>,
}

/// Elements of the stage's flat parameters that so many hold, each of whom counts an equal share
/// of their squares; with no copies they do not count, as running averages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) copies: u64,
}

impl Squares {
    /// The runs of a slice that starts at `offset`, in order, and how many hold each.
    fn runs(&self, offset: u64) -> impl Iterator<Item = (Range<usize>, u64)> {
        let end = offset.saturating_add(self.count as u64);
        let local = move |at: u64| (at.clamp(offset, end) - offset) as usize;
        let copied = self.copied.iter();
        let copied =
            copied.map(move |own| (local(own.begin)..local(own.end), own.copies));
        let mut done = 0;
        copied.chain([(self.count..self.count, 1)]).flat_map(move |(range, copies)| {
            let before = done..range.start;
            done = range.end;
            [(before, 1), (range, copies)]
        })
    }

    fn total<R: Real>(
        &self,
        gradient: &[R],
        offset: u64,
        squares: fn(&[R], f64) -> f64,
    ) -> R {
        let share = 1.0 / self.micro_batches;
        let runs = self.runs(offset).filter(|(_, copies)| *copies > 0);
        let each =
            runs.map(|(range, copies)| squares(&gradient[range], share) / copies as f64);
        R::of(each.sum())
    }
}

impl Define for Squares {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let micro_batches = call.integer("micro_batches", "at least 1", |n| n >= 1)?;
        let copied = call.numbered_ranges("copied")?.into_iter();
        let copied =
            copied.map(|[begin, end, copies]| Copied { begin, end, copies }).collect();
        let count = call.any("gradient", Access::Read)?;
        call.vector("squares", Access::Write, 1)?;
        Ok(Self { count, micro_batches: micro_batches as f64, copied })
    }
    fn flops(&self) -> u64 {
        product([3, self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let gradient = operands.read();
        operands.write()[0] = self.total(gradient, context.slice_offset, fast::squares);
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let gradient = operands.read();
        operands.write()[0] = self.total(gradient, context.slice_offset, plain::squares);
    }
}
