//! What a call is on a CUDA device: functions of the sources in `kernels/cuda`, matrix products and
//! convolutions, one after another on one stream.
//!
//! Nothing here talks to a device. A machine binds [`Argument`]s to addresses, compiles
//! [`Source`]s and launches; so the same steps run on a GPU and, under the emulation of
//! `kernels/cuda/host`, on the CPU.

mod activation;
mod attention;
mod batch_norm;
mod columns;
mod convolution;
mod draft;
mod dropout;
mod elementwise;
mod embedding;
mod form;
mod gradients;
mod group_norm;
mod halo;
mod loss;
mod norm;
mod optimizer;
mod part_norm;
mod pixel_norm;
mod pool;
mod product;
mod refused;
mod rotary;
mod scan;
mod source;
mod stored;
mod tile;

use crate::store::Store;
use roundelay_schedule::{Access, Bytes, Line};

pub use attention::tiled_depths;
pub use elementwise::{MOST_SUMMED, sum};
pub(crate) use form::{Form, steps};
pub use halo::{Halos, Lies};
pub use scan::count_words;
pub use source::SOURCES;

/// What NVRTC must be told besides the architecture, which is sm_80 or newer.
pub const OPTIONS: &[&str] = &["--std=c++17", "-default-device"];

/// What a call is, in order, and the memory it needs meanwhile.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    /// One after another; each sees what the ones before it wrote.
    pub steps: Vec<Step>,
    /// Memory that is undefined before and after the call, aligned to 256 bytes.
    pub scratch: Bytes,
}

/// One thing that a stream does.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A function of ours.
    Launch(Launch),
    /// A matrix product, which a library may do faster than [`Product::launch`].
    Product(Product),
    /// A product with the sums beside it, which a library may do as one.
    Gradients(Box<Gradients>),
    /// A convolution, which a library may do faster than [`Convolution::own`].
    Convolution(Box<Convolution>),
    /// What functions of ours make in one way or in two.
    Either(Box<Either>),
}

impl Step {
    /// The functions of ours that make it on every device, one after another.
    pub fn launches(self) -> Vec<Launch> {
        match self {
            Step::Launch(launch) => vec![launch],
            Step::Product(product) => vec![product.launch()],
            Step::Gradients(both) => [vec![both.product.launch()], both.own].concat(),
            Step::Convolution(convolution) => convolution.own,
            Step::Either(either) => either.usual,
        }
    }
}

/// What functions of ours make in one way or in two, which differ in how they round.
#[derive(Clone, Debug, PartialEq)]
pub struct Either {
    /// Of what it is, in words.
    pub words: String,
    /// How it is made on every device, one function after another.
    pub usual: Vec<Launch>,
    /// How it is made by instructions of `sm_90a`, which devices of compute capability 9.0 alone have, if there
    /// are functions that do.
    pub sm90: Option<Vec<Launch>>,
    /// What it reads and makes.
    pub arrays: Vec<Operand>,
    /// What a library may make instead of both, or why none does.
    pub attended: Result<Attended, Unattended>,
}

/// Attention forward as libraries make it: o = softmax(scale · q kᵀ) v, head by head, and of every row
/// the natural logarithm of the sum below its softmax, in 32 bits. Numbers of a head lie side by side, those
/// of o head by head, and the logarithms position by position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attended {
    /// Examples.
    pub batch: usize,
    /// Positions of an example.
    pub sequence: usize,
    /// Heads of q and o.
    pub heads: usize,
    /// Heads of k and v, each of which as many heads of q read, in order.
    pub key_heads: usize,
    /// Numbers of a head.
    pub depth: usize,
    /// Which scores count.
    pub mask: Mask,
    /// What products of q and k are multiplied by.
    pub scale: f32,
    /// How q lies.
    pub queries: Strides,
    /// How k and v lie.
    pub keys: Strides,
    /// q, k, v and o, of one type.
    pub tokens: [Array; 4],
    /// The logarithms, (batch, heads, sequence).
    pub logarithms: Array,
}

/// How heads lie, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// From one position to the next.
    pub position: usize,
    /// From one head of a position to the next.
    pub head: usize,
}

/// Which scores of a query count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// All count.
    None,
    /// Scores of keys at later positions do not.
    Causal,
}

