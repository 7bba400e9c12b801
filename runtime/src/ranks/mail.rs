//! What ranks send each other where no GPU does it: one connection between every two of them, and
//! a thread at each end that reads whatever comes into a box, so that no sender waits for long.
//!
//! A message belongs to an instance of an action, and waits in the box until that takes it; those of
//! one instance are taken in the order in which they were sent. Ranks agree before every period
//! (`Control::gather`), so none is more than a few periods ahead, and boxes stay small.

use super::{
    control::Control,
    meeting::{ATTEMPT, Door, INTRODUCTION, Until, listen},
    trouble::Trouble,
};
use crate::{
    blocks::Blocks,
    lock::{held, lock},
    memory::Memory,
};
use roundelay_schedule::Bytes;
use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How long to sleep before looking for a rank again, and how often whoever waits for a message looks
/// whether everything stops.
const TICK: Duration = Duration::from_millis(2);
const LOOK: Duration = Duration::from_millis(50);

/// What a connection begins with: another word than one of [`Control`].
const GREETING: [u8; 8] = *b"rndmail1";

/// The most bytes of a message: no arena is larger.
const LONGEST: u64 = 1 << 48;

/// The instance that a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Label {
    /// Number of the action.
    pub(crate) action: u64,
    pub(crate) period: i64,
    /// Number among those that go on beside each other in one instance.
    pub(crate) piece: u64,
}

/// Why no message comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Everything stops.
    Stopped,
    /// The connection ended, for this.
    Lost(io::ErrorKind),
}

/// The connections of a rank with all others.
pub(crate) struct Mail {
    /// By rank; none with itself.
    posts: Vec<Option<Post>>,
    readers: Vec<JoinHandle<()>>,
    /// Bytes of messages, without their labels.
    sent: AtomicU64,
}

/// Why a message was not sent.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// The other rank takes nothing any more.
    Late,
    /// The connection is broken.
    Broken(io::Error),
}

/// The connection with one other rank.
struct Post {
    /// Locked by whoever writes; shut down once something was written in part, so nothing follows it.
    line: Mutex<Arc<TcpStream>>,
    letters: Arc<Letters>,
}

/// What has come from one other rank.
#[derive(Default)]
struct Letters {
    kept: Mutex<Kept>,
    came: Condvar,
}

#[derive(Default)]
struct Kept {
    waiting: BTreeMap<Label, VecDeque<Memory>>,
    /// Those that were taken and given back.
    free: Blocks,
    ended: Option<io::ErrorKind>,
}

impl Mail {
    /// Connects every two ranks; all of them call this.
    ///
    /// # Errors
    /// When some rank fails, or cannot be reached in time.
    pub(crate) fn open(control: &Control) -> Result<Self, Trouble> {
        let failed = |what: &str, error: io::Error| {
            control.fail(&format!("it cannot {what}: {error}"))
        };
        let listener = listen(control.seat(), 0)
            .map_err(|error| failed("listen for the others", error))?;
        let port = listener.local_addr().map(|own| own.port());
        let port = port.map_err(|error| failed("listen for the others", error))?;
        let told = Address { ip: control.ends().map(|ends| ends.own), port };
        let all = control.gather(told.written())?;
        let end = Instant::now() + control.deadline();
        let own = control.seat().rank;
        let mut streams: Vec<Option<TcpStream>> = all.iter().map(|_| None).collect();
        for (rank, said) in (0..own).zip(&all) {
            let place = Address::read(said).and_then(|other| other.seen_by(control));
            let place = place.ok_or_else(|| {
                control.fail(&format!("rank {rank} does not say where it is"))
            })?;
            streams[rank as usize] = Some(reach((rank, place), (control, end))?);
        }
        let guests = streams.len() - own as usize - 1;
        let mut door = Door::new(listener);
        for _ in 0..guests {
            let (rank, stream) = accept(&mut door, &streams, (control, end))?;
            streams[rank] = Some(stream);
        }
        Self::over(streams).map_err(|error| failed("start a thread", error))
    }

    fn over(streams: Vec<Option<TcpStream>>) -> io::Result<Self> {
        let mut mail =
            Self { posts: Vec::new(), readers: Vec::new(), sent: AtomicU64::new(0) };
        for stream in streams {
            let Some(line) = stream.map(Arc::new) else {
                mail.posts.push(None);
                continue;
            };
            let letters = Arc::new(Letters::default());
            let (reading, own) = (Arc::clone(&line), Arc::clone(&letters));
            mail.posts.push(Some(Post { line: Mutex::new(line), letters }));
            let reading = move || own.read(&mut &*reading);
            mail.readers.push(thread::Builder::new().spawn(reading)?);
        }
        Ok(mail)
    }

    fn post(&self, rank: u32) -> &Post {
        self.posts[rank as usize].as_ref().expect("no rank sends itself anything")
    }

