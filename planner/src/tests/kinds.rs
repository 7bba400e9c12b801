//! Clusters whose devices differ in speed or memory: who is taken, where models are cut, and that
//! nothing that fits is ruled out.

use super::{
    all,
    brute_force::{cluster, pick, second_kind, within_bounds},
    delayed, everything, refusal,
};
use crate::{
    Options, Ranking, appraise, plan, remarks, sample, sample::Random,
    search::ranking::allowed, space::windows::Windows,
};
use roundelay_dsl::{Numbers, Program};
use roundelay_schedule::{Bytes, Domain, FlopsPerSecond, Plan, Recompute};

/// So many devices of which those from one on are this many times as fast.
fn two_speeds(devices: usize, from: usize, times: u64) -> Program {
    let mut program = sample::program(devices, 8);
    for (number, (_, device)) in program.target.devices.iter_mut().enumerate() {
        let faster = if number >= from { times } else { 1 };
        device.compute = FlopsPerSecond(1_000_000 * faster);
        device.bandwidth.0 *= 1_000;
        device.overhead.0 = 0;
    }
    program
}

fn set(program: &Program, lines: &[&str]) -> Program {
    let mut set = program.clone();
    set.set_all(lines).unwrap_or_else(|mistake| panic!("{mistake}"));
    set
}

fn first(program: &Program) -> Ranking {
    let best = Options { top: 1, ..everything() };
    plan(program, &best).unwrap_or_else(|refusal| panic!("{refusal}"))
}

#[test]
fn plans_on_fast_devices_alone_are_seen_wherever_these_stand() {
    let program = set(&two_speeds(4, 2, 50), &["placement data"]);
    let ranking = first(&program);
    let best = &ranking.plans[0];
    assert_eq!((best.plan.first_device(), best.plan.devices.len()), (2, 2));
    let slow = first(&set(&program, &["first_device 0"]));
    assert!(slow.plans[0].step_time > best.step_time);
    let pinned = first(&set(&program, &["first_device 2"]));
    assert_eq!(pinned.plans[0].plan, best.plan);
    // Those of one kind stand for each other.
    let alike = first(&two_speeds(4, 2, 1));
    let firsts = alike.space.decisions.iter().find(|(name, _)| *name == "first_device");
    assert_eq!(firsts.unwrap().1, ["0"]);
    assert!(alike.plans.iter().all(|one| one.plan.first_device() == 0));
}

/// Slow links join the first devices and the halves, and fast ones the others.
#[test]
fn plans_on_fast_links_alone_are_seen_wherever_these_stand() {
    let mut program = two_speeds(4, 2, 1);
    let fast = program.target.domains[0].link;
    let mut slow = program.target.links[fast].clone();
    slow.bandwidth.0 /= 1_000;
    let slow = program.target.links.push(slow);
    let nodes = [(slow, 0..2), (fast, 2..4), (slow, 0..4)];
    let domain = |(link, devices)| Domain { link, devices };
    program.target.domains = nodes.map(domain).into();
    let program = set(&program, &["placement data", "devices 2"]);
    let ranking = first(&program);
    assert_eq!(ranking.plans[0].plan.first_device(), 2);
    let slow = first(&set(&program, &["first_device 0"]));
    assert!(slow.plans[0].step_time > ranking.plans[0].step_time);
}

/// The law of windows.
#[test]
fn plans_on_windows_that_are_alike_do_the_same() {
    let mut random = Random::new(29);
    let mut compared = 0;
    for round in 0..12 {
        let mut program = delayed([4, 6, 8][round % 3], 4);
        cluster(&mut random, &mut program);
        second_kind(&mut random, &mut program);
        let program = set(&program, &["stages <= 2", "recompute none", "replicas <= 2"]);
        let windows = Windows::new(&program);
        let count = program.target.devices.len() as u32;
        for one in allowed(&program, &everything()) {
            let (own, devices) = (one.plan.first_device(), one.plan.device_count());
            let others = (0..=count - devices).filter(|other| {
                *other != own && windows.are_alike([own, *other], devices)
            });
            let others: Vec<u32> = others.collect();
            if others.is_empty() {
                continue;
            }
            // Being alike is an equivalence: over many plans, all windows have their turn.
            let moved = one.plan.clone().starting_at(pick(&mut random, &others));
            let other = appraise(&program, &moved);
            let other = other.unwrap_or_else(|reason| panic!("{reason}"));
            assert_eq!(other.step_time, one.step_time, "{:?}", other.plan);
            assert_eq!(other.device_peak, one.device_peak, "{:?}", other.plan);
            compared += 1;
        }
    }
    assert!(compared > 100, "only {compared} are compared");
}

#[test]
fn a_window_behind_the_last_device_is_refused() {
    let refused = |lines: &[&str]| refusal(&set(&two_speeds(4, 2, 2), lines)).to_string();
    let late = refused(&["first_device 3", "devices 2"]);
    assert!(late.contains("\n  - first_device 2: "), "{late}");
    assert!(late.contains("would end at number 5, the cluster has 4"), "{late}");
    let behind = refused(&["first_device 9"]);
    let said = "the least that the program allows is 9, the last of the cluster is 3";
    assert!(behind.contains(said), "{behind}");
}

