//! `soft_cap` and its derivative; what `gelu_tanh` has in common with it, the hyperbolic tangent.

use crate::{
    Context, Real,
    activation::{backward, each_slope, forward},
    fast::tanh as fast,
    kernel::Define,
    operand::Operands,
    plain::tanh as plain,
    signature::{Signature, product},
    store::Store,
    team::Cut,
};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// √(2/π), the slope of the tangent's argument at zero.
pub(crate) const SLOPE: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
/// Share of the cube in the tangent's argument.
pub(crate) const CUBE: f64 = 0.044_715;
/// Beyond ± this the tangent is ±1 in every element type, and its slope zero.
const FLAT: f64 = 30.0;

/// y = cap · tanh(x / cap).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SoftCap {
    pub(crate) count: usize,
    pub(crate) cap: f64,
}

/// dx = dy · (1 − (y / cap)²).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SoftCapBackward {
    pub(crate) count: usize,
    pub(crate) cap: f64,
    pub(crate) store: Store,
}

/// x where its cube matters, so that the slope stays a number.
#[inline(always)]
pub(crate) fn bounded<R: Real>(x: R) -> R {
    let flat = R::of(FLAT);
    let x = if x > flat { flat } else { x };
    if x < -flat { -flat } else { x }
}

impl Define for SoftCap {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let cap = call.real("cap", "above 0", |cap| cap > 0.0)?;
        Ok(Self { count: forward(call)?, cap })
    }
    fn flops(&self) -> u64 {
        product([13, self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, y) = (operands.read(), operands.write());
        let cut = Cut::of_elements(context.threads, self.count, 13);
        let parts = x.chunks(cut.rows).zip(y.chunks_mut(cut.rows));
        cut.each(parts, |(x, y)| fast::soft_cap(x, y, R::of(self.cap)));
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        plain::soft_cap(operands.read(), operands.write(), R::of(self.cap));
    }
}

impl Define for SoftCapBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let cap = call.real("cap", "above 0", |cap| cap > 0.0)?;
        let (count, store) = backward(call, "y")?;
        Ok(Self { count, cap, store })
    }
    fn flops(&self) -> u64 {
        product([4, self.count])
    }
    fn replaces(&self) -> Vec<[usize; 2]> {
        self.store.replaces([0, 2])
    }
    fn fast<R: Real>(&self, operands: Operands<'_, R>, context: &Context) {
        let cut = Cut::of_elements(context.threads, self.count, 4);
        each_slope(operands, cut, |y, dy, dx| {
            fast::soft_cap_backward(y, dy, dx, R::of(self.cap), self.store);
        });
    }
    fn plain<R: Real>(&self, operands: Operands<'_, R>, _: &Context) {
        each_slope(operands, Cut::none(self.count), |y, dy, dx| {
            plain::soft_cap_backward(y, dy, dx, R::of(self.cap), self.store);
        });
    }
}
