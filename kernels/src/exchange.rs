//! Calls that the devices of a line make together where tensors are split: `all_reduce`,
//! `all_gather`, `reduce_scatter`, `halo` and `halo_add`. A kernel only says what becomes of everybody's contribution;
//! that all of them are there, and stay until all have read them, is up to the machine.

use crate::{
    Context, Real,
    fast::exchange as fast,
    halo::{Halo, images},
    kernel::Define,
    operand::Operands,
    signature::{Signature, product},
    store::Store,
};
use roundelay_schedule::{
    Access, Bytes, Collective, Element, Exchanged, Exchanging, Float, Line, Meanwhile,
};
use std::ops::Range;

/// One such call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// What is made of the contributions.
    pub kind: Joint,
    /// Which devices take part.
    pub line: Line,
    /// Rows of the arrays.
    pub rows: usize,
    /// Columns of the whole array.
    pub whole: usize,
    /// Columns that stay together; they divide those of the whole.
    pub inner: usize,
    /// In which element devices bring it.
    pub element: Element,
    /// What a device does until it is done.
    pub meanwhile: Meanwhile,
    /// What becomes of what the result held before.
    pub store: Store,
}

/// What is made of what devices bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joint {
    /// Sums of all, or the parts of all side by side.
    Collective(Collective),
    /// All rows that a window reads, of images whose rows are divided.
    Halo(Halo),
    /// Sums of their gradients, for those who have the rows.
    HaloAdd(Halo),
}

impl Joint {
    /// What is made of gradients on the way back: ⟨F x, y⟩ = ⟨x, F* y⟩, summed over all devices. Of
    /// halos whose padding is not zero, that of the rows alone.
    pub fn adjoint(self) -> Self {
        match self {
            Joint::Collective(kind) => Joint::Collective(kind.adjoint()),
            Joint::Halo(halo) => Joint::HaloAdd(halo),
            Joint::HaloAdd(halo) => Joint::Halo(halo),
        }
    }
}

impl Exchange {
    /// Columns of a part: those of the whole, divided and rounded up to such as stay together.
    pub fn columns(&self) -> usize {
        each(self.whole, self.line.parts as usize, self.inner)
    }

    /// Columns of the whole that the part at a place has; the last parts may have fewer than others.
    pub fn columns_of(&self, place: usize) -> Range<usize> {
        let columns = self.columns();
        let first = (place * columns).min(self.whole);
        first..(first + columns).min(self.whole)
    }

    /// What makes a part's sum of arrays that have only its columns.
    pub fn of_cut(self) -> Self {
        Self { kind: Joint::Collective(Collective::AllReduce), ..self }
    }

    /// Elements of what one part brings that another one needs, row by row, where rows of images are
    /// exchanged; none where all columns are, or where the other part needs nothing.
    pub fn strips(&self, [from, to]: [usize; 2]) -> impl Iterator<Item = Range<usize>> {
        let strip = match self.kind {
            Joint::Collective(_) => None,
            Joint::Halo(halo) => Some(halo.fetched([from, to])),
            Joint::HaloAdd(halo) => Some(halo.brought_back([from, to])),
        };
        let images = 0..strip.as_ref().map_or(0, |_| self.rows);
        images.flat_map(move |image| {
            let strip = strip.clone();
            strip.into_iter().flat_map(move |strip| strip.rows_of(image))
        })
    }

    /// The exchange of gradients, which writes its result.
    pub fn adjoint(self) -> Self {
        Self { kind: self.kind.adjoint(), store: Store::Write, ..self }
    }

    /// Elements of the whole array.
    pub fn elements(&self) -> usize {
        self.rows * self.whole
    }

    /// What is sent between devices, where real numbers are of this type.
    pub fn exchanged(&self, dtype: Float) -> Exchanged {
        Exchanged {
            kind: self.exchanging(),
            line: self.line,
            whole: Bytes(self.elements() as u64 * self.element.size(dtype)),
            meanwhile: self.meanwhile,
        }
    }

    /// Bytes that the part at a place of the line sends, where real numbers are of this type.
    pub fn sent_by(&self, place: usize, dtype: Float) -> Bytes {
        let parts = self.line.parts as usize;
        let rows = match self.kind {
            Joint::Collective(_) => return self.exchanged(dtype).sent(),
            Joint::Halo(halo) => halo.sent_by(place, parts),
            Joint::HaloAdd(halo) => halo.sent_back_by(place, parts),
        };
        let row = (self.rows * self.inner) as u64 * self.element.size(dtype);
        Bytes(rows as u64 * row)
    }

