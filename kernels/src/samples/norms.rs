//! Calls of normalisations.

use super::{Build, calls::Draw};
use roundelay_schedule::Call;

/// Whether a kernel is of a norm, or makes one again.
pub(crate) fn has(name: &str) -> bool {
    name.contains("_norm") || name == "relu_backward_again"
}

/// A random call.
pub(crate) fn sample(call: Call, accumulate: bool, draw: &mut Draw) -> Call {
    let (batch, m, n) = (1 + draw.below(3), draw.extent(), draw.extent());
    let array: &[u64] = &[batch, m, n];
    match &*call.kernel {
        "batch_norm"
        | "batch_norm_again"
        | "batch_norm_backward"
        | "relu_backward_again" => {
            sample_batch_norm(call, accumulate, [1 + batch, m, n], draw)
        }
        "group_norm" | "group_norm_backward" => {
            sample_group_norm(call, accumulate, [batch, m], draw)
        }
        "layer_norm" => {
            let statistics: &[u64] = &[batch, m];
            let terms = [array, &[n], &[n], array, statistics, statistics];
            epsilon(call, draw).reals(&terms)
        }
        "layer_norm_backward" => adding(call, accumulate, draw).reals(&[
            array,
            &[n],
            &[batch, m],
            &[batch * m],
            array,
            array,
            &[n],
            &[n],
        ]),
        "layer_norm_parameters" => call.flag("accumulate", accumulate).reals(&[
            array,
            &[batch, m],
            &[batch, m],
            array,
            &[n],
            &[n],
        ]),
        "rms_norm" => epsilon(call, draw).reals(&[array, &[n], array, &[batch, m]]),
        "rms_norm_backward" => adding(call, accumulate, draw).reals(&[
            array,
            &[n],
            &[batch, m],
            array,
            array,
            &[n],
        ]),
        other => panic!("{other} is no such norm"),
    }
}

/// A gradient, whose sums may be added to as well.
fn adding(call: Call, accumulate: bool, draw: &mut Draw) -> Call {
    call.flag("accumulate", accumulate).flag("accumulate_sums", draw.flag())
}

/// Some calls say what is added before the root.
fn epsilon(call: Call, draw: &mut Draw) -> Call {
    if draw.flag() { call.number("epsilon", 0.25) } else { call }
}

/// A call that is large enough to be split over threads.
pub(crate) fn large(call: Call) -> Call {
    let (rows, columns, count): (&[u64], &[u64], &[u64]) = (&[300, 130], &[130], &[300]);
    let (x, channels, statistics): (&[u64], &[u64], &[u64]) =
        (&[9, 31, 128], &[128], &[9, 4]);
    match &*call.kernel {
        "batch_norm" => call
            .reals(&[rows, columns, columns, columns, columns])
            .reals(&[rows, columns, columns]),
        "batch_norm_again" => call
            .flag("relu", true)
            .flag("residual", true)
            .reals(&[rows, columns, columns, columns, columns])
            .reals(&[rows, rows]),
        "batch_norm_backward" => call
            .flag("relu", true)
            .flag("again", true)
            .reals(&[rows, columns, columns, columns, columns, rows])
            .reals(&[rows, columns, columns, columns, columns]),
        "relu_backward_again" => {
            let (rows, row): (&[u64], &[u64]) = (&[300, 500], &[500]);
            call.reals(&[rows, row, row, row, row, rows, rows])
        }
        "group_norm" => call
            .integer("groups", 4)
            .reals(&[x, channels, channels, x, statistics, statistics]),
        "group_norm_backward" => call
            .integer("groups", 4)
            .reals(&[x, channels, statistics, statistics])
            .reals(&[x, x, channels, channels]),
        "rms_norm" => call.reals(&[rows, columns, rows, count]),
        _ => call.reals(&[rows, columns, count, rows, rows, columns]),
    }
}

