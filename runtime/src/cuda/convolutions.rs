//! Convolutions by cuDNN: one plan per shape, made before the start.
//!
//! Images and results lie as it calls NHWC, and filters, which are (filters, kernel height, kernel
//! width, channels), as it calls the same format of filters. Its legacy calls are used, each of which
//! makes one convolution, because they are the same in versions 8.9 and 9.
#![expect(unsafe_code, reason = "cuDNN is called here")]

use super::{
    cudnn::{Done, Handle, Refused, SINGLE, SUCCESS, check, data_type, int},
    driver::{
        Address, Stream,
        cudnn::{self, Offer},
    },
    products::WORKSPACE,
};
use roundelay_kernels::cuda::{Accumulation, Array, Convolution, Convolved, Number};
use roundelay_schedule::Bytes;
use std::{
    ffi::{c_int, c_void},
    fmt, ptr,
};

/// The most algorithms that the library is asked for; it has fewer.
const OFFERED: usize = 16;

/// `CUDNN_TENSOR_NHWC`.
const NHWC: c_int = 1;
/// `CUDNN_CROSS_CORRELATION`: filters are not turned.
const CROSS_CORRELATION: c_int = 1;
/// `CUDNN_DETERMINISTIC`.
const DETERMINISTIC: c_int = 1;
/// `CUDNN_TENSOR_OP_MATH`: tensor cores multiply numbers of 16 bits.
const TENSOR_CORES: c_int = 1;
/// `CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION`: numbers may be made shorter for tensor cores.
const SHORTENED: c_int = 2;
/// `CUDNN_FMA_MATH`: numbers of 32 bits are multiplied as they are.
const WHOLE: c_int = 3;

/// Algorithms of Winograd's (Lavin and Gray, arXiv 1509.09308), of the pass forward and of the others:
/// they add up transformed tiles, in which numbers lose digits.
const WINOGRAD_FORWARD: [c_int; 2] = [6, 7];
const WINOGRAD_BACKWARD: [c_int; 2] = [4, 5];

/// How images or results lie.
struct Tensor(cudnn::Tensor);

impl Tensor {
    fn new(
        number: c_int,
        batch: usize,
        [height, width]: [usize; 2],
        channels: usize,
    ) -> Done<Self> {
        let [batch, channels] = [int(batch)?, int(channels)?];
        let [height, width] = [int(height)?, int(width)?];
        let mut raw = ptr::null_mut();
        // SAFETY: a description is written.
        check(unsafe { cudnn::cudnnCreateTensorDescriptor(&raw mut raw) })?;
        let own = Self(raw);
        // SAFETY: the description is live.
        check(unsafe {
            cudnn::cudnnSetTensor4dDescriptor(
                own.0, NHWC, number, batch, channels, height, width,
            )
        })?;
        Ok(own)
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: the description is live.
        let _ = unsafe { cudnn::cudnnDestroyTensorDescriptor(self.0) };
    }
}

/// How filters lie.
struct Filter(cudnn::Filter);

impl Filter {
    fn new(number: c_int, of: &Convolution) -> Done<Self> {
        let [filters, channels] = [int(of.filters)?, int(of.channels / of.groups)?];
        let [height, width] = [int(of.kernel[0])?, int(of.kernel[1])?];
        let mut raw = ptr::null_mut();
        // SAFETY: a description is written.
        check(unsafe { cudnn::cudnnCreateFilterDescriptor(&raw mut raw) })?;
        let own = Self(raw);
        // SAFETY: the description is live.
        check(unsafe {
            cudnn::cudnnSetFilter4dDescriptor(
                own.0, number, NHWC, filters, channels, height, width,
            )
        })?;
        Ok(own)
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // SAFETY: the description is live.
        let _ = unsafe { cudnn::cudnnDestroyFilterDescriptor(self.0) };
    }
}

/// How a window moves, and how it is computed.
struct Motion(cudnn::Convolution);

impl Motion {
    fn new(of: &Convolution) -> Done<Self> {
        let [padding, stride, groups] =
            [int(of.padding)?, int(of.stride)?, int(of.groups)?];
        let mut raw = ptr::null_mut();
        // SAFETY: a description is written.
        check(unsafe { cudnn::cudnnCreateConvolutionDescriptor(&raw mut raw) })?;
        let own = Self(raw);
        // SAFETY: the description is live.
        unsafe {
            check(cudnn::cudnnSetConvolution2dDescriptor(
                own.0,
                padding,
                padding,
                stride,
                stride,
                1,
                1,
                CROSS_CORRELATION,
                SINGLE,
            ))?;
            check(cudnn::cudnnSetConvolutionGroupCount(own.0, groups))?;
        }
        Ok(own)
    }

