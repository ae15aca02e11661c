//! The program of the helper.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::ExitCode;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::{Entry, EntryKind, MAX_ENTRIES, Metadata, Range, Refusal, Reply};

const CHUNK: usize = 64 * 1024;
/// The mode of a new file.
const NEW_FILE: u32 = 0o644;
/// The number of temporary names that are tried.
const ATTEMPTS: u32 = 100;

/// Does what the arguments of this process say. The exit status is 0 if a reply was sent.
pub fn run() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&[u8]> = arguments.iter().map(|word| word.as_bytes()).collect();
    let done = match *words {
        [b"open", path, after, limit] => open(path, after, limit),
        [b"write", path, length, b"new"] => write(path, length, IfExists::Refuse),
        [b"write", path, length, b"replace"] => write(path, length, IfExists::Replace),
        [b"remove", path] => remove(path),
        _ => Err(Refusal::Usage),
    };
    let sent = match done {
        Ok(Done::Reply(reply)) => send(&reply),
        Ok(Done::Content(file, metadata)) => {
            send(&Reply::File(metadata)).and_then(|()| content(&file))
        }
        Err(refusal) => send(&Reply::Refused(refusal)),
    };
    if sent.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What follows from the arguments.
enum Done {
    Reply(Reply),
    /// The content of this file is sent.
    Content(OwnedFd, Metadata),
}

/// What a write does with an existing file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfExists {
    Refuse,
    Replace,
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::NOTDIR => Self::NotFound,
            Errno::EXIST => Self::Exists,
            Errno::ISDIR => Self::IsDirectory,
            Errno::NOTEMPTY => Self::NotEmpty,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Self::Denied,
            Errno::NOSPC | Errno::DQUOT => Self::Full,
            other => Self::Failed { errno: other.raw_os_error() },
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        let failed = Self::Failed { errno: 0 };
        Errno::from_io_error(&error).map_or(failed, Self::from)
    }
}

/// Opens a file, or lists a directory.
fn open(path: &[u8], after: &[u8], limit: &[u8]) -> Result<Done, Refusal> {
    // A pipe must not block the helper.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(OsStr::from_bytes(path), flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(Done::Content(file, metadata(&stat))),
        FileType::Directory => {
            let limit = number(limit).and_then(|limit| usize::try_from(limit).ok());
            let limit = limit.filter(|limit| (1..=MAX_ENTRIES).contains(limit));
            list(&file, after, limit.ok_or(Refusal::Usage)?).map(Done::Reply)
        }
        FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Err(Refusal::IsSpecial),
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn metadata(stat: &Stat) -> Metadata {
    Metadata { size: u64::try_from(stat.st_size).unwrap_or(0), modified: stat.st_mtime }
}

/// Lists the first entries of a directory whose names follow `after`. Only these names are kept in memory.
fn list(dir: &OwnedFd, after: &[u8], limit: usize) -> Result<Reply, Refusal> {
    let mut names: BTreeSet<Vec<u8>> = BTreeSet::new();
    let mut has_more = false;
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." || name <= after {
            continue;
        }
        names.insert(name.to_vec());
        if names.len() > limit {
            names.pop_last();
            has_more = true;
        }
    }
    let mut entries = Vec::with_capacity(names.len());
    for name in names {
        match rustix::fs::statat(dir, OsStr::from_bytes(&name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => {
                let (kind, metadata) = (kind(&stat), metadata(&stat));
                entries.push(Entry { name, kind, metadata });
            }
            Err(Errno::NOENT) => {} // another process removed it
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Reply::Directory { entries, has_more })
}

fn kind(stat: &Stat) -> EntryKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink,
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => EntryKind::Special,
    }
}

/// Sends the part of a file that standard input asks for, as far as the file has it.
fn content(file: &OwnedFd) -> io::Result<()> {
    let mut range = [0; Range::SIZE];
    if fill(rustix::stdio::stdin(), &mut range)? < range.len() {
        return Ok(()); // the reader needs no content
    }
    let Range { mut offset, length } = Range::decode(range);
    let mut left = length;
    let mut buffer = vec![0; CHUNK];
    while left > 0 {
        let wanted = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        let part = buffer.get_mut(..wanted).unwrap_or_default();
        let read = match rustix::io::pread(file, part, offset) {
            Err(Errno::INTR) => continue,
            read => read?,
        };
        if read == 0 {
            break;
        }
        write_all(rustix::stdio::stdout(), buffer.get(..read).unwrap_or_default())?;
        let read = u64::try_from(read).unwrap_or(left);
        offset = offset.saturating_add(read);
        left = left.saturating_sub(read);
    }
    Ok(())
}

