//! What was found out about a GPU and is kept on disk.
//!
//! A file of the cache is named after everything that its contents depend on, and holds its own
//! digest, so that a broken one is seen and made again.

use crate::digest::Digest;
use std::{
    env, fs,
    hash::{BuildHasher, Hasher, RandomState},
    io,
    path::{Path, PathBuf},
};

/// Opens every file of the cache.
const MAGIC: &[u8; 8] = b"rdlcache";

/// `ROUNDELAY_CACHE`, or the folder for such things; none when there is no home.
pub(super) fn cache_folder() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let of = |name: &str| set(name).map(PathBuf::from);
    of("ROUNDELAY_CACHE")
        .or_else(|| of("XDG_CACHE_HOME").map(|folder| folder.join("roundelay")))
        .or_else(|| of("HOME").map(|folder| folder.join(".cache/roundelay")))
}

/// What a file holds, unless it is broken.
pub(super) fn read(file: &Path) -> Option<Vec<u8>> {
    let bytes = fs::read(file).ok()?;
    let (magic, rest) = bytes.split_first_chunk::<8>()?;
    let (digest, contents) = rest.split_first_chunk::<8>()?;
    let whole = magic == MAGIC && u64::from_le_bytes(*digest) == digest_of(contents);
    whole.then(|| contents.to_vec())
}

/// Writes a file that is there as a whole or not at all.
pub(super) fn write(file: &Path, contents: &[u8]) -> io::Result<()> {
    let half = half(file, contents)?;
    fs::rename(&half, file)
}

/// Writes a file unless there is a whole one, and returns what it holds then: whoever comes first
/// decides for all.
pub(super) fn keep(file: &Path, contents: &[u8]) -> io::Result<Vec<u8>> {
    let half = half(file, contents)?;
    let linked = fs::hard_link(&half, file);
    let _ = fs::remove_file(&half);
    match (linked, read(file)) {
        (_, Some(kept)) => Ok(kept),
        (Ok(()), None) => Ok(contents.to_vec()),
        (Err(_), None) => write(file, contents).map(|()| contents.to_vec()),
    }
}

/// Whether anything can be kept in a folder.
pub(super) fn can_keep(folder: &Path) -> bool {
    half(&folder.join("trial"), &[]).and_then(fs::remove_file).is_ok()
}

/// What helps where nothing can be kept.
pub(in crate::cuda) const KEEP: &str =
    "set ROUNDELAY_CACHE to a folder that can be written";

/// In words that something cannot be kept, and what would help.
pub(in crate::cuda) fn unkept(what: &str, folder: Option<&Path>) -> String {
    let folder = folder.map_or(String::new(), |own| format!(" in `{}`", own.display()));
    format!("{what} cannot be kept{folder}; {KEEP}")
}

/// Writes what is to become a file, beside it, under a name that nobody else takes: processes of
/// several hosts may share the folder, and have the same number.
fn half(file: &Path, contents: &[u8]) -> io::Result<PathBuf> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let drawn = RandomState::new().build_hasher().finish();
    let half = file.with_extension(format!("{drawn:016x}.part"));
    let digest = digest_of(contents).to_le_bytes();
    fs::write(&half, [MAGIC, digest.as_slice(), contents].concat())?;
    Ok(half)
}

fn digest_of(contents: &[u8]) -> u64 {
    let mut digest = Digest::new();
    digest.add(contents);
    digest.value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_broken_file_is_no_file() {
        let scratch = Scratch::new("cubin-cache");
        let file = scratch.path().join("folder/one.cubin");
        assert_eq!(read(&file), None);
        write(&file, b"machine code").unwrap();
        assert_eq!(read(&file).as_deref(), Some(b"machine code".as_slice()));
        let whole = fs::read(&file).unwrap();
        for byte in 0..whole.len() {
            let mut broken = whole.clone();
            broken[byte] ^= 1;
            fs::write(&file, &broken).unwrap();
            assert_eq!(read(&file), None, "byte {byte}");
            fs::write(&file, &whole[..byte]).unwrap();
            assert_eq!(read(&file), None, "{byte} bytes");
        }
    }

    #[test]
    fn no_two_halves_have_one_name() {
        let scratch = Scratch::new("half-cache");
        let file = scratch.path().join("one.algorithm");
        let [one, other] = [b"one", b"two"].map(|bytes| half(&file, bytes).unwrap());
        assert_ne!(one, other);
        assert_eq!([&one, &other].map(|half| read(half).unwrap()), [b"one", b"two"]);
    }

    #[test]
    fn the_first_whole_file_is_kept() {
        let scratch = Scratch::new("kept-cache");
        let file = scratch.path().join("folder/one.algorithm");
        assert_eq!(keep(&file, b"first").unwrap(), b"first");
        assert_eq!(keep(&file, b"second").unwrap(), b"first");
        fs::write(&file, b"broken").unwrap();
        assert_eq!(keep(&file, b"third").unwrap(), b"third");
        assert_eq!(read(&file).as_deref(), Some(b"third".as_slice()));
        let files = fs::read_dir(file.parent().unwrap()).unwrap();
        assert_eq!(files.count(), 1, "no halves are left");
        assert!(can_keep(file.parent().unwrap()));
        assert!(!can_keep(Path::new("/dev/null")), "it is no folder");
        assert!(keep(Path::new("/dev/null/one"), b"nowhere").is_err());
    }
}
