//! What ranks send each other over their connections: short messages as JSON, and bytes.

use super::trouble::{Position, Trouble};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};

/// What a connection begins with, so that whoever comes by mistake is told apart.
pub(super) const GREETING: [u8; 8] = *b"rndelay1";

/// The longest message that is no data.
const LONGEST: u64 = 1 << 20;

/// One thing that is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Said(Message),
    Data(Vec<u8>),
}

/// A short message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Message {
    /// Who comes to a meeting, and how many it thinks there are.
    Hello { rank: u32, size: u32 },
    /// All are there.
    Begin,
    /// The meeting does not take place.
    Refused(String),
    /// A rank runs, and is there.
    Beat(Position),
    /// A rank has waited long enough.
    Late(Position),
    /// What ends the run.
    Trouble(Trouble),
    /// A rank is done and closes its connection.
    Bye,
}

const SAID: u8 = 0;
const DATA: u8 = 1;

/// Writes a frame.
pub(super) fn write(to: &mut impl Write, frame: &Frame) -> io::Result<()> {
    let (kind, bytes) = match frame {
        Frame::Said(message) => (SAID, &serde_json::to_vec(message)?),
        Frame::Data(bytes) => (DATA, bytes),
    };
    let mut head = [kind; 9];
    head[1..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    to.write_all(&head)?;
    to.write_all(bytes)?;
    to.flush()
}

/// Reads a frame.
pub(super) fn read(from: &mut impl Read) -> io::Result<Frame> {
    let mut head = [0; 9];
    from.read_exact(&mut head)?;
    let [kind, length @ ..] = head;
    let length = u64::from_le_bytes(length);
    if kind > DATA || kind == SAID && length > LONGEST {
        return Err(invalid("no frame"));
    }
    let mut bytes = Vec::new();
    from.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match kind {
        SAID => Ok(Frame::Said(serde_json::from_slice(&bytes)?)),
        _ => Ok(Frame::Data(bytes)),
    }
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

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_were_sent() {
        let frames = [
            Frame::Said(Message::Hello { rank: 3, size: 4 }),
            Frame::Said(Message::Beat(Position::Resting { step: 5 })),
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
        let mut huge = vec![DATA];
        huge.extend(u64::MAX.to_le_bytes());
        assert!(read(&mut huge.as_slice()).is_err());
        let mut long = vec![SAID];
        long.extend((LONGEST + 1).to_le_bytes());
        assert!(read(&mut long.as_slice()).is_err());
        assert!(read(&mut [9_u8; 9].as_slice()).is_err());
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
