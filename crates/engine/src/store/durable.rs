//! Puts a new text in the place of a file of the operator's own: whole or not at all, as the file was
//! before, and only if nobody else wrote it meanwhile. Also creates records of the store durably.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::host::real_path;
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Whether what a name leads to may lie elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// In a home: a link stays one, and what it leads to is replaced.
    Follow,
    /// In a project, where a box may have made it.
    Refuse,
}

/// The text of a file; `None` when there is none.
pub fn read(file: &Path, limit: u64, links: Links) -> io::Result<Option<String>> {
    use rustix::fs::OFlags;
    use std::os::unix::fs::OpenOptionsExt as _;
    let flags = match links {
        Links::Follow => OFlags::NONBLOCK,
        Links::Refuse => OFlags::NONBLOCK | OFlags::NOFOLLOW,
    };
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let opened = match fs::File::options().read(true).custom_flags(flags).open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if !opened.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut text = String::new();
    opened.take(limit + 1).read_to_string(&mut text)?;
    if text.len() as u64 > limit {
        return Err(io::Error::other(format!("larger than {limit} bytes")));
    }
    Ok(Some(text))
}

/// Replaces a file if it still holds `old`; one that is not there holds nothing.
pub fn replace(file: &Path, old: &str, new: &str, links: Links) -> io::Result<()> {
    let target = match links {
        Links::Follow => real_path(file).unwrap_or_else(|| file.to_owned()),
        Links::Refuse => file.to_owned(),
    };
    let dir = target.parent().ok_or_else(|| io::Error::other("the file is in no directory"))?;
    if links == Links::Refuse && dir.symlink_metadata().is_ok_and(|dir| dir.is_symlink()) {
        return Err(io::Error::other(format!("{} is a link", dir.display())));
    }
    fs::create_dir_all(dir)?;
    let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let beside = dir.join(format!(".{name}.{}.new", std::process::id()));
    let replaced = fill(&beside, &target, new).and_then(|()| {
        let limit = old.len().max(1 << 10) as u64;
        if read(&target, limit, links).is_ok_and(|now| now.unwrap_or_default() == old) {
            fs::rename(&beside, &target)?;
            return fs::File::open(dir)?.sync_all();
        }
        Err(io::Error::other("somebody else changed it meanwhile; nothing was written"))
    });
    if replaced.is_err() {
        fs::remove_file(&beside).ok(); // it may not have come to be
    }
    replaced
}

