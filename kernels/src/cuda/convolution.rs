//! Convolutions as matrix products. What filters see is laid out in scratch memory, some images at
//! a time; where a filter is one pixel wide, images are such a layout already.

use super::{
    Argument, Epilogue, Matrix, Number, Place, Product,
    columns::further,
    draft::{Draft, Shape, adding, count, extent},
    form::{Form, Role},
    pool::window,
    source::CONVOLUTION,
};
use crate::{
    convolution::{Conv2d, Conv2dBackward, Conv2dWeights, Geometry},
    store::Store,
};
use Role::{Either, Narrow};

/// Scratch memory that a layout takes, unless one image needs more.
const LAYOUT: usize = 256 << 20;

/// Neighbouring images that are worked on together.
#[derive(Clone, Copy)]
struct Piece {
    first: usize,
    images: usize,
}

/// A convolution's operands: images, results and weights.
#[derive(Clone, Copy)]
struct Arrays {
    image: Place,
    result: Place,
    weight: Place,
}

/// Operands and extents of a convolution while its steps are written.
struct Pass<'a> {
    shape: &'a Geometry,
    arrays: Arrays,
    number: Number,
}

impl Geometry {
    /// Whether every place sees its own pixel alone.
    fn is_pointwise(&self) -> bool {
        let window = &self.window;
        window.taps() == 1 && window.stride == 1 && window.padding == 0
    }
    /// Numbers that all filters see at one place.
    fn seen(&self) -> usize {
        self.groups * self.depth()
    }
    /// All images, cut so that a layout takes no more than it may.
    fn pieces(&self, number: Number) -> Vec<Piece> {
        let bytes = self.window.places() * self.seen() * number.size();
        let most = match self.is_pointwise() {
            true => self.batch,
            false => (LAYOUT / bytes.max(1)).clamp(1, self.batch),
        };
        let firsts = (0..self.batch).step_by(most);
        let piece = |first| Piece { first, images: most.min(self.batch - first) };
        firsts.map(piece).collect()
    }
}

/// The transpose of what is stored.
fn turned(matrix: Matrix) -> Matrix {
    Matrix { transposed: true, ..matrix }
}

impl Pass<'_> {
    /// Memory for the largest layout; none where the images are one.
    fn layout(&self, draft: &mut Draft, pieces: &[Piece]) -> Place {
        if self.shape.is_pointwise() {
            return self.arrays.image;
        }
        let most = pieces.iter().map(|piece| piece.images).max().unwrap_or(0);
        draft.scratch(
            most * self.shape.window.places() * self.shape.seen() * self.number.size(),
        )
    }
    fn places(&self, piece: Piece) -> usize {
        piece.images * self.shape.window.places()
    }
    /// What filters see, as (places, groups, depth).
    fn seen(&self, place: Place, number: Number) -> Matrix {
        let (row, batch) = (self.shape.seen(), self.shape.depth());
        Matrix { place, number, transposed: false, row, batch }
    }
    /// Results as (places, groups, filters of a group).
    fn results(&self, piece: Piece) -> Matrix {
        let (row, batch) = (self.shape.filters, self.shape.group_filters());
        let bytes = piece.first * self.shape.result() * self.number.size();
        let place = further(self.arrays.result, bytes);
        Matrix { place, number: self.number, transposed: false, row, batch }
    }
    /// Weights as (groups, filters of a group, depth).
    fn weights(&self, number: Number) -> Matrix {
        let (place, row) = (self.arrays.weight, self.shape.depth());
        let batch = self.shape.group_filters() * row;
        Matrix { place, number, transposed: false, row, batch }
    }
    /// Of all groups at once.
    fn product(
        &self,
        [m, n, k]: [usize; 3],
        [a, b, out]: [Matrix; 3],
        store: Store,
    ) -> Product {
        let (batches, accumulate) = (self.shape.groups, store == Store::Add);
        let (scale, epilogue) = (1.0, Epilogue::Plain);
        Product { m, n, k, batches, a, b, out, scale, accumulate, epilogue }
    }
    /// A piece of the images, or of an array like them.
    fn images(&self, piece: Piece, number: Number) -> Place {
        let bytes = piece.first * self.shape.image() * number.size();
        further(self.arrays.image, bytes)
    }
    fn extents(&self, elements: usize) -> impl Iterator<Item = Argument> {
        let whole = |number| Argument::Unsigned(extent(number));
        let extents =
            [count(elements), whole(self.shape.channels), whole(self.shape.groups)];
        extents.into_iter().chain(window(&self.shape.window))
    }
    /// What the filters see of a piece: laid out, unless the images are that.
    fn unfold(&self, draft: &mut Draft, piece: Piece, layout: Place) -> Place {
        let images = self.images(piece, self.number);
        if self.shape.is_pointwise() {
            return images;
        }
        let elements = self.places(piece) * self.shape.seen();
        let operands = [images, layout].map(Argument::Address);
        let arguments = operands.into_iter().chain(self.extents(elements)).collect();
        let shape = Shape::each(elements, draft.at_once());
        draft.narrow((CONVOLUTION, "unfold"), shape, arguments);
        layout
    }
}

