use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use proptest::prelude::*;

use super::*;

const LIMITS: UnpackLimits = UnpackLimits { bytes: 1 << 20, replace: false };

fn header(path: &str, kind: Kind, size: u64) -> Vec<u8> {
    Header { path: path.as_bytes().to_vec(), kind, mode: 0o644, size, modified: 0 }.encode()
}

/// Returns one file of a stream.
fn file(path: &str, content: &str) -> Vec<u8> {
    let size = u64::try_from(content.len()).unwrap();
    [header(path, Kind::File, size), content.as_bytes().to_vec(), tar::padding(size).to_vec()]
        .concat()
}

/// Returns an entry with another kind: the header of a file with a changed byte and checksum.
fn other(path: &str, kind: u8, link: &str) -> Vec<u8> {
    let mut block = header(path, Kind::File, 0);
    block[156] = kind;
    block[157..157 + link.len()].copy_from_slice(link.as_bytes());
    block[148..156].copy_from_slice(b"        ");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

fn stream(entries: &[Vec<u8>]) -> Vec<u8> {
    [entries.concat(), tar::END.to_vec()].concat()
}

fn unpack_to(entries: &[Vec<u8>], to: &Path) -> Result<Transferred, TransferError> {
    unpack(&mut stream(entries).as_slice(), b"x", to, LIMITS)?.keep()
}

/// Returns the names in a directory.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn packed_directory_is_unpacked_with_its_contents_and_executable_bits() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    let long = "d".repeat(90);
    fs::create_dir_all(source.join(&long).join(&long)).unwrap();
    fs::write(source.join("a"), "hello").unwrap();
    fs::write(source.join(&long).join(&long).join("deep"), vec![7; 100_000]).unwrap();
    fs::write(source.join("tool"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(source.join("tool"), fs::Permissions::from_mode(0o4755)).unwrap();
    symlink("/etc/passwd", source.join("link")).unwrap();
    let mut packed = Vec::new();
    let done = pack(&source, &mut packed).unwrap();
    assert_eq!(done, Transferred { files: 3, bytes: 100_015, left_out: 1 });
    let to = dir.path().join("copy");
    let unpacked = unpack(&mut packed.as_slice(), PACKED_NAME.as_bytes(), &to, LIMITS).unwrap();
    assert!(!to.exists(), "the copy has no name until it is kept");
    assert_eq!(unpacked.keep().unwrap(), Transferred { left_out: 0, ..done });
    assert_eq!(names(&to), ["a", &long, "tool"]);
    assert_eq!(fs::read(to.join(&long).join(&long).join("deep")).unwrap(), vec![7; 100_000]);
    let mode = |name: &str| fs::metadata(to.join(name)).unwrap().permissions().mode();
    assert_eq!((mode("tool") & 0o4100, mode("a") & 0o100), (0o100, 0));
    assert_eq!(names(dir.path()), ["copy", "source"], "no temporary file stays");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the real tar program is the other side")]
fn archive_of_the_tar_program_is_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("x");
    fs::create_dir_all(source.join("sub")).unwrap();
    fs::write(source.join("one"), "1").unwrap();
    fs::hard_link(source.join("one"), source.join("sub/two")).unwrap();
    fs::write(source.join("n".repeat(150)), "long").unwrap();
    symlink("one", source.join("link")).unwrap();
    for format in ["gnu", "posix", "ustar"] {
        let mut tar = std::process::Command::new("tar");
        if format == "ustar" {
            tar.arg("--exclude=nnn*"); // the format has no name of this length
        }
        tar.args(["-C", dir.path().to_str().unwrap(), "--format", format, "-cf", "-", "x"]);
        let out = tar.output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let to = dir.path().join(format);
        let done = unpack(&mut out.stdout.as_slice(), b"x", &to, LIMITS).unwrap().keep().unwrap();
        assert_eq!(done.left_out, 1, "{format}");
        assert_eq!(fs::read(to.join("one")).unwrap(), b"1", "{format}");
        assert_eq!(fs::read(to.join("sub/two")).unwrap(), b"1", "{format}");
        assert_eq!(to.join("n".repeat(150)).exists(), format != "ustar");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the real tar program is the other side")]
fn tar_program_unpacks_a_packed_directory() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("n".repeat(200)), "long").unwrap();
    fs::write(source.join("empty"), "").unwrap();
    let archive = dir.path().join("archive.tar");
    pack(&source, &mut File::create(&archive).unwrap()).unwrap();
    let to = dir.path().join("to");
    fs::create_dir(&to).unwrap();
    let status = std::process::Command::new("tar")
        .args(["-C", to.to_str().unwrap(), "-xf", archive.to_str().unwrap()])
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(names(&to.join(PACKED_NAME)), ["empty", &"n".repeat(200)]);
}

#[test]
fn c10_unpack_refuses_names_that_lead_out_of_the_destination() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("to");
    let root = || header("x/", Kind::Directory, 0);
    for entries in [
        vec![file("../escaped", "evil")],
        vec![file("/tmp/escaped", "evil")],
        vec![root(), file("x/../escaped", "evil")],
        vec![root(), file("y", "evil")],
        vec![root(), file("x/missing/f", "evil")],
        vec![root(), root()],
        vec![root(), file("x/f", "1"), file("x/f", "2")],
        vec![root(), file("x/f", "1"), header("x/f", Kind::Directory, 0)],
        vec![file("x", "1"), file("x/below", "2")],
        vec![root(), other("x/hard", b'1', "x/../../secret")],
        vec![root(), other("x/hard", b'1', "x/missing")],
        vec![other("x", b'2', "/etc")],
        vec![],
    ] {
        let refused = unpack_to(&entries, &to);
        assert!(refused.is_err(), "{refused:?}");
        assert_eq!(names(dir.path()), Vec::<String>::new(), "nothing stays");
    }
    // Control: a valid stream is unpacked.
    unpack_to(&[root(), file("x/f", "1"), other("x/hard", b'1', "x/f")], &to).unwrap();
    assert_eq!(fs::read(to.join("hard")).unwrap(), b"1");
}

#[test]
fn c10_unpack_creates_no_link_and_no_special_file() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("to");
    let secret = dir.path().join("secret");
    fs::write(&secret, "mine").unwrap();
    // A file after a link of the same name would be written through the link.
    let entries = [
        header("x/", Kind::Directory, 0),
        other("x/link", b'2', secret.to_str().unwrap()),
        file("x/link", "evil"),
        other("x/pipe", b'6', ""),
        other("x/device", b'3', ""),
    ];
    let done = unpack_to(&entries, &to).unwrap();
    assert_eq!(done.left_out, 3);
    assert_eq!(names(&to), ["link"]);
    assert!(fs::symlink_metadata(to.join("link")).unwrap().is_file());
    assert_eq!(fs::read(&secret).unwrap(), b"mine");
}

