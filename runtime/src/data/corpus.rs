//! Token sequences read from files: text, whose tokens are bytes, and binary token files.

use super::{DataError, glob};
use crate::{digest::Digest, regular};
use roundelay_schedule::TokenWidth;
use std::{
    io::{self, Read},
    ops::Range,
    path::{Path, PathBuf},
};

/// The most bytes that one source may hold.
const LIMIT: u64 = 2 << 30;

/// All tokens of a source, as they stand in its files. The last tenth is held out.
#[derive(Debug)]
pub(super) struct Corpus {
    /// The patterns or the file name, for messages.
    pub(super) pattern: String,
    bytes: Vec<u8>,
    width: TokenWidth,
    /// Its files, and where each of them starts.
    files: Vec<(u64, PathBuf)>,
}

impl Corpus {
    /// The bytes of all files that match, in order of their paths.
    pub(super) fn text(root: &Path, globs: &[String]) -> Result<Self, DataError> {
        let mut corpus = Self::empty(globs.join("`, `"), TokenWidth::U8);
        for path in glob::find(root, globs)?.into_values() {
            corpus.append(path, LIMIT)?;
        }
        Ok(corpus)
    }

    /// The tokens of one file.
    pub(super) fn tokens(
        root: &Path,
        file: &str,
        width: TokenWidth,
    ) -> Result<Self, DataError> {
        let mut corpus = Self::empty(file.to_string(), width);
        let path = root.join(file);
        corpus.append(path.clone(), LIMIT)?;
        let (bytes, width) = (corpus.bytes.len() as u64, corpus.width());
        if bytes.is_multiple_of(width) {
            Ok(corpus)
        } else {
            Err(DataError::Torn { path, bytes, width })
        }
    }

    fn empty(pattern: String, width: TokenWidth) -> Self {
        Self { pattern, bytes: Vec::new(), width, files: Vec::new() }
    }

    fn append(&mut self, path: PathBuf, limit: u64) -> Result<(), DataError> {
        let start = self.bytes.len() as u64;
        let room = limit.saturating_sub(start).saturating_add(1);
        if let Err(source) = read(&path, room, &mut self.bytes) {
            let pattern = self.pattern.clone();
            return Err(DataError::Unreadable { path, pattern, source });
        }
        let found = self.bytes.len() as u64;
        if found > limit {
            let pattern = self.pattern.clone();
            return Err(DataError::TooLarge { pattern, found, limit });
        }
        self.files.push((start, path));
        Ok(())
    }

    fn width(&self) -> u64 {
        match self.width {
            TokenWidth::U8 => 1,
            TokenWidth::U16 => 2,
            TokenWidth::U32 => 4,
        }
    }

    /// Number of tokens.
    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64 / self.width()
    }

    /// The tokens that training may see.
    pub(super) fn training(&self) -> Range<u64> {
        0..self.len() - self.len() / 10
    }

    /// The tokens that it may not see.
    pub(super) fn held_out(&self) -> Range<u64> {
        self.len() - self.len() / 10..self.len()
    }

    /// The tokens of a range of positions.
    pub(super) fn range(&self, positions: Range<u64>) -> impl Iterator<Item = u32> + '_ {
        let width = self.width();
        let part = (positions.start * width) as usize..(positions.end * width) as usize;
        self.bytes[part].chunks_exact(width as usize).map(|token| {
            token.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
        })
    }

    /// Whether all tokens are below `bound`, the bound of `input`.
    ///
    /// # Errors
    /// The first token that is not, with its file and offset.
    pub(super) fn check(&self, bound: u64, input: &str) -> Result<(), DataError> {
        let mut tokens = (0..).zip(self.range(0..self.len()));
        let Some((position, token)) =
            tokens.find(|(_, token)| u64::from(*token) >= bound)
        else {
            return Ok(());
        };
        let byte: u64 = position * self.width();
        let file = self.files.partition_point(|(start, _)| *start <= byte) - 1;
        let (start, path) = &self.files[file];
        Err(DataError::OutOfBound {
            path: path.clone(),
            offset: byte - start,
            token: u64::from(token),
            bound,
            input: input.to_string(),
        })
    }

    /// All bytes, and how many of them are a token.
    pub(super) fn add_to(&self, digest: &mut Digest) {
        digest.add(&self.bytes);
        digest.add(&self.width().to_le_bytes());
    }
}

