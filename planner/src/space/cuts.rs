//! Cut points: the exact dynamic program over the node list.

mod apart;
mod balanced;
mod reach;
mod rows;
mod uneven;
mod units;

pub use apart::Messages;
pub(crate) use apart::{Apart, Speeds};
pub(crate) use uneven::Uneven;

use crate::costs::{
    alike::{is_view, needed},
    core::stages_between,
};
use roundelay_dsl::{Model, Node, NodeId, ParameterId, Source};
use roundelay_schedule::{Bytes, Float, Hop, Id, Nanos, Tie as StageTie, counted};
use std::fmt;

/// A model's node list as the cutter sees it. Positions run from 0 to the number of nodes; a
/// cut at position p puts node p first in a new stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    /// Forward plus backward of one micro-batch, per node.
    pub times: Vec<Nanos>,
    /// Bytes of the values that one micro-batch carries over the boundary in front of each node.
    pub crossing: Vec<Bytes>,
    /// Who reads a value that a gradient comes back for, by reader: the node that makes it.
    pub reads: Vec<(usize, usize)>,
    /// The users of each parameter that several nodes use, in order of first use.
    pub ties: Vec<Tie>,
    /// Where these may be.
    pub users: Users,
    /// Positions at which a unit of a local rule starts: all of them are cuts.
    pub boundaries: Vec<usize>,
    /// Where units may be cut besides.
    pub inside: InsideUnits,
}

/// Whether units of a local rule may have several stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InsideUnits {
    /// They may.
    Cut,
    /// Each is one stage, since gradients hop back between them.
    Whole,
}

/// Whether several stages may use one parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Users {
    /// All users of a parameter are in one stage.
    Together,
    /// They are wherever cuts put them.
    Apart,
}

/// Users of one parameter: nodes, ascending; at least two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tie {
    /// The parameter.
    pub parameter: String,
    /// Its users.
    pub users: Vec<usize>,
    /// Its elements.
    pub elements: u64,
}

impl Tie {
    /// The first user.
    pub(crate) fn first(&self) -> usize {
        self.users.first().copied().unwrap_or(0)
    }

    /// The last user.
    pub(crate) fn last(&self) -> usize {
        self.users.last().copied().unwrap_or(0)
    }
}

/// A model cannot be cut into that many stages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uncuttable {
    /// Stages asked for.
    pub stages: u32,
    /// The fewest stages that are possible: units of a local rule are whole stages.
    pub least: u32,
    /// The most stages that are possible.
    pub most: u32,
    /// Whether that is one for each unit.
    pub inside: InsideUnits,
    /// Parameters that tie stages together, in order of name.
    pub tied: Vec<String>,
}

impl Chain {
    /// The chain of a model whose nodes take `times` for a micro-batch of `examples`. What stands
    /// behind the loss counts as part of it.
    pub(crate) fn new(
        model: &Model,
        times: Vec<Nanos>,
        examples: u64,
        dtype: Float,
    ) -> Self {
        let nothing = Self {
            times: Vec::new(),
            crossing: Vec::new(),
            reads: reads(model),
            ties: ties(model),
            users: Users::Together,
            boundaries: model.boundaries().iter().map(|at| *at as usize).collect(),
            inside: if model.hop() == Hop::None {
                InsideUnits::Cut
            } else {
                InsideUnits::Whole
            },
        };
        nothing.taking(model, times, examples, dtype)
    }

    /// The same chain where the nodes take `times` for a micro-batch of `examples`.
    pub(crate) fn taking(
        &self,
        model: &Model,
        times: Vec<Nanos>,
        examples: u64,
        dtype: Float,
    ) -> Self {
        assert_eq!(times.len(), model.nodes.len(), "every node has a time");
        let times = until_loss(times, model.cuttable());
        Self { times, crossing: crossing(model, examples, dtype), ..self.clone() }
    }

    /// Whether each stage between cuts reads a value of the one before and gives a gradient back.
    pub(crate) fn links(&self, cuts: &[u32]) -> bool {
        let stage = |node: usize| cuts.partition_point(|cut| *cut as usize <= node);
        let mut linked = vec![false; cuts.len()];
        for (reader, maker) in &self.reads {
            let (from, to) = (stage(*maker), stage(*reader));
            if to == from + 1 {
                linked[from] = true;
            }
        }
        linked.into_iter().all(|linked| linked)
    }

    /// Where a model can be cut, whatever its nodes take.
    pub(crate) fn uncosted(model: &Model) -> Self {
        Self::new(model, vec![Nanos(0); model.nodes.len()], 1, Float::F32)
    }

