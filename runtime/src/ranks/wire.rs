//! What ranks send each other over their connections: short messages as JSON, and bytes.

use super::trouble::{Position, Trouble};
use serde::{Deserialize, Serialize};
use std::{
    io::{self, Read, Write},
    time::Duration,
};

/// What a connection begins with, so that whoever comes by mistake is told apart.
pub(super) const GREETING: [u8; 8] = *b"rndelay1";

/// The longest message that is no data.
const LONGEST: u64 = 1 << 20;

/// One thing that is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Said(Message),
    /// Bytes, of which more come.
    Part(Vec<u8>),
    /// The last bytes.
    Data(Vec<u8>),
}

/// The most bytes of a part, so that messages pass in between.
pub(super) const PART: usize = 1 << 20;

/// A short message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Message {
    /// Who comes to a meeting, and how many it thinks there are.
    Hello { rank: u32, size: u32 },
    /// All are there.
    Begin,
    /// The meeting does not take place.
    Refused(String),
    /// A rank runs, and is there; for so long nothing was completed, of rank 0 on no rank at all.
    Beat(Position, Duration),
    /// A rank has waited long enough.
    Late(Position),
    /// What ends the run.
    Trouble(Trouble),
    /// A rank is done and closes its connection.
    Bye,
}

const SAID_KIND: u8 = 0;
const PART_KIND: u8 = 1;
const DATA_KIND: u8 = 2;

/// Writes a frame.
pub(super) fn write(to: &mut impl Write, frame: &Frame) -> io::Result<()> {
    let (kind, bytes) = match frame {
        Frame::Said(message) => (SAID_KIND, &serde_json::to_vec(message)?),
        Frame::Part(bytes) => (PART_KIND, bytes),
        Frame::Data(bytes) => (DATA_KIND, bytes),
    };
    let mut head = [kind; 9];
    head[1..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    to.write_all(&head)?;
    to.write_all(bytes)?;
    to.flush()
}

/// Reads a frame.
pub(super) fn read(from: &mut impl Read) -> io::Result<Frame> {
    let (kind, length) = read_head(from)?;
    match kind {
        SAID_KIND => read_message(from, length).map(Frame::Said),
        PART_KIND => read_bytes(from, length).map(Frame::Part),
        DATA_KIND => read_bytes(from, length).map(Frame::Data),
        _ => Err(invalid("no frame")),
    }
}

/// Reads a frame of somebody who is not known yet, and may not send data.
pub(super) fn read_said(from: &mut impl Read) -> io::Result<Message> {
    match read_head(from)? {
        (SAID_KIND, length) => read_message(from, length),
        _ => Err(invalid("no message")),
    }
}

fn read_head(from: &mut impl Read) -> io::Result<(u8, u64)> {
    let mut head = [0; 9];
    from.read_exact(&mut head)?;
    let [kind, length @ ..] = head;
    Ok((kind, u64::from_le_bytes(length)))
}

fn read_message(from: &mut impl Read, length: u64) -> io::Result<Message> {
    if length > LONGEST {
        return Err(invalid("too long a message"));
    }
    Ok(serde_json::from_slice(&read_bytes(from, length)?)?)
}

fn read_bytes(from: &mut impl Read, length: u64) -> io::Result<Vec<u8>> {
    if length > PART as u64 {
        return Err(invalid("too long a part"));
    }
    let mut bytes = vec![0; length as usize];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Several pieces as one, and back.
pub(super) fn join(pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut all = Vec::new();
    for piece in pieces {
        all.extend((piece.len() as u64).to_le_bytes());
        all.extend(piece);
    }
    all
}

/// The pieces of [`join`].
pub(super) fn split(mut all: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let mut pieces = Vec::new();
    while let Some((length, rest)) = all.split_first_chunk::<8>() {
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let piece = rest.get(..length).ok_or_else(|| invalid("half a piece"))?;
        pieces.push(piece.to_vec());
        all = &rest[length..];
    }
    if all.is_empty() { Ok(pieces) } else { Err(invalid("half a length")) }
}

pub(super) fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_were_sent() {
        let frames = [
            Frame::Said(Message::Hello { rank: 3, size: 4 }),
            Frame::Said(Message::Beat(
                Position::Resting { step: 5 },
                Duration::from_millis(7),
            )),
            Frame::Part(vec![8; PART]),
            Frame::Data(vec![7; 300]),
            Frame::Data(Vec::new()),
            Frame::Said(Message::Bye),
        ];
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| write(&mut bytes, frame).unwrap());
        let mut rest = bytes.as_slice();
        for frame in &frames {
            assert_eq!(&read(&mut rest).unwrap(), frame);
        }
        assert!(read(&mut rest).is_err(), "the end");
    }

    #[test]
    fn damage_is_an_error_and_takes_no_memory() {
        let mut huge = vec![DATA_KIND];
        huge.extend(u64::MAX.to_le_bytes());
        assert!(read(&mut huge.as_slice()).is_err());
        let mut long = vec![SAID_KIND];
        long.extend((LONGEST + 1).to_le_bytes());
        assert!(read(&mut long.as_slice()).is_err());
        assert!(read(&mut [9_u8; 9].as_slice()).is_err());
        let mut data = Vec::new();
        write(&mut data, &Frame::Data(vec![1])).unwrap();
        assert!(read_said(&mut data.as_slice()).is_err(), "a stranger's data");
    }

    #[test]
    fn pieces_are_joined_and_split() {
        let pieces = vec![vec![1, 2, 3], Vec::new(), vec![4]];
        let all = join(&pieces);
        assert_eq!(split(&all).unwrap(), pieces);
        assert!(split(&all[..all.len() - 1]).is_err());
        assert!(split(&all[..4]).is_err());
    }
}
