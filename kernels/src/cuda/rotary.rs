//! Rotary positions.

use super::{
    Argument,
    draft::{Draft, Shape, adding, count, extent},
    form::{Form, Role},
    source::ROTARY,
};
use crate::rotary::{Rotary, Stretch};

/// Most blocks that make angles, unless there are more pairs: threads of more would each find the speed of a pair
/// anew, by a power in 64 bits.
const BLOCKS: usize = 264;

impl Rotary {
    /// Threads that make this many angles; at least one for each pair.
    fn shape(&self, angles: usize) -> Shape {
        let shape = Shape::each(angles, 1);
        let most = extent((self.turned / 2).div_ceil(256).max(BLOCKS));
        let [blocks, ..] = shape.grid;
        Shape { grid: [blocks.min(most), 1, 1], ..shape }
    }
}

impl Form for Rotary {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Narrow, Role::Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let half = self.turned / 2;
        let angles = self.sequence.saturating_mul(half);
        let cosines = draft.wide_scratch(angles.saturating_mul(2));
        let sign = if self.inverse { -1.0 } else { 1.0 };
        let mut arguments =
            vec![cosines, count(self.sequence), count(half), count(self.first)];
        let Stretch { factor, original, low, high } = self.stretch;
        let doubles = [self.base, factor, original, low, high, sign];
        arguments.extend(doubles.map(Argument::Double));
        draft.wide((ROTARY, "angles"), self.shape(angles), arguments);
        let [x, y] = draft.operands(0);
        let rows = self.rows * self.heads;
        let extents =
            [rows, self.sequence, self.heads, self.still, self.depth, half].map(count);
        let mut arguments = vec![x, cosines, y];
        arguments.extend(extents);
        arguments.push(adding(self.store));
        let shape = Shape::each(rows * (self.depth - half), draft.at_once());
        draft.pair((ROTARY, "rotary"), shape, arguments);
        Ok(())
    }
}
