//! Matrix products by cuBLASLt: one plan per shape, made before the start.
//!
//! Our matrices are stored row by row, the library's column by column, so it is asked for the
//! transposed product: outᵀ = bᵀ aᵀ, in which every stored matrix is what it wants, a bias of
//! n numbers is one of the rows of outᵀ, and sums of the rows of a are those of the columns of its
//! second factor.
#![expect(unsafe_code, reason = "cuBLASLt is called here")]

mod offers;

use super::super::driver::{Address, DriverError, Stream, cublaslt};
use cudarc::cublaslt::sys::{
    self, cublasComputeType_t as Compute, cublasLtEpilogue_t as Library,
    cublasLtMatmulDescAttributes_t as Attribute,
    cublasLtMatrixLayoutAttribute_t as LayoutAttribute, cublasStatus_t, cudaDataType,
};
pub(super) use offers::Algorithm;
use offers::ask;
use roundelay_kernels::cuda::{Addend, CallPlace, Epilogue, Matrix, Number, Product};
use roundelay_schedule::Bytes;
use std::{ffi::c_void, fmt, ptr};

/// Memory that a product may take beside its matrices; what it really takes is asked.
pub(super) const WORKSPACE: Bytes = Bytes(32 << 20);

/// What the rows and batches of the matrix before a GELU are multiples of, in elements; and the rows of
/// matrices beside which sums are made, of which the library of CUDA 11.6 got those of one number wrong.
const WHOLE_ROWS: usize = 8;

/// A place that is aligned as well as any, for an algorithm that looks at the bias's, or at the one of
/// what is before a GELU or of sums, while it is chosen.
const SOMEWHERE: u64 = 1 << 20;

/// `CUBLAS_OP_N` and `CUBLAS_OP_T`.
const AS_IT_IS: i32 = 0;
const TRANSPOSED: i32 = 1;

/// What the library answered, when it was not success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused(cublasStatus_t);

type Done<T = ()> = Result<T, Refused>;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl From<Refused> for DriverError {
    fn from(refused: Refused) -> Self {
        let (call, reason) = ("cublasLtMatmul", refused.to_string());
        Self { call, reason, code: refused.0 as u32 }
    }
}

fn check(status: cublasStatus_t) -> Done {
    match status {
        cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
        other => Err(Refused(other)),
    }
}

/// The library, started.
pub(super) struct Handle(sys::cublasLtHandle_t);

// SAFETY: the library takes a handle from any thread.
unsafe impl Send for Handle {}

impl Handle {
    /// Starts it on the current context.
    pub(super) fn new() -> Done<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: a handle is written.
        check(unsafe { cublaslt::cublasLtCreate(&raw mut raw) })?;
        Ok(Self(raw))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is live, and the streams that it worked on are done.
        let _ = unsafe { cublaslt::cublasLtDestroy(self.0) };
    }
}

/// What the library is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::cuda) struct Request {
    pub(super) product: Product,
    /// Where the sums of the rows of `a` go, if it makes them too: (m) numbers of the type of `out`.
    pub(super) sums: Option<CallPlace>,
}

impl From<Product> for Request {
    fn from(product: Product) -> Self {
        Self { product, sums: None }
    }
}

/// How the library does one product.
pub(super) struct Plan {
    description: Description,
    /// Of what it calls A, B and of the result.
    layouts: [Layout; 3],
    algorithm: Algorithm,
    scale: Scale,
    accumulate: Scale,
}

/// How far the matrices, the bias or sums, and what is before a GELU reach, from the first byte of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extents {
    pub(super) a: Bytes,
    pub(super) b: Bytes,
    pub(super) out: Bytes,
    pub(super) bias: Bytes,
    pub(super) before: Bytes,
}

