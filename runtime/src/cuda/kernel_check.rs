//! What a user runs first on a new GPU, driver or library: every kernel on random calls, on what
//! was poisoned before, held to its plain reference in 64 bits on the same stored numbers.
//!
//! A call runs three ways in turn: with matrix products by the library, with all operands one
//! element further on than a vector load wants, and with products by own functions.

mod stage;

use super::{
    CudaError,
    code::Code,
    driver::{Device, DeviceFacts},
};
use crate::code::parse_call;
use roundelay_kernels::{
    Context, Kernels, Mode, NAMES,
    samples::{self, Draw, Mix},
};
use roundelay_schedule::{Call, Catalogue, Float, GradientSums, Id, RoutineId};
use stage::{Placement, Room, Stage};
use std::time::Duration;

/// What is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelTrials {
    /// These kernels; all of them when none is named.
    pub only: Vec<String>,
    /// Draws calls and numbers.
    pub seed: u64,
    /// Random calls of every kernel and element type; one that takes many blocks, and some of
    /// usual models, come besides.
    pub calls: u32,
    /// How long one call is waited for.
    pub patience: Duration,
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
    let facts = device.facts().clone();
    let wanted = |name: &&&str| {
        let all = trials.only.is_empty() || trials.only.iter().any(|own| own == **name);
        all && !is_exchange(name)
    };
    let mut bench = Bench::new(&device, &trials)?;
    let mut rows = Vec::new();
    for (dtype, mixes) in TYPES {
        for kernel in NAMES.iter().filter(wanted) {
            let row = bench.row(kernel, (dtype, mixes))?;
            listener(&row);
            rows.push(row);
        }
    }
    Ok(KernelCheck { device: facts, trials, rows })
}

/// Exchanges between parts are made by the machine, not by kernels.
fn is_exchange(name: &str) -> bool {
    let call = samples::sample(name, &mut Draw::new(0));
    Kernels.exchange(&call, Float::F32).is_some()
}

/// A GPU on which calls are tried; dropped from first to last.
struct Bench<'a> {
    trials: &'a KernelTrials,
    /// Products by the library, for operands that start at multiples of 256 and of nothing, and
    /// by own functions.
    codes: [Code; 3],
    room: Room<'a>,
}

impl<'a> Bench<'a> {
    fn new(device: &'a Device, trials: &'a KernelTrials) -> Result<Self, CudaError> {
        let room = Room::new(device, trials.patience)?;
        let codes = [
            Code::bare(device, Some(stage::GAP)),
            Code::bare(device, Some(1)),
            Code::bare(device, None),
        ];
        Ok(Self { trials, codes, room })
    }

    fn row(
        &mut self,
        kernel: &'static str,
        (dtype, mixes): (Float, &[Mix]),
    ) -> Result<KernelRow, CudaError> {
        let mut row = KernelRow { kernel, dtype, calls: 0, error: 0.0, wrong: None };
        for number in 0u32.. {
            let seed = self.trials.seed.wrapping_add(u64::from(number));
            let draw = &mut Draw::new(seed);
            let call = match number.checked_sub(self.trials.calls) {
                None => samples::sample(kernel, draw),
                Some(0) => samples::large(kernel, draw),
                Some(behind) => match samples::usual(kernel, behind as usize - 1) {
                    Some(call) => call,
                    None => break,
                },
            };
            row.calls += 1;
            let start = samples::contents::<f64>(&call, draw);
            let call = samples::mixed(call, mixes[number as usize % mixes.len()]);
            let way = number as usize % self.codes.len();
            let placement =
                if way == 1 { Placement::Unaligned } else { Placement::Aligned };
            let context = context(number);
            let stage = Stage::new(&call, &start, (dtype, placement), context);
            let (error, wrong) = self.trial(way, &call, dtype, stage)?;
            row.error = row.error.max(error);
            row.wrong =
                row.wrong.or(wrong.map(|wrong| format!("{}: {wrong}", call.text())));
        }
        Ok(row)
    }

    /// The largest error of a call, and in words what is wrong with it.
    fn trial(
        &mut self,
        way: usize,
        call: &Call,
        dtype: Float,
        mut stage: Stage,
    ) -> Result<(f64, Option<String>), CudaError> {
        let code = &mut self.codes[way];
        let alone = RoutineId::new(0);
        let kernel = parse_call(call, alone, 0)?;
        let (ready, scratch) = code.prepare(dtype, (alone, 0), call)?;
        self.room.run(code, (&ready, scratch), (&kernel, call), &mut stage)?;
        Ok(stage.judge(&kernel, dtype))
    }
}

/// Every fourth call evaluates, and optimizers stand at several places of a stage.
fn context(number: u32) -> Context {
    let mode = if number % 4 == 3 { Mode::Evaluation } else { Mode::Training };
    Context {
        step: 3,
        micro_batch: 1,
        seed: 11,
        mode,
        rate: 0.05,
        slice_offset: u64::from(number % 3),
        part: 0,
        threads: 1,
    }
}
