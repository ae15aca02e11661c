//! Creates the box's version of a file under a temporary name beside its final name.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{AtFlags, Gid, Uid, XattrFlags};
use rustix::io::Errno;

use super::executor::StepError;
use crate::at;
use crate::base;
use crate::change::{Change, Side};
use crate::content;
use crate::layers::Layers;
use crate::meta::{FileKind, Meta};
use crate::path::RelPath;
use crate::tree::UpperFile;

/// The mode of a staged file until its content is complete.
pub(super) const HALF_WRITTEN: u32 = 0o200;

/// The maximum size of an extended attribute that is copied; the limit of Linux.
const MAX_ATTRIBUTE: usize = 64 * 1024;

/// The owner that a staged file gets: that of the replaced file or of the directory.
#[derive(Clone, Copy)]
pub(super) enum Owner<'a> {
    /// The staged file gets the owner of its directory, because the file is new.
    Directory(&'a Meta),
    /// The staged file gets the owner and the attributes of the replaced file.
    File(&'a Meta, &'a [u8]),
}

/// Copies the box's file or link to the name `temporary`, with its final mode and owner, and syncs
/// it to disk. Returns the inode of the copy.
pub(super) fn leaf(
    layers: &Layers,
    (parent, temporary): (BorrowedFd<'_>, &[u8]),
    change: &Change,
    (mode, owner): (u32, Owner<'_>),
) -> Result<(u64, u64), StepError> {
    let new = new_side(change)?;
    match new.kind {
        FileKind::File => {
            let made = file(layers, (parent, temporary), change, (mode, owner))?;
            made.sync_all().map_err(StepError::io("cannot write the new file"))?;
        }
        FileKind::Symlink => link(parent, temporary, new, owner)?,
        FileKind::Directory | FileKind::Fifo | FileKind::Socket | FileKind::Device => {
            return Err(StepError::io("cannot apply a special file")(invalid_data()));
        }
    }
    match at::stat(parent, temporary).map_err(StepError::io("cannot inspect the new file"))? {
        Some(meta) => Ok(meta.inode()),
        None => Err(StepError::io("cannot inspect the new file")(io::ErrorKind::NotFound.into())),
    }
}

/// Creates an empty directory under the name `temporary`.
pub(super) fn directory(
    parent: BorrowedFd<'_>,
    temporary: &[u8],
    mode: u32,
    owner: Owner<'_>,
) -> Result<(), StepError> {
    let io = StepError::io("cannot create the directory");
    at::mkdir(parent, temporary, 0o700).map_err(&io)?;
    let dir = at::child_dir(parent, temporary).map_err(&io)?;
    set_owner(&dir, owner).map_err(&io)?;
    // The setgid bit is inherited from the parent directory, where the user set it.
    let inherited = at::meta(&dir).map_err(&io)?.mode & 0o2000;
    at::chmod(&dir, inherited | mode).map_err(&io)
}

/// Copies the box's file to the name `temporary`. The caller must sync the copy to disk.
pub(super) fn file(
    layers: &Layers,
    (parent, temporary): (BorrowedFd<'_>, &[u8]),
    change: &Change,
    (mode, owner): (u32, Owner<'_>),
) -> Result<File, StepError> {
    let new = new_side(change)?;
    let read = StepError::io("cannot read the box's file");
    let (mut stored, mut in_layer);
    let from = match new.hash.filter(|_| change.is_stored) {
        Some(hash) => {
            stored = base::open(layers.run(), hash).map_err(&read)?;
            &mut stored
        }
        None => {
            let (above, name) = change.path.split().unwrap_or((RelPath::root(), b"."));
            let upper = layers.upper().dir(&above).map_err(&read)?;
            in_layer = UpperFile::open(upper.as_fd(), name).map_err(&read)?;
            in_layer.file()
        }
    };
    let create = StepError::io("cannot create the new file");
    let mut to = File::from(at::create(parent, temporary, HALF_WRITTEN).map_err(create)?);
    let filled = fill(from, &mut to, new, owner, parent).and_then(|()| {
        at::chmod(&to, mode & 0o777).map_err(StepError::io("cannot write the new file"))
    });
    if filled.is_err() {
        // An incomplete file is useless. If this fails, the next apply finds the file in the log.
        drop(at::unlink(parent, temporary));
    }
    filled.map(|()| to)
}

fn new_side(change: &Change) -> Result<&Side, StepError> {
    change
        .new
        .as_ref()
        .ok_or_else(|| StepError::io("cannot apply a change without new content")(invalid_data()))
}

/// Writes the content, owner and attributes of a staged file. The final mode is set last because it
/// marks the file as complete.
fn fill(
    from: &mut File,
    to: &mut File,
    new: &Side,
    owner: Owner<'_>,
    parent: BorrowedFd<'_>,
) -> Result<(), StepError> {
    let copied =
        content::copy(from, to, new.size).map_err(StepError::io("cannot write the new file"))?;
    if Some(copied.hash) != new.hash {
        return Err(StepError::io(
            "cannot apply the box's file because it changed after the review",
        )(invalid_data()));
    }
    set_owner(&*to, owner).map_err(StepError::io("cannot set the owner of the new file"))?;
    match owner {
        Owner::Directory(_) => Ok(()),
        Owner::File(_, name) => copy_user_attributes(parent, name, to)
            .map_err(StepError::io("cannot copy the extended attributes")),
    }
}

fn link(
    parent: BorrowedFd<'_>,
    temporary: &[u8],
    new: &Side,
    owner: Owner<'_>,
) -> Result<(), StepError> {
    let io = StepError::io("cannot create the symbolic link");
    let target = new.target.as_ref().ok_or_else(|| io(invalid_data()))?;
    let (target, name) = (OsStr::from_bytes(&target.0), OsStr::from_bytes(temporary));
    rustix::fs::symlinkat(target, parent, name).map_err(|errno| io(errno.into()))?;
    let meta = at::stat(parent, temporary).map_err(&io)?;
    let Some((uid, gid)) = meta.and_then(|meta| new_owner(&meta, owner)) else { return Ok(()) };
    rustix::fs::chownat(parent, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|errno| io(errno.into()))
}

fn set_owner(fd: impl AsFd, owner: Owner<'_>) -> io::Result<()> {
    match new_owner(&at::meta(fd.as_fd())?, owner) {
        Some((uid, gid)) => Ok(rustix::fs::fchown(fd, uid, gid)?),
        None => Ok(()),
    }
}

/// Returns the user and group to set on the file `made`, or `None` if its owner is already right.
///
/// Root gives new files to the owner of the directory; other users cannot change owners. A file
/// that is replaced must keep its owner: if we lack the permission, the step fails and the file
/// stays.
fn new_owner(made: &Meta, owner: Owner<'_>) -> Option<(Option<Uid>, Option<Gid>)> {
    let like = match owner {
        Owner::Directory(dir) if rustix::process::geteuid().is_root() => dir,
        Owner::Directory(_) => return None,
        Owner::File(was, _) => was,
    };
    let uid = (like.uid != made.uid).then(|| Uid::from_raw(like.uid));
    let gid = (like.gid != made.gid).then(|| Gid::from_raw(like.gid));
    (uid.is_some() || gid.is_some()).then_some((uid, gid))
}

/// Copies extended attributes of the user and the access control list from the replaced file.
fn copy_user_attributes(parent: BorrowedFd<'_>, name: &[u8], to: &File) -> io::Result<()> {
    // The attributes of an unreadable file are not visible to us.
    let Ok((from, _)) = at::file(parent, name) else { return Ok(()) };
    let mut list = vec![0_u8; MAX_ATTRIBUTE];
    let len = match rustix::fs::flistxattr(&from, list.as_mut_slice()) {
        Ok(len) => len,
        Err(Errno::NOTSUP) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    for attribute in list.get(..len).unwrap_or_default().split(|&byte| byte == 0) {
        // `security.capability` is skipped: it would give the box's program privileges.
        if !attribute.starts_with(b"user.") && attribute != b"system.posix_acl_access" {
            continue;
        }
        let attribute = OsStr::from_bytes(attribute);
        let mut value = vec![0_u8; MAX_ATTRIBUTE];
        match rustix::fs::fgetxattr(&from, attribute, value.as_mut_slice()) {
            Ok(len) => {
                let value = value.get(..len).unwrap_or_default();
                rustix::fs::fsetxattr(to, attribute, value, XattrFlags::empty())?;
            }
            Err(Errno::NODATA) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn invalid_data() -> io::Error {
    io::ErrorKind::InvalidData.into()
}
