//! The square of the norm of a stage's gradient, where that is a part of what is bounded: other stages
//! have one norm with it, or a device has a shard of it, or what it holds of split tensors. What parts
//! of tensors find meets in the routine, and what the stages behind have found is added there; what
//! shards find is added up behind it.

use super::{Stages, assemble::name, update::Portion};
use roundelay_schedule::{
    Access, Argument, Attribute, Attributes, Bytes, Call, Element, Float, Name, Nanos,
    Operand, Pass, Role, Routine, Stage, Tensor, uncounted,
};

/// The arguments of the routine, by number.
const GRADIENT: u32 = 0;
const SQUARES: u32 = 1;
const OWN: u32 = 2;

/// Finds what a device has of the square of the norm of the mean of `micro_batches` gradients. It writes
/// that, or updates what the stages behind have found.
pub fn norm(
    stages: &Stages,
    stage: Stage,
    micro_batches: u32,
    dtype: Float,
    (portion, access): (Portion, Access),
) -> Routine {
    let (count, grid) = (portion.elements(stages, stage), portion.tensor);
    let (sum, wide) = (dtype.gradient().size(dtype), Bytes(dtype.wide_size()));
    let argument = |role, access, size| Argument { role, access, size };
    let mut arguments = vec![
        argument(Role::Gradient, Access::Read, Bytes(count * sum)),
        argument(Role::Squares, access, wide),
    ];
    let gradient = operand(GRADIENT, dtype.gradient(), count);
    let number = |argument| operand(argument, dtype.spelled(Element::Wide), 1);
    let squares = |to, access| {
        let own = attributes(stages, stage, micro_batches, grid);
        let attributes = own.into_iter().chain(adding(access));
        Call {
            kernel: "squares".into(),
            attributes: attributes.collect::<Attributes>().into(),
            operands: vec![gradient.clone(), number(to)],
        }
    };
    let calls = match grid.parts() {
        1 => vec![squares(SQUARES, access)],
        parts => {
            arguments.push(argument(Role::Workspace, Access::Write, wide));
            let parts = ("parts".into(), Attribute::Integer(parts.into()));
            let meet = Call {
                kernel: "all_reduce".into(),
                attributes: [parts]
                    .into_iter()
                    .chain(adding(access))
                    .collect::<Attributes>()
                    .into(),
                operands: vec![number(OWN), number(SQUARES)],
            };
            vec![squares(OWN, Access::Write), meet]
        }
    };
    Routine {
        name: name(Pass::Norm, stage),
        pass: Pass::Norm,
        stage,
        arguments,
        calls: calls.into(),
        predicted: Nanos(0),
    }
}

fn operand(argument: u32, element: Element, count: u64) -> Operand {
    Operand { argument, offset: Bytes(0), element, shape: [count][..].into() }
}

fn attributes(
    stages: &Stages,
    stage: Stage,
    micro_batches: u32,
    grid: Tensor,
) -> Attributes {
    let micro_batches = Attribute::Integer(micro_batches.into());
    let own = stages.parameters.iter().filter(|parameter| parameter.stage == stage);
    let copied = uncounted(own, grid);
    let all = [("micro_batches".into(), micro_batches)].into_iter();
    let copied =
        (!copied.is_empty()).then(|| ("copied".into(), Attribute::Integers(copied)));
    all.chain(copied).collect()
}

/// Adds to what there was, where a call or a pass does.
fn adding(access: Access) -> Option<(Name, Attribute)> {
    (access == Access::Update).then(|| ("accumulate".into(), Attribute::Flag(true)))
}
