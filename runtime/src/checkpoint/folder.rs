//! A folder of checkpoints: names, atomic writes, what may be removed, and by whom.

use super::CheckpointError;
use crate::output::{bring_to_disk, remove_left, whole_of};
use rustix::fs::{Access, access};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

const PREFIX: &str = "step-";
const SUFFIX: &str = ".safetensors";

/// A file without contents, which is locked while a run writes to the folder.
const HELD: &str = ".held";

/// Longer than anybody looks whether a folder is held.
const LOOK: Duration = Duration::from_millis(200);

/// What lies in a folder.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Files with the name of a checkpoint, by step.
    pub(super) checkpoints: BTreeMap<u64, PathBuf>,
    /// Checkpoints that are not whole yet, or were left so.
    pub(super) unfinished: Vec<PathBuf>,
    /// All else.
    pub(super) foreign: Vec<PathBuf>,
}

/// Lists a folder, in order of names; one that is not there is empty.
pub(super) fn list(folder: &Path) -> Result<Listing, CheckpointError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Listing::default());
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(CheckpointError::NoFolder { path: folder.into() });
        }
        entries => entries.and_then(Iterator::collect::<io::Result<Vec<_>>>),
    };
    let unreadable = |source| CheckpointError::Read { path: folder.into(), source };
    let mut paths: Vec<PathBuf> =
        entries.map_err(unreadable)?.iter().map(fs::DirEntry::path).collect();
    paths.sort();
    let mut listing = Listing::default();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match step(name) {
            None if name == HELD => {}
            Some(step) if path.is_file() => {
                listing.checkpoints.insert(step, path);
            }
            _ if is_unfinished(name) && path.is_file() => listing.unfinished.push(path),
            _ => listing.foreign.push(path),
        }
    }
    Ok(listing)
}

/// The step in the name of a checkpoint; names that this program does not write have none.
fn step(name: &str) -> Option<u64> {
    let step = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()?;
    (name == file_name(step)).then_some(step)
}

fn file_name(step: u64) -> String {
    format!("{PREFIX}{step:012}{SUFFIX}")
}

/// The file of a step.
pub(super) fn file(folder: &Path, step: u64) -> PathBuf {
    folder.join(file_name(step))
}

/// Whether it is the name of a checkpoint that is not whole yet. Other files that are not whole yet are of
/// other programs, which may be writing them.
fn is_unfinished(name: &str) -> bool {
    whole_of(name).and_then(step).is_some()
}

/// Makes the folder, on disk before anything lies in it.
pub(super) fn make(folder: &Path) -> Result<(), CheckpointError> {
    if folder.is_dir() {
        return Ok(());
    }
    if folder.exists() {
        return Err(CheckpointError::NoFolder { path: folder.into() });
    }
    let parents = || folder.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty());
    let known = parents().position(Path::is_dir).unwrap_or(0);
    fs::create_dir_all(folder)
        .and_then(|()| parents().take(known + 1).try_for_each(bring_to_disk))
        .map_err(|source| CheckpointError::Write { path: folder.into(), source })
}

/// Refuses a folder in which no run could keep checkpoints now. Nothing is written: another run may be
/// about to make the same folders.
pub(super) fn attempt(folder: &Path) -> Result<(), CheckpointError> {
    let here = |own| if own == Path::new("") { Path::new(".") } else { own };
    let there = folder.ancestors().map(here).find(|own| own.exists());
    let there = there.unwrap_or(Path::new("."));
    if there == here(folder) && !there.is_dir() {
        return Err(CheckpointError::NoFolder { path: folder.into() });
    }
    let writable = match there.is_dir() {
        true => {
            access(there, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from)
        }
        false => Err(io::ErrorKind::NotADirectory.into()),
    };
    writable.map_err(|source| CheckpointError::Write { path: folder.into(), source })?;
    match is_held(folder) {
        true => Err(CheckpointError::Held { folder: folder.to_path_buf() }),
        false => Ok(()),
    }
}

/// The right to write to a folder, of one run alone. It ends with the run, however that ends: the
/// system keeps it, not the file.
#[derive(Debug)]
pub(super) struct Hold {
    /// Locked until it is closed; none on a file system that has no locks.
    _file: Option<File>,
}

impl Hold {
    pub(super) fn of(folder: &Path) -> Result<Self, CheckpointError> {
        let path = folder.join(HELD);
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|source| CheckpointError::Write { path, source })?;
        match locked(&file) {
            Ok(()) => Ok(Self { _file: Some(file) }),
            Err(TryLockError::Error(_)) => Ok(Self { _file: None }),
            Err(TryLockError::WouldBlock) => {
                Err(CheckpointError::Held { folder: folder.to_path_buf() })
            }
        }
    }
}

/// Locks a file for one alone. Whoever looks at it has a lock too, but for a moment.
fn locked(file: &File) -> Result<(), TryLockError> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            thread::sleep(LOOK);
            file.try_lock()
        }
        tried => tried,
    }
}

/// Whether a run writes to a folder now; nobody knows where the file system has no locks. Those who look
/// do not see each other.
pub(super) fn is_held(folder: &Path) -> bool {
    let file = File::open(folder.join(HELD));
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Removes what unfinished writes left, and all checkpoints that are older than the newest `kept` up to
/// `step` of those that are known to be whole. Others may be damaged, and take nobody's place. Later ones are
/// of a run that was left behind; they stay. Says why it cannot remove what it cannot: that is in nobody's way.
pub(super) fn prune(
    folder: &Path,
    step: u64,
    kept: usize,
    whole: &mut BTreeSet<u64>,
) -> Vec<CheckpointError> {
    let Listing { checkpoints, unfinished, foreign: _ } = match list(folder) {
        Ok(listing) => listing,
        Err(error) => return vec![error],
    };
    whole.retain(|step| checkpoints.contains_key(step));
    let oldest = whole.range(..=step).nth_back(kept - 1).copied();
    let old = checkpoints.range(..oldest.unwrap_or(0)).map(|(_, path)| path);
    let old = old.filter_map(|path| stays(path, fs::remove_file(path)));
    let left = unfinished.iter().filter_map(|path| stays(path, remove_left(path)));
    old.chain(left).collect()
}

/// Why a file stays that was to be removed; one that is gone was removed by somebody else.
pub(super) fn stays(path: &Path, removed: io::Result<()>) -> Option<CheckpointError> {
    let source = removed.err().filter(|why| why.kind() != io::ErrorKind::NotFound)?;
    Some(CheckpointError::Stays { path: path.to_path_buf(), source })
}
