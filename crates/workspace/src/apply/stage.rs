//! The box's version of a file, made ready beside the place it will take.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{AtFlags, Gid, Uid, XattrFlags};
use rustix::io::Errno;

use super::work::StepError;
use crate::at;
use crate::change::{Change, Side};
use crate::content;
use crate::layers::Layers;
use crate::meta::{FileKind, Meta};
use crate::path::RelPath;
use crate::tree::UpperFile;

/// The mode of a staged file until it is whole.
pub(super) const HALF_WRITTEN: u32 = 0o200;

/// Largest extended attribute that is carried over; what Linux allows.
const MAX_ATTRIBUTE: usize = 64 * 1024;

/// Who a staged file is to belong to.
#[derive(Clone, Copy)]
pub(super) enum Owner<'a> {
    /// The owner of the directory: the file is new.
    Directory(&'a Meta),
    /// The owner of the file it replaces, together with its attributes.
    File(&'a Meta, &'a [u8]),
}

/// Makes a copy of what the box left under the name `temporary`, with its final mode and owner and
/// written to disk. Returns its inode.
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
            made.sync_all().map_err(StepError::io("write the new file"))?;
        }
        FileKind::Symlink => link(parent, temporary, new, owner)?,
        FileKind::Directory | FileKind::Fifo | FileKind::Socket | FileKind::Device => {
            return Err(StepError::io("take over what is neither file nor link")(bad()));
        }
    }
    match at::stat(parent, temporary).map_err(StepError::io("look at the new file"))? {
        Some(meta) => Ok(meta.inode()),
        None => Err(StepError::io("look at the new file")(io::ErrorKind::NotFound.into())),
    }
}

/// Makes an empty directory under the name `temporary`.
pub(super) fn directory(
    parent: BorrowedFd<'_>,
    temporary: &[u8],
    mode: u32,
    owner: Owner<'_>,
) -> Result<(), StepError> {
    let io = StepError::io("make the directory");
    at::mkdir(parent, temporary, 0o700).map_err(&io)?;
    let dir = at::child_dir(parent, temporary).map_err(&io)?;
    give(&dir, owner).map_err(&io)?;
    // Setgid comes from the directory above, where the user set it.
    let inherited = at::meta(&dir).map_err(&io)?.mode & 0o2000;
    at::chmod(&dir, inherited | mode).map_err(&io)
}

/// Makes a copy of the file that the box left. It is not on disk until the caller says so.
pub(super) fn file(
    layers: &Layers,
    (parent, temporary): (BorrowedFd<'_>, &[u8]),
    change: &Change,
    (mode, owner): (u32, Owner<'_>),
) -> Result<File, StepError> {
    let new = new_side(change)?;
    let (above, name) = change.path.split().unwrap_or((RelPath::root(), b"."));
    let read = StepError::io("read what the box left");
    let upper = layers.upper().dir(&above).map_err(&read)?;
    let mut from = UpperFile::open(upper.as_fd(), name).map_err(&read)?;
    let create = StepError::io("create the new file");
    let mut to = File::from(at::create(parent, temporary, HALF_WRITTEN).map_err(create)?);
    let filled = fill(from.file(), &mut to, new, owner, parent)
        .and_then(|()| at::chmod(&to, mode & 0o777).map_err(StepError::io("write the new file")));
    if filled.is_err() {
        // Half a file is of no use. If this fails, the next apply finds it in the log.
        drop(at::unlink(parent, temporary));
    }
    filled.map(|()| to)
}

fn new_side(change: &Change) -> Result<&Side, StepError> {
    change.new.as_ref().ok_or_else(|| StepError::io("read the change")(bad()))
}

/// Everything but the final mode, which says that the file is whole.
fn fill(
    from: &mut File,
    to: &mut File,
    new: &Side,
    owner: Owner<'_>,
    parent: BorrowedFd<'_>,
) -> Result<(), StepError> {
    let copied = content::copy(from, to, new.size).map_err(StepError::io("write the new file"))?;
    if Some(copied.hash) != new.hash {
        return Err(StepError::io("read what the box left, which is not what was reviewed")(bad()));
    }
    give(&*to, owner).map_err(StepError::io("give the new file to its owner"))?;
    match owner {
        Owner::Directory(_) => Ok(()),
        Owner::File(_, name) => {
            carry_attributes(parent, name, to).map_err(StepError::io("carry over attributes"))
        }
    }
}

fn link(
    parent: BorrowedFd<'_>,
    temporary: &[u8],
    new: &Side,
    owner: Owner<'_>,
) -> Result<(), StepError> {
    let io = StepError::io("make the symbolic link");
    let target = new.target.as_ref().ok_or_else(|| io(bad()))?;
    let (target, name) = (OsStr::from_bytes(&target.0), OsStr::from_bytes(temporary));
    rustix::fs::symlinkat(target, parent, name).map_err(|errno| io(errno.into()))?;
    let meta = at::stat(parent, temporary).map_err(&io)?;
    let Some((uid, gid)) = meta.and_then(|meta| new_owner(&meta, owner)) else { return Ok(()) };
    rustix::fs::chownat(parent, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|errno| io(errno.into()))
}

fn give(fd: impl AsFd, owner: Owner<'_>) -> io::Result<()> {
    match new_owner(&at::meta(fd.as_fd())?, owner) {
        Some((uid, gid)) => Ok(rustix::fs::fchown(fd, uid, gid)?),
        None => Ok(()),
    }
}

/// What has to change for `made` to belong to whom it should.
///
/// Root gives new files to the owner of the directory; others cannot give anything away. A file that
/// is replaced must keep its owner: if we may not say so, the step fails and the file stays.
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

/// The user's own attributes and access list stay on a file whose content is replaced.
fn carry_attributes(parent: BorrowedFd<'_>, name: &[u8], to: &File) -> io::Result<()> {
    // What we may not read has no attributes that we could see.
    let Ok((from, _)) = at::file(parent, name) else { return Ok(()) };
    let mut list = vec![0_u8; MAX_ATTRIBUTE];
    let len = match rustix::fs::flistxattr(&from, list.as_mut_slice()) {
        Ok(len) => len,
        Err(Errno::NOTSUP) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    for attribute in list.get(..len).unwrap_or_default().split(|&byte| byte == 0) {
        // Not `security.capability`, which would make a program of the box's privileged.
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

fn bad() -> io::Error {
    io::ErrorKind::InvalidData.into()
}
