//! Files are read in blocks as if they were read at once, and what changes meanwhile is told.

use super::*;
use crate::scratch::Scratch;
use std::{fs, time::Duration};

/// Bytes of two blocks and a part of a word.
const LONG: usize = 2 * BLOCK as usize + 13;

fn long() -> Vec<u8> {
    (0..LONG).map(|place| (place % 251) as u8).collect()
}

/// A file of one long array, and what is open of it.
fn opened(scratch: &Scratch) -> (PathBuf, Container) {
    let form = Form { dtype: Dtype::U8, shape: vec![LONG] };
    let forms = BTreeMap::from([("a".to_owned(), form)]);
    let header = Header::of(&forms, ("key", "text".to_owned())).unwrap();
    scratch.write("file", &[header.bytes, long()].concat());
    let path = scratch.path().join("file");
    let container = Container::open(&path).unwrap();
    (path, container)
}

#[test]
fn blocks_have_the_digest_of_the_whole() {
    let scratch = Scratch::new("container-blocks");
    let (_, container) = opened(&scratch);
    let place = &container.arrays["a"];
    assert_eq!(container.read(place).unwrap(), long());
    let mut blocks = Vec::new();
    container.walk(place, |block| blocks.push(block.to_vec())).unwrap();
    assert_eq!((blocks.len(), blocks.concat()), (3, long()));
    let [mut walked, mut added] = [Digest::new(); 2];
    container.add_to(&mut walked, place).unwrap();
    added.add(&long());
    assert_eq!(walked.value(), added.value());
}

/// A file that is written over keeps its place, so whoever has it open reads what is new.
#[test]
fn a_file_that_changes_while_it_is_open_is_told() {
    let scratch = Scratch::new("container-changed");
    let changes: [fn(&Path); 2] = [
        |path| {
            let mut bytes = fs::read(path).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            fs::write(path, bytes).unwrap();
            let later = SystemTime::now() + Duration::from_secs(1);
            File::options().write(true).open(path).unwrap().set_modified(later).unwrap();
        },
        |path| File::options().write(true).open(path).unwrap().set_len(100).unwrap(),
    ];
    for change in changes {
        let (path, container) = opened(&scratch);
        let place = &container.arrays["a"];
        change(&path);
        let told = container.read(place).unwrap_err().to_string();
        assert_eq!(told, "it was changed since it was opened");
        let mut digest = Digest::new();
        assert!(container.add_to(&mut digest, place).is_err());
        let lost = container.lost(&io::Error::other(told)).to_string();
        assert!(lost.contains("/file` any more: it was changed since"), "{lost}");
    }
    let (path, container) = opened(&scratch);
    fs::remove_file(path).unwrap();
    assert_eq!(container.read(&container.arrays["a"]).unwrap(), long());
}
