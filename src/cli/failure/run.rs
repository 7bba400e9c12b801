//! What goes wrong behind the planner: of each error its code, the file at fault, and what would help.

use super::{Failure, Kind};
use crate::cli::{
    load::Loaded,
    problem::{Code, Problem},
};
use roundelay::{
    CudaError, ExamplesError, LaunchError, OutputError, ProfileError, RunError,
    TranslationError, WeightsError,
    parts::{
        planner::Unproven,
        runtime::{
            CodeError, CpuError, EvaluateError, MachineError, StateError, TrainError,
        },
    },
};
use std::{error::Error, path::Path};

impl Failure {
    /// A run of what is in this file that failed, or that cannot be.
    pub(crate) fn run(file: &Path, error: &RunError) -> Self {
        if let RunError::Output(error) = error {
            return Self::unwritten(error);
        }
        let kind = if error.is_input() { Kind::Refused } else { Kind::Run };
        let code = of_run(error);
        let file = error.path().unwrap_or(match code {
            Code::Cuda | Code::Ranks => Path::new(""),
            _ => file,
        });
        Self::hinted(kind, code, file, error, &error.hint())
    }

    /// A program that cannot be measured.
    pub(crate) fn profile(loaded: &Loaded, error: &ProfileError) -> Self {
        match error {
            ProfileError::NoPlan(refusal) => Self::no_plan(loaded, refusal),
            ProfileError::Compile(error) => Self::compile(loaded, error),
            ProfileError::Run(error) => Self::run(&loaded.file, error),
            ProfileError::Threads { .. } => {
                let hint = ProfileError::ONE_BY_ONE;
                Self::hinted(Kind::Refused, Code::Profile, &loaded.file, error, hint)
            }
        }
    }

    /// Examples of what is in this file that are not written.
    pub(crate) fn examples(file: &Path, error: ExamplesError) -> Self {
        match error {
            ExamplesError::Data(error) => Self::run(file, &error.into()),
            ExamplesError::Output(error) => Self::unwritten(&error),
        }
    }

    /// Weights that do not become those of another program, or come from them; the hint is for those
    /// that are of another model.
    pub(crate) fn untranslated(error: &TranslationError, hint: &str) -> Self {
        match error {
            TranslationError::Output(error) => Self::unwritten(error),
            TranslationError::Weights(error) => Self::weights(error, hint),
        }
    }

    /// Weights that are refused, with a hint where they have none.
    pub(crate) fn weights(error: &WeightsError, hint: &str) -> Self {
        let (own, path) = (error.hint(), error.path());
        let hint = if own.is_empty() { hint } else { own };
        Self::hinted(Kind::Refused, Code::Weights, path, error, hint)
    }

    /// A schedule that the compiler made and the checker refuses: no input is at fault.
    pub(crate) fn unproven(file: &Path, error: &dyn Error) -> Self {
        Self::hinted(Kind::Run, Code::Check, file, error, Unproven::HINT)
    }

    /// A file that is not written.
    pub(crate) fn unwritten(error: &OutputError) -> Self {
        let (kind, code) = match error {
            OutputError::Input { .. }
            | OutputError::AmongCheckpoints { .. }
            | OutputError::AmongData { .. } => (Kind::Usage, Code::Usage),
            OutputError::Unwritable { .. }
            | OutputError::NoFolder { .. }
            | OutputError::NoRoom { .. } => (Kind::Refused, Code::File),
            OutputError::Write { .. } => (Kind::Run, Code::File),
        };
        Self::hinted(kind, code, error.path(), error, error.hint())
    }

    /// GPUs that cannot be used, or that fail, which is the fault of no file.
    pub(crate) fn gpus(error: &CudaError) -> Self {
        Self::hinted(Kind::Run, of_cuda(error), Path::new(""), error, &error.hint())
    }

    /// What a launcher says of ranks, where that cannot be.
    pub(crate) fn ranks(error: &LaunchError) -> Self {
        Self::hinted(Kind::Run, Code::Ranks, Path::new(""), error, &error.hint())
    }

    /// An error whose message ends with a hint.
    fn hinted(
        kind: Kind,
        code: Code,
        file: &Path,
        error: &dyn Error,
        hint: &str,
    ) -> Self {
        let message = without(&describe(error), hint);
        let mut problem = Problem::new(code, file, 0, message);
        problem.hint = hint.to_owned();
        Self { kind, ..Self::listed(vec![problem]) }
    }
}

