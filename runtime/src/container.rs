//! Safetensors files, taken apart whatever stands in them, and written array by array: what they hold is
//! most of what a process has, and there may be no room for it twice.

use roundelay_schedule::{Bytes, Float, printable};
use safetensors::{
    Dtype,
    tensor::{Metadata, TensorInfo},
};
use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::BTreeMap,
    io::{self, Read, Write},
};

/// The longest header that is read, in bytes.
const HEADER: u64 = 64 << 20;

/// Bytes of the header's length.
const LENGTH: u64 = 8;

/// What stands in a safetensors file.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    header: Metadata,
    /// By name; as long as their shapes say.
    pub(crate) arrays: BTreeMap<String, Array<'static>>,
}

/// An array of a file.
#[derive(Clone, Debug)]
pub(crate) struct Array<'a> {
    /// Element type.
    pub(crate) dtype: Dtype,
    /// Extents.
    pub(crate) shape: Vec<usize>,
    /// Numbers, little-endian.
    pub(crate) bytes: Cow<'a, [u8]>,
}

impl Container {
    /// Reads a file of `length` bytes; the inner error is the file's fault. Nothing is allocated
    /// that the file is not long enough for.
    pub(crate) fn read(
        mut file: impl Read,
        length: u64,
    ) -> io::Result<Result<Self, String>> {
        let cut = || Ok(Err("it ends too early".to_owned()));
        if length < LENGTH {
            return cut();
        }
        let mut size = [0; LENGTH as usize];
        file.read_exact(&mut size)?;
        let size = u64::from_le_bytes(size);
        if size > HEADER {
            let most = Bytes(HEADER);
            return Ok(Err(format!(
                "its header would take {size} bytes, more than {most}"
            )));
        }
        let Some(rest) = (length - LENGTH).checked_sub(size) else { return cut() };
        let mut header = vec![0; size as usize];
        file.read_exact(&mut header)?;
        let header: Metadata = match serde_json::from_slice(&header) {
            Ok(header) => header,
            Err(error) => {
                let error = error.to_string();
                return Ok(Err(format!(
                    "its header does not read ({})",
                    printable(&error)
                )));
            }
        };
        match rest.checked_sub(header.data_len() as u64) {
            None => return cut(),
            Some(0) => {}
            Some(more) => {
                return Ok(Err(format!("{more} bytes stand behind its last array")));
            }
        }
        let mut arrays = BTreeMap::new();
        for name in header.offset_keys() {
            let Some(TensorInfo { dtype, shape, data_offsets }) = header.info(&name)
            else {
                continue;
            };
            let mut bytes = vec![0; data_offsets.1 - data_offsets.0];
            file.read_exact(&mut bytes)?;
            let (dtype, shape, bytes) = (*dtype, shape.clone(), Cow::Owned(bytes));
            arrays.insert(name, Array { dtype, shape, bytes });
        }
        Ok(Ok(Self { header, arrays }))
    }

    /// A text of the file's metadata.
    pub(crate) fn entry(&self, key: &str) -> Option<&String> {
        self.header.metadata().as_ref().and_then(|all| all.get(key))
    }
}

/// Writes arrays and one text of metadata, in the order of the format's own library: wide elements first,
/// which keeps all of them aligned.
pub(crate) fn write(
    out: &mut impl Write,
    arrays: &BTreeMap<String, Array<'_>>,
    (key, text): (&str, String),
) -> io::Result<()> {
    let mut ordered: Vec<(&String, &Array<'_>)> = arrays.iter().collect();
    ordered.sort_by_key(|(name, array)| (Reverse(array.dtype), *name));
    let mut end = 0;
    let places = ordered.iter().map(|(name, Array { dtype, shape, bytes })| {
        let start = end;
        end += bytes.len();
        let (dtype, shape, data_offsets) = (*dtype, shape.clone(), (start, end));
        ((*name).clone(), TensorInfo { dtype, shape, data_offsets })
    });
    let entries = std::iter::once((key.to_owned(), text)).collect();
    let header = Metadata::new(Some(entries), places.collect());
    let header = header.expect("arrays are as long as their shapes say");
    let mut header = serde_json::to_vec(&header)?;
    header.resize(header.len().next_multiple_of(LENGTH as usize), b' ');
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    ordered.iter().try_for_each(|(_, array)| out.write_all(&array.bytes))?;
    out.flush()
}

/// The element type of a file for numbers of this type.
pub(crate) fn element(dtype: Float) -> Dtype {
    match dtype {
        Float::F32 => Dtype::F32,
        Float::F64 => Dtype::F64,
        Float::Bf16(_) => Dtype::BF16,
        Float::F16(_) => Dtype::F16,
    }
}

/// Little-endian numbers as this machine has them.
pub(crate) fn native(bytes: Cow<'_, [u8]>, dtype: Float) -> Vec<u8> {
    let turned = match little_endian(&bytes, dtype) {
        Cow::Borrowed(_) => None,
        Cow::Owned(turned) => Some(turned),
    };
    turned.unwrap_or_else(|| bytes.into_owned())
}

/// Native to little-endian and back.
pub(crate) fn little_endian(bytes: &[u8], dtype: Float) -> Cow<'_, [u8]> {
    if cfg!(target_endian = "little") {
        return Cow::Borrowed(bytes);
    }
    let numbers = bytes.chunks_exact(dtype.size() as usize);
    Cow::Owned(numbers.flat_map(|number| number.iter().rev().copied()).collect())
}
