//! Rule 4 for launches: what the arguments of a routine must hold, and what they hold after.

use super::{
    contents::{Run, Step},
    held::Held,
    sums::SumId,
};
use crate::{
    Access, Id, MicroBatch, Pass, Place, Role, Routine, Row, Spot, Stage, ValueId,
};

/// A launch that executes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch<'a> {
    pub(super) step: Step,
    pub(super) at: Place,
    pub(super) routine: &'a Routine,
    pub(super) i: Option<MicroBatch>,
    pub(super) rows: &'a [Row],
}

impl Launch<'_> {
    /// Where an argument lies.
    fn spot(self, argument: usize) -> Spot {
        Spot { at: self.at, row: self.rows[argument] }
    }
}

impl Run<'_> {
    /// Reads of all arguments, then their writes.
    pub(super) fn launch(&mut self, launch: Launch<'_>) {
        let gathered = self.gather(launch);
        let added = match launch.routine.pass {
            Pass::Norm | Pass::Update => false,
            Pass::Forward
            | Pass::Backward
            | Pass::InputGradient
            | Pass::WeightGradient
            | Pass::Combine => true,
        };
        for (number, argument) in launch.routine.arguments.iter().enumerate() {
            if argument.access == Access::Write || added && argument.role.is_sum() {
                continue;
            }
            if let Some(expected) = self.expected(launch, argument.role) {
                let spot = launch.spot(number);
                self.expect(launch.step, spot, number, expected);
            }
        }
        for (number, argument) in launch.routine.arguments.iter().enumerate() {
            if argument.access != Access::Read {
                let sum = gathered.iter().find(|(place, _)| *place == number);
                let sum = sum.map_or(Held::Nothing, |(_, held)| *held);
                let held = self.made(launch, argument.role, argument.access, sum);
                self.write(launch.step, launch.spot(number), held);
            }
        }
    }

    /// What an argument that is read must hold; nothing is expected of scratch memory.
    fn expected(&self, launch: Launch<'_>, role: Role) -> Option<Held<SumId>> {
        let (t, stage) = (launch.step.t, launch.routine.stage);
        let (plan, i) = (&self.schedule.plan, launch.i.unwrap_or(MicroBatch::new(0)));
        let keeper = plan.keeper(stage);
        match role {
            Role::Parameter => {
                let delay = launch.i.map_or(0, |i| plan.delay(keeper, i));
                Some(Held::Parameter(keeper, t - i64::from(delay)))
            }
            Role::Tied(state) => Some(Held::Parameter(state, t)),
            Role::Optimizer => Some(Held::Optimizer(keeper, t)),
            Role::Gradient => {
                self.tree(stage).map(|tree| Held::Gradient(keeper, t, tree.whole))
            }
            Role::Squares => self.norm_before(launch),
            Role::Activation => Some(Held::Activation(stage, i, t)),
            Role::Retained => Some(Held::Retained(stage, i, t)),
            Role::Adjoint => Some(Held::Adjoint(stage, i, t)),
            Role::Value(value) => Some(Held::Value(value, i, t)),
            Role::ValueGradient(value) => {
                Some(Held::ValueGradient(value, i, t, self.flows.before(value, stage)))
            }
            Role::Input(input) => Some(Held::Input(input, i, t)),
            Role::Metric => Some(Held::Metric(i, t)),
            Role::NextParameter
            | Role::TiedGradient(_)
            | Role::Received
            | Role::Workspace => None,
        }
    }

    /// What an argument that is written holds after.
    fn made(
        &self,
        launch: Launch<'_>,
        role: Role,
        access: Access,
        gathered: Held<SumId>,
    ) -> Held<SumId> {
        let (t, stage, pass) = (launch.step.t, launch.routine.stage, launch.routine.pass);
        let i = launch.i.unwrap_or(MicroBatch::new(0));
        match role {
            Role::Parameter | Role::NextParameter => Held::Parameter(stage, t + 1),
            Role::Optimizer => Held::Optimizer(stage, t + 1),
            Role::Gradient if pass == Pass::Update => Held::Nothing,
            Role::Gradient | Role::TiedGradient(_) => gathered,
            Role::Squares => self.norm_with(launch, access),
            Role::Activation if access == Access::Update => Held::Nothing,
            Role::Activation => Held::Activation(stage, i, t),
            Role::Retained => Held::Retained(stage, i, t),
            Role::Adjoint => Held::Adjoint(stage, i, t),
            Role::Value(value) => Held::Value(value, i, t),
            Role::ValueGradient(value) => self.contributed(launch, value, i),
            Role::Metric if self.schedule.ends(stage) => Held::Metric(i, t),
            Role::Metric => Held::Nothing,
            Role::Tied(_) | Role::Received | Role::Input(_) | Role::Workspace => {
                Held::Nothing
            }
        }
    }

    /// The square that a pass N adds to, or that an update reads.
    fn norm_before(&self, launch: Launch<'_>) -> Option<Held<SumId>> {
        let (plan, stage) = (&self.schedule.plan, launch.routine.stage);
        let [first, last] = plan.normed_with(stage);
        let is_search = launch.routine.pass == Pass::Norm;
        let first = if is_search { plan.normed_behind(stage)? } else { first };
        Some(Held::Squares([first, last], launch.step.t))
    }

    /// The square that a pass N makes: its own, or that and those behind it.
    fn norm_with(&self, launch: Launch<'_>, access: Access) -> Held<SumId> {
        let plan = &self.schedule.plan;
        let own = plan.keeper(launch.routine.stage);
        let [_, last] = plan.normed_with(own);
        let last = if access == Access::Write { own } else { last };
        Held::Squares([own, last], launch.step.t)
    }

    fn contributed(
        &self,
        launch: Launch<'_>,
        value: ValueId,
        i: MicroBatch,
    ) -> Held<SumId> {
        let (t, stage) = (launch.step.t, launch.routine.stage);
        match self.flows.makes(stage, value) {
            true => Held::Nothing,
            false => {
                Held::ValueGradient(value, i, t, self.flows.before(value, stage) + 1)
            }
        }
    }

    /// The gradient sums that a backward pass or a combination makes, each with its argument.
    fn gather(&mut self, launch: Launch<'_>) -> Vec<(usize, Held<SumId>)> {
        match launch.routine.pass {
            Pass::Forward | Pass::InputGradient | Pass::Norm | Pass::Update => Vec::new(),
            Pass::Backward | Pass::WeightGradient | Pass::Combine => {
                let arguments = launch.routine.arguments.iter().enumerate();
                let sums = arguments.filter(|(_, argument)| argument.role.is_sum());
                sums.map(|(place, _)| (place, self.sum(launch, place))).collect()
            }
        }
    }

    /// The gradient sum that is made in an argument.
    fn sum(&mut self, launch: Launch<'_>, place: usize) -> Held<SumId> {
        let (t, state) = (launch.step.t, self.state(launch, place));
        let addition = |i| self.schedule.plan.addition(state, launch.routine.stage, i);
        let addition = launch.i.map(addition);
        let Some(tree) = self.tree(state) else { return Held::Nothing };
        let made = match (launch.routine.pass, addition) {
            (Pass::Combine, _) => self.combine(launch, place),
            (_, None) => return Held::Nothing,
            (_, Some(addition)) => self.accumulate(launch, place, addition),
        };
        let planned = addition.map_or(tree.whole, |addition| tree.with(addition));
        match made {
            Ok(sum) if tree.has(sum) => Held::Gradient(state, t, sum),
            Ok(sum) => {
                self.misplan(launch.step, state, launch.spot(place), sum);
                Held::Gradient(state, t, planned)
            }
            Err(Refused) => Held::Gradient(state, t, planned),
        }
    }

    /// The state that an argument is a part of.
    fn state(&self, launch: Launch<'_>, place: usize) -> Stage {
        let Routine { stage, arguments, .. } = launch.routine;
        self.schedule.plan.state_of(arguments[place].role, *stage)
    }

    fn accumulate(
        &mut self,
        launch: Launch<'_>,
        own: usize,
        addition: MicroBatch,
    ) -> Result<SumId, Refused> {
        match launch.routine.arguments[own].access {
            Access::Write => Ok(self.sums.first(addition)),
            Access::Read | Access::Update => {
                let before = self.partial(launch, own, Some(addition))?;
                Ok(self.sums.add(before, addition))
            }
        }
    }

    fn combine(&mut self, launch: Launch<'_>, own: usize) -> Result<SumId, Refused> {
        let received = launch.routine.place_of(Role::Received).ok_or(Refused)?;
        let received = self.partial(launch, received, None)?;
        let tree = self.tree(self.state(launch, own));
        let own = self.partial(launch, own, None)?;
        // a + b = b + a, bit for bit: the plan says which of the two it means.
        let sums = [(received, own), (own, received)].map(|(a, b)| self.sums.join(a, b));
        let planned = tree.filter(|tree| tree.has(sums[1]) && !tree.has(sums[0]));
        Ok(sums[usize::from(planned.is_some())])
    }

    /// The gradient sum that an argument holds, of the right state and step.
    fn partial(
        &mut self,
        launch: Launch<'_>,
        argument: usize,
        addition: Option<MicroBatch>,
    ) -> Result<SumId, Refused> {
        let (t, state) = (launch.step.t, self.state(launch, argument));
        let spot = launch.spot(argument);
        match self.read(spot) {
            Held::Gradient(own, step, sum) if own == state && step == t => Ok(sum),
            _ => {
                let tree = self.tree(state).ok_or(Refused)?;
                let sum = addition.map_or(tree.whole, |addition| tree.before(addition));
                let expected = Held::Gradient(state, t, sum);
                self.refuse(launch.step, spot, argument, expected);
                Err(Refused)
            }
        }
    }
}

/// Something was reported, so what follows from it is not.
#[derive(Clone, Copy, Debug)]
struct Refused;
