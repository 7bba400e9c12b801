//! Safetensors files: taken apart whatever stands in them, and read and written array by array, for what
//! they hold may be more than a process has room for.

use crate::{StateError, digest::Digest, regular};
use roundelay_schedule::{Bytes, Float, printable};
use safetensors::{
    Dtype,
    tensor::{Metadata, TensorInfo},
};
use std::{
    borrow::{Borrow, Cow},
    cmp::Reverse,
    collections::BTreeMap,
    fmt,
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// The longest header that is read, in bytes.
const HEADER: u64 = 64 << 20;

/// Bytes of the header's length.
const LENGTH: u64 = 8;

/// Bytes that a walk through an array takes at once: whole words of a digest, and whole numbers.
const BLOCK: u64 = 1 << 20;

/// A safetensors file that is open: what stands in it is read when it is asked for.
#[derive(Debug)]
pub(crate) struct Container {
    path: PathBuf,
    file: Box<dyn ReadAt>,
    /// Of the file when it was opened.
    stamp: Stamp,
    header: Metadata,
    /// By name.
    pub(crate) arrays: BTreeMap<String, Place>,
}

/// What can be read anywhere.
pub(crate) trait ReadAt: fmt::Debug + Send + Sync {
    /// Fills `bytes` with those that stand from `start` on.
    fn read_exact_at(&self, bytes: &mut [u8], start: u64) -> io::Result<()>;

    /// What tells it from what it was before a change.
    fn stamp(&self) -> io::Result<Stamp>;
}

/// The length of a file, and when it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) length: u64,
    pub(crate) written: SystemTime,
}

impl ReadAt for File {
    fn read_exact_at(&self, bytes: &mut [u8], start: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, bytes, start)
    }

    fn stamp(&self) -> io::Result<Stamp> {
        let found = self.metadata()?;
        Ok(Stamp { length: found.len(), written: found.modified()? })
    }
}

/// Why a file gives nothing.
#[derive(Debug)]
pub(crate) enum NotWhole {
    /// The system refused to read it.
    Unread(io::Error),
    /// It is cut short or changed, and what of it does not hold.
    Damaged(String),
}

impl From<io::Error> for NotWhole {
    fn from(error: io::Error) -> Self {
        Self::Unread(error)
    }
}

impl From<String> for NotWhole {
    fn from(reason: String) -> Self {
        Self::Damaged(reason)
    }
}

impl From<&str> for NotWhole {
    fn from(reason: &str) -> Self {
        Self::Damaged(reason.to_owned())
    }
}

/// Where an array lies in a file that is long enough for it.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Element type.
    pub(crate) dtype: Dtype,
    /// Extents.
    pub(crate) shape: Vec<usize>,
    /// Bytes of the file, as many as the shape says: numbers, little-endian.
    pub(crate) bytes: Range<u64>,
}

/// What is known of an array before its numbers.
pub(crate) struct Form {
    /// Element type.
    pub(crate) dtype: Dtype,
    /// Extents.
    pub(crate) shape: Vec<usize>,
}

/// The beginning of a file that is to be written.
pub(crate) struct Header {
    /// All that stands before the first array.
    pub(crate) bytes: Vec<u8>,
    /// Where arrays belong, by name.
    pub(crate) places: BTreeMap<String, Place>,
}

impl Place {
    /// How many bytes it has.
    pub(crate) fn length(&self) -> usize {
        (self.bytes.end - self.bytes.start) as usize
    }

    /// Whether these are as many as it has, which its shape says.
    ///
    /// # Errors
    /// When they are not, with the array's name.
    pub(crate) fn takes(&self, name: &str, numbers: &[u8]) -> io::Result<()> {
        let (found, length) = (numbers.len(), self.length());
        if found == length {
            return Ok(());
        }
        let said = format!("`{name}` has {found} bytes, its shape takes {length}");
        Err(io::Error::other(said))
    }
}

impl Container {
    /// Opens a file.
    pub(crate) fn open(path: &Path) -> Result<Self, NotWhole> {
        let (file, _) = regular::open(path)?;
        Self::of(path, Box::new(file))
    }

    /// A file that is open. Nothing is allocated that it is not long enough for.
    pub(crate) fn of(path: &Path, file: Box<dyn ReadAt>) -> Result<Self, NotWhole> {
        let stamp = file.stamp()?;
        let length = stamp.length;
        let cut = "it ends too early";
        if length < LENGTH {
            return Err(cut.into());
        }
        let mut size = [0; LENGTH as usize];
        file.read_exact_at(&mut size, 0)?;
        let size = u64::from_le_bytes(size);
        if size > HEADER {
            let most = Bytes(HEADER);
            return Err(
                format!("its header would take {size} bytes, more than {most}").into()
            );
        }
        let rest = (length - LENGTH).checked_sub(size).ok_or(cut)?;
        let mut header = vec![0; size as usize];
        file.read_exact_at(&mut header, LENGTH)?;
        let header: Metadata = serde_json::from_slice(&header).map_err(|error| {
            format!("its header does not read ({})", printable(&error.to_string()))
        })?;
        match rest.checked_sub(header.data_len() as u64).ok_or(cut)? {
            0 => {}
            more => {
                return Err(format!("{more} bytes stand behind its last array").into());
            }
        }
        let arrays = places_of(&header, LENGTH + size);
        Ok(Self { path: path.to_path_buf(), file, stamp, header, arrays })
    }

