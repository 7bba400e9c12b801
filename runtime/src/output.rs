//! Files that are written at the end of long work: never over what the work reads, known to be writable
//! before it begins, and whole at every instant.
//!
//! A file is written under another name, which no other writer has, brought to disk, then renamed: of
//! several that write one file at one time, the last one's stays, whole. Links are followed before,
//! because a rename would take their place. What is no file (a pipe, `/dev/stdout`) takes what comes.

mod room;
mod unfinished;

pub(crate) use unfinished::{Unfinished, remove_left, whole_of};

use crate::shown::shown;
use roundelay_schedule::Bytes;
use std::{
    fs::{self, File, FileType},
    io::{self, Write},
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};
use thiserror::Error;

/// A file that is written at the end of long work.
#[derive(Clone, Debug)]
pub struct OutputFile {
    path: PathBuf,
    place: Place,
}

/// What is written to.
#[derive(Clone, Debug)]
enum Place {
    /// A file, or nothing yet, behind all links.
    File(PathBuf),
    /// A pipe or a terminal.
    Stream,
}

/// Why a file is not written.
#[derive(Debug, Error)]
pub enum OutputError {
    /// The work reads it.
    #[error(
        "`{}` is an input, and would be written over; {}",
        shown(path), self.hint()
    )]
    Input {
        /// The file.
        path: PathBuf,
    },
    /// It lies among checkpoints, of which a run reads and removes some.
    #[error(
        "`{}` lies among the checkpoints of `{}`, which have a folder of their own; {}",
        shown(path), shown(folder), self.hint()
    )]
    AmongCheckpoints {
        /// The file.
        path: PathBuf,
        /// The folder of the checkpoints.
        folder: PathBuf,
    },
    /// The data would take it for their own.
    #[error(
        "`{}` lies among the data, and would be read as a part of them; {}",
        shown(path), self.hint()
    )]
    AmongData {
        /// The file, or the folder of checkpoints.
        path: PathBuf,
    },
    /// It cannot be, which is known before the work begins.
    #[error("cannot write `{}`: {source}; {}", shown(path), self.hint())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It would lie in a folder that is not there.
    #[error(
        "cannot write `{}`: there is no folder `{}`; {}",
        shown(path), shown(folder), self.hint()
    )]
    NoFolder {
        /// The file.
        path: PathBuf,
        /// The folder.
        folder: PathBuf,
    },
    /// The disk is too small for it, which is known before the work begins.
    #[error(
        "`{}` has no room: at least {needed} are to be written, and {free} are free there; {}",
        shown(path), self.hint()
    )]
    NoRoom {
        /// The first file that has none.
        path: PathBuf,
        /// What it takes, with those before it on the same disk.
        needed: Bytes,
        /// What is free.
        free: Bytes,
    },
    /// The work is done, and the system takes no more of the file.
    #[error("cannot write `{}`: {source}; {}", shown(path), self.hint())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl OutputError {
    /// What would repair it, as the message ends with.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Input { .. } => "name another output",
            Self::AmongCheckpoints { .. } => "name an output elsewhere",
            Self::AmongData { .. } => "name a place elsewhere",
            Self::Unwritable { .. } | Self::Write { .. } => {
                "check space and permissions, or name another file"
            }
            Self::NoFolder { .. } => "make it first, or name another file",
            Self::NoRoom { .. } => "write less, or name a place elsewhere",
        }
    }

    /// The file or folder that is not written.
    pub fn path(&self) -> &Path {
        match self {
            Self::Input { path }
            | Self::AmongCheckpoints { path, .. }
            | Self::AmongData { path }
            | Self::Unwritable { path, .. }
            | Self::NoFolder { path, .. }
            | Self::NoRoom { path, .. }
            | Self::Write { path, .. } => path,
        }
    }
}

impl OutputFile {
    /// Proves that a file can be written, as far as that is known before. What is there stays until it is.
    ///
    /// # Errors
    /// [`OutputError::NoFolder`], or [`OutputError::Unwritable`], also for folders, sockets and disks.
    pub fn new(path: &Path) -> Result<Self, OutputError> {
        let place = place(path).and_then(|place| {
            if let Place::File(file) = &place {
                attempt(file)?;
            }
            Ok(place)
        });
        let path = path.to_path_buf();
        match place {
            Ok(place) => Ok(Self { path, place }),
            Err(source)
                if source.kind() == io::ErrorKind::NotFound
                    && matches!(folder_of(&path).try_exists(), Ok(false)) =>
            {
                let folder = folder_of(&path).to_path_buf();
                Err(OutputError::NoFolder { path, folder })
            }
            Err(source) => Err(OutputError::Unwritable { path, source }),
        }
    }

