//! Where plans are cut: stages that send each other values begin where little crosses, if that
//! takes time, and plans that are called equal are cut alike.

use super::everything;
use crate::{Options, Ranking, plan, sample};
use roundelay_dsl::Program;
use roundelay_schedule::{Bytes, BytesPerSecond, Domain, Id, Link, Nanos};

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
