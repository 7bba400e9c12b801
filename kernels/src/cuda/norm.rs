//! Softmax and the norms of rows.

use super::{
    Argument,
    columns::{Columns, gain_slopes},
    draft::{Draft, NOWHERE, Shape, adding, count},
    form::{Form, Role},
    source::NORM,
};
use crate::{
    norm::{LayerNorm, LayerNormBackward, Softmax, SoftmaxBackward},
    rms_norm::{RmsNorm, RmsNormBackward},
    store::Store,
};
use Role::{Either, Narrow, Wide};

impl Form for Softmax {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, y] = draft.operands(0);
        let arguments = vec![x, y, count(self.rows), count(self.columns)];
        draft.narrow((NORM, "softmax"), Shape::rows(self.rows, self.columns), arguments);
        Ok(())
    }
}

impl Form for SoftmaxBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [y, dy, dx] = draft.operands(0);
        let (rows, columns) = (count(self.rows), count(self.columns));
        let arguments = vec![y, dy, dx, rows, columns, adding(self.store)];
        let shape = Shape::rows(self.rows, self.columns);
        draft.pair((NORM, "softmax_backward"), shape, arguments);
        Ok(())
    }
}

impl Form for LayerNorm {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Narrow, Narrow, Wide, Wide]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let operands = draft.operands(0);
        let shape = (self.rows, self.columns);
        normalise(draft, operands, shape, self.epsilon);
        Ok(())
    }
}

impl Form for RmsNorm {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Narrow, Wide]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, gain, y, rstd] = draft.operands(0);
        let operands = [x, gain, NOWHERE, y, NOWHERE, rstd];
        normalise(draft, operands, (self.rows, self.columns), self.epsilon);
        Ok(())
    }
}

/// x, gain, bias, y, mean, rstd.
fn normalise(
    draft: &mut Draft,
    operands: [Argument; 6],
    (rows, columns): (usize, usize),
    epsilon: f64,
) {
    let extents = [count(rows), count(columns), Argument::Double(epsilon)];
    let arguments = operands.into_iter().chain(extents).collect();
    draft.narrow((NORM, "normalise"), Shape::rows(rows, columns), arguments);
}

impl Form for LayerNormBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Wide, Wide, Narrow, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let operands = draft.operands(0);
        normalise_backward(draft, operands, (self.rows, self.columns), self.store);
        Ok(())
    }
}

impl Form for RmsNormBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Wide, Narrow, Narrow, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, gain, rstd, dy, dx, dgain] = draft.operands(0);
        let columns = Columns { rows: self.rows, columns: self.columns };
        gain_slopes(draft, columns, [x, rstd, dy, dgain], Store::Write);
        draft.types.either = draft.types.narrow;
        let operands = [x, gain, NOWHERE, rstd, dy, dx];
        normalise_backward(draft, operands, (self.rows, self.columns), self.store);
        Ok(())
    }
}

/// x, gain, mean, rstd, dy, dx.
fn normalise_backward(
    draft: &mut Draft,
    operands: [Argument; 6],
    (rows, columns): (usize, usize),
    store: Store,
) {
    let extents = [count(rows), count(columns), adding(store)];
    let arguments = operands.into_iter().chain(extents).collect();
    let shape = Shape::rows(rows, columns);
    draft.pair((NORM, "normalise_backward"), shape, arguments);
}
