//! The command line as types.

use clap::{
    ArgAction, ArgGroup, Args, Parser, Subcommand, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};
use roundelay::{HeldOut, ImportCluster, ImportDtype, parts::dsl};
use std::{num::NonZeroUsize, ops::RangeInclusive, path::PathBuf};

/// A compiler for parallel training.
// A negative number is the value of an option and no option, so that it is told what the value may be.
#[derive(Debug, Parser)]
#[command(name = "roundelay", version, about, max_term_width = 100,
          mut_subcommands = |command| command.allow_negative_numbers(true))]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// One command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Rank the ways to train a program's model on its cluster.
    Plan(PlanArgs),
    /// Plan, lower, check, and write a schedule file.
    Compile(CompileArgs),
    /// Verify a schedule file, or lists of passes, and print the facts.
    Check(CheckArgs),
    /// Train, from a program or a schedule file.
    Run(RunArgs),
    /// Held-out loss and metrics of a checkpoint or of weights.
    Evaluate(EvaluateArgs),
    /// Replay a schedule file on the clock.
    Simulate(SimulateArgs),
    /// Show a schedule file's timeline.
    Show(ShowArgs),
    /// Format a program file.
    Fmt(FmtArgs),
    /// Write a program for the model of a Hugging Face configuration, and its weights for that program.
    Import(ImportArgs),
    /// Write weights of an imported program under the names of Hugging Face.
    Export(ExportArgs),
    /// Say what this machine has, as a cluster file.
    Devices(DevicesArgs),
    /// Measure kernels and copies for the cost model.
    Profile(ProfileArgs),
    /// Write the examples of the first training steps, for other programs.
    Data(DataArgs),
}

