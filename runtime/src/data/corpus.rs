//! Token sequences read from files: text, whose tokens are bytes, and binary token files.
//!
//! What is not too large is kept in memory; of the rest, windows are read where they lie.

use super::{DataError, glob};
use crate::{digest::Digest, regular};
use roundelay_schedule::TokenWidth;
use std::{
    fs::File,
    io::{self, Read},
    ops::Range,
    os::unix::fs::FileExt,
    panic,
    path::{Path, PathBuf},
};

/// A source of more bytes is not kept in memory.
const KEPT: u64 = 2 << 30;

/// The most files of a source that is not kept: they stay open.
const OPEN: usize = 256;

/// Bytes that a walk through a source takes at once: whole words of a digest, and whole tokens.
const BLOCK: u64 = 1 << 20;

/// All tokens of a source, as they stand in its files. The last tenth is held out.
#[derive(Debug)]
pub(super) struct Corpus {
    /// The patterns or the file name, for messages.
    pub(super) pattern: String,
    width: TokenWidth,
    /// Its files, and where each of them starts.
    files: Vec<(u64, PathBuf)>,
    /// Bytes of all of them.
    length: u64,
    contents: Contents,
    /// The largest token, if there is any.
    largest: Option<u32>,
    digest: Digest,
}

/// Where the bytes of a source are.
#[derive(Debug)]
enum Contents {
    /// In memory.
    Kept(Vec<u8>),
    /// In its files, all of them open.
    Open(Vec<File>),
}

impl Corpus {
    /// The bytes of all files that match, in order of their paths.
    pub(super) fn text(root: &Path, globs: &[String]) -> Result<Self, DataError> {
        let paths = glob::find(root, globs)?.into_values().collect();
        Self::of(paths, globs.join("`, `"), TokenWidth::U8, KEPT)
    }

    /// The tokens of one file.
    pub(super) fn tokens(
        root: &Path,
        file: &str,
        width: TokenWidth,
    ) -> Result<Self, DataError> {
        Self::of(vec![root.join(file)], file.to_string(), width, KEPT)
    }

    /// The tokens of files, kept in memory up to so many bytes.
    fn of(
        paths: Vec<PathBuf>,
        pattern: String,
        width: TokenWidth,
        kept: u64,
    ) -> Result<Self, DataError> {
        let mut corpus = Self {
            pattern,
            width,
            files: Vec::with_capacity(paths.len()),
            length: 0,
            contents: Contents::Kept(Vec::new()),
            largest: None,
            digest: Digest::new(),
        };
        for path in paths {
            if path.is_dir() {
                let pattern = corpus.pattern;
                return Err(DataError::Folder { path, pattern });
            }
            let found = regular::open(&path);
            let (_, length) = found.map_err(|source| corpus.unreadable(&path, source))?;
            corpus.files.push((corpus.length, path));
            corpus.length = corpus.length.saturating_add(length);
        }
        corpus.demand_whole_tokens()?;
        corpus.contents = corpus.opened(kept)?;
        corpus.survey()?;
        Ok(corpus)
    }

