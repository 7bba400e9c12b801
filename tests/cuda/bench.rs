//! What these tests share: the stand-ins under the libraries' names, and runs on them.

use crate::support::{Ended, Scratch, ended, roundelay};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    env, fs,
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

/// The libraries that a run looks for.
pub(crate) const ALL: [&str; 3] = ["libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13"];

/// One that it may do without, and what that consists of.
pub(crate) const CUDNN: [&str; 7] = [
    "libcudnn.so.9",
    "libcudnn_graph.so.9",
    "libcudnn_ops.so.9",
    "libcudnn_cnn.so.9",
    "libcudnn_engines_precompiled.so.9",
    "libcudnn_engines_runtime_compiled.so.9",
    "libcudnn_heuristic.so.9",
];

/// A place with stand-ins.
pub(crate) struct Bench {
    pub(crate) scratch: Scratch,
}

/// Whether kernels can be compiled.
///
/// # Panics
/// When they cannot, but must be.
pub(crate) fn has_compiler() -> bool {
    let compiler = env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let found = Command::new(&compiler).arg("--version").output().is_ok();
    if !found {
        let message = format!("`{compiler}` is not here");
        assert!(env::var_os("ROUNDELAY_REQUIRE_CXX").is_none(), "{message}");
        // Not through the macro, whose words the harness keeps for itself.
        let said =
            format!("LEFT OUT: {message}, which compiles kernels for the stand-ins\n");
        let _ = std::io::stderr().write_all(said.as_bytes());
    }
    found
}

/// The shared object of the stand-ins, which lies beside the dependencies of this test.
fn standin() -> PathBuf {
    let test = env::current_exe().expect("a test has a name");
    let folder = test.parent().expect("a test lies in a folder");
    let object = folder.join("libroundelay_standin_cuda.so");
    assert!(object.exists(), "`{}` is built with the tests", object.display());
    object
}

/// Kernels are compiled once for all tests, and kept from one run to the next.
fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda-kernels")
}

/// What the C++ compiler makes is kept, so that to compile again costs little. Tests of `kernels` keep
/// theirs there too.
fn objects() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulation")
}

impl Bench {
    /// All libraries.
    pub(crate) fn new(name: &str) -> Self {
        Self::with(name, &ALL)
    }

    /// All libraries, and cuDNN.
    pub(crate) fn with_cudnn(name: &str) -> Self {
        Self::with(name, &[&ALL[..], &CUDNN].concat())
    }

    /// These libraries alone.
    pub(crate) fn with(name: &str, libraries: &[&str]) -> Self {
        let scratch = Scratch::new(&format!("cuda-{name}"));
        for library in libraries {
            symlink(standin(), scratch.path(library)).expect("a link can be made");
        }
        Self { scratch }
    }

    /// A cache of its own, for choices; it begins with the kernels that others have compiled.
    pub(crate) fn own_cache(&self) -> String {
        self.cache_named("cache")
    }

    /// The files of that folder that keep choices.
    pub(crate) fn choices(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.scratch.path("cache")).expect("the cache is there");
        let mut files: Vec<PathBuf> =
            files.map(|file| file.expect("readable").path()).collect();
        files.retain(|file| file.extension().is_some_and(|it| it == "algorithm"));
        files.sort();
        files
    }

    /// One of several.
    pub(crate) fn cache_named(&self, name: &str) -> String {
        let own = self.scratch.path(name);
        let made = fs::create_dir_all(&own);
        made.expect("the scratch folder can be written");
        let known = fs::read_dir(cache()).into_iter().flatten().flatten();
        for file in known.map(|file| file.path()) {
            if let Some(name) = file.file_name()
                && file.extension().is_some_and(|it| it == "cubin")
            {
                // A file that goes away meanwhile is compiled.
                let _ = fs::copy(&file, own.join(name));
            }
        }
        own.display().to_string()
    }

    /// A compiler that makes one function wrong.
    pub(crate) fn wrong_compiler(&self, right: &str, wrong: &str) -> String {
        let text = format!(
            "#!/bin/sh\nfor file in \"$@\"; do case \"$file\" in *.cc) \
             sed -i 's/{right}/{wrong}/' \"$file\";; esac; done\nexec c++ \"$@\"\n"
        );
        let path = self.scratch.file("wrong-compiler", &text);
        let all = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&path, all).expect("the scratch folder can be written");
        path.display().to_string()
    }

    /// A command that finds the stand-ins.
    pub(crate) fn command(&self, words: &str) -> Command {
        let mut command = roundelay(words);
        self.on_standins(&mut command);
        command
    }

    /// Lets a process find the stand-ins where it looks for libraries.
    pub(crate) fn on_standins(&self, command: &mut Command) {
        command
            .env("LD_LIBRARY_PATH", self.scratch.path(""))
            .env("ROUNDELAY_CACHE", cache())
            .env("STANDIN_CUDA_OBJECTS", objects())
            .env_remove("ROUNDELAY_CUDA_LIBRARIES");
    }

    /// A training on the stand-ins that must end well.
    pub(crate) fn run(
        &self,
        words: &str,
        program: &Path,
        settings: &[(&str, &str)],
    ) -> Run {
        let weights = self.scratch.path("weights.safetensors");
        let counts = self.scratch.path("counts");
        let mut command = self.command(&format!("run --json {words} --save"));
        command.arg(&weights).arg(program).env("STANDIN_CUDA_COUNTS", &counts);
        command.envs(settings.iter().copied());
        let ended = ended(&mut command);
        assert_eq!(ended.code, 0, "{settings:?}: {}", ended.err);
        Run::of(&ended, &weights, &counts)
    }
}

