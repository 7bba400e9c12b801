//! What norms sum by the way and add: the bits are those of a sum that is written aside, and added by a
//! call of its own, in every type that sums are kept in.

use crate::{
    common::{
        Array, Build, CONTEXT, call,
        sample::{Draw, Mix, contents, mixed, sample},
    },
    emulation::{
        Bound, can_compile,
        compare::steps,
        run_steps,
        stored::{Placement, Stored},
    },
};
use roundelay_kernels::Kernel;
use roundelay_schedule::{Access, Call, Float, GradientSums, Operand};

/// Kernels, and how many sums each makes.
const NORMS: [(&str, usize); 4] = [
    ("batch_norm_backward", 4),
    ("group_norm_backward", 2),
    ("layer_norm_backward", 2),
    ("rms_norm_backward", 1),
];

fn accesses(call: &Call) -> Vec<Access> {
    let kernel = Kernel::parse(call).expect("the call is well formed");
    kernel.accesses().to_vec()
}

/// What the operands of a call hold behind it.
fn behind(call: &Call, start: &[Array<f64>], dtype: Float) -> Vec<Vec<f64>> {
    let operands = call.operands.iter().zip(start);
    let store =
        |array, element| Stored::new(array, element, dtype).placed(Placement::Aligned);
    let mut stored: Vec<Stored> =
        operands.map(|(operand, array)| store(array, operand.element)).collect();
    let pointers: Vec<*mut u8> = stored.iter_mut().map(Stored::pointer).collect();
    let context = &CONTEXT;
    run_steps(&steps(call, dtype), &Bound { operands: &pointers, context });
    stored.iter().map(Stored::values).collect()
}

/// What a sum of these numbers holds behind a call that adds what is written aside.
fn added(
    operand: &Operand,
    written: &[f64],
    before: &Array<f64>,
    dtype: Float,
) -> Vec<f64> {
    let Operand { element, shape, .. } = operand;
    let sum = call("accumulate").operand(*element, shape).operand(*element, shape);
    let both = [Array::Real(written.to_vec()), before.clone()];
    behind(&sum, &both, dtype).swap_remove(1)
}

#[test]
fn sums_that_devices_add_are_whole() {
    if !can_compile() {
        return;
    }
    let types = [
        (Float::F32, Mix::Narrow),
        (Float::F64, Mix::Narrow),
        (Float::Bf16(GradientSums::Same), Mix::Statistics),
        (Float::F16(GradientSums::Same), Mix::Statistics),
        (Float::Bf16(GradientSums::F32), Mix::Gradients),
    ];
    for ((name, count), (dtype, mix)) in NORMS.iter().flat_map(|n| types.map(|t| (*n, t)))
    {
        for seed in 0..4 {
            let draw = &mut Draw::new(seed);
            let mut call = mixed(sample(name, draw), mix);
            call.attributes.remove("accumulate_sums");
            let before = contents::<f64>(&call, draw);
            let adding = call.clone().flag("accumulate_sums", true);
            let [written, found] =
                [&call, &adding].map(|call| behind(call, &before, dtype));
            let [made, summed] = [&call, &adding].map(accesses);
            for (index, operand) in call.operands.iter().enumerate() {
                let expected = match made[index] == summed[index] {
                    true => written[index].clone(),
                    false => added(operand, &written[index], &before[index], dtype),
                };
                assert_eq!(found[index], expected, "{name} {dtype:?} operand {index}");
            }
            let sums = made.iter().zip(&summed).filter(|(one, other)| one != other);
            assert_eq!(sums.count(), count, "{name}");
        }
    }
}