    fn exchanging(&self) -> Exchanging {
        let parts = self.line.parts as usize;
        match self.kind {
            Joint::Collective(kind) => Exchanging::Collective(kind),
            Joint::Halo(halo) => Exchanging::Strips(halo.strips(parts)),
            Joint::HaloAdd(halo) => Exchanging::Strips(halo.strips_back(parts)),
        }
    }

    /// The result on the device at place `part` of the line, from what each device brings, in
    /// their order: sums go from the first to the last, so every device finds the same bits.
    ///
    /// # Panics
    /// When the arrays do not have the lengths that the call says.
    pub fn join<R: Real>(&self, brought: &[&[R]], part: usize, out: &mut [R]) {
        let parts = self.line.parts as usize;
        assert_eq!(brought.len(), parts, "every device brings something");
        match self.kind {
            Joint::Collective(Collective::AllReduce) => {
                self.sum(brought, 0..out.len(), out);
            }
            Joint::Collective(Collective::AllGather) => self.gather(brought, out),
            Joint::Collective(Collective::ReduceScatter) => {
                self.scatter(brought, part, out);
            }
            Joint::Halo(halo) => halo.fetch(brought, part, out),
            Joint::HaloAdd(halo) => halo.add(brought, part, out, self.store),
        }
    }

    fn gather<R: Real>(&self, brought: &[&[R]], out: &mut [R]) {
        let columns = self.columns();
        for (row, out) in out.chunks_mut(self.whole).enumerate() {
            for (out, brought) in out.chunks_mut(columns).zip(brought) {
                let from = &brought[row * columns..];
                out.iter_mut().zip(from).for_each(|(out, x)| self.store.put(out, *x));
            }
        }
    }

    fn scatter<R: Real>(&self, brought: &[&[R]], part: usize, out: &mut [R]) {
        let range = self.columns_of(part);
        for (row, out) in out.chunks_mut(self.columns()).enumerate() {
            let start = row * self.whole + range.start;
            let (own, behind) = out.split_at_mut(range.len());
            self.sum(brought, start..start + range.len(), own);
            self.store.clear(behind);
        }
    }

    /// Additions of one device.
    fn flops(self) -> u64 {
        let others = self.line.parts as usize - 1;
        match self.kind {
            Joint::Collective(Collective::AllReduce) => {
                product([others, self.elements()])
            }
            Joint::Collective(Collective::ReduceScatter) => {
                product([others, self.rows, self.columns()])
            }
            Joint::Collective(Collective::AllGather) | Joint::Halo(_) => 0,
            Joint::HaloAdd(halo) => product([self.rows, halo.got()]),
        }
    }

    /// The sum of one range of all arrays, first to last.
    fn sum<R: Real>(&self, brought: &[&[R]], range: Range<usize>, out: &mut [R]) {
        fast::sum(brought, range, out, self.store);
    }
}

/// The attributes `parts` and `stride`, which is one where it is absent.
pub(crate) fn line(call: &mut Signature<'_>) -> Result<Line, String> {
    line_of(call, ["parts", "stride"])
}

/// A line whose attributes have these names; the latter is one where it is absent.
pub(crate) fn line_of(
    call: &mut Signature<'_>,
    [parts, stride]: [&'static str; 2],
) -> Result<Line, String> {
    let rule = "from 1 to 4096";
    let fits = |number| (1..=4096).contains(&number);
    let parts = call.integer(parts, rule, fits)?;
    let stride = call.optional_integer(stride, rule, fits)?.unwrap_or(1);
    Ok(Line { parts: parts as u32, stride: stride as u32 })
}

/// The element in which devices bring an array and get one: nothing is converted on the way.
fn element(call: &Signature<'_>) -> Result<Element, String> {
    let (brought, got) = (call.element(0), call.element(1));
    let unlike = "an exchange brings numbers as wide as those of its result";
    (brought == got).then_some(brought).ok_or_else(|| unlike.to_owned())
}

/// The attribute `beside`: whether the calls that follow are made before the exchange is done.
fn meanwhile(call: &mut Signature<'_>) -> Result<Meanwhile, String> {
    Ok(if call.flag("beside")? { Meanwhile::GoesOn } else { Meanwhile::Waits })
}

/// The attribute `inner`: how many of the columns stay together, one where it is absent.
pub(crate) fn inner(call: &mut Signature<'_>, columns: usize) -> Result<usize, String> {
    let rule = "a divisor of the number of columns";
    let inner = call.optional_integer("inner", rule, |inner| {
        usize::try_from(inner)
            .is_ok_and(|inner| inner > 0 && columns.is_multiple_of(inner))
    })?;
    Ok(inner.map_or(1, |inner| inner as usize))
}

/// Columns of one of several parts, `inner` of which stay together.
pub(crate) fn each(whole: usize, parts: usize, inner: usize) -> usize {
    (whole / inner).div_ceil(parts) * inner
}

/// A kernel of exchanges, as a function reads them.
macro_rules! exchange {
    ($(#[$doc:meta])* $kernel:ident, $read:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct $kernel(pub(crate) Exchange);

        impl Define for $kernel {
            fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
                $read(call).map(Self)
            }
            fn flops(&self) -> u64 {
                self.0.flops()
            }
            fn exchange(&self) -> Option<Exchange> {
                Some(self.0)
            }
            /// One device alone is all there is.
            fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
                let x = operands.read();
                self.0.join(&[x], 0, operands.write());
            }
        }
    };
}

