//! What is said where something of CUDA is missing: a sentence with a way out, and exit code 3.

use crate::{
    bench::{ALL, Bench, has_compiler, program},
    support::{document, ended, lines, schema},
};
use serde_json::Value;
use std::{env, fs, os::unix::fs::symlink, path::Path, process::Command};

const PLAN: &str = "rule sync, placement accumulate, micro_batches 2, stages 1";

fn refused(libraries: &[&str], settings: &[(&str, &str)], words: &[&str]) {
    let bench = Bench::with(&format!("absent-{}", words[0].len()), libraries);
    let program = program(&bench, "tiny", 1, "steps 2", PLAN);
    let mut command = bench.command("run --device cuda");
    let ended = ended(command.arg(&program).envs(settings.iter().copied()));
    assert_eq!(ended.code, 3, "{ended:?}");
    for word in words {
        assert!(ended.err.contains(word), "{word}: {}", ended.err);
    }
}

#[test]
fn without_a_driver_it_says_what_to_install() {
    refused(&ALL[1..], &[], &["there is no NVIDIA driver here", "--device cpu"]);
}

/// A way out that a command does not have is none.
#[test]
fn without_a_driver_no_command_names_options_of_others() {
    let bench = Bench::with("absent-options", &ALL[1..]);
    for words in ["devices", "devices --check-kernels", "devices --compile"] {
        let ended = ended(&mut bench.command(words));
        let told = format!("{}{}", ended.out, ended.err);
        assert!(told.contains("there is no NVIDIA driver here"), "{words}: {told}");
        assert!(!told.contains("--device cpu"), "{words}: {told}");
    }
    let program = program(&bench, "tiny", 1, "steps 2", PLAN);
    let ended = ended(bench.command("run").arg(&program));
    assert!(!ended.err.contains("--device cpu"), "it does so: {}", ended.err);
}

/// Whoever reads documents knows what is missing without knowing every command.
#[test]
fn a_missing_driver_has_one_code_in_every_document() {
    let bench = Bench::with("absent-code", &ALL[1..]);
    let single = program(&bench, "tiny", 1, "steps 2", PLAN);
    let narrow = program(&bench, "narrow", 1, "steps 2, dtype bf16", PLAN);
    let table = bench.scratch.path("table.yaml");
    let with = |words: &str, files: &[&Path]| {
        let mut command = bench.command(words);
        command.args(files);
        command
    };
    let all = [
        with("run --device cuda", &[&single]),
        with("run", &[&narrow]),
        with("evaluate --device cuda --weights none", &[&single]),
        with("profile --device cuda -o", &[&table, &single]),
        with("devices --check-kernels", &[]),
        with("devices --compile", &[]),
    ];
    for mut command in all {
        let ended = ended(command.arg("--json"));
        assert_eq!(ended.code, 3, "{command:?}: {ended:?}");
        let last = ended.out.lines().last().expect("a document or a line");
        let told = if last == "}" { &*ended.out } else { last };
        let told: Value = serde_json::from_str(told).expect("it is JSON");
        schema::hold("diagnostics", &told);
        let told = &told["diagnostics"][0];
        assert_eq!((&told["code"], &told["file"]), (&"cuda".into(), &"".into()));
        let message = told["message"].as_str().expect("the schema holds");
        assert!(message.contains("there is no NVIDIA driver here"), "{message}");
        assert_ne!(told["hint"], "", "{message}");
    }
}

#[test]
fn without_a_compiler_it_says_what_to_install() {
    refused(
        &[ALL[0], ALL[2]],
        &[],
        &["there is no NVRTC here", "pip install nvidia-cuda-nvrtc"],
    );
}

#[test]
fn without_a_device_it_says_where_to_look() {
    let none = ("STANDIN_CUDA_DEVICES", "0");
    refused(&ALL, &[none], &["sees no GPU", "CUDA_VISIBLE_DEVICES"]);
}

#[test]
fn an_old_driver_is_refused_with_its_version() {
    let old = ("STANDIN_CUDA_DRIVER", "11080");
    refused(&ALL, &[old], &["the NVIDIA driver is for CUDA 11.8", "12.0 or newer"]);
}

