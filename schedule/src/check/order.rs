//! Rules 3 and 5: any two touches of the same memory, one not a read, are ordered by
//! happens-before; so are collectives of groups that share two devices.
//!
//! Happens-before is made of queues and waits. Skipped instances keep both, so it is the same in
//! every period, and what holds in enough unrolled periods holds in all. A cell that is ever
//! written is written again within `recurrence` periods, and cells that share addresses do so
//! alike after `symmetry` periods: every pair of conflicting touches with no write between them
//! has its like in the first `recurrence + symmetry` periods, the later one of it in the last
//! `symmetry` of them. Pairs further apart are ordered through the writes between them. So the
//! instances above the horizon of these last periods need not be followed.

use super::{
    Culprit, Violation,
    clock::{Clocks, Mark, Stamp},
    faults::Faults,
    groups,
    layout::Layout,
    limit,
};
use crate::{
    Access, Action, ActionId, GroupId, Horizon, Id, Queues, Schedule, Table, Touch,
    Turned, Work,
};
use std::collections::BTreeSet;

/// Checks the order of all touches and collectives; needs a sound structure.
pub(super) fn check(schedule: &Schedule, layout: &Layout, faults: &mut Faults) {
    let periods = layout.recurrence + layout.symmetry;
    let instances = periods.saturating_mul(schedule.actions.len() as u64);
    let queues = Queues::new(schedule);
    let small = instances <= limit::INSTANCES && queues.len() <= Queues::MOST;
    faults.limit(small, Culprit::Header("actions"), || {
        format!("{periods} periods in {} queues are too many to follow", queues.len())
    });
    if !small {
        return;
    }
    let mut order = Order::new(schedule, layout, queues, periods, faults);
    let horizon = order.horizon();
    for period in horizon.period..periods {
        order.turned.turn_to(period as i64);
        for (id, action) in schedule.actions.iter().skip(horizon.lines_above(period)) {
            order.instance(id, action, period);
            if order.clocks.size() > limit::CLOCKS {
                order.faults.beyond(
                    Culprit::Action(id),
                    "too many waits are open at once; wait for nearer actions",
                );
                return;
            }
        }
    }
}

/// A touch that later ones are compared with.
#[derive(Clone, Copy, Debug)]
struct Touched {
    stamp: Stamp,
    action: ActionId,
    period: u64,
}

struct Order<'a> {
    schedule: &'a Schedule,
    layout: &'a Layout,
    faults: &'a mut Faults,
    turned: Turned<'a>,
    queues: Queues,
    clocks: Clocks,
    /// Marks of the last periods, by period modulo `kept`, then action.
    marks: Vec<Option<Mark>>,
    kept: u64,
    waiters: Vec<u32>,
    written: Vec<Option<Touched>>,
    readers: Vec<Vec<Touched>>,
    crossing: Table<GroupId, Vec<GroupId>>,
    collectives: Vec<Option<Touched>>,
    own: Vec<(Touch, usize)>,
    reported: BTreeSet<(ActionId, ActionId, u64)>,
}

impl<'a> Order<'a> {
    fn new(
        schedule: &'a Schedule,
        layout: &'a Layout,
        queues: Queues,
        periods: u64,
        faults: &'a mut Faults,
    ) -> Self {
        let lines = schedule.actions.len();
        let waits = || schedule.actions.values().flat_map(|action| &action.after);
        let farthest = waits().map(|wait| u64::from(wait.distance)).max().unwrap_or(0);
        let kept = 1 + farthest.min(periods);
        let mut waiters = vec![0; lines];
        for wait in waits() {
            waiters[wait.action.index()] += u32::from(u64::from(wait.distance) < periods);
        }
        Self {
            schedule,
            layout,
            faults,
            turned: Turned::new(schedule, layout, 0),
            clocks: Clocks::new(queues.len()),
            marks: vec![None; lines * kept as usize],
            kept,
            waiters,
            queues,
            written: vec![None; layout.count()],
            readers: vec![Vec::new(); layout.count()],
            crossing: groups::crossing(schedule),
            collectives: vec![None; schedule.groups.len()],
            own: Vec::new(),
            reported: BTreeSet::new(),
        }
    }

