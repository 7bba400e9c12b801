//! Which link level joins two devices, for whoever asks for many pairs.

use crate::{DeviceId, Domain, Id, LinkId, Target};

/// The domains of a target in runs, in each of which a device is in at most one.
#[derive(Clone, Debug)]
pub struct Levels<'a> {
    target: &'a Target,
    runs: Vec<&'a [Domain]>,
}

impl<'a> Levels<'a> {
    /// The levels of a target.
    pub fn new(target: &'a Target) -> Self {
        let behind = |one: &Domain, next: &Domain| {
            one.devices.end <= next.devices.start && is_forward(one) && is_forward(next)
        };
        Self { target, runs: target.domains.chunk_by(behind).collect() }
    }

    /// Whose levels they are.
    pub fn target(&self) -> &'a Target {
        self.target
    }

    /// How many runs are looked through for each pair.
    pub fn count(&self) -> usize {
        self.runs.len()
    }

    /// The innermost link level that joins two devices, as [`Target::link_between`] says.
    pub fn link_between(&self, one: DeviceId, other: DeviceId) -> Option<LinkId> {
        let [one, other] =
            [one, other].map(|device| u32::try_from(device.index()).unwrap_or(u32::MAX));
        self.runs.iter().find_map(|run| {
            let domain = run.get(run.partition_point(|each| each.devices.end <= one))?;
            let devices = &domain.devices;
            let holds = devices.contains(&one) && devices.contains(&other);
            holds.then_some(domain.link)
        })
    }
}

fn is_forward(domain: &Domain) -> bool {
    domain.devices.start <= domain.devices.end
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every list of domains from a small generator, ordered or not.
    #[test]
    fn runs_join_what_the_list_of_domains_joins() {
        let mut state = 9_u32;
        let mut draw = |bound: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % bound
        };
        let mut joined = 0;
        for _ in 0..300 {
            let mut target = Target::default();
            for _ in 0..draw(9) {
                let (start, end) = (draw(10), draw(10));
                let link = LinkId::new(draw(3) as usize);
                target.domains.push(Domain { link, devices: start..end });
            }
            if draw(2) == 0 {
                target.domains.sort_by_key(|domain| domain.devices.start);
            }
            let levels = Levels::new(&target);
            assert!(levels.count() <= target.domains.len());
            for pair in (0..100).map(|pair| [pair / 10, pair % 10].map(DeviceId::new)) {
                let expected = target.link_between(pair[0], pair[1]);
                joined += usize::from(expected.is_some());
                assert_eq!(levels.link_between(pair[0], pair[1]), expected);
            }
        }
        assert!(joined > 1000, "only {joined} pairs are joined");
    }
}
