//! File patterns: `*` and `?` within a name, `**` across folders.
//!
//! Wildcards pass over names that begin with a dot and over folders called `target`; a pattern
//! that names them finds them. `**` does not follow symbolic links, so no loop of links can
//! hold it; a link to a file is a file. Names that are not UTF-8 match nothing. What cannot be looked
//! at, as a link that leads nowhere, is an error wherever it might be a match.

use super::DataError;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, Metadata},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

/// The most folder entries that one pattern may lead through.
const ENTRIES: u64 = 1 << 20;

/// All files that match one of the patterns, each once, by their path from `root` with `/`.
///
/// # Errors
/// A bad pattern, a pattern without a match, a folder that cannot be read.
pub(super) fn find(
    root: &Path,
    patterns: &[String],
) -> Result<BTreeMap<String, PathBuf>, DataError> {
    let mut found = BTreeMap::new();
    for pattern in patterns {
        let files = Search::new(root, pattern)?.run()?;
        if files.is_empty() {
            return Err(nothing(root, pattern.clone()));
        }
        found.extend(files);
    }
    Ok(without_repeats(found))
}

/// Why a pattern has no file: it may name a folder.
fn nothing(root: &Path, pattern: String) -> DataError {
    let path = root.join(&pattern);
    match path.is_dir() {
        true => DataError::Folder { path, pattern },
        false => DataError::NoMatch { pattern, root: root.to_path_buf() },
    }
}

/// Drops names of a file that has a smaller name already.
fn without_repeats(files: BTreeMap<String, PathBuf>) -> BTreeMap<String, PathBuf> {
    let mut seen = BTreeSet::new();
    let place = |path: &PathBuf| fs::canonicalize(path).unwrap_or_else(|_| path.clone());
    files.into_iter().filter(|(_, path)| seen.insert(place(path))).collect()
}

/// One name of a pattern.
enum Part {
    /// Exactly this name; also `..`.
    Name(String),
    /// A name with `*` or `?`.
    Wild(Vec<char>),
    /// `**`: any number of folders.
    Folders,
}

/// Where a search stands: a path, and the parts of the pattern from `next` on.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Spot {
    name: String,
    path: PathBuf,
    next: usize,
}

struct Search<'a> {
    pattern: &'a str,
    parts: Vec<Part>,
    open: Vec<Spot>,
    seen: BTreeSet<Spot>,
    entries: u64,
    found: BTreeMap<String, PathBuf>,
}

impl<'a> Search<'a> {
    fn new(root: &Path, pattern: &'a str) -> Result<Self, DataError> {
        let root = if root.as_os_str().is_empty() { Path::new(".") } else { root };
        let start = match pattern.starts_with('/') {
            true => Spot { name: "/".into(), path: "/".into(), next: 0 },
            false => Spot { name: String::new(), path: root.into(), next: 0 },
        };
        Ok(Self {
            pattern,
            parts: parts(pattern)?,
            seen: BTreeSet::from([start.clone()]),
            open: vec![start],
            entries: 0,
            found: BTreeMap::new(),
        })
    }

    fn run(mut self) -> Result<BTreeMap<String, PathBuf>, DataError> {
        while let Some(spot) = self.open.pop() {
            self.advance(spot)?;
        }
        Ok(self.found)
    }

    fn advance(&mut self, spot: Spot) -> Result<(), DataError> {
        let next = spot.next + 1;
        match self.parts.get(spot.next) {
            None => {
                if self.look(&spot.path)?.is_some_and(|found| found.is_file()) {
                    self.found.insert(spot.name, spot.path);
                }
            }
            Some(Part::Name(name)) => self.visit(spot.below(name, next)),
            Some(Part::Wild(wild)) => {
                let wild = wild.clone();
                for name in self.names(&spot)? {
                    let below = spot.below(&name, next);
                    if matches(&wild, &name)
                        && !passed_over(&wild, &name, || below.path.is_dir())
                    {
                        self.visit(below);
                    }
                }
            }
            Some(Part::Folders) => {
                for name in self.names(&spot)? {
                    let below = spot.below(&name, spot.next);
                    let passed = passed_over(&['*'], &name, || below.path.is_dir());
                    if !passed && self.is_real(&below.path)? {
                        self.visit(below);
                    }
                }
                self.visit(Spot { next, ..spot });
            }
        }
        Ok(())
    }

    fn visit(&mut self, spot: Spot) {
        if self.seen.insert(spot.clone()) {
            self.open.push(spot);
        }
    }

    /// The names in a folder; none when it is no folder.
    fn names(&mut self, spot: &Spot) -> Result<Vec<String>, DataError> {
        if !self.look(&spot.path)?.is_some_and(|found| found.is_dir()) {
            return Ok(Vec::new());
        }
        let unreadable = |source| unreadable(self.pattern, &spot.path, source);
        let mut names = Vec::new();
        for entry in fs::read_dir(&spot.path).map_err(unreadable)? {
            names.extend(entry.map_err(unreadable)?.file_name().into_string());
            self.entries += 1;
            if self.entries > ENTRIES {
                let pattern = self.pattern.into();
                return Err(DataError::TooManyEntries { pattern, limit: ENTRIES });
            }
        }
        Ok(names)
    }

