//! How ranks meet: rank 0 listens, all others come, and the run begins when all are there.

use super::{
    launcher::Seat,
    wire::{self, Frame, GREETING, Message},
};
use std::{
    io::{self, Read, Write},
    net::{
        IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs,
    },
    thread,
    time::{Duration, Instant},
};

/// How long somebody who comes may take to say who it is.
const INTRODUCTION: Duration = Duration::from_secs(2);

/// How long to sleep before looking again: at first, and at most.
const TICK: Duration = Duration::from_millis(5);
const LONGEST_TICK: Duration = Duration::from_millis(200);

/// Why ranks did not meet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeetingError {
    /// The host of rank 0 has no address.
    #[error(
        "rank 0 is to be found at `{host}`, which is no host: {reason}; set MASTER_ADDR"
    )]
    Host {
        /// Its name.
        host: String,
        /// What the system says.
        reason: String,
    },
    /// Rank 0 cannot listen.
    #[error(
        "rank 0 cannot listen at port {port}: {reason}; set MASTER_PORT on all ranks so that \
         the port after it is free"
    )]
    Port {
        /// Which port.
        port: u16,
        /// What the system says.
        reason: String,
    },
    /// Nobody listens.
    #[error(
        "rank {rank} did not reach rank 0 at {host}:{port} within {patience:?} ({reason}); is \
         rank 0 started, and are MASTER_ADDR and MASTER_PORT the same on all ranks?"
    )]
    Alone {
        /// Who came.
        rank: u32,
        /// Where rank 0 was expected.
        host: String,
        /// At which port.
        port: u16,
        /// The deadline.
        patience: Duration,
        /// What the system says.
        reason: String,
    },
    /// Rank 0 was there and is gone, or says nothing.
    #[error(
        "rank {rank} met rank 0 at {host}:{port}, which then did not begin: {reason}"
    )]
    Broken {
        /// Who came.
        rank: u32,
        /// Where rank 0 is.
        host: String,
        /// At which port.
        port: u16,
        /// What the system says.
        reason: String,
    },
    /// The ranks do not fit together.
    #[error("{0}")]
    Refused(String),
}

/// The connections of a rank to the ones that it speaks with: of rank 0 with all others, in
/// order, and of every other with rank 0.
pub(super) fn meet(
    seat: &Seat,
    patience: Duration,
) -> Result<Vec<TcpStream>, MeetingError> {
    match seat {
        Seat { size: 1, .. } => Ok(Vec::new()),
        Seat { rank: 0, .. } => Host::open(seat, patience)?.wait(),
        _ => Guest { seat, patience, start: Instant::now() }.come().map(|one| vec![one]),
    }
}

/// The addresses of a host.
fn addresses(seat: &Seat) -> Result<Vec<SocketAddr>, MeetingError> {
    let failed = |reason: String| MeetingError::Host { host: seat.host.clone(), reason };
    let found = (seat.host.as_str(), seat.port).to_socket_addrs();
    let found: Vec<_> = found.map_err(|error| failed(error.to_string()))?.collect();
    if found.is_empty() { Err(failed("it has no address".to_owned())) } else { Ok(found) }
}

/// Rank 0.
struct Host {
    listener: TcpListener,
    size: u32,
    patience: Duration,
    /// By rank, from 1.
    guests: Vec<Option<TcpStream>>,
}

/// Who came.
enum Comer {
    Rank { rank: u32, size: u32 },
    Stranger,
}

impl Host {
    /// Listens on this machine alone if all ranks are to come from here.
    fn open(seat: &Seat, patience: Duration) -> Result<Self, MeetingError> {
        let all = addresses(seat)?;
        let places = match all.iter().find(|own| own.ip().is_loopback()) {
            Some(here) => vec![here.ip()],
            None => vec![IpAddr::V6(Ipv6Addr::UNSPECIFIED), Ipv4Addr::UNSPECIFIED.into()],
        };
        let places: Vec<_> =
            places.into_iter().map(|ip| SocketAddr::new(ip, seat.port)).collect();
        let listener = TcpListener::bind(&*places)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
        let listener = listener.map_err(|error| MeetingError::Port {
            port: seat.port,
            reason: error.to_string(),
        })?;
        let guests = (1..seat.size).map(|_| None).collect();
        Ok(Self { listener, size: seat.size, patience, guests })
    }

