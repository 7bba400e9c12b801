//! Geometric figures drawn by code, for models of images that train without files.
//!
//! The class says which figure is drawn and whether it is filled; where it stands, its size, turn,
//! colour, the background and the noise say nothing about the class. The stream of training
//! figures never ends. Held-out figures come from a stream with another label, so that none of
//! them is a training figure, and do not depend on the job's seed.

mod canvas;
mod figure;

use super::{
    DataError, Example, ImageFacts,
    pictures::{Part, Pictures},
};
use canvas::Canvas;
use figure::CLASSES;
use roundelay_kernels::random::Stream;
use roundelay_schedule::{InputId, Job};
use std::ops::RangeInclusive;

/// Labels the stream of figures.
const FIGURE: u64 = u64::from_le_bytes(*b"shapes  ");

/// Heights and widths that are drawn.
const SIZES: RangeInclusive<u64> = 16..=256;

/// Index of the number of a stream that chooses the class.
const CLASS: u64 = 0;

/// A source of figures.
#[derive(Clone, Debug)]
pub(super) struct Shapes {
    pictures: Pictures,
    classes: u64,
    size: u64,
    seed: u64,
    /// The job's seed: which figures its training sees.
    order: u64,
}

impl Shapes {
    /// Figures of `classes` classes on canvases of `size` by `size` pixels.
    pub(super) fn new(
        classes: u64,
        size: u64,
        seed: u64,
        job: &Job,
    ) -> Result<Self, DataError> {
        let classes_drawn = 2..=CLASSES.len() as u64;
        if !classes_drawn.contains(&classes) || !SIZES.contains(&size) {
            return Err(DataError::Shapes { classes, size, classes_drawn, sizes: SIZES });
        }
        let pictures = Pictures::required(job, "shapes")?;
        pictures.demand("shapes", [size; 2])?;
        pictures.hold(classes)?;
        Ok(Self { pictures, classes, size, seed, order: job.seed })
    }

    /// What is known of them.
    pub(super) fn facts(&self) -> ImageFacts {
        ImageFacts { parts: None, classes: self.classes, left_out: 0 }
    }

    /// What tells one source from another.
    pub(super) fn key(&self) -> [u64; 3] {
        [self.classes, self.size, self.seed]
    }

    /// Writes one example's row of an input.
    pub(super) fn fill(&self, input: InputId, example: Example, row: &mut [u8]) {
        let chance = self.stream(example);
        let class = chance.below(CLASS, self.classes) as u32;
        match self.pictures.part(input) {
            Part::Targets => self.pictures.write_class(class, row),
            Part::Images => {
                let canvas = Canvas::drawn(CLASSES[class as usize], self.size, chance);
                self.pictures.write(|y, x| canvas.pixel(y, x), row);
            }
        }
    }

    /// The numbers of one figure.
    fn stream(&self, example: Example) -> Stream {
        match example {
            Example::Training { step, index } => {
                Stream::new(self.seed, &[FIGURE, 0, self.order, step, index])
            }
            Example::HeldOut { index } => Stream::new(self.seed, &[FIGURE, 1, index]),
        }
    }
}

#[cfg(test)]
mod tests;
