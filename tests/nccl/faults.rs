//! Ranks that are killed, stopped, stuck, broken or different: all others end within the deadline,
//! and say which rank, which period and which action it was.

use crate::{
    bench::{has_compiler, program},
    support::{Ended, lines},
    training::counting,
    world::{Running, World, at_once},
};
use std::{
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

pub(crate) const PLAN: &str =
    "rule cyclic_v2, placement shared, micro_batches 2, stages 2";

/// Seconds after which nothing may stand still.
pub(crate) const DEADLINE: u64 = 12;

/// What ranks take to compile their kernels side by side and to train; the rest of the patience with
/// a test is for their ends.
const BEGINNING: Duration = Duration::from_secs(150);

/// What ranks take to notice, to tell each other and to end, on a machine that does other things.
pub(crate) const SLACK: Duration = Duration::from_secs(60);

fn words(more: &str) -> String {
    format!("run --device cuda --deadline {DEADLINE} {more}")
}

pub(crate) fn endless(world: &World) -> PathBuf {
    program(&world.bench, "tiny", 3, "steps 1000000", PLAN)
}

/// Waits until ranks train: the first has written a checkpoint.
pub(crate) fn training(world: &World, running: &Running) {
    let folder = world.bench.scratch.path("kept");
    let is_kept = |entry: std::io::Result<std::fs::DirEntry>| {
        entry
            .is_ok_and(|own| own.path().extension().is_some_and(|it| it == "safetensors"))
    };
    while !std::fs::read_dir(&folder).is_ok_and(|mut all| all.any(is_kept)) {
        assert!(running.elapsed() < BEGINNING, "nothing is trained");
        thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn keep(world: &World) -> String {
    let folder = world.bench.scratch.path("kept");
    let folder = folder.to_str().expect("the path is text");
    format!("--checkpoint {folder} --checkpoint-every 2")
}

pub(crate) fn signal(process: u32, name: &str) {
    let sent = Command::new("kill").args([name, &process.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "kill {name} {process}");
}

/// Every rank fails, names itself with period and action, and says these words.
pub(crate) fn all_say(ended: &[Ended], ranks: &[usize], said: &[&str]) {
    for rank in ranks {
        let own = &ended[*rank];
        assert_eq!(own.code, 3, "rank {rank}: {own:?}");
        let named = format!("rank {rank} of 3 ends ");
        for word in [named.as_str()].iter().chain(said) {
            assert!(own.err.contains(word), "rank {rank}, `{word}`: {}", own.err);
        }
    }
}

/// Whether a text names a place in the run.
pub(crate) fn names_a_place(text: &str) -> bool {
    let period =
        text.split(" in period ").nth(1).and_then(|rest| rest.split_once(" at a"));
    period.is_some_and(|(number, rest)| {
        number.parse::<i64>().is_ok()
            && rest.starts_with(|letter: char| letter.is_ascii_digit())
    }) || text.contains(" at rest after step ")
}

#[test]
fn a_killed_rank_is_named_by_all_others() {
    if !has_compiler() {
        return;
    }
    for (victim, deaths) in [(1, "silent"), (2, "told"), (0, "silent")] {
        let world =
            World::new(&format!("killed-{victim}"), 3).set("STANDIN_NCCL_DEATHS", deaths);
        let file = endless(&world);
        let mut running = world.start(&[0, 1, 2], &words(&keep(&world)), Some(&file));
        training(&world, &running);
        running.kill(victim);
        let start = Instant::now();
        let ended = running.ended();
        assert!(start.elapsed() < SLACK, "the others end soon");
        let others: Vec<usize> = (0..3).filter(|rank| *rank != victim).collect();
        let lost = format!("rank {victim} was lost ");
        all_say(&ended, &others, &[&lost, "its process has ended"]);
        for rank in others {
            let (_, said) = ended[rank].err.split_once(" ends").expect("where it ends");
            let (own, theirs) = said.split_once(": rank").expect("who was lost");
            assert!(names_a_place(own) && names_a_place(theirs), "{}", ended[rank].err);
        }
    }
}

#[test]
fn a_rank_that_is_stopped_is_named_within_the_deadline() {
    if !has_compiler() {
        return;
    }
    at_once([2, 0], |victim| {
        let world = World::new(&format!("stopped-{victim}"), 3);
        let file = endless(&world);
        let mut running = world.start(&[0, 1, 2], &words(&keep(&world)), Some(&file));
        training(&world, &running);
        signal(running.process(victim), "-STOP");
        let start = Instant::now();
        let others: Vec<usize> = (0..3).filter(|rank| *rank != victim).collect();
        running.wait_for(&others);
        assert!(start.elapsed() < Duration::from_secs(DEADLINE) + SLACK);
        running.kill(victim);
        let ended = running.ended();
        let mute = format!("rank {victim} has not answered for");
        let said = format!("nothing was completed for {DEADLINE}s");
        all_say(&ended, &others, &[&said, &mute]);
        for rank in others {
            let (_, theirs) =
                ended[rank].err.split_once("it was last seen").expect("where it was");
            assert!(names_a_place(theirs), "{}", ended[rank].err);
        }
    });
}

/// A rank waits for one that is slow for longer than the deadline, as long as that completes something.
#[test]
fn a_period_may_take_longer_than_the_deadline() {
    if !has_compiler() {
        return;
    }
    const SHORT: u64 = 6;
    let world = World::new("slow", 2).on(1, "STANDIN_CUDA_SLOW", "normalise");
    let world = world.on(1, "STANDIN_CUDA_SLOW_FOR", "800");
    let plan = "rule sync, placement data, micro_batches 2, stages 4";
    let file = program(&world.bench, "tiny", 2, "steps 1", plan);
    let words = format!("run --json --device cuda --deadline {SHORT}");
    let ended = world.run(&words, Some(&file));
    for own in &ended {
        assert_eq!(own.code, 0, "{}", own.err);
    }
    let told = lines(&ended[0].out);
    let step = told.iter().find(|line| line["event"] == "step").expect("it is done");
    let seconds = step["elapsed_s"].as_f64();
    assert!(seconds.is_some_and(|seconds| seconds > SHORT as f64), "{step:?}");
}

#[test]
fn a_message_that_never_moves_is_named_with_its_ranks() {
    if !has_compiler() {
        return;
    }
    let world = World::new("stuck", 3).on(1, "STANDIN_NCCL_STALL", "9");
    let file = endless(&world);
    let ended = world.run(&words(""), Some(&file));
    let said = format!("nothing was completed for {DEADLINE}s");
    all_say(&ended, &[0, 1, 2], &[&said, "is furthest behind, in period"]);
    for rank in 0..3 {
        let mut told = ended[0].err.split([';', ':']);
        let own = told.find(|part| {
            part.starts_with(&format!(" rank {rank} ")) && !part.contains(" ends ")
        });
        assert!(own.is_some_and(names_a_place), "rank {rank}: {}", ended[0].err);
    }
}

/// Ranks that do not get connected are named, before anything is trained.
#[test]
fn connections_that_are_not_made_end_all_within_the_deadline() {
    if !has_compiler() {
        return;
    }
    let world = World::new("unconnected", 3).on(1, "STANDIN_NCCL_STALL", "1");
    let file = program(&world.bench, "tiny", 3, "steps 4", PLAN);
    let ended = world.run(&words(""), Some(&file));
    let said = format!("nothing was completed for {DEADLINE}s");
    all_say(&ended, &[0, 1, 2], &[&said, "before the first step"]);
}

#[test]
fn a_device_that_fails_ends_all_with_its_words() {
    if !has_compiler() {
        return;
    }
    let world = World::new("broken", 3).on(2, "STANDIN_CUDA_FAIL", "200").on(
        2,
        "STANDIN_NCCL_ABORT",
        "never",
    );
    let file = endless(&world);
    let ended = world.run(&words(""), Some(&file));
    all_say(&ended, &[0, 1], &["rank 2 failed in period", "GPU 2 (Stand-in"]);
    assert_eq!(ended[2].code, 3, "{:?}", ended[2]);
    assert!(ended[2].err.contains("GPU 2 (Stand-in"), "{}", ended[2].err);
    assert!(names_a_place(&ended[0].err), "{}", ended[0].err);
}

#[test]
fn ranks_that_read_different_files_do_not_begin() {
    if !has_compiler() {
        return;
    }
    let world = World::new("different", 3);
    let file = program(&world.bench, "tiny", 3, "steps 4", PLAN);
    let mut running = world.start(&[0, 1], &words(""), Some(&file));
    running.join(world.start(&[2], &words("--set train.batch=12"), Some(&file)));
    let ended = running.ended();
    all_say(
        &ended,
        &[0, 1, 2],
        &["rank 2 ", "before the first step: its schedule is not"],
    );
}

/// Copies of what parts do whole meet no other.
#[test]
fn parts_that_make_products_in_different_ways_do_not_begin() {
    if !has_compiler() {
        return;
    }
    let world = World::new("refusing", 2).on(1, "STANDIN_CUDA_PRODUCTS", "refuse");
    let plan = "rule sync, placement accumulate, micro_batches 2, stages 1, replicas 1, \
                tensor { rows 2 }";
    let file = program(&world.bench, "tiny", 2, "steps 2", plan);
    for own in world.run(&words(""), Some(&file)) {
        assert_eq!(own.code, 3, "{own:?}");
        let said = "its way of making products is not that of rank 0 (";
        assert!(own.err.contains(said), "{}", own.err);
        assert!(own.err.contains("give them equal GPUs and libraries"), "{}", own.err);
    }
}

#[test]
fn as_many_ranks_as_devices_or_it_says_so() {
    if !has_compiler() {
        return;
    }
    let world = World::new("devices", 2);
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

/// Every rank hears of Ctrl-C when the launcher passes it on; here only one does, and all rest
/// after the same step.
#[test]
fn an_interrupt_of_one_rank_brings_all_to_rest() {
    if !has_compiler() {
        return;
    }
    let world = World::new("interrupted", 3);
    let file = endless(&world);
    let running = world.start(&[0, 1, 2], &words(&keep(&world)), Some(&file));
    training(&world, &running);
    signal(running.process(2), "-INT");
    let ended = running.ended();
    all_rest_together(&ended);
}

/// All were interrupted after one step, which they say.
pub(crate) fn all_rest_together(ended: &[Ended]) {
    let before = |own: &Ended| {
        let said = own.err.split("interrupted after step ").nth(1)?;
        said.split(';').next()?.parse::<u64>().ok()
    };
    let step = before(&ended[0]);
    assert!(step.is_some(), "{:?}", ended[0]);
    for own in ended {
        assert_eq!((own.code, before(own)), (130, step), "{own:?}");
    }
}

/// Of waits all over a run, each left out once on every rank, some change what comes out.
#[test]
fn a_wait_that_ranks_do_not_keep_is_found() {
    if !has_compiler() {
        return;
    }
    let whole = World::new("kept", 3).set("STANDIN_CUDA_ORDER", "late");
    let file = program(&whole.bench, "tiny", 3, "steps 4", PLAN);
    let whole = counting(whole, 3);
    let right = whole.train("--device cuda", &file);
    let found = (1..=10).filter(|part| {
        let number = (right.count("waits") * part / 11).to_string();
        let world = World::new(&format!("forgotten-{part}"), 3)
            .set("STANDIN_CUDA_ORDER", "late")
            .set("STANDIN_CUDA_FORGET", &number);
        let weights = world.bench.scratch.path("damaged.safetensors");
        let save = words(&format!("--save {}", weights.display()));
        let ended = world.run(&save, Some(&file));
        // The stand-in ends a process that does what a GPU does not define.
        if ended.iter().any(|own| own.err.contains("stand-in for CUDA: ")) {
            return true;
        }
        // What nobody waits for the stand-in may leave undone for ever, which proves nothing.
        if ended.iter().any(|own| own.code != 0) {
            let stuck = |own: &Ended| own.err.contains("nothing was completed for");
            assert!(ended.iter().all(stuck), "{ended:?}");
            return false;
        }
        std::fs::read(&weights).expect("weights were saved") != right.bytes
    });
    let found = found.count();
    assert!(found >= 2, "{found} of 10");
}
