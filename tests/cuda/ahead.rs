//! Large inputs are sent to the device ahead of their feeds: the same bits in every way, from
//! memory that is counted, and never before they are there.

use crate::{
    bench::{Bench, ENOUGH, WIDE_MICRO_BATCHES, has_compiler, wide_program},
    support::ended,
};

const ON_ONE: &str =
    "rule sync, placement accumulate, stages 1, replicas 1, tensor { rows 1, columns 1 }";
const WORKERS: &str = "rule cyclic_v2, placement data, stages 2, states replicated";

fn same_in_all_ways(name: &str, plan: &str) {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new(name);
    let program = wide_program(&bench, ENOUGH, 6, plan);
    let late = [("STANDIN_CUDA_ORDER", "late")];
    let graphed = bench.run("--device cuda", &program, &late);
    assert!(graphed.count("graph_launches") > graphed.count("graphs"), "{name}");
    let cpu = bench.run("--device cpu", &program, &[]);
    for (own, other) in graphed.losses.iter().zip(&cpu.losses) {
        assert!(
            (own - other).abs() < 2e-3 * other.abs(),
            "{name}: {own} against {other}"
        );
    }
    let ways = [
        ("--device cuda --graphs never", "late"),
        ("--device cuda", "1"),
        ("--device cuda --graphs never", "2"),
        ("--device cuda", "3"),
    ];
    for (words, order) in ways {
        let run = bench.run(words, &program, &[("STANDIN_CUDA_ORDER", order)]);
        assert!(run.is(&graphed), "{name}: {words} in order {order}");
    }
}

#[test]
fn one_device_is_fed_ahead() {
    same_in_all_ways("ahead-one", ON_ONE);
}

#[test]
fn cyclic_workers_are_fed_ahead() {
    same_in_all_ways("ahead-workers", WORKERS);
}

/// Both halves of both micro-batches lie beside the arenas, and nothing of smaller inputs does.
#[test]
fn memory_of_what_is_sent_ahead_is_counted() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("ahead-memory");
    let beside = |features: u64| {
        let run =
            bench.run("--device cuda", &wide_program(&bench, features, 4, ON_ONE), &[]);
        run.end["beside_bytes"].as_u64().expect("bytes are counted")
    };
    let halves = 2 * WIDE_MICRO_BATCHES * (1 << 20);
    let more = beside(ENOUGH) - beside(ENOUGH - 8);
    assert!((halves..halves + (1 << 16)).contains(&more), "{more}");
}

/// Once graphs are launched, a period more is a wait more: that for its inputs. A graph that does
/// not keep it takes what an earlier period left there.
#[test]
fn a_graph_that_does_not_wait_for_its_inputs_is_found() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new("ahead-forgotten");
    let late = ("STANDIN_CUDA_ORDER", "late");
    let run = |steps| {
        let program = wide_program(&bench, ENOUGH, steps, ON_ONE);
        (bench.run("--device cuda", &program, &[late]), program)
    };
    let [(shorter, _), (whole, program)] = [11, 12].map(run);
    assert_eq!(whole.count("waits") - shorter.count("waits"), 1);
    let changes = |number: &u64| {
        let number = number.to_string();
        let forget = ("STANDIN_CUDA_FORGET", number.as_str());
        let weights = bench.scratch.path("damaged.safetensors");
        let mut command = bench.command("run --device cuda --json --save");
        let ended = ended(command.arg(&weights).arg(&program).envs([late, forget]));
        let bytes = std::fs::read(&weights).expect("weights were saved");
        ended.code == 0 && bytes != whole.bytes
    };
    // Behind those of the periods come the waits of the end: memory is freed too early without.
    let last = whole.count("waits");
    let found: Vec<u64> = (last - 9..=last).filter(changes).collect();
    assert!(found.len() >= 2 && found[0] == last - 9, "{found:?} of {last}");
}
