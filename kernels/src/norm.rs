//! Softmax and layer normalisation: kernels whose sums run along a row.

use crate::{
    Context, Real,
    kernel::Define,
    operand::Operands,
    plain::norm as plain,
    signature::{Signature, product},
    store::Store,
};
use roundelay_schedule::Access;

/// Added to a variance before its root.
pub(crate) const EPSILON: f64 = 1e-5;

/// y = softmax of every row of x.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Softmax {
    rows: usize,
    columns: usize,
}

/// dx = y · (dy − Σ y · dy).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SoftmaxBackward {
    rows: usize,
    columns: usize,
    store: Store,
}

/// y = x̂ · gain + bias.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LayerNorm {
    rows: usize,
    columns: usize,
}

/// The gradient of x.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LayerNormBackward {
    rows: usize,
    columns: usize,
    store: Store,
}

/// The gradients of gain and bias.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LayerNormParameters {
    rows: usize,
    columns: usize,
    store: Store,
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
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (y, dy) = (operands.read(), operands.read());
        plain::softmax_backward(y, dy, operands.write(), self.columns, self.store);
    }
}

impl Define for LayerNorm {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (rows, columns) = call.matrix("x", Access::Read)?;
        call.vector("gain", Access::Read, columns)?;
        call.vector("bias", Access::Read, columns)?;
        call.shaped("y", Access::Write, (rows, columns))?;
        call.vector("mean", Access::Write, rows)?;
        call.vector("rstd", Access::Write, rows)?;
        Ok(Self { rows, columns })
    }
    fn flops(&self) -> u64 {
        product([8, self.rows, self.columns])
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (x, gain, bias) = (operands.read(), operands.read(), operands.read());
        let (y, mean, rstd) = (operands.write(), operands.write(), operands.write());
        plain::layer_norm(x, gain, bias, y, mean, rstd);
    }
}

impl Define for LayerNormBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let (rows, columns) = call.matrix("x", Access::Read)?;
        call.vector("gain", Access::Read, columns)?;
        call.vector("mean", Access::Read, rows)?;
        call.vector("rstd", Access::Read, rows)?;
        call.shaped("dy", Access::Read, (rows, columns))?;
        call.shaped("dx", store.access(), (rows, columns))?;
        Ok(Self { rows, columns, store })
    }
    fn flops(&self) -> u64 {
        product([12, self.rows, self.columns])
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let inputs = [(); 5].map(|()| operands.read());
        plain::layer_norm_backward(inputs, operands.write(), self.store);
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
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let inputs = [(); 4].map(|()| operands.read());
        let (dgain, dbias) = (operands.write(), operands.write());
        plain::layer_norm_parameters(inputs, dgain, dbias, self.store);
    }
}
