//! Writes files atomically: configuration files of the operator and records of the state directory.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::host::real_path;
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Whether to follow symbolic links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Follow links and replace their targets: for files in a home directory.
    Follow,
    /// Refuse links: for files in a project, where a box may have created a link.
    Refuse,
}

/// Reads a text file of at most `limit` bytes. Returns `None` for a missing file.
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
        return Err(io::Error::other(format!(
            "the file is larger than the limit of {limit} bytes"
        )));
    }
    Ok(Some(text))
}

/// Replaces the content of a file atomically, if the current content is `old`.
///
/// A missing file counts as empty. Owner and mode of the file stay as they are.
pub fn replace(file: &Path, old: &str, new: &str, links: Links) -> io::Result<()> {
    let target = match links {
        Links::Follow => real_path(file).unwrap_or_else(|| file.to_owned()),
        Links::Refuse => file.to_owned(),
    };
    let dir =
        target.parent().ok_or_else(|| io::Error::other("the path has no parent directory"))?;
    if links == Links::Refuse && dir.symlink_metadata().is_ok_and(|dir| dir.is_symlink()) {
        return Err(io::Error::other(format!(
            "the directory {} is a symbolic link",
            dir.display()
        )));
    }
    fs::create_dir_all(dir)?;
    let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let temporary = dir.join(format!(".{name}.{}.new", std::process::id()));
    let replaced = write_like(&temporary, &target, new).and_then(|()| {
        let limit = old.len().max(1 << 10) as u64;
        if read(&target, limit, links).is_ok_and(|current| current.unwrap_or_default() == old) {
            fs::rename(&temporary, &target)?;
            return fs::File::open(dir)?.sync_all();
        }
        Err(io::Error::other(
            "another process changed the file in the meantime; nothing was written",
        ))
    });
    if replaced.is_err() {
        fs::remove_file(&temporary).ok(); // fails if the file was not created
    }
    replaced
}

/// Creates a file atomically, readable by its owner only. Returns `false` if the file already exists.
///
/// The file is on disk when the function returns.
pub fn create_new(dir: &Path, name: &str, text: &[u8]) -> io::Result<bool> {
    use std::os::unix::fs::PermissionsExt as _;
    let (temporary, mut file) = temporary_file(dir, name)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    let mut write = || -> io::Result<bool> {
        file.write_all(text)?;
        file.sync_all()?;
        match renameat_with(CWD, &temporary, CWD, dir.join(name), RenameFlags::NOREPLACE) {
            Ok(()) => sync_dir(dir).map(|()| true),
            Err(rustix::io::Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    };
    let created = write().map_err(|error| with_disk_full_hint(error, dir));
    if !matches!(created, Ok(true)) {
        fs::remove_file(&temporary).ok(); // fails if the file has its final name
    }
    created
}

/// Renames a file in a directory durably. Fails if a file with the new name exists.
pub fn rename(dir: &Path, from: &str, to: &str) -> io::Result<()> {
    renameat_with(CWD, dir.join(from), CWD, dir.join(to), RenameFlags::NOREPLACE)?;
    sync_dir(dir)
}

/// Waits until the entries of a directory are on disk.
fn sync_dir(dir: &Path) -> io::Result<()> {
    fs::File::open(dir)?.sync_all()
}

/// Writes a new file with the owner and mode of the file `like`.
fn write_like(file: &Path, like: &Path, text: &str) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
    let mut opened = fs::File::options().write(true).create_new(true).mode(0o600).open(file)?;
    if let Ok(model) = fs::symlink_metadata(like) {
        let new = opened.metadata()?;
        if (new.uid(), new.gid()) != (model.uid(), model.gid()) {
            std::os::unix::fs::fchown(&opened, Some(model.uid()), Some(model.gid()))?;
        }
        opened.set_permissions(model.permissions())?;
    }
    opened.write_all(text.as_bytes())?;
    opened.sync_all()
}

/// Writes a file atomically and waits until it is on disk.
pub fn write(dir: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    replace_file(dir, name, text, Sync::Yes)
}

/// Writes a file atomically without waiting for the disk. A power failure may restore the old content.
pub fn write_unsynced(dir: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    replace_file(dir, name, text, Sync::No)
}

/// Whether to wait until a file is on disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sync {
    Yes,
    No,
}

