//! Steps of a call under construction: which addresses, which scratch memory, which grid.

use super::{
    Argument, Array, Attended, CallPlace, Convolution, Either, Function, Gradients,
    Launch, Number, Operand, Product, Source, Step, Steps, Unattended,
};
use crate::store::Store;
use roundelay_schedule::{Access, Bytes};

/// The types that the functions of a call are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Types {
    /// What activations and parameters are stored in.
    pub(crate) narrow: Number,
    /// What outputs are stored in that may be narrow or wide.
    pub(crate) either: Number,
}

/// The threads of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: Bytes,
}

/// What a call's form is written to.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) types: Types,
    operands: Vec<CallPlace>,
    steps: Vec<Step>,
    scratch: Bytes,
}

/// An address that leads nowhere.
pub(crate) const NOWHERE: Argument = Argument::Unsigned64(0);

/// Addresses of scratch memory are multiples of it.
const ALIGNMENT: u64 = 256;

/// Most blocks of a grid along x, y and z that every device starts.
pub(crate) const MOST_BLOCKS: [u32; 3] = [0x7fff_ffff, 65535, 65535];

/// Blocks beyond which threads take more elements each instead.
const FULL_GRID: usize = 8192;

impl Number {
    /// How symbols spell it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Number::Bf16 => "bf16",
            Number::F16 => "f16",
            Number::F32 => "f32",
            Number::F64 => "f64",
        }
    }
    /// Bytes of a number.
    pub fn size(self) -> usize {
        match self {
            Number::Bf16 | Number::F16 => 2,
            Number::F32 => 4,
            Number::F64 => 8,
        }
    }
    /// What its statistics are stored in, and what is computed in.
    pub(crate) fn wide(self) -> Number {
        match self {
            Number::Bf16 | Number::F16 | Number::F32 => Number::F32,
            Number::F64 => Number::F64,
        }
    }
}

/// Counts that reach a kernel as 64 bits.
pub(crate) fn count(count: usize) -> Argument {
    Argument::Unsigned64(count as u64)
}

/// Whether an output is added to.
pub(crate) fn adding(store: Store) -> Argument {
    match store {
        Store::Write => Argument::Unsigned(0),
        Store::Add => Argument::Unsigned(1),
    }
}

