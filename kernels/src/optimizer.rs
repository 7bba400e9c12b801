//! SGD and AdamW over one range of a stage's flat parameters.
//!
//! Every element is updated on its own, so the result does not depend on how the flat
//! parameters are cut into slices (but for the norm of `clip`, which is the operand's).

use crate::{
    Context, Real,
    fast::optimizer as fast,
    kernel::Define,
    operand::{Current, Operands},
    plain::optimizer as plain,
    signature::{Signature, product},
};
use roundelay_schedule::Access;
use std::ops::Range;

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

/// What both have.
#[derive(Clone, Debug, PartialEq)]
struct Common {
    weight_decay: f64,
    clip: f64,
    micro_batches: f64,
    spared: Vec<(u64, u64)>,
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

/// Whether weights of a range shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decay {
    Applied,
    Spared,
}

impl Common {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let not_negative = |value: f64| value >= 0.0;
        Ok(Self {
            weight_decay: call.real("weight_decay", "at least 0", not_negative)?,
            clip: call.real("clip", "at least 0", not_negative)?,
            micro_batches: call.integer("micro_batches", "at least 1", |n| n >= 1)?
                as f64,
            spared: call.ranges("spared")?,
        })
    }

    /// What the gradient sum is multiplied by: its mean, cut to norm `clip`, as
    /// `torch.nn.utils.clip_grad_norm_`.
    fn scale<R: Real>(&self, gradient: &[R], norm: fn(&[R], f64) -> f64) -> R {
        let share = 1.0 / self.micro_batches;
        if self.clip == 0.0 {
            return R::of(share);
        }
        let norm = norm(gradient, share);
        R::of(share * (self.clip / (norm + 1e-6)).min(1.0))
    }

    fn decay(&self, decay: Decay) -> f64 {
        match decay {
            Decay::Applied => self.weight_decay,
            Decay::Spared => 0.0,
        }
    }

    /// The ranges of a slice that starts at `offset`, in order, and whether they decay.
    fn ranges(
        &self,
        offset: u64,
        length: usize,
    ) -> impl Iterator<Item = (Range<usize>, Decay)> {
        let end = offset.saturating_add(length as u64);
        let local = move |at: u64| (at.clamp(offset, end) - offset) as usize;
        let mut done = 0;
        let spared =
            self.spared.iter().map(move |(begin, end)| local(*begin)..local(*end));
        let last = length..length;
        spared.chain([last]).flat_map(move |spared| {
            let before = done..spared.start;
            done = spared.end;
            [(before, Decay::Applied), (spared, Decay::Spared)]
        })
    }
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
        let step = self.step(self.common.scale(gradient, fast::norm), context);
        for (range, decay) in self.common.ranges(context.slice_offset, self.count) {
            carry_over(&current, next, range.clone());
            let decay = R::of(self.common.decay(decay));
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
        let step = self.step(self.common.scale(gradient, plain::norm), context);
        for (range, decay) in self.common.ranges(context.slice_offset, self.count) {
            carry_over(&current, next, range.clone());
            let decay = R::of(self.common.decay(decay));
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
        let step = self.step(self.common.scale(gradient, fast::norm), context);
        for (range, decay) in self.common.ranges(context.slice_offset, self.count) {
            carry_over(&current, next, range.clone());
            let shrink = R::of(1.0 - context.rate * self.common.decay(decay));
            let (gradient, next) = (&gradient[range.clone()], &mut next[range.clone()]);
            let (mean, square) = (&mut mean[range.clone()], &mut square[range]);
            fast::adamw(&step, gradient, next, mean, square, shrink);
        }
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let gradient = operands.read();
        let (current, next) = operands.current_and_next();
        let (mean, square) = (operands.write(), operands.write());
        let step = self.step(self.common.scale(gradient, plain::norm), context);
        for (range, decay) in self.common.ranges(context.slice_offset, self.count) {
            carry_over(&current, next, range.clone());
            let shrink = R::of(1.0 - context.rate * self.common.decay(decay));
            for i in range {
                let states = [&mut mean[i], &mut square[i]];
                plain::adamw(&step, gradient[i], &mut next[i], states, shrink);
            }
        }
    }
}