fn of_run(error: &RunError) -> Code {
    match error {
        RunError::Data(_) => Code::Data,
        RunError::Checkpoint(_) | RunError::NoCheckpoint(_) | RunError::NoFolder(_) => {
            Code::Checkpoint
        }
        RunError::Output(_) => Code::File,
        RunError::Weights(_) => Code::Weights,
        RunError::Element(_) | RunError::Unscaled(_) => Code::Dtype,
        RunError::NoCuda { .. } | RunError::Nowhere { .. } => Code::Cuda,
        RunError::Code(error) => of_code(error),
        RunError::State(error) => of_state(error),
        RunError::Meeting(_) | RunError::Ranks(_) => Code::Ranks,
        RunError::Machine(error) => of_machine(error),
        RunError::Train(error) => match error {
            TrainError::Machine(error) => of_machine(error),
            TrainError::Checkpoint(_) | TrainError::LastCheckpoint(_) => Code::Checkpoint,
            TrainError::Evaluate(EvaluateError::Code(error)) => of_code(error),
            TrainError::Evaluate(EvaluateError::State(error)) => of_state(error),
            TrainError::Evaluate(EvaluateError::Machine(error)) => of_machine(error),
        },
    }
}

fn of_machine(error: &MachineError) -> Code {
    match error {
        MachineError::Cpu(error) => of_cpu(error),
        MachineError::Cuda(error) => of_cuda(error),
    }
}

fn of_cpu(error: &CpuError) -> Code {
    match error {
        CpuError::Code(error) => of_code(error),
        CpuError::State(error) => of_state(error),
        CpuError::Ranks(_) | CpuError::WorldSize(_) => Code::Ranks,
        CpuError::Memory { .. } | CpuError::Refused { .. } => Code::Memory,
        CpuError::Thread { .. }
        | CpuError::Failed { .. }
        | CpuError::Forward { .. }
        | CpuError::Stuck { .. }
        | CpuError::Unready(_) => Code::Run,
    }
}

fn of_cuda(error: &CudaError) -> Code {
    match error {
        CudaError::Launch(_)
        | CudaError::Meeting(_)
        | CudaError::Ranks(_)
        | CudaError::WorldSize(_) => Code::Ranks,
        CudaError::Code(error) => of_code(error),
        CudaError::State(error) => of_state(error),
        CudaError::Memory { .. } => Code::Memory,
        CudaError::Unready(_) => Code::Run,
        CudaError::Absent(_)
        | CudaError::NoGpu { .. }
        | CudaError::Compile { .. }
        | CudaError::Unkept { .. }
        | CudaError::Function { .. }
        | CudaError::Kernel { .. }
        | CudaError::Refused { .. }
        | CudaError::Failed { .. }
        | CudaError::Broken { .. }
        | CudaError::Stuck { .. } => Code::Cuda,
    }
}

fn of_code(error: &CodeError) -> Code {
    match error {
        CodeError::Call { .. } => Code::Check,
        CodeError::Element(_) => Code::Dtype,
    }
}

/// A file that was whole before, or a state that is not the schedule's.
fn of_state(error: &StateError) -> Code {
    if error.path().is_some() { Code::File } else { Code::Run }
}

/// An error with all its causes.
fn describe(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

/// A message without the hint that it ends with, and what joins the two.
fn without(message: &str, hint: &str) -> String {
    match message.strip_suffix(hint) {
        Some(bare) if !hint.is_empty() => {
            bare.trim_end_matches([';', ':', ' ', '\n']).to_owned()
        }
        Some(_) | None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay::{
        Kernels, SearchOptions, SourceFile, check, compile, parse,
        parts::schedule::Waits, plan,
    };

    const PROGRAM: &str = "\
model line {
    input x: real[batch, 4]
    loss mse(linear(linear(x, 4), 4), x)
}
device core { memory 1 GB, compute 1 GFLOP/s, bandwidth 1 GB/s }
link bus { bandwidth 1 GB/s, latency 1 us }
cluster two { 2 x core joined by bus }
train { data synthetic, batch 4, steps 1, optimizer sgd(lr = 0.1) }
plan { rule sync, placement pipeline, order gpipe, micro_batches 2, stages 2 }
";

    /// The compiler is at fault where it forgets what actions wait for.
    #[test]
    fn a_schedule_that_was_compiled_wrong_is_no_refusal() {
        let source = SourceFile::new("line.rdl", PROGRAM.to_owned());
        let program = parse(&source).expect("a program");
        let ranking = plan(&program, &SearchOptions::default()).expect("it fits");
        let compiled = compile(&program, &ranking.plans[0].plan).expect("it is right");
        let mut wrong = compiled.into_inner();
        let actions = wrong.actions.iter_mut();
        actions.for_each(|(_, action)| action.after = Waits::default());
        let found = check(wrong, &Kernels).expect_err("nothing waits");
        let unproven = Unproven::of(&found).expect("no limit is met");
        let failure = Failure::unproven(Path::new("line.rdl"), &unproven);
        assert!(matches!(failure.kind, Kind::Run));
        for words in ["fault of Roundelay and of no program", "hint: please report it"] {
            assert!(failure.text.contains(words), "{}", failure.text);
        }
    }
}