impl Extents {
    pub(super) fn of(request: &Request) -> Self {
        let Request { product, sums } = request;
        let Product { m, n, k, batches, .. } = *product;
        let reach = |matrix: &Matrix, rows: usize, columns: usize| {
            let (rows, columns) = stored(matrix, rows, columns);
            let last = (batches - 1) * matrix.batch + (rows - 1) * matrix.row;
            Bytes(((last + columns) * matrix.number.size()) as u64)
        };
        let out = reach(&product.out, m, n);
        let beside = if sums.is_some() { m } else { n };
        Self {
            a: reach(&product.a, m, k),
            b: reach(&product.b, k, n),
            out,
            bias: Bytes((beside * product.out.number.size()) as u64),
            before: before(product).map_or(Bytes(0), |_| out),
        }
    }

    /// All of them, in this order.
    pub(super) fn all(&self) -> Vec<Bytes> {
        let Self { a, b, out, bias, before } = *self;
        vec![a, b, out, bias, before]
    }
}

/// Rows and columns as they lie in memory.
fn stored(matrix: &Matrix, rows: usize, columns: usize) -> (usize, usize) {
    if matrix.transposed { (columns, rows) } else { (rows, columns) }
}

// SAFETY: descriptions are plain data of the library, used by one thread at a time.
unsafe impl Send for Plan {}

/// Where the matrices of a product are.
#[derive(Clone, Copy)]
pub(super) struct Addresses {
    pub(super) a: Address,
    pub(super) b: Address,
    pub(super) out: Address,
    /// What is added, which lies as `out` does; `out` itself where nothing else is.
    pub(super) added: Address,
    /// Of a bias, where the epilogue has one, or of sums, where they are made.
    pub(super) bias: Option<Address>,
    /// Of what is before a GELU, where the epilogue has one.
    pub(super) before: Option<Address>,
}

impl Plan {
    /// How the library would do a product whose matrices start at multiples of `alignment`, and by
    /// which algorithms, the one it holds best first; the plan takes that one.
    ///
    /// # Errors
    /// When it would not, or when it has no epilogue like this one.
    pub(super) fn new(
        handle: &Handle,
        request: &Request,
        alignment: u64,
    ) -> Done<(Self, Vec<Algorithm>)> {
        let unsupported = Refused(cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED);
        let epilogue = epilogue(request).ok_or(unsupported)?;
        let product = &request.product;
        let mut description = Description::new(product, epilogue)?;
        if bias(request).is_some() {
            let pointer = Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
            description.set(pointer, SOMEWHERE)?;
        }
        if before(product).is_some() {
            description.set_before(product)?;
        }
        let layouts = [
            Layout::new(&product.b, product.k, product.n, product.batches)?,
            Layout::new(&product.a, product.m, product.k, product.batches)?,
            Layout::new(&product.out, product.m, product.n, product.batches)?,
        ];
        let found = ask(handle, &description, &layouts, alignment)?;
        let addend_scale = match product.addend {
            Addend::Nothing => 0.0,
            Addend::Out | Addend::Other(_) => 1.0,
        };
        let plan = Self {
            description,
            layouts,
            algorithm: found[0],
            scale: Scale::new(product, product.scale),
            accumulate: Scale::new(product, addend_scale),
        };
        Ok((plan, found))
    }

    /// Makes it by another algorithm.
    pub(super) fn take(&mut self, algorithm: Algorithm) {
        self.algorithm = algorithm;
    }

    /// By which algorithm it is made.
    pub(super) fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// What it takes beside its matrices.
    pub(super) fn workspace(&self) -> Bytes {
        self.algorithm.workspace
    }

    /// Gives the product to a stream; `workspace` has the bytes that the plan wants.
    pub(super) fn run(
        &mut self,
        handle: &Handle,
        at: Addresses,
        workspace: Address,
        stream: &Stream,
    ) -> Done {
        if let Some(bias) = at.bias {
            self.description.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.0)?;
        }
        if let Some(before) = at.before {
            let pointer = Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER;
            self.description.set(pointer, before.0)?;
        }
        let pointer = |address: Address| address.0 as *mut c_void;
        let [a, b, out] = [&self.layouts[0], &self.layouts[1], &self.layouts[2]];
        // SAFETY: all descriptions are live; scales have the type that the description names;
        // addresses are the device's matter, and those of the bias, of sums and of what is before a
        // GELU are read from the description now.
        check(unsafe {
            cublaslt::cublasLtMatmul(
                handle.0,
                self.description.0,
                self.scale.pointer(),
                pointer(at.b),
                a.0,
                pointer(at.a),
                b.0,
                self.accumulate.pointer(),
                pointer(at.added),
                out.0,
                pointer(at.out),
                out.0,
                &raw const self.algorithm.raw,
                pointer(workspace),
                self.workspace().0 as usize,
                stream.raw().cast(),
            )
        })
    }
}

