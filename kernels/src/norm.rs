//! Softmax and layer normalisation: kernels whose sums run along a row.

use crate::{
    Context, Real,
    fast::norm as fast,
    kernel::Define,
    operand::Operands,
    plain::norm as plain,
    product::with_scratch,
    segments::{Segments, join_rows},
    signature::{Signature, product},
    store::Store,
    team::{Cut, columns_per_part, for_each_part},
};
use roundelay_schedule::Access;

/// Operations per element of a backward pass, for the split over threads.
const COST: usize = 12;

/// Added to a variance before its root, unless a call says otherwise.
pub(crate) const EPSILON: f64 = 1e-5;

/// What a call adds to a variance, or to a mean of squares, before its root.
pub(crate) fn epsilon(call: &mut Signature<'_>) -> Result<f64, String> {
    let given = call.optional_real("epsilon", "above 0", |epsilon| epsilon > 0.0)?;
    Ok(given.unwrap_or(EPSILON))
}

/// y = softmax of every row of x.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Softmax {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// dx = y · (dy − Σ y · dy).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SoftmaxBackward {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) store: Store,
}

/// y = x̂ · gain + bias.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LayerNorm {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) epsilon: f64,
}

/// The gradients of x, gain and bias.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LayerNormBackward {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) store: Store,
    pub(crate) sums: Store,
}

/// The gradients of gain and bias alone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LayerNormParameters {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) store: Store,
}

impl Define for Softmax {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (rows, columns) = call.matrix("x", Access::Read)?;
        call.shaped("y", Access::Write, (rows, columns))?;
        Ok(Self { rows, columns })
    }
    fn flops(&self) -> u64 {
        product([12, self.rows, self.columns])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, y) = (operands.read(), operands.write());
        let cut = Cut::new(context.threads, self.rows, 12 * self.columns);
        let rows = cut.rows;
        let share = rows * self.columns;
        cut.each(x.chunks(share).zip(y.chunks_mut(share)), |(x, y)| {
            fast::softmax(x, y, self.columns);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        plain::softmax(operands.read(), operands.write(), self.columns);
    }
}