/// Writes standard input to a new file beside the path, and renames it when it is complete. Missing
/// directories are created. A symbolic link at the path is replaced, not followed.
fn write(path: &[u8], length: &[u8], if_exists: IfExists) -> Result<Done, Refusal> {
    let length = number(length).ok_or(Refusal::Usage)?;
    let path = Path::new(OsStr::from_bytes(path));
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Refusal::IsDirectory);
    };
    fs::create_dir_all(parent).map_err(|error| {
        // A file or a broken link is in the place of a directory.
        let is_in_place = error.kind() == io::ErrorKind::AlreadyExists;
        if is_in_place { Refusal::NotFound } else { Refusal::from(error) }
    })?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(parent, flags, Mode::empty())?;
    let old = match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Some(stat),
        Err(Errno::NOENT) => None,
        Err(error) => return Err(error.into()),
    };
    let old_type = old.as_ref().map(|stat| FileType::from_raw_mode(stat.st_mode));
    if old_type == Some(FileType::Directory) {
        return Err(Refusal::IsDirectory);
    }
    if old.is_some() && if_exists == IfExists::Refuse {
        return Err(Refusal::Exists);
    }
    let mode = old.filter(|_| old_type == Some(FileType::RegularFile));
    let mode = mode.map_or(NEW_FILE, |stat| stat.st_mode & 0o777);
    let (temporary, file) = create(&dir)?;
    let written = receive(&file, length)
        .and_then(|()| Ok(rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?))
        .and_then(|()| rename(&dir, &temporary, name, if_exists));
    if written.is_err() {
        rustix::fs::unlinkat(&dir, &temporary, AtFlags::empty()).ok(); // it can be gone
    }
    written?;
    Ok(Done::Reply(Reply::Written { is_new: old_type.is_none() }))
}

/// Creates an empty file with an unused name.
fn create(dir: &OwnedFd) -> Result<(OsString, OwnedFd), Refusal> {
    let id = rustix::process::getpid().as_raw_nonzero();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for attempt in 0..ATTEMPTS {
        let name = OsString::from_vec(format!(".belljar-{id}-{attempt}").into_bytes());
        match rustix::fs::openat(dir, &name, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::EXIST) => {}
            opened => return Ok((name, opened?)),
        }
    }
    Err(Refusal::Exists)
}

/// Copies this many bytes from standard input to a file.
fn receive(file: &OwnedFd, length: u64) -> Result<(), Refusal> {
    let mut left = length;
    let mut buffer = vec![0; CHUNK];
    while left > 0 {
        let wanted = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        let part = buffer.get_mut(..wanted).unwrap_or_default();
        let read = match rustix::io::read(rustix::stdio::stdin(), part) {
            Err(Errno::INTR) => continue,
            read => read?,
        };
        if read == 0 {
            return Err(Refusal::Incomplete);
        }
        write_all(file.as_fd(), buffer.get(..read).unwrap_or_default())?;
        left = left.saturating_sub(u64::try_from(read).unwrap_or(left));
    }
    Ok(())
}

fn rename(dir: &OwnedFd, from: &OsStr, to: &OsStr, if_exists: IfExists) -> Result<(), Refusal> {
    let flags = match if_exists {
        IfExists::Refuse => RenameFlags::NOREPLACE,
        IfExists::Replace => RenameFlags::empty(),
    };
    Ok(rustix::fs::renameat_with(dir, from, dir, to, flags)?)
}

/// Removes a file, a link or an empty directory.
fn remove(path: &[u8]) -> Result<Done, Refusal> {
    let path = OsStr::from_bytes(path);
    let stat = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
    let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    rustix::fs::unlinkat(CWD, path, flags)?;
    Ok(Done::Reply(Reply::Removed))
}

fn send(reply: &Reply) -> io::Result<()> {
    let encoded = postcard::to_allocvec(reply).map_err(io::Error::other)?;
    let length = u32::try_from(encoded.len()).map_err(io::Error::other)?;
    let framed = [&length.to_le_bytes(), encoded.as_slice()].concat();
    write_all(rustix::stdio::stdout(), &framed)
}

/// Reads until the buffer is full, or until the end. Returns the number of bytes.
fn fill(from: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::io::read(from, rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filled)
}

fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