    fn set(&mut self, math: c_int) -> Done {
        // SAFETY: the description is live.
        check(unsafe { cudnn::cudnnSetConvolutionMathType(self.0, math) })
    }
}

impl Drop for Motion {
    fn drop(&mut self) {
        // SAFETY: the description is live.
        let _ = unsafe { cudnn::cudnnDestroyConvolutionDescriptor(self.0) };
    }
}

/// One of the ways in which the library makes a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Algorithm {
    number: c_int,
    math: c_int,
    workspace: usize,
}

impl Algorithm {
    /// What says which one it is, for the same version of the library.
    pub(super) fn bytes(&self) -> Vec<u8> {
        [self.number, self.math].iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "algorithm {} of mathematics {}", self.number, self.math)
    }
}

/// How the library makes one convolution.
pub(super) struct Plan {
    pass: Convolved,
    x: Tensor,
    weight: Filter,
    y: Tensor,
    motion: Motion,
    algorithm: Algorithm,
    accumulate: f32,
}

// SAFETY: descriptions are plain data of the library, used by one thread at a time.
unsafe impl Send for Plan {}

/// Where the arrays of a convolution are.
#[derive(Clone, Copy)]
pub(super) struct Addresses {
    pub(super) x: Address,
    pub(super) weight: Address,
    pub(super) y: Address,
}

impl Plan {
    /// How the library would make a convolution of numbers of one type, and by which algorithms,
    /// the one it holds best first; the plan takes that one.
    ///
    /// # Errors
    /// When it would not.
    pub(super) fn new(handle: &Handle, of: &Convolution) -> Done<(Self, Vec<Algorithm>)> {
        let number = |array: &Array| data_type(array.number).ok_or(Refused::Offerless);
        let mut motion = Motion::new(of)?;
        let wanted = match of.x.number {
            Number::Bf16 | Number::F16 => TENSOR_CORES,
            Number::F32 | Number::F64 => WHOLE,
        };
        motion.set(wanted)?;
        let mut plan = Self {
            pass: of.pass,
            x: Tensor::new(number(&of.x)?, of.batch, of.input, of.channels)?,
            weight: Filter::new(number(&of.weight)?, of)?,
            y: Tensor::new(number(&of.y)?, of.batch, of.output, of.filters)?,
            motion,
            algorithm: Algorithm { number: 0, math: wanted, workspace: 0 },
            accumulate: match of.accumulation {
                Accumulation::Replace => 0.0,
                Accumulation::Add => 1.0,
            },
        };
        let mut offers = plan.ask(handle)?;
        offers.retain(|offer| plan.may_take(offer, wanted));
        let mut algorithms = Vec::new();
        for offer in offers {
            let (number, math) = (offer.algorithm, offer.math);
            let found = plan.workspace_of(handle, number, math);
            let fits = |bytes: &usize| *bytes as u64 <= WORKSPACE.0;
            if let Some(workspace) = found.ok().filter(fits) {
                algorithms.push(Algorithm { number, math, workspace });
            }
        }
        plan.take(*algorithms.first().ok_or(Refused::Offerless)?)?;
        Ok((plan, algorithms))
    }

    /// Whether an algorithm makes the same bits every time, of numbers that keep their digits.
    fn may_take(&self, offer: &Offer, wanted: c_int) -> bool {
        let winograd = match self.pass {
            Convolved::Results => WINOGRAD_FORWARD,
            Convolved::Images | Convolved::Filters => WINOGRAD_BACKWARD,
        };
        let shortens = match wanted {
            WHOLE => offer.math != WHOLE,
            _ => offer.math == SHORTENED,
        };
        offer.status == SUCCESS
            && offer.determinism == DETERMINISTIC
            && !shortens
            && !winograd.contains(&offer.algorithm)
    }

