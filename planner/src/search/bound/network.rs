//! What messages take between the devices of plans, as the clock prices them, each worked out
//! once.

use roundelay_schedule::{
    Bytes, Collective, DeviceId, Domain, Id, Level, Levels, LinkId, LinkSpan, Nanos,
    Target,
};
use std::collections::BTreeMap;

/// Members of a collective: the first one, how many devices lie from one to the next, and how
/// many they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Members {
    pub first: u32,
    pub stride: u32,
    pub number: u32,
}

/// A level of equal units of devices without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Even {
    devices: u32,
    link: LinkId,
}

/// The links of a cluster.
#[derive(Debug)]
pub(crate) struct Network<'a> {
    target: &'a Target,
    /// The levels, innermost first, where each consists of equal units without gaps.
    even: Option<Vec<Even>>,
    spans: BTreeMap<Members, Option<LinkSpan>>,
    /// By size first: most differ in it.
    times: BTreeMap<(Bytes, Members, Collective), Nanos>,
}

impl<'a> Network<'a> {
    /// The links of a cluster.
    pub(crate) fn new(target: &'a Target) -> Self {
        Self {
            target,
            even: even(target),
            spans: BTreeMap::new(),
            times: BTreeMap::new(),
        }
    }

    /// What is joined.
    pub(super) fn target(&self) -> &'a Target {
        self.target
    }

    /// The time of a message; none where no link joins the two devices.
    pub(crate) fn transfer(&self, from: u32, to: u32, bytes: Bytes) -> Nanos {
        let link = self.link(from, to).filter(|_| from != to);
        link.map_or(Nanos(0), |link| self.target.links[link].transfer_time(bytes))
    }

    /// The time of a collective over an array of `whole` bytes; none where nothing joins its
    /// members.
    pub(crate) fn collective(
        &mut self,
        members: Members,
        kind: Collective,
        whole: Bytes,
    ) -> Nanos {
        if members.number <= 1 || whole == Bytes(0) {
            return Nanos(0);
        }
        let key = match self.repeats(members) {
            true => Members { first: 0, ..members },
            false => members,
        };
        if let Some(time) = self.times.get(&(whole, key, kind)) {
            return *time;
        }
        if !self.spans.contains_key(&key) {
            let span = self.span(key);
            self.spans.insert(key, span);
        }
        let span = self.spans.get(&key).and_then(Option::as_ref);
        let time =
            span.map_or(Nanos(0), |span| self.target.collective_time(span, kind, whole));
        self.times.insert((whole, key, kind), time);
        time
    }

    fn link(&self, one: u32, other: u32) -> Option<LinkId> {
        match &self.even {
            Some(levels) => {
                let joins = |level: &&Even| one / level.devices == other / level.devices;
                levels.iter().find(joins).map(|level| level.link)
            }
            None => {
                let [one, other] =
                    [one, other].map(|device| DeviceId::new(device as usize));
                self.target.link_between(one, other)
            }
        }
    }

    /// Whether members with this stride are joined alike wherever the first one is: a unit either
    /// has one of them, or as many as strides go into it.
    pub(super) fn repeats(&self, Members { first, stride, .. }: Members) -> bool {
        let alike = |level: &Even| {
            level.devices <= stride || level.devices.is_multiple_of(stride)
        };
        let levels = self.even.as_ref();
        levels.is_some_and(|levels| first < stride && levels.iter().all(alike))
    }

    fn span(&self, members: Members) -> Option<LinkSpan> {
        let Members { first, stride, number } = members;
        let last = first + stride * (number - 1);
        let link = self.link(first, last)?;
        if self.target.links[link].is_flat() {
            return Some(LinkSpan::flat(link, u64::from(number)));
        }
        if let (Some(levels), true) = (&self.even, self.repeats(members)) {
            return Some(even_span(levels, stride, number));
        }
        let devices: Vec<DeviceId> =
            (0..number).map(|k| DeviceId::new((first + k * stride) as usize)).collect();
        Some(self.target.span(&devices, link))
    }
}

