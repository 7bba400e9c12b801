//! What a user runs first on a new GPU, driver or library: every kernel on random calls, on what
//! was poisoned before, held to its plain reference in 64 bits on the same stored numbers.
//!
//! A call runs three ways in turn: with matrix products and convolutions by libraries, with all
//! operands one element further on than a vector load wants, and with own functions for every device
//! alone. A large call and those of usual models run in all three.

mod stage;

use super::{
    CudaError,
    driver::{Device, DeviceFacts},
    ready::{Code, LibrarySteps, Trials},
};
use crate::code::parse_call;
use roundelay_kernels::{
    Context, Kernel, Mode, NAMES,
    samples::{self, Draw, Mix},
};
use roundelay_schedule::{Call, Float, GradientSums, Id, RoutineId, nearest_hint};
use stage::{Placement, Ran, Room, Stage};
use std::time::Duration;

/// What is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelTrials {
    /// These kernels; all of them when none is named.
    pub only: Vec<TriedKernel>,
    /// Draws calls and numbers.
    pub seed: u64,
    /// Random calls of every kernel and element type; one that takes many blocks, and some of
    /// usual models, come besides.
    pub calls: u32,
    /// Who makes matrix products and convolutions.
    pub products: TriedProducts,
    /// How long one call is waited for.
    pub deadline: Duration,
}

/// Who makes the matrix products and convolutions of calls that are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriedProducts {
    /// Libraries and own functions in turn.
    All,
    /// Own functions alone, as for tools that look into every kernel.
    Own,
}

/// How the calls of a kernel in one element type went.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelRow {
    /// Its name.
    pub kernel: &'static str,
    /// The type of the job.
    pub dtype: Float,
    /// How many calls.
    pub calls: u32,
    /// How many of their steps libraries made.
    pub by_libraries: LibrarySteps,
    /// Largest error of a number, where the largest number of its operand is one or less;
    /// relative to that largest number where it is more.
    pub error: f64,
    /// The first call that was wrong, and how, in words.
    pub wrong: Option<String>,
}

/// What is known when all kernels were tried.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelCheck {
    /// On what.
    pub device: DeviceFacts,
    /// What was tried.
    pub trials: KernelTrials,
    /// Every kernel in every element type.
    pub rows: Vec<KernelRow>,
}

impl KernelCheck {
    /// Whether all numbers were right.
    pub fn is_right(&self) -> bool {
        self.rows.iter().all(|row| row.wrong.is_none())
    }
}

/// The element types, with how wide operands are in turn.
const TYPES: [(Float, &[Mix]); 4] = [
    (Float::F32, &[Mix::Narrow]),
    (Float::F64, &[Mix::Narrow]),
    (Float::Bf16(GradientSums::F32), &[Mix::Narrow, Mix::Statistics, Mix::Gradients]),
    (Float::F16(GradientSums::Same), &[Mix::Statistics]),
];

/// Tries every kernel on a GPU; a listener gets every row when it is there.
///
/// # Errors
/// When CUDA is missing, a source is not compiled, or the GPU fails. Wrong numbers are no error
/// here.
pub fn check_kernels(
    ordinal: u32,
    trials: KernelTrials,
    mut listener: impl FnMut(&KernelRow),
) -> Result<KernelCheck, CudaError> {
    let device = Device::open(ordinal)?;
    let facts = match trials.products {
        TriedProducts::All => device.facts().clone(),
        TriedProducts::Own => device.facts().without_libraries(),
    };
    let wanted =
        |kernel: &TriedKernel| trials.only.is_empty() || trials.only.contains(kernel);
    let mut bench = Bench::new(&device, &trials)?;
    let mut rows = Vec::new();
    for (dtype, mixes) in TYPES {
        for kernel in TriedKernel::all().filter(wanted) {
            let row = bench.row(kernel.0, (dtype, mixes))?;
            listener(&row);
            rows.push(row);
        }
    }
    Ok(KernelCheck { device: facts, trials, rows })
}

/// A kernel that can be tried alone on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TriedKernel(&'static str);

