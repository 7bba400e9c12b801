//! `devices --self-check`: what a user runs first.

use crate::{support::schema, world::World};
use serde_json::Value;

const WORDS: &str = "devices --self-check --largest 1 --deadline 30";

fn rows(document: &Value) -> Vec<(&str, u64, bool)> {
    let rows = document["rows"].as_array().expect("rows are a list");
    let row = |row: &Value| {
        let right = row["wrong_ranks"].as_array().is_some_and(Vec::is_empty);
        (row["bytes"].as_u64().unwrap_or(0), right)
    };
    let named = rows.iter().map(|own| (own["exercise"].as_str().unwrap_or(""), row(own)));
    named.map(|(name, (bytes, right))| (name, bytes, right)).collect()
}

#[test]
fn ranks_reduce_and_send_what_they_should() {
    for sends in ["met", "eager"] {
        let world = World::new("right", 3).set("STANDIN_NCCL_SENDS", sends);
        let ended = world.run(&format!("{WORDS} --json"), None);
        for (rank, own) in ended.iter().enumerate() {
            assert_eq!(own.code, 0, "{rank}: {}", own.err);
            assert_eq!(own.out.is_empty(), rank != 0, "rank 0 alone prints");
        }
        let document: Value = serde_json::from_str(&ended[0].out).expect("JSON");
        schema::hold("self-check", &document);
        assert_eq!(document["ranks"].as_array().map(Vec::len), Some(3));
        assert_eq!(document["ranks"][2]["nccl"], "2.28.9");
        let (small, large) = (65_532, 1_048_572);
        let expected = [small, large].map(|bytes| {
            ["all_reduce", "reduce_scatter", "ring", "in_turn", "all_to_all"]
                .map(|name| (name, bytes, true))
        });
        assert_eq!(rows(&document), expected.concat());
    }
}

#[test]
fn numbers_that_are_wrong_are_found_with_their_rank() {
    let world = World::new("wrong", 2).on(1, "STANDIN_NCCL_CORRUPT", "7");
    let ended = world.run(WORDS, None);
    assert_eq!(ended[0].code, 3, "{:?}", ended[0]);
    assert!(ended[0].out.contains("WRONG on ranks 1"), "{}", ended[0].out);
    assert!(ended[0].err.contains("other numbers than they should"), "{}", ended[0].err);
}

#[test]
fn one_gpu_alone_is_checked_too() {
    let world = World::new("alone", 1);
    let ended = world.run(WORDS, None);
    assert_eq!(ended[0].code, 0, "{}", ended[0].err);
    assert!(ended[0].out.contains("all-reduce"), "{}", ended[0].out);
    for name in ["ring", "all-to-all"] {
        assert!(!ended[0].out.contains(name), "{}", ended[0].out);
    }
}

#[test]
fn a_check_that_does_not_move_ends_within_its_deadline() {
    let world = World::new("stalled", 2).on(1, "STANDIN_NCCL_STALL", "4");
    let ended = world.run("devices --self-check --largest 1 --deadline 6", None);
    for own in &ended {
        assert_eq!(own.code, 3, "{own:?}");
        assert!(own.err.contains("nothing was completed for 6s"), "{}", own.err);
    }
}
