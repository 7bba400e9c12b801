//! A fused kernel computes the bits of the kernels that it stands for, one by one.

use crate::common::{
    Array, Body, Build, CONTEXT, call, run,
    sample::{Draw, contents, large, sample},
};
use roundelay_kernels::{Context, NAMES};
use roundelay_schedule::Call;

const FUSED: [&str; 7] = [
    "affine",
    "affine_relu",
    "affine_gelu",
    "affine_gelu_tanh",
    "affine_add",
    "matmul_gelu_tanh_backward",
    "affine_gradients",
];

/// Runs a kernel on a choice of arrays, in its own order.
fn apply(call: &Call, places: &[usize], arrays: &mut [Array<f32>], threads: usize) {
    let mut own: Vec<Array<f32>> = places.iter().map(|at| arrays[*at].clone()).collect();
    run(call, &mut own, Body::Fast, &Context { threads, ..CONTEXT });
    for (place, array) in places.iter().zip(own) {
        arrays[*place] = array;
    }
}

fn shaped(name: &str, fused: &Call, places: &[usize]) -> Call {
    let shapes = places.iter().map(|at| fused.operands[*at].shape.clone());
    shapes.fold(call(name), |call, shape| call.real(&shape))
}

/// The kernels one by one on the operands of the fused call.
fn one_by_one(fused: &Call, arrays: &mut [Array<f32>], threads: usize) {
    if fused.kernel == "affine_gradients" {
        let store = |call: Call| Call { attributes: fused.attributes.clone(), ..call };
        let product = store(shaped("matmul", fused, &[0, 1, 2]));
        let product = product.flag("transpose_a", true);
        apply(&product, &[0, 1, 2], arrays, threads);
        let sums = store(shaped("sum_rows", fused, &[0, 3]));
        return apply(&sums, &[0, 3], arrays, threads);
    }
    let map = match &*fused.kernel {
        "affine_gelu" | "affine_gelu_tanh" => 3,
        _ => fused.operands.len() - 1,
    };
    let mut step = |name: &str, places: &[usize]| {
        let call = shaped(name, fused, places);
        let turned = name == "matmul" && fused.kernel.starts_with("affine");
        let call = if turned { call.flag("transpose_b", true) } else { call };
        apply(&call, places, arrays, threads);
    };
    step("matmul", &[0, 1, map]);
    if fused.kernel == "matmul_gelu_tanh_backward" {
        let slope = shaped("gelu_tanh_backward", fused, &[2, map, map]);
        let mut own = [2, map, map].map(|at| arrays[at].clone());
        apply(&slope, &[0, 1, 2], &mut own, threads);
        arrays[map] = own[2].clone();
        return;
    }
    step("add_rows", &[2, map]);
    match &*fused.kernel {
        "affine" => {}
        "affine_relu" => step("relu", &[map, map]),
        "affine_gelu" => step("gelu", &[3, 4]),
        "affine_gelu_tanh" => step("gelu_tanh", &[3, 4]),
        "affine_add" => step("add", &[3, map, map]),
        other => panic!("no parts of kernel {other}"),
    }
}

fn bits(array: &Array<f32>) -> Vec<u32> {
    array.values().iter().map(|value| value.to_bits()).collect()
}

#[test]
fn fused_is_unfused_bit_for_bit() {
    for name in FUSED {
        assert!(NAMES.contains(&name), "{name} is a kernel");
        for seed in 0..12 {
            let draw = &mut Draw::new(seed);
            let fused = if seed == 0 { large(name, draw) } else { sample(name, draw) };
            let start = contents::<f32>(&fused, draw);
            for threads in [1, 3] {
                let (mut together, mut apart) = (start.clone(), start.clone());
                let context = Context { threads, ..CONTEXT };
                run(&fused, &mut together, Body::Fast, &context);
                one_by_one(&fused, &mut apart, threads);
                for (index, (one, other)) in together.iter().zip(&apart).enumerate() {
                    assert_eq!(bits(one), bits(other), "{name}, operand {index}");
                }
            }
        }
    }
}
