//! Calls that the parts of split tensors make together, once what every part brings is at hand.

use super::{
    driver::{Address, DriverError, Rectangle, Stream},
    ready::{Code, number_of},
};
use crate::exchange::Way;
use roundelay_kernels::{
    Exchange, Joint, Store,
    cuda::{Halos, Lies, Number},
};
use roundelay_schedule::{Bytes, Collective, Float};

/// One such call.
#[derive(Clone, Copy)]
pub(super) struct Meeting {
    pub(super) exchange: Exchange,
    pub(super) joined: Joined,
    pub(super) number: Number,
    /// Bytes of an element.
    pub(super) element: u64,
}

/// What is made of what parts bring.
#[derive(Clone, Copy, Debug)]
pub(super) enum Joined {
    /// Sums of columns, or all columns side by side.
    Columns(Collective),
    /// Rows of images whose pixels parts divide, or sums of their gradients.
    Rows(Halos),
}

/// What one part brings, where it gets its result, and memory meanwhile.
#[derive(Clone, Copy)]
pub(super) struct Ends<'a> {
    pub(super) brought: &'a [Address],
    pub(super) part: usize,
    pub(super) got: Address,
    pub(super) scratch: Address,
}

impl Meeting {
    /// A call in a job's type: sums that are kept wide stay so on the way.
    pub(super) fn new(exchange: Exchange, dtype: Float) -> Self {
        let element = exchange.element;
        let number = number_of(dtype, element);
        let joined = match (exchange.kind, Halos::of(&exchange, number)) {
            (Joint::Collective(kind), _) => Joined::Columns(kind),
            (Joint::Halo(_) | Joint::HaloAdd(_), halos) => {
                Joined::Rows(halos.expect("it is an exchange of rows"))
            }
        };
        Self { exchange, joined, number, element: element.size(dtype) }
    }

    /// The lines of this many parts, each as the numbers of its parts.
    pub(super) fn lines(
        self,
        parts: usize,
    ) -> impl Iterator<Item = impl Iterator<Item = usize> + Clone> {
        let line = self.exchange.line;
        let all = 0..u32::try_from(parts).unwrap_or(u32::MAX);
        let firsts = all.filter(move |part| line.place(*part) == 0);
        firsts.map(move |first| line.members(first).map(|part| part as usize))
    }

    /// What ranks send each other for it.
    pub(super) fn way(&self) -> Way {
        Way::of(&self.exchange)
    }

    /// The rows of images that are exchanged, where there are such.
    pub(super) fn halos(&self) -> Option<&Halos> {
        match &self.joined {
            Joined::Columns(_) => None,
            Joined::Rows(halos) => Some(halos),
        }
    }

    /// Bytes of what each part brings.
    pub(super) fn brought(&self) -> u64 {
        let Exchange { rows, whole, .. } = self.exchange;
        let elements = match self.joined {
            Joined::Columns(Collective::AllReduce | Collective::ReduceScatter) => {
                rows * whole
            }
            Joined::Columns(Collective::AllGather) => rows * self.exchange.columns(),
            Joined::Rows(halos) => halos.brought(),
        };
        elements as u64 * self.element
    }

    /// Elements of what each part gets.
    pub(super) fn elements(&self) -> u64 {
        let Exchange { rows, whole, .. } = self.exchange;
        let elements = match self.joined {
            Joined::Columns(Collective::AllReduce | Collective::AllGather) => {
                rows * whole
            }
            Joined::Columns(Collective::ReduceScatter) => rows * self.exchange.columns(),
            Joined::Rows(halos) => halos.got(),
        };
        elements as u64
    }

    /// Room for a gathered result that is added to something, and for the parts that are summed.
    pub(super) fn scratch(&self) -> Bytes {
        let arrays = match self.joined {
            Joined::Columns(Collective::AllReduce) | Joined::Rows(_) => 0,
            Joined::Columns(Collective::AllGather) => match self.exchange.store {
                Store::Write => 0,
                Store::Add => 1,
            },
            Joined::Columns(Collective::ReduceScatter) => {
                u64::from(self.exchange.line.parts)
            }
        };
        Bytes(arrays * self.room())
    }

    /// Bytes of what each part gets.
    pub(super) fn got(&self) -> u64 {
        self.elements() * self.element
    }

    /// Bytes from one of them to the next, where several lie one after another.
    pub(super) fn room(&self) -> u64 {
        self.got().next_multiple_of(super::arena::ALIGNMENT)
    }

    /// Makes what a part gets, on its stream.
    pub(super) fn join(
        &self,
        code: &mut Code,
        ends: Ends<'_>,
        stream: &Stream,
    ) -> Result<(), DriverError> {
        let (to, store) = ((ends.got, self.elements()), self.exchange.store);
        match self.joined {
            Joined::Columns(Collective::AllReduce) => {
                code.sum(self.number, ends.brought, to, store, stream)
            }
            Joined::Columns(Collective::AllGather) => match store {
                Store::Write => self.gather(ends, ends.got, stream),
                Store::Add => {
                    self.gather(ends, ends.scratch, stream)?;
                    code.sum(self.number, &[ends.scratch], to, store, stream)
                }
            },
            Joined::Columns(Collective::ReduceScatter) => {
                self.scatter(code, ends, stream)
            }
            Joined::Rows(halos) => {
                let launches = halos.join(ends.part, |_| Lies::Whole);
                let operands = [&[ends.got], ends.brought].concat();
                code.launch_all(launches, &operands, stream)
            }
        }
    }

    /// First column of a part, and how many of the whole it has.
    fn columns(&self, part: usize) -> (u64, u64) {
        let columns = self.exchange.columns_of(part);
        (columns.start as u64, columns.len() as u64)
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

    /// The columns of the part are taken out of what each part brings, and then summed.
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
        code.sum(self.number, &parts, to, self.exchange.store, stream)
    }

    /// Takes the columns of a part out of what a part brings; columns behind the whole are zero.
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
