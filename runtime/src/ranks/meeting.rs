//! How ranks meet: rank 0 listens, all others come, and the run begins when all are there.

mod error;

pub use error::MeetingError;

use super::{
    launcher::Seat,
    wire::{self, Frame, GREETING, Message},
};
use error::named;
use std::{
    collections::BTreeSet,
    io::{self, Read, Write},
    net::{
        IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs,
    },
    thread,
    time::{Duration, Instant},
};

/// How long somebody who comes may take to say who it is.
pub(super) const INTRODUCTION: Duration = Duration::from_secs(2);

/// How long one attempt to reach a rank may take; the first address may be one that swallows it.
pub(super) const ATTEMPT: Duration = Duration::from_secs(2);

/// How long a rank waits for others before it says so.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long the door stays open behind a refusal, for those who hear of it when they come.
const FAREWELL: Duration = Duration::from_secs(5);

/// How long to sleep before looking again: at first, and at most.
const TICK: Duration = Duration::from_millis(5);
const LONGEST_TICK: Duration = Duration::from_millis(200);

/// The connections of a rank to the ones that it speaks with: of rank 0 with all others, in
/// order, and of every other with rank 0. Rank 0 tells for whom it waits where that takes long, and
/// others that they do not reach it.
pub(super) fn meet(
    seat: &Seat,
    deadline: Duration,
    tell: &mut dyn FnMut(String),
) -> Result<Vec<TcpStream>, MeetingError> {
    match seat {
        Seat { size: 1, .. } => Ok(Vec::new()),
        Seat { rank: 0, .. } => Host::open(seat, deadline)?.wait(PATIENCE, tell),
        _ => {
            let guest = Guest { seat, deadline, start: Instant::now() };
            Ok(vec![guest.come(PATIENCE, tell)?])
        }
    }
}

/// The addresses of a host.
fn addresses(seat: &Seat) -> Result<Vec<SocketAddr>, MeetingError> {
    let failed = |reason: String| MeetingError::Host { host: seat.host.clone(), reason };
    let found = (seat.host.as_str(), seat.port).to_socket_addrs();
    let found: Vec<_> = found.map_err(|error| failed(error.to_string()))?.collect();
    if found.is_empty() { Err(failed("it has no address".to_owned())) } else { Ok(found) }
}

/// Whether a host can only be reached from itself by this name.
fn means_here(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Where a host listens that means this machine.
fn loopback(seat: &Seat) -> SocketAddr {
    let found = addresses(seat).unwrap_or_default();
    let here = found.into_iter().find(|own| own.ip().is_loopback());
    here.unwrap_or_else(|| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), seat.port))
}

/// Listens where others may come from: on this machine alone if its address says that all ranks come
/// from here. That its name has such an address says nothing: many systems have that for their own
/// name. Such a name is not looked up: it may be known later, and to the others alone.
pub(super) fn listen(seat: &Seat, port: u16) -> io::Result<TcpListener> {
    let places = match means_here(&seat.host) {
        true => vec![loopback(seat).ip()],
        false => vec![Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()],
    };
    let places: Vec<_> = places.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
    let listener = TcpListener::bind(&*places)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Takes in whoever comes to a listener.
pub(super) struct Door {
    listener: TcpListener,
    /// Since when the system lets nobody in.
    shut: Option<Instant>,
}

impl Door {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, shut: None }
    }

    /// Whoever came next, if somebody did.
    ///
    /// # Errors
    /// When the system has let nobody in for a while: it has no room for more connections.
    pub(super) fn comer(&mut self) -> io::Result<Option<TcpStream>> {
        match self.listener.accept() {
            Ok((stream, _)) => {
                self.shut = None;
                Ok(Some(stream))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.shut = None;
                Ok(None)
            }
            Err(error) => match self.shut.get_or_insert_with(Instant::now).elapsed() {
                shut if shut > ATTEMPT => Err(error),
                _ => Ok(None),
            },
        }
    }
}

