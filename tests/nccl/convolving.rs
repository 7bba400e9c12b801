//! Each rank finds out whether cuDNN or own functions convolve faster on its GPU, and all take what the
//! first one keeps.

use crate::{
    bench::{Bench, CUDNN, Run, has_compiler},
    faults::all_say,
    training::{counted, counting},
    world::{LIBRARIES, World, at_once},
};
use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

type Settings = [(&'static str, &'static str); 3];

/// cuDNN is faster, or own functions are, on the clock of the stand-ins; a test may have them sleep besides.
const FAST_LIBRARY: Settings = [
    ("STANDIN_CUDA_CLOCK", "convolution=3000/1,engine=1000/1"),
    ("STANDIN_CUDA_SLOW", "convolution"),
    ("STANDIN_CUDA_SLOW_FOR", "0"),
];
const FAST_OWN: Settings = [
    ("STANDIN_CUDA_CLOCK", "convolution=1000/1,engine=9000/1"),
    ("STANDIN_CUDA_SLOW", "nothing"),
    ("STANDIN_CUDA_SLOW_FOR", "0"),
];

/// So soon the others end when a rank is lost while they try, on a machine that does other things; all
/// that they have to try takes twice as long.
const SOON: Duration = Duration::from_secs(80);

/// A network with two convolutions on several devices, which add up enough places for own functions and
/// the library to differ in bits.
fn program(world: &World, devices: u32, plan: &str) -> PathBuf {
    let batch = 4 * devices;
    let text = format!(
        "model plain {{
            input pixels: real[batch, 9, 9, 4]
            input labels: i32[batch]
            x = relu(conv2d(pixels, 8, kernel = 3, padding = 1))
            x = relu(conv2d(x, 8, kernel = 3, stride = 2, padding = 1))
            loss cross_entropy(linear(global_pool(x), 4), labels)
        }}
        device core {{ memory 64 MB, compute 40 GFLOP/s, bandwidth 10 GB/s }}
        link bus {{ bandwidth 8 GB/s, latency 2 us }}
        cluster some {{ {devices} x core joined by bus }}
        train {{ data synthetic, batch {batch}, seed 11, steps 4, optimizer sgd(lr = 0.05) }}
        plan {{ exactness delayed, rule sync, micro_batches {devices}, stages 1, {plan} }}"
    );
    world.bench.scratch.file("plain.rdl", &text)
}

/// Ranks with cuDNN, each with a cache of its own.
fn world(name: &str, ranks: u32) -> World {
    let libraries = [&LIBRARIES[..], &CUDNN].concat();
    let world = counting(World::with(name, ranks, &libraries), ranks);
    (0..ranks).fold(world, |world, rank| {
        let cache = cache(&world, rank);
        world.on(rank, "ROUNDELAY_CACHE", &cache)
    })
}

fn cache(world: &World, rank: u32) -> String {
    world.bench.cache_named(&format!("cache-{rank}"))
}

/// Ranks, from the first one, on which so is what is faster.
fn fast(world: World, ranks: &[Settings]) -> World {
    (0..).zip(ranks).fold(world, |world, (rank, settings)| {
        settings.iter().fold(world, |world, (name, value)| world.on(rank, name, value))
    })
}

/// Convolutions by cuDNN, and by own functions.
fn counts(run: &Run) -> (u64, u64) {
    let told = &run.end["gpus"]["convolutions"];
    let count = |name: &str| told[name].as_u64().expect("a count");
    (count("cudnn"), count("own"))
}

/// How often the library convolved on each of two ranks, in trials too.
fn convolved(world: &World) -> [u64; 2] {
    [0, 1].map(|rank| counted(world, rank, "convolutions"))
}

/// One process that has the cache of a rank, and to which something is faster.
fn alone(world: &World, file: &Path, rank: u32, settings: Settings) -> Run {
    let cache = cache(world, rank);
    let settings = [&settings[..], &[("ROUNDELAY_CACHE", &cache)]].concat();
    world.bench.run("--device cuda", file, &settings)
}

/// All take what is fastest on the first rank, and keep it: then nothing is tried any more, whatever is
/// faster by then, and one process makes the same bits with the cache of any rank.
#[test]
fn all_ranks_take_and_keep_what_is_fastest_on_the_first() {
    if !has_compiler() {
        return;
    }
    let trained = at_once([FAST_LIBRARY, FAST_OWN], |first| {
        let (is_library, second) = match first == FAST_LIBRARY {
            true => (true, FAST_OWN),
            false => (false, FAST_LIBRARY),
        };
        let world = world(&format!("convolved-{is_library}"), 2);
        let file = program(&world, 2, "placement data");
        let world = fast(world, &[first, second]);
        let trained = world.train("--device cuda", &file);
        let (library, own) = counts(&trained);
        assert_eq!((library > 0, own > 0), (is_library, !is_library));
        let tried = convolved(&world);
        assert!(tried.iter().all(|tried| *tried > 0), "every rank tries");
        let world = fast(world, &[second, first]);
        let again = world.train("--device cuda", &file);
        assert!(again.is(&trained), "the next run has the same bits");
        let untried = convolved(&world);
        let fewer = untried.iter().zip(&tried).all(|(untried, tried)| untried < tried);
        assert!(fewer, "nothing is tried again: {untried:?} after {tried:?}");
        assert_eq!(untried.map(|count| count > 0), [is_library; 2]);
        for rank in [0, 1] {
            let one = alone(&world, &file, rank, second);
            assert!(one.is(&trained), "the bits of one process with the cache of {rank}");
            assert_eq!(counts(&one), counts(&trained));
        }
        trained
    });
    assert!(!trained[0].is(&trained[1]), "the two ways differ in bits");
}

