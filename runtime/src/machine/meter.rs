//! What a machine counts while it runs.

use crate::digest::Digest;
use roundelay_schedule::{
    Bytes, Checked, DeviceId, Id, LinkId, Nanos, RoutineId, Schedule,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fmt::Display,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// What a replay did, from its start; comparable with `Facts` per training step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Training steps done.
    pub steps: u64,
    /// Bytes allocated per device of the target.
    pub arenas: BTreeMap<DeviceId, Bytes>,
    /// Bytes of devices besides arenas: scratch of kernels, products and convolutions, tables.
    pub beside: Bytes,
    /// Functions, matrix products and convolutions that launches of one training step give to GPUs.
    pub kernels: u64,
    /// What only GPUs have; none where CPU threads compute.
    pub gpus: Option<OnGpus>,
    /// Bytes that crossed each link level, summed over senders.
    pub link_bytes: BTreeMap<LinkId, Bytes>,
    /// Bytes that each device sent.
    pub sent: BTreeMap<DeviceId, Bytes>,
    /// Transfers between devices, collectives, and exchanges between rows of split tensors; these
    /// move what a ring would.
    pub messages: u64,
    /// Launches of each routine, and the time they took together without exchanges between rows.
    pub routines: BTreeMap<RoutineId, (u64, Nanos)>,
}

/// What is known of a replay on GPUs besides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnGpus {
    /// Graphs of whole periods that are kept.
    pub graphs: u64,
    /// Graphs of launches that are kept.
    pub launch_graphs: u64,
    /// In words why there is none of whole periods.
    pub ungraphed: Option<String>,
    /// In words the first way of making something that a trial here left out, because it cannot be part of a
    /// graph.
    pub unrecorded: Option<String>,
    /// In words the first thing that is made in the way that comes first, because a trial of its ways could not
    /// be made here, or not to its end.
    pub untried: Option<String>,
    /// What the driver handed out for arenas.
    pub handed: Bytes,
    /// The page that each block of these was rounded up to.
    pub page: Bytes,
    /// What NCCL took to connect ranks with those that they exchange messages with.
    pub connections: Bytes,
    /// Who makes matrix products; the library is cuBLASLt. What is wrong is a sum beside a product, which
    /// functions of ours make then.
    pub products: Makers,
    /// Who makes convolutions that are no matrix products; the library is cuDNN. What is wrong is an
    /// engine, which is never taken.
    pub convolutions: Makers,
    /// By which functions attention is made.
    pub attention: AttentionCounts,
}

/// Matrix products, or convolutions, of all routines, by who makes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Makers {
    /// By the library.
    pub library: u64,
    /// By functions of ours.
    pub own: u64,
    /// In words why the first of these is not the library's; none where there are none.
    pub why_own: Option<String>,
    /// In words the first thing that a trial here found the library to make other than our functions.
    pub wrong: Option<String>,
}

impl Makers {
    /// Counts one more, which the library makes in some way, or functions of ours for a reason.
    pub(crate) fn count<T>(&mut self, way: Result<T, impl Display>) -> Option<T> {
        match way {
            Ok(way) => {
                self.library += 1;
                Some(way)
            }
            Err(reason) => {
                self.own += 1;
                self.why_own.get_or_insert_with(|| reason.to_string());
                None
            }
        }
    }

    /// Counts anew; what trials found to be wrong stays so.
    pub(crate) fn forget(&mut self) {
        *self = Self { wrong: self.wrong.take(), ..Self::default() };
    }

    /// How they are made, with the digest of all that the library makes.
    pub(crate) fn ways(&self, digest: Digest) -> String {
        let Self { library, own, .. } = self;
        let digest = digest.value();
        format!("{library} by the library, {digest:016x}, and {own} by own functions")
    }

    /// Those of several processes, each of which plans all routines: of the one that makes most itself.
    fn with(self, other: Self) -> Self {
        Self {
            library: self.library.min(other.library),
            own: self.own.max(other.own),
            why_own: self.why_own.or(other.why_own),
            wrong: self.wrong.or(other.wrong),
        }
    }
}

/// Calls of attention on tensor cores, by who makes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttentionCounts {
    /// By cuDNN.
    pub library: u64,
    /// By functions of ours for devices of `sm_90a`.
    pub sm90: u64,
    /// By those for every device.
    pub usual: u64,
    /// In words why the first of these is not that of functions for `sm_90a`; none where there are none.
    pub why_usual: Option<String>,
    /// In words why the first call that functions of ours make is not the library's; none where there are
    /// none.
    pub why_own: Option<String>,
    /// In words the first call of which a trial here found that it is made of other numbers than those of
    /// functions for every device; what makes them is not taken.
    pub wrong: Option<String>,
}