/// A connection that is read until some moment, however little comes at a time.
pub(super) struct Until<'a> {
    pub(super) stream: &'a TcpStream,
    pub(super) end: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(into)
    }
}

/// Rank 0.
struct Host<'a> {
    seat: &'a Seat,
    door: Door,
    deadline: Duration,
    /// By rank, from 1.
    guests: Vec<Option<TcpStream>>,
}

/// Who came.
enum Comer {
    Rank { rank: u32, size: u32 },
    Stranger,
}

impl<'a> Host<'a> {
    fn open(seat: &'a Seat, deadline: Duration) -> Result<Self, MeetingError> {
        let listener = listen(seat, seat.port).map_err(|error| MeetingError::Port {
            port: seat.port,
            reason: error.to_string(),
        })?;
        let guests = (1..seat.size).map(|_| None).collect();
        Ok(Self { seat, door: Door::new(listener), deadline, guests })
    }

    /// Waits for all others, and tells for whom, again where others than before are missing.
    fn wait(
        mut self,
        patience: Duration,
        tell: &mut dyn FnMut(String),
    ) -> Result<Vec<TcpStream>, MeetingError> {
        let (start, mut look, mut told) = (Instant::now(), patience, Vec::new());
        while self.lacks_some() {
            if start.elapsed() > self.deadline {
                return Err(self.refuse(self.absent()));
            }
            if start.elapsed() >= look {
                look += patience;
                let missing: Vec<u32> = self.missing().collect();
                if missing.iter().any(|rank| !told.contains(rank)) {
                    tell(self.waiting(&missing));
                }
                told = missing;
            }
            match self.door.comer() {
                Ok(Some(stream)) => self.receive(stream)?,
                Ok(None) => thread::sleep(TICK),
                Err(error) => {
                    let why = format!("rank 0 can take in no more ranks: {error}");
                    return Err(self.refuse(MeetingError::Refused(why)));
                }
            }
        }
        for guest in self.guests.iter_mut().flatten() {
            // One that is gone by now is missed as soon as something is read.
            let _ = say(guest, &Message::Begin);
        }
        Ok(self.guests.into_iter().flatten().collect())
    }

    /// Whether somebody is missing. Those who came are looked at again when all have: that takes long where
    /// they are many.
    fn lacks_some(&self) -> bool {
        self.guests.iter().any(Option::is_none) || self.missing().next().is_some()
    }

    /// Those who have not come, or are gone again.
    fn missing(&self) -> impl Iterator<Item = u32> {
        let ranks = (1..).zip(&self.guests).filter(|(_, place)| is_free(place));
        ranks.map(|(rank, _)| rank)
    }

    fn waiting(&self, missing: &[u32]) -> String {
        let Seat { size, host, port, .. } = self.seat;
        let ranks = named(missing);
        let deadline = self.deadline;
        format!("rank 0 waits at {host}:{port} for {ranks} of {size}, up to {deadline:?}")
    }

    fn absent(&self) -> MeetingError {
        let Seat { size, host, port, .. } = self.seat.clone();
        let (ranks, deadline) = (self.missing().collect(), self.deadline);
        MeetingError::Absent { ranks, size, host, port, deadline }
    }

    /// Somebody who is no rank of ours is sent away, and waited on no longer.
    fn receive(&mut self, mut stream: TcpStream) -> Result<(), MeetingError> {
        let size = self.seat.size;
        let (rank, theirs) = match introduced(&mut stream) {
            Ok(Comer::Rank { rank, size }) => (rank, size),
            Ok(Comer::Stranger) | Err(_) => return Ok(()),
        };
        let place = (rank as usize).checked_sub(1);
        let place = place.and_then(|place| self.guests.get_mut(place));
        let wrong = match place {
            _ if theirs != size => format!(
                "rank {rank} was told that there are {theirs} ranks, and rank 0 that there are \
                 {size}; start all of them with the same number"
            ),
            Some(free) if is_free(free) => {
                *free = Some(stream);
                return Ok(());
            }
            None | Some(_) => format!(
                "two processes say that they are rank {rank} of {size}; each needs a number of \
                 its own, and each run a port of its own (MASTER_PORT)"
            ),
        };
        let _ = say(&mut stream, &Message::Refused(wrong.clone()));
        Err(self.refuse(MeetingError::Refused(wrong)))
    }

