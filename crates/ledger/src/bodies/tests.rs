//! Tests of the body store on real files.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::frame::{self, LOG_MAGIC, LedgerId};
use crate::log::Log;
use crate::salts::{self, Salts};

const ID: LedgerId = LedgerId::new([7; 16]);

struct Home {
    _home: tempfile::TempDir,
    paths: LedgerPaths,
    bodies: Bodies,
}

/// A content that is generated while it is read.
struct Endless {
    left: u64,
    state: u64,
}

/// A writer that counts the bytes it receives.
#[derive(Default)]
struct Sink {
    count: u64,
    hash: Sha256,
}

impl Home {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let paths = LedgerPaths::under(home.path());
        fs::create_dir(paths.ledger()).unwrap();
        fs::write(paths.log(), frame::header(LOG_MAGIC, ID)).unwrap();
        Salts::create(&paths.salts(), ID).unwrap();
        let bodies = Bodies::open(&paths);
        Self { _home: home, paths, bodies }
    }

    fn keep(&self, content: &[u8]) -> Wanted {
        let salt = Salt::random().unwrap();
        let body = self.bodies.keep(&mut { content }, salt).unwrap();
        assert!(body.is_kept());
        assert_eq!(body.salt(), Some(salt));
        Wanted { hash: body.hash(), size: body.size(), salt }
    }

    fn path(&self, hash: Digest) -> PathBuf {
        let digits = hash.to_string();
        self.paths.bodies().join(&digits[..2]).join(&digits[2..])
    }

    fn index(&self) -> Index {
        Index::open(&self.paths, &Log::open(&self.paths.log()).unwrap()).unwrap()
    }

    fn salts(&self) -> Reading {
        Reading::open(&self.paths.salts(), ID).unwrap()
    }

    fn record(&self, body: &Body) {
        let salts = Salts::open(&self.paths.salts(), ID).unwrap();
        salts.append(&[(body.hash(), body.salt().unwrap())]).unwrap();
    }

    /// Reads a body that must be refused, checks that no byte was written and returns the error.
    #[track_caller]
    fn refused(&self, wanted: &Wanted) -> &'static str {
        let mut out = Vec::new();
        let error = self.bodies.read(wanted, &mut out).unwrap_err();
        assert_eq!(out, b"");
        let BodyError::Damaged { hash, why } = error else { panic!("{error:?}") };
        assert_eq!(hash, wanted.hash);
        assert_eq!(self.bodies.check(wanted).unwrap(), Condition::Damaged { why });
        why
    }
}

/// Returns the file of a body, built only from the description of the format.
fn file_of(hash: Digest, size: u64, compressed: &[u8]) -> Vec<u8> {
    let mut bytes = b"BJBODY1\n".to_vec();
    bytes.extend_from_slice(hash.as_bytes());
    bytes.extend_from_slice(&size.to_be_bytes());
    bytes.extend_from_slice(compressed);
    let check = Digest::of(&[&bytes]);
    bytes.extend_from_slice(check.as_bytes());
    bytes
}

fn commitment(salt: Salt, content: &[u8]) -> Digest {
    Digest::of(&[b"belljar body 1\0", salt.as_bytes(), content])
}

