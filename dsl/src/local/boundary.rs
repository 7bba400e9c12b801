//! Where units may end: where one value alone goes on, behind whole layers.

use crate::{Code, Mistake, Model, NodeId, Operation, ParameterId, Source};
use roundelay_schedule::Id;
use std::collections::{BTreeMap, BTreeSet};

/// Where the values of a model are read last.
pub(super) struct Boundaries<'a> {
    model: &'a Model,
    /// Per node up to the loss, how many values cross from it to what stands behind it.
    crossing: Vec<usize>,
    /// Per node, whether another up to the loss reads it.
    read: Vec<bool>,
}

/// The ends of all units but the last.
pub(super) struct Ends {
    /// The nodes whose values go on.
    pub(super) ends: Vec<NodeId>,
    /// The value behind which the last part of the model stands, if there is one.
    pub(super) last_part: Option<NodeId>,
}

impl<'a> Boundaries<'a> {
    pub(super) fn new(model: &'a Model) -> Self {
        let end = model.cuttable();
        let mut last = vec![None; end];
        for (id, node) in model.nodes.iter().take(end) {
            for operand in &node.operands {
                if let Source::Node(above) = operand {
                    last[above.index()] = Some(id.index());
                }
            }
        }
        let mut ending = vec![0; end];
        last.iter().flatten().for_each(|reader| ending[*reader] += 1);
        let mut live = 0;
        let crossing = (0..end).map(|index| {
            live = live + usize::from(last[index].is_some()) - ending[index];
            live
        });
        let crossing = crossing.collect();
        let read = last.iter().map(Option::is_some).collect();
        Self { model, crossing, read }
    }

    /// Whether no value but this node's crosses from it to what stands behind it.
    pub(super) fn is_position(&self, node: NodeId) -> bool {
        let alone = self.crossing.get(node.index()) == Some(&1);
        alone && self.read[node.index()] && !self.model.nodes[node].shape.is_empty()
    }

    /// Where these units end.
    pub(super) fn of_units(&self, units: u32) -> Result<Ends, Mistake> {
        let passes = self.passes();
        let repeats = !passes.is_empty();
        let layers = if repeats { passes } else { self.runs() };
        let last_part = layers.last().copied();
        // The last pass of a repeat is a layer of its own; the last run ends with the loss.
        let count = if repeats { layers.len() } else { layers.len() + 1 };
        let units = units as usize;
        if units == 0 || units > count {
            return Err(too_many(units, count));
        }
        let end = |unit: usize| layers[(unit + 1) * count / units - 1];
        let ends: Vec<NodeId> = (0..units - 1).map(end).collect();
        match self.tied(&ends) {
            None => Ok(Ends { ends, last_part }),
            Some(parameter) => Err(tied(self.model, parameter)),
        }
    }

    /// The last node of every pass of an outermost repeat from which one value goes on.
    fn passes(&self) -> Vec<NodeId> {
        let end = self.crossing.len();
        let nodes = self.model.nodes.iter().take(end);
        let mut last: BTreeMap<&str, NodeId> = BTreeMap::new();
        for (id, node) in nodes {
            if let Some(pass) = pass(&node.name) {
                last.insert(pass, id);
            }
        }
        let ends: BTreeSet<NodeId> = last.into_values().collect();
        ends.into_iter().filter(|end| self.is_position(*end)).collect()
    }

    /// Without repeats: where one value goes on from one product with a parameter to the next,
    /// as late as it can be.
    fn runs(&self) -> Vec<NodeId> {
        let (mut ends, mut begun, mut latest) = (Vec::new(), false, None);
        for (id, node) in self.model.nodes.iter().take(self.crossing.len()) {
            let product = matches!(
                node.operation,
                Operation::Linear | Operation::Conv2d { .. } | Operation::Embedding
            );
            if product {
                ends.extend(latest.take().filter(|_| begun));
                begun = true;
            }
            if begun && self.is_position(id) {
                latest = Some(id);
            }
        }
        ends
    }

    /// A parameter that is used on both sides of an end.
    fn tied(&self, ends: &[NodeId]) -> Option<ParameterId> {
        let mut units: BTreeMap<ParameterId, usize> = BTreeMap::new();
        for (id, node) in self.model.nodes.iter() {
            let unit = ends.partition_point(|end| *end < id);
            for operand in &node.operands {
                if let Source::Parameter(parameter) = operand
                    && *units.entry(*parameter).or_insert(unit) != unit
                {
                    return Some(*parameter);
                }
            }
        }
        None
    }
}

/// The pass of an outermost repeat that a name belongs to: `layer.3` of `layer.3.linear`.
fn pass(name: &str) -> Option<&str> {
    let mut end = 0;
    for part in name.split('.') {
        let is_number = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if is_number && end > 0 {
            return Some(&name[..end + part.len()]);
        }
        end += part.len() + 1;
    }
    None
}

fn too_many(units: usize, layers: usize) -> Mistake {
    let many = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    };
    let message = match units {
        0 => "a local rule has at least 1 unit".to_owned(),
        _ => format!(
            "{} need as many layers; the model has {} behind which one value alone goes on",
            many(units, "unit"),
            many(layers, "layer"),
        ),
    };
    let hint = format!("write `units = {layers}`, or fewer");
    Mistake::new(Code::Value, message).hint(hint)
}

fn tied(model: &Model, parameter: ParameterId) -> Mistake {
    let name = &model.parameters[parameter].name;
    let message = format!("`{name}` is used in two units, but each trains its own");
    let hint = "give each use a parameter of its own, or write fewer units";
    Mistake::new(Code::Value, message).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_the_path_to_the_first_number() {
        assert_eq!(pass("layer.3.linear.weight"), Some("layer.3"));
        assert_eq!(pass("stage.1.block.2.x"), Some("stage.1"));
        assert_eq!(pass("layer.3"), Some("layer.3"));
        assert_eq!(pass("x.y"), None);
        assert_eq!(pass("3"), None);
    }
}
