//! Connections between the ranks of a communicator, over sockets of this machine.
//!
//! Whoever makes an identity listens at a port, which is the identity. All ranks come there, say
//! where they listen themselves, hear of all others, and connect with each.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Sender, channel},
    },
    thread,
};

/// What a rank says of itself: number, number of ranks, device, machine, port.
type Introduction = [u64; 5];

/// What ranks send each other.
const READY: u64 = 0;
const DATA: u64 = 1;
const BYE: u64 = 2;
const END: u64 = 3;

/// Results of NCCL.
pub(crate) const SYSTEM_ERROR: u32 = 2;
pub(crate) const INVALID_ARGUMENT: u32 = 4;
pub(crate) const INVALID_USAGE: u32 = 5;

/// What has come from a rank.
#[derive(Default)]
pub(crate) struct Inbox {
    /// Messages that it is ready to take, by number.
    pub(crate) ready: BTreeSet<u64>,
    /// Messages.
    pub(crate) data: BTreeMap<u64, Vec<u8>>,
    /// Whether it has begun to end the communicator.
    ends: bool,
    /// Whether it is gone without a farewell.
    pub(crate) lost: bool,
}

/// Another rank.
pub(crate) struct Peer {
    stream: TcpStream,
    writer: Sender<(u64, u64, Vec<u8>)>,
    inbox: Arc<Mutex<Inbox>>,
}

/// All ranks, this one as none.
pub(crate) struct Mesh {
    pub(crate) rank: usize,
    pub(crate) peers: Vec<Option<Peer>>,
}

/// Listens for the ranks of a new communicator.
pub(crate) fn found() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || drop(introduce(&listener)));
    Ok(port)
}

/// Tells all ranks of each other, once all are there.
fn introduce(listener: &TcpListener) -> io::Result<()> {
    let mut all: Vec<(TcpStream, Introduction)> = Vec::new();
    while all.first().is_none_or(|(_, [_, size, ..])| (all.len() as u64) < *size) {
        let (mut stream, _) = listener.accept()?;
        let own = read_words::<5>(&mut stream)?;
        all.push((stream, own));
    }
    all.sort_by_key(|(_, [rank, ..])| *rank);
    let agree = all.iter().all(|(_, [_, size, ..])| *size == all.len() as u64);
    let words: Vec<u64> = all.iter().flat_map(|(_, own)| *own).collect();
    for (stream, _) in &mut all {
        write_words(stream, &[u64::from(agree)])?;
        write_words(stream, &words)?;
    }
    Ok(())
}

impl Mesh {
    /// Connects with all other ranks.
    pub(crate) fn connect(
        port: u16,
        [rank, size]: [u64; 2],
        device: u64,
        host: u64,
    ) -> Result<Self, (u32, String)> {
        let refused = |error: io::Error| (SYSTEM_ERROR, error.to_string());
        let mut root =
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(refused)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(refused)?;
        let own = listener.local_addr().map_err(refused)?.port();
        let all = meet(&mut root, [rank, size, device, host, u64::from(own)]);
        let all = all.map_err(refused)?;
        let Some(all) = all else {
            let text = "mismatch in the number of ranks".to_owned();
            return Err((INVALID_ARGUMENT, text));
        };
        for [other, _, theirs, at, _] in &all {
            if *other != rank && (*theirs, *at) == (device, host) {
                return Err((INVALID_USAGE, duplicate(rank, *other, device)));
            }
        }
        Self::join(rank as usize, &all, &listener).map_err(refused)
    }

