//! The files that the data of a job is read from.

use super::{DataError, demand_relative, glob, images};
use crate::{Checkpoints, OutputError};
use roundelay_schedule::Data;
use std::path::{Path, PathBuf};

/// What a run writes.
#[derive(Clone, Copy, Debug)]
pub enum Written<'a> {
    /// One file.
    File(&'a Path),
    /// Checkpoints in a folder.
    Checkpoints(&'a Path),
}

/// All files that a run reads its data from, as they lie there now; `root` takes the place of the root that the
/// data names. Drawn data has none.
///
/// # Errors
/// A pattern without a match, a folder that cannot be read, a `root` that would change nothing.
pub fn data_files(data: &Data, root: Option<&Path>) -> Result<Vec<PathBuf>, DataError> {
    if let Some(root) = root {
        demand_relative(data, root)?;
    }
    let at = |own| root.unwrap_or(Path::new(own));
    Ok(match data {
        Data::Text { root, globs } => {
            glob::find(at(root), globs)?.into_values().collect()
        }
        Data::Tokens { root, file, .. } => vec![at(root).join(file)],
        Data::Cifar10 { root, folder, .. } => {
            images::cifar10_files(&at(root).join(folder))
        }
        Data::Images { root, folder } => images::folder_files(&at(root).join(folder))?,
        Data::Shapes { .. } | Data::Synthetic => Vec::new(),
    })
}

/// Refuses what a run writes where its data would take it for their own: the run that goes on would read
/// it.
///
/// # Errors
/// [`OutputError::AmongData`].
pub fn refuse_among_data(
    data: &Data,
    root: Option<&Path>,
    written: Written<'_>,
) -> Result<(), OutputError> {
    let (path, file) = match written {
        Written::File(path) => (path, path.to_path_buf()),
        Written::Checkpoints(folder) => (folder, Checkpoints::file_of(folder, 0)),
    };
    match would_take(data, root, &behind_links(&file)) {
        true => Err(OutputError::AmongData { path: path.to_path_buf() }),
        false => Ok(()),
    }
}

/// Where a path leads that may not be there: as far as it is, behind all links.
fn behind_links(path: &Path) -> PathBuf {
    let there = path.ancestors().find_map(|own| {
        let own = if own.as_os_str().is_empty() { Path::new(".") } else { own };
        Some((own.canonicalize().ok()?, path.strip_prefix(own).unwrap_or(path)))
    });
    there.map_or_else(|| path.to_path_buf(), |(there, rest)| there.join(rest))
}

/// Whether data would read a file at a place.
fn would_take(data: &Data, root: Option<&Path>, place: &Path) -> bool {
    let at = |own| root.unwrap_or(Path::new(own));
    match data {
        Data::Text { root, globs } => glob::would_find(at(root), globs, place),
        Data::Images { root, folder } => {
            images::would_take(&at(root).join(folder), place)
        }
        // These name every file.
        Data::Tokens { .. } | Data::Cifar10 { .. } => false,
        Data::Shapes { .. } | Data::Synthetic => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use roundelay_schedule::{Augmentation, TokenWidth};

    #[test]
    fn all_that_is_read_is_named() {
        let scratch = Scratch::new("data-files");
        for name in ["a.txt", "b.txt", "im/cat/1.png", "im/dog/2.png", "im/note"] {
            scratch.write(name, b"anything");
        }
        let (root, folder) = (String::from("nowhere"), String::from("im"));
        let augment = Augmentation::None;
        let text = Data::Text { root: root.clone(), globs: vec!["*.txt".into()] };
        let tokens = Data::Tokens {
            root: root.clone(),
            file: "t.bin".into(),
            width: TokenWidth::U8,
        };
        let images = Data::Images { root: root.clone(), folder: folder.clone() };
        let cifar = Data::Cifar10 { root, folder, augment };
        let batches = ["1", "2", "3", "4", "5"].map(|n| format!("im/data_batch_{n}.bin"));
        let batches = [&batches[..], &["im/test_batch.bin".to_owned()]].concat();
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        for (data, expected) in [
            (text, names(&["a.txt", "b.txt"])),
            (tokens, names(&["t.bin"])),
            (images, names(&["im/cat/1.png", "im/dog/2.png"])),
            (cifar, batches),
        ] {
            let expected: Vec<_> =
                expected.iter().map(|name| scratch.path().join(name)).collect();
            assert_eq!(data_files(&data, Some(scratch.path())).unwrap(), expected);
        }
        assert!(data_files(&Data::Synthetic, None).unwrap().is_empty());
    }

    #[test]
    fn nothing_is_written_that_would_be_read() {
        let scratch = Scratch::new("data-written");
        scratch.write("a.txt", b"anything");
        scratch.write("im/cat/1.png", b"anything");
        let (root, globs) = (String::from("nowhere"), vec!["**/*".into()]);
        let text = Data::Text { root: root.clone(), globs };
        let images = Data::Images { root, folder: "im".into() };
        let at = |name: &str| scratch.path().join(name);
        let is_refused = |data: &Data, written: Written<'_>| {
            refuse_among_data(data, Some(scratch.path()), written).is_err()
        };
        for (name, file, folder) in [
            ("im/new", [true, false], [true, true]),
            ("im/cat/new", [true, true], [true, true]),
            ("im/.new", [false, false], [false, false]),
            ("runs/new", [true, false], [true, false]),
            ("../new", [false, false], [false, false]),
        ] {
            let place = at(name);
            let of = |written| [&text, &images].map(|data| is_refused(data, written));
            assert_eq!(of(Written::File(&place)), file, "{name}");
            assert_eq!(of(Written::Checkpoints(&place)), folder, "{name}");
        }
        let place = at("runs/new");
        assert!(!is_refused(&Data::Synthetic, Written::Checkpoints(&place)));
    }
}