/// A program, with decisions that override it.
#[derive(Debug, Args)]
pub(crate) struct ProgramArgs {
    /// A program, or a schedule file.
    pub(crate) file: PathBuf,
    /// Pin, bound or open one decision, as in the `plan` block (`--set "rule = sync"`), or set a
    /// number of a device, link, memory or training (`--set "core.memory = 4 GB"`).
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Options of `plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// The program file.
    #[arg(required_unless_present = "diff")]
    pub(crate) file: Option<PathBuf>,
    /// As in the `plan` block (`--set "rule = sync"`), or of a device, a link, a shared memory, the
    /// cluster or the training: `--set "core.memory = 4 GB"`, `"bus.bandwidth = 16 GB/s"`,
    /// `"laptop.sharing = 9 GB"`, `"core.issue = 3 us"`, `"cluster.devices = 8"`,
    /// `"train.batch = 64"`, `"train.seed = 2"`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// How many plans to show.
    #[arg(long, default_value = "10", value_parser = at_least_one)]
    pub(crate) top: NonZeroUsize,
    /// Say what binds, why the first plan is first, and what would change it.
    #[arg(long)]
    pub(crate) explain: bool,
    /// Also show the plans that no other beats in step time, peak memory and devices together.
    #[arg(long)]
    pub(crate) pareto: bool,
    /// Instead show which decisions of two plans differ; with a program also what both cost.
    #[arg(long, num_args = 2, value_names = ["A.YAML", "B.YAML"], action = ArgAction::Set,
          conflicts_with_all = ["pareto", "explain", "output", "top"])]
    pub(crate) diff: Vec<PathBuf>,
    /// Write the best plan.
    #[arg(short, long, value_name = "PLAN.YAML")]
    pub(crate) output: Option<PathBuf>,
    /// One JSON document on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `file` is where no schedule file is taken.
const PROGRAM: &str = "The program file";

/// Options of `compile`.
#[derive(Debug, Args)]
#[command(mut_arg("file", |file| file.help(PROGRAM)))]
pub(crate) struct CompileArgs {
    /// What to compile.
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    /// Use this plan instead of the best one.
    #[arg(long, value_name = "PLAN.YAML")]
    pub(crate) plan: Option<PathBuf>,
    /// Where the schedule goes.
    #[arg(short, long, value_name = "FILE.SCHEDULE")]
    pub(crate) output: PathBuf,
    /// One JSON document on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A schedule file, or lists of passes (`.csv`).
    pub(crate) file: PathBuf,
    /// Accept a hand edit: check it, then write its new content hash.
    #[arg(long)]
    pub(crate) seal: bool,
    /// One JSON document on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// A program, or a schedule file.
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    /// Where to run.
    #[arg(long, value_enum, default_value_t = DeviceChoice::Auto)]
    pub(crate) device: DeviceChoice,
    /// Whether a GPU replays whole periods as graphs, as it does where they can be; not with `--device cpu`.
    #[arg(long, value_enum)]
    pub(crate) graphs: Option<GraphChoice>,
    /// Seconds after which the run is given up, on all ranks, when nothing is completed. Of a graph only
    /// its end is seen, so one must not take longer.
    #[arg(long, value_name = "SECONDS", default_value_t = 600,
          value_parser = whole::<u64>(1..=31_536_000))]
    pub(crate) deadline: u64,
    /// Train up to this step, counted from the start of training, instead of the program's number.
    #[arg(long, value_parser = whole::<u64>(0..=u64::MAX))]
    pub(crate) steps: Option<u64>,
    /// Let the program's paths of data start at this folder, instead of the program's own.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Write checkpoints here.
    #[arg(long, value_name = "DIR")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Training steps between checkpoints.
    #[arg(long, default_value_t = 50, requires = "checkpoint",
          value_parser = whole::<u64>(1..=u64::MAX))]
    pub(crate) checkpoint_every: u64,
    /// Go on from the newest checkpoint.
    #[arg(long, requires = "checkpoint")]
    pub(crate) resume: bool,
    /// Start from the parameters of this safetensors file, instead of drawn ones; with `--resume`
    /// where there is no checkpoint yet.
    #[arg(long, value_name = "FILE")]
    pub(crate) weights: Option<PathBuf>,
    /// Of these, let a parameter or all of a module (`logits`, `layer.11`) begin as they are drawn.
    #[arg(long, value_name = "NAME", requires = "weights")]
    pub(crate) fresh: Vec<String>,
    /// Write the last parameters to this safetensors file, under their global names.
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// JSON lines on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceChoice {
    /// A GPU if there is one that can do it, else the CPU.
    Auto,
    /// CPU threads.
    Cpu,
    /// NVIDIA GPUs.
    Cuda,
}

/// Whether a GPU replays graphs; changes no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GraphChoice {
    /// Whole periods of the steady state, or launches of routines where no period can be.
    Periods,
    /// Launches of routines, each for itself.
    Launches,
    /// Every action is given to the GPU anew.
    Never,
}

/// Options of `evaluate`.
#[derive(Debug, Args)]
pub(crate) struct EvaluateArgs {
    /// A program, or a schedule file.
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    /// What was learned.
    #[command(flatten)]
    pub(crate) learned: LearnedArgs,
    /// Seconds (600) after which a GPU is given up that does not end a pass; passes on CPU threads have no
    /// limit, so not with `--device cpu`.
    #[arg(long, value_name = "SECONDS",
          value_parser = whole::<u64>(1..=31_536_000))]
    pub(crate) deadline: Option<u64>,
    /// Held-out examples to look at, in whole batches: by default those that `run` looks at.
    #[arg(long, value_parser = whole::<u64>(1..=u64::MAX), default_value_t = HeldOut::EXAMPLES)]
    pub(crate) examples: u64,
    /// Where to compute.
    #[arg(long, value_enum, default_value_t = DeviceChoice::Auto)]
    pub(crate) device: DeviceChoice,
    /// Let the program's paths of data start at this folder, instead of the program's own.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// One JSON document on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where parameters lie that were trained.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct LearnedArgs {
    /// The folder with checkpoints; the newest one counts.
    #[arg(long, value_name = "DIR")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// A safetensors file with the parameters under their global names.
    #[arg(long, value_name = "FILE")]
    pub(crate) weights: Option<PathBuf>,
}

/// Options of `simulate`.
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// The schedule file.
    pub(crate) file: PathBuf,
    /// Training steps to replay; by default, enough to reach the steady state.
    #[arg(long, value_parser = whole::<u64>(1..=u64::MAX))]
    pub(crate) steps: Option<u64>,
    /// One JSON document on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The schedule file.
    pub(crate) file: PathBuf,
    /// In which form.
    #[arg(long = "as", value_enum, default_value_t = ShowForm::Grid)]
    pub(crate) form: ShowForm,
    /// Training steps to replay (default 3); not with `--as csv`, which has the passes of one step.
    #[arg(long, value_parser = whole::<u64>(1..=u64::MAX))]
    pub(crate) steps: Option<u64>,
}

/// Forms of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShowForm {
    /// Text, a row per device lane.
    Grid,
    /// A Chrome trace in JSON, for Perfetto: a track per queue, arrows, live memory.
    Trace,
    /// A web page of one file: a row per queue, and live memory.
    Html,
    /// The passes of each device as comma-separated values, for PyTorch's pipelining.
    Csv,
}

/// Options of `fmt`.
#[derive(Debug, Args)]
pub(crate) struct FmtArgs {
    /// The program file.
    pub(crate) file: PathBuf,
    /// Change nothing; exit with 1 when the file is not formatted.
    #[arg(long)]
    pub(crate) check: bool,
}

/// Options of `import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The `config.json` of a model.
    pub(crate) file: PathBuf,
    /// Positions of a sequence; by default those of the model, at most 2048.
    #[arg(long, value_name = "POSITIONS", value_parser = whole::<u64>(1..=u64::MAX))]
    pub(crate) seq: Option<u64>,
    /// Examples of a training step; by default one for every device of the cluster.
    #[arg(long, value_name = "EXAMPLES",
          value_parser = whole::<u32>(1..=dsl::limit::BATCH.into()))]
    pub(crate) batch: Option<u32>,
    /// What the model trains in; by default bf16 where its weights are stored in 16 bits, else
    /// f32.
    #[arg(long, value_name = "DTYPE",
          value_parser = one_of(ImportDtype::ALL, ImportDtype::name))]
    pub(crate) dtype: Option<ImportDtype>,
    /// Whose devices and links the cluster is made of.
    #[arg(long, value_name = "CLUSTER", default_value = "dgx-a100",
          value_parser = one_of(ImportCluster::ALL, ImportCluster::name))]
    pub(crate) cluster: ImportCluster,
    /// Nodes of eight devices; by default as many as hold the model.
    #[arg(long, value_name = "NODES", value_parser = whole::<u32>(1..=8192))]
    pub(crate) nodes: Option<u32>,
    /// Leave out an unknown field, because it changes nothing in training.
    #[arg(long, value_name = "FIELD")]
    pub(crate) ignore: Vec<String>,
    /// Where the program goes.
    #[arg(short, long, value_name = "FILE.RDL")]
    pub(crate) output: PathBuf,
    /// Weights of the model: a safetensors file, the index of several, or a folder with either.
    #[arg(long, value_name = "FILE|DIR", requires = "save")]
    pub(crate) weights: Option<PathBuf>,
    /// Where these go for `run --weights`, under the names of the program.
    #[arg(long, value_name = "FILE.SAFETENSORS", requires = "weights")]
    pub(crate) save: Option<PathBuf>,
    /// Of these, leave out a parameter or all of a module (`logits`; `entropy` in decoders), for `run
    /// --fresh`.
    #[arg(long, value_name = "NAME", requires = "weights")]
    pub(crate) fresh: Vec<String>,
    /// One JSON document on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The `config.json` that the program was imported from.
    pub(crate) file: PathBuf,
    /// What `run --save` wrote, or a checkpoint.
    #[arg(long, value_name = "FILE.SAFETENSORS")]
    pub(crate) weights: PathBuf,
    /// Leave out an unknown field, as `import` does.
    #[arg(long, value_name = "FIELD")]
    pub(crate) ignore: Vec<String>,
    /// Where the weights go: `model.safetensors` in a folder with the configuration is what
    /// `from_pretrained` takes.
    #[arg(short, long, value_name = "FILE.SAFETENSORS")]
    pub(crate) output: PathBuf,
    /// One JSON document on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `profile`.
