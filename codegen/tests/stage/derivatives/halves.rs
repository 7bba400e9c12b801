//! Backward passes in halves, and those that compute again what forward lost, against whole ones
//! that find all they read: the same bits, for every model that the tests of derivatives hold.

use crate::support::machine::{Machine, context};
use roundelay_codegen::{
    BackwardCode, BackwardForm, Everywhere, StageForm, Stages, Storage, stages_in,
};
use roundelay_dsl::Model;
use roundelay_kernels::Real;
use roundelay_schedule::{Access, Id, Recompute, Role, Routine, Stage};

/// Every bit of every gradient after three micro-batches.
pub(crate) fn gradients<R: Real>(stages: &Stages) -> Vec<(String, Vec<u64>)> {
    let mut machine = Machine::new::<R>(stages, 0);
    for micro_batch in 0..3 {
        machine.feed::<R>(micro_batch);
        machine.forward::<R>(&context(0, micro_batch));
        machine.backward::<R>(&context(0, micro_batch));
    }
    let bits = |parameter: &roundelay_schedule::Parameter| {
        let elements = parameter.offset..parameter.offset + parameter.elements();
        let bit = |k| machine.get::<R>(parameter.stage, Role::Gradient, k).widen();
        (parameter.name.clone(), elements.map(|k| bit(k).to_bits()).collect())
    };
    stages.parameters.iter().map(bits).collect()
}

/// I makes no parameter gradient, W touches no gradient of a value, and W reads what I writes.
fn hold_roles(name: &str, stages: &Stages) {
    for code in stages.stages.values() {
        let BackwardCode::Split { input, weight_first, weight_next } = &code.backward
        else {
            continue;
        };
        assert_eq!(input.access(Role::Gradient), None, "{name}");
        assert_eq!(weight_first.access(Role::Gradient), Some(Access::Write), "{name}");
        assert_eq!(weight_next.access(Role::Gradient), Some(Access::Update), "{name}");
        let kept =
            |routine: &Routine| routine.argument(Role::Adjoint).map(|one| one.size);
        for weight in [weight_first, weight_next] {
            let crosses = |role| matches!(role, Role::ValueGradient(_));
            assert!(!weight.arguments.iter().any(|one| crosses(one.role)), "{name}");
            assert_eq!(weight.access(Role::Activation), None, "{name}");
            assert_eq!(kept(input), kept(weight), "{name}");
        }
    }
}

/// All stages in halves, and every other one; each with and without recomputation.
pub(crate) fn hold<R: Real>(name: &str, model: &Model, cuts: &[u32], examples: u64) {
    let form = |split: fn(usize) -> bool, recompute| {
        let form = move |stage: Stage| match split(stage.index()) {
            true => StageForm { backward: BackwardForm::Split, recompute },
            false => StageForm { backward: BackwardForm::Whole, recompute },
        };
        let cut = (cuts, roundelay_schedule::Tensor::WHOLE);
        let storage = Storage { dtype: R::DTYPE, padding: 16 };
        stages_in(model, cut, examples, storage, form, &Everywhere)
            .expect("it was cut before")
    };
    let whole = gradients::<R>(&form(|_| false, Recompute::None));
    let splits: [fn(usize) -> bool; 4] =
        [|_| false, |_| true, |j| j % 2 == 0, |j| j % 2 == 1];
    for split in splits {
        for recompute in Recompute::STEPS {
            let stages = form(split, *recompute);
            hold_roles(name, &stages);
            assert_eq!(gradients::<R>(&stages), whole, "{name}, recompute {recompute}");
        }
    }
}
