//! Sanitizers see through the emulation: what is planted is found, and what is right passes, on static shared
//! memory that is fresh in every block.

use crate::emulation::{can_compile, compiler, host};
use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn build(sanitizer: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join(format!("planted-{}", sanitizer.replace(',', "-")));
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda/emulation/planted.cc");
    let built = Command::new(compiler()?)
        .args(["-std=c++17", "-O1", "-g", "-pthread", "-include"])
        .arg(host().join("emulation.h"))
        .arg("-DEMULATION_EARLY_COPIES")
        .arg(format!("-fsanitize={sanitizer}"))
        .arg("-I")
        .arg(host().parent()?)
        .arg(source)
        .arg("-o")
        .arg(&program)
        .output()
        .expect("the compiler starts");
    let message = String::from_utf8_lossy(&built.stderr);
    let missing = message.contains("cannot find") || message.contains("unsupported");
    let required = std::env::var_os("ROUNDELAY_REQUIRE_CXX").is_some();
    assert!(built.status.success() || (missing && !required), "{message}");
    built.status.success().then_some(program)
}

fn run(program: &Path, mistake: &str) -> (Output, String) {
    let out = Command::new(program).arg(mistake).output().expect("the program starts");
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    (out, text)
}

/// Builds with a sanitizer; the right kernel passes, and the planted mistake is named.
fn finds(sanitizer: &str, mistake: &str, name: &str) {
    if !can_compile() {
        return;
    }
    let Some(program) = build(sanitizer) else { return };
    let (clean, text) = run(&program, "clean");
    assert!(clean.status.success(), "{text}");
    let (wrong, text) = run(&program, mistake);
    assert!(!wrong.status.success() && text.contains(name), "{mistake}: {text}");
    assert!(text.contains("planted.cc"), "{text}");
}

#[test]
fn a_write_behind_the_end_is_found() {
    finds("address,undefined", "behind", "heap-buffer-overflow");
}

#[test]
fn a_missing_barrier_is_found() {
    finds("thread", "barrier", "data race");
}

/// Copies that are there only at the wait would hide it.
#[test]
fn a_copy_begun_before_its_barrier_is_found() {
    finds("thread", "early", "data race");
}
