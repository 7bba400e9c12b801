//! Decisions as lines of a program: what a search leaves open, what it allows, and the line that
//! pins what a plan decides. Every line can stand in `plan { … }` and behind `--set`.

use roundelay_dsl::{Choice, Numbers, Search};
use roundelay_schedule::{Order, Plan, Recompute, States};
use std::fmt::Display;

/// A decision that a program may restrict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Recompute,
    Number(Number),
    Order,
    States,
    Sequence,
    Images,
    Contraction,
    Placement,
    Rule,
}

/// A decision for one number among some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    MicroBatches,
    /// With the cuts.
    Stages,
    Chunks,
    Slices,
    Shards,
    Rows,
    Columns,
    Overdecompose,
    /// What `states` and `shards` come to.
    Depth,
    Replicas,
    Devices,
    FirstDevice,
}

impl Number {
    fn name(self) -> &'static str {
        match self {
            Self::MicroBatches => "micro_batches",
            Self::Stages => "stages",
            Self::Chunks => "chunks",
            Self::Slices => "slices",
            Self::Shards => "shards",
            Self::Rows => "tensor.rows",
            Self::Columns => "tensor.columns",
            Self::Overdecompose => "tensor.overdecompose",
            Self::Depth => "tensor.depth",
            Self::Replicas => "replicas",
            Self::Devices => "devices",
            Self::FirstDevice => "first_device",
        }
    }

    /// Those that a search may take.
    fn allowed(self, search: &Search) -> &Numbers {
        match self {
            Self::MicroBatches => &search.micro_batches,
            Self::Stages => &search.stages,
            Self::Chunks => &search.chunks,
            Self::Slices => &search.slices,
            Self::Shards => &search.shards,
            Self::Rows => &search.rows,
            Self::Columns => &search.columns,
            Self::Overdecompose => &search.overdecompose,
            Self::Depth => &search.depth,
            Self::Replicas => &search.replicas,
            Self::Devices => &search.devices,
            Self::FirstDevice => &search.first_device,
        }
    }

    fn allowed_mut(self, search: &mut Search) -> &mut Numbers {
        match self {
            Self::MicroBatches => &mut search.micro_batches,
            Self::Stages => &mut search.stages,
            Self::Chunks => &mut search.chunks,
            Self::Slices => &mut search.slices,
            Self::Shards => &mut search.shards,
            Self::Rows => &mut search.rows,
            Self::Columns => &mut search.columns,
            Self::Overdecompose => &mut search.overdecompose,
            Self::Depth => &mut search.depth,
            Self::Replicas => &mut search.replicas,
            Self::Devices => &mut search.devices,
            Self::FirstDevice => &mut search.first_device,
        }
    }

    /// That of a plan.
    pub(crate) fn of(self, plan: &Plan) -> u64 {
        match self {
            Self::MicroBatches => plan.micro_batches.into(),
            Self::Stages => plan.stages.into(),
            Self::Chunks => plan.chunks.into(),
            Self::Slices => plan.slices.into(),
            Self::Shards => plan.shards.into(),
            Self::Rows => plan.tensor.rows.into(),
            Self::Columns => plan.tensor.columns.into(),
            Self::Overdecompose => plan.tensor.overdecompose.into(),
            Self::Depth => plan.depth().into(),
            Self::Replicas => plan.replicas.into(),
            Self::Devices => plan.devices.len() as u64,
            Self::FirstDevice => plan.first_device().into(),
        }
    }

    /// Whether a search allows that of a plan, whatever it says of cuts.
    pub(crate) fn allows(self, search: &Search, plan: &Plan) -> bool {
        self.allowed(search).allows(self.of(plan))
    }

    /// From that of a plan to the nearest that a search allows.
    fn distance(self, search: &Search, plan: &Plan) -> u64 {
        let own = self.of(plan);
        match self.allowed(search) {
            Numbers::Open => 0,
            Numbers::Ranges(ranges) => {
                let each = ranges.iter().map(|(least, most)| {
                    least.saturating_sub(own).max(own.saturating_sub(*most))
                });
                each.min().unwrap_or(0)
            }
        }
    }
}

