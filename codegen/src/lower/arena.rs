//! Offsets: every device's arena, segmented by kind. All devices of a ring share one layout.
//!
//! Buffers of parameters and gradients that live for a part of the period share addresses when
//! their lives do not meet: that is what the sharded states are for. A life is counted a time step
//! longer than it is, so that a value can arrive while the one before it still leaves; else the
//! messages of one step would wait for each other in a chain. Other kinds keep their own
//! addresses, so that lanes never wait for each other's scratch memory.

use super::rows::Rows;
use roundelay_schedule::{
    Buffer, BufferId, Bytes, Kind, Rest, RingId, Schedule, Subject,
};

/// Buffers start at multiples of this, the widest vector register and a cache line.
const ALIGNMENT: u64 = 64;

/// A part of the period, as list positions; it may wrap round.
#[derive(Clone, Copy, Debug)]
struct Arc {
    first: i64,
    last: i64,
}

/// A buffer with an offset.
struct Placed {
    offset: Bytes,
    end: Bytes,
    arc: Option<Arc>,
}

/// Assigns all offsets.
pub(crate) fn lay_out(schedule: &mut Schedule, lives: &Rows) {
    let period = i64::try_from(schedule.actions.len()).unwrap_or(i64::MAX);
    let step = period / (2 * i64::from(schedule.plan.stages));
    let rings: Vec<RingId> = schedule.rings.ids().collect();
    for ring in rings {
        let mut start = Bytes(0);
        for kind in Kind::ALL {
            let own = schedule.buffers.iter();
            let own = own.filter(|(_, b)| b.home == ring && b.subject.kind() == kind);
            let mut own: Vec<BufferId> = own.map(|(id, _)| id).collect();
            own.sort_by_key(|id| (std::cmp::Reverse(schedule.buffers[*id].total()), *id));
            let arcs = own.iter().map(|id| {
                let row = &schedule.buffers[*id];
                part_time(row).then(|| arc(lives, *id, step)).flatten()
            });
            let arcs: Vec<Option<Arc>> = arcs.collect();
            start = pack(schedule, &own, &arcs, start, period);
        }
    }
}

fn part_time(buffer: &Buffer) -> bool {
    let shares = matches!(buffer.subject, Subject::Parameter(..) | Subject::Gradient(..));
    shares && buffer.slots == 1 && buffer.rest == Rest::Transient
}

fn arc(lives: &Rows, id: BufferId, step: i64) -> Option<Arc> {
    let life = lives.life(id)?;
    Some(Arc { first: life.first, last: life.last + step })
}

/// First fit, largest first; returns the end of the segment.
fn pack(
    schedule: &mut Schedule,
    own: &[BufferId],
    arcs: &[Option<Arc>],
    start: Bytes,
    period: i64,
) -> Bytes {
    let mut placed: Vec<Placed> = Vec::new();
    for (id, arc) in own.iter().zip(arcs) {
        let size = schedule.buffers[*id].total().align_up(ALIGNMENT);
        let mut taken: Vec<&Placed> = placed
            .iter()
            .filter(|other| meet(arc.as_ref(), other.arc.as_ref(), period))
            .collect();
        taken.sort_by_key(|other| (other.offset, other.end));
        let mut offset = start;
        for other in taken {
            if offset + size <= other.offset {
                break;
            }
            offset = offset.max(other.end);
        }
        schedule.buffers[*id].offset = offset;
        placed.push(Placed { offset, end: offset + size, arc: *arc });
    }
    placed.iter().map(|other| other.end).max().unwrap_or(start)
}

/// Whether two lives meet in some period; a buffer without an arc always lives.
fn meet(one: Option<&Arc>, other: Option<&Arc>, period: i64) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return true };
    let long = |arc: &Arc| arc.last - arc.first + 1 >= period;
    if long(one) || long(other) {
        return true;
    }
    let ahead = (other.first - one.first).rem_euclid(period);
    let behind = (one.first - other.first).rem_euclid(period);
    ahead <= one.last - one.first || behind <= other.last - other.first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_meet_round_the_end_of_the_period() {
        let arc = |first, last| Arc { first, last };
        let meets = |a: Arc, b: Arc| meet(Some(&a), Some(&b), 10);
        assert!(meets(arc(8, 12), arc(2, 3)));
        assert!(!meets(arc(8, 12), arc(3, 7)));
        assert!(meets(arc(0, 9), arc(3, 3)));
        assert!(meets(arc(13, 15), arc(4, 4)));
        assert!(meet(None, Some(&arc(1, 1)), 10));
    }
}
