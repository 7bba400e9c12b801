//! Where a program is cut, and what its stages take at least by the costs of single nodes: once
//! for each number of micro-batches, way to split tensors and number of stages, before any stage is made.

use crate::{
    cost::Costs,
    cuts::{Chain, cut},
    laws::check_cuts,
    load::{self, Mark, Nodes},
    parallel::parallel,
    reason::Reason,
};
use roundelay_dsl::Program;
use roundelay_schedule::{Nanos, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// Micro-batches of all replicas, and how tensors are split.
type Grain = (u32, Tensor);

/// A grain, and stages.
pub(crate) type Count = (Grain, u32);

/// A cut model by the costs of its nodes.
#[derive(Clone, Debug)]
pub(crate) struct Cutting {
    /// First node of every stage but the first.
    pub cuts: Vec<u32>,
    /// Forward and backward pass of each stage.
    pub times: Vec<Nanos>,
    /// The same of all stages before each.
    pub before: Vec<Nanos>,
    /// Elements of each stage's parameters, without padding.
    pub elements: Vec<u64>,
}

/// Cuts by what decides them, or why there are none.
#[derive(Debug, Default)]
pub(crate) struct Cuttings {
    known: BTreeMap<Count, Result<Cutting, Reason>>,
    /// The mark of each node, for each way to split tensors.
    pub marks: BTreeMap<Tensor, Vec<Mark>>,
}

impl Cuttings {
    /// All that are wanted; independent ones on several threads.
    pub(crate) fn new(
        program: &Program,
        costs: &Costs,
        wanted: &BTreeSet<Count>,
        threads: usize,
    ) -> Self {
        let grains: BTreeSet<Grain> = wanted.iter().map(|(grain, _)| *grain).collect();
        let grains: Vec<Grain> = grains.into_iter().collect();
        let chains = parallel(&grains, threads, &|(all, tensor)| {
            let examples = program.train.batch / all;
            load::chain(program, (examples, *tensor), costs)
                .map_err(|error| Reason::Refused(error.to_string()))
        });
        let chains: BTreeMap<Grain, _> = grains.into_iter().zip(chains).collect();
        let wanted: Vec<Count> = wanted.iter().copied().collect();
        let found = parallel(&wanted, threads, &|(grain, stages)| {
            chains[grain]
                .as_ref()
                .map_err(Clone::clone)
                .and_then(|nodes| Cutting::new(program, nodes, *stages))
        });
        let mut marks = BTreeMap::new();
        for ((_, tensor), nodes) in &chains {
            if let Ok((.., own)) = nodes {
                marks.entry(*tensor).or_insert_with(|| own.clone());
            }
        }
        Self { known: wanted.into_iter().zip(found).collect(), marks }
    }

    /// The cuts for these numbers.
    ///
    /// # Errors
    /// Why there are none.
    pub(crate) fn get(&self, count: Count) -> Result<&Cutting, Reason> {
        let found = self.known.get(&count).expect("all numbers of the space were cut");
        found.as_ref().map_err(Clone::clone)
    }
}

impl Cutting {
    fn new(
        program: &Program,
        (chain, elements, _): &Nodes,
        stages: u32,
    ) -> Result<Self, Reason> {
        let cuts = match &program.search.cuts {
            Some(cuts) => check_cuts(chain, cuts, stages).map(|()| cuts.clone())?,
            None => cut(chain, stages).map_err(Reason::Uncuttable)?,
        };
        Ok(Self::at(chain, elements, cuts))
    }

    fn at(chain: &Chain, elements: &[u64], cuts: Vec<u32>) -> Self {
        let times = chain.stage_times(&cuts);
        let starts = std::iter::once(0).chain(cuts.iter().map(|cut| *cut as usize));
        let ends = cuts.iter().map(|cut| *cut as usize).chain([elements.len()]);
        let elements =
            starts.zip(ends).map(|(first, end)| elements[first..end].iter().sum());
        let before = times.iter().scan(Nanos(0), |sum, time| {
            let before = *sum;
            *sum += *time;
            Some(before)
        });
        Self { elements: elements.collect(), before: before.collect(), times, cuts }
    }
}
