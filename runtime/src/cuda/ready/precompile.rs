//! Sources compiled side by side before their functions are asked for one after another: those that a
//! schedule asks for, or all.

use super::{
    super::{
        CudaError,
        driver::{Device, DeviceFacts},
    },
    cache::can_keep,
    compile::{Compiler, SM90},
};
use crate::{
    helpers::share_out,
    lock::{held, lock},
};
use roundelay_kernels::{
    Kernel,
    cuda::{Halos, Launch, Number, SOURCES, Source, Step},
};
use roundelay_schedule::{Call, Float, Schedule};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

/// Machine code of all kernels of a GPU, which the cache has now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compilation {
    /// The GPU.
    pub device: DeviceFacts,
    /// The architecture that code is for, as NVRTC calls it.
    pub architecture: String,
    /// The cache.
    pub folder: PathBuf,
    /// What came of each source, by the names of their files.
    pub sources: Vec<(&'static str, Came)>,
}

/// Where machine code comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// The cache had it.
    Kept,
    /// It was compiled, which took so long.
    Compiled(Duration),
}

/// Compiles all that the cache lacks of what kernels may ask for on a GPU, on all cores: what checks or
/// trains on such GPUs with this cache later waits for none of it.
///
/// # Errors
/// When CUDA is missing, nothing can be kept, or a source is not compiled.
pub fn compile_kernels(ordinal: u32) -> Result<Compilation, CudaError> {
    let device = Device::open(ordinal)?.facts().clone();
    let compiler = Compiler::new(&device);
    let folder = match compiler.folder() {
        Some(folder) if can_keep(folder) => folder.to_owned(),
        folder => return Err(CudaError::Unkept { folder: folder.map(Into::into) }),
    };
    let came = |source| {
        let start = Instant::now();
        compiler.compile_new(source).map(|new| match new {
            Some(_) => Came::Compiled(start.elapsed()),
            None => Came::Kept,
        })
    };
    let sources = side_by_side(SOURCES.iter().copied().collect(), came);
    let sources = sources.into_iter().map(|(source, came)| Ok((source.name, came?)));
    let sources = sources.collect::<Result<_, CudaError>>()?;
    Ok(Compilation { device, architecture: compiler.architecture(), folder, sources })
}

/// Machine code that nobody has loaded yet.
pub(super) type Compiled = BTreeMap<Source, Vec<u8>>;

/// Compiles what the cache does not have on all cores. What cannot be compiled is left to whoever asks
/// for it, and tells of it.
pub(super) fn compile(
    schedule: &Schedule,
    facts: &DeviceFacts,
    compiler: &Compiler,
) -> Compiled {
    let sources = sources(schedule, facts);
    let compiled = side_by_side(sources, |source| compiler.compile_new(source));
    let new =
        compiled.into_iter().filter_map(|(source, code)| Some((source, code.ok()??)));
    new.collect()
}

/// What work makes of each source, on all cores.
fn side_by_side<T: Send>(
    sources: BTreeSet<Source>,
    work: impl Fn(Source) -> T + Sync,
) -> BTreeMap<Source, T> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let done = Mutex::new(BTreeMap::new());
    share_out(cores, sources.into_iter(), |source| {
        let made = work(source);
        lock(&done).insert(source, made);
    });
    held(done.into_inner())
}

/// The sources of functions that a schedule's calls may take on a device.
fn sources(schedule: &Schedule, facts: &DeviceFacts) -> BTreeSet<Source> {
    let launched = schedule.launched().into_iter();
    let calls = launched.flat_map(|id| schedule.routines[id].calls.iter());
    let steps = calls.flat_map(|call| steps(call, schedule.job.dtype));
    let launches = steps.flat_map(|step| launches(step, facts));
    launches.map(|launch| launch.function.source).collect()
}

fn steps(call: &Call, dtype: Float) -> Vec<Step> {
    let Ok(kernel) = Kernel::parse(call) else { return Vec::new() };
    let exchange = kernel.exchange();
    if let Some(halos) = exchange.and_then(|own| Halos::of(&own, Number::F32)) {
        return halos.functions().map(Step::Launch).into();
    }
    kernel.cuda(dtype).map_or(Vec::new(), |steps| steps.steps)
}

/// Functions that make a step unless a library does; a product's are asked for where none does.
fn launches(step: Step, facts: &DeviceFacts) -> Vec<Launch> {
    match step {
        Step::Launch(launch) => vec![launch],
        Step::Product(_) => Vec::new(),
        Step::Gradients(both) => both.own,
        Step::Convolution(convolution) => convolution.own,
        Step::Either(either) if facts.capability == SM90 => {
            either.usual.into_iter().chain(either.sm90.into_iter().flatten()).collect()
        }
        Step::Either(either) => either.usual,
    }
}
