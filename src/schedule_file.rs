//! Schedule files: paths of data are seen from the folder that a file lies in, in memory from the working
//! folder.

use roundelay_kernels::Kernels;
use roundelay_runtime::{OutputError, OutputFile};
use roundelay_schedule::{
    Checked, FileErrors, Lines, Schedule, Violation, Violations, check,
};
use std::{
    fs, io,
    path::{Path, PathBuf},
};
use thiserror::Error;

/// A folder whose path is no text, so that neither a program nor a schedule can name it.
#[derive(Debug, Error)]
#[error("no program and no schedule can name this folder, for it is not UTF-8")]
pub struct Unnameable(pub PathBuf);

/// Why a schedule file is not read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file cannot be read, or is not text.
    #[error("cannot use `{}`: {source}", path.display())]
    File {
        /// Path of the file, as it was given.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The text is not a schedule.
    #[error("`{}` is not a schedule:\n{errors}", path.display())]
    Text {
        /// Path of the file, as it was given.
        path: PathBuf,
        /// Every mistake, with its line and column.
        errors: FileErrors,
    },
    /// The schedule breaks rules.
    #[error("`{}` breaks rules:\n{}", path.display(), placed(violations, lines))]
    Check {
        /// Path of the file, as it was given.
        path: PathBuf,
        /// The violations of the first group of rules that is broken, at most 50.
        violations: Violations,
        /// Where the culprits stand in the text.
        lines: Box<Lines>,
    },
    /// The data cannot be named.
    #[error(transparent)]
    Folder(#[from] Unnameable),
}

/// Why a schedule file is not written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The data cannot be named.
    #[error(transparent)]
    Folder(#[from] Unnameable),
    /// The file cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// Violations with the lines of their culprits.
fn placed(violations: &Violations, lines: &Lines) -> String {
    let line =
        |violation: &Violation| violation.culprit().and_then(|own| lines.line(own));
    let told = violations.iter().map(|violation| match line(violation) {
        Some(line) => format!("line {line}: {violation}"),
        None => violation.to_string(),
    });
    let mut told: Vec<String> = told.collect();
    let unlisted = violations.total() - told.len();
    if unlisted > 0 {
        told.push(format!("and {unlisted} more"));
    }
    told.join("\n")
}

/// Reads and checks a schedule file; its data lie where its paths lead from the file's own folder.
///
/// # Errors
/// A file that is not text, every mistake of the text, or the violations of the first group of rules
/// that the schedule breaks.
pub fn read_file(path: &Path) -> Result<Checked, ReadError> {
    let unread = |source| ReadError::File { path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(unread)?;
    read_as(path, &text)
}

/// Reads and checks a text as if it stood in the file of this path; nothing is read there.
///
/// # Errors
/// Every mistake of the text, or the violations of the first group of rules that the schedule breaks.
pub fn read_as(path: &Path, text: &str) -> Result<Checked, ReadError> {
    let refused = |errors| ReadError::Text { path: path.to_owned(), errors };
    let mut read = roundelay_schedule::read(text).map_err(refused)?;
    if let Some(root) = read.job.data.root_mut() {
        *root = nameable(&folder_of(path).join(&*root))?.to_owned();
    }
    check(read, &Kernels).map_err(|violations| ReadError::Check {
        path: path.to_owned(),
        violations,
        lines: Box::new(Lines::of(text)),
    })
}

/// Writes a schedule file, with the paths of its data as they are seen from the file's folder.
///
/// # Errors
/// Data that no text can name from there, and a file that cannot be written.
pub fn write_file(schedule: &Checked, file: &OutputFile) -> Result<(), WriteError> {
    let mut placed = Schedule::clone(schedule);
    if let Some(root) = placed.job.data.root_mut() {
        *root = relative(root, folder_of(file.path()))?;
    }
    Ok(file.write(roundelay_schedule::write(&placed).as_bytes())?)
}

/// The folder that a file lies in; an empty one is the working folder.
fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// A folder as schedules, which are text, name it.
fn nameable(folder: &Path) -> Result<&str, Unnameable> {
    folder.to_str().ok_or_else(|| Unnameable(folder.to_owned()))
}

/// The path of data as seen from the folder that a schedule file lies in.
fn relative(root: &str, folder: &Path) -> Result<String, Unnameable> {
    let (from, to) = (absolute(folder), absolute(Path::new(root)));
    let shared =
        from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(shared).map(|_| "..");
    let down = to.components().skip(shared);
    let path: PathBuf =
        up.map(PathBuf::from).chain(down.map(|c| PathBuf::from(c.as_os_str()))).collect();
    nameable(&path).map(str::to_owned)
}

/// A folder from the root, behind all links, out of which `..` leads elsewhere than by its name. What is
/// named without a folder has an empty one, which is this one.
fn absolute(folder: &Path) -> PathBuf {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let found = folder.canonicalize().or_else(|_| std::path::absolute(folder));
    found.unwrap_or_else(|_| folder.to_owned())
}