#[test]
fn stages_are_cut_by_what_their_devices_take() {
    let lines = ["placement pipeline", "order gpipe", "devices 2", "stages 2"];
    let program = set(&two_speeds(2, 1, 3), &lines);
    let best = first(&program).plans.remove(0);
    let alike = first(&set(&two_speeds(2, 1, 1), &lines)).plans.remove(0);
    assert!(best.plan.cuts[0] < alike.plan.cuts[0], "the slow device has less");
    let cuts = format!("cuts [{}]", alike.plan.cuts[0]);
    let even = first(&set(&program, &[&cuts])).plans.remove(0);
    assert!(best.step_time < even.step_time);
    assert_eq!(best.plan.devices.len(), 2);
}

/// The plan without what is told by groups: of those that compute again, the first stands for all.
fn told(plan: &Plan) -> Plan {
    plan.clone().recomputing(Recompute::None)
}

/// Law: what holds on roomy devices and fits small ones is a plan of the small ones as well.
#[test]
fn no_plan_that_fits_is_ruled_out_by_its_bounds() {
    let mut random = Random::new(47);
    let (mut fitting, mut refused) = (0, 0);
    for round in 0..12 {
        let mut roomy = delayed([2, 3, 4][round % 3], 4);
        cluster(&mut random, &mut roomy);
        second_kind(&mut random, &mut roomy);
        // Cuts follow the memory of devices; they are pinned here.
        let stages = ["stages 1", "cuts [2]", "cuts [1, 3]"][round / 3 % 3];
        let stages = if round >= 9 { "cuts [1, 2, 3]" } else { stages };
        let mut roomy = set(&roomy, &[stages]);
        let from = 1 + random.below(roomy.target.devices.len() as u64 - 1) as usize;
        let mut small = roomy.clone();
        for (number, (_, device)) in roomy.target.devices.iter_mut().enumerate() {
            let memory = if number < from { 1_000_000 } else { 999_999 };
            device.memory = Bytes(memory);
        }
        for (number, (_, device)) in small.target.devices.iter_mut().enumerate() {
            let memory = if number < from { 1_000_000 } else { 9_000 };
            device.memory = Bytes(memory);
        }
        let Ok(found) = plan(&small, &everything()) else { continue };
        found.plans.iter().for_each(within_bounds);
        let known: Vec<Plan> = found.plans.iter().map(|one| told(&one.plan)).collect();
        for candidate in all(&roomy).plans {
            match appraise(&small, &candidate.plan) {
                Ok(_) => {
                    assert!(
                        known.contains(&told(&candidate.plan)),
                        "{:?}",
                        candidate.plan
                    );
                    fitting += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(fitting > 100 && refused > 100, "{fitting} fit, {refused} do not");
}

#[test]
fn what_each_kind_waits_for_is_told_where_there_are_several() {
    let told = |program: &Program| {
        let ranking = first(&set(program, &["placement data", "devices 4"]));
        remarks(&ranking, program).into_iter().find(|note| note.contains(" idle "))
    };
    let mut program = two_speeds(4, 2, 4);
    for (number, (_, device)) in program.target.devices.iter_mut().enumerate() {
        device.name = format!("{}.{number}", if number < 2 { "slow" } else { "fast" });
    }
    let note = told(&program).expect("two kinds take part");
    // Three quarters of each pass at least.
    let idle = note.split_once("fast idle ").and_then(|(_, rest)| rest.split_once(' '));
    let idle: u32 = idle.expect("the fast ones are told").0.parse().unwrap();
    assert!((70..100).contains(&idle), "{note}");
    assert!(note.contains("slow idle"), "{note}");
    assert_eq!(told(&two_speeds(4, 2, 1)), None);
}

#[test]
fn values_of_depth_that_would_do_are_told() {
    let refused =
        refusal(&set(&sample::program(4, 8), &["tensor.depth = 3"])).to_string();
    assert!(refused.contains("tensor.depth that go with the rest: 1, 2, 4"), "{refused}");
    let small = set(&sample::program(4, 8), &["tensor.depth = 1", "memory <= 1 kB"]);
    let refused = refusal(&small).to_string();
    assert!(!refused.contains("tensor.depth that go"), "memory is what lacks: {refused}");
}

#[test]
fn a_refusal_says_what_nobody_looked_at() {
    let mut program = delayed(4, 8);
    program.search.memory = Some(Bytes(6_000));
    program.search.replicas = Numbers::Open;
    let few = Options { clocked_max: 0, ..Options::default() };
    let said = plan(&program, &few).map(|_| ()).unwrap_err().to_string();
    assert!(
        said.starts_with("no plan was found that fits: 0 were clocked and"),
        "{said}"
    );
    program.search.memory = Some(Bytes(100));
    let proven = plan(&program, &everything()).map(|_| ()).unwrap_err().to_string();
    assert!(proven.starts_with("no plan fits"), "{proven}");
}
