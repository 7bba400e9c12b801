//! A plan before it is written out: the decisions of the search, and what follows from them by
//! arithmetic alone. A space has many of them, so they are small.

use crate::space::{
    counts::Counts,
    cuts::{Messages, Users},
    family::Family,
    spread::Spread,
};
use roundelay_dsl::Program;
use roundelay_schedule::{Exactness, Order, Plan, Recompute, Rule};

/// Every decision of a plan but its cuts, which follow from them and from what messages cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Outline {
    /// The decisions without a number.
    pub family: Family,
    /// The numbers.
    pub counts: Counts,
    /// What messages cost where it is cut.
    pub messages: Messages,
    /// What stages compute again that the program does not pin.
    pub recompute: Recompute,
    /// Devices that it takes.
    pub devices: u32,
}

impl Outline {
    /// The plan.
    pub(crate) fn plan(&self, program: &Program, cuts: &[u32]) -> Plan {
        let Family { rule, placement, order, states } = self.family;
        let Counts { micro_batches, chunks, slices, replicas, shards, tensor, .. } =
            self.counts;
        let plan =
            Plan::new(rule, placement, order, states, micro_batches, cuts.to_vec());
        let plan = match order {
            Order::Listed => plan.with_lists(program.search.lists.clone()),
            _ => plan,
        };
        let plan = plan.with_boundaries(boundaries(rule, program));
        let plan = plan.with_chunks(chunks).with_slices(slices).with_tensor(tensor);
        let plan = plan.replicated(replicas, shards);
        let plan = plan.starting_at(self.counts.first_device);
        Plan { recompute: self.recomputes(program), ..plan }
    }

    /// What each stage computes again.
    pub(crate) fn recomputes(&self, program: &Program) -> Vec<Recompute> {
        let mut all = vec![self.recompute; self.counts.stages as usize];
        for pin in &program.search.pinned {
            all[pin.first as usize..=pin.last as usize].fill(pin.recompute);
        }
        all
    }

    /// Whether another plan differs from it in what it computes again alone.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        let own = |outline: &Self| (outline.family, outline.counts, outline.messages);
        own(self) == own(other)
    }

    /// Whether stages may part the users of a parameter.
    pub(crate) fn users(&self, program: &Program) -> Users {
        self.family.users(program, self.counts.slices)
    }

    /// Whether slices of sequences flow.
    pub(crate) fn is_sliced(&self) -> bool {
        self.counts.slices > 1
    }

    /// In how many decisions another plan differs from it.
    pub(crate) fn differs(&self, other: &Self) -> usize {
        let (one, two) = (self.family, other.family);
        let words = [
            one.rule != two.rule,
            one.placement != two.placement,
            one.order != two.order,
            one.states != two.states,
            self.counts.tensor != other.counts.tensor,
            self.messages != other.messages,
            self.recompute != other.recompute,
        ];
        let numbers = self.counts.numbers().into_iter().zip(other.counts.numbers());
        let numbers = numbers.map(|(one, two)| one != two);
        words.into_iter().chain(numbers).filter(|differs| *differs).count()
    }

    /// How its stages are spread over its devices.
    pub(crate) fn spread(&self) -> Spread {
        Spread::new(self.family, self.counts, self.devices)
    }

    /// The plan without what has a place for each stage, micro-batch or device: cuts, units,
    /// recompute and delays are empty, and of the devices only the first is there. What its methods
    /// say of numbers holds.
    pub(crate) fn bare(&self, program: &Program) -> Plan {
        let Family { rule, placement, order, states } = self.family;
        let Counts {
            micro_batches,
            stages,
            chunks,
            slices,
            replicas,
            shards,
            tensor,
            first_device,
        } = self.counts;
        let lists = match order {
            Order::Listed => program.search.lists.clone(),
            _ => Vec::new(),
        };
        let plan = Plan {
            rule,
            placement,
            order,
            replicas,
            shards,
            tensor,
            stages,
            chunks,
            slices,
            cuts: Vec::new(),
            ties: Vec::new(),
            boundaries: Vec::new(),
            micro_batches,
            states,
            recompute: Vec::new(),
            reduction: roundelay_schedule::Reduction::Sequential,
            delays: rule.delays(placement.timeline(), 0, 0),
            devices: vec![roundelay_schedule::Id::new(first_device as usize)],
            lists,
            rewrites: roundelay_schedule::Rewrites::default(),
            maps: roundelay_schedule::MapWays::default(),
        };
        Plan { reduction: plan.own_reduction(), ..plan }
    }

    /// The class of its gradients. A cyclic rule under which nothing is late is no plan of a
    /// space.
    pub(crate) fn exactness(&self, program: &Program) -> Exactness {
        match self.family.rule {
            Rule::Sync => self.bare(program).exactness(),
            rule @ (Rule::CyclicV1
            | Rule::CyclicV2
            | Rule::CyclicSlack(_)
            | Rule::Local { .. }) => rule.exactness().max(self.bare(program).exactness()),
        }
    }
}

/// Where units begin, in a program whose model is in units.
fn boundaries(rule: Rule, program: &Program) -> Vec<u32> {
    match rule {
        Rule::Local { .. } => program.model.boundaries(),
        Rule::Sync | Rule::CyclicV1 | Rule::CyclicV2 | Rule::CyclicSlack(_) => Vec::new(),
    }
}
