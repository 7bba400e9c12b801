//! The graph of one device while it is built: every value in some layout, exchanges in between.

use super::{
    Parted,
    absorb::Absorb,
    layout::{Along, Layout, SEQUENCE, Step, crossing, has_tokens},
    turns::Turns,
    whole::Undivided,
};
use crate::stage::StageError;
use roundelay_dsl::{
    Extent, Model, ModelMetric, Node, NodeId, Operation, ParameterId, Part, Source,
};
use roundelay_schedule::{
    Contraction, Direction, Division, Id, MapWays, Sequence, Split, Tensor,
};
use std::collections::{BTreeMap, BTreeSet};

/// What is known of all maps before the graph is built.
pub(super) struct Maps<'a> {
    pub(super) absorb: Absorb<'a>,
    pub(super) turns: Turns,
}

/// The graph so far.
pub(super) struct Local<'a> {
    /// The whole model.
    pub(super) whole: &'a Model,
    pub(super) tensor: Tensor,
    pub(super) absorb: &'a Absorb<'a>,
    pub(super) turns: &'a Turns,
    /// The ways that somebody has written down; none where each map follows its operand.
    pub(super) listed: Option<&'a MapWays>,
    /// The ways that maps went so far.
    pub(super) ways: MapWays,
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
    pub(super) at: NodeId,
    /// Whether some operation works on own rows of pixels.
    pub(super) splits_pixels: bool,
    /// The first thing that the grid does not split.
    pub(super) refused: Option<StageError>,
    /// What every row does whole for its numbers.
    pub(super) undivided: Vec<Undivided>,
}

impl<'a> Local<'a> {
    /// The own part of a model whose parameters are kept in these layouts, whole where none is
    /// said, and whose maps go the listed ways.
    pub(super) fn build(
        whole: &'a Model,
        cuts: &'a [u32],
        tensor: Tensor,
        (maps, listed): (&'a Maps<'a>, Option<&'a MapWays>),
        stored: BTreeMap<ParameterId, Layout>,
    ) -> Self {
        let mut local = Self {
            whole,
            tensor,
            absorb: &maps.absorb,
            turns: &maps.turns,
            listed,
            ways: MapWays::default(),
            model: own_model(whole, tensor, &stored),
            wants: BTreeMap::new(),
            stored,
            cuts,
            made: Vec::new(),
            known: BTreeMap::new(),
            origin: Vec::new(),
            at: NodeId::new(0),
            splits_pixels: false,
            refused: None,
            undivided: Vec::new(),
        };
        for id in whole.nodes.ids() {
            local.at = id;
            let made = local.operation(id);
            local.made.push(made);
        }
        local.refuse_idle();
        local
    }

    /// With the loss, the metrics and the cuts where they are now.
    pub(super) fn finish(self, cuts: &[u32]) -> Parted {
        let Self { mut model, made, origin, whole, ways, .. } = self;
        let now = |node: NodeId| match made[node.index()].0 {
            Source::Node(node) => node,
            Source::Parameter(_) | Source::Input(_) => {
                unreachable!("operations become operations")
            }
        };
        model.loss = whole.loss.map(now);
        model.auxiliary = whole.auxiliary.iter().copied().map(now).collect();
        let metric = |metric: &ModelMetric| ModelMetric {
            node: now(metric.node),
            ..metric.clone()
        };
        model.metrics = whole.metrics.iter().map(metric).collect();
        let first = |cut: &u32| {
            let place = origin.partition_point(|node| node.index() < *cut as usize);
            u32::try_from(place).expect("models have fewer than 2^32 nodes")
        };
        let cuts = cuts.iter().map(first).collect();
        Parted { cuts, model, origin, ways, strands: Vec::new(), halves: 1 }
    }

    /// How many parts divide something in a direction.
    pub(super) fn parts(&self, direction: Direction) -> u64 {
        u64::from(self.tensor.line(direction).parts)
    }

    /// Whether tensors are split in both directions of the grid, layer by layer in turn.
    pub(super) fn alternates(&self) -> bool {
        self.tensor.columns > 1
    }

    /// Whether every map gathers what it reads.
    pub(super) fn gathers(&self) -> bool {
        self.tensor.contraction == Contraction::Gather
    }

    /// Extents of the whole of a source.
    pub(super) fn shape(&self, source: Source) -> Vec<Extent> {
        self.whole.shape(source)
    }

    /// The layout of each operation's result.
    pub(super) fn layouts(&self) -> impl Iterator<Item = Layout> + '_ {
        self.made.iter().map(|(_, layout)| *layout)
    }

    /// The layout in which a source is there.
    pub(super) fn layout(&self, source: Source) -> Layout {
        match source {
            Source::Node(id) => self.made[id.index()].1,
            Source::Parameter(id) => {
                self.stored.get(&id).copied().unwrap_or(Layout::WHOLE)
            }
            Source::Input(_) => Layout::WHOLE,
        }
    }

    /// Who divides an extent of a value that lies like this. Beside a single part that counts no
    /// turns the other direction divides it alone.
    pub(super) fn divider(&self, layout: Layout, extent: u32) -> Option<Direction> {
        match (layout.divides(extent)?, self.tensor.idle()) {
            (Direction::Both, Some(idle)) => Some(crossing(idle)),
            (direction, _) => Some(direction),
        }
    }

    /// Whether nobody divides anything: a single part that counts no turns does not.
    pub(super) fn is_whole(&self, layout: Layout) -> bool {
        let idle = self.tensor.idle();
        let layout = idle.map_or(layout, |idle| layout.with(idle, Along::Whole));
        layout == Layout::WHOLE
    }

