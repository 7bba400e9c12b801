//! The training rule as the plain recursion that it is: one thread, one micro-batch after
//! another, no actions, no queues, no arenas. Rows of split tensors do every call in turn.
//!
//! For t, for i = 1..RN: forward and backward through all stages with θ̂^j = θ^j_{t−τ(i,j)}, τ the
//! same for every replica; sum in the plan's tree; θ^j_{t+1} = optimizer(θ^j_t, 1/(RN) Σ g^j_i), where the
//! optimizer bounds the norm of all stages that have one, added up from the last to the first.
//! Where sequences are cut into slices, a stage takes them from the first to the last, and back.
//! Whatever a machine replays must equal this bit for bit.

mod stage;
mod tree;

use crate::{
    code::CodeError,
    feed::Feed,
    plain::Plain,
    shares::Shares,
    state::{Extent, Moment, State, StateError, gather::Gathered, updates},
};
use roundelay_kernels::{Context, Mode};
use roundelay_schedule::{Checked, Id, MicroBatch, Pass, Role};
use stage::{Backward, OracleStage, Squares};

/// What an oracle is made of: the schedule's job, plan and routines, but none of its actions.
pub struct Oracle {
    schedule: Checked,
    plain: Plain,
    stages: Vec<OracleStage>,
    squares: Squares,
    shares: Shares,
    /// T, and the origins of the state.
    moment: Moment,
}

/// Why there is no oracle for a schedule and a state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OracleError {
    /// A kernel call is malformed.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// The state does not fit.
    #[error(transparent)]
    State(#[from] StateError),
}

/// Roles whose memory the oracle keeps per stage.
const KEPT: [Role; 5] = [
    Role::Parameter,
    Role::NextParameter,
    Role::Gradient,
    Role::Squares,
    Role::Optimizer,
];

impl Oracle {
    /// An oracle at the state's step.
    ///
    /// # Errors
    /// When the state is of another model or lacks a version that the rule reads.
    pub fn new(schedule: &Checked, state: &State) -> Result<Self, OracleError> {
        state.fits(&schedule.job)?;
        let passes = [
            Pass::Forward,
            Pass::Backward,
            Pass::InputGradient,
            Pass::WeightGradient,
            Pass::Norm,
            Pass::Update,
        ];
        let plain = Plain::new(schedule, &passes, &KEPT)?;
        let stage = |stage| OracleStage::new(schedule, &plain, state, stage);
        let keepers = schedule.job.stages().step_by(schedule.plan.slices as usize);
        let stages = keepers.map(stage).collect::<Result<_, _>>()?;
        let moment = state.moment();
        let squares = Squares::new(schedule);
        let all = u64::from(schedule.plan.all_micro_batches());
        let shares = Shares::new(&schedule.job, all);
        let schedule = schedule.clone();
        Ok(Self { schedule, plain, stages, squares, shares, moment })
    }

    /// T: the next training step.
    pub fn step(&self) -> u64 {
        self.moment.step
    }

    /// Does one training step; returns the losses of its micro-batches in order.
    pub fn advance(&mut self, feed: &mut dyn Feed) -> Vec<f64> {
        let all = self.schedule.plan.all_micro_batches() as usize;
        let mut losses = Vec::with_capacity(all);
        for i in 0..all {
            losses.push(self.forward(feed, i));
            self.backward(i);
        }
        let dtype = self.schedule.job.dtype;
        self.stages.iter_mut().for_each(|stage| stage.join(dtype));
        self.update();
        self.moment.step += 1;
        losses
    }

    /// The training state, in global terms.
    pub fn state(&mut self) -> State {
        let Self { schedule, stages, moment, .. } = self;
        let mut gathered = Gathered::new(*moment, Extent::Whole);
        stages.iter_mut().for_each(|stage| stage.save(schedule, &mut gathered));
        gathered.state(&schedule.job)
    }

    fn forward(&mut self, feed: &mut dyn Feed, i: usize) -> f64 {
        let context = self.context(i as u64);
        let step = self.moment.step;
        let Self { plain, shares, schedule, .. } = self;
        plain.feed(&schedule.job, |input, bytes| {
            shares.fill(feed, (input, step, i as u64), bytes);
        });
        for stage in self.schedule.job.elements.ids() {
            let plan = &self.schedule.plan;
            let (whole, slice) = (plan.whole_stage(stage) as usize, plan.slice(stage));
            let age = self.age(i, whole);
            let own = &mut self.stages[whole];
            let routine = own.routines[slice as usize].forward;
            let bound = &mut [(Role::Parameter, own.version(age))];
            self.plain.run(routine, &context, bound);
        }
        self.plain.loss(&self.schedule.job)
    }

    fn backward(&mut self, i: usize) {
        let context = self.context(i as u64);
        for stage in self.schedule.job.elements.ids().rev() {
            let plan = &self.schedule.plan;
            let (whole, slice) = (plan.whole_stage(stage) as usize, plan.slice(stage));
            let addition = plan.addition(stage, MicroBatch::new(i)).index();
            let age = self.age(i, whole);
            let dtype = self.schedule.job.dtype;
            let pass = Backward { slice: slice as usize, addition, age };
            self.stages[whole].backward(&mut self.plain, &context, pass, dtype);
        }
    }

    /// T − v for the version that micro-batch i reads: τ, but no further back than the origin.
    fn age(&self, i: usize, stage: usize) -> usize {
        let delays = &self.schedule.plan.delays;
        let delay = u64::from(delays.delay(i % delays.size().0, stage));
        delay.min(self.moment.step - self.moment.origin) as usize
    }

    fn update(&mut self) {
        let context = Context {
            rate: self.schedule.job.optimizer.rate.at(self.moment.step),
            ..self.context(0)
        };
        let (schedule, plain, squares) =
            (&self.schedule, &mut self.plain, &mut self.squares);
        let normed = match schedule.plan.has_joint_norm() {
            true => self.stages.len(),
            false => 1,
        };
        for stages in self.stages.chunks_mut(normed) {
            for stage in stages.iter_mut().rev() {
                stage.measure(plain, &schedule.job, &context, squares);
            }
            squares.add_up(schedule);
            for stage in stages {
                stage.update(plain, &schedule.job, &context, squares);
            }
        }
    }

    fn context(&self, micro_batch: u64) -> Context {
        let Moment { step, origin: _, optimizer_origin } = self.moment;
        Context {
            step,
            updates: updates(step, optimizer_origin),
            micro_batch,
            seed: self.schedule.job.seed,
            mode: Mode::Training,
            rate: 0.0,
            slice_offset: 0,
            part: 0,
            threads: 1,
        }
    }
}