/// What follows a product, in the library's words; none where it has nothing like it. How exact its
/// GELU is is not said, so it stands for ours only where 16 bits are stored.
fn epilogue(request: &Request) -> Option<Library> {
    let Request { product, sums } = request;
    let gelu = |own: Library| is_narrow(product.out.number).then_some(own);
    match product.epilogue {
        Epilogue::Plain if sums.is_some() => {
            sums_rows(product).then_some(Library::CUBLASLT_EPILOGUE_BGRADB)
        }
        Epilogue::Plain => Some(Library::CUBLASLT_EPILOGUE_DEFAULT),
        Epilogue::Bias(_) => Some(Library::CUBLASLT_EPILOGUE_BIAS),
        Epilogue::BiasRelu(_) => Some(Library::CUBLASLT_EPILOGUE_RELU_BIAS),
        Epilogue::BiasGelu { .. } => None,
        Epilogue::BiasGeluTanh { .. } => gelu(Library::CUBLASLT_EPILOGUE_GELU_AUX_BIAS),
        Epilogue::GeluTanhSlope { .. } => gelu(Library::CUBLASLT_EPILOGUE_DGELU),
    }
}

fn is_narrow(number: Number) -> bool {
    match number {
        Number::Bf16 | Number::F16 => true,
        Number::F32 | Number::F64 => false,
    }
}

/// Whether the library sums the rows of `a` beside this product. It sums the columns of its second
/// factor, which is aᵀ, where that is transposed: then `a` is stored as its transpose, as gradients of
/// weights have it. It does in other types too, of which nothing is gained here.
fn sums_rows(product: &Product) -> bool {
    let Product { m, n, batches, a, b, .. } = product;
    let whole = [*m, *n, a.row, b.row].iter().all(|own| own.is_multiple_of(WHOLE_ROWS));
    is_narrow(a.number) && is_narrow(b.number) && a.transposed && *batches == 1 && whole
}

/// Where the bias of a product is, or where the sums go that are made beside it.
pub(super) fn bias(request: &Request) -> Option<CallPlace> {
    match request.product.epilogue {
        Epilogue::Plain => request.sums,
        Epilogue::GeluTanhSlope { .. } => None,
        Epilogue::Bias(bias)
        | Epilogue::BiasRelu(bias)
        | Epilogue::BiasGelu { bias, .. }
        | Epilogue::BiasGeluTanh { bias, .. } => Some(bias),
    }
}

/// Where what is before the GELU of a product is, which lies as its result does.
pub(super) fn before(product: &Product) -> Option<CallPlace> {
    match product.epilogue {
        Epilogue::Plain | Epilogue::Bias(_) | Epilogue::BiasRelu(_) => None,
        Epilogue::BiasGelu { before, .. }
        | Epilogue::BiasGeluTanh { before, .. }
        | Epilogue::GeluTanhSlope { before } => Some(before),
    }
}

/// Where what is added to a product is, which lies as its result does.
pub(super) fn added(product: &Product) -> CallPlace {
    match product.addend {
        Addend::Nothing | Addend::Out => product.out.place,
        Addend::Other(place) => place,
    }
}

/// A factor in the type in which sums are made.
#[derive(Clone, Copy)]
enum Scale {
    Single(f32),
    Double(f64),
}

impl Scale {
    /// A factor of a product, which sums in 64 bits if its result has as many.
    fn new(product: &Product, factor: f32) -> Self {
        match product.out.number {
            Number::F64 => Self::Double(f64::from(factor)),
            Number::F32 | Number::Bf16 | Number::F16 => Self::Single(factor),
        }
    }

