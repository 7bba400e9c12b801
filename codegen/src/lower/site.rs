//! Which device and lane each (stage, micro-batch) runs on, as rings, axes and places.

use super::LowerError;
use roundelay_schedule::{
    Axis, AxisId, DeviceId, Fold, Group, GroupId, Id, Levels, LinkId, MicroBatch, Place,
    Placement, Plan, Ring, RingId, Splits, Stage, States, Table, Tie, strided,
};

/// The devices of one cell.
#[derive(Clone, Debug)]
pub(crate) struct Sites {
    pub(crate) axes: Table<AxisId, Axis>,
    pub(crate) rings: Table<RingId, Ring>,
    shape: Shape,
    /// The ring of each slice of a stage, and of each tie, where it depends on the stage.
    seats: Vec<usize>,
    /// The micro-batches that go up, where that makes a difference.
    up: Vec<bool>,
    /// Micro-batches that the cell takes itself.
    pub(crate) micro_batches: u32,
}

/// How (stage, micro-batch) finds its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// One ring of one device.
    One,
    /// One ring of one device, a lane per micro-batch.
    Lanes,
    /// A ring per micro-batch.
    PerWorker,
    /// A ring for some stages each.
    PerStage,
    /// A ring of two devices for some stages each: one for micro-batches that go down the
    /// stages' devices, one for those that go up.
    Mirrored,
}

/// A device and lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) at: Place,
    pub(crate) lane: u32,
}

/// The lane of what is beside a forward pass.
pub(crate) const BESIDE: u32 = 1;

impl Sites {
    /// The cell of a plan, and what repeats it.
    pub(crate) fn new(plan: &Plan) -> Self {
        let sync = plan.rule.is_synchronous();
        let cell = match plan.placement {
            Placement::Accumulate => Self::single(plan, Shape::One, 1),
            Placement::Concurrent => Self::single(plan, Shape::Lanes, plan.micro_batches),
            Placement::Data if sync => Self::single(plan, Shape::One, 1),
            Placement::Data => Self::lines(plan, Shape::PerWorker, plan.micro_batches),
            Placement::Shared if sync => Self::lines(plan, Shape::PerStage, plan.stages),
            Placement::Shared => Self::pools(plan),
            Placement::Pipeline if plan.order.fold() == Fold::Mirror => {
                Self::mirrored(plan)
            }
            Placement::Pipeline => {
                Self::lines(plan, Shape::PerStage, plan.pipeline_devices())
            }
        };
        Self { axes: axes(plan), micro_batches: plan.cell_micro_batches(), ..cell }
    }

    fn cell(plan: &Plan, shape: Shape, rings: Table<RingId, Ring>) -> Self {
        let seat = |stage| match plan.placement {
            Placement::Pipeline => {
                let whole = plan.whole_stage(Stage::numbered(stage));
                plan.seat(whole).expect("a plan that fits seats every stage")
            }
            _ => stage,
        };
        // A tie is where the first of its stages is.
        let ties = plan.ties.iter().filter_map(|Tie(users)| users.first().copied());
        let seats = (0..plan.pass_stages()).chain(ties);
        let seats = seats.map(|stage| seat(stage) as usize).collect();
        let micro_batches = plan.micro_batches;
        Self { axes: Table::new(), rings, shape, seats, up: Vec::new(), micro_batches }
    }

    fn single(plan: &Plan, shape: Shape, lanes: u32) -> Self {
        let device = plan.cell_devices().next().expect("a plan has a device");
        let ring = Ring { devices: vec![device], turn: 0, lanes };
        Self::cell(plan, shape, [ring].into_iter().collect())
    }

    fn lines(plan: &Plan, shape: Shape, count: u32) -> Self {
        let devices = plan.cell_devices().take(count as usize);
        let lanes = lanes(plan);
        let rings = devices.map(|d| Ring { devices: vec![d], turn: 0, lanes });
        Self::cell(plan, shape, rings.collect())
    }

    /// A ring for each pair of devices that stand opposite to each other: whoever has a stage on
    /// the way down, the other one has it on the way up.
    fn mirrored(plan: &Plan) -> Self {
        let devices: Vec<DeviceId> = plan.cell_devices().collect();
        let (first, second) = devices.split_at(devices.len() / 2);
        let pairs = first.iter().zip(second.iter().rev());
        let ring = |(one, other): (&DeviceId, &DeviceId)| Ring {
            devices: vec![*one, *other],
            turn: 0,
            lanes: lanes(plan),
        };
        let cell = Self::cell(plan, Shape::Mirrored, pairs.map(ring).collect());
        let (p, n) = (plan.pipeline_devices(), plan.micro_batches);
        let up = (0..n).map(|i| plan.order.goes_up(i, p, n)).collect();
        Self { up, ..cell }
    }