fn put(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn read(home: &Home, wanted: &Wanted) -> Vec<u8> {
    let mut out = Vec::new();
    home.bodies.read(wanted, &mut out).unwrap();
    out
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.left.min(buffer.len() as u64).min(10_007) as usize;
        for byte in &mut buffer[..count] {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (self.state >> 60) as u8;
        }
        self.left -= count as u64;
        Ok(count)
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.count += bytes.len() as u64;
        self.hash.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn stored_content_is_read_back_unchanged() {
    let home = Home::new();
    let long = vec![b'x'; 200_000];
    let exact = vec![0; 2 * 64 * 1024];
    for content in [b"".as_slice(), b"\0", b"\xff\xfe not UTF-8 \x80", b"a\0b", &long, &exact] {
        let wanted = home.keep(content);
        assert_eq!(wanted.size, content.len() as u64);
        assert_eq!(wanted.hash, commitment(wanted.salt, content));
        assert_eq!(read(&home, &wanted), content);
        assert_eq!(home.bodies.check(&wanted).unwrap(), Condition::Whole);
        let path = home.path(wanted.hash);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let directory = fs::metadata(path.parent().unwrap()).unwrap();
        assert_eq!(directory.permissions().mode() & 0o777, 0o700);
        // The file must match the description of the format.
        let bytes = fs::read(&path).unwrap();
        let compressed = &bytes[48..bytes.len() - 32];
        assert_eq!(zstd::decode_all(compressed).unwrap(), content);
        assert_eq!(bytes, file_of(wanted.hash, wanted.size, compressed));
    }
    assert_eq!(home.bodies.usage().unwrap().count, 6);
}

#[test]
fn body_file_built_from_the_format_description_is_read() {
    let home = Home::new();
    let (salt, content) = (Salt::new([5; 32]), b"content".as_slice());
    let hash = commitment(salt, content);
    let compressed = zstd::encode_all(content, 19).unwrap();
    put(&home.path(hash), &file_of(hash, 7, &compressed));
    assert_eq!(read(&home, &Wanted { hash, size: 7, salt }), content);
}

#[test]
fn large_content_is_streamed() {
    let home = Home::new();
    let size = 10 << 20; // many times the memory that is used at once
    let salt = Salt::random().unwrap();
    let body = home.bodies.keep(&mut Endless { left: size, state: 1 }, salt).unwrap();
    assert_eq!(body.size(), size);
    let mut out = Sink::default();
    home.bodies.read(&Wanted { hash: body.hash(), size, salt }, &mut out).unwrap();
    assert_eq!(out.count, size);
    let mut expected = Sink::default();
    io::copy(&mut Endless { left: size, state: 1 }, &mut expected).unwrap();
    assert_eq!(out.hash.finalize(), expected.hash.finalize());
    let usage = home.bodies.usage().unwrap();
    assert_eq!((usage.count, usage.content_bytes), (1, size));
    assert!(usage.disk_bytes < size && usage.disk_bytes > 1 << 16, "{usage:?}");
}

#[test]
fn h08_body_with_any_flipped_bit_is_refused() {
    let home = Home::new();
    let wanted = home.keep(b"what the run had sent, and what nobody may change");
    let path = home.path(wanted.hash);
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            fs::write(&path, &bytes).unwrap();
            home.refused(&wanted);
        }
    }
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        home.refused(&wanted);
    }
    fs::write(&path, [whole.as_slice(), b"\0"].concat()).unwrap();
    home.refused(&wanted);
    fs::write(&path, &whole).unwrap();
    assert_eq!(home.bodies.check(&wanted).unwrap(), Condition::Whole);
}

