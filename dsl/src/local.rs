//! Local rules: a model whose units train on losses of their own. Between units stands
//! [`Operation::Boundary`], and each unit but the last ends in a head whose loss is minimised
//! besides that of the model (arXiv 2012.03837: greedy for units of one layer, chunked above).

mod boundary;
mod default;
mod written;

use crate::{
    Choice, Code, Mistake, Model, ModelMetric, ModelParameter, Node, NodeId, Operation,
    Program, Search, Source,
};
use boundary::Boundaries;
use roundelay_schedule::{Belonging, Hop, Id, Reading, Rule, Treatment};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};
pub(crate) use written::{fits, idle};

/// An auxiliary network behind a value: the end of a unit under a local rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// The values behind which it may stand.
    pub after: Vec<NodeId>,
    /// A model whose first input is the value; the others are inputs of the whole, by name.
    pub body: Model,
}

impl Model {
    /// The first node of every unit but the first: where gradients stop, or hop back.
    pub fn boundaries(&self) -> Vec<u32> {
        let is_boundary = |(_, node): &(NodeId, &Node)| {
            matches!(node.operation, Operation::Boundary(_))
        };
        let all = self.nodes.iter().filter(is_boundary);
        all.map(|(id, _)| id.number()).collect()
    }

    /// What comes back between its units.
    pub fn hop(&self) -> Hop {
        let hops = self.nodes.values().map(|node| match node.operation {
            Operation::Boundary(hop) => hop,
            _ => Hop::None,
        });
        hops.max().unwrap_or(Hop::None)
    }
}

impl Program {
    /// The program with the model that a rule trains: in units under a local rule, unless it is in
    /// units already; itself under any other.
    ///
    /// # Errors
    /// As [`localised`].
    pub fn under(&self, rule: Rule) -> Result<Cow<'_, Self>, Mistake> {
        match rule {
            Rule::Local { units, hop } if self.model.boundaries().is_empty() => {
                let model = localised(&self.model, units, hop)?;
                Ok(Cow::Owned(Self { model, ..self.clone() }))
            }
            Rule::Local { .. }
            | Rule::Sync
            | Rule::CyclicV1
            | Rule::CyclicV2
            | Rule::CyclicSlack(_) => Ok(Cow::Borrowed(self)),
        }
    }

    /// The program under each rule that it names, or why there is no model for one; itself alone
    /// where it names none.
    pub(crate) fn under_each(&self) -> Vec<Result<Cow<'_, Self>, Mistake>> {
        match &self.search.rule {
            Choice::Open => vec![Ok(Cow::Borrowed(self))],
            Choice::OneOf(rules) => rules.iter().map(|rule| self.under(*rule)).collect(),
        }
    }
}

/// Units that are tried where a program leaves its rule open and allows local gradients.
const OPEN_UNITS: [u32; 4] = [2, 4, 8, 16];

/// What hops back between them.
const HOPS: [Hop; 3] = [Hop::None, Hop::Added, Hop::Alone];

impl Search {
    /// The local rules to try besides others where the program names no rule: those that its
    /// exactness allows.
    pub fn open_local_rules(&self) -> Vec<Rule> {
        if self.rule != Choice::Open {
            return Vec::new();
        }
        let units = OPEN_UNITS.into_iter();
        let each = units.flat_map(|units| HOPS.map(|hop| Rule::Local { units, hop }));
        each.filter(|rule| self.exactness >= Some(rule.exactness())).collect()
    }
}

/// The model in `units` units of as many layers, up to one: unit j of K ends with layer
/// ⌊(j + 1) · L / K⌋ of L. Layers are passes of outermost repeats; without any, the runs between
/// products. Heads are those that the program writes, else a copy of what stands behind the last
/// layer, else for image features a mean and a linear map to the classes.
///
/// The losses of heads are metrics `loss_unit0`, …; `loss` stays what it is. One unit is the model
/// itself. Gradients hop back between units as `hop` says.
///
/// # Errors
/// When there are fewer layers, a parameter is used on both sides of a boundary, or no head fits.
pub fn localised(model: &Model, units: u32, hop: Hop) -> Result<Model, Mistake> {
    let boundaries = Boundaries::new(model).of_units(units)?;
    let last = boundaries.last_part;
    let mut localised = Localised::new(model, hop);
    for (unit, end) in boundaries.ends.iter().enumerate() {
        let written = model.heads.iter().find(|head| head.after.contains(end));
        let body = match written {
            Some(head) => head.body.clone(),
            None => default::head(model, *end, last)?,
        };
        localised.unit(unit, *end, &body)?;
    }
    Ok(localised.finish())
}

/// A model in units, node by node.
struct Localised<'a> {
    whole: &'a Model,
    hop: Hop,
    model: Model,
    /// What names of the whole begin with.
    firsts: BTreeSet<&'a str>,
    /// Where the nodes of the whole are now.
    places: Vec<NodeId>,
    /// The value that is read behind a boundary instead of another.
    stopped: BTreeMap<NodeId, NodeId>,
}

impl<'a> Localised<'a> {
    fn new(whole: &'a Model, hop: Hop) -> Self {
        let model = Model {
            name: whole.name.clone(),
            inputs: whole.inputs.clone(),
            parameters: whole.parameters.clone(),
            ..Model::default()
        };
        let nodes = whole.nodes.values().map(|node| node.name.as_str());
        let parameters = whole.parameters.values().map(|row| row.name.as_str());
        let first = |name: &'a str| name.split('.').next().unwrap_or(name);
        let firsts = nodes.chain(parameters).map(first).collect();
        let (places, stopped) = (Vec::new(), BTreeMap::new());
        Self { whole, hop, model, firsts, places, stopped }
    }

