//! What stands under a name stays until something whole takes its place.

use super::{unfinished::UNFINISHED, *};
use crate::scratch::Scratch;
use std::thread;

#[test]
fn what_cannot_be_written_is_said_before_and_harms_nothing() {
    let scratch = Scratch::new("output-unwritable");
    let refused = OutputFile::new(scratch.path());
    assert!(matches!(refused, Err(OutputError::Unwritable { .. })));
    let refused = OutputFile::new(&scratch.path().join("nowhere/kept")).unwrap_err();
    let told = refused.to_string();
    assert!(told.contains("/nowhere/kept`: there is no folder `"), "{told}");
    assert!(told.ends_with("/nowhere`; make it first, or name another file"), "{told}");
    let path = scratch.path().join("kept");
    scratch.write("kept", b"earlier");
    let output = OutputFile::new(&path).unwrap();
    let cut = |out: &mut File| {
        out.write_all(b"la")?;
        Err(io::Error::other("the disk is full"))
    };
    let refused = output.write_by(cut).unwrap_err();
    assert!(matches!(refused, OutputError::Write { .. }));
    assert!(refused.to_string().contains("the disk is full"), "{refused}");
    assert_eq!(fs::read(&path).unwrap(), b"earlier");
    assert_eq!(names(&scratch), ["kept"]);
    output.write(b"later").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"later");
    assert_eq!(names(&scratch), ["kept"]);
    fs::remove_dir_all(scratch.path()).unwrap();
    let refused = output.write(b"latest").unwrap_err().to_string();
    assert!(refused.contains("kept") && refused.contains(UNFINISHED), "{refused}");
}

/// What lies in a folder.
fn names(scratch: &Scratch) -> Vec<String> {
    let entries = fs::read_dir(scratch.path()).unwrap();
    entries.map(|own| own.unwrap().file_name().into_string().unwrap()).collect()
}

/// Launchers start many processes with one command line.
#[test]
fn of_many_writers_each_writes_a_whole_file() {
    let scratch = Scratch::new("output-many");
    let path = scratch.path().join("kept");
    let whole = |of: u8| vec![of; 1 << 16];
    thread::scope(|scope| {
        for of in 0..8 {
            let path = &path;
            scope.spawn(move || {
                for _ in 0..20 {
                    let write = |out: &mut File| {
                        let bytes = whole(of);
                        bytes.chunks(1 << 12).try_for_each(|piece| out.write_all(piece))
                    };
                    OutputFile::new(path).unwrap().write_by(write).unwrap();
                    let found = fs::read(path).unwrap();
                    assert_eq!(found, whole(found[0]), "it is one writer's alone");
                }
            });
        }
    });
    assert_eq!(names(&scratch), ["kept"]);
}

/// An ended process had the same number as this one, and left what it wrote.
#[test]
fn what_an_ended_process_left_is_in_nobodys_way() {
    let scratch = Scratch::new("output-left");
    let path = scratch.path().join("kept");
    let next = unfinished::unfinished(&path);
    let (named, number) = next.to_str().unwrap().rsplit_once('-').unwrap();
    let number: u32 = number.strip_suffix(UNFINISHED).unwrap().parse().unwrap();
    for number in number..number + 200 {
        fs::write(format!("{named}-{number}{UNFINISHED}"), b"left").unwrap();
    }
    OutputFile::new(&path).unwrap().write(b"later").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"later");
    assert_eq!(names(&scratch).len(), 201, "what is another's stays");
}

/// Files of data are large, so what an ended process left of them is not to stay.
#[test]
fn what_nobody_writes_any_more_is_cleared() {
    let scratch = Scratch::new("output-cleared");
    let path = scratch.path().join("kept");
    let (written, file) = Unfinished::begin(&path).unwrap();
    let others = ["kept.1-x.unfinished", "kept.1-2", "other.1-2.unfinished"];
    for name in others.into_iter().chain(["kept.1-2.unfinished"]) {
        scratch.write(name, b"left");
    }
    OutputFile::new(&path).unwrap().clear();
    let left = names(&scratch);
    assert!(others.iter().all(|own| left.iter().any(|name| name == own)), "{left:?}");
    assert_eq!(left.len(), others.len() + 1, "{left:?}");
    written.finish(&file).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"", "who writes is in nobody's way");
}

#[cfg(target_os = "linux")]
#[test]
fn there_is_room_for_files_before_they_are_written() {
    let scratch = Scratch::new("output-room");
    let path = |name| scratch.path().join(name);
    let [first, second] =
        ["first", "second"].map(|name| OutputFile::new(&path(name)).unwrap());
    let demand = |sizes: [u64; 2]| {
        OutputFile::demand_room(&[(&first, Bytes(sizes[0])), (&second, Bytes(sizes[1]))])
    };
    demand([1, 1]).unwrap();
    // No disk has room for both, however large it is.
    let refused = demand([1, u64::MAX]).unwrap_err();
    assert!(
        matches!(&refused, OutputError::NoRoom { path, .. } if path.ends_with("second"))
    );
    assert!(refused.to_string().contains("are free there"), "{refused}");
}

#[test]
fn no_input_is_an_output() {
    let scratch = Scratch::new("output-inputs");
    scratch.write("read", b"earlier");
    let at = |name: &str| scratch.path().join(name);
    let refused = OutputFile::beside([at("other"), at("read")], &at("./read"));
    assert!(matches!(refused, Err(OutputError::Input { .. })));
    // What is not there is nobody's input.
    assert!(OutputFile::beside([at("other"), at("read")], &at("other")).is_ok());
}

#[test]
fn links_are_followed_and_rights_stay() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let scratch = Scratch::new("output-links");
    let at = |name: &str| scratch.path().join(name);
    scratch.write("there", b"earlier");
    fs::set_permissions(at("there"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::create_dir(at("folder")).unwrap();
    // From another folder, over two links, and to nothing yet.
    symlink("../there", at("folder/link")).unwrap();
    symlink("folder/link", at("links")).unwrap();
    symlink("folder/new", at("dangling")).unwrap();
    for (link, file) in [("links", "there"), ("dangling", "folder/new")] {
        OutputFile::new(&at(link)).unwrap().write(b"later").unwrap();
        assert!(at(link).is_symlink() && at(file).is_file() && !at(file).is_symlink());
        assert_eq!(fs::read(at(file)).unwrap(), b"later");
    }
    assert!(at("folder/link").is_symlink());
    let mode = fs::metadata(at("there")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    symlink("loop", at("loop")).unwrap();
    assert!(OutputFile::new(&at("loop")).is_err());
}

#[test]
fn what_is_no_file_takes_what_comes_or_is_refused() {
    use std::os::unix::{fs::symlink, net::UnixListener};
    let scratch = Scratch::new("output-streams");
    let at = |name: &str| scratch.path().join(name);
    symlink("/dev/null", at("nothing")).unwrap();
    OutputFile::new(&at("nothing")).unwrap().write(b"later").unwrap();
    assert!(at("nothing").is_symlink(), "nothing takes its place");
    let _socket = UnixListener::bind(at("socket")).unwrap();
    symlink("socket", at("to_socket")).unwrap();
    for name in ["socket", "to_socket"] {
        let refused = OutputFile::new(&at(name)).unwrap_err().to_string();
        assert!(refused.contains("it is not a file"), "{refused}");
    }
}
