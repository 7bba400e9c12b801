//! The training rule as the plain recursion that it is: one thread, one micro-batch after
//! another, no actions, no queues, no arenas. Rows of split tensors do every call in turn.
//!
//! For t, for i = 1..RN: forward and backward through all stages with θ̂^j = θ^j_{t−τ(i,j)}, τ the
//! same for every replica; sum in the plan's tree; θ^j_{t+1} = optimizer(θ^j_t, 1/(RN) Σ g^j_i), where the
//! optimizer bounds the norm of all stages that have one, added up from the last to the first.
//! Where sequences are cut into slices, a stage takes them from the first to the last, and back. What
//! several stages use is a state of its own, to which each adds in a sum of its own.
//! Whatever a machine replays must equal this bit for bit.

mod state;
mod tree;

use crate::{
    code::CodeError,
    feed::Feed,
    plain::Plain,
    shares::Shares,
    state::{Extent, Moment, State, StateError, gather::Gathered, updates},
};
use roundelay_kernels::{Context, Mode};
use roundelay_schedule::{Checked, Id, MicroBatch, Pass, Plan, Role, Stage};
use state::{OracleState, Routines, Squares, Target, Used};

/// What an oracle is made of: the schedule's job, plan and routines, but none of its actions.
pub struct Oracle {
    schedule: Checked,
    plain: Plain,
    /// Of stages, slices left out, then of ties.
    states: Vec<OracleState>,
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

/// Whether the oracle keeps the memory of a role per state.
fn is_kept(role: Role) -> bool {
    role.is_state() && role != Role::Received
}

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
        let plain = Plain::new(schedule, &passes, is_kept)?;
        let own = |own| OracleState::new(schedule, &plain, state, own);
        let keepers = schedule.job.states().step_by(schedule.plan.slices as usize);
        let states = keepers.map(own).collect::<Result<_, _>>()?;
        let moment = state.moment();
        let squares = Squares::new(schedule);
        let all = u64::from(schedule.plan.all_micro_batches());
        let shares = Shares::new(&schedule.job, all);
        let schedule = schedule.clone();
        Ok(Self { schedule, plain, states, squares, shares, moment })
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
        self.states.iter_mut().for_each(|state| state.join(dtype));
        self.update();
        self.moment.step += 1;
        losses
    }

    /// The training state, in global terms.
    pub fn state(&mut self) -> State {
        let Self { schedule, states, moment, .. } = self;
        let mut gathered = Gathered::new(*moment, Extent::Whole);
        states.iter_mut().for_each(|state| state.save(schedule, &mut gathered));
        gathered.state(&schedule.job)
    }

    fn forward(&mut self, feed: &mut dyn Feed, i: usize) -> f64 {
        let context = self.context(i as u64);
        let step = self.moment.step;
        let Self { plain, shares, schedule, .. } = self;
        plain.feed(&schedule.job, |input, bytes| {
            shares.fill(feed, (input, step, i as u64), bytes);
        });
        let i = MicroBatch::new(i);
        for stage in self.schedule.plan.each_stage() {
            let routine = self.routines(stage).forward;
            let Self { schedule, plain, states, moment, .. } = self;
            let pass = Passing { plan: &schedule.plan, moment: *moment, stage, i };
            let used = pass.used(states);
            let mut bound: Vec<_> = used.map(|(own, used)| own.theta(used)).collect();
            plain.run(routine, &context, &mut bound);
        }
        self.plain.loss(&self.schedule.job)
    }

    fn backward(&mut self, i: usize) {
        let context = self.context(i as u64);
        let i = MicroBatch::new(i);
        for stage in self.schedule.plan.each_stage().rev() {
            let Routines { input, first, next, forward: _ } = self.routines(stage);
            let Self { schedule, plain, states, moment, .. } = self;
            let pass = Passing { plan: &schedule.plan, moment: *moment, stage, i };
            if let Some(input) = input {
                let used = pass.used(states);
                let mut bound: Vec<_> = used.map(|(own, used)| own.theta(used)).collect();
                plain.run(input, &context, &mut bound);
            }
            // Whoever begins the sum of one state begins those of all.
            let begins = pass.used(states).all(|(own, used)| own.begins(used));
            let routine = if begins { first } else { next };
            let target = if routine.is_some() { Target::Sum } else { Target::Single };
            let single = || first.expect("every stage has a backward pass");
            let mut bound = Vec::new();
            for (own, used) in pass.used(states) {
                bound.extend(own.lend(used, target));
            }
            plain.run(routine.unwrap_or_else(single), &context, &mut bound);
            drop(bound);
            if target == Target::Single {
                let used = pass.used(states);
                used.for_each(|(own, used)| own.add_single(used, schedule.job.dtype));
            }
        }
    }

    /// What a stage runs.
    fn routines(&self, stage: Stage) -> Routines {
        let plan = &self.schedule.plan;
        let (whole, slice) = (plan.whole_stage(stage), plan.slice(stage));
        self.states[whole as usize].routines[slice as usize]
    }

    fn update(&mut self) {
        let context = Context {
            rate: self.schedule.job.optimizer.rate.at(self.moment.step),
            ..self.context(0)
        };
        let (schedule, plain, squares) =
            (&self.schedule, &mut self.plain, &mut self.squares);
        let normed = match schedule.plan.has_joint_norm() {
            true => self.states.len(),
            false => 1,
        };
        for states in self.states.chunks_mut(normed) {
            for state in states.iter_mut().rev() {
                state.measure(plain, &schedule.job, &context, squares);
            }
            squares.add_up(schedule);
            for state in states {
                state.update(plain, &schedule.job, &context, squares);
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

/// The passes of a stage on a micro-batch.
#[derive(Clone, Copy)]
struct Passing<'a> {
    plan: &'a Plan,
    moment: Moment,
    stage: Stage,
    i: MicroBatch,
}

impl Passing<'_> {
    /// The states that they use, each with how they do.
    fn used(
        self,
        states: &mut [OracleState],
    ) -> impl Iterator<Item = (&mut OracleState, Used)> {
        states.iter_mut().filter_map(move |own| {
            let used = self.uses(own.state)?;
            Some((own, used))
        })
    }

    fn uses(self, state: Stage) -> Option<Used> {
        let Self { plan, moment, stage, i } = self;
        let roles = match plan.tie(state) {
            None if state == plan.keeper(stage) => [Role::Parameter, Role::Gradient],
            Some(tie) if tie.place_of(stage).is_some() => {
                [Role::Tied(state), Role::TiedGradient(state)]
            }
            None | Some(_) => return None,
        };
        let addition = plan.addition(state, stage, i).index();
        Some(Used { roles, addition, age: age(plan, moment, (state, i)) })
    }
}

/// T − v for the version of a state that micro-batch i reads: τ, but no further back than the origin.
fn age(plan: &Plan, moment: Moment, (state, i): (Stage, MicroBatch)) -> usize {
    let own = MicroBatch::new(i.index() % plan.micro_batches as usize);
    let delay = u64::from(plan.delay(state, own));
    delay.min(moment.step - moment.origin) as usize
}