/// Why a name is not that of a [`TriedKernel`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untried {
    /// No kernel has it.
    #[error("there is no kernel `{name}`{}", nearest_hint(name, NAMES.iter().copied()))]
    Unknown {
        /// The name.
        name: String,
    },
    /// The machine makes an exchange between parts of sums and copies.
    #[error(
        "`{name}` is an exchange between devices, so no kernel of a GPU makes it alone; \
         `devices --self-check` under torchrun, mpirun or srun tries exchanges"
    )]
    Exchange {
        /// The name.
        name: &'static str,
    },
}

impl TriedKernel {
    /// The kernel of a name.
    ///
    /// # Errors
    /// When no kernel has it, or when it cannot be tried alone.
    pub fn named(name: &str) -> Result<Self, Untried> {
        match NAMES.iter().find(|own| **own == name) {
            None => Err(Untried::Unknown { name: name.to_owned() }),
            Some(name) if is_exchange(name) => Err(Untried::Exchange { name }),
            Some(name) => Ok(Self(name)),
        }
    }

    /// All of them, in the order of the catalogue.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.iter().filter(|name| !is_exchange(name)).map(|name| Self(name))
    }
}

/// Whether a name of the catalogue stands for no functions of a device.
fn is_exchange(name: &str) -> bool {
    let call = samples::sample(name, &mut Draw::new(0));
    Kernel::parse(&call).is_ok_and(|kernel| kernel.cuda(Float::F32).is_err())
}

/// By libraries on operands as a machine has them, on unaligned ones, and by own functions.
const WAYS: u32 = 3;

/// The way with operands that no vector load may take.
const UNALIGNED: usize = 1;

/// Bytes of the narrowest element: what all operands start at multiples of that lie one element behind
/// what is aligned. What a library makes of wider ones at whole elements alone is made by own functions.
const NARROWEST: u64 = 2;

/// What changes from one trial to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setting {
    way: usize,
    mix: Mix,
    slice_offset: u64,
}

impl Setting {
    /// Of the trial with this number: three that follow each other from a multiple of three have
    /// all ways, mixes and offsets, and nine all pairs of two of these.
    fn of(number: u32, mixes: &[Mix]) -> Self {
        let (way, round) = (number % WAYS, number / WAYS);
        Self {
            way: way as usize,
            mix: mixes[(way + round) as usize % mixes.len()],
            slice_offset: u64::from((way + 2 * round) % 3),
        }
    }
}

/// The call of a trial: random ones, then a large one and those of usual models, these in all
/// ways; none behind the last one.
fn call_of(
    (kernel, dtype): (&str, Float),
    number: u32,
    random: u32,
    draw: &mut Draw,
) -> Option<Call> {
    let Some(behind) = number.checked_sub(random.next_multiple_of(WAYS)) else {
        return Some(samples::sample_in(dtype, kernel, draw));
    };
    match (behind / WAYS) as usize {
        0 => Some(samples::large(kernel, draw)),
        usual => samples::usual(kernel, usual - 1),
    }
}

/// How one call went.
struct Tried {
    by_libraries: LibrarySteps,
    /// The largest error.
    error: f64,
    /// In words what is wrong.
    wrong: Option<String>,
}

/// A GPU on which calls are tried; dropped from first to last.
struct Bench<'a> {
    trials: &'a KernelTrials,
    /// By libraries, for operands that start at multiples of 256 and of [`NARROWEST`] bytes, and by own
    /// functions.
    codes: [Code; WAYS as usize],
    room: Room<'a>,
}

impl<'a> Bench<'a> {
    fn new(device: &'a Device, trials: &'a KernelTrials) -> Result<Self, CudaError> {
        let room = Room::new(device, trials.deadline)?;
        let by_library = trials.products == TriedProducts::All;
        let codes = [Some(stage::GAP), Some(NARROWEST), None]
            .map(|alignment| alignment.filter(|_| by_library))
            .map(|alignment| Code::bare(device, alignment, Trials::Skipped));
        let [by_library, unaligned, own] = codes;
        let codes = [by_library, unaligned, own.usual()];
        Ok(Self { trials, codes, room })
    }