exchange!(
    /// Everybody gets the sum.
    AllReduce, all_reduce
);
exchange!(
    /// Everybody gets all parts, side by side.
    AllGather, all_gather
);
exchange!(
    /// Everybody gets its own part of the sum.
    ReduceScatter, reduce_scatter
);
exchange!(
    /// Everybody gets the rows that its window reads.
    FetchHalo, fetch_halo
);
exchange!(
    /// Everybody gets the sums of the gradients of its own rows.
    AddHalo, add_halo
);

fn all_reduce(call: &mut Signature<'_>) -> Result<Exchange, String> {
    let (store, line, meanwhile) = (call.store()?, line(call)?, meanwhile(call)?);
    let (rows, whole) = call.matrix("x", Access::Read)?;
    call.shaped("out", store.access(), (rows, whole))?;
    let kind = Joint::Collective(Collective::AllReduce);
    let element = element(call)?;
    let inner = 1;
    Ok(Exchange { kind, line, rows, whole, inner, element, meanwhile, store })
}

fn all_gather(call: &mut Signature<'_>) -> Result<Exchange, String> {
    let (store, line, meanwhile) = (call.store()?, line(call)?, meanwhile(call)?);
    let own = call.matrix("x", Access::Read)?;
    let (rows, whole) = call.matrix("out", store.access())?;
    let kind = Joint::Collective(Collective::AllGather);
    let inner = inner(call, whole)?;
    let element = element(call)?;
    let exchange = Exchange { kind, line, rows, whole, inner, element, meanwhile, store };
    fits(&exchange, own).map(|()| exchange)
}

fn reduce_scatter(call: &mut Signature<'_>) -> Result<Exchange, String> {
    let (store, line, meanwhile) = (call.store()?, line(call)?, meanwhile(call)?);
    let (rows, whole) = call.matrix("x", Access::Read)?;
    let own = call.matrix("out", store.access())?;
    let kind = Joint::Collective(Collective::ReduceScatter);
    let inner = inner(call, whole)?;
    let element = element(call)?;
    let exchange = Exchange { kind, line, rows, whole, inner, element, meanwhile, store };
    fits(&exchange, own).map(|()| exchange)
}

fn fetch_halo(call: &mut Signature<'_>) -> Result<Exchange, String> {
    let (line, meanwhile) = (line(call)?, meanwhile(call)?);
    let ends = [("x", Access::Read), ("out", Access::Write)];
    let [own, got] = images(call, ends)?;
    let halo = Halo::parse(call, own, got)?;
    let (rows, whole, inner) = columns(own, &halo, line)?;
    let (kind, store, element) = (Joint::Halo(halo), Store::Write, element(call)?);
    Ok(Exchange { kind, line, rows, whole, inner, element, meanwhile, store })
}

fn add_halo(call: &mut Signature<'_>) -> Result<Exchange, String> {
    let (store, line, meanwhile) = (call.store()?, line(call)?, meanwhile(call)?);
    let ends = [("dy", Access::Read), ("dx", store.access())];
    let [got, own] = images(call, ends)?;
    let halo = Halo::parse(call, own, got)?;
    let (rows, whole, inner) = columns(own, &halo, line)?;
    let (kind, element) = (Joint::HaloAdd(halo), element(call)?);
    Ok(Exchange { kind, line, rows, whole, inner, element, meanwhile, store })
}

/// Images whose rows are divided as a matrix whose columns are: a row for each image.
fn columns(
    own: [usize; 4],
    halo: &Halo,
    line: Line,
) -> Result<(usize, usize, usize), String> {
    let [images, height, _, _] = own;
    let parts = height.checked_mul(line.parts as usize);
    let whole = parts.and_then(|rows| rows.checked_mul(halo.width()));
    let fits = whole.filter(|whole| images.checked_mul(*whole).is_some());
    let whole = fits.ok_or("images of all parts are larger than any memory")?;
    Ok((images, whole, halo.width()))
}