    /// The name that it was opened under.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A text of the file's metadata.
    pub(crate) fn entry(&self, key: &str) -> Option<&String> {
        self.header.metadata().as_ref().and_then(|all| all.get(key))
    }

    /// Whether it is still what was opened: a file may be written over in its place.
    fn is_same(&self) -> io::Result<()> {
        match self.file.stamp()? == self.stamp {
            true => Ok(()),
            false => Err(io::Error::other("it was changed since it was opened")),
        }
    }

    /// Why an array that it has cannot be read.
    pub(crate) fn lost(&self, error: &io::Error) -> StateError {
        StateError::Read { path: self.path.clone(), reason: error.to_string() }
    }

    /// The numbers of an array, little-endian.
    pub(crate) fn read(&self, place: &Place) -> io::Result<Vec<u8>> {
        let mut numbers = vec![0; place.length()];
        self.is_same()?;
        self.file.read_exact_at(&mut numbers, place.bytes.start)?;
        self.is_same()?;
        Ok(numbers)
    }

    /// Shows the numbers of an array, little-endian, in blocks of whole numbers, one after another.
    pub(crate) fn walk(
        &self,
        Place { bytes, .. }: &Place,
        mut look: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let mut block = vec![0; BLOCK.min(bytes.end - bytes.start) as usize];
        self.is_same()?;
        let mut start = bytes.start;
        while start < bytes.end {
            let length = BLOCK.min(bytes.end - start);
            let block = &mut block[..length as usize];
            self.file.read_exact_at(block, start)?;
            look(block);
            start += length;
        }
        self.is_same()
    }

    /// Takes an array into a digest, as [`Digest::add`] does it with numbers that are there.
    pub(crate) fn add_to(&self, digest: &mut Digest, place: &Place) -> io::Result<()> {
        let mut rest = Vec::new();
        self.walk(place, |block| rest = digest.words(block).to_vec())?;
        digest.end(&rest, place.length() as u64);
        Ok(())
    }
}

impl Form {
    /// An array of a state.
    pub(crate) fn new(dtype: Float, shape: &[u64]) -> Self {
        Self::of(element(dtype), shape)
    }

    /// An array of a file.
    pub(crate) fn of(dtype: Dtype, shape: &[u64]) -> Self {
        Self { dtype, shape: shape.iter().map(|extent| *extent as usize).collect() }
    }

    /// How many bytes its shape says.
    fn length(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bitsize() / 8
    }
}

/// Where the arrays lie whose offsets count from `start`.
fn places_of(header: &Metadata, start: u64) -> BTreeMap<String, Place> {
    let place = |name: String| {
        let TensorInfo { dtype, shape, data_offsets: (first, end) } =
            header.info(&name)?;
        let bytes = start + *first as u64..start + *end as u64;
        Some((name, Place { dtype: *dtype, shape: shape.clone(), bytes }))
    };
    header.offset_keys().into_iter().filter_map(place).collect()
}

impl Header {
    /// Of arrays and one text of metadata. Arrays lie in the order of the format's own library: wide elements
    /// first, which keeps all of them aligned, and by name where they are as wide.
    pub(crate) fn of(
        forms: &BTreeMap<String, impl Borrow<Form>>,
        (key, text): (&str, String),
    ) -> io::Result<Self> {
        let forms = forms.iter().map(|(name, form)| (name, form.borrow()));
        let mut ordered: Vec<(&String, &Form)> = forms.collect();
        ordered.sort_by_key(|(name, form)| (Reverse(form.dtype), *name));
        let mut end = 0;
        let places = ordered.iter().map(|(name, form)| {
            let start = end;
            end += form.length();
            let (dtype, shape, data_offsets) =
                (form.dtype, form.shape.clone(), (start, end));
            ((*name).clone(), TensorInfo { dtype, shape, data_offsets })
        });
        let entries = std::iter::once((key.to_owned(), text)).collect();
        let header = Metadata::new(Some(entries), places.collect());
        let header = header.expect("arrays stand one behind the other");
        let mut text = serde_json::to_vec(&header)?;
        text.resize(text.len().next_multiple_of(LENGTH as usize), b' ');
        let bytes = [&(text.len() as u64).to_le_bytes()[..], &text].concat();
        let places = places_of(&header, bytes.len() as u64);
        Ok(Self { bytes, places })
    }

    /// The bytes of the whole file.
    pub(crate) fn file_length(&self) -> u64 {
        let ends = self.places.values().map(|place| place.bytes.end);
        ends.max().unwrap_or(self.bytes.len() as u64)
    }

    /// The arrays as they stand in the file.
    pub(crate) fn in_file(&self) -> Vec<(&String, &Place)> {
        let mut places: Vec<(&String, &Place)> = self.places.iter().collect();
        places.sort_by_key(|(name, place)| (place.bytes.start, place.bytes.end, *name));
        places
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

/// Little-endian numbers as this machine has them.
pub(crate) fn native(bytes: Vec<u8>, dtype: Float) -> Vec<u8> {
    little_endian(Cow::Owned(bytes), dtype).into_owned()
}

/// Native to little-endian and back.
pub(crate) fn little_endian(bytes: Cow<'_, [u8]>, dtype: Float) -> Cow<'_, [u8]> {
    if cfg!(target_endian = "little") {
        return bytes;
    }
    let numbers = bytes.chunks_exact(dtype.size() as usize);
    Cow::Owned(numbers.flat_map(|number| number.iter().rev().copied()).collect())
}

#[cfg(test)]
mod tests;