    fn pointer(&self) -> *const c_void {
        match self {
            Self::Single(factor) => ptr::from_ref(factor).cast(),
            Self::Double(factor) => ptr::from_ref(factor).cast(),
        }
    }
}

/// What is computed, in the library's words.
struct Description(sys::cublasLtMatmulDesc_t);

impl Description {
    fn new(product: &Product, epilogue: Library) -> Done<Self> {
        let (compute, scale) = match Scale::new(product, 1.0) {
            Scale::Double(_) => (Compute::CUBLAS_COMPUTE_64F, cudaDataType::CUDA_R_64F),
            Scale::Single(_) => (Compute::CUBLAS_COMPUTE_32F, cudaDataType::CUDA_R_32F),
        };
        let mut raw = ptr::null_mut();
        // SAFETY: a description is written.
        check(unsafe {
            cublaslt::cublasLtMatmulDescCreate(&raw mut raw, compute, scale)
        })?;
        let mut own = Self(raw);
        let turned = |matrix: &Matrix| match matrix.transposed {
            true => TRANSPOSED,
            false => AS_IT_IS,
        };
        own.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, turned(&product.b))?;
        own.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, turned(&product.a))?;
        own.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue as u32)?;
        Ok(own)
    }

    /// Says how what is before a GELU lies: as the result, of whose type it is by default.
    fn set_before(&mut self, product: &Product) -> Done {
        let Matrix { row, batch, .. } = product.out;
        if [row, batch].iter().any(|step| !step.is_multiple_of(WHOLE_ROWS)) {
            return Err(Refused(cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED));
        }
        self.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, SOMEWHERE)?;
        self.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, row as i64)?;
        match product.batches {
            1 => Ok(()),
            _ => self.set(
                Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE,
                batch as i64,
            ),
        }
    }

    fn set<T>(&mut self, attribute: Attribute, value: T) -> Done {
        // SAFETY: the description is live, and the attribute has the size of the value.
        check(unsafe {
            cublaslt::cublasLtMatmulDescSetAttribute(
                self.0,
                attribute,
                ptr::from_ref(&value).cast(),
                size_of::<T>(),
            )
        })
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        // SAFETY: the description is live.
        let _ = unsafe { cublaslt::cublasLtMatmulDescDestroy(self.0) };
    }
}

/// How a matrix lies, in the library's words.
struct Layout(sys::cublasLtMatrixLayout_t);

impl Layout {
    /// Of a matrix of this many rows and columns, before it is transposed.
    fn new(matrix: &Matrix, rows: usize, columns: usize, batches: usize) -> Done<Self> {
        let (stored_rows, stored_columns) = stored(matrix, rows, columns);
        let mut raw = ptr::null_mut();
        // SAFETY: a description is written.
        check(unsafe {
            cublaslt::cublasLtMatrixLayoutCreate(
                &raw mut raw,
                data_type(matrix.number),
                stored_columns as u64,
                stored_rows as u64,
                matrix.row as i64,
            )
        })?;
        let mut own = Self(raw);
        if batches > 1 {
            let (count, stride) = (batches as i32, matrix.batch as i64);
            own.set(LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count)?;
            own.set(
                LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                stride,
            )?;
        }
        Ok(own)
    }

    fn set<T>(&mut self, attribute: LayoutAttribute, value: T) -> Done {
        // SAFETY: the description is live, and the attribute has the size of the value.
        check(unsafe {
            cublaslt::cublasLtMatrixLayoutSetAttribute(
                self.0,
                attribute,
                ptr::from_ref(&value).cast(),
                size_of::<T>(),
            )
        })
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: the description is live.
        let _ = unsafe { cublaslt::cublasLtMatrixLayoutDestroy(self.0) };
    }
}

fn data_type(number: Number) -> cudaDataType {
    match number {
        Number::Bf16 => cudaDataType::CUDA_R_16BF,
        Number::F16 => cudaDataType::CUDA_R_16F,
        Number::F32 => cudaDataType::CUDA_R_32F,
        Number::F64 => cudaDataType::CUDA_R_64F,
    }
}