/// What one process has kept for the first rank is what all take.
#[test]
fn ranks_take_what_one_process_has_kept() {
    if !has_compiler() {
        return;
    }
    let world = world("convolved-before", 2);
    let file = program(&world, 2, "placement data");
    let one = alone(&world, &file, 0, FAST_LIBRARY);
    let world = fast(world, &[FAST_OWN, FAST_OWN]);
    let ranks = world.train("--device cuda", &file);
    assert_eq!(counts(&ranks), counts(&one));
    assert!(ranks.is(&one), "by the same engines they have the same bits");
    let [first, second] = convolved(&world);
    assert!(0 < first && first < second, "the second rank alone tries");
}

/// Parts have copies that meet no other, so their bits must not drift apart.
#[test]
fn parts_convolve_in_one_way() {
    if !has_compiler() {
        return;
    }
    let world = world("convolved-parts", 2);
    let plan = "placement accumulate, replicas 1, tensor { rows 2 }";
    let file = program(&world, 2, plan);
    let world = fast(world, &[FAST_LIBRARY, FAST_OWN]);
    let ranks = world.train("--device cuda", &file);
    assert_eq!(counts(&ranks).1, 0, "{}", ranks.end["gpus"]);
    assert!(ranks.is(&alone(&world, &file, 0, FAST_OWN)));
}

/// Its library has other engines, though it is of the same version, or lacks a part and does not start.
#[test]
fn an_engine_that_a_rank_does_not_have_is_said_by_all() {
    if !has_compiler() {
        return;
    }
    let parts = [&LIBRARIES[..], &CUDNN[..CUDNN.len() - 1]].concat();
    let partly = Bench::with("nccl-convolved-partly", &parts);
    let folder = partly.scratch.path("").display().to_string();
    let faults = [("STANDIN_CUDNN_OFFERS", "torn"), ("LD_LIBRARY_PATH", folder.as_str())];
    at_once(faults, |(name, value)| {
        let world = world(&format!("convolved-{name}"), 2);
        let file = program(&world, 2, "placement data");
        let world = fast(world, &[FAST_LIBRARY, FAST_OWN]).on(1, name, value);
        let ended = world.run("run --device cuda --deadline 60", Some(&file));
        for own in &ended {
            assert_eq!(own.code, 3, "{name}: {own:?}");
            let said = "it cannot make what `convolution-";
            assert!(own.err.contains(said), "{name}: {}", own.err);
        }
        let said = "rank 1 failed before the first step: it cannot";
        assert!(ended[0].err.contains(said), "{name}: {}", ended[0].err);
    });
}

/// The others wait for a rank that tries as long as it gives signs of life.
#[test]
fn trials_may_take_longer_than_the_deadline() {
    if !has_compiler() {
        return;
    }
    const DEADLINE: u64 = 8;
    let world = world("convolved-slowly", 2);
    let file = program(&world, 2, "placement data");
    let world = fast(world, &[FAST_LIBRARY, FAST_LIBRARY]);
    let world = world.on(1, "STANDIN_CUDA_SLOW_FOR", "300");
    let words = format!("run --device cuda --deadline {DEADLINE}");
    let start = Instant::now();
    for own in world.run(&words, Some(&file)) {
        assert_eq!(own.code, 0, "{}", own.err);
    }
    assert!(start.elapsed() > Duration::from_secs(DEADLINE), "it was waited for");
}

/// Whether a rank has kept what it tried first.
fn tries(cache: &str) -> bool {
    let files = fs::read_dir(cache).expect("the cache is there").flatten();
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    let mut names = names.filter(|name| name.ends_with(".algorithm"));
    names.any(|name| name.starts_with("convolution-"))
}

/// The first rank waits for the others, which still try for long.
#[test]
fn a_rank_that_is_killed_while_it_tries_is_named_by_all_others() {
    if !has_compiler() {
        return;
    }
    let gradients = "convolution_weights,convolution_backward";
    let world = [1, 2].into_iter().fold(world("convolved-killed", 3), |world, rank| {
        let world = world.on(rank, "STANDIN_CUDA_SLOW_FOR", "2000");
        world.on(rank, "STANDIN_CUDA_SLOW", gradients)
    });
    let file = program(&world, 3, "placement data");
    let words = "run --device cuda --deadline 20";
    let mut running = world.start(&[0, 1, 2], words, Some(&file));
    let caches = [1, 2].map(|rank| cache(&world, rank));
    while !caches.iter().all(|cache| tries(cache)) {
        assert!(running.elapsed() < Duration::from_secs(150), "nothing is tried");
        thread::sleep(Duration::from_millis(20));
    }
    running.kill(1);
    let start = Instant::now();
    let ended = running.ended();
    assert!(start.elapsed() < SOON, "the others end soon");
    let lost = "rank 1 was lost before the first step: its process has ended";
    all_say(&ended, &[0, 2], &[lost]);
}
