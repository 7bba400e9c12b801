//! The schedule as data: well formed, not yet checked.

use crate::{
    Access, Action, ActionId, Axis, AxisId, Buffer, BufferId, Bytes, DeviceId, Group,
    GroupId, Id, Job, Kind, Place, Plan, Queue, Ring, RingId, Routine, RoutineId, Row,
    Splits, Stage, Table, Target, Task, Work, strided,
};
use std::collections::{BTreeMap, BTreeSet};

/// The file format's version.
pub const FORMAT: u32 = 1;

/// A schedule: what codegen returns and the file reader makes; [`crate::check`] turns it into
/// proof.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Hashes of what the model computes, of model and cluster, and of the routines as they were compiled
    /// ([`Schedule::code_digest`]), as 16 hexadecimal digits each with dashes in between. Without the
    /// last, nothing is said of routines.
    pub fingerprint: String,
    /// The pools, devices and links that it was made for.
    pub target: Target,
    /// Every decision that it follows.
    pub plan: Plan,
    /// Data, initial parameters, optimizer and types of the training.
    pub job: Job,
    /// Symmetric dimensions, slowest first.
    pub axes: Table<AxisId, Axis>,
    /// Rings of the devices in use.
    pub rings: Table<RingId, Ring>,
    /// Who takes part in collectives.
    pub groups: Table<GroupId, Group>,
    /// What launches run.
    pub routines: Table<RoutineId, Routine>,
    /// Ranges of memory, with the kinds of contents that they hold.
    pub buffers: Table<BufferId, Buffer>,
    /// The lines of one period, in an order in which they could run one by one.
    pub actions: Table<ActionId, Action>,
}

/// One touch of an action: which row, where, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The place, of a ring of devices, that has the row.
    pub at: Place,
    /// The row that is touched.
    pub row: Row,
    /// What is done there.
    pub access: Access,
}

impl Schedule {
    /// Every touch of an action, in argument order. At every coordinate of the axes the same.
    pub fn touches(&self, action: &Action) -> Vec<Touch> {
        let mut all = Vec::new();
        self.each_touch(&action.work, |touch| all.push(touch));
        all
    }
    /// Calls `visit` with every touch of an action, in argument order; a collective's members
    /// stand in group order.
    pub fn each_touch(&self, work: &Work, mut visit: impl FnMut(Touch)) {
        let mut touch = |at: Place, row: Row, access| visit(Touch { at, row, access });
        match work {
            Work::Launch { at, routine, rows, .. } => {
                let arguments = &self.routines[*routine].arguments;
                for (row, argument) in rows.iter().zip(arguments) {
                    touch(*at, *row, argument.access);
                }
            }
            Work::Transfer { from, to, .. } => {
                touch(from.at, from.row, Access::Read);
                touch(to.at, to.row, Access::Write);
            }
            Work::Collective { group, from, to, .. } => {
                for at in &self.groups[*group].places {
                    if from == to {
                        touch(*at, *to, Access::Update);
                    } else {
                        touch(*at, *from, Access::Read);
                        touch(*at, *to, Access::Write);
                    }
                }
            }
            Work::Feed { at, row, .. } => touch(*at, *row, Access::Write),
            Work::Report { at, row, .. } => touch(*at, *row, Access::Read),
        }
    }
    /// Whether a stage is the last, which makes the loss.
    pub fn ends(&self, stage: Stage) -> bool {
        stage.number() + 1 == self.plan.pass_stages()
    }

    /// The routines that some action launches; a schedule may have others, which its plan had no use for.
    pub fn launched(&self) -> BTreeSet<RoutineId> {
        let launches = self.actions.values().filter_map(|action| action.work.routine());
        launches.map(|(routine, _)| routine).collect()
    }

    /// The task of a launch.
    pub fn task(&self, action: &Action) -> Option<Task> {
        let (routine, micro_batch) = action.work.routine()?;
        let Routine { pass, stage, .. } = &self.routines[routine];
        Some(Task { pass: *pass, stage: *stage, micro_batch })
    }

    /// All coordinates of the cell, slowest axis first; one empty coordinate without axes.
    pub fn coordinates(&self) -> Vec<Vec<u32>> {
        let mut all = vec![Vec::new()];
        for axis in self.axes.values() {
            let longer =
                |head: &Vec<u32>, last| head.iter().copied().chain([last]).collect();
            all = all
                .iter()
                .flat_map(|head| (0..axis.extent).map(move |last| longer(head, last)))
                .collect();
        }
        all
    }

