//! The square of the norm of a mean gradient, or what a part has of it: parts of it are added up, here
//! or later, and who holds an element together with others counts its share of it.

use super::treatment::runs;
use crate::{
    Context, Real,
    fast::optimizer as fast,
    kernel::Define,
    operand::Operands,
    plain::optimizer as plain,
    segments::Segments,
    signature::{Signature, product},
    store::Store,
};
use roundelay_schedule::Access;
use std::ops::Range;

/// Operations per element, which comes from memory, for the split over threads.
const COST: usize = 6;

/// The sum over the elements of a gradient of what `work` says of their segments.
pub(crate) fn over_segments(
    count: usize,
    context: &Context,
    work: impl Fn(Range<usize>) -> f64 + Sync,
) -> f64 {
    Segments::new(count, COST).sum(context.threads, count, work)
}

/// Σ (g · share)² over a slice of a stage's flat gradient, or that and what others have found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Squares {
    pub(crate) count: usize,
    pub(crate) micro_batches: f64,
    /// What does not count in full; ascending, disjoint.
    pub(crate) copied: Vec<Copied>,
    pub(crate) store: Store,
}

/// Elements of the stage's flat parameters that this many hold, each of whom counts an equal share
/// of their squares; with no copies they do not count, as running averages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) copies: u64,
}

impl Squares {
    /// The runs of a slice that starts at `offset`, in order, and how many hold each.
    fn runs(
        &self,
        offset: u64,
        length: usize,
    ) -> impl Iterator<Item = (Range<usize>, u64)> {
        let copied = self.copied.iter().map(|own| (own.begin, own.end, own.copies));
        runs(offset, length, copied).map(|(range, copies)| (range, copies.unwrap_or(1)))
    }

    fn total<R: Real>(
        &self,
        gradient: &[R],
        context: &Context,
        squares: fn(&[R], f64) -> f64,
        out: &mut R,
    ) {
        let share = 1.0 / self.micro_batches;
        let total = over_segments(self.count, context, |segment| {
            let offset = context.slice_offset + segment.start as u64;
            let gradient = &gradient[segment];
            let runs =
                self.runs(offset, gradient.len()).filter(|(_, copies)| *copies > 0);
            runs.map(|(range, copies)| squares(&gradient[range], share) / copies as f64)
                .sum()
        });
        let before = match self.store {
            Store::Write => 0.0,
            Store::Add => out.widen(),
        };
        *out = R::of(before + total);
    }
}

impl Define for Squares {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let micro_batches = call.count("micro_batches")?;
        let copied = call.numbered_ranges("copied")?.into_iter();
        let copied =
            copied.map(|[begin, end, copies]| Copied { begin, end, copies }).collect();
        let store = call.store()?;
        let count = call.any("gradient", Access::Read)?;
        call.vector("squares", store.access(), 1)?;
        Ok(Self { count, micro_batches: micro_batches as f64, copied, store })
    }
    fn flops(&self) -> u64 {
        product([3, self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let gradient = operands.read();
        let [out] = operands.write() else { unreachable!("the operand is one number") };
        self.total(gradient, context, fast::squares, out);
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let gradient = operands.read();
        let [out] = operands.write() else { unreachable!("the operand is one number") };
        self.total(gradient, context, plain::squares, out);
    }
}
