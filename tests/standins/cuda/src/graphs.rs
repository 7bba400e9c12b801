//! Graphs of operations on arrays of four extents, operation by operation as the mathematics has them.

use crate::{
    convolutions::{self, workspace_of},
    forbid,
    memory::is_of_device,
    numbers::Number,
    settings::{Offered, Quality},
    world::{Counts, World},
};
use std::{collections::BTreeMap, ptr, thread, time::Duration};

/// What arrays in memory start at multiples of.
const ALIGNMENT: u64 = 16;

/// How long a slow engine takes besides: more than a small kernel under the emulation.
const SLOW: Duration = Duration::from_millis(60);

/// Where an array is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// In memory.
    Given,
    /// A number of the host.
    Value,
    /// Nowhere but in between.
    Between,
}

/// How numbers of an array are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Real(Number),
    Whole,
    Truth,
}

/// An array of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Array {
    pub(crate) name: i64,
    pub(crate) kind: Kind,
    pub(crate) extents: [i64; 4],
    pub(crate) strides: [i64; 4],
    pub(crate) held: Held,
}

/// What is done number by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Sum,
    Product,
    Quotient,
    Difference,
    Exponential,
    Logarithm,
    IsNotLess,
    Index(usize),
    Selection,
}

/// How the numbers of a row become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Total,
    Most,
}

/// One operation: what it takes and what it makes.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Product([Array; 3]),
    Pointwise { mode: Mode, x: Array, b: Option<Array>, t: Option<Array>, y: Array },
    Reduction(Operator, [Array; 2]),
}

/// A graph with everything that it needs.
#[derive(Clone)]
pub(crate) struct Graph {
    pub(crate) operations: Vec<Operation>,
    /// Addresses of arrays in memory, by name.
    pub(crate) places: BTreeMap<i64, u64>,
    /// Numbers of the host.
    pub(crate) values: BTreeMap<i64, f32>,
    pub(crate) workspace: u64,
    pub(crate) offered: Offered,
    /// Whether that takes long.
    pub(crate) is_slow: bool,
}

impl Array {
    /// The same as images whose channels lie side by side.
    pub(crate) fn of_images(&self) -> Option<convolutions::Array> {
        let [_, channels, rows, columns] = self.extents;
        let strides = [rows * columns * channels, 1, columns * channels, channels];
        let extents = self.extents.map(|extent| extent as u64);
        match (self.kind, self.held) {
            (Kind::Real(number), Held::Given) if self.strides == strides => {
                Some(convolutions::Array { number, extents })
            }
            _ => None,
        }
    }

    fn count(&self) -> usize {
        self.extents.iter().product::<i64>() as usize
    }

    /// The place of an element among all in their order; arrays with fewer rows, columns or heads have
    /// the same for several.
    fn place(&self, at: [i64; 4]) -> usize {
        let places = at.iter().zip(&self.extents);
        places.fold(0, |place, (at, extent)| place * extent + at % extent) as usize
    }

    /// All elements in their order.
    fn elements(&self) -> impl Iterator<Item = [i64; 4]> + use<> {
        let [batch, heads, rows, columns] = self.extents;
        (0..batch).flat_map(move |b| {
            (0..heads).flat_map(move |h| {
                (0..rows).flat_map(move |r| (0..columns).map(move |c| [b, h, r, c]))
            })
        })
    }

    fn number(&self) -> Number {
        match self.kind {
            Kind::Real(number) => number,
            Kind::Whole | Kind::Truth => forbid("an array in memory is of real numbers"),
        }
    }

    /// Behind how many bytes an element is in memory.
    fn offset(&self, at: [i64; 4]) -> u64 {
        let steps = at.iter().zip(&self.strides).map(|(at, stride)| at * stride);
        steps.sum::<i64>() as u64 * self.number().size()
    }

    /// How far it reaches in memory.
    fn bytes(&self) -> u64 {
        self.offset(self.extents.map(|extent| extent - 1)) + self.number().size()
    }

    /// Whether others have numbers between its own.
    fn is_packed(&self) -> bool {
        self.held == Held::Given
            && self.bytes() > self.count() as u64 * self.number().size()
    }

    /// A number as this array holds it.
    fn rounded(&self, value: f32) -> f32 {
        let Kind::Real(number) = self.kind else { return value };
        let mut room = 0_u64;
        let at = &raw mut room as u64;
        // SAFETY: the room is eight bytes.
        unsafe {
            number.write(at, f64::from(value));
            number.read(at) as f32
        }
    }

    /// Whether it may be taken where the other is.
    fn spreads_over(&self, other: &Self) -> bool {
        let mut both = self.extents.iter().zip(&other.extents);
        both.all(|(own, other)| *own == 1 || own == other)
    }
}

/// The arrays of a graph that are there, each in its order.
type Known = BTreeMap<i64, Vec<f32>>;

impl Operation {
    /// What it takes.
    pub(crate) fn taken(&self) -> Vec<Array> {
        match self {
            Self::Product([a, b, _]) => vec![*a, *b],
            Self::Pointwise { x, b, t, .. } => {
                [Some(*x), *b, *t].into_iter().flatten().collect()
            }
            Self::Reduction(_, [x, _]) => vec![*x],
        }
    }

    /// What it makes.
    pub(crate) fn made(&self) -> Array {
        match self {
            Self::Product([_, _, c]) => *c,
            Self::Pointwise { y, .. } | Self::Reduction(_, [_, y]) => *y,
        }
    }

    /// All of these.
    pub(crate) fn arrays(&self) -> Vec<Array> {
        [self.taken(), vec![self.made()]].concat()
    }