/// A program of one device, and which lines of its schedule launch: the loss's forward pass of either
/// micro-batch, and the update.
pub(crate) fn one_device(bench: &Bench) -> (PathBuf, [String; 3]) {
    let plan = "rule sync, placement accumulate, micro_batches 2, stages 1, replicas 1";
    let program = program(bench, "alone", 1, "steps 6", plan);
    let schedule = bench.scratch.path("alone.schedule");
    let compiled = ended(bench.command("compile -o").arg(&schedule).arg(&program));
    assert_eq!(compiled.code, 0, "{}", compiled.err);
    let text = fs::read_to_string(&schedule).expect("the schedule was written");
    let line = |task: &str| {
        let lines = text.lines().filter(|line| line.starts_with('a'));
        let mut lines =
            lines.filter(|line| line.contains(task) && line.contains(" launch "));
        let line = lines.next().unwrap_or_else(|| panic!("{task} is launched"));
        line.split(' ').next().unwrap_or_default().to_owned()
    };
    (program, ["F s0 i0 ", "F s0 i1 ", "U s0 "].map(line))
}

/// What a training said and left.
pub(crate) struct Run {
    pub(crate) losses: Vec<f64>,
    /// The lines of looks at held-out data.
    pub(crate) looks: Vec<Value>,
    /// The line of the end.
    pub(crate) end: Value,
    /// What it said besides.
    pub(crate) notes: String,
    /// The last parameters, as the file has them.
    pub(crate) bytes: Vec<u8>,
    counts: BTreeMap<String, u64>,
}

impl Run {
    pub(crate) fn of(ended: &Ended, weights: &Path, counts: &Path) -> Self {
        let lines = crate::support::lines(&ended.out);
        let steps = lines.iter().filter(|line| line["event"] == "step");
        let losses = steps.filter_map(|line| line["loss"].as_f64()).collect();
        let looks = lines.iter().filter(|line| line["event"] == "evaluate");
        let looks = looks.cloned().collect();
        let end = lines.iter().find(|line| line["event"] == "end");
        let text = fs::read_to_string(counts).unwrap_or_default();
        let count = |line: &str| {
            let (name, number) = line.split_once(' ')?;
            Some((name.to_owned(), number.parse().ok()?))
        };
        Self {
            losses,
            looks,
            end: end.expect("a run that ends says so").clone(),
            notes: ended.err.clone(),
            bytes: fs::read(weights).expect("weights were saved"),
            counts: text.lines().filter_map(count).collect(),
        }
    }

    /// What the stand-ins counted.
    pub(crate) fn count(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    /// The same numbers everywhere.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.trains_like(other) && self.looks == other.looks
    }

    /// The same numbers in training, whatever was looked at meanwhile.
    pub(crate) fn trains_like(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.losses == other.losses
    }
}

/// What the stand-ins counted under a name.
pub(crate) fn counted(counts: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(counts).expect("it counts");
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let found = lines.find(|(own, _)| *own == name);
    found.and_then(|(_, count)| count.parse().ok())
}

/// Bytes of the arenas of every pool, as predicted or as measured.
pub(crate) fn arenas(figures: &Value) -> Vec<(String, u64)> {
    let pools = figures["pools"].as_object().expect("pools are an object");
    let bytes = |own: &Value| own["arena_bytes"].as_u64().expect("arenas have a size");
    pools.iter().map(|(pool, own)| (pool.clone(), bytes(own))).collect()
}

