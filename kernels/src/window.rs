//! Windows that move over images: which pixel a tap sees, and how large the result is.

use crate::signature::{Signature, product};

/// A window that moves over the two extents of an image, padded on all four sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Height and width of the image.
    pub(crate) input: [usize; 2],
    /// Height and width of the result: (input + 2 padding − kernel) / stride + 1, rounded down.
    pub(crate) output: [usize; 2],
    /// Height and width of the window.
    pub(crate) kernel: [usize; 2],
    /// Pixels from one place of the window to the next.
    pub(crate) stride: usize,
    /// Pixels around the image.
    pub(crate) padding: usize,
}

/// Larger strides and paddings mean nothing, and might overflow.
const MOST: i64 = 1 << 20;

impl Window {
    /// Reads the attributes `stride` and `padding`.
    pub(crate) fn parse(
        call: &mut Signature<'_>,
        input: [usize; 2],
        kernel: [usize; 2],
    ) -> Result<Self, String> {
        let range = |least| move |value: i64| (least..=MOST).contains(&value);
        let stride = call.integer("stride", "from 1 to 1048576", range(1))? as usize;
        let padding = call.integer("padding", "from 0 to 1048576", range(0))? as usize;
        let places = |axis: usize| {
            let room = (input[axis] + 2 * padding).checked_sub(kernel[axis]);
            room.map(|room| room / stride + 1)
        };
        match (places(0), places(1)) {
            (Some(height), Some(width)) => {
                Ok(Self { input, output: [height, width], kernel, stride, padding })
            }
            _ => Err(format!(
                "a window of {kernel:?} is larger than images of {input:?} with padding \
                 {padding}"
            )),
        }
    }

    /// Pixels of an image.
    pub(crate) fn pixels(&self) -> usize {
        self.input[0] * self.input[1]
    }

    /// Places of the window in an image.
    pub(crate) fn places(&self) -> usize {
        self.output[0] * self.output[1]
    }

    /// Places of the window in this many images; saturates, which no operand fits.
    pub(crate) fn places_of(&self, batch: usize) -> usize {
        let places = product([batch, self.output[0], self.output[1]]);
        usize::try_from(places).unwrap_or(usize::MAX)
    }

    /// Taps of the window.
    pub(crate) fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// The row or column of the image that `tap` sees from `place`, unless it is padding.
    #[inline(always)]
    pub(crate) fn seen(&self, axis: usize, place: usize, tap: usize) -> Option<usize> {
        let at = (place * self.stride + tap).checked_sub(self.padding)?;
        (at < self.input[axis]).then_some(at)
    }

    /// The place from which `tap` sees the row or column `at` of the image.
    #[inline(always)]
    pub(crate) fn place(&self, axis: usize, at: usize, tap: usize) -> Option<usize> {
        let from = (at + self.padding).checked_sub(tap)?;
        let place = from / self.stride;
        (from.is_multiple_of(self.stride) && place < self.output[axis]).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_what_they_see_are_inverse() {
        for (input, kernel, stride, padding) in [(7, 3, 1, 1), (8, 3, 2, 1), (9, 5, 3, 0)]
        {
            let places = (input + 2 * padding - kernel) / stride + 1;
            let (input, output, kernel) = ([input; 2], [places; 2], [kernel; 2]);
            let window = Window { input, output, kernel, stride, padding };
            for tap in 0..kernel[0] {
                for place in 0..places {
                    if let Some(at) = window.seen(0, place, tap) {
                        assert_eq!(window.place(0, at, tap), Some(place));
                    }
                }
                for at in 0..input[1] {
                    if let Some(place) = window.place(1, at, tap) {
                        assert_eq!(window.seen(1, place, tap), Some(at));
                    }
                }
            }
        }
    }
}