impl Decision {
    /// From what changes least to what changes most.
    pub(crate) const ALL: [Self; 20] = [
        Self::Recompute,
        Self::Number(Number::MicroBatches),
        Self::Number(Number::Stages),
        Self::Number(Number::Chunks),
        Self::Number(Number::Slices),
        Self::Order,
        Self::States,
        Self::Number(Number::Shards),
        Self::Sequence,
        Self::Images,
        Self::Number(Number::Rows),
        Self::Number(Number::Columns),
        Self::Contraction,
        Self::Number(Number::Overdecompose),
        Self::Number(Number::Depth),
        Self::Number(Number::Replicas),
        Self::Number(Number::Devices),
        Self::Number(Number::FirstDevice),
        Self::Placement,
        Self::Rule,
    ];

    /// Its name in the language.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Recompute => "recompute",
            Self::Number(number) => number.name(),
            Self::Order => "order",
            Self::States => "states",
            Self::Sequence => "sequence",
            Self::Images => "images",
            Self::Contraction => "tensor.contraction",
            Self::Placement => "placement",
            Self::Rule => "rule",
        }
    }

    /// The line that leaves it a value, or several with `|` between.
    pub(crate) fn line(self, values: &dyn Display) -> String {
        match self.name().split_once('.') {
            Some((outer, inner)) => format!("{outer} {{ {inner} {values} }}"),
            None => format!("{} {values}", self.name()),
        }
    }

    /// Whether a search leaves it open.
    pub(crate) fn is_open(self, search: &Search) -> bool {
        match self {
            Self::Recompute => {
                search.recompute == Choice::Open && search.pinned.is_empty()
            }
            Self::Number(number) => {
                let is_cut = number == Number::Stages && search.cuts.is_some();
                *number.allowed(search) == Numbers::Open && !is_cut
            }
            Self::Order => search.order == Choice::Open,
            Self::States => search.states == Choice::Open,
            Self::Sequence => search.sequence == Choice::Open,
            Self::Images => search.images == Choice::Open,
            Self::Contraction => search.contraction == Choice::Open,
            Self::Placement => search.placement == Choice::Open,
            Self::Rule => search.rule == Choice::Open,
        }
    }

    /// Leaves it open.
    pub(crate) fn open(self, search: &mut Search) {
        match self {
            Self::Recompute => {
                search.recompute = Choice::Open;
                search.pinned.clear();
            }
            Self::Number(number) => {
                *number.allowed_mut(search) = Numbers::Open;
                if number == Number::Stages {
                    search.cuts = None;
                }
            }
            Self::Order => search.order = Choice::Open,
            Self::States => search.states = Choice::Open,
            Self::Sequence => search.sequence = Choice::Open,
            Self::Images => search.images = Choice::Open,
            Self::Contraction => search.contraction = Choice::Open,
            Self::Placement => search.placement = Choice::Open,
            Self::Rule => search.rule = Choice::Open,
        }
    }

    /// Whether a plan has what it is about. Law: one that has not has one value of it that every
    /// search allows.
    pub(crate) fn is_about(self, plan: &Plan) -> bool {
        match self {
            Self::Number(Number::Shards) => plan.states == States::Hsdp,
            Self::Sequence | Self::Images => plan.tensor.parts() > 1,
            Self::Contraction => plan.tensor.columns > 1,
            Self::Number(
                Number::MicroBatches
                | Number::Stages
                | Number::Chunks
                | Number::Slices
                | Number::Rows
                | Number::Columns
                | Number::Overdecompose
                | Number::Depth
                | Number::Replicas
                | Number::Devices
                | Number::FirstDevice,
            )
            | Self::Recompute
            | Self::Order
            | Self::States
            | Self::Placement
            | Self::Rule => true,
        }
    }

    /// Whether a search allows what a plan decides.
    pub(crate) fn allows(self, search: &Search, plan: &Plan) -> bool {
        !self.is_about(plan) || self.has_allowed(search, plan)
    }

    /// The same where the plan has what it is about.
    fn has_allowed(self, search: &Search, plan: &Plan) -> bool {
        match self {
            Self::Recompute => (0..)
                .zip(&plan.recompute)
                .all(|(stage, recompute)| allows_recompute(search, stage, recompute)),
            Self::Number(Number::Stages) => {
                let is_cut = search.cuts.as_ref().is_none_or(|cuts| *cuts == plan.cuts);
                is_cut && Number::Stages.allows(search, plan)
            }
            Self::Number(number) => number.allows(search, plan),
            Self::Order => search.order.allows(&plan.order),
            Self::States => search.states.allows(&plan.states),
            Self::Sequence => search.sequence.allows(&plan.tensor.sequence),
            Self::Images => search.images.allows(&plan.tensor.images),
            Self::Contraction => search.contraction.allows(&plan.tensor.contraction),
            Self::Placement => search.placement.allows(&plan.placement),
            Self::Rule => search.rule.allows(&plan.rule),
        }
    }

    /// The lines that pin it to what a plan decides, whatever a search says so far; none where
    /// no line can say it: lists stand in a file, and stages that differ in what they compute
    /// again follow from pins.
    pub(crate) fn lines(self, search: &Search, plan: &Plan) -> Option<Vec<String>> {
        let line = |value: &dyn Display| self.line(value);
        Some(match self {
            Self::Recompute => {
                let first = plan.recompute.first()?;
                let same = plan.recompute.iter().all(|recompute| recompute == first);
                let last = plan.stages.saturating_sub(1);
                let every = format!("stage 0 .. {last} {{ recompute {first} }}");
                let pinned = (!search.pinned.is_empty()).then_some(every);
                same.then(|| [line(first)].into_iter().chain(pinned).collect())?
            }
            Self::Number(Number::Stages) => {
                let pinned = search.cuts.is_some().then(|| cuts_line(&plan.cuts));
                [line(&plan.stages)].into_iter().chain(pinned).collect()
            }
            Self::Order if plan.order == Order::Listed => return None,
            Self::Number(number) => vec![line(&number.of(plan))],
            Self::Order => vec![line(&plan.order)],
            Self::States => vec![line(&plan.states)],
            Self::Sequence => vec![line(&plan.tensor.sequence)],
            Self::Images => vec![line(&plan.tensor.images)],
            Self::Contraction => vec![line(&plan.tensor.contraction)],
            Self::Placement => vec![line(&plan.placement)],
            Self::Rule => vec![line(&plan.rule)],
        })
    }

    /// How far what a plan decides is from what a search allows.
    pub(crate) fn distance(self, search: &Search, plan: &Plan) -> u64 {
        match self {
            Self::Recompute => plan.recompute.iter().max().map_or(0, |most| most.rank()),
            Self::Number(number) => number.distance(search, plan),
            Self::Order
            | Self::States
            | Self::Sequence
            | Self::Images
            | Self::Contraction
            | Self::Placement
            | Self::Rule => 0,
        }
    }
}

