//! One rank of several: this process has one of the devices of a schedule, on a GPU of its own, and
//! the others are other processes'.
//!
//! Every rank issues the whole list, gives its streams what touches its device, and turns what
//! crosses devices into messages. All of these stand in one stream, in the order of the list, so
//! that ranks meet in them alike and none waits for one that does not come: whoever is at the
//! earliest action of all in that order waits for nobody. Exchanges of split tensors stand there too, at
//! the place of their launch, call by call. Collectives and exchanges are messages and sums of our
//! own, because they add up in group order; so ranks get the bits that one process gets.

mod clocks;
mod issue;
mod neighbours;
mod parts;
mod peers;
mod post;
mod sets;
mod state;
mod strips;

pub(super) use peers::{Peers, ordinal_of};

use super::{
    CudaError, DriverError,
    arena::{ALIGNMENT, allocate},
    driver::{Address, Device, DeviceMemory, Event},
    lanes::{Homes, Lanes},
    ready::Code,
    staging::HALVES,
};
use crate::{
    machine::{Loss, Queues},
    ranks::{Among, Seated},
};
use clocks::{Clocks, Moment};
use neighbours::neighbours;
use post::Post;
use roundelay_schedule::{
    Bytes, Collective, DeviceId, Group, PhysicalQueue, Schedule, Work,
};
use std::sync::Arc;

/// This rank.
pub(super) struct Rank {
    pub(super) peers: Peers,
    pub(super) among: Among,
    clocks: Clocks,
    moments: Moments,
    post: Post,
    /// Number of the stream of messages.
    messages: usize,
    /// Where terms of sums, and what parts bring to each other, come in.
    received: DeviceMemory,
    received_bytes: Bytes,
    /// What this rank has to tell.
    losses: Vec<Loss>,
}

/// The most events of a stream. A moment whose event was set again is waited for too long, never
/// too short, and what it waits for stands before it in the list.
const MOST_MOMENTS: usize = 4_096;

/// Bytes of the widest number.
const LARGEST_ELEMENT: u64 = 8;

/// Events for moments of streams.
struct Moments {
    events: Vec<Event>,
    each: usize,
}

impl Moments {
    fn new(streams: usize, actions: usize) -> Result<Self, DriverError> {
        let each = (2 * actions).clamp(64, MOST_MOMENTS);
        let events =
            (0..streams * each).map(|_| Event::new()).collect::<Result<_, _>>()?;
        Ok(Self { events, each })
    }

    fn event(&self, Moment { stream, number }: Moment) -> &Event {
        &self.events[stream * self.each + (number % self.each as u64) as usize]
    }
}

impl Seated {
    /// Which stream each thread of the queues has: the lanes of the device and what the host brings
    /// to it have their own, messages have one together.
    pub(super) fn homes(&self, queues: &Queues) -> Homes {
        let mut count = 0;
        let mut fresh = || {
            count += 1;
            Some(count - 1)
        };
        let mut of: Vec<Option<usize>> = (0..queues.threads())
            .map(|thread| {
                let (queue, coordinate) = queues.home(thread);
                match queues.queue(queue) {
                    PhysicalQueue::Lane(cell, _)
                        if cell == self.cell && coordinate == self.coordinate =>
                    {
                        fresh()
                    }
                    PhysicalQueue::Host(cell) if cell == self.cell => fresh(),
                    PhysicalQueue::Lane(..)
                    | PhysicalQueue::Host(_)
                    | PhysicalQueue::Arrival(_)
                    | PhysicalQueue::Group(_) => None,
                }
            })
            .collect();
        let messages = count;
        for (thread, home) in of.iter_mut().enumerate() {
            match queues.queue_of(thread) {
                PhysicalQueue::Arrival(_) | PhysicalQueue::Group(_) => {
                    *home = Some(messages);
                }
                PhysicalQueue::Lane(..) | PhysicalQueue::Host(_) => {}
            }
        }
        Homes { of, streams: messages + 1 }
    }
}

impl Rank {
    /// Meets the devices of all other ranks.
    ///
    /// # Errors
    /// When they do not come together, or the device has too little memory.
    pub(super) fn new(
        schedule: &Schedule,
        queues: &Queues,
        device: &Device,
        among: Among,
        (lanes, code): (&Lanes, &Code),
    ) -> Result<Self, CudaError> {
        let streams = lanes.homes.streams;
        let messages = streams - 1;
        let waits = schedule.actions.values().flat_map(|action| &action.after);
        let depth = 1 + waits.map(|wait| wait.distance).max().unwrap_or(0) as usize;
        let depth = depth.max(HALVES);
        let actions = schedule.actions.len();
        let moments = Moments::new(streams, actions);
        let received_bytes = terms(schedule).max(parts::incoming(code));
        let received = allocate(device, "what other ranks bring", received_bytes)?;
        let Among { control, owners, seated } = &among;
        let first = owners.rank(seated.first_part(schedule));
        parts::agree(schedule, (control, first), device.facts(), code)
            .map_err(|trouble| control.ended(trouble))?;
        let met = neighbours(schedule, code, *seated, owners);
        let stream = lanes.numbered(messages);
        let joined = Peers::join(Arc::clone(control), device, stream, &met);
        Ok(Self {
            peers: joined.map_err(|trouble| control.ended(trouble))?,
            clocks: Clocks::new(streams, queues.len(), actions, depth),
            moments: moments
                .map_err(|reason| CudaError::refused(device.facts(), "events", reason))?,
            post: Post::new(seated.device),
            among,
            messages,
            received,
            received_bytes,
            losses: Vec::new(),
        })
    }

    /// The rank that has a device.
    pub(super) fn owner(&self, device: DeviceId) -> u32 {
        self.among.owners.rank(device)
    }

    /// Bytes of the device that it takes.
    pub(super) fn device_bytes(&self) -> Bytes {
        self.received_bytes
    }

    /// The stream of an action that it takes.
    fn stream(&self, queues: &Queues, homes: &Homes, queue: usize) -> usize {
        let threads = queues.threads_of(queue);
        let thread = match queues.queue(queue) {
            PhysicalQueue::Lane(..) => threads.start + self.among.seated.coordinate,
            PhysicalQueue::Host(_)
            | PhysicalQueue::Arrival(_)
            | PhysicalQueue::Group(_) => threads.start,
        };
        homes.of[thread].expect("what a rank takes has a stream")
    }

    /// Where what other ranks bring begins.
    fn received(&self) -> Address {
        self.received.start()
    }
}

/// Room for what other ranks bring to one sum.
fn terms(schedule: &Schedule) -> Bytes {
    let of = |work: &Work| match work {
        Work::Collective {
            kind: Collective::AllReduce | Collective::ReduceScatter,
            group,
            from,
            ..
        } => {
            let Group { places, axes } = &schedule.groups[*group];
            let along = axes.iter().map(|axis| u64::from(schedule.axes[*axis].extent));
            let members = places.len() as u64 * along.product::<u64>();
            members * room(schedule.buffers[from.buffer].size.0, members)
        }
        Work::Collective { kind: Collective::AllGather, .. }
        | Work::Launch { .. }
        | Work::Transfer { .. }
        | Work::Feed { .. }
        | Work::Report { .. } => 0,
    };
    let most = schedule.actions.values().map(|action| of(&action.work)).max();
    Bytes(most.unwrap_or(0))
}

/// Room for the largest part of a row among this many members.
fn room(row: u64, members: u64) -> u64 {
    (row.div_ceil(members) + LARGEST_ELEMENT).next_multiple_of(ALIGNMENT)
}
