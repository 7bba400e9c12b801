//! `libcublasLt`: products of matrices that are stored column by column.

use crate::{
    forbid,
    matrices::{Layout, Matrix},
    memory::is_of_device,
    numbers::Number,
    settings::{Multiplied, Summed},
    sums::{self, Sums},
    work::Work,
    world::{World, world},
};
use std::{
    f64::consts::PI,
    ffi::{c_int, c_void},
    process, ptr, slice, thread,
    time::Duration,
};

/// Results that are used.
const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 7;
const EXECUTION_FAILED: c_int = 13;
const NOT_SUPPORTED: c_int = 15;

/// What algorithms may take for granted of a bias, of what is before a GELU and of sums beside a product,
/// of which preferences say nothing.
pub(crate) const BIAS_ALIGNMENT: u64 = 16;

/// What columns and batches of what is before a GELU are multiples of, in elements.
const WHOLE_COLUMNS: u64 = 8;

/// What tensor cores load at once, in bytes.
const LOADED: u64 = 16;

/// What an algorithm takes beside its matrices, so that room for it is asked for.
const WORKSPACE: u64 = 512;

/// How long an algorithm sleeps that is not the fastest of several.
const SLOW: Duration = Duration::from_micros(300);

/// How long a product with a GELU sleeps, or one with sums beside it, where these are slow: longer than a
/// product and what else makes them take.
const SLOW_EPILOGUE: Duration = Duration::from_millis(15);

/// Sums in parts that are not rounded before they meet.
const WIDE_SUMS: u32 = 2;

/// What is computed.
#[derive(Clone, Copy)]
struct Description {
    /// Whether sums and factors have 64 bits.
    wide: bool,
    transposed: [bool; 2],
    epilogue: u32,
    bias: u64,
    /// What is before a GELU: where it is, elements from one column to the next, and from one matrix of
    /// the batch to the next.
    before: [u64; 3],
}

/// What an algorithm may count on.
#[derive(Clone, Copy, Default)]
struct Preference {
    workspace: u64,
    alignment: u64,
    /// How sums may be made in parts.
    reductions: u32,
}

/// A product with everything that it needs.
#[derive(Clone)]
pub(crate) struct Product {
    a: Matrix,
    b: Matrix,
    out: Matrix,
    /// What is added, which may be `out`.
    before: Matrix,
    wide: bool,
    scale: f64,
    accumulate: f64,
    epilogue: u32,
    bias: u64,
    sums: Option<Sums>,
    /// What is before a GELU.
    bent: Matrix,
    workspace: u64,
    /// The place in which its algorithm was offered.
    pub(crate) place: u64,
    /// How long it sleeps.
    pause: Duration,
}

impl Product {
    /// Makes it. The workspace is spoiled first, so that whoever lends the same memory twice sees
    /// wrong numbers.
    pub(crate) fn run(&self) {
        // SAFETY: the workspace was live when the product was given.
        unsafe { ptr::write_bytes(self.workspace as *mut u8, 0xa5, WORKSPACE as usize) };
        if self.pause > Duration::ZERO {
            thread::sleep(self.pause);
        }
        if let Some(sums) = self.sums {
            sums.run([&self.a, &self.b]);
        }
        let (rows, columns) = self.out.extents();
        let inner = self.a.extents().1;
        for batch in 0..self.out.layout.batches {
            let of_rows = widened(rows, inner, |row, k| self.a.read(batch, row, k));
            let of_columns =
                widened(columns, inner, |column, k| self.b.read(batch, k, column));
            for (column, right) in (0..columns).zip(&of_columns) {
                for (row, left) in (0..rows).zip(&of_rows) {
                    let value = self.element([batch, row, column], left, right);
                    let number = self.out.layout.number;
                    // SAFETY: as above.
                    unsafe { number.write(self.out.at(batch, row, column), value) };
                }
            }
        }
    }