    /// What lies at a path, behind links; nothing where no such name is.
    fn look(&self, path: &Path) -> Result<Option<Metadata>, DataError> {
        match fs::metadata(path) {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_absent(&error) && !path.is_symlink() => Ok(None),
            Err(error) => Err(unreadable(self.pattern, path, error)),
        }
    }

    /// Whether it is a folder itself, and no link to one.
    fn is_real(&self, path: &Path) -> Result<bool, DataError> {
        match fs::symlink_metadata(path) {
            Ok(found) => Ok(found.is_dir()),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(unreadable(self.pattern, path, error)),
        }
    }
}

/// Whether nothing has the name that was looked for.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn unreadable(pattern: &str, path: &Path, source: io::Error) -> DataError {
    DataError::Unreadable { path: path.to_path_buf(), pattern: pattern.into(), source }
}

impl Spot {
    fn below(&self, name: &str, next: usize) -> Spot {
        let separator = if self.name.is_empty() || self.name == "/" { "" } else { "/" };
        let path = self.path.join(name);
        Spot { name: format!("{}{separator}{name}", self.name), path, next }
    }
}

/// A wildcard does not stand for a leading dot, nor for a folder of build products.
fn passed_over(wild: &[char], name: &str, is_folder: impl FnOnce() -> bool) -> bool {
    let hidden = name.starts_with('.') && wild.first() != Some(&'.');
    hidden || (name == "target" && is_folder())
}

/// Whether one of the patterns would find a file at a place, behind all links, where none may be yet.
pub(super) fn would_find(root: &Path, patterns: &[String], place: &Path) -> bool {
    let finds = |pattern: &String| {
        let parts = parts(pattern).ok()?;
        // The names that a pattern begins with lead to a folder that is there.
        let is_name = |part: &&Part| matches!(part, Part::Name(_));
        let named = parts.iter().take_while(is_name).count().min(parts.len() - 1);
        let (lead, rest) = parts.split_at(named);
        let start = if pattern.starts_with('/') { Path::new("/") } else { root };
        let below = lead.iter().fold(start.join("."), |path, part| match part {
            Part::Name(name) => path.join(name),
            Part::Wild(_) | Part::Folders => path,
        });
        let below = below.canonicalize().ok()?;
        let names = place.strip_prefix(&below).ok()?.components();
        let names = names.map(|name| name.as_os_str().to_str());
        Some(leads_to(rest, &names.collect::<Option<Vec<_>>>()?))
    };
    patterns.iter().any(|pattern| finds(pattern).unwrap_or(false))
}

/// Whether the parts of a pattern stand for these names, of which the last one is a file's.
fn leads_to(parts: &[Part], names: &[&str]) -> bool {
    let Some((part, later)) = parts.split_first() else { return names.is_empty() };
    let Some((name, below)) = names.split_first() else { return false };
    let passed = |wild: &[char]| passed_over(wild, name, || !below.is_empty());
    match part {
        Part::Name(own) => own == name && leads_to(later, below),
        Part::Wild(wild) => {
            matches(wild, name) && !passed(wild) && leads_to(later, below)
        }
        Part::Folders => {
            leads_to(later, names) || (!passed(&['*']) && leads_to(parts, below))
        }
    }
}

fn parts(pattern: &str) -> Result<Vec<Part>, DataError> {
    let bad =
        |reason| Err(DataError::BadPattern { pattern: pattern.to_string(), reason });
    let mut parts = Vec::new();
    for name in pattern.split('/').filter(|name| !matches!(*name, "" | ".")) {
        match name {
            "**" if matches!(parts.last(), Some(Part::Folders)) => {}
            "**" => parts.push(Part::Folders),
            _ if name.contains("**") => return bad("`**` must stand alone between `/`"),
            _ if name.contains(['*', '?']) => {
                parts.push(Part::Wild(name.chars().collect()));
            }
            _ if name.contains('\0') => return bad("a path cannot hold a zero byte"),
            _ => parts.push(Part::Name(name.to_string())),
        }
    }
    if matches!(parts.last(), Some(Part::Folders)) {
        parts.push(Part::Wild(vec!['*']));
    }
    if parts.is_empty() { bad("it names no file") } else { Ok(parts) }
}

/// Whether a name matches a pattern of `*` and `?`; in time of the product of the lengths.
fn matches(wild: &[char], name: &str) -> bool {
    let mut reached = vec![false; wild.len() + 1];
    reached[0] = true;
    spread(wild, &mut reached);
    for letter in name.chars() {
        let mut after = vec![false; wild.len() + 1];
        for (k, sign) in wild.iter().enumerate().filter(|(k, _)| reached[*k]) {
            match sign {
                '*' => after[k] = true,
                '?' => after[k + 1] = true,
                _ => after[k + 1] |= *sign == letter,
            }
        }
        reached = after;
        spread(wild, &mut reached);
    }
    reached[wild.len()]
}

/// A `*` may stand for nothing.
fn spread(wild: &[char], reached: &mut [bool]) {
    for (k, sign) in wild.iter().enumerate() {
        reached[k + 1] |= reached[k] && *sign == '*';
    }
}

#[cfg(test)]
mod tests;
