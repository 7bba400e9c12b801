//! Reads a call: operands in order, attributes by name; every mistake becomes a sentence.
//! An operand that is real may be wide: kernels read and write each operand in its own width.

use crate::{classes::All, operand::Slot, store::Store};
use roundelay_schedule::{Access, Attribute, Call, Element, Indices, nearest_hint};
use smallvec::SmallVec;

/// What a kernel's `parse` takes a call apart with. Operands are taken in table order.
pub(crate) struct Signature<'a> {
    call: &'a Call,
    slots: Vec<Slot>,
    indices: Option<Indices>,
    known: SmallVec<[&'static str; ASKED]>,
}

/// As many attributes as most kernels ask for.
const ASKED: usize = 8;

/// More elements than this cannot be addressed in any element type.
const MOST_ELEMENTS: u64 = (isize::MAX as u64) / 8;

impl<'a> Signature<'a> {
    pub(crate) fn new(call: &'a Call) -> Self {
        let slots = Vec::with_capacity(call.operands.len());
        Self { call, slots, indices: None, known: SmallVec::new() }
    }

    /// The next operand, of any shape: its number of elements.
    pub(crate) fn any(
        &mut self,
        name: &'static str,
        access: Access,
    ) -> Result<usize, String> {
        let index = self.take(name, Element::Real, access)?;
        Ok(self.slots[index].length)
    }

    /// The next operand, which has exactly `length` elements.
    pub(crate) fn vector(
        &mut self,
        name: &'static str,
        access: Access,
        length: usize,
    ) -> Result<(), String> {
        let index = self.take(name, Element::Real, access)?;
        self.slots[index].row = 0;
        self.expect(index, name, &[length])
    }

    /// The next operand, i32, of any shape: its number of elements.
    pub(crate) fn integers(&mut self, name: &'static str) -> Result<usize, String> {
        let index = self.take(name, Element::I32, Access::Read)?;
        self.slots[index].row = 0;
        Ok(self.slots[index].length)
    }

    /// The whole numbers that were read last stand for this many rows of a table.
    pub(crate) fn index_rows(&mut self, rows: usize) {
        self.index(rows as u64, None);
    }

    /// The whole numbers that were read last stand for classes.
    pub(crate) fn index_classes(&mut self, All { classes, masked }: All) {
        let classes = classes as u64;
        self.index(classes + u64::from(masked), masked.then_some(classes));
    }

    fn index(&mut self, below: u64, mask: Option<u64>) {
        let is_index =
            |slot: &Slot| (slot.element, slot.access) == (Element::I32, Access::Read);
        let operand = self.slots.iter().rposition(is_index);
        self.indices = operand.map(|operand| Indices { operand, below, mask });
    }

    /// The next operand, i32, which is written and has exactly `length` elements.
    pub(crate) fn integers_written(
        &mut self,
        name: &'static str,
        length: usize,
    ) -> Result<(), String> {
        let index = self.take(name, Element::I32, Access::Write)?;
        self.expect(index, name, &[length])
    }

    /// The next operand as (m, n): n is the last extent, the others multiply to m.
    pub(crate) fn matrix(
        &mut self,
        name: &'static str,
        access: Access,
    ) -> Result<(usize, usize), String> {
        let index = self.take(name, Element::Real, access)?;
        let columns = self.shape(index).last().map_or(1, |columns| *columns as usize);
        Ok((self.slots[index].length / columns, columns))
    }

    /// The next operand, some trailing extents of which multiply to `columns`: the product of
    /// the others.
    pub(crate) fn rows(
        &mut self,
        name: &'static str,
        access: Access,
        columns: usize,
    ) -> Result<usize, String> {
        let index = self.take(name, Element::Real, access)?;
        match trailing(self.shape(index), columns) {
            true => Ok(self.slots[index].length / columns),
            false => Err(format!(
                "operand `{name}` has shape {:?}, whose trailing extents do not multiply to \
                 {columns}",
                self.call.operands[index].shape
            )),
        }
    }

    /// The next operand as (m, n), where a row has room for `columns` or more: m and n.
    pub(crate) fn roomy(
        &mut self,
        name: &'static str,
        access: Access,
        columns: usize,
    ) -> Result<(usize, usize), String> {
        let (rows, room) = self.matrix(name, access)?;
        match room >= columns {
            true => Ok((rows, room)),
            false => Err(format!(
                "a row of operand `{name}` has {room} elements, but must have room for \
                 {columns}"
            )),
        }
    }

