//! Images whose rows several devices divide: what a part gets of the rows that others have, and the
//! strips that it sends them.
//!
//! Exchanges are made by machines, which have the addresses of all parts; of one part alone they are
//! calls like others.

use super::{
    Argument, CallPlace, Function, Launch, Number,
    columns::further,
    draft::{Draft, MOST_BLOCKS, NOWHERE, Shape, adding, count},
    form::{Form, Role},
    source::HALO,
};
use crate::{
    Exchange, Halo, Joint,
    exchange::{AddHalo, FetchHalo},
    halo::LyingRows,
    store::Store,
};
use roundelay_schedule::Bytes;
use std::ops::Range;

/// Strips that one launch takes.
const MOST_STRIPS: usize = 8;

/// An exchange of rows of images among parts, by functions of a device.
#[derive(Clone, Copy, Debug)]
pub struct Halos {
    halo: Halo,
    motion: Motion,
    images: usize,
    parts: usize,
    number: Number,
}

/// What becomes of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Motion {
    /// They go to all parts whose windows read them.
    Fetch,
    /// They come back from there and are summed.
    Sum(Store),
}

/// How the rows of a part lie that another one needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// Among all that the part brings.
    Whole,
    /// Alone, one after another, as [`Halos::pack`] puts them.
    Packed,
}

/// Rows that are made, and the padding at both of their ends.
struct Made {
    numbers: Range<usize>,
    side: usize,
}

