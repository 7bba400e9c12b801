//! What is minimised: the numbers of a program that an objective needs, what a plan is worth
//! under it, and the order in which it puts plans.

use crate::search::candidate::Candidate;
use roundelay_dsl::{Learning, Objective, Program};
use roundelay_schedule::{Bytes, DeviceId, Id, Nanos, Plan, Rule};
use std::fmt;

/// An objective with what the program says about prices and about how its model learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    /// What is minimised.
    pub objective: Objective,
    /// Examples of one training step.
    batch: u32,
    /// Price of each device in billionths of a dollar per hour.
    prices: Vec<Option<u64>>,
    /// For every k, what those of the first k devices cost together that have a price, and how many
    /// have none.
    firsts: Vec<(u128, usize)>,
    curve: Option<Curve>,
}

/// steps(B, τ) = S_min (1 + s τ + B_crit / B): with a batch of B the noise of gradients costs
/// B_crit / B of the least steps (McCandlish et al. 2018, Shallue et al. 2019), and a delay of τ
/// updates s τ of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Curve {
    /// S_min.
    least_steps: u64,
    /// B_crit, in examples.
    critical_batch: u64,
    /// 1000 s.
    staleness: u64,
}

/// 10⁻¹⁵ US dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FemtoDollars(pub u128);

/// What an objective compares: lexicographic, less is better. The objective's own number comes
/// first, what is stale, in millionths, and the place in the order of the search last, so that
/// no two plans are equal.
pub(crate) type Score = (u128, [u64; 4]);

/// Nanoseconds in which 10⁻⁹ dollars an hour cost 10⁻¹⁵ dollars.
const NANOS_PER_PRICE: u128 = 3_600_000;

impl Goal {
    /// The objective of a program.
    pub fn new(program: &Program) -> Self {
        let price = |id: DeviceId| program.prices.get(&id).map(|price| price.0);
        let prices: Vec<Option<u64>> = program.target.devices.ids().map(price).collect();
        let mut firsts = vec![(0, 0)];
        for price in &prices {
            let (sum, unknown) = firsts[firsts.len() - 1];
            firsts.push(match price {
                Some(price) => (sum + u128::from(*price), unknown),
                None => (sum, unknown + 1),
            });
        }
        Self {
            objective: program.search.objective,
            batch: program.train.batch,
            prices,
            firsts,
            curve: Curve::new(program.search.learning),
        }
    }

    /// The same program, with memory as what is minimised.
    pub(crate) fn by_memory(&self) -> Self {
        Self { objective: Objective::Memory, ..self.clone() }
    }

    /// The best of some plans, in order: so many, but one at least.
    pub(crate) fn keep_best(&self, plans: &mut Vec<Candidate>, most: usize) {
        plans.sort_by_key(|candidate| candidate.score(self));
        plans.truncate(most.max(1));
    }

    /// The score of a plan, or of its bounds. Each number of a bound is at most that of its plan,
    /// and what a plan is worth never falls with its time, so a bound never comes after its plan.
    pub(crate) fn score(
        &self,
        standing: Standing,
        step_time: Nanos,
        peak: Bytes,
        number: usize,
    ) -> Score {
        let Standing { devices, hourly, stale, delay } = standing;
        let (time, memory, number) = (step_time.0, peak.0, number as u64);
        match self.objective {
            Objective::StepTime => (time.into(), [memory, devices, stale, number]),
            Objective::Memory => (memory.into(), [time, devices, stale, number]),
            Objective::Devices => (devices.into(), [time, memory, stale, number]),
            Objective::Cost => {
                let cost = hourly.map(|hourly| price_of(hourly, step_time));
                (cost.unwrap_or_default().0, [time, memory, stale, number])
            }
            Objective::TimeToResult => {
                let steps = self.curve.map(|curve| curve.steps(self.batch, delay));
                let result = steps.map(|steps| steps.saturating_mul(time.into()));
                (result.unwrap_or_default(), [memory, devices, stale, number])
            }
        }
    }

    /// What a training step of a plan costs that takes `step_time`: device-hours at their prices,
    /// rounded down; nothing is known when a device in use has no price.
    pub fn cost(&self, plan: &Plan, step_time: Nanos) -> Option<FemtoDollars> {
        self.hourly(plan).map(|hourly| price_of(hourly, step_time))
    }

    /// What the devices of a plan cost in an hour, in billionths of a dollar.
    fn hourly(&self, plan: &Plan) -> Option<u128> {
        let price = |id: &DeviceId| self.prices.get(id.index()).copied().flatten();
        plan.devices.iter().map(|id| price(id).map(u128::from)).sum()
    }

