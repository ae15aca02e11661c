//! Lists the stored bodies and their disk usage.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use rustix::fs::{AtFlags, Dir, FileType, Mode};
use rustix::io::Errno;

use super::{Bodies, BodyError, DIRECTORY, Finding, UNFINISHED, file};
use crate::digest::Digest;

/// The number and size of the stored bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub count: u64,
    /// The disk space of the files in bytes.
    pub disk_bytes: u64,
    /// The total size of the uncompressed contents in bytes.
    pub content_bytes: u64,
}

/// One entry found in `bodies/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Body(Digest),
    /// A content whose storing was interrupted or is in progress.
    Unfinished(PathBuf),
    /// A file that Belljar did not create; symbolic links are not followed.
    Foreign(PathBuf),
}

impl Bodies {
    /// Returns all entries of `bodies/`, unsorted.
    pub(crate) fn list(&self) -> Result<Vec<Found>, BodyError> {
        let failed =
            |source| BodyError::File { doing: "list", path: self.directory.clone(), source };
        let top = match self.top() {
            Ok(top) => top,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut found = Vec::new();
        for subdirectory in names(&top).map_err(failed)? {
            let digits = subdirectory.to_str().filter(|name| name.len() == 2);
            let opened =
                digits.map(|name| rustix::fs::openat(&top, name, DIRECTORY, Mode::empty()));
            match (digits, opened) {
                (Some(digits), Some(Ok(directory))) => {
                    self.list_subdirectory(digits, &directory.into(), &mut found)
                        .map_err(failed)?;
                }
                (_, Some(Err(Errno::NOENT))) => {}
                _ => found.push(self.stray(&top, &subdirectory)),
            }
        }
        Ok(found)
    }

    /// Returns the number and size of the stored bodies.
    pub(crate) fn usage(&self) -> Result<Usage, BodyError> {
        let mut usage = Usage::default();
        for found in self.list()? {
            let Found::Body(hash) = found else { continue };
            let Finding::Body(file) = self.find(hash)? else { continue }; // removed meanwhile
            let failed = |source| self.failed("read", hash, source);
            let blocks = file.metadata().map_err(failed)?.blocks();
            usage.count += 1;
            usage.disk_bytes += blocks * 512; // stat(2): always units of 512 bytes
            let size = file::size(&file).map_err(failed)?.unwrap_or(0);
            usage.content_bytes = usage.content_bytes.saturating_add(size);
        }
        Ok(usage)
    }

    fn list_subdirectory(
        &self,
        digits: &str,
        subdirectory: &File,
        found: &mut Vec<Found>,
    ) -> io::Result<()> {
        for name in names(subdirectory)? {
            let hash = name.to_str().and_then(|rest| format!("{digits}{rest}").parse().ok());
            found.push(match hash {
                Some(hash) if is_file(subdirectory, &name) => Found::Body(hash),
                Some(_) | None => Found::Foreign(self.directory.join(digits).join(name)),
            });
        }
        Ok(())
    }

    fn stray(&self, top: &File, name: &OsStr) -> Found {
        let digits = name.to_str().and_then(|name| name.strip_prefix(UNFINISHED));
        let is_ours = digits.is_some_and(|digits| {
            digits.len() == 32
                && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        });
        let path = self.directory.join(name);
        match is_ours && is_file(top, name) {
            true => Found::Unfinished(path),
            false => Found::Foreign(path),
        }
    }
}

fn names(directory: &File) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}

fn is_file(directory: &File, name: &OsStr) -> bool {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}
