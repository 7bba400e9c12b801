//! Weights of another program: one safetensors file, or several with an index.

use crate::{
    WeightsError,
    container::{Container, Place},
    regular,
};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::Range,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

/// The file of a folder that has one.
const FILE: &str = "model.safetensors";

/// The index of a folder that has several.
const INDEX: &str = "model.safetensors.index.json";

/// The longest index that is read, in bytes.
const LONGEST: u64 = 64 << 20;

/// Arrays of another program, by name; their numbers are read when they are asked for.
#[derive(Clone, Debug)]
pub struct WeightsFiles {
    path: PathBuf,
    files: Vec<PathBuf>,
    arrays: BTreeMap<String, Stored>,
}

/// Where an array lies.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    container: Arc<Container>,
    pub(super) place: Place,
}

/// What an index says that is read of it.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl WeightsFiles {
    /// Opens a safetensors file, the `*.index.json` of several, or a folder that has `model.safetensors` or
    /// `model.safetensors.index.json`.
    ///
    /// # Errors
    /// [`WeightsError::Read`], [`WeightsError::Damaged`], [`WeightsError::Index`] and
    /// [`WeightsError::NoWeights`].
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let place = place(path)?;
        let is_index = place.extension().is_some_and(|extension| extension == "json");
        let (mut read, files) = match is_index {
            true => (vec![place.clone()], listed(&place)?),
            false => (vec![], vec![place]),
        };
        let mut arrays = BTreeMap::new();
        for file in &files {
            let container = Container::open(file);
            let container = container.map_err(|error| WeightsError::of(file, error))?;
            let container = Arc::new(container);
            for (name, place) in &container.arrays {
                let stored = Stored::new(&container, place);
                if arrays.insert(name.clone(), stored).is_some() {
                    let reason = format!("several of its files have `{name}`");
                    return Err(WeightsError::Index { path: path.to_path_buf(), reason });
                }
            }
        }
        read.extend(files);
        Ok(Self { path: path.to_path_buf(), files: read, arrays })
    }

    /// What was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All files that it is made of.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The names of all arrays.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.arrays.keys()
    }

    /// An array, with its name.
    pub(super) fn get(&self, name: &str) -> Option<(&String, &Stored)> {
        self.arrays.get_key_value(name)
    }
}

impl Stored {
    pub(super) fn new(container: &Arc<Container>, place: &Place) -> Self {
        Self { container: Arc::clone(container), place: place.clone() }
    }

    /// All its numbers, little-endian.
    pub(super) fn read(&self) -> Result<Vec<u8>, WeightsError> {
        self.part(0..self.place.length())
    }

    /// Some of the bytes of its numbers.
    pub(super) fn part(&self, bytes: Range<usize>) -> Result<Vec<u8>, WeightsError> {
        let start = self.place.bytes.start;
        let bytes = start + bytes.start as u64..start + bytes.end as u64;
        let read = self.container.read(&Place { bytes, ..self.place.clone() });
        read.map_err(|source| unread(self.container.path(), source))
    }
}

/// The file or the index that a path means.
fn place(path: &Path) -> Result<PathBuf, WeightsError> {
    if !path.is_dir() {
        return Ok(path.to_path_buf());
    }
    let places = [FILE, INDEX].map(|name| path.join(name));
    let place = places.into_iter().find(|place| place.exists());
    place.ok_or_else(|| WeightsError::NoWeights { path: path.to_path_buf() })
}

/// The files of an index, which lie beside it.
fn listed(path: &Path) -> Result<Vec<PathBuf>, WeightsError> {
    let refused = |reason| WeightsError::Index { path: path.to_path_buf(), reason };
    let mut text = Vec::new();
    let read = regular::read(path, LONGEST, &mut text);
    read.map_err(|source| unread(path, source))?;
    let index: Index =
        serde_json::from_slice(&text).map_err(|error| refused(error.to_string()))?;
    let names: BTreeSet<String> = index.weight_map.into_values().collect();
    let beside = |name: String| {
        let mut parts = Path::new(&name).components();
        match (parts.next(), parts.next()) {
            (Some(Component::Normal(_)), None) => Ok(path.with_file_name(&name)),
            _ => Err(refused(format!("`{name}` is not a file beside it"))),
        }
    };
    names.into_iter().map(beside).collect()
}

fn unread(path: &Path, source: io::Error) -> WeightsError {
    WeightsError::Read { path: path.to_path_buf(), source }
}
