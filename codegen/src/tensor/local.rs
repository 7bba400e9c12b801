//! The graph of one device while it is built: every value in some layout, exchanges in between.

use super::{
    Parted,
    absorb::Absorb,
    layout::{Layout, has_tokens},
};
use roundelay_dsl::{
    Extent, Metric, Model, Node, NodeId, Operation, ParameterId, Part, Source,
};
use roundelay_schedule::{Id, Sequence, Split, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// The graph so far.
pub(super) struct Local<'a> {
    /// The whole model.
    pub(super) whole: &'a Model,
    pub(super) tensor: Tensor,
    pub(super) absorb: &'a Absorb<'a>,
    /// The own part of it.
    pub(super) model: Model,
    /// In which layouts parameters are read.
    pub(super) wants: BTreeMap<ParameterId, BTreeSet<Layout>>,
    stored: BTreeMap<ParameterId, Layout>,
    cuts: &'a [u32],
    /// What became of each operation.
    made: Vec<(Source, Layout)>,
    /// Other layouts of what is there, by the stage that wanted them: an exchange that two stages
    /// use would be one more value that crosses.
    known: BTreeMap<(Source, Layout, usize), Source>,
    /// The operation of the whole model that each belongs to.
    origin: Vec<NodeId>,
    /// The operation that is worked on.
    at: NodeId,
}

impl<'a> Local<'a> {
    /// The own part of a model whose parameters are kept in these layouts, whole where none is
    /// said.
    pub(super) fn build(
        whole: &'a Model,
        cuts: &'a [u32],
        tensor: Tensor,
        absorb: &'a Absorb<'a>,
        stored: BTreeMap<ParameterId, Layout>,
    ) -> Self {
        let mut local = Self {
            whole,
            tensor,
            absorb,
            model: own_model(whole, tensor.rows, &stored),
            wants: BTreeMap::new(),
            stored,
            cuts,
            made: Vec::new(),
            known: BTreeMap::new(),
            origin: Vec::new(),
            at: NodeId::new(0),
        };
        for id in whole.nodes.ids() {
            local.at = id;
            let made = local.operation(id);
            local.made.push(made);
        }
        local
    }

    /// With the loss, the metrics and the cuts where they are now.
    pub(super) fn finish(self, cuts: &[u32]) -> Parted {
        let Self { mut model, made, origin, whole, .. } = self;
        let now = |node: NodeId| match made[node.index()].0 {
            Source::Node(node) => node,
            Source::Parameter(_) | Source::Input(_) => {
                unreachable!("operations become operations")
            }
        };
        model.loss = whole.loss.map(now);
        model.auxiliary = whole.auxiliary.iter().copied().map(now).collect();
        let metric =
            |metric: &Metric| Metric { node: now(metric.node), ..metric.clone() };
        model.metrics = whole.metrics.iter().map(metric).collect();
        let first = |cut: &u32| {
            let place = origin.partition_point(|node| node.index() < *cut as usize);
            u32::try_from(place).expect("models have fewer than 2^32 nodes")
        };
        Parted { cuts: cuts.iter().map(first).collect(), model, origin }
    }

    /// How many parts there are.
    pub(super) fn rows(&self) -> u64 {
        u64::from(self.tensor.rows)
    }

    /// Extents of the whole of a source.
    pub(super) fn shape(&self, source: Source) -> Vec<Extent> {
        match source {
            Source::Node(id) => self.whole.nodes[id].shape.clone(),
            Source::Input(id) => self.whole.inputs[id].shape.clone(),
            Source::Parameter(id) => {
                let shape = self.whole.parameters[id].shape.iter();
                shape.copied().map(Extent::fixed).collect()
            }
        }
    }

    /// The layout in which a source is there.
    pub(super) fn layout(&self, source: Source) -> Layout {
        match source {
            Source::Node(id) => self.made[id.index()].1,
            Source::Parameter(id) => {
                self.stored.get(&id).copied().unwrap_or(Layout::Whole)
            }
            Source::Input(_) => Layout::Whole,
        }
    }

    /// The layout for what works token by token on a value: its share of the tokens where that
    /// is wanted.
    pub(super) fn by_tokens(&self, source: Source) -> Layout {
        match self.layout(source) {
            Layout::Whole => self.settled(&self.shape(source)),
            own => own,
        }
    }

    /// The layout of a value that is whole between two split regions.
    pub(super) fn settled(&self, shape: &[Extent]) -> Layout {
        match self.tensor.sequence {
            Sequence::Split if has_tokens(shape, self.rows()) => Layout::Tokens,
            Sequence::Split | Sequence::Whole => Layout::Whole,
        }
    }

    /// A source of the whole model in a layout.
    pub(super) fn want(&mut self, source: Source, layout: Layout) -> Source {
        if let Source::Parameter(id) = source {
            self.wants.entry(id).or_default().insert(layout);
        }
        let there = match source {
            Source::Node(id) => self.made[id.index()].0,
            Source::Parameter(_) | Source::Input(_) => source,
        };
        let have = self.layout(source);
        // What has no gradient is the same whole or varying.
        if have == layout
            || (matches!(source, Source::Input(_)) && layout == Layout::Varying)
        {
            return there;
        }
        let stage = self.cuts.partition_point(|cut| *cut as usize <= self.at.index());
        if let Some(known) = self.known.get(&(source, layout, stage)) {
            return *known;
        }
        let shape = self.shape(source);
        let made = match have.exchange(layout) {
            Some(_) => self.exchange(there, have, layout, &shape),
            None => {
                let whole = self.want(source, Layout::Whole);
                self.exchange(whole, Layout::Whole, layout, &shape)
            }
        };
        self.known.insert((source, layout, stage), made);
        made
    }

    /// A value in another layout.
    pub(super) fn exchange(
        &mut self,
        source: Source,
        from: Layout,
        to: Layout,
        shape: &[Extent],
    ) -> Source {
        if from == to {
            return source;
        }
        let motions = from.exchange(to).expect("every layout is one step from whole");
        let part = Part::Exchange { value: motions[0], gradient: motions[1] };
        self.part("exchange", part, vec![source], (shape, to))
    }

    /// An operation that only a part has.
    pub(super) fn part(
        &mut self,
        role: &str,
        part: Part,
        operands: Vec<Source>,
        made: (&[Extent], Layout),
    ) -> Source {
        let parts = self.tensor.rows;
        self.add(role, Operation::Part { part, parts }, operands, made)
    }

    /// An operation on own parts; `shape` is that of the whole result.
    pub(super) fn add(
        &mut self,
        role: &str,
        operation: Operation,
        operands: Vec<Source>,
        (shape, layout): (&[Extent], Layout),
    ) -> Source {
        let mut name = self.whole.nodes[self.at].name.clone();
        if !role.is_empty() {
            name = format!("{name}.{role}");
        }
        let shape = layout.own(shape, self.rows());
        self.origin.push(self.at);
        let node = Node { name, operation, operands, shape };
        Source::Node(self.model.nodes.push(node))
    }
}

/// Inputs and parameters of one device.
fn own_model(whole: &Model, rows: u32, stored: &BTreeMap<ParameterId, Layout>) -> Model {
    let mut parameters = whole.parameters.clone();
    for (id, parameter) in parameters.iter_mut() {
        if let Some(Layout::Split(extent)) = stored.get(&id) {
            let own = &mut parameter.shape[*extent as usize];
            parameter.split = Some(Split { extent: *extent, whole: *own });
            *own = own.div_ceil(u64::from(rows));
        }
    }
    Model {
        name: whole.name.clone(),
        inputs: whole.inputs.clone(),
        parameters,
        ..Model::default()
    }
}
