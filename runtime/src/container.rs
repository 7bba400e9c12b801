//! Safetensors files taken apart, whatever stands in them.

use roundelay_schedule::{Bytes, Float};
use safetensors::{Dtype, tensor::Metadata};
use std::{
    borrow::Cow,
    collections::BTreeMap,
    io::{self, Read},
};

/// The longest header that is read, in bytes.
const HEADER: u64 = 64 << 20;

/// Bytes of the header's length.
const LENGTH: u64 = 8;

/// Header and data of a safetensors file; arrays lie inside the data and are as long as their
/// shapes say.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    header: Metadata,
    data: Vec<u8>,
}

/// An array of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array<'a> {
    /// Element type.
    pub(crate) dtype: Dtype,
    /// Extents.
    pub(crate) shape: &'a [usize],
    /// Numbers, little-endian.
    pub(crate) bytes: &'a [u8],
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
            Err(error) => return Ok(Err(format!("its header does not read ({error})"))),
        };
        match rest.checked_sub(header.data_len() as u64) {
            None => return cut(),
            Some(0) => {}
            Some(more) => {
                return Ok(Err(format!("{more} bytes stand behind its last array")));
            }
        }
        let mut data = vec![0; header.data_len()];
        file.read_exact(&mut data)?;
        Ok(Ok(Self { header, data }))
    }

    /// A text of the file's metadata.
    pub(crate) fn entry(&self, key: &str) -> Option<&String> {
        self.header.metadata().as_ref().and_then(|all| all.get(key))
    }

    /// All arrays by name.
    pub(crate) fn arrays(&self) -> BTreeMap<String, Array<'_>> {
        let array = |name: String| {
            let info = self.header.info(&name)?;
            let bytes = &self.data[info.data_offsets.0..info.data_offsets.1];
            Some((name, Array { dtype: info.dtype, shape: &info.shape, bytes }))
        };
        self.header.offset_keys().into_iter().filter_map(array).collect()
    }
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

/// Native to little-endian and back.
pub(crate) fn little_endian(bytes: &[u8], dtype: Float) -> Cow<'_, [u8]> {
    if cfg!(target_endian = "little") {
        return Cow::Borrowed(bytes);
    }
    let numbers = bytes.chunks_exact(dtype.size() as usize);
    Cow::Owned(numbers.flat_map(|number| number.iter().rev().copied()).collect())
}
