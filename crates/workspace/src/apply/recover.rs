//! Cleans up the temporary files of an apply that was killed.
//!
//! A temporary name holds either a copy of the box's file, which the upper layer still has, or a
//! file that was just taken out of the user's directory. The first is removed, the second goes to
//! the trash, and a file that cannot be identified goes to the trash as well.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use super::log::{self, Begin, Opened, Record, Unfinished};
use super::stage::HALF_WRITTEN;
use super::{ApplyError, ApplySession, trash};
use crate::at;
use crate::change::LinkTarget;
use crate::content;
use crate::host;
use crate::meta::{FileKind, Meta};
use crate::path::RelPath;

/// A file of the user that a killed apply had moved to a temporary name. It is now in the trash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    pub path: RelPath,
    /// The number that is the name of the file in `trash`.
    pub number: u64,
}

/// Cleans up the unfinished steps of earlier applies. Returns the files moved to the trash.
pub(super) fn recover(
    session: &mut ApplySession<'_>,
    unfinished: &Unfinished,
) -> Result<Vec<Recovered>, ApplyError> {
    let mut recovered = Vec::new();
    for begin in &unfinished.begun {
        let fail = |source| ApplyError::Recover { path: begin.path.clone(), source };
        let how = match clean_up(session, begin).map_err(fail)? {
            Found::Nothing => "found whole",
            Found::Ours => "cleaned up",
            Found::Users => {
                recovered.push(Recovered { path: begin.path.clone(), number: begin.number });
                "put in the trash"
            }
            // The directory cannot be reached now. The next apply tries again.
            Found::Unreachable => continue,
        };
        session.log.add(&Record::End { number: begin.number, how: how.to_owned() })?;
    }
    // Innermost first: the directories above must stay writable to reach it.
    for opened in unfinished.opened.iter().rev() {
        close(session, opened);
        session.log.add(&Record::Closed { path: opened.path.clone() })?;
    }
    session.log.sync()?;
    Ok(recovered)
}

/// The file that was found under a temporary name.
enum Found {
    Nothing,
    Ours,
    Users,
    Unreachable,
}

fn clean_up(session: &ApplySession<'_>, begin: &Begin) -> io::Result<Found> {
    let (parent, _) = begin.path.split().ok_or(io::ErrorKind::InvalidData)?;
    let Ok(parent) = host::open_parent(session.layers.lower(), &parent)? else {
        return Ok(Found::Unreachable);
    };
    let name = log::temporary_name(session.layers, begin.number);
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
    let trash = std::os::fd::AsFd::as_fd(&session.trash);
    trash::put(trash, begin.number, parent, &name)?;
    log::sync_dir(trash)?;
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
            at::read_link(parent, name).is_ok_and(|target| begin.target == Some(LinkTarget(target)))
        }
        FileKind::Fifo | FileKind::Socket | FileKind::Device => false,
    }
}

/// Restores the mode of a directory, unless the host has changed the mode since.
pub(super) fn close(session: &ApplySession<'_>, opened: &Opened) {
    let dir = at::dir(session.layers.lower(), &opened.path);
    if let Ok(dir) = dir
        && let Ok(meta) = at::meta(&dir)
        && meta.mode & 0o777 == opened.temporary_mode & 0o777
    {
        // A failure only leaves the directory writable by its owner.
        drop(at::chmod(&dir, (meta.mode & 0o7000) | (opened.mode & 0o777)));
    }
}
