//! A checkpoint as bytes: one safetensors file.
//!
//! Tensors have the names of the state's arrays; those of optimizer state are wider in mixed precision.
//! The metadata has one entry, `roundelay`: a JSON object of names and texts with the step, the
//! origin, that of optimizer state unless it is 0, the number of examples taken, the [`Provenance`], and
//! a digest of all that stands in the file.

use super::{Checkpoint, CheckpointError, Provenance};
use crate::{
    ArrayNumbers, ArraySource, ParameterState, State, StateError,
    container::{
        Container, Form, Header, NotWhole, Place, element, little_endian, native,
    },
    digest::Digest,
    native::wide_type,
    state::{
        Made, Moment,
        names::{self, is_newest, is_optimizer},
    },
};
use roundelay_schedule::Float;
use safetensors::Dtype;
use std::{
    borrow::Cow,
    collections::BTreeMap,
    io::{self, Seek, SeekFrom, Write},
    mem,
    path::Path,
    sync::Arc,
};

/// The version of this format.
const FORMAT: &str = "1";

/// The one key of the file's metadata.
pub(crate) const KEY: &str = "roundelay";

/// What was gathered may be parameters alone, and a folder that of another run.
const NOT_WHOLE: &str =
    "it is no whole state of this run, whose optimizer keeps other arrays";

/// A file that is written array by array, in the order of their names. Its header comes last.
pub(super) struct Writer<W> {
    out: W,
    entries: BTreeMap<String, String>,
    forms: BTreeMap<String, Form>,
    /// Of the arrays that are yet to come.
    places: BTreeMap<String, Place>,
    dtype: Float,
    digest: Digest,
}

impl<W: Write + Seek> Writer<W> {
    /// A file of a state of a type at a moment, with arrays of these forms.
    pub(super) fn begin(
        out: W,
        provenance: &Provenance,
        (moment, dtype): (Moment, Float),
        forms: BTreeMap<String, Form>,
    ) -> io::Result<Self> {
        if !are_whole(provenance, &forms) {
            return Err(io::Error::other(NOT_WHOLE));
        }
        let entries = entries(provenance, moment, dtype);
        let digest = start(&entries);
        let Header { places, bytes: _ } = header(&entries, digest, &forms)?;
        Ok(Self { out, entries, forms, places, dtype, digest })
    }

    /// Writes the next array, in native byte order.
    pub(super) fn put(&mut self, name: &str, numbers: &[u8]) -> io::Result<()> {
        let next = self.places.pop_first();
        let (next, place) = next.expect("the arrays are those that were announced");
        assert_eq!(name, next, "arrays come in the order of their names");
        place.takes(name, numbers)?;
        let numbers = little_endian(Cow::Borrowed(numbers), stored(name, self.dtype));
        add(&mut self.digest, name, place.dtype, &place.shape);
        self.digest.add(&numbers);
        self.out.seek(SeekFrom::Start(place.bytes.start))?;
        self.out.write_all(&numbers)
    }

    /// Writes the header, when all arrays are there.
    pub(super) fn end(mut self) -> io::Result<W> {
        assert!(self.places.is_empty(), "all arrays are written before the header");
        let header = header(&self.entries, self.digest, &self.forms)?;
        self.out.rewind()?;
        self.out.write_all(&header.bytes)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Writes the file of a state.
pub(super) fn write<W: Write + Seek, A: ArrayNumbers>(
    out: W,
    provenance: &Provenance,
    state: &State<A>,
) -> io::Result<W> {
    let arrays = arrays(provenance, state)?;
    let form = |(name, (shape, _)): (&String, &(&[u64], &A))| {
        (name.clone(), Form::new(stored(name, state.dtype), shape))
    };
    let forms = arrays.iter().map(form).collect();
    let of = (state.moment(), state.dtype);
    let mut writer = Writer::begin(out, provenance, of, forms)?;
    for (name, (_, array)) in arrays {
        writer.put(&name, &array.bytes().map_err(io::Error::other)?)?;
    }
    writer.end()
}

/// Whether every parameter has the arrays of a run's optimizer, and no others.
fn are_whole(provenance: &Provenance, forms: &BTreeMap<String, Form>) -> bool {
    let mut states = Vec::new();
    for own in forms.keys().filter(|name| is_newest(name)) {
        states.extend(provenance.states().map(|array| names::optimizer(own, array)));
    }
    states.sort();
    states.iter().eq(forms.keys().filter(|name| is_optimizer(name)))
}

/// The header of a file with a digest; it is as long with any other.
fn header(
    entries: &BTreeMap<String, String>,
    digest: Digest,
    forms: &BTreeMap<String, Form>,
) -> io::Result<Header> {
    let mut entries = entries.clone();
    entries.insert("digest".to_string(), spelled(digest));
    Header::of(forms, (KEY, json(&entries)))
}

/// All entries of the metadata but the digest.
fn entries(
    provenance: &Provenance,
    Moment { step, origin, optimizer_origin }: Moment,
    dtype: Float,
) -> BTreeMap<String, String> {
    let batch = provenance.entry("batch").parse().unwrap_or(0);
    let mut entries = provenance.entries.clone();
    let mut add = |name: &str, value| entries.insert(name.to_string(), value);
    add("format", FORMAT.to_string());
    add("step", step.to_string());
    add("origin", origin.to_string());
    add("position", step.saturating_mul(batch).to_string());
    if optimizer_origin > 0 {
        add("optimizer_origin", optimizer_origin.to_string());
    }
    // Arrays say it by themselves otherwise.
    if dtype.native().is_none() {
        add("dtype", dtype.to_string());
    }
    entries
}

/// The type of an array with this name in a state of a type.
fn stored(name: &str, dtype: Float) -> Float {
    if is_optimizer(name) { wide_type(dtype) } else { dtype }
}

/// All arrays of a state with their shapes, under their names.
fn arrays<'a, A>(
    provenance: &Provenance,
    state: &'a State<A>,
) -> io::Result<BTreeMap<String, (&'a [u64], &'a A)>> {
    let mut arrays = BTreeMap::new();
    for (name, tensor) in &state.tensors {
        if tensor.optimizer.len() != provenance.states().count() {
            return Err(io::Error::other(NOT_WHOLE));
        }
        let versions = (0..).zip(&tensor.versions);
        let versions = versions.map(|(age, array)| (names::version(name, age), array));
        let states = provenance.states().zip(&tensor.optimizer);
        let states = states.map(|(own, array)| (names::optimizer(name, own), array));
        let all = versions.chain(states);
        arrays.extend(all.map(|(name, array)| (name, (&*tensor.shape, array))));
    }
    Ok(arrays)
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
        let versions = (0..).map_while(|age| array(names::version(&name, age))).collect();
        let states = provenance.states();
        let states = states.map(|own| array(names::optimizer(&name, own)));
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
