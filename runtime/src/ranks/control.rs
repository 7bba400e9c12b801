//! The connections of ranks after they have met: agreement, signs of life, and the end of all when
//! one fails.
//!
//! Rank 0 is connected with every other. A thread per connection reads, another one sends signs
//! of life. Whoever fails says so to rank 0, which says so to all; a connection that ends without
//! a farewell is a rank that was lost. Whoever waits too long asks rank 0, which knows where all
//! are; if that does not answer either, it is the one that is stuck. As long as anything is completed on
//! some rank the others wait: signs of life say for how long nothing was, and those of rank 0 say it of
//! all. Time in which a rank tells somebody who may pause, or does not run at all, is none in which
//! nothing was.

mod gathered;
mod inbox;
mod link;

use super::{
    launcher::Seat,
    meeting::{MeetingError, meet},
    trouble::{Ended, Position, SILENCE, Seen, Trouble},
    wire::{self, Frame, Message},
};
use crate::{
    awake::Awake,
    lock::{held, lock},
};
use inbox::{Heard, Inbox, Own};
use link::Link;
use std::{
    io, mem,
    net::{IpAddr, Shutdown, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::{self, JoinHandle},
    time::Duration,
};

/// Time between signs of life, and the longest between two looks at the clock.
const BEAT: Duration = Duration::from_millis(250);

/// How long others may take to say what they know, or to say goodbye.
const GRACE: Duration = Duration::from_secs(2);

/// The longest deadline, a year: moments that lie further ahead may have no number.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// A rank's way to speak with the others.
pub struct Control {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    seat: Seat,
    deadline: Duration,
    links: Vec<Link>,
    inbox: Mutex<Inbox>,
    changed: Condvar,
}

/// The addresses of a rank's way to rank 0: its own, and that of the first one.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub(super) own: IpAddr,
    pub(super) first: IpAddr,
}

impl Control {
    /// Meets all other ranks. A deadline above a year is one of a year.
    ///
    /// # Errors
    /// When they do not all come in time, or do not fit together.
    pub fn meet(seat: &Seat, deadline: Duration) -> Result<Self, MeetingError> {
        Self::meet_telling(seat, deadline, &mut |_| {})
    }

    /// As [`Control::meet`]; rank 0 tells for whom it waits where that takes long, and others that they do
    /// not reach it.
    ///
    /// # Errors
    /// Those of [`Control::meet`].
    pub fn meet_telling(
        seat: &Seat,
        deadline: Duration,
        tell: &mut dyn FnMut(String),
    ) -> Result<Self, MeetingError> {
        let deadline = deadline.min(LONGEST);
        let streams = meet(seat, deadline, tell)?;
        let broken = |error: io::Error| MeetingError::Refused(error.to_string());
        let readers: Vec<TcpStream> = streams
            .iter()
            .map(|stream| {
                stream.set_write_timeout(Some(deadline)).and_then(|()| stream.try_clone())
            })
            .collect::<Result<_, _>>()
            .map_err(broken)?;
        let first = if seat.is_first() { 1 } else { 0 };
        let links = (first..).zip(streams);
        let links: Vec<Link> =
            links.map(|(rank, stream)| Link::new(rank, stream)).collect();
        let inbox = Inbox::new(seat, links.len());
        let shared = Arc::new(Shared {
            seat: seat.clone(),
            deadline,
            links,
            inbox: Mutex::new(inbox),
            changed: Condvar::new(),
        });
        let mut control = Self { shared, threads: Vec::new() };
        control.begin(readers).map_err(|error| {
            let trouble = control.fail(&format!("it cannot start a thread: {error}"));
            MeetingError::Refused(trouble.to_string())
        })?;
        Ok(control)
    }

