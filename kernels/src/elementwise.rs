//! Sums, products and copies of arrays.

use crate::{
    Context, Real,
    fast::elementwise as fast,
    kernel::Define,
    operand::Operands,
    plain::elementwise as plain,
    signature::{Signature, product},
    store::Store,
};
use roundelay_schedule::Access;

/// out = a + b, where b repeats.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Add {
    count: usize,
}

/// x += bias in every row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AddRows {
    count: usize,
}

/// out += x.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Accumulate {
    count: usize,
}

/// out = x.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Copy;

/// out_j = Σ_i x_ij.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SumRows {
    count: usize,
    store: Store,
}

/// out = a · b, where b repeats.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Multiply {
    count: usize,
    store: Store,
}

/// out_j = Σ_i a_ij · b_ij.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MultiplySumRows {
    count: usize,
    store: Store,
}

/// out = factor · x.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scale {
    count: usize,
    factor: f64,
    store: Store,
}

impl Define for Add {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let count = call.any("a", Access::Read)?;
        call.repeated("b")?;
        call.vector("out", Access::Write, count)?;
        Ok(Self { count })
    }
    fn flops(&self) -> u64 {
        product([self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (a, b) = (operands.read(), operands.read());
        fast::add(a, b, operands.write());
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
        Ok(Self { count: rows * columns })
    }
    fn flops(&self) -> u64 {
        product([self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        fast::add_rows(operands.read(), operands.write());
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
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        fast::accumulate(operands.read(), operands.write());
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        plain::accumulate(operands.read(), operands.write());
    }
}

impl Define for Copy {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let count = call.any("x", Access::Read)?;
        call.vector("out", Access::Write, count)?;
        Ok(Self)
    }
    fn flops(&self) -> u64 {
        0
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        plain::copy(operands.read(), operands.write());
    }
}

impl Define for SumRows {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let count = call.any("x", Access::Read)?;
        call.sum_of_rows("out", store.access())?;
        Ok(Self { count, store })
    }
    fn flops(&self) -> u64 {
        product([self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        fast::sum_rows(operands.read(), operands.write(), self.store);
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        plain::sum_rows(operands.read(), operands.write(), self.store);
    }
}

impl Define for Multiply {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let count = call.any("a", Access::Read)?;
        call.repeated("b")?;
        call.vector("out", store.access(), count)?;
        Ok(Self { count, store })
    }
    fn flops(&self) -> u64 {
        product([self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (a, b) = (operands.read(), operands.read());
        fast::multiply(a, b, operands.write(), self.store);
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (a, b) = (operands.read(), operands.read());
        plain::multiply(a, b, operands.write(), self.store);
    }
}

impl Define for MultiplySumRows {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let count = call.any("a", Access::Read)?;
        call.vector("b", Access::Read, count)?;
        call.sum_of_rows("out", store.access())?;
        Ok(Self { count, store })
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
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let factor = R::of(self.factor);
        fast::scale(operands.read(), operands.write(), factor, self.store);
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let factor = R::of(self.factor);
        plain::scale(operands.read(), operands.write(), factor, self.store);
    }
}
