//! From a graph under construction to a model: what the loss needs, then what only metrics need.

use crate::{
    Code, Head, Measure, Mistake, Model, ModelMetric, Node, NodeId, Operation, Source,
    TensorValue, WrongLoss,
};
use roundelay_schedule::Origin;
use std::collections::{BTreeMap, BTreeSet};

/// Whether a metric needs no other parameters and inputs than the loss.
pub(crate) fn admits(
    model: &Model,
    loss: &TensorValue,
    metric: &Measure,
) -> Result<(), Mistake> {
    let trained = needed(model, [loss.source]);
    for source in needed(model, [metric.tensor.source]).difference(&trained) {
        match source {
            Source::Node(_) => continue,
            // It is computed from inputs of the loss, and changes nothing for them.
            Source::Input(id) if !model.inputs[*id].origin.is_data() => continue,
            Source::Input(_) | Source::Parameter(_) => {}
        }
        let what = called(model, *source);
        let message = format!("the metric needs {what}, the loss does not");
        let hint = "measure what the loss is computed from";
        return Err(Mistake::new(Code::Value, message).hint(hint));
    }
    Ok(())
}

/// The node of a loss, which is a single number.
fn number(loss: &TensorValue) -> Result<NodeId, Mistake> {
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
    Ok(last)
}

/// The model of a head whose first input is the value `name`, without what its loss does not need.
pub(crate) fn head(
    model: Model,
    name: &str,
    loss: &TensorValue,
) -> Result<Model, Mistake> {
    let needed = needed(&model, [Source::Node(number(loss)?)]);
    let value = model.inputs.ids().next().map(Source::Input);
    if !value.is_some_and(|value| needed.contains(&value)) {
        let message = format!("the loss of the head does not depend on `{name}`");
        let hint = "a unit is trained by what its head makes of its value";
        return Err(Mistake::new(Code::Value, message).hint(hint));
    }
    let (model, _) = Trimmed::new(model, needed).finish(&[]);
    // The value goes on from what is trained, and is the first input.
    let value = model.inputs.ids().next().map(Source::Input);
    let is_trained =
        |source| matches!(source, Source::Parameter(_)) || Some(source) == value;
    minimised(&model, &model.behind(is_trained))?;
    Ok(model)
}

/// The model that minimises `loss` and measures `metrics`, and what neither needs.
pub(crate) fn finish(
    model: Model,
    loss: &TensorValue,
    metrics: &[Measure],
) -> Result<(Model, Vec<Source>), Mistake> {
    let last = number(loss)?;
    let trained = needed(&model, [Source::Node(last)]);
    let reads = |kind: fn(&Source) -> bool| trained.iter().any(kind);
    if !reads(|source| matches!(source, Source::Parameter(_))) {
        let message = "the loss depends on no parameter, so there is nothing to train";
        return Err(Mistake::new(Code::Value, message));
    }
    if !reads(|source| matches!(source, Source::Input(_))) {
        let message = "the loss depends on no input, so there is nothing to learn from";
        return Err(Mistake::new(Code::Value, message));
    }
    let measured = needed(&model, metrics.iter().map(|metric| metric.tensor.source));
    let mut small = Trimmed::new(model, trained);
    small.nodes_behind(&measured);
    let (model, unused) = small.finish(metrics);
    minimised(&model, &model.trained())?;
    Ok((model, unused))
}

/// Whether a loss can be minimised: it is one, or a sum of losses times constants.
fn minimised(model: &Model, trained: &[bool]) -> Result<(), Mistake> {
    let Err(wrong) = model.terms(trained) else { return Ok(()) };
    let (message, hint) = match wrong {
        WrongLoss::Term(term) => (
            format!("expected a loss or a sum of losses, found {}", called(model, term)),
            "losses are what `cross_entropy`, `linear_cross_entropy` and `mse` make; add them up, \
             each times a number if need be: `loss a + 0.5 * b`",
        ),
        WrongLoss::Inside { loss, user } => {
            let [loss, user] = [loss, user].map(|id| called(model, Source::Node(id)));
            (
                format!("{user} uses the loss {loss}, which has no gradient there"),
                "a loss can be added to others and multiplied by a number, nothing else: \
                 `loss a + 0.5 * b`",
            )
        }
    };
    Err(Mistake::new(Code::Type, message).hint(hint))
}

/// What is said of the losses that count nothing.
pub(crate) fn weightless(model: &Model) -> impl Iterator<Item = Mistake> {
    model.weightless().into_iter().map(|id| {
        let loss = called(model, Source::Node(id));
        let message =
            format!("the factor of the loss {loss} is 0, so nothing is learned of it");
        Mistake::new(Code::Unused, message)
    })
}

/// What something is called in a message.
fn called(model: &Model, source: Source) -> String {
    match source {
        Source::Node(id) => format!("`{}`", model.nodes[id].name),
        Source::Parameter(id) => format!("the parameter `{}`", model.parameters[id].name),
        Source::Input(id) => format!("the input `{}`", model.inputs[id].name),
    }
}

