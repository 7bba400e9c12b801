//! Images whose rows of pixels ranks divide: each sends the others the rows that they need and no more,
//! and all have the bits of one process.

use crate::{
    bench::{has_compiler, pixels_program},
    training::{ORDERS, compare},
};

/// The bytes of all messages are what is counted.
fn holds(name: &str, orders: &[[(&str, &str); 2]], train: &str, plan: &str) {
    if !has_compiler() {
        return;
    }
    let written = |bench: &_| pixels_program(bench, name, 4, train, plan);
    for (given, counted) in compare((name, 4), orders, written) {
        assert_eq!(given, counted, "{name}");
    }
}

const ROWS: &str = "rule sync, placement accumulate, micro_batches 2, stages 1, replicas 1, \
                    tensor { rows 4 }";

#[test]
fn four_rows_of_pixels() {
    holds("pixels", &ORDERS, "steps 5", ROWS);
}

#[test]
fn rows_of_pixels_of_16_bits() {
    holds("pixels-bf16", &ORDERS[..1], "steps 3, dtype bf16", ROWS);
}

#[test]
fn a_pipeline_of_rows_of_pixels() {
    let plan = "rule sync, placement pipeline, order 1f1b, micro_batches 2, stages 2, \
                tensor { rows 2 }";
    holds("pixels-pipeline", &ORDERS[..2], "steps 4", plan);
}
