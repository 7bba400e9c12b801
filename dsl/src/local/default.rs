//! Heads for programs that write none.

use crate::{
    Code, Extent, Masked, Mistake, Model, ModelBuilder, ModelInput, Node, NodeId,
    Operation, Source, value::spelled,
};
use roundelay_schedule::{Element, Id, Origin};
use std::collections::BTreeMap;

/// The head behind the value of `end`: a copy of the model's last part with parameters of its own
/// where the value has the shape of what goes into that, else what classifies image features.
pub(super) fn head(
    model: &Model,
    end: NodeId,
    last_part: Option<NodeId>,
) -> Result<Model, Mistake> {
    let shape = &model.nodes[end].shape;
    match last_part {
        Some(from) if model.nodes[from].shape == *shape => Ok(copied(model, from)),
        _ => classifier(model, shape)?.ok_or_else(|| no_head(model, end, last_part)),
    }
}

/// What stands behind the value of `from`, up to the loss.
fn copied(model: &Model, from: NodeId) -> Model {
    let mut body = Model { name: model.name.clone(), ..Model::default() };
    let value = body.inputs.push(value(&model.nodes[from].shape));
    let mut places: BTreeMap<Source, Source> = BTreeMap::new();
    places.insert(Source::Node(from), Source::Input(value));
    for index in from.index() + 1..model.cuttable() {
        let id = NodeId::new(index);
        let node = &model.nodes[id];
        let mut place = |operand: &Source| match (places.get(operand), operand) {
            (Some(place), _) => *place,
            (None, Source::Input(id)) => {
                let own = Source::Input(body.inputs.push(model.inputs[*id].clone()));
                places.insert(*operand, own);
                own
            }
            (None, Source::Parameter(id)) => {
                let own = body.parameters.push(model.parameters[*id].clone());
                let own = Source::Parameter(own);
                places.insert(*operand, own);
                own
            }
            (None, Source::Node(_)) => unreachable!("one value alone goes on"),
        };
        let operands = node.operands.iter().map(&mut place).collect();
        let own = body.nodes.push(Node { operands, ..node.clone() });
        places.insert(Source::Node(id), Source::Node(own));
        body.loss = Some(own);
    }
    body
}

fn value(shape: &[Extent]) -> ModelInput {
    ModelInput {
        name: "value".to_owned(),
        element: Element::Real,
        shape: shape.to_vec(),
        bound: 0,
        origin: Origin::Data,
    }
}

/// (b, h, w, c) → mean over h and w → linear map to the classes → cross entropy, where that is the
/// loss of the model.
fn classifier(model: &Model, shape: &[Extent]) -> Result<Option<Model>, Mistake> {
    let loss = model.loss.map(|loss| &model.nodes[loss]);
    let plain = Operation::CrossEntropy { masked: Masked::No };
    let loss = loss.filter(|node| node.operation == plain);
    let Some(Node { operands, .. }) = loss else {
        return Ok(None);
    };
    let (&[Source::Node(logits), Source::Input(targets)], 4) =
        (operands.as_slice(), shape.len())
    else {
        return Ok(None);
    };
    let (logits, targets) = (&model.nodes[logits].shape, &model.inputs[targets]);
    let [_, classes] = logits.as_slice() else { return Ok(None) };
    let classes = i64::try_from(classes.size).unwrap_or(i64::MAX);
    let mut body = ModelBuilder::new(&model.name);
    let features = body.input("value", Element::Real, shape)?;
    let targets = body.input(&targets.name, targets.element, &targets.shape)?;
    let pooled = body.call("global_pool", vec![features.into()])?;
    let logits = body.call("linear", vec![pooled.into(), classes.into()])?;
    let loss = body.call("cross_entropy", vec![logits.into(), targets.into()])?;
    body.loss(&loss).map(Some)
}

fn no_head(model: &Model, end: NodeId, last_part: Option<NodeId>) -> Mistake {
    let node = &model.nodes[end];
    let expected = match last_part {
        Some(from) => {
            let shape = spelled(&model.nodes[from].shape);
            format!("what goes into the model's last part has {shape}")
        }
        None => "the model has no last part".to_owned(),
    };
    let message = format!(
        "no head is known for `{}` of shape {}: {expected}",
        node.name,
        spelled(&node.shape)
    );
    let hint = "write one: `head after NAME { … loss … }`";
    Mistake::new(Code::Missing, message).hint(hint)
}
