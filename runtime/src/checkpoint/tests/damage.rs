//! Damaged bytes are found out, whatever the damage.

use super::{bytes, run, schedule, state};
use crate::{
    Provenance, State,
    checkpoint::format,
    container::{Container, NotWhole, ReadAt, Stamp},
};
use roundelay_kernels::random::Stream;
use roundelay_schedule::Rule;
use std::{io, path::Path, time::SystemTime};

impl ReadAt for Vec<u8> {
    fn read_exact_at(&self, bytes: &mut [u8], start: u64) -> io::Result<()> {
        bytes.copy_from_slice(&self[start as usize..][..bytes.len()]);
        Ok(())
    }

    fn stamp(&self) -> io::Result<Stamp> {
        Ok(Stamp { length: self.len() as u64, written: SystemTime::UNIX_EPOCH })
    }
}

fn read(bytes: &[u8]) -> Result<(Provenance, State), NotWhole> {
    let container = Container::of(Path::new("file"), Box::new(bytes.to_vec()))?;
    let (provenance, state) = format::whole(container)?;
    Ok((provenance, state.held().unwrap()))
}

fn written() -> Vec<u8> {
    let schedule = schedule(Rule::CyclicV2);
    bytes(&run(&schedule), &state(&schedule, 3))
}

#[test]
fn every_truncation_and_every_flipped_bit_is_found() {
    let (schedule, whole) = (schedule(Rule::CyclicV2), written());
    assert_eq!(read(&whole).unwrap(), (run(&schedule), state(&schedule, 3)));
    for length in 0..whole.len() {
        assert!(read(&whole[..length]).is_err(), "{length}");
    }
    for bit in 0..8 * whole.len() {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&flipped).is_err(), "{bit}");
    }
}

#[test]
fn random_damage_is_found_or_changes_nothing() {
    let whole = written();
    let letters = b"0123456789[]{},:\"\\@#-\0\xff ";
    for round in 0..20_000 {
        let chance = Stream::new(round, &[1]);
        let mut bytes = whole.clone();
        for change in 0..1 + chance.below(0, 4) {
            let place = chance.below(10 * change + 1, bytes.len() as u64) as usize;
            let letter = chance.below(10 * change + 2, letters.len() as u64) as usize;
            match chance.below(10 * change + 3, 4) {
                0 => bytes[place] = letters[letter],
                1 => bytes.insert(place, letters[letter]),
                2 => drop(bytes.remove(place)),
                _ => bytes.truncate(place.max(8)),
            }
        }
        if let Ok(found) = read(&bytes) {
            assert!(found == read(&whole).unwrap(), "round {round}");
        }
    }
}

#[test]
fn absurd_headers_are_refused_before_they_are_believed() {
    let file = |header: &str| {
        let length = (header.len() as u64).to_le_bytes();
        [length.as_slice(), header.as_bytes()].concat()
    };
    let tensor = |shape: &str, end: &str| {
        file(&format!(
            r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":[0,{end}]}}}}"#
        ))
    };
    let cases = [
        u64::MAX.to_le_bytes().to_vec(),
        (1u64 << 40).to_le_bytes().to_vec(),
        tensor("[1099511627776]", "4398046511104"),
        tensor("[4611686018427387903]", "18446744073709551612"),
        tensor("[18446744073709551615,4]", "16"),
        tensor("[99999999999999999999999]", "4"),
        file(&"[".repeat(100_000)),
        file("{}"),
    ];
    for bytes in cases {
        assert!(read(&bytes).is_err());
    }
}