    /// Whether its arrays fit together.
    pub(crate) fn fits(&self) -> bool {
        match self {
            Self::Product([a, b, c]) => {
                let [[batch, heads, m, k], [b_batch, b_heads, b_k, n]] =
                    [a.extents, b.extents];
                c.extents == [batch, heads, m, n]
                    && (b_batch, b_k) == (batch, k)
                    && heads % b_heads == 0
            }
            Self::Pointwise { mode, x, b, t, y } => {
                let wanted = match mode {
                    Mode::Exponential | Mode::Logarithm | Mode::Index(_) => {
                        (false, false)
                    }
                    Mode::Selection => (true, true),
                    Mode::Sum
                    | Mode::Product
                    | Mode::Quotient
                    | Mode::Difference
                    | Mode::IsNotLess => (true, false),
                };
                x.extents == y.extents
                    && (b.is_some(), t.is_some()) == wanted
                    && [b, t].into_iter().flatten().all(|other| other.spreads_over(y))
            }
            Self::Reduction(_, [x, y]) => {
                let [batch, heads, rows, _] = x.extents;
                y.extents == [batch, heads, rows, 1]
            }
        }
    }

    fn result(&self, known: &Known, at: [i64; 4]) -> f32 {
        let get = |of: &Array, at| known[&of.name][of.place(at)];
        let [batch, head, row, column] = at;
        match self {
            Self::Product([a, b, _]) => {
                // As many heads of `a`, in order, take one of `b`.
                let shared = head * b.extents[1] / a.extents[1];
                let term = |k| {
                    get(a, [batch, head, row, k]) * get(b, [batch, shared, k, column])
                };
                (0..a.extents[3]).map(term).sum()
            }
            Self::Reduction(operator, [x, _]) => {
                let numbers =
                    (0..x.extents[3]).map(|column| get(x, [batch, head, row, column]));
                match operator {
                    Operator::Total => numbers.sum(),
                    Operator::Most => numbers.fold(f32::NEG_INFINITY, f32::max),
                }
            }
            Self::Pointwise { mode, x, b, t, .. } => {
                let [b, t] =
                    [b, t].map(|other| other.map_or(0.0, |other| get(&other, at)));
                let x = get(x, at);
                match mode {
                    Mode::Sum => x + b,
                    Mode::Product => x * b,
                    Mode::Quotient => x / b,
                    Mode::Difference => x - b,
                    Mode::Exponential => x.exp(),
                    Mode::Logarithm => x.ln(),
                    Mode::IsNotLess => f32::from(u8::from(x >= b)),
                    Mode::Index(axis) => at[*axis] as f32,
                    Mode::Selection => [b, x][usize::from(t != 0.0)],
                }
            }
        }
    }
}

impl Graph {
    /// Makes all of it. The workspace is spoiled first, as for convolutions.
    pub(crate) fn run(&self) {
        let workspace = workspace_of(self.offered) as usize;
        // SAFETY: the workspace was live when the graph was given.
        unsafe { ptr::write_bytes(self.workspace as *mut u8, 0xa5, workspace) };
        if self.is_slow {
            thread::sleep(SLOW);
        }
        let mut known = Known::new();
        for operation in &self.operations {
            for array in operation.taken() {
                known.entry(array.name).or_insert_with(|| self.load(&array));
            }
            let made = operation.made();
            let results =
                made.elements().map(|at| made.rounded(operation.result(&known, at)));
            let results: Vec<f32> = results.collect();
            if made.held == Held::Given {
                self.store(&made, &results);
            }
            known.insert(made.name, results);
        }
    }

    fn load(&self, array: &Array) -> Vec<f32> {
        match array.held {
            Held::Between => forbid("an operation takes what none before it made"),
            Held::Value => vec![self.values[&array.name]],
            Held::Given => {
                let start = self.places[&array.name];
                // SAFETY: the whole array was live when the graph was given.
                let read = |at| unsafe { array.number().read(start + array.offset(at)) };
                array.elements().map(|at| read(at) as f32).collect()
            }
        }
    }

    fn store(&self, array: &Array, results: &[f32]) {
        let factor = if self.offered == Offered::Wrong { 1.25 } else { 1.0 };
        let torn = usize::from(self.offered == Offered::Torn);
        let start = self.places[&array.name];
        let all = array.elements().zip(results).take(array.count() - torn);
        for (at, result) in all {
            // SAFETY: as for loading.
            unsafe {
                let value = f64::from(factor * result);
                array.number().write(start + array.offset(at), value);
            }
        }
    }

    /// Ends the process when an array is not where an engine may look for it.
    pub(crate) fn check(&self, world: &World) {
        let live =
            |start, bytes| is_of_device(start) && world.memory.is_live(start, bytes);
        for operation in &self.operations {
            for array in
                operation.arrays().iter().filter(|array| array.held == Held::Given)
            {
                let Some(start) = self.places.get(&array.name) else {
                    forbid("an array of a graph is not given")
                };
                if !live(*start, array.bytes()) {
                    forbid("an array of a graph is not in live memory");
                }
                if !start.is_multiple_of(ALIGNMENT) {
                    forbid(
                        "an array of a graph does not start at a multiple of 16 bytes",
                    );
                }
            }
        }
        if !live(self.workspace, workspace_of(self.offered)) {
            forbid("the workspace of a graph is not in live memory");
        }
    }

    /// Counts it.
    pub(crate) fn count(&self, counts: &mut Counts) {
        counts.attentions += 1;
        let mut arrays = self.operations.iter().flat_map(Operation::arrays);
        counts.packed_attentions += u64::from(arrays.any(|array| array.is_packed()));
        let by_quality = match self.offered.quality() {
            Quality::Good => return,
            Quality::Slow => &mut counts.slow_attentions,
            Quality::Wrong => &mut counts.wrong_attentions,
            Quality::Odd => &mut counts.odd_attentions,
        };
        *by_quality += 1;
    }
}
