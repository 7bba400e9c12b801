//! What is measured besides the loss; nothing is differentiated here.

use crate::{
    Context, Real,
    classes::{All, Classes, Weights},
    kernel::Define,
    loss::logits_and_targets,
    operand::Operands,
    plain::metric as plain,
    signature::{Signature, product},
};
use roundelay_schedule::Access;

/// share = share of rows whose largest logit is the target's; the first of equals is the largest. Where
/// some rows do not count, the sum of the shares of these rows.
///
/// Nearly all rows are decided after a few classes, so there is no faster body.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Accuracy {
    pub(crate) rows: usize,
    pub(crate) all: All,
    /// Rows that have a share in common.
    pub(crate) alike: usize,
}

impl Define for Accuracy {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let masked = call.flag("masked")?;
        let (rows, classes) = logits_and_targets(call)?;
        let all = All { classes, masked };
        call.index_classes(all);
        let alike = all.shares(call, rows)?;
        call.vector("share", Access::Write, 1)?;
        Ok(Self { rows, all, alike })
    }
    fn flops(&self) -> u64 {
        product([self.rows, self.all.classes])
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (logits, targets) = (operands.read(), operands.integers());
        let weights = Weights::new(self.all, self.rows, &mut operands);
        let classes = Classes::whole(self.all);
        operands.write()[0] = plain::accuracy((logits, targets), &classes, weights);
    }
}
