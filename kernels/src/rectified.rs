//! What passes back through the rectifier behind a batch norm, where the norm is made again.

use crate::{
    Context, Real,
    batch_norm::columns_of_many_rows,
    fast::batch_norm as fast,
    kernel::Define,
    operand::Operands,
    plain::batch_norm as plain,
    product::with_scratch,
    signature::{Signature, product},
    store::Store,
    team::Cut,
};
use roundelay_schedule::Access;

/// dt = dy where the batch norm of x > 0.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReluBackwardAgain {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) store: Store,
}

/// Operations per element.
const COST: usize = 4;

impl Define for ReluBackwardAgain {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let (rows, columns) = columns_of_many_rows(call)?;
        for name in ["gain", "bias", "mean", "variance"] {
            call.vector(name, Access::Read, columns)?;
        }
        call.shaped("dy", Access::Read, (rows, columns))?;
        call.shaped("dt", store.access(), (rows, columns))?;
        Ok(Self { rows, columns, store })
    }
    fn flops(&self) -> u64 {
        product([COST, self.rows, self.columns])
    }
    fn scratch(&self) -> usize {
        self.columns
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let [x, gain, bias, mean, variance, dy] = operands.reads();
        let dt = operands.write();
        with_scratch(self.scratch(), |factor, _| {
            fast::factors(gain, variance, factor);
            let cut = Cut::new(context.threads, self.rows, COST * self.columns);
            let share = cut.rows * self.columns;
            let parts = x.chunks(share).zip(dy.chunks(share)).zip(dt.chunks_mut(share));
            let channels = [mean, &*factor, bias];
            cut.each(parts, |((x, dy), dt)| {
                fast::rectify_again([x, dy], channels, dt, self.store);
            });
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let [x, gain, bias, mean, variance, dy] = operands.reads();
        let channels = [gain, bias, mean, variance];
        plain::open_again([x, dy], channels, operands.write(), self.store);
    }
}