#[test]
fn unpack_refuses_existing_linked_and_special_destinations() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("file"), "old").unwrap();
    fs::create_dir(path("dir")).unwrap();
    symlink(path("elsewhere"), path("link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let one = [file("x", "new")];
    assert!(matches!(unpack_to(&one, &path("file")), Err(TransferError::Exists { .. })));
    assert!(matches!(unpack_to(&one, &path("dir")), Err(TransferError::Exists { .. })));
    let replace = UnpackLimits { replace: true, ..LIMITS };
    for limits in [LIMITS, replace] {
        let unpack = |to: &Path| unpack(&mut stream(&one).as_slice(), b"x", to, limits);
        assert!(matches!(unpack(&path("link")), Err(TransferError::Link { .. })));
        assert!(matches!(unpack(&path("pipe")), Err(TransferError::Special { .. })));
        assert!(matches!(unpack(Path::new("/dev/null")), Err(TransferError::Special { .. })));
        assert!(matches!(unpack(&path("none/file")), Err(TransferError::Open { .. })));
    }
    assert_eq!(fs::read(path("file")).unwrap(), b"old");
    drop(unpack(&mut stream(&one).as_slice(), b"x", &path("file"), replace).unwrap());
    assert_eq!(fs::read(path("file")).unwrap(), b"old", "a copy that is dropped has no effect");
    unpack(&mut stream(&one).as_slice(), b"x", &path("file"), replace).unwrap().keep().unwrap();
    assert_eq!(fs::read(path("file")).unwrap(), b"new");
    assert!(!path("elsewhere").exists());
}

#[test]
fn unpack_stops_at_the_size_limit() {
    let dir = tempfile::tempdir().unwrap();
    let small = UnpackLimits { bytes: 9, ..LIMITS };
    let entries =
        stream(&[header("x/", Kind::Directory, 0), file("x/a", "12345"), file("x/b", "12345")]);
    let to = dir.path().join("to");
    let error = unpack(&mut entries.as_slice(), b"x", &to, small).unwrap_err();
    assert!(matches!(error, TransferError::TooLarge { limit: 9 }), "{error}");
    assert!(!to.exists());
    // A huge size in a header needs no memory and no content.
    let huge = stream(&[header("x", Kind::File, u64::MAX)]);
    assert!(unpack(&mut huge.as_slice(), b"x", &to, LIMITS).is_err());
}

#[test]
fn c10_pack_does_not_follow_a_link_that_the_user_names() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("link");
    symlink("/etc/passwd", &link).unwrap();
    let mut out = Vec::new();
    assert!(matches!(pack(&link, &mut out), Err(TransferError::Link { .. })));
    assert!(matches!(pack(Path::new("/dev/null"), &mut out), Err(TransferError::Special { .. })));
    let missing = pack(&dir.path().join("missing"), &mut out);
    assert!(matches!(missing, Err(TransferError::Open { .. })));
    assert!(out.is_empty());
}

#[test]
fn pack_reports_a_file_that_changes_while_it_is_read() {
    /// A writer that appends to the copied file when the first content arrives.
    struct Growing(PathBuf);
    impl Write for Growing {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if bytes.first() == Some(&b'y') {
                fs::OpenOptions::new().append(true).open(&self.0)?.write_all(b"more")?;
            }
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "y").unwrap();
    let changed = pack(&path, &mut Growing(path.clone()));
    assert!(matches!(changed, Err(TransferError::Changed { .. })), "{changed:?}");
}

proptest! {
    #[test]
    fn unpack_of_random_bytes_fails_and_leaves_nothing(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("to");
        prop_assert!(unpack(&mut bytes.as_slice(), b"x", &to, LIMITS).is_err());
        prop_assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn header_is_read_as_it_was_written(path in "[a-z/.é]{1,300}", size in 0..u64::MAX / 2, mode in 0..0o777_u32) {
        let header = Header { path: path.into_bytes(), kind: Kind::File, mode, size, modified: 0 };
        let read = tar::read(&mut header.encode().as_slice()).unwrap().unwrap();
        prop_assert_eq!(read, header);
    }
}
