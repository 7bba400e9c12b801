//! Ties: parameters that several stages use, as a language model's table of tokens is used by its
//! first and its last stage. They are a state of their own: every stage that uses them adds up its
//! gradients, the first one's device adds these sums up, updates, and gives the new version to
//! the others. Such states are numbered behind the stages, as if each were one without passes.

use crate::{Id, MicroBatch, Placement, Plan, PlanFault, Role, Rule, Stage, States};
use serde::{Deserialize, Serialize};

/// The stages that use some parameters, ascending; there are at least two.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tie(pub Vec<u32>);

impl Tie {
    /// The stages, each with the number of its sum among those that are added up.
    pub fn users(&self) -> impl Iterator<Item = (u32, Stage)> + '_ {
        (0..).zip(self.0.iter().map(|stage| Stage::numbered(*stage)))
    }

    /// The number of a stage's sum, if it is one of the stages.
    pub fn place_of(&self, stage: Stage) -> Option<u32> {
        let found = self.0.binary_search(&stage.number()).ok()?;
        u32::try_from(found).ok()
    }

    /// How many sums are added up.
    pub fn sums(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }
}

impl Plan {
    /// The same with these ties.
    #[must_use]
    pub fn with_ties(self, ties: Vec<Tie>) -> Self {
        Self { ties, ..self }
    }

    /// Stages as lists, routines and actions count them, and the states behind them.
    pub fn state_count(&self) -> u32 {
        self.pass_stages()
            .saturating_add(u32::try_from(self.ties.len()).unwrap_or(u32::MAX))
    }

