//! Norms beside a skip: the kernel that takes one back adds to the gradient that came past it, and to
//! those of its parameters in later micro-batches.

use super::{EXAMPLES, extents, hold};
use crate::support::build::Build;
use roundelay_codegen::stages;
use roundelay_dsl::{Model, Operation, Source};
use roundelay_schedule::{Attribute, Call, Float, Id, Role, Routine, Stage};

const SHAPE: [u64; 3] = [2, 3, 4];

/// Every norm, its number of parameters, and the kernel that takes it back.
const NORMS: [(Operation, usize, &str); 4] = [
    (Operation::RmsNorm { epsilon: 0.3 }, 1, "rms_norm_backward"),
    (Operation::LayerNorm { epsilon: 0.3 }, 2, "layer_norm_backward"),
    (Operation::GroupNorm { groups: 2 }, 2, "group_norm_backward"),
    (Operation::BatchNorm, 2, "batch_norm_backward"),
];

/// y = norm(x) + x.
fn skipped(norm: Operation, parameters: usize) -> Model {
    let mut build = Build::default();
    let made = build.parameter(&SHAPE);
    let x = build.node(Operation::Scale { factor: 1.5 }, &[made], &extents(&SHAPE));
    let mut operands = vec![x];
    operands.extend((0..parameters).map(|_| build.parameter(&[4])));
    if norm == Operation::BatchNorm {
        operands.extend([(); 2].map(|()| build.average(&[4])));
    }
    let normal = build.node(norm, &operands, &extents(&SHAPE));
    let both: [Source; 2] = [normal, x];
    let sum = build.node(Operation::Add, &both, &extents(&SHAPE));
    build.mean_squared_error(sum, &extents(&SHAPE))
}

#[test]
fn their_gradients_are_those_of_differences() {
    for (norm, parameters, kernel) in NORMS {
        hold(&format!("{kernel} beside a skip"), &skipped(norm, parameters));
    }
}

fn has(call: &Call, flag: &str) -> bool {
    call.attributes.get(flag) == Some(&Attribute::Flag(true))
}

#[test]
fn what_norms_make_takes_no_detour() {
    for (norm, parameters, kernel) in NORMS {
        let model = skipped(norm, parameters);
        let stages = stages(&model, &[], EXAMPLES, Float::F32, 16)
            .expect("an uncut model has no ties");
        let code = &stages.stages[Stage::new(0)].backward;
        let detours = |routine: &Routine| {
            let sums = routine.place_of(Role::Gradient);
            let added = routine.calls.iter().filter(|call| call.kernel == "accumulate");
            let places = added.map(|call| call.operands[1].argument as usize);
            let places: Vec<usize> = places.collect();
            assert!(places.iter().all(|place| Some(*place) == sums), "{kernel}");
            places.len()
        };
        // Besides the parameters of the norm there is the one that x is made of.
        for (routine, is_later) in [(code.first()[0], false), (code.next()[0], true)] {
            let mut own = routine.calls.iter();
            let back = own.find(|call| call.kernel == kernel).expect("it is taken back");
            assert!(has(back, "accumulate"), "{kernel}");
            assert_eq!(has(back, "accumulate_sums"), is_later, "{kernel}");
            assert_eq!(detours(routine), usize::from(is_later), "{kernel}");
        }
    }
}
