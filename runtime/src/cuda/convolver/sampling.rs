//! Whether the library makes the numbers of our functions, before it may be faster: on arrays that
//! are drawn, and where results are large, on pieces of them all over.

use super::{
    super::{
        bounce::Unreached,
        driver::{Address, Rectangle},
        likeness::{job_type, numbers, tolerance, worst},
        tuning::{Bench, PATIENCE, Tried},
    },
    Trial, words,
};
use crate::native::put;
use roundelay_kernels::{
    cuda::{Accumulation, Array, Convolution, Convolved, Number},
    samples::Draw,
};
use roundelay_schedule::Bytes;

/// Numbers that are drawn for an array; behind them they come again. A prime, so that no row of an
/// array is like another.
const DRAWN: usize = 65_521;

/// Numbers lie between −1 and 1 in so many steps.
const STEPS: u64 = 4096;

/// What results hold before, where they are not added to: no number in any type.
const POISON: u8 = 0xff;

/// Pieces of a result that are looked at, and bytes of each.
const PIECES: u64 = 256;
const PIECE: u64 = 8 << 10;

/// The arrays of a convolution and their sizes.
pub(super) fn sizes(of: &Convolution) -> [(Array, Bytes); 3] {
    let images = |[height, width]: [usize; 2], channels: usize| {
        [of.batch, height, width, channels].into_iter().product::<usize>()
    };
    let weights = of.filters * of.kernel[0] * of.kernel[1] * (of.channels / of.groups);
    let sized = |array: Array, elements: usize| {
        (array, Bytes((elements * array.number.size()) as u64))
    };
    [
        sized(of.x, images(of.input, of.channels)),
        sized(of.weight, weights),
        sized(of.y, images(of.output, of.filters)),
    ]
}

/// Which of [`sizes`] is made.
fn made(of: &Convolution) -> usize {
    match of.pass {
        Convolved::Images => 0,
        Convolved::Filters => 1,
        Convolved::Results => 2,
    }
}

/// From one piece of so many bytes to the next, in whole numbers of a size; none where all are looked
/// at.
fn pitch(bytes: u64, size: u64) -> Option<u64> {
    (bytes > PIECES * PIECE).then(|| (bytes - PIECE) / (PIECES - 1) / size * size)
}

impl Trial<'_> {
    /// Draws what is read, and says of our functions and of every algorithm whether it makes the
    /// numbers of our functions.
    pub(super) fn sift(&mut self, bench: &mut Bench) -> Result<Vec<bool>, Unreached> {
        let made = made(self.convolution);
        for (place, (array, size)) in sizes(self.convolution).into_iter().enumerate() {
            let at = self.binding(bench).address(array.place);
            if place != made {
                bench.draw((at, size), array.number, place as u64)?;
            }
        }
        let own = self.made_by(0, bench)?;
        let mut open = vec![true];
        for algorithm in 0..self.algorithms.len() {
            let found = self.made_by(algorithm + 1, bench)?;
            let both = own.as_deref().zip(found.as_deref());
            open.push(
                both.is_some_and(|(own, found)| self.are_like(algorithm, found, own)),
            );
        }
        Ok(open)
    }

    /// What a way makes; none where it is refused.
    fn made_by(
        &mut self,
        way: usize,
        bench: &mut Bench,
    ) -> Result<Option<Vec<f64>>, Unreached> {
        let place = made(self.convolution);
        let (array, size) = sizes(self.convolution)[place];
        let at = self.binding(bench).address(array.place);
        match self.convolution.accumulation {
            Accumulation::Add => bench.draw((at, size), array.number, place as u64)?,
            Accumulation::Replace => bench.stream.fill(at, POISON, size.0)?,
        }
        match self.run(way, bench) {
            Ok(()) => bench.pieces((at, size), array.number).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Whether numbers of an algorithm are near enough to our own; tells of those that are not.
    fn are_like(&mut self, algorithm: usize, found: &[f64], own: &[f64]) -> bool {
        let (array, _) = sizes(self.convolution)[made(self.convolution)];
        let (error, _) = worst(found, own);
        let near = error <= tolerance(array.number);
        if !near {
            self.tell(algorithm, error);
        }
        near
    }

    fn tell(&mut self, algorithm: usize, error: f64) {
        let (algorithm, words) = (self.algorithms[algorithm], words(self.convolution));
        self.wrong.get_or_insert_with(|| {
            format!(
                "of {words} it makes other numbers by {algorithm} than our functions, off by {error:.1e} \
                 of the largest"
            )
        });
    }
}

impl Bench {
    /// Fills an array with numbers that are drawn.
    pub(in super::super) fn draw(
        &mut self,
        (to, Bytes(bytes)): (Address, Bytes),
        number: Number,
        seed: u64,
    ) -> Result<(), Unreached> {
        let (mut draw, size) = (Draw::new(seed), number.size());
        let mut block = vec![0; DRAWN.min(bytes as usize / size) * size];
        for place in block.chunks_exact_mut(size) {
            let step = draw.below(2 * STEPS + 1) as f64 / STEPS as f64;
            put(job_type(number), step - 1.0, place);
        }
        self.bounce.write(&self.stream, to, &block, PATIENCE)?;
        let mut done = block.len() as u64;
        while done < bytes {
            let more = done.min(bytes - done);
            self.stream.copy(to, to.plus(done), more)?;
            done += more;
        }
        Ok(())
    }

    /// An array, or pieces of it that lie equally far from each other, the first one at its
    /// beginning; and its end.
    fn pieces(
        &mut self,
        (from, Bytes(bytes)): (Address, Bytes),
        number: Number,
    ) -> Result<Vec<f64>, Unreached> {
        let mut found = vec![0; bytes.min(PIECES * PIECE) as usize];
        let (stream, bounce) = (&self.stream, &mut self.bounce);
        let Some(pitch) = pitch(bytes, number.size() as u64) else {
            bounce.read(stream, from, &mut found, PATIENCE)?;
            return Ok(numbers(&found, number));
        };
        let gathered = self.workspace;
        stream.copy_rows(
            Rectangle { start: from, pitch },
            Rectangle { start: gathered, pitch: PIECE },
            PIECE,
            PIECES,
        )?;
        bounce.read(stream, gathered, &mut found, PATIENCE)?;
        let mut end = vec![0; PIECE as usize];
        bounce.read(stream, from.plus(bytes - PIECE), &mut end, PATIENCE)?;
        found.extend(end);
        Ok(numbers(&found, number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_apart_and_reach_the_end() {
        let all = PIECES * PIECE;
        assert_eq!((pitch(all, 4), pitch(16, 2)), (None, None));
        for bytes in [all + 4, all + 1024, 3 * all - 8, 1 << 30] {
            for size in [2, 4] {
                let pitch = pitch(bytes, size).expect("only pieces are looked at");
                assert!(pitch >= PIECE && pitch.is_multiple_of(size), "{bytes} {pitch}");
                let rest = bytes.checked_sub((PIECES - 1) * pitch + PIECE);
                // What is behind the last piece is looked at too.
                assert!(rest.is_some_and(|rest| rest < PIECES * size), "{bytes}");
            }
        }
    }
}
