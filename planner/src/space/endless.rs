//! Plans that take longer than can be counted by their bounds.

use crate::{search::bound::Bound, space::outline::Outline};
use roundelay_dsl::Program;
use roundelay_schedule::{Device, Endless, Nanos, Target};

/// The longest step that is planned. The clock goes through four at least, and through more where
/// devices or slots turn; it stands still where all of them take longer than 64 bits count.
const LONGEST: Nanos = Nanos(u64::MAX / 4);

/// What is to blame where a plan takes too long by its bounds: the slowest link where messages do,
/// else the slowest device.
pub(crate) fn endless_by(
    bound: &Bound,
    program: &Program,
    outline: &Outline,
) -> Option<Endless> {
    if bound.step_time() <= LONGEST {
        return None;
    }
    let Target { devices, links, .. } = &program.target;
    if bound.work.max(bound.path) <= LONGEST {
        return links.values().min_by_key(|link| link.bandwidth).map(Endless::from);
    }
    let first = outline.counts.first_device as usize;
    let own = devices.values().skip(first).take(outline.devices as usize);
    let rate = |device: &&Device| device.compute.0.min(device.bandwidth.0);
    own.min_by_key(rate).map(Endless::from)
}