    fn demand_whole_tokens(&self) -> Result<(), DataError> {
        let (bytes, width) = (self.length, self.width());
        match self.files.first() {
            Some((_, path)) if !bytes.is_multiple_of(width) => {
                Err(DataError::Torn { path: path.clone(), bytes, width })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// What its files hold, as long as they were found to be.
    fn opened(&self, kept: u64) -> Result<Contents, DataError> {
        if self.length > kept && self.files.len() > OPEN {
            let pattern = self.pattern.clone();
            let (found, bytes) = (self.files.len(), self.length);
            return Err(DataError::TooManyFiles { pattern, found, bytes, limit: OPEN });
        }
        let ends = self.files.iter().skip(1).map(|(start, _)| *start);
        let files = self.files.iter().zip(ends.chain([self.length]));
        let mut bytes = Vec::new();
        let mut open = Vec::new();
        for ((start, path), end) in files {
            let unreadable = |source| self.unreadable(path, source);
            if self.length > kept {
                let file = regular::open(path).map_err(|own| self.unopened(path, own));
                open.push(file?.0);
                continue;
            }
            let (file, _) = regular::open(path).map_err(unreadable)?;
            file.take(end - start).read_to_end(&mut bytes).map_err(unreadable)?;
            if bytes.len() as u64 != end {
                return Err(unreadable(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Ok(match self.length > kept {
            true => Contents::Open(open),
            false => Contents::Kept(bytes),
        })
    }

    /// Walks through all of it: what it holds, and that all of it can be read.
    fn survey(&mut self) -> Result<(), DataError> {
        let (mut digest, mut rest) = (Digest::new(), Vec::new());
        for start in (0..self.length).step_by(BLOCK as usize) {
            let mut block = vec![0; BLOCK.min(self.length - start) as usize];
            self.read(start, &mut block)?;
            rest = digest.words(&block).to_vec();
            let tokens = block.chunks_exact(self.width() as usize);
            self.largest = self.largest.max(tokens.map(token).max());
        }
        digest.end(&rest, self.length);
        digest.add(&self.width().to_le_bytes());
        self.digest = digest;
        Ok(())
    }

    fn unreadable(&self, path: &Path, source: io::Error) -> DataError {
        let (path, pattern) = (path.to_path_buf(), self.pattern.clone());
        DataError::Unreadable { path, pattern, source }
    }

    /// Why one of several files is not open that all stay so: there may be too many.
    fn unopened(&self, path: &Path, source: io::Error) -> DataError {
        if !regular::is_too_many(&source) {
            return self.unreadable(path, source);
        }
        let (found, pattern) = (self.files.len(), self.pattern.clone());
        DataError::OpenFiles { pattern, found, bytes: self.length, source }
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
        self.length / self.width()
    }

    /// The tokens that training may see.
    pub(super) fn training(&self) -> Range<u64> {
        0..self.len() - self.len() / 10
    }

    /// The tokens that it may not see.
    pub(super) fn held_out(&self) -> Range<u64> {
        self.len() - self.len() / 10..self.len()
    }

    /// The largest token, if there is any.
    pub(super) fn largest(&self) -> Option<u32> {
        self.largest
    }

    /// Whether it is quick to walk through.
    pub(super) fn is_kept(&self) -> bool {
        match &self.contents {
            Contents::Kept(_) => true,
            Contents::Open(_) => false,
        }
    }

    /// A digest of all bytes, and of how many of them are a token.
    pub(super) fn digest(&self) -> Digest {
        self.digest
    }

    /// Fills a row of 32-bit integers with tokens, from position `first` on. Where a file that was read before
    /// cannot be read any more, that unwinds, as [`unless_lost`](super::unless_lost) expects it.
    pub(super) fn fill(&self, first: u64, row: &mut [u8]) {
        if let Err(error) = self.read_tokens(first, row) {
            panic::resume_unwind(Box::new(error));
        }
    }

    /// Bytes of tokens lie in front of the row at first; from the last one on they are spread.
    fn read_tokens(&self, first: u64, row: &mut [u8]) -> Result<(), DataError> {
        let (width, count) = (self.width() as usize, row.len() / 4);
        self.read(first * self.width(), &mut row[..count * width])?;
        for place in (0..count).rev() {
            let number = token(&row[place * width..(place + 1) * width]);
            row[4 * place..4 * (place + 1)].copy_from_slice(&number.to_ne_bytes());
        }
        Ok(())
    }

    /// The tokens of a range of positions, block by block.
    fn blocks(
        &self,
        positions: Range<u64>,
    ) -> impl Iterator<Item = Result<Vec<u32>, DataError>> + '_ {
        let end = positions.end;
        positions.step_by(BLOCK as usize).map(move |first| {
            let mut row = vec![0; 4 * BLOCK.min(end - first) as usize];
            self.read_tokens(first, &mut row)?;
            let (numbers, _) = row.as_chunks();
            Ok(numbers.iter().map(|number| u32::from_ne_bytes(*number)).collect())
        })
    }

    /// The tokens of a range of positions of what is kept; of what is not, as far as it can be read.
    pub(super) fn range(&self, positions: Range<u64>) -> impl Iterator<Item = u32> + '_ {
        self.blocks(positions).map_while(Result::ok).flatten()
    }

    /// Reads bytes from `start` on.
    fn read(&self, start: u64, into: &mut [u8]) -> Result<(), DataError> {
        let files = match &self.contents {
            Contents::Kept(bytes) => {
                let start = start as usize;
                into.copy_from_slice(&bytes[start..start + into.len()]);
                return Ok(());
            }
            Contents::Open(files) => files,
        };
        let (mut at, mut rest) = (start, into);
        while !rest.is_empty() {
            let number = self.file_at(at);
            let (begin, path) = &self.files[number];
            let end = self.files.get(number + 1).map_or(self.length, |(next, _)| *next);
            let own = (end - at).min(rest.len() as u64);
            let (part, after) = rest.split_at_mut(own as usize);
            let read = files[number].read_exact_at(part, at - begin);
            read.map_err(|source| self.unreadable(path, source))?;
            (at, rest) = (end, after);
        }
        Ok(())
    }

    /// The number of the file that a byte lies in.
    fn file_at(&self, byte: u64) -> usize {
        self.files.partition_point(|(start, _)| *start <= byte) - 1
    }

    /// Whether all tokens are below `bound`, the bound of `input`.
    ///
    /// # Errors
    /// The first token that is not, with its file and offset.
    pub(super) fn check(&self, bound: u64, input: &str) -> Result<(), DataError> {
        let is_wrong = |token: &u32| u64::from(*token) >= bound;
        if !self.largest.as_ref().is_some_and(is_wrong) {
            return Ok(());
        }
        let mut position = 0;
        for block in self.blocks(0..self.len()) {
            let block = block?;
            if let Some(place) = block.iter().position(is_wrong) {
                let byte = (position + place as u64) * self.width();
                let (start, path) = &self.files[self.file_at(byte)];
                return Err(DataError::OutOfBound {
                    path: path.clone(),
                    offset: byte - start,
                    token: u64::from(block[place]),
                    bound,
                    input: input.to_string(),
                });
            }
            position += block.len() as u64;
        }
        Ok(())
    }
}

/// A token of at most four bytes, little-endian.
fn token(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests;
