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
    if found.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
    }
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok((File::open(path)?, found.len()))
}

/// What would repair that a file of arrays is not read.
pub(crate) fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::IsADirectory => {
            "name a file in it, such as `model.safetensors` or the newest checkpoint"
        }
        _ => "check that it exists and may be read",
    }
}

/// Whether a file is not opened because the process, or the system, has too many open.
pub(crate) fn is_too_many(error: &io::Error) -> bool {
    // EMFILE and ENFILE, which are these on every Unix.
    matches!(error.raw_os_error(), Some(24 | 23))
}

/// Appends a regular file, but at most `room` bytes of it.
pub(crate) fn read(path: &Path, room: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    let (file, _) = open(path)?;
    file.take(room).read_to_end(bytes).map(drop)
}
