//! Convolutions: matrix products where a filter is one pixel wide; else what a library may make, and
//! functions of ours: products of what a window sees, which is never stored; with few channels in a
//! group, sums of few terms.

use super::{
    Addend, Argument, Array, Convolution, Convolved, Epilogue, Launch, Matrix, Product,
    Source,
    columns::Partial,
    draft::{Draft, MOST_BLOCKS, Shape, adding, count, extent},
    form::{Form, Role},
    pool::window,
    source::{CONVOLUTION, GROUPED},
    tile::Tile,
};
use crate::{
    convolution::{Conv2d, Conv2dBackward, Conv2dWeights, Geometry},
    store::Store,
    window::Window,
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
    /// Pixels of an axis whose neighbours lie one stride apart, and how often there are such: the
    /// products of `convolution_backward`.
    fn lattices(&self) -> ([usize; 2], usize) {
        let Window { input, stride, .. } = self.window;
        let times = input.map(|extent| extent.min(stride));
        (input.map(|extent| extent.div_ceil(stride)), times[0].saturating_mul(times[1]))
    }
    /// Whether numbers along a row of images, with the padding, can be told apart in 32 bits, and
    /// from those that lie as far before the row.
    fn counts(&self) -> Result<(), String> {
        let pixels = 2 * (self.window.input[1] + 2 * self.window.padding) + 1;
        let numbers = pixels.saturating_mul(self.channels.max(self.filters));
        match u32::try_from(numbers) {
            Ok(_) => Ok(()),
            Err(_) => Err(format!(
                "a row of images has {} numbers with its padding, and no kernel goes beyond 2³¹",
                numbers / 2
            )),
        }
    }
    /// `GROUPS` and `WINDOW` of `view.h`.
    fn extents(&self) -> impl Iterator<Item = Argument> + use<> {
        let groups = [self.groups, self.group_channels(), self.group_filters()];
        let groups = groups.map(|number| Argument::Unsigned(extent(number)));
        groups.into_iter().chain(window(&self.window))
    }
    /// Places of the window that one block sums, of `blocks` that share the weights.
    fn per_segment(&self, blocks: usize) -> usize {
        let most = MOST_BLOCKS[1].min(MOST_BLOCKS[2]) as usize;
        let segments = (ENOUGH_BLOCKS / blocks.max(1)).clamp(1, most);
        let places = self.rows().div_ceil(segments).max(FEWEST_PLACES);
        // Whole tiles, and addresses that stay aligned.
        places.next_multiple_of(64)
    }
}

/// A pass of a convolution, and what writes it, for each [`Way`].
trait Pass {
    /// Which array it makes of the others.
    const MADE: Convolved;

    fn geometry(&self) -> &Geometry;
    fn store(&self) -> Store;
    fn by_product(&self, draft: &mut Draft);
    fn by_tiles(&self, draft: &mut Draft) -> Result<(), String>;
    fn by_sums(&self, draft: &mut Draft) -> Result<(), String>;

    /// Writes it in the way that its geometry asks for: as a product, or as what a library may make
    /// instead of our functions by tiles or by sums.
    fn by_way(&self, draft: &mut Draft) -> Result<(), String> {
        let own = match self.geometry().way() {
            Way::Pointwise => {
                self.by_product(draft);
                return Ok(());
            }
            Way::Tiles => Self::by_tiles,
            Way::Sums => Self::by_sums,
        };
        let pass = (Self::MADE, self.store());
        draft.convolution(
            |draft| own(self, draft),
            |draft, own| described(draft, self.geometry(), pass, own),
        )
    }
}

