//! Heads that a program writes: what they must fit, and those that no unit ends in.

use super::{Boundaries, Head};
use crate::{Choice, Code, Mistake, Model, NodeId, Operation, Program, Source};
use roundelay_schedule::Rule;
use std::collections::BTreeSet;

/// Ends that are named in one sentence.
const NAMED: usize = 4;

/// Whether a head can stand where it says: some value goes on alone, it reads no input but those
/// of the loss, and of these the same values.
pub(crate) fn fits(model: &Model, head: &Head) -> Result<(), Mistake> {
    let boundaries = Boundaries::new(model);
    if !head.after.iter().any(|node| boundaries.is_position(*node)) {
        let message = "no unit can end here: more than one value goes on, or none";
        let hint = "write a head behind what alone is read by all that follows";
        return Err(Mistake::new(Code::Value, message).hint(hint));
    }
    same_classes(model, &head.body)?;
    for input in head.body.data_inputs().skip(1) {
        let mut all = model.inputs.values();
        let Some(known) = all.find(|known| known.name == input.name) else {
            return Err(foreign_input(&input.name));
        };
        if (1..known.bound).contains(&input.bound) {
            return Err(fewer_values(&input.name, [input.bound, known.bound]));
        }
    }
    Ok(())
}

/// Targets of the head's losses are in as many classes as they are for those of the model.
fn same_classes(model: &Model, head: &Model) -> Result<(), Mistake> {
    let known = classes(model);
    for (name, own) in classes(head) {
        let wanted = known.iter().find(|(known, _)| *known == name);
        if let Some((_, wanted)) = wanted.filter(|(_, wanted)| *wanted != own) {
            let message = format!(
                "the head has {own} classes for `{name}`, the loss of the model has {wanted}"
            );
            let hint = format!("give the head {wanted} classes");
            return Err(Mistake::new(Code::Value, message).hint(hint));
        }
    }
    Ok(())
}

/// The inputs that are targets of losses over classes, with the number of these.
fn classes(model: &Model) -> Vec<(&str, u64)> {
    let each = model.nodes.values().filter_map(|node| {
        let (targets, count) = match (node.operation, &node.operands[..]) {
            (Operation::CrossEntropy { .. }, [logits, Source::Input(targets), ..]) => {
                (targets, model.shape(*logits).last()?.size)
            }
            (
                Operation::LinearCrossEntropy { .. },
                [_, weight, Source::Input(targets), ..],
            ) => (targets, model.shape(*weight).first()?.size),
            _ => return None,
        };
        Some((model.inputs[*targets].name.as_str(), count))
    });
    each.collect()
}

fn fewer_values(name: &str, [own, known]: [u64; 2]) -> Mistake {
    let message = format!("the head takes `{name}` below {own}, the model below {known}");
    let hint = "let it take what the model takes: as many classes or rows of a table, and \
                masked targets where the model masks them";
    Mistake::new(Code::Value, message).hint(hint)
}

pub(super) fn foreign_input(name: &str) -> Mistake {
    let message = format!("the head needs the input `{name}`, the loss does not");
    let hint = "read only what the loss of the model is computed from";
    Mistake::new(Code::Value, message).hint(hint)
}

/// The heads of a program, by number, that stand where no unit ends under any local rule that is
/// tried, each with where units do end; none where no local rule is tried.
pub(crate) fn idle(program: &Program) -> Vec<(usize, Mistake)> {
    let (model, search) = (&program.model, &program.search);
    let named = match &search.rule {
        Choice::Open => search.open_local_rules(),
        Choice::OneOf(rules) => rules.clone(),
    };
    let boundaries = Boundaries::new(model);
    let ends = named.into_iter().filter_map(|rule| match rule {
        Rule::Local { units, .. } if units > 1 => boundaries.of_units(units).ok(),
        Rule::Local { .. }
        | Rule::Sync
        | Rule::CyclicV1
        | Rule::CyclicV2
        | Rule::CyclicSlack(_) => None,
    });
    let ends: BTreeSet<NodeId> = ends.flat_map(|found| found.ends).collect();
    if ends.is_empty() {
        return Vec::new();
    }
    let stands = |head: &Head| head.after.iter().any(|node| ends.contains(node));
    let heads = model.heads.iter().enumerate().filter(|(_, head)| !stands(head));
    heads.map(|(number, _)| (number, no_end(model, &ends))).collect()
}

fn no_end(model: &Model, ends: &BTreeSet<NodeId>) -> Mistake {
    let named =
        ends.iter().take(NAMED).map(|end| format!("`{}`", model.nodes[*end].name));
    let mut all = named.collect::<Vec<_>>().join(", ");
    if ends.len() > NAMED {
        all += &format!(" and {} more values", ends.len() - NAMED);
    }
    let message = "no unit ends here, so the head is left out";
    let hint = format!(
        "units end behind {all}; write the head there, or another number of units"
    );
    Mistake::new(Code::Unused, message).hint(hint)
}