#[test]
fn h08_read_returns_no_byte_of_a_replaced_body() {
    let home = Home::new();
    let wanted = home.keep(b"the truth");
    let other = home.keep(b"a lie, you");
    let path = home.path(wanted.hash);
    let fits = "the content does not match its commitment";
    let start = "the file does not start like the file of this body";
    // Another content under this name, with valid checksums.
    let lie = zstd::encode_all(b"the  lie!".as_slice(), 3).unwrap();
    put(&path, &file_of(wanted.hash, 9, &lie));
    assert_eq!(home.refused(&wanted), fits);
    // Another body's file under this name.
    fs::copy(home.path(other.hash), &path).unwrap();
    assert_eq!(home.refused(&wanted), start);
    // The right content with another salt or size.
    let truth = zstd::encode_all(b"the truth".as_slice(), 3).unwrap();
    put(&path, &file_of(wanted.hash, 9, &truth));
    assert_eq!(read(&home, &wanted), b"the truth");
    assert_eq!(home.refused(&Wanted { salt: other.salt, ..wanted }), fits);
    assert_eq!(home.refused(&Wanted { size: 8, ..wanted }), start);
    put(&path, &file_of(wanted.hash, 8, &truth));
    assert_eq!(home.refused(&wanted), start);
    // Extra bytes after the content, inside and outside the compressed frame.
    let behind = "there are extra bytes after the content";
    put(&path, &file_of(wanted.hash, 9, &[truth.as_slice(), b"x"].concat()));
    assert_eq!(home.refused(&wanted), behind);
    put(&path, &file_of(wanted.hash, 9, &[truth.as_slice(), &truth].concat()));
    assert_eq!(home.refused(&wanted), behind);
    let skipped = [b"\x50\x2a\x4d\x18\x04\0\0\0skip".as_slice(), &truth].concat();
    put(&path, &file_of(wanted.hash, 9, &skipped));
    home.refused(&wanted);
    put(&path, &file_of(wanted.hash, 9, b"no zstd"));
    assert_eq!(home.refused(&wanted), "the content cannot be decompressed");
    put(&path, &file_of(wanted.hash, 9, b""));
    home.refused(&wanted);
}

#[test]
fn h08_decompression_bomb_is_refused() {
    let home = Home::new();
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    for _ in 0..4096 {
        encoder.write_all(&[0; 64 * 1024]).unwrap();
    }
    let bomb = encoder.finish().unwrap();
    assert!(bomb.len() < 1 << 20);
    let (hash, salt) = (Digest::of(&[b"x"]), Salt::new([1; 32]));
    put(&home.path(hash), &file_of(hash, 100, &bomb));
    assert_eq!(
        home.refused(&Wanted { hash, size: 100, salt }),
        "the content is longer than the header states"
    );
    // A frame that needs a window of 128 MiB.
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    encoder.window_log(27).unwrap();
    encoder.write_all(b"small").unwrap();
    encoder.flush().unwrap();
    let wide = encoder.finish().unwrap();
    let hash = commitment(salt, b"small");
    put(&home.path(hash), &file_of(hash, 5, &wide));
    assert_eq!(home.refused(&Wanted { hash, size: 5, salt }), "the content cannot be decompressed");
}

#[test]
fn h08_symbolic_link_to_a_body_is_not_followed() {
    let home = Home::new();
    let wanted = home.keep(b"content");
    let path = home.path(wanted.hash);
    let elsewhere = home.paths.ledger().join("elsewhere");
    // Control: the same file is valid at its own path.
    assert_eq!(read(&home, &wanted), b"content");
    fs::rename(&path, &elsewhere).unwrap();
    assert_eq!(home.bodies.check(&wanted).unwrap(), Condition::Missing);
    symlink(&elsewhere, &path).unwrap();
    home.refused(&wanted);
    assert_eq!(home.bodies.list().unwrap(), [Found::Foreign(path.clone())]);
    assert_eq!(home.bodies.usage().unwrap(), Usage::default());
    // Removing deletes the link and not its target.
    assert!(home.bodies.remove(wanted.hash).unwrap());
    assert!(elsewhere.exists());
    // A directory that is a symbolic link is not followed either.
    let subdirectory = path.parent().unwrap();
    let moved = home.paths.ledger().join("subdirectory");
    fs::rename(&elsewhere, &path).unwrap();
    fs::rename(subdirectory, &moved).unwrap();
    symlink(&moved, subdirectory).unwrap();
    home.refused(&wanted);
    assert_eq!(home.bodies.list().unwrap(), [Found::Foreign(subdirectory.to_owned())]);
    let error = home.bodies.remove(wanted.hash).unwrap_err();
    assert!(matches!(error, BodyError::File { doing: "remove", .. }), "{error:?}");
    assert!(moved.join(path.file_name().unwrap()).exists());
}

