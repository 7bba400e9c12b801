//! File patterns: `*` and `?` within a name, `**` across folders.
//!
//! Wildcards pass over names that begin with a dot and over folders called `target`; a pattern
//! that names them finds them. `**` does not follow symbolic links, so no loop of links can
//! hold it; a link to a file is a file. Names that are not UTF-8 match nothing.

use super::DataError;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
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
            let root = root.to_path_buf();
            return Err(DataError::NoMatch { pattern: pattern.clone(), root });
        }
        found.extend(files);
    }
    Ok(without_repeats(found))
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
            None if spot.path.is_file() => {
                self.found.insert(spot.name, spot.path);
            }
            None => {}
            Some(Part::Name(name)) => self.visit(spot.below(name, next)),
            Some(Part::Wild(wild)) => {
                let wild = wild.clone();
                for name in self.names(&spot)? {
                    let below = spot.below(&name, next);
                    if matches(&wild, &name) && !passed_over(&wild, &below, &name) {
                        self.visit(below);
                    }
                }
            }
            Some(Part::Folders) => {
                for name in self.names(&spot)? {
                    let below = spot.below(&name, spot.next);
                    let real = below.path.is_dir() && !below.path.is_symlink();
                    if real && !passed_over(&['*'], &below, &name) {
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
        if !spot.path.is_dir() {
            return Ok(Vec::new());
        }
        let unreadable = |source| DataError::Unreadable {
            path: spot.path.clone(),
            pattern: self.pattern.into(),
            source,
        };
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
}

impl Spot {
    fn below(&self, name: &str, next: usize) -> Spot {
        let separator = if self.name.is_empty() || self.name == "/" { "" } else { "/" };
        let path = self.path.join(name);
        Spot { name: format!("{}{separator}{name}", self.name), path, next }
    }
}

/// A wildcard does not stand for a leading dot, nor for a folder of build products.
fn passed_over(wild: &[char], spot: &Spot, name: &str) -> bool {
    let hidden = name.starts_with('.') && wild.first() != Some(&'.');
    hidden || (name == "target" && spot.path.is_dir())
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
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use roundelay_kernels::random::Stream;

    fn names(folder: &Scratch, patterns: &[&str]) -> Vec<String> {
        let patterns: Vec<_> = patterns.iter().map(ToString::to_string).collect();
        find(folder.path(), &patterns).unwrap().into_keys().collect()
    }

    #[test]
    fn wildcards_match_names() {
        let cases = [
            ("*", "", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "abcd", false),
            ("?", "é", true),
            ("?", "", false),
            ("*.rs", "main.rs", true),
            ("*.rs", "main.rsx", false),
            ("**", "abc", true),
            ("plain", "plain", true),
        ];
        for (wild, name, expected) in cases {
            let letters: Vec<char> = wild.chars().collect();
            assert_eq!(matches(&letters, name), expected, "{wild} against {name}");
        }
    }

    /// The meaning of a pattern, in exponential time.
    fn means(wild: &[char], name: &[char]) -> bool {
        match (wild.split_first(), name.split_first()) {
            (None, _) => name.is_empty(),
            (Some(('*', rest)), None) => means(rest, name),
            (Some(('*', rest)), Some((_, after))) => {
                means(rest, name) || means(wild, after)
            }
            (Some(_), None) => false,
            (Some((sign, rest)), Some((letter, after))) => {
                (*sign == '?' || sign == letter) && means(rest, after)
            }
        }
    }

    #[test]
    fn matching_agrees_with_its_meaning() {
        for round in 0..20_000 {
            let chance = Stream::new(round, &[]);
            let draw = |first: u64, letters: &[char]| -> Vec<char> {
                let letter = |k| letters[chance.below(k, letters.len() as u64) as usize];
                (first + 1..=first + chance.below(first, 8)).map(letter).collect()
            };
            let (wild, name) = (draw(0, &['a', 'b', '*', '?']), draw(100, &['a', 'b']));
            let text: String = name.iter().collect();
            assert_eq!(matches(&wild, &text), means(&wild, &name), "{wild:?} {text}");
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let wild: Vec<char> = "*a".repeat(200).chars().collect();
        assert!(!matches(&wild, &"a".repeat(199)));
        assert!(matches(&wild, &"ab".repeat(250)[..499]));
    }

    #[test]
    fn folders_are_crossed_in_order_of_paths() {
        let folder = Scratch::new("glob");
        for file in ["b.md", "a.md", "a/x.md", "a/deep/y.md", "a.txt", "a-b/z.md"] {
            folder.write(file, b"x");
        }
        assert_eq!(
            names(&folder, &["**/*.md"]),
            ["a-b/z.md", "a.md", "a/deep/y.md", "a/x.md", "b.md"]
        );
        assert_eq!(names(&folder, &["a/**"]), ["a/deep/y.md", "a/x.md"]);
        assert_eq!(names(&folder, &["?/*/*.md"]), ["a/deep/y.md"]);
        assert_eq!(names(&folder, &["*.md", "a/../a.*"]), ["a.md", "a/../a.txt", "b.md"]);
        assert_eq!(names(&folder, &["./a.txt", "**/**/**/a.txt"]), ["a.txt"]);
    }

    #[test]
    fn build_products_and_dot_folders_must_be_named() {
        let folder = Scratch::new("glob-hidden");
        for file in ["target/t.md", "a/target/t.md", ".git/g.md", ".h.md", "k.md"] {
            folder.write(file, b"x");
        }
        assert_eq!(names(&folder, &["**/*.md"]), ["k.md"]);
        assert_eq!(names(&folder, &["target/*.md"]), ["target/t.md"]);
        assert_eq!(names(&folder, &[".*/*.md", ".*.md"]), [".git/g.md", ".h.md"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_to_files_are_files_and_loops_end() {
        let folder = Scratch::new("glob-links");
        folder.write("a/x.md", b"x");
        for (from, to) in [("..", "a/up"), ("a/x.md", "y.md"), ("nowhere", "dangling.md")]
        {
            std::os::unix::fs::symlink(from, folder.path().join(to)).unwrap();
        }
        std::os::unix::fs::symlink("self.md", folder.path().join("self.md")).unwrap();
        assert_eq!(names(&folder, &["**/*.md"]), ["a/x.md"], "y.md is a/x.md");
        assert_eq!(names(&folder, &["y.md"]), ["y.md"]);
        assert_eq!(names(&folder, &["*/*/*/*.md"]), ["a/up/a/x.md"]);
    }

    #[test]
    fn what_cannot_match_is_said() {
        let folder = Scratch::new("glob-bad");
        folder.write("a.md", b"x");
        for pattern in ["", "/", "./", "a**b", "**b/x", "a\0b"] {
            let error = find(folder.path(), &[pattern.to_string()]).unwrap_err();
            assert!(
                matches!(error, DataError::BadPattern { .. }),
                "{pattern:?}: {error}"
            );
        }
        for pattern in ["*.rs", "nowhere/*", "a.md/*", "**/*.rs"] {
            let error =
                find(folder.path(), &["*.md".into(), pattern.into()]).unwrap_err();
            assert!(matches!(error, DataError::NoMatch { .. }), "{pattern}: {error}");
            assert!(error.to_string().contains(pattern), "{error}");
        }
    }
}
