//! A model under construction: nodes and parameters, with names made of the path to them.

use crate::{
    Code, Extent, Head, Measure, Mistake, Model, ModelInput, ModelInputId,
    ModelParameter, Node, Operation, Source, TensorValue, finish, limit,
    value::too_many_elements,
};
use roundelay_schedule::{
    Belonging, Division, Element, Id, Initial, Origin, ParameterKind, Treatment,
};
use std::collections::BTreeMap;

/// A model under construction.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    model: Model,
    path: Vec<Level>,
    /// The first running average, and its momentum.
    average: Option<(String, f64)>,
}

/// One step of the path; the names taken at it. Metrics have names of their own, so that they
/// change no name of a parameter.
#[derive(Clone, Debug, Default)]
struct Level {
    name: String,
    taken: Names,
    measured: Names,
}

/// Names that are taken, with the number that comes next for each.
#[derive(Clone, Debug, Default)]
struct Names(BTreeMap<String, u32>);

impl Names {
    /// The wanted name, or one with a number behind.
    fn claim(&mut self, wanted: &str) -> String {
        let Some(next) = self.0.get(wanted).copied() else {
            self.0.insert(wanted.to_owned(), 1);
            return wanted.to_owned();
        };
        let mut number = next;
        while self.0.contains_key(&format!("{wanted}_{number}")) {
            number += 1;
        }
        let name = format!("{wanted}_{number}");
        self.0.insert(wanted.to_owned(), number + 1);
        self.0.insert(name.clone(), 1);
        name
    }
}

impl Graph {
    /// An empty model.
    pub(crate) fn new(name: &str) -> Self {
        let model = Model { name: name.to_owned(), ..Model::default() };
        Self { model, path: vec![Level::default()], average: None }
    }

    /// A name that is not taken at the present level: the wanted one, or with a number behind.
    pub(crate) fn claim(&mut self, wanted: &str) -> String {
        self.level().taken.claim(wanted)
    }