#[test]
fn pipe_or_directory_in_place_of_a_body_is_refused_without_blocking() {
    let home = Home::new();
    let wanted = home.keep(b"content");
    let path = home.path(wanted.hash);
    fs::remove_file(&path).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
    assert_eq!(home.refused(&wanted), "the path is not a regular file");
    assert_eq!(home.bodies.list().unwrap(), [Found::Foreign(path.clone())]);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(home.refused(&wanted), "the path is not a regular file");
}

#[test]
fn list_reports_foreign_files() {
    let home = Home::new();
    assert_eq!(home.bodies.list().unwrap(), []);
    let wanted = home.keep(b"content");
    let bodies = home.paths.bodies();
    let unfinished = bodies.join(format!("new-{}", "0".repeat(32)));
    let upper = home.path(wanted.hash).parent().unwrap().join("A".repeat(62));
    let foreign = [bodies.join("README"), bodies.join("new-x"), upper];
    fs::write(&unfinished, b"").unwrap();
    foreign.iter().for_each(|path| fs::write(path, b"").unwrap());
    fs::create_dir(bodies.join("zz")).unwrap();
    fs::write(bodies.join("zz").join("0".repeat(62)), b"").unwrap();
    let found = home.bodies.list().unwrap();
    assert_eq!(found.len(), 6);
    assert!(found.contains(&Found::Body(wanted.hash)));
    assert!(found.contains(&Found::Unfinished(unfinished)));
    for path in foreign {
        assert!(found.contains(&Found::Foreign(path)));
    }
    assert!(found.contains(&Found::Foreign(bodies.join("zz").join("0".repeat(62)))));
}

#[test]
fn removed_body_is_reported_as_missing() {
    let home = Home::new();
    let wanted = home.keep(b"content");
    assert!(home.bodies.remove(wanted.hash).unwrap());
    assert!(!home.bodies.remove(wanted.hash).unwrap());
    assert_eq!(home.bodies.check(&wanted).unwrap(), Condition::Missing);
    let error = home.bodies.read(&wanted, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, BodyError::Missing { hash } if hash == wanted.hash), "{error:?}");
    assert_eq!(home.bodies.usage().unwrap(), Usage::default());
}

#[test]
fn unreadable_content_leaves_no_file() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("broken"))
        }
    }
    let home = Home::new();
    let mut content = b"some".chain(Broken);
    let error = home.bodies.keep(&mut content, Salt::new([1; 32])).unwrap_err();
    assert!(matches!(error, BodyError::Content { .. }), "{error:?}");
    assert_eq!(home.bodies.list().unwrap(), []);
    assert_eq!(fs::read_dir(home.paths.bodies()).unwrap().count(), 0);
}

#[test]
fn read_reports_an_output_that_cannot_be_written() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let home = Home::new();
    let wanted = home.keep(b"content");
    let error = home.bodies.read(&wanted, &mut Full).unwrap_err();
    assert!(
        matches!(&error, BodyError::Out { source, .. } if source.kind() == io::ErrorKind::StorageFull),
        "{error:?}"
    );
}

#[test]
fn h17_body_is_shared_only_within_one_policy() {
    let home = Home::new();
    let (index, salts) = (home.index(), home.salts());
    let (here, there) = (Digest::of(&[b"here"]), Digest::of(&[b"there"]));
    let keep = |scope, content: &[u8]| {
        home.bodies.keep_once(&index, &salts, scope, &mut { content }).unwrap()
    };
    let first = keep(here, b"content");
    home.record(&first);
    let again = keep(here, b"content");
    assert_eq!((again.hash(), again.size(), again.is_kept()), (first.hash(), 7, true));
    assert_eq!(again.salt(), None);
    let elsewhere = keep(there, b"content");
    assert_ne!(elsewhere.hash(), first.hash());
    assert!(elsewhere.salt().is_some());
    let other = keep(here, b"contents");
    assert_ne!(other.hash(), first.hash());
    assert_eq!(home.bodies.usage().unwrap().count, 3);
    assert_eq!(
        fs::read_dir(home.paths.bodies())
            .unwrap()
            .filter(|entry| {
                entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("new-")
            })
            .count(),
        0
    );
}

