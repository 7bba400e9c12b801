//! The code of a plan's stages: what they compute, before anything says who runs what when.

use super::{LowerError, order::Slots};
use crate::{
    Cut, StageForm, Stages, Storage,
    fit::ALIGNMENT,
    rewrite::{Decided, Listed, LoweringChoice},
    stages_in,
};
use roundelay_dsl::Program;
use roundelay_schedule::{Id, MapWays, Plan, Rewrites, Rule, Stage, Tensor};

/// All that decides the code of a plan's stages, in one program: plans of equal keys have the same.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CodeKey {
    /// The rule, where the model follows from it.
    local: Option<Rule>,
    cuts: Vec<u32>,
    tensor: Tensor,
    slices: u32,
    /// Of a micro-batch.
    examples: u64,
    /// What the elements of each stage are a multiple of.
    padding: u64,
    forms: Vec<StageForm>,
    rewrites: Rewrites,
    maps: MapWays,
}

impl CodeKey {
    /// The key of a plan that fits the program, with its order.
    pub(crate) fn new(program: &Program, plan: &Plan, order: &Slots) -> Self {
        let form = |stage: Stage| StageForm {
            backward: order.form(stage),
            recompute: plan.recompute[plan.whole_stage(stage) as usize],
        };
        // A part of any member is whole lines of memory, in the narrowest type that it has.
        let line = ALIGNMENT.div_ceil(program.train.dtype.size()).max(16);
        Self {
            local: matches!(plan.rule, Rule::Local { .. }).then_some(plan.rule),
            cuts: plan.cuts.clone(),
            tensor: plan.tensor,
            slices: plan.slices,
            examples: u64::from(program.train.batch / plan.all_micro_batches()),
            padding: line * u64::from(plan.parts()),
            forms: order.stages().map(form).collect(),
            rewrites: plan.rewrites.clone(),
            maps: plan.maps.clone(),
        }
    }

    /// The code, in the program with the model that the rule trains. Where the key lists no rewrites,
    /// or no ways of maps, there are those that `choice` chooses.
    ///
    /// # Errors
    /// When the model cannot be cut like this, or what is listed does not fit it.
    pub(crate) fn derive(
        &self,
        program: &Program,
        choice: &dyn LoweringChoice,
    ) -> Result<Stages, LowerError> {
        let Self { tensor, slices, examples, padding, rewrites, maps, .. } = self;
        let listed = Listed(rewrites);
        let decided = Decided {
            calls: if rewrites.is_empty() { choice } else { &listed },
            maps: (!maps.is_empty()).then_some(maps),
            otherwise: choice,
        };
        let cut = Cut { cuts: &self.cuts, tensor: *tensor, slices: *slices };
        let storage = Storage { dtype: program.train.dtype, padding: *padding };
        let form = |stage: Stage| self.forms[stage.index()];
        let code = stages_in(&program.model, cut, *examples, storage, form, &decided)?;
        if let Some((rewrite, site)) = rewrites.beyond(&code.rewrites) {
            return Err(LowerError::Rewrite { rewrite, site });
        }
        if let (true, Some((site, way))) = (code.maps.is_empty(), maps.iter().next()) {
            return Err(LowerError::Maps { site, way });
        }
        Ok(code)
    }
}