    /// How a plan stands.
    pub(crate) fn standing(&self, plan: &Plan) -> Standing {
        let (stale, all) = plan.delays.stale();
        Standing {
            devices: plan.devices.len() as u64,
            hourly: self.hourly(plan),
            stale: stale as u64 * 1_000_000 / (all as u64).max(1),
            delay: plan.delays.max(),
        }
    }

    /// How a plan stands at best that takes this many devices from the first one on; some parameters
    /// lag behind under a cyclic rule.
    pub(crate) fn standing_at_best(
        &self,
        (first, devices): (u32, u32),
        rule: Rule,
    ) -> Standing {
        let until = |end: u32| self.firsts.get(end as usize).copied();
        let ends = until(first).zip(until(first.saturating_add(devices)));
        let priced = ends.filter(|(begin, end)| begin.1 == end.1);
        Standing {
            devices: u64::from(devices),
            hourly: priced.map(|(begin, end)| end.0 - begin.0),
            stale: 0,
            delay: u32::from(!rule.is_synchronous()),
        }
    }

    /// What a million examples cost.
    pub fn cost_of_a_million(&self, plan: &Plan, step_time: Nanos) -> Option<f64> {
        let step = self.cost(plan, step_time)?;
        Some(step.dollars() * 1e6 / f64::from(self.batch))
    }

    /// Training steps until the result, rounded up; the delay is the plan's largest, so a rule
    /// that delays a part counts as one that delays all. Nothing is known without constants.
    pub fn steps_to_result(&self, plan: &Plan) -> Option<u64> {
        let steps = self.curve?.steps(self.batch, plan.delays.max());
        Some(u64::try_from(steps).unwrap_or(u64::MAX))
    }

    /// Time until the result.
    pub fn time_to_result(&self, plan: &Plan, step_time: Nanos) -> Option<Nanos> {
        Some(times(u128::from(self.steps_to_result(plan)?), step_time))
    }
}

/// What a score needs to know of a plan besides its costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// Devices in use.
    devices: u64,
    /// What they cost in an hour, in billionths of a dollar.
    hourly: Option<u128>,
    /// The part that is not fresh, in millionths.
    stale: u64,
    /// Updates that some parameters lag behind.
    delay: u32,
}

/// What a time costs at a price per hour, rounded down. 10⁻⁹ dollars an hour are as many 10⁻¹⁵ in
/// 3.6 ms; whole ones are taken first, so that no product leaves 128 bits.
fn price_of(hourly: u128, time: Nanos) -> FemtoDollars {
    let time = u128::from(time.0);
    let (whole, rest) = (hourly / NANOS_PER_PRICE, hourly % NANOS_PER_PRICE);
    FemtoDollars(whole * time + rest * time / NANOS_PER_PRICE)
}

fn times(steps: u128, time: Nanos) -> Nanos {
    let all = steps.saturating_mul(u128::from(time.0));
    Nanos(u64::try_from(all).unwrap_or(u64::MAX))
}

impl Curve {
    fn new(learning: Learning) -> Option<Self> {
        let Learning { least_steps, critical_batch, staleness } = learning;
        Some(Self {
            least_steps: least_steps?,
            critical_batch: critical_batch?,
            staleness: staleness?,
        })
    }

    /// ⌈S_min (1000 B + 1000 s τ B + 1000 B_crit) / (1000 B)⌉.
    fn steps(self, batch: u32, delay: u32) -> u128 {
        let batch = u128::from(batch.max(1));
        let stretched = batch * (1000 + u128::from(self.staleness) * u128::from(delay));
        let noisy = 1000 * u128::from(self.critical_batch);
        (u128::from(self.least_steps) * (stretched + noisy)).div_ceil(1000 * batch)
    }
}

impl FemtoDollars {
    /// In US dollars.
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1e15
    }
}

impl fmt::Display for FemtoDollars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&dollars(self.dollars()))
    }
}