    /// A unit up to the node `end`, its head, and the boundary behind it.
    fn unit(&mut self, number: usize, end: NodeId, head: &Model) -> Result<(), Mistake> {
        if self.hop != Hop::None && !self.trains(end) {
            let message =
                format!("unit {number} has nothing that what hops back to it trains");
            let hint = "let units be larger, or take `local` without overlap";
            return Err(Mistake::new(Code::Value, message).hint(hint));
        }
        self.nodes(end.index() + 1);
        let name = self.fresh(&format!("unit{number}"));
        let value = self.places[end.index()];
        let loss = self.graft(&format!("{name}.head"), value, head)?;
        self.model.auxiliary.push(loss);
        let taken: BTreeSet<&str> =
            self.whole.metrics.iter().map(|metric| metric.name.as_str()).collect();
        let metric = unlike(&format!("loss_{name}"), |name| taken.contains(name));
        self.model.metrics.push(ModelMetric {
            name: metric,
            node: loss,
            reading: Reading::Mean,
        });
        let stop = Node {
            name: format!("{name}.stop"),
            operation: Operation::Boundary(self.hop),
            operands: vec![Source::Node(value)],
            shape: self.whole.nodes[end].shape.clone(),
        };
        let stop = self.model.nodes.push(stop);
        self.stopped.insert(end, stop);
        Ok(())
    }

    /// Whether some parameter up to a node has a gradient.
    fn trains(&self, end: NodeId) -> bool {
        let Model { nodes, parameters, .. } = self.whole;
        let trained = |source: &Source| match source {
            Source::Parameter(id) => {
                !matches!(parameters[*id].treatment, Treatment::Averaged { .. })
            }
            Source::Node(_) | Source::Input(_) => false,
        };
        let mut above = nodes.iter().filter(|(node, _)| *node <= end);
        above.any(|(_, node)| node.operands.iter().any(trained))
    }

    /// A name that begins no other.
    fn fresh(&self, wanted: &str) -> String {
        unlike(wanted, |name| self.firsts.contains(name))
    }

    /// The nodes of the whole up to number `end`.
    fn nodes(&mut self, end: usize) {
        for index in self.places.len()..end {
            let mut node = self.whole.nodes[NodeId::new(index)].clone();
            for operand in &mut node.operands {
                if let Source::Node(above) = operand {
                    let stopped = self.stopped.get(above).copied();
                    *operand =
                        Source::Node(stopped.unwrap_or(self.places[above.index()]));
                }
            }
            self.places.push(self.model.nodes.push(node));
        }
    }

    /// Adds a head behind a value; its loss.
    fn graft(
        &mut self,
        path: &str,
        value: NodeId,
        head: &Model,
    ) -> Result<NodeId, Mistake> {
        let mut places: BTreeMap<Source, Source> = BTreeMap::new();
        let mut inputs = head.inputs.iter();
        places.extend(
            inputs.next().map(|(id, _)| (Source::Input(id), Source::Node(value))),
        );
        for (id, input) in inputs {
            let own =
                self.model.inputs.iter_mut().find(|(_, own)| own.name == input.name);
            let Some((own, known)) = own else {
                if input.origin.is_data() {
                    return Err(written::foreign_input(&input.name));
                }
                let own = self.model.inputs.push(input.clone());
                places.insert(Source::Input(id), Source::Input(own));
                continue;
            };
            known.bound = match [known.bound, input.bound] {
                [0, bound] | [bound, 0] => bound,
                [known, wanted] => known.min(wanted),
            };
            places.insert(Source::Input(id), Source::Input(own));
        }
        for (id, parameter) in head.parameters.iter() {
            let name = joined(path, &parameter.name);
            let belonging = Belonging::Head;
            let mut own = ModelParameter { name, belonging, ..parameter.clone() };
            own.spare(&self.whole.spared);
            let own = self.model.parameters.push(own);
            places.insert(Source::Parameter(id), Source::Parameter(own));
        }
        for (id, node) in head.nodes.iter() {
            let operands = node.operands.iter().map(|operand| places[operand]).collect();
            let name = joined(path, &node.name);
            let own = self.model.nodes.push(Node { name, operands, ..node.clone() });
            places.insert(Source::Node(id), Source::Node(own));
        }
        let loss = head.loss.and_then(|loss| places.get(&Source::Node(loss)));
        match loss {
            Some(Source::Node(loss)) => Ok(*loss),
            _ => Err(Mistake::new(Code::Missing, "the head has no loss")),
        }
    }

    /// With the last unit, the loss and the metrics of the whole before those of the heads.
    fn finish(mut self) -> Model {
        self.nodes(self.whole.nodes.len());
        let now = |node: NodeId| self.places[node.index()];
        let metric = |metric: &ModelMetric| ModelMetric {
            node: now(metric.node),
            ..metric.clone()
        };
        let own = self.whole.metrics.iter().map(metric);
        let metrics = own.chain(self.model.metrics.iter().cloned()).collect();
        let loss = self.whole.loss.map(now);
        let earlier = self.whole.auxiliary.iter().copied().map(now);
        let auxiliary = earlier.chain(self.model.auxiliary.iter().copied()).collect();
        Model { loss, metrics, auxiliary, ..self.model }
    }
}

fn joined(path: &str, name: &str) -> String {
    if name.is_empty() { path.to_owned() } else { format!("{path}.{name}") }
}

/// The wanted name, or one with a number behind.
fn unlike(wanted: &str, taken: impl Fn(&str) -> bool) -> String {
    let numbered = (1..).map(|number| format!("{wanted}_{number}"));
    let mut names = [wanted.to_owned()].into_iter().chain(numbered);
    names.find(|name| !taken(name)).expect("some number is free")
}
