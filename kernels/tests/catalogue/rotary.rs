//! Angles of rotary positions against those of transformers 5.24, `_compute_llama3_parameters`.

use crate::common::{Array, Body, Build, CONTEXT, call, run};
use roundelay_schedule::Call;

/// Elements of a head.
const DEPTH: usize = 128;

/// Where positions begin, so that slow pairs turn as well.
const FIRST: usize = 5000;

fn rotary() -> Call {
    let call = call("rotary").integer("heads", 1).number("base", 500_000.0);
    call.integer("first", FIRST as i64)
}

/// Holds pairs to turn by position times a speed.
fn hold(call: &Call, speeds: &[(usize, f64)]) {
    let shape: &[u64] = &[1, 3, DEPTH as u64];
    for body in [Body::Plain, Body::Fast] {
        let ones =
            Array::Real([vec![1.0; DEPTH / 2], vec![0.0; DEPTH / 2]].concat().repeat(3));
        let mut arrays = vec![ones, Array::Real(vec![0.0; 3 * DEPTH])];
        run(&call.clone().reals(&[shape; 2]), &mut arrays, body, &CONTEXT);
        for (row, y) in arrays[1].numbers().chunks(DEPTH).enumerate() {
            for (pair, speed) in speeds {
                let angle = (FIRST + row) as f64 * speed;
                let error = (y[*pair] - angle.cos()).abs();
                let error = error.max((y[pair + DEPTH / 2] - angle.sin()).abs());
                assert!(error < 1e-11, "{pair} in row {row} is off by {error}");
            }
        }
    }
}

/// The first pairs keep their angles, the last ones are divided by 8, and some are in between.
#[test]
fn long_waves_turn_as_those_of_llama_3() {
    let call = rotary().number("factor", 8.0).integer("original", 8192);
    let call = call.number("low", 1.0).number("high", 4.0);
    let speeds = [
        (0, 1.0),
        (1, 0.8146172338565447),
        (28, 0.003211445994752591),
        (29, 0.002166570763503359),
        (32, 0.0005248461609929547),
        (34, 0.0001785078127679964),
        (36, 7.78465527393245e-05),
        (63, 3.068925988914511e-07),
    ];
    hold(&call, &speeds);
}

#[test]
fn all_angles_are_divided_by_a_factor_alone() {
    let speeds =
        [(0, 0.25), (1, 0.8146172338565447 / 4.0), (63, 2.455140791131609e-06 / 4.0)];
    hold(&rotary().number("factor", 4.0), &speeds);
}