    /// Sends bytes to another rank.
    ///
    /// # Errors
    /// When the connection has ended, or the other rank does not take them in time.
    pub(crate) fn send(&self, to: u32, label: Label, bytes: &[u8]) -> Result<(), Unsent> {
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&label.action.to_le_bytes());
        head[8..16].copy_from_slice(&label.period.to_le_bytes());
        head[16..24].copy_from_slice(&label.piece.to_le_bytes());
        head[24..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        let line = lock(&self.post(to).line);
        let mut writer = &**line;
        let written = writer.write_all(&head).and_then(|()| writer.write_all(bytes));
        if let Err(error) = written {
            let _ = line.shutdown(Shutdown::Both);
            return Err(match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Unsent::Late,
                _ => Unsent::Broken(error),
            });
        }
        self.sent.fetch_add(bytes.len() as u64, Relaxed);
        Ok(())
    }

    /// Bytes that were sent so far.
    pub(crate) fn sent(&self) -> Bytes {
        Bytes(self.sent.load(Relaxed))
    }

    /// The next message of an instance from another rank, as soon as it is there.
    ///
    /// # Errors
    /// When none will come.
    pub(crate) fn take(
        &self,
        from: u32,
        label: Label,
        stops: impl Fn() -> bool,
    ) -> Result<Memory, Missing> {
        let Letters { kept, came } = &*self.post(from).letters;
        let mut own = lock(kept);
        loop {
            if let Some(block) = own.next(label) {
                return Ok(block);
            }
            if stops() {
                return Err(Missing::Stopped);
            }
            if let Some(why) = own.ended {
                return Err(Missing::Lost(why));
            }
            (own, _) = held(came.wait_timeout(own, LOOK));
        }
    }

    /// Gives a message's memory back, for those to come.
    pub(crate) fn give_back(&self, from: u32, block: Memory) {
        let mut kept = lock(&self.post(from).letters.kept);
        kept.free.give_back(block);
    }
}

impl Drop for Mail {
    fn drop(&mut self) {
        for post in self.posts.iter().flatten() {
            let line = lock(&post.line);
            let _ = line.shutdown(Shutdown::Both);
        }
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
    }
}

/// Bytes before each message: its label and its length.
const HEAD: usize = 32;

impl Kept {
    fn next(&mut self, label: Label) -> Option<Memory> {
        let waiting = self.waiting.get_mut(&label)?;
        let block = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&label);
        }
        block
    }
}

impl Letters {
    /// Reads a connection to its end.
    fn read(&self, stream: &mut impl Read) {
        let end = loop {
            match self.letter(stream) {
                Ok((label, block)) => {
                    lock(&self.kept).waiting.entry(label).or_default().push_back(block);
                    self.came.notify_all();
                }
                Err(error) => break error.kind(),
            }
        };
        lock(&self.kept).ended = Some(end);
        self.came.notify_all();
    }

    fn letter(&self, stream: &mut impl Read) -> io::Result<(Label, Memory)> {
        let mut head = [0; HEAD];
        stream.read_exact(&mut head)?;
        let (words, _) = head.as_chunks::<8>();
        let [action, period, piece, length] =
            [0, 1, 2, 3].map(|at| u64::from_le_bytes(words[at]));
        if length > LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let known = lock(&self.kept).free.take(length);
        let made = known.map_or_else(|| Memory::try_new(length), Ok);
        let mut block = made.map_err(|_| io::ErrorKind::OutOfMemory)?;
        stream.read_exact(block.bytes_mut())?;
        Ok((Label { action, period: period as i64, piece }, block))
    }
}

/// Where a rank listens: the address that it has towards rank 0, and a port. Rank 0 knows none.
struct Address {
    ip: Option<IpAddr>,
    port: u16,
}

impl Address {
    fn written(&self) -> Vec<u8> {
        let ip = self.ip.map_or(String::new(), |ip| ip.to_string());
        format!("{ip} {}", self.port).into_bytes()
    }

    fn read(said: &[u8]) -> Option<Self> {
        let (ip, port) = std::str::from_utf8(said).ok()?.split_once(' ')?;
        let ip = if ip.is_empty() { None } else { Some(ip.parse().ok()?) };
        Some(Self { ip, port: port.parse().ok()? })
    }

    /// Where another rank finds it. One whose way to rank 0 does not leave its machine is where that
    /// is, and a machine may have such an address for its own name that others do not have for it.
    fn seen_by(&self, control: &Control) -> Option<SocketAddr> {
        let first = control.ends().map(|ends| ends.first);
        let ip = self.ip.filter(|ip| !ip.is_loopback()).or(first)?;
        Some(SocketAddr::new(ip, self.port))
    }
}

