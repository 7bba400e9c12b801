//! Calls that the rows of split tensors make together, once what every row brings is at hand.

use super::{
    code::{Code, number_of},
    driver::{Address, DriverError, Rectangle, Stream},
};
use roundelay_kernels::{
    Exchange,
    cuda::{Accumulation, Number},
};
use roundelay_schedule::{Bytes, Collective, Float};

/// One such call.
#[derive(Clone, Copy)]
pub(super) struct Meeting {
    pub(super) exchange: Exchange,
    kind: Collective,
    pub(super) number: Number,
    /// Bytes of an element.
    pub(super) element: u64,
}

/// How ranks make together what a part gets, each with the bits of a machine that has all parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Every part gets what all bring, and makes its result alone.
    Bring,
    /// Every part gets what all bring of a share of the elements, sums it, and gives it to all.
    Share,
    /// Every part gets what all bring of its own columns, and sums it.
    Cut,
}

/// What one row brings, where it gets its result, and memory meanwhile.
#[derive(Clone, Copy)]
pub(super) struct Ends<'a> {
    pub(super) brought: &'a [Address],
    pub(super) part: usize,
    pub(super) got: Address,
    pub(super) scratch: Address,
}

impl Meeting {
    /// A call in a job's type: sums that are kept wide stay so on the way.
    pub(super) fn new(exchange: Exchange, kind: Collective, dtype: Float) -> Self {
        let element = exchange.element;
        let number = number_of(dtype, element);
        Self { exchange, kind, number, element: element.size(dtype) }
    }

    /// The lines of so many parts, each as the numbers of its parts.
    pub(super) fn lines(
        self,
        parts: usize,
    ) -> impl Iterator<Item = impl Iterator<Item = usize> + Clone> {
        let line = self.exchange.line;
        let all = 0..u32::try_from(parts).unwrap_or(u32::MAX);
        let firsts = all.filter(move |part| line.place(*part) == 0);
        firsts.map(move |first| line.members(first).map(|part| part as usize))
    }

    /// What ranks send each other for it. A sum that is added to something is no sum of shares, for
    /// shares would be rounded before.
    pub(super) fn way(&self) -> Way {
        match (self.kind, self.store()) {
            (Collective::AllReduce, Accumulation::Replace) => Way::Share,
            (Collective::AllReduce, Accumulation::Add) | (Collective::AllGather, _) => {
                Way::Bring
            }
            (Collective::ReduceScatter, _) => Way::Cut,
        }
    }

    /// Bytes of what each row brings.
    pub(super) fn brought(&self) -> u64 {
        let Exchange { rows, whole, .. } = self.exchange;
        let columns = match self.kind {
            Collective::AllReduce | Collective::ReduceScatter => whole,
            Collective::AllGather => self.exchange.columns(),
        };
        (rows * columns) as u64 * self.element
    }

    /// Elements of what each row gets.
    pub(super) fn elements(&self) -> u64 {
        let Exchange { rows, whole, .. } = self.exchange;
        match self.kind {
            Collective::AllReduce | Collective::AllGather => (rows * whole) as u64,
            Collective::ReduceScatter => (rows * self.exchange.columns()) as u64,
        }
    }

    /// Room for a gathered result that is added to something, and for the parts that are summed.
    pub(super) fn scratch(&self) -> Bytes {
        let arrays = match self.kind {
            Collective::AllReduce => 0,
            Collective::AllGather => u64::from(self.exchange.adds()),
            Collective::ReduceScatter => u64::from(self.exchange.line.parts),
        };
        Bytes(arrays * self.room())
    }

    /// Bytes of what each row gets.
    pub(super) fn got(&self) -> u64 {
        self.elements() * self.element
    }

    /// Bytes from one of them to the next, where several lie one after another.
    pub(super) fn room(&self) -> u64 {
        self.got().next_multiple_of(super::arena::ALIGNMENT)
    }

    /// Makes what a row gets, on its stream.
    pub(super) fn join(
        &self,
        code: &mut Code,
        ends: Ends<'_>,
        stream: &Stream,
    ) -> Result<(), DriverError> {
        let (to, store) = ((ends.got, self.elements()), self.store());
        match self.kind {
            Collective::AllReduce => {
                code.sum(self.number, ends.brought, to, store, stream)
            }
            Collective::AllGather if self.exchange.adds() => {
                self.gather(ends, ends.scratch, stream)?;
                code.sum(self.number, &[ends.scratch], to, store, stream)
            }
            Collective::AllGather => self.gather(ends, ends.got, stream),
            Collective::ReduceScatter => self.scatter(code, ends, stream),
        }
    }

    /// Whether the result is added to what is there.
    pub(super) fn store(&self) -> Accumulation {
        match self.exchange.adds() {
            true => Accumulation::Add,
            false => Accumulation::Replace,
        }
    }

    /// First column of a part, and how many of the whole it has.
    fn columns(&self, part: usize) -> (u64, u64) {
        let (columns, whole) = (self.exchange.columns(), self.exchange.whole);
        let first = (part * columns).min(whole);
        (first as u64, columns.min(whole - first) as u64)
    }

    fn pitches(&self) -> (u64, u64) {
        let own = self.exchange.columns() as u64 * self.element;
        (own, self.exchange.whole as u64 * self.element)
    }

    fn gather(
        &self,
        ends: Ends<'_>,
        to: Address,
        stream: &Stream,
    ) -> Result<(), DriverError> {
        let (own, whole) = self.pitches();
        for (part, brought) in ends.brought.iter().enumerate() {
            let (first, columns) = self.columns(part);
            let from = Rectangle { start: *brought, pitch: own };
            let to = Rectangle { start: to.plus(first * self.element), pitch: whole };
            let width = columns * self.element;
            stream.copy_rows(from, to, width, self.exchange.rows as u64)?;
        }
        Ok(())
    }

    /// The columns of the part are taken out of what each row brings, and then summed.
    fn scatter(
        &self,
        code: &mut Code,
        ends: Ends<'_>,
        stream: &Stream,
    ) -> Result<(), DriverError> {
        let room = self.room();
        let parts = (0..ends.brought.len() as u64).map(|k| ends.scratch.plus(k * room));
        let parts: Vec<Address> = parts.collect();
        for (brought, part) in ends.brought.iter().zip(&parts) {
            self.cut((*brought, ends.part), *part, stream)?;
        }
        let to = (ends.got, self.elements());
        code.sum(self.number, &parts, to, self.store(), stream)
    }

    /// Takes the columns of a part out of what a row brings; columns behind the whole are zero.
    pub(super) fn cut(
        &self,
        (brought, part): (Address, usize),
        to: Address,
        stream: &Stream,
    ) -> Result<(), DriverError> {
        let (own, whole) = self.pitches();
        let (first, columns) = self.columns(part);
        let width = columns * self.element;
        if width < own {
            stream.fill(to, 0, self.got())?;
        }
        let from = Rectangle { start: brought.plus(first * self.element), pitch: whole };
        let to = Rectangle { start: to, pitch: own };
        stream.copy_rows(from, to, width, self.exchange.rows as u64)
    }
}
