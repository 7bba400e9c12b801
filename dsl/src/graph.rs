//! A model under construction: nodes and parameters, with names made of the path to them.

use crate::{
    Code, Extent, Mistake, Model, ModelInput, ModelParameter, Node, NodeId, Operation,
    Source, Tensor, limit, value::too_many_elements,
};
use roundelay_schedule::{Element, Initial, Table, Treatment};
use std::collections::{BTreeMap, BTreeSet};

/// A model under construction.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    model: Model,
    path: Vec<Level>,
}

/// One step of the path; the names taken at it, with the number that comes next for each.
#[derive(Clone, Debug, Default)]
struct Level {
    name: String,
    taken: BTreeMap<String, u32>,
}

impl Graph {
    /// An empty model.
    pub(crate) fn new(name: &str) -> Self {
        let model = Model { name: name.to_owned(), ..Model::default() };
        Self { model, path: vec![Level::default()] }
    }

    /// A name that is not taken at the present level: the wanted one, or with a number behind.
    pub(crate) fn claim(&mut self, wanted: &str) -> String {
        let level = self.path.last_mut().expect("the outermost level stays");
        let Some(next) = level.taken.get(wanted).copied() else {
            level.taken.insert(wanted.to_owned(), 1);
            return wanted.to_owned();
        };
        let mut number = next;
        while level.taken.contains_key(&format!("{wanted}_{number}")) {
            number += 1;
        }
        let name = format!("{wanted}_{number}");
        level.taken.insert(wanted.to_owned(), number + 1);
        level.taken.insert(name.clone(), 1);
        name
    }

    /// One level down, under a name that was claimed.
    pub(crate) fn descend(&mut self, name: String) {
        self.path.push(Level { name, ..Level::default() });
    }

    /// One level up again.
    pub(crate) fn ascend(&mut self) {
        self.path.pop();
        assert!(!self.path.is_empty(), "the outermost level stays");
    }

    /// Does something one level down, under a name that is made unique.
    pub(crate) fn within<T>(
        &mut self,
        wanted: &str,
        body: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let name = self.claim(wanted);
        self.descend(name);
        let result = body(self);
        self.ascend();
        result
    }

    /// Numbers of inputs, parameters and nodes so far.
    pub(crate) fn sizes(&self) -> [usize; 3] {
        let Model { inputs, parameters, nodes, .. } = &self.model;
        [inputs.len(), parameters.len(), nodes.len()]
    }

    fn path_to(&self, last: &str) -> String {
        let names = self.path.iter().map(|level| level.name.as_str()).chain([last]);
        names.filter(|name| !name.is_empty()).collect::<Vec<_>>().join(".")
    }

    /// An input of the model.
    pub(crate) fn input(
        &mut self,
        name: &str,
        element: Element,
        shape: Vec<Extent>,
    ) -> Result<Tensor, Mistake> {
        let (first, others) = shape.split_first().ok_or_else(no_examples)?;
        if *first != Extent::batch() || others.iter().any(|extent| extent.per_example) {
            return Err(no_examples());
        }
        bounded(&shape)?;
        let input =
            ModelInput { name: name.to_owned(), element, shape: shape.clone(), bound: 0 };
        let source = Source::Input(self.model.inputs.push(input));
        Ok(Tensor { source, element, shape })
    }

    /// A parameter in its `role` at the present path.
    pub(crate) fn parameter(
        &mut self,
        role: &str,
        shape: Vec<u64>,
        initial: Initial,
    ) -> Result<Tensor, Mistake> {
        // Biases, gains and other vectors are spared from weight decay.
        let treatment = match shape.len() {
            0 | 1 => Treatment::Spared,
            _ => Treatment::Decayed,
        };
        self.treated(role, shape, initial, treatment)
    }

    /// A parameter in its `role` at the present path that updates treat in a way of its own.
    pub(crate) fn treated(
        &mut self,
        role: &str,
        shape: Vec<u64>,
        initial: Initial,
        treatment: Treatment,
    ) -> Result<Tensor, Mistake> {
        let extents: Vec<Extent> = shape.iter().copied().map(Extent::fixed).collect();
        bounded(&extents)?;
        if self.model.parameters.len() >= limit::PARAMETERS {
            let message = format!("a model has at most {} parameters", limit::PARAMETERS);
            return Err(Mistake::new(Code::Limit, message));
        }
        let name = self.path_to(role);
        self.one_momentum(treatment)?;
        let parameter = ModelParameter { name, shape, initial, treatment };
        let source = Source::Parameter(self.model.parameters.push(parameter));
        Ok(Tensor { source, element: Element::Real, shape: extents })
    }

    /// The running averages of a model have one momentum: an update knows no more.
    fn one_momentum(&self, treatment: Treatment) -> Result<(), Mistake> {
        let averages = self.model.parameters.values();
        let mut averages =
            averages.filter_map(|p| Some((&p.name, p.treatment.momentum()?)));
        let (Some(momentum), Some((name, first))) =
            (treatment.momentum(), averages.next())
        else {
            return Ok(());
        };
        if momentum == first {
            return Ok(());
        }
        let message =
            format!("the momentum is {momentum}, but that of `{name}` is {first}");
        let hint = "give all running averages of a model the same momentum";
        Err(Mistake::new(Code::Value, message).hint(hint).argument("momentum"))
    }