    /// The layout for what works token by token on a value: its share of the tokens where that
    /// is wanted, and nobody has a part of each sequence already.
    pub(super) fn by_tokens(&self, source: Source) -> Layout {
        let (own, shape) = (self.layout(source), self.shape(source));
        match (own.rows, own.columns) {
            (Along::Whole, other) if other.extent() == Some(SEQUENCE) => own,
            (other, Along::Whole) if other.extent() == Some(SEQUENCE) => own,
            (Along::Whole, _) => {
                Layout { rows: self.settled(&shape, Direction::Rows), ..own }
            }
            (Along::Split(_), Along::Whole) => {
                Layout { columns: self.settled(&shape, Direction::Columns), ..own }
            }
            _ => own,
        }
    }

    /// How a value lies in a direction that does not divide its features.
    pub(super) fn settled(&self, shape: &[Extent], direction: Direction) -> Along {
        match self.tensor.sequence {
            Sequence::Split if has_tokens(shape, self.parts(direction)) => Along::Tokens,
            Sequence::Split | Sequence::Whole => Along::Whole,
        }
    }

    /// The same where there is a direction for it: a single part has the whole, so layouts that
    /// differ only there are one.
    pub(super) fn canonical(&self, layout: Layout) -> Layout {
        let single = [Direction::Rows, Direction::Columns]
            .into_iter()
            .filter(|direction| self.parts(*direction) == 1);
        single.fold(layout, |all, direction| all.with(direction, Along::Whole))
    }

    /// A source of the whole model in a layout.
    pub(super) fn want(&mut self, source: Source, layout: Layout) -> Source {
        let mut layout = self.canonical(layout);
        let mut there = match source {
            Source::Node(id) => self.made[id.index()].0,
            Source::Parameter(id) => {
                self.wants.entry(id).or_default().insert(layout);
                source
            }
            Source::Input(_) => {
                // What has no gradient is the same whole or varying.
                layout = layout.map(Along::of_value);
                source
            }
        };
        let mut have = self.canonical(self.layout(source));
        let stage = self.cuts.partition_point(|cut| *cut as usize <= self.at.index());
        let shape = self.shape(source);
        while let Some(step) = have.step(layout) {
            have = step.to;
            there = match self.known.get(&(source, have, stage)) {
                Some(known) => *known,
                None => {
                    let made = self.exchange(there, step, &shape);
                    self.known.insert((source, have, stage), made);
                    made
                }
            };
        }
        there
    }

    /// A value that was just made, in another layout.
    pub(super) fn settle(
        &mut self,
        source: Source,
        (from, to): (Layout, Layout),
        shape: &[Extent],
    ) -> Source {
        let [mut have, to] = [from, to].map(|layout| self.canonical(layout));
        let mut there = source;
        while let Some(step) = have.step(to) {
            (have, there) = (step.to, self.exchange(there, step, shape));
        }
        there
    }

    /// One exchange.
    fn exchange(&mut self, source: Source, step: Step, shape: &[Extent]) -> Source {
        let Step { direction, motions: [value, gradient], to } = step;
        let part = Part::Exchange { value, gradient };
        self.part("exchange", (part, direction), vec![source], (shape, to))
    }

    /// An operation that only a part has.
    pub(super) fn part(
        &mut self,
        role: &str,
        (part, direction): (Part, Direction),
        operands: Vec<Source>,
        made: (&[Extent], Layout),
    ) -> Source {
        let line = self.tensor.line(direction);
        self.add(role, Operation::Part { part, line }, operands, made)
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
        let shape = self.canonical(layout).own(shape, self.tensor);
        self.origin.push(self.at);
        let node = Node { name, operation, operands, shape };
        Source::Node(self.model.nodes.push(node))
    }
}

/// Inputs and parameters of one device.
fn own_model(
    whole: &Model,
    tensor: Tensor,
    stored: &BTreeMap<ParameterId, Layout>,
) -> Model {
    let mut parameters = whole.parameters.clone();
    for (id, parameter) in parameters.iter_mut() {
        if let Some(layout) = stored.get(&id) {
            let extents: Vec<Extent> =
                parameter.shape.iter().copied().map(Extent::fixed).collect();
            parameter.split = division(*layout, &parameter.shape, tensor);
            let own = layout.own(&extents, tensor);
            parameter.shape = own.iter().map(|extent| extent.size).collect();
        }
    }
    Model {
        name: whole.name.clone(),
        inputs: whole.inputs.clone(),
        parameters,
        ..Model::default()
    }
}

/// How a parameter of this shape is divided that is kept in a layout.
fn division(layout: Layout, shape: &[u64], tensor: Tensor) -> Division {
    let split = |extent: u32, direction| {
        let line = tensor.line(direction);
        let line = (line.parts < tensor.parts()).then_some(line);
        Split { extent, whole: shape[extent as usize], line }
    };
    let (rows, columns) = (Direction::Rows, Direction::Columns);
    match (layout.rows, layout.columns) {
        (Along::Split(one), Along::Split(other)) if one == other => {
            Division::One(split(one, Direction::Both))
        }
        (Along::Split(one), Along::Split(other)) => {
            Division::Two([split(one, rows), split(other, columns)])
        }
        (Along::Split(extent), _) => Division::One(split(extent, rows)),
        (_, Along::Split(extent)) => Division::One(split(extent, columns)),
        _ => Division::Whole,
    }
}
