//! Training rules: which parameter version each (stage, micro-batch) uses.

use crate::{
    Id, MicroBatch, Stage, counted,
    spelled::{held_as_text, spelled},
};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// How the parameters that a micro-batch sees lag behind the update count.
///
/// With N micro-batches and S stages, both counted from one, every rule is a map τ(i, j):
/// micro-batch i of step t sees θ^j_{t−τ}. Sources: arXiv 2403.08837 for `CyclicV1`,
/// `CyclicV2`; the slack generalises them (slack 0 is v2, slack ≥ N is v1).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(into = "String", try_from = "String")]
pub enum Rule {
    /// Every micro-batch sees the newest parameters.
    Sync,
    /// The freshest versions that the cyclic timeline allows.
    CyclicV2,
    /// Like v2 with two more time steps between an update and its first use per unit, up to a delay of
    /// one update.
    CyclicSlack(u32),
    /// Uniform delay of one update (PipeDream-2BW).
    CyclicV1,
    /// The newest parameters, and gradients that stop between K units, each but the last with a
    /// head whose loss it minimises (arXiv 2012.03837).
    Local {
        /// Number of units, K.
        units: u32,
        /// What comes back between them.
        hop: Hop,
    },
}

/// Which gradient comes back over the boundary between two units of a local rule. With the loss
/// L_j of unit j and its value h_j, a_j = ∂L_j/∂h_j and b_j = ∂L_{j+1}/∂h_j; what goes on to unit
/// j − 1 is always that of a_j alone, so b_j is felt one unit back and no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hop {
    /// None: a unit is trained by a_j (greedy at one layer per unit, chunked above).
    None,
    /// b_j, added: a unit is trained by a_j + b_j (overlapping units).
    Added,
    /// b_j, alone: a unit is trained by b_j, its head by L_j, the last unit by its own loss
    /// (pairwise interlocking, Gomez et al., JMLR 23).
    Alone,
}

spelled! {
    /// How close a plan stays to plain gradient descent; the order is from strict to weak.
    pub enum Exactness: "exactness" {
        /// Micro-batches are summed in order 1..N with fresh parameters.
        Exact = "exact",
        /// Fresh parameters, another reduction tree.
        Reordered = "reordered",
        /// Some gradients are taken at older parameters.
        Delayed = "delayed",
        /// Gradients stop between units but for one hop.
        Truncated = "truncated",
        /// Gradients stop between units.
        Local = "local",
    }
}

/// Which timeline the version map belongs to when S ≠ N.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeline {
    /// A worker carries one micro-batch through all stages, workers start staggered.
    Workers,
    /// A device per stage, micro-batches follow each other without flush.
    FlushFree,
}

/// τ(i, j) of one plan: updates that the parameters lag behind, by micro-batch, then stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Delays(Vec<Vec<u32>>);

impl Rule {
    /// The map τ for `micro_batches` N and `stages` S on one timeline; it depends on nothing
    /// that was measured.
    pub fn delays(self, timeline: Timeline, micro_batches: u32, stages: u32) -> Delays {
        let row = |i| {
            (1..=stages).map(move |j| self.delay(timeline, micro_batches, stages, i, j))
        };
        Delays((1..=micro_batches).map(|i| row(i).collect()).collect())
    }

    /// Whether another rule has the same map.
    pub fn delays_like(
        self,
        other: Self,
        timeline: Timeline,
        micro_batches: u32,
        stages: u32,
    ) -> bool {
        let delay = |rule: Self, i, j| rule.delay(timeline, micro_batches, stages, i, j);
        let same = |i| (1..=stages).all(|j| delay(self, i, j) == delay(other, i, j));
        (1..=micro_batches).all(same)
    }

    /// τ of the last micro-batch for each stage: no other sees newer parameters.
    pub fn freshest(
        self,
        timeline: Timeline,
        micro_batches: u32,
        stages: u32,
    ) -> impl ExactSizeIterator<Item = u32> {
        (0..stages).map(move |stage| {
            self.delay(timeline, micro_batches, stages, micro_batches, stage + 1)
        })
    }

    /// τ of the first micro-batch for each stage: no other sees older parameters.
    pub fn stalest(
        self,
        timeline: Timeline,
        micro_batches: u32,
        stages: u32,
    ) -> impl ExactSizeIterator<Item = u32> {
        (0..stages)
            .map(move |stage| self.delay(timeline, micro_batches, stages, 1, stage + 1))
    }

