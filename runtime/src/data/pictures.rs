//! Which inputs of the model hold images, and which their classes.

use super::{
    DataError,
    inputs::{INTEGERS, bound, spell},
};
use half::{bf16, f16};
use roundelay_schedule::{Element, Float, Id, Input, InputId, Job};

/// Channels of an image: red, green, blue.
pub(super) const CHANNELS: u64 = 3;

/// Red, green and blue of a pixel, as the model sees them.
pub(super) type Colour = [f32; CHANNELS as usize];

/// The most elements of one image.
const LIMIT: u64 = 1 << 24;

/// Inputs `images` of shape [examples, height, width, 3] and `targets` of shape [examples]; a
/// model may take one of them alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pictures {
    /// What each input holds.
    parts: Vec<Part>,
    /// Height and width; none where the model takes no images.
    pub(super) extent: Option<[u64; 2]>,
    /// Classes are below; no more than i32 can hold.
    pub(super) bound: u64,
    /// Element type of the images.
    dtype: Float,
}

/// What an input holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Pixels.
    Images,
    /// Classes.
    Targets,
}

impl Pictures {
    /// The inputs of a job, or an error that lists what the model has.
    pub(super) fn required(job: &Job, data: &'static str) -> Result<Self, DataError> {
        let refuse = || DataError::ImageInputs { data, found: spell(job) };
        let part = |input: &Input| part(input).ok_or_else(refuse);
        let inputs = || job.data_inputs().map(|(_, input)| input);
        let parts = inputs().map(part).collect::<Result<Vec<_>, _>>()?;
        let find = |wanted| {
            let mut found = inputs().zip(&parts).filter(|(_, p)| **p == wanted);
            let first = found.next().map(|(input, _)| input);
            found.next().is_none().then_some(first).ok_or_else(refuse)
        };
        let (images, targets) = (find(Part::Images)?, find(Part::Targets)?);
        let mut examples = inputs().map(|input| input.shape[0]);
        let first =
            examples.next().filter(|examples| *examples > 0).ok_or_else(refuse)?;
        if examples.any(|other| other != first) {
            return Err(refuse());
        }
        Ok(Self {
            extent: images.map(|input| [input.shape[1], input.shape[2]]),
            bound: targets.map_or(INTEGERS, bound),
            dtype: job.dtype,
            parts,
        })
    }

    /// Refuses images of another height and width than the source has.
    pub(super) fn demand(
        &self,
        data: &'static str,
        needed: [u64; 2],
    ) -> Result<(), DataError> {
        match self.extent {
            Some(found) if found != needed => {
                Err(DataError::ImageSize { data, needed, found })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Refuses more classes than the model tells apart.
    pub(super) fn hold(&self, classes: u64) -> Result<(), DataError> {
        let bound = self.bound;
        let many = || DataError::Classes { classes, bound };
        (classes <= bound).then_some(()).ok_or_else(many)
    }

    /// What an input holds.
    pub(super) fn part(&self, input: InputId) -> Part {
        self.parts[input.index()]
    }

    /// Writes the class of an example.
    pub(super) fn write_class(&self, class: u32, row: &mut [u8]) {
        row.copy_from_slice(&(class as i32).to_ne_bytes());
    }

    /// Writes an image in the type of the job; `pixel` gives the colour at a row and a column.
    pub(super) fn write(&self, pixel: impl Fn(usize, usize) -> Colour, row: &mut [u8]) {
        match self.dtype {
            Float::F32 => self.put(row, |y, x| pixel(y, x).map(f32::to_ne_bytes)),
            Float::F64 => {
                self.put(row, |y, x| {
                    pixel(y, x).map(|value| f64::from(value).to_ne_bytes())
                });
            }
            Float::Bf16(_) => self.put(row, |y, x| {
                pixel(y, x).map(|value| bf16::from_f32(value).to_ne_bytes())
            }),
            Float::F16(_) => self.put(row, |y, x| {
                pixel(y, x).map(|value| f16::from_f32(value).to_ne_bytes())
            }),
        }
    }

    /// Writes the numbers of each pixel, row by row.
    fn put<const SIZE: usize>(
        &self,
        row: &mut [u8],
        numbers: impl Fn(usize, usize) -> [[u8; SIZE]; CHANNELS as usize],
    ) {
        let width = self.extent.map_or(1, |[_, width]| width as usize);
        let pixel = CHANNELS as usize * SIZE;
        for (y, line) in row.chunks_exact_mut(width * pixel).enumerate() {
            for (x, place) in line.chunks_exact_mut(pixel).enumerate() {
                place.copy_from_slice(numbers(y, x).as_flattened());
            }
        }
    }
}

fn part(input: &Input) -> Option<Part> {
    match (input.name.as_str(), input.element, input.shape.as_slice()) {
        ("images", Element::Real, [_, height, width, CHANNELS]) => {
            let pixels = height.checked_mul(*width)?.checked_mul(CHANNELS)?;
            (1..=LIMIT).contains(&pixels).then_some(Part::Images)
        }
        ("targets", Element::I32, [_]) => Some(Part::Targets),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tests::{input, job};
    use roundelay_schedule::Data;

    fn pictures(inputs: &[Input]) -> Result<Pictures, DataError> {
        Pictures::required(&job(Data::Synthetic, inputs), "shapes")
    }

    fn images(shape: &[u64]) -> Input {
        input("images", Element::Real, shape, 0)
    }

    fn targets(examples: u64) -> Input {
        input("targets", Element::I32, &[examples], 10)
    }

    #[test]
    fn images_and_classes_go_by_name() {
        let found = pictures(&[targets(4), images(&[4, 5, 6, 3])]).unwrap();
        assert_eq!((found.extent, found.bound), (Some([5, 6]), 10));
        assert_eq!(found.part(InputId::new(0)), Part::Targets);
        assert_eq!(found.part(InputId::new(1)), Part::Images);
        let alone = pictures(&[images(&[4, 5, 6, 3])]).unwrap();
        assert_eq!(alone.bound, 1 << 31);
        assert_eq!(pictures(&[targets(4)]).unwrap().extent, None);
    }

    #[test]
    fn other_inputs_are_listed() {
        let cases = [
            vec![],
            vec![images(&[4, 5, 6, 1])],
            vec![images(&[4, 5, 6])],
            vec![images(&[4, 0, 6, 3])],
            vec![images(&[4, 1 << 40, 1 << 40, 3])],
            vec![images(&[0, 5, 6, 3])],
            vec![images(&[4, 5, 6, 3]), targets(3)],
            vec![targets(3), targets(3)],
            vec![images(&[4, 5, 6, 3]), input("x", Element::I32, &[4], 0)],
            vec![input("images", Element::I32, &[4, 5, 6, 3], 0)],
        ];
        for case in cases {
            let error = pictures(&case).unwrap_err().to_string();
            for one in &case {
                assert!(error.contains(&format!("`{}: ", one.name)), "{error}");
            }
        }
    }
}
