//! A checkpoint as bytes: one safetensors file.
//!
//! Tensors are `name` for θ_T, `name@-1` for θ_{T−1} and so on, `name#mean` for optimizer state,
//! which in mixed precision is wider, and of which the master copy is one (`name#master`).
//! The metadata has one entry, `roundelay`: a JSON object of names and texts with the step, the
//! origin, that of optimizer state unless it is 0, the number of examples taken, the [`Provenance`], and
//! a digest of all that stands in the file.

use super::{Checkpoint, CheckpointError, Provenance};
use crate::{
    State, Tensor,
    container::{self, Array, Container, element, little_endian, native},
    digest::Digest,
    native::wide,
    regular,
};
use roundelay_schedule::{Float, Native};
use safetensors::Dtype;
use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    path::Path,
};

/// The version of this format.
const FORMAT: &str = "1";

/// The one key of the file's metadata.
pub(crate) const KEY: &str = "roundelay";

/// Writes the file's bytes.
pub(super) fn write(
    out: &mut impl Write,
    provenance: &Provenance,
    state: &State,
) -> io::Result<()> {
    let arrays = arrays(provenance, state);
    let mut entries = entries(provenance, state);
    let digest = digest(&entries, &arrays);
    entries.insert("digest".to_string(), digest);
    container::write(out, &arrays, (KEY, json(&entries)))
}

/// All entries of the metadata but the digest.
fn entries(provenance: &Provenance, state: &State) -> BTreeMap<String, String> {
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
    match (name.contains('#'), wide(dtype)) {
        (false, _) => dtype,
        (true, Native::F32) => Float::F32,
        (true, Native::F64) => Float::F64,
    }
}

/// All arrays under their names in the file, little-endian.
fn arrays<'a>(provenance: &Provenance, state: &'a State) -> BTreeMap<String, Array<'a>> {
    let mut arrays = BTreeMap::new();
    for (name, tensor) in &state.tensors {
        let shape: Vec<usize> = tensor.shape.iter().map(|n| *n as usize).collect();
        let versions = (0u32..).zip(&tensor.versions).map(|(age, array)| match age {
            0 => (name.clone(), array),
            _ => (format!("{name}@-{age}"), array),
        });
        let states = provenance.entry("states").split_whitespace().zip(&tensor.optimizer);
        let states = states.map(|(state, array)| (format!("{name}#{state}"), array));
        arrays.extend(versions.chain(states).map(|(name, array)| {
            let dtype = stored(&name, state.dtype);
            let (shape, bytes) = (shape.clone(), little_endian(array, dtype));
            (name, Array { dtype: element(dtype), shape, bytes })
        }));
    }
    arrays
}

fn json(entries: &BTreeMap<String, String>) -> String {
    serde_json::to_string(entries).expect("texts under texts are JSON")
}

fn digest(
    entries: &BTreeMap<String, String>,
    arrays: &BTreeMap<String, Array<'_>>,
) -> String {
    let mut digest = Digest::new();
    digest.add(json(entries).as_bytes());
    for (name, Array { dtype, shape, bytes }) in arrays {
        digest.add(name.as_bytes());
        digest.add(format!("{dtype}{shape:?}").as_bytes());
        digest.add(bytes);
    }
    format!("{:016x}", digest.value())
}

/// Reads a file and proves it whole.
///
/// # Errors
/// [`CheckpointError::Read`] and [`CheckpointError::Damaged`].
pub(super) fn read(path: &Path) -> Result<Checkpoint, CheckpointError> {
    let path = path.to_path_buf();
    let whole = regular::open(&path).and_then(|(file, length)| whole(file, length));
    match whole {
        Ok(Ok((provenance, state))) => Ok(Checkpoint { path, provenance, state }),
        Ok(Err(reason)) => Err(CheckpointError::Damaged { path, reason }),
        Err(source) => Err(CheckpointError::Read { path, source }),
    }
}

/// What a file of `length` bytes holds; the inner error is the file's fault. Nothing is allocated
/// that the file is not long enough for.
pub(super) fn whole(
    file: impl Read,
    length: u64,
) -> io::Result<Result<(Provenance, State), String>> {
    let container = Container::read(file, length)?;
    Ok(container.and_then(decode))
}

fn decode(container: Container) -> Result<(Provenance, State), String> {
    let text =
        container.entry(KEY).ok_or("its header does not come from this program")?;
    let mut entries = proven(text, &container.arrays)?;
    let arrays = container.arrays;
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
    let dtype = dtype_of(&dtype, &arrays)?;
    let tensors = tensors_of(&provenance, arrays, dtype)?;
    if origin.max(optimizer_origin) > step {
        return Err("it begins after its own step".to_string());
    }
    Ok((provenance, State { dtype, step, origin, optimizer_origin, tensors }))
}

/// The entries in the text of a file's metadata, if their digest is that of the file.
pub(crate) fn proven(
    text: &str,
    arrays: &BTreeMap<String, Array<'_>>,
) -> Result<BTreeMap<String, String>, String> {
    let mut entries: BTreeMap<String, String> =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    let written = entries.remove("digest").ok_or("it has no digest")?;
    match written == digest(&entries, arrays) {
        true => Ok(entries),
        false => Err("its digest differs from its contents".to_string()),
    }
}

/// The type of the state: as the file says, or that of its arrays.
fn dtype_of(
    written: &str,
    arrays: &BTreeMap<String, Array<'_>>,
) -> Result<Float, String> {
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
    let fits = |(name, array): (&String, &Array<'_>)| {
        array.dtype == element(stored(name, dtype))
    };
    match arrays.iter().all(fits) {
        true => Ok(dtype),
        false => Err("its tensors are of several types".to_string()),
    }
}

/// Puts the arrays of every parameter together.
fn tensors_of(
    provenance: &Provenance,
    mut arrays: BTreeMap<String, Array<'_>>,
    dtype: Float,
) -> Result<BTreeMap<String, Tensor>, String> {
    let is_newest = |name: &&String| !name.contains(['@', '#']);
    let names: Vec<String> = arrays.keys().filter(is_newest).cloned().collect();
    let mut array = |name: String| {
        let Array { shape, bytes, .. } = arrays.remove(&name)?;
        Some((shape, native(bytes, stored(&name, dtype))))
    };
    let mut tensors = BTreeMap::new();
    for name in names {
        let newest = array(name.clone()).into_iter();
        let older = (1u32..).map_while(|age| array(format!("{name}@-{age}")));
        let versions = newest.chain(older).collect();
        let states = provenance.entry("states").split_whitespace();
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

type Arrays = Vec<(Vec<usize>, Vec<u8>)>;

/// One parameter, if all its arrays have one shape.
fn together(versions: Arrays, optimizer: Arrays) -> Option<Tensor> {
    let shape = versions.first().map(|(shape, _)| shape.clone())?;
    let one = versions.iter().chain(&optimizer).all(|(other, _)| *other == shape);
    let bytes = |arrays: Arrays| arrays.into_iter().map(|(_, bytes)| bytes).collect();
    one.then(|| Tensor {
        shape: shape.iter().map(|extent| *extent as u64).collect(),
        versions: bytes(versions),
        optimizer: bytes(optimizer),
    })
}