    fn delay(self, timeline: Timeline, n: u32, s: u32, i: u32, j: u32) -> u32 {
        if self.is_synchronous() {
            return 0;
        }
        match timeline {
            Timeline::Workers => u32::from(self.stale_on_workers(n, s, i, j)),
            Timeline::FlushFree => {
                let least = (s + 1).saturating_sub(i + j).div_ceil(n);
                let lazy = match self {
                    Rule::Sync | Rule::Local { .. } | Rule::CyclicV2 => least,
                    Rule::CyclicSlack(slack) => {
                        (s + 1 + slack).saturating_sub(i + j).div_ceil(n)
                    }
                    Rule::CyclicV1 => 1,
                };
                least.max(lazy.min(1))
            }
        }
    }

    fn stale_on_workers(self, n: u32, s: u32, i: u32, j: u32) -> bool {
        let slack = match self {
            Rule::Sync | Rule::Local { .. } => return false,
            Rule::CyclicV1 => return true,
            Rule::CyclicV2 => 0,
            Rule::CyclicSlack(slack) => slack,
        };
        let [n, s, i, j, slack] = [n, s, i, j, slack].map(u64::from);
        i * s + j * n < n * (s + 1) + slack * n
    }

    /// Whether every micro-batch sees the newest parameters.
    pub fn is_synchronous(self) -> bool {
        match self {
            Rule::Sync | Rule::Local { .. } => true,
            Rule::CyclicV1 | Rule::CyclicV2 | Rule::CyclicSlack(_) => false,
        }
    }

    /// What comes back between the units of a local rule; nothing does under any other.
    pub fn hop(self) -> Hop {
        match self {
            Rule::Local { units: _, hop } => hop,
            Rule::Sync | Rule::CyclicV1 | Rule::CyclicV2 | Rule::CyclicSlack(_) => {
                Hop::None
            }
        }
    }

    /// The class of the gradients that this rule takes, before the reduction tree counts.
    pub fn exactness(self) -> Exactness {
        match self {
            Rule::Sync | Rule::Local { units: 0 | 1, hop: _ } => Exactness::Exact,
            Rule::Local { units: _, hop: Hop::None } => Exactness::Local,
            Rule::Local { units: _, hop: Hop::Added | Hop::Alone } => {
                Exactness::Truncated
            }
            Rule::CyclicV1 | Rule::CyclicV2 | Rule::CyclicSlack(_) => Exactness::Delayed,
        }
    }
}

impl Delays {
    /// τ of one micro-batch and stage, both counted from zero.
    ///
    /// # Panics
    /// When either is out of range.
    pub fn delay(&self, micro_batch: usize, stage: usize) -> u32 {
        self.0[micro_batch][stage]
    }
    /// τ of each micro-batch and stage, both counted from zero, in this order.
    pub fn iter(&self) -> impl Iterator<Item = (MicroBatch, Stage, u32)> {
        self.0.iter().enumerate().flat_map(|(i, row)| {
            let own = row.iter().enumerate();
            own.map(move |(j, delay)| (MicroBatch::new(i), Stage::new(j), *delay))
        })
    }
    /// Number of micro-batches and stages.
    pub fn size(&self) -> (usize, usize) {
        (self.0.len(), self.0.first().map_or(0, Vec::len))
    }
    /// The largest delay of one stage.
    pub fn staleness(&self, stage: usize) -> u32 {
        self.0.iter().map(|row| row[stage]).max().unwrap_or(0)
    }
    /// The largest delay of all.
    pub fn max(&self) -> u32 {
        self.0.iter().flatten().copied().max().unwrap_or(0)
    }
    /// Where this map is not the one that is expected: its size, or else its first wrong delay.
    pub(crate) fn apart(&self, expected: &Self) -> Option<String> {
        let (micro_batches, stages) = expected.size();
        let rows = self.0.len();
        if rows != micro_batches {
            return Some(format!(
                "they have {}, one for each micro-batch would be {micro_batches}",
                counted(rows as u64, "row")
            ));
        }
        let uneven = self.0.iter().enumerate().find(|(_, row)| row.len() != stages);
        if let Some((i, row)) = uneven {
            let (i, own) = (MicroBatch::new(i), row.len());
            return Some(format!(
                "the row of micro-batch {i} has {}, one for each stage would be {stages}",
                counted(own as u64, "delay")
            ));
        }
        let both = self.iter().zip(expected.iter());
        let mut wrong = both.filter(|((.., found), (.., right))| found != right);
        let ((i, stage, found), (.., right)) = wrong.next()?;
        let more = match wrong.count() {
            0 => String::new(),
            1 => "; one more is wrong".to_owned(),
            more => format!("; {more} more are wrong"),
        };
        Some(format!(
            "stage {stage} has delay {found} for micro-batch {i}, where the rule demands \
             {right}{more}"
        ))
    }
    /// How many of the (stage, micro-batch) pairs are not fresh, and how many there are.
    pub fn stale(&self) -> (usize, usize) {
        let all = self.0.iter().flatten();
        (all.clone().filter(|delay| **delay > 0).count(), all.count())
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Sync => f.pad("sync"),
            Rule::CyclicV2 => f.pad("cyclic_v2"),
            Rule::CyclicV1 => f.pad("cyclic_v1"),
            Rule::CyclicSlack(slack) => f.pad(&format!("cyclic(slack = {slack})")),
            Rule::Local { units, hop } => f.pad(&match hop {
                Hop::None => format!("local(units = {units})"),
                Hop::Added => format!("local(units = {units}, overlap = 1)"),
                Hop::Alone => format!("pairwise(units = {units})"),
            }),
        }
    }
}

