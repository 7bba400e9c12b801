//! A parsed call, and the table of all kernels.

use crate::{
    Context, Real, activation, affine, attention, batch_norm, convolution,
    cuda::{self, Steps},
    dropout, elementwise, embedding,
    exchange::{self, Exchange},
    group_norm, linear_loss, loss, matmul, metric, norm, norm_again,
    operand::{Operands, Slot},
    optimizer, part, part_loss, part_norm, pixel_norm, pool,
    product::lend_lines,
    rectified, rms_norm, rotary, rows,
    signature::Signature,
    stored, tanh,
    team::on_threads,
    unit::Arithmetic,
};
use roundelay_schedule::{
    Access, Bytes, Call, Catalogue, Element, Exchanged, Float, Flops, Footprint, Indices,
    Operand, Touching, Unit, nearest_hint,
};
use std::sync::OnceLock;

/// One kernel: how its call is read, what it costs, and its two bodies.
pub(crate) trait Define: Sized {
    /// Takes the operands in table order and asks for every attribute.
    fn parse(call: &mut Signature<'_>) -> Result<Self, String>;
    /// Arithmetic from the shapes alone; an exponential or error function counts as eight.
    fn flops(&self) -> u64;
    /// Elements of scratch memory that every helping thread needs of its own.
    fn scratch(&self) -> usize {
        0
    }
    /// Lines that a matrix takes which is packed once and shared by all threads.
    fn packed<R: Real>(&self) -> usize {
        0
    }
    /// Operands that are read, each with the one that is written which may be the same memory: whoever
    /// writes an element, in any form, is the last to read it, before. Nothing is added to.
    fn replaces(&self) -> Vec<[usize; 2]> {
        Vec::new()
    }
    /// What the devices that split a tensor do here together; most do nothing.
    fn exchange(&self) -> Option<Exchange> {
        None
    }
    /// What runs; the plain body unless something is faster.
    fn fast<R: Real>(&self, operands: Operands<'_, R>, context: &Context) {
        self.plain(operands, context);
    }
    /// The reference: the formula written down, one loop per sum.
    fn plain<R: Real>(&self, operands: Operands<'_, R>, context: &Context);
}

macro_rules! define_operations {
    ($($name:literal => $variant:ident($definition:path): $arithmetic:ident;)*) => {
        /// Which kernel, with its constants.
        #[derive(Clone, Debug, PartialEq)]
        enum Operation {
            $($variant($definition),)*
        }

        /// The names of all kernels.
        pub const NAMES: &[&str] = &[$($name),*];

        /// What the arithmetic of a kernel runs on, where its matrices are aligned.
        pub fn unit_of(kernel: &str) -> Unit {
            match kernel {
                $($name => Arithmetic::$arithmetic,)*
                _ => Arithmetic::Vector,
            }
            .unit()
        }

        impl Operation {
            /// Nothing if no kernel has the name.
            fn parse(
                name: &str,
                call: &mut Signature<'_>,
            ) -> Option<Result<Self, String>> {
                Some(match name {
                    $($name => Define::parse(call).map(Self::$variant),)*
                    _ => return None,
                })
            }
            fn arithmetic(&self) -> Arithmetic {
                match self {
                    $(Self::$variant(_) => Arithmetic::$arithmetic,)*
                }
            }
            fn flops(&self) -> u64 {
                match self {
                    $(Self::$variant(definition) => definition.flops(),)*
                }
            }
            fn scratch(&self) -> usize {
                match self {
                    $(Self::$variant(definition) => definition.scratch(),)*
                }
            }
            fn packed<R: Real>(&self) -> usize {
                match self {
                    $(Self::$variant(definition) => definition.packed::<R>(),)*
                }
            }
            fn replaces(&self) -> Vec<[usize; 2]> {
                match self {
                    $(Self::$variant(definition) => definition.replaces(),)*
                }
            }
            fn exchange(&self) -> Option<Exchange> {
                match self {
                    $(Self::$variant(definition) => definition.exchange(),)*
                }
            }
            fn fast<R: Real>(&self, operands: Operands<'_, R>, context: &Context) {
                match self {
                    $(Self::$variant(definition) => definition.fast(operands, context),)*
                }
            }
            fn plain<R: Real>(&self, operands: Operands<'_, R>, context: &Context) {
                match self {
                    $(Self::$variant(definition) => definition.plain(operands, context),)*
                }
            }
            fn form(&self) -> &dyn cuda::Form {
                match self {
                    $(Self::$variant(definition) => definition,)*
                }
            }
        }
    };
}

define_operations! {
    "matmul" => Matmul(matmul::Matmul): Rows;
    "affine" => Affine(affine::Affine): Rows;
    "affine_relu" => AffineRelu(affine::AffineRelu): Rows;
    "affine_gelu" => AffineGelu(affine::AffineGelu): Rows;
    "affine_gelu_tanh" => AffineGeluTanh(affine::AffineGeluTanh): Rows;
    "affine_add" => AffineAdd(affine::AffineAdd): Rows;
    "matmul_gelu_tanh_backward" =>
        MatmulGeluTanhBackward(affine::MatmulGeluTanhBackward): Rows;
    "affine_gradients" => AffineGradients(affine::AffineGradients): Rows;
    "add" => Add(elementwise::Add): Vector;
    "add_rows" => AddRows(elementwise::AddRows): Vector;
    "accumulate" => Accumulate(elementwise::Accumulate): Vector;
    "copy" => Copy(elementwise::Copy): Vector;
    "zero" => Zero(elementwise::Zero): Vector;
    "sum_rows" => SumRows(elementwise::SumRows): Vector;
    "multiply" => Multiply(elementwise::Multiply): Vector;
    "multiply_sum_rows" => MultiplySumRows(elementwise::MultiplySumRows): Vector;
    "scale" => Scale(elementwise::Scale): Vector;
    "relu" => Relu(activation::Relu): Vector;
    "relu_backward" => ReluBackward(activation::ReluBackward): Vector;
    "relu_backward_again" => ReluBackwardAgain(rectified::ReluBackwardAgain): Vector;
    "gelu" => Gelu(activation::Gelu): Vector;
    "gelu_backward" => GeluBackward(activation::GeluBackward): Vector;
    "silu" => Silu(activation::Silu): Vector;
    "silu_backward" => SiluBackward(activation::SiluBackward): Vector;
    "gelu_tanh" => GeluTanh(activation::GeluTanh): Vector;
    "gelu_tanh_backward" => GeluTanhBackward(activation::GeluTanhBackward): Vector;
    "soft_cap" => SoftCap(tanh::SoftCap): Vector;
    "soft_cap_backward" => SoftCapBackward(tanh::SoftCapBackward): Vector;
    "softmax" => Softmax(norm::Softmax): Vector;
    "softmax_backward" => SoftmaxBackward(norm::SoftmaxBackward): Vector;
    "dropout" => Dropout(dropout::Dropout): Vector;
    "dropout_backward" => DropoutBackward(dropout::DropoutBackward): Vector;
    "layer_norm" => LayerNorm(norm::LayerNorm): Vector;
    "layer_norm_backward" => LayerNormBackward(norm::LayerNormBackward): Vector;
    "layer_norm_parameters" => LayerNormParameters(norm::LayerNormParameters): Vector;
    "batch_norm" => BatchNorm(batch_norm::BatchNorm): Vector;
    "batch_norm_again" => BatchNormAgain(norm_again::BatchNormAgain): Vector;
    "batch_norm_backward" => BatchNormBackward(batch_norm::BatchNormBackward): Vector;
    "group_norm" => GroupNorm(group_norm::GroupNorm): Vector;
    "group_norm_backward" => GroupNormBackward(group_norm::GroupNormBackward): Vector;
    "rms_norm" => RmsNorm(rms_norm::RmsNorm): Vector;
    "rms_norm_backward" => RmsNormBackward(rms_norm::RmsNormBackward): Vector;
    "embedding" => Embedding(embedding::Embedding): Vector;
    "embedding_backward" => EmbeddingBackward(embedding::EmbeddingBackward): Vector;
    "attention" => Attention(attention::Attention): Attention;
    "attention_backward" => AttentionBackward(attention::AttentionBackward): Attention;
    "scores" => Scores(stored::Scores): Products;
    "mix" => Mix(stored::Mix): Products;
    "mix_backward" => MixBackward(stored::MixBackward): Products;
    "rotary" => Rotary(rotary::Rotary): Vector;
    "slice" => Slice(rows::Slice): Vector;
    "slice_backward" => SliceBackward(rows::SliceBackward): Vector;
    "slice_integers" => SliceIntegers(rows::SliceIntegers): Vector;
    "prepend" => Prepend(rows::Prepend): Vector;
    "conv2d" => Conv2d(convolution::Conv2d): Products;
    "conv2d_backward" => Conv2dBackward(convolution::Conv2dBackward): Products;
    "conv2d_weights" => Conv2dWeights(convolution::Conv2dWeights): Products;
    "max_pool" => MaxPool(pool::MaxPool): Vector;
    "max_pool_backward" => MaxPoolBackward(pool::MaxPoolBackward): Vector;
    "avg_pool" => AvgPool(pool::AvgPool): Vector;
    "avg_pool_backward" => AvgPoolBackward(pool::AvgPoolBackward): Vector;
    "global_pool" => GlobalPool(pool::GlobalPool): Vector;
    "global_pool_backward" => GlobalPoolBackward(pool::GlobalPoolBackward): Vector;
    "cross_entropy" => CrossEntropy(loss::CrossEntropy<false>): Loss;
    "cross_entropy_backward" =>
        CrossEntropyBackward(loss::CrossEntropyBackward<false>): Loss;
    "masked_cross_entropy" => MaskedCrossEntropy(loss::CrossEntropy<true>): Loss;
    "masked_cross_entropy_backward" =>
        MaskedCrossEntropyBackward(loss::CrossEntropyBackward<true>): Loss;
    "linear_cross_entropy" => LinearCrossEntropy(linear_loss::LinearCrossEntropy): Rows;
    "mse" => Mse(loss::Mse): Vector;
    "mse_backward" => MseBackward(loss::MseBackward): Vector;
    "accuracy" => Accuracy(metric::Accuracy): Vector;
    "part" => Part(part::Part): Vector;
    "embedding_part" => EmbeddingPart(part::EmbeddingPart): Vector;
    "embedding_part_backward" =>
        EmbeddingPartBackward(part::EmbeddingPartBackward): Vector;
    "cross_entropy_part" => CrossEntropyPart(part_loss::CrossEntropyPart): Loss;
    "cross_entropy_join" => CrossEntropyJoin(part_loss::CrossEntropyJoin): Vector;
    "cross_entropy_part_backward" =>
        CrossEntropyPartBackward(part_loss::CrossEntropyPartBackward): Loss;
    "norm_part_sums" => NormPartSums(part_norm::NormPartSums): Vector;
    "norm_part_squares" => NormPartSquares(part_norm::NormPartSquares): Vector;
    "norm_part" => NormPart(part_norm::NormPart): Vector;
    "norm_part_slopes" => NormPartSlopes(part_norm::NormPartSlopes): Vector;
    "norm_part_backward" => NormPartBackward(part_norm::NormPartBackward): Vector;
    "norm_part_gain" => NormPartGain(part_norm::NormPartGain): Vector;
    "pixel_norm_moments" => PixelNormMoments(pixel_norm::PixelNormMoments): Vector;
    "pixel_norm_statistics" =>
        PixelNormStatistics(pixel_norm::PixelNormStatistics): Vector;
    "pixel_norm" => PixelNorm(pixel_norm::PixelNorm): Vector;
    "pixel_norm_slopes" => PixelNormSlopes(pixel_norm::PixelNormSlopes): Vector;
    "pixel_norm_backward" => PixelNormBackward(pixel_norm::PixelNormBackward): Vector;
    "pixel_norm_parameters" =>
        PixelNormParameters(pixel_norm::PixelNormParameters): Vector;
    "all_reduce" => AllReduce(exchange::AllReduce): Vector;
    "all_gather" => AllGather(exchange::AllGather): Vector;
    "reduce_scatter" => ReduceScatter(exchange::ReduceScatter): Vector;
    "halo" => Halo(exchange::FetchHalo): Vector;
    "halo_add" => HaloAdd(exchange::AddHalo): Vector;
    "squares" => Squares(optimizer::Squares): Update;
    "sgd" => Sgd(optimizer::Sgd): Update;
    "adamw" => Adamw(optimizer::Adamw): Update;
}

/// A well-formed call: name, attributes and shapes are checked, and no text is left.
#[derive(Clone, Debug)]
pub struct Kernel {
    operation: Operation,
    slots: Vec<Slot>,
    indices: Option<Indices>,
    /// Those of the slots, once somebody asked for them.
    accesses: OnceLock<Vec<Access>>,
}

impl Kernel {
    /// Reads a call.
    ///
    /// # Errors
    /// The first mistake, as a sentence without full stop: an unknown name or attribute (with
    /// the nearest known one), a missing attribute or operand, an element type, a shape, or a
    /// size beyond any memory.
    pub fn parse(call: &Call) -> Result<Self, String> {
        let name = &*call.kernel;
        let mut signature = Signature::new(call);
        let Some(parsed) = Operation::parse(name, &mut signature) else {
            let hint = nearest_hint(name, NAMES.iter().copied());
            return Err(format!("unknown kernel `{name}`{hint}"));
        };
        let finished = parsed.and_then(|operation| Ok((operation, signature.finish()?)));
        let (operation, (slots, indices)) =
            finished.map_err(|mistake| format!("kernel `{name}`: {mistake}"))?;
        Ok(Self { operation, slots, indices, accesses: OnceLock::new() })
    }

    /// What is done with each operand.
    pub fn accesses(&self) -> &[Access] {
        self.accesses.get_or_init(|| self.slots.iter().map(|slot| slot.access).collect())
    }

    /// Operands that are read, each with the one that is written which may be the same memory, if their
    /// elements are of one width: each element is read for the last time by whoever then writes it. No
    /// operand stands in two pairs.
    pub fn replaces(&self) -> Vec<[usize; 2]> {
        self.operation.replaces()
    }

    /// The whole numbers that are looked something up by.
    pub fn indices(&self) -> Option<Indices> {
        self.indices
    }

    /// What the call touches, where real numbers are of this type: what exchanges go by that go on
    /// beside it.
    pub fn touching(&self, call: &Call, dtype: Float) -> Touching {
        let operands = call.operands.iter().zip(self.sizes(dtype)).zip(self.accesses());
        let operand = |((operand, size), access): ((&Operand, Bytes), &Access)| {
            let first = operand.offset.0;
            (operand.argument, first..first.saturating_add(size.0), *access)
        };
        let exchange = self.exchange().map(|exchange| exchange.meanwhile);
        Touching { operands: operands.map(operand).collect(), exchange }
    }

    /// What the devices that split a tensor do here together, if this is such a call. Its operands
    /// are what a device brings and what it gets.
    pub fn exchange(&self) -> Option<Exchange> {
        self.operation.exchange()
    }

    /// Bytes of each operand.
    pub fn sizes(&self, dtype: Float) -> impl Iterator<Item = Bytes> {
        self.slots.iter().map(move |slot| size(slot, dtype))
    }

    /// Arithmetic and memory traffic. A matrix product of (m, k) and (k, n) costs 2·m·n·k;
    /// an exponential or error function counts as eight; an update is a read and a write. Of a
    /// table, the rows of the tokens pass.
    pub fn footprint(&self, dtype: Float) -> Footprint {
        self.passing(dtype, |_| true)
    }

    /// What of the footprint is sure whether the call writes its sums or adds to them: of a table, either
    /// may pass less.
    pub fn sure_footprint(&self, dtype: Float) -> Footprint {
        self.passing(dtype, |slot| !slot.is_looked_up || slot.access == Access::Read)
    }

    /// With the traffic of some operands.
    fn passing(&self, dtype: Float, counts: impl Fn(&Slot) -> bool) -> Footprint {
        let once =
            |slot: &Slot| Bytes(slot.passes.saturating_mul(slot.element.size(dtype)));
        let traffic = |slot: &Slot| match slot.access {
            Access::Read | Access::Write => once(slot),
            Access::Update => once(slot) * 2,
        };
        Footprint {
            flops: Flops(self.operation.flops()),
            bytes: self.slots.iter().filter(|slot| counts(slot)).map(traffic).sum(),
            unit: self.unit(dtype),
        }
    }

    /// What does the arithmetic.
    fn unit(&self, dtype: Float) -> Unit {
        let rows = self.slots.iter().map(|slot| slot.row * slot.element.size(dtype));
        self.operation.arithmetic().unit_of_rows(dtype, rows)
    }

    /// What the call is on a CUDA device: the same numbers, but for rounding.
    ///
    /// Sums have 32 bits or more; masks of dropout are those of the CPU, bit for bit. A token or
    /// class out of range, which panics on the CPU, makes results that are no numbers.
    ///
    /// # Errors
    /// Why there is no such form, as a sentence without full stop: an [`Exchange`] is made by the
    /// machine, among several devices.
    pub fn cuda(&self, dtype: Float) -> Result<Steps, String> {
        cuda::steps(self.operation.form(), &self.slots, dtype)
    }

    /// Starts the helpers of the calling thread and allocates what [`Kernel::run`] will need on
    /// all of them.
    pub fn prepare<R: Real>(&self, threads: usize) {
        let scratch = self.operation.scratch();
        on_threads(threads, || {
            R::with_buffers(|buffers| buffers.reserve(scratch));
        });
        lend_lines::<R, _>(self.operation.packed::<R>(), |_| ());
    }

    /// Runs the fast kernel. Allocates nothing where [`Kernel::prepare`] was called, or after a
    /// first run, by the same thread.
    ///
    /// # Panics
    /// When the number of operands is wrong, or a token or class is out of range, or the call is
    /// an [`Exchange`] of more than one device.
    ///
    /// # Safety
    /// Every pointer is aligned and valid for the bytes of [`Kernel::sizes`] at `R::DTYPE`;
    /// operands that are written or updated overlap nothing and nobody else uses them
    /// meanwhile, but each two of [`Kernel::replaces`] may be one memory.
    #[allow(unsafe_code, reason = "operands arrive as addresses inside an arena")]
    pub unsafe fn run<R: Real>(&self, operands: &[*mut u8], context: &Context) {
        // SAFETY: the same promise.
        unsafe { R::launch(self, Body::Fast, operands, context) }
    }

    /// Runs the plain reference.
    ///
    /// # Panics
    /// As [`Kernel::run`].
    ///
    /// # Safety
    /// As [`Kernel::run`].
    #[allow(unsafe_code, reason = "operands arrive as addresses inside an arena")]
    pub unsafe fn run_plain<R: Real>(&self, operands: &[*mut u8], context: &Context) {
        // SAFETY: the same promise.
        unsafe { R::launch(self, Body::Plain, operands, context) }
    }
}

/// Which body of a kernel runs.
#[derive(Clone, Copy, Debug)]
pub enum Body {
    /// Vectorised.
    Fast,
    /// The reference.
    Plain,
}

/// The bodies of all kernels in one element type: compiled here, not in every crate that runs
/// them.
#[allow(unsafe_code, reason = "operands arrive as addresses inside an arena")]
pub trait Launch {
    /// Runs one body.
    ///
    /// # Safety
    /// As [`Kernel::run`].
    unsafe fn launch(
        kernel: &Kernel,
        body: Body,
        operands: &[*mut u8],
        context: &Context,
    );
}

macro_rules! implement_launch {
    ($($type:ty),*) => {$(
        #[allow(unsafe_code, reason = "operands arrive as addresses inside an arena")]
        impl Launch for $type {
            unsafe fn launch(
                kernel: &Kernel,
                body: Body,
                operands: &[*mut u8],
                context: &Context,
            ) {
                // SAFETY: the same promise.
                let operands = unsafe { Operands::new(&kernel.slots, operands) };
                match body {
                    Body::Fast => kernel.operation.fast::<$type>(operands, context),
                    Body::Plain => kernel.operation.plain::<$type>(operands, context),
                }
            }
        }
    )*};
}

implement_launch!(f32, f64);

/// All kernels of this crate, as the checker asks for them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kernels;

impl Catalogue for Kernels {
    fn accesses(&self, call: &Call) -> Result<Vec<Access>, String> {
        Kernel::parse(call)
            .map(|kernel| kernel.slots.iter().map(|slot| slot.access).collect())
    }

    fn replaces(&self, call: &Call) -> Vec<[usize; 2]> {
        Kernel::parse(call).map_or_else(|_| Vec::new(), |kernel| kernel.replaces())
    }

    fn exchange(&self, call: &Call, dtype: Float) -> Option<Exchanged> {
        // Whatever several devices do together says how many they are.
        let shared = call.attributes.contains_key("parts");
        let kernel = shared.then(|| Kernel::parse(call).ok()).flatten()?;
        kernel.exchange().map(|exchange| exchange.exchanged(dtype))
    }

    fn indices(&self, call: &Call) -> Option<Indices> {
        Kernel::parse(call).ok()?.indices()
    }
}

fn size(slot: &Slot, dtype: Float) -> Bytes {
    let element: Element = slot.element;
    Bytes(slot.length as u64 * element.size(dtype))
}