/// A program of a model on this many devices, with drawn data; the rest of its training and its plan
/// are said.
pub(crate) fn program_of(
    bench: &Bench,
    name: &str,
    (model, devices): (&str, u32),
    train: &str,
    plan: &str,
) -> PathBuf {
    let text = format!(
        "{model}
        device core {{ memory 200 MB, compute 40 GFLOP/s, bandwidth 10 GB/s }}
        link bus {{ bandwidth 8 GB/s, latency 2 us }}
        cluster some {{ {devices} x core joined by bus }}
        train {{ data synthetic, {train} }}
        plan {{ {plan} }}"
    );
    bench.scratch.file(&format!("{name}.rdl"), &text)
}

const TINY: &str = "model tiny {
    seq = 8, width = 16, heads = 2, vocab = 24
    input tokens:  i32[batch, seq]
    input targets: i32[batch, seq]
    x = embedding(tokens, vocab, width) + positions(seq, width)
    repeat 2 as layer {
        x = x + dropout(attention(layer_norm(x), heads, causal = true), 0.1)
        x = x + linear(gelu(linear(layer_norm(x), 2 * width)), width)
    }
    loss cross_entropy(linear(layer_norm(x), vocab), targets)
}";

/// A byte-level language model whose plan is said by the test.
pub(crate) fn program(
    bench: &Bench,
    name: &str,
    devices: u32,
    train: &str,
    plan: &str,
) -> PathBuf {
    let train = format!(
        "batch 8, optimizer adamw(lr = warmup(3, 1e-2), weight_decay = 0.1), seed 11, {train}"
    );
    let plan = format!("exactness delayed, {plan}");
    program_of(bench, name, (TINY, devices), &train, &plan)
}

/// The same with gradients whose norm is bounded, below what it is in the first steps.
pub(crate) fn clipping(program: PathBuf) -> PathBuf {
    let text = fs::read_to_string(&program).expect("the program was written");
    let clipped = text.replace("weight_decay = 0.1)", "weight_decay = 0.1, clip = 0.05)");
    assert_ne!(text, clipped, "the program has such an optimizer");
    fs::write(&program, clipped).expect("the program can be written again");
    program
}

/// Numbers of an example of which two are just enough to be sent to a device ahead, in 32 bits.
pub(crate) const ENOUGH: u64 = (1 << 20) / 4 / 2;
pub(crate) const WIDE_MICRO_BATCHES: u64 = 2;

/// A small model of examples with this many numbers, two in a micro-batch; the plan says the rest.
pub(crate) fn wide_program(
    bench: &Bench,
    features: u64,
    steps: u64,
    plan: &str,
) -> PathBuf {
    let model = format!(
        "model wide {{
            input x: real[batch, {features}]
            input y: real[batch, 1]
            h = relu(linear(x, 2))
            loss mse(linear(h, 1), y)
        }}"
    );
    let batch = 2 * WIDE_MICRO_BATCHES;
    let train = format!("batch {batch}, optimizer sgd(lr = 1e-3), seed 5, steps {steps}");
    let plan = format!("exactness delayed, {plan}, micro_batches {WIDE_MICRO_BATCHES}");
    let name = format!("wide-{features}-{steps}");
    program_of(bench, &name, (&model, 2), &train, &plan)
}

/// Windows of seven, three and one rows in steps of one and two, greatest and mean ones, norms of batches
/// and of groups, masks, a way down and up again: all that reads rows of other parts where images are
/// split by pixels.
pub(crate) const WINDOWS: &str = "model windows {
    input pixels: real[batch, 32, 8, 3]
    input labels: i32[batch]
    x = relu(batch_norm(conv2d(pixels, 8, kernel = 7, stride = 2, bias = false)))
    y = max_pool(x, 3, stride = 2, padding = 1)
    y = dropout(silu(group_norm(conv2d(y, 16), 4)), 0.1)
    x = x + conv2d(upsample(y), 8)
    x = avg_pool(relu(batch_norm(conv2d(x, 16, kernel = 3))), 2, stride = 2)
    x = relu(x + conv2d(x, 16, kernel = 1))
    logits = linear(global_pool(x), 4)
    loss cross_entropy(logits, labels)
    metric accuracy(logits, labels)
}";

/// That model on this many devices, whose rows divide images; the plan says the rest.
pub(crate) fn pixels_program(
    bench: &Bench,
    name: &str,
    devices: u32,
    train: &str,
    plan: &str,
) -> PathBuf {
    let train =
        format!("batch 8, seed 11, optimizer sgd(lr = 0.02, momentum = 0.9), {train}");
    let plan = format!("exactness delayed, {plan}, images split");
    program_of(bench, name, (WINDOWS, devices), &train, &plan)
}
