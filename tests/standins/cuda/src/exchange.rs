//! Messages between ranks as work of a stream: groups of them, which move on together.
//!
//! The k-th message that a rank sends to another is the k-th that the other receives from it. A
//! message is read as late as it may be, when it is taken, unless sends are eager; so a sender
//! that changes it too early is found out.

use crate::{
    forbid,
    mesh::Mesh,
    settings::{Sends, Settings},
};
use std::{
    collections::BTreeMap,
    ptr, slice,
    sync::{Arc, Mutex, PoisonError},
};

/// How far a communicator has come with meeting the other ranks.
pub(crate) enum Setup {
    Busy,
    Met(Mesh),
    Failed(u32),
}

/// A communicator.
pub(crate) struct Communicator {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) setup: Arc<Mutex<Setup>>,
    /// Groups that no stream has been given yet, each with its stream.
    pub(crate) waiting: Vec<(u64, u64)>,
    /// Whether a call is under way.
    pub(crate) busy: bool,
    /// Whether every rank has a connection with every other one.
    pub(crate) connected: bool,
    /// The one stream that it is used on.
    pub(crate) stream: Option<u64>,
    /// Messages sent to and received from each rank.
    pub(crate) sent: Vec<u64>,
    pub(crate) received: Vec<u64>,
}

/// Where bytes go that come from another rank.
enum Target {
    Device(u64),
    Kept(Vec<u8>),
}

/// One message.
struct Message {
    peer: usize,
    number: u64,
    bytes: u64,
    done: bool,
}

/// A sum over ranks, once all parts are there: numbers of 32 bits.
struct Sum {
    from: u64,
    to: u64,
    count: usize,
    /// First number of this rank's part of what each brings.
    first: usize,
}

/// A group of messages.
pub(crate) struct Exchange {
    communicator: u64,
    /// Its number on this rank.
    number: u64,
    begun: bool,
    sends: Vec<(Message, u64)>,
    receives: Vec<(Message, Target)>,
    sum: Option<Sum>,
}

impl Communicator {
    /// Whether a group has a message to and from every other rank.
    ///
    /// NCCL connects two ranks at the first group with a message between them, and waits there for
    /// the other; only a group that is the same on all ranks is sure not to wait in a circle.
    pub(crate) fn connects(&self, requests: &[Request]) -> bool {
        let sent = |rank| {
            let to = |one: &Request| matches!(one, Request::Send { peer, .. } if *peer == rank);
            requests.iter().any(to)
        };
        let received = |rank| {
            let from = |one: &Request| matches!(one, Request::Receive { peer, .. } if *peer == rank);
            requests.iter().any(from)
        };
        let others = (0..self.size).filter(|rank| *rank != self.rank);
        others.into_iter().all(|rank| sent(rank) && received(rank))
    }
}

/// All communicators and groups.
#[derive(Default)]
pub(crate) struct Ranks {
    pub(crate) communicators: BTreeMap<u64, Communicator>,
    exchanges: BTreeMap<u64, Exchange>,
    begun: u64,
    /// Messages that have arrived.
    arrived: u64,
}

/// What is asked of a communicator within a group.
#[derive(Clone, Copy)]
pub(crate) enum Request {
    Send { from: u64, bytes: u64, peer: usize },
    Receive { to: u64, bytes: u64, peer: usize },
    AllReduce { from: u64, to: u64, count: usize },
    ReduceScatter { from: u64, to: u64, count: usize },
}

impl Request {
    /// Bytes of a message to another rank.
    pub(crate) fn sent(&self) -> u64 {
        match self {
            Self::Send { bytes, .. } => *bytes,
            Self::Receive { .. }
            | Self::AllReduce { .. }
            | Self::ReduceScatter { .. } => 0,
        }
    }
}

impl Ranks {
    /// A group of what was asked of a communicator.
    pub(crate) fn group(&mut self, communicator: u64, requests: &[Request], id: u64) {
        self.begun += 1;
        let mut exchange = Exchange {
            communicator,
            number: self.begun,
            begun: false,
            sends: Vec::new(),
            receives: Vec::new(),
            sum: None,
        };
        let Some(own) = self.communicators.get_mut(&communicator) else { return };
        requests.iter().for_each(|request| exchange.ask(own, *request));
        self.exchanges.insert(id, exchange);
    }

    /// Goes on with a group as far as possible; says whether it is done. What belongs to a
    /// communicator that was aborted is.
    pub(crate) fn advance(&mut self, id: u64, settings: &Settings) -> bool {
        let Some(exchange) = self.exchanges.get_mut(&id) else { return true };
        let Some(own) = self.communicators.get(&exchange.communicator) else {
            self.exchanges.remove(&id);
            return true;
        };
        let setup = own.setup.lock().unwrap_or_else(PoisonError::into_inner);
        let Setup::Met(mesh) = &*setup else { return false };
        if settings.stall == Some(exchange.number) {
            return false;
        }
        if !std::mem::replace(&mut exchange.begun, true) {
            exchange.begin(mesh, settings.sends);
        }
        exchange.move_on(mesh, &mut self.arrived, settings.corrupt);
        let done = exchange.is_done();
        if done {
            exchange.add_up(mesh);
        }
        drop(setup);
        if done {
            self.exchanges.remove(&id);
        }
        done
    }
}

