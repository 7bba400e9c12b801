//! Whether disks have room for files, asked before they are written.

use super::{OutputError, OutputFile, Place, folder_of};
use roundelay_schedule::Bytes;
use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt, path::Path};

/// Proves that there is room for files of so many bytes, which are written one after the other: each takes the
/// place of what has its name once it is whole. What the system does not say is left to the writing.
///
/// # Errors
/// [`OutputError::NoRoom`].
pub(super) fn demand(files: &[(&OutputFile, Bytes)]) -> Result<(), OutputError> {
    let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
    for (OutputFile { path, place }, Bytes(bytes)) in files {
        let Place::File(file) = place else { continue };
        let folder = folder_of(file);
        let (Ok(found), Some(free)) = (fs::metadata(folder), free(folder)) else {
            continue;
        };
        let taken = taken.entry(found.dev()).or_default();
        *taken = taken.saturating_add(*bytes);
        if *taken > free.0 {
            return Err(OutputError::NoRoom {
                path: path.clone(),
                needed: Bytes(*taken),
                free,
            });
        }
        let replaced = fs::metadata(file).map_or(0, |earlier| earlier.len());
        *taken = taken.saturating_sub(replaced);
    }
    Ok(())
}

/// What anybody may still write to the disk of a folder.
#[cfg(target_os = "linux")]
fn free(folder: &Path) -> Option<Bytes> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(Bytes(disk.f_bavail.saturating_mul(disk.f_frsize)))
}

/// Other systems are not asked.
#[cfg(not(target_os = "linux"))]
fn free(_: &Path) -> Option<Bytes> {
    None
}
