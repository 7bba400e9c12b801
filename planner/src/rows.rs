//! What the exchanges between the rows that split tensors take: a collective of neighbouring
//! devices, by the clock's own forms.

use roundelay_schedule::{DeviceId, Exchanged, Id, Nanos, Span, Target};
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// The links between rows, wherever in a cluster they are.
#[derive(Debug)]
pub(crate) struct Rows {
    target: Target,
    /// For each number of rows the ways in which some of them are joined.
    known: Mutex<BTreeMap<u32, Vec<Span>>>,
}

impl Rows {
    /// Of a cluster.
    pub(crate) fn new(target: &Target) -> Self {
        Self { target: target.clone(), known: Mutex::default() }
    }

    /// No rows take less.
    pub(crate) fn least(&self, exchange: Exchanged) -> Nanos {
        self.times(exchange).into_iter().min().unwrap_or_default()
    }

    /// The slowest rows take so long.
    pub(crate) fn most(&self, exchange: Exchanged) -> Nanos {
        self.times(exchange).into_iter().max().unwrap_or_default()
    }

    fn times(&self, Exchanged { kind, parts, whole }: Exchanged) -> Vec<Nanos> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let spans = known.entry(parts).or_insert_with(|| spans(&self.target, parts));
        let links = spans.iter();
        links.map(|span| self.target.collective_time(span, kind, whole)).collect()
    }
}

/// The ways in which `parts` neighbours are joined, each once.
fn spans(target: &Target, parts: u32) -> Vec<Span> {
    let parts = parts.max(1) as usize;
    let mut spans: Vec<Span> = Vec::new();
    for first in (0..target.devices.len() / parts).map(|group| group * parts) {
        let group: Vec<DeviceId> = (first..first + parts).map(DeviceId::new).collect();
        let Some(link) = target.link_between(group[0], group[parts - 1]) else {
            continue;
        };
        let span = match target.links[link].is_flat() {
            true => Span::flat(link, parts as u64),
            false => target.span(&group, link),
        };
        if !spans.contains(&span) {
            spans.push(span);
        }
    }
    spans
}
