//! A checkpoint as bytes: one safetensors file.
//!
//! Tensors are `name` for θ_T, `name@-1` for θ_{T−1} and so on, `name#mean` for optimizer state,
//! which in mixed precision is wider, and of which the master copy is one (`name#master`).
//! The metadata has one entry, `roundelay`: a JSON object of names and texts with the step, the
//! origin, that of optimizer state unless it is 0, the number of examples taken, the [`Provenance`], and
//! a digest of all that stands in the file.

use super::{Checkpoint, CheckpointError, Provenance};
use crate::{
    ArrayNumbers, ArraySource, ParameterState, State, StateError,
    container::{
        self, Array, Container, NotWhole, Place, element, little_endian, native,
    },
    digest::Digest,
    native::wide_type,
    state::Made,
};
use roundelay_schedule::Float;
use safetensors::Dtype;
use std::{
    borrow::Cow,
    collections::BTreeMap,
    io::{self, Write},
    mem,
    path::Path,
    sync::Arc,
};

/// The version of this format.
const FORMAT: &str = "1";

/// The one key of the file's metadata.
pub(crate) const KEY: &str = "roundelay";

/// Writes the file's bytes.
pub(super) fn write<A: ArrayNumbers>(
    out: &mut impl Write,
    provenance: &Provenance,
    state: &State<A>,
) -> io::Result<()> {
    if !is_whole(provenance, state) {
        return Err(io::Error::other("it is no whole state: its optimizer's is missing"));
    }
    let arrays = arrays(provenance, state);
    let mut entries = entries(provenance, state);
    let mut digest = start(&entries);
    for (name, array) in &arrays {
        add(&mut digest, name, array.dtype, &array.shape);
        digest.add(&(array.numbers)()?);
    }
    entries.insert("digest".to_string(), spelled(digest));
    container::write(out, &arrays, (KEY, json(&entries)))
}

/// Whether a state has all that training carries: what was gathered may be parameters alone.
fn is_whole<A>(provenance: &Provenance, state: &State<A>) -> bool {
    let states = provenance.states().count();
    state.tensors.values().all(|tensor| tensor.optimizer.len() == states)
}

/// All entries of the metadata but the digest.
fn entries<A: ArrayNumbers>(
    provenance: &Provenance,
    state: &State<A>,
) -> BTreeMap<String, String> {
    let batch = provenance.entry("batch").parse().unwrap_or(0);
    let mut entries = provenance.entries.clone();
    let mut add = |name: &str, value| entries.insert(name.to_string(), value);
    add("format", FORMAT.to_string());
    add("step", state.step.to_string());
    add("origin", state.origin.to_string());
    add("position", state.step.saturating_mul(batch).to_string());
    if state.optimizer_origin > 0 {
        add("optimizer_origin", state.optimizer_origin.to_string());
    }
    // Arrays say it by themselves otherwise.
    if state.dtype.native().is_none() {
        add("dtype", state.dtype.to_string());
    }
    entries
}

/// The type of an array with this name in a state of a type.
fn stored(name: &str, dtype: Float) -> Float {
    if name.contains('#') { wide_type(dtype) } else { dtype }
}

/// Whether an array with this name is the newest version of a parameter.
pub(crate) fn is_newest(name: &str) -> bool {
    !name.contains(['@', '#'])
}

/// All arrays under their names in the file.
fn arrays<'a, A: ArrayNumbers>(
    provenance: &Provenance,
    state: &'a State<A>,
) -> BTreeMap<String, Array<'a>> {
    let mut arrays = BTreeMap::new();
    for (name, tensor) in &state.tensors {
        let shape: Vec<usize> = tensor.shape.iter().map(|n| *n as usize).collect();
        let versions = (0u32..).zip(&tensor.versions).map(|(age, array)| match age {
            0 => (name.clone(), array),
            _ => (format!("{name}@-{age}"), array),
        });
        let states = provenance.states().zip(&tensor.optimizer);
        let states = states.map(|(state, array)| (format!("{name}#{state}"), array));
        arrays.extend(versions.chain(states).map(|(name, array)| {
            let dtype = stored(&name, state.dtype);
            let numbers = move || written(array, dtype);
            let (shape, numbers) = (shape.clone(), Box::new(numbers));
            (name, Array { dtype: element(dtype), shape, numbers })
        }));
    }
    arrays
}