/// Replaces a file atomically.
fn replace_file(dir: &Path, name: &str, text: &[u8], sync: Sync) -> io::Result<()> {
    let (temporary, mut file) = temporary_file(dir, name)?;
    let mut write = || -> io::Result<()> {
        file.write_all(text)?;
        if sync == Sync::Yes {
            file.sync_all()?;
        }
        fs::rename(&temporary, dir.join(name))?;
        if sync == Sync::Yes {
            fs::File::open(dir)?.sync_all()?;
        }
        Ok(())
    };
    write().map_err(|error| {
        fs::remove_file(&temporary).ok(); // fails if the file has its final name
        with_disk_full_hint(error, dir)
    })
}

/// Adds advice to an error if the cause is a full disk.
pub fn with_disk_full_hint(error: io::Error, dir: &Path) -> io::Error {
    if !is_disk_full(&error) {
        return error;
    }
    let dir = dir.display();
    let text = format!(
        "{error}: make room on the disk of {dir}, or choose another state directory with BELLJAR_HOME"
    );
    io::Error::new(error.kind(), text)
}

/// Checks whether an error or one of its causes is a full disk or an exceeded quota.
pub fn is_disk_full(error: &(dyn std::error::Error + 'static)) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut causes = causes.filter_map(|error| error.downcast_ref::<io::Error>());
    causes.any(|error| matches!(error.kind(), StorageFull | QuotaExceeded))
}

/// Creates a temporary file in a directory, with a name derived from `name`.
///
/// Names of existing files are skipped: they belong to killed processes, or to processes with the same
/// process id in another namespace.
fn temporary_file(dir: &Path, name: &str) -> io::Result<(PathBuf, fs::File)> {
    const MAX_ATTEMPTS: usize = 1000;
    static COUNT: AtomicU64 = AtomicU64::new(0);
    for _ in 0..MAX_ATTEMPTS {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!(".{name}.{}-{count}.new", std::process::id()));
        match fs::File::create_new(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => {
                let file = created.map_err(|error| with_disk_full_hint(error, dir))?;
                return Ok((path, file));
            }
        }
    }
    Err(io::Error::other(format!(
        "cannot create a temporary file for {name}: too many leftover files"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_replaces_a_file_and_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["one", "another"] {
            write(dir.path(), "run.json", text.as_bytes()).unwrap();
            write_unsynced(dir.path(), "run.json", text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(dir.path().join("run.json")).unwrap(), text);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn write_skips_temporary_files_of_killed_processes() {
        let dir = tempfile::tempdir().unwrap();
        for count in 0..500 {
            let leftover = format!(".run.json.{}-{count}.new", std::process::id());
            fs::write(dir.path().join(leftover), "leftover").unwrap();
        }
        write(dir.path(), "run.json", b"new").unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("run.json")).unwrap(), "new");
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            501,
            "leftover files are not removed"
        );
    }

    #[test]
    fn failed_write_keeps_the_old_content_and_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("taken")).unwrap();
        fs::write(dir.path().join("taken/inside"), "x").unwrap();
        assert!(write(dir.path(), "taken", b"y").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn with_disk_full_hint_adds_advice_only_to_errors_of_a_full_disk() {
        let full = with_disk_full_hint(io::ErrorKind::StorageFull.into(), Path::new("/state"));
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        let text = full.to_string();
        assert!(text.contains("make room on the disk of /state"), "{text}");
        assert!(is_disk_full(anyhow::Error::new(full).context("cannot write run.json").as_ref()));
        let other = with_disk_full_hint(io::ErrorKind::NotFound.into(), Path::new("/state"));
        assert!(!is_disk_full(&other) && !other.to_string().contains("make room"), "{other}");
    }
}
