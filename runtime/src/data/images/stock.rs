//! Images in memory: bytes of pixels, classes, and how a byte becomes a number.

use crate::{
    data::{
        DataError, ImageFacts,
        pictures::{CHANNELS, Colour},
    },
    digest::Digest,
};

/// The most bytes of pixels.
const LIMIT: u64 = 2 << 30;

/// Images of one size; those that training may see come first.
#[derive(Debug)]
pub(in crate::data) struct Stock {
    /// The folder, for messages.
    folder: String,
    height: usize,
    width: usize,
    /// Rows of pixels of three bytes, one image after another.
    pixels: Vec<u8>,
    classes: Vec<u32>,
    training: u64,
    /// Files of the folder that are no images.
    left_out: u64,
    /// What a byte becomes, by channel.
    numbers: [[f32; 256]; CHANNELS as usize],
}

/// How an image is moved before it is looked at: shifted, then mirrored left to right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Move {
    /// Pixels down.
    pub(super) down: i64,
    /// Pixels to the right.
    pub(super) right: i64,
    /// Whether left and right change places.
    pub(super) mirror: bool,
}

/// Mean and standard deviation of a channel, where a byte of 255 is one.
pub(super) type Norms = [(f64, f64); CHANNELS as usize];

impl Stock {
    /// No images yet.
    pub(super) fn new(folder: String, [height, width]: [u64; 2], norms: Norms) -> Self {
        let number = |(mean, deviation): (f64, f64)| {
            std::array::from_fn(|byte| ((byte as f64 / 255.0 - mean) / deviation) as f32)
        };
        Self {
            folder,
            height: height as usize,
            width: width as usize,
            pixels: Vec::new(),
            classes: Vec::new(),
            training: 0,
            left_out: 0,
            numbers: norms.map(number),
        }
    }

    /// Bytes of one image.
    pub(super) fn image_bytes(&self) -> usize {
        self.height * self.width * CHANNELS as usize
    }

    /// Makes room for images, before they are read.
    ///
    /// # Errors
    /// When the declared limit is exceeded.
    pub(super) fn reserve(&mut self, images: u64) -> Result<(), DataError> {
        let all = (self.classes.len() as u64).saturating_add(images);
        let found = all.saturating_mul(self.image_bytes() as u64);
        if found > LIMIT {
            let pattern = self.folder.clone();
            return Err(DataError::TooLarge { pattern, found, limit: LIMIT });
        }
        self.pixels.reserve_exact(images as usize * self.image_bytes());
        Ok(())
    }

    /// Adds an image; `write` appends its pixels.
    pub(super) fn push(&mut self, class: u32, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.pixels);
        self.classes.push(class);
        let expected = self.classes.len() * self.image_bytes();
        assert_eq!(self.pixels.len(), expected, "every image is written whole");
    }

    /// What was added so far is for training; what comes is held out.
    pub(super) fn end_training(&mut self) {
        self.training = self.classes.len() as u64;
    }

    /// So many files of the folder are no images.
    pub(super) fn leave_out(&mut self, files: u64) {
        self.left_out = files;
    }

    /// What is known of the images.
    pub(super) fn facts(&self) -> ImageFacts {
        let parts = Some([self.training(), self.held_out()]);
        ImageFacts { parts, classes: self.classes(), left_out: self.left_out }
    }

    /// Refuses a part without images.
    pub(super) fn demand(&self, part: &'static str, found: u64) -> Result<(), DataError> {
        let none = || DataError::NoImages { part, folder: self.folder.clone() };
        (found > 0).then_some(()).ok_or_else(none)
    }

    /// Number of training images.
    pub(in crate::data) fn training(&self) -> u64 {
        self.training
    }

    /// Number of held-out images.
    pub(in crate::data) fn held_out(&self) -> u64 {
        self.classes.len() as u64 - self.training
    }

    /// One more than the largest class.
    pub(super) fn classes(&self) -> u64 {
        self.classes.iter().max().map_or(0, |class| u64::from(*class) + 1)
    }

    /// The class of an image.
    pub(super) fn class(&self, image: u64) -> u32 {
        self.classes[image as usize]
    }

    /// Pixels, classes, and where the training part ends.
    pub(super) fn add_to(&self, digest: &mut Digest) {
        digest.add(&self.pixels);
        self.classes.iter().for_each(|class| digest.add(&class.to_le_bytes()));
        digest.add(&self.training.to_le_bytes());
    }

    /// The pixel of an image at a row and a column; black where a shift leaves nothing.
    pub(super) fn pixel(&self, image: u64, moved: Move, y: usize, x: usize) -> Colour {
        let (height, width) = (self.height as i64, self.width as i64);
        let shown = if moved.mirror { width - 1 - x as i64 } else { x as i64 };
        let (y, x) = (y as i64 - moved.down, shown - moved.right);
        let bytes = if (0..height).contains(&y) && (0..width).contains(&x) {
            let pixel =
                (image as usize * self.height + y as usize) * self.width + x as usize;
            let (pixels, _) = self.pixels.as_chunks::<{ CHANNELS as usize }>();
            pixels[pixel]
        } else {
            [0; CHANNELS as usize]
        };
        std::array::from_fn(|channel| self.numbers[channel][usize::from(bytes[channel])])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stock() -> Stock {
        let mut stock = Stock::new("x".into(), [2, 3], [(0.0, 1.0 / 255.0); 3]);
        stock.reserve(1).unwrap();
        stock.push(0, |pixels| pixels.extend(1..=18));
        stock
    }

    /// The first channel of each pixel.
    fn seen(down: i64, right: i64, mirror: bool) -> Vec<f32> {
        let (stock, moved) = (stock(), Move { down, right, mirror });
        let places = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)];
        places.map(|(y, x)| stock.pixel(0, moved, y, x)[0].round()).to_vec()
    }

    #[test]
    fn images_shift_and_turn_round() {
        assert_eq!(seen(0, 0, false), [1.0, 4.0, 7.0, 10.0, 13.0, 16.0]);
        assert_eq!(seen(0, 1, false), [0.0, 1.0, 4.0, 0.0, 10.0, 13.0]);
        assert_eq!(seen(1, -1, false), [0.0, 0.0, 0.0, 4.0, 7.0, 0.0]);
        assert_eq!(seen(0, 0, true), [7.0, 4.0, 1.0, 16.0, 13.0, 10.0]);
        assert_eq!(seen(0, 1, true), [4.0, 1.0, 0.0, 13.0, 10.0, 0.0]);
        assert_eq!(seen(4, 4, true), [0.0; 6]);
    }

    #[test]
    fn too_many_pixels_are_refused_before_they_are_read() {
        let error = stock().reserve(1 << 40).unwrap_err();
        assert!(matches!(error, DataError::TooLarge { limit: LIMIT, .. }), "{error}");
    }
}
