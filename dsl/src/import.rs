//! Imports: which files a program is made of.

use crate::{
    Code, Mistake, NotUtf8, SourceFile, Span, limit, parse, report::Report, syntax,
    syntax::Item, utf8,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Read,
};

/// Where imported files come from.
pub trait Files {
    /// The text at a path, which is relative to where the main file's path is relative to.
    ///
    /// # Errors
    /// Why there is none, as a sentence without full stop.
    fn read(&self, path: &str) -> Result<String, String>;

    /// What two paths have in common that lead to one file: the path itself without detours, where
    /// no more is known of it.
    fn identity(&self, path: &str) -> String {
        join("", path)
    }
}

/// Files of the file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

/// No files at all; embedded ones are always there.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFiles;

impl Files for Disk {
    fn read(&self, path: &str) -> Result<String, String> {
        let said = |error: std::io::Error| error.to_string();
        let found = fs::metadata(path).map_err(said)?;
        if found.is_dir() {
            return Err("it is a folder".to_owned());
        }
        if !found.is_file() {
            return Err("it is not a file".to_owned());
        }
        let mut bytes = Vec::new();
        let bound = limit::FILE_BYTES as u64 + 1;
        let file = fs::File::open(path).map_err(said)?;
        file.take(bound).read_to_end(&mut bytes).map_err(said)?;
        if bytes.len() > limit::FILE_BYTES {
            return Err(format!("it is larger than {} bytes", limit::FILE_BYTES));
        }
        utf8(bytes).map_err(|NotUtf8 { line, column }| {
            format!("it is not UTF-8 text from line {line}, column {column} on; save it as UTF-8")
        })
    }

    /// The absolute path without links, of a file that is there.
    fn identity(&self, path: &str) -> String {
        let found = fs::canonicalize(path).ok();
        let spelled = found.and_then(|found| found.to_str().map(str::to_owned));
        spelled.unwrap_or_else(|| join("", path))
    }
}

impl Files for NoFiles {
    fn read(&self, _: &str) -> Result<String, String> {
        Err("there are no files here".to_owned())
    }
}

impl Files for BTreeMap<String, String> {
    fn read(&self, path: &str) -> Result<String, String> {
        self.get(path).cloned().ok_or_else(|| "no such file".to_owned())
    }
}

/// How the paths of files begin that are part of the compiler.
const EMBEDDED_PREFIX: &str = "roundelay:";

/// Files that are part of the compiler.
const EMBEDDED: [(&str, &str); 14] = [
    ("roundelay:clusters/aws-p5en.rdl", include_str!("../clusters/aws-p5en.rdl")),
    (
        "roundelay:clusters/azure-nd-a100.rdl",
        include_str!("../clusters/azure-nd-a100.rdl"),
    ),
    ("roundelay:clusters/dgx-a100.rdl", include_str!("../clusters/dgx-a100.rdl")),
    ("roundelay:clusters/dgx-b200.rdl", include_str!("../clusters/dgx-b200.rdl")),
    ("roundelay:clusters/dgx-h100.rdl", include_str!("../clusters/dgx-h100.rdl")),
    ("roundelay:clusters/dgx1-v100.rdl", include_str!("../clusters/dgx1-v100.rdl")),
    ("roundelay:devices/a100-40.rdl", include_str!("../devices/a100-40.rdl")),
    ("roundelay:devices/a100-80.rdl", include_str!("../devices/a100-80.rdl")),
    ("roundelay:devices/a100.rdl", include_str!("../devices/a100.rdl")),
    ("roundelay:devices/b200.rdl", include_str!("../devices/b200.rdl")),
    ("roundelay:devices/core.rdl", include_str!("../devices/core.rdl")),
    ("roundelay:devices/h100.rdl", include_str!("../devices/h100.rdl")),
    ("roundelay:devices/h200.rdl", include_str!("../devices/h200.rdl")),
    ("roundelay:devices/v100.rdl", include_str!("../devices/v100.rdl")),
];

/// The embedded file at a path.
pub(crate) fn embedded(path: &str) -> Option<&'static str> {
    EMBEDDED.iter().find(|(name, _)| *name == path).map(|(_, text)| *text)
}

/// Loads a file and all it imports; a file comes once, in the order in which it is first named, so
/// files may import each other.
/// The main file is number 0.
pub(crate) fn load(
    main: &SourceFile,
    files: &dyn Files,
    report: &mut Report,
) -> Vec<syntax::File> {
    let mut loader =
        Loader { files, report, identities: BTreeSet::new(), trees: Vec::new() };
    loader.note(&main.path);
    loader.add(main.clone());
    let mut next = 0;
    while next < loader.trees.len() {
        for import in loader.imports(next) {
            loader.import(next, &import);
        }
        next += 1;
    }
    loader.trees
}