/// Writes a file that must not be there yet: whole or not at all, on the disk when this returns, and
/// readable for its owner only. False if there is a file of this name already.
pub fn create(dir: &Path, name: &str, text: &[u8]) -> io::Result<bool> {
    use std::os::unix::fs::PermissionsExt as _;
    let (beside, mut file) = beside(dir, name)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    let mut put = || -> io::Result<bool> {
        file.write_all(text)?;
        file.sync_all()?;
        match renameat_with(CWD, &beside, CWD, dir.join(name), RenameFlags::NOREPLACE) {
            Ok(()) => sync(dir).map(|()| true),
            Err(rustix::io::Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    };
    let created = put().map_err(|error| explained(error, dir));
    if !matches!(created, Ok(true)) {
        fs::remove_file(&beside).ok(); // it may not have come to be, or have its name by now
    }
    created
}

/// Gives a file another name in the same directory. It must be free.
pub fn rename(dir: &Path, from: &str, to: &str) -> io::Result<()> {
    renameat_with(CWD, dir.join(from), CWD, dir.join(to), RenameFlags::NOREPLACE)?;
    sync(dir)
}

/// Waits until the names in a directory are on the disk.
fn sync(dir: &Path) -> io::Result<()> {
    fs::File::open(dir)?.sync_all()
}

/// Writes a new file as its predecessor was: of the same owner, for the same readers.
fn fill(file: &Path, like: &Path, text: &str) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
    let mut opened = fs::File::options().write(true).create_new(true).mode(0o600).open(file)?;
    if let Ok(before) = fs::symlink_metadata(like) {
        let own = opened.metadata()?;
        if (own.uid(), own.gid()) != (before.uid(), before.gid()) {
            std::os::unix::fs::fchown(&opened, Some(before.uid()), Some(before.gid()))?;
        }
        opened.set_permissions(before.permissions())?;
    }
    opened.write_all(text.as_bytes())?;
    opened.sync_all()
}

/// Writes a file of the state directory, whole or not at all, and waits for the disk.
pub fn write(dir: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    put(dir, name, text, Sync::Yes)
}

/// The same without waiting for the disk: after a loss of power the old content may be back.
pub fn write_soon(dir: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    put(dir, name, text, Sync::No)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sync {
    Yes,
    No,
}

fn put(dir: &Path, name: &str, text: &[u8], sync: Sync) -> io::Result<()> {
    let (new, mut file) = beside(dir, name)?;
    let mut written = || -> io::Result<()> {
        file.write_all(text)?;
        if sync == Sync::Yes {
            file.sync_all()?;
        }
        fs::rename(&new, dir.join(name))?;
        if sync == Sync::Yes {
            fs::File::open(dir)?.sync_all()?;
        }
        Ok(())
    };
    written().map_err(|error| {
        fs::remove_file(&new).ok(); // it may have its name by now
        explained(error, dir)
    })
}

/// Adds what to do to the error of a full disk.
pub fn explained(error: io::Error, dir: &Path) -> io::Error {
    if !is_full(&error) {
        return error;
    }
    let dir = dir.display();
    let text = format!(
        "{error}: make room on the disk of {dir}, or name another state directory with BELLJAR_HOME"
    );
    io::Error::new(error.kind(), text)
}

/// Whether the reason of an error is a full disk.
pub fn is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut causes = causes.filter_map(|error| error.downcast_ref::<io::Error>());
    causes.any(|error| matches!(error.kind(), StorageFull | QuotaExceeded))
}

/// A new file beside the one of this name. Another process may have the same id in a namespace of its own,
/// and a killed one may have left a file: both are passed over.
fn beside(dir: &Path, name: &str) -> io::Result<(PathBuf, fs::File)> {
    const TRIES: usize = 1000;
    static COUNT: AtomicU64 = AtomicU64::new(0);
    for _ in 0..TRIES {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!(".{name}.{}-{count}.new", std::process::id()));
        match fs::File::create_new(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => {
                let file = created.map_err(|error| explained(error, dir))?;
                return Ok((path, file));
            }
        }
    }
    Err(io::Error::other(format!("too many unfinished copies of {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_else_stays_behind() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["one", "another"] {
            write(dir.path(), "run.json", text.as_bytes()).unwrap();
            write_soon(dir.path(), "run.json", text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(dir.path().join("run.json")).unwrap(), text);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_write_passes_over_files_that_killed_processes_left() {
        let dir = tempfile::tempdir().unwrap();
        for count in 0..500 {
            let left = format!(".run.json.{}-{count}.new", std::process::id());
            fs::write(dir.path().join(left), "left").unwrap();
        }
        write(dir.path(), "run.json", b"new").unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("run.json")).unwrap(), "new");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 501, "no file of others is removed");
    }

    #[test]
    fn a_failed_write_keeps_the_old_content_and_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("taken")).unwrap();
        fs::write(dir.path().join("taken/inside"), "x").unwrap();
        assert!(write(dir.path(), "taken", b"y").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn error_of_a_full_disk_says_what_to_do_and_other_errors_stay() {
        let full = explained(io::ErrorKind::StorageFull.into(), Path::new("/state"));
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        let text = full.to_string();
        assert!(text.contains("make room on the disk of /state"), "{text}");
        assert!(is_full(anyhow::Error::new(full).context("write run.json").as_ref()));
        let other = explained(io::ErrorKind::NotFound.into(), Path::new("/state"));
        assert!(!is_full(&other) && !other.to_string().contains("make room"), "{other}");
    }
}
