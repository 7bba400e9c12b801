//! A connection with another rank: frames are written as a whole, by one thread at a time.

use crate::{
    lock::lock,
    ranks::{
        trouble::Position,
        wire::{self, Frame, Message},
    },
};
use std::{
    io,
    net::{Shutdown, TcpStream},
    sync::{Mutex, MutexGuard, TryLockError},
    time::Duration,
};

/// A connection with another rank.
pub(super) struct Link {
    pub(super) rank: u32,
    /// Locked by whoever writes.
    line: Mutex<Line>,
}

/// What a link writes to.
pub(super) enum Line {
    Whole(TcpStream),
    /// Something was written in part, so nothing may follow.
    Torn(TcpStream),
}

impl Line {
    pub(super) fn stream(&self) -> &TcpStream {
        match self {
            Self::Whole(stream) | Self::Torn(stream) => stream,
        }
    }

    pub(super) fn write(&mut self, frame: &Frame) -> io::Result<()> {
        let Self::Whole(stream) = self else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let written = wire::write(stream, frame);
        if written.is_err() {
            let stream = stream.try_clone()?;
            let _ = stream.shutdown(Shutdown::Write);
            *self = Self::Torn(stream);
        }
        written
    }
}

impl Link {
    pub(super) fn new(rank: u32, stream: TcpStream) -> Self {
        Self { rank, line: Mutex::new(Line::Whole(stream)) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Line> {
        lock(&self.line)
    }

    pub(super) fn say(&self, message: &Message) -> io::Result<()> {
        self.lock().write(&Frame::Said(message.clone()))
    }

    /// A sign of life; while somebody else writes, that is one.
    pub(super) fn beat(&self, position: Position, still: Duration) {
        let line = match self.line.try_lock() {
            Ok(line) => Some(line),
            Err(TryLockError::Poisoned(line)) => Some(line.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(mut line) = line {
            let _ = line.write(&Frame::Said(Message::Beat(position, still)));
        }
    }
}