/// Numbers as they stand in a file.
pub(crate) fn written<A: ArrayNumbers>(
    array: &A,
    dtype: Float,
) -> io::Result<Cow<'_, [u8]>> {
    Ok(little_endian(array.bytes().map_err(io::Error::other)?, dtype))
}

fn json(entries: &BTreeMap<String, String>) -> String {
    serde_json::to_string(entries).expect("texts under texts are JSON")
}

/// The digest of a file's entries, before its arrays.
fn start(entries: &BTreeMap<String, String>) -> Digest {
    let mut digest = Digest::new();
    digest.add(json(entries).as_bytes());
    digest
}

/// Takes in what an array is, before its numbers.
fn add(digest: &mut Digest, name: &str, dtype: Dtype, shape: &[usize]) {
    digest.add(name.as_bytes());
    digest.add(format!("{dtype}{shape:?}").as_bytes());
}

fn spelled(digest: Digest) -> String {
    format!("{:016x}", digest.value())
}

/// Opens a file and proves it whole. What the state has is read when it is asked for.
///
/// # Errors
/// [`CheckpointError::Read`] and [`CheckpointError::Damaged`].
pub(super) fn open(path: &Path) -> Result<Checkpoint, CheckpointError> {
    let path = path.to_path_buf();
    match Container::open(&path).and_then(whole) {
        Ok((provenance, state)) => Ok(Checkpoint { path, provenance, state }),
        Err(NotWhole::Damaged(reason)) => Err(CheckpointError::Damaged { path, reason }),
        Err(NotWhole::Unread(source)) => Err(CheckpointError::Read { path, source }),
    }
}

/// What an open file holds.
pub(super) fn whole(
    container: Container,
) -> Result<(Provenance, State<ArraySource>), NotWhole> {
    let text =
        container.entry(KEY).ok_or("its header does not come from this program")?;
    let proven = proven(text, &container)?;
    Ok(decode(proven, container)?)
}

fn decode(
    Proven { mut entries, digest }: Proven,
    container: Container,
) -> Result<(Provenance, State<ArraySource>), String> {
    let mut take = |name: &str| entries.remove(name).unwrap_or_default();
    let [format, step, origin, optimizer_origin, _, dtype] =
        ["format", "step", "origin", "optimizer_origin", "position", "dtype"]
            .map(&mut take);
    if format != FORMAT {
        return Err(format!("it has format {format:?}, this program reads {FORMAT:?}"));
    }
    let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is no step"));
    let (step, origin) = (number(&step)?, number(&origin)?);
    let optimizer_origin = match optimizer_origin.as_str() {
        "" => 0,
        written => number(written)?,
    };
    let provenance = Provenance { entries };
    let dtype = dtype_of(&dtype, &container.arrays)?;
    let tensors = tensors_of(&provenance, (container, digest), dtype)?;
    if origin.max(optimizer_origin) > step {
        return Err("it begins after its own step".to_string());
    }
    Ok((provenance, State { dtype, step, origin, optimizer_origin, tensors }))
}

/// What a file says that is whole.
pub(crate) struct Proven {
    entries: BTreeMap<String, String>,
    /// Of all that stands in it.
    digest: Digest,
}

/// What the text of a file's metadata says, if the digest in it is that of the file.
pub(crate) fn proven(text: &str, container: &Container) -> Result<Proven, NotWhole> {
    let mut entries: BTreeMap<String, String> =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    let written = entries.remove("digest").ok_or("it has no digest")?;
    let mut digest = start(&entries);
    for (name, place) in &container.arrays {
        add(&mut digest, name, place.dtype, &place.shape);
        container.add_to(&mut digest, place)?;
    }
    match written == spelled(digest) {
        true => Ok(Proven { entries, digest }),
        false => Err("its digest differs from its contents".into()),
    }
}

