//! The tools that read and change files.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags};

use super::{MAX_RESULT, Outcome};

/// The maximum size of a file that a tool reads, in bytes.
const MAX_FILE: u64 = 32 << 20;

/// Returns lines of a text file, and how to read on if it continues.
pub(super) fn read(path: &Path, offset: u64, limit: u64) -> Outcome {
    let text = content(path)?;
    let skipped = usize::try_from(offset.saturating_sub(1)).unwrap_or(usize::MAX);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut found = String::new();
    let mut count = 0;
    for line in text.split_inclusive('\n').skip(skipped).take(limit) {
        // A single line that is too long is cut like any result.
        if count > 0 && found.len() + line.len() > MAX_RESULT - 256 {
            break;
        }
        found.push_str(line);
        count += 1;
    }
    let lines = text.split_inclusive('\n').count();
    let next = skipped.saturating_add(count);
    if count == 0 && lines > 0 {
        return Err(format!("the file has {lines} lines"));
    }
    if next < lines {
        let more = lines - next;
        found.push_str(&format!(
            "\n[belljar: the file has {more} more lines; read on with offset {}]",
            next + 1
        ));
    }
    Ok(found)
}

/// Replaces the content of a file.
pub(super) fn write(path: &Path, content: &str) -> Outcome {
    if let Some(above) = path.parent() {
        fs::create_dir_all(above).map_err(|error| format!("cannot create a directory: {error}"))?;
    }
    let mut file = open(path, OFlags::WRONLY | OFlags::CREATE)?;
    let written = file.set_len(0).and_then(|()| file.write_all(content.as_bytes()));
    written.map_err(|error| format!("cannot write the file: {error}"))?;
    Ok(format!("wrote {} bytes", content.len()))
}

/// Replaces a text in a file.
pub(super) fn edit(path: &Path, old: &str, new: &str, all: bool) -> Outcome {
    if old.is_empty() {
        return Err("`old` is empty; use `write` to create a file".to_owned());
    }
    let text = content(path)?;
    let count = text.matches(old).count();
    match (count, all) {
        (0, _) => return Err("the file does not contain `old`".to_owned()),
        (1, _) | (_, true) => {}
        (count, false) => {
            return Err(format!(
                "the file contains `old` {count} times; make it longer or set `all`"
            ));
        }
    }
    write(path, &text.replace(old, new))?;
    Ok(format!("replaced {count} times"))
}

/// Returns the path relative to the workspace with all links followed, or `None` if it is outside.
///
/// The end of a path that does not exist yet is taken as it is.
pub(super) fn relative(workspace: &Path, path: &Path) -> Result<Option<Vec<u8>>, String> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let real = |path: &Path| {
        let opened = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())).ok()
    };
    let mut missing = Vec::new();
    let mut known = path;
    let found = loop {
        if let Some(found) = real(known) {
            break found;
        }
        let above = known.components().next_back().zip(known.parent());
        let Some((Component::Normal(name), above)) = above else {
            return Err("the path is not valid".to_owned());
        };
        missing.push(name);
        known = above;
    };
    let found = missing.into_iter().rev().fold(found, |path, name| path.join(name));
    let root = real(workspace).ok_or("the workspace is missing")?;
    Ok(found.strip_prefix(root).ok().map(|inside| inside.as_os_str().as_bytes().to_vec()))
}

fn content(path: &Path) -> Result<String, String> {
    let file = open(path, OFlags::RDONLY)?;
    let mut bytes = Vec::new();
    let read = file.take(MAX_FILE + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("cannot read the file: {error}"))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(format!("the file is larger than {MAX_FILE} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "the file is not text in UTF-8".to_owned())
}

/// Opens a regular file. Other kinds of files could block for ever.
fn open(path: &Path, flags: OFlags) -> Result<File, String> {
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::from_raw_mode(0o666));
    let opened: OwnedFd =
        opened.map_err(|error| format!("cannot open {}: {error}", path.display()))?;
    let file = File::from(opened);
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(file),
        Ok(_) => Err(format!("{} is not a regular file", path.display())),
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_read_by_lines_and_says_how_to_read_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, "one\ntwo\nthree\n").unwrap();
        assert_eq!(read(&path, 1, 10).unwrap(), "one\ntwo\nthree\n");
        let part = read(&path, 2, 1).unwrap();
        assert!(part.starts_with("two\n\n[belljar: the file has 1 more lines"), "{part}");
        assert!(part.contains("offset 3"), "{part}");
        assert!(read(&path, 9, 1).unwrap_err().contains("3 lines"));
        fs::write(&path, "x".repeat(100).repeat(2000) + "\nlast").unwrap();
        assert!(read(&path, 1, 10).unwrap().contains("offset 2"));
    }

    #[test]
    fn only_regular_text_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("binary"), [0xff, 0]).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.path().join("fifo"),
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        for (path, expected) in [
            (dir.path().join("binary"), "not text"),
            (dir.path().join("fifo"), "not a regular file"),
            (dir.path().to_owned(), "not a regular file"),
            (dir.path().join("none"), "cannot open"),
            ("/dev/zero".into(), "not a regular file"),
        ] {
            let error = read(&path, 1, 1).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert!(write(&dir.path().join("fifo"), "x").is_err());
    }

    #[test]
    fn edit_needs_exactly_one_occurrence_unless_all_are_meant() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/a");
        write(&path, "a b a").unwrap();
        assert!(edit(&path, "a", "c", false).unwrap_err().contains("2 times"));
        assert!(edit(&path, "z", "c", false).unwrap_err().contains("does not contain"));
        assert!(edit(&path, "", "c", true).is_err());
        edit(&path, "b", "longer", false).unwrap();
        edit(&path, "a", "c", true).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "c longer c");
        write(&path, "x").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "x");
    }

    #[test]
    fn path_for_the_rules_has_no_links_and_no_dots() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("ci")).unwrap();
        std::os::unix::fs::symlink("ci", dir.path().join("link")).unwrap();
        let of = |path: &str| relative(dir.path(), &dir.path().join(path));
        let inside = |path: &str| String::from_utf8(of(path).unwrap().unwrap()).unwrap();
        assert_eq!(inside("ci"), "ci");
        assert_eq!(inside("link/new/x"), "ci/new/x");
        assert_eq!(inside("ci/../link"), "ci");
        assert_eq!(of("/etc").unwrap(), None);
        assert!(of("none/../ci").is_err());
    }
}