    /// Tells all who are there why nothing begins, and those who come within a while: they would wait
    /// for nobody.
    fn refuse(&mut self, why: MeetingError) -> MeetingError {
        let refused = Message::Refused(why.to_string());
        for guest in self.guests.iter_mut().flatten() {
            let _ = say(guest, &refused);
        }
        let mut missing: BTreeSet<u32> = self.missing().collect();
        let end = Instant::now() + FAREWELL;
        while !missing.is_empty() && Instant::now() < end {
            match self.door.comer() {
                Ok(Some(mut stream)) => {
                    if let Ok(Comer::Rank { rank, .. }) = introduced(&mut stream) {
                        let _ = say(&mut stream, &refused);
                        missing.remove(&rank);
                    }
                }
                Ok(None) => thread::sleep(TICK),
                Err(_) => break,
            }
        }
        why
    }
}

/// Whether somebody may take a place: nobody has, or who did is gone, and may have been started again.
fn is_free(place: &Option<TcpStream>) -> bool {
    place.as_ref().is_none_or(is_gone)
}

/// Whether a guest's process has ended. One that waits for the beginning says nothing, so that there is nothing
/// to read but the end.
fn is_gone(guest: &TcpStream) -> bool {
    let look = |guest: &TcpStream| {
        guest.set_nonblocking(true)?;
        let found = guest.peek(&mut [0]);
        guest.set_nonblocking(false)?;
        found
    };
    match look(guest) {
        Ok(length) => length == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}

fn say(stream: &mut TcpStream, message: &Message) -> io::Result<()> {
    wire::write(stream, &Frame::Said(message.clone()))
}

fn introduced(stream: &mut TcpStream) -> io::Result<Comer> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    let mut until = Until { stream, end: Instant::now() + INTRODUCTION };
    let mut greeting = [0; GREETING.len()];
    until.read_exact(&mut greeting)?;
    if greeting != GREETING {
        return Ok(Comer::Stranger);
    }
    let said = wire::read_said(&mut until)?;
    stream.set_read_timeout(None)?;
    match said {
        Message::Hello { rank, size } => Ok(Comer::Rank { rank, size }),
        Message::Begin
        | Message::Refused(_)
        | Message::Beat(..)
        | Message::Late(_)
        | Message::Trouble(_)
        | Message::Bye => Ok(Comer::Stranger),
    }
}

/// A connection from a port of this machine to the same port reaches itself where nobody listens.
fn not_itself(stream: TcpStream) -> io::Result<TcpStream> {
    match stream.local_addr()? == stream.peer_addr()? {
        true => Err(io::ErrorKind::ConnectionRefused.into()),
        false => Ok(stream),
    }
}

/// Any other rank.
struct Guest<'a> {
    seat: &'a Seat,
    deadline: Duration,
    start: Instant,
}

