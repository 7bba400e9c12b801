//! What is measured besides the loss; nothing is differentiated here.

use crate::{
    Context, Real,
    classes::All,
    kernel::Define,
    loss::logits_and_targets,
    operand::Operands,
    plain::metric as plain,
    signature::{Signature, product},
};
use roundelay_schedule::Access;

/// share = share of rows whose largest logit is the target's; the first of equals is the largest.
///
/// Nearly all rows are decided after a few classes, so there is no faster body.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Accuracy {
    pub(crate) rows: usize,
    pub(crate) classes: usize,
}

impl Define for Accuracy {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (rows, classes) = logits_and_targets(call)?;
        call.index_classes(All { classes, masked: false });
        call.vector("share", Access::Write, 1)?;
        Ok(Self { rows, classes })
    }
    fn flops(&self) -> u64 {
        product([self.rows, self.classes])
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (logits, targets) = (operands.read(), operands.integers());
        plain::accuracy(logits, targets, &mut operands.write()[0]);
    }
}
