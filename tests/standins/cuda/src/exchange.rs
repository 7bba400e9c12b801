//! Messages between ranks as work of a stream: groups of them, in batches that move on together.
//!
//! The k-th message that a rank sends to another is the k-th that the other receives from it. A
//! message is read as late as it may be, when it is taken, unless sends are eager; so a sender
//! that changes it too early is found out.

use crate::{
    batches::{Ask, Way, batches},
    forbid,
    mesh::Mesh,
    settings::{Sends, Settings},
};
use std::{
    collections::{BTreeMap, BTreeSet},
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
    /// The ranks that it is connected with, once its first group has met them.
    pub(crate) connected: Option<BTreeSet<usize>>,
    /// Bytes of the device that it takes.
    pub(crate) taken: u64,
    /// The one stream that it is used on.
    pub(crate) stream: Option<u64>,
    /// Whether this rank has begun to end it.
    pub(crate) ends: bool,
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
    /// Of its group; it neither goes nor comes before the batches before it are done.
    batch: usize,
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
    /// Batches that were begun.
    begun: usize,
    batches: usize,
    sends: Vec<(Message, u64)>,
    receives: Vec<(Message, Target)>,
    sum: Option<Sum>,
}

impl Communicator {
    /// Connects this rank with all that a group has messages for, and says how many; ends the process
    /// where that does not go both ways.
    ///
    /// NCCL connects two ranks at the first group with a message between them, and waits there for
    /// the other; only a group in which each of two ranks sends to the other is sure not to wait in a
    /// circle.
    pub(crate) fn connect(&mut self, requests: &[Request]) -> usize {
        let ends = |way| {
            let all = requests.iter().filter_map(|request| request.ask());
            let all = all.filter(move |ask| ask.way == way).map(|ask| ask.peer);
            all.collect::<BTreeSet<usize>>()
        };
        let met = ends(Way::Send);
        if met != ends(Way::Receive) {
            forbid("ranks are connected in one direction");
        }
        self.connected.insert(met).len()
    }

    /// Ends the process where a group has messages for a rank that this one is not connected with.
    pub(crate) fn hold(&self, requests: &[Request]) {
        let met = self.connected.as_ref();
        for Ask { peer, .. } in requests.iter().filter_map(Request::ask) {
            if !met.is_some_and(|met| met.contains(&peer)) {
                let rank = self.rank;
                forbid(&format!(
                    "rank {rank} has a message for rank {peer}, which it never met"
                ));
            }
        }
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
    /// A message as NCCL puts it into a batch; none of what is no message.
    fn ask(&self) -> Option<Ask> {
        match self {
            Self::Send { peer, .. } => Some(Ask { peer: *peer, way: Way::Send }),
            Self::Receive { peer, .. } => Some(Ask { peer: *peer, way: Way::Receive }),
            Self::AllReduce { .. } | Self::ReduceScatter { .. } => None,
        }
    }

    /// Whether it is a message, and no collective.
    pub(crate) fn is_message(&self) -> bool {
        self.ask().is_some()
    }

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
            begun: 0,
            batches: 1,
            sends: Vec::new(),
            receives: Vec::new(),
            sum: None,
        };
        let Some(own) = self.communicators.get_mut(&communicator) else { return };
        let asked: Vec<Ask> = requests.iter().filter_map(Request::ask).collect();
        let mut numbers = batches(own.rank, own.size, &asked).into_iter();
        for request in requests {
            let batch = request.ask().and_then(|_| numbers.next()).unwrap_or(0);
            exchange.batches = exchange.batches.max(batch + 1);
            exchange.ask(own, *request, batch);
        }
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
        let mut open = true;
        while open {
            exchange.move_on(mesh, &mut self.arrived, settings.corrupt);
            open = exchange.begun < exchange.batches && exchange.is_done();
            if open {
                exchange.begin(mesh, settings.sends);
            }
        }
        let done = exchange.begun == exchange.batches && exchange.is_done();
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
    fn ask(&mut self, own: &mut Communicator, request: Request, batch: usize) {
        let (rank, size) = (own.rank, own.size);
        let others = move || (0..size).filter(move |peer| *peer != rank);
        let bytes_of = |count: usize| 4 * count as u64;
        match request {
            Request::Send { from, bytes, peer } => {
                self.send(own, (peer, batch), from, bytes);
            }
            Request::Receive { to, bytes, peer } => {
                self.receive(own, (peer, batch), Target::Device(to), bytes);
            }
            Request::AllReduce { from, to, count } => {
                for peer in others() {
                    self.send(own, (peer, batch), from, bytes_of(count));
                    self.receive(
                        own,
                        (peer, batch),
                        Target::Kept(Vec::new()),
                        bytes_of(count),
                    );
                }
                self.sum = Some(Sum { from, to, count, first: 0 });
            }
            Request::ReduceScatter { from, to, count } => {
                for peer in others() {
                    let part = from + bytes_of(peer * count);
                    self.send(own, (peer, batch), part, bytes_of(count));
                    self.receive(
                        own,
                        (peer, batch),
                        Target::Kept(Vec::new()),
                        bytes_of(count),
                    );
                }
                self.sum = Some(Sum { from, to, count, first: rank * count });
            }
        }
    }

    fn send(
        &mut self,
        own: &mut Communicator,
        (peer, batch): (usize, usize),
        from: u64,
        bytes: u64,
    ) {
        let number = own.sent[peer];
        own.sent[peer] += 1;
        self.sends.push((Message { peer, number, bytes, batch, done: false }, from));
    }

    fn receive(
        &mut self,
        own: &mut Communicator,
        (peer, batch): (usize, usize),
        target: Target,
        bytes: u64,
    ) {
        let number = own.received[peer];
        own.received[peer] += 1;
        self.receives.push((Message { peer, number, bytes, batch, done: false }, target));
    }

    /// Begins the next batch.
    fn begin(&mut self, mesh: &Mesh, sends: Sends) {
        let batch = self.begun;
        self.begun += 1;
        for (message, _) in self.receives.iter().filter(|(own, _)| own.batch == batch) {
            if let Some(peer) = &mesh.peers[message.peer] {
                peer.is_ready(message.number);
            }
        }
        if sends == Sends::Eager {
            let begun = self.sends.iter_mut().filter(|(own, _)| own.batch == batch);
            begun.for_each(|(message, from)| message.give(mesh, *from));
        }
    }

    fn move_on(&mut self, mesh: &Mesh, arrived: &mut u64, corrupt: Option<u64>) {
        let begun = self.begun;
        let open = |message: &Message| !message.done && message.batch < begun;
        for (message, from) in self.sends.iter_mut().filter(|(own, _)| open(own)) {
            let Some(peer) = &mesh.peers[message.peer] else { continue };
            let taken = peer.inbox().ready.remove(&message.number);
            if taken {
                message.give(mesh, *from);
            }
        }
        for (message, target) in self.receives.iter_mut().filter(|(own, _)| open(own)) {
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

    /// Whether all batches that were begun are done.
    fn is_done(&self) -> bool {
        let done = |message: &Message| message.done || message.batch >= self.begun;
        let sent = self.sends.iter().all(|(message, _)| done(message));
        sent && self.receives.iter().all(|(message, _)| done(message))
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