    /// The next operand, which must be `(m, n)`.
    pub(crate) fn shaped(
        &mut self,
        name: &'static str,
        access: Access,
        (rows, columns): (usize, usize),
    ) -> Result<(), String> {
        let index = self.take(name, Element::Real, access)?;
        match trailing(self.shape(index), columns) {
            true => self.expect(index, name, &[rows, columns]),
            false => Err(self.mismatch(index, name, &[rows, columns])),
        }
    }

    /// The next operand, which has at least `(least, columns)`, and as many rows more for each of
    /// `examples`: its rows.
    pub(crate) fn at_least(
        &mut self,
        name: &'static str,
        access: Access,
        (least, examples, columns): (usize, usize, usize),
    ) -> Result<usize, String> {
        let index = self.take(name, Element::Real, access)?;
        let rows = self.slots[index].length / columns;
        let fits = trailing(self.shape(index), columns)
            && rows >= least
            && rows.is_multiple_of(examples);
        match fits {
            true => Ok(rows),
            false => Err(self.mismatch(index, name, &[least, columns])),
        }
    }

    /// The next operand, which repeats over the operand before it: its number of elements.
    pub(crate) fn repeated(&mut self, name: &'static str) -> Result<usize, String> {
        self.sum_of_rows(name, Access::Read)
    }

    /// The next operand (n), which sums the operand before it (m, n) over m: n.
    pub(crate) fn sum_of_rows(
        &mut self,
        name: &'static str,
        access: Access,
    ) -> Result<usize, String> {
        let index = self.take(name, Element::Real, access)?;
        match trailing(self.shape(index - 1), self.slots[index].length) {
            true => Ok(self.slots[index].length),
            false => Err(format!(
                "operand `{name}` has shape {:?}, which is not a trailing part of {:?}",
                self.call.operands[index].shape,
                self.call.operands[index - 1].shape
            )),
        }
    }

    /// The next operand as (b, s, n): n is the last extent, s the one before.
    pub(crate) fn sequence(
        &mut self,
        name: &'static str,
        access: Access,
    ) -> Result<[usize; 3], String> {
        let index = self.take(name, Element::Real, access)?;
        match *self.shape(index) {
            [.., sequence, width] => {
                let [sequence, width] = [sequence, width].map(|extent| extent as usize);
                Ok([self.slots[index].length / sequence / width, sequence, width])
            }
            _ => Err(format!("operand `{name}` needs at least two extents")),
        }
    }

    /// The next operand as (b, h, w, c): the last three extents, and what the others multiply to.
    pub(crate) fn images(
        &mut self,
        name: &'static str,
        access: Access,
    ) -> Result<[usize; 4], String> {
        let index = self.take(name, Element::Real, access)?;
        match *self.shape(index) {
            [.., height, width, channels] => {
                let [height, width, channels] =
                    [height, width, channels].map(|extent| extent as usize);
                let images = self.slots[index].length / height / width / channels;
                Ok([images, height, width, channels])
            }
            _ => Err(format!("operand `{name}` needs at least three extents")),
        }
    }

    /// Of the operand that was taken last, only the rows of `tokens` are read or updated, each as
    /// often as it is named; whatever is written is written whole.
    pub(crate) fn looked_up(&mut self, tokens: usize, columns: usize) {
        if let Some(table) = self.slots.last_mut() {
            table.is_looked_up = true;
            match table.access {
                Access::Read | Access::Update => {
                    table.passes = product([tokens, columns]);
                }
                Access::Write => {}
            }
        }
    }

    /// The element type of an operand that was taken.
    pub(crate) fn element(&self, index: usize) -> Element {
        self.slots[index].element
    }