impl Form for Conv2d {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow; 3]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [image, weight, result] = [0, 1, 2].map(|operand| draft.place(operand));
        let (shape, number) = (&self.geometry, draft.types.narrow);
        let pass = Pass { shape, arrays: Arrays { image, result, weight }, number };
        let pieces = shape.pieces(number);
        let layout = pass.layout(draft, &pieces);
        for piece in pieces {
            let seen = pass.unfold(draft, piece, layout);
            let a = pass.seen(seen, number);
            let (b, out) = (turned(pass.weights(number)), pass.results(piece));
            let extents = [pass.places(piece), shape.group_filters(), shape.depth()];
            draft.product(pass.product(extents, [a, b, out], Store::Write));
        }
        Ok(())
    }
}

impl Form for Conv2dBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [result, weight, image] = [0, 1, 2].map(|operand| draft.place(operand));
        let (shape, number) = (&self.geometry, draft.types.narrow);
        let pass = Pass { shape, arrays: Arrays { image, result, weight }, number };
        let pieces = shape.pieces(number);
        let layout = pass.layout(draft, &pieces);
        for piece in pieces {
            let (a, b) = (pass.results(piece), pass.weights(number));
            let extents = [pass.places(piece), shape.depth(), shape.group_filters()];
            let images = pass.images(piece, draft.types.either);
            if shape.is_pointwise() {
                let out = pass.seen(images, draft.types.either);
                draft.product(pass.product(extents, [a, b, out], self.store));
                continue;
            }
            let out = pass.seen(layout, number);
            draft.product(pass.product(extents, [a, b, out], Store::Write));
            let elements = piece.images * shape.image();
            let operands = [layout, images].map(Argument::Address);
            let extents = pass.extents(elements).chain([adding(self.store)]);
            let arguments = operands.into_iter().chain(extents).collect();
            let grid = Shape::each(elements, draft.at_once());
            draft.pair((CONVOLUTION, "fold"), grid, arguments);
        }
        Ok(())
    }
}

impl Form for Conv2dWeights {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [image, result, weight] = [0, 1, 2].map(|operand| draft.place(operand));
        let (shape, number) = (&self.geometry, draft.types.narrow);
        let pass = Pass { shape, arrays: Arrays { image, result, weight }, number };
        let pieces = shape.pieces(number);
        let layout = pass.layout(draft, &pieces);
        let mut store = self.store;
        for piece in pieces {
            let seen = pass.unfold(draft, piece, layout);
            let (a, b) = (turned(pass.results(piece)), pass.seen(seen, number));
            let out = pass.weights(draft.types.either);
            let extents = [shape.group_filters(), shape.depth(), pass.places(piece)];
            draft.product(pass.product(extents, [a, b, out], store));
            store = Store::Add;
        }
        Ok(())
    }
}
