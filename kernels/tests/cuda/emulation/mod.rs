//! Runs the steps of a call on the CPU, by the emulation of `kernels/cuda/host`.
//!
//! Needs a C++ compiler: `CXX`, or `c++`. Where there is none the tests say so and pass, unless
//! `ROUNDELAY_REQUIRE_CXX` is set. `ROUNDELAY_CXX_FLAGS` adds to the compiler's options, which is how
//! sanitizers get in (`.ci/cuda`).
#![allow(clippy::print_stderr, reason = "a test that cannot run must say so")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]
#![allow(unsafe_code, reason = "kernels are called by their addresses")]

pub(crate) mod compare;
mod objects;
pub(crate) mod stored;

use objects::Compiler;
use roundelay_kernels::{
    Context, Mode,
    cuda::{Argument, CallPlace, Launch, SOURCES, Scalars, Source, Step, Steps},
};
use std::{
    collections::BTreeMap,
    env,
    ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void},
    num::NonZero,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

/// A whole grid: grid, block, shared memory, addresses of the arguments.
type Entry =
    unsafe extern "C" fn(*const c_uint, *const c_uint, c_ulonglong, *mut *mut c_void);
/// The number of parameters and their sizes.
type Parameters = unsafe extern "C" fn(*mut c_ulonglong) -> c_uint;

unsafe extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, symbol: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

fn more_flags() -> Vec<String> {
    let given = env::var("ROUNDELAY_CXX_FLAGS").unwrap_or_default();
    given.split_whitespace().map(str::to_owned).collect()
}

pub(crate) fn compiler() -> Option<String> {
    let given = env::var("CXX").ok().into_iter();
    let mut known = given.chain(["c++", "g++", "clang++"].map(str::to_owned));
    known.find(|name| {
        Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success())
    })
}

/// Whether there is a compiler; says so where there is none.
pub(crate) fn can_compile() -> bool {
    let found = compiler().is_some();
    if !found {
        let required = env::var_os("ROUNDELAY_REQUIRE_CXX").is_some();
        assert!(!required, "ROUNDELAY_REQUIRE_CXX is set, but there is no C++ compiler");
        eprintln!(
            "SKIPPED: no C++ compiler, so no CUDA kernel was run; install g++ or set CXX"
        );
    }
    found
}

pub(crate) fn host() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda/host")
}

/// What is known of each source, from when it was first needed.
type Known<T> = OnceLock<Mutex<BTreeMap<&'static str, Arc<OnceLock<T>>>>>;

fn known<T: Clone>(known: &Known<T>, source: &Source, make: fn(&Source) -> T) -> T {
    let known = known.get_or_init(Mutex::default);
    // Held no longer than this, so that sources are compiled side by side.
    let own = Arc::clone(known.lock().unwrap().entry(source.name).or_default());
    own.get_or_init(|| make(source)).clone()
}

/// The shared object of a source.
fn compiled(source: &Source) -> PathBuf {
    static OBJECTS: Known<PathBuf> = OnceLock::new();
    known(&OBJECTS, source, compile)
}

/// The handle of a source's shared object.
fn library(source: &Source) -> usize {
    static LIBRARIES: Known<usize> = OnceLock::new();
    known(&LIBRARIES, source, open)
}

/// Compiles side by side the sources of which a test runs most.
pub(crate) fn compile_where(runs: impl Fn(&Source) -> bool) {
    let sources: Vec<&Source> = SOURCES.iter().filter(|source| runs(source)).collect();
    let next = AtomicUsize::new(0);
    let compile_rest = || {
        while let Some(source) = sources.get(next.fetch_add(1, Relaxed)) {
            compiled(source);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(compile_rest);
        }
    });
}

fn compile(source: &Source) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulation");
    let compiler = Compiler {
        command: compiler().expect("there is a compiler"),
        flags: more_flags(),
        host: host(),
    };
    let object = compiler.object(source.text, &folder);
    object
        .unwrap_or_else(|message| panic!("{} does not compile:\n{message}", source.name))
}

fn open(source: &Source) -> usize {
    let object = compiled(source);
    let path = CString::new(object.to_str().unwrap()).unwrap();
    // SAFETY: the path is a string that ends; all symbols are resolved at once.
    let handle = unsafe { dlopen(path.as_ptr(), 2) };
    // SAFETY: an error is a string that ends.
    assert!(!handle.is_null(), "{:?}", unsafe { CStr::from_ptr(dlerror()) });
    handle as usize
}

