//! Convolutions: matrix products where a filter is one pixel wide; else products of what a window
//! sees, which is never stored; with few channels in a group, sums of few terms.

use super::{
    Addend, Argument, Epilogue, Matrix, Number, Product, Source,
    columns::Partial,
    draft::{Draft, Shape, adding, count, extent},
    form::{Form, Role},
    pool::window,
    product::TILE_SHARED,
    source::{CONVOLUTION, GROUPED},
};
use crate::{
    convolution::{Conv2d, Conv2dBackward, Conv2dWeights, Geometry},
    store::Store,
};
use Role::{Either, Narrow};
use roundelay_schedule::Bytes;

/// How a convolution is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Every place sees its own pixel alone: a product of what is stored.
    Pointwise,
    /// Tiles of a product for each group.
    Tiles,
    /// A thread for each sum.
    Sums,
}

/// Groups with fewer channels or filters would leave most of a tile empty.
const FEWEST_IN_TILES: usize = 16;
/// Blocks that keep any device busy.
const ENOUGH_BLOCKS: usize = 528;
/// Segments of fewer places are not worth a block.
const FEWEST_PLACES: usize = 256;
/// Most blocks of a grid along y or z.
const MOST_BLOCKS: usize = 65535;
/// Terms of the weights' gradient that a thread sums: `TERMS` of `grouped.cu`.
const TERMS: usize = 8;

impl Geometry {
    fn way(&self) -> Way {
        let window = &self.window;
        let least = self.group_channels().min(self.group_filters());
        if window.taps() == 1 && window.stride == 1 && window.padding == 0 {
            Way::Pointwise
        } else if self.groups == 1 || least >= FEWEST_IN_TILES {
            Way::Tiles
        } else {
            Way::Sums
        }
    }
    /// Places of the window in all images.
    fn rows(&self) -> usize {
        self.batch * self.window.places()
    }
    /// Pixels of all images.
    fn pixels(&self) -> usize {
        self.batch * self.window.pixels()
    }
    fn weights(&self) -> usize {
        self.filters * self.depth()
    }
    /// `GROUPS` and `WINDOW` of `view.h`.
    fn extents(&self) -> impl Iterator<Item = Argument> + use<> {
        let groups = [self.groups, self.group_channels(), self.group_filters()];
        let groups = groups.map(|number| Argument::Unsigned(extent(number)));
        groups.into_iter().chain(window(&self.window))
    }
    /// Places of the window that one block sums, of `blocks` that share the weights.
    fn per_segment(&self, blocks: usize) -> usize {
        let segments = (ENOUGH_BLOCKS / blocks.max(1)).clamp(1, MOST_BLOCKS);
        let places = self.rows().div_ceil(segments).max(FEWEST_PLACES);
        // Whole tiles, and addresses that stay aligned.
        places.next_multiple_of(64)
    }
}

/// Rows and columns of a tile, and its shared memory: see `tile.h`.
fn tile(number: Number) -> (usize, Bytes) {
    match number {
        Number::Bf16 | Number::F16 => (128, TILE_SHARED),
        Number::F32 | Number::F64 => (64, Bytes(0)),
    }
}

/// Tiles of (rows, columns), so many times.
fn tiles(number: Number, [rows, columns, times]: [usize; 3]) -> Shape {
    let (side, shared) = tile(number);
    let grid = [rows.div_ceil(side), columns.div_ceil(side), times].map(extent);
    Shape { grid, block: [256, 1, 1], shared }
}

/// Rows of (rows, groups, columns), each row of which has `columns` for each group.
fn stacked(draft: &Draft, operand: usize, [groups, columns]: [usize; 2]) -> Matrix {
    let (place, number) = (draft.place(operand), draft.types.narrow);
    let row = groups * columns;
    Matrix { place, number, transposed: false, row, batch: columns }
}

/// The products of all groups of a convolution whose filters are one pixel wide.
fn pointwise(
    geometry: &Geometry,
    [m, n, k]: [usize; 3],
    [a, b, out]: [Matrix; 3],
    store: Store,
) -> Product {
    let (batches, addend) = (geometry.groups, Addend::of(store));
    let epilogue = Epilogue::Plain;
    Product { m, n, k, batches, a, b, out, scale: 1.0, addend, epilogue }
}

/// Images, results and weights of a pointwise convolution, which are these operands.
fn matrices(
    draft: &Draft,
    geometry: &Geometry,
    [image, result, weight]: [usize; 3],
) -> [Matrix; 3] {
    let (channels, filters) = (geometry.group_channels(), geometry.group_filters());
    let weights = stacked(draft, weight, [1, channels]);
    [
        stacked(draft, image, [geometry.groups, channels]),
        stacked(draft, result, [geometry.groups, filters]),
        Matrix { batch: filters * channels, ..weights },
    ]
}

impl Form for Conv2d {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow; 3]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let shape = &self.geometry;
        let (rows, filters) = (shape.rows(), shape.group_filters());
        let operands: [_; 3] = draft.operands(0);
        let arguments =
            operands.into_iter().chain([count(rows)]).chain(shape.extents()).collect();
        match shape.way() {
            Way::Pointwise => {
                let [x, y, weight] = matrices(draft, shape, [0, 2, 1]);
                let weight = Matrix { transposed: true, ..weight };
                let extents = [rows, filters, shape.depth()];
                draft.product(pointwise(shape, extents, [x, weight, y], Store::Write));
            }
            Way::Tiles => {
                let grid = tiles(draft.types.narrow, [rows, filters, shape.groups]);
                draft.narrow((CONVOLUTION, "convolution"), grid, arguments);
            }
            Way::Sums => {
                let grid = Shape::each(rows * shape.filters, draft.at_once());
                draft.narrow((GROUPED, "grouped"), grid, arguments);
            }
        }
        Ok(())
    }
}

