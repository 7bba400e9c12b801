//! Layer and root mean square normalisation where each of several devices has some columns: the
//! sums of own columns before they meet (`norm_part_sums`, `norm_part_squares`,
//! `norm_part_slopes`), and what is made of the sums of all columns.
//!
//! Squares are summed around the mean of all columns, so two sums meet one after another: a
//! difference of large sums would lose the digits of a small variance.

use crate::{
    Context, Real,
    fast::part_norm as fast,
    kernel::Define,
    norm::epsilon,
    operand::Operands,
    part::no_more,
    plain::part_norm as plain,
    signature::{Signature, product},
    store::Store,
    team::{Cut, columns_per_part, for_each_part},
};
use roundelay_schedule::Access;

/// totals_i = Σ_j x_ij over the own columns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NormPartSums {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// squares_i = Σ_j (x_ij − mean_i)² over the own columns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NormPartSquares {
    pub(crate) own: Own,
}

/// y = (x − mean) · rstd · gain + bias for the own columns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NormPart {
    pub(crate) own: Own,
    pub(crate) epsilon: f64,
}

/// slopes_0i = Σ_j g_ij · x̂_ij over the own columns, and around means slopes_1i = Σ_j g_ij.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NormPartSlopes {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) around: Around,
}

/// The gradient of the own columns of x.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NormPartBackward {
    pub(crate) own: Own,
    pub(crate) store: Store,
}

/// The gradient of the gain of a norm around zero.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NormPartGain {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) store: Store,
}

/// What squares are summed around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Around {
    /// The mean of the row, as for a layer norm; there is a bias then.
    Mean,
    /// Zero, as for a root mean square norm.
    Zero,
}

/// The own columns of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Columns of all parts.
    pub(crate) whole: usize,
    pub(crate) around: Around,
}

impl Around {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        Ok(if call.flag("centered")? { Around::Mean } else { Around::Zero })
    }
    /// Sums of a backward pass in each row.
    pub(crate) fn slopes(self) -> usize {
        match self {
            Around::Mean => 2,
            Around::Zero => 1,
        }
    }
    /// One more operand where there are means.
    fn vector(
        self,
        call: &mut Signature<'_>,
        name: &'static str,
        access: Access,
        length: usize,
    ) -> Result<(), String> {
        match self {
            Around::Mean => call.vector(name, access, length),
            Around::Zero => Ok(()),
        }
    }
    fn read<'a, R: Real>(self, operands: &mut Operands<'a, R>) -> Option<&'a [R]> {
        match self {
            Around::Mean => Some(operands.read()),
            Around::Zero => None,
        }
    }
}

impl Own {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (around, whole) = (Around::parse(call)?, call.count("whole")?);
        let (rows, columns) = call.matrix("x", Access::Read)?;
        no_more(columns, whole)?;
        Ok(Self { rows, columns, whole, around })
    }
}

/// Rows from `first` on.
fn behind<R>(rows: Option<&[R]>, first: usize) -> Option<&[R]> {
    rows.map(|rows| &rows[first..])
}

impl Define for NormPartSums {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (rows, columns) = call.matrix("x", Access::Read)?;
        call.vector("totals", Access::Write, rows)?;
        Ok(Self { rows, columns })
    }
    fn flops(&self) -> u64 {
        product([self.rows, self.columns])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, totals) = (operands.read(), operands.write());
        let cut = Cut::new(context.threads, self.rows, self.columns);
        let rows = cut.rows;
        let parts = x.chunks(rows * self.columns).zip(totals.chunks_mut(rows));
        cut.each(parts, |(x, totals)| fast::totals(x, totals, self.columns));
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        plain::totals(operands.read(), operands.write(), self.columns);
    }
}