    /// Whether it can be cut into this many stages.
    ///
    /// # Errors
    /// When ties or the number of nodes leave fewer, or units need more.
    pub(crate) fn check(&self, stages: u32) -> Result<(), Uncuttable> {
        let most = self.positions().len() - 1;
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let least = u32::try_from(self.boundaries.len() + 1).unwrap_or(u32::MAX);
        let most = match self.inside {
            InsideUnits::Cut => most,
            InsideUnits::Whole => most.min(least),
        };
        if (least..=most).contains(&stages) {
            return Ok(());
        }
        let mut tied: Vec<String> =
            self.ties.iter().map(|tie| tie.parameter.clone()).collect();
        tied.sort();
        Err(Uncuttable { stages, least, most, inside: self.inside, tied })
    }

    /// The same chain with the users of parameters where they may be.
    pub(crate) fn with(self, users: Users) -> Self {
        Self { users, ..self }
    }

    /// The tie that a cut at a position would break.
    pub(crate) fn tie_at(&self, position: usize) -> Option<&Tie> {
        let broken = |tie: &&Tie| tie.first() < position && position <= tie.last();
        match self.users {
            Users::Together => self.ties.iter().find(broken),
            Users::Apart => None,
        }
    }

    /// The parameters whose users cuts put into several stages, each with these.
    pub(crate) fn parted<'a>(
        &'a self,
        cuts: &'a [u32],
    ) -> impl Iterator<Item = (&'a Tie, StageTie)> + 'a {
        let stage = |node: &usize| {
            let stage = cuts.partition_point(|cut| *cut as usize <= *node);
            u32::try_from(stage).unwrap_or(u32::MAX)
        };
        self.ties.iter().filter_map(move |tie| {
            let mut stages: Vec<u32> = tie.users.iter().map(stage).collect();
            stages.dedup();
            (stages.len() > 1).then_some((tie, StageTie(stages)))
        })
    }

    /// The ties of the stages between cuts, as a plan has them.
    pub(crate) fn stage_ties(&self, cuts: &[u32]) -> Vec<StageTie> {
        let mut all: Vec<StageTie> = Vec::new();
        for (_, tie) in self.parted(cuts) {
            if !all.contains(&tie) {
                all.push(tie);
            }
        }
        all
    }

    /// Forward plus backward of the nodes `first..end`.
    pub(crate) fn time(&self, first: usize, end: usize) -> Nanos {
        self.times[first..end].iter().copied().sum()
    }

    /// Forward plus backward of each stage between cuts.
    pub(crate) fn stage_times(&self, cuts: &[u32]) -> Vec<Nanos> {
        let stages = stages_between(cuts, self.times.len());
        stages.map(|own| self.time(own.start, own.end)).collect()
    }

    /// Positions where a stage may start or the model ends, ascending.
    pub(crate) fn positions(&self) -> Vec<usize> {
        let inner = (1..self.times.len()).filter(|at| self.tie_at(*at).is_none());
        std::iter::once(0).chain(inner).chain([self.times.len()]).collect()
    }
}

/// The times of the nodes that can be cut, with what stands behind the loss as part of it.
pub(crate) fn until_loss(mut times: Vec<Nanos>, cuttable: usize) -> Vec<Nanos> {
    let behind: Nanos = times.drain(cuttable..).sum();
    if let Some(loss) = times.last_mut() {
        *loss += behind;
    }
    times
}

/// Cuts a chain into `stages` contiguous stages: the largest stage time is minimal, then the sum
/// of crossing bytes, then the cuts come first in lexicographic order.
///
/// Two passes make this exact: the first finds the least largest stage time M; the second
/// minimises the bytes, which add up, over all cuts whose stages stay within M. Units of a local
/// rule are cut one by one.
///
/// # Errors
/// When ties or the number of nodes leave fewer than `stages` stages.
pub(crate) fn cut(chain: &Chain, stages: u32) -> Result<Vec<u32>, Uncuttable> {
    chain.check(stages)?;
    Ok(cut_at(chain, &chain.positions(), stages))
}

