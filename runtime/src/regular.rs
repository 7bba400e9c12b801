//! Files that are read whole: they end, and how long they are is known before.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

/// A file and its length, if it is a regular one: a pipe or a device has no length, and opening it may
/// wait for ever.
pub(crate) fn open(path: &Path) -> io::Result<(File, u64)> {
    let found = fs::metadata(path)?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok((File::open(path)?, found.len()))
}

/// Appends a regular file, but at most `room` bytes of it.
pub(crate) fn read(path: &Path, room: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    let (file, _) = open(path)?;
    file.take(room).read_to_end(bytes).map(drop)
}