fn symbol(launch: &Launch, prefix: &str) -> *mut c_void {
    let name = format!("roundelay_{prefix}_{}", launch.function.symbol);
    let handle = library(&launch.function.source) as *mut c_void;
    let text = CString::new(name.as_str()).unwrap();
    // SAFETY: the handle is of an open library, the name a string that ends.
    let found = unsafe { dlsym(handle, text.as_ptr()) };
    assert!(!found.is_null(), "{} has no {name}", launch.function.source.name);
    found
}

/// What arguments are bound to.
pub(crate) struct Bound<'a> {
    pub(crate) operands: &'a [*mut u8],
    pub(crate) context: &'a Context,
}

/// The step's scalars, as device memory has them.
fn scalars(context: &Context) -> Scalars {
    Scalars {
        step: context.step,
        updates: context.updates,
        seed: context.seed,
        rate: context.rate,
        training: u64::from(context.mode == Mode::Training),
    }
}

/// The bits of an argument, and how many bytes it has.
fn bits(
    argument: &Argument,
    bound: &Bound<'_>,
    scratch: u64,
    scalars: &Scalars,
) -> (u64, u64) {
    let place =
        |line: &roundelay_schedule::Line| u64::from(line.place(bound.context.part));
    match argument {
        Argument::Address(CallPlace::Operand(index, offset)) => {
            (bound.operands[*index] as u64 + offset.0, 8)
        }
        Argument::Address(CallPlace::Scratch(offset)) => (scratch + offset.0, 8),
        Argument::Scalars => (std::ptr::from_ref(scalars) as u64, 8),
        Argument::MicroBatch => (bound.context.micro_batch, 8),
        Argument::SliceOffset => (bound.context.slice_offset, 8),
        Argument::Part => (bound.context.part.into(), 8),
        Argument::Place(line) => (place(line), 8),
        Argument::PlaceInRows { line, of_rows, rows, before } => {
            let row = place(of_rows) * rows + before;
            (row * u64::from(line.parts) + place(line), 8)
        }
        Argument::Unsigned(number) => (u64::from(*number), 4),
        Argument::Unsigned64(number) => (*number, 8),
        Argument::Single(number) => (u64::from(number.to_bits()), 4),
        Argument::Double(number) => (number.to_bits(), 8),
    }
}

fn launch(launch: &Launch, bound: &Bound<'_>, scratch: u64) {
    let scalars = scalars(bound.context);
    let arguments = launch.arguments.iter();
    let (mut words, given): (Vec<u64>, Vec<u64>) =
        arguments.map(|argument| bits(argument, bound, scratch, &scalars)).unzip();
    let mut addresses: Vec<*mut c_void> =
        words.iter_mut().map(|word| std::ptr::from_mut(word).cast()).collect();
    let mut sizes = [0u64; 128];
    // SAFETY: the symbols are those that `emulation.h` exports, with these signatures; every
    // argument has an address and the size of its parameter.
    unsafe {
        let parameters: Parameters = std::mem::transmute(symbol(launch, "parameters"));
        let count = parameters(sizes.as_mut_ptr()) as usize;
        let function = &launch.function.symbol;
        assert_eq!(sizes[..count], given, "sizes of the arguments of {function}");
        let entry: Entry = std::mem::transmute(symbol(launch, "emulate"));
        let (grid, block) = (launch.grid.as_ptr(), launch.block.as_ptr());
        entry(grid, block, launch.shared.0, addresses.as_mut_ptr());
    }
}

/// Runs all steps, those that a library may make by our own kernels, on poisoned scratch memory.
pub(crate) fn run_steps(steps: &Steps, bound: &Bound<'_>) {
    // 256-byte alignment, and canaries behind the end.
    let mut memory = vec![0xffu8; steps.scratch.0 as usize + 512];
    let start = (memory.as_ptr() as u64).next_multiple_of(256);
    for one in steps.steps.iter().cloned().flat_map(Step::launches) {
        launch(&one, bound, start);
    }
    let end = (start - memory.as_ptr() as u64 + steps.scratch.0) as usize;
    assert!(memory.split_off(end).iter().all(|byte| *byte == 0xff), "scratch overflows");
}