/// A function of the narrow type, its threads and its arguments.
type Written = (&'static str, Shape, Vec<Argument>);

/// Of a written function, what it makes, and what the part at a place brings.
type Places<'a> = &'a dyn Fn(Option<usize>) -> CallPlace;

impl Halos {
    /// An exchange, if it is one of rows of images, of such numbers.
    pub fn of(exchange: &Exchange, number: Number) -> Option<Self> {
        let (halo, motion) = match exchange.kind {
            Joint::Collective(_) => return None,
            Joint::Halo(halo) => (halo, Motion::Fetch),
            Joint::HaloAdd(halo) => (halo, Motion::Sum(exchange.store)),
        };
        let (images, parts) = (exchange.rows, exchange.line.parts as usize);
        Some(Self { halo, motion, images, parts, number })
    }

    /// Elements that each part brings.
    pub fn brought(&self) -> usize {
        self.images
            * match self.motion {
                Motion::Fetch => self.halo.had(),
                Motion::Sum(_) => self.halo.got(),
            }
    }

    /// Elements that each part gets.
    pub fn got(&self) -> usize {
        self.images
            * match self.motion {
                Motion::Fetch => self.halo.got(),
                Motion::Sum(_) => self.halo.had(),
            }
    }

    /// Elements of the rows that one part has and another one, or itself, needs.
    pub fn needed(&self, ends: [usize; 2]) -> usize {
        self.images * self.between(ends).len() * self.halo.width()
    }

    /// Puts the rows that one part has and another one needs one after another: to operand 0, from what
    /// the part brings, which is operand 1. None where there are no such rows.
    pub fn pack(&self, [from, to]: [usize; 2]) -> Option<Launch> {
        let numbers = self.between([from, to]);
        let places = |brought: Option<usize>| {
            CallPlace::Operand(usize::from(brought.is_some()), Bytes(0))
        };
        let strip = (from, self.whole(from));
        let made = Made { numbers, side: 0 };
        (!made.numbers.is_empty())
            .then(|| self.launch(self.rows(&made, (&[strip], true), &places)))
    }

    /// A launch of each function that [`Halos::pack`] and [`Halos::join`] take.
    pub fn functions(&self) -> [Launch; 2] {
        let places = |_| CallPlace::Operand(0, Bytes(0));
        let rows = self.rows(&Made { numbers: 0..1, side: 0 }, (&[], true), &places);
        [rows, self.sums(0..1, (&[], Store::Write), &places)].map(|one| self.launch(one))
    }

    /// Makes what the part at a place gets, one launch after another: to operand 0, from what the part
    /// at each place brings, which is the operand behind it.
    pub fn join(&self, part: usize, lies: impl Fn(usize) -> Lies) -> Vec<Launch> {
        let places = |brought: Option<usize>| {
            CallPlace::Operand(brought.map_or(0, |place| 1 + place), Bytes(0))
        };
        let written = self.written(part, &lies, &places);
        written.into_iter().map(|written| self.launch(written)).collect()
    }

    fn written(
        &self,
        part: usize,
        lies: &dyn Fn(usize) -> Lies,
        places: Places<'_>,
    ) -> Vec<Written> {
        let strips = (0..self.parts).filter_map(|place| {
            let needed = self.between([place, part]);
            let strip = match lies(place) {
                Lies::Whole => self.whole(place),
                Lies::Packed => {
                    let (numbers, pitch) = (needed.clone(), self.halo.width());
                    LyingRows { numbers, start: 0, pitch }
                }
            };
            (!needed.is_empty()).then_some((place, strip))
        });
        let strips: Vec<(usize, LyingRows)> = strips.collect();
        let (first, others) = strips.split_at(strips.len().min(MOST_STRIPS));
        let launches = [first].into_iter().chain(others.chunks(MOST_STRIPS));
        let launches = launches.enumerate();
        let one = |(number, strips): (usize, &[(usize, LyingRows)])| match self.motion {
            Motion::Fetch => {
                let made = Made { numbers: self.halo.gets(part), side: self.halo.side() };
                self.rows(&made, (strips, number == 0), places)
            }
            Motion::Sum(store) => {
                // Launches behind the first one add to what that one made.
                let store = if number == 0 { store } else { Store::Add };
                self.sums(self.halo.has(part), (strips, store), places)
            }
        };
        launches.map(one).collect()
    }

    /// Numbers of the rows that one part brings and another one needs.
    fn between(&self, [from, to]: [usize; 2]) -> Range<usize> {
        let (has, gets) = match self.motion {
            Motion::Fetch => (from, to),
            Motion::Sum(_) => (to, from),
        };
        self.halo.shared([has, gets])
    }

    /// How all lies that a part brings.
    fn whole(&self, part: usize) -> LyingRows {
        match self.motion {
            Motion::Fetch => self.halo.rows_had(part),
            Motion::Sum(_) => self.halo.rows_got(part),
        }
    }

    /// Rows of strips and padding; of all that is made, or of the strips alone.
    fn rows(
        &self,
        made: &Made,
        (strips, all): (&[(usize, LyingRows)], bool),
        places: Places<'_>,
    ) -> Written {
        let Made { numbers, side } = made;
        let width = self.halo.width();
        let extents = [self.images, numbers.len(), numbers.start, width, *side];
        let flags = [self.halo.is_lowest(), all];
        let mut arguments = vec![Argument::Address(places(None))];
        arguments.extend(extents.map(count));
        arguments.extend(flags.map(|flag| Argument::Unsigned(flag.into())));
        arguments.extend(self.strips(strips, places));
        ("halo", self.shape(numbers.len(), width + 2 * side), arguments)
    }

    /// Sums of strips.
    fn sums(
        &self,
        numbers: Range<usize>,
        (strips, store): (&[(usize, LyingRows)], Store),
        places: Places<'_>,
    ) -> Written {
        let width = self.halo.width();
        let mut arguments = vec![Argument::Address(places(None))];
        let extents = [self.images, numbers.len(), numbers.start, width];
        arguments.extend(extents.map(count));
        arguments.push(adding(store));
        arguments.extend(self.strips(strips, places));
        ("halo_add", self.shape(numbers.len(), width), arguments)
    }

    fn shape(&self, rows: usize, length: usize) -> Shape {
        let Shape { grid: [blocks, ..], block, shared } =
            Shape::rows(self.images * rows, length);
        Shape { grid: [blocks.min(MOST_BLOCKS[0]), 1, 1], block, shared }
    }

    fn strips(&self, strips: &[(usize, LyingRows)], places: Places<'_>) -> Vec<Argument> {
        let none = [NOWHERE, count(0), count(0), count(0), count(0)];
        let each = strips.iter().map(|(place, strip)| {
            let LyingRows { numbers, start, pitch } = strip;
            let at = further(places(Some(*place)), start * self.number.size());
            let [first, length, row, image] =
                [numbers.start, numbers.len(), *pitch, strip.image()].map(count);
            [Argument::Address(at), first, length, row, image]
        });
        let rest = std::iter::repeat(none);
        each.chain(rest).take(MOST_STRIPS).flatten().collect()
    }

    fn launch(&self, (name, shape, arguments): Written) -> Launch {
        let symbol = format!("{name}_{}", self.number.name());
        let Shape { grid, block, shared } = shape;
        let function = Function { source: HALO, symbol };
        Launch { function, grid, block, shared, arguments }
    }

    /// The call of the only part there is, which reads its first operand.
    fn alone(exchange: &Exchange, draft: &mut Draft) -> Result<(), String> {
        let number = draft.types.either;
        let own = Self::of(exchange, number).filter(|own| own.parts == 1);
        let Some(own) = own else {
            return Err("an exchange among several devices is made by the machine, by \
                        `cuda::Halos`"
                .to_owned());
        };
        let [brought, made] = [0, 1].map(|operand| draft.place(operand));
        let places = |place: Option<usize>| if place.is_some() { brought } else { made };
        for (name, shape, arguments) in own.written(0, &|_| Lies::Whole, &places) {
            let symbol = format!("{name}_{}", number.name());
            draft.launch(HALO, symbol, shape, arguments);
        }
        Ok(())
    }
}

impl Form for FetchHalo {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Either; 2]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        Halos::alone(&self.0, draft)
    }
}

impl Form for AddHalo {
    fn roles(&self) -> Vec<Role> {
        vec![Role::Either; 2]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        Halos::alone(&self.0, draft)
    }
}