    /// Listens to others, and lets them hear that this rank is there.
    fn begin(&mut self, readers: Vec<TcpStream>) -> io::Result<()> {
        for (number, stream) in readers.into_iter().enumerate() {
            let shared = Arc::clone(&self.shared);
            let listening = move || shared.listen(number, stream);
            self.threads.push(thread::Builder::new().spawn(listening)?);
        }
        let shared = Arc::clone(&self.shared);
        self.threads.push(thread::Builder::new().spawn(move || shared.beat())?);
        Ok(())
    }

    /// Who this process is.
    pub fn seat(&self) -> &Seat {
        &self.shared.seat
    }

    /// The way of this rank to rank 0; none of that one.
    pub(super) fn ends(&self) -> Option<Ends> {
        let link = self.shared.links.first().filter(|link| link.rank == 0)?;
        let line = link.lock();
        let (own, first) = (line.stream().local_addr(), line.stream().peer_addr());
        Some(Ends { own: own.ok()?.ip(), first: first.ok()?.ip() })
    }

    /// The time after which a wait is given up.
    pub fn deadline(&self) -> Duration {
        self.shared.deadline
    }

    /// This rank is at a position now. Others hear at once of one of another kind, because what they
    /// may expect depends on it.
    pub fn at(&self, position: Position) {
        let rank = self.shared.seat.rank as usize;
        let mut inbox = self.shared.lock();
        let before = inbox.heard[rank].position;
        if before != position {
            let now = inbox.clock.now();
            inbox.heard[rank] = Heard::at(position, now);
        }
        drop(inbox);
        if mem::discriminant(&before) != mem::discriminant(&position) {
            self.shared.show();
        }
    }

    /// Something was completed on this rank.
    pub fn moved(&self) {
        self.shared.lock().moved();
    }

    /// Tells somebody something, who may take his time to hear it: as long as that lasts the others wait.
    pub(super) fn telling<T>(&self, tell: impl FnOnce() -> T) -> T {
        self.shared.lock().own = Own::Tells;
        let told = tell();
        let mut inbox = self.shared.lock();
        inbox.own = Own::Works;
        inbox.moved();
        told
    }

    /// For how long nothing was completed on any rank, as far as is known here.
    pub fn still(&self) -> Duration {
        self.shared.lock().still()
    }

    /// How much longer others may be waited for, because something was completed on some rank; nothing
    /// where it was too long ago.
    pub fn more_time(&self) -> Option<Duration> {
        self.shared.lock().more_time(self.deadline())
    }

    /// Where this rank is.
    pub fn position(&self) -> Position {
        self.shared.own_position()
    }

    /// What ends the run, if something does.
    pub fn trouble(&self) -> Option<Trouble> {
        self.shared.lock().trouble.clone()
    }

    /// This rank cannot go on; returns what ends the run, which may have been something else.
    pub fn fail(&self, what: &str) -> Trouble {
        self.shared.raise(self.shared.failed(what))
    }

    /// Like [`Control::fail`], where it may be another rank's failure that is seen here: that one
    /// has a moment to say so.
    pub fn echo(&self, what: &str) -> Trouble {
        let known = self.shared.wait_for_trouble();
        known.unwrap_or_else(|| self.fail(what))
    }

    /// The end of this rank, where it is.
    pub fn ended(&self, trouble: Trouble) -> Ended {
        let Seat { rank, size, .. } = *self.seat();
        Ended { rank, size, position: self.position(), trouble: Box::new(trouble) }
    }

    /// This rank has waited as long as it may; returns what ends the run.
    pub fn late(&self) -> Trouble {
        self.shared.late()
    }
}

impl Drop for Control {
    /// Says goodbye and waits a moment for the others, so that nothing that was sent is lost.
    fn drop(&mut self) {
        let shared = &self.shared;
        if thread::panicking() {
            self.fail("it panicked; its own error output says where");
        }
        shared.wait_for(GRACE, |inbox| !inbox.spreading);
        shared.lock().done = true;
        shared.changed.notify_all();
        for link in &shared.links {
            let _ = link.say(&Message::Bye);
            let _ = link.lock().stream().shutdown(Shutdown::Write);
        }
        shared.wait_for(GRACE, |inbox| inbox.closed.iter().all(|closed| *closed));
        for link in &shared.links {
            let _ = link.lock().stream().shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.inbox)
    }

