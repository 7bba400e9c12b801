//! A cache line of numbers: the unit in which sums are laid out.

use crate::Real;

/// 64 aligned bytes of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(align(64))]
pub struct Line<R, const N: usize>(pub(crate) [R; N]);

/// What kernels do with a line, lane by lane.
pub trait Lanes<R>: Copy + Send + Sync + 'static {
    /// Numbers in a line.
    const COUNT: usize;
    /// Every lane has this value.
    fn splat(value: R) -> Self;
    /// Copies a line; missing lanes are zero.
    fn load(values: &[R]) -> Self;
    /// Copies the first lanes out.
    fn store(&self, values: &mut [R]);
    /// One lane.
    fn get(&self, lane: usize) -> R;
    /// Changes one lane.
    fn set(&mut self, lane: usize, value: R);
    /// self + a · b in every lane, rounded once.
    fn fused(self, a: R, b: &Self) -> Self;
    /// Combines lanes with those of another line.
    fn zip(self, other: Self, combine: impl Fn(R, R) -> R) -> Self;
    /// Combines all lanes in a fixed tree: halves, quarters, and so on.
    fn reduce(self, combine: impl Fn(R, R) -> R) -> R;
}

impl<R: Real, const N: usize> Lanes<R> for Line<R, N> {
    const COUNT: usize = N;

    #[inline(always)]
    fn splat(value: R) -> Self {
        Self([value; N])
    }
    #[inline(always)]
    fn load(values: &[R]) -> Self {
        match values.first_chunk::<N>() {
            Some(all) => Self(*all),
            None => {
                let mut line = [R::ZERO; N];
                line[..values.len()].copy_from_slice(values);
                Self(line)
            }
        }
    }
    #[inline(always)]
    fn store(&self, values: &mut [R]) {
        match values.first_chunk_mut::<N>() {
            Some(all) => *all = self.0,
            None => values.copy_from_slice(&self.0[..values.len()]),
        }
    }
    #[inline(always)]
    fn get(&self, lane: usize) -> R {
        self.0[lane]
    }
    #[inline(always)]
    fn set(&mut self, lane: usize, value: R) {
        self.0[lane] = value;
    }
    #[inline(always)]
    fn fused(mut self, a: R, b: &Self) -> Self {
        for lane in 0..N {
            self.0[lane] = a.fused(b.0[lane], self.0[lane]);
        }
        self
    }
    #[inline(always)]
    fn zip(mut self, other: Self, combine: impl Fn(R, R) -> R) -> Self {
        for lane in 0..N {
            self.0[lane] = combine(self.0[lane], other.0[lane]);
        }
        self
    }
    #[inline(always)]
    fn reduce(mut self, combine: impl Fn(R, R) -> R) -> R {
        let mut half = N / 2;
        while half > 0 {
            for lane in 0..half {
                self.0[lane] = combine(self.0[lane], self.0[lane + half]);
            }
            half /= 2;
        }
        self.0[0]
    }
}