    fn level(&mut self) -> &mut Level {
        self.path.last_mut().expect("the outermost level stays")
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

    /// Builds a metric one level down, under a name that no other metric of this level has.
    pub(crate) fn measuring<T>(
        &mut self,
        wanted: &str,
        body: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let name = self.level().measured.claim(wanted);
        self.descend(name);
        let result = body(self);
        self.ascend();
        result
    }

    /// The present path.
    pub(crate) fn place(&self) -> String {
        self.path_to("")
    }

    /// The model so far.
    pub(crate) fn model(&self) -> &Model {
        &self.model
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
    ) -> Result<TensorValue, Mistake> {
        let (first, others) = shape.split_first().ok_or_else(no_examples)?;
        if *first != Extent::batch() || others.iter().any(|extent| extent.per_example) {
            return Err(no_examples());
        }
        bounded(&shape)?;
        let input = ModelInput {
            name: name.to_owned(),
            element,
            shape: shape.clone(),
            bound: 0,
            origin: Origin::Data,
        };
        let source = Source::Input(self.model.inputs.push(input));
        Ok(TensorValue { source, element, shape })
    }

    /// The shares of rows whose targets are in this many classes, where this number stands for none: an
    /// input of the model that data does not bring. Its name is none that a program can give.
    pub(crate) fn shares(
        &mut self,
        targets: &TensorValue,
        classes: u64,
    ) -> Option<TensorValue> {
        let Source::Input(targets) = targets.source else { return None };
        let ModelInput { name, shape, .. } = &self.model.inputs[targets];
        let (element, shape) = (Element::Wide, shape.iter().take(1).copied().collect());
        let own = ModelInput {
            name: format!("{name}.shares.{classes}"),
            element,
            shape,
            bound: 0,
            origin: Origin::Shares { of: name.clone(), mask: classes },
        };
        let shape = own.shape.clone();
        let inputs = &mut self.model.inputs;
        let known = inputs.iter().find(|(_, known)| **known == own).map(|(id, _)| id);
        let id = known.unwrap_or_else(|| inputs.push(own));
        Some(TensorValue { source: Source::Input(id), element, shape })
    }

    /// A parameter in its `role` at the present path.
    pub(crate) fn parameter(
        &mut self,
        role: &str,
        shape: Vec<u64>,
        initial: Initial,
    ) -> Result<TensorValue, Mistake> {
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
    ) -> Result<TensorValue, Mistake> {
        self.declared(role, shape, initial, (treatment, ParameterKind::Plain))
    }

    /// The filters of a convolution in their `role` at the present path.
    pub(crate) fn filters(
        &mut self,
        role: &str,
        shape: [u64; 4],
        initial: Initial,
    ) -> Result<TensorValue, Mistake> {
        let how = (Treatment::Decayed, ParameterKind::Filters);
        self.declared(role, shape.to_vec(), initial, how)
    }

    fn declared(
        &mut self,
        role: &str,
        shape: Vec<u64>,
        initial: Initial,
        (treatment, kind): (Treatment, ParameterKind),
    ) -> Result<TensorValue, Mistake> {
        let extents: Vec<Extent> = shape.iter().copied().map(Extent::fixed).collect();
        bounded(&extents)?;
        if self.model.parameters.len() >= limit::PARAMETERS {
            let message = format!("a model has at most {} parameters", limit::PARAMETERS);
            return Err(Mistake::new(Code::Limit, message));
        }
        let name = self.path_to(role);
        if name.starts_with("__") {
            let message = format!("a parameter is called `{name}`");
            let hint = "files of arrays keep names that begin with `__` to themselves";
            return Err(Mistake::new(Code::Value, message).hint(hint));
        }
        self.one_momentum(&name, treatment)?;
        let (belonging, split) = (Belonging::Model, Division::Whole);
        let parameter =
            ModelParameter { name, belonging, shape, kind, split, initial, treatment };
        let parameter = self.model.parameters.push(parameter);
        let source = Source::Parameter(parameter);
        Ok(TensorValue { source, element: Element::Real, shape: extents })
    }

    /// The running averages of a model and its heads have one momentum: an update knows no more.
    fn one_momentum(&mut self, own: &str, treatment: Treatment) -> Result<(), Mistake> {
        let Some(momentum) = treatment.momentum() else { return Ok(()) };
        let (name, first) =
            self.average.get_or_insert_with(|| (own.to_owned(), momentum));
        if momentum == *first {
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
        operands: &[&TensorValue],
        shape: Vec<Extent>,
    ) -> Result<TensorValue, Mistake> {
        bounded(&shape)?;
        if self.model.nodes.len() >= limit::NODES {
            let message = format!("a model has at most {} operations", limit::NODES);
            return Err(Mistake::new(Code::Limit, message));
        }
        let name = self.path_to(role);
        let operands = operands.iter().map(|tensor| tensor.source).collect();
        let node = Node { name, operation, operands, shape: shape.clone() };
        let source = Source::Node(self.model.nodes.push(node));
        Ok(TensorValue { source, element: Element::Real, shape })
    }

    /// An operator reads integers below `bound` from a tensor.
    pub(crate) fn demand_below(&mut self, tensor: &TensorValue, bound: u64) {
        if let Source::Input(id) = tensor.source {
            let known = &mut self.model.inputs[id].bound;
            *known = if *known == 0 { bound } else { bound.min(*known) };
        }
    }

    /// Takes part in the running averages of another: all have the momentum of the first.
    pub(crate) fn share_momentum(&mut self, other: &Self) {
        self.average.clone_from(&other.average);
    }

    /// Whether something of this place and shape is here.
    pub(crate) fn has(&self, tensor: &TensorValue) -> bool {
        let Model { nodes, parameters, inputs, .. } = &self.model;
        let is_there = match tensor.source {
            Source::Node(id) => id.index() < nodes.len(),
            Source::Parameter(id) => id.index() < parameters.len(),
            Source::Input(id) => id.index() < inputs.len(),
        };
        is_there && self.model.shape(tensor.source) == tensor.shape
    }

    /// The name of an input.
    pub(crate) fn input_name(&self, input: ModelInputId) -> &str {
        &self.model.inputs[input].name
    }

    /// What stands behind values where units end; with the model's own nodes.
    pub(crate) fn state_heads(&mut self, heads: Vec<Head>) {
        self.model.heads = heads;
    }

    /// The model of a head, whose first input is the value `name`, without what its loss does not
    /// need.
    pub(crate) fn finish_head(
        self,
        name: &str,
        loss: &TensorValue,
    ) -> Result<Model, Mistake> {
        finish::head(self.model, name, loss)
    }

    /// Whether a metric measures what the loss trains.
    ///
    /// # Errors
    /// When it needs a parameter or an input that the loss does not: nothing would train the one,
    /// and another input would change what is drawn for the others.
    pub(crate) fn admits(
        &self,
        loss: &TensorValue,
        metric: &Measure,
    ) -> Result<(), Mistake> {
        finish::admits(&self.model, loss, metric)
    }

    /// The model that minimises the loss and measures the metrics, without what neither needs,
    /// and what was left out.
    pub(crate) fn finish(
        self,
        loss: &TensorValue,
        metrics: &[Measure],
    ) -> Result<(Model, Vec<Source>), Mistake> {
        finish::finish(self.model, loss, metrics)
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
