//! Group normalisation.

use super::{
    Argument,
    columns::Columns,
    draft::{Draft, Shape, adding, count, extent},
    form::{Form, Role},
    source::GROUP_NORM,
};
use crate::{
    group_norm::{GroupNorm, GroupNormBackward, Groups},
    store::Store,
};
use Role::{Either, Narrow, Wide};
use roundelay_schedule::Bytes;

/// A block for each group of each example.
fn groups(extents: Groups) -> (Shape, [Argument; 3]) {
    let grid = [extent(extents.statistics()), 1, 1];
    let shape = Shape { grid, block: [256, 1, 1], shared: Bytes(0) };
    (shape, [extents.positions, extents.columns, extents.width].map(count))
}

impl Form for GroupNorm {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Narrow, Narrow, Wide, Wide]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let operands: [_; 6] = draft.operands(0);
        let (shape, extents) = groups(self.extents);
        let arguments = operands.into_iter().chain(extents).collect();
        draft.narrow((GROUP_NORM, "group_norm"), shape, arguments);
        Ok(())
    }
}

impl Form for GroupNormBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Wide, Wide, Narrow, Narrow, Either, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, gain, mean, rstd, dy, dx, dgain, dbias] = draft.operands(0);
        let (shape, extents) = groups(self.extents);
        let operands = [x, gain, mean, rstd, dy, dx].into_iter();
        let arguments = operands.chain(extents).chain([adding(self.store)]).collect();
        draft.narrow((GROUP_NORM, "group_norm_backward"), shape, arguments);
        let Groups { examples, positions, columns, width } = self.extents;
        let inputs = [x, mean, rstd, dy, count(positions), count(width)];
        let extents = Columns { rows: examples * positions, columns };
        let slopes = (GROUP_NORM, "group_slopes_of_segments");
        let partial = extents.sum(draft, slopes, [&inputs, &[]], 2);
        partial.join(draft, 0, dgain, Store::Write);
        partial.join(draft, 1, dbias, Store::Write);
        Ok(())
    }
}
