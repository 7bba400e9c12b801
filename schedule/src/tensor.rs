//! Tensor parallelism: the devices that do one pass together, and the part of a parameter that
//! each of them holds.

use crate::{AxisId, Parameter, Schedule, Splits};
use serde::{Deserialize, Serialize};

/// How the operations of a stage are split among the devices of one coordinate of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tensor {
    /// Devices that split the features of one layer.
    pub rows: u32,
    /// What they do where features are whole.
    #[serde(default, skip_serializing_if = "Sequence::is_whole")]
    pub sequence: Sequence,
}

/// What the rows do where features are whole, between two split regions.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Sequence {
    /// Every row does all tokens.
    #[default]
    Whole,
    /// Each row does its share of the tokens (sequence parallelism, arXiv 2205.05198).
    Split,
}

/// A parameter of which every row holds an equal part: part r is r · e .. (r + 1) · e of one
/// extent, where e is that extent of the part. What lies behind the end of the whole is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// Number of the extent that is divided.
    pub extent: u32,
    /// That extent of the whole.
    pub whole: u64,
}

impl Tensor {
    /// One device does everything.
    pub const WHOLE: Self = Self { rows: 1, sequence: Sequence::Whole };

    /// Whether one device does everything.
    pub fn is_whole(&self) -> bool {
        *self == Self::WHOLE
    }
}

impl Default for Tensor {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl Sequence {
    fn is_whole(&self) -> bool {
        *self == Sequence::Whole
    }
}

impl Parameter {
    /// Extents of the whole.
    pub fn whole_shape(&self) -> Vec<u64> {
        let mut shape = self.shape.clone();
        if let Some(Split { extent, whole }) = self.split {
            shape[extent as usize] = whole;
        }
        shape
    }

    /// Number of elements of the whole.
    pub fn whole_elements(&self) -> u64 {
        self.whole_shape().iter().product()
    }

    /// The part of `row` of a whole array whose elements are so many bytes wide.
    pub fn part_of(&self, row: u32, whole: &[u8], width: usize) -> Vec<u8> {
        let mut part = vec![0; self.shape.iter().product::<u64>() as usize * width];
        self.each_run(row, width, |own, all| part[own].copy_from_slice(&whole[all]));
        part
    }

    /// Puts the part of `row` where it belongs in a whole array.
    pub fn put_part(&self, row: u32, part: &[u8], whole: &mut [u8], width: usize) {
        self.each_run(row, width, |own, all| whole[all].copy_from_slice(&part[own]));
    }

    /// Bytes that lie one behind the other, in the part and in the whole.
    fn each_run(
        &self,
        row: u32,
        width: usize,
        mut visit: impl FnMut(std::ops::Range<usize>, std::ops::Range<usize>),
    ) {
        let (extent, whole) = match self.split {
            Some(Split { extent, whole }) => (extent as usize, whole),
            None => (0, self.shape.first().copied().unwrap_or(1)),
        };
        let own = self.shape.get(extent).copied().unwrap_or(1);
        let inner = self.shape.iter().skip(extent + 1).product::<u64>() as usize * width;
        let outer = self.shape.iter().take(extent).product::<u64>() as usize;
        let first = if self.split.is_some() { own * u64::from(row) } else { 0 };
        let length = own.min(whole.saturating_sub(first)) as usize * inner;
        for block in 0..outer {
            let start = block * own as usize * inner;
            let place = (block * whole as usize + first as usize) * inner;
            if length > 0 {
                visit(start..start + length, place..place + length);
            }
        }
    }
}

impl Schedule {
    /// The axis along which tensors are split, if there is one.
    pub fn rows_axis(&self) -> Option<AxisId> {
        let mut axes = self.axes.iter();
        axes.find(|(_, axis)| axis.splits == Splits::Rows).map(|(id, _)| id)
    }

    /// How many coordinates split one tensor among them.
    pub fn tensor_rows(&self) -> u32 {
        self.rows_axis().map_or(1, |axis| self.axes[axis].extent)
    }

    /// Which part of every split tensor a coordinate has.
    pub fn row_of(&self, coordinate: &[u32]) -> u32 {
        self.rows_axis().map_or(0, |axis| coordinate[crate::Id::index(axis)])
    }

    /// The number of a coordinate among those that take micro-batches of their own.
    pub fn batch_of(&self, coordinate: &[u32]) -> u32 {
        let axes = self.axes.values().zip(coordinate);
        let own = axes.filter(|(axis, _)| axis.splits == Splits::Batch);
        own.fold(0, |number, (axis, place)| number * axis.extent + place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Initial, Treatment};

    fn parameter(shape: &[u64], split: Option<Split>) -> Parameter {
        Parameter {
            name: "w".into(),
            stage: crate::Id::new(0),
            offset: 0,
            shape: shape.to_vec(),
            split,
            initial: Initial::Constant(0.0),
            treatment: Treatment::Decayed,
        }
    }

    #[test]
    fn parts_make_the_whole_again_along_every_extent_even_where_they_do_not_divide_it() {
        for (extent, shape) in [(0, [2, 4, 3]), (1, [5, 2, 3]), (2, [5, 4, 1])] {
            let one = parameter(
                &shape,
                Some(Split { extent, whole: [5, 4, 3][extent as usize] }),
            );
            let whole: Vec<u8> = (0..120).collect();
            let mut again = vec![0; 120];
            for row in 0..3 {
                let part = one.part_of(row, &whole, 2);
                assert_eq!(part.len() as u64, shape.iter().product::<u64>() * 2);
                one.put_part(row, &part, &mut again, 2);
            }
            assert_eq!((one.whole_shape(), again), (vec![5, 4, 3], whole));
        }
    }

    #[test]
    fn what_is_not_split_is_whole_everywhere() {
        let one = parameter(&[3, 2], None);
        let whole: Vec<u8> = (0..24).collect();
        assert_eq!(one.part_of(1, &whole, 4), whole);
    }
}
