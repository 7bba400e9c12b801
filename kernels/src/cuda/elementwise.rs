//! Sums, products and copies of arrays, and of windows of their rows.

use super::{
    Argument, CallPlace, Function, Launch, Number,
    draft::{Draft, NOWHERE, Shape, adding, count},
    form::{Form, Role},
    source::ELEMENTWISE,
};
use crate::{
    elementwise::{Accumulate, Add, AddRows, Copy, Multiply, Scale, Zero},
    part::Part,
    rows::{Prepend, Slice, SliceBackward, SliceIntegers},
    store::Store,
};
use roundelay_schedule::{Bytes, Line};

/// Arrays that [`sum`] can add up, `MOST_SUMMED` of `elementwise.cu`.
pub const MOST_SUMMED: usize = 32;

/// out = Σ parts, from the first to the last in 32 bits or wider, rounded once; or out += that.
/// Operand 0 is `out`, operands 1 ..= `parts` are what is summed, all of one type.
///
/// # Errors
/// When there is nothing to sum, or more than [`MOST_SUMMED`] arrays, as a sentence without full
/// stop.
pub fn sum(
    parts: usize,
    number: Number,
    elements: usize,
    store: Store,
) -> Result<Launch, String> {
    if parts == 0 || parts > MOST_SUMMED {
        return Err(format!(
            "a sum has from 1 to {MOST_SUMMED} parts on a CUDA device, not {parts}"
        ));
    }
    let operand = |index| Argument::Address(CallPlace::Operand(index, Bytes(0)));
    let parts_argument = Argument::Unsigned(parts as u32);
    let mut arguments = vec![operand(0), count(elements), parts_argument, adding(store)];
    // Parameters without a part have the address of the first, and are not read.
    let places = (0..MOST_SUMMED).map(|part| if part < parts { part + 1 } else { 1 });
    arguments.extend(places.map(operand));
    let Shape { grid, block, shared } = Shape::each(elements, 16 / number.size());
    let symbol = format!("sum_{}", number.name());
    let function = Function { source: ELEMENTWISE, symbol };
    Ok(Launch { function, grid, block, shared, arguments })
}

/// Copies numbers of one type to another.
pub(crate) fn convert(
    draft: &mut Draft,
    places: [CallPlace; 2],
    numbers: [Number; 2],
    elements: usize,
) {
    moved(draft, places, numbers, (elements, Store::Write));
}

/// The same, or adds them to what is there.
pub(crate) fn moved(
    draft: &mut Draft,
    [from, to]: [CallPlace; 2],
    [is, becomes]: [Number; 2],
    (elements, store): (usize, Store),
) {
    let symbol = format!("scale_{}_{}", is.name(), becomes.name());
    let shape = Shape::each(elements, 16 / is.size());
    let arguments = vec![
        Argument::Address(from),
        Argument::Address(to),
        count(elements),
        Argument::Double(1.0),
        adding(store),
    ];
    draft.launch(ELEMENTWISE, symbol, shape, arguments);
}

/// out = factor · x, or out += that; operands 0 and 1.
fn scale(draft: &mut Draft, elements: usize, factor: f64, store: Store) {
    let shape = Shape::each(elements, draft.at_once());
    let [x, out] = draft.operands(0);
    let arguments =
        vec![x, out, count(elements), Argument::Double(factor), adding(store)];
    draft.pair((ELEMENTWISE, "scale"), shape, arguments);
}

impl Form for Copy {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Narrow, Role::Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        scale(draft, self.count, 1.0, Store::Write);
        Ok(())
    }
}

impl Form for Accumulate {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Narrow, Role::Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        scale(draft, self.count, 1.0, Store::Add);
        Ok(())
    }
}

impl Form for Scale {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Narrow, Role::Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        scale(draft, self.count, self.factor, self.store);
        Ok(())
    }
}

impl Form for Zero {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Either]
    }
    /// A window of which nothing lies in the row that is read.
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let (to, store) = ([self.count; 2], Store::Write);
        let window = Window::still(to, 0, 0, store);
        let [out] = draft.operands(0);
        window.write(draft, [NOWHERE, NOWHERE, out]);
        Ok(())
    }
}

