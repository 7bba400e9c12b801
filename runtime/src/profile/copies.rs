//! Copies from one block of memory to another at several sizes, and the line that fits them.

use super::quartiles;
use roundelay_schedule::{Bytes, BytesPerSecond, Copies, CopyTime, Nanos};
use std::{hint::black_box, time::Instant};

/// Sizes that are measured.
pub(crate) const SIZES: [u64; 7] =
    [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Bytes of each block.
pub(crate) const BLOCK: usize = 24 << 20;
/// Copies of each size at most.
pub(crate) const REPETITIONS: usize = 63;

/// Measures copies that walk through two blocks of 24 MiB, so that neither end lies in the
/// caches of the thread that copies, as with what another device has made.
pub fn copies() -> Copies {
    let source = vec![1u8; BLOCK];
    let mut target = vec![2u8; BLOCK];
    let point = |bytes| {
        let nanos = median(&source, &mut target, bytes as usize);
        CopyTime { bytes: Bytes(bytes), nanos }
    };
    fit(SIZES.map(point).into())
}

fn median(source: &[u8], target: &mut [u8], bytes: usize) -> Nanos {
    let stride = (BLOCK / REPETITIONS).max(bytes);
    let copy = |(from, to): (&[u8], &mut [u8])| {
        let start = Instant::now();
        to[..bytes].copy_from_slice(&from[..bytes]);
        let time = start.elapsed().as_nanos();
        black_box(to);
        Nanos(u64::try_from(time).unwrap_or(u64::MAX).max(1))
    };
    let parts = source.chunks_exact(stride).zip(target.chunks_exact_mut(stride));
    quartiles(&parts.map(copy).collect::<Vec<_>>())[1]
}

/// The line latency + bytes / bandwidth through some copies, by the law of [`Copies`]: linear
/// least squares with weights 1 / time². A negative latency is replaced by zero.
pub(crate) fn fit(points: Vec<CopyTime>) -> Copies {
    let pairs: Vec<(f64, f64)> = points
        .iter()
        .map(|point| {
            let time = point.nanos.0.max(1) as f64;
            (1.0 / time, point.bytes.0 as f64 / time)
        })
        .collect();
    let sum = |term: fn(f64, f64) -> f64| -> f64 {
        pairs.iter().map(|(a, b)| term(*a, *b)).sum()
    };
    let (aa, ab, bb) = (sum(|a, _| a * a), sum(|a, b| a * b), sum(|_, b| b * b));
    let (a, b) = (sum(|a, _| a), sum(|_, b| b));
    let determinant = aa * bb - ab * ab;
    let latency = ((a * bb - b * ab) / determinant).max(0.0);
    let latency = if latency.is_finite() { latency } else { 0.0 };
    let slope = ((b - latency * ab) / bb).max(1e-6);
    let error = |(a, b): &(f64, f64)| (latency * a + slope * b - 1.0).powi(2);
    let mean = pairs.iter().map(error).sum::<f64>() / pairs.len().max(1) as f64;
    Copies {
        latency: Nanos(latency.round() as u64),
        bandwidth: BytesPerSecond((1e9 / slope).round() as u64),
        residual: (mean.sqrt() * 1e4).round() / 1e4,
        points,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(time: impl Fn(u64) -> u64) -> Vec<CopyTime> {
        let point = |bytes| CopyTime { bytes: Bytes(bytes), nanos: Nanos(time(bytes)) };
        SIZES.map(point).into()
    }

    #[test]
    fn a_line_is_found_without_residual() {
        let copies = fit(points(|bytes| 3_000 + bytes / 4));
        assert_eq!(copies.latency, Nanos(3_000));
        assert_eq!(copies.bandwidth, BytesPerSecond(4_000_000_000));
        assert_eq!(copies.residual, 0.0);
    }

    #[test]
    fn no_latency_is_negative_and_what_does_not_fit_is_said() {
        let copies = fit(points(|bytes| bytes * bytes / 40_000 + 1));
        assert_eq!(copies.latency, Nanos(0));
        assert!(copies.residual > 0.1, "{copies:?}");
    }

    #[test]
    fn every_size_is_measured() {
        let copies = copies();
        assert!(copies.bandwidth.0 > 0 && copies.residual.is_finite());
        let sizes: Vec<u64> = copies.points.iter().map(|point| point.bytes.0).collect();
        assert_eq!(sizes, SIZES);
    }
}
