//! From a model to the graph of its sequences cut into slices.
//!
//! A slice of a sequence passes the stages as a micro-batch does (TeraPipe, arXiv 2102.07988;
//! Seq1F1B, arXiv 2406.03488). Every operation stands once per slice, stage by stage and in a stage
//! slice by slice, so each slice of a stage is a stage of this graph. Only causal attention joins
//! slices: it reads keys and values of the slices before, which are values that cross like any
//! others, and so are their gradients on the way back. All else is done token by token; what is
//! not is refused by name. The loss is the mean of the slices' means.

mod laws;

use crate::{mean::mean, stage::StageError, tensor::Parted};
use laws::{one_reader, sequence};
use roundelay_dsl::{
    Extent, Model, ModelMetric, Node, NodeId, Operation, Sliced, Source,
};
use roundelay_schedule::{Id, MapWays};
use std::{collections::BTreeMap, ops::Range};

/// The model whose sequences are cut into this many slices, cut before these nodes into stages.
///
/// # Errors
/// What cannot be cut into slices.
pub(crate) fn sliced(
    model: &Model,
    cuts: &[u32],
    slices: u32,
) -> Result<Parted, StageError> {
    let nodes = model.cuttable();
    let starts = [0].into_iter().chain(cuts.iter().map(|cut| *cut as usize));
    let starts: Vec<usize> = starts.collect();
    if !starts.is_sorted_by(|low, high| low < high)
        || starts.last().is_some_and(|last| *last >= nodes)
    {
        return Err(StageError::Cuts { cuts: cuts.to_vec(), nodes });
    }
    let length = sequence(model, u64::from(slices))?;
    let ends = starts[1..].iter().copied().chain([model.nodes.len()]);
    let stages: Vec<Range<usize>> =
        starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect();
    one_reader(model, &stages)?;
    let mut slicing = Slicing::new(model, slices, length);
    for (stage, nodes) in stages.into_iter().enumerate() {
        for slice in 0..slices {
            slicing.begin(stage, slice);
            for node in nodes.clone() {
                slicing.operation(NodeId::new(node))?;
            }
        }
    }
    slicing.finish()
}

/// What an array is to the slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One row per token: each slice has its own.
    Tokens,
    /// The same for all slices: parameters and what is made of them alone.
    Common,
    /// A mean over the tokens: each slice has the mean of its tokens.
    Mean,
}

/// The graph so far.
struct Slicing<'a> {
    whole: &'a Model,
    slices: u32,
    /// Tokens of a whole sequence.
    length: u64,
    model: Model,
    cuts: Vec<u32>,
    origin: Vec<NodeId>,
    /// What became of each operation, by slice.
    made: Vec<BTreeMap<NodeId, Source>>,
    kinds: BTreeMap<NodeId, Kind>,
    /// Parts of what is whole, and contexts, in the present slice of a stage.
    known: BTreeMap<Source, Source>,
    /// The slice and the operation that are worked on.
    slice: u32,
    at: NodeId,
}

impl<'a> Slicing<'a> {
    fn new(whole: &'a Model, slices: u32, length: u64) -> Self {
        let model = Model {
            name: whole.name.clone(),
            inputs: whole.inputs.clone(),
            parameters: whole.parameters.clone(),
            ..Model::default()
        };
        Self {
            whole,
            slices,
            length,
            model,
            cuts: Vec::new(),
            origin: Vec::new(),
            made: vec![BTreeMap::new(); slices as usize],
            kinds: BTreeMap::new(),
            known: BTreeMap::new(),
            slice: 0,
            at: NodeId::new(0),
        }
    }

    /// What follows belongs to a slice of a stage.
    fn begin(&mut self, stage: usize, slice: u32) {
        self.slice = slice;
        self.known.clear();
        if (stage, slice) != (0, 0) {
            let next = self.model.nodes.len();
            self.cuts.push(u32::try_from(next).expect("models are smaller"));
        }
    }

    /// Tokens of a slice.
    fn share(&self) -> u64 {
        self.length / u64::from(self.slices)
    }

