//! SGD and AdamW over one range of a stage's flat parameters.
//!
//! Every element is updated on its own, so the result does not depend on how the flat
//! parameters are cut into slices (but for the norm of `clip`, which is the operand's).

mod treatment;

use crate::{
    Context, Real,
    fast::optimizer as fast,
    kernel::Define,
    operand::{Current, Operands},
    plain::optimizer as plain,
    signature::{Signature, product},
};
pub(crate) use treatment::AverageStep;

use roundelay_schedule::{Access, Treatment};
use std::ops::Range;
use treatment::Common;

/// Stochastic gradient descent with momentum, as `torch.optim.SGD`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sgd {
    count: usize,
    momentum: f64,
    nesterov: bool,
    common: Common,
}

/// Adam with decoupled weight decay, as `torch.optim.AdamW`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Adamw {
    count: usize,
    betas: [f64; 2],
    epsilon: f64,
    common: Common,
}

/// One step of SGD, in the element type.
pub(crate) struct SgdStep<R> {
    pub(crate) scale: R,
    pub(crate) momentum: R,
    pub(crate) nesterov: bool,
    pub(crate) rate: R,
}

/// One step of AdamW, in the element type.
pub(crate) struct AdamwStep<R> {
    pub(crate) scale: R,
    pub(crate) mean_share: R,
    pub(crate) beta2: R,
    pub(crate) square_share: R,
    pub(crate) root_correction: R,
    pub(crate) epsilon: R,
    pub(crate) rate: R,
}

fn counted(call: &mut Signature<'_>, states: &[&'static str]) -> Result<usize, String> {
    let count = call.any("gradient", Access::Read)?;
    call.vector("parameter", Access::Read, count)?;
    call.vector("next", Access::Write, count)?;
    for state in states {
        call.vector(state, Access::Update, count)?;
    }
    Ok(count)
}

/// Puts the current parameters where the next ones are made.
fn carry_over<R: Real>(current: &Current<'_, R>, next: &mut [R], range: Range<usize>) {
    match current {
        Current::InPlace => {}
        Current::Separate(parameter) => {
            next[range.clone()].copy_from_slice(&parameter[range]);
        }
    }
}

impl Sgd {
    fn step<R: Real>(&self, scale: R, context: &Context) -> SgdStep<R> {
        SgdStep {
            scale,
            momentum: R::of(self.momentum),
            nesterov: self.nesterov,
            rate: R::of(context.rate),
        }
    }
}

