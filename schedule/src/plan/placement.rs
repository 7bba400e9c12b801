//! How tasks meet devices, and how many devices that takes.

use crate::{Order, Rule, Timeline, gcd, spelled::spelled};

spelled! {
    /// How tasks meet devices.
    pub enum Placement: "placement" {
        /// One device, one micro-batch after another.
        Accumulate = "accumulate",
        /// One device, N lanes.
        Concurrent = "concurrent",
        /// A device per worker.
        Data = "data",
        /// A ring of devices per stage: N − j + 1 under a cyclic rule, N under sync.
        Shared = "shared",
        /// A device per stage.
        Pipeline = "pipeline",
    }
}

impl Placement {
    /// Ring length of a stage (counted from zero): how many devices turn under it. A cyclic
    /// worker holds stage j for 2(S − j) of the 2S time slots between its micro-batches, and
    /// workers start 2S/N slots apart: ⌈N(S − j)/S⌉ at a time, N − j for S = N.
    pub fn ring(self, rule: Rule, micro_batches: u32, stages: u32, stage: u32) -> u32 {
        match (self, rule) {
            (
                Placement::Shared,
                Rule::CyclicV1 | Rule::CyclicV2 | Rule::CyclicSlack(_),
            ) => {
                let [n, s, left] = [micro_batches, stages, stages - stage].map(u64::from);
                u32::try_from((n * left).div_ceil(s)).unwrap_or(u32::MAX)
            }
            _ => 1,
        }
    }

    /// Whether an order is one of a rule on devices that are placed like this.
    pub fn takes(self, order: Order, rule: Rule) -> bool {
        match (self, rule) {
            (_, Rule::Local { .. }) => self.orders_of_units().contains(&order),
            (Placement::Accumulate, _) => order == Order::Sequential,
            (Placement::Pipeline, Rule::Sync) => order.is_of_pipelines(),
            (Placement::Concurrent | Placement::Data | Placement::Shared, Rule::Sync) => {
                order == Order::Parallel
            }
            (
                Placement::Concurrent
                | Placement::Data
                | Placement::Shared
                | Placement::Pipeline,
                Rule::CyclicV1 | Rule::CyclicV2 | Rule::CyclicSlack(_),
            ) => order == Order::Cyclic,
        }
    }

    /// Which timeline its version map belongs to.
    pub fn timeline(self) -> Timeline {
        match self {
            Placement::Pipeline => Timeline::FlushFree,
            Placement::Accumulate
            | Placement::Concurrent
            | Placement::Data
            | Placement::Shared => Timeline::Workers,
        }
    }

    /// How many devices one cell takes whose pipeline, if it is one, has `pipeline` devices; the
    /// largest number there is where it is more. Rings of all stages are
    /// Σ ⌈N k / S⌉ = (N S + N + S − gcd(N, S)) / 2 over k = 1 … S.
    pub fn devices(
        self,
        rule: Rule,
        micro_batches: u32,
        stages: u32,
        pipeline: u32,
    ) -> u32 {
        match (self, rule) {
            (Placement::Accumulate | Placement::Concurrent, _) => 1,
            (Placement::Data, _) => micro_batches,
            (Placement::Shared, rule) if rule.is_synchronous() => {
                micro_batches.saturating_mul(stages)
            }
            (Placement::Shared, _) => {
                let [n, s] = [micro_batches, stages].map(u64::from);
                let twice = u128::from(n) * u128::from(s) + u128::from(n + s);
                let twice = twice - u128::from(gcd(n, s));
                u32::try_from(twice / 2).unwrap_or(u32::MAX)
            }
            (Placement::Pipeline, _) => pipeline,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_the_devices_of_its_rings() {
        let shared = Placement::Shared;
        for rule in [Rule::CyclicV1, Rule::CyclicV2, Rule::CyclicSlack(3)] {
            for (n, s) in (1..30).flat_map(|n| (1..30).map(move |s| (n, s))) {
                let rings = (0..s).map(|stage| shared.ring(rule, n, s, stage));
                assert_eq!(shared.devices(rule, n, s, 0), rings.sum(), "{n}, {s}");
            }
        }
    }

    #[test]
    fn more_devices_than_can_be_counted_are_as_many_as_can_be() {
        let devices = |rule, n, s| Placement::Shared.devices(rule, n, s, 0);
        assert_eq!(devices(Rule::Sync, 8192, 1 << 20), u32::MAX);
        assert_eq!(devices(Rule::CyclicV2, 8192, 1 << 20), u32::MAX);
        assert_eq!(devices(Rule::CyclicV2, u32::MAX, u32::MAX), u32::MAX);
        assert_eq!(devices(Rule::CyclicV2, 1, u32::MAX), u32::MAX);
        let ring = Placement::Shared.ring(Rule::CyclicV2, u32::MAX, u32::MAX, 0);
        assert_eq!(ring, u32::MAX);
    }
}