impl Define for NormPartSquares {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let own = Own::parse(call)?;
        own.around.vector(call, "totals", Access::Read, own.rows)?;
        call.vector("squares", Access::Write, own.rows)?;
        Ok(Self { own })
    }
    fn flops(&self) -> u64 {
        product([3, self.own.rows, self.own.columns])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let Own { rows, columns, whole, around } = self.own;
        let (x, totals) = (operands.read(), around.read(&mut operands));
        let cut = Cut::new(context.threads, rows, 3 * columns);
        let rows = cut.rows;
        let squares = operands.write().chunks_mut(rows);
        let parts = x.chunks(rows * columns).zip(squares).enumerate();
        cut.each(parts, |(part, (x, squares))| {
            fast::squares(x, behind(totals, part * rows), squares, (columns, whole));
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let Own { columns, whole, around, .. } = self.own;
        let (x, totals) = (operands.read(), around.read(&mut operands));
        plain::squares(x, totals, operands.write(), (columns, whole));
    }
}

impl Define for NormPart {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let epsilon = epsilon(call)?;
        let own = Own::parse(call)?;
        let Own { rows, columns, around, .. } = own;
        call.vector("gain", Access::Read, columns)?;
        around.vector(call, "bias", Access::Read, columns)?;
        around.vector(call, "totals", Access::Read, rows)?;
        call.vector("squares", Access::Read, rows)?;
        call.shaped("y", Access::Write, (rows, columns))?;
        around.vector(call, "mean", Access::Write, rows)?;
        call.vector("rstd", Access::Write, rows)?;
        Ok(Self { own, epsilon })
    }
    fn flops(&self) -> u64 {
        product([4, self.own.rows, self.own.columns])
    }
    fn fast<R: Real>(&self, operands: Operands<'_, R>, context: &Context) {
        let Own { rows, columns, .. } = self.own;
        let cut = Cut::new(context.threads, rows, 4 * columns);
        let share = cut.rows;
        self.apply(operands, |x, norm, y| {
            let parts = x.chunks(share * columns).zip(y.chunks_mut(share * columns));
            cut.each(parts.enumerate(), |(part, (x, y))| {
                fast::normalise(x, norm.behind(part * share), y);
            });
        });
    }
    fn plain<R: Real>(&self, operands: Operands<'_, R>, _: &Context) {
        self.apply(operands, plain::normalise);
    }
}

/// What rows and columns are normalised with.
#[derive(Clone, Copy)]
pub(crate) struct Norm<'a, R> {
    pub(crate) gain: &'a [R],
    pub(crate) bias: Option<&'a [R]>,
    pub(crate) mean: Option<&'a [R]>,
    pub(crate) rstd: &'a [R],
}

impl<R> Norm<'_, R> {
    fn behind(self, first: usize) -> Self {
        Self { mean: behind(self.mean, first), rstd: &self.rstd[first..], ..self }
    }
}

