//! Decisions as lines of a program: what a search leaves open, what it allows, and the line that
//! pins what a plan decides. Every line can stand in `plan { … }` and behind `--set`.

use roundelay_dsl::{Choice, Numbers, Search};
use roundelay_schedule::{Order, Plan, States};
use std::fmt::Display;

/// A decision that a program may restrict, from what changes least to what changes most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Decision {
    Recompute,
    MicroBatches,
    /// With the cuts.
    Stages,
    Chunks,
    Slices,
    Order,
    States,
    Shards,
    Sequence,
    Images,
    Rows,
    Columns,
    Contraction,
    Overdecompose,
    /// What `states` and `shards` come to.
    Depth,
    Replicas,
    Devices,
    FirstDevice,
    Placement,
    Rule,
}

impl Decision {
    pub(crate) const ALL: [Self; 20] = [
        Self::Recompute,
        Self::MicroBatches,
        Self::Stages,
        Self::Chunks,
        Self::Slices,
        Self::Order,
        Self::States,
        Self::Shards,
        Self::Sequence,
        Self::Images,
        Self::Rows,
        Self::Columns,
        Self::Contraction,
        Self::Overdecompose,
        Self::Depth,
        Self::Replicas,
        Self::Devices,
        Self::FirstDevice,
        Self::Placement,
        Self::Rule,
    ];