/// Goes to another rank, and says who comes.
fn reach(
    (rank, place): (u32, SocketAddr),
    (control, end): (&Control, Instant),
) -> Result<TcpStream, Trouble> {
    loop {
        let wrong = match came(place, control) {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        if let Some(trouble) = control.trouble() {
            return Err(trouble);
        }
        if wrong.kind() != io::ErrorKind::TimedOut || Instant::now() > end {
            let what = format!("it cannot reach rank {rank} at {place}: {wrong}");
            return Err(control.echo(&what));
        }
    }
}

/// One attempt.
fn came(place: SocketAddr, control: &Control) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&place, ATTEMPT)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(control.deadline()))?;
    stream.write_all(&GREETING)?;
    stream.write_all(&control.seat().rank.to_le_bytes())?;
    Ok(stream)
}

/// The next rank that comes of those that shall come and are not there; whoever is none of them is sent
/// away.
fn accept(
    door: &mut Door,
    there: &[Option<TcpStream>],
    (control, end): (&Control, Instant),
) -> Result<(usize, TcpStream), Trouble> {
    let is_missing = |rank: usize| {
        rank > control.seat().rank as usize
            && there.get(rank).is_some_and(Option::is_none)
    };
    loop {
        let comer = door.comer().map_err(|error| {
            control.fail(&format!("it can take in no more ranks: {error}"))
        })?;
        if let Some(stream) = comer
            && let Ok(Some(rank)) = introduced(&stream, control.deadline())
            && is_missing(rank as usize)
        {
            return Ok((rank as usize, stream));
        }
        if let Some(trouble) = control.trouble() {
            return Err(trouble);
        }
        if Instant::now() > end {
            return Err(control.late());
        }
        thread::sleep(TICK);
    }
}

/// The rank that comes; none of a stranger.
fn introduced(stream: &TcpStream, deadline: Duration) -> io::Result<Option<u32>> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(deadline))?;
    let mut until = Until { stream, end: Instant::now() + INTRODUCTION };
    let (mut greeting, mut rank) = ([0; GREETING.len()], [0; 4]);
    until.read_exact(&mut greeting)?;
    until.read_exact(&mut rank)?;
    stream.set_read_timeout(None)?;
    Ok((greeting == GREETING).then(|| u32::from_le_bytes(rank)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        memory::Claim,
        ranks::control::tests::{all, seats},
    };
    use std::time::Duration;

    const DEADLINE: Duration = Duration::from_secs(20);

    fn label(action: u64, period: i64) -> Label {
        Label { action, period, piece: 0 }
    }

    #[expect(unsafe_code, reason = "the block is the test's own")]
    fn bytes(block: &Memory) -> Vec<u8> {
        // SAFETY: nobody else has the block.
        let claim = unsafe { Claim::new() };
        block.read(&claim, 0..block.len()).to_vec()
    }

    #[test]
    fn messages_find_their_instances_whatever_comes_first() {
        let found = all(&seats(3), |seat| {
            let control = Control::meet(seat, DEADLINE).unwrap();
            let mail = Mail::open(&control).unwrap();
            let others = (0..3).filter(|other| *other != seat.rank);
            for to in others.clone() {
                for (number, place) in
                    [label(7, 1), label(3, -2), label(7, 1)].iter().enumerate()
                {
                    mail.send(to, *place, &[seat.rank as u8, number as u8]).unwrap();
                }
                mail.send(to, label(9, 0), &vec![5; 3 << 20]).unwrap();
            }
            let mut taken = Vec::new();
            for from in others {
                for place in [label(9, 0), label(3, -2), label(7, 1), label(7, 1)] {
                    let block = mail.take(from, place, || false).unwrap();
                    taken.push((from, block.len(), bytes(&block)[..2].to_vec()));
                    mail.give_back(from, block);
                }
            }
            control.gather(Vec::new()).unwrap();
            taken
        });
        for (rank, taken) in (0u8..).zip(found) {
            let others = (0u8..3).filter(|other| *other != rank);
            let wanted = others.flat_map(|from| {
                let short = |number| (u32::from(from), 2, vec![from, number]);
                [(u32::from(from), 3 << 20, vec![5, 5]), short(1), short(0), short(2)]
            });
            assert_eq!(taken, wanted.collect::<Vec<_>>());
        }
    }

    #[test]
    fn nobody_waits_for_what_will_not_come() {
        let found = all(&seats(2), |seat| {
            let control = Control::meet(seat, DEADLINE).unwrap();
            let mail = Mail::open(&control).unwrap();
            let stopped = mail.take(1 - seat.rank, label(0, 0), || true).err();
            control.gather(Vec::new()).unwrap();
            if seat.rank == 1 {
                drop(mail);
                control.gather(Vec::new()).unwrap();
                return (stopped, None);
            }
            let lost = mail.take(1, label(0, 0), || false).err();
            control.gather(Vec::new()).unwrap();
            (stopped, lost)
        });
        let lost = Missing::Lost(io::ErrorKind::UnexpectedEof);
        assert_eq!(found[0], (Some(Missing::Stopped), Some(lost)));
        assert_eq!(found[1].0, Some(Missing::Stopped));
    }
}