impl Exchange {
    fn ask(&mut self, own: &mut Communicator, request: Request) {
        let (rank, size) = (own.rank, own.size);
        let others = move || (0..size).filter(move |peer| *peer != rank);
        let bytes_of = |count: usize| 4 * count as u64;
        match request {
            Request::Send { from, bytes, peer } => self.send(own, peer, from, bytes),
            Request::Receive { to, bytes, peer } => {
                self.receive(own, peer, Target::Device(to), bytes);
            }
            Request::AllReduce { from, to, count } => {
                for peer in others() {
                    self.send(own, peer, from, bytes_of(count));
                    self.receive(own, peer, Target::Kept(Vec::new()), bytes_of(count));
                }
                self.sum = Some(Sum { from, to, count, first: 0 });
            }
            Request::ReduceScatter { from, to, count } => {
                for peer in others() {
                    let part = from + bytes_of(peer * count);
                    self.send(own, peer, part, bytes_of(count));
                    self.receive(own, peer, Target::Kept(Vec::new()), bytes_of(count));
                }
                self.sum = Some(Sum { from, to, count, first: rank * count });
            }
        }
    }

    fn send(&mut self, own: &mut Communicator, peer: usize, from: u64, bytes: u64) {
        let number = own.sent[peer];
        own.sent[peer] += 1;
        self.sends.push((Message { peer, number, bytes, done: false }, from));
    }

    fn receive(
        &mut self,
        own: &mut Communicator,
        peer: usize,
        target: Target,
        bytes: u64,
    ) {
        let number = own.received[peer];
        own.received[peer] += 1;
        self.receives.push((Message { peer, number, bytes, done: false }, target));
    }

    fn begin(&mut self, mesh: &Mesh, sends: Sends) {
        for (message, _) in &self.receives {
            if let Some(peer) = &mesh.peers[message.peer] {
                peer.is_ready(message.number);
            }
        }
        if sends == Sends::Eager {
            for (message, from) in &mut self.sends {
                message.give(mesh, *from);
            }
        }
    }

    fn move_on(&mut self, mesh: &Mesh, arrived: &mut u64, corrupt: Option<u64>) {
        for (message, from) in self.sends.iter_mut().filter(|(message, _)| !message.done)
        {
            let Some(peer) = &mesh.peers[message.peer] else { continue };
            let taken = peer.inbox().ready.remove(&message.number);
            if taken {
                message.give(mesh, *from);
            }
        }
        for (message, target) in
            self.receives.iter_mut().filter(|(message, _)| !message.done)
        {
            let Some(peer) = &mesh.peers[message.peer] else { continue };
            let come = peer.inbox().data.remove(&message.number);
            let Some(mut bytes) = come else { continue };
            *arrived += 1;
            if corrupt == Some(*arrived)
                && let Some(byte) = bytes.last_mut()
            {
                *byte ^= 0x10;
            }
            message.take(bytes, target, mesh.rank);
        }
    }

    fn is_done(&self) -> bool {
        let sent = self.sends.iter().all(|(message, _)| message.done);
        sent && self.receives.iter().all(|(message, _)| message.done)
    }

    /// Sums in the order of ranks.
    fn add_up(&self, mesh: &Mesh) {
        let Some(Sum { from, to, count, first }) = self.sum else { return };
        // SAFETY: both ranges were live when this was asked for, and are numbers.
        let (own, to) = unsafe {
            let from = (from as *const f32).add(first);
            let own = slice::from_raw_parts(from, count).to_vec();
            (own, slice::from_raw_parts_mut(to as *mut f32, count))
        };
        to.fill(0.0);
        let mut come = self.receives.iter();
        for rank in 0..mesh.peers.len() {
            let part = match (rank == mesh.rank).then_some(()) {
                Some(()) => own.clone(),
                None => come.next().map_or(Vec::new(), |(_, target)| target.numbers()),
            };
            to.iter_mut().zip(part).for_each(|(sum, number)| *sum += number);
        }
    }
}

impl Target {
    fn numbers(&self) -> Vec<f32> {
        let Target::Kept(bytes) = self else { return Vec::new() };
        let (words, _) = bytes.as_chunks::<4>();
        words.iter().map(|word| f32::from_ne_bytes(*word)).collect()
    }
}

impl Message {
    fn give(&mut self, mesh: &Mesh, from: u64) {
        let Some(peer) = &mesh.peers[self.peer] else { return };
        let mut bytes = vec![0; self.bytes as usize];
        // SAFETY: the range was live when this was asked for.
        unsafe {
            ptr::copy_nonoverlapping(from as *const u8, bytes.as_mut_ptr(), bytes.len());
        }
        peer.give(self.number, bytes);
        self.done = true;
    }

    fn take(&mut self, bytes: Vec<u8>, target: &mut Target, rank: usize) {
        if bytes.len() as u64 != self.bytes {
            forbid(&format!(
                "message {} from rank {} to rank {rank} has {} bytes; {} are received",
                self.number,
                self.peer,
                bytes.len(),
                self.bytes
            ));
        }
        match target {
            // SAFETY: the range was live when this was asked for.
            Target::Device(to) => unsafe {
                ptr::copy_nonoverlapping(bytes.as_ptr(), *to as *mut u8, bytes.len());
            },
            Target::Kept(kept) => *kept = bytes,
        }
        self.done = true;
    }
}
