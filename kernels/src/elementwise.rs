//! Sums, products and copies of arrays.

use crate::{
    Context, Real,
    fast::elementwise as fast,
    kernel::Define,
    operand::{Current, Operands},
    plain::elementwise as plain,
    signature::{Signature, product},
    store::Store,
    team::{Cut, columns_per_part, for_each_part},
};
use roundelay_schedule::Access;

/// What an element costs, in operations: it comes from memory and goes there.
const ELEMENT: usize = 4;

/// How `count` elements are cut: at whole repetitions of a second operand of `length`.
fn cut(threads: usize, count: usize, length: usize) -> Cut {
    Cut::of_units(length, threads, count, ELEMENT)
}

/// The elements of an operand that belong to a part of `count`: its own, or all that repeat.
fn repeated<R>(operand: &[R], count: usize, first: usize, length: usize) -> &[R] {
    match operand.len() == count {
        true => &operand[first..first + length],
        false => operand,
    }
}

/// out = a + b, where b repeats.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Add {
    pub(crate) count: usize,
    /// Elements of b, which repeat.
    pub(crate) repeats: usize,
}

/// x += bias in every row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AddRows {
    pub(crate) count: usize,
    pub(crate) columns: usize,
}

/// out += x.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Accumulate {
    pub(crate) count: usize,
}

/// out = x.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Copy {
    pub(crate) count: usize,
}

/// out = 0.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Zero {
    pub(crate) count: usize,
}

/// out_j = Σ_i x_ij.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SumRows {
    pub(crate) count: usize,
    pub(crate) columns: usize,
    pub(crate) store: Store,
}

/// out = a · b, where b repeats.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Multiply {
    pub(crate) count: usize,
    /// Elements of b, which repeat.
    pub(crate) repeats: usize,
    pub(crate) store: Store,
}

/// out_j = Σ_i a_ij · b_ij.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MultiplySumRows {
    pub(crate) count: usize,
    pub(crate) columns: usize,
    pub(crate) store: Store,
}

/// out = factor · x.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scale {
    pub(crate) count: usize,
    pub(crate) factor: f64,
    pub(crate) store: Store,
}

