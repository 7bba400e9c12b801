//! Files that are not whole yet: each under a name of its own, which no process leaves behind that ends in a way
//! that it hears of.

use super::{bring_to_disk, folder_of};
use crate::lock::lock;
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::{self, File, TryLockError},
    io, mem,
    path::{Path, PathBuf},
    process,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

/// What names of files that are not whole yet end with.
pub(super) const UNFINISHED: &str = ".unfinished";

/// Those of this process. Locked while one gets or loses its name.
static BEGUN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// The name of a file of this writer alone for what is not whole yet; the file is removed with it, unless
/// it has another name by then.
pub(crate) struct Unfinished {
    own: PathBuf,
    /// The name of the file when it is whole.
    whole: PathBuf,
}

impl Unfinished {
    /// An empty file, and its name. It is locked while it is open, so that nobody takes it for a remnant.
    pub(crate) fn begin(path: &Path) -> io::Result<(Self, File)> {
        let mut begun = lock(&BEGUN);
        loop {
            let own = unfinished(path);
            match File::create_new(&own) {
                Ok(file) if is_taken(&own, &file) => {}
                Ok(file) => {
                    begun.insert(own.clone());
                    return Ok((Self { own, whole: path.to_path_buf() }, file));
                }
                // A process of this number was ended here before, or runs on another host.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let told = format!("{error}, at `{}`", own.display());
                    return Err(io::Error::new(error.kind(), told));
                }
            }
        }
    }

    /// Brings the file to disk, renames it, and brings the new name to disk.
    pub(crate) fn finish(self, file: &File) -> io::Result<()> {
        if let Ok(earlier) = fs::metadata(&self.whole) {
            file.set_permissions(earlier.permissions())?;
        }
        file.sync_all()?;
        self.rename()?;
        bring_to_disk(folder_of(&self.whole))
    }

    /// Gives the file its name. From then on the one that it had may be another writer's.
    fn rename(&self) -> io::Result<()> {
        let mut begun = lock(&BEGUN);
        fs::rename(&self.own, &self.whole)?;
        begun.remove(&self.own);
        Ok(())
    }

    /// Removes the file.
    pub(super) fn remove(self) -> io::Result<()> {
        self.discard()
    }

    /// Removes the file if it still has this name.
    fn discard(&self) -> io::Result<()> {
        let mut begun = lock(&BEGUN);
        if begun.remove(&self.own) { fs::remove_file(&self.own) } else { Ok(()) }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // The write failed already; that its remains stay is said by whoever lists the folder.
        let _ = self.discard();
    }
}

/// Whether somebody takes a new file for a remnant, before it is locked.
fn is_taken(own: &Path, file: &File) -> bool {
    matches!(file.try_lock(), Err(TryLockError::WouldBlock)) || !own.exists()
}

/// Removes all that are begun, and keeps others from being begun or finished.
pub(super) fn abandon_all() {
    let begun = lock(&BEGUN);
    for own in &*begun {
        // The process ends, and has nobody left to say it to.
        let _ = fs::remove_file(own);
    }
    mem::forget(begun);
}

/// Removes what nobody writes any more of what is to become a file. What cannot be removed, or may be written to
/// because there are no locks, is in nobody's way.
pub(super) fn clear(whole: &Path) {
    let Ok(entries) = fs::read_dir(folder_of(whole)) else { return };
    let Some(whole) = whole.file_name().and_then(OsStr::to_str) else { return };
    for remnant in entries.flatten() {
        let name = remnant.file_name();
        if name.to_str().and_then(whole_of) == Some(whole) {
            let _ = remove_left(&remnant.path());
        }
    }
}

/// Removes what was left of a file that is not whole; what somebody writes, or may write because there are no
/// locks, stays.
pub(crate) fn remove_left(remnant: &Path) -> io::Result<()> {
    // Some file systems lock only what may be written for one alone.
    let file = File::options().write(true).open(remnant)?;
    match file.try_lock() {
        Ok(()) => fs::remove_file(remnant),
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => Ok(()),
    }
}

/// The name of the file that is to become of one with this name, if it is one that [`unfinished`] gives.
pub(crate) fn whole_of(remnant: &str) -> Option<&str> {
    let (own, number) = remnant.strip_suffix(UNFINISHED)?.rsplit_once('-')?;
    let (whole, process) = own.rsplit_once('.')?;
    let are_numbers = [process, number].iter().all(|own| own.parse::<u32>().is_ok());
    are_numbers.then_some(whole)
}

/// A name that this process gives to no other file.
pub(super) fn unfinished(path: &Path) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}-{number}{UNFINISHED}", process::id()));
    name.into()
}
