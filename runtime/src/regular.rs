//! Files that are read whole: they end, and how long they are is known before.

use std::{
    fs::{self, File},
    io,
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