/// An extent of a grid; what a device does not start is refused when the form is done.
pub(crate) fn extent(blocks: usize) -> u32 {
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

impl Shape {
    /// Threads that take `count` elements, some neighbours at once.
    pub(crate) fn each(count: usize, at_once: usize) -> Self {
        let blocks = count.div_ceil(256 * at_once).clamp(1, FULL_GRID);
        Self { grid: [extent(blocks), 1, 1], block: [256, 1, 1], shared: Bytes(0) }
    }
    /// A warp for each short row, a block for each long one.
    pub(crate) fn rows(rows: usize, columns: usize) -> Self {
        let (block, per_block) = match columns {
            ..=1024 => ([32, 4, 1], 4),
            1025..=16384 => ([256, 1, 1], 1),
            _ => ([512, 1, 1], 1),
        };
        let grid = [extent(rows.div_ceil(per_block)), 1, 1];
        Self { grid, block, shared: Bytes(0) }
    }
    /// One block of this many threads.
    pub(crate) fn block(threads: u32) -> Self {
        Self { grid: [1; 3], block: [threads, 1, 1], shared: Bytes(0) }
    }
}

impl Draft {
    /// Of a call whose operands are in these places.
    pub(crate) fn new(types: Types, operands: Vec<CallPlace>) -> Self {
        Self { types, operands, steps: Vec::new(), scratch: Bytes(0) }
    }
    /// Where an operand is.
    pub(crate) fn place(&self, operand: usize) -> CallPlace {
        self.operands[operand]
    }
    /// The address of an operand.
    pub(crate) fn operand(&self, operand: usize) -> Argument {
        Argument::Address(self.place(operand))
    }
    /// The addresses of some neighbouring operands.
    pub(crate) fn operands<const COUNT: usize>(&self, first: usize) -> [Argument; COUNT] {
        std::array::from_fn(|index| self.operand(first + index))
    }
    /// Scratch memory for this many bytes.
    pub(crate) fn scratch(&mut self, bytes: usize) -> CallPlace {
        let place = CallPlace::Scratch(self.scratch);
        let size = (bytes as u64).next_multiple_of(ALIGNMENT);
        self.scratch = Bytes(self.scratch.0.saturating_add(size));
        place
    }
    /// Scratch memory for this many wide numbers.
    pub(crate) fn wide_scratch(&mut self, numbers: usize) -> Argument {
        let size = self.types.narrow.wide().size();
        Argument::Address(self.scratch(numbers.saturating_mul(size)))
    }
    /// Narrow numbers in 16 bytes.
    pub(crate) fn at_once(&self) -> usize {
        16 / self.types.narrow.size()
    }
    /// Puts conversions where operands are, in a call that has begun.
    pub(crate) fn replace(&mut self, operand: usize, place: CallPlace) {
        self.operands[operand] = place;
    }
    /// Launches a function of given types.
    pub(crate) fn launch(
        &mut self,
        source: Source,
        symbol: String,
        shape: Shape,
        arguments: Vec<Argument>,
    ) {
        let Shape { grid, block, shared } = shape;
        let function = Function { source, symbol };
        self.steps.push(Step::Launch(Launch {
            function,
            grid,
            block,
            shared,
            arguments,
        }));
    }
    /// Launches a function of the narrow type.
    pub(crate) fn narrow(
        &mut self,
        (source, name): (Source, &str),
        shape: Shape,
        arguments: Vec<Argument>,
    ) {
        let symbol = format!("{name}_{}", self.types.narrow.name());
        self.launch(source, symbol, shape, arguments);
    }
    /// Launches a function of the narrow type and of that of its output.
    pub(crate) fn pair(
        &mut self,
        (source, name): (Source, &str),
        shape: Shape,
        arguments: Vec<Argument>,
    ) {
        let Types { narrow, either } = self.types;
        let symbol = format!("{name}_{}_{}", narrow.name(), either.name());
        self.launch(source, symbol, shape, arguments);
    }
    /// Launches a function of the wide type.
    pub(crate) fn wide(
        &mut self,
        (source, name): (Source, &str),
        shape: Shape,
        arguments: Vec<Argument>,
    ) {
        let symbol = format!("{name}_{}", self.types.narrow.wide().name());
        self.launch(source, symbol, shape, arguments);
    }
    /// Multiplies.
    pub(crate) fn product(&mut self, product: Product) {
        self.steps.push(Step::Product(product));
    }
    /// Makes the gradients of a weight and of its bias.
    pub(crate) fn gradients(&mut self, gradients: Gradients) {
        self.steps.push(Step::Gradients(Box::new(gradients)));
    }
    /// The launches that are written, which are not launched here.
    pub(crate) fn aside(&mut self, written: impl FnOnce(&mut Self)) -> Vec<Launch> {
        let first = self.steps.len();
        written(self);
        self.steps.split_off(first).into_iter().flat_map(Step::launches).collect()
    }
    /// The same of what may have no form.
    fn apart(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<Vec<Launch>, String> {
        let mut done = Ok(());
        let launches = self.aside(|draft| done = write(draft));
        done.map(|()| launches)
    }
    /// Convolves by the functions that `own` writes, or by a library.
    pub(crate) fn convolution(
        &mut self,
        own: impl FnOnce(&mut Self) -> Result<(), String>,
        described: impl FnOnce(&Self, Vec<Launch>) -> Convolution,
    ) -> Result<(), String> {
        let launches = self.apart(own)?;
        let convolution = described(self, launches);
        self.steps.push(Step::Convolution(Box::new(convolution)));
        Ok(())
    }
    /// Makes something by the functions that one or the other writes, where there is one, or by a library.
    pub(crate) fn either<Own: FnOnce(&mut Self) -> Result<(), String>>(
        &mut self,
        words: String,
        arrays: Vec<Operand>,
        attended: Result<Attended, Unattended>,
        (usual, sm90): (Own, Option<Own>),
    ) -> Result<(), String> {
        let usual = self.apart(usual)?;
        let sm90 = sm90.map(|sm90| self.apart(sm90)).transpose()?;
        let either = Either { words, usual, sm90, arrays, attended };
        self.steps.push(Step::Either(Box::new(either)));
        Ok(())
    }
    /// An operand of this many numbers of a type.
    pub(crate) fn array(
        &self,
        operand: usize,
        (number, elements): (Number, usize),
        access: Access,
    ) -> Operand {
        let array = Array { place: self.place(operand), number };
        Operand { array, elements, access }
    }
    /// What was drafted.
    pub(crate) fn finish(self) -> Steps {
        Steps { steps: self.steps, scratch: self.scratch }
    }
}
