//! Images whose rows of pixels several devices divide, all of them on one GPU: held to the CPU machine.

use crate::{
    bench::{Bench, has_compiler, pixels_program},
    rules::{Recurrence, holds_for},
};

fn holds((name, devices, plan): (&str, u32, &str), recurrence: Recurrence) {
    holds_for(name, recurrence, |bench| {
        pixels_program(bench, name, devices, "steps 7", plan)
    });
}

#[test]
fn four_rows_of_pixels() {
    let plan = "rule sync, placement accumulate, micro_batches 2, stages 1, replicas 1, \
                tensor { rows 4 }";
    holds(("pixels", 4, plan), Recurrence::Soon);
}

#[test]
fn a_pipeline_of_rows_of_pixels() {
    let plan = "rule sync, placement pipeline, order 1f1b, micro_batches 4, stages 2, \
                tensor { rows 2 }";
    holds(("pixels-pipeline", 4, plan), Recurrence::Late);
}

#[test]
fn cyclic_workers_of_rows_of_pixels() {
    let plan = "rule cyclic_v2, placement data, micro_batches 2, stages 2, states replicated, \
                tensor { rows 2 }";
    holds(("pixels-cyclic", 4, plan), Recurrence::Soon);
}

/// Halos and strips of gradients in 16 bits, statistics and their sums in 32.
#[test]
fn rows_of_pixels_of_16_bits() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("pixels-bf16");
    let plan = "rule sync, placement accumulate, micro_batches 2, stages 1, replicas 1, \
                tensor { rows 4 }";
    let of = |dtype: &str| {
        let train = format!("steps 10, dtype {dtype}");
        let program = pixels_program(&bench, dtype, 4, &train, plan);
        let graphed = bench.run("--device cuda", &program, &[]);
        let late = [("STANDIN_CUDA_ORDER", "late")];
        let ungraphed = bench.run("--device cuda --graphs never", &program, &late);
        assert!(ungraphed.is(&graphed), "{dtype}: graphs change no bit");
        graphed
    };
    let (wide, narrow) = (of("f32"), of("bf16"));
    assert_eq!(narrow.losses.len(), 10);
    for (narrow, wide) in narrow.losses.iter().zip(&wide.losses) {
        assert!((narrow - wide).abs() < 0.03 * wide, "{narrow} against {wide}");
    }
}
