//! Machines on two GPUs in one thread: what came last there may be the other's, wherever one ends.

use crate::bench::{Bench, counted, has_compiler, one_device};
use roundelay::parts::{
    runtime::{Cuda, CudaOptions, Feed},
    schedule::InputId,
};
use std::{env, process::Command};

/// Set where this test is the process on the stand-ins, to the path of its program.
const PROGRAM: &str = "ROUNDELAY_TEST_PROGRAM";

/// No input is ever filled.
struct Nothing;

impl Feed for Nothing {
    fn fill(&mut self, _: InputId, _: u64, _: u64, _: &mut [u8]) {}
}

#[test]
fn machines_on_two_gpus_end_well_in_one_thread() {
    if let Ok(program) = env::var(PROGRAM) {
        return end_both(&program);
    }
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("two-gpus");
    let (program, _) = one_device(&bench);
    let counts = bench.scratch.path("counts");
    let itself = env::current_exe().expect("a test has a name");
    let mut command = Command::new(itself);
    command.args(["--exact", "several::machines_on_two_gpus_end_well_in_one_thread"]);
    bench.on_standins(&mut command);
    command.env(PROGRAM, &program).env("STANDIN_CUDA_COUNTS", &counts);
    let ended = crate::support::ended(&mut command);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(counted(&counts, "held"), Some(0), "neither GPU is left to the system");
}

fn end_both(program: &str) {
    let source = std::fs::read_to_string(program).expect("the program is there");
    let source = roundelay::SourceFile::new(program, &source);
    let program = roundelay::parse(&source).expect("the program is right");
    let ranking = roundelay::plan(&program, &roundelay::SearchOptions::default());
    let ranking = ranking.expect("it has a plan");
    let schedule = roundelay::compile(&program, ranking.best()).expect("it is lowered");
    let machine = |ordinal| {
        let options = CudaOptions { ordinal, ..CudaOptions::default() };
        Cuda::new(&schedule, Box::new(Nothing), options).expect("there is a GPU")
    };
    let (first, second) = (machine(0), machine(1));
    drop(first);
    drop(second);
}
