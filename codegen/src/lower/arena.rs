//! Offsets: every device's arena, segmented by kind. All devices of a ring share one layout.
//!
//! Buffers of parameters and gradients that live for parts of the period share addresses when
//! their lives do not meet: that is what the sharded states are for. Where the list itself says
//! how long an address is taken ([`Slotting::InTurn`]), two units are enough. Any other life is
//! counted a time step longer than it is, so that a value can arrive while the one before it
//! still leaves; else the messages of one step would wait for each other in a chain. Where one
//! device makes all passes on one lane, values between stages, their gradients and what passes keep
//! share addresses too: nothing but passes touches them, and these are in list order anyway. What the
//! stages of a device have slots in common for lies in one place. All else keeps its own addresses, so
//! that lanes never wait for each other's scratch memory.

use super::{
    draft::{DraftBuffer, Slotting},
    rows::{Life, Rows},
};
use crate::fit::{ALIGNMENT, lowest_gap};
use roundelay_schedule::{
    Buffer, BufferId, Bytes, Kind, Placement, Rest, RingId, Schedule, Subject, Table,
};
use std::collections::BTreeMap;

/// Parts of the period, as first and last list positions, in ascending order.
type Parts = Vec<(i64, i64)>;

/// A buffer with an offset.
struct Placed {
    offset: Bytes,
    end: Bytes,
    /// None when it always lives.
    parts: Option<Parts>,
}

/// Assigns all offsets.
pub(crate) fn lay_out(
    schedule: &mut Schedule,
    drafts: &Table<BufferId, DraftBuffer>,
    rows: &Rows,
) {
    let period = schedule.actions.len() as i64;
    let step = period / (2 * i64::from(schedule.plan.stages));
    let placement = schedule.plan.placement;
    let turn = |id: BufferId| match drafts[id].slots {
        Slotting::InTurn(turn) => Some(turn),
        Slotting::PerStep(_) | Slotting::PerMicroBatch => None,
    };
    let mut homes: BTreeMap<(RingId, Kind), Vec<BufferId>> = BTreeMap::new();
    let beside = |id: BufferId| rows.common(id).map(|common| common.first);
    for (id, buffer) in schedule.buffers.iter() {
        if beside(id).is_some_and(|first| first != id) {
            continue;
        }
        homes.entry((buffer.home, buffer.subject.kind())).or_default().push(id);
    }
    let rings: Vec<RingId> = schedule.rings.ids().collect();
    for ring in rings {
        let mut start = Bytes(0);
        for &kind in Kind::ALL {
            let mut own = homes.remove(&(ring, kind)).unwrap_or_default();
            own.sort_by_key(|id| {
                let size = schedule.buffers[*id].total();
                (turn(*id).unwrap_or(0), std::cmp::Reverse(size), *id)
            });
            let parts = own.iter().map(|id| {
                let in_order = turn(*id).is_some()
                    || matches!(kind, Kind::Boundary | Kind::Activation);
                let longer = if in_order { 0 } else { step };
                let mut lives = rows.lives(*id).peekable();
                let buffer = &schedule.buffers[*id];
                let shares = part_time(buffer, placement) && lives.peek().is_some();
                shares.then(|| parts(lives.map(ends), longer, period))
            });
            let parts: Vec<Option<Parts>> = parts.collect();
            start = pack(schedule, &own, parts, start);
        }
    }
    let ids: Vec<BufferId> = schedule.buffers.ids().collect();
    for id in ids {
        if let Some(first) = beside(id) {
            schedule.buffers[id].offset = schedule.buffers[first].offset;
        }
    }
}

/// Whether a buffer may share its addresses; what passes hand on may where one lane of a device
/// makes all of them.
fn part_time(buffer: &Buffer, placement: Placement) -> bool {
    let shares = match buffer.subject {
        Subject::Parameter(..) | Subject::Gradient(..) => true,
        Subject::Value(_)
        | Subject::ValueGradient(_)
        | Subject::Activation(_)
        | Subject::Retained(_)
        | Subject::Adjoint(_) => match placement {
            Placement::Accumulate | Placement::Data => true,
            Placement::Concurrent | Placement::Shared | Placement::Pipeline => false,
        },
        Subject::Optimizer(..)
        | Subject::Squares(..)
        | Subject::Input(_)
        | Subject::Metric
        | Subject::Workspace => false,
    };
    shares && buffer.slots == 1 && buffer.rest == Rest::Transient
}

fn ends(life: Life) -> (i64, i64) {
    (life.first, life.last)
}

/// Lives as parts of one period; a life may wrap round it.
fn parts(lives: impl Iterator<Item = (i64, i64)>, longer: i64, period: i64) -> Parts {
    let mut parts = Parts::new();
    for (first, last) in lives {
        let last = last + longer;
        if last - first + 1 >= period {
            return vec![(0, period - 1)];
        }
        let start = first.rem_euclid(period);
        let end = start + last - first;
        parts.push((start, end.min(period - 1)));
        if end >= period {
            parts.push((0, end - period));
        }
    }
    parts.sort_unstable();
    parts
}

/// First fit in the given order; returns the end of the segment.
fn pack(
    schedule: &mut Schedule,
    own: &[BufferId],
    parts: Vec<Option<Parts>>,
    start: Bytes,
) -> Bytes {
    let (mut placed, mut taken) = (Vec::<Placed>::new(), Vec::new());
    for (id, parts) in own.iter().zip(parts) {
        let size = schedule.buffers[*id].total().align_up(ALIGNMENT);
        let met =
            placed.iter().filter(|other| meet(parts.as_ref(), other.parts.as_ref()));
        taken.clear();
        taken.extend(met.map(|other| (other.offset, other.end)));
        let offset = lowest_gap(start, size, &mut taken);
        schedule.buffers[*id].offset = offset;
        placed.push(Placed { offset, end: offset + size, parts });
    }
    placed.iter().map(|other| other.end).max().unwrap_or(start)
}

/// Whether two lives meet in some period; a buffer without parts always lives.
fn meet(one: Option<&Parts>, other: Option<&Parts>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return true };
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    while let (Some((start, end)), Some((first, last))) = (one.peek(), other.peek()) {
        if start <= last && first <= end {
            return true;
        }
        if end < last {
            one.next();
        } else {
            other.next();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_meet_round_the_end_of_the_period() {
        let arc = |first, last| parts([(first, last)].into_iter(), 0, 10);
        let meets = |a: Parts, b: Parts| meet(Some(&a), Some(&b));
        assert!(meets(arc(8, 12), arc(2, 3)));
        assert!(!meets(arc(8, 12), arc(3, 7)));
        assert!(meets(arc(0, 9), arc(3, 3)));
        assert!(meets(arc(13, 15), arc(4, 4)));
        assert!(meet(None, Some(&arc(1, 1))));
    }

    #[test]
    fn buffers_that_live_several_times_meet_when_any_two_lives_do() {
        let of = |lives: &[(i64, i64)]| parts(lives.iter().copied(), 0, 20);
        let even = of(&[(0, 3), (8, 11), (16, 19)]);
        assert!(!meet(Some(&even), Some(&of(&[(4, 7), (12, 15)]))));
        assert!(meet(Some(&even), Some(&of(&[(4, 7), (12, 16)]))));
        assert!(meet(Some(&even), Some(&of(&[(15, 20)]))));
    }
}
