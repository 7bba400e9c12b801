//! What a message takes: the time of collectives and transfers over nested links, in exact
//! integers.
//!
//! S is the size of the whole array, n the number of members, and α, β and o the latency, the
//! bandwidth (one way, per member) and the startup of a link; r is 2 for an all-reduce, which
//! scatters sums and gathers them, and 1 for a reduce-scatter or an all-gather. A group that spans
//! several levels has m_i members at level i, innermost first; N_i = m_i · m_(i+1) · … are the
//! units that level i and those around it join, so N_0 = n, and the members of one unit of
//! level i own B_i = β_i · m_0 · … · m_(i−1) of its ports together. The narrowest B_i is B.
//!
//! | form | time without o |
//! | --- | --- |
//! | `ring` | r (n − 1) (α + ⌈S/n⌉/β) on the outermost link (Thakur, Rabenseifner, Gropp 2005) |
//! | `rails` | r Σ_i (N_i − N_(i+1)) α_i + r (n − 1) ⌈S/n⌉/B: as many rings as a unit has members, each of which leaves it through another port |
//! | `tree` | 2 Σ_i ⌈log2 m_i⌉ α_i + 2 S/B: sums go up and results go down, as in NCCL's double tree; all-reduce only |
//! | `nested` | r Σ_i (m_i − 1) (α_i + ⌈S/(m_0 … m_i)⌉/β_i): scatter inside, go on with a share outside, gather inside |
//! | `nvls` | 2 Σ_i α_i + (S + ⌈S/n⌉)/β: the switch adds; one level and all-reduce only |
//!
//! A link says which forms it offers, and what short messages get instead of its bandwidth and
//! startup; a message takes the fastest. One that says nothing offers a ring at its bandwidth, and
//! starts at once. Laws, which tests hold: no time falls when S grows, when units join the
//! outermost level, or when a link gets slower; a nested form is never faster than any of its
//! levels alone. More members inside a unit bring more ports along, so `rails` may gain by them.
//!
//! Contention is priced by assumption: β is the share of a member while all members use the
//! ports that they have in common, so groups side by side do not slow each other down further.

use crate::{
    Bytes, BytesPerSecond, Collective, DeviceId, Exchanged, Exchanging, Id, LinkId,
    Nanos, Target,
};
use serde::{Deserialize, Serialize};

/// A level of links; rates are one way, per member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Name in messages.
    pub name: String,
    /// Rate of one member, one way, while all members send.
    pub bandwidth: BytesPerSecond,
    /// Time from one member to the next.
    pub latency: Nanos,
    /// What every message takes before it moves.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub startup: Nanos,
    /// How messages may go besides; the fastest way counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<Way>,
}

/// A way for messages over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Way {
    /// Collectives may take this form. Where a link names any, it has no others.
    Form(Form),
    /// Another protocol for every message: less startup, less bandwidth.
    Short(Protocol),
    /// The switch adds: an all-reduce moves the array once, at a rate of its own.
    Nvls(Protocol),
}

/// The form of a collective; the module comment has their times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// One ring over all members.
    Ring,
    /// As many rings as an inner unit has members.
    Rails,
    /// Up and down a tree.
    Tree,
    /// Level by level.
    Nested,
}

/// Rate and startup of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    /// Rate of one member, one way.
    pub bandwidth: BytesPerSecond,
    /// What every message takes before it moves.
    pub startup: Nanos,
}

/// The part of a group that one level of links joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// The link.
    pub link: LinkId,
    /// Devices or inner units that it joins, in the fullest unit of this level.
    pub members: u64,
}

/// Members of a collective, and the levels of links that join them, innermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSpan {
    /// Number of members; at least one.
    pub members: u64,
    /// At least one level.
    pub levels: Vec<Level>,
}

/// One protocol on every level of a span.
struct Paths<'a> {
    span: &'a LinkSpan,
    /// Latency and rate of each level.
    rates: Vec<(Nanos, BytesPerSecond)>,
    startup: Nanos,
}

fn is_zero(time: &Nanos) -> bool {
    *time == Nanos(0)
}

impl Link {
    /// A link of one rate and latency, which offers a ring.
    pub fn plain(name: &str, bandwidth: BytesPerSecond, latency: Nanos) -> Self {
        let ways = Vec::new();
        Self { name: name.to_owned(), bandwidth, latency, startup: Nanos(0), ways }
    }

    /// The forms of collectives on it.
    pub fn forms(&self) -> impl Iterator<Item = Form> {
        let named = self.ways.iter().filter_map(|way| match way {
            Way::Form(form) => Some(*form),
            Way::Short(_) | Way::Nvls(_) => None,
        });
        let default = named.clone().next().is_none().then_some(Form::Ring);
        named.chain(default)
    }

