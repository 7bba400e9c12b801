//! Ranks on CPUs: the bits of one process, checkpoints, and ends like those on GPUs. What they compute
//! under every kind of plan is held by `tests/whole/ranks.rs`.

use crate::{
    bench::program,
    faults::{
        DEADLINE, PLAN, SLACK, all_rest_together, all_say, endless, keep, names_a_place,
        signal, training,
    },
    world::World,
};
use std::{
    fs, thread,
    time::{Duration, Instant},
};

/// A machine without any library of NVIDIA's.
fn world(name: &str, ranks: u32) -> World {
    World::with(&format!("cpu-{name}"), ranks, &[])
}

fn words(more: &str) -> String {
    format!("run --device cpu --deadline {DEADLINE} {more}")
}

#[test]
fn ranks_have_the_bits_of_one_process_and_go_on_with_them() {
    let one = world("whole", 1);
    let file = program(&one.bench, "tiny", 3, "steps 9, evaluate { every 4 }", PLAN);
    let whole = one.train("--device cpu", &file);
    let many = world("many", 3);
    let kept = format!("--device cpu {}", keep(&many));
    let first = many.train(&format!("{kept} --steps 5"), &file);
    let rest = many.train(&format!("{kept} --resume"), &file);
    assert_eq!([first.losses, rest.losses].concat(), whole.losses);
    assert!(rest.bytes == whole.bytes, "all weights of one process");
}

/// Without GPUs, or with too few of them, all take their CPUs.
#[test]
fn where_a_rank_has_no_gpu_all_take_cpus_and_say_so() {
    let one = world("alone", 1);
    let file = program(&one.bench, "tiny", 3, "steps 3", PLAN);
    let whole = one.train("--device cpu", &file);
    let many = world("without", 3);
    let few = World::new("cpu-few", 3).set("STANDIN_CUDA_DEVICES", "2");
    for (world, why) in [
        (&many, "on rank 0 there is no NVIDIA driver here"),
        (&few, "on rank 2 there are 2 GPUs, fewer than processes"),
    ] {
        assert!(world.train("--device auto", &file).is(&whole));
        let said = world.run("run --device auto", Some(&file));
        let note = format!("runs on the CPU: {why}");
        assert!(said[0].err.contains(&note), "{}", said[0].err);
    }
    for own in many.run("run --device cuda", Some(&file)) {
        assert_eq!(own.code, 3, "{own:?}");
        assert!(own.err.contains("there is no NVIDIA driver here"), "{}", own.err);
    }
}

#[test]
fn a_killed_rank_is_named_by_all_others() {
    for (killed, others) in [(1, [0, 2]), (0, [1, 2])] {
        let world = world(&format!("killed-{killed}"), 3);
        let file = endless(&world);
        let mut running = world.start(&[0, 1, 2], &words(&keep(&world)), Some(&file));
        training(&world, &running);
        running.kill(killed);
        let start = Instant::now();
        let ended = running.ended();
        assert!(start.elapsed() < SLACK, "the others end soon");
        let said = format!("rank {killed} was lost ");
        all_say(&ended, &others, &[&said, "its process has ended"]);
        for rank in others {
            let (_, said) = ended[rank].err.split_once(" ends").expect("where it ends");
            let (own, theirs) = said.split_once(": rank").expect("who was lost");
            assert!(names_a_place(own) && names_a_place(theirs), "{}", ended[rank].err);
        }
    }
}

/// What one rank alone is told to do with all the others would never be done.
#[test]
fn ranks_that_are_told_otherwise_say_so() {
    let world = world("otherwise", 3);
    let file = program(&world.bench, "tiny", 3, "steps 4", PLAN);
    let saved = world.bench.scratch.path("weights.safetensors");
    let save = words(&format!("--save {}", saved.display()));
    let running = world.start_each(&[&save, &words(""), &save], &file);
    let said = "its choice whether weights are saved is not that of rank 0 (no, not yes)";
    all_say(&running.ended(), &[0, 1, 2], &[said, "give all ranks the same options"]);
    assert!(!saved.exists());
}

#[test]
fn a_rank_that_is_stopped_is_named_within_the_deadline() {
    let world = world("stopped", 3);
    let file = endless(&world);
    let mut running = world.start(&[0, 1, 2], &words(&keep(&world)), Some(&file));
    training(&world, &running);
    signal(running.process(2), "-STOP");
    let start = Instant::now();
    running.wait_for(&[0, 1]);
    assert!(start.elapsed() < Duration::from_secs(DEADLINE) + SLACK);
    running.kill(2);
    let said = format!("nothing was completed for {DEADLINE}s");
    all_say(&running.ended(), &[0, 1], &[&said, "rank 2 has not answered for"]);
}

/// As schedulers suspend a job: what wakes has waited for nobody.
#[test]
fn ranks_that_are_suspended_together_go_on_when_they_wake() {
    let world = world("suspended", 3);
    let file = endless(&world);
    let words = format!("run --device cpu --deadline 5 {}", keep(&world));
    let running = world.start(&[0, 1, 2], &words, Some(&file));
    training(&world, &running);
    let all = |name| (0..3).for_each(|rank| signal(running.process(rank), name));
    all("-STOP");
    thread::sleep(Duration::from_secs(6));
    all("-CONT");
    thread::sleep(Duration::from_secs(1));
    all("-INT");
    all_rest_together(&running.ended());
}

/// Waits until the last checkpoint is so old.
fn keeps_nothing_for(world: &World, pause: Duration) {
    let folder = world.bench.scratch.path("kept");
    let age = || {
        let changed = fs::metadata(&folder).and_then(|folder| folder.modified());
        changed.expect("it was made").elapsed().unwrap_or_default()
    };
    let start = Instant::now();
    while age() < pause {
        assert!(start.elapsed() < SLACK, "it goes on");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Nobody reads what rank 0 tells for longer than the deadline: then it is at work, and so are all.
#[test]
fn a_reader_of_rank_0_may_pause() {
    let world = world("unread", 3);
    let file = endless(&world);
    let kept = keep(&world).replace("every 2", "every 10");
    let words = format!("run --json --device cpu --deadline 4 {kept}");
    let running = world.start(&[0, 1, 2], &words, Some(&file));
    training(&world, &running);
    keeps_nothing_for(&world, Duration::from_secs(6));
    (0..3).for_each(|rank| signal(running.process(rank), "-INT"));
    all_rest_together(&running.ended());
}

#[test]
fn an_interrupt_of_one_rank_brings_all_to_rest() {
    let world = world("interrupted", 3);
    let file = endless(&world);
    let running = world.start(&[0, 1, 2], &words(&keep(&world)), Some(&file));
    training(&world, &running);
    signal(running.process(1), "-INT");
    all_rest_together(&running.ended());
}

#[test]
fn as_many_ranks_as_devices_or_it_says_so() {
    let world = world("devices", 2);
    let file = program(&world.bench, "tiny", 3, "steps 4", PLAN);
    for own in world.run(&words(""), Some(&file)) {
        assert_eq!(own.code, 3, "{own:?}");
        // The rank that finds it has its hint on a line of its own, the other one hears of it.
        for said in ["the schedule uses 3 devices, but the world has 2 ranks", "start 3"]
        {
            assert!(own.err.contains(said), "{}", own.err);
        }
    }
}
