//! Activations and their derivatives.

use crate::{
    Context, Real,
    fast::activation as fast,
    kernel::Define,
    operand::Operands,
    plain::activation as plain,
    signature::{Signature, product},
    store::Store,
    team::{for_each_part, rows_per_part},
};
use roundelay_schedule::Access;

/// y = max(x, 0).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Relu {
    count: usize,
}

/// dx = dy where y > 0.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReluBackward {
    count: usize,
    store: Store,
}

/// y = x · Φ(x), exact.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gelu {
    count: usize,
}

/// dx = dy · (Φ(x) + x · φ(x)).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GeluBackward {
    count: usize,
    store: Store,
}

/// y = x / (1 + exp(−x)).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Silu {
    count: usize,
}

/// dx = dy · σ(x) (1 + x (1 − σ(x))), σ(x) = 1 / (1 + exp(−x)).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SiluBackward {
    count: usize,
    store: Store,
}

impl Define for Relu {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        Ok(Self { count: forward(call)? })
    }
    fn flops(&self) -> u64 {
        product([self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, y) = (operands.read(), operands.write());
        let share = rows_per_part(context.threads, self.count, 4);
        for_each_part(x.chunks(share).zip(y.chunks_mut(share)), |(x, y)| {
            fast::relu(x, y);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        plain::relu(operands.read(), operands.write());
    }
}

impl Define for ReluBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (count, store) = backward(call, "y")?;
        Ok(Self { count, store })
    }
    fn flops(&self) -> u64 {
        product([self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (y, dy, dx) = (operands.read(), operands.read(), operands.write());
        let share = rows_per_part(context.threads, self.count, 4);
        let parts = y.chunks(share).zip(dy.chunks(share)).zip(dx.chunks_mut(share));
        for_each_part(parts, |((y, dy), dx)| {
            fast::relu_backward(y, dy, dx, self.store);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (y, dy) = (operands.read(), operands.read());
        plain::relu_backward(y, dy, operands.write(), self.store);
    }
}

impl Define for Gelu {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        Ok(Self { count: forward(call)? })
    }
    fn flops(&self) -> u64 {
        product([12, self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, y) = (operands.read(), operands.write());
        let share = rows_per_part(context.threads, self.count, 12);
        for_each_part(x.chunks(share).zip(y.chunks_mut(share)), |(x, y)| {
            fast::gelu(x, y);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        plain::gelu(operands.read(), operands.write());
    }
}

impl Define for GeluBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (count, store) = backward(call, "x")?;
        Ok(Self { count, store })
    }
    fn flops(&self) -> u64 {
        product([24, self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, dy, dx) = (operands.read(), operands.read(), operands.write());
        let share = rows_per_part(context.threads, self.count, 24);
        let parts = x.chunks(share).zip(dy.chunks(share)).zip(dx.chunks_mut(share));
        for_each_part(parts, |((x, dy), dx)| {
            fast::gelu_backward(x, dy, dx, self.store);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (x, dy) = (operands.read(), operands.read());
        plain::gelu_backward(x, dy, operands.write(), self.store);
    }
}

impl Define for Silu {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        Ok(Self { count: forward(call)? })
    }
    fn flops(&self) -> u64 {
        product([11, self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, y) = (operands.read(), operands.write());
        let share = rows_per_part(context.threads, self.count, 11);
        for_each_part(x.chunks(share).zip(y.chunks_mut(share)), |(x, y)| {
            fast::silu(x, y);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        plain::silu(operands.read(), operands.write());
    }
}

impl Define for SiluBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (count, store) = backward(call, "x")?;
        Ok(Self { count, store })
    }
    fn flops(&self) -> u64 {
        product([15, self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, dy, dx) = (operands.read(), operands.read(), operands.write());
        let share = rows_per_part(context.threads, self.count, 15);
        let parts = x.chunks(share).zip(dy.chunks(share)).zip(dx.chunks_mut(share));
        for_each_part(parts, |((x, dy), dx)| {
            fast::silu_backward(x, dy, dx, self.store);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (x, dy) = (operands.read(), operands.read());
        plain::silu_backward(x, dy, operands.write(), self.store);
    }
}

fn forward(call: &mut Signature<'_>) -> Result<usize, String> {
    let count = call.any("x", Access::Read)?;
    call.vector("y", Access::Write, count)?;
    Ok(count)
}

fn backward(
    call: &mut Signature<'_>,
    kept: &'static str,
) -> Result<(usize, Store), String> {
    let store = call.store()?;
    let count = call.any(kept, Access::Read)?;
    call.vector("dy", Access::Read, count)?;
    call.vector("dx", store.access(), count)?;
    Ok((count, store))
}