    /// The first token of the present slice.
    fn first(&self) -> u64 {
        u64::from(self.slice) * self.share()
    }

    fn refuse<T>(&self, problem: &str) -> Result<T, StageError> {
        let node = self.whole.nodes[self.at].name.clone();
        Err(StageError::Unsliced { node, problem: problem.to_owned() })
    }

    fn kind(&self, source: Source) -> Kind {
        match source {
            Source::Node(node) => self.kinds[&node],
            Source::Parameter(_) => Kind::Common,
            Source::Input(_) => Kind::Tokens,
        }
    }

    /// Whether an array has a row per token of a whole sequence.
    fn has_tokens(&self, shape: &[Extent]) -> bool {
        let sequence = Extent::fixed(self.length);
        matches!(shape, [batch, tokens, ..] if *batch == Extent::batch() && *tokens == sequence)
    }

    /// The shape of this many tokens of the same.
    fn of(&self, shape: &[Extent], tokens: u64) -> Vec<Extent> {
        let mut shape = shape.to_vec();
        shape[1] = Extent::fixed(tokens);
        shape
    }

    fn add(
        &mut self,
        operation: Operation,
        operands: Vec<Source>,
        shape: Vec<Extent>,
    ) -> Source {
        Source::Node(self.push(operation, operands, shape))
    }

    fn push(
        &mut self,
        operation: Operation,
        operands: Vec<Source>,
        shape: Vec<Extent>,
    ) -> NodeId {
        let name = format!("{}.{}", self.whole.nodes[self.at].name, self.slice);
        self.origin.push(self.at);
        self.model.nodes.push(Node { name, operation, operands, shape })
    }

    /// The part of an operand that the present slice has.
    fn operand(&mut self, source: Source) -> Result<Source, StageError> {
        match source {
            Source::Node(node) => Ok(self.made[self.slice as usize][&node]),
            Source::Parameter(_) => Ok(source),
            Source::Input(_) => {
                if let Some(known) = self.known.get(&source) {
                    return Ok(*known);
                }
                let shape = self.whole.shape(source);
                if !self.has_tokens(&shape) {
                    return self.refuse(
                        "it reads an input that is no sequence of tokens, which slices do \
                         not divide",
                    );
                }
                let cut = Operation::Sliced(Sliced::Cut { first: self.first() });
                let shape = self.of(&shape, self.share());
                let cut = self.add(cut, vec![source], shape);
                self.known.insert(source, cut);
                Ok(cut)
            }
        }
    }

    /// Adds what becomes of an operation in the present slice.
    fn operation(&mut self, id: NodeId) -> Result<(), StageError> {
        self.at = id;
        let Node { operation, operands, shape, .. } = &self.whole.nodes[id];
        let kinds: Vec<Kind> = operands.iter().map(|one| self.kind(*one)).collect();
        let kind = if kinds.contains(&Kind::Tokens) {
            self.result(*operation, shape)?
        } else if kinds.contains(&Kind::Mean) {
            self.combined(*operation)?
        } else {
            self.common(*operation)?
        };
        let result = match (kind, operation) {
            (Kind::Tokens, Operation::Attention { .. }) => {
                self.attention(*operation, operands, shape)?
            }
            (Kind::Tokens, Operation::Add | Operation::Multiply) => {
                self.pair(*operation, operands, shape)?
            }
            _ => self.same(kind, *operation, operands, shape)?,
        };
        self.kinds.insert(id, kind);
        self.made[self.slice as usize].insert(id, result);
        Ok(())
    }

