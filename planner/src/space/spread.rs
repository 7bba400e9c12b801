//! On which devices the stages of a plan are, at all coordinates.

use crate::space::{counts::Counts, cutting::Seats, family::Family};
use roundelay_schedule::{
    DeviceId, DeviceList, Fold, Id, Placement, Plan, Rule, listed_in,
};
use std::collections::BTreeMap;

/// How the stages of a plan are spread over its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spread {
    shape: Shape,
    /// The first device.
    first: u32,
    /// How often a cell is repeated, and how far one lies behind the one before.
    members: u32,
    stride: u32,
    /// Devices side by side that split tensors.
    parts: u32,
}

/// Which devices of a cell have a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Shape {
    /// All have every stage.
    Whole,
    /// Those of a pipeline.
    Seats(Seats),
    /// One each.
    Row,
    /// A ring each, as long as this rule and this many micro-batches of so many stages want it.
    Rings(Rule, u32, u32),
}

impl Spread {
    /// That of a plan with these decisions, which takes this many devices.
    pub(crate) fn new(family: Family, counts: Counts, devices: u32) -> Self {
        let Counts { micro_batches, stages, chunks, first_device: first, .. } = counts;
        let members = counts.members(family).max(1);
        let (stride, parts) = (devices / members, counts.tensor.parts().max(1));
        let shape = match family.placement {
            Placement::Accumulate | Placement::Concurrent | Placement::Data => {
                let (shape, members, stride) = (Shape::Whole, 1, devices);
                return Self { shape, first, members, stride, parts };
            }
            Placement::Pipeline => {
                let (fold, devices) = (family.order.fold(), stages / chunks.max(1));
                Shape::Seats(Seats { fold, devices: devices.max(1) })
            }
            Placement::Shared if family.rule.is_synchronous() => Shape::Row,
            Placement::Shared => Shape::Rings(family.rule, micro_batches, stages),
        };
        Self { shape, first, members, stride, parts }
    }

    /// That of a plan.
    pub(crate) fn of(plan: &Plan) -> Self {
        Self::new(Family::from(plan), Counts::from(plan), plan.device_count())
    }

    /// The first device.
    pub(crate) fn first(self) -> u32 {
        self.first
    }

    /// The numbers in a cell of the devices that have a stage, where a program has these lists.
    fn seats(self, stage: u32, lists: &[DeviceList]) -> Vec<u32> {
        let names = |list: &&DeviceList| {
            listed_in(list).any(|listed| listed.stage.index() == stage as usize)
        };
        match self.shape {
            Shape::Whole => vec![0],
            Shape::Row | Shape::Rings(..) => vec![stage],
            Shape::Seats(seats) => match seats.fold {
                Fold::Lists => {
                    let own = (0..).zip(lists).filter(|(_, list)| names(list));
                    own.map(|(seat, _)| seat).collect()
                }
                Fold::Mirror => {
                    let seat = seats.of(stage);
                    vec![seat, (seats.devices - 1).saturating_sub(seat)]
                }
                Fold::Loop | Fold::Snake => vec![seats.of(stage)],
            },
        }
    }

    /// The devices of a cell at a number, repeated at all coordinates: those of a stage, or of a device
    /// of a pipeline.
    pub(crate) fn at(self, seat: u32) -> impl Iterator<Item = DeviceId> {
        let Self { shape, first, members, stride, parts } = self;
        let own = match shape {
            Shape::Whole => 0..stride,
            Shape::Seats(_) | Shape::Row => seat * parts..(seat + 1) * parts,
            Shape::Rings(rule, n, s) => {
                let length = |stage| Placement::Shared.ring(rule, n, s, stage);
                let before: u32 = (0..seat).map(length).sum();
                before * parts..(before + length(seat)) * parts
            }
        };
        let repeated =
            move |member: u32| own.clone().map(move |own| first + member * stride + own);
        let all = (0..members).flat_map(repeated);
        all.map(|device| DeviceId::new(device as usize))
    }

    /// The devices that have a stage, where a program has these lists.
    pub(crate) fn stage(
        self,
        stage: u32,
        lists: &[DeviceList],
    ) -> impl Iterator<Item = DeviceId> {
        self.seats(stage, lists).into_iter().flat_map(move |seat| self.at(seat))
    }

    /// What is made of the devices of each of this many stages, once for all that are on the same.
    pub(crate) fn each_stage<T: Clone>(
        self,
        stages: u32,
        lists: &[DeviceList],
        make: impl Fn(&mut dyn Iterator<Item = DeviceId>) -> T,
    ) -> Vec<T> {
        let mut known = BTreeMap::new();
        let of_stage = |stage| {
            let made = known.entry(self.seats(stage, lists));
            let new = |seats: &Vec<u32>| {
                make(&mut seats.iter().flat_map(|seat| self.at(*seat)))
            };
            made.or_insert_with_key(new).clone()
        };
        (0..stages).map(of_stage).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_has_its_own_devices() {
        let seats = |fold| Shape::Seats(Seats { fold, devices: 4 });
        let shapes = [
            Shape::Whole,
            Shape::Row,
            Shape::Rings(Rule::CyclicV2, 4, 8),
            seats(Fold::Loop),
            seats(Fold::Snake),
            seats(Fold::Mirror),
        ];
        for shape in shapes {
            let spread = Spread { shape, first: 3, members: 2, stride: 40, parts: 2 };
            let each = spread.each_stage(8, &[], |devices| devices.collect::<Vec<_>>());
            let own = (0..8).map(|stage| spread.stage(stage, &[]).collect::<Vec<_>>());
            assert_eq!(each, own.collect::<Vec<_>>(), "{shape:?}");
        }
    }
}
