//! What the tests of the binary share: calling it, scratch folders, and JSON Schema.

pub(crate) mod schema;

use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{self, Command, Output},
    sync::atomic::{AtomicU32, Ordering},
};

/// A small model on two devices, which trains in a moment.
pub(crate) const PROGRAM: &str = r#"
model line {
    input x: real[batch, 8]
    input y: real[batch, 8]
    loss mse(linear(relu(linear(x, 8)), 8), y)
}
device core { memory 1 GB, compute 10 GFLOP/s, bandwidth 10 GB/s }
link bus { bandwidth 8 GB/s, latency 2 us }
cluster two { 2 x core joined by bus }
train {
    data synthetic, batch 8, steps 6, seed 3
    optimizer sgd(lr = 0.1)
    evaluate { every 3 }
}
plan { exactness delayed, rule sync | cyclic_v2, micro_batches 2, stages 2 }
"#;

/// An empty folder of its own for one test; it is gone when the test is done.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("roundelay-{name}-{}-{number}", process::id());
        let path = std::env::temp_dir().join(folder);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the temporary folder can be written");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file into the folder, with the folders above it.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        let folder = path.parent().expect("a path in the scratch folder has a parent");
        fs::create_dir_all(folder).expect("the scratch folder can be written");
        fs::write(&path, text).expect("the scratch folder can be written");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How the variables begin by which launchers say who a process is, and where ranks meet.
const LAUNCHERS: [&str; 10] = [
    "LOCAL_RANK",
    "MASTER_",
    "MPI_LOCAL",
    "OMPI_",
    "PMIX_",
    "PMI_",
    "RANK",
    "ROUNDELAY_RENDEZVOUS",
    "SLURM_",
    "WORLD_SIZE",
];

/// The binary, with arguments that are separated by blanks; paths come as further arguments.
/// Whatever started the tests, no launcher started it.
pub(crate) fn roundelay(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roundelay"));
    command.args(words.split_whitespace());
    for (name, _) in std::env::vars_os() {
        let said = name.to_string_lossy();
        if LAUNCHERS.iter().any(|own| said.starts_with(own)) {
            command.env_remove(name);
        }
    }
    command
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
        Self {
            code: output.status.code().expect("no signal ends it"),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

/// Runs a command to its end.
pub(crate) fn ended(command: &mut Command) -> Ended {
    command.output().expect("the binary starts").into()
}

/// Standard output of a command that must succeed.
pub(crate) fn printed(command: &mut Command) -> String {
    let ended = ended(command);
    assert_eq!(ended.code, 0, "{command:?}: {}", ended.err);
    ended.out
}

/// The schedule of a program, compiled into the scratch folder.
pub(crate) fn compiled(scratch: &Scratch, program: &Path, name: &str) -> PathBuf {
    let schedule = scratch.path(name);
    printed(roundelay("compile").arg(program).arg("-o").arg(&schedule));
    schedule
}

/// A command that must be refused with an exit code and these words on standard error.
pub(crate) fn refused(command: &mut Command, code: i32, words: &[&str]) -> Ended {
    let ended = ended(command);
    assert_eq!(ended.code, code, "{command:?}: {}{}", ended.out, ended.err);
    for word in words {
        assert!(
            ended.err.contains(word),
            "{command:?} does not say `{word}`: {}",
            ended.err
        );
    }
    ended
}

/// The JSON document of a command that must succeed, held to its schema.
pub(crate) fn document(command: &mut Command, schema: &str) -> Value {
    let document = json(&printed(command.arg("--json")));
    schema::hold(schema, &document);
    document
}

/// Diagnostics of a command that must be refused with an exit code, held to their schema.
pub(crate) fn diagnostics(command: &mut Command, code: i32) -> Vec<Value> {
    let ended = refused(command.arg("--json"), code, &[]);
    let document = json(&ended.out);
    schema::hold("diagnostics", &document);
    let list = document["diagnostics"].as_array().expect("the schema holds");
    assert!(!list.is_empty(), "{command:?} gives no reason");
    list.clone()
}

/// The JSON lines of a text, each held to the schema of `run`.
pub(crate) fn lines(text: &str) -> Vec<Value> {
    let lines: Vec<Value> = text.lines().map(json).collect();
    for line in &lines {
        schema::hold("run", line);
    }
    lines
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