    fn now(&self) -> Awake {
        self.lock().clock.now()
    }

    /// Waits until something holds, at most until `end`; says whether it does.
    fn wait_until(&self, end: Awake, holds: impl Fn(&Inbox) -> bool) -> bool {
        let mut inbox = self.lock();
        while !holds(&inbox) {
            let left = end.since(inbox.clock.now());
            if left.is_zero() {
                return false;
            }
            (inbox, _) = held(self.changed.wait_timeout(inbox, left.min(BEAT)));
        }
        true
    }

    /// As [`Shared::wait_until`], at most for so long.
    fn wait_for(&self, longest: Duration, holds: impl Fn(&Inbox) -> bool) -> bool {
        let end = self.now() + longest;
        self.wait_until(end, holds)
    }

    fn wait_for_trouble(&self) -> Option<Trouble> {
        self.wait_for(GRACE, |inbox| inbox.trouble.is_some());
        self.lock().trouble.clone()
    }

    /// Sends bytes in parts, so that others may speak in between.
    fn send(&self, link: usize, bytes: &[u8]) -> Result<(), Trouble> {
        let last = bytes.len().saturating_sub(1) / wire::PART * wire::PART;
        for part in bytes[..last].chunks(wire::PART) {
            self.send_part(link, &Frame::Part(part.to_vec()))?;
            if let Some(trouble) = &self.lock().trouble {
                return Err(trouble.clone());
            }
        }
        self.send_part(link, &Frame::Data(bytes[last..].to_vec()))
    }

