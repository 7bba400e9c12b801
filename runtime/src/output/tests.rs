//! What stands under a name stays until something whole takes its place.

use super::*;
use crate::scratch::Scratch;

#[test]
fn what_cannot_be_written_is_said_before_and_harms_nothing() {
    let scratch = Scratch::new("output-unwritable");
    let missing = scratch.path().join("nowhere/kept");
    for wrong in [&missing, scratch.path()] {
        let refused = OutputFile::new(wrong);
        assert!(matches!(refused, Err(OutputError::Unwritable { .. })));
    }
    let path = scratch.path().join("kept");
    scratch.write("kept", b"earlier");
    let output = OutputFile::new(&path).unwrap();
    // A folder in the way of the unfinished file.
    fs::create_dir(unfinished(&path)).unwrap();
    for refused in [output.write(b"later"), OutputFile::new(&path).map(drop)] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("kept.unfinished"), "{refused}");
    }
    assert_eq!(fs::read(&path).unwrap(), b"earlier");
    fs::remove_dir(unfinished(&path)).unwrap();
    let cut = |out: &mut File| {
        out.write_all(b"la")?;
        Err(io::Error::other("the disk is full"))
    };
    let refused = output.write_by(cut).unwrap_err();
    assert!(matches!(refused, OutputError::Write { .. }));
    assert!(refused.to_string().contains("the disk is full"), "{refused}");
    assert_eq!(fs::read(&path).unwrap(), b"earlier");
    assert!(!unfinished(&path).exists());
    output.write(b"later").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"later");
    assert!(!unfinished(&path).exists());
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

#[cfg(unix)]
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

#[cfg(unix)]
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
        assert!(refused.contains("it is no file"), "{refused}");
    }
}