impl Define for Sgd {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let common = Common::parse(call)?;
        let below_one = |value: f64| (0.0..1.0).contains(&value);
        let momentum = call.real("momentum", "at least 0 and below 1", below_one)?;
        let nesterov = call.flag("nesterov")?;
        if nesterov && momentum == 0.0 {
            return Err("`nesterov` needs a `momentum`".to_owned());
        }
        let states: &[_] = if momentum == 0.0 { &[] } else { &["momentum"] };
        Ok(Self { count: counted(call, states)?, momentum, nesterov, common })
    }
    fn flops(&self) -> u64 {
        product([7, self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let gradient = operands.read();
        let (current, next) = operands.current_and_next();
        let mut momentum = (self.momentum != 0.0).then(|| operands.write());
        let step = self.step(
            self.common.scale(gradient, context.slice_offset, fast::squares),
            context,
        );
        for (range, treatment) in self.common.ranges(context.slice_offset, self.count) {
            carry_over(&current, next, range.clone());
            let decay = match treatment {
                Treatment::Decayed => R::of(self.common.weight_decay),
                Treatment::Spared => R::ZERO,
                Treatment::Averaged { momentum } => {
                    let step = self.common.average(momentum);
                    fast::average(&step, &gradient[range.clone()], &mut next[range]);
                    continue;
                }
            };
            let (gradient, next) = (&gradient[range.clone()], &mut next[range.clone()]);
            match &mut momentum {
                None => fast::sgd(&step, gradient, next, decay),
                Some(momentum) => {
                    let momentum = &mut momentum[range];
                    fast::sgd_with_momentum(&step, gradient, next, momentum, decay);
                }
            }
        }
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let gradient = operands.read();
        let (current, next) = operands.current_and_next();
        let mut momentum = (self.momentum != 0.0).then(|| operands.write());
        let step = self.step(
            self.common.scale(gradient, context.slice_offset, plain::squares),
            context,
        );
        for (range, treatment) in self.common.ranges(context.slice_offset, self.count) {
            carry_over(&current, next, range.clone());
            let decay = match treatment {
                Treatment::Decayed => R::of(self.common.weight_decay),
                Treatment::Spared => R::ZERO,
                Treatment::Averaged { momentum } => {
                    let step = self.common.average(momentum);
                    plain::average_all(&step, &gradient[range.clone()], &mut next[range]);
                    continue;
                }
            };
            for i in range {
                let momentum = momentum.as_mut().map(|momentum| &mut momentum[i]);
                plain::sgd(&step, gradient[i], &mut next[i], momentum, decay);
            }
        }
    }
}

impl Adamw {
    fn step<R: Real>(&self, scale: R, context: &Context) -> AdamwStep<R> {
        let updates = context.step as f64 + 1.0;
        let [mean, square] = self.betas.map(|beta| 1.0 - libm::pow(beta, updates));
        AdamwStep {
            scale,
            mean_share: R::of(1.0 - self.betas[0]),
            beta2: R::of(self.betas[1]),
            square_share: R::of(1.0 - self.betas[1]),
            root_correction: R::of(square.sqrt()),
            epsilon: R::of(self.epsilon),
            rate: R::of(context.rate / mean),
        }
    }
}

impl Define for Adamw {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let common = Common::parse(call)?;
        let below_one = |value: f64| (0.0..1.0).contains(&value);
        let betas = [
            call.real("beta1", "at least 0 and below 1", below_one)?,
            call.real("beta2", "at least 0 and below 1", below_one)?,
        ];
        let epsilon = call.real("epsilon", "above 0", |epsilon| epsilon > 0.0)?;
        Ok(Self { count: counted(call, &["mean", "square"])?, betas, epsilon, common })
    }
    fn flops(&self) -> u64 {
        product([14, self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let gradient = operands.read();
        let (current, next) = operands.current_and_next();
        let (mean, square) = (operands.write(), operands.write());
        let step = self.step(
            self.common.scale(gradient, context.slice_offset, fast::squares),
            context,
        );
        for (range, treatment) in self.common.ranges(context.slice_offset, self.count) {
            carry_over(&current, next, range.clone());
            let shrink = match treatment {
                Treatment::Decayed => {
                    R::of(1.0 - context.rate * self.common.weight_decay)
                }
                Treatment::Spared => R::ONE,
                Treatment::Averaged { momentum } => {
                    let step = self.common.average(momentum);
                    fast::average(&step, &gradient[range.clone()], &mut next[range]);
                    continue;
                }
            };
            let (gradient, next) = (&gradient[range.clone()], &mut next[range.clone()]);
            let (mean, square) = (&mut mean[range.clone()], &mut square[range]);
            fast::adamw(&step, gradient, next, mean, square, shrink);
        }
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let gradient = operands.read();
        let (current, next) = operands.current_and_next();
        let (mean, square) = (operands.write(), operands.write());
        let step = self.step(
            self.common.scale(gradient, context.slice_offset, plain::squares),
            context,
        );
        for (range, treatment) in self.common.ranges(context.slice_offset, self.count) {
            carry_over(&current, next, range.clone());
            let shrink = match treatment {
                Treatment::Decayed => {
                    R::of(1.0 - context.rate * self.common.weight_decay)
                }
                Treatment::Spared => R::ONE,
                Treatment::Averaged { momentum } => {
                    let step = self.common.average(momentum);
                    plain::average_all(&step, &gradient[range.clone()], &mut next[range]);
                    continue;
                }
            };
            for i in range {
                let states = [&mut mean[i], &mut square[i]];
                plain::adamw(&step, gradient[i], &mut next[i], states, shrink);
            }
        }
    }
}