    fn row(
        &mut self,
        kernel: &'static str,
        (dtype, mixes): (Float, &[Mix]),
    ) -> Result<KernelRow, CudaError> {
        let mut row = KernelRow {
            kernel,
            dtype,
            calls: 0,
            by_libraries: LibrarySteps::default(),
            error: 0.0,
            wrong: None,
        };
        let random = self.trials.calls;
        for number in (0..random).chain(random.next_multiple_of(WAYS)..) {
            let seed = self.trials.seed.wrapping_add(u64::from(number));
            let draw = &mut Draw::new(seed);
            let Some(call) = call_of((kernel, dtype), number, random, draw) else {
                break;
            };
            row.calls += 1;
            let start = samples::contents::<f64>(&call, draw);
            let Setting { way, mix, slice_offset } = Setting::of(number, mixes);
            let call = samples::mixed(call, mix);
            let placement =
                if way == UNALIGNED { Placement::Unaligned } else { Placement::Aligned };
            let context = context(number, slice_offset);
            let stage = Stage::new(&call, &start, (dtype, placement), context);
            let tried = self.trial(way, &call, dtype, stage)?;
            row.by_libraries += tried.by_libraries;
            row.error = row.error.max(tried.error);
            let wrong = tried.wrong.map(|wrong| format!("{}: {wrong}", call.text()));
            row.wrong = row.wrong.or(wrong);
        }
        Ok(row)
    }

    fn trial(
        &mut self,
        way: usize,
        call: &Call,
        dtype: Float,
        mut stage: Stage,
    ) -> Result<Tried, CudaError> {
        let code = &mut self.codes[way];
        let alone = RoutineId::new(0);
        let kernel = parse_call(call, alone, 0)?;
        let (ready, scratch) = code.prepare(dtype, (alone, 0), call)?;
        let given = (&ready, scratch);
        let (error, wrong) =
            match self.room.run(code, given, (&kernel, call), &mut stage)? {
                Ran::Done => stage.judge(&kernel, dtype),
                Ran::Refused(reason) => (f64::NAN, Some(reason.to_string())),
            };
        Ok(Tried { by_libraries: ready.library_steps(), error, wrong })
    }
}

/// Every fourth call evaluates, and optimizers stand at several places of a stage.
fn context(number: u32, slice_offset: u64) -> Context {
    let mode = if number % 4 == 3 { Mode::Evaluation } else { Mode::Training };
    Context {
        step: 3,
        updates: 2,
        micro_batch: 1,
        seed: 11,
        mode,
        rate: 0.05,
        slice_offset,
        part: 0,
        threads: 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_mixes_and_offsets_meet() {
        let (_, mixes) = TYPES[2];
        let mut seen = [(); 3].map(|()| Vec::new());
        for round in 0..3 {
            let three = [0, 1, 2].map(|way| Setting::of(3 * round + way, mixes));
            for mix in mixes {
                assert!(three.iter().any(|own| own.mix == *mix), "{three:?}");
            }
            for Setting { way, mix, slice_offset } in three {
                let mix = mixes.iter().position(|own| *own == mix).expect("it is one");
                let offset = slice_offset as usize;
                seen[0].push((way, mix));
                seen[1].push((way, offset));
                seen[2].push((mix, offset));
            }
        }
        for pairs in &mut seen {
            pairs.sort_unstable();
            pairs.dedup();
            assert_eq!(pairs.len(), 9, "{pairs:?}");
        }
    }

    #[test]
    fn large_and_usual_calls_run_in_all_ways() {
        for random in [1, 6, 7] {
            let first = u32::next_multiple_of(random, WAYS);
            let own = |number| {
                call_of(("matmul", Float::F32), number, random, &mut Draw::new(0))
            };
            let large = samples::large("matmul", &mut Draw::new(0));
            let usual = samples::usual("matmul", 0).expect("there is one");
            for way in 0..WAYS {
                assert_eq!(own(first + way), Some(large.clone()));
                assert_eq!(own(first + WAYS + way), Some(usual.clone()));
                assert_eq!(Setting::of(first + way, &[Mix::Narrow]).way, way as usize);
            }
            assert_eq!(own(first + 2 * WAYS), None);
        }
    }
}
