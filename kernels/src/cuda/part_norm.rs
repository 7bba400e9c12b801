//! The norms of rows that several devices have the columns of.

use super::{
    Argument,
    columns::Columns,
    draft::{Draft, NOWHERE, Shape, adding, count},
    form::{Form, Role},
    source::PART_NORM,
};
use crate::part_norm::{
    Around, NormPart, NormPartBackward, NormPartGain, NormPartSlopes, NormPartSquares,
    NormPartSums, Own,
};
use Role::{Either, Narrow, Wide};

impl Around {
    /// Slopes of a column: of the gain, and around means of the bias.
    pub(super) fn terms(self) -> usize {
        match self {
            Around::Mean => 2,
            Around::Zero => 1,
        }
    }
    /// Of some operands those that are there, where the ones in `only` go with means.
    fn roles(self, roles: &[Role], only: &[usize]) -> Vec<Role> {
        let there = |index: &usize| self == Around::Mean || !only.contains(index);
        (0..roles.len()).filter(there).map(|index| roles[index]).collect()
    }
    /// The addresses of this many operands, nowhere for those that are not there.
    fn operands<const COUNT: usize>(
        self,
        draft: &Draft,
        only: &[usize],
    ) -> [Argument; COUNT] {
        let mut next = 0;
        std::array::from_fn(|index| {
            let absent = self == Around::Zero && only.contains(&index);
            if absent {
                return NOWHERE;
            }
            next += 1;
            draft.operand(next - 1)
        })
    }
}

/// Σ of rows, or of their squares around a mean.
fn sum(
    draft: &mut Draft,
    [x, totals, out]: [Argument; 3],
    (rows, columns): (usize, usize),
    [whole, squared]: [usize; 2],
) {
    let extents = [rows, columns, whole, squared].map(count);
    let arguments = [x, totals, out].into_iter().chain(extents).collect();
    draft.narrow((PART_NORM, "row_sums"), Shape::rows(rows, columns), arguments);
}

impl Form for NormPartSums {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Wide]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, totals] = draft.operands(0);
        sum(draft, [x, NOWHERE, totals], (self.rows, self.columns), [1, 0]);
        Ok(())
    }
}

impl Form for NormPartSquares {
    fn roles(&self) -> Vec<Role> {
        self.own.around.roles(&[Narrow, Wide, Wide], &[1])
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let Own { rows, columns, whole, around } = self.own;
        let operands = around.operands(draft, &[1]);
        sum(draft, operands, (rows, columns), [whole, 1]);
        Ok(())
    }
}

impl Form for NormPart {
    fn roles(&self) -> Vec<Role> {
        let roles = [Narrow, Narrow, Narrow, Wide, Wide, Narrow, Wide, Wide];
        self.own.around.roles(&roles, &[2, 3, 6])
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let Own { rows, columns, whole, around } = self.own;
        let operands: [Argument; 8] = around.operands(draft, &[2, 3, 6]);
        let extents = [rows, columns, whole].map(count);
        let epsilon = Argument::Double(self.epsilon);
        let arguments = operands.into_iter().chain(extents).chain([epsilon]).collect();
        draft.narrow(
            (PART_NORM, "normalise_part"),
            Shape::rows(rows, columns),
            arguments,
        );
        Ok(())
    }
}

impl Form for NormPartSlopes {
    fn roles(&self) -> Vec<Role> {
        self.around.roles(&[Narrow, Narrow, Wide, Wide, Narrow, Wide], &[2])
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let operands: [Argument; 6] = self.around.operands(draft, &[2]);
        let extents = [self.rows, self.columns].map(count);
        let arguments = operands.into_iter().chain(extents).collect();
        let shape = Shape::rows(self.rows, self.columns);
        draft.narrow((PART_NORM, "slopes_of_rows"), shape, arguments);
        Ok(())
    }
}

impl Form for NormPartBackward {
    fn roles(&self) -> Vec<Role> {
        let roles = [Narrow, Narrow, Wide, Wide, Narrow, Wide, Either];
        self.own.around.roles(&roles, &[2])
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let Own { rows, columns, whole, around } = self.own;
        let operands: [Argument; 7] = around.operands(draft, &[2]);
        let extents = [rows, columns, whole].map(count);
        let add = adding(self.store);
        let arguments = operands.into_iter().chain(extents).chain([add]).collect();
        let shape = Shape::rows(rows, columns);
        draft.pair((PART_NORM, "normalise_part_backward"), shape, arguments);
        Ok(())
    }
}

impl Form for NormPartGain {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Wide, Narrow, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let [x, rstd, dy, dgain] = draft.operands(0);
        let columns = Columns { rows: self.rows, columns: self.columns };
        let partial = columns.norm_slopes_around_zero(draft, [x, rstd, dy]);
        partial.join(draft, dgain, self.store);
        Ok(())
    }
}
