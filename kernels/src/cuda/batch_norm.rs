//! Batch and group normalisation.

use super::{
    Argument,
    columns::{Columns, Partial},
    draft::{Draft, NOWHERE, Shape, adding, count, extent},
    form::{Form, Role},
    source::{BATCH_NORM, COLUMNS},
};
use crate::{
    batch_norm::{BatchNorm, BatchNormBackward},
    group_norm::{GroupNorm, GroupNormBackward, Groups},
};
use Role::{Either, Narrow, Wide};
use roundelay_schedule::Bytes;

/// A moment of every column from sums of segments; outside of training the running one.
fn moment(
    draft: &mut Draft,
    partial: &Partial,
    [running, out]: [Argument; 2],
    extents: Columns,
) {
    let arguments = vec![
        partial.sums(),
        running,
        out,
        count(extents.columns),
        count(partial.segments),
        count(extents.rows),
        Argument::Scalars,
    ];
    let shape = Shape::each(extents.columns, 1);
    draft.narrow((BATCH_NORM, "moment"), shape, arguments);
}

impl Form for BatchNorm {
    fn roles(&self) -> Vec<Role> {
        let mut roles = vec![Narrow; if self.tail.adds() { 7 } else { 6 }];
        roles.extend([Wide, Wide]);
        roles
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, gain, bias, running_mean, running_variance] = draft.operands(0);
        let (residual, next) = match self.tail.adds() {
            true => (draft.operand(5), 6),
            false => (NOWHERE, 5),
        };
        let [y, mean, variance] = draft.operands(next);
        let extents = Columns { rows: self.rows, columns: self.columns };
        let sums = extents.sum(draft, (COLUMNS, "sum_of_segments"), &[x], 1);
        moment(draft, &sums, [running_mean, mean], extents);
        let squares = (BATCH_NORM, "squares_of_segments");
        let squares = extents.sum(draft, squares, &[x, mean], 1);
        moment(draft, &squares, [running_variance, variance], extents);
        let elements = self.rows * self.columns;
        let mut arguments = vec![x, gain, bias, mean, variance, residual, y];
        arguments.extend([count(elements), count(self.columns)]);
        arguments.push(Argument::Unsigned(self.tail.cuts().into()));
        let shape = Shape::each(elements, draft.at_once());
        draft.narrow((BATCH_NORM, "batch_norm"), shape, arguments);
        Ok(())
    }
}

impl Form for BatchNormBackward {
    fn roles(&self) -> Vec<Role> {
        let inputs = if self.relu { 2 } else { 1 };
        let slopes = std::iter::repeat_n(Narrow, inputs + 1);
        let roles = [Narrow, Narrow, Wide, Wide].into_iter().chain(slopes);
        roles.chain([Either, Either]).collect()
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, gain, mean, variance] = draft.operands(0);
        let (y, next) = match self.relu {
            true => (draft.operand(4), 5),
            false => (NOWHERE, 4),
        };
        let [dy, dx, dgain, dbias] = draft.operands(next);
        let extents = Columns { rows: self.rows, columns: self.columns };
        let inputs = [x, mean, variance, y, dy];
        let slopes = (BATCH_NORM, "batch_slopes_of_segments");
        let partial = extents.sum(draft, slopes, &inputs, 2);
        partial.join(draft, 0, dgain, self.store);
        partial.join(draft, 1, dbias, self.store);
        let sums = partial.join_all(draft);
        let mut arguments = vec![x, gain, mean, variance, y, dy, sums, dx];
        arguments.extend([count(self.rows), count(self.columns), adding(self.store)]);
        let shape = Shape::each(self.rows * self.columns, draft.at_once());
        draft.narrow((BATCH_NORM, "batch_norm_backward"), shape, arguments);
        Ok(())
    }
}

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
        draft.narrow((BATCH_NORM, "group_norm"), shape, arguments);
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
        draft.narrow((BATCH_NORM, "group_norm_backward"), shape, arguments);
        let Groups { examples, positions, columns, width } = self.extents;
        let inputs = [x, mean, rstd, dy, count(positions), count(width)];
        let extents = Columns { rows: examples * positions, columns };
        let slopes = (BATCH_NORM, "group_slopes_of_segments");
        let partial = extents.sum(draft, slopes, &inputs, 2);
        partial.join(draft, 0, dgain, self.store);
        partial.join(draft, 1, dbias, self.store);
        Ok(())
    }
}
