//! Which elements of a stage's flat parameters an optimizer treats in which way.

use super::squares::over_segments;
use crate::{Context, Real, operand::Operands, signature::Signature};
use roundelay_schedule::{Access, Treatment};
use std::ops::Range;

/// What both optimizers have besides their rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Common {
    pub(crate) weight_decay: f64,
    pub(crate) clip: f64,
    pub(crate) norm: Norm,
    pub(crate) micro_batches: f64,
    /// Begin, end and treatment where it is not `Decayed`; ascending, disjoint.
    pub(crate) exceptions: Vec<(u64, u64, Treatment)>,
}

/// Which gradient has the norm that `clip` bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Norm {
    /// The one that is stepped by: it is whole.
    Own,
    /// One of which that is a part: the last operand is the square of its norm.
    Given,
}

/// The update of elements that are averages: p = keep · p + momentum · (sum · share).
#[derive(Clone, Copy, Debug)]
pub(crate) struct AverageStep<R> {
    pub(crate) keep: R,
    pub(crate) momentum: R,
    pub(crate) share: R,
}

/// What becomes of the elements of a range.
pub(super) enum Treated<R> {
    /// A step of the optimizer, with what its weight decay makes of them.
    Stepped(R),
    /// They go on as averages.
    Averaged(AverageStep<R>),
}

impl Common {
    pub(crate) fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let not_negative = |value: f64| value >= 0.0;
        Ok(Self {
            weight_decay: call.real("weight_decay", "at least 0", not_negative)?,
            clip: call.real("clip", "at least 0", not_negative)?,
            norm: if call.flag("squares")? { Norm::Given } else { Norm::Own },
            micro_batches: call.count("micro_batches")? as f64,
            exceptions: exceptions(call)?,
        })
    }

    /// Operands behind those that are stepped.
    pub(crate) fn behind(&self) -> usize {
        match self.norm {
            Norm::Own => 0,
            Norm::Given => 1,
        }
    }

    /// Takes the operand that says the norm, if there is one.
    pub(crate) fn parse_norm(&self, call: &mut Signature<'_>) -> Result<(), String> {
        match self.norm {
            Norm::Own => Ok(()),
            Norm::Given => call.vector("squares", Access::Read, 1),
        }
    }

    /// What the gradient sum of a slice is multiplied by: its mean,
    /// cut to norm `clip`, as `torch.nn.utils.clip_grad_norm_`; averages are no gradients. It is none
    /// where the norm is none. Takes the last operand where that says the norm.
    pub(crate) fn scale<R: Real>(
        &self,
        gradient: &[R],
        context: &Context,
        operands: &mut Operands<'_, R>,
        squares: fn(&[R], f64) -> f64,
    ) -> R {
        let share = 1.0 / self.micro_batches;
        let total = match self.norm {
            Norm::Given => operands.read()[0].widen(),
            Norm::Own if self.clip == 0.0 => 0.0,
            Norm::Own => over_segments(gradient.len(), context, |segment| {
                let offset = context.slice_offset + segment.start as u64;
                let gradient = &gradient[segment];
                let trained = self.trained(offset, gradient.len());
                trained.map(|range| squares(&gradient[range], share)).sum()
            }),
        };
        if self.clip == 0.0 {
            return R::of(share);
        }
        let cut = self.clip / (total.sqrt() + 1e-6);
        R::of(share * if cut > 1.0 { 1.0 } else { cut })
    }

    /// The ranges of a slice that starts at `offset`, in order, and what becomes of them, given what weight
    /// decay makes of elements that it is for and of such that are spared.
    pub(super) fn treated<R: Real>(
        &self,
        offset: u64,
        length: usize,
        [decayed, spared]: [R; 2],
    ) -> impl Iterator<Item = (Range<usize>, Treated<R>)> {
        self.ranges(offset, length).map(move |(range, treatment)| {
            let treated = match treatment {
                Treatment::Decayed => Treated::Stepped(decayed),
                Treatment::Spared => Treated::Stepped(spared),
                Treatment::Averaged { momentum } => {
                    Treated::Averaged(self.average(momentum))
                }
            };
            (range, treated)
        })
    }

    fn average<R: Real>(&self, momentum: f64) -> AverageStep<R> {
        AverageStep {
            keep: R::of(1.0 - momentum),
            momentum: R::of(momentum),
            share: R::of(1.0 / self.micro_batches),
        }
    }

    /// The ranges of a slice that starts at `offset`, in order, and how they are treated.
    fn ranges(
        &self,
        offset: u64,
        length: usize,
    ) -> impl Iterator<Item = (Range<usize>, Treatment)> {
        let runs = runs(offset, length, self.exceptions.iter().copied());
        runs.map(|(range, treatment)| (range, treatment.unwrap_or(Treatment::Decayed)))
    }

    /// What lies between the averages of a slice, in order.
    fn trained(&self, offset: u64, length: usize) -> impl Iterator<Item = Range<usize>> {
        let exceptions = self.exceptions.iter().copied();
        let averages = exceptions.filter(|(.., own)| own.momentum().is_some());
        let runs = runs(offset, length, averages).filter(|(_, own)| own.is_none());
        runs.map(|(range, _)| range)
    }
}

/// A slice of the stage's flat parameters that starts at `offset`, cut in order into the rows that lie
/// in it, each with what is said of it, and what lies between them, of which nothing is said; some of
/// these ranges are empty. Rows are begin, end and what is said: ascending, disjoint.
pub(super) fn runs<T>(
    offset: u64,
    length: usize,
    rows: impl Iterator<Item = (u64, u64, T)>,
) -> impl Iterator<Item = (Range<usize>, Option<T>)> {
    let end = offset.saturating_add(length as u64);
    let local = move |at: u64| (at.clamp(offset, end) - offset) as usize;
    let rows = rows.map(move |(begin, end, said)| (local(begin)..local(end), Some(said)));
    let mut done = 0;
    rows.chain([(length..length, None)]).flat_map(move |(range, said)| {
        let before = done..range.start;
        done = range.end;
        [(before, None), (range, said)]
    })
}

fn exceptions(call: &mut Signature<'_>) -> Result<Vec<(u64, u64, Treatment)>, String> {
    let spared = call.ranges("spared")?;
    let averaged = call.ranges("averaged")?;
    let treated = |ranges: Vec<(u64, u64)>, treatment| {
        ranges.into_iter().map(move |(begin, end)| (begin, end, treatment))
    };
    let mut all: Vec<_> = treated(spared, Treatment::Spared).collect();
    if !averaged.is_empty() {
        let share = |value: f64| (0.0..=1.0).contains(&value);
        let momentum = call.real("average_momentum", "from 0 to 1", share)?;
        all.extend(treated(averaged, Treatment::Averaged { momentum }));
        all.sort_by_key(|(begin, end, _)| (*begin, *end));
    }
    match all.windows(2).all(|pair| pair[0].1 <= pair[1].0) {
        true => Ok(all),
        false => Err("attributes `spared` and `averaged` overlap".to_owned()),
    }
}