    /// Goes to ranks below, and is visited by those above.
    fn join(
        rank: usize,
        all: &[Introduction],
        listener: &TcpListener,
    ) -> io::Result<Self> {
        let mut peers: Vec<Option<Peer>> = all.iter().map(|_| None).collect();
        for [other, .., port] in &all[..rank] {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, *port as u16))?;
            write_words(&mut stream, &[rank as u64])?;
            peers[*other as usize] = Some(Peer::new(stream)?);
        }
        for _ in rank + 1..all.len() {
            let (mut stream, _) = listener.accept()?;
            let [other] = read_words::<1>(&mut stream)?;
            peers[other as usize] = Some(Peer::new(stream)?);
        }
        Ok(Self { rank, peers })
    }

    /// Whether another rank is gone.
    pub(crate) fn lost(&self) -> bool {
        self.peers.iter().flatten().any(|peer| peer.inbox().lost)
    }

    /// Tells all that this rank begins to end.
    pub(crate) fn end(&self) {
        self.peers.iter().flatten().for_each(|peer| peer.send(END, 0, Vec::new()));
    }

    /// Whether all others have begun to end.
    pub(crate) fn all_end(&self) -> bool {
        self.peers.iter().flatten().all(|peer| peer.inbox().ends)
    }

    /// Says goodbye to all.
    pub(crate) fn leave(&self) {
        self.peers.iter().flatten().for_each(|peer| peer.send(BYE, 0, Vec::new()));
    }

    /// Goes without a word.
    pub(crate) fn cut(&self) {
        for peer in self.peers.iter().flatten() {
            let _ = peer.stream.shutdown(Shutdown::Both);
        }
    }
}

fn duplicate(rank: u64, other: u64, device: u64) -> String {
    format!(
        "Duplicate GPU detected : rank {rank} and rank {other} both on CUDA device {device}"
    )
}

/// What all ranks say of themselves; none when they do not agree on their number.
fn meet(
    root: &mut TcpStream,
    own: Introduction,
) -> io::Result<Option<Vec<Introduction>>> {
    write_words(root, &own)?;
    let [agree] = read_words::<1>(root)?;
    if agree == 0 {
        return Ok(None);
    }
    (0..own[1]).map(|_| read_words::<5>(root)).collect::<io::Result<_>>().map(Some)
}

impl Peer {
    /// Reads and writes on threads of their own, so that nobody ever waits.
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let inbox = Arc::new(Mutex::new(Inbox::default()));
        let (mut input, arrivals) = (stream.try_clone()?, Arc::clone(&inbox));
        thread::spawn(move || {
            let farewell = read_all(&mut input, &arrivals);
            lock(&arrivals).lost = !farewell;
        });
        let (writer, messages) = channel::<(u64, u64, Vec<u8>)>();
        let mut output = stream.try_clone()?;
        thread::spawn(move || {
            for (kind, number, bytes) in messages {
                let head = [kind, number, bytes.len() as u64];
                if write_words(&mut output, &head).is_err()
                    || output.write_all(&bytes).is_err()
                {
                    return;
                }
            }
        });
        Ok(Self { stream, writer, inbox })
    }

    pub(crate) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.inbox)
    }

    fn send(&self, kind: u64, number: u64, bytes: Vec<u8>) {
        let _ = self.writer.send((kind, number, bytes));
    }

    /// Says that a message will be taken.
    pub(crate) fn is_ready(&self, number: u64) {
        self.send(READY, number, Vec::new());
    }

    /// Sends a message.
    pub(crate) fn give(&self, number: u64, bytes: Vec<u8>) {
        self.send(DATA, number, bytes);
    }
}

fn lock(inbox: &Mutex<Inbox>) -> MutexGuard<'_, Inbox> {
    inbox.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes what comes, and says whether there was a farewell.
fn read_all(input: &mut TcpStream, inbox: &Mutex<Inbox>) -> bool {
    while let Ok([kind, number, length]) = read_words::<3>(input) {
        let mut bytes = vec![0; length as usize];
        if input.read_exact(&mut bytes).is_err() {
            return false;
        }
        match kind {
            READY => drop(lock(inbox).ready.insert(number)),
            DATA => drop(lock(inbox).data.insert(number, bytes)),
            END => lock(inbox).ends = true,
            _ => return true,
        }
    }
    false
}

fn write_words(to: &mut TcpStream, words: &[u64]) -> io::Result<()> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    to.write_all(&bytes)
}

fn read_words<const COUNT: usize>(from: &mut TcpStream) -> io::Result<[u64; COUNT]> {
    let mut words = [0; COUNT];
    for word in &mut words {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes)?;
        *word = u64::from_le_bytes(bytes);
    }
    Ok(words)
}