impl Define for SoftmaxBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let (rows, columns) = call.matrix("y", Access::Read)?;
        call.shaped("dy", Access::Read, (rows, columns))?;
        call.shaped("dx", store.access(), (rows, columns))?;
        Ok(Self { rows, columns, store })
    }
    fn flops(&self) -> u64 {
        product([4, self.rows, self.columns])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (y, dy, dx) = (operands.read(), operands.read(), operands.write());
        let cut = Cut::new(context.threads, self.rows, 4 * self.columns);
        let rows = cut.rows;
        let share = rows * self.columns;
        let parts = y.chunks(share).zip(dy.chunks(share)).zip(dx.chunks_mut(share));
        cut.each(parts, |((y, dy), dx)| {
            fast::softmax_backward(y, dy, dx, self.columns, self.store);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (y, dy) = (operands.read(), operands.read());
        plain::softmax_backward(y, dy, operands.write(), self.columns, self.store);
    }
}

impl Define for LayerNorm {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let epsilon = epsilon(call)?;
        let (rows, columns) = call.matrix("x", Access::Read)?;
        call.vector("gain", Access::Read, columns)?;
        call.vector("bias", Access::Read, columns)?;
        call.shaped("y", Access::Write, (rows, columns))?;
        call.vector("mean", Access::Write, rows)?;
        call.vector("rstd", Access::Write, rows)?;
        Ok(Self { rows, columns, epsilon })
    }
    fn flops(&self) -> u64 {
        product([8, self.rows, self.columns])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, gain, bias) = (operands.read(), operands.read(), operands.read());
        let (y, mean, rstd) = (operands.write(), operands.write(), operands.write());
        let cut = Cut::new(context.threads, self.rows, 8 * self.columns);
        let rows = cut.rows;
        let share = rows * self.columns;
        let statistics = mean.chunks_mut(rows).zip(rstd.chunks_mut(rows));
        let parts = x.chunks(share).zip(y.chunks_mut(share)).zip(statistics);
        cut.each(parts, |((x, y), (mean, rstd))| {
            fast::layer_norm(x, gain, bias, y, mean, rstd, self.epsilon);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (x, gain, bias) = (operands.read(), operands.read(), operands.read());
        let (y, mean, rstd) = (operands.write(), operands.write(), operands.write());
        plain::layer_norm([x, gain, bias], y, mean, rstd, self.epsilon);
    }
}

impl Define for LayerNormBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (store, sums) = (call.store()?, call.store_sums()?);
        let (rows, columns) = call.matrix("x", Access::Read)?;
        call.vector("gain", Access::Read, columns)?;
        call.vector("mean", Access::Read, rows)?;
        call.vector("rstd", Access::Read, rows)?;
        call.shaped("dy", Access::Read, (rows, columns))?;
        call.shaped("dx", store.access(), (rows, columns))?;
        call.vector("dgain", sums.access(), columns)?;
        call.vector("dbias", sums.access(), columns)?;
        Ok(Self { rows, columns, store, sums })
    }
    fn flops(&self) -> u64 {
        product([15, self.rows, self.columns])
    }
    fn scratch(&self) -> usize {
        2 * Segments::new(self.rows, COST * self.columns).count * self.columns
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let [x, gain, mean, rstd, dy] = operands.reads();
        let [dx, dgain, dbias] = operands.writes();
        let (columns, store) = (self.columns, self.store);
        let segments = Segments::new(self.rows, COST * columns);
        with_scratch(self.scratch(), |sums, _| {
            let (inputs, threads) = (([x, dy], [mean, rstd]), context.threads);
            let (dx, own) = ((dx, columns), (&mut *sums, 2 * columns));
            segments.each(threads, inputs, dx, own, |[x, dy], [mean, rstd], dx, sums| {
                fast::layer_norm_backward([x, gain, mean, rstd, dy], dx, sums, store);
            });
            join_rows(sums, 2 * columns);
            self.sums.put_all(dgain, &sums[..columns]);
            self.sums.put_all(dbias, &sums[columns..2 * columns]);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let inputs = operands.reads::<5>();
        plain::layer_norm_backward(inputs, operands.write(), self.store);
        let [x, _, mean, rstd, dy] = inputs;
        let (dgain, dbias) = (operands.write(), operands.write());
        let inputs = [x, mean, rstd, dy];
        plain::layer_norm_parameters(inputs, dgain, dbias, self.sums);
    }
}

impl Define for LayerNormParameters {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let (rows, columns) = call.matrix("x", Access::Read)?;
        call.vector("mean", Access::Read, rows)?;
        call.vector("rstd", Access::Read, rows)?;
        call.shaped("dy", Access::Read, (rows, columns))?;
        call.vector("dgain", store.access(), columns)?;
        call.vector("dbias", store.access(), columns)?;
        Ok(Self { rows, columns, store })
    }
    fn flops(&self) -> u64 {
        product([5, self.rows, self.columns])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let inputs = operands.reads::<4>();
        let (dgain, dbias) = (operands.write(), operands.write());
        let share = columns_per_part(context.threads, self.columns, 2 * self.rows);
        let parts = dgain.chunks_mut(share).zip(dbias.chunks_mut(share)).enumerate();
        for_each_part(parts, |(part, (dgain, dbias))| {
            let columns = self.columns;
            fast::layer_norm_parameters(
                inputs,
                columns,
                part * share,
                dgain,
                dbias,
                self.store,
            );
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let inputs = operands.reads::<4>();
        let (dgain, dbias) = (operands.write(), operands.write());
        plain::layer_norm_parameters(inputs, dgain, dbias, self.store);
    }
}
