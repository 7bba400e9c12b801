//! Dropout, with the masks of the CPU.

use super::{
    Argument,
    draft::{Draft, Shape, adding, count},
    form::{Form, Role},
    source::DROPOUT,
};
use crate::{
    dropout::{Dropout, DropoutBackward, Placed},
    store::Store,
};

/// Which part of the first row the first element lies in, counted from the first row of all: the
/// kernel counts on from row to row by all parts.
fn part(dropout: &Dropout) -> Argument {
    let Placed { columns, line, own, of_rows, before } = dropout.place;
    let rows = (dropout.count / columns.max(1)) as u64;
    match (own, of_rows.parts, before) {
        (Some(own), ..) => Argument::Unsigned64(own + before * u64::from(line.parts)),
        (None, 1, 0) => Argument::Place(line),
        (None, ..) => Argument::PlaceInRows { line, of_rows, rows, before },
    }
}

fn write(draft: &mut Draft, dropout: &Dropout, store: Store) {
    let [x, out] = draft.operands(0);
    let place = dropout.place;
    let arguments = vec![
        x,
        out,
        count(dropout.count),
        count(place.columns),
        count(place.line.parts as usize),
        part(dropout),
        Argument::Double(dropout.rate),
        Argument::Unsigned64(dropout.operator),
        Argument::Scalars,
        Argument::MicroBatch,
        adding(store),
    ];
    let shape = Shape::each(dropout.count, draft.at_once());
    draft.pair((DROPOUT, "dropout"), shape, arguments);
}

impl Form for Dropout {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Narrow, Role::Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        write(draft, self, Store::Write);
        Ok(())
    }
}

impl Form for DropoutBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Narrow, Role::Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        write(draft, &self.forward, self.store);
        Ok(())
    }
}