impl NormPart {
    /// Makes the statistics of rows, then y of them.
    fn apply<R: Real>(
        &self,
        mut operands: Operands<'_, R>,
        normalise: impl FnOnce(&[R], Norm<'_, R>, &mut [R]),
    ) {
        let Own { whole, around, .. } = self.own;
        let count = R::of(whole as f64);
        let (x, gain) = (operands.read(), operands.read());
        let (bias, totals) = (around.read(&mut operands), around.read(&mut operands));
        let (squares, y) = (operands.read(), operands.write());
        let mean = totals.map(|totals| {
            let mean = operands.write();
            mean.iter_mut().zip(totals).for_each(|(mean, total)| *mean = *total / count);
            &*mean
        });
        let rstd = operands.write();
        for (rstd, square) in rstd.iter_mut().zip(squares) {
            *rstd = R::ONE / (*square / count + R::of(self.epsilon)).sqrt();
        }
        normalise(x, Norm { gain, bias, mean, rstd }, y);
    }
}

impl Define for NormPartSlopes {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let around = Around::parse(call)?;
        let (rows, columns) = call.matrix("x", Access::Read)?;
        call.vector("gain", Access::Read, columns)?;
        around.vector(call, "mean", Access::Read, rows)?;
        call.vector("rstd", Access::Read, rows)?;
        call.shaped("dy", Access::Read, (rows, columns))?;
        call.vector("slopes", Access::Write, around.slopes() * rows)?;
        Ok(Self { rows, columns, around })
    }
    fn flops(&self) -> u64 {
        product([6, self.rows, self.columns])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, gain) = (operands.read(), operands.read());
        let (mean, rstd) = (self.around.read(&mut operands), operands.read());
        let (dy, slopes) = (operands.read(), operands.write());
        let cut = Cut::new(context.threads, self.rows, 6 * self.columns);
        let rows = cut.rows;
        let share = rows * self.columns;
        let norm = Norm { gain, bias: None, mean, rstd };
        let (along, average) = slopes.split_at_mut(self.rows);
        // Around zero the second sums are an empty array, so parts get none.
        let mut average = average.chunks_mut(rows);
        let parts = x.chunks(share).zip(dy.chunks(share)).zip(along.chunks_mut(rows));
        let parts = parts.enumerate().map(|(part, (inputs, along))| {
            (part, inputs, along, average.next().unwrap_or_default())
        });
        cut.each(parts, |(part, (x, dy), along, average)| {
            fast::slopes([x, dy], norm.behind(part * rows), along, average);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (x, gain) = (operands.read(), operands.read());
        let (mean, rstd) = (self.around.read(&mut operands), operands.read());
        let (dy, slopes) = (operands.read(), operands.write());
        let norm = Norm { gain, bias: None, mean, rstd };
        plain::slopes([x, dy], norm, slopes);
    }
}

impl Define for NormPartBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let own = Own::parse(call)?;
        let Own { rows, columns, around, .. } = own;
        call.vector("gain", Access::Read, columns)?;
        around.vector(call, "mean", Access::Read, rows)?;
        call.vector("rstd", Access::Read, rows)?;
        call.shaped("dy", Access::Read, (rows, columns))?;
        call.vector("slopes", Access::Read, around.slopes() * rows)?;
        call.shaped("dx", store.access(), (rows, columns))?;
        Ok(Self { own, store })
    }
    fn flops(&self) -> u64 {
        product([6, self.own.rows, self.own.columns])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let Own { rows, columns, whole, around } = self.own;
        let (x, gain) = (operands.read(), operands.read());
        let (mean, rstd) = (around.read(&mut operands), operands.read());
        let (dy, slopes, dx) = (operands.read(), operands.read(), operands.write());
        let norm = Norm { gain, bias: None, mean, rstd };
        let cut = Cut::new(context.threads, rows, 6 * columns);
        let share = cut.rows;
        let (along, average) = slopes.split_at(rows);
        let size = share * columns;
        let parts = x.chunks(size).zip(dy.chunks(size)).zip(dx.chunks_mut(size));
        cut.each(parts.enumerate(), |(part, ((x, dy), dx))| {
            let first = part * share;
            let average = average.get(first..).unwrap_or_default();
            let slopes = [&along[first..], average];
            fast::backward([x, dy], norm.behind(first), slopes, (dx, whole, self.store));
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let Own { whole, around, .. } = self.own;
        let (x, gain) = (operands.read(), operands.read());
        let (mean, rstd) = (around.read(&mut operands), operands.read());
        let (dy, slopes, dx) = (operands.read(), operands.read(), operands.write());
        let norm = Norm { gain, bias: None, mean, rstd };
        plain::backward([x, dy], norm, slopes, (dx, whole, self.store));
    }
}

impl Define for NormPartGain {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let (rows, columns) = call.matrix("x", Access::Read)?;
        call.vector("rstd", Access::Read, rows)?;
        call.shaped("dy", Access::Read, (rows, columns))?;
        call.vector("dgain", store.access(), columns)?;
        Ok(Self { rows, columns, store })
    }
    fn flops(&self) -> u64 {
        product([3, self.rows, self.columns])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let [x, rstd, dy] = operands.reads();
        let share = columns_per_part(context.threads, self.columns, 3 * self.rows);
        let parts = operands.write().chunks_mut(share).enumerate();
        for_each_part(parts, |(part, dgain)| {
            let place = (self.columns, part * share);
            fast::gain([x, rstd, dy], place, dgain, self.store);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let inputs = operands.reads::<3>();
        plain::gain(inputs, operands.write(), self.store);
    }
}