    /// Whether collectives depend on nothing but the link itself and the number of members.
    pub fn is_flat(&self) -> bool {
        self.forms().all(|form| form == Form::Ring)
    }

    /// The same link at another bandwidth: its other protocols, which run over the same wires,
    /// gain or lose in proportion.
    pub fn set_bandwidth(&mut self, bandwidth: BytesPerSecond) {
        let (new, old) = (u128::from(bandwidth.0), u128::from(self.bandwidth.0.max(1)));
        for way in &mut self.ways {
            let (Way::Short(protocol) | Way::Nvls(protocol)) = way else { continue };
            let scaled = u128::from(protocol.bandwidth.0) * new / old;
            let scaled = u64::try_from(scaled).unwrap_or(u64::MAX).max(1);
            protocol.bandwidth = BytesPerSecond(scaled);
        }
        self.bandwidth = bandwidth;
    }

    /// The time of a message from one member to another.
    pub fn transfer_time(&self, bytes: Bytes) -> Nanos {
        let protocols = [Some(self.long()), self.short()].into_iter().flatten();
        let time = |p: Protocol| p.startup + self.latency + bytes.at(p.bandwidth);
        protocols.map(time).min().unwrap_or_default()
    }

    fn long(&self) -> Protocol {
        Protocol { bandwidth: self.bandwidth, startup: self.startup }
    }

    fn short(&self) -> Option<Protocol> {
        self.ways.iter().find_map(|way| match way {
            Way::Short(protocol) => Some(*protocol),
            Way::Form(_) | Way::Nvls(_) => None,
        })
    }

    fn nvls(&self) -> Option<Protocol> {
        self.ways.iter().find_map(|way| match way {
            Way::Nvls(protocol) => Some(*protocol),
            Way::Form(_) | Way::Short(_) => None,
        })
    }
}

impl Target {
    /// The time of what the parts of a line make together: a collective, or messages to neighbours,
    /// which leave the part that sends most one behind the other, over the link that joins the line.
    pub fn exchange_time(&self, span: &LinkSpan, exchanged: Exchanged) -> Nanos {
        match exchanged.kind {
            Exchanging::Collective(kind) => {
                self.collective_time(span, kind, exchanged.whole)
            }
            Exchanging::Strips(_) => {
                self.links[span.outermost().link].transfer_time(exchanged.sent())
            }
        }
    }

    /// The time of a collective over an array of `whole` bytes, by the laws of the module `link`.
    pub fn collective_time(
        &self,
        span: &LinkSpan,
        kind: Collective,
        whole: Bytes,
    ) -> Nanos {
        let outer = span.outermost();
        let link = &self.links[outer.link];
        let protocols = [Some(Link::long as fn(&Link) -> Protocol)];
        let short = link.short().map(|_| short_or_long as fn(&Link) -> Protocol);
        let protocols = protocols.into_iter().chain([short]).flatten();
        let timed = protocols.flat_map(|protocol| {
            let paths = Paths::new(self, span, protocol);
            link.forms().filter_map(move |form| paths.time(form, kind, whole))
        });
        let switched = self.nvls_time(span, kind, whole);
        timed.chain(switched).min().unwrap_or_else(|| {
            Paths::new(self, span, Link::long).ring(kind.rounds(), whole)
        })
    }

    /// The time of an all-reduce in the switch, where the one level offers it.
    fn nvls_time(
        &self,
        span: &LinkSpan,
        kind: Collective,
        whole: Bytes,
    ) -> Option<Nanos> {
        let [Level { link, .. }] = span.levels[..] else { return None };
        let link = &self.links[link];
        let Protocol { bandwidth, startup } = link.nvls()?;
        let moved = whole + Bytes(whole.0.div_ceil(span.members));
        let time = startup + link.latency * 2 + moved.at(bandwidth);
        (kind == Collective::AllReduce && span.members > 1).then_some(time)
    }

    /// The levels of links that join some devices, each named once; `outer` joins them all.
    pub fn span(&self, devices: &[DeviceId], outer: LinkId) -> LinkSpan {
        let members = devices.len().max(1) as u64;
        // Each unit by its first device, and how many levels it has inside.
        let mut units: Vec<(u32, usize)> =
            devices.iter().map(|device| (device.number(), 0)).collect();
        units.sort_unstable();
        units.dedup();
        let mut levels: Vec<Level> = Vec::new();
        for domain in &self.domains {
            let first =
                units.partition_point(|(device, _)| *device < domain.devices.start);
            let end = units.partition_point(|(device, _)| *device < domain.devices.end);
            let Some(inside) = units.get(first..end).filter(|all| all.len() > 1) else {
                continue;
            };
            let depth = inside.iter().map(|(_, depth)| *depth).max().unwrap_or(0);
            let level = Level { link: domain.link, members: inside.len() as u64 };
            match levels.get_mut(depth) {
                None => levels.push(level),
                Some(known) if level.members > known.members => *known = level,
                Some(_) => {}
            }
            let joined = (units[first].0, depth + 1);
            units.splice(first..end, [joined]);
        }
        if levels.is_empty() {
            levels.push(Level { link: outer, members });
        }
        LinkSpan { members, levels }
    }
}