/// The type of the state: as the file says, or that of its arrays.
fn dtype_of(written: &str, arrays: &BTreeMap<String, Place>) -> Result<Float, String> {
    let first = arrays.values().next().map(|array| array.dtype);
    let dtype = match (written, first) {
        ("", Some(Dtype::F32)) => Float::F32,
        ("", Some(Dtype::F64)) => Float::F64,
        ("", Some(other)) => {
            return Err(format!(
                "it holds no training state, but numbers of type {other}"
            ));
        }
        ("", None) => return Err("it holds no training state".to_string()),
        (written, _) => written
            .parse()
            .map_err(|wrong: roundelay_schedule::NoFloat| wrong.to_string())?,
    };
    let fits =
        |(name, array): (&String, &Place)| array.dtype == element(stored(name, dtype));
    match arrays.iter().all(fits) {
        true => Ok(dtype),
        false => Err("its tensors are of several types".to_string()),
    }
}

/// Puts the arrays of every parameter together.
fn tensors_of(
    provenance: &Provenance,
    (mut container, digest): (Container, Digest),
    dtype: Float,
) -> Result<BTreeMap<String, ParameterState<ArraySource>>, String> {
    let mut arrays = mem::take(&mut container.arrays);
    let container = Arc::new(container);
    let names: Vec<String> =
        arrays.keys().filter(|name| is_newest(name)).cloned().collect();
    let mut array = |name: String| {
        let (container, place) = (Arc::clone(&container), arrays.remove(&name)?);
        Some(Stored { container, digest, place, dtype: stored(&name, dtype) })
    };
    let mut tensors = BTreeMap::new();
    for name in names {
        let newest = array(name.clone()).into_iter();
        let older = (1u32..).map_while(|age| array(format!("{name}@-{age}")));
        let versions = newest.chain(older).collect();
        let states = provenance.states();
        let states = states.map(|state| array(format!("{name}#{state}")));
        let optimizer = states.collect::<Option<_>>();
        let tensor = optimizer
            .and_then(|optimizer| together(versions, optimizer))
            .ok_or_else(|| format!("the arrays of {name:?} do not belong together"))?;
        tensors.insert(name, tensor);
    }
    match arrays.is_empty() {
        true => Ok(tensors),
        false => Err("it holds arrays that belong to no parameter".to_string()),
    }
}

/// One parameter, if all its arrays have one shape.
fn together(
    versions: Vec<Stored>,
    optimizer: Vec<Stored>,
) -> Option<ParameterState<ArraySource>> {
    let shape = versions.first().map(|first| first.place.shape.clone())?;
    let one = versions.iter().chain(&optimizer).all(|other| other.place.shape == shape);
    let sources = |all: Vec<Stored>| all.into_iter().map(ArraySource::new).collect();
    one.then(|| ParameterState {
        shape: shape.iter().map(|extent| *extent as u64).collect(),
        versions: sources(versions),
        optimizer: sources(optimizer),
    })
}

/// An array of a checkpoint.
#[derive(Debug)]
struct Stored {
    container: Arc<Container>,
    /// Of the whole file.
    digest: Digest,
    place: Place,
    dtype: Float,
}

impl ArrayNumbers for Stored {
    fn length(&self) -> usize {
        self.place.length()
    }

    fn bytes(&self) -> Result<Cow<'_, [u8]>, StateError> {
        let numbers = self.container.read(&self.place);
        let numbers = numbers.map_err(|error| self.container.lost(&error))?;
        Ok(Cow::Owned(native(numbers, self.dtype)))
    }
}

impl Made for Stored {
    fn tell(&self, digest: &mut Digest) -> Result<(), StateError> {
        let Place { bytes, dtype: _, shape: _ } = &self.place;
        let told = [self.digest.value(), bytes.start, bytes.end];
        told.iter().for_each(|number| digest.add(&number.to_le_bytes()));
        Ok(())
    }
}