/// Appends a regular file, but at most `room` bytes of it.
pub(super) fn read(path: &Path, room: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    let (file, _) = regular::open(path)?;
    file.take(room).read_to_end(bytes).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn text_is_the_bytes_of_its_files_in_order() {
        let folder = Scratch::new("corpus-text");
        folder.write("b.md", b"second");
        folder.write("a/z.md", b"first ");
        let corpus = Corpus::text(folder.path(), &["**/*.md".into()]).unwrap();
        assert_eq!(corpus.bytes, b"first second");
        assert_eq!(corpus.training(), 0..11);
        assert_eq!(corpus.held_out(), 11..12);
        corpus.check(128, "tokens").unwrap();
        let error = corpus.check(u64::from(b's'), "tokens").unwrap_err();
        let DataError::OutOfBound { path, offset, token, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((path.ends_with("a/z.md"), *offset, *token), (true, 3, 115));
        let error = corpus.check(u64::from(b't'), "tokens").unwrap_err();
        let DataError::OutOfBound { path, offset, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((path.ends_with("a/z.md"), *offset), (true, 4));
    }

    #[test]
    fn a_file_later_in_the_order_is_named_with_its_own_offset() {
        let folder = Scratch::new("corpus-offset");
        folder.write("a", b"aaaa");
        folder.write("b", b"");
        folder.write("c", b"aaz");
        let corpus = Corpus::text(folder.path(), &["*".into()]).unwrap();
        let error = corpus.check(122, "tokens").unwrap_err().to_string();
        assert!(error.contains("/c`, byte 2: token 122"), "{error}");
    }

    #[test]
    fn token_files_are_little_endian() {
        let folder = Scratch::new("corpus-tokens");
        folder.write("t.bin", &[1, 0, 2, 1, 0xff, 0xff, 0, 0]);
        let read = |width| Corpus::tokens(folder.path(), "t.bin", width).unwrap();
        let all = |corpus: &Corpus| corpus.range(0..corpus.len()).collect::<Vec<_>>();
        assert_eq!(all(&read(TokenWidth::U16)), [1, 258, 65535, 0]);
        assert_eq!(all(&read(TokenWidth::U32)), [0x0102_0001, 0xffff]);
        assert_eq!(all(&read(TokenWidth::U8)), [1, 0, 2, 1, 255, 255, 0, 0]);
        let error = read(TokenWidth::U16).check(300, "tokens").unwrap_err().to_string();
        assert!(error.contains("byte 4: token 65535 is not below 300"), "{error}");
    }

    #[test]
    fn torn_missing_and_large_files_are_errors() {
        let folder = Scratch::new("corpus-torn");
        folder.write("t.bin", &[1, 2, 3]);
        let read = |file, width| Corpus::tokens(folder.path(), file, width).unwrap_err();
        assert!(matches!(
            read("t.bin", TokenWidth::U16),
            DataError::Torn { bytes: 3, .. }
        ));
        assert!(matches!(read("x.bin", TokenWidth::U8), DataError::Unreadable { .. }));
        assert!(matches!(read(".", TokenWidth::U8), DataError::Unreadable { .. }));
        let mut corpus = Corpus::empty("t.bin".into(), TokenWidth::U8);
        let error = corpus.append(folder.path().join("t.bin"), 2).unwrap_err();
        assert!(matches!(error, DataError::TooLarge { found: 3, limit: 2, .. }));
    }
}