impl Define for Add {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let count = call.any("a", Access::Read)?;
        let repeats = call.repeated("b")?;
        call.vector("out", Access::Write, count)?;
        Ok(Self { count, repeats })
    }
    fn flops(&self) -> u64 {
        product([self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (a, b, out) = (operands.read(), operands.read(), operands.write());
        let cut = cut(context.threads, self.count, b.len());
        let parts = a.chunks(cut.rows).zip(out.chunks_mut(cut.rows)).enumerate();
        cut.each(parts, |(part, (a, out))| {
            fast::add(a, repeated(b, self.count, part * cut.rows, a.len()), out);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (a, b) = (operands.read(), operands.read());
        plain::add(a, b, operands.write());
    }
}

impl Define for AddRows {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let columns = call.any("bias", Access::Read)?;
        let rows = call.rows("x", Access::Update, columns)?;
        Ok(Self { count: rows * columns, columns })
    }
    fn flops(&self) -> u64 {
        product([self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (bias, x) = (operands.read(), operands.write());
        let cut = cut(context.threads, self.count, bias.len());
        cut.each(x.chunks_mut(cut.rows), |x| fast::add_rows(bias, x));
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        plain::add_rows(operands.read(), operands.write());
    }
}

impl Define for Accumulate {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let count = call.any("x", Access::Read)?;
        call.vector("out", Access::Update, count)?;
        Ok(Self { count })
    }
    fn flops(&self) -> u64 {
        product([self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, out) = (operands.read(), operands.write());
        let cut = cut(context.threads, self.count, self.count);
        let parts = x.chunks(cut.rows).zip(out.chunks_mut(cut.rows));
        cut.each(parts, |(x, out)| fast::accumulate(x, out));
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        plain::accumulate(operands.read(), operands.write());
    }
}

impl Define for Copy {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let count = call.any("x", Access::Read)?;
        call.vector("out", Access::Write, count)?;
        Ok(Self { count })
    }
    fn flops(&self) -> u64 {
        0
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, out) = (operands.read(), operands.write());
        let cut = cut(context.threads, self.count, self.count);
        let parts = x.chunks(cut.rows).zip(out.chunks_mut(cut.rows));
        cut.each(parts, |(x, out)| plain::copy(x, out));
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        plain::copy(operands.read(), operands.write());
    }
}

impl Define for Zero {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        Ok(Self { count: call.any("out", Access::Write)? })
    }
    fn flops(&self) -> u64 {
        0
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let cut = cut(context.threads, self.count, self.count);
        cut.each(operands.write().chunks_mut(cut.rows), |out| plain::zero(out));
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        plain::zero(operands.write());
    }
}

impl Define for SumRows {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let count = call.any("x", Access::Read)?;
        let columns = call.sum_of_rows("out", store.access())?;
        Ok(Self { count, columns, store })
    }
    fn flops(&self) -> u64 {
        product([self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        self.sum(operands.read(), operands.write(), context.threads);
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        plain::sum_rows(operands.read(), operands.write(), self.store);
    }
}

impl SumRows {
    /// Sums by the fast kernel.
    pub(crate) fn sum<R: Real>(&self, x: &[R], out: &mut [R], threads: usize) {
        let columns = out.len();
        let share = columns_per_part(threads, columns, self.count / columns);
        for_each_part(out.chunks_mut(share).enumerate(), |(part, out)| {
            fast::sum_rows(x, columns, part * share, out, self.store);
        });
    }
}

impl Define for Multiply {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let count = call.any("a", Access::Read)?;
        let repeats = call.repeated("b")?;
        call.vector("out", store.access(), count)?;
        Ok(Self { count, repeats, store })
    }
    fn flops(&self) -> u64 {
        product([self.count])
    }
    fn replaces(&self) -> Vec<[usize; 2]> {
        match self.repeats == self.count {
            true => self.store.replaces([1, 2]),
            false => Vec::new(),
        }
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (a, b, out) = (operands.read(), operands.current(1), operands.write());
        let cut = cut(context.threads, self.count, self.repeats);
        let parts = a.chunks(cut.rows).zip(out.chunks_mut(cut.rows)).enumerate();
        cut.each(parts, |(part, (a, out))| {
            let first = part * cut.rows;
            self.each(b, (first, a, out), |a, b, out| {
                fast::multiply(a, b, out, self.store);
            });
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (a, b) = (operands.read(), operands.current(1));
        self.each(b, (0, a, operands.write()), |a, b, out| {
            plain::multiply(a, b, out, self.store);
        });
    }
}

impl Multiply {
    /// Multiplies the elements of a part from `first` on, whether b repeats, lies apart, or is where
    /// the products go.
    fn each<R: Real>(
        &self,
        b: Current<'_, R>,
        (first, a, out): (usize, &[R], &mut [R]),
        multiply: impl Fn(&[R], &[R], &mut [R]),
    ) {
        match b {
            Current::Separate(b) => {
                multiply(a, repeated(b, self.count, first, a.len()), out);
            }
            Current::InPlace => b.replace(out, |first, b, out| {
                multiply(&a[first..first + out.len()], b, out);
            }),
        }
    }
}

impl Define for MultiplySumRows {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let count = call.any("a", Access::Read)?;
        call.vector("b", Access::Read, count)?;
        let columns = call.sum_of_rows("out", store.access())?;
        Ok(Self { count, columns, store })
    }
    fn flops(&self) -> u64 {
        product([2, self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (a, b) = (operands.read(), operands.read());
        fast::multiply_sum_rows(a, b, operands.write(), self.store);
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (a, b) = (operands.read(), operands.read());
        plain::multiply_sum_rows(a, b, operands.write(), self.store);
    }
}

impl Define for Scale {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let factor = call.real("factor", "finite", |_| true)?;
        let count = call.any("x", Access::Read)?;
        call.vector("out", store.access(), count)?;
        Ok(Self { count, factor, store })
    }
    fn flops(&self) -> u64 {
        product([self.count])
    }
    fn replaces(&self) -> Vec<[usize; 2]> {
        self.store.replaces([0, 1])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let factor = R::of(self.factor);
        let (x, out) = (operands.current(1), operands.write());
        let cut = cut(context.threads, self.count, self.count);
        cut.each(out.chunks_mut(cut.rows).enumerate(), |(part, out)| {
            let x = x.part(part * cut.rows..part * cut.rows + out.len());
            x.replace(out, |_, x, out| fast::scale(x, out, factor, self.store));
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let factor = R::of(self.factor);
        let (x, out) = (operands.current(1), operands.write());
        x.replace(out, |_, x, out| plain::scale(x, out, factor, self.store));
    }
}
