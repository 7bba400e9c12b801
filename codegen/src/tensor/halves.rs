//! From the graph of one part to that of its micro-batch in halves (overdecomposition, arXiv
//! 2305.13525).
//!
//! Every operation on examples stands once per half, on half of them; what only parameters go into
//! stands once. So gradients of parameters add up half by half, and everything else of the halves
//! is apart: one may compute while what the other made is exchanged. Losses and metrics are means
//! over examples, and become the mean over the halves. What mixes examples is refused by name.

use super::Parted;
use crate::{mean::mean, stage::StageError};
use roundelay_dsl::{
    Extent, Masked, Model, ModelInput, ModelMetric, Node, NodeId, Operation, Part,
    PartShare, Sliced, Source,
};
use roundelay_schedule::Id;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// Which examples an operation works on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Strand {
    /// On all that are there, or on none.
    #[default]
    All,
    /// On those of one half.
    Half(u32),
}

impl Parted {
    /// The same with the examples of a micro-batch in this many equal parts.
    ///
    /// # Errors
    /// What needs all examples at once.
    pub(super) fn in_halves(self, halves: u32) -> Result<Self, StageError> {
        if !self.model.auxiliary.is_empty() {
            let node = self.model.name.clone();
            let problem = "halves of a micro-batch have no heads of local rules: set \
                           `tensor { overdecompose 1 }`";
            return Err(StageError::Unhalved { node, problem: problem.to_owned() });
        }
        let mut halving = Halving::new(&self, halves);
        for nodes in self.stages() {
            halving.stage(nodes)?;
        }
        halving.finish()
    }

    /// The nodes of each stage, then those behind the loss.
    fn stages(&self) -> Vec<Range<usize>> {
        let inner = self.cuts.iter().map(|cut| *cut as usize);
        let ends = inner.chain([self.model.cuttable(), self.model.nodes.len()]);
        let mut start = 0;
        let each = ends.map(|end| std::mem::replace(&mut start, end)..end);
        each.collect()
    }
}

/// The graph so far.
struct Halving<'a> {
    whole: &'a Parted,
    halves: u32,
    model: Model,
    cuts: Vec<u32>,
    origin: Vec<NodeId>,
    strands: Vec<Strand>,
    /// What became of each operation, by half; alike where it stands once.
    made: Vec<BTreeMap<NodeId, Source>>,
    /// The operations that only parameters go into.
    common: BTreeSet<NodeId>,
    /// The own examples of inputs, in the present stage.
    known: BTreeMap<(Source, u32), Source>,
    at: NodeId,
}

impl<'a> Halving<'a> {
    fn new(whole: &'a Parted, halves: u32) -> Self {
        let Model { name, parameters, .. } = &whole.model;
        // The graph counts the examples of a half.
        let of_all = |extent: &Extent| match extent.per_example {
            true => Extent { size: extent.size.saturating_mul(halves.into()), ..*extent },
            false => *extent,
        };
        let input = |input: &ModelInput| {
            let shape = input.shape.iter().map(of_all).collect();
            ModelInput { shape, ..input.clone() }
        };
        let inputs = whole.model.inputs.values().map(input).collect();
        let parameters = parameters.clone();
        Self {
            whole,
            halves,
            model: Model { name: name.clone(), inputs, parameters, ..Model::default() },
            cuts: Vec::new(),
            origin: Vec::new(),
            strands: Vec::new(),
            made: vec![BTreeMap::new(); halves as usize],
            common: common(&whole.model),
            known: BTreeMap::new(),
            at: NodeId::new(0),
        }
    }

    /// What stands once, then all of the first half, and so on; loss and metrics as means.
    fn stage(&mut self, nodes: Range<usize>) -> Result<(), StageError> {
        let first = u32::try_from(self.model.nodes.len()).expect("models are smaller");
        if self.whole.cuts.contains(&u32::try_from(nodes.start).unwrap_or(u32::MAX)) {
            self.cuts.push(first);
        }
        self.known.clear();
        let all = || nodes.clone().map(NodeId::new);
        let (common, own): (Vec<_>, Vec<_>) =
            all().partition(|node| self.common.contains(node));
        for node in common {
            let made = self.operation(node, Strand::All)?;
            for own in &mut self.made {
                own.insert(node, made);
            }
        }
        for half in 0..self.halves {
            for node in &own {
                let made = self.operation(*node, Strand::Half(half))?;
                self.made[half as usize].insert(*node, made);
            }
        }
        if let Some(loss) =
            self.whole.model.loss.filter(|loss| nodes.contains(&loss.index()))
        {
            self.model.loss = Some(self.mean(loss)?);
        }
        Ok(())
    }

    fn refuse<T>(&self, problem: &str) -> Result<T, StageError> {
        let node = self.whole.model.nodes[self.at].name.clone();
        Err(StageError::Unhalved { node, problem: problem.to_owned() })
    }

    fn add(&mut self, strand: Strand, node: Node) -> NodeId {
        self.origin.push(self.whole.origin[self.at.index()]);
        self.strands.push(strand);
        self.model.nodes.push(node)
    }

