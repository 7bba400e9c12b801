//! Ranks try no algorithms of cuDNN: they take what one process has kept, or own functions.

use crate::{
    bench::{CUDNN, Run, has_compiler},
    training::{counting, train},
    world::{LIBRARIES, World},
};
use std::path::PathBuf;

/// A network with two convolutions on two devices.
fn program(world: &World, plan: &str) -> PathBuf {
    let text = format!(
        "model plain {{
            input pixels: real[batch, 6, 6, 4]
            input labels: i32[batch]
            x = relu(conv2d(pixels, 8, kernel = 3, padding = 1))
            x = relu(conv2d(x, 8, kernel = 3, stride = 2, padding = 1))
            loss cross_entropy(linear(global_pool(x), 4), labels)
        }}
        device core {{ memory 64 MB, compute 40 GFLOP/s, bandwidth 10 GB/s }}
        link bus {{ bandwidth 8 GB/s, latency 2 us }}
        cluster some {{ 2 x core joined by bus }}
        train {{ data synthetic, batch 8, seed 11, steps 4, optimizer sgd(lr = 0.05) }}
        plan {{ exactness delayed, rule sync, micro_batches 2, stages 1, {plan} }}"
    );
    world.bench.scratch.file("plain.rdl", &text)
}

fn by_cudnn(run: &Run) -> u64 {
    run.end["gpus"]["convolutions"]["cudnn"].as_u64().expect("a count")
}

#[test]
fn ranks_take_what_one_process_has_kept() {
    if !has_compiler() {
        return;
    }
    let libraries = [&LIBRARIES[..], &CUDNN].concat();
    let world = counting(World::with("convolved", 2, &libraries), 2);
    let slow = ("STANDIN_CUDA_SLOW", "convolution");
    let cache = world.bench.own_cache();
    let world = world.set(slow.0, slow.1).set("ROUNDELAY_CACHE", &cache);
    let file = program(&world, "placement data");
    let untried = train(&world, "", &file);
    assert_eq!((by_cudnn(&untried), untried.count("convolutions")), (0, 0));
    let settings = [slow, ("ROUNDELAY_CACHE", cache.as_str())];
    let one = world.bench.run("--device cuda", &file, &settings);
    let all = by_cudnn(&one);
    assert!(all > 0 && one.count("convolutions") > 0, "{}", one.end["gpus"]);
    let ranks = train(&world, "", &file);
    assert_eq!(by_cudnn(&ranks), all, "{}", ranks.end["gpus"]);
    assert!(ranks.count("convolutions") > 0, "the library makes them");
    assert!(ranks.is(&one), "by the same algorithms they have the same bits");
}

/// Parts have copies that meet no other, so their bits must not drift apart.
#[test]
fn parts_that_convolve_in_different_ways_do_not_begin() {
    if !has_compiler() {
        return;
    }
    let libraries = [&LIBRARIES[..], &CUDNN].concat();
    let world = World::with("convolved-parts", 2, &libraries);
    let file = program(&world, "placement accumulate, replicas 1, tensor { rows 2 }");
    let cache = world.bench.own_cache();
    let slow = ("STANDIN_CUDA_SLOW", "convolution");
    let one = world.bench.run(
        "--device cuda --graphs never",
        &file,
        &[slow, ("ROUNDELAY_CACHE", &cache)],
    );
    assert!(by_cudnn(&one) > 0, "{}", one.end["gpus"]);
    let world = world.set(slow.0, slow.1).on(0, "ROUNDELAY_CACHE", &cache);
    for own in world.run("run --device cuda --deadline 60", Some(&file)) {
        assert_eq!(own.code, 3, "{own:?}");
        let said = "its way of making convolutions is not that of rank 0 (";
        assert!(own.err.contains(said), "{}", own.err);
    }
    let world = world.on(1, "ROUNDELAY_CACHE", &cache);
    assert!(train(&world, "", &file).is(&one), "with one cache they begin");
}
