//! What the exchanges between the parts of split tensors take: a collective of the devices of a
//! line, or messages between neighbours, by the clock's own forms. Lines that exchange at once are priced each as if alone, though
//! those that cross a node share its ports.

use roundelay_schedule::{DeviceId, Exchanged, Id, Line, LinkId, Nanos, Span, Target};
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// The links between parts, wherever in a cluster they are.
#[derive(Debug)]
pub(crate) struct PartLinks {
    target: Target,
    /// For each kind of line the ways in which some of them are joined.
    known: Mutex<BTreeMap<Line, Vec<Span>>>,
}

impl PartLinks {
    /// Of a cluster.
    pub(crate) fn new(target: &Target) -> Self {
        Self { target: target.clone(), known: Mutex::default() }
    }

    /// No line takes less.
    pub(crate) fn least(&self, exchange: Exchanged) -> Nanos {
        let times = self.times(exchange, |_| ()).into_iter();
        times.map(|(time, ())| time).min().unwrap_or_default()
    }

    /// The slowest line takes so long, and keeps a link busy: the last one of those that are
    /// outermost for some line of the kind, whatever the size, so that lines of one kind share it.
    pub(crate) fn most(&self, exchange: Exchanged) -> (Nanos, LinkId) {
        let outermost = |span: &Span| span.levels.last().map(|level| level.link);
        let times = self.times(exchange, outermost);
        let time = times.iter().map(|(time, _)| *time).max().unwrap_or_default();
        let link = times.into_iter().filter_map(|(_, link)| link).max();
        (time, link.unwrap_or(Id::new(0)))
    }

    fn times<T>(&self, exchange: Exchanged, of: impl Fn(&Span) -> T) -> Vec<(Nanos, T)> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let spans = known.entry(exchange.line);
        let spans = spans.or_insert_with(|| spans_of(&self.target, exchange.line));
        let links = spans.iter();
        let time = |span: &Span| self.target.exchange_time(span, exchange);
        links.map(|span| (time(span), of(span))).collect()
    }
}

/// The ways in which the lines of grids are joined that fill the cluster from its first device on,
/// each once.
fn spans_of(target: &Target, line: Line) -> Vec<Span> {
    let parts = line.parts.max(1);
    let each = (parts * line.stride.max(1)) as usize;
    let whole = target.devices.len() / each * each;
    let firsts = (0..u32::try_from(whole).unwrap_or(u32::MAX))
        .filter(|device| line.place(*device) == 0);
    let mut spans: Vec<Span> = Vec::new();
    for first in firsts {
        let members = line.members(first).map(|device| DeviceId::new(device as usize));
        let group: Vec<DeviceId> = members.collect();
        let Some(link) = target.link_between(group[0], group[group.len() - 1]) else {
            continue;
        };
        let span = match target.links[link].is_flat() {
            true => Span::flat(link, u64::from(parts)),
            false => target.span(&group, link),
        };
        if !spans.contains(&span) {
            spans.push(span);
        }
    }
    spans
}