impl AttentionCounts {
    /// As for products.
    fn with(self, other: Self) -> Self {
        Self {
            library: self.library.min(other.library),
            sm90: self.sm90.min(other.sm90),
            usual: self.usual.max(other.usual),
            why_usual: self.why_usual.or(other.why_usual),
            why_own: self.why_own.or(other.why_own),
            wrong: self.wrong.or(other.wrong),
        }
    }
}

impl OnGpus {
    /// Those of several processes.
    fn with(self, other: Self) -> Self {
        Self {
            graphs: self.graphs + other.graphs,
            launch_graphs: self.launch_graphs + other.launch_graphs,
            ungraphed: self.ungraphed.or(other.ungraphed),
            unrecorded: self.unrecorded.or(other.unrecorded),
            untried: self.untried.or(other.untried),
            handed: Bytes(self.handed.0 + other.handed.0),
            connections: Bytes(self.connections.0 + other.connections.0),
            page: self.page.max(other.page),
            products: self.products.with(other.products),
            convolutions: self.convolutions.with(other.convolutions),
            attention: self.attention.with(other.attention),
        }
    }
}

impl Measured {
    /// What several processes counted in the same replay.
    pub(crate) fn with(mut self, other: Self) -> Self {
        let Self {
            steps,
            arenas,
            beside,
            kernels,
            gpus,
            link_bytes,
            sent,
            messages,
            routines,
        } = other;
        self.gpus = match (self.gpus, gpus) {
            (Some(own), Some(other)) => Some(own.with(other)),
            (own, other) => own.or(other),
        };
        self.steps = steps;
        self.arenas.extend(arenas);
        self.beside += beside;
        self.kernels += kernels;
        self.messages += messages;
        self.sent.extend(sent);
        for (link, bytes) in link_bytes {
            *self.link_bytes.entry(link).or_default() += bytes;
        }
        for (routine, (count, time)) in routines {
            let own = self.routines.entry(routine).or_default();
            own.0 += count;
            own.1 += time;
        }
        self
    }

    /// Time of all launches together.
    pub fn kernel_time(&self) -> Nanos {
        self.routines.values().map(|(_, time)| *time).sum()
    }
}

/// The counters behind [`Measured`].
pub(crate) struct Meter {
    links: Box<[AtomicU64]>,
    sent: Box<[AtomicU64]>,
    messages: AtomicU64,
    launches: Box<[(AtomicU64, AtomicU64)]>,
}

impl Meter {
    /// Zeros.
    pub(crate) fn new(schedule: &Schedule) -> Self {
        let zeros = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        let pair = |_| (AtomicU64::new(0), AtomicU64::new(0));
        Self {
            links: zeros(schedule.target.links.len()),
            sent: zeros(schedule.target.devices.len()),
            messages: AtomicU64::new(0),
            launches: (0..schedule.routines.len()).map(pair).collect(),
        }
    }

    /// A routine ran.
    pub(crate) fn launched(&self, routine: RoutineId, time: Duration) {
        let (count, nanos) = &self.launches[routine.index()];
        count.fetch_add(1, Relaxed);
        nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Bytes crossed a link.
    pub(crate) fn moved(&self, link: LinkId, sender: DeviceId, bytes: u64) {
        self.links[link.index()].fetch_add(bytes, Relaxed);
        self.sent[sender.index()].fetch_add(bytes, Relaxed);
    }

    /// A message was sent.
    pub(crate) fn message(&self) {
        self.messages.fetch_add(1, Relaxed);
    }

    /// Back to zero.
    pub(crate) fn reset(&self) {
        let launches = self.launches.iter().flat_map(|(count, nanos)| [count, nanos]);
        let bytes = self.links.iter().chain(&self.sent).chain([&self.messages]);
        bytes.chain(launches).for_each(|counter| counter.store(0, Relaxed));
    }

    /// All counters.
    pub(crate) fn read(
        &self,
        schedule: &Checked,
        steps: u64,
        arenas: BTreeMap<DeviceId, Bytes>,
    ) -> Measured {
        let bytes = |counter: &AtomicU64| Bytes(counter.load(Relaxed));
        let launched = |id: RoutineId| {
            let (count, nanos) = &self.launches[id.index()];
            (id, (count.load(Relaxed), Nanos(nanos.load(Relaxed))))
        };
        let sent = |id: &DeviceId| (*id, bytes(&self.sent[id.index()]));
        let links = schedule.target.links.ids();
        Measured {
            steps,
            link_bytes: links.map(|id| (id, bytes(&self.links[id.index()]))).collect(),
            sent: arenas.keys().map(sent).collect(),
            messages: self.messages.load(Relaxed),
            routines: schedule.routines.ids().map(launched).collect(),
            arenas,
            beside: Bytes(0),
            kernels: 0,
            gpus: None,
        }
    }
}