/// The levels that join members of a stride which either exceeds a unit or divides it.
fn even_span(levels: &[Even], stride: u32, number: u32) -> LinkSpan {
    let mut joined: Vec<Level> = Vec::new();
    // Members in one unit of the levels so far.
    let mut inside = 1;
    for level in levels {
        let own = (level.devices / stride).clamp(1, number);
        // Units of the levels so far in one of this level.
        let members = own.div_ceil(inside);
        if members > 1 {
            joined.push(Level { link: level.link, members: u64::from(members) });
        }
        inside = inside.max(own);
        if inside >= number {
            break;
        }
    }
    LinkSpan { members: u64::from(number), levels: joined }
}

/// The levels of a target, if each consists of equal units without gaps that one kind of link
/// joins, and each is a multiple of the one inside.
fn even(target: &Target) -> Option<Vec<Even>> {
    let all = u32::try_from(target.devices.len()).ok()?;
    let unit = |level: &[&Domain]| {
        let Domain { devices, link } = level.first()?;
        let (devices, link) = (devices.end, *link);
        let mut starts = (0..all).step_by(devices as usize);
        let alike = |one: &&Domain| {
            let start = starts.next();
            let end = start.and_then(|start| start.checked_add(devices));
            (Some(one.devices.start), Some(one.devices.end), one.link)
                == (start, end, link)
        };
        let whole = all.is_multiple_of(devices) && level.iter().all(alike);
        (whole && starts.next().is_none()).then_some(Even { devices, link })
    };
    let levels: Vec<Even> =
        Levels::new(target).each().map(unit).collect::<Option<_>>()?;
    let nested = levels.windows(2).all(|pair| {
        let [inner, outer] = [pair[0].devices, pair[1].devices];
        outer > inner && outer.is_multiple_of(inner)
    });
    (nested && !levels.is_empty()).then_some(levels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, Random};
    use roundelay_schedule::{BytesPerSecond, Form, Link, Way};

    /// Up to three levels of equal units.
    fn target(random: &mut Random) -> Target {
        let mut sizes = vec![1u32];
        for _ in 0..1 + random.below(3) {
            let last = sizes[sizes.len() - 1];
            sizes.push(last * u32::try_from(2 + random.below(3)).unwrap());
        }
        let all = sizes[sizes.len() - 1];
        let mut target = sample::target(all as usize);
        target.links = sizes[1..]
            .iter()
            .map(|size| {
                let ways = vec![Way::Form(Form::Nested), Way::Form(Form::Rails)];
                let latency = Nanos(u64::from(*size));
                let bandwidth = BytesPerSecond(1_000_000_000 / u64::from(*size));
                Link { ways, ..Link::plain("link", bandwidth, latency) }
            })
            .collect();
        let level = |(number, size): (usize, &u32)| {
            let size = *size;
            let unit = move |unit| Domain {
                link: LinkId::new(number),
                devices: unit * size..(unit + 1) * size,
            };
            (0..all / size).map(unit).collect::<Vec<_>>()
        };
        target.domains = sizes[1..].iter().enumerate().flat_map(level).collect();
        // Level by level, or each unit behind its own.
        if random.below(2) == 0 {
            target.domains.sort_by_key(|domain| domain.devices.end);
        }
        target
    }

    #[test]
    fn even_levels_join_members_as_the_target_does() {
        let mut random = Random::new(7);
        for _ in 0..300 {
            let target = target(&mut random);
            let mut network = Network::new(&target);
            assert!(network.even.is_some());
            let all = u32::try_from(target.devices.len()).unwrap();
            let stride = 1 + u32::try_from(random.below(u64::from(all))).unwrap();
            let number = all / stride;
            let first = u32::try_from(random.below(u64::from(stride))).unwrap();
            let members = Members { first, stride, number };
            if number < 2 {
                continue;
            }
            let devices: Vec<DeviceId> = (0..number)
                .map(|k| DeviceId::new((first + k * stride) as usize))
                .collect();
            let outer = target.link_between(devices[0], devices[devices.len() - 1]);
            let span = target.span(&devices, outer.unwrap());
            let time = target.collective_time(&span, Collective::AllReduce, Bytes(9_999));
            let found = network.collective(members, Collective::AllReduce, Bytes(9_999));
            assert_eq!(found, time, "{members:?} {:?}", target.domains);
            let last = devices[devices.len() - 1].index();
            let link = target.link_between(devices[0], devices[devices.len() - 1]);
            assert_eq!(network.link(first, u32::try_from(last).unwrap()), link);
        }
    }
}