/// An amount of US dollars with at least three digits that count.
pub(crate) fn dollars(amount: f64) -> String {
    match amount {
        0.0 => "0 USD".to_owned(),
        small if small < 0.01 => format!("{small:.2e} USD"),
        middle if middle < 1.0 => format!("{middle:.4} USD"),
        large => format!("{large:.2} USD"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use roundelay_dsl::NanoDollarsPerHour;
    use roundelay_schedule::{Order, Placement, Rule};

    fn learning(staleness: u64) -> Learning {
        Learning {
            least_steps: Some(1000),
            critical_batch: Some(512),
            staleness: Some(staleness),
        }
    }

    #[test]
    fn steps_are_those_of_the_published_curve() {
        let curve = Curve::new(learning(1000)).expect("every constant is there");
        let steps = [64, 256, 512, 1024, 4096].map(|batch| curve.steps(batch, 0));
        assert_eq!(steps, [9000, 3000, 2000, 1500, 1125]);
        assert_eq!(curve.steps(512, 1), 3000);
        assert_eq!(Curve { staleness: 250, ..curve }.steps(512, 2), 2500);
        assert_eq!(Curve { staleness: 0, ..curve }.steps(512, 9), 2000);
        assert_eq!(curve.steps(1000, 0), 1512);
        assert_eq!(Curve { least_steps: 1, ..curve }.steps(1000, 0), 2);
    }

    /// With t = α + β B / P the best batch is √(B_crit α P / β).
    #[test]
    fn the_best_batch_is_that_of_the_closed_form() {
        let curve = Curve::new(learning(1000)).expect("every constant is there");
        let fine = Curve { least_steps: 1_000_000, ..curve };
        let step = |batch: u32| 20_000_000 + 1_000_000 * u128::from(batch) / 8;
        let time = |batch: &u32| fine.steps(*batch, 0) * step(*batch);
        let best = (1..2000).min_by_key(time).expect("there are batches");
        let closed = (512.0_f64 * 0.02 * 8.0 / 0.001).sqrt();
        assert!((f64::from(best) - closed).abs() < 3.0, "{best} is not {closed}");
        let seconds = time(&best) as f64 / 1e12;
        assert!((seconds - 155.55).abs() < 0.01, "{seconds}");
    }

    #[test]
    fn an_hour_of_two_devices_costs_both_prices() {
        let mut program = sample::program(2, 8);
        let ids: Vec<DeviceId> = program.target.devices.ids().collect();
        program.prices.insert(ids[0], NanoDollarsPerHour(2_500_000_000));
        let hour = Nanos(3_600_000_000_000);
        let goal = Goal::new(&program);
        let cost = |goal: &Goal, devices| goal.cost(&sample::plan_on(devices), hour);
        assert_eq!(cost(&goal, 1).map(FemtoDollars::dollars), Some(2.5));
        assert_eq!(cost(&goal, 2), None);
        program.prices.insert(ids[1], NanoDollarsPerHour(500_000_000));
        let goal = Goal::new(&program);
        assert_eq!(cost(&goal, 2).map(FemtoDollars::dollars), Some(3.0));
        let plan = sample::plan_on(2);
        assert_eq!(goal.cost_of_a_million(&plan, hour), Some(375_000.0));
        let step = goal.cost(&plan, Nanos(1_000_000)).expect("both have a price");
        assert_eq!(step, FemtoDollars(833_333_333));
        assert_eq!(step.to_string(), "8.33e-7 USD");
    }

    /// Money does not end before time does.
    #[test]
    fn the_longest_step_of_the_dearest_cluster_costs_what_it_does() {
        let hourly = 16_384 * 1_000_000_000_000_000_000;
        let cost = price_of(hourly, Nanos::NEVER).dollars();
        let hours = Nanos::NEVER.0 as f64 / 3.6e12;
        let expected = 16_384.0 * 1e9 * hours;
        assert!((cost / expected - 1.0).abs() < 1e-9, "{cost} is not {expected}");
        assert_eq!(price_of(3_600_001, Nanos(7_200_000)), FemtoDollars(7_200_002));
        assert_eq!(price_of(3_599_999, Nanos(1)), FemtoDollars(0));
    }

    #[test]
    fn what_a_plan_is_worth_never_falls_with_its_time() {
        let mut program = sample::program(2, 8);
        for id in program.target.devices.ids() {
            program.prices.insert(id, NanoDollarsPerHour(7));
        }
        program.search.learning = learning(300);
        let plan =
            sample::plan(Rule::CyclicV2, Placement::Concurrent, Order::Cyclic, 2, 2);
        for objective in Objective::ALL {
            program.search.objective = objective;
            let goal = Goal::new(&program);
            let standing = goal.standing(&plan);
            let score = |time| goal.score(standing, Nanos(time), Bytes(5), 0);
            let times = [0, 1, 9, 1_000, 10_000_000, u64::MAX];
            assert!(times.map(score).is_sorted(), "{objective:?}");
        }
    }
}
