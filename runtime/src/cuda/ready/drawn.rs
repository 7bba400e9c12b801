//! Whether one way makes the numbers of another, before it may be faster: on arrays that are drawn, and
//! where results are large, on pieces of them all over.

use super::{
    super::{
        bounce::Unreached,
        driver::{Address, Rectangle},
        likeness::{job_type, numbers, tolerance, worst},
    },
    code::Binding,
    tuning::{Bench, DEADLINE, Tried},
};
use crate::native::put;
use roundelay_kernels::{
    cuda::{CallPlace, Number, Operand},
    samples::Draw,
};
use roundelay_schedule::{Access, Bytes};

/// Numbers that are drawn for an array; behind them they come again. A prime, so that no row of an
/// array is like another.
const DRAWN: usize = 65_521;

/// Numbers lie between −1 and 1 in this many steps.
const STEPS: u64 = 4096;

/// What results hold before, where they are not added to: no number in any type.
const POISON: u8 = 0xff;

/// Pieces of a result that are looked at, and bytes of each.
const PIECES: u64 = 256;
const PIECE: u64 = 8 << 10;

/// An array of something that is tried, and where the bench has it.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Address,
    of: Operand,
}

impl Sample {
    fn reach(&self) -> (Address, Bytes) {
        (self.at, size(&self.of))
    }
}

/// How far the numbers of a way are from those of the first one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Distance {
    /// The way is refused, or the first one is.
    Unknown,
    /// Within what the types of the numbers allow.
    Near,
    /// The largest error is this share of the largest number.
    Far(f64),
}

/// Bytes of an array.
fn size(of: &Operand) -> Bytes {
    Bytes((of.elements * of.array.number.size()) as u64)
}

/// How far each operand reaches in which something with these arrays is tried, by their numbers; then
/// scratch memory.
pub(super) fn extents(arrays: &[Operand], scratch: Bytes) -> Vec<Bytes> {
    let mut operands = Vec::new();
    for of in arrays {
        if let CallPlace::Operand(operand, Bytes(from)) = of.array.place {
            let most = operands.len().max(operand + 1);
            operands.resize(most, Bytes(0));
            operands[operand] = operands[operand].max(Bytes(from + size(of).0));
        }
    }
    operands.push(scratch);
    operands
}

/// From one piece of this many bytes to the next, in whole numbers of a size; none where all are looked
/// at.
fn pitch(bytes: u64, size: u64) -> Option<u64> {
    (bytes > PIECES * PIECE).then(|| (bytes - PIECE) / (PIECES - 1) / size * size)
}

impl Bench {
    /// What the parameters of something are bound to whose arrays are those of the bench: its operands
    /// by number, then scratch memory, as [`extents`] has them.
    pub(super) fn binding(&self) -> Binding<'_> {
        let (scratch, operands) =
            self.arrays.split_last().expect("scratch memory is there, if it is none");
        Binding { workspace: self.workspace, ..Binding::of(operands, *scratch) }
    }

    /// Draws what is read, and says of every way how far its numbers are from those of the first.
    ///
    /// # Errors
    /// When something is not done in time, or the device fails.
    pub(super) fn distances(
        &mut self,
        tried: &mut dyn Tried,
        arrays: &[Operand],
    ) -> Result<Vec<Distance>, Unreached> {
        let binding = self.binding();
        let sample =
            |of: &Operand| Sample { at: binding.address(of.array.place), of: *of };
        let samples: Vec<Sample> = arrays.iter().map(sample).collect();
        let samples = &samples[..];
        for (seed, sample) in (0..).zip(samples) {
            if sample.of.access == Access::Read {
                self.draw(sample.reach(), sample.of.array.number, seed)?;
            }
        }
        let ways = tried.ways().len();
        let first = self.made_by(0, tried, samples)?;
        let mut all = vec![match first {
            Some(_) => Distance::Near,
            None => Distance::Unknown,
        }];
        for way in 1..ways {
            let own = self.made_by(way, tried, samples)?;
            all.push(
                first
                    .as_ref()
                    .zip(own.as_ref())
                    .map_or(Distance::Unknown, |(first, own)| distance(own, first)),
            );
        }
        Ok(all)
    }

    /// What a way makes, array by array; none where it is refused.
    fn made_by(
        &mut self,
        way: usize,
        tried: &mut dyn Tried,
        samples: &[Sample],
    ) -> Result<Option<Vec<Made>>, Unreached> {
        for (seed, sample) in (0..).zip(samples) {
            match sample.of.access {
                Access::Read => {}
                Access::Update => {
                    self.draw(sample.reach(), sample.of.array.number, seed)?;
                }
                Access::Write => {
                    let (at, Bytes(bytes)) = sample.reach();
                    self.stream.fill(at, POISON, bytes)?;
                }
            }
        }
        if tried.run(way, self).is_err() {
            return Ok(None);
        }
        let made = samples.iter().filter(|sample| sample.of.access != Access::Read);
        let pieces =
            made.map(|sample| Ok((sample.of.array.number, self.pieces(sample)?)));
        pieces.collect::<Result<_, _>>().map(Some)
    }

    /// Fills an array with numbers that are drawn.
    pub(super) fn draw(
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
        self.bounce.write(&self.stream, to, &block, DEADLINE)?;
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
    fn pieces(&mut self, sample: &Sample) -> Result<Vec<f64>, Unreached> {
        let (from, Bytes(bytes)) = sample.reach();
        let number = sample.of.array.number;
        let mut found = vec![0; bytes.min(PIECES * PIECE) as usize];
        let (stream, bounce) = (&self.stream, &mut self.bounce);
        let Some(pitch) = pitch(bytes, number.size() as u64) else {
            bounce.read(stream, from, &mut found, DEADLINE)?;
            return Ok(numbers(&found, number));
        };
        let gathered = self.workspace;
        stream.copy_rows(
            Rectangle { start: from, pitch },
            Rectangle { start: gathered, pitch: PIECE },
            PIECE,
            PIECES,
        )?;
        bounce.read(stream, gathered, &mut found, DEADLINE)?;
        let mut end = vec![0; PIECE as usize];
        bounce.read(stream, from.plus(bytes - PIECE), &mut end, DEADLINE)?;
        found.extend(end);
        Ok(numbers(&found, number))
    }
}

/// Numbers of one type that were looked at in an array.
type Made = (Number, Vec<f64>);

/// The distance of the array that is furthest, by what its type allows.
fn distance(own: &[Made], first: &[Made]) -> Distance {
    let errors = own.iter().zip(first).map(|((number, own), (_, first))| {
        let (error, _) = worst(own, first);
        (error / tolerance(*number), error)
    });
    let furthest = errors.fold(
        (0.0, 0.0),
        |most: (f64, f64), own| {
            if own.0 > most.0 { own } else { most }
        },
    );
    if furthest.0 <= 1.0 { Distance::Near } else { Distance::Far(furthest.1) }
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

    #[test]
    fn every_array_counts_by_its_own_type() {
        let numbers = |wide: f64, narrow: f64| {
            [(Number::F32, vec![1.0 + wide]), (Number::Bf16, vec![2.0, 2.0 + narrow])]
        };
        let first = numbers(0.0, 0.0);
        assert_eq!(distance(&numbers(0.0, 1e-3), &first), Distance::Near);
        let far = Distance::Far(0.5);
        assert_eq!(distance(&numbers(0.5, 1e-3), &first), far);
        assert_eq!(
            distance(&numbers(f64::NAN, 0.0), &first),
            Distance::Far(f64::INFINITY)
        );
    }
}