#[test]
fn h17_unusable_body_is_not_shared() {
    let home = Home::new();
    let (index, salts) = (home.index(), home.salts());
    let scope = Digest::of(&[b"scope"]);
    let keep = || home.bodies.keep_once(&index, &salts, scope, &mut b"content".as_slice()).unwrap();
    // The salt was never recorded and is lost.
    let unrecorded = keep();
    let first = keep();
    assert_ne!(first.hash(), unrecorded.hash());
    home.record(&first);
    assert_eq!(keep().hash(), first.hash());
    // The file of the body is damaged.
    let path = home.path(first.hash());
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[1..]).unwrap();
    let second = keep();
    assert_ne!(second.hash(), first.hash());
    home.record(&second);
    assert_eq!(keep().hash(), second.hash());
    // The body was redacted: its salt is erased.
    salts::erase(&home.paths.salts(), &[second.hash()]).unwrap();
    let third = keep();
    assert_ne!(third.hash(), second.hash());
    home.record(&third);
    assert_eq!(keep().hash(), third.hash());
    // The body was removed.
    home.bodies.remove(third.hash()).unwrap();
    let fourth = keep();
    assert_ne!(fourth.hash(), third.hash());
    home.record(&fourth);
    index.forget_contents(&[fourth.hash()]).unwrap();
    assert_ne!(keep().hash(), fourth.hash());
}

#[test]
fn salt_is_found_by_index_and_read_from_the_file_each_time() {
    let home = Home::new();
    let (index, reading) = (home.index(), home.salts());
    let file = Salts::open(&home.paths.salts(), ID).unwrap();
    let hash = |number: u64| Digest::of(&[&number.to_be_bytes()]);
    let salt = |number: u8| Salt::new([number; 32]);
    let many: Vec<_> =
        (0..20_000).map(|number| (hash(number), salt((number % 250) as u8 + 1))).collect();
    file.append(&many).unwrap();
    assert_eq!(index.salt(&reading, hash(19_999)).unwrap(), Some(Kept::Salt(salt(250))));
    assert_eq!(index.salt(&reading, hash(20_000)).unwrap(), None);
    file.append(&[(hash(20_000), salt(9)), (hash(3), salt(8))]).unwrap();
    assert_eq!(index.salt(&reading, hash(20_000)).unwrap(), Some(Kept::Salt(salt(9))));
    salts::erase(&home.paths.salts(), &[hash(20_000)]).unwrap();
    assert_eq!(index.salt(&reading, hash(20_000)).unwrap(), Some(Kept::Erased));
    // Another index over the same file, and a file that was restored from a copy.
    assert_eq!(home.index().salt(&reading, hash(5)).unwrap(), Some(Kept::Salt(salt(6))));
    let length = fs::metadata(home.paths.salts()).unwrap().len();
    fs::OpenOptions::new()
        .write(true)
        .open(home.paths.salts())
        .unwrap()
        .set_len(length - 2 * 72)
        .unwrap();
    assert_eq!(index.salt(&reading, hash(20_000)).unwrap(), None);
    file.append(&[(hash(30_000), salt(1)), (hash(30_001), salt(2))]).unwrap();
    assert_eq!(index.salt(&reading, hash(30_001)).unwrap(), Some(Kept::Salt(salt(2))));
    assert_eq!(index.salt(&reading, hash(20_000)).unwrap(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_content_is_read_back_unchanged(
        seed in any::<u64>(),
        size in prop_oneof![0..300_u64, 65_530..65_545_u64, 0..300_000_u64],
    ) {
        let home = Home::new();
        let mut content = Vec::new();
        Endless { left: size, state: seed }.read_to_end(&mut content).unwrap();
        let wanted = home.keep(&content);
        prop_assert_eq!(read(&home, &wanted), content);
    }
}