/// Why no library makes a call of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unattended {
    /// Gradients that are the same in every run take memory for all scores.
    Gradients,
    /// Positions see as far as a window.
    Window,
    /// Scores are capped.
    Cap,
    /// Queries are the last of more keys.
    MoreKeys,
    /// Queries of several heads lie before the key that they share, so heads are not equally far apart.
    Uneven,
}

/// An array that something reads or makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Where it is.
    pub array: Array,
    /// How many numbers it has.
    pub elements: usize,
    /// Whether it is read, written or added to.
    pub access: Access,
}

/// A function on a grid of blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Which.
    pub function: Function,
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block; above 48 KiB the device must be asked to allow it.
    pub shared: Bytes,
    /// In the order of its parameters.
    pub arguments: Vec<Argument>,
}

/// An `extern "C"` function of one source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Function {
    /// Where it is defined.
    pub source: Source,
    /// Its symbol.
    pub symbol: String,
}

/// One file of `kernels/cuda`, with all that it includes: CUDA C++ that needs no other file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source {
    /// Name of the file.
    pub name: &'static str,
    /// What NVRTC compiles.
    pub text: &'static str,
}

/// What a parameter of a function is bound to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// An address.
    Address(CallPlace),
    /// The address of the [`Scalars`] of the training step that is served.
    Scalars,
    /// The micro-batch, as 64 bits.
    MicroBatch,
    /// Where an optimizer's operands start in the stage's flat parameters, as 64 bits.
    SliceOffset,
    /// Which part of every split tensor is here, as 64 bits.
    Part,
    /// The place of that part on its line, as 64 bits.
    Place(Line),
    /// The number, as 64 bits, of the own part of the first of its rows, if parts are counted from
    /// the first row of all on.
    PlaceInRows {
        /// The parts of a row.
        line: Line,
        /// The parts that have as many rows each, one behind the other.
        of_rows: Line,
        /// How many rows these are.
        rows: u64,
        /// Rows that stand before those of the first of these parts.
        before: u64,
    },
    /// A whole number of 32 bits.
    Unsigned(u32),
    /// A whole number of 64 bits.
    Unsigned64(u64),
    /// A real number of 32 bits.
    Single(f32),
    /// A real number of 64 bits.
    Double(f64),
}

/// An address, this many bytes behind the beginning of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPlace {
    /// An operand of the call, by its number in table order.
    Operand(usize, Bytes),
    /// The scratch memory of the call.
    Scratch(Bytes),
}

/// What changes from one training step to the next, as device memory has it: one row of a
/// table that is written before the step, so that a captured graph is the same for all steps.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Scalars {
    /// The training step t that is served, counted from zero.
    pub step: u64,
    /// Which update of the optimizer's state update `step` is, counted from one where it was zero.
    pub updates: u64,
    /// The job's seed.
    pub seed: u64,
    /// The learning rate of update `step`.
    pub rate: f64,
    /// 1 where masks are drawn, 0 where dropout copies and statistics stand still.
    pub training: u64,
}

/// out = scale · a b, or that added to what `addend` says; row-major, summed in 32 bits or wider.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Product {
    /// Rows of `out`.
    pub m: usize,
    /// Columns of `out`.
    pub n: usize,
    /// Elements of a sum.
    pub k: usize,
    /// So many products at once.
    pub batches: usize,
    /// (m, k), or (k, m) when transposed.
    pub a: Matrix,
    /// (k, n), or (n, k) when transposed.
    pub b: Matrix,
    /// (m, n), never transposed.
    pub out: Matrix,
    /// What every sum is multiplied by.
    pub scale: f32,
    /// What it is added to, before it is rounded.
    pub addend: Addend,
    /// What follows on the way out.
    pub epilogue: Epilogue,
}

/// The gradients of an affine map's weight and of its bias: the product dyᵀ x, whose `a` is dyᵀ, and
/// the sums of the rows of `a`.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradients {
    /// Makes the gradient of the weight.
    pub product: Product,
    /// The gradient of the bias, (m) numbers.
    pub bias: Array,
    /// What a library may do that makes the sums with the product, and writes over what is there.
    pub sums: Sums,
    /// Functions of ours that make the gradient of the bias of `a`, one after another.
    pub own: Vec<Launch>,
}