/// The best cuts among some positions, the ends and all boundaries among them.
fn cut_at(chain: &Chain, positions: &[usize], stages: u32) -> Vec<u32> {
    let sums = chain.times.iter().scan(Nanos(0), |sum, time| {
        *sum += *time;
        Some(*sum)
    });
    let before: Vec<Nanos> = std::iter::once(Nanos(0)).chain(sums).collect();
    let elapsed: Vec<Nanos> = positions.iter().map(|at| before[*at]).collect();
    let crossing: Vec<Bytes> = positions
        .iter()
        .map(|at| chain.crossing.get(*at).copied().unwrap_or_default())
        .collect();
    let starts =
        chain.boundaries.iter().filter_map(|at| positions.binary_search(at).ok());
    let starts: Vec<usize> = [0].into_iter().chain(starts).collect();
    let ends = starts[1..].iter().copied().chain([positions.len() - 1]);
    let units: Vec<_> = starts.iter().copied().zip(ends).map(|(s, e)| s..=e).collect();
    let counts = units::shared(&elapsed, &units, stages as usize);
    let chosen = units::cuts(&elapsed, &crossing, &units, &counts).into_iter();
    chosen.map(|index| u32::try_from(positions[index]).unwrap_or(u32::MAX)).collect()
}

/// Bytes of the values that one micro-batch carries over the boundary in front of each node.
fn crossing(model: &Model, examples: u64, dtype: Float) -> Vec<Bytes> {
    let end = model.cuttable();
    let last_use = last_uses(model);
    let mut change = vec![[Bytes(0); 2]; end + 1];
    for (id, node) in model.nodes.iter().filter(|(id, _)| id.index() < end) {
        let (made, last) = (id.index(), last_use[id.index()]);
        if last > made {
            let size = bytes(node, examples, dtype);
            change[made + 1][0] += size;
            change[last + 1][1] += size;
        }
    }
    let open = change.iter().take(end).scan(Bytes(0), |open, [begun, done]| {
        *open = *open + *begun - *done;
        Some(*open)
    });
    open.collect()
}

/// Reads of values that a parameter stands above by nodes that the loss depends on.
fn reads(model: &Model) -> Vec<(usize, usize)> {
    let (trained, needed) = (model.trained(), needed(model));
    let of = |(id, node): (NodeId, &Node)| {
        let makers =
            node.operands.iter().filter_map(|operand| match root(model, *operand) {
                Source::Node(made) => Some((id.index(), made.index())),
                Source::Parameter(_) | Source::Input(_) => None,
            });
        makers.collect::<Vec<_>>()
    };
    let all = model.nodes.iter().filter(|(id, _)| needed[id.index()]).flat_map(of);
    all.filter(|(_, made)| trained[*made]).collect()
}

fn bytes(node: &Node, examples: u64, dtype: Float) -> Bytes {
    let extents = node.shape.iter().map(|extent| extent.at(examples));
    Bytes(extents.fold(dtype.size(), u64::saturating_mul))
}

fn last_uses(model: &Model) -> Vec<usize> {
    let end = model.cuttable().saturating_sub(1);
    let mut last = vec![0; model.nodes.len()];
    for (user, node) in model.nodes.iter() {
        for operand in &node.operands {
            if let Source::Node(made) = operand {
                last[made.index()] = user.index().min(end);
            }
        }
    }
    last
}

/// The source whose memory this is: reshapes are views.
fn root(model: &Model, mut source: Source) -> Source {
    while let Source::Node(id) = source {
        let node = &model.nodes[id];
        match node.operands.first() {
            Some(below) if is_view(node.operation) => source = *below,
            _ => break,
        }
    }
    source
}

/// The users of each parameter that several nodes use, in order of first use, as stages are made of
/// nodes: what neither a loss nor a metric needs is none of them, and what stands behind the loss
/// counts as part of it.
fn ties(model: &Model) -> Vec<Tie> {
    let end = model.cuttable().saturating_sub(1);
    let metrics = model.metrics.iter().map(|metric| metric.node);
    let needed = model.needed(model.minimised().chain(metrics), |_| true);
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); model.parameters.len()];
    let mut order = Vec::new();
    for (id, node) in model.nodes.iter().filter(|(id, _)| needed[id.index()]) {
        if is_view(node.operation) {
            continue;
        }
        for operand in &node.operands {
            let Source::Parameter(parameter) = root(model, *operand) else { continue };
            let own = &mut users[parameter.index()];
            if own.is_empty() {
                order.push(parameter);
            }
            own.push(id.index().min(end));
        }
    }
    let tie = |parameter: ParameterId| {
        let mut users = std::mem::take(&mut users[parameter.index()]);
        users.dedup();
        let row = &model.parameters[parameter];
        let (parameter, elements) = (row.name.clone(), row.shape.iter().product());
        (users.len() > 1).then_some(Tie { parameter, users, elements })
    };
    order.into_iter().filter_map(tie).collect()
}