impl Form for Add {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Narrow, Role::Narrow, Role::Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let shape = Shape::each(self.count, draft.at_once());
        let [a, b, out] = draft.operands(0);
        let arguments = vec![a, b, out, count(self.count), count(self.repeats)];
        draft.pair((ELEMENTWISE, "add"), shape, arguments);
        Ok(())
    }
}

impl Form for AddRows {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Narrow, Role::Narrow]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let shape = Shape::each(self.count, draft.at_once());
        let [bias, x] = draft.operands(0);
        draft.types.either = draft.types.narrow;
        let arguments = vec![x, bias, x, count(self.count), count(self.columns)];
        draft.pair((ELEMENTWISE, "add"), shape, arguments);
        Ok(())
    }
}

impl Form for Multiply {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Narrow, Role::Narrow, Role::Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let shape = Shape::each(self.count, draft.at_once());
        let [a, b, out] = draft.operands(0);
        let (elements, length) = (count(self.count), count(self.repeats));
        let arguments = vec![a, b, out, elements, length, adding(self.store)];
        draft.pair((ELEMENTWISE, "multiply"), shape, arguments);
        Ok(())
    }
}

/// Rows that are copied to rows, shifted.
struct Window {
    /// Elements of all rows that are written, and of one of them.
    to: [usize; 2],
    /// Elements of a row that is read.
    from: usize,
    /// From where in a row on the first element is read; may lie before it.
    shift: i64,
    /// What is read this much further on, per place on the line.
    each: usize,
    line: Line,
    store: Store,
}

impl Window {
    /// Rows that are the same on every part.
    fn still(to: [usize; 2], from: usize, shift: i64, store: Store) -> Self {
        Self { to, from, shift, each: 0, line: Line::ALONE, store }
    }
    fn write(&self, draft: &mut Draft, places: [Argument; 3]) {
        let shape = Shape::each(self.to[0], draft.at_once());
        draft.pair((ELEMENTWISE, "window"), shape, self.arguments(places));
    }
    fn arguments(&self, [from, filler, to]: [Argument; 3]) -> Vec<Argument> {
        let [elements, length] = self.to;
        vec![
            from,
            filler,
            to,
            count(elements),
            count(length),
            count(self.from),
            // Two's complement: the kernel takes it with a sign.
            Argument::Unsigned64(self.shift as u64),
            count(self.each),
            Argument::Place(self.line),
            adding(self.store),
        ]
    }
}

impl Form for Slice {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Narrow, Role::Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let rows = &self.window;
        let to = [self.sequences * rows.length, rows.length];
        let window = Window::still(to, rows.whole, rows.start as i64, self.store);
        let [x, out] = draft.operands(0);
        window.write(draft, [x, NOWHERE, out]);
        Ok(())
    }
}

impl Form for SliceBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Narrow, Role::Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let rows = &self.window;
        let to = [self.sequences * rows.whole, rows.whole];
        let window = Window::still(to, rows.length, -(rows.start as i64), self.store);
        let [dy, dx] = draft.operands(0);
        window.write(draft, [dy, NOWHERE, dx]);
        Ok(())
    }
}

impl Form for SliceIntegers {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Index, Role::Index]
    }
    /// What has 32 bits is copied bit for bit, whatever they mean.
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let rows = &self.window;
        let to = [self.sequences * rows.length, rows.length];
        let window = Window::still(to, rows.whole, rows.start as i64, Store::Write);
        let [x, out] = draft.operands(0);
        let shape = Shape::each(window.to[0], 1);
        let arguments = window.arguments([x, NOWHERE, out]);
        draft.launch(ELEMENTWISE, "window_f32_f32".to_owned(), shape, arguments);
        Ok(())
    }
}

impl Form for Prepend {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Narrow, Role::Narrow, Role::Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let whole = self.length + self.width;
        let (to, shift) = ([self.sequences * whole, whole], -(self.width as i64));
        let window = Window::still(to, self.length, shift, Store::Write);
        let [x, row, y] = draft.operands(0);
        window.write(draft, [x, row, y]);
        Ok(())
    }
}

impl Form for Part {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Narrow, Role::Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let (to, each) = ([self.rows * self.columns, self.columns], self.columns);
        let (line, store) = (self.line, self.store);
        let window = Window { to, from: self.whole, shift: 0, each, line, store };
        let [x, out] = draft.operands(0);
        window.write(draft, [x, NOWHERE, out]);
        Ok(())
    }
}
