//! Image files in one folder per class; classes count in order of the folders' names.

use super::{
    decode,
    resize::fitted,
    stock::{Norms, Stock},
};
use crate::{data::DataError, regular};
use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

/// Every this many images of a class one is held out.
const HELD_OUT: usize = 10;

/// The most files of all classes.
const FILES: usize = 1 << 22;

/// Means and standard deviations of ImageNet's channels, as they are usually given.
const NORMS: Norms = [(0.485, 0.229), (0.456, 0.224), (0.406, 0.225)];

/// All images below a folder at the size of the model's input: the shorter side is scaled to it,
/// what stands out on both ends of the longer one is cut off. The tenth, twentieth, … image of
/// each class, by name, are held out. Names that begin with a dot are passed over, and so is what is in the
/// folder of a class and is no image by its name, nor by how it begins.
pub(super) fn read(folder: &Path, extent: [u64; 2]) -> Result<Stock, DataError> {
    let Files { training, held_out, left_out } = files(folder)?;
    let mut stock = Stock::new(folder.display().to_string(), extent, NORMS);
    stock.reserve((training.len() + held_out.len()) as u64)?;
    add(&mut stock, training, extent)?;
    stock.end_training();
    add(&mut stock, held_out, extent)?;
    stock.leave_out(left_out);
    Ok(stock)
}

/// A file and its class.
type Labelled = (PathBuf, u32);

/// What the folders of classes hold.
#[derive(Default)]
struct Files {
    training: Vec<Labelled>,
    held_out: Vec<Labelled>,
    /// Entries that are no images.
    left_out: u64,
}

/// Endings of images' names, in small letters.
const ENDINGS: [&str; 3] = ["png", "jpg", "jpeg"];

/// How PNG and JPEG begin.
const BEGINNINGS: [[u8; 3]; 2] = [*b"\x89PN", [0xff, 0xd8, 0xff]];

fn add(
    stock: &mut Stock,
    files: Vec<Labelled>,
    [height, width]: [u64; 2],
) -> Result<(), DataError> {
    for (path, class) in files {
        let image = decode::file(&path)?;
        let extent = [height as usize, width as usize];
        stock.push(class, |pixels| pixels.extend(fitted(&image, extent)));
    }
    Ok(())
}

/// All image files below a folder.
pub(in crate::data) fn paths(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let Files { training, held_out, left_out: _ } = files(folder)?;
    Ok(training.into_iter().chain(held_out).map(|(path, _)| path).collect())
}

/// Whether a file at a place, behind all links, would lie in the folder of a class, or below it.
pub(in crate::data) fn would_take(folder: &Path, place: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else { return false };
    let Ok(below) = place.strip_prefix(folder) else { return false };
    let is_seen =
        |name: &Component<'_>| !name.as_os_str().to_string_lossy().starts_with('.');
    below.components().take(2).filter(is_seen).count() == 2
}

/// The files to train on, and those that are held out.
fn files(folder: &Path) -> Result<Files, DataError> {
    let mut files = Files::default();
    let mut classes = Vec::new();
    for path in entries(folder, folder)? {
        let found = fs::metadata(&path);
        if found.map_err(|source| unreadable(folder, &path, source))?.is_dir() {
            classes.push(path);
        }
    }
    for (class, of_class) in (0..).zip(classes) {
        let all = entries(&of_class, folder)?;
        let (own, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|path| is_image(path));
        files.left_out += others.len() as u64;
        if own.is_empty() {
            return Err(DataError::EmptyClass { path: of_class });
        }
        for (index, path) in own.into_iter().enumerate() {
            let is_held_out = index % HELD_OUT == HELD_OUT - 1;
            let part =
                if is_held_out { &mut files.held_out } else { &mut files.training };
            part.push((path, class));
        }
    }
    Ok(files)
}

/// Whether a file is an image by its name, or else by how it begins.
fn is_image(path: &Path) -> bool {
    let ending = path.extension().unwrap_or_default();
    ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known))
        || begins_as_image(path)
}

fn begins_as_image(path: &Path) -> bool {
    let mut first = Vec::new();
    let read = regular::read(path, BEGINNINGS[0].len() as u64, &mut first);
    read.is_ok() && BEGINNINGS.iter().any(|known| first == known)
}

/// What a folder holds, by name, without hidden entries.
fn entries(path: &Path, folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let unreadable = |source| unreadable(folder, path, source);
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        found.push(entry.path());
        if found.len() > FILES {
            let pattern = path.display().to_string();
            return Err(DataError::TooManyEntries { pattern, limit: FILES as u64 });
        }
    }
    found.sort();
    Ok(found)
}

fn unreadable(folder: &Path, path: &Path, source: io::Error) -> DataError {
    let pattern = folder.display().to_string();
    DataError::Unreadable { path: path.to_owned(), pattern, source }
}