/// Which of the pins of a search counts for a stage, if any does.
pub(crate) fn pin_of(search: &Search, stage: u32) -> Option<usize> {
    search.pinned.iter().rposition(|pin| (pin.first..=pin.last).contains(&stage))
}

/// Whether a stage may compute this again.
pub(crate) fn allows_recompute(
    search: &Search,
    stage: u32,
    recompute: &Recompute,
) -> bool {
    match pin_of(search, stage) {
        Some(pin) => search.pinned[pin].recompute == *recompute,
        None => search.recompute.allows(recompute),
    }
}

/// The line that pins cuts.
pub(crate) fn cuts_line(cuts: &[u32]) -> String {
    let cuts: Vec<String> = cuts.iter().map(u32::to_string).collect();
    format!("cuts [{}]", cuts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, plan, sample};
    use roundelay_dsl::Objective;

    #[test]
    fn pinning_every_decision_of_a_plan_leaves_that_plan() {
        let mut program = sample::program(4, 4);
        program.search.exactness = Some(roundelay_schedule::Exactness::Delayed);
        program.search.objective = Objective::Memory;
        let every =
            Options { top: usize::MAX, clocked_max: usize::MAX, ..Options::default() };
        let all = plan(&program, &every).expect("plans fit").plans;
        for candidate in all.iter().step_by(11) {
            let mut pinned = program.clone();
            let lines = Decision::ALL
                .into_iter()
                .filter(|d| d.is_about(&candidate.plan))
                .flat_map(|d| {
                    d.lines(&program.search, &candidate.plan).unwrap_or_default()
                });
            let lines: Vec<String> = lines.collect();
            pinned.set_all(&lines).unwrap_or_else(|mistake| panic!("{mistake}"));
            for decision in Decision::ALL {
                let (search, plan) = (&pinned.search, &candidate.plan);
                assert!(decision.allows(search, plan), "{lines:?}");
                let numbers = decision != Decision::Recompute;
                assert!(!numbers || decision.distance(search, plan) == 0, "{lines:?}");
            }
            let found = plan(&pinned, &every).expect("it fits").plans;
            let plans: Vec<&Plan> = found.iter().map(|found| &found.plan).collect();
            assert_eq!(plans, [&candidate.plan], "{lines:?}");
        }
    }
}