    /// A ring of devices per stage that turns by N: micro-batch number m = tN + i uses device
    /// m mod L.
    fn pools(plan: &Plan) -> Self {
        let devices: Vec<DeviceId> = plan.cell_devices().collect();
        let mut rest = devices.as_slice();
        let length =
            |j| plan.placement.ring(plan.rule, plan.micro_batches, plan.stages, j);
        let pool = |stage| {
            let (devices, others) = rest.split_at(length(stage) as usize);
            rest = others;
            Ring { devices: devices.to_vec(), turn: plan.micro_batches, lanes: 1 }
        };
        Self::cell(plan, Shape::PerStage, (0..plan.stages).map(pool).collect())
    }

    /// Where a stage handles a micro-batch in an action of this lag.
    pub(crate) fn site(&self, stage: Stage, micro_batch: MicroBatch, lag: u32) -> Site {
        let (ring, lane) = match self.shape {
            Shape::One => (0, 0),
            Shape::Lanes => (0, micro_batch.index()),
            Shape::PerWorker => (micro_batch.index(), 0),
            Shape::PerStage => (self.seats[stage.index()], 0),
            Shape::Mirrored => return self.mirror_site(stage, micro_batch),
        };
        let ring = RingId::new(ring);
        let number =
            micro_batch.index() as i64 - i64::from(lag) * i64::from(self.micro_batches);
        let place = number.rem_euclid(self.rings[ring].devices.len() as i64);
        let place = u32::try_from(place).expect("a ring has few devices");
        let lane = u32::try_from(lane).expect("lanes are counted in 32 bits");
        Site { at: Place { ring, place }, lane }
    }

    fn mirror_site(&self, stage: Stage, micro_batch: MicroBatch) -> Site {
        let last = 2 * self.rings.len() - 1;
        let seat = self.seats[stage.index()];
        let device = if self.up[micro_batch.index()] { last - seat } else { seat };
        let ring = RingId::new(device.min(last - device));
        let place = u32::from(device >= self.rings.len());
        Site { at: Place { ring, place }, lane: 0 }
    }

    /// The ring on which a stage handles a micro-batch.
    pub(crate) fn ring(&self, stage: Stage, micro_batch: MicroBatch) -> RingId {
        self.site(stage, micro_batch, 0).at.ring
    }

    /// The axes along which members take micro-batches of their own.
    pub(crate) fn batch_axes(&self) -> Vec<AxisId> {
        let batch = self.axes.iter().filter(|(_, axis)| axis.splits == Splits::Batch);
        batch.map(|(id, _)| id).collect()
    }

    /// Number of devices of a ring.
    pub(crate) fn length(&self, ring: RingId) -> u32 {
        let length = u32::try_from(self.rings[ring].devices.len());
        length.expect("a ring has few devices")
    }

    /// Whether several devices turn under the stages of a ring.
    pub(crate) fn turns(&self, ring: RingId) -> bool {
        self.shape != Shape::Mirrored && self.length(ring) > 1
    }

    /// The micro-batches that a ring sees when it handles a stage, in the streams of those that
    /// one of its devices sees.
    pub(crate) fn visitors(&self, ring: RingId) -> Vec<Vec<MicroBatch>> {
        let all = (0..self.micro_batches as usize).map(MicroBatch::new);
        match self.shape {
            Shape::PerWorker => vec![all.filter(|i| i.index() == ring.index()).collect()],
            Shape::One | Shape::Lanes | Shape::PerStage => vec![all.collect()],
            Shape::Mirrored => {
                let (up, down) = all.partition(|i| self.up[i.index()]);
                vec![down, up]
            }
        }
    }

    /// Whether a micro-batch goes the other way through the devices.
    pub(crate) fn goes_up(&self, i: MicroBatch) -> bool {
        self.shape == Shape::Mirrored && self.up[i.index()]
    }

    /// Which of the streams that pass a ring a micro-batch belongs to, for a value that goes from
    /// one stage to another: where both are on one ring, the streams are in each other's way.
    pub(crate) fn lane_of(
        &self,
        ring: RingId,
        i: MicroBatch,
        (first, last): (Stage, Stage),
    ) -> u32 {
        let own = |stage: &usize| {
            let seat = self.seats[*stage];
            seat.min((2 * self.rings.len() - 1).saturating_sub(seat)) == ring.index()
        };
        let meets =
            self.goes_up(i) && (first.index()..=last.index()).filter(own).count() > 1;
        u32::from(meets)
    }

