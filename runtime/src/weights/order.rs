//! The order of numbers in files of weights, which is PyTorch's: filters of a convolution are (filters,
//! channels, height, width) there, and (filters, height, width, channels) here.

use roundelay_schedule::ParameterKind;
use std::borrow::Cow;

/// The extents that a parameter of this shape has in a file.
pub(super) fn shape_in_file(kind: ParameterKind, own: &[u64]) -> Vec<u64> {
    match filters(kind, own) {
        None => own.to_vec(),
        Some([count, height, width, channels]) => vec![count, channels, height, width],
    }
}

/// Numbers of `size` bytes as a file has them, from those of a parameter of this shape.
pub(super) fn to_file<'a>(
    kind: ParameterKind,
    numbers: Cow<'a, [u8]>,
    own: &[u64],
    size: u64,
) -> Cow<'a, [u8]> {
    match filters(kind, own) {
        None => numbers,
        Some([_, height, width, channels]) => {
            Cow::Owned(transposed(&numbers, [height * width, channels], size))
        }
    }
}

/// Numbers of `size` bytes of a parameter of this shape, from those that a file has.
pub(super) fn from_file(
    kind: ParameterKind,
    numbers: Vec<u8>,
    own: &[u64],
    size: u64,
) -> Vec<u8> {
    match filters(kind, own) {
        None => numbers,
        Some([_, height, width, channels]) => {
            transposed(&numbers, [channels, height * width], size)
        }
    }
}

/// The extents of filters; those of other parameters need no change.
fn filters(kind: ParameterKind, own: &[u64]) -> Option<[u64; 4]> {
    match kind {
        ParameterKind::Plain => None,
        ParameterKind::Filters => own.try_into().ok(),
    }
}

/// Matrices of numbers one behind the other, each of them transposed.
pub(super) fn transposed(
    numbers: &[u8],
    [rows, columns]: [u64; 2],
    size: u64,
) -> Vec<u8> {
    let [rows, columns, size] = [rows, columns, size].map(|count| count as usize);
    let mut all = Vec::with_capacity(numbers.len());
    for matrix in numbers.chunks_exact((rows * columns * size).max(1)) {
        for column in 0..columns {
            for row in 0..rows {
                let start = (row * columns + column) * size;
                all.extend_from_slice(&matrix[start..start + size]);
            }
        }
    }
    all
}