    /// An element of the result, of a row of the first factor and a column of the second one.
    fn element(
        &self,
        [batch, row, column]: [u64; 3],
        left: &[f64],
        right: &[f64],
    ) -> f64 {
        let terms = left.iter().zip(right).map(|(left, right)| left * right);
        let sum = match self.wide {
            true => terms.sum::<f64>(),
            false => f64::from(terms.map(|term| term as f32).sum::<f32>()),
        };
        let before = match self.accumulate {
            0.0 => 0.0,
            factor => factor * self.before.read(batch, row, column),
        };
        let bias = match self.epilogue & BIAS {
            0 => 0.0,
            // SAFETY: the bias was live when the product was given.
            _ => unsafe {
                let number = self.out.layout.number;
                number.read(self.bias + row * number.size())
            },
        };
        let value = self.scale * sum + before + bias;
        match self.epilogue {
            GELU_AUXILIARY_BIAS => {
                let number = self.bent.layout.number;
                // SAFETY: what is before a GELU was live when the product was given.
                unsafe { number.write(self.bent.at(batch, row, column), value) };
                gelu(value)[0]
            }
            GELU_SLOPE => value * gelu(self.bent.read(batch, row, column))[1],
            epilogue if epilogue & RELU == 0 => value,
            // Zero of what is no number, as the library is said to make.
            _ => value.max(0.0),
        }
    }
}

/// So many rows, or columns, of a factor.
fn widened(count: u64, inner: u64, at: impl Fn(u64, u64) -> f64) -> Vec<Vec<f64>> {
    (0..count).map(|place| (0..inner).map(|k| at(place, k)).collect()).collect()
}

/// GELU by a hyperbolic tangent, and its slope.
fn gelu(x: f64) -> [f64; 2] {
    let factor = (2.0 / PI).sqrt();
    let bent = (factor * (x + 0.044715 * x.powi(3))).tanh();
    let steepness = factor * (1.0 + 3.0 * 0.044715 * x.powi(2));
    let slope = 0.5 * (1.0 + bent) + 0.5 * x * (1.0 - bent * bent) * steepness;
    [0.5 * x * (1.0 + bent), slope]
}

/// Bits of epilogues.
const PLAIN: u32 = 1;
const RELU: u32 = 2;
const BIAS: u32 = 4;
const AUXILIARY: u32 = 128;

/// `CUBLASLT_EPILOGUE_GELU_AUX_BIAS`: what goes into a GELU is written beside the result, and
/// `CUBLASLT_EPILOGUE_DGELU`: it is read, and the result is multiplied by the slope there.
const GELU_AUXILIARY_BIAS: u32 = 164;
const GELU_SLOPE: u32 = 192;

