//! Tokens are those of the files, whether they are kept or read where they lie.

use super::*;
use crate::scratch::Scratch;

#[test]
fn text_is_the_bytes_of_its_files_in_order() {
    let folder = Scratch::new("corpus-text");
    folder.write("b.md", b"second");
    folder.write("a/z.md", b"first ");
    let corpus = Corpus::text(folder.path(), &["**/*.md".into()]).unwrap();
    let letters: Vec<u32> = b"first second".iter().copied().map(u32::from).collect();
    assert_eq!(corpus.range(0..12).collect::<Vec<_>>(), letters);
    assert_eq!(corpus.training(), 0..11);
    assert_eq!(corpus.held_out(), 11..12);
    corpus.check(128, "tokens").unwrap();
    let error = corpus.check(u64::from(b's'), "tokens").unwrap_err();
    let DataError::OutOfBound { path, offset, token, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!((path.ends_with("a/z.md"), *offset, *token), (true, 3, 115));
    let error = corpus.check(u64::from(b't'), "tokens").unwrap_err();
    let DataError::OutOfBound { path, offset, .. } = &error else { panic!("{error}") };
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
fn torn_and_missing_files_are_errors() {
    let folder = Scratch::new("corpus-torn");
    folder.write("t.bin", &[1, 2, 3]);
    let read = |file, width| Corpus::tokens(folder.path(), file, width).unwrap_err();
    assert!(matches!(read("t.bin", TokenWidth::U16), DataError::Torn { bytes: 3, .. }));
    assert!(matches!(read("x.bin", TokenWidth::U8), DataError::Unreadable { .. }));
    assert!(matches!(read(".", TokenWidth::U8), DataError::Folder { .. }));
}

/// Where a source is too large to be kept, windows across its files are read where they lie.
#[test]
fn what_is_not_kept_is_the_same() {
    let folder = Scratch::new("corpus-open");
    let mut paths = Vec::new();
    for (name, bytes) in [("a", &b"01234"[..]), ("b", b""), ("c", b"567"), ("d", b"89ab")]
    {
        folder.write(name, bytes);
        paths.push(folder.path().join(name));
    }
    for width in [TokenWidth::U8, TokenWidth::U16, TokenWidth::U32] {
        let of = |kept| Corpus::of(paths.clone(), "all".into(), width, kept).unwrap();
        let (kept, open) = (of(12), of(11));
        assert_eq!([kept.is_kept(), open.is_kept()], [true, false]);
        assert_eq!(kept.digest().value(), open.digest().value());
        assert_eq!(kept.largest(), open.largest());
        for first in 0..kept.len() {
            for end in first..kept.len() {
                let filled = |corpus: &Corpus| {
                    let mut row = vec![0; 4 * (end - first) as usize];
                    corpus.fill(first, &mut row);
                    row
                };
                assert_eq!(filled(&kept), filled(&open), "{first}..{end}");
            }
        }
        let error = open.check(u64::from(open.largest().unwrap()), "x").unwrap_err();
        assert!(matches!(error, DataError::OutOfBound { .. }), "{error}");
    }
    let many = vec![paths[0].clone(); OPEN + 1];
    let error = Corpus::of(many, "all".into(), TokenWidth::U8, 11).unwrap_err();
    assert!(matches!(error, DataError::TooManyFiles { found: 257, .. }), "{error}");
}

/// Nothing is wrong with the file that happens to be one too many.
#[test]
fn a_limit_on_open_files_is_told_as_one() {
    let folder = Scratch::new("corpus-limit");
    folder.write("t", b"0123456789");
    let corpus = Corpus::text(folder.path(), &["t".into()]).unwrap();
    let of = |number| {
        corpus.unopened(&folder.path().join("t"), io::Error::from_raw_os_error(number))
    };
    let many = of(24);
    assert!(matches!(many, DataError::OpenFiles { found: 1, bytes: 10, .. }), "{many}");
    assert!(many.path().is_none() && many.hint().contains("ulimit -n"), "{many}");
    let refused = of(13);
    assert!(matches!(refused, DataError::Unreadable { .. }), "{refused}");
}

/// As the digest of all bytes at once.
#[test]
fn the_digest_is_that_of_all_bytes() {
    let folder = Scratch::new("corpus-digest");
    let bytes: Vec<u8> = (0..BLOCK as usize + 13).map(|k| k as u8).collect();
    folder.write("t", &bytes);
    let mut digest = Digest::new();
    digest.add(&bytes);
    digest.add(&1u64.to_le_bytes());
    let corpus = Corpus::text(folder.path(), &["t".into()]).unwrap();
    assert_eq!(corpus.digest().value(), digest.value());
    assert_eq!(corpus.range(0..corpus.len()).count(), bytes.len());
}

#[test]
fn a_file_that_was_cut_meanwhile_is_told() {
    let folder = Scratch::new("corpus-cut");
    folder.write("t", b"0123456789");
    let path = folder.path().join("t");
    let corpus = Corpus::of(vec![path.clone()], "t".into(), TokenWidth::U8, 9).unwrap();
    let mut row = [0; 16];
    corpus.read_tokens(6, &mut row).unwrap();
    folder.write("t", b"01234567");
    let DataError::Unreadable { path: told, .. } =
        corpus.read_tokens(6, &mut row).unwrap_err()
    else {
        panic!("the file is shorter")
    };
    assert_eq!(told, path);
    let mut row = [0; 16];
    let lost = super::super::unless_lost(|| corpus.fill(6, &mut row)).unwrap_err();
    assert!(matches!(lost, DataError::Unreadable { .. }), "and no panic says so: {lost}");
}