/// Trees of the files so far.
struct Loader<'a> {
    files: &'a dyn Files,
    report: &'a mut Report,
    /// Which files are read, whatever path led to them.
    identities: BTreeSet<String>,
    trees: Vec<syntax::File>,
}

impl Loader<'_> {
    fn imports(&self, tree: usize) -> Vec<syntax::Name> {
        let import = |item: &Item| match item {
            Item::Import(path) => Some(path.clone()),
            Item::Model(_)
            | Item::Block(_)
            | Item::Device(_)
            | Item::Link(_)
            | Item::Cluster(_)
            | Item::Train(_)
            | Item::Plan(_) => None,
        };
        self.trees[tree].items.iter().filter_map(import).collect()
    }

    fn import(&mut self, from: usize, import: &syntax::Name) {
        let folder = self.report.file(crate::source::count(from)).folder();
        let path = join(folder, &import.text);
        if !self.note(&path) {
            return;
        }
        match self.read(&path) {
            Ok(text) => self.add(SourceFile { path, text }),
            Err(mistake) => {
                self.report.error(import.span, mistake);
                self.trees[from].broken += 1;
            }
        }
    }

    /// Notes that a path leads to a file; whether it is the first that does.
    fn note(&mut self, path: &str) -> bool {
        let identity = match path.starts_with(EMBEDDED_PREFIX) {
            true => path.to_owned(),
            false => self.files.identity(path),
        };
        self.identities.insert(identity)
    }

    fn read(&self, path: &str) -> Result<String, Mistake> {
        let refuse = |why: &str| {
            Mistake::new(Code::Import, format!("cannot import `{path}`: {why}"))
        };
        if self.trees.len() >= limit::FILES {
            let message = format!("a program has at most {} files", limit::FILES);
            return Err(Mistake::new(Code::Limit, message));
        }
        if path.starts_with(EMBEDDED_PREFIX) {
            let known = EMBEDDED.iter().map(|(name, _)| *name);
            let missing = refuse("there is no such embedded file").near(path, known);
            return embedded(path).map(str::to_owned).ok_or(missing);
        }
        self.files.read(path).map_err(|why| {
            refuse(&why).hint("paths are relative to the file that names them")
        })
    }

    fn add(&mut self, file: SourceFile) {
        if file.text.len() > limit::FILE_BYTES {
            let number = self.report.add_file(SourceFile::new(file.path, ""));
            let span = Span { file: number, ..Span::default() };
            self.report.error(span, too_large());
            return self
                .trees
                .push(syntax::File { broken: 1, ..syntax::File::default() });
        }
        let number = crate::source::count(self.trees.len());
        let (tree, mistakes) = parse::file(&file.text, number);
        self.report.add_file(file);
        for mistake in mistakes {
            self.report.syntax_error(mistake);
        }
        self.trees.push(tree);
    }
}

/// The declared size of a file is exceeded.
pub(crate) fn too_large() -> Mistake {
    let message = format!("the file is larger than {} bytes", limit::FILE_BYTES);
    Mistake::new(Code::Limit, message)
}

/// The path as seen from a folder, without `.` and without `..` where that can be; `.` where nothing
/// is left.
pub(crate) fn join(folder: &str, path: &str) -> String {
    if path.starts_with(EMBEDDED_PREFIX) {
        return path.to_owned();
    }
    let folder = if path.starts_with('/') { "" } else { folder };
    let absolute = path.starts_with('/') || folder.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(path.split('/')) {
        match (part, parts.last()) {
            (".", _) => {}
            ("", _) if !parts.is_empty() || !absolute => {}
            ("..", Some(last)) if !["..", ""].contains(last) => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    match parts[..] {
        [] => ".".to_owned(),
        [""] => "/".to_owned(),
        _ => parts.join("/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_to_the_importing_file() {
        let cases = [
            ("", "a.rdl", "a.rdl"),
            ("x", "./a.rdl", "x/a.rdl"),
            ("x/y", "../a.rdl", "x/a.rdl"),
            ("", "../a.rdl", "../a.rdl"),
            ("/x", "../../a.rdl", "/../a.rdl"),
            ("/x", "/a.rdl", "/a.rdl"),
            ("x", "/b/./c/../a.rdl", "/b/a.rdl"),
            ("x", "/", "/"),
            ("", ".", "."),
            ("x", "..", "."),
            ("x", ".", "x"),
            ("roundelay:devices", "core.rdl", "roundelay:devices/core.rdl"),
        ];
        for (folder, path, expected) in cases {
            assert_eq!(join(folder, path), expected, "{folder} {path}");
        }
    }

    #[test]
    fn folders_are_no_files() {
        assert_eq!(Disk.read("."), Err("it is a folder".to_owned()));
        assert!(Disk.read("no such file").is_err());
    }
}
