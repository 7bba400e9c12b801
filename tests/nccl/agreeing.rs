//! Each rank finds out which algorithm of a product is the fastest on its GPU, and all take one: that of
//! the lowest rank that keeps any.

use crate::{
    bench::{has_compiler, program},
    training::{counted, counting},
    world::World,
};
use std::path::PathBuf;

/// Both ranks make the same products.
const PLAN: &str =
    "rule sync, placement data, micro_batches 2, stages 1, states replicated";

/// A folder that keeps nothing.
const NOWHERE: &str = "/dev/null/cache";

/// Two ranks that are offered several algorithms, of which another one is the fastest on each.
fn world(name: &str, caches: [&str; 2]) -> World {
    let world = counting(World::new(name, 2), 2).set("STANDIN_CUDA_ALGORITHMS", "4");
    let world = world.on(0, "STANDIN_CUDA_FASTEST", "1");
    let world = world.on(1, "STANDIN_CUDA_FASTEST", "3");
    (0..).zip(caches).fold(world, |world, (rank, name)| {
        let cache = match name {
            NOWHERE => name.to_owned(),
            own => world.bench.cache_named(own),
        };
        world.on(rank, "ROUNDELAY_CACHE", &cache)
    })
}

fn written(world: &World) -> PathBuf {
    program(&world.bench, "tiny", 2, "steps 2", PLAN)
}

/// Products that the library made on each rank, and those of algorithms that are slow there.
fn products(world: &World) -> [(u64, u64); 2] {
    [0, 1].map(|rank| {
        let of = |what| counted(world, rank, what);
        (of("products"), of("slow_products"))
    })
}

#[test]
fn all_ranks_take_and_keep_what_is_fastest_on_the_first() {
    if !has_compiler() {
        return;
    }
    let world = world("agreeing", ["cache-0", "cache-1"]);
    let file = written(&world);
    let trained = world.train("--device cuda", &file);
    let tried = products(&world);
    let again = world.train("--device cuda", &file);
    assert!(again.is(&trained));
    let [first, second] = products(&world);
    assert!(first.0 < tried[0].0 && second.0 < tried[1].0, "nothing is tried again");
    assert_eq!((first.0 > 0, first.1), (true, 0), "the first rank takes its own word");
    assert_eq!(second.0, second.1, "and the second one that of the first");
    let cache = world.bench.cache_named("cache-1");
    let settings = [
        ("ROUNDELAY_CACHE", cache.as_str()),
        ("STANDIN_CUDA_ALGORITHMS", "4"),
        ("STANDIN_CUDA_FASTEST", "1"),
    ];
    let one = world.bench.run("--device cuda", &file, &settings);
    assert!(one.count("products") > 0 && one.count("slow_products") == 0);
    assert!(one.is(&trained), "one process with the cache of the second takes it too");
}

/// Parts of split tensors have copies that would drift apart, or end the run, if each took what it found
/// to be the fastest.
#[test]
fn parts_of_split_tensors_take_one_choice() {
    if !has_compiler() {
        return;
    }
    let world = world("agreeing-parts", ["cache-0", "cache-1"]);
    let plan = "rule sync, placement accumulate, micro_batches 2, stages 1, replicas 1, \
                tensor { rows 2 }";
    let file = program(&world.bench, "parts", 2, "steps 2", plan);
    let trained = world.train("--device cuda", &file);
    let tried = products(&world);
    assert!(world.train("--device cuda", &file).is(&trained));
    let [first, second] = products(&world);
    assert!(first.0 < tried[0].0 && second.0 < tried[1].0, "nothing is tried again");
    assert_eq!((first.0 > 0, first.1), (true, 0), "the first part takes its own word");
    assert_eq!(second.0, second.1, "and the second one that of the first");
}

/// Whoever keeps a choice first decides for all that share the folder.
#[test]
fn ranks_that_share_a_folder_take_what_was_kept_first() {
    if !has_compiler() {
        return;
    }
    let world = world("agreeing-together", ["cache", "cache"]);
    let file = written(&world);
    let trained = world.train("--device cuda", &file);
    let tried = products(&world);
    let again = world.train("--device cuda", &file);
    assert!(again.is(&trained));
    let [first, second] = products(&world);
    assert_eq!(first.0, second.0, "both make the same products, and try nothing");
    assert!(first.0 < tried[0].0 || second.0 < tried[1].0, "something was tried");
    assert_eq!(first.1 + second.1, first.0, "what is fast on one is slow on the other");
}

/// The word of a rank that keeps nothing would not be there the next time. So it has none, and tries
/// nothing; where no rank keeps anything the library's first algorithms stand.
#[test]
fn who_keeps_nothing_takes_what_others_keep() {
    if !has_compiler() {
        return;
    }
    for caches in [[NOWHERE, "cache"], ["cache", NOWHERE], [NOWHERE, NOWHERE]] {
        let keeper = caches.iter().position(|cache| *cache != NOWHERE);
        let world = world(&format!("agreeing-kept-{keeper:?}"), caches);
        let file = written(&world);
        let trained = world.train("--device cuda", &file);
        let tried = products(&world);
        let again = world.train("--device cuda", &file);
        assert!(again.is(&trained), "{keeper:?}");
        for (rank, (all, slow)) in products(&world).into_iter().enumerate() {
            let keeps = keeper == Some(rank);
            assert_eq!(slow, if keeps { 0 } else { all }, "{keeper:?}, rank {rank}");
            assert_eq!(all < tried[rank].0, keeps, "{keeper:?}: {rank} tries");
        }
    }
}

/// A word is about one kind of GPU.
#[test]
fn gpus_of_several_kinds_take_words_of_their_own() {
    if !has_compiler() {
        return;
    }
    let world = world("agreeing-mixed", ["cache-0", "cache-1"]);
    let world = world.on(1, "STANDIN_CUDA_CAPABILITY", "121");
    let file = written(&world);
    let trained = world.train("--device cuda", &file);
    let again = world.train("--device cuda", &file);
    assert!(again.is(&trained));
    for (all, slow) in products(&world) {
        assert_eq!((all > 0, slow), (true, 0), "each takes what is fastest on it");
    }
}

/// Nor does such a rank keep what it cannot make.
#[test]
fn an_algorithm_that_a_rank_does_not_have_is_said_by_all() {
    if !has_compiler() {
        return;
    }
    let world = world("agreeing-otherwise", ["cache-0", "cache-1"]);
    let world = world.on(0, "STANDIN_CUDA_FASTEST", "3");
    let world = world.on(1, "STANDIN_CUDA_FASTEST", "0");
    let world = world.on(1, "STANDIN_CUDA_ALGORITHMS", "2");
    let file = written(&world);
    let ended = world.run("run --device cuda --deadline 60", Some(&file));
    for own in &ended {
        assert_eq!(own.code, 3, "{own:?}");
        assert!(own.err.contains("it cannot make what `product-"), "{}", own.err);
        assert!(own.err.contains("give all ranks the same libraries"), "{}", own.err);
    }
    let said = "rank 1 failed before the first step: it cannot";
    assert!(ended[0].err.contains(said), "{}", ended[0].err);
    let cache = world.bench.cache_named("cache-1");
    let settings = [
        ("ROUNDELAY_CACHE", cache.as_str()),
        ("STANDIN_CUDA_ALGORITHMS", "2"),
        ("STANDIN_CUDA_FASTEST", "0"),
    ];
    let one = world.bench.run("--device cuda", &file, &settings);
    assert!(one.count("products") > 0 && one.count("slow_products") == 0);
}