    /// The states of ties.
    pub fn tied(&self) -> impl DoubleEndedIterator<Item = (Stage, &Tie)> + '_ {
        let first = self.pass_stages() as usize;
        self.ties
            .iter()
            .enumerate()
            .map(move |(number, tie)| (Stage::new(first + number), tie))
    }

    /// The tie whose state this is, if it is not that of a stage.
    pub fn tie(&self, state: Stage) -> Option<&Tie> {
        let number = state.index().checked_sub(self.pass_stages() as usize)?;
        self.ties.get(number)
    }

    /// What pictures call a state: a stage by its number, a tie by `t` and its own.
    pub fn state_label(&self, state: Stage) -> String {
        match self.tie(state) {
            None => state.index().to_string(),
            Some(_) => format!("t{}", state.index() - self.pass_stages() as usize),
        }
    }

    /// What the names of ties mean: `t0 what stages 0, 3 share`.
    pub fn tie_legend(&self) -> impl Iterator<Item = String> + '_ {
        self.tied().map(|(state, Tie(users))| {
            let users: Vec<String> = users.iter().map(u32::to_string).collect();
            let name = self.state_label(state);
            format!("{name} what stages {} share", users.join(", "))
        })
    }

    /// The state that an argument of a stage's routine is a part of.
    pub fn state_of(&self, role: Role, stage: Stage) -> Stage {
        match role.tied() {
            Some(state) => state,
            None => self.keeper(stage),
        }
    }

    /// Updates that the parameters of a state lag behind in the passes on a micro-batch.
    pub fn delay(&self, state: Stage, micro_batch: MicroBatch) -> u32 {
        match self.tie(state) {
            Some(_) => 0,
            None => {
                self.delays.delay(micro_batch.index(), self.whole_stage(state) as usize)
            }
        }
    }

    /// The most updates that the parameters of a state lag behind.
    pub fn staleness(&self, state: Stage) -> u32 {
        match self.tie(state) {
            Some(_) => 0,
            None => self.delays.staleness(self.whole_stage(state) as usize),
        }
    }

    /// Ties are of stages that there are, in a pipeline whose states are whole and that updates all
    /// stages together.
    ///
    /// # Errors
    /// What keeps them from it.
    pub fn check_ties(&self) -> Result<(), PlanFault> {
        let Self { ties, stages, rule, placement, states, slices, .. } = self;
        let fault = |message| Err(PlanFault::Ties(message));
        let is_one = |Tie(users): &Tie| {
            let ascending = users.windows(2).all(|pair| pair[0] < pair[1]);
            users.len() > 1 && ascending && users.last() < Some(stages)
        };
        if let Some(Tie(users)) = ties.iter().find(|tie| !is_one(tie)) {
            return fault(format!(
                "a tie of stages {users:?}: name two or more of {stages} stages, ascending"
            ));
        }
        let alone = (*placement, *rule) != (Placement::Pipeline, Rule::Sync);
        match ties.first() {
            None => Ok(()),
            Some(Tie(users)) if alone || self.is_mirrored() => fault(format!(
                "stages {users:?} use the same parameters, which only a pipeline of rule sync in one \
                 direction can part: put their users into one stage"
            )),
            Some(Tie(users)) if *states != States::Replicated => fault(format!(
                "stages {users:?} use the same parameters, which are not split among replicas: set \
                 `states replicated`, not {states}, or put their users into one stage"
            )),
            Some(Tie(users)) if *slices > 1 => fault(format!(
                "stages {users:?} use the same parameters, which slices of sequences cannot: set \
                 `slices 1`, or put their users into one stage"
            )),
            Some(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Order, Sum};

    fn plan(order: Order, states: States, ties: &[&[u32]]) -> Plan {
        let ties = ties.iter().map(|tie| Tie(tie.to_vec())).collect();
        let (rule, placement) = (Rule::Sync, Placement::Pipeline);
        Plan::new(rule, placement, order, states, 2, vec![1, 2, 3]).with_ties(ties)
    }

    #[test]
    fn states_of_ties_stand_behind_the_stages_and_sum_user_by_user() {
        let plan = plan(
            Order::OneForwardOneBackward,
            States::Replicated,
            &[&[0, 3], &[1, 2, 3]],
        );
        assert_eq!(plan.check_ties(), Ok(()));
        assert_eq!(plan.state_count(), 6);
        let second = Stage::new(5);
        assert_eq!(plan.tie(second), Some(&Tie(vec![1, 2, 3])));
        assert_eq!(plan.tie(Stage::new(3)), None);
        assert_eq!([3, 5].map(|own| plan.state_label(Stage::new(own))), ["3", "t1"]);
        let legend: Vec<String> = plan.tie_legend().collect();
        assert_eq!(legend, ["t0 what stages 0, 3 share", "t1 what stages 1, 2, 3 share"]);
        assert_eq!(plan.normed_with(Stage::new(2)), [Stage::new(0), second]);
        let list = |from: usize| Sum::list([from, from + 1].map(MicroBatch::new));
        assert_eq!(plan.sum(4), Sum::all(vec![list(0), list(2)]));
        assert_eq!(plan.sum(5), Sum::all(vec![list(0), list(2), list(4)]));
        assert_eq!(plan.sum(0), list(0));
        let addition = |stage, i| {
            plan.addition(second, Stage::new(stage), MicroBatch::new(i)).index()
        };
        assert_eq!([addition(1, 1), addition(2, 0), addition(3, 1)], [1, 2, 5]);
    }

    #[test]
    fn replicas_sum_their_users_one_by_one() {
        let plan = plan(Order::OneForwardOneBackward, States::Replicated, &[&[0, 3]])
            .replicated(2, 1);
        let list = |from: usize| Sum::list([from, from + 1].map(MicroBatch::new));
        let of = |from| Sum::all(vec![list(from), list(from + 2)]);
        assert_eq!(plan.sum(4), Sum::all(vec![of(0), of(4)]));
    }

    #[test]
    fn ties_that_nothing_can_keep_are_refused_with_a_reason() {
        let refused = |plan: Plan| match plan.check_ties() {
            Err(PlanFault::Ties(message)) => message,
            other => panic!("{other:?}"),
        };
        let whole = |ties: &[&[u32]]| {
            plan(Order::OneForwardOneBackward, States::Replicated, ties)
        };
        for wrong in [&[0][..], &[3, 0], &[0, 4], &[1, 1]] {
            assert!(refused(whole(&[wrong])).contains("two or more of 4 stages"));
        }
        let sharded = plan(Order::OneForwardOneBackward, States::Zero1, &[&[0, 3]])
            .replicated(2, 1);
        assert!(refused(sharded).contains("`states replicated`"));
        let sliced =
            plan(Order::SlicesOneForwardOneBackward, States::Replicated, &[&[0, 3]])
                .with_slices(2);
        assert!(refused(sliced).contains("`slices 1`"));
        let mirrored = plan(Order::Chimera, States::Replicated, &[&[0, 3]]);
        assert!(refused(mirrored).contains("in one direction"));
        let stale = Plan { rule: Rule::CyclicV1, ..whole(&[&[0, 3]]) };
        assert!(refused(stale).contains("rule sync"));
    }
}
