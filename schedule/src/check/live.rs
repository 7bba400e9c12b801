//! The most memory that holds something needed at one time, in list order, in steady state.
//!
//! A row is live from its write to the last read of what was written, ends included; carried
//! rows always. No life is longer than `recurrence` periods, so the middle one of
//! 2 · recurrence + 1 periods sees them all. What is over when the middle one begins, above its
//! horizon, and what begins when it is over need not be followed.

use super::layout::Layout;
use crate::{
    Access, BufferId, Bytes, DeviceId, Horizon, Id, Kind, Rest, Schedule, Touch, Turned,
    gcd,
};
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

/// What a device holds at an instant, and the most so far; by kind, and of all kinds.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    live: [u64; Kind::ALL.len()],
    all: u64,
    peaks: [u64; Kind::ALL.len()],
    most: u64,
}

/// Lives by the instant at which something happens to them: the first of each, and the next one of
/// every life.
struct Instants {
    first: Vec<u32>,
    next: Vec<u32>,
}

/// No life.
const NONE: u32 = u32::MAX;

impl Instants {
    fn new(count: usize) -> Self {
        Self { first: vec![NONE; count], next: Vec::new() }
    }

    /// Adds the next life at an instant.
    fn push(&mut self, instant: usize) {
        let life = self.next.len() as u32;
        self.next.push(std::mem::replace(&mut self.first[instant], life));
    }

    fn of(&self, instant: usize) -> impl Iterator<Item = u32> {
        let some = |life: u32| (life != NONE).then_some(life);
        std::iter::successors(some(self.first[instant]), move |life| {
            some(self.next[*life as usize])
        })
    }
}

struct Lives<'a> {
    schedule: &'a Schedule,
    layout: &'a Layout,
    /// The instants of the middle period: first, and one past the last.
    window: (u64, u64),
    open: Vec<Life>,
    /// How many open lives began before the window ends.
    begun: usize,
    /// Lives that are over.
    over: Vec<(BufferId, DeviceId)>,
    /// What begins, and what ends, at every instant of the window and right behind it.
    begins: Instants,
    ends: Instants,
}

/// Finds the peaks of a schedule whose structure is sound; what is read before it is written is not
/// live.
pub(super) fn peaks(schedule: &Schedule, layout: &Layout) -> Peaks {
    let lines = schedule.actions.len();
    let middle = layout.recurrence;
    let start = middle * lines as u64;
    let mut lives = Lives {
        schedule,
        layout,
        window: (start, start + lines as u64),
        open: vec![None; layout.count()],
        begun: 0,
        over: Vec::new(),
        begins: Instants::new(lines + 1),
        ends: Instants::new(lines + 1),
    };
    let horizon = Horizon::before(middle, schedule, (layout, &layout.writes));
    for period in horizon.period..=2 * middle {
        lives.follow(period, horizon.lines_above(period));
    }
    for cell in 0..layout.count() {
        lives.close((layout.buffer(cell), cell));
    }
    lives.sweep()
}

impl Lives<'_> {
    /// Follows a period from a line on, as long as it says something about the window.
    fn follow(&mut self, period: u64, line: usize) {
        let (schedule, layout) = (self.schedule, self.layout);
        let turned = Turned::new(schedule, layout, period as i64);
        let first = period * schedule.actions.len() as u64;
        for (now, action) in (first..).zip(schedule.actions.values()).skip(line) {
            if now >= self.window.1 && self.begun == 0 {
                return;
            }
            schedule.each_touch(&action.work, |Touch { at, row, access }| {
                if schedule.buffers[row.buffer].rest == Rest::Transient {
                    self.touch((row.buffer, turned.cell(at, row)), access, now);
                }
            });
        }
    }

    fn touch(&mut self, spot: (BufferId, usize), access: Access, now: u64) {
        match (access, &mut self.open[spot.1]) {
            (Access::Read | Access::Update, Some((_, last))) => *last = now,
            (Access::Read, None) => {}
            (Access::Write | Access::Update, _) => {
                self.close(spot);
                self.open[spot.1] = Some((now, now));
                self.begun += usize::from(now < self.window.1);
            }
        }
    }

    fn close(&mut self, (id, cell): (BufferId, usize)) {
        let Some((start, last)) = self.open[cell].take() else { return };
        self.begun -= usize::from(start < self.window.1);
        let (start, end) = (start.max(self.window.0), (last + 1).min(self.window.1));
        if start >= end {
            return;
        }
        let buffer = &self.schedule.buffers[id];
        let index = (cell - self.layout.of(id).start) / buffer.slots as usize;
        self.over.push((id, self.schedule.rings[buffer.home].devices[index]));
        self.begins.push((start - self.window.0) as usize);
        self.ends.push((end - self.window.0) as usize);
    }

    /// Goes through the window. At an instant lives end before others begin.
    fn sweep(self) -> Peaks {
        let mut levels = levels(self.schedule);
        for instant in 0..self.begins.first.len() {
            for life in self.ends.of(instant) {
                let (level, place, size) = self.level(life, &mut levels);
                level.live[place] -= size;
                level.all -= size;
            }
            for life in self.begins.of(instant) {
                let (level, place, size) = self.level(life, &mut levels);
                level.live[place] += size;
                level.all += size;
                level.peaks[place] = level.peaks[place].max(level.live[place]);
                level.most = level.most.max(level.all);
            }
        }
        Peaks::new(self.schedule, &levels)
    }

    /// The level of a life's device, the place of its kind, and its bytes.
    fn level<'l>(
        &self,
        life: u32,
        levels: &'l mut [Level],
    ) -> (&'l mut Level, usize, u64) {
        let (id, device) = self.over[life as usize];
        let buffer = &self.schedule.buffers[id];
        (&mut levels[device.index()], place(buffer.subject.kind()), buffer.size.0)
    }
}

