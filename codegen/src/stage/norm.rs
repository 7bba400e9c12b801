//! The square of the norm of a stage's gradient, where a device has a part of it: a shard, or what
//! it holds of split tensors. What parts of tensors find meets in the routine; what shards find is
//! added up behind it.

use super::{Stages, assemble::name, update::Portion};
use roundelay_schedule::{
    Access, Argument, Attribute, Attributes, Bytes, Call, Constants, Element, Float,
    Nanos, Operand, Parameter, Pass, Role, Routine, Stage, Tensor, Treatment,
};

/// The arguments of the routine, by number.
const GRADIENT: u32 = 0;
const SQUARES: u32 = 1;
const OWN: u32 = 2;

/// Finds what a device has of the square of the norm of the mean of `micro_batches` gradients.
pub fn norm(
    stages: &Stages,
    stage: Stage,
    micro_batches: u32,
    dtype: Float,
    portion: Portion,
) -> Routine {
    let (count, grid) = (portion.elements(stages, stage), portion.tensor);
    let (sum, wide) = (dtype.gradient().size(dtype), Bytes(dtype.wide_size()));
    let argument = |role, access, size| Argument { role, access, size };
    let mut arguments = vec![
        argument(Role::Gradient, Access::Read, Bytes(count * sum)),
        argument(Role::Squares, Access::Write, wide),
    ];
    let gradient = operand(GRADIENT, dtype.gradient(), count);
    let number = |argument| operand(argument, dtype.spelled(Element::Wide), 1);
    let squares = |to| Call {
        kernel: "squares".into(),
        attributes: attributes(stages, stage, micro_batches, grid),
        operands: vec![gradient.clone(), number(to)],
    };
    let calls = match grid.parts() {
        1 => vec![squares(SQUARES)],
        parts => {
            arguments.push(argument(Role::Workspace, Access::Write, wide));
            let parts = ("parts".into(), Attribute::Integer(parts.into()));
            let meet = Call {
                kernel: "all_reduce".into(),
                attributes: Attributes::from([parts]).into(),
                operands: vec![number(OWN), number(SQUARES)],
            };
            vec![squares(OWN), meet]
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
) -> Constants {
    let micro_batches = Attribute::Integer(micro_batches.into());
    let own = stages.parameters.iter().filter(|parameter| parameter.stage == stage);
    let copied = copied(own, grid);
    let all = [("micro_batches".into(), micro_batches)].into_iter();
    let copied = (!copied.is_empty()).then(|| {
        let numbers = copied.as_flattened().iter().map(|number| *number as i64);
        ("copied".into(), Attribute::Integers(numbers.collect()))
    });
    all.chain(copied).collect::<Attributes>().into()
}

/// Begin, end and holders of what does not count in full: what several parts of the grid hold alike;
/// averages, which are no gradients, have none. Neighbours that only padding parts are one range.
fn copied<'a>(
    parameters: impl Iterator<Item = &'a Parameter>,
    grid: Tensor,
) -> Vec<[u64; 3]> {
    let mut ranges: Vec<[u64; 3]> = Vec::new();
    let mut before = 1;
    for parameter in parameters {
        let copies = match parameter.treatment {
            Treatment::Averaged { .. } => 0,
            Treatment::Decayed | Treatment::Spared => holders(parameter, grid),
        };
        let end = parameter.offset + parameter.elements();
        match ranges.last_mut().filter(|_| before == copies) {
            Some([_, last, _]) if copies != 1 => *last = end,
            _ if copies != 1 => ranges.push([parameter.offset, end, copies]),
            _ => {}
        }
        before = copies;
    }
    ranges
}

/// How many parts of the grid have the same elements of a parameter.
fn holders(parameter: &Parameter, grid: Tensor) -> u64 {
    let splits = parameter.split.splits().iter();
    let lines = splits.map(|split| split.line.map_or(grid.parts(), |line| line.parts));
    u64::from(grid.parts()) / lines.map(u64::from).product::<u64>()
}
