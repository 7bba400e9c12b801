//! SGD and AdamW over one range of a stage's flat parameters.
//!
//! Every element is updated on its own, so the result does not depend on how the flat
//! parameters are cut into slices (but for the norm of `clip`: that of the operand, or of a whole of
//! which it is a part, whose square `squares` and whoever adds up what parts have say).
//!
//! With one more operand, `master`, it is those numbers that are stepped; the next parameters are
//! what they round to.

mod squares;
mod treatment;

use crate::{
    Context, Real,
    fast::optimizer as fast,
    kernel::Define,
    operand::{Current, Operands},
    plain::optimizer as plain,
    signature::{Signature, product},
    team::Cut,
};
pub(crate) use squares::{Copied, Squares};
pub(crate) use treatment::{AverageStep, Common, Norm};

use roundelay_schedule::Access;
use treatment::Treated;

/// Stochastic gradient descent with momentum, as `torch.optim.SGD`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sgd {
    pub(crate) count: usize,
    pub(crate) master: Master,
    pub(crate) momentum: f64,
    pub(crate) nesterov: bool,
    pub(crate) common: Common,
}

/// Adam with decoupled weight decay, as `torch.optim.AdamW`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Adamw {
    pub(crate) count: usize,
    pub(crate) master: Master,
    pub(crate) betas: [f64; 2],
    pub(crate) epsilon: f64,
    pub(crate) common: Common,
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

/// Whether an optimizer steps a copy of the parameters that is wider than they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Master {
    Absent,
    Kept,
}

/// Takes sums into averages.
type AverageBody<R> = fn(&AverageStep<R>, &[R], &mut [R]);

/// Steps from a gradient to the next parameters, with the momentum if there is one and a decay.
type SgdBody<R> = fn(&SgdStep<R>, &[R], &mut [R], Option<&mut [R]>, R);

/// Steps from a gradient to the next parameters, with mean and square, and what weights shrink by.
type AdamwBody<R> = fn(&AdamwStep<R>, &[R], &mut [R], [&mut [R]; 2], R);

impl Master {
    /// The copy, where there is one.
    fn write<'a, R: Real>(self, operands: &mut Operands<'a, R>) -> Option<&'a mut [R]> {
        match self {
            Master::Absent => None,
            Master::Kept => Some(operands.write()),
        }
    }
}

