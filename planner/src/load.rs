//! What each stage of a cut model takes: exact times and sizes of its routines, before any
//! schedule exists.

use crate::{
    cost::{Costs, Unpriced},
    cuts::Chain,
};
use roundelay_codegen::{
    NodeCost, StageCode, StageError, StageForm, node_costs, stages_in,
};
use roundelay_dsl::Program;
use roundelay_schedule::{
    Argument, Bytes, Id, Nanos, Recompute, Role, Routine, Stage, Tensor,
};

/// What one stage takes for one micro-batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageLoad {
    /// Forward pass.
    pub forward: Nanos,
    /// Backward pass, whole or both halves; the faster of the one that writes the gradient and
    /// the one that adds.
    pub backward: Nanos,
    /// Parameters.
    pub parameters: Bytes,
    /// Optimizer state.
    pub optimizer: Bytes,
    /// What forward keeps for backward.
    pub activation: Bytes,
}

impl StageLoad {
    /// Forward and backward of one micro-batch.
    pub fn pass(&self) -> Nanos {
        self.forward + self.backward
    }
}

/// Why a program's stages cannot be costed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// The model cannot be cut or differentiated like this.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// A kernel is unknown.
    #[error(transparent)]
    Unpriced(#[from] Unpriced),
}

/// The stages of a program between cuts, each of which computes something again, for
/// micro-batches of `examples`, on one of the devices that split tensors; no device is faster.
///
/// # Errors
/// When the model cannot be cut or differentiated like this.
pub(crate) fn load(
    program: &Program,
    (cuts, recompute): (&[u32], &[Recompute]),
    (examples, tensor): (u32, Tensor),
    costs: &Costs,
) -> Result<Vec<StageLoad>, LoadError> {
    let dtype = program.train.dtype;
    let form = |stage: Stage| StageForm {
        recompute: recompute[stage.index()],
        ..StageForm::default()
    };
    let (cuts, examples) = ((cuts, tensor), u64::from(examples));
    let code = stages_in(&program.model, cuts, examples, (dtype, 1), form)?;
    let width = program.train.optimizer.arrays(dtype) * dtype.wide_size();
    let row = |(stage, row): (Stage, &StageCode)| {
        let time = |routine: &Routine| -> Result<Nanos, Unpriced> {
            Ok(costs.floor(&costs.priced(&routine.calls)?))
        };
        let all = |routines: Vec<&Routine>| -> Result<Nanos, Unpriced> {
            routines.into_iter().map(time).sum()
        };
        Ok(StageLoad {
            forward: time(&row.forward)?,
            backward: all(row.backward.first())?.min(all(row.backward.next())?),
            parameters: Bytes(code.elements[stage] * dtype.size()),
            optimizer: Bytes(code.elements[stage] * width),
            activation: activation(&row.forward),
        })
    };
    code.stages.iter().map(row).collect()
}

fn activation(forward: &Routine) -> Bytes {
    let kept =
        |argument: &&Argument| matches!(argument.role, Role::Activation | Role::Retained);
    forward.arguments.iter().filter(kept).map(|argument| argument.size).sum()
}

/// The node list of a program for micro-batches of `examples`.
///
/// # Errors
/// When the model cannot be differentiated, or a kernel is unknown.
pub(crate) fn chain(
    program: &Program,
    (examples, tensor): (u32, Tensor),
    costs: &Costs,
) -> Result<Chain, LoadError> {
    let (model, dtype) = (&program.model, program.train.dtype);
    let examples = u64::from(examples);
    let nodes = node_costs(model, (examples, tensor), dtype)?;
    let time = |node: &NodeCost| -> Result<Nanos, Unpriced> {
        let [forward, backward] = [&node.forward, &node.backward];
        let calls = [&forward.calls[..], &backward.calls].concat();
        let contained = [&forward.contained[..], &backward.contained].concat();
        let all = costs.part(&costs.priced(&calls)?);
        let contained = costs.part(&costs.priced(&contained)?);
        Ok(Nanos(all.0.saturating_sub(contained.0)))
    };
    let times = nodes.iter().map(time).collect::<Result<_, _>>()?;
    Ok(Chain::new(model, times, examples, dtype))
}
