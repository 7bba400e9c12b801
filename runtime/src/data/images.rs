//! Images of files: which one an example takes, and the numbers it becomes.
//!
//! All images are kept as bytes at the size that the model takes, so that feeding reads no file;
//! what would not fit the declared limit is refused before it is read.

mod cifar;
mod decode;
mod folder;
mod resize;
mod stock;

use super::{
    DataError, Example, ImageFacts,
    pictures::{Part, Pictures},
};
use crate::digest::Digest;
use roundelay_kernels::random::Stream;
use roundelay_schedule::{Augmentation, InputId, Job};
use std::{path::Path, sync::Arc};
use stock::{Move, Stock};

pub(super) use cifar::files as cifar10_files;
pub(super) use folder::{paths as folder_files, would_take};

/// Labels the stream of choices.
const CHOICE: u64 = u64::from_le_bytes(*b"pic-choi");

/// Labels the stream of shifts and mirrors.
const MOVE: u64 = u64::from_le_bytes(*b"pic-move");

/// Pixels that an image is shifted by at most, each way.
const SHIFT: u64 = 4;

/// Images with classes.
#[derive(Clone, Debug)]
pub(super) struct Images {
    pictures: Pictures,
    stock: Arc<Stock>,
    augment: Augmentation,
    seed: u64,
}

impl Images {
    /// CIFAR-10 in its binary form.
    pub(super) fn cifar10(
        folder: &Path,
        augment: Augmentation,
        job: &Job,
    ) -> Result<Self, DataError> {
        let pictures = Pictures::required(job, "cifar10")?;
        pictures.demand("cifar10", [cifar::SIDE; 2])?;
        Self::new(pictures, cifar::read(folder)?, augment, job)
    }

    /// PNG and JPEG files, one folder per class.
    pub(super) fn folder(folder: &Path, job: &Job) -> Result<Self, DataError> {
        let pictures = Pictures::required(job, "images")?;
        let extent = pictures.extent.unwrap_or([1, 1]);
        Self::new(pictures, folder::read(folder, extent)?, Augmentation::None, job)
    }

    fn new(
        pictures: Pictures,
        stock: Stock,
        augment: Augmentation,
        job: &Job,
    ) -> Result<Self, DataError> {
        pictures.hold(stock.classes())?;
        stock.demand("training", stock.training())?;
        Ok(Self { pictures, stock: Arc::new(stock), augment, seed: job.seed })
    }

    /// What is known of them.
    pub(super) fn facts(&self) -> ImageFacts {
        self.stock.facts()
    }

    /// All that examples are made of.
    pub(super) fn add_to(&self, digest: &mut Digest) {
        self.stock.add_to(digest);
        digest.add(match self.augment {
            Augmentation::None => b"as they are",
            Augmentation::Shift => b"shifted",
        });
    }

    /// Number of held-out images.
    pub(super) fn held_out(&self) -> Result<u64, DataError> {
        let found = self.stock.held_out();
        self.stock.demand("held-out", found).map(|()| found)
    }

    /// Writes one example's row of an input.
    pub(super) fn fill(&self, input: InputId, example: Example, row: &mut [u8]) {
        let image = self.choose(example);
        match self.pictures.part(input) {
            Part::Targets => self.pictures.write_class(self.stock.class(image), row),
            Part::Images => {
                let moved = self.moved(example);
                let pixel = |y, x| self.stock.pixel(image, moved, y, x);
                self.pictures.write(pixel, row);
            }
        }
    }

    /// Any training image, all equally likely; held-out images one after another.
    fn choose(&self, example: Example) -> u64 {
        match example {
            Example::Training { step, index } => {
                let choice = Stream::new(self.seed, &[CHOICE, step]);
                choice.below(index, self.stock.training())
            }
            Example::HeldOut { index } => self.stock.training() + index,
        }
    }

    /// How a training image is moved; held-out images stay as they are.
    fn moved(&self, example: Example) -> Move {
        match (self.augment, example) {
            (Augmentation::None, _) | (_, Example::HeldOut { .. }) => Move::default(),
            (Augmentation::Shift, Example::Training { step, index }) => {
                let chance = Stream::new(self.seed, &[MOVE, step, index]);
                let shift = |k| chance.below(k, 2 * SHIFT + 1) as i64 - SHIFT as i64;
                Move { down: shift(0), right: shift(1), mirror: chance.below(2, 2) == 1 }
            }
        }
    }
}

#[cfg(test)]
mod tests;
