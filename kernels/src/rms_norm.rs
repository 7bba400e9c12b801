//! Normalisation of every row by its root mean square.

use crate::{
    Context, Real,
    fast::rms_norm as fast,
    kernel::Define,
    norm::epsilon,
    operand::Operands,
    plain::rms_norm as plain,
    product::with_scratch,
    segments::{Segments, join_rows},
    signature::{Signature, product},
    store::Store,
    team::Cut,
};
use roundelay_schedule::Access;

/// y = x · rstd · gain.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RmsNorm {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) epsilon: f64,
}

/// The gradients of x and gain.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RmsNormBackward {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) store: Store,
    pub(crate) sums: Store,
}

/// Operations per element, for the split over threads.
const COST: usize = 8;

impl Define for RmsNorm {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let epsilon = epsilon(call)?;
        let (rows, columns) = call.matrix("x", Access::Read)?;
        call.vector("gain", Access::Read, columns)?;
        call.shaped("y", Access::Write, (rows, columns))?;
        call.vector("rstd", Access::Write, rows)?;
        Ok(Self { rows, columns, epsilon })
    }
    fn flops(&self) -> u64 {
        product([4, self.rows, self.columns])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, gain) = (operands.read(), operands.read());
        let (y, rstd) = (operands.write(), operands.write());
        let cut = Cut::new(context.threads, self.rows, COST * self.columns);
        let rows = cut.rows;
        let share = rows * self.columns;
        let parts = x.chunks(share).zip(y.chunks_mut(share)).zip(rstd.chunks_mut(rows));
        cut.each(parts, |((x, y), rstd)| {
            fast::rms_norm(x, gain, y, rstd, self.epsilon);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (x, gain) = (operands.read(), operands.read());
        let (y, rstd) = (operands.write(), operands.write());
        plain::rms_norm(x, gain, y, rstd, self.epsilon);
    }
}

impl Define for RmsNormBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (store, sums) = (call.store()?, call.store_sums()?);
        let (rows, columns) = call.matrix("x", Access::Read)?;
        call.vector("gain", Access::Read, columns)?;
        call.vector("rstd", Access::Read, rows)?;
        call.shaped("dy", Access::Read, (rows, columns))?;
        call.shaped("dx", store.access(), (rows, columns))?;
        call.vector("dgain", sums.access(), columns)?;
        Ok(Self { rows, columns, store, sums })
    }
    fn flops(&self) -> u64 {
        product([10, self.rows, self.columns])
    }
    fn scratch(&self) -> usize {
        Segments::new(self.rows, COST * self.columns).count * self.columns
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let [x, gain, rstd, dy] = operands.reads();
        let (dx, dgain) = (operands.write(), operands.write());
        let (columns, store) = (self.columns, self.store);
        let segments = Segments::new(self.rows, COST * columns);
        with_scratch(self.scratch(), |sums, _| {
            let (inputs, threads) = (([x, dy], [rstd]), context.threads);
            let (dx, own) = ((dx, columns), (&mut *sums, columns));
            segments.each(threads, inputs, dx, own, |[x, dy], [rstd], dx, dgain| {
                fast::rms_norm_backward([x, gain, rstd, dy], dx, dgain, store);
            });
            join_rows(sums, columns);
            self.sums.put_all(dgain, &sums[..columns]);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let inputs = operands.reads::<4>();
        let (dx, dgain) = (operands.write(), operands.write());
        plain::rms_norm_backward(inputs, [dx, dgain], [self.store, self.sums]);
    }
}
