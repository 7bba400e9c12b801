//! Where plans are cut: stages that send each other values begin where little crosses, if that
//! takes time, and plans that are called equal are cut alike.

use super::everything;
use crate::{
    Messages, Options, Ranking, answer::shifted_cuts, differences, explain, plan, sample,
    table,
};
use roundelay_dsl::Program;
use roundelay_schedule::{Bytes, BytesPerSecond, Domain, Id, Link, Nanos};
use std::collections::BTreeSet;

/// A GPT on two nodes of two devices, with links inside of them and between them.
fn nodes([inner, outer]: [u64; 2], set: &[&str]) -> Program {
    let mut program = sample::program(4, 8);
    program.model = sample::gpt(6, 32, 16, false);
    let link = |name, rate| Link::plain(name, BytesPerSecond(rate), Nanos(0));
    program.target.links =
        [link("inner", inner), link("outer", outer)].into_iter().collect();
    let domain = |link: usize, devices| Domain { link: Id::new(link), devices };
    program.target.domains = vec![domain(0, 0..2), domain(0, 2..4), domain(1, 0..4)];
    program
        .target
        .devices
        .iter_mut()
        .for_each(|(_, device)| device.memory = Bytes(1 << 30));
    program.target.pools.iter_mut().for_each(|(_, pool)| pool.capacity = Bytes(1 << 32));
    program.set_all(set).expect("the settings hold");
    program
}

fn best(program: &Program) -> Ranking {
    plan(program, &Options::default()).unwrap_or_else(|refusal| panic!("{refusal}"))
}

#[test]
fn slow_links_move_cuts_to_where_little_crosses() {
    const PINS: [&str; 7] = [
        "rule=sync",
        "placement=pipeline",
        "order=1f1b",
        "micro_batches=8",
        "replicas=1",
        "tensor.rows=1",
        "stages=4",
    ];
    let fast = best(&nodes([1 << 50; 2], &PINS));
    let balanced = &fast.plans[0].plan.cuts;
    let mut program = nodes([1 << 22; 2], &PINS);
    let slow = best(&program);
    assert_ne!(slow.plans[0].plan.cuts, *balanced);
    program.search.cuts = Some(balanced.clone());
    assert!(slow.plans[0].step_time < best(&program).plans[0].step_time);
}

/// Workers of the shared placement are replicas by another name, whatever their number.
#[test]
fn workers_are_cut_like_replicas() {
    let pins =
        ["rule=sync", "placement=shared", "stages=2", "tensor.rows=1", "devices=4"];
    let of = |micro_batches: &'static str| {
        let pins: Vec<&str> = pins.into_iter().chain([micro_batches]).collect();
        let ranking = plan(&nodes([1 << 30, 1 << 21], &pins), &everything());
        let ranking = ranking.unwrap_or_else(|refusal| panic!("{refusal}"));
        ranking.plans[0].plan.cuts.clone()
    };
    assert_eq!(of("micro_batches=1"), of("micro_batches=2"));
}

/// Seven blocks, inside of which much crosses, on two devices with a link of this many megabytes per second.
fn blocks(megabytes: u64, set: &[&str]) -> Program {
    let source = format!(
        "model blocks {{
            input x: real[batch, 64]
            input targets: i32[batch]
            h = x
            repeat 7 as layer {{ h = h + linear(relu(linear(h, 2048)), 64) }}
            loss cross_entropy(linear(h, 10), targets)
        }}
        device d {{ memory 1 GB, compute 100 GFLOP/s, bandwidth 100 GB/s }}
        link l {{ bandwidth {megabytes} MB/s, latency 5 us }}
        cluster c {{ 2 x d joined by l }}
        train {{ data synthetic, batch 256, optimizer sgd(0.1), steps 5 }}
        plan {{ rule sync, placement pipeline, replicas 1, tensor {{ rows 1 }}, stages 2 }}"
    );
    let mut program = sample::parsed(&source);
    program.set_all(set).expect("the settings hold");
    program
}

/// Orders differ in what is under way while messages travel. So plans are cut for either, both are
/// ranked, and which of the two is first depends on the order.
#[test]
fn messages_are_waited_for_or_hidden() {
    let mut first = BTreeSet::new();
    for set in [&["order=1f1b", "micro_batches=2"][..], &["order=zb_auto"]] {
        let program = blocks(200, set);
        let ranking = plan(&program, &everything()).expect("it fits");
        let best = &ranking.plans[0];
        let twin = ranking.plans[1..].iter().find(|other| {
            let apart = differences(&best.plan, &other.plan);
            apart.iter().map(|(name, ..)| *name).eq(["cuts"])
        });
        let Some(twin) = twin.filter(|twin| twin.step_time > best.step_time) else {
            continue;
        };
        first.insert(ranking.space.plans[best.number].messages);
        let text = table(&ranking, &program);
        for cuts in [&best.plan.cuts, &twin.plan.cuts] {
            assert!(text.contains(&format!("  {cuts:?}\n")), "{text}");
        }
    }
    assert!(first.iter().eq(&Messages::ALL), "{first:?}");
}

/// Where moving a cut makes a plan better, it is told with the line that moves it; where nothing is
/// told no move does.
#[test]
fn cuts_beside_those_of_the_space_are_told_where_they_are_better() {
    let (mut moved, mut stayed) = (0, 0);
    for megabytes in [50, 100, 150, 200, 250, 300] {
        let program = blocks(megabytes, &["order=zb_auto", "micro_batches=32"]);
        let ranking = best(&program);
        let first = &ranking.plans[0];
        let at = |cut: u32| {
            let mut program = program.clone();
            program.search.cuts = Some(vec![cut]);
            plan(&program, &Options::default()).ok().map(|mut own| own.plans.remove(0))
        };
        match shifted_cuts::better_cuts(&program, first) {
            Some(cuts) => {
                let better = at(cuts[0]).expect("it was clocked");
                assert!(better.step_time < first.step_time);
                let options = Options { top: 1, ..Options::default() };
                let text = explain(&program, &options, &ranking).to_string();
                let line = format!("--set \"cuts [{}]\"", cuts[0]);
                let told = |told: &str| {
                    told.contains("stages that begin elsewhere") && told.ends_with(&line)
                };
                assert!(text.lines().any(told), "{text}");
                moved += 1;
            }
            None => {
                let cut = first.plan.cuts[0];
                let around = (cut - 2..=cut + 2).chain([cut - 4, cut + 4]);
                let times: Vec<Nanos> =
                    around.filter_map(at).map(|own| own.step_time).collect();
                assert!(times.iter().all(|time| *time >= first.step_time));
                stayed += usize::from(times.len() > 3);
            }
        }
    }
    assert!(moved > 0 && stayed > 0, "{moved} moved, {stayed} stayed");
}

/// The program's own cuts are not moved, and one stage has none.
#[test]
fn what_is_not_open_is_not_moved() {
    let moves = |set: &[&str]| {
        let program = nodes([1 << 20; 2], set);
        let ranking = best(&program);
        shifted_cuts::better_cuts(&program, &ranking.plans[0])
    };
    assert_eq!(moves(&["rule=sync", "placement=pipeline", "cuts=[3]"]), None);
    assert_eq!(moves(&["rule=sync", "stages=1"]), None);
}
