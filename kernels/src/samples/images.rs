//! Random calls of the kernels that work on images.

use super::{Build, calls::Draw};
use roundelay_schedule::Call;

/// A random call of this kernel.
pub(crate) fn sample(call: Call, accumulate: bool, draw: &mut Draw) -> Call {
    match &*call.kernel {
        "conv2d" | "conv2d_backward" | "conv2d_weights" => {
            sample_convolution(call, accumulate, draw)
        }
        "max_pool" | "max_pool_backward" | "avg_pool" | "avg_pool_backward" => {
            sample_pool(call, accumulate, draw)
        }
        "global_pool" | "global_pool_backward" => sample_global(call, accumulate, draw),
        other => panic!("no sample of kernel {other}"),
    }
}

/// A convolution or a pooling that is large enough to be split over threads.
pub(crate) fn large(call: Call) -> Call {
    if call.kernel.contains("pool") {
        return large_pool(call);
    }
    let (image, result): (&[u64], &[u64]) = (&[7, 9, 10, 16], &[7, 9, 10, 24]);
    let weight: &[u64] = &[24, 3, 3, 16];
    let call = call.integer("stride", 1).integer("padding", 1).integer("groups", 1);
    match &*call.kernel {
        "conv2d" => call.reals(&[image, weight, result]),
        "conv2d_backward" => call.reals(&[result, weight, image]),
        // Sums over tiles are cut where there are many of these.
        _ => call.reals(&[&[7, 20, 20, 16], &[7, 20, 20, 24], weight]),
    }
}

fn large_pool(call: Call) -> Call {
    let (x, y, all): (&[u64], &[u64], &[u64]) =
        (&[7, 30, 30, 24], &[7, 15, 15, 24], &[7, 24]);
    let kernel = call.kernel.clone();
    let windows =
        || call.clone().integer("size", 3).integer("stride", 2).integer("padding", 1);
    match &*kernel {
        "max_pool" | "avg_pool" => windows().reals(&[x, y]),
        "max_pool_backward" => windows().reals(&[x, y, x]),
        "avg_pool_backward" => windows().reals(&[y, x]),
        "global_pool" => call.reals(&[x, all]),
        _ => call.reals(&[all, x]),
    }
}

fn sample_global(call: Call, accumulate: bool, draw: &mut Draw) -> Call {
    let (batch, channels) = (1 + draw.below(3), 1 + draw.below(40));
    let x: &[u64] = &[batch, 1 + draw.below(5), 1 + draw.below(5), channels];
    let y: &[u64] = &[batch, channels];
    match &*call.kernel {
        "global_pool" => call.reals(&[x, y]),
        _ => call.flag("accumulate", accumulate).reals(&[y, x]),
    }
}

/// Windows over images: the attributes but `groups`, the kernel, the image, and the result.
fn sample_window(call: Call, draw: &mut Draw) -> (Call, [u64; 2], [u64; 2], [u64; 2]) {
    let (stride, square) = (1 + draw.below(4) / 3, 1 + draw.below(5));
    let (kernel, padding) = match draw.flag() {
        true => ([3, 3], 1),
        false => ([square, square + draw.below(2)], draw.below(1 + square / 2)),
    };
    let image = kernel.map(|extent| extent + draw.below(12));
    let result = [0, 1].map(|a| (image[a] + 2 * padding - kernel[a]) / stride + 1);
    let call = call.integer("stride", stride as i64).integer("padding", padding as i64);
    (call, kernel, image, result)
}

/// Few and many channels, one or more groups, one filter per channel.
fn sample_convolution(call: Call, accumulate: bool, draw: &mut Draw) -> Call {
    let batch = 1 + draw.below(3);
    let (call, [high, wide], [h, w], [rows, columns]) = sample_window(call, draw);
    let (groups, depth, each) = match draw.below(5) {
        0 => (1 + draw.below(40), 1, 1),
        1 => (2 + draw.below(2), 1 + draw.below(5), 1 + draw.below(5)),
        2 | 3 => (1, 16 + draw.below(40), 16 + draw.below(40)),
        _ => (1, 1 + draw.below(24), 1 + draw.below(40)),
    };
    let (channels, filters) = (groups * depth, groups * each);
    let call = call.integer("groups", groups as i64);
    let x: &[u64] = &[batch, h, w, channels];
    let weight: &[u64] = &[filters, high, wide, depth];
    let y: &[u64] = &[batch, rows, columns, filters];
    match &*call.kernel {
        "conv2d" => call.reals(&[x, weight, y]),
        "conv2d_backward" => call.flag("accumulate", accumulate).reals(&[y, weight, x]),
        _ => call.flag("accumulate", accumulate).reals(&[x, y, weight]),
    }
}

fn sample_pool(call: Call, accumulate: bool, draw: &mut Draw) -> Call {
    let (batch, channels) = (1 + draw.below(3), 1 + draw.below(40));
    let (size, stride) = (1 + draw.below(4), 1 + draw.below(3));
    let padding = draw.below(1 + size / 2);
    let [h, w] = [(); 2].map(|()| size + draw.below(9));
    let [rows, columns] = [h, w].map(|extent| (extent + 2 * padding - size) / stride + 1);
    let call = call
        .integer("size", size as i64)
        .integer("stride", stride as i64)
        .integer("padding", padding as i64);
    let x: &[u64] = &[batch, h, w, channels];
    let y: &[u64] = &[batch, rows, columns, channels];
    match &*call.kernel {
        "max_pool" | "avg_pool" => call.reals(&[x, y]),
        "avg_pool_backward" => call.flag("accumulate", accumulate).reals(&[y, x]),
        _ => call.flag("accumulate", accumulate).reals(&[x, y, x]),
    }
}

/// The rows of one part alone that some window reads; some stay unread, some stand in the padding.
pub(crate) fn halo(call: Call, accumulate: bool, draw: &mut Draw) -> Call {
    let [batch, height, width, channels] = [3, 9, 6, 20].map(|most| 1 + draw.below(most));
    let [before, side] = [(); 2].map(|()| draw.below(3));
    let rows = 1 + draw.below(height + before + 2);
    let x: &[u64] = &[batch, height, width, channels];
    let out: &[u64] = &[batch, rows, width + 2 * side, channels];
    let call = call.integer("parts", 1).integer("step", height as i64);
    let call = call.integer("before", before as i64).integer("side", side as i64);
    let call = call.flag("lowest", draw.flag());
    match &*call.kernel {
        "halo" => call.reals(&[x, out]),
        _ => call.flag("accumulate", accumulate).reals(&[out, x]),
    }
}