fn fits(exchange: &Exchange, own: (usize, usize)) -> Result<(), String> {
    let Exchange { line: Line { parts, .. }, rows, whole, .. } = *exchange;
    match own == (rows, exchange.columns()) {
        true => Ok(()),
        false => Err(format!("{own:?} is not one of {parts} parts of ({rows}, {whole})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kernels;
    use roundelay_schedule::{Attribute, Call, Catalogue, GradientSums, Operand};

    fn exchange(kind: Collective) -> Exchange {
        let kind = Joint::Collective(kind);
        let (element, store) = (Element::Real, Store::Write);
        let line = Line { parts: 3, stride: 1 };
        let meanwhile = Meanwhile::Waits;
        Exchange { kind, line, rows: 2, whole: 5, inner: 1, element, meanwhile, store }
    }

    #[test]
    fn a_scattered_sum_gathered_again_is_the_sum_everywhere() {
        let brought: Vec<Vec<f64>> = (0..3)
            .map(|part| (0..10).map(|i| f64::from(part * 100 + i * i)).collect())
            .collect();
        let brought: Vec<&[f64]> = brought.iter().map(Vec::as_slice).collect();
        let mut sum = vec![0.0; 10];
        exchange(Collective::AllReduce).join(&brought, 1, &mut sum);
        let scatter = exchange(Collective::ReduceScatter);
        let parts: Vec<Vec<f64>> = (0..3)
            .map(|part| {
                let mut own = vec![f64::NAN; 4];
                scatter.join(&brought, part, &mut own);
                own
            })
            .collect();
        let parts: Vec<&[f64]> = parts.iter().map(Vec::as_slice).collect();
        let mut gathered = vec![f64::NAN; 10];
        exchange(Collective::AllGather).join(&parts, 2, &mut gathered);
        assert_eq!(gathered, sum);
        assert_eq!(sum[9], 3.0 * 81.0 + 300.0);
        assert_eq!((parts[2][1], parts[2][3]), (0.0, 0.0));
    }

    #[test]
    fn columns_that_stay_together_are_in_one_part() {
        let of = |kind| Exchange { rows: 1, whole: 10, inner: 2, ..exchange(kind) };
        let whole: Vec<f64> = (0..10).map(f64::from).collect();
        let parts = [0, 1, 2].map(|part| {
            let mut own = vec![f64::NAN; 4];
            let zeros = [0.0; 10];
            let brought: [&[f64]; 3] = [&whole, &zeros, &zeros];
            of(Collective::ReduceScatter).join(&brought, part, &mut own);
            own
        });
        assert_eq!(parts[1], [4.0, 5.0, 6.0, 7.0]);
        assert_eq!(parts[2], [8.0, 9.0, 0.0, 0.0]);
        let mut gathered = vec![f64::NAN; 10];
        let parts = parts.each_ref().map(Vec::as_slice);
        of(Collective::AllGather).join(&parts, 0, &mut gathered);
        assert_eq!(gathered, whole);
    }

    /// In 16 bits, or as wide as sums of gradients.
    #[test]
    fn what_is_sent_counts_in_the_element_that_is_brought() {
        let sent = |kernel: &'static str, element: Element, columns: [u64; 2]| {
            let operand = |columns| {
                let (argument, offset) = (0, Bytes(0));
                Operand { argument, offset, element, shape: [3, columns][..].into() }
            };
            let parts = Attribute::Integer(2);
            let call = Call {
                kernel: kernel.into(),
                attributes: [("parts".into(), parts)].into_iter().collect(),
                operands: columns.map(operand).into(),
            };
            let exchanged = Kernels.exchange(&call, Float::Bf16(GradientSums::F32));
            let exchanged = exchanged.expect("it is one");
            (exchanged.whole, exchanged.sent())
        };
        let (real, wide) = (Element::Real, Element::Wide);
        let all = 3 * 10;
        let found = sent("all_gather", wide, [5, 10]);
        assert_eq!(found, (Bytes(4 * all), Bytes(2 * all)));
        let found = sent("reduce_scatter", real, [10, 5]);
        assert_eq!(found, (Bytes(2 * all), Bytes(all)));
        let found = sent("all_reduce", real, [10, 10]);
        assert_eq!(found, (Bytes(2 * all), Bytes(2 * all)));
    }
}
