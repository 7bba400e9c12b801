//! The sources of all functions that a schedule asks for, compiled side by side before they are asked
//! for one after another.

use super::{chooser::SM90, compile::Compiler, driver::DeviceFacts};
use roundelay_kernels::{
    Kernel,
    cuda::{Halos, Launch, Number, Source, Step},
};
use roundelay_schedule::{Call, Float, Schedule};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
    thread,
};

/// Machine code that nobody has loaded yet.
pub(super) type Compiled = BTreeMap<Source, Vec<u8>>;

/// Compiles what the cache does not have on all cores. What cannot be compiled is left to whoever asks
/// for it, and tells of it.
pub(super) fn compile(
    schedule: &Schedule,
    facts: &DeviceFacts,
    compiler: &Compiler,
) -> Compiled {
    let sources: Vec<Source> = sources(schedule, facts).into_iter().collect();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (rest, done) = (Mutex::new(sources), Mutex::new(Compiled::new()));
    let next = || rest.lock().ok().and_then(|mut rest| rest.pop());
    let work = || {
        while let Some(source) = next() {
            if let (Some(code), Ok(mut done)) =
                (compiler.compile_new(source), done.lock())
            {
                done.insert(source, code);
            }
        }
    };
    thread::scope(|scope| {
        (0..cores).for_each(|_| drop(scope.spawn(work)));
    });
    done.into_inner().unwrap_or_default()
}

/// The sources of functions that a schedule's calls may take on a device.
fn sources(schedule: &Schedule, facts: &DeviceFacts) -> BTreeSet<Source> {
    let calls = schedule.routines.values().flat_map(|routine| routine.calls.iter());
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
            [either.usual, either.sm90].concat()
        }
        Step::Either(either) => either.usual,
    }
}
