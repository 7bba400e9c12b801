//! The most memory that holds something needed at one time, in list order, in steady state.
//!
//! A row is live from its write to the last read of what was written, ends included; carried
//! rows always. No life is longer than `recurrence` periods, so the middle one of
//! 2 · recurrence + 1 periods sees them all.

use super::layout::Layout;
use crate::{Access, BufferId, Bytes, DeviceId, Id, Kind, Rest, Schedule, Touch, Turned};
use std::collections::BTreeMap;

/// Largest live bytes.
#[derive(Debug, Default)]
pub(super) struct Peaks {
    /// Per device and kind.
    pub(super) kinds: BTreeMap<(DeviceId, Kind), Bytes>,
    /// Per device.
    pub(super) devices: BTreeMap<DeviceId, Bytes>,
}

/// Life of a cell: first and last instant.
type Life = Option<(u64, u64)>;

struct Lives<'a> {
    schedule: &'a Schedule,
    layout: &'a Layout,
    /// The instants of the middle period: first, and one past the last.
    window: (u64, u64),
    open: Vec<Life>,
    /// Per device, by its number: instant, bytes that begin, bytes that end, kind.
    events: Vec<Vec<(u64, u64, u64, Kind)>>,
}

/// Finds the peaks of a schedule whose structure is sound; what is read before it is written is not
/// live.
pub(super) fn peaks(schedule: &Schedule, layout: &Layout) -> Peaks {
    let lines = schedule.actions.len() as u64;
    let middle = layout.recurrence;
    let numbers = schedule.rings.values().flat_map(|ring| &ring.devices);
    let devices = 1 + numbers.map(|device| device.index()).max().unwrap_or(0);
    let mut lives = Lives {
        schedule,
        layout,
        window: (middle * lines, (middle + 1) * lines),
        open: vec![None; layout.count()],
        events: vec![Vec::new(); devices],
    };
    let mut turned = Turned::new(schedule, layout, 0);
    for period in 0..=2 * middle {
        turned.turn_to(period as i64);
        for (now, action) in (period * lines..).zip(schedule.actions.values()) {
            schedule.each_touch(&action.work, |Touch { at, row, access }| {
                if schedule.buffers[row.buffer].rest == Rest::Transient {
                    lives.touch((row.buffer, turned.cell(at, row)), access, now);
                }
            });
        }
    }
    for cell in 0..layout.count() {
        lives.close((layout.buffer(cell), cell));
    }
    lives.sweep()
}

impl Lives<'_> {
    fn touch(&mut self, spot: (BufferId, usize), access: Access, now: u64) {
        match (access, &mut self.open[spot.1]) {
            (Access::Read | Access::Update, Some((_, last))) => *last = now,
            (Access::Read, None) => {}
            (Access::Write | Access::Update, _) => {
                self.close(spot);
                self.open[spot.1] = Some((now, now));
            }
        }
    }

    fn close(&mut self, (id, cell): (BufferId, usize)) {
        let Some((start, last)) = self.open[cell].take() else { return };
        let (start, end) = (start.max(self.window.0), (last + 1).min(self.window.1));
        if start >= end {
            return;
        }
        let buffer = &self.schedule.buffers[id];
        let index = (cell - self.layout.of(id).start) / buffer.slots as usize;
        let device = self.schedule.rings[buffer.home].devices[index];
        let (kind, size) = (buffer.subject.kind(), buffer.size.0);
        let events = &mut self.events[device.index()];
        events.push((start, size, 0, kind));
        events.push((end, 0, size, kind));
    }

    fn sweep(mut self) -> Peaks {
        let mut peaks = Peaks::default();
        let carried = carried(self.schedule);
        for ring in self.schedule.rings.values() {
            for device in &ring.devices {
                let mut events = std::mem::take(&mut self.events[device.index()]);
                events
                    .sort_unstable_by_key(|(at, begins, ends, _)| (*at, *begins, *ends));
                peaks.device(*device, &carried, &events);
            }
        }
        for ring in self.schedule.rings.values().filter(|ring| ring.turn > 0) {
            peaks.share(&ring.devices, ring.turn as usize);
        }
        peaks
    }
}

fn carried(schedule: &Schedule) -> BTreeMap<(DeviceId, Kind), u64> {
    let mut all = BTreeMap::new();
    for buffer in schedule.buffers.values().filter(|b| b.rest != Rest::Transient) {
        for device in &schedule.rings[buffer.home].devices {
            *all.entry((*device, buffer.subject.kind())).or_default() += buffer.total().0;
        }
    }
    all
}

impl Peaks {
    fn device(
        &mut self,
        device: DeviceId,
        carried: &BTreeMap<(DeviceId, Kind), u64>,
        events: &[(u64, u64, u64, Kind)],
    ) {
        let start = |kind: &Kind| carried.get(&(device, *kind)).copied().unwrap_or(0);
        let mut live = Kind::ALL.each_ref().map(start);
        let mut all: u64 = live.iter().sum();
        let (mut peaks, mut most) = (live, all);
        for (_, begins, ends, kind) in events {
            let place = Kind::ALL.iter().position(|own| own == kind).unwrap_or(0);
            live[place] = live[place] + begins - ends;
            all = all + begins - ends;
            most = most.max(all);
            peaks[place] = peaks[place].max(live[place]);
        }
        let some = Kind::ALL.into_iter().zip(peaks).filter(|(_, bytes)| *bytes > 0);
        for (kind, bytes) in some {
            let peak = self.kinds.entry((device, kind)).or_default();
            *peak = (*peak).max(Bytes(bytes));
        }
        let peak = self.devices.entry(device).or_default();
        *peak = (*peak).max(Bytes(most));
    }

    /// Devices that take the same places in turn have the same peaks.
    fn share(&mut self, devices: &[DeviceId], turn: usize) {
        let length = devices.len();
        let orbit =
            |start: usize| (0..length).map(move |p| devices[(start + p * turn) % length]);
        for (start, device) in devices.iter().enumerate() {
            let most = orbit(start).filter_map(|d| self.devices.get(&d)).max().copied();
            self.devices.extend(most.map(|most| (*device, most)));
            for kind in Kind::ALL {
                let peaks = orbit(start).filter_map(|d| self.kinds.get(&(d, kind)));
                let most = peaks.max().copied();
                self.kinds.extend(most.map(|most| ((*device, kind), most)));
            }
        }
    }
}
