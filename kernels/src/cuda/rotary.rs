//! Rotary positions.

use super::{
    Argument,
    draft::{Draft, Shape, adding, count, extent},
    form::{Form, Role},
    source::ROTARY,
};
use crate::rotary::Rotary;
use roundelay_schedule::Bytes;

/// Blocks that share the examples and heads of one angle.
const SHARES: usize = 16;

impl Form for Rotary {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Narrow, Role::Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let places = self.sequence * (self.depth - self.turned / 2);
        let batch = self.rows / self.sequence;
        let shares = (batch * self.heads).min(SHARES);
        let grid = [extent(places.div_ceil(256)), extent(shares), 1];
        let shape = Shape { grid, block: [256, 1, 1], shared: Bytes(0) };
        let [x, y] = draft.operands(0);
        let sign = if self.inverse { -1.0 } else { 1.0 };
        let mut arguments = vec![x, y];
        let extents = [batch, self.sequence, self.heads, self.depth, self.turned];
        arguments.extend(extents.map(count));
        arguments.extend([Argument::Double(self.base), Argument::Double(sign)]);
        arguments.push(adding(self.store));
        draft.pair((ROTARY, "rotary"), shape, arguments);
        Ok(())
    }
}