    /// A node at the present path; its last name is `role`, or the path's when that is empty.
    pub(crate) fn node(
        &mut self,
        role: &str,
        operation: Operation,
        operands: &[&Tensor],
        shape: Vec<Extent>,
    ) -> Result<Tensor, Mistake> {
        bounded(&shape)?;
        if self.model.nodes.len() >= limit::NODES {
            let message = format!("a model has at most {} operations", limit::NODES);
            return Err(Mistake::new(Code::Limit, message));
        }
        let name = self.path_to(role);
        let operands = operands.iter().map(|tensor| tensor.source).collect();
        let node = Node { name, operation, operands, shape: shape.clone() };
        let source = Source::Node(self.model.nodes.push(node));
        Ok(Tensor { source, element: Element::Real, shape })
    }

    /// An operator reads integers below `bound` from a tensor.
    pub(crate) fn demand_below(&mut self, tensor: &Tensor, bound: u64) {
        if let Source::Input(id) = tensor.source {
            let known = &mut self.model.inputs[id].bound;
            *known = if *known == 0 { bound } else { bound.min(*known) };
        }
    }

    /// The model whose last node is the loss, without what the loss does not need, and
    /// what was left out.
    pub(crate) fn finish(self, loss: &Tensor) -> Result<(Model, Vec<Source>), Mistake> {
        let Source::Node(last) = loss.source else {
            let message = "expected the result of an operation as loss";
            return Err(Mistake::new(Code::Type, message));
        };
        if !loss.shape.is_empty() {
            let found = crate::value::spelled(&loss.shape);
            let message =
                format!("expected a single number as loss, found the shape {found}");
            let hint = "end with `cross_entropy` or `mse`";
            return Err(Mistake::new(Code::Shape, message).hint(hint));
        }
        let needed = needed(&self.model, last);
        let reads = |kind: fn(&Source) -> bool| needed.iter().any(kind);
        if !reads(|source| matches!(source, Source::Parameter(_))) {
            let message =
                "the loss depends on no parameter, so there is nothing to train";
            return Err(Mistake::new(Code::Value, message));
        }
        if !reads(|source| matches!(source, Source::Input(_))) {
            let message =
                "the loss depends on no input, so there is nothing to learn from";
            return Err(Mistake::new(Code::Value, message));
        }
        Ok(trimmed(self.model, &needed))
    }
}

/// Number of elements, within the limits; examples count as one. They lie one behind the other,
/// so that what is computed for an example does not depend on the others of its micro-batch.
pub(crate) fn bounded(shape: &[Extent]) -> Result<u64, Mistake> {
    if shape.len() > limit::RANK {
        let message = format!("a shape has at most {} extents", limit::RANK);
        return Err(Mistake::new(Code::Limit, message));
    }
    if shape.iter().skip(1).any(|extent| extent.per_example) {
        let message = "only the first extent of a shape may be a multiple of `batch`";
        return Err(Mistake::new(Code::Shape, message));
    }
    let product = shape.iter().try_fold(1u64, |all, extent| all.checked_mul(extent.size));
    product.filter(|all| *all <= limit::ELEMENTS).ok_or_else(too_many_elements)
}

fn no_examples() -> Mistake {
    let message = "the first extent of an input must be `batch`, and no other";
    Mistake::new(Code::Shape, message).hint("write `input x: real[batch, 8]`")
}

/// Everything from which the node is computed; operands stand above their users.
fn needed(model: &Model, last: NodeId) -> BTreeSet<Source> {
    let mut needed = BTreeSet::from([Source::Node(last)]);
    for (id, node) in model.nodes.iter().rev() {
        if needed.contains(&Source::Node(id)) {
            needed.extend(node.operands.iter().copied());
        }
    }
    needed
}

fn trimmed(model: Model, needed: &BTreeSet<Source>) -> (Model, Vec<Source>) {
    let mut unused = Vec::new();
    let mut places = BTreeMap::new();
    let mut small = Model { name: model.name.clone(), ..Model::default() };
    for (id, input) in model.inputs.iter() {
        let source = Source::Input(id);
        match keep(source, needed, input, &mut small.inputs) {
            Some(id) => _ = places.insert(source, Source::Input(id)),
            None => unused.push(source),
        }
    }
    for (id, parameter) in model.parameters.iter() {
        let source = Source::Parameter(id);
        match keep(source, needed, parameter, &mut small.parameters) {
            Some(id) => _ = places.insert(source, Source::Parameter(id)),
            None => unused.push(source),
        }
    }
    for (id, node) in model.nodes.iter() {
        let source = Source::Node(id);
        let Some(new) = keep(source, needed, node, &mut small.nodes) else {
            unused.push(source);
            continue;
        };
        places.insert(source, Source::Node(new));
        small.nodes[new]
            .operands
            .iter_mut()
            .for_each(|operand| *operand = places[operand]);
        small.loss = Some(new);
    }
    (small, unused)
}

fn keep<I: roundelay_schedule::Id, T: Clone>(
    source: Source,
    needed: &BTreeSet<Source>,
    row: &T,
    table: &mut Table<I, T>,
) -> Option<I> {
    needed.contains(&source).then(|| table.push(row.clone()))
}
