//! Patterns find what they mean, nothing else, and end.

use super::*;
use crate::scratch::Scratch;
use roundelay_kernels::random::Stream;

fn names(folder: &Scratch, patterns: &[&str]) -> Vec<String> {
    let patterns: Vec<_> = patterns.iter().map(ToString::to_string).collect();
    find(folder.path(), &patterns).unwrap().into_keys().collect()
}

#[test]
fn wildcards_match_names() {
    let cases = [
        ("*", "", true),
        ("a*b*c", "aXbYbZc", true),
        ("a*b*c", "abcd", false),
        ("?", "é", true),
        ("?", "", false),
        ("*.rs", "main.rs", true),
        ("*.rs", "main.rsx", false),
        ("**", "abc", true),
        ("plain", "plain", true),
    ];
    for (wild, name, expected) in cases {
        let letters: Vec<char> = wild.chars().collect();
        assert_eq!(matches(&letters, name), expected, "{wild} against {name}");
    }
}

/// The meaning of a pattern, in exponential time.
fn means(wild: &[char], name: &[char]) -> bool {
    match (wild.split_first(), name.split_first()) {
        (None, _) => name.is_empty(),
        (Some(('*', rest)), None) => means(rest, name),
        (Some(('*', rest)), Some((_, after))) => means(rest, name) || means(wild, after),
        (Some(_), None) => false,
        (Some((sign, rest)), Some((letter, after))) => {
            (*sign == '?' || sign == letter) && means(rest, after)
        }
    }
}

#[test]
fn matching_agrees_with_its_meaning() {
    for round in 0..20_000 {
        let chance = Stream::new(round, &[]);
        let draw = |first: u64, letters: &[char]| -> Vec<char> {
            let letter = |k| letters[chance.below(k, letters.len() as u64) as usize];
            (first + 1..=first + chance.below(first, 8)).map(letter).collect()
        };
        let (wild, name) = (draw(0, &['a', 'b', '*', '?']), draw(100, &['a', 'b']));
        let text: String = name.iter().collect();
        assert_eq!(matches(&wild, &text), means(&wild, &name), "{wild:?} {text}");
    }
}

#[test]
fn many_stars_take_no_exponential_time() {
    let wild: Vec<char> = "*a".repeat(200).chars().collect();
    assert!(!matches(&wild, &"a".repeat(199)));
    assert!(matches(&wild, &"ab".repeat(250)[..499]));
}

#[test]
fn folders_are_crossed_in_order_of_paths() {
    let folder = Scratch::new("glob");
    for file in ["b.md", "a.md", "a/x.md", "a/deep/y.md", "a.txt", "a-b/z.md"] {
        folder.write(file, b"x");
    }
    assert_eq!(
        names(&folder, &["**/*.md"]),
        ["a-b/z.md", "a.md", "a/deep/y.md", "a/x.md", "b.md"]
    );
    assert_eq!(names(&folder, &["a/**"]), ["a/deep/y.md", "a/x.md"]);
    assert_eq!(names(&folder, &["?/*/*.md"]), ["a/deep/y.md"]);
    assert_eq!(names(&folder, &["*.md", "a/../a.*"]), ["a.md", "a/../a.txt", "b.md"]);
    assert_eq!(names(&folder, &["./a.txt", "**/**/**/a.txt"]), ["a.txt"]);
}

#[test]
fn build_products_and_dot_folders_must_be_named() {
    let folder = Scratch::new("glob-hidden");
    for file in ["target/t.md", "a/target/t.md", ".git/g.md", ".h.md", "k.md"] {
        folder.write(file, b"x");
    }
    assert_eq!(names(&folder, &["**/*.md"]), ["k.md"]);
    assert_eq!(names(&folder, &["target/*.md"]), ["target/t.md"]);
    assert_eq!(names(&folder, &[".*/*.md", ".*.md"]), [".git/g.md", ".h.md"]);
}

#[test]
fn links_to_files_are_files_and_loops_end() {
    let folder = Scratch::new("glob-links");
    folder.write("a/x.md", b"x");
    for (from, to) in [("..", "a/up"), ("a/x.md", "y.md")] {
        std::os::unix::fs::symlink(from, folder.path().join(to)).unwrap();
    }
    assert_eq!(names(&folder, &["**/*.md"]), ["a/x.md"], "y.md is a/x.md");
    assert_eq!(names(&folder, &["y.md"]), ["y.md"]);
    assert_eq!(names(&folder, &["*/*/*/*.md"]), ["a/up/a/x.md"]);
}

