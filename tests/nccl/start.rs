//! How ranks start, and what is said when they cannot.

use crate::{
    bench::ALL,
    support::ended,
    world::{LIBRARIES, World},
};
use std::time::{Duration, Instant};

const WORDS: &str = "devices --self-check --largest 1 --deadline 20";

/// Where a rank is missing.
const SOON: &str = "devices --self-check --largest 1 --deadline 5";

/// Every rank ends with exit code 3 and says all of these words.
fn all_say(world: &World, words: &[&str]) {
    for own in world.run(WORDS, None) {
        assert_eq!(own.code, 3, "{own:?}");
        for word in words {
            assert!(own.err.contains(word), "`{word}`: {}", own.err);
        }
    }
}

#[test]
fn a_wrong_number_of_ranks_is_said_by_all() {
    let world = World::new("size", 2).on(1, "WORLD_SIZE", "3");
    all_say(
        &world,
        &["rank 1 was told that there are 3 ranks, and rank 0 that there are 2"],
    );
}

#[test]
fn a_rank_that_does_not_come_is_named_within_the_deadline() {
    let world = World::new("missing", 3);
    let start = Instant::now();
    for own in world.start(&[0, 2], SOON, None).ended() {
        assert_eq!(own.code, 3, "{own:?}");
        assert!(own.err.contains("rank 1 of 3 did not come"), "{}", own.err);
    }
    assert!(start.elapsed() < Duration::from_secs(30));
    let own = &world.start(&[1], SOON, None).ended()[0];
    assert!(own.err.contains("rank 1 did not reach rank 0 at 127.0.0.1:"), "{}", own.err);
    assert!(own.err.contains("within 5s"), "{}", own.err);
}

#[test]
fn a_library_that_is_missing_on_one_rank_ends_all_with_its_name() {
    let world = World::new("library", 2);
    let empty = crate::bench::Bench::with("nccl-without", &ALL);
    let folder = empty.scratch.path("");
    let folder = folder.to_str().expect("the path is text");
    let world = world.on(1, "LD_LIBRARY_PATH", folder);
    all_say(&world, &["rank 1 ", "before the first step: there is no NCCL here"]);
}

#[test]
fn an_old_library_is_refused_with_its_version() {
    let world = World::new("old", 2).set("STANDIN_NCCL_VERSION", "21501");
    all_say(&world, &["NCCL is of version 2.15.1; install 2.18 or newer"]);
}

#[test]
fn a_library_that_is_told_to_block_is_refused() {
    let world = World::new("blocking", 2).on(1, "NCCL_COMM_BLOCKING", "1");
    all_say(&world, &["rank 1 ", "NCCL_COMM_BLOCKING is 1, by which NCCL's calls wait"]);
}

#[test]
fn two_ranks_on_one_gpu_are_refused_in_nccls_words() {
    let world = World::new("shared", 2).on(1, "LOCAL_RANK", "0");
    all_say(&world, &["Duplicate GPU detected"]);
}

#[test]
fn more_ranks_than_gpus_are_refused() {
    let world = World::new("gpus", 3).set("STANDIN_CUDA_DEVICES", "2");
    all_say(&world, &["rank 2 is process 2 of its machine, which has 2 GPUs for it"]);
}

#[test]
fn without_cuda_a_rank_says_so_and_ends_the_others() {
    let world = World::with("no-cuda", 2, &[LIBRARIES[3]]);
    all_say(&world, &["there is no NVIDIA driver here"]);
}

#[test]
fn without_cuda_and_alone_the_check_is_a_sentence() {
    let world = World::with("nothing", 1, &[]);
    let own = ended(&mut world.bench.command(WORDS));
    assert_eq!(own.code, 3, "{own:?}");
    assert!(own.err.starts_with("error: there is no NVIDIA driver here"), "{}", own.err);
}

#[test]
fn variables_that_contradict_each_other_are_named() {
    let world = World::new("variables", 2);
    let mut command = world.bench.command(WORDS);
    let own = ended(command.envs([("WORLD_SIZE", "2"), ("RANK", "2")]));
    assert_eq!(own.code, 3, "{own:?}");
    assert!(
        own.err.contains("RANK is `2`\n  hint: it must be a number below 2"),
        "{}",
        own.err
    );
}

#[test]
fn slurm_and_mpi_start_ranks_too() {
    let names = [
        ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"],
        ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
        ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"],
    ];
    for names in names {
        let world = World::new("launchers", 2);
        let ended = world.run_as(names, WORDS);
        for own in &ended {
            assert_eq!(own.code, 0, "{names:?}: {own:?}");
        }
        assert!(ended[0].out.contains("rank 1 on"), "{}", ended[0].out);
    }
}