impl Form for Conv2dBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        match self.geometry.way() {
            Way::Pointwise => self.by_product(draft),
            Way::Tiles => {
                let weight = turn(draft, &self.geometry);
                let extents = [self.geometry.pixels(), self.geometry.group_channels()];
                let times = [extents[0], extents[1], self.geometry.groups];
                let shape = tiles(draft.types.narrow, times);
                self.launch(draft, (CONVOLUTION, "convolution_backward"), shape, weight);
            }
            Way::Sums => {
                let elements = self.geometry.batch * self.geometry.image();
                let (shape, weight) =
                    (Shape::each(elements, draft.at_once()), draft.operand(1));
                self.launch(draft, (GROUPED, "grouped_backward"), shape, weight);
            }
        }
        Ok(())
    }
}

impl Conv2dBackward {
    fn by_product(&self, draft: &mut Draft) {
        let shape = &self.geometry;
        let [dx, dy, weight] = matrices(draft, shape, [2, 0, 1]);
        let dx = Matrix { number: draft.types.either, ..dx };
        let extents = [shape.pixels(), shape.group_channels(), shape.group_filters()];
        draft.product(pointwise(shape, extents, [dy, weight, dx], self.store));
    }
    fn launch(
        &self,
        draft: &mut Draft,
        function: (Source, &str),
        shape: Shape,
        weight: Argument,
    ) {
        let mut arguments = vec![draft.operand(0), weight, draft.operand(2)];
        arguments.push(count(self.geometry.pixels()));
        arguments.extend(self.geometry.extents());
        arguments.push(adding(self.store));
        draft.pair(function, shape, arguments);
    }
}

/// The weights, operand 1, as (groups, taps, filters, channels) in scratch memory: the rows that
/// meet what sees a pixel.
fn turn(draft: &mut Draft, geometry: &Geometry) -> Argument {
    let elements = geometry.weights();
    let turned = Argument::Address(draft.scratch(elements * draft.types.narrow.size()));
    let mut arguments = vec![draft.operand(1), turned, count(geometry.window.taps())];
    arguments.extend(geometry.extents().take(3));
    let shape = Shape::each(elements, draft.at_once());
    draft.narrow((CONVOLUTION, "turn_weights"), shape, arguments);
    turned
}

impl Form for Conv2dWeights {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let shape = &self.geometry;
        let (filters, depth) = (shape.group_filters(), shape.depth());
        match shape.way() {
            Way::Pointwise => self.by_product(draft),
            Way::Tiles => {
                let number = draft.types.narrow;
                let (side, _) = tile(number);
                let blocks = filters.div_ceil(side) * depth.div_ceil(side);
                let segments = self.segments(blocks * shape.groups);
                let times = segments.count * shape.groups;
                let grid = tiles(number, [filters, depth, times]);
                let function = (CONVOLUTION, "convolution_weights");
                self.sum(draft, function, grid, segments);
            }
            Way::Sums => {
                let blocks = [shape.filters.div_ceil(32), depth.div_ceil(TERMS)];
                let segments = self.segments(blocks[0] * blocks[1]);
                let grid = [blocks[0], segments.count, blocks[1]].map(extent);
                let grid = Shape { grid, block: [32, 8, 1], shared: Bytes(0) };
                self.sum(draft, (GROUPED, "grouped_weights"), grid, segments);
            }
        }
        Ok(())
    }
}

/// How places are cut into segments, each summed on its own.
#[derive(Clone, Copy, Debug)]
struct Segments {
    places: usize,
    count: usize,
}

impl Conv2dWeights {
    fn by_product(&self, draft: &mut Draft) {
        let shape = &self.geometry;
        let [x, dy, weight] = matrices(draft, shape, [0, 1, 2]);
        let dy = Matrix { transposed: true, ..dy };
        let weight = Matrix { number: draft.types.either, ..weight };
        let extents = [shape.group_filters(), shape.depth(), shape.rows()];
        draft.product(pointwise(shape, extents, [dy, x, weight], self.store));
    }
    fn segments(&self, blocks: usize) -> Segments {
        let places = self.geometry.per_segment(blocks);
        Segments { places, count: self.geometry.rows().div_ceil(places) }
    }
    /// Sums every segment into scratch memory, then those sums.
    fn sum(
        &self,
        draft: &mut Draft,
        function: (Source, &str),
        shape: Shape,
        segments: Segments,
    ) {
        let (geometry, weights) = (&self.geometry, self.geometry.weights());
        let size = draft.types.narrow.wide().size();
        let numbers = segments.count.saturating_mul(weights);
        let sums = draft.scratch(numbers.saturating_mul(size));
        let [x, dy, dweight] = draft.operands(0);
        let mut arguments = vec![x, dy, Argument::Address(sums)];
        arguments.extend([geometry.rows(), segments.places].map(count));
        arguments.extend(geometry.extents());
        draft.narrow(function, shape, arguments);
        let partial = Partial::new(sums, segments.count, weights);
        partial.join(draft, 0, dweight, self.store);
    }
}
