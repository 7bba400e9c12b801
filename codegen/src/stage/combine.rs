//! The routine that joins two gradient sums of a state.

use super::{Stages, assemble::name};
use roundelay_schedule::{
    Access, Argument, Bytes, Call, Constants, Float, Nanos, Operand, Pass, Role, Routine,
    Stage,
};

/// own += received, over the whole flat gradient.
pub fn combine(stages: &Stages, state: Stage, dtype: Float) -> Routine {
    let (elements, gradient) = (stages.elements[state], dtype.gradient());
    let size = Bytes(elements * gradient.size(dtype));
    let roles = [(Role::Gradient, Access::Update), (Role::Received, Access::Read)];
    let operand = |argument| Operand {
        argument,
        offset: Bytes(0),
        element: gradient,
        shape: [elements][..].into(),
    };
    let add = Call {
        kernel: "accumulate".into(),
        attributes: Constants::default(),
        operands: vec![operand(1), operand(0)],
    };
    Routine {
        name: name(Pass::Combine, state),
        pass: Pass::Combine,
        stage: state,
        arguments: roles.map(|(role, access)| Argument { role, access, size }).into(),
        calls: vec![add].into(),
        predicted: Nanos(0),
    }
}