    /// Where to begin, so that the last `symmetry` periods are compared with all before them. A
    /// collective is compared with those of crossing groups in the period before.
    fn horizon(&self) -> Horizon {
        let first = self.layout.recurrence;
        let layout = self.layout;
        let horizon = Horizon::before(first, self.schedule, (layout, &layout.writes));
        match self.crossing.values().any(|others| !others.is_empty()) {
            true => horizon.min(Horizon { period: first.saturating_sub(1), line: 0 }),
            false => horizon,
        }
    }

    fn slot(&self, action: ActionId, period: u64) -> usize {
        (period % self.kept) as usize * self.waiters.len() + action.index()
    }

    fn instance(&mut self, id: ActionId, action: &Action, period: u64) {
        let queue = self.queues.of(action, &self.turned);
        for wait in &action.after {
            let Some(before) = period.checked_sub(u64::from(wait.distance)) else {
                continue;
            };
            let slot = self.slot(wait.action, before);
            if let Some(mark) = &mut self.marks[slot] {
                self.clocks.wait(queue, mark);
            }
        }
        let me = Touched { stamp: self.clocks.next(queue), action: id, period };
        self.touch(action, me);
        if let Work::Collective { group, .. } = &action.work {
            self.cross(*group, me);
        }
        let slot = self.slot(id, period);
        let mark = self.clocks.issue(queue, self.waiters[id.index()]);
        self.marks[slot] = Some(mark);
    }

    fn touch(&mut self, action: &Action, me: Touched) {
        let mut own = std::mem::take(&mut self.own);
        own.clear();
        self.schedule.each_touch(&action.work, |touch| {
            own.push((touch, self.turned.cell(touch.at, touch.row)));
        });
        for (touch, cell) in &own {
            self.compare(*touch, *cell, me);
            for other in self.layout.shared(*cell) {
                self.compare(*touch, *other as usize, me);
            }
            self.record(*touch, *cell, me);
        }
        self.own = own;
    }

    fn compare(&mut self, touch: Touch, cell: usize, me: Touched) {
        let open = |earlier: &&Touched| {
            earlier.stamp == me.stamp || !self.clocks.done(me.stamp.queue, earlier.stamp)
        };
        let writer = self.written[cell].as_ref().filter(open).copied();
        let reader = match touch.access {
            Access::Read => None,
            Access::Write | Access::Update => {
                self.readers[cell].iter().find(open).copied()
            }
        };
        for earlier in writer.iter().chain(&reader) {
            let distance = me.period - earlier.period;
            if self.reported.insert((me.action, earlier.action, distance)) {
                self.faults.push(self.clash(touch, cell, me, *earlier));
            }
        }
    }

    fn clash(
        &self,
        touch: Touch,
        cell: usize,
        me: Touched,
        earlier: Touched,
    ) -> Violation {
        let Touch { at, row, access } = touch;
        let (action, buffer) = (me.action, self.layout.buffer(cell));
        if earlier.stamp == me.stamp {
            return Violation::Alias { action, at, row, other: buffer };
        }
        let distance = (me.period - earlier.period) as u32;
        let earlier = earlier.action;
        Violation::Race { action, at, row, access, earlier, distance, buffer }
    }

    fn record(&mut self, touch: Touch, cell: usize, me: Touched) {
        let readers = &mut self.readers[cell];
        match touch.access {
            Access::Write | Access::Update => {
                readers.clear();
                self.written[cell] = Some(me);
            }
            Access::Read => {
                let same = |reader: &&mut Touched| reader.stamp.queue == me.stamp.queue;
                match readers.iter_mut().find(same) {
                    Some(reader) => *reader = me,
                    None => readers.push(me),
                }
            }
        }
    }

    fn cross(&mut self, group: GroupId, me: Touched) {
        for other in &self.crossing[group] {
            let Some(earlier) = self.collectives[other.index()] else { continue };
            let distance = me.period - earlier.period;
            let key = (me.action, earlier.action, distance);
            if !self.clocks.done(me.stamp.queue, earlier.stamp)
                && self.reported.insert(key)
            {
                self.faults.push(Violation::Crossing {
                    action: me.action,
                    earlier: earlier.action,
                    distance: distance as u32,
                });
            }
        }
        self.collectives[group.index()] = Some(me);
    }
}
