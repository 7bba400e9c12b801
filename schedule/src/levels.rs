//! Which link level joins two devices, for whoever asks for many pairs.

use crate::{DeviceId, Domain, Id, LinkId, Target};

/// The domains of a target in levels: those of one have no device in common, and a domain stands
/// above all before it that it has devices in common with.
#[derive(Clone, Debug)]
pub struct Levels<'a> {
    target: &'a Target,
    levels: Vec<Vec<&'a Domain>>,
}

impl<'a> Levels<'a> {
    /// The levels of a target.
    pub fn new(target: &'a Target) -> Self {
        let mut levels: Vec<Vec<&Domain>> = Vec::new();
        for domain in target.domains.iter().filter(|domain| !domain.devices.is_empty()) {
            let below = levels.iter().rposition(|level| meets(level, domain));
            let own = below.map_or(0, |below| below + 1);
            levels.resize(levels.len().max(own + 1), Vec::new());
            let place = ending_by(&levels[own], domain.devices.start);
            levels[own].insert(place, domain);
        }
        Self { target, levels }
    }

    /// Whose levels they are.
    pub fn target(&self) -> &'a Target {
        self.target
    }

    /// The domains of each level in order of devices, innermost level first.
    pub fn each(&self) -> impl ExactSizeIterator<Item = &[&'a Domain]> {
        self.levels.iter().map(Vec::as_slice)
    }

    /// The innermost link level that joins two devices, as [`Target::link_between`] says.
    pub fn link_between(&self, one: DeviceId, other: DeviceId) -> Option<LinkId> {
        self.level_between(one, other).map(|(_, link)| link)
    }

    /// The number of the innermost level that joins two devices, and its link.
    pub fn level_between(
        &self,
        one: DeviceId,
        other: DeviceId,
    ) -> Option<(usize, LinkId)> {
        let [one, other] = [one, other].map(DeviceId::number);
        self.levels.iter().enumerate().find_map(|(number, level)| {
            let domain = level.get(ending_by(level, one))?;
            let devices = &domain.devices;
            let holds = devices.contains(&one) && devices.contains(&other);
            holds.then_some((number, domain.link))
        })
    }
}

/// How many domains of a level end before a device.
fn ending_by(level: &[&Domain], device: u32) -> usize {
    level.partition_point(|domain| domain.devices.end <= device)
}

/// Whether a domain has devices in common with some of a level.
fn meets(level: &[&Domain], domain: &Domain) -> bool {
    let next = level.get(ending_by(level, domain.devices.start));
    next.is_some_and(|next| next.devices.start < domain.devices.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every list of domains from a small generator, ordered or not.
    #[test]
    fn levels_join_what_the_list_of_domains_joins() {
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
            assert!(levels.each().len() <= target.domains.len());
            for pair in (0..100).map(|pair| [pair / 10, pair % 10].map(DeviceId::new)) {
                let expected = target.link_between(pair[0], pair[1]);
                joined += usize::from(expected.is_some());
                assert_eq!(levels.link_between(pair[0], pair[1]), expected);
            }
        }
        assert!(joined > 1000, "only {joined} pairs are joined");
    }
}
