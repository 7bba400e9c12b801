//! Each rank finds out which functions make attention fastest on its GPU, and all take what the first one
//! keeps.

use crate::{
    bench::{Run, has_compiler},
    world::World,
};

/// A head of 64 numbers in 16 bits, which functions for this GPU take too.
const PROGRAM: &str = "model attending {
        seq = 20, width = 64, vocab = 24
        input tokens:  i32[batch, seq]
        input targets: i32[batch, seq]
        x = embedding(tokens, vocab, width) + positions(seq, width)
        x = x + attention(layer_norm(x), 1, causal = true)
        loss cross_entropy(linear(layer_norm(x), vocab), targets)
    }
    device core { memory 64 MB, compute 40 GFLOP/s, bandwidth 10 GB/s }
    link bus { bandwidth 8 GB/s, latency 2 us }
    cluster some { 2 x core joined by bus }
    train {
        data synthetic, batch 2, seed 11, optimizer adamw(lr = 1e-2), steps 3, dtype bf16
    }
    plan {
        exactness delayed, rule sync, placement data, micro_batches 2, stages 1
    }";

/// On the clock of the stand-ins functions for every GPU take long, or those for this one.
const SLOW_USUAL: &str = "flash_64=900/1,flash_queries_64=900/1,flash_keys_64=900/1";
const SLOW_SPECIAL: &str = "flash_sm90=900/1";

/// Calls by functions for this GPU, and by those for every GPU.
fn counts(run: &Run) -> [u64; 2] {
    let told = &run.end["gpus"]["attention"];
    ["sm90", "usual"].map(|name| told[name].as_u64().expect("a count"))
}

#[test]
fn all_ranks_take_and_keep_what_is_fastest_on_the_first() {
    if !has_compiler() {
        return;
    }
    let world = World::new("attending", 2);
    let caches = [0, 1].map(|rank| world.bench.cache_named(&format!("cache-{rank}")));
    let world = (0..)
        .zip(&caches)
        .fold(world, |world, (rank, cache)| world.on(rank, "ROUNDELAY_CACHE", cache));
    let clock = "STANDIN_CUDA_CLOCK";
    let world = world.on(0, clock, SLOW_USUAL).on(1, clock, SLOW_SPECIAL);
    let file = world.bench.scratch.file("attending.rdl", PROGRAM);
    let ranks = world.train("--device cuda", &file);
    let [special, usual] = counts(&ranks);
    assert!(special > 0 && usual == 0, "{}", ranks.end["gpus"]);
    for cache in &caches {
        let settings = [("ROUNDELAY_CACHE", cache.as_str()), (clock, SLOW_SPECIAL)];
        let one = world.bench.run("--device cuda", &file, &settings);
        assert_eq!(counts(&one), [special, usual], "what ranks kept is taken");
        assert!(one.is(&ranks), "by one process with the same bits");
    }
}