    /// How often the cell stands in the target.
    pub fn cell_count(&self) -> u64 {
        self.axes.values().map(|axis| u64::from(axis.extent)).product()
    }

    /// How far the devices of the cell at each of the [coordinates](Self::coordinates) lie behind
    /// those of the first.
    pub fn shifts(&self) -> Vec<u32> {
        strided(self.axes.values().map(|axis| (axis.extent, axis.stride)))
    }

    /// The device of the target that a device of the cell is at a coordinate.
    pub fn device_at(&self, device: DeviceId, coordinate: &[u32]) -> DeviceId {
        let shift = self
            .axes
            .values()
            .zip(coordinate)
            .map(|(axis, c)| axis.stride * c)
            .sum::<u32>();
        device.shifted(shift)
    }

    /// The queue of an action in one period, with the device in place of the turning place.
    pub fn queue(&self, action: &Action, period: i64) -> PhysicalQueue {
        let device = |place: Place| self.rings[place.ring].device(place.place, period);
        match action.queue() {
            Queue::Lane(place, lane) => PhysicalQueue::Lane(device(place), lane),
            Queue::Arrival(place) => PhysicalQueue::Arrival(device(place)),
            Queue::Group(group) => PhysicalQueue::Group(group),
            Queue::Host(place) => PhysicalQueue::Host(device(place)),
        }
    }

    /// Number of micro-batches that the cell takes itself; axes of the batch multiply them.
    pub fn cell_micro_batches(&self) -> u32 {
        let batch = self.axes.values().filter(|axis| axis.splits == Splits::Batch);
        let folded: u32 = batch.map(|axis| axis.extent).product();
        self.plan.all_micro_batches() / folded.max(1)
    }

    /// The largest lag and the largest reach of any action.
    pub fn span(&self) -> (u32, u32) {
        let lag = self.actions.values().map(|action| action.lag).max().unwrap_or(0);
        let reach = self.actions.values().map(|action| action.reach).max().unwrap_or(0);
        (lag, reach)
    }

    /// Bytes of one device's arena: the end of its last buffer.
    pub fn arena(&self, device: DeviceId) -> Bytes {
        let homes = |buffer: &&Buffer| self.rings[buffer.home].devices.contains(&device);
        let ends = self.buffers.values().filter(homes).map(|b| b.offset + b.total());
        ends.max().unwrap_or_default()
    }

    /// The end of the last buffer of every device of the cell that has some, and that buffer.
    pub fn arenas(&self) -> BTreeMap<DeviceId, (Bytes, BufferId)> {
        let mut arenas = BTreeMap::new();
        for (id, buffer) in self.buffers.iter() {
            let end = buffer.offset + buffer.total();
            for device in &self.rings[buffer.home].devices {
                let arena = arenas.entry(*device).or_insert((end, id));
                if end > arena.0 {
                    *arena = (end, id);
                }
            }
        }
        arenas
    }

    /// Bytes of one kind on one device. Addresses that several buffers have count once.
    pub fn bytes_of(&self, device: DeviceId, kind: Kind) -> Bytes {
        let homes = |buffer: &&Buffer| self.rings[buffer.home].devices.contains(&device);
        let own = self.buffers.values().filter(homes);
        addresses(own.filter(|buffer| buffer.subject.kind() == kind))
    }
}

/// Bytes at which some buffers of a device lie.
pub(crate) fn addresses<'a>(buffers: impl Iterator<Item = &'a Buffer>) -> Bytes {
    let ends = |buffer: &Buffer| (buffer.offset, buffer.offset + buffer.total());
    let mut ranges: Vec<(Bytes, Bytes)> = buffers.map(ends).collect();
    ranges.sort_unstable();
    let (mut bytes, mut reached) = (Bytes(0), Bytes(0));
    for (start, end) in ranges {
        bytes += end.max(reached) - start.max(reached);
        reached = reached.max(end);
    }
    bytes
}

/// A queue of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PhysicalQueue {
    /// A lane of a device.
    Lane(DeviceId, u32),
    /// What arrives at a device.
    Arrival(DeviceId),
    /// A group's collectives.
    Group(GroupId),
    /// What the host brings to a device, and takes from it.
    Host(DeviceId),
}
