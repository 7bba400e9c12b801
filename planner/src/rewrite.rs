//! Rewrites in which time plays no part: which neighbouring calls of a stage are one.
//!
//! Neighbours become an e-graph whose classes are arrays ([`sketch`]); the rules of lowering,
//! taken as equations ([`rules`]), add what else makes the same arrays; of all ways to make what
//! somebody needs, the cheapest is taken ([`extract`]). Lowering then applies these rules and no
//! others. Limits are counts, so no result depends on the machine; equal neighbours are asked
//! about once.

mod answers;
mod extract;
mod rules;
mod sketch;
mod term;
#[cfg(test)]
mod tests;

use crate::{sharding::Shardings, timeless::timeless};
use egg::{EGraph, Language, Rewrite as Equation, Runner, SimpleScheduler, StopReason};
use roundelay_codegen::{Divided, LoweringChoice, Neighbour};
use roundelay_schedule::{Attribute, MapWays, Rewrite};
use rules::Rule;
use serde::Serialize;
use sketch::Sketch;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

/// Nodes of an e-graph, and rounds of all rules, at most.
const NODES_MAX: usize = 1 << 12;
const ROUNDS_MAX: usize = 32;

pub(crate) use answers::Answers;
use term::Term;

/// Arrays as terms: kernels of arrays.
type Terms = EGraph<Term, ()>;

/// Which rules are applied where: the first call is the one that comes second.
type Chosen = BTreeSet<(usize, Rewrite)>;

/// Chooses rewrites; it remembers what it was asked.
#[derive(Debug)]
pub struct Algebra {
    rules: Vec<Rule>,
    known: Answers<Word, Chosen>,
    shardings: Shardings,
}

impl Default for Algebra {
    fn default() -> Self {
        Self {
            rules: rules::rules(),
            known: Answers::default(),
            shardings: Shardings::default(),
        }
    }
}

/// Why an e-graph grew no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// No rule said anything new.
    Saturated,
    /// It had as many nodes as it may have.
    Nodes,
    /// The rules were applied as often as they may be.
    Rounds,
    /// It said all, but not all ways in it were looked at.
    Search,
    /// A limit that no search should meet.
    Other,
}

/// What equations make of some terms, and why it grew no further.
pub(crate) fn grown<'e, L: Language + 'e>(
    terms: EGraph<L, ()>,
    equations: impl IntoIterator<Item = &'e Equation<L, ()>>,
) -> (EGraph<L, ()>, Stop) {
    let runner = timeless(|| {
        let runner = Runner::default().with_egraph(terms).with_scheduler(SimpleScheduler);
        let runner = runner.with_node_limit(NODES_MAX).with_iter_limit(ROUNDS_MAX);
        runner.with_time_limit(Duration::MAX).run(equations)
    });
    (runner.egraph, Stop::of(runner.stop_reason))
}

impl Stop {
    fn of(reason: Option<StopReason>) -> Self {
        match reason {
            Some(StopReason::Saturated) => Stop::Saturated,
            Some(StopReason::NodeLimit(_)) => Stop::Nodes,
            Some(StopReason::IterationLimit(_)) => Stop::Rounds,
            Some(StopReason::TimeLimit(_) | StopReason::Other(_)) | None => Stop::Other,
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stop::Saturated => "saturated",
            Stop::Nodes => "stopped at the limit of nodes",
            Stop::Rounds => "stopped at the limit of rounds",
            Stop::Search => "stopped at the limit of ways",
            Stop::Other => "stopped for another reason",
        })
    }
}

impl Algebra {
    /// How many e-graphs were made, by why they grew no further.
    pub fn stops(&self) -> BTreeMap<Stop, usize> {
        self.known.stops()
    }

    /// The same of those that say how maps are split.
    pub fn map_stops(&self) -> BTreeMap<Stop, usize> {
        self.shardings.stops()
    }

    fn find(&self, neighbours: &[Neighbour<'_>]) -> (Chosen, Stop) {
        let sketch = Sketch::new(neighbours);
        let equations = self.rules.iter().map(|rule| &rule.rewrite);
        let (terms, stop) = grown(sketch.terms.clone(), equations);
        let cheapest = extract::cheapest(&terms, &sketch.needed);
        (sketch.chosen(&terms, &cheapest, &self.rules), stop)
    }
}

impl LoweringChoice for Algebra {
    fn choose(&self, neighbours: &[Neighbour<'_>]) -> Chosen {
        let Some(word) = word(neighbours) else { return Chosen::new() };
        self.known.of(word, |_| self.find(neighbours))
    }

    fn ways(&self, divided: &Divided<'_>) -> MapWays {
        self.shardings.ways(divided)
    }
}

/// Neighbours by all that rewrites depend on: kernels, and numbers for constants and arrays.
type Word = (Vec<&'static str>, Vec<u64>);

/// The constants of calls that rules know.
const CONSTANTS: [&str; 9] = [
    "accumulate",
    "accumulate_sums",
    "inner",
    "parts",
    "relu",
    "residual",
    "stride",
    "transpose_a",
    "transpose_b",
];

/// The word of some neighbours; none where a call has constants that no rule knows.
fn word(neighbours: &[Neighbour<'_>]) -> Option<Word> {
    let kernels = neighbours.iter().map(|one| one.kernel).collect();
    let mut numbers = Vec::new();
    for one in neighbours {
        numbers.push(one.attributes.len() as u64);
        for (name, value) in one.attributes {
            let place = CONSTANTS.iter().position(|known| known == name)?;
            let value = match value {
                Attribute::Flag(flag) => u64::from(*flag),
                Attribute::Integer(value) => u64::try_from(*value).ok()?,
                Attribute::Real(_) | Attribute::Integers(_) => return None,
            };
            numbers.extend([place as u64, value]);
        }
        numbers.push(one.operands.len() as u64);
        for operand in &one.operands {
            numbers.extend([u64::from(operand.array), u64::from(operand.is_shared)]);
        }
        numbers.push(u64::from(sketch::is_uniform(one)));
        // What moves between rows is the same only along the same extents.
        if one.attributes.contains_key("parts") {
            numbers.extend(sketch::along(one));
        }
    }
    Some((kernels, numbers))
}
