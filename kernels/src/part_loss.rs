//! Cross-entropy where each of several devices has the logits of some classes:
//! `cross_entropy_part` before the sums meet, `cross_entropy_join` after, and the gradient.

use crate::{
    Context, Real,
    classes::{All, Classes, Weights},
    fast::loss as fast,
    kernel::Define,
    loss::{Slopes, logits_and_targets},
    operand::Operands,
    part::{no_more, own},
    plain::{loss::cross_entropy_backward, part as plain},
    signature::{Signature, product},
    store::Store,
    team::Cut,
};
use roundelay_schedule::Access;

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
    /// Rows that have a share in common.
    pub(crate) alike: usize,
}

/// dlogits (m, c) = (softmax − one-hot) · share for the own classes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CrossEntropyPartBackward {
    pub(crate) rows: usize,
    pub(crate) each: usize,
    pub(crate) all: All,
    /// Rows that have a share in common.
    pub(crate) alike: usize,
    pub(crate) store: Store,
}

impl All {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        Ok(Self { classes: call.count("whole")?, masked: call.flag("masked")? })
    }
    /// The own logits (m, c) and the targets (m).
    fn logits_and_targets(
        self,
        call: &mut Signature<'_>,
    ) -> Result<(usize, usize), String> {
        let (rows, each) = logits_and_targets(call)?;
        call.index_classes(self);
        no_more(each, self.classes).map(|()| (rows, each))
    }
    fn of(self, context: &Context, each: usize) -> Classes {
        Classes { all: self, each, own: own(context, self.classes, each) }
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
        let cut = Cut::new(context.threads, self.rows, 11 * self.each);
        let rows = cut.rows;
        let values = logits.chunks(rows * self.each).zip(targets.chunks(rows));
        let sums = lse.chunks_mut(rows).zip(picked.chunks_mut(rows));
        cut.each(values.zip(sums), |((logits, targets), (lse, picked))| {
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
        call.index_classes(all);
        if sums == 0 || !sums.is_multiple_of(2 * rows) {
            return Err(format!("`sums` has {sums} numbers for {rows} targets"));
        }
        let alike = all.shares(call, rows)?;
        call.vector("lse", Access::Write, rows)?;
        call.vector("loss", Access::Write, 1)?;
        Ok(Self { rows, parts: sums / (2 * rows), all, alike })
    }
    fn flops(&self) -> u64 {
        product([11, self.rows, self.parts])
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (sums, targets) = (operands.read(), operands.integers());
        let weights = Weights::new(self.all, self.rows, &mut operands);
        let (lse, loss) = (operands.write(), operands.write());
        let classes = self.all.of(context, 0);
        loss[0] = plain::cross_entropy_join((sums, targets), lse, &classes, weights);
    }
}

impl Define for CrossEntropyPartBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let all = All::parse(call)?;
        let (rows, each) = all.logits_and_targets(call)?;
        let alike = all.shares(call, rows)?;
        call.vector("lse", Access::Read, rows)?;
        call.shaped("dlogits", store.access(), (rows, each))?;
        Ok(Self { rows, each, all, alike, store })
    }
    fn flops(&self) -> u64 {
        product([11, self.rows, self.each])
    }
    fn replaces(&self) -> Vec<[usize; 2]> {
        self.store.replaces([0, self.all.slopes_operand()])
    }
    fn fast<R: Real>(&self, operands: Operands<'_, R>, context: &Context) {
        let slopes = Slopes::new(self.all, operands);
        self.all.of(context, self.each).slopes(slopes, self.store, context);
    }
    fn plain<R: Real>(&self, operands: Operands<'_, R>, context: &Context) {
        let classes = self.all.of(context, self.each);
        let slopes = Slopes::new(self.all, operands);
        cross_entropy_backward(slopes, &classes, self.store);
    }
}
