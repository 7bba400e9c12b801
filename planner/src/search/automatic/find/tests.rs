//! Laws of the search for an order, and the golden numbers of arXiv 2401.10241 and its public
//! heuristic.

use super::*;
use crate::{
    sample::Random,
    search::automatic::{
        pipe::{Account, Kept, Rooms, StageHalves, lists},
        tests::equal,
    },
};
use roundelay_schedule::{Bytes, Nanos, list_faults};

/// F = I = 10, W = 6, messages 0.5; I and W give back half of the activations each.
#[test]
fn memory_limited_orders_are_as_good_as_those_of_the_public_search() {
    for (p, m, golden) in [(4, 12, [360, 325, 315]), (8, 24, [736, 661, 639])] {
        for (half_limits, golden) in [2, 3, 4].into_iter().zip(golden) {
            let pipe = equal((p, m), [100, 100, 60, 5], [1, 1], p as u64 * half_limits);
            let (merit, _) = find(&pipe, Aim::Time, &[]).unwrap();
            let found = merit.stage_span;
            assert!(found <= Nanos(10 * golden), "{p}, {half_limits}: {found} {golden}");
        }
    }
}

#[test]
fn long_pipelines_get_an_order_too() {
    let (p, m) = (32, 2048);
    let pipe = equal((p, m), [10, 10, 6, 1], [1, 1], 4 * p as u64);
    let (merit, passes) = find(&pipe, Aim::Time, &[]).unwrap();
    assert!(pipe.fits(&passes));
    let work = Nanos(26 * m as u64);
    assert!(merit.stage_span < work + Nanos(26 * p as u64 / 4), "{merit:?}");
}

#[test]
fn laws() {
    let mut random = Random::new(5);
    for round in 0..200 {
        let limited = random_pipe(&mut random);
        let pipe = &limited.pipe;
        let smallest = pipe
            .stages
            .iter()
            .zip(limited.rooms.each())
            .all(|(stage, room)| stage.kept.of(1) <= *room);
        let found = find(&limited, Aim::Time, &[]);
        assert_eq!(found.is_some(), smallest, "round {round}: {limited:?}");
        let Some((merit, passes)) = found else { continue };
        let (p, m) = (pipe.devices() as u32, pipe.micro_batches as u32);
        assert_eq!(list_faults(&lists(&passes), p, m), [], "round {round}");
        assert!(limited.fits(&passes), "round {round}");
        assert_eq!(find(&limited, Aim::Time, &[]).unwrap().1, passes, "round {round}");
        let (_, smallest) = find(&limited, Aim::Memory, &[]).unwrap();
        assert!(limited.excess(&smallest) <= limited.excess(&passes), "round {round}");
        for known in handcrafted(pipe) {
            if limited.fits(&known) {
                assert!(Some(merit) <= pipe.merit(&known), "round {round}");
            }
        }
    }
}

/// Orders that are given up while they are filled leave the best one.
#[test]
fn giving_up_early_changes_nothing_that_is_found() {
    let mut random = Random::new(8);
    for round in 0..100 {
        let limited = random_pipe(&mut random);
        let pipe = &limited.pipe;
        let plain = plain(pipe.devices(), pipe.micro_batches);
        let known = handcrafted(pipe).into_iter().chain([plain]);
        let filled = habits().filter_map(|habit| fill(&limited, habit, Nanos(u64::MAX)));
        let fitting = known.chain(filled).filter(|own| limited.fits(own));
        let best = fitting.filter_map(|passes| pipe.merit(&passes)).min();
        let found = find(&limited, Aim::Time, &[]).map(|(merit, _)| merit);
        assert_eq!(found, best, "round {round}: {limited:?}");
    }
}

fn random_pipe(random: &mut Random) -> Limited {
    let devices = 1 + random.below(5) as usize;
    let stage = |random: &mut Random| StageHalves {
        forward: Nanos(1 + random.below(30)),
        input: Nanos(1 + random.below(30)),
        weight: Nanos(random.below(30)),
        down: Nanos(random.below(10)),
        up: Nanos(random.below(10)),
        kept: Kept {
            activation: Bytes(random.below(10)),
            retained: Bytes(1 + random.below(10)),
            adjoint: Bytes(random.below(10)),
        },
        values: [Bytes(0); 3],
        gradients: [Bytes(0); 3],
    };
    let stages: Vec<StageHalves> = (0..devices).map(|_| stage(random)).collect();
    let rooms = stages.iter().map(|stage| {
        let most = stage.kept.of(2 * devices).0 + 1;
        Bytes(stage.kept.of(1).0 * (random.below(9).min(1)) + random.below(most))
    });
    let rooms = rooms.collect();
    let rooms =
        if random.below(2) == 0 { Rooms::Live(rooms) } else { Rooms::Slots(rooms) };
    let micro_batches = 1 + random.below(9) as usize;
    Limited { pipe: Pipe { stages, micro_batches }, rooms }
}

/// Every order of the passes of one device.
fn every(micro_batches: usize) -> Vec<Vec<Half>> {
    let mut whole = vec![(Vec::new(), Account::default())];
    for _ in 0..3 * micro_batches {
        let longer = whole.iter().flat_map(|(passes, account)| {
            let next = [Half::Forward, Half::Input, Half::Weight].into_iter();
            let next = next.filter(|half| account.allows(*half, micro_batches));
            next.map(|half| {
                let passes: Vec<Half> = passes.iter().copied().chain([half]).collect();
                (passes, account.after(half, &Kept::default()))
            })
        });
        whole = longer.collect();
    }
    whole.into_iter().map(|(passes, _)| passes).collect()
}

/// The shortest longest stage span of all orders that have room.
fn optimum(limited: &Limited, every: &[Vec<Half>]) -> Option<Nanos> {
    let pipe = &limited.pipe;
    let fits = |device: usize, passes: &&Vec<Half>| {
        let kept = &pipe.stages[device].kept;
        pipe.account(device, passes).fits(kept, &limited.rooms, device)
    };
    let mut orders: Vec<Passes> = vec![Vec::new()];
    for device in 0..pipe.devices() {
        let own: Vec<&Vec<Half>> = every.iter().filter(|p| fits(device, p)).collect();
        let longer = orders.iter().flat_map(|order| {
            own.iter().map(|passes| [&order[..], &[(*passes).clone()]].concat())
        });
        orders = longer.collect();
    }
    let spans = orders.iter().filter_map(|order| pipe.merit(order));
    spans.map(|merit| merit.stage_span).min()
}

/// Nearly equal stages, so that no device alone decides, and little room.
#[test]
fn small_pipelines_get_the_best_of_all_orders() {
    let mut random = Random::new(3);
    for (p, m) in [(1, 4), (2, 2), (2, 3), (2, 4), (3, 2), (3, 3)] {
        let every = every(m);
        for _ in 0..8 {
            let time = |random: &mut Random, least| least + random.below(15);
            let (forward, input) = (time(&mut random, 5), time(&mut random, 5));
            let (weight, message) = (time(&mut random, 3), random.below(6));
            let room = 2 * (1 + random.below(2 * p as u64));
            let times = [forward, input, weight, message];
            let mut limited = equal((p, m), times, [1, 1], room);
            for stage in &mut limited.pipe.stages {
                stage.weight += Nanos(random.below(3));
            }
            let (merit, _) = find(&limited, Aim::Time, &[]).unwrap();
            let least = optimum(&limited, &every);
            assert_eq!(Some(merit.stage_span), least, "{limited:?}");
        }
    }
}