#[test]
fn auto_goes_on_with_the_cpu_and_says_so_once() {
    let bench = Bench::with("auto", &[]);
    let program = program(&bench, "tiny", 1, "steps 2", PLAN);
    let saved = bench.scratch.path("saved.safetensors");
    let mut run = bench.command("run --json --save");
    let found = ended(run.arg(&saved).arg(&program));
    assert_eq!(found.code, 0, "{found:?}");
    assert_eq!(found.err.matches("runs on the CPU").count(), 1, "{}", found.err);
    assert!(found.err.contains("there is no NVIDIA driver here"), "{}", found.err);
    let notes: Vec<_> =
        lines(&found.out).into_iter().filter(|line| line["event"] == "note").collect();
    let [note] = &notes[..] else { panic!("{notes:?}") };
    assert!(note["message"].to_string().contains("runs on the CPU"), "{note}");

    let mut evaluate = bench.command("evaluate --weights");
    let found = document(evaluate.arg(&saved).arg(&program), "evaluate");
    let note = &found["notes"][0];
    assert_eq!(note["severity"], "note");
    assert!(note["message"].to_string().contains("runs on the CPU"), "{note}");

    let mut profile = bench.command("profile --top 1 --patience 1 -o");
    let found = ended(profile.arg(bench.scratch.path("table.yaml")).arg(&program));
    assert_eq!(found.code, 0, "{found:?}");
    assert_eq!(found.err.matches("note: runs on the CPU").count(), 1, "{}", found.err);
}

#[test]
fn devices_shows_what_is_there_and_what_is_not() {
    let there = ended(&mut Bench::new("devices").command("devices"));
    assert_eq!(there.code, 0, "{there:?}");
    assert!(
        there.out.contains("# GPU 1 (Stand-in, compute capability 9.0)"),
        "{}",
        there.out
    );
    assert!(there.out.contains("driver for CUDA 13.0, NVRTC 13.0, cuBLASLt 130000"));
    let absent = ended(&mut Bench::with("no-devices", &[]).command("devices --json"));
    assert!(
        absent.out.contains("cuda: there is no NVIDIA driver here"),
        "{}",
        absent.out
    );
}

/// The system has libraries of the same names with nothing in them.
#[test]
fn named_folders_come_before_the_system() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("named-folders");
    let system = bench.scratch.path("system");
    fs::create_dir_all(&system).expect("the scratch folder can be written");
    symlink(bench.scratch.path(ALL[0]), system.join(ALL[0])).expect("a link can be made");
    let source = bench.scratch.file("empty.cc", "");
    let compiler = env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    for name in ["libnvrtc.so", "libcublasLt.so"] {
        let mut command = Command::new(&compiler);
        command.args(["-shared", "-o"]).arg(system.join(name)).arg(&source);
        assert!(command.status().is_ok_and(|status| status.success()), "{name}");
    }
    let devices = |named: &[&str]| {
        let mut command = bench.command("devices --json");
        command.env("LD_LIBRARY_PATH", &system);
        let folders = named.iter().map(|name| bench.scratch.path(name));
        let folders = env::join_paths(folders).expect("folders without colons");
        ended(command.env("ROUNDELAY_CUDA_LIBRARIES", folders))
    };
    let bare = devices(&[]);
    assert!(bare.out.contains("NVRTC has no `nvrtcVersion`"), "{}", bare.out);
    let named = devices(&[""]);
    assert!(named.out.contains("NVRTC 13.0, cuBLASLt 130000"), "{}", named.out);
}

#[test]
fn too_little_memory_is_said_in_bytes() {
    if !has_compiler() {
        return;
    }
    let little = ("STANDIN_CUDA_MEMORY", "1048576");
    refused(&ALL, &[little], &["of memory left", "plan with less `memory`"]);
}

/// The CPU has only the types that it computes in: where it is no way out, the GPU's own reason is what
/// can be mended.
#[test]
fn where_the_cpu_has_not_the_type_auto_says_what_the_gpu_said() {
    let none = Bench::with("auto-narrow", &ALL[1..]);
    let without = "there is no NVIDIA driver here";
    told_beside_the_cpu(none.command("run"), &none, without);
    let evaluate = none.command("evaluate --weights none.safetensors");
    told_beside_the_cpu(evaluate, &none, without);
    if has_compiler() {
        let small = Bench::new("auto-narrow-small");
        let mut run = small.command("run");
        run.env("STANDIN_CUDA_MEMORY", "1048576");
        told_beside_the_cpu(run, &small, "of memory left");
    }
}

fn told_beside_the_cpu(mut command: Command, bench: &Bench, reason: &str) {
    let program = program(bench, "narrow", 1, "steps 2, dtype bf16", PLAN);
    let ended = ended(command.arg(&program));
    assert_eq!(ended.code, 3, "{ended:?}");
    for word in [reason, "the CPU computes in f32 and f64"] {
        assert!(ended.err.contains(word), "{word}: {}", ended.err);
    }
}