    /// Its name in the language.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Recompute => "recompute",
            Self::MicroBatches => "micro_batches",
            Self::Stages => "stages",
            Self::Chunks => "chunks",
            Self::Slices => "slices",
            Self::Order => "order",
            Self::States => "states",
            Self::Shards => "shards",
            Self::Sequence => "sequence",
            Self::Images => "images",
            Self::Rows => "tensor.rows",
            Self::Columns => "tensor.columns",
            Self::Contraction => "tensor.contraction",
            Self::Overdecompose => "tensor.overdecompose",
            Self::Depth => "tensor.depth",
            Self::Replicas => "replicas",
            Self::Devices => "devices",
            Self::FirstDevice => "first_device",
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
            Self::MicroBatches => search.micro_batches == Numbers::Open,
            Self::Stages => search.stages == Numbers::Open && search.cuts.is_none(),
            Self::Chunks => search.chunks == Numbers::Open,
            Self::Slices => search.slices == Numbers::Open,
            Self::Order => search.order == Choice::Open,
            Self::States => search.states == Choice::Open,
            Self::Shards => search.shards == Numbers::Open,
            Self::Sequence => search.sequence == Choice::Open,
            Self::Images => search.images == Choice::Open,
            Self::Rows => search.rows == Numbers::Open,
            Self::Columns => search.columns == Numbers::Open,
            Self::Contraction => search.contraction == Choice::Open,
            Self::Overdecompose => search.overdecompose == Numbers::Open,
            Self::Depth => search.depth == Numbers::Open,
            Self::Replicas => search.replicas == Numbers::Open,
            Self::Devices => search.devices == Numbers::Open,
            Self::FirstDevice => search.first_device == Numbers::Open,
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
            Self::MicroBatches => search.micro_batches = Numbers::Open,
            Self::Stages => {
                search.stages = Numbers::Open;
                search.cuts = None;
            }
            Self::Chunks => search.chunks = Numbers::Open,
            Self::Slices => search.slices = Numbers::Open,
            Self::Order => search.order = Choice::Open,
            Self::States => search.states = Choice::Open,
            Self::Shards => search.shards = Numbers::Open,
            Self::Sequence => search.sequence = Choice::Open,
            Self::Images => search.images = Choice::Open,
            Self::Rows => search.rows = Numbers::Open,
            Self::Columns => search.columns = Numbers::Open,
            Self::Contraction => search.contraction = Choice::Open,
            Self::Overdecompose => search.overdecompose = Numbers::Open,
            Self::Depth => search.depth = Numbers::Open,
            Self::Replicas => search.replicas = Numbers::Open,
            Self::Devices => search.devices = Numbers::Open,
            Self::FirstDevice => search.first_device = Numbers::Open,
            Self::Placement => search.placement = Choice::Open,
            Self::Rule => search.rule = Choice::Open,
        }
    }

    /// Whether a plan has what it is about. Law: one that has not has one value of it that every
    /// search allows.
    pub(crate) fn is_about(self, plan: &Plan) -> bool {
        match self {
            Self::Shards => plan.states == States::Hsdp,
            Self::Sequence | Self::Images => plan.tensor.parts() > 1,
            Self::Contraction => plan.tensor.columns > 1,
            Self::Recompute
            | Self::MicroBatches
            | Self::Stages
            | Self::Chunks
            | Self::Slices
            | Self::Order
            | Self::States
            | Self::Rows
            | Self::Columns
            | Self::Overdecompose
            | Self::Depth
            | Self::Replicas
            | Self::Devices
            | Self::FirstDevice
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
            Self::Recompute => (0..).zip(&plan.recompute).all(|(stage, recompute)| {
                let pins = search.pinned.iter().rev();
                let mut own = pins.filter(|pin| (pin.first..=pin.last).contains(&stage));
                match own.next() {
                    Some(pin) => pin.recompute == *recompute,
                    None => search.recompute.allows(recompute),
                }
            }),
            Self::MicroBatches => search.micro_batches.allows(plan.micro_batches.into()),
            Self::Stages => {
                let is_cut = search.cuts.as_ref().is_none_or(|cuts| *cuts == plan.cuts);
                is_cut && search.stages.allows(plan.stages.into())
            }
            Self::Chunks => search.chunks.allows(plan.chunks.into()),
            Self::Slices => search.slices.allows(plan.slices.into()),
            Self::Order => search.order.allows(&plan.order),
            Self::States => search.states.allows(&plan.states),
            Self::Shards => search.shards.allows(plan.shards.into()),
            Self::Sequence => search.sequence.allows(&plan.tensor.sequence),
            Self::Images => search.images.allows(&plan.tensor.images),
            Self::Rows => search.rows.allows(plan.tensor.rows.into()),
            Self::Columns => search.columns.allows(plan.tensor.columns.into()),
            Self::Contraction => search.contraction.allows(&plan.tensor.contraction),
            Self::Overdecompose => {
                search.overdecompose.allows(plan.tensor.overdecompose.into())
            }
            Self::Depth => search.depth.allows(plan.depth().into()),
            Self::Replicas => search.replicas.allows(plan.replicas.into()),
            Self::Devices => search.devices.allows(plan.devices.len() as u64),
            Self::FirstDevice => search.first_device.allows(plan.first_device().into()),
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
            Self::Stages => {
                let pinned = search.cuts.is_some().then(|| cuts_line(&plan.cuts));
                [line(&plan.stages)].into_iter().chain(pinned).collect()
            }
            Self::Order if plan.order == Order::Listed => return None,
            Self::MicroBatches => vec![line(&plan.micro_batches)],
            Self::Chunks => vec![line(&plan.chunks)],
            Self::Slices => vec![line(&plan.slices)],
            Self::Order => vec![line(&plan.order)],
            Self::States => vec![line(&plan.states)],
            Self::Shards => vec![line(&plan.shards)],
            Self::Sequence => vec![line(&plan.tensor.sequence)],
            Self::Images => vec![line(&plan.tensor.images)],
            Self::Rows => vec![line(&plan.tensor.rows)],
            Self::Columns => vec![line(&plan.tensor.columns)],
            Self::Contraction => vec![line(&plan.tensor.contraction)],
            Self::Overdecompose => vec![line(&plan.tensor.overdecompose)],
            Self::Depth => vec![line(&plan.depth())],
            Self::Replicas => vec![line(&plan.replicas)],
            Self::Devices => vec![line(&plan.devices.len())],
            Self::FirstDevice => vec![line(&plan.first_device())],
            Self::Placement => vec![line(&plan.placement)],
            Self::Rule => vec![line(&plan.rule)],
        })
    }

    /// How far what a plan decides is from what a search allows.
    pub(crate) fn distance(self, search: &Search, plan: &Plan) -> u64 {
        match self {
            Self::Recompute => plan.recompute.iter().max().map_or(0, |most| most.rank()),
            Self::MicroBatches => apart(&search.micro_batches, plan.micro_batches.into()),
            Self::Stages => apart(&search.stages, plan.stages.into()),
            Self::Chunks => apart(&search.chunks, plan.chunks.into()),
            Self::Slices => apart(&search.slices, plan.slices.into()),
            Self::Shards => apart(&search.shards, plan.shards.into()),
            Self::Rows => apart(&search.rows, plan.tensor.rows.into()),
            Self::Columns => apart(&search.columns, plan.tensor.columns.into()),
            Self::Overdecompose => {
                apart(&search.overdecompose, plan.tensor.overdecompose.into())
            }
            Self::Depth => apart(&search.depth, plan.depth().into()),
            Self::Replicas => apart(&search.replicas, plan.replicas.into()),
            Self::Devices => apart(&search.devices, plan.devices.len() as u64),
            Self::FirstDevice => apart(&search.first_device, plan.first_device().into()),
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

/// The line that pins cuts.
pub(crate) fn cuts_line(cuts: &[u32]) -> String {
    let cuts: Vec<String> = cuts.iter().map(u32::to_string).collect();
    format!("cuts [{}]", cuts.join(", "))
}

/// From a number to the nearest that is allowed.
fn apart(numbers: &Numbers, value: u64) -> u64 {
    match numbers {
        Numbers::Open => 0,
        Numbers::Ranges(ranges) => {
            let each = ranges.iter().map(|(least, most)| {
                least.saturating_sub(value).max(value.saturating_sub(*most))
            });
            each.min().unwrap_or(0)
        }
    }
}

/// A number of bytes as the language spells it, to the byte.
pub fn exact(bytes: u64) -> String {
    let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB"), (1, "B")];
    let fits = |(size, _): &(u64, &str)| bytes >= *size;
    let (size, unit) = units.into_iter().find(fits).unwrap_or((1, "B"));
    format!("{} {unit}", spelled(bytes, size))
}

/// A rate in bytes per second, to the byte.
pub(crate) fn exact_rate(bytes: u64) -> String {
    format!("{}/s", exact(bytes))
}

/// amount / size in decimals, without zeros at the end; sizes are powers of ten.
fn spelled(amount: u64, size: u64) -> String {
    let digits = size.ilog10() as usize;
    let (whole, rest) = (amount / size, amount % size);
    if rest == 0 {
        return whole.to_string();
    }
    let text = format!("{whole}.{rest:0digits$}");
    text.trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, plan, sample};
    use roundelay_dsl::Objective;

    #[test]
    fn sizes_are_spelled_to_the_byte() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1 kB"),
            (52_190_208, "52.190208 MB"),
            (2_000_000_000, "2 GB"),
            (12_000_000_040, "12.00000004 GB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(exact(bytes), text);
            let mut search = Search::default();
            let read = search.set(&format!("memory <= {text}"));
            assert!(read.is_ok() && search.memory.map(|m| m.0) == Some(bytes), "{text}");
        }
    }

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