impl fmt::Display for Uncuttable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stages, least, most, inside, tied } = self;
        let wanted = counted((*stages).into(), "stage");
        if stages < least {
            return write!(f, "{wanted}, but the model has {least} units");
        }
        if *inside == InsideUnits::Whole {
            return write!(
                f,
                "{wanted}, but the model has {most}: one for each unit, since a gradient \
                 hops back between them"
            );
        }
        write!(f, "{wanted}, but the model has at most {most}")?;
        match tied.as_slice() {
            [] => Ok(()),
            names => {
                write!(f, ", because nodes that share {} stay together", names.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, Random};

    /// Every way to cut, by the definition.
    pub(super) fn all_cuts(chain: &Chain, stages: u32) -> Vec<Vec<u32>> {
        let n = u32::try_from(chain.times.len()).unwrap();
        let mut all: Vec<Vec<u32>> = vec![Vec::new()];
        for _ in 1..stages {
            let longer = |head: &Vec<u32>| {
                let from = head.last().map_or(1, |cut| cut + 1);
                let head = head.clone();
                (from..n).map(move |cut| head.iter().copied().chain([cut]).collect())
            };
            all = all.iter().flat_map(longer).collect();
        }
        let legal = |cuts: &Vec<u32>| {
            let whole = cuts.iter().all(|cut| chain.tie_at(*cut as usize).is_none());
            let has = |at: &usize| cuts.iter().any(|cut| *cut as usize == *at);
            whole && chain.boundaries.iter().all(has)
        };
        all.into_iter().filter(legal).collect()
    }

    /// The best of them.
    fn brute_force(chain: &Chain, stages: u32) -> Option<Vec<u32>> {
        let largest = |cuts: &Vec<u32>| chain.stage_times(cuts).into_iter().max();
        let bytes = |cuts: &Vec<u32>| -> Bytes {
            cuts.iter().map(|cut| chain.crossing[*cut as usize]).sum()
        };
        let all = all_cuts(chain, stages).into_iter();
        all.min_by_key(|cuts| (largest(cuts), bytes(cuts), cuts.clone()))
    }

    #[test]
    fn cuts_equal_the_best_of_all_cuts() {
        let mut random = Random::new(5);
        for round in 0..600 {
            let nodes = 1 + random.below(9);
            let mut draw = |bound| (0..nodes).map(|_| random.below(bound)).collect();
            let (times, crossing): (Vec<u64>, Vec<u64>) = (draw(6), draw(3));
            let first = random.below(nodes) as usize;
            let last = first + random.below(nodes - first as u64) as usize;
            let tie =
                Tie { parameter: "shared".into(), users: vec![first, last], elements: 1 };
            let chain = Chain {
                reads: Vec::new(),
                times: times.into_iter().map(Nanos).collect(),
                crossing: crossing.into_iter().map(Bytes).collect(),
                ties: if round % 3 > 0 { vec![tie] } else { Vec::new() },
                users: if round % 3 == 1 { Users::Together } else { Users::Apart },
                boundaries: Vec::new(),
                inside: InsideUnits::Cut,
            };
            let stages = 1 + u32::try_from(random.below(5)).unwrap();
            assert_eq!(
                cut(&chain, stages).ok(),
                brute_force(&chain, stages),
                "{chain:?}"
            );
        }
    }

    #[test]
    fn a_tie_is_named_when_it_forbids_the_stages() {
        let chain = Chain {
            reads: Vec::new(),
            times: vec![Nanos(1); 4],
            crossing: vec![Bytes(4); 4],
            ties: vec![Tie { parameter: "table".into(), users: vec![0, 2], elements: 1 }],
            users: Users::Together,
            boundaries: Vec::new(),
            inside: InsideUnits::Cut,
        };
        assert_eq!(cut(&chain, 2), Ok(vec![3]));
        let refused = cut(&chain, 3).unwrap_err().to_string();
        assert!(refused.contains("at most 2") && refused.contains("table"), "{refused}");
    }

    #[test]
    fn views_of_a_parameter_are_its_users_too() {
        let mut model = sample::gpt(1, 8, 16, false);
        let table = model.nodes[NodeId::new(0)].operands[1];
        let view = Node {
            name: "view".into(),
            operation: roundelay_dsl::Operation::Reshape,
            operands: vec![table],
            shape: Vec::new(),
        };
        let view = Source::Node(model.nodes.push(view));
        let mut user = model.nodes[NodeId::new(1)].clone();
        user.operands[1] = view;
        let user = model.nodes.push(user);
        model.loss = Some(user);
        let found = ties(&model);
        assert_eq!((found.len(), &found[0].users[..]), (1, &[0, user.index()][..]));
    }
}