    /// What becomes of an operation.
    fn operation(&mut self, id: NodeId, strand: Strand) -> Result<Source, StageError> {
        self.at = id;
        let node = &self.whole.model.nodes[id];
        let (name, operation) = match strand {
            Strand::All => (node.name.clone(), node.operation),
            Strand::Half(half) => {
                (format!("{}.{half}", node.name), self.halved(node.operation, half)?)
            }
        };
        let operands = node.operands.iter().map(|source| self.operand(*source, strand));
        let operands = operands.collect();
        let own = Node { name, operation, operands, shape: node.shape.clone() };
        Ok(Source::Node(self.add(strand, own)))
    }

    fn operand(&mut self, source: Source, strand: Strand) -> Source {
        let half = match strand {
            Strand::All => 0,
            Strand::Half(half) => half,
        };
        match source {
            Source::Node(node) => self.made[half as usize][&node],
            Source::Parameter(_) => source,
            Source::Input(input) => {
                if let Some(known) = self.known.get(&(source, half)) {
                    return *known;
                }
                let whole = &self.whole.model.inputs[input];
                let name = format!("{}.{half}", whole.name);
                let own = Sliced::Examples { own: half, parts: self.halves };
                let operation = Operation::Sliced(own);
                let (operands, shape) = (vec![source], whole.shape.clone());
                let own = Node { name, operation, operands, shape };
                let own = Source::Node(self.add(strand, own));
                self.known.insert((source, half), own);
                own
            }
        }
    }

    /// The mean over the halves of what is a mean over the examples of each.
    fn mean(&mut self, node: NodeId) -> Result<NodeId, StageError> {
        self.at = node;
        let name = &self.whole.model.nodes[node].name;
        let shape = &self.whole.model.nodes[node].shape;
        if self.common.contains(&node)
            || shape.iter().any(|extent| *extent != Extent::fixed(1))
        {
            return self.refuse("it is not a mean over examples");
        }
        let pieces: Vec<Source> = self.made.iter().map(|made| made[&node]).collect();
        Ok(mean(&pieces, |operation, operands| {
            let (name, shape) = (name.clone(), shape.clone());
            self.add(Strand::All, Node { name, operation, operands, shape })
        }))
    }

    /// With the metrics.
    fn finish(mut self) -> Result<Parted, StageError> {
        let whole = self.whole;
        let mut means = BTreeMap::new();
        if let Some(loss) = whole.model.loss.zip(self.model.loss) {
            means.insert(loss.0, loss.1);
        }
        for metric in &whole.model.metrics {
            let node = match means.get(&metric.node) {
                Some(known) => *known,
                None => self.mean(metric.node)?,
            };
            means.insert(metric.node, node);
            self.model.metrics.push(ModelMetric { node, ..metric.clone() });
        }
        let Self { model, cuts, origin, strands, halves, .. } = self;
        let ways = whole.ways.clone();
        Ok(Parted { model, cuts, origin, ways, strands, halves })
    }

    /// What an operation on all examples is on those of a half.
    fn halved(&self, operation: Operation, half: u32) -> Result<Operation, StageError> {
        match operation {
            Operation::BatchNorm
            | Operation::Part { part: Part::BatchNorm, .. } => self.refuse(
                "batch norm takes its statistics over all examples of a micro-batch, and two \
                 halves would have their own: set `tensor { overdecompose 1 }`, or use group norm",
            ),
            Operation::CrossEntropy { masked: Masked::Yes }
            | Operation::LinearCrossEntropy { masked: Masked::Yes, .. }
            | Operation::Accuracy { masked: Masked::Yes }
            | Operation::Part {
                part: Part::CrossEntropy { masked: Masked::Yes, .. },
                ..
            } => self.refuse(
                "it is a sum over the tokens that count, and both halves of a micro-batch are joined by \
                 their mean: set `tensor { overdecompose 1 }`",
            ),
            Operation::Part {
                part: Part::Dropout { rate, operator, share, tokens, half: _ },
                line,
            } => {
                // One part alone has the mask side by side.
                let alone = share == PartShare::Whole || line.parts == 1;
                let parts = self.halves;
                let own = Sliced::ExamplesDropout { rate, operator, own: half, parts };
                let part = Part::Dropout { rate, operator, share, tokens, half };
                Ok(match alone {
                    true => Operation::Sliced(own),
                    false => Operation::Part { part, line },
                })
            }
            Operation::Dropout { .. } => {
                self.refuse("this dropout has no halves: set `tensor { overdecompose 1 }`")
            }
            other => Ok(other),
        }
    }
}

/// The operations that only parameters go into.
fn common(model: &Model) -> BTreeSet<NodeId> {
    let mut common = BTreeSet::new();
    for (id, node) in model.nodes.iter() {
        let is_common = |operand: &Source| match operand {
            Source::Node(above) => common.contains(above),
            Source::Parameter(_) => true,
            Source::Input(_) => false,
        };
        if node.operands.iter().all(is_common) {
            common.insert(id);
        }
    }
    common
}