/// Everything from which these are computed, and these; operands stand above their users.
fn needed(model: &Model, ends: impl IntoIterator<Item = Source>) -> BTreeSet<Source> {
    let mut needed: BTreeSet<Source> = ends.into_iter().collect();
    for (id, node) in model.nodes.iter().rev() {
        if needed.contains(&Source::Node(id)) {
            needed.extend(node.operands.iter().copied());
        }
    }
    needed
}

/// A model without what is not needed, and where the rest of the large one went.
struct Trimmed {
    large: Model,
    small: Model,
    places: BTreeMap<Source, Source>,
}

impl Trimmed {
    /// What the loss needs, in its order; the loss is the last node. What data does not bring comes
    /// behind what it does.
    fn new(large: Model, trained: BTreeSet<Source>) -> Self {
        let small = Model { name: large.name.clone(), ..Model::default() };
        let mut this = Self { large, small, places: BTreeMap::new() };
        for source in &trained {
            if let Source::Parameter(id) = source {
                let row = this.large.parameters[*id].clone();
                let new = this.small.parameters.push(row);
                this.place(*source, Source::Parameter(new));
            }
        }
        this.inputs(&trained, Origin::is_data);
        this.inputs(&trained, |origin| !origin.is_data());
        for id in nodes(&trained) {
            let node = this.moved(id);
            let new = this.small.nodes.push(node);
            this.place(Source::Node(id), Source::Node(new));
            this.small.loss = Some(new);
        }
        this
    }

    /// The inputs among these that are not there yet and come from where it is asked.
    fn inputs(&mut self, sources: &BTreeSet<Source>, wanted: impl Fn(&Origin) -> bool) {
        for source in sources {
            let Source::Input(id) = source else { continue };
            let row = &self.large.inputs[*id];
            if wanted(&row.origin) && !self.places.contains_key(source) {
                let new = self.small.inputs.push(row.clone());
                self.place(*source, Source::Input(new));
            }
        }
    }

    /// What only metrics need goes behind the loss; what is computed already is not again.
    fn nodes_behind(&mut self, measured: &BTreeSet<Source>) {
        self.inputs(measured, |origin| !origin.is_data());
        let mut users: BTreeMap<Vec<Source>, Vec<NodeId>> = BTreeMap::new();
        for (id, node) in self.small.nodes.iter() {
            users.entry(node.operands.clone()).or_default().push(id);
        }
        for id in nodes(measured) {
            if self.places.contains_key(&Source::Node(id)) {
                continue;
            }
            let node = self.moved(id);
            let users = users.entry(node.operands.clone()).or_default();
            let known =
                users.iter().find(|known| same(&self.small.nodes[**known], &node));
            let new = known.copied().unwrap_or_else(|| {
                let new = self.small.nodes.push(node);
                users.push(new);
                new
            });
            self.place(Source::Node(id), Source::Node(new));
        }
    }

    fn place(&mut self, old: Source, new: Source) {
        self.places.insert(old, new);
    }

    /// A node with its operands where they are now.
    fn moved(&self, id: NodeId) -> Node {
        let mut node = self.large.nodes[id].clone();
        node.operands.iter_mut().for_each(|operand| *operand = self.places[operand]);
        node
    }

    fn finish(mut self, metrics: &[Measure]) -> (Model, Vec<Source>) {
        for Measure { name, tensor, reading } in metrics {
            if let Source::Node(node) = self.places[&tensor.source] {
                let (name, reading) = (name.clone(), *reading);
                self.small.metrics.push(ModelMetric { name, node, reading });
            }
        }
        for Head { after, body } in &self.large.heads {
            let place = |node: &NodeId| match self.places.get(&Source::Node(*node)) {
                Some(Source::Node(node)) => Some(*node),
                _ => None,
            };
            let after = after.iter().filter_map(place).collect();
            self.small.heads.push(Head { after, body: body.clone() });
        }
        let inputs = self.large.inputs.iter().filter(|(_, own)| own.origin.is_data());
        let inputs = inputs.map(|(id, _)| Source::Input(id));
        let parameters = self.large.parameters.ids().map(Source::Parameter);
        let all =
            inputs.chain(parameters).chain(self.large.nodes.ids().map(Source::Node));
        let unused = all.filter(|source| !self.places.contains_key(source)).collect();
        (self.small, unused)
    }
}

/// The nodes among these, in topological order.
fn nodes(sources: &BTreeSet<Source>) -> impl Iterator<Item = NodeId> {
    sources.iter().filter_map(|source| match source {
        Source::Node(id) => Some(*id),
        Source::Parameter(_) | Source::Input(_) => None,
    })
}

/// Whether two nodes make the same; every dropout draws a mask of its own.
fn same(one: &Node, other: &Node) -> bool {
    let draws = matches!(one.operation, Operation::Dropout { .. });
    !draws && one.operation == other.operation && one.operands == other.operands
}