fn sample_batch_norm(
    call: Call,
    accumulate: bool,
    shape: [u64; 3],
    draw: &mut Draw,
) -> Call {
    let (array, row): (&[u64], &[u64]) = (&shape, &shape[2..]);
    let (relu, other) = (draw.flag(), draw.flag());
    let one = [array];
    let some = |wanted: bool| &one[..usize::from(wanted)];
    match &*call.kernel {
        "relu_backward_again" => call
            .flag("accumulate", accumulate)
            .reals(&[array, row, row, row, row])
            .reals(&[array, array]),
        "batch_norm" => call
            .flag("relu", relu)
            .flag("residual", other)
            .reals(&[array, row, row, row, row])
            .reals(some(other))
            .reals(&[array, row, row]),
        "batch_norm_again" => call
            .flag("relu", relu)
            .flag("residual", other)
            .reals(&[array, row, row, row, row])
            .reals(some(other))
            .real(array),
        _ => {
            let call = adding(call, accumulate, draw).flag("relu", relu);
            let call = call.reals(&[array, row, row, row]);
            let (flag, said, opened): (_, &[&[u64]], _) = match (relu, other) {
                (false, _) => ("again", &[], false),
                (true, true) => ("again", &[row], false),
                (true, false) => ("opened", &[array], draw.flag()),
            };
            call.flag(flag, relu && other || opened)
                .reals(said)
                .reals(some(opened))
                .reals(&[array, array, row, row, row, row])
        }
    }
}

fn sample_group_norm(
    call: Call,
    accumulate: bool,
    [batch, positions]: [u64; 2],
    draw: &mut Draw,
) -> Call {
    let (groups, width) = (1 + draw.below(5), 1 + draw.below(20));
    let columns = groups * width;
    let array: &[u64] = &[batch, positions, columns];
    let (row, statistics): (&[u64], &[u64]) = (&[columns], &[batch, groups]);
    let call = call.integer("groups", groups as i64);
    match &*call.kernel {
        "group_norm" => call.reals(&[array, row, row, array, statistics, statistics]),
        _ => adding(call, accumulate, draw)
            .reals(&[array, row, statistics, statistics, array, array, row, row]),
    }
}

/// Norms of images whose pixels several parts have.
pub(crate) fn of_pixels(call: Call, accumulate: bool, draw: &mut Draw) -> Call {
    let (batch, m, width) = (1 + draw.below(3), draw.extent(), 1 + draw.below(6));
    let groups = 1 + draw.below(5);
    let parts = 1 + draw.below(3);
    let running = draw.flag();
    let extents = ([batch, m, groups * width], groups, parts);
    norm_of_pixels(call, extents, [accumulate, running])
}

/// The same of images that are summed in several pieces.
pub(crate) fn large_of_pixels(call: Call) -> Call {
    norm_of_pixels(call, ([2, 301, 128], 4, 3), [false, false])
}

/// x (b, s, n), groups of its channels, and the parts that have pixels.
fn norm_of_pixels(
    call: Call,
    ([batch, m, n], groups, parts): ([u64; 3], u64, u64),
    [accumulate, running]: [bool; 2],
) -> Call {
    let (x, row, kept): (&[u64], &[u64], &[u64]) =
        (&[batch, m, n], &[n], &[batch, groups]);
    let both: &[u64] = &[2, batch, groups];
    let count = (m * n / groups) as i64;
    let name = call.kernel.clone();
    let of = |call: Call| call.integer("groups", groups as i64);
    let adding = |call: Call| call.flag("accumulate", accumulate);
    match &*name {
        "pixel_norm_moments" => of(call).reals(&[x, both]),
        "pixel_norm_statistics" => {
            let call = call.integer("count", count).flag("running", running);
            let call = call.real(&[parts, 2 * batch * groups]);
            let call = if running { call.reals(&[kept; 2]) } else { call };
            call.reals(&[kept; 2])
        }
        "pixel_norm" => of(call).reals(&[x, row, row, kept, kept, x]),
        "pixel_norm_slopes" => of(call).reals(&[x, row, kept, kept, x, both]),
        "pixel_norm_backward" => {
            let call = of(adding(call)).integer("count", count * parts as i64);
            call.reals(&[x, row, kept, kept, x, both, x])
        }
        _ => of(adding(call)).reals(&[x, kept, kept, x, row, row]),
    }
}