    /// A place that has the links of this one: every device of a ring that turns takes every place.
    pub(crate) fn anywhere(&self, at: Place) -> Place {
        let place = if self.turns(at.ring) { 0 } else { at.place };
        Place { place, ..at }
    }

    /// The link level between two places at every coordinate; where rings turn, that between
    /// every pair of their devices.
    pub(crate) fn link(
        &self,
        levels: &Levels<'_>,
        from: Place,
        to: Place,
    ) -> Result<LinkId, LowerError> {
        let own = |at: Place| match self.turns(at.ring) {
            true => self.rings[at.ring].devices.clone(),
            false => vec![self.rings[at.ring].devices[at.place as usize]],
        };
        let (from, to) = (own(from), own(to));
        if let Some(link) = self.innermost(levels, &from, &to) {
            return Ok(link);
        }
        let pairs = from.iter().flat_map(|one| to.iter().map(|two| (*one, *two)));
        let at = |(one, two): (DeviceId, DeviceId)| {
            let pair = move |shift| (one.shifted(shift), two.shifted(shift));
            self.shifts(&[]).into_iter().map(pair).collect::<Vec<_>>()
        };
        common_link(levels, pairs.flat_map(at))
    }

    /// The link of the innermost domain that holds devices and all that repeat them: it joins every pair of
    /// them, and a ring of thousands has too many pairs to ask for each.
    fn innermost(
        &self,
        levels: &Levels<'_>,
        from: &[DeviceId],
        to: &[DeviceId],
    ) -> Option<LinkId> {
        let all = || from.iter().chain(to).copied();
        let (first, last) = (all().min()?, all().max()?);
        let last_of_all = last.shifted(self.axes.values().map(reach).sum());
        let (level, link) = levels.level_between(first, last_of_all)?;
        (first != last && level == 0).then_some(link)
    }

    /// All members along some axes at one place, and the link level that joins them wherever
    /// the other axes are.
    pub(crate) fn members(
        &self,
        levels: &Levels<'_>,
        ring: RingId,
        axes: Vec<AxisId>,
    ) -> Result<(Group, LinkId), LowerError> {
        let device = self.rings[ring].devices[0];
        let reach: u32 = axes.iter().map(|id| reach(&self.axes[*id])).sum();
        let ends = |shift| (device.shifted(shift), device.shifted(shift + reach));
        let link = common_link(levels, self.shifts(&axes).into_iter().map(ends))?;
        Ok((Group { places: vec![Place { ring, place: 0 }], axes }, link))
    }

    /// How far the devices of a coordinate lie behind those of the cell, for every coordinate
    /// that is zero along `fixed`.
    fn shifts(&self, fixed: &[AxisId]) -> Vec<u32> {
        let others = self.axes.iter().filter(|(id, _)| !fixed.contains(id));
        strided(others.map(|(_, axis)| (axis.extent, axis.stride)))
    }
}

/// Lanes of a device in a pipeline.
fn lanes(plan: &Plan) -> u32 {
    let pairs = plan.placement == Placement::Pipeline && plan.has_pairs();
    if pairs { 1 + BESIDE } else { 1 }
}

/// What repeats a cell: all that hold the same stages, under `hsdp` in two levels; then the parts
/// of split tensors, side by side.
fn axes(plan: &Plan) -> Table<AxisId, Axis> {
    let members = plan.members();
    let stride = plan.device_count() / members.max(1);
    let axis = |name: &str, extent, stride| Axis {
        name: name.to_owned(),
        extent,
        stride,
        splits: Splits::Batch,
    };
    let folded = match plan.placement {
        Placement::Data | Placement::Shared => plan.rule.is_synchronous(),
        Placement::Accumulate | Placement::Concurrent | Placement::Pipeline => false,
    };
    let parts = plan.tensor.parts();
    let mut axes = match plan.states {
        States::Hsdp => vec![
            axis("replica", members / plan.shards, stride * plan.shards),
            axis("shard", plan.shards, stride),
        ],
        _ if folded => vec![axis("worker", members, stride)],
        _ if members > 1 => vec![axis("replica", members, stride)],
        _ => Vec::new(),
    };
    if parts > 1 {
        let name = if plan.tensor.columns == 1 { "row" } else { "part" }.to_owned();
        axes.push(Axis { name, extent: parts, stride: 1, splits: Splits::Tensors });
    }
    axes.into_iter().collect()
}

/// How far the last coordinate of an axis lies behind the first.
fn reach(axis: &Axis) -> u32 {
    (axis.extent - 1) * axis.stride
}