/// The protocol for short messages where a link has one.
fn short_or_long(link: &Link) -> Protocol {
    link.short().unwrap_or_else(|| link.long())
}

impl LinkSpan {
    /// All members on one level.
    pub fn flat(link: LinkId, members: u64) -> Self {
        let members = members.max(1);
        Self { members, levels: vec![Level { link, members }] }
    }

    fn outermost(&self) -> Level {
        *self.levels.last().expect("a span has at least one level")
    }
}

impl<'a> Paths<'a> {
    fn new(target: &Target, span: &'a LinkSpan, protocol: fn(&Link) -> Protocol) -> Self {
        let links = span.levels.iter().map(|level| &target.links[level.link]);
        let rates = links.map(|link| (link.latency, protocol(link).bandwidth)).collect();
        let outer = &target.links[span.outermost().link];
        Self { span, rates, startup: protocol(outer).startup }
    }

    /// The time of a form, where the collective has it.
    fn time(&self, form: Form, kind: Collective, whole: Bytes) -> Option<Nanos> {
        let rounds = kind.rounds();
        match (form, kind) {
            (Form::Ring, _) => Some(self.ring(rounds, whole)),
            (Form::Rails, _) => Some(self.rails(rounds, whole)),
            (Form::Nested, _) => Some(self.nested(rounds, whole)),
            (Form::Tree, Collective::AllReduce) => Some(self.tree(whole)),
            (Form::Tree, Collective::ReduceScatter | Collective::AllGather) => None,
        }
    }

    fn ring(&self, rounds: u64, whole: Bytes) -> Nanos {
        let members = self.span.members;
        let (latency, rate) = *self.rates.last().expect("a span has at least one level");
        let each = latency + Bytes(whole.0.div_ceil(members)).at(rate);
        self.startup + each * (rounds * (members - 1))
    }

    fn rails(&self, rounds: u64, whole: Bytes) -> Nanos {
        let members = self.span.members;
        let moved = Bytes(whole.0.div_ceil(members)) * (rounds * (members - 1));
        let hops = self.units().into_iter().zip(&self.rates);
        let latency =
            hops.map(|((units, outside), (latency, _))| *latency * (units - outside));
        let latency: Nanos = latency.sum();
        self.startup + latency * rounds + moved.at(self.narrowest())
    }

    fn tree(&self, whole: Bytes) -> Nanos {
        if self.span.members < 2 {
            return self.startup;
        }
        let hops = |members: u64| u64::from(members.next_power_of_two().trailing_zeros());
        let levels = self.span.levels.iter().zip(&self.rates);
        let latency = levels.map(|(level, (latency, _))| *latency * hops(level.members));
        let latency: Nanos = latency.sum();
        self.startup + latency * 2 + (whole * 2).at(self.narrowest())
    }

    fn nested(&self, rounds: u64, whole: Bytes) -> Nanos {
        let mut inside = 1u64;
        let levels = self.span.levels.iter().zip(&self.rates);
        let phases = levels.map(|(level, (latency, rate))| {
            inside = inside.saturating_mul(level.members);
            let each = *latency + Bytes(whole.0.div_ceil(inside)).at(*rate);
            each * (level.members - 1)
        });
        let phases: Nanos = phases.sum();
        self.startup + phases * rounds
    }

    /// N_i and N_(i+1) of every level.
    fn units(&self) -> Vec<(u64, u64)> {
        let mut outside = 1u64;
        let outwards = self.span.levels.iter().rev().map(|level| {
            let around = outside;
            outside = outside.saturating_mul(level.members);
            (outside, around)
        });
        let mut units: Vec<_> = outwards.collect();
        units.reverse();
        units
    }

    /// B: what the ports of one unit move together, where that is least.
    fn narrowest(&self) -> BytesPerSecond {
        let mut inside = 1u64;
        let levels = self.span.levels.iter().zip(&self.rates);
        let together = levels.map(|(level, (_, rate))| {
            let ports = *rate * inside;
            inside = inside.saturating_mul(level.members);
            ports
        });
        together.min().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
