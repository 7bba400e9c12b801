//! The search against clocking every plan, on random small programs and clusters.

use super::{all, delayed, everything};
use crate::{Options, ranking::survey, sample::Random};
use roundelay_dsl::{Learning, NanoDollarsPerHour, Objective, Program};
use roundelay_schedule::{Bytes, BytesPerSecond, FlopsPerSecond, Nanos};

/// Devices, rates, latency, room and objective at random.
pub(crate) fn random_program(random: &mut Random) -> Program {
    let devices = 1 + usize::try_from(random.below(3)).unwrap();
    let batch = [1, 2, 4, 6][usize::try_from(random.below(4)).unwrap()];
    let mut program = delayed(devices, batch);
    program.search.objective = Objective::ALL[usize::try_from(random.below(5)).unwrap()];
    for id in program.target.devices.ids() {
        let price = NanoDollarsPerHour(1_000_000_000 * (1 + random.below(4)));
        program.prices.insert(id, price);
    }
    program.search.learning = Learning {
        least_steps: Some(1 + random.below(1000)),
        critical_batch: Some(random.below(64)),
        staleness: Some(random.below(2000)),
    };
    for (_, device) in program.target.devices.iter_mut() {
        device.compute = FlopsPerSecond(1_000_000 << random.below(12));
        device.bandwidth = BytesPerSecond(1_000_000 << random.below(12));
    }
    for (_, link) in program.target.links.iter_mut() {
        link.bandwidth = BytesPerSecond(1_000_000 << random.below(12));
        link.latency = Nanos(random.below(100_000));
    }
    if random.below(2) == 0 {
        program.search.memory = Some(Bytes(2_000 << random.below(6)));
    }
    program
}

#[test]
fn the_search_finds_what_clocking_every_plan_finds() {
    let mut random = Random::new(83);
    let mut found = 0;
    for round in 0..40 {
        let program = random_program(&mut random);
        let best_first = Options { top: 1, clocked_max: usize::MAX };
        let ranking = survey(&program, &best_first);
        if ranking.plans.is_empty() {
            assert!(survey(&program, &everything()).plans.is_empty(), "round {round}");
            continue;
        }
        found += 1;
        let every = all(&program);
        let [best, least] = [&ranking.plans[0], &every.plans[0]];
        assert!(ranking.optimal, "round {round}: gap {}", ranking.gap);
        assert_eq!(best.plan, least.plan, "round {round}");
        assert_eq!(best.step_time, least.step_time, "round {round}");
        assert_eq!(best.device_peak, least.device_peak, "round {round}");
    }
    assert!(found > 12, "only {found} programs have a plan");
}