/// Where a kind stands among all.
fn place(kind: Kind) -> usize {
    Kind::ALL.iter().position(|own| *own == kind).unwrap_or(0)
}

/// What every device holds always, by its number.
fn levels(schedule: &Schedule) -> Vec<Level> {
    let numbers = schedule.rings.values().flat_map(|ring| &ring.devices);
    let devices = 1 + numbers.map(|device| device.index()).max().unwrap_or(0);
    let mut levels = vec![Level::default(); devices];
    for buffer in schedule.buffers.values().filter(|b| b.rest != Rest::Transient) {
        for device in &schedule.rings[buffer.home].devices {
            let level = &mut levels[device.index()];
            level.live[place(buffer.subject.kind())] += buffer.total().0;
            level.all += buffer.total().0;
        }
    }
    for level in &mut levels {
        (level.peaks, level.most) = (level.live, level.all);
    }
    levels
}

impl Peaks {
    fn new(schedule: &Schedule, levels: &[Level]) -> Self {
        let mut peaks = Self::default();
        let devices = schedule.rings.values().flat_map(|ring| &ring.devices);
        for device in devices {
            let level = &levels[device.index()];
            let some = Kind::ALL.iter().zip(level.peaks).filter(|(_, bytes)| *bytes > 0);
            peaks
                .kinds
                .extend(some.map(|(kind, bytes)| ((*device, *kind), Bytes(bytes))));
            peaks.devices.insert(*device, Bytes(level.most));
        }
        for ring in schedule.rings.values().filter(|ring| ring.turn > 0) {
            peaks.share(&ring.devices, ring.turn as usize);
        }
        peaks
    }

    /// Devices that take the same places in turn have the same peaks.
    fn share(&mut self, devices: &[DeviceId], turn: usize) {
        let apart = gcd(turn as u64, devices.len() as u64) as usize;
        for first in 0..apart {
            let alike = devices.iter().skip(first).step_by(apart).copied();
            level_out(&mut self.devices, alike.clone());
            for kind in Kind::ALL {
                level_out(&mut self.kinds, alike.clone().map(|device| (device, *kind)));
            }
        }
    }
}

/// Gives all of these the most that one of them has, if any has something.
fn level_out<K: Ord>(
    peaks: &mut BTreeMap<K, Bytes>,
    alike: impl Iterator<Item = K> + Clone,
) {
    let most = alike.clone().filter_map(|one| peaks.get(&one)).max().copied();
    if let Some(most) = most {
        peaks.extend(alike.map(|one| (one, most)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever stands where another one did after some turns has its peaks.
    #[test]
    fn devices_that_take_the_same_places_share_their_peaks() {
        for (turn, length) in [(1, 1), (1, 5), (6, 4), (2, 6), (5, 3), (4, 4), (9, 6)] {
            let devices: Vec<DeviceId> =
                (0..length).map(|d| DeviceId::new(d + 3)).collect();
            let own = |place: usize| Bytes((place * place % 7) as u64);
            let all = devices.iter().enumerate();
            let mut peaks = Peaks {
                devices: all.map(|(place, device)| (*device, own(place))).collect(),
                kinds: [((devices[length - 1], Kind::Boundary), Bytes(5))].into(),
            };
            peaks.share(&devices, turn);
            for (place, device) in devices.iter().enumerate() {
                let orbit: Vec<usize> =
                    (0..length).map(|k| (place + k * turn) % length).collect();
                let most = orbit.iter().map(|place| own(*place)).max();
                assert_eq!(peaks.devices.get(device), most.as_ref(), "{turn} {length}");
                let meets = orbit.contains(&(length - 1)).then_some(&Bytes(5));
                assert_eq!(peaks.kinds.get(&(*device, Kind::Boundary)), meets);
            }
        }
    }
}