    fn same(
        &mut self,
        kind: Kind,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> Result<Source, StageError> {
        let (first, slices) = (self.first(), self.slices);
        let operation = match operation {
            Operation::Rotary(turning) => {
                Operation::Sliced(Sliced::Rotary { turning, first })
            }
            Operation::Dropout { rate } => {
                let operator = self.at.index() as u64;
                Operation::Sliced(Sliced::Dropout {
                    rate,
                    operator,
                    own: self.slice,
                    slices,
                })
            }
            other => other,
        };
        let parts = operands.iter().map(|operand| self.operand(*operand));
        let parts = parts.collect::<Result<_, _>>()?;
        let shape = match kind {
            Kind::Tokens => self.of(shape, self.share()),
            Kind::Common | Kind::Mean => shape.to_vec(),
        };
        Ok(self.add(operation, parts, shape))
    }

    /// a and b, where b has the shape of a or of its trailing extents; of a table of positions the
    /// rows of the present slice.
    fn pair(
        &mut self,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> Result<Source, StageError> {
        let [a, b] = [operands[0], operands[1]];
        let table = self.whole.shape(b);
        let missing = shape.len() - table.len();
        let rows = missing == 1 && self.kind(b) == Kind::Common;
        if !rows || table.first() != Some(&Extent::fixed(self.length)) {
            return self.same(Kind::Tokens, operation, operands, shape);
        }
        if table.len() != 2 {
            return self
                .refuse("a table of positions with several extents has no slices");
        }
        let x = self.operand(a)?;
        let part = match self.known.get(&b) {
            Some(known) => *known,
            None => {
                let whole = self.operand(b)?;
                let shape = vec![Extent::fixed(self.share()), table[1]];
                let rows = Operation::Rows { first: self.first() };
                let part = self.add(rows, vec![whole], shape);
                self.known.insert(b, part);
                part
            }
        };
        let shape = self.of(shape, self.share());
        Ok(self.add(operation, vec![x, part], shape))
    }

    /// Queries of the present slice, keys and values of all slices up to it.
    fn attention(
        &mut self,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> Result<Source, StageError> {
        let query = self.operand(operands[0])?;
        let key = self.context(operands[1])?;
        let value = self.context(operands[2])?;
        let shape = self.of(shape, self.share());
        Ok(self.add(operation, vec![query, key, value], shape))
    }

    /// What all slices up to the present one have of a value.
    fn context(&mut self, source: Source) -> Result<Source, StageError> {
        let present = self.operand(source)?;
        let (Source::Node(node), true) = (source, self.slice > 0) else {
            return match source {
                Source::Node(_) => Ok(present),
                _ => self.refuse("it attends to what no operation makes"),
            };
        };
        if let Some(known) = self.known.get(&source) {
            return Ok(*known);
        }
        let until = self.slice as usize + 1;
        let pieces = self.made[..until].iter().map(|made| made[&node]).collect();
        let shape = self.of(&self.whole.shape(source), self.first() + self.share());
        let joined = self.add(Operation::Sliced(Sliced::Join), pieces, shape);
        self.known.insert(source, joined);
        Ok(joined)
    }

    /// The mean over the slices of a mean over their tokens.
    fn mean(&mut self, node: NodeId) -> NodeId {
        self.at = node;
        let pieces: Vec<Source> = self.made.iter().map(|made| made[&node]).collect();
        mean(&pieces, |operation, operands| self.push(operation, operands, vec![]))
    }

    /// With the loss and the metrics of whole sequences.
    fn finish(mut self) -> Result<Parted, StageError> {
        let whole = self.whole;
        let loss = whole.loss.ok_or(StageError::NoLoss)?;
        let metrics = whole.metrics.iter().map(|metric| metric.node);
        if let Some(node) =
            [loss].into_iter().chain(metrics).find(|node| self.kinds[node] != Kind::Mean)
        {
            self.at = node;
            return self.refuse("it is not a mean over tokens");
        }
        let mut means = BTreeMap::new();
        for node in [loss].into_iter().chain(whole.metrics.iter().map(|m| m.node)) {
            means.entry(node).or_insert_with(|| self.mean(node));
        }
        let Self { mut model, cuts, origin, .. } = self;
        model.loss = Some(means[&loss]);
        let metric = |metric: &ModelMetric| ModelMetric {
            node: means[&metric.node],
            ..metric.clone()
        };
        model.metrics = whole.metrics.iter().map(metric).collect();
        let ways = MapWays::default();
        Ok(Parted { model, cuts, origin, ways, strands: Vec::new(), halves: 1 })
    }
}