    /// A rank that does not take a part in time is as one that does not come.
    fn send_part(&self, link: usize, frame: &Frame) -> Result<(), Trouble> {
        let written = self.links[link].lock().write(frame);
        match written {
            Ok(()) => Ok(()),
            Err(error) => {
                let late = matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                );
                Err(if late { self.late() } else { self.lost(link) })
            }
        }
    }

    /// Waits for bytes. A rank that starts or rests and is heard of may take its time, to compile
    /// kernels, to look at held-out data or to write a checkpoint.
    fn receive(&self, link: usize) -> Result<Vec<u8>, Trouble> {
        let rank = self.links[link].rank as usize;
        let come = |inbox: &Inbox| {
            inbox.trouble.is_some() || !inbox.data[link].is_empty() || inbox.left[link]
        };
        let mut end = self.now() + self.deadline;
        let in_time = loop {
            if self.wait_until(end.min(self.now() + SILENCE), come) {
                break true;
            }
            let mut inbox = self.lock();
            let now = inbox.clock.now();
            let Heard { position, last, .. } = inbox.heard[rank];
            match position {
                Position::Starting | Position::Resting { .. }
                    if now.since(last) < SILENCE =>
                {
                    end = now + self.deadline;
                }
                _ if now < end => {}
                _ => match inbox.more_time(self.deadline) {
                    Some(left) => end = now + left,
                    None => break false,
                },
            }
        };
        let mut inbox = self.lock();
        if let Some(trouble) = &inbox.trouble {
            return Err(trouble.clone());
        }
        let bytes = inbox.data[link].pop_front();
        drop(inbox);
        match bytes {
            Some(bytes) => Ok(bytes),
            None if in_time => {
                Err(self.raise(self.failed(&format!("rank {rank} ended before it"))))
            }
            None => Err(self.late()),
        }
    }

    fn failed(&self, what: &str) -> Trouble {
        let (rank, position) = (self.seat.rank, self.own_position());
        Trouble::Failed { rank, position, what: what.to_owned() }
    }

    fn own_position(&self) -> Position {
        self.lock().heard[self.seat.rank as usize].position
    }

    /// A rank cannot be reached.
    fn lost(&self, link: usize) -> Trouble {
        let rank = self.links[link].rank;
        let position = self.lock().heard[rank as usize].position;
        self.raise(Trouble::Lost { rank, position })
    }

    /// The first trouble counts; all hear of it.
    fn raise(&self, trouble: Trouble) -> Trouble {
        let mut inbox = self.lock();
        if let Some(first) = &inbox.trouble {
            return first.clone();
        }
        inbox.trouble = Some(trouble.clone());
        inbox.spreading = true;
        drop(inbox);
        self.changed.notify_all();
        for link in &self.links {
            let _ = link.say(&Message::Trouble(trouble.clone()));
        }
        self.lock().spreading = false;
        self.changed.notify_all();
        trouble
    }

    /// Rank 0 knows where all are; if it does not answer, this rank says what it knows.
    fn late(&self) -> Trouble {
        if !self.seat.is_first() {
            let asked = self.links[0].say(&Message::Late(self.own_position()));
            if asked.is_ok()
                && let Some(trouble) = self.wait_for_trouble()
            {
                return trouble;
            }
        }
        self.raise(self.stuck())
    }

    fn stuck(&self) -> Trouble {
        let mut inbox = self.lock();
        let now = inbox.clock.now();
        let seen = (0..).zip(&inbox.heard).filter_map(|(rank, heard)| {
            let Heard { position, last, .. } = heard;
            let silent = match rank == self.seat.rank {
                true => Duration::ZERO,
                false => now.since(*last),
            };
            let known = rank == self.seat.rank || rank == 0 || self.seat.is_first();
            known.then_some(Seen { rank, position: *position, silent })
        });
        Trouble::stuck(self.deadline, seen.collect())
    }

    /// Sends signs of life until this rank is done.
    fn beat(&self) {
        while !self.wait_for(BEAT, |inbox| inbox.done) {
            self.show();
        }
    }

    /// Says to all where this rank is.
    fn show(&self) {
        let mut inbox = self.lock();
        let position = inbox.heard[self.seat.rank as usize].position;
        let still = match self.seat.rank {
            0 => inbox.still(),
            _ => inbox.own_still(),
        };
        drop(inbox);
        self.links.iter().for_each(|link| link.beat(position, still));
    }

    /// Reads a connection to its end.
    fn listen(&self, link: usize, mut stream: TcpStream) {
        while let Ok(frame) = wire::read(&mut stream) {
            self.take(link, frame);
            self.changed.notify_all();
        }
        let mut inbox = self.lock();
        inbox.closed[link] = true;
        let expected = inbox.left[link] || inbox.done;
        drop(inbox);
        self.changed.notify_all();
        if !expected {
            self.lost(link);
        }
    }

    fn take(&self, link: usize, frame: Frame) {
        let rank = self.links[link].rank as usize;
        match frame {
            Frame::Part(bytes) => {
                let mut inbox = self.lock();
                inbox.begun[link].extend(bytes);
                inbox.heard[rank].last = inbox.clock.now();
            }
            Frame::Data(bytes) => {
                let mut inbox = self.lock();
                let mut whole = mem::take(&mut inbox.begun[link]);
                whole.extend(bytes);
                inbox.data[link].push_back(whole);
            }
            Frame::Said(Message::Beat(position, still)) => {
                self.lock().beats(rank, position, still);
            }
            Frame::Said(Message::Late(position)) => {
                self.lock().beats(rank, position, self.deadline);
                self.raise(self.stuck());
            }
            Frame::Said(Message::Trouble(trouble)) => drop(self.raise(trouble)),
            Frame::Said(Message::Bye) => self.lock().left[link] = true,
            Frame::Said(Message::Hello { .. } | Message::Begin | Message::Refused(_)) => {
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