fn common_link(
    levels: &Levels<'_>,
    pairs: impl Iterator<Item = (DeviceId, DeviceId)>,
) -> Result<LinkId, LowerError> {
    let mut found = None;
    for (one, two) in pairs.filter(|(one, two)| one != two) {
        let joined = levels.link_between(one, two);
        let link = joined.ok_or(LowerError::NoLink(one, two))?;
        match found {
            Some(other) if other != link => return Err(LowerError::MixedLinks(one, two)),
            _ => found = Some(link),
        }
    }
    let any = || levels.target().links.ids().next().ok_or(LowerError::NoLinks);
    found.map_or_else(any, Ok)
}

/// The group table's rows are equal when places and axes are.
pub(crate) fn group_of(groups: &mut Table<GroupId, Group>, group: Group) -> GroupId {
    let known = groups.iter().find(|(_, row)| **row == group).map(|(id, _)| id);
    known.unwrap_or_else(|| groups.push(group))
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_schedule::{BytesPerSecond, Domain, Link, Nanos, Target};

    /// Four devices to a node, four nodes.
    fn nodes() -> Target {
        let mut target = Target::default();
        let link = |name| Link::plain(name, BytesPerSecond(1), Nanos(1));
        let [inner, outer] =
            ["nvlink", "infiniband"].map(|name| target.links.push(link(name)));
        let node = |first: u32| Domain { link: inner, devices: first..first + 4 };
        target.domains = (0..4).map(|number| node(4 * number)).collect();
        target.domains.push(Domain { link: outer, devices: 0..16 });
        target
    }

    /// Two rings that turn, and what repeats them.
    fn sites(rings: [std::ops::Range<usize>; 2], axis: (u32, u32)) -> Sites {
        let ring = |devices: std::ops::Range<usize>| Ring {
            devices: devices.map(DeviceId::new).collect(),
            turn: 1,
            lanes: 1,
        };
        let (name, splits, (extent, stride)) =
            ("replica".to_owned(), Splits::Batch, axis);
        Sites {
            axes: [Axis { name, extent, stride, splits }].into_iter().collect(),
            rings: rings.map(ring).into_iter().collect(),
            shape: Shape::PerStage,
            seats: vec![0, 1],
            up: Vec::new(),
            micro_batches: 1,
        }
    }

    /// Whatever is left out because it is known, the answer is that of all pairs.
    #[test]
    fn the_link_between_rings_is_that_of_every_pair_of_their_devices() {
        let target = nodes();
        let levels = Levels::new(&target);
        let places = [0, 1].map(|ring| Place { ring: RingId::new(ring), place: 0 });
        let (mut joined, mut mixed) = (0, 0);
        for (first, second) in (0..6).flat_map(|one| (0..6).map(move |two| (one, two))) {
            for (length, axis) in [(1, (1, 1)), (2, (1, 1)), (2, (2, 4)), (1, (2, 8))] {
                let sites = sites([first..first + length, second..second + length], axis);
                let found = sites.link(&levels, places[0], places[1]);
                let devices = |ring| &sites.rings[RingId::new(ring)].devices;
                let pairs = devices(0)
                    .iter()
                    .flat_map(|one| devices(1).iter().map(|two| (*one, *two)));
                let shifts = sites.shifts(&[]);
                let each = pairs.flat_map(|(one, two)| {
                    shifts.iter().map(move |by| (one.shifted(*by), two.shifted(*by)))
                });
                let expected = common_link(&levels, each);
                joined += usize::from(found.is_ok());
                mixed += usize::from(found.is_err());
                assert_eq!(
                    found.ok(),
                    expected.ok(),
                    "{first} {second} {length} {axis:?}"
                );
            }
        }
        assert!(joined > 0 && mixed > 0, "{joined} are joined, {mixed} are not");
    }

    /// Rings that turn have the links of any of their places; mirrored ones do not turn.
    #[test]
    fn a_place_that_stands_for_others_has_their_links() {
        let target = nodes();
        let levels = Levels::new(&target);
        let turning = sites([0..2, 2..4], (1, 1));
        let mirrored = Sites { shape: Shape::Mirrored, ..sites([3..5, 6..8], (1, 1)) };
        for sites in [turning, mirrored] {
            let places = || {
                (0..4).map(|at: u32| Place {
                    ring: RingId::numbered(at / 2),
                    place: at % 2,
                })
            };
            for (from, to) in places().flat_map(|one| places().map(move |two| (one, two)))
            {
                let [found, stands] =
                    [(from, to), (sites.anywhere(from), sites.anywhere(to))]
                        .map(|(from, to)| sites.link(&levels, from, to).ok());
                assert_eq!(found, stands, "{from} {to} {:?}", sites.shape);
            }
        }
    }
}