fn counted(
    call: &mut Signature<'_>,
    states: &[&'static str],
    common: &Common,
) -> Result<(usize, Master), String> {
    let count = call.any("gradient", Access::Read)?;
    call.vector("parameter", Access::Read, count)?;
    call.vector("next", Access::Write, count)?;
    for state in states {
        call.vector(state, Access::Update, count)?;
    }
    let master = match call.optional_state("master", count, common.behind())? {
        true => Master::Kept,
        false => Master::Absent,
    };
    common.parse_norm(call)?;
    Ok((count, master))
}

/// What an operation on an element costs, which comes from memory and goes there.
const TRAFFIC: usize = 2;

/// Steps a part of the parameters that starts at `first` where it is kept: in the master copy, which
/// the next ones are then copied from, or where these are made.
fn step_part<R: Real>(
    current: &Current<'_, R>,
    first: usize,
    (next, master): (&mut [R], Option<&mut [R]>),
    step: impl FnOnce(&mut [R]),
) {
    if let Some(master) = master {
        step(master);
        next.copy_from_slice(master);
        return;
    }
    match current {
        Current::InPlace => {}
        Current::Separate(parameter) => {
            next.copy_from_slice(&parameter[first..first + next.len()]);
        }
    }
    step(next);
}

/// The parts of an array that may be absent.
fn parts_of<'a, R: Real>(
    array: Option<&'a mut [R]>,
    share: usize,
) -> impl FnMut() -> Option<&'a mut [R]> {
    let mut parts = array.map(|array| array.chunks_mut(share));
    move || parts.as_mut().and_then(Iterator::next)
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

    /// Updates a slice that starts at `offset`, range by range.
    fn update<R: Real>(
        &self,
        (average, body): (AverageBody<R>, SgdBody<R>),
        step: &SgdStep<R>,
        (offset, gradient): (u64, &[R]),
        next: &mut [R],
        mut momentum: Option<&mut [R]>,
    ) {
        let decays = [R::of(self.common.weight_decay), R::ZERO];
        for (range, treated) in self.common.treated(offset, gradient.len(), decays) {
            let (gradient, next) = (&gradient[range.clone()], &mut next[range.clone()]);
            match treated {
                Treated::Averaged(step) => average(&step, gradient, next),
                Treated::Stepped(decay) => {
                    let momentum = momentum.as_mut().map(|momentum| &mut momentum[range]);
                    body(step, gradient, next, momentum, decay);
                }
            }
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
        let (count, master) = counted(call, states, &common)?;
        Ok(Self { count, master, momentum, nesterov, common })
    }
    fn replaces(&self) -> Vec<[usize; 2]> {
        vec![[1, 2]]
    }
    fn flops(&self) -> u64 {
        product([7, self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let gradient = operands.read();
        let (current, next) = operands.current_and_next();
        let momentum = (self.momentum != 0.0).then(|| operands.write());
        let master = self.master.write(&mut operands);
        let scale = self.common.scale(gradient, context, &mut operands, fast::squares);
        let step = self.step(scale, context);
        let cut = Cut::of_elements(context.threads, self.count, 7 * TRAFFIC);
        let share = cut.rows;
        let [mut momentum, mut master] =
            [momentum, master].map(|own| parts_of(own, share));
        let parts = gradient.chunks(share).zip(next.chunks_mut(share)).enumerate();
        let parts = parts.map(|(part, (gradient, next))| {
            (part * share, gradient, momentum(), (next, master()))
        });
        cut.each(parts, |(first, gradient, momentum, made)| {
            let offset = context.slice_offset + first as u64;
            step_part(&current, first, made, |next| {
                self.update(
                    (fast::average, fast::sgd),
                    &step,
                    (offset, gradient),
                    next,
                    momentum,
                );
            });
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let gradient = operands.read();
        let (current, next) = operands.current_and_next();
        let momentum = (self.momentum != 0.0).then(|| operands.write());
        let master = self.master.write(&mut operands);
        let scale = self.common.scale(gradient, context, &mut operands, plain::squares);
        let step = self.step(scale, context);
        step_part(&current, 0, (next, master), |next| {
            let slice = (context.slice_offset, gradient);
            self.update(
                (plain::average_all, plain::sgd_all),
                &step,
                slice,
                next,
                momentum,
            );
        });
    }
}

impl Adamw {
    fn step<R: Real>(&self, scale: R, context: &Context) -> AdamwStep<R> {
        let updates = context.updates as f64;
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

    /// Updates a slice that starts at `offset`, range by range.
    fn update<R: Real>(
        &self,
        (average, body): (AverageBody<R>, AdamwBody<R>),
        (step, rate): (&AdamwStep<R>, f64),
        (offset, gradient): (u64, &[R]),
        next: &mut [R],
        [mean, square]: [&mut [R]; 2],
    ) {
        let shrinks = [R::of(1.0 - rate * self.common.weight_decay), R::ONE];
        for (range, treated) in self.common.treated(offset, gradient.len(), shrinks) {
            let (gradient, next) = (&gradient[range.clone()], &mut next[range.clone()]);
            match treated {
                Treated::Averaged(step) => average(&step, gradient, next),
                Treated::Stepped(shrink) => {
                    let states = [&mut mean[range.clone()], &mut square[range]];
                    body(step, gradient, next, states, shrink);
                }
            }
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
        let (count, master) = counted(call, &["mean", "square"], &common)?;
        Ok(Self { count, master, betas, epsilon, common })
    }
    fn replaces(&self) -> Vec<[usize; 2]> {
        vec![[1, 2]]
    }
    fn flops(&self) -> u64 {
        product([14, self.count])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let gradient = operands.read();
        let (current, next) = operands.current_and_next();
        let (mean, square) = (operands.write(), operands.write());
        let master = self.master.write(&mut operands);
        let scale = self.common.scale(gradient, context, &mut operands, fast::squares);
        let step = self.step(scale, context);
        let cut = Cut::of_elements(context.threads, self.count, 14 * TRAFFIC);
        let share = cut.rows;
        let states = mean.chunks_mut(share).zip(square.chunks_mut(share));
        let mut master = parts_of(master, share);
        let parts = gradient.chunks(share).zip(next.chunks_mut(share)).zip(states);
        let parts = parts.enumerate().map(|(part, ((gradient, next), states))| {
            (part * share, gradient, states, (next, master()))
        });
        cut.each(parts, |(first, gradient, (mean, square), made)| {
            let offset = context.slice_offset + first as u64;
            step_part(&current, first, made, |next| {
                let (step, states) = ((&step, context.rate), [mean, square]);
                self.update(
                    (fast::average, fast::adamw),
                    step,
                    (offset, gradient),
                    next,
                    states,
                );
            });
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let gradient = operands.read();
        let (current, next) = operands.current_and_next();
        let (mean, square) = (operands.write(), operands.write());
        let master = self.master.write(&mut operands);
        let scale = self.common.scale(gradient, context, &mut operands, plain::squares);
        let step = self.step(scale, context);
        step_part(&current, 0, (next, master), |next| {
            let (step, states) = ((&step, context.rate), [mean, square]);
            self.update(
                (plain::average_all, plain::adamw_all),
                step,
                (context.slice_offset, gradient),
                next,
                states,
            );
        });
    }
}