/// Sums that a library makes with a product.
#[derive(Clone, Debug, PartialEq)]
pub struct Sums {
    /// Where it writes them, in the type of the product's result.
    pub place: CallPlace,
    /// Our function that then adds them to the gradient of the bias; none where they are all of it.
    pub added: Option<Launch>,
}

/// What a product is added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addend {
    /// Nothing: what is in `out` is not read.
    Nothing,
    /// What is in `out`.
    Out,
    /// A matrix that lies here as `out` does, with the same numbers between its rows and batches,
    /// and that is apart from it.
    Other(CallPlace),
}

impl Addend {
    /// Of a call that writes its result, or adds it to what is there.
    pub(crate) fn of(store: Store) -> Self {
        match store {
            Store::Write => Self::Nothing,
            Store::Add => Self::Out,
        }
    }
}

/// Where a matrix of a product lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Its first element.
    pub place: CallPlace,
    /// The type of its elements.
    pub number: Number,
    /// Whether it is stored as its transpose.
    pub transposed: bool,
    /// Elements from one stored row to the next.
    pub row: usize,
    /// Elements from one product of the batch to the next.
    pub batch: usize,
}

/// How device memory holds a real number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Number {
    /// 16 bits with the exponent of 32.
    Bf16,
    /// IEEE 16 bits.
    F16,
    /// 32 bits.
    F32,
    /// 64 bits.
    F64,
}

/// A convolution or one of its gradients: a window without gaps moves over images, with equal strides
/// and padding on both axes, and filters are not turned. Sums are made in 32 bits or wider.
#[derive(Clone, Debug, PartialEq)]
pub struct Convolution {
    /// Which of the three arrays is made of the others.
    pub pass: Convolved,
    /// Images.
    pub batch: usize,
    /// Height and width of an image.
    pub input: [usize; 2],
    /// Height and width of its result: (input + 2 padding − kernel) / stride + 1, rounded down.
    pub output: [usize; 2],
    /// Height and width of a filter.
    pub kernel: [usize; 2],
    /// Channels of an image.
    pub channels: usize,
    /// Filters, which are the channels of a result.
    pub filters: usize,
    /// As many filters, in order, see as many channels each, in order.
    pub groups: usize,
    /// Pixels from one place of the window to the next.
    pub stride: usize,
    /// Pixels of zeros around an image.
    pub padding: usize,
    /// (batch, input height, input width, channels).
    pub x: Array,
    /// (filters, kernel height, kernel width, channels / groups).
    pub weight: Array,
    /// (batch, output height, output width, filters).
    pub y: Array,
    /// Whether what is made is added to what is there, before it is rounded.
    pub store: Store,
    /// Functions of ours that do the same, one after another.
    pub own: Vec<Launch>,
}

/// What a convolution makes of the two other arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convolved {
    /// The results.
    Results,
    /// The gradient of images, in their place, of that of results.
    Images,
    /// The gradient of filters, in their place, of that of results.
    Filters,
}

/// An array without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array {
    /// Its first element.
    pub place: CallPlace,
    /// The type of its elements.
    pub number: Number,
}

/// What happens to a product before it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    /// Nothing.
    Plain,
    /// A bias (n) is added to every row.
    Bias(CallPlace),
    /// A bias (n) is added to every row, and what is below zero becomes zero.
    BiasRelu(CallPlace),
    /// A bias (n) is added to every row, which is stored in `before`, (m, n) like `out`, and goes
    /// through GELU into `out`: the exact one, by the error function. Libraries have none; see
    /// [`Product::apart`].
    BiasGelu {
        /// The bias.
        bias: CallPlace,
        /// What went into GELU.
        before: CallPlace,
    },
    /// The same with the GELU by a hyperbolic tangent, which libraries have.
    BiasGeluTanh {
        /// The bias.
        bias: CallPlace,
        /// What went into GELU.
        before: CallPlace,
    },
    /// What would be stored is multiplied by the slope of that GELU at what is in `before`, (m, n)
    /// like `out`, apart from it, and only read.
    GeluTanhSlope {
        /// What went into GELU.
        before: CallPlace,
    },
}
