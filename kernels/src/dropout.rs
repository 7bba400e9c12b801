//! Dropout and its mask.

use crate::{
    Context, Mode, Real,
    fast::dropout as fast,
    kernel::Define,
    operand::Operands,
    plain,
    random::Stream,
    signature::{Signature, product},
    store::Store,
};
use roundelay_schedule::Access;

/// y = x · mask / (1 − rate) in training; a copy elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dropout {
    count: usize,
    rate: f64,
    operator: u64,
}

/// dx = dy · mask / (1 − rate), with the mask of the forward pass.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DropoutBackward {
    forward: Dropout,
    store: Store,
}

/// Which elements stay: a function of seed, step, micro-batch, operator and element alone.
pub(crate) struct Mask {
    stream: Stream,
    rate: f64,
    /// Elements whose upper 53 bits are below go: uniform < rate, in whole numbers.
    limit: u64,
}

impl Mask {
    fn new(dropout: &Dropout, context: &Context) -> Self {
        let labels = [DROPOUT, context.step, context.micro_batch, dropout.operator];
        let rate = match context.mode {
            Mode::Training => dropout.rate,
            Mode::Evaluation => 0.0,
        };
        let limit = (rate * (1u64 << 53) as f64).ceil() as u64;
        Self { stream: Stream::new(context.seed, &labels), rate, limit }
    }
    /// Whether the element stays.
    #[inline(always)]
    pub(crate) fn keeps(&self, index: u64) -> bool {
        self.stream.bits(index) >> 11 >= self.limit
    }
    /// What elements that stay are multiplied by, so that the mean stays too.
    pub(crate) fn scale(&self) -> f64 {
        1.0 / (1.0 - self.rate)
    }
}

/// Sets these streams apart from those of other uses.
const DROPOUT: u64 = 0x6472_6f70;

impl Dropout {
    fn attributes(call: &mut Signature<'_>) -> Result<(f64, u64), String> {
        let rate = call.real("rate", "in 0 .. 1", |rate| (0.0..1.0).contains(&rate))?;
        let operator =
            call.integer("operator", "at least 0", |operator| operator >= 0)?;
        Ok((rate, operator as u64))
    }
}

impl Define for Dropout {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (rate, operator) = Self::attributes(call)?;
        let count = call.any("x", Access::Read)?;
        call.vector("y", Access::Write, count)?;
        Ok(Self { count, rate, operator })
    }
    fn flops(&self) -> u64 {
        product([8, self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, y) = (operands.read(), operands.write());
        fast::apply(x, y, &Mask::new(self, context), Store::Write);
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, y) = (operands.read(), operands.write());
        plain::dropout::apply(x, y, &Mask::new(self, context), Store::Write);
    }
}

impl Define for DropoutBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (rate, operator) = Dropout::attributes(call)?;
        let store = call.store()?;
        let count = call.any("dy", Access::Read)?;
        call.vector("dx", store.access(), count)?;
        Ok(Self { forward: Dropout { count, rate, operator }, store })
    }
    fn flops(&self) -> u64 {
        self.forward.flops()
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (dy, dx) = (operands.read(), operands.write());
        fast::apply(dy, dx, &Mask::new(&self.forward, context), self.store);
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (dy, dx) = (operands.read(), operands.write());
        plain::dropout::apply(dy, dx, &Mask::new(&self.forward, context), self.store);
    }
}