const EPILOGUES: [u32; 5] = [PLAIN, BIAS, RELU | BIAS, GELU_AUXILIARY_BIAS, GELU_SLOPE];

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetVersion() -> usize {
    130_000
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtCreate(handle: *mut *mut c_void) -> c_int {
    // SAFETY: the caller gives room for a handle.
    unsafe { *handle = 0x77 as *mut c_void };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtDestroy(_: *mut c_void) -> c_int {
    SUCCESS
}

/// Makes something that is described.
unsafe fn create<T>(place: *mut *mut T, own: T) -> c_int {
    // SAFETY: the caller gives room for a handle.
    unsafe { *place = Box::into_raw(Box::new(own)) };
    SUCCESS
}

/// Forgets something that was described.
unsafe fn destroy<T>(own: *mut T) -> c_int {
    // SAFETY: the handle is one of `create`, and is not used again.
    drop(unsafe { Box::from_raw(own) });
    SUCCESS
}

/// A value that an attribute is set to.
unsafe fn value<T: Copy>(value: *const c_void, size: usize) -> Option<T> {
    // SAFETY: the caller gives a value of this many bytes.
    (size == size_of::<T>()).then(|| unsafe { ptr::read_unaligned(value.cast()) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescCreate(
    own: *mut *mut Description,
    compute: u32,
    scale: u32,
) -> c_int {
    let wide = match (compute, scale) {
        (68, 0) => false,
        (70, 1) => true,
        _ => return NOT_SUPPORTED,
    };
    let (transposed, before) = ([false; 2], [0; 3]);
    let description = Description { wide, transposed, epilogue: PLAIN, bias: 0, before };
    // SAFETY: the same promise.
    unsafe { create(own, description) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescDestroy(own: *mut Description) -> c_int {
    // SAFETY: the same promise.
    unsafe { destroy(own) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescSetAttribute(
    own: *mut Description,
    attribute: u32,
    to: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: the handle is live, and the value has this many bytes.
    let set = unsafe {
        let own = &mut *own;
        let turned = || value::<i32>(to, size).map(|operation| operation == 1);
        match attribute {
            3 => turned().map(|turned| own.transposed[0] = turned),
            4 => turned().map(|turned| own.transposed[1] = turned),
            7 => value::<u32>(to, size)
                .filter(|own| EPILOGUES.contains(own) || sums::is_one(*own))
                .map(|epilogue| own.epilogue = epilogue),
            8 => value::<u64>(to, size).map(|bias| own.bias = bias),
            11 => value::<u64>(to, size).map(|start| own.before[0] = start),
            12 | 13 => value::<i64>(to, size)
                .map(|step| own.before[attribute as usize - 11] = step as u64),
            _ => None,
        }
    };
    set.map_or(INVALID_VALUE, |()| SUCCESS)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    own: *mut *mut Layout,
    kind: u32,
    rows: u64,
    columns: u64,
    column: i64,
) -> c_int {
    let Some(number) = Number::of(kind) else { return NOT_SUPPORTED };
    let column = column as u64;
    if rows == 0 || columns == 0 || column < rows {
        return INVALID_VALUE;
    }
    let layout = Layout { number, rows, columns, column, batches: 1, batch: 0 };
    // SAFETY: the same promise.
    unsafe { create(own, layout) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutDestroy(own: *mut Layout) -> c_int {
    // SAFETY: the same promise.
    unsafe { destroy(own) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutSetAttribute(
    own: *mut Layout,
    attribute: u32,
    to: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: the handle is live, and the value has this many bytes.
    let set = unsafe {
        let own = &mut *own;
        match attribute {
            5 => value::<i32>(to, size).map(|count| own.batches = count as u64),
            6 => value::<i64>(to, size).map(|stride| own.batch = stride as u64),
            _ => None,
        }
    };
    set.map_or(INVALID_VALUE, |()| SUCCESS)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceCreate(own: *mut *mut Preference) -> c_int {
    // SAFETY: the same promise.
    unsafe { create(own, Preference { workspace: 0, alignment: 256, reductions: !0 }) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceDestroy(own: *mut Preference) -> c_int {
    // SAFETY: the same promise.
    unsafe { destroy(own) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceSetAttribute(
    own: *mut Preference,
    attribute: u32,
    to: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: the handle is live, and the value has this many bytes.
    let set = unsafe {
        let own = &mut *own;
        match attribute {
            1 => value::<u64>(to, size).map(|bytes| own.workspace = bytes),
            3 => value::<u32>(to, size).map(|mask| own.reductions = mask),
            5..=8 => value::<u32>(to, size)
                .map(|bytes| own.alignment = own.alignment.min(u64::from(bytes))),
            _ => None,
        }
    };
    set.map_or(INVALID_VALUE, |()| SUCCESS)
}

/// Whether there is a GELU like this one for a result: in memory that is laid out as is wanted, of
/// numbers that it is made for.
fn bends(description: &Description, out: &Layout) -> bool {
    let [_, column, batch] = description.before;
    let whole = [column, batch].iter().all(|step| step.is_multiple_of(WHOLE_COLUMNS));
    let apart = out.batches == 1 || batch >= column * (out.columns - 1) + out.rows;
    description.epilogue & AUXILIARY == 0
        || (whole && column >= out.rows && apart && out.number.size() == 2)
}

/// What the library says of an algorithm.
#[repr(C)]
struct Answer {
    algorithm: [u64; 8],
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _: *mut c_void,
    description: *const Description,
    a: *const Layout,
    b: *const Layout,
    _: *const Layout,
    out: *const Layout,
    preference: *const Preference,
    wanted: c_int,
    answers: *mut Answer,
    count: *mut c_int,
) -> c_int {
    // SAFETY: all handles are live; the caller gives room for this many answers and a number.
    unsafe {
        let all = [&*a, &*b, &*out];
        let Description { epilogue, transposed, .. } = *description;
        let refused = sums::is_one(epilogue) && world().settings.sums == Summed::Refused;
        let fits = all.iter().all(|layout| layout.batches == all[2].batches)
            && bends(&*description, all[2])
            && sums::are_made(epilogue, transposed, all[2].batches)
            && !refused;
        let preference = &*preference;
        let refuses = world().settings.products == Multiplied::Refused;
        // No matrix starts within a number.
        let whole = all
            .iter()
            .all(|layout| preference.alignment.is_multiple_of(layout.number.size()));
        if !fits || refuses || !whole || preference.workspace < WORKSPACE {
            *count = 0;
            return NOT_SUPPORTED;
        }
        if preference.reductions != WIDE_SUMS {
            forbid("sums of products may be rounded before they meet");
        }
        let offered = world().settings.algorithms.min(wanted as u64);
        let answers = slice::from_raw_parts_mut(answers, offered as usize);
        for (place, answer) in (0..).zip(answers) {
            // Bytes without a meaning are others in every process.
            let other = u64::from(process::id());
            let algorithm = [preference.alignment, place, 0, 0, 0, 0, 0, other];
            let (workspace, reserved) = (WORKSPACE as usize, [0; 4]);
            *answer =
                Answer { algorithm, workspace, state: SUCCESS, waves: 1.0, reserved };
        }
        *count = offered as c_int;
    }
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmul(
    _: *mut c_void,
    description: *const Description,
    scale: *const c_void,
    a: u64,
    a_layout: *const Layout,
    b: u64,
    b_layout: *const Layout,
    accumulate: *const c_void,
    before: u64,
    before_layout: *const Layout,
    out: u64,
    out_layout: *const Layout,
    algorithm: *const [u64; 8],
    workspace: u64,
    workspace_bytes: usize,
    stream: u64,
) -> c_int {
    // SAFETY: the algorithm is one that was offered.
    let [alignment, place, ..] = unsafe { *algorithm };
    // SAFETY: all handles are live; factors have the type that the description says.
    let mut product = unsafe {
        let description = *description;
        let factor = |place: *const c_void| match description.wide {
            true => ptr::read_unaligned(place.cast::<f64>()),
            false => f64::from(ptr::read_unaligned(place.cast::<f32>())),
        };
        let matrix = |start, layout: *const Layout, transposed| Matrix {
            start,
            layout: *layout,
            transposed,
        };
        let [first, second] = description.transposed;
        Product {
            a: matrix(a, a_layout, first),
            b: matrix(b, b_layout, second),
            out: matrix(out, out_layout, false),
            before: matrix(before, before_layout, false),
            wide: description.wide,
            scale: factor(scale),
            accumulate: factor(accumulate),
            epilogue: description.epilogue,
            bias: description.bias,
            sums: description.sums(*out_layout),
            bent: description.bent(*out_layout),
            workspace,
            place,
            pause: Duration::ZERO,
        }
    };
    if world().settings.products == Multiplied::Failing {
        return NOT_SUPPORTED;
    }
    let unused = product.epilogue & BIAS == 0 && product.sums.is_none();
    if workspace_bytes < WORKSPACE as usize
        || product.sums.is_some_and(|it| it.start == 0)
        || (unused && product.bias != 0)
    {
        return INVALID_VALUE;
    }
    let mut world = world();
    product.check(&world, alignment);
    world.counts.products += 1;
    product.count(&mut world);
    match world.give(stream, Work::Product(Box::new(product))) {
        0 => SUCCESS,
        _ => EXECUTION_FAILED,
    }
}

impl Description {
    /// Sums beside a result.
    fn sums(&self, out: Layout) -> Option<Sums> {
        sums::is_one(self.epilogue).then(|| Sums {
            epilogue: self.epilogue,
            start: self.bias,
            number: out.number,
            wide: self.wide,
            summed: world().settings.sums,
        })
    }

    /// What is before a GELU, beside a result.
    fn bent(&self, out: Layout) -> Matrix {
        let [start, column, batch] = self.before;
        let layout = Layout { column, batch, ..out };
        Matrix { start, layout, transposed: false }
    }
}

impl Product {
    /// Whether numbers of 16 bits lie in columns of which some begins where tensor cores do not load.
    fn is_unaligned(&self) -> bool {
        let bytes = |own: &Matrix| own.layout.column * own.layout.number.size();
        let narrow = [&self.a, &self.b].iter().all(|own| own.layout.number.size() == 2);
        let mut all = [&self.a, &self.b, &self.out].into_iter();
        narrow && all.any(|own| !bytes(own).is_multiple_of(LOADED))
    }

    /// Counts what goes with it, and how long that takes.
    fn count(&mut self, world: &mut World) {
        world.counts.unaligned_products += u64::from(self.is_unaligned());
        let is_slow = world.settings.is_slow(self.place);
        world.counts.slow_products += u64::from(is_slow);
        // Where another clock says what takes how long, nobody has to wait for it.
        if is_slow && world.settings.costs.is_none() {
            self.pause = SLOW;
        }
        let (gelus, sums) = (u64::from(self.epilogue & AUXILIARY != 0), self.sums);
        world.counts.gelus += gelus;
        world.counts.sums += u64::from(sums.is_some());
        let slow = sums.is_some_and(|own| own.summed == Summed::Slow);
        if slow || (gelus > 0 && world.settings.slow_gelus) {
            self.pause = SLOW_EPILOGUE;
        }
    }

    /// Ends the process when what is before a GELU is not where an algorithm may look for it.
    fn check_bent(&self, world: &World) {
        let (start, bytes) = (self.bent.start, self.bent.bytes());
        if !is_of_device(start) || !world.memory.is_live(start, bytes) {
            forbid("what is before a GELU is not in live memory");
        }
        if !start.is_multiple_of(BIAS_ALIGNMENT) {
            forbid("what is before a GELU does not start at a multiple of 16 bytes");
        }
        let out = self.out.start;
        if start < out + self.out.bytes() && out < start + bytes {
            forbid("what is before a GELU overlaps the result");
        }
    }

    /// Ends the process when a matrix is not where an algorithm may look for it.
    fn check(&self, world: &World, alignment: u64) {
        let (rows, inner) = self.a.extents();
        let (other, columns) = self.b.extents();
        if other != inner || self.out.extents() != (rows, columns) {
            forbid("matrices of a product do not fit together");
        }
        let live =
            |start, bytes| is_of_device(start) && world.memory.is_live(start, bytes);
        let (from, to) = (self.before.start, self.out.start);
        let (read, written) = (from + self.before.bytes(), to + self.out.bytes());
        if self.accumulate != 0.0 && from != to && from < written && to < read {
            forbid("what is added to a product overlaps its result");
        }
        if self.before.extents() != (rows, columns) {
            forbid("what is added to a product does not fit");
        }
        for matrix in [&self.a, &self.b, &self.out, &self.before] {
            if !live(matrix.start, matrix.bytes()) {
                forbid("a matrix of a product is not in live memory");
            }
            if !matrix.start.is_multiple_of(alignment) {
                forbid("a matrix of a product is not aligned as was promised");
            }
        }
        let bias = rows * self.out.layout.number.size();
        if self.epilogue & BIAS != 0 && !live(self.bias, bias) {
            forbid("the bias of a product is not in live memory");
        }
        if self.epilogue & BIAS != 0 && !self.bias.is_multiple_of(BIAS_ALIGNMENT) {
            forbid("the bias of a product does not start at a multiple of 16 bytes");
        }
        if self.epilogue & AUXILIARY != 0 {
            self.check_bent(world);
        }
        if let Some(sums) = &self.sums {
            sums.check([&self.a, &self.b], &self.out, world);
        }
        if !live(self.workspace, WORKSPACE) {
            forbid("the workspace of a product is not in live memory");
        }
    }
}
