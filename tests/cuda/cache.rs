//! Machine code is compiled once, and again when what was kept of it is broken.

use crate::bench::{Bench, has_compiler, program};
use std::{fs, path::Path, thread};

#[test]
fn kernels_are_compiled_once_and_again_when_a_file_is_broken() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("cache");
    let plan = "rule sync, placement accumulate, micro_batches 1, stages 1";
    let program = program(&bench, "tiny", 1, "steps 2", plan);
    let folder = bench.scratch.path("cache");
    let together = thread::available_parallelism().map_or(1, usize::from).min(2);
    let settings = [
        ("ROUNDELAY_CACHE", folder.to_str().expect("the path is text")),
        ("STANDIN_CUDA_COMPILE_TOGETHER", &together.to_string()),
    ];
    let run = || bench.run("--device cuda", &program, &settings);
    let first = run();
    let compiled = first.count("compilations");
    assert!(compiled > 3, "{compiled}");
    let side_by_side = first.count("compiled_at_once");
    assert!(side_by_side >= together as u64, "{side_by_side} of {compiled}");
    assert_eq!(run().count("compilations"), 0);
    let files = fs::read_dir(&folder).expect("the cache is there");
    let mut files: Vec<_> = files.map(|file| file.expect("readable").path()).collect();
    files.sort();
    assert_eq!(files.len() as u64, compiled, "a file each, and no halves");
    let half = fs::read(&files[0]).expect("readable");
    fs::write(&files[0], &half[..half.len() / 2]).expect("writable");
    fs::write(&files[1], b"").expect("writable");
    let again = run();
    assert_eq!(again.count("compilations"), 2);
    assert!(again.is(&first));
    assert_eq!(run().count("compilations"), 0, "all files are whole again");
}

/// What the compiler does not know yet gets code of an older architecture.
#[test]
fn a_newer_gpu_gets_code_for_its_driver() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("newer");
    let plan = "rule sync, placement accumulate, micro_batches 1, stages 1";
    let program = program(&bench, "tiny", 1, "steps 2", plan);
    let folder = bench.scratch.path("cache");
    let cache = ("ROUNDELAY_CACHE", folder.to_str().expect("the path is text"));
    let newer = [cache, ("STANDIN_CUDA_CAPABILITY", "121")];
    let found = bench.run("--device cuda", &program, &newer);
    let files = fs::read_dir(&folder).expect("the cache is there");
    for file in files.map(|file| file.expect("readable").file_name()) {
        let name = file.to_str().expect("the name is text");
        let is_code = Path::new(name).extension().is_some_and(|end| end == "ptx");
        assert!(is_code && name.contains("-compute_90-"), "{name}");
    }
    assert!(found.is(&bench.run("--device cuda", &program, &[])));
}