#[derive(Debug, Args)]
#[command(mut_arg("file", |file| file.help(PROGRAM)))]
pub(crate) struct ProfileArgs {
    /// Whose plans are measured.
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    /// What to measure; of GPUs the first one, which then has all devices of a plan.
    #[arg(long, value_enum, default_value_t = DeviceChoice::Auto)]
    pub(crate) device: DeviceChoice,
    /// How many of the best plans to measure.
    #[arg(long, default_value = "10", value_parser = at_least_one)]
    pub(crate) top: NonZeroUsize,
    /// Seconds after which a plan whose times have not settled is given up.
    #[arg(long, value_name = "SECONDS", default_value_t = 20,
          value_parser = whole::<u64>(1..=u64::MAX))]
    pub(crate) patience: u64,
    /// Let the program's paths of data start at this folder, instead of the program's own.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Where the table goes.
    #[arg(short, long, value_name = "TABLE.YAML")]
    pub(crate) output: PathBuf,
    /// One JSON document on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `data`.
#[derive(Debug, Args)]
pub(crate) struct DataArgs {
    /// A program, or a schedule file.
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    /// How many training steps, instead of the program's number.
    #[arg(long, value_parser = whole::<u64>(0..=u64::MAX))]
    pub(crate) steps: Option<u64>,
    /// Let the program's paths of data start at this folder, instead of the program's own.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Folder for a file of every input, and `index.json`, which says what they hold.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: PathBuf,
    /// One JSON document on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `devices` does besides checking kernels. An option that is required is not missed where it
/// conflicts with another one that is there, so options of one check conflict with all that is none.
const NOT_CHECK_KERNELS: [&str; 3] = ["output", "compile", "self_check"];

/// Options of `devices`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("check").args(["self_check", "check_kernels"]))]
pub(crate) struct DevicesArgs {
    /// Write a cluster file.
    #[arg(short, long, value_name = "CLUSTER.RDL", conflicts_with = "self_check")]
    pub(crate) output: Option<PathBuf>,
    /// Let the GPUs of all ranks that torchrun, mpirun or srun started reduce and send known
    /// numbers, and say how fast they were.
    #[arg(long)]
    pub(crate) self_check: bool,
    /// Compute random calls of every kernel on the first GPU, and hold them to the references.
    #[arg(long, conflicts_with_all = ["self_check", "output"])]
    pub(crate) check_kernels: bool,
    /// Compile all kernels for the first GPU on all cores, and keep the machine code for later runs.
    #[arg(long, conflicts_with_all = ["check", "output"])]
    pub(crate) compile: bool,
    /// These kernels alone.
    #[arg(
        long,
        value_name = "KERNEL",
        value_delimiter = ',',
        requires = "check_kernels",
        conflicts_with_all = NOT_CHECK_KERNELS
    )]
    pub(crate) only: Vec<String>,
    /// Seed of the random calls.
    #[arg(long, default_value_t = 0, requires = "check_kernels",
          conflicts_with_all = NOT_CHECK_KERNELS,
          value_parser = whole::<u64>(0..=u64::MAX))]
    pub(crate) seed: u64,
    /// Random calls of each kernel in each element type.
    #[arg(long, default_value_t = 6, requires = "check_kernels",
          conflicts_with_all = NOT_CHECK_KERNELS,
          value_parser = whole::<u32>(1..=10_000))]
    pub(crate) calls: u32,
    /// No matrix products by cuBLASLt and no convolutions by cuDNN, for tools that look into every kernel.
    #[arg(long, requires = "check_kernels", conflicts_with_all = NOT_CHECK_KERNELS)]
    pub(crate) own_products: bool,
    /// Largest message of the self-check, in MiB; smaller ones are tried first.
    #[arg(long, value_name = "MIB", default_value_t = 64, requires = "self_check",
          conflicts_with_all = ["output", "compile", "check_kernels"],
          value_parser = whole::<u64>(1..=16_384))]
    pub(crate) largest: u64,
    /// Seconds after which a check is given up when nothing moves.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "check",
          value_parser = whole::<u64>(1..=31_536_000))]
    pub(crate) deadline: u64,
    /// One JSON document on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Reads how many, which are not none.
fn at_least_one(text: &str) -> Result<NonZeroUsize, &'static str> {
    text.parse().map_err(|_| "it must be a whole number of at least 1")
}

/// Reads a whole number in a range.
fn whole<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| match (range.start(), range.end()) {
            (least, &u64::MAX) => {
                format!("it must be a whole number of at least {least}")
            }
            (least, most) => format!("it must be a whole number from {least} to {most}"),
        })
    }
}

/// Reads the name of one of several.
fn one_of<T: Copy + Send + Sync + 'static, const COUNT: usize>(
    all: [T; COUNT],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.map(name)).try_map(move |text| {
        all.into_iter().find(|one| name(*one) == text).ok_or("it is none of them")
    })
}