    /// All that the library offers.
    fn ask(&self, handle: &Handle) -> Done<Vec<Offer>> {
        let nothing = Offer {
            algorithm: 0,
            status: SUCCESS,
            milliseconds: 0.0,
            workspace: 0,
            determinism: 0,
            math: 0,
            reserved: [0; 3],
        };
        let (mut offers, mut count) = ([nothing; OFFERED], 0);
        let ([x, y], weight, motion) =
            ([self.x.0, self.y.0], self.weight.0, self.motion.0);
        let (wanted, count_at, at) =
            (OFFERED as c_int, &raw mut count, offers.as_mut_ptr());
        // SAFETY: all descriptions are live; at most so many offers and a number are written.
        check(unsafe {
            match self.pass {
                Convolved::Results => cudnn::cudnnGetConvolutionForwardAlgorithm_v7(
                    handle.raw(),
                    x,
                    weight,
                    motion,
                    y,
                    wanted,
                    count_at,
                    at,
                ),
                Convolved::Images => cudnn::cudnnGetConvolutionBackwardDataAlgorithm_v7(
                    handle.raw(),
                    weight,
                    y,
                    motion,
                    x,
                    wanted,
                    count_at,
                    at,
                ),
                Convolved::Filters => {
                    cudnn::cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                        handle.raw(),
                        x,
                        y,
                        motion,
                        weight,
                        wanted,
                        count_at,
                        at,
                    )
                }
            }
        })?;
        let count = usize::try_from(count).unwrap_or(0).min(OFFERED);
        Ok(offers[..count].to_vec())
    }

    /// Bytes that an algorithm takes beside the arrays.
    fn workspace_of(
        &mut self,
        handle: &Handle,
        algorithm: c_int,
        math: c_int,
    ) -> Done<usize> {
        self.motion.set(math)?;
        let ([x, y], weight, motion) =
            ([self.x.0, self.y.0], self.weight.0, self.motion.0);
        let mut bytes = 0;
        let at = &raw mut bytes;
        // SAFETY: all descriptions are live; a number is written.
        check(unsafe {
            match self.pass {
                Convolved::Results => cudnn::cudnnGetConvolutionForwardWorkspaceSize(
                    handle.raw(),
                    x,
                    weight,
                    motion,
                    y,
                    algorithm,
                    at,
                ),
                Convolved::Images => cudnn::cudnnGetConvolutionBackwardDataWorkspaceSize(
                    handle.raw(),
                    weight,
                    y,
                    motion,
                    x,
                    algorithm,
                    at,
                ),
                Convolved::Filters => {
                    cudnn::cudnnGetConvolutionBackwardFilterWorkspaceSize(
                        handle.raw(),
                        x,
                        y,
                        motion,
                        weight,
                        algorithm,
                        at,
                    )
                }
            }
        })?;
        Ok(bytes)
    }

    /// Makes it by another algorithm.
    pub(super) fn take(&mut self, algorithm: Algorithm) -> Done {
        self.algorithm = algorithm;
        self.motion.set(algorithm.math)
    }

    /// By which algorithm it is made.
    pub(super) fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// What it takes beside its arrays.
    pub(super) fn workspace(&self) -> Bytes {
        Bytes(self.algorithm.workspace as u64)
    }

    /// Gives the convolution to a stream; `workspace` has the bytes that the plan wants.
    pub(super) fn run(
        &self,
        handle: &Handle,
        at: Addresses,
        workspace: Address,
        stream: &Stream,
    ) -> Done {
        handle.work_on(stream)?;
        let pointer = |address: Address| address.0 as *mut c_void;
        let [x_at, weight_at, y_at] = [at.x, at.weight, at.y].map(pointer);
        let ([x, y], weight, motion) =
            ([self.x.0, self.y.0], self.weight.0, self.motion.0);
        let Algorithm { number, workspace: bytes, .. } = self.algorithm;
        let room = pointer(workspace);
        let one = ptr::from_ref(&1f32).cast();
        let kept = ptr::from_ref(&self.accumulate).cast();
        // SAFETY: all descriptions are live; factors are of 32 bits, as for all types that are asked
        // for; addresses are the device's matter.
        check(unsafe {
            match self.pass {
                Convolved::Results => cudnn::cudnnConvolutionForward(
                    handle.raw(),
                    one,
                    x,
                    x_at,
                    weight,
                    weight_at,
                    motion,
                    number,
                    room,
                    bytes,
                    kept,
                    y,
                    y_at,
                ),
                Convolved::Images => cudnn::cudnnConvolutionBackwardData(
                    handle.raw(),
                    one,
                    weight,
                    weight_at,
                    y,
                    y_at,
                    motion,
                    number,
                    room,
                    bytes,
                    kept,
                    x,
                    x_at,
                ),
                Convolved::Filters => cudnn::cudnnConvolutionBackwardFilter(
                    handle.raw(),
                    one,
                    x,
                    x_at,
                    y,
                    y_at,
                    motion,
                    number,
                    room,
                    bytes,
                    kept,
                    weight,
                    weight_at,
                ),
            }
        })
    }
}