/// What the functions `own` make of a call, with its arrays where its operands are.
fn described(
    draft: &Draft,
    geometry: &Geometry,
    (pass, store): (Convolved, Store),
    own: Vec<Launch>,
) -> Convolution {
    let Geometry { batch, window, channels, filters, groups } = *geometry;
    let Window { input, output, kernel, stride, padding } = window;
    let array = |operand: usize, made| {
        let number = if made == pass { draft.types.either } else { draft.types.narrow };
        Array { place: draft.place(operand), number }
    };
    let [x, weight, y] = match pass {
        Convolved::Results => [0, 1, 2],
        Convolved::Images => [2, 1, 0],
        Convolved::Filters => [0, 2, 1],
    };
    Convolution {
        pass,
        batch,
        input,
        output,
        kernel,
        channels,
        filters,
        groups,
        stride,
        padding,
        x: array(x, Convolved::Images),
        weight: array(weight, Convolved::Filters),
        y: array(y, Convolved::Results),
        store,
        own,
    }
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
        self.by_way(draft)
    }
}

impl Pass for Conv2d {
    const MADE: Convolved = Convolved::Results;

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    fn store(&self) -> Store {
        Store::Write
    }
    fn by_product(&self, draft: &mut Draft) {
        let shape = &self.geometry;
        let [x, y, weight] = matrices(draft, shape, [0, 2, 1]);
        let weight = Matrix { transposed: true, ..weight };
        let extents = [shape.rows(), shape.group_filters(), shape.depth()];
        draft.product(pointwise(shape, extents, [x, weight, y], Store::Write));
    }
    fn by_tiles(&self, draft: &mut Draft) -> Result<(), String> {
        let shape = &self.geometry;
        shape.counts()?;
        let filters = shape.group_filters();
        let tile = Tile::of(draft.types.narrow, filters);
        let grid = tile.shape([shape.rows(), filters, shape.groups], shape.depth());
        let function = tile.function("convolution");
        let mut arguments = self.arguments(draft);
        arguments.push(Tile::stages_for(shape.depth()));
        draft.narrow((CONVOLUTION, &function), grid, arguments);
        Ok(())
    }
    fn by_sums(&self, draft: &mut Draft) -> Result<(), String> {
        let elements = self.geometry.rows() * self.geometry.filters;
        let grid = Shape::each(elements, draft.at_once());
        draft.narrow((GROUPED, "grouped"), grid, self.arguments(draft));
        Ok(())
    }
}

impl Conv2d {
    fn arguments(&self, draft: &Draft) -> Vec<Argument> {
        let operands: [_; 3] = draft.operands(0);
        let rows = count(self.geometry.rows());
        operands.into_iter().chain([rows]).chain(self.geometry.extents()).collect()
    }
}

impl Form for Conv2dBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        self.by_way(draft)
    }
}

impl Pass for Conv2dBackward {
    const MADE: Convolved = Convolved::Images;

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    fn store(&self) -> Store {
        self.store
    }
    fn by_product(&self, draft: &mut Draft) {
        let shape = &self.geometry;
        let [dx, dy, weight] = matrices(draft, shape, [2, 0, 1]);
        let dx = Matrix { number: draft.types.either, ..dx };
        let extents = [shape.pixels(), shape.group_channels(), shape.group_filters()];
        draft.product(pointwise(shape, extents, [dy, weight, dx], self.store));
    }
    /// A product for each set of pixels that the same taps see, as many blocks for each as the
    /// largest needs.
    fn by_tiles(&self, draft: &mut Draft) -> Result<(), String> {
        let shape = &self.geometry;
        shape.counts()?;
        let ([height, width], times) = shape.lattices();
        let channels = shape.group_channels();
        let tile = Tile::of(draft.types.narrow, channels);
        let taps = shape.window.kernel.map(|taps| taps.div_ceil(shape.window.stride));
        let depth = taps[0] * taps[1] * shape.group_filters();
        let rows = shape.batch * height * width;
        let mut grid = tile.shape([rows, channels, shape.groups], depth);
        grid.grid[0] = extent(times.saturating_mul(grid.grid[0] as usize));
        let turned = turn(draft, shape);
        let mut arguments = self.arguments(draft, turned, shape.batch);
        arguments.push(Tile::stages_for(depth));
        draft.pair(
            (CONVOLUTION, &tile.function("convolution_backward")),
            grid,
            arguments,
        );
        Ok(())
    }
    fn by_sums(&self, draft: &mut Draft) -> Result<(), String> {
        let elements = self.geometry.batch * self.geometry.image();
        let shape = Shape::each(elements, draft.at_once());
        let arguments = self.arguments(draft, draft.operand(1), self.geometry.pixels());
        draft.pair((GROUPED, "grouped_backward"), shape, arguments);
        Ok(())
    }
}