    /// Whether there is an attribute `name`.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.call.attributes.contains_key(name)
    }

    /// Whether attribute `name` is true; absent means false.
    pub(crate) fn flag(&mut self, name: &'static str) -> Result<bool, String> {
        match self.attribute(name) {
            None => Ok(false),
            Some(Attribute::Flag(flag)) => Ok(*flag),
            Some(Attribute::Integer(_) | Attribute::Real(_) | Attribute::Integers(_)) => {
                Err(format!("attribute `{name}` must be true or false"))
            }
        }
    }

    /// What becomes of an output that is added to when the attribute `accumulate` is true.
    pub(crate) fn store(&mut self) -> Result<Store, String> {
        Ok(Store::of(self.flag("accumulate")?))
    }

    /// What becomes of sums over rows that a call makes by the way: they are added to, each as a
    /// whole, when the attribute `accumulate_sums` is true.
    pub(crate) fn store_sums(&mut self) -> Result<Store, String> {
        Ok(Store::of(self.flag("accumulate_sums")?))
    }

    /// A finite real attribute that satisfies `valid`, which `rule` says in words.
    pub(crate) fn real(
        &mut self,
        name: &'static str,
        rule: &str,
        valid: impl Fn(f64) -> bool,
    ) -> Result<f64, String> {
        let value = match self.attribute(name) {
            None => return Err(format!("attribute `{name}` is missing")),
            Some(Attribute::Real(value)) => *value,
            Some(Attribute::Integer(value)) => *value as f64,
            Some(Attribute::Flag(_) | Attribute::Integers(_)) => {
                return Err(format!("attribute `{name}` must be a number"));
            }
        };
        match value.is_finite() && valid(value) {
            true => Ok(value),
            false => Err(format!("attribute `{name}` is {value}, but must be {rule}")),
        }
    }

    /// Like [`Self::real`], for an attribute that may be absent.
    pub(crate) fn optional_real(
        &mut self,
        name: &'static str,
        rule: &str,
        valid: impl Fn(f64) -> bool,
    ) -> Result<Option<f64>, String> {
        match self.attribute(name) {
            None => Ok(None),
            Some(_) => self.real(name, rule, valid).map(Some),
        }
    }

    /// A whole attribute that satisfies `valid`, which `rule` says in words.
    pub(crate) fn integer(
        &mut self,
        name: &'static str,
        rule: &str,
        valid: impl Fn(i64) -> bool,
    ) -> Result<i64, String> {
        match self.attribute(name) {
            None => Err(format!("attribute `{name}` is missing")),
            Some(Attribute::Integer(value)) if valid(*value) => Ok(*value),
            Some(Attribute::Integer(value)) => {
                Err(format!("attribute `{name}` is {value}, but must be {rule}"))
            }
            Some(Attribute::Flag(_) | Attribute::Real(_) | Attribute::Integers(_)) => {
                Err(format!("attribute `{name}` must be a whole number"))
            }
        }
    }

    /// How many there are of something, at least one.
    pub(crate) fn count(&mut self, name: &'static str) -> Result<usize, String> {
        let count = self.integer(name, "at least 1", |count| count >= 1)?;
        usize::try_from(count).map_err(|_| format!("attribute `{name}` is too large"))
    }

    /// Like [`Self::integer`], for an attribute that may be absent.
    pub(crate) fn optional_integer(
        &mut self,
        name: &'static str,
        rule: &str,
        valid: impl Fn(i64) -> bool,
    ) -> Result<Option<i64>, String> {
        match self.attribute(name) {
            None => Ok(None),
            Some(_) => self.integer(name, rule, valid).map(Some),
        }
    }

    /// Ascending, disjoint ranges: begin, end, begin, end, …; absent means none.
    pub(crate) fn ranges(
        &mut self,
        name: &'static str,
    ) -> Result<Vec<(u64, u64)>, String> {
        let numbers = self.whole_numbers(name)?;
        let ascending = numbers.windows(2).all(|pair| pair[0] <= pair[1]);
        if numbers.len() % 2 != 0 || !ascending || numbers.first().is_some_and(|n| *n < 0)
        {
            return Err(format!(
                "attribute `{name}` must be ascending pairs of begin and end"
            ));
        }
        Ok(numbers.chunks(2).map(|pair| (pair[0] as u64, pair[1] as u64)).collect())
    }

    /// Ascending, disjoint ranges with a number each: begin, end, number, …; absent means none.
    pub(crate) fn numbered_ranges(
        &mut self,
        name: &'static str,
    ) -> Result<Vec<[u64; 3]>, String> {
        let (rows, rest) = self.whole_numbers(name)?.as_chunks::<3>();
        let bounds: Vec<i64> = rows.iter().flat_map(|row| [row[0], row[1]]).collect();
        let least = rows.iter().flatten().all(|number| *number >= 0);
        match rest.is_empty() && bounds.is_sorted() && least {
            true => Ok(rows.iter().map(|row| row.map(|number| number as u64)).collect()),
            false => Err(format!(
                "attribute `{name}` must be ascending begins and ends, with a number each"
            )),
        }
    }

    /// The next operand, where there is one of `length` elements with this many `behind` it; it is
    /// updated.
    pub(crate) fn optional_state(
        &mut self,
        name: &'static str,
        length: usize,
        behind: usize,
    ) -> Result<bool, String> {
        let rest = &self.call.operands[self.slots.len().min(self.call.operands.len())..];
        let next = rest.first().filter(|_| rest.len() > behind);
        let given = next.and_then(|next| next.elements()) == Some(length as u64);
        if given {
            self.vector(name, Access::Update, length)?;
        }
        Ok(given)
    }

    /// Refuses what was not asked for; gives what is known of the operands.
    pub(crate) fn finish(self) -> Result<(Vec<Slot>, Option<Indices>), String> {
        let (taken, given) = (self.slots.len(), self.call.operands.len());
        if taken != given {
            return Err(format!("takes {taken} operands, but has {given}"));
        }
        for name in self.call.attributes.keys() {
            if !self.known.contains(&&**name) {
                let hint = nearest_hint(name, self.known.iter().copied());
                return Err(format!("has no attribute `{name}`{hint}"));
            }
        }
        Ok((self.slots, self.indices))
    }

    /// A list of whole numbers; absent means none.
    fn whole_numbers(&mut self, name: &'static str) -> Result<&'a [i64], String> {
        match self.attribute(name) {
            None => Ok(&[]),
            Some(Attribute::Integers(numbers)) => Ok(numbers),
            Some(Attribute::Flag(_) | Attribute::Integer(_) | Attribute::Real(_)) => {
                Err(format!("attribute `{name}` must be a list of whole numbers"))
            }
        }
    }

    fn attribute(&mut self, name: &'static str) -> Option<&'a Attribute> {
        if !self.call.attributes.is_empty() {
            self.known.push(name);
        }
        self.call.attributes.get(name)
    }

    fn take(
        &mut self,
        name: &'static str,
        element: Element,
        access: Access,
    ) -> Result<usize, String> {
        let index = self.slots.len();
        let Some(operand) = self.call.operands.get(index) else {
            return Err(format!("operand {index}, `{name}`, is missing"));
        };
        let fits = match (element, operand.element) {
            (Element::Real | Element::Wide, Element::Real | Element::Wide) => true,
            (Element::I32, found) => found == Element::I32,
            (Element::Real | Element::Wide, Element::I32) => false,
        };
        if !fits {
            return Err(format!("operand `{name}` must be {}", described(element)));
        }
        let length = operand
            .elements()
            .filter(|length| *length <= MOST_ELEMENTS)
            .filter(|length| operand.offset.0.checked_add(length * 8).is_some())
            .ok_or_else(|| format!("operand `{name}` is larger than any memory"))?;
        if length == 0 {
            return Err(format!("operand `{name}` has an extent of zero"));
        }
        let (element, length) = (operand.element, length as usize);
        let row = operand.shape.last().copied().unwrap_or(1);
        let passes = length as u64;
        let is_looked_up = false;
        self.slots.push(Slot { element, access, length, passes, is_looked_up, row });
        Ok(index)
    }

    fn shape(&self, index: usize) -> &'a [u64] {
        &self.call.operands[index].shape
    }

    fn expect(&self, index: usize, name: &str, shape: &[usize]) -> Result<(), String> {
        let expected = shape.iter().try_fold(1usize, |all, n| all.checked_mul(*n));
        match expected == Some(self.slots[index].length) {
            true => Ok(()),
            false => Err(self.mismatch(index, name, shape)),
        }
    }

    fn mismatch(&self, index: usize, name: &str, expected: &[usize]) -> String {
        let shape = &self.call.operands[index].shape;
        format!("operand `{name}` has shape {shape:?}, but must be {expected:?}")
    }
}

fn described(element: Element) -> &'static str {
    match element {
        Element::Real | Element::Wide => "real",
        Element::I32 => "i32",
    }
}

/// Whether some trailing extents multiply to `product`; none of them is zero.
fn trailing(shape: &[u64], product: usize) -> bool {
    let mut total = 1;
    let mut products = shape.iter().rev().map(|extent| {
        total *= *extent as usize;
        total
    });
    product == 1 || products.any(|so_far| so_far == product)
}

/// The product of extents; saturates.
pub(crate) fn product<const N: usize>(factors: [usize; N]) -> u64 {
    factors.into_iter().fold(1u64, |all, factor| all.saturating_mul(factor as u64))
}