    fn wait(mut self) -> Result<Vec<TcpStream>, MeetingError> {
        let start = Instant::now();
        while self.guests.iter().any(Option::is_none) {
            if start.elapsed() > self.patience {
                return Err(self.refuse(&self.missing()));
            }
            match self.listener.accept() {
                Ok((stream, _)) => self.receive(stream)?,
                Err(_) => thread::sleep(TICK),
            }
        }
        for guest in self.guests.iter_mut().flatten() {
            // One that is gone by now is missed as soon as something is read.
            let _ = say(guest, &Message::Begin);
        }
        Ok(self.guests.into_iter().flatten().collect())
    }

    fn missing(&self) -> String {
        let ranks = (1..).zip(&self.guests).filter(|(_, guest)| guest.is_none());
        let ranks: Vec<String> =
            ranks.map(|(rank, _): (u32, _)| rank.to_string()).collect();
        let (noun, verb) = match ranks.len() {
            1 => ("rank", "does"),
            _ => ("ranks", "do"),
        };
        let (ranks, patience) = (ranks.join(", "), self.patience);
        format!(
            "{noun} {ranks} of {} {verb} not come to the meeting within {patience:?}",
            self.size
        )
    }

    /// Somebody who is no rank of ours is sent away, and waited on no longer.
    fn receive(&mut self, mut stream: TcpStream) -> Result<(), MeetingError> {
        let size = self.size;
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
            None | Some(Some(_)) => format!(
                "two processes say that they are rank {rank} of {size}; each needs a number of \
                 its own, and each run a port of its own (MASTER_PORT)"
            ),
            Some(none) => {
                *none = Some(stream);
                return Ok(());
            }
        };
        let _ = say(&mut stream, &Message::Refused(wrong.clone()));
        Err(self.refuse(&wrong))
    }

    /// Tells all who are there why nothing begins.
    fn refuse(&mut self, why: &str) -> MeetingError {
        for guest in self.guests.iter_mut().flatten() {
            let _ = say(guest, &Message::Refused(why.to_owned()));
        }
        MeetingError::Refused(why.to_owned())
    }
}

fn say(stream: &mut TcpStream, message: &Message) -> io::Result<()> {
    wire::write(stream, &Frame::Said(message.clone()))
}

fn introduced(stream: &mut TcpStream) -> io::Result<Comer> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(INTRODUCTION))?;
    let mut greeting = [0; GREETING.len()];
    stream.read_exact(&mut greeting)?;
    if greeting != GREETING {
        return Ok(Comer::Stranger);
    }
    let frame = wire::read(stream)?;
    stream.set_read_timeout(None)?;
    match frame {
        Frame::Said(Message::Hello { rank, size }) => Ok(Comer::Rank { rank, size }),
        Frame::Said(_) | Frame::Data(_) => Ok(Comer::Stranger),
    }
}

/// Any other rank.
struct Guest<'a> {
    seat: &'a Seat,
    patience: Duration,
    start: Instant,
}

impl Guest<'_> {
    fn come(&self) -> Result<TcpStream, MeetingError> {
        let mut stream = self.connect()?;
        let begun = self.introduce(&mut stream);
        match begun {
            Ok(Frame::Said(Message::Begin)) => Ok(stream),
            Ok(Frame::Said(Message::Refused(why))) => Err(MeetingError::Refused(why)),
            Ok(_) => Err(self.broken("it says something else".to_owned())),
            Err(error) => Err(self.broken(match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    format!("not all ranks came within {:?}", self.patience)
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
    fn connect(&self) -> Result<TcpStream, MeetingError> {
        let mut tick = TICK;
        loop {
            let mut reason = String::new();
            for address in addresses(self.seat)? {
                match TcpStream::connect_timeout(&address, self.left()) {
                    Ok(stream) => return Ok(stream),
                    Err(error) => reason = error.to_string(),
                }
            }
            if self.start.elapsed() > self.patience {
                let Seat { rank, host, port, .. } = self.seat.clone();
                let patience = self.patience;
                return Err(MeetingError::Alone { rank, host, port, patience, reason });
            }
            thread::sleep(tick);
            tick = LONGEST_TICK.min(tick * 2);
        }
    }

    fn left(&self) -> Duration {
        self.patience.saturating_sub(self.start.elapsed()).max(TICK)
    }

    /// Rank 0 may have begun to wait later, and then says after that who is missing.
    fn introduce(&self, stream: &mut TcpStream) -> io::Result<Frame> {
        let Seat { rank, size, .. } = *self.seat;
        stream.set_nodelay(true)?;
        stream.write_all(&GREETING)?;
        say(stream, &Message::Hello { rank, size })?;
        stream.set_read_timeout(Some(self.left() + INTRODUCTION))?;
        let answer = wire::read(stream)?;
        stream.set_read_timeout(None)?;
        Ok(answer)
    }
}