impl Conv2dBackward {
    fn arguments(&self, draft: &Draft, weight: Argument, rows: usize) -> Vec<Argument> {
        let mut arguments = vec![draft.operand(0), weight, draft.operand(2), count(rows)];
        arguments.extend(self.geometry.extents());
        arguments.push(adding(self.store));
        arguments
    }
}

/// The weights, operand 1, as (groups, taps, filters, channels) in scratch memory, taps in the order
/// of `turn_weights`: the rows that meet what sees a pixel.
fn turn(draft: &mut Draft, geometry: &Geometry) -> Argument {
    let elements = geometry.weights();
    let turned = Argument::Address(draft.scratch(elements * draft.types.narrow.size()));
    let mut arguments = vec![draft.operand(1), turned];
    arguments.extend(geometry.extents());
    let shape = Shape::each(elements, draft.at_once());
    draft.narrow((CONVOLUTION, "turn_weights"), shape, arguments);
    turned
}

impl Form for Conv2dWeights {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        self.by_way(draft)
    }
}

/// How places are cut into segments, each summed on its own.
#[derive(Clone, Copy, Debug)]
struct Segments {
    places: usize,
    count: usize,
}

impl Pass for Conv2dWeights {
    const MADE: Convolved = Convolved::Filters;

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    fn store(&self) -> Store {
        self.store
    }
    fn by_product(&self, draft: &mut Draft) {
        let shape = &self.geometry;
        let [x, dy, weight] = matrices(draft, shape, [0, 1, 2]);
        let dy = Matrix { transposed: true, ..dy };
        let weight = Matrix { number: draft.types.either, ..weight };
        let extents = [shape.group_filters(), shape.depth(), shape.rows()];
        draft.product(pointwise(shape, extents, [dy, x, weight], self.store));
    }
    fn by_tiles(&self, draft: &mut Draft) -> Result<(), String> {
        let shape = &self.geometry;
        let (filters, depth) = (shape.group_filters(), shape.depth());
        shape.counts()?;
        let tile = Tile::of(draft.types.narrow, filters).turned();
        let blocks = filters.div_ceil(tile.rows) * depth.div_ceil(tile.columns);
        let segments = self.segments(blocks * shape.groups);
        let times = segments.count * shape.groups;
        let grid = tile.shape([filters, depth, times], segments.places);
        let function = tile.function("convolution_weights");
        let stages = Tile::stages_for(segments.places);
        self.sum(draft, (CONVOLUTION, &function), grid, segments, Some(stages));
        Ok(())
    }
    fn by_sums(&self, draft: &mut Draft) -> Result<(), String> {
        let shape = &self.geometry;
        let blocks = [shape.filters.div_ceil(32), shape.depth().div_ceil(TERMS)];
        let segments = self.segments(blocks[0] * blocks[1]);
        let grid = [blocks[0], segments.count, blocks[1]].map(extent);
        let grid = Shape { grid, block: [32, 8, 1], shared: Bytes(0) };
        self.sum(draft, (GROUPED, "grouped_weights"), grid, segments, None);
        Ok(())
    }
}

impl Conv2dWeights {
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
        stages: Option<Argument>,
    ) {
        let geometry = &self.geometry;
        let partial = Partial::terms(draft, segments.count, geometry.weights(), 1);
        let [x, dy, dweight] = draft.operands(0);
        let mut arguments = vec![x, dy, partial.sums()];
        arguments.extend([geometry.rows(), segments.places].map(count));
        arguments.extend(geometry.extents().chain(stages));
        draft.narrow(function, shape, arguments);
        partial.join(draft, dweight, self.store);
    }
}