    /// As [`OutputFile::new`], of work that reads these files.
    ///
    /// # Errors
    /// Those of [`OutputFile::new`], and [`OutputError::Input`] where it is one of them, under whatever name.
    pub fn beside(
        inputs: impl IntoIterator<Item: AsRef<Path>>,
        path: &Path,
    ) -> Result<Self, OutputError> {
        let is = |input: &Path, own: &Path| {
            input.canonicalize().is_ok_and(|input| input == own)
        };
        match path.canonicalize() {
            Ok(own) if inputs.into_iter().any(|input| is(input.as_ref(), &own)) => {
                Err(OutputError::Input { path: path.to_path_buf() })
            }
            // What is not there is nobody's input.
            Ok(_) | Err(_) => Self::new(path),
        }
    }

    /// The name that it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether both are one file, under whatever names, so that one would be written over the other.
    pub fn is(&self, other: &Self) -> bool {
        match (&self.place, &other.place) {
            (Place::File(one), Place::File(other)) => {
                one.file_name() == other.file_name() && self.lies_in(folder_of(other))
            }
            (Place::Stream, _) | (_, Place::Stream) => false,
        }
    }

    /// Whether it lies in a folder itself, behind all links.
    pub fn lies_in(&self, folder: &Path) -> bool {
        let Place::File(file) = &self.place else { return false };
        let (own, folder) = (folder_of(file).canonicalize(), folder.canonicalize());
        own.is_ok_and(|own| folder.is_ok_and(|folder| own == folder))
    }

    /// Removes what ended writers of it left unfinished, as far as that is known: who still writes has it locked.
    pub fn clear(&self) {
        if let Place::File(file) = &self.place {
            unfinished::clear(file);
        }
    }

    /// Removes what this process has not finished, whoever writes it, because the process is about to end. Nothing
    /// is begun or finished from then on: who wants to waits for the end.
    pub fn abandon_all() {
        unfinished::abandon_all();
    }

    /// Proves that there is room for files of so many bytes that are written one after the other, as far as that is
    /// known before.
    ///
    /// # Errors
    /// [`OutputError::NoRoom`].
    pub fn demand_room(files: &[(&Self, Bytes)]) -> Result<(), OutputError> {
        room::demand(files)
    }

    /// Writes it. A file is on disk when this returns.
    ///
    /// # Errors
    /// [`OutputError::Write`]; then a file that was there before is untouched.
    pub fn write(&self, bytes: &[u8]) -> Result<(), OutputError> {
        self.write_by(|out| out.write_all(bytes))
    }

    /// Writes it piece by piece.
    ///
    /// # Errors
    /// Those of [`OutputFile::write`].
    pub fn write_by(
        &self,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(), OutputError> {
        let written = match &self.place {
            Place::File(file) => write_whole(file, write),
            Place::Stream => File::options()
                .write(true)
                .open(&self.path)
                .and_then(|mut stream| write(&mut stream)),
        };
        written.map_err(|source| OutputError::Write { path: self.path.clone(), source })
    }
}

/// Writes a file under another name, brings it to disk, renames it, and brings the new name to
/// disk. When that fails, what was there before is untouched.
pub(crate) fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let (unfinished, mut file) = Unfinished::begin(path)?;
    write(&mut file)?;
    unfinished.finish(&file)
}

/// Names reach the disk with their folder; those of a folder that may be written to, but not listed, must
/// do so on their own.
pub(crate) fn bring_to_disk(folder: &Path) -> io::Result<()> {
    match File::open(folder) {
        Ok(folder) => folder.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(error),
    }
}

/// The folder that a file lies in.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

/// Tries what writing a file would do first.
fn attempt(file: &Path) -> io::Result<()> {
    if file.exists() {
        File::options().append(true).open(file)?;
    }
    Unfinished::begin(file).and_then(|(unfinished, _)| unfinished.remove())
}

/// What a name leads to, behind all links.
fn place(path: &Path) -> io::Result<Place> {
    match fs::metadata(path).map(|found| found.file_type()) {
        Ok(found) if found.is_file() => fs::canonicalize(path).map(Place::File),
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(found) if is_stream(found) => Ok(Place::Stream),
        Ok(_) => Err(io::Error::other("it is not a file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut place = path.to_path_buf();
            while let Ok(next) = fs::read_link(&place) {
                place = place.parent().unwrap_or(Path::new("")).join(next);
            }
            Ok(Place::File(place))
        }
        Err(error) => Err(error),
    }
}

/// Whether what is written there goes on to somewhere else.
fn is_stream(found: FileType) -> bool {
    found.is_fifo() || found.is_char_device()
}

#[cfg(test)]
mod tests;