impl Guest<'_> {
    /// Looks for rank 0, and tells so once where that takes long.
    fn come(
        &self,
        patience: Duration,
        tell: &mut dyn FnMut(String),
    ) -> Result<TcpStream, MeetingError> {
        let mut stream = self.connect(patience, tell)?;
        let begun = self.introduce(&mut stream);
        match begun {
            Ok(Message::Begin) => Ok(stream),
            Ok(Message::Refused(why)) => Err(MeetingError::Refused(why)),
            Ok(_) => Err(self.broken("it says something else".to_owned())),
            Err(error) => Err(self.broken(match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    format!("not all ranks came within {:?}", self.deadline)
                }
                io::ErrorKind::UnexpectedEof => "it has closed the connection".to_owned(),
                _ => error.to_string(),
            })),
        }
    }

    fn broken(&self, reason: String) -> MeetingError {
        let Seat { rank, host, port, .. } = self.seat.clone();
        MeetingError::Broken { rank, host, port, reason }
    }

    /// Tries again, less and less often, because rank 0 may come later.
    fn connect(
        &self,
        patience: Duration,
        tell: &mut dyn FnMut(String),
    ) -> Result<TcpStream, MeetingError> {
        let mut tick = TICK;
        let mut tell = Some(tell);
        loop {
            let refusal = match self.attempt() {
                Ok(stream) => return Ok(stream),
                Err(refusal) => refusal,
            };
            if self.start.elapsed() > self.deadline {
                return Err(refusal);
            }
            if let Some(tell) = tell.take_if(|_| self.start.elapsed() >= patience) {
                tell(self.looking());
            }
            thread::sleep(tick);
            tick = LONGEST_TICK.min(tick * 2);
        }
    }

    fn looking(&self) -> String {
        let Seat { rank, host, port, .. } = self.seat;
        let deadline = self.deadline;
        format!(
            "rank {rank} does not reach rank 0 at {host}:{port} yet, up to {deadline:?}"
        )
    }

    /// Tries all addresses once. A host that has none may get one.
    fn attempt(&self) -> Result<TcpStream, MeetingError> {
        let mut reason = String::new();
        for address in addresses(self.seat)? {
            let reached = TcpStream::connect_timeout(&address, self.left().min(ATTEMPT));
            match reached.and_then(not_itself) {
                Ok(stream) => return Ok(stream),
                Err(error) => reason = error.to_string(),
            }
        }
        let Seat { rank, host, port, .. } = self.seat.clone();
        Err(MeetingError::Alone { rank, host, port, deadline: self.deadline, reason })
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_sub(self.start.elapsed()).max(TICK)
    }

    /// Rank 0 may have begun to wait later, and then says after that who is missing.
    fn introduce(&self, stream: &mut TcpStream) -> io::Result<Message> {
        let Seat { rank, size, .. } = *self.seat;
        stream.set_nodelay(true)?;
        stream.write_all(&GREETING)?;
        say(stream, &Message::Hello { rank, size })?;
        let end = Instant::now() + self.left() + INTRODUCTION;
        let answer = wire::read_said(&mut Until { stream, end })?;
        stream.set_read_timeout(None)?;
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_that_no_other_machine_can_use_means_here() {
        for (host, here) in [
            ("localhost", true),
            ("127.0.0.1", true),
            ("127.0.1.1", true),
            ("::1", true),
            ("10.0.0.7", false),
            ("node1", false),
            ("localhost.example", false),
        ] {
            assert_eq!(means_here(host), here, "{host}");
        }
    }

    /// `.invalid` is no domain, now or later.
    #[test]
    fn rank_0_listens_whatever_its_host_is_called() {
        for host in ["nowhere.invalid", "localhost"] {
            let (host, port) = (host.to_owned(), 0);
            let seat = Seat { rank: 0, size: 2, local: 0, host, port };
            let open = Host::open(&seat, Duration::from_secs(1)).unwrap();
            let here = open.door.listener.local_addr().unwrap().ip();
            assert_eq!(here.is_loopback(), seat.host == "localhost", "{here}");
        }
    }

    #[test]
    fn a_host_that_nobody_knows_is_named_at_the_deadline() {
        let host = "nowhere.invalid".to_owned();
        let seat = Seat { rank: 1, size: 2, local: 0, host: host.clone(), port: 1 };
        let (deadline, start) = (Duration::from_millis(300), Instant::now());
        let found = meet(&seat, deadline, &mut |_| {}).unwrap_err();
        assert!(matches!(found, MeetingError::Host { host: own, .. } if own == host));
        assert!(start.elapsed() >= deadline, "it may be known later");
    }

    #[test]
    fn rank_0_says_once_for_whom_it_waits_and_where() {
        let host = "localhost".to_owned();
        let seat = Seat { rank: 0, size: 3, local: 0, host, port: 0 };
        let mut told = Vec::new();
        let open = Host::open(&seat, Duration::from_millis(100)).unwrap();
        let ended = open.wait(Duration::ZERO, &mut |text| told.push(text)).unwrap_err();
        assert_eq!(
            told,
            ["rank 0 waits at localhost:0 for ranks 1, 2 of 3, up to 100ms"]
        );
        let said = ended.to_string();
        assert!(
            said.starts_with("ranks 1, 2 of 3 did not come to rank 0 at localhost:0"),
            "{said}"
        );
        assert!(said.ends_with(ended.hint()) && said.contains("WORLD_SIZE"), "{said}");
    }

    /// A rank of a run of three at a port of this machine.
    fn seat_of_three(rank: u32, port: u16) -> Seat {
        Seat { rank, size: 3, local: 0, host: "127.0.0.1".to_owned(), port }
    }

    /// Somebody comes to a host as this rank, and is received.
    fn came(host: &mut Host<'_>, rank: u32) -> Result<TcpStream, MeetingError> {
        let place = host.door.listener.local_addr().unwrap();
        let mut guest = TcpStream::connect(place).unwrap();
        guest.write_all(&GREETING).unwrap();
        say(&mut guest, &Message::Hello { rank, size: 3 }).unwrap();
        loop {
            if let Some(stream) = host.door.comer().unwrap() {
                return host.receive(stream).map(|()| guest);
            }
        }
    }

    #[test]
    fn who_is_gone_again_is_told_of() {
        let seat = seat_of_three(0, 0);
        let mut host = Host::open(&seat, Duration::from_secs(1)).unwrap();
        let mut first = Some(came(&mut host, 1).unwrap());
        let mut told = Vec::new();
        let mut tell = |text| {
            first = None;
            told.push(text);
        };
        let wrong = host.wait(TICK, &mut tell).unwrap_err().to_string();
        let [before, after] = &told[..] else { panic!("{told:?}") };
        assert!(before.contains("for rank 2 of 3"), "{before}");
        assert!(after.contains("for ranks 1, 2 of 3"), "{after}");
        assert!(wrong.starts_with("ranks 1, 2 of 3 did not come"), "{wrong}");
    }

    #[test]
    fn a_rank_that_died_while_it_waited_may_come_again() {
        let seat = seat_of_three(0, 0);
        let mut host = Host::open(&seat, Duration::from_secs(60)).unwrap();
        let _second = came(&mut host, 2).unwrap();
        drop(came(&mut host, 1).unwrap());
        // The end travels as data does.
        while host.missing().next().is_none() {
            thread::sleep(TICK);
        }
        assert!(host.lacks_some() && host.missing().eq([1]));
        let _first = came(&mut host, 1).unwrap();
        assert!(!host.lacks_some());
        let twice = came(&mut host, 1).unwrap_err().to_string();
        assert!(twice.starts_with("two processes say that they are rank 1"), "{twice}");
    }

    #[test]
    fn others_say_once_that_they_do_not_reach_rank_0() {
        // Nobody listens there any more, which takes no resolver to find out.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let seat =
            Seat { rank: 2, size: 3, local: 0, host: "127.0.0.1".to_owned(), port };
        let (deadline, start) = (Duration::from_millis(600), Instant::now());
        let mut told = Vec::new();
        let guest = Guest { seat: &seat, deadline, start };
        guest.come(Duration::ZERO, &mut |text| told.push(text)).unwrap_err();
        let looking =
            format!("rank 2 does not reach rank 0 at 127.0.0.1:{port} yet, up to 600ms");
        assert_eq!(told, [looking]);
    }

    #[test]
    fn whoever_sends_little_at_a_time_is_not_waited_for_longer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let sender = thread::spawn(move || {
            while slow.write_all(&[0]).is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        let end = Instant::now() + Duration::from_millis(500);
        let mut until = Until { stream: &stream, end };
        let ended = until.read_to_end(&mut Vec::new()).unwrap_err();
        assert!(
            matches!(ended.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock),
            "{ended}"
        );
        drop(stream);
        sender.join().unwrap();
    }
}
