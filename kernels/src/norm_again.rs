//! Batch normalisation again, from statistics that an earlier call made.

use crate::{
    Context, Real,
    batch_norm::{Tail, columns_of_many_rows, residual_or},
    fast::batch_norm as fast,
    kernel::Define,
    operand::Operands,
    plain::batch_norm as plain,
    product::with_scratch,
    signature::{Signature, product},
};
use roundelay_schedule::Access;

/// y of the `batch_norm` that made mean and variance, in the same bits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BatchNormAgain {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) tail: Tail,
}

impl Define for BatchNormAgain {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let tail = Tail::parse(call)?;
        let (rows, columns) = columns_of_many_rows(call)?;
        for name in ["gain", "bias", "mean", "variance"] {
            call.vector(name, Access::Read, columns)?;
        }
        if tail.adds() {
            call.shaped("residual", Access::Read, (rows, columns))?;
        }
        call.shaped("y", Access::Write, (rows, columns))?;
        Ok(Self { rows, columns, tail })
    }
    fn flops(&self) -> u64 {
        product([3 + self.tail.flops(), self.rows, self.columns])
    }
    fn scratch(&self) -> usize {
        self.columns
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let [x, gain, bias, mean, variance] = operands.reads();
        let residual = residual_or(x, self.tail, &mut operands);
        let y = operands.write();
        with_scratch(self.scratch(), |factor, _| {
            fast::factors(gain, variance, factor);
            self.tail.normalise(context, [x, residual], [mean, factor, bias], y);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let [x, gain, bias, mean, variance] = operands.reads();
        let residual = residual_or(x, self.tail, &mut operands);
        let y = operands.write();
        plain::normalise(x, [gain, bias, mean, variance], y);
        self.tail.follow(residual, y);
    }
}