impl Rule {
    /// How rules are written.
    pub const FORMS: [&str; 7] = [
        "sync",
        "cyclic_v1",
        "cyclic_v2",
        "cyclic(slack = s)",
        "local(units = k)",
        "local(units = k, overlap = 1)",
        "pairwise(units = k)",
    ];
}

impl FromStr for Rule {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let packed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let given = |name: &str| packed.strip_prefix(name)?.strip_suffix(')');
        let number = |text: &str| text.parse().ok();
        match packed.as_str() {
            "sync" => Ok(Rule::Sync),
            "cyclic_v1" => Ok(Rule::CyclicV1),
            "cyclic_v2" => Ok(Rule::CyclicV2),
            _ => {
                let slack = given("cyclic(slack=").and_then(number);
                let local = given("local(units=").and_then(|given| {
                    let hopping = given.strip_suffix(",overlap=1");
                    let alone = given.strip_suffix(",overlap=0").unwrap_or(given);
                    let hop = if hopping.is_some() { Hop::Added } else { Hop::None };
                    Some(Rule::Local { units: number(hopping.unwrap_or(alone))?, hop })
                });
                let pairwise = given("pairwise(units=").and_then(number);
                let pairwise =
                    pairwise.map(|units| Rule::Local { units, hop: Hop::Alone });
                slack.map(Rule::CyclicSlack).or(local).or(pairwise).ok_or_else(|| {
                    let known = Rule::FORMS.join(", ");
                    format!("unknown rule `{text}`; known are {known}")
                })
            }
        }
    }
}

held_as_text!(Rule);

impl Exactness {
    /// What a plan of this class changes of plain gradient descent, in a few words.
    pub fn change(self) -> &'static str {
        match self {
            Exactness::Exact => "nothing",
            Exactness::Reordered => "gradients are summed in another order",
            Exactness::Delayed => "some gradients are taken at older parameters",
            Exactness::Truncated => {
                "units train on losses of their own, gradients hop back one unit and no further"
            }
            Exactness::Local => {
                "units train on losses of their own, no gradient passes between them"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first micro-batch sees the oldest parameters, the last one the newest, and rules are
    /// alike where their maps are equal.
    #[test]
    fn parts_of_a_map_are_those_of_the_whole() {
        let rules = [
            Rule::Sync,
            Rule::CyclicV1,
            Rule::CyclicV2,
            Rule::CyclicSlack(1),
            Rule::CyclicSlack(3),
        ];
        let sizes = (1..6).flat_map(|n| (1..6).map(move |s| (n, s)));
        for (timeline, (n, s)) in [Timeline::Workers, Timeline::FlushFree]
            .into_iter()
            .flat_map(|timeline| sizes.clone().map(move |size| (timeline, size)))
        {
            for rule in rules {
                let map = rule.delays(timeline, n, s);
                let of = |one: fn(u32, u32) -> u32, stage: usize| {
                    let all = (0..n as usize).map(|i| map.delay(i, stage));
                    all.reduce(one).unwrap()
                };
                for (stage, delay) in rule.stalest(timeline, n, s).enumerate() {
                    assert_eq!(delay, of(u32::max, stage));
                }
                for (stage, delay) in rule.freshest(timeline, n, s).enumerate() {
                    assert_eq!(delay, of(u32::min, stage));
                }
                for other in rules {
                    let like = rule.delays_like(other, timeline, n, s);
                    assert_eq!(like, map == other.delays(timeline, n, s));
                }
            }
        }
    }

    #[test]
    fn rules_are_read_as_they_are_written() {
        let local = |hop| Rule::Local { units: 3, hop };
        let all = [Rule::Sync, Rule::CyclicV1, Rule::CyclicV2, Rule::CyclicSlack(2)];
        let all = all.into_iter().chain([Hop::None, Hop::Added, Hop::Alone].map(local));
        for rule in all {
            assert_eq!(rule.to_string().parse(), Ok(rule));
        }
        assert_eq!("local(units=3,overlap=0)".parse(), Ok(local(Hop::None)));
        for wrong in
            ["local(units = 3, overlap = 2)", "pairwise(3)", "local(overlap = 1)"]
        {
            let message = wrong.parse::<Rule>().unwrap_err();
            assert!(message.contains("pairwise(units = k)"), "{message}");
        }
    }
}
