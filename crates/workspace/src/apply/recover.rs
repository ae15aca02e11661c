//! Cleans up what an apply that was killed left in the user's directory.
//!
//! A temporary name holds either something of ours, of which the upper layer has all, or what was
//! just taken out of the user's directory. The first is removed, the second goes to the trash, and
//! what cannot be told apart goes to the trash as well.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use super::journal::{self, Begin, Opened, Record, Unfinished};
use super::stage::HALF_WRITTEN;
use super::{ApplyError, Takeover, trash};
use crate::at;
use crate::change::Target;
use crate::content;
use crate::host;
use crate::meta::{FileKind, Meta};
use crate::path::RelPath;

/// What an apply that was killed had taken out of the user's directory, now in the trash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    pub path: RelPath,
    /// Its name in `trash`.
    pub number: u64,
}

pub(super) fn recover(
    takeover: &mut Takeover<'_>,
    unfinished: &Unfinished,
) -> Result<Vec<Recovered>, ApplyError> {
    let mut recovered = Vec::new();
    for begin in &unfinished.begun {
        let fail = |source| ApplyError::Recover { path: begin.path.clone(), source };
        let how = match clean_up(takeover, begin).map_err(fail)? {
            Found::Nothing => "found whole",
            Found::Ours => "cleaned up",
            Found::Users => {
                recovered.push(Recovered { path: begin.path.clone(), number: begin.number });
                "put in the trash"
            }
            // The directory is out of reach now. Perhaps next time.
            Found::Unreachable => continue,
        };
        takeover.journal.add(&Record::End { number: begin.number, how: how.to_owned() })?;
    }
    // Innermost first: the ones above must be open to reach it.
    for opened in unfinished.opened.iter().rev() {
        close(takeover, opened);
        takeover.journal.add(&Record::Closed { path: opened.path.clone() })?;
    }
    takeover.journal.sync()?;
    Ok(recovered)
}

enum Found {
    Nothing,
    Ours,
    Users,
    Unreachable,
}

fn clean_up(takeover: &Takeover<'_>, begin: &Begin) -> io::Result<Found> {
    let (parent, _) = begin.path.split().ok_or(io::ErrorKind::InvalidData)?;
    let Ok(parent) = host::open_parent(takeover.layers.lower(), &parent)? else {
        return Ok(Found::Unreachable);
    };
    let name = journal::temporary_name(takeover.layers, begin.number);
    let Some(meta) = at::stat(&parent, &name)? else { return Ok(Found::Nothing) };
    let parent = std::os::fd::AsFd::as_fd(&parent);
    if is_ours(parent, &name, &meta, begin) {
        match meta.kind {
            FileKind::Directory => at::rmdir(parent, &name)?,
            FileKind::File
            | FileKind::Symlink
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::Device => at::unlink(parent, &name)?,
        }
        return Ok(Found::Ours);
    }
    let trash = std::os::fd::AsFd::as_fd(&takeover.trash);
    trash::put(trash, begin.number, parent, &name)?;
    journal::sync_dir(trash)?;
    Ok(Found::Users)
}

fn is_ours(parent: BorrowedFd<'_>, name: &[u8], meta: &Meta, begin: &Begin) -> bool {
    if begin.was == Some(meta.inode()) {
        return false;
    }
    match meta.kind {
        FileKind::Directory => at::child_dir(parent, name)
            .and_then(|dir| at::names(dir, 1))
            .is_ok_and(|names| names.is_empty()),
        FileKind::File if meta.mode == HALF_WRITTEN => true,
        FileKind::File => at::file(parent, name)
            .and_then(|(fd, meta)| content::summarize(&mut File::from(fd), meta.size()))
            .is_ok_and(|summary| begin.hash == Some(summary.hash)),
        FileKind::Symlink => {
            at::read_link(parent, name).is_ok_and(|target| begin.target == Some(Target(target)))
        }
        FileKind::Fifo | FileKind::Socket | FileKind::Device => false,
    }
}

/// Gives a directory the mode it is to have, unless somebody else changed it since.
pub(super) fn close(takeover: &Takeover<'_>, opened: &Opened) {
    let dir = at::dir(takeover.layers.lower(), &opened.path);
    if let Ok(dir) = dir
        && let Ok(meta) = at::meta(&dir)
        && meta.mode & 0o777 == opened.meanwhile & 0o777
    {
        // Only the mode of a directory is at stake, and it was ours to open.
        drop(at::chmod(&dir, (meta.mode & 0o7000) | (opened.mode & 0o777)));
    }
}