#[test]
fn what_cannot_match_is_said() {
    let folder = Scratch::new("glob-bad");
    folder.write("a.md", b"x");
    for pattern in ["", "/", "./", "a**b", "**b/x", "a\0b"] {
        let error = find(folder.path(), &[pattern.to_string()]).unwrap_err();
        assert!(matches!(error, DataError::BadPattern { .. }), "{pattern:?}: {error}");
    }
    for pattern in ["*.rs", "nowhere/*", "a.md/*", "**/*.rs"] {
        let error = find(folder.path(), &["*.md".into(), pattern.into()]).unwrap_err();
        assert!(matches!(error, DataError::NoMatch { .. }), "{pattern}: {error}");
        assert!(error.to_string().contains(pattern), "{error}");
    }
}

#[test]
fn a_folder_is_no_missing_file() {
    let folder = Scratch::new("glob-folder");
    folder.write("docs/a.md", b"x");
    for pattern in ["docs", "docs/", "./docs"] {
        let error = find(folder.path(), &[pattern.to_string()]).unwrap_err();
        assert!(matches!(error, DataError::Folder { .. }), "{pattern}: {error}");
        assert!(error.hint().contains("`/**`"), "{error}");
    }
    assert_eq!(names(&folder, &["docs/**"]), ["docs/a.md"]);
}

/// Data that is there and cannot be read is not left out of what is trained on.
#[test]
fn what_cannot_be_looked_at_is_no_missing_match() {
    use std::{
        fs::{Permissions, set_permissions},
        os::unix::fs::{PermissionsExt, symlink},
    };
    let folder = Scratch::new("glob-unreadable");
    folder.write("a.md", b"");
    folder.write("locked/b.md", b"");
    let refused = |patterns: &[&str], name: &str| {
        let patterns: Vec<_> = patterns.iter().map(ToString::to_string).collect();
        let error = find(folder.path(), &patterns).unwrap_err();
        let DataError::Unreadable { path, .. } = &error else { panic!("{error}") };
        assert!(path.ends_with(name), "{error}");
    };
    let own = |name: &str| folder.path().join(name);
    symlink("nowhere", own("dangling.md")).unwrap();
    refused(&["*.md"], "dangling.md");
    refused(&["**/*.md"], "dangling.md");
    refused(&["a.md", "dangling.md"], "dangling.md");
    refused(&["dangling.md/*"], "dangling.md");
    assert_eq!(names(&folder, &["a.*", "locked/*"]), ["a.md", "locked/b.md"]);
    fs::remove_file(own("dangling.md")).unwrap();
    symlink("round.md", own("round.md")).unwrap();
    refused(&["*.md"], "round.md");
    fs::remove_file(own("round.md")).unwrap();
    // Its names may be listed, and nothing below it be looked at; but not to the superuser.
    set_permissions(own("locked"), Permissions::from_mode(0o400)).unwrap();
    if fs::metadata(own("locked/b.md")).is_err() {
        refused(&["**/*.md"], "locked/b.md");
        refused(&["*/*.md"], "locked/b.md");
        refused(&["a.md", "locked/b.md"], "locked/b.md");
    }
    set_permissions(own("locked"), Permissions::from_mode(0o700)).unwrap();
    assert_eq!(names(&folder, &["**/*.md"]), ["a.md", "locked/b.md"]);
}

/// A file is refused as an output exactly where a search would find it afterwards.
#[test]
fn what_would_be_found_is_what_is_found_then() {
    let folder = Scratch::new("glob-would");
    for name in ["data/a/x.txt", "data/b.txt", "target/c.txt", "other/d.txt"] {
        folder.write(name, b"anything");
    }
    let all = [
        "**/*",
        "**",
        "data/**",
        "data/*",
        "*/*.txt",
        "data/../**/*.bin",
        "data/a/?.bin",
        "**/a/*",
        "data/.*",
        "./data/a/new.bin",
        "target/*",
    ];
    let places = [
        "new.bin",
        "data/new.bin",
        "data/.new.bin",
        "data/a/n.bin",
        "data/a/new.bin",
        "target/new.bin",
        "other/new.txt",
        "data/a/target",
    ];
    let root = folder.path().canonicalize().unwrap();
    let found = |pattern: &str, place: &str| {
        let search = Search::new(folder.path(), pattern).unwrap();
        search
            .run()
            .unwrap()
            .into_values()
            .any(|path| path.canonicalize().unwrap() == root.join(place))
    };
    for place in places {
        let would = all.map(|pattern| {
            would_find(folder.path(), &[pattern.to_owned()], &root.join(place))
        });
        folder.write(place, b"new");
        assert_eq!(would, all.map(|pattern| found(pattern, place)), "{place}");
        std::fs::remove_file(root.join(place)).unwrap();
    }
}
