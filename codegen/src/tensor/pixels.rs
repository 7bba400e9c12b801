//! What operations on images become where the rows of a grid divide their height: every device has
//! all channels and all weights, and its own rows of pixels. Windows read halos, statistics of norms
//! meet, and gradients of weights are shares that meet.

use super::{
    halos::Sliding,
    layout::{Along, Layout},
    local::Local,
};
use crate::stage::StageError;
use roundelay_dsl::{Extent, Operation, Padding, Part, Source};
use roundelay_schedule::{Direction, Images, gcd};

/// Extents of images (b, h, w, c), and the one that rows divide.
const EXTENTS: usize = 4;
const HEIGHT: u32 = 1;

/// Own rows of pixels.
const PIXELS: Layout = Layout { rows: Along::Split(HEIGHT), columns: Along::Whole };

/// What all rows use alike.
const ALIKE: Layout = Layout { rows: Along::Varying, columns: Along::Whole };

fn has_window(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::Conv2d { .. } | Operation::MaxPool { .. } | Operation::AvgPool { .. }
    )
}

impl Local<'_> {
    /// What becomes of an operation on images whose pixels are divided; none for other ones.
    pub(super) fn on_pixels(
        &mut self,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> Option<(Source, Layout)> {
        if self.tensor.images == Images::Whole {
            return None;
        }
        let lies_so = operands.first().is_some_and(|x| self.has_pixels(*x));
        match operation {
            _ if has_window(operation) => Some(self.window(operation, operands, shape)),
            Operation::BatchNorm if lies_so => {
                Some(self.pixel_norm(Part::BatchNorm, operands, shape))
            }
            Operation::GroupNorm { groups } if lies_so => {
                Some(self.pixel_norm(Part::GroupNorm { groups }, operands, shape))
            }
            Operation::GlobalPool if lies_so => {
                Some(self.mean_of_pixels(operands, shape))
            }
            Operation::Linear | Operation::Upsample { .. } if lies_so => {
                Some(self.pixel_by_pixel(operation, operands, shape))
            }
            _ => None,
        }
    }

    /// Whether an array is of images whose rows of pixels are divided.
    fn has_pixels(&self, x: Source) -> bool {
        self.shape(x).len() == EXTENTS && self.layout(x) == PIXELS
    }

    /// A window that moves over the height: it reads own rows and halos, and pads nothing.
    fn window(
        &mut self,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let read = self.shape(operands[0]);
        let (sliding, padding, unpadded) = self.sliding(operation, operands, &read);
        if !sliding.is_even() {
            self.refuse_height(sliding);
            return self.replicated(operation, operands, shape);
        }
        self.splits_pixels = true;
        let mut own = vec![self.want(operands[0], PIXELS)];
        if !sliding.is_local() {
            let side = sliding.padding;
            let halo = Part::Halo {
                before: sliding.padding,
                step: sliding.step(),
                side,
                padding,
            };
            let mut made = read.clone();
            made[HEIGHT as usize].size = sliding.rows() * sliding.parts;
            made[HEIGHT as usize + 1].size += 2 * side;
            let brought = vec![own[0]];
            let part = (halo, Direction::Rows);
            own = vec![self.part("halo", part, brought, (&made, PIXELS))];
        }
        own.extend(operands[1..].iter().map(|weight| self.want(*weight, ALIKE)));
        (self.add("", unpadded, own, (shape, PIXELS)), PIXELS)
    }

    /// The window of an operation, what stands around the image, and the operation without padding.
    fn sliding(
        &self,
        operation: Operation,
        operands: &[Source],
        read: &[Extent],
    ) -> (Sliding, Padding, Operation) {
        let (extent, parts) = (read[HEIGHT as usize].size, self.parts(Direction::Rows));
        let of =
            |kernel, stride, padding| Sliding { extent, parts, kernel, stride, padding };
        match operation {
            Operation::Conv2d { stride, padding, groups } => {
                let kernel = self.shape(operands[1])[HEIGHT as usize].size;
                let own = Operation::Conv2d { stride, padding: 0, groups };
                (of(kernel, stride, padding), Padding::Zero, own)
            }
            Operation::MaxPool { size, stride, padding } => {
                let own = Operation::MaxPool { size, stride, padding: 0 };
                (of(size, stride, padding), Padding::Lowest, own)
            }
            Operation::AvgPool { size, stride, padding } => {
                let own = Operation::AvgPool { size, stride, padding: 0 };
                (of(size, stride, padding), Padding::Zero, own)
            }
            _ => unreachable!("the caller matched an operation with a window"),
        }
    }

    /// Refuses a height that the rows of the grid do not divide.
    fn refuse_height(&mut self, sliding: Sliding) {
        let Sliding { extent, parts, .. } = sliding;
        let odd = |height: &u64| !height.is_multiple_of(parts);
        let height = [extent, sliding.outputs()].into_iter().find(odd).unwrap_or(extent);
        let (node, common) = (self.name(), self.common_height());
        self.refuse(StageError::Height { node, height, parts, common });
    }

    /// The greatest number that divides the heights of all images that windows read and make.
    fn common_height(&self) -> u64 {
        let windows = self.whole.nodes.values().filter(|node| has_window(node.operation));
        let heights = windows.flat_map(|node| {
            let read = self.shape(node.operands[0]);
            [read[HEIGHT as usize].size, node.shape[HEIGHT as usize].size]
        });
        heights.fold(0, gcd)
    }

    /// A norm whose statistics meet; running ones are whole.
    fn pixel_norm(
        &mut self,
        part: Part,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let (slopes, running) = operands[1..].split_at(2);
        let mut own = vec![self.want(operands[0], PIXELS)];
        own.extend(slopes.iter().map(|slope| self.want(*slope, ALIKE)));
        own.extend(running.iter().map(|running| self.want(*running, Layout::WHOLE)));
        (self.part("", (part, Direction::Rows), own, (shape, PIXELS)), PIXELS)
    }

    /// The mean of all pixels: parts are equal, so it is that of their means.
    fn mean_of_pixels(
        &mut self,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let x = self.want(operands[0], PIXELS);
        let share = Layout::only(Direction::Rows, Along::Partial);
        let mean = self.add("own", Operation::GlobalPool, vec![x], (shape, share));
        let factor = 1.0 / self.parts(Direction::Rows) as f64;
        let scale = Operation::Scale { factor };
        let mean = self.add("share", scale, vec![mean], (shape, share));
        (self.settle(mean, (share, Layout::WHOLE), shape), Layout::WHOLE)
    }

    /// Every pixel of the result is made of one of the image.
    fn pixel_by_pixel(
        &mut self,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> (Source, Layout) {
        let mut own = vec![self.want(operands[0], PIXELS)];
        own.extend(operands[1..].iter().map(|weight| self.want(*weight, ALIKE)));
        (self.add("", operation, own, (shape, PIXELS)), PIXELS)
    }
}
