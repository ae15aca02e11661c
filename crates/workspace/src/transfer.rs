//! Copies a file or a directory between the host and a box, as a tar stream.
//!
//! The other end of the stream is a program in the box, so [`unpack`] trusts nothing that it reads. Both
//! directions copy regular files and directories only. Links and special files are counted and left out: a
//! link of the host would give the box a file that the user did not name, and a link of the box would lead a
//! later program of the user to a file that the box chose.
//!
//! **Invariant:** [`unpack`] writes below a new name next to the destination, which appears only when the
//! caller keeps the copy.

mod tar;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use belljar_model::display;

use self::tar::{Header, Kind};
use crate::at;
use crate::meta::{FileKind, Meta};
use crate::path::{PathError, RelPath};

/// The name of the copied file or directory in a stream to a box.
pub const PACKED_NAME: &str = "belljar-cp";
/// The maximum number of files and directories of one copy.
const MAX_ENTRIES: u64 = 1_000_000;
const BUFFER: usize = 64 * 1024;

/// The result of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transferred {
    pub files: u64,
    pub bytes: u64,
    /// The number of links and special files that were left out.
    pub left_out: u64,
}

/// What [`unpack`] may write.
#[derive(Clone, Copy, Debug)]
pub struct UnpackLimits {
    /// The maximum size of all files together, in bytes.
    pub bytes: u64,
    /// Whether an existing regular file is replaced.
    pub replace: bool,
}

/// The reason why a file or directory could not be copied.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error("cannot open {}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{} is a symbolic link; name the file that it leads to", path.display())]
    Link { path: PathBuf },
    #[error("{} is neither a file nor a directory", path.display())]
    Special { path: PathBuf },
    #[error("{} exists", path.display())]
    Exists { path: PathBuf },
    #[error("`{}` changed while it was copied; try again", display::safe(path))]
    Changed { path: Vec<u8> },
    #[error("cannot read `{}`", display::safe(path))]
    Read { path: Vec<u8>, source: io::Error },
    #[error("cannot write `{}`", display::safe(path))]
    Write { path: Vec<u8>, source: io::Error },
    #[error("the copy has more than {limit} bytes; allow more with --max-size")]
    TooLarge { limit: u64 },
    #[error("the copy has more than {MAX_ENTRIES} files")]
    TooMany,
    #[error("the program in the box sent an invalid archive: {0}")]
    Malformed(&'static str),
    #[error("the program in the box sent an invalid file name")]
    Name(#[from] PathError),
    #[error("cannot exchange data with the program in the box")]
    Stream(#[source] io::Error),
}

/// Writes a file or directory of the host to `to` as a tar stream whose only top-level entry is
/// [`PACKED_NAME`].
pub fn pack(source: &Path, to: &mut impl Write) -> Result<Transferred, TransferError> {
    let open = |error| TransferError::Open { path: source.to_owned(), source: error };
    let absolute = std::path::absolute(source).map_err(open)?;
    let parent = at::open_parent_of(&absolute).map_err(open)?;
    let name = at::last_name(&absolute).map_err(open)?;
    let mut packer = Packer { to, done: Transferred::default() };
    let root = RelPath::new(PACKED_NAME)?;
    match at::stat(&parent, name).map_err(open)?.map(|meta| meta.kind) {
        None => return Err(open(io::ErrorKind::NotFound.into())),
        Some(FileKind::File) => {
            let opened = at::file(&parent, name).map_err(open)?;
            packer.file(opened, &root)?;
        }
        Some(FileKind::Directory) => {
            packer.directory(&at::child_dir(&parent, name).map_err(open)?, &root)?;
        }
        Some(FileKind::Symlink) => return Err(TransferError::Link { path: source.to_owned() }),
        Some(FileKind::Fifo | FileKind::Socket | FileKind::Device) => {
            return Err(TransferError::Special { path: source.to_owned() });
        }
    }
    packer.to.write_all(&tar::END).map_err(TransferError::Stream)?;
    packer.to.flush().map_err(TransferError::Stream)?;
    Ok(packer.done)
}

struct Packer<'a, W> {
    to: &'a mut W,
    done: Transferred,
}

impl<W: Write> Packer<'_, W> {
    fn file(&mut self, (fd, meta): (OwnedFd, Meta), path: &RelPath) -> Result<(), TransferError> {
        let changed = || TransferError::Changed { path: inner(path) };
        let read = |source| TransferError::Read { path: inner(path), source };
        self.header(path, Kind::File, &meta, meta.size())?;
        let mut file = File::from(fd);
        let mut rest = meta.size();
        let mut buffer = vec![0; BUFFER];
        while rest > 0 {
            let most = usize::try_from(rest).unwrap_or(usize::MAX).min(BUFFER);
            let count = file.read(buffer.get_mut(..most).unwrap_or_default()).map_err(read)?;
            if count == 0 {
                return Err(changed());
            }
            self.to
                .write_all(buffer.get(..count).unwrap_or_default())
                .map_err(TransferError::Stream)?;
            rest -= u64::try_from(count).unwrap_or(rest);
        }
        if !at::meta(&file).map_err(read)?.identity.same_content(&meta.identity) {
            return Err(changed());
        }
        self.to.write_all(tar::padding(meta.size())).map_err(TransferError::Stream)?;
        self.done.files += 1;
        self.done.bytes += meta.size();
        Ok(())
    }

    fn directory(&mut self, dir: &OwnedFd, path: &RelPath) -> Result<(), TransferError> {
        let read = |path: &RelPath| {
            let path = inner(path);
            move |source| TransferError::Read { path, source }
        };
        let meta = at::meta(dir).map_err(read(path))?;
        self.header(path, Kind::Directory, &meta, 0)?;
        let limit = usize::try_from(MAX_ENTRIES).unwrap_or(usize::MAX);
        let mut names = at::names(dir, limit).map_err(read(path))?;
        names.sort_unstable();
        for name in names {
            let of = path.join(&name)?;
            // A name can disappear, and a directory can be on another file system.
            match at::stat(dir, &name).map_err(read(&of))?.map(|meta| meta.kind) {
                Some(FileKind::File) => {
                    let opened = at::file(dir, &name).map_err(read(&of))?;
                    self.file(opened, &of)?;
                }
                Some(FileKind::Directory) => {
                    let opened = at::child_dir(dir, &name).map_err(read(&of))?;
                    self.directory(&opened, &of)?;
                }
                Some(FileKind::Symlink | FileKind::Fifo | FileKind::Socket | FileKind::Device) => {
                    self.done.left_out += 1;
                }
                None => {}
            }
        }
        Ok(())
    }

    fn header(
        &mut self,
        path: &RelPath,
        kind: Kind,
        meta: &Meta,
        size: u64,
    ) -> Result<(), TransferError> {
        let (path, mode) = (path.as_bytes().to_vec(), meta.mode & 0o777);
        let modified = u64::try_from(meta.identity.mtime.secs).unwrap_or_default();
        let header = Header { path, kind, mode, size, modified };
        self.to.write_all(&header.encode()).map_err(TransferError::Stream)
    }
}

/// Returns the part of a packed path that the user knows.
fn inner(path: &RelPath) -> Vec<u8> {
    let parts: Vec<&[u8]> = path.parts().skip(1).collect();
    parts.join(&b'/')
}

/// Reads a tar stream of a box, whose only top-level entry is `name`, to create the file or directory `to`
/// from it.
pub fn unpack(
    from: &mut impl Read,
    name: &[u8],
    to: &Path,
    limits: UnpackLimits,
) -> Result<Unpacked, TransferError> {
    let target = Target::open(to, limits.replace)?;
    let mut unpacker = Unpacker {
        from,
        name,
        target: &target,
        limits,
        done: Transferred::default(),
        entries: 0,
        files: HashMap::new(),
        has_root: false,
    };
    let done = unpacker.all()?;
    Ok(Unpacked { target, done, replace: limits.replace })
}

/// A complete copy under a temporary name. Dropping it removes the copy.
#[derive(Debug)]
#[must_use]
pub struct Unpacked {
    target: Target,
    done: Transferred,
    replace: bool,
}

impl Unpacked {
    /// Gives the copy its name.
    pub fn keep(self) -> Result<Transferred, TransferError> {
        self.target.finish(self.replace).map(|()| self.done)
    }
}

/// The destination of a copy, and the temporary name next to it, which is removed at the end.
#[derive(Debug)]
struct Target {
    path: PathBuf,
    parent: OwnedFd,
    name: Vec<u8>,
    temporary: Vec<u8>,
}

impl Target {
    fn open(path: &Path, replace: bool) -> Result<Self, TransferError> {
        let open = |source| TransferError::Open { path: path.to_owned(), source };
        let absolute = std::path::absolute(path).map_err(open)?;
        let parent = at::open_parent_of(&absolute).map_err(open)?;
        let name = at::last_name(&absolute).map_err(open)?.to_vec();
        let path = path.to_owned();
        match at::stat(&parent, &name).map_err(open)?.map(|meta| meta.kind) {
            None => {}
            Some(FileKind::File) if replace => {}
            Some(FileKind::File | FileKind::Directory) => {
                return Err(TransferError::Exists { path });
            }
            Some(FileKind::Symlink) => return Err(TransferError::Link { path }),
            Some(FileKind::Fifo | FileKind::Socket | FileKind::Device) => {
                return Err(TransferError::Special { path });
            }
        }
        let temporary = format!(".belljar-cp-{}", std::process::id()).into_bytes();
        Ok(Self { path, parent, name, temporary })
    }

    /// Gives the complete copy its name.
    fn finish(&self, replace: bool) -> Result<(), TransferError> {
        let is_file = |meta: Meta| meta.kind == FileKind::File;
        let replaces =
            replace && at::stat(&self.parent, &self.name).is_ok_and(|it| it.is_some_and(is_file));
        let renamed = match replaces {
            true => at::rename(&self.parent, &self.temporary, &self.parent, &self.name),
            false => at::rename_new(&self.parent, &self.temporary, &self.parent, &self.name),
        };
        let path = || self.path.clone();
        renamed.map_err(|source| match source.kind() == io::ErrorKind::AlreadyExists {
            true => TransferError::Exists { path: path() },
            false => TransferError::Open { path: path(), source },
        })
    }
}

impl Drop for Target {
    /// Removes a copy that was not kept, as far as that is possible.
    fn drop(&mut self) {
        let parent = format!("/proc/self/fd/{}", self.parent.as_raw_fd());
        if at::unlink(&self.parent, &self.temporary).is_err() {
            let temporary = Path::new(&parent).join(OsStr::from_bytes(&self.temporary));
            crate::discard::remove_tree(&temporary).ok();
        }
    }
}

struct Unpacker<'a, R> {
    from: &'a mut R,
    name: &'a [u8],
    target: &'a Target,
    limits: UnpackLimits,
    done: Transferred,
    entries: u64,
    /// The paths of complete files, which later entries can name as hard links.
    files: HashMap<Vec<u8>, u64>,
    has_root: bool,
}

impl<R: Read> Unpacker<'_, R> {
    fn all(&mut self) -> Result<Transferred, TransferError> {
        while let Some(header) = tar::read(self.from)? {
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Err(TransferError::TooMany);
            }
            self.entry(&header)?;
        }
        // The program writes zeros after the end.
        io::copy(&mut self.from.by_ref().take(1 << 20), &mut io::sink())
            .map_err(TransferError::Stream)?;
        match self.has_root {
            true => Ok(std::mem::take(&mut self.done)),
            false => Err(TransferError::Malformed("it is empty")),
        }
    }

    fn entry(&mut self, header: &Header) -> Result<(), TransferError> {
        let path = RelPath::new(&header.path)?;
        let mut parts = path.parts();
        if parts.next() != Some(self.name) {
            return Err(TransferError::Malformed("it has another file than the requested one"));
        }
        let rest: Vec<&[u8]> = parts.collect();
        let below = RelPath::new(rest.join(&b'/'))?;
        if below.is_root() == self.has_root {
            return Err(TransferError::Malformed("its entries have no order"));
        }
        match &header.kind {
            Kind::File => self.file(&below, header)?,
            Kind::Directory => {
                self.has_root = true;
                let (parent, name) = self.parent_of(&below)?;
                at::mkdir(&parent, &name, 0o777).map_err(|source| write(&below, source))?;
            }
            Kind::HardLink(to) => self.hard_link(&below, to, header)?,
            Kind::Other if below.is_root() => {
                return Err(TransferError::Malformed("it has no file and no directory"));
            }
            Kind::Other => {
                self.done.left_out += 1;
                self.skip(header.size)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, below: &RelPath, header: &Header) -> Result<(), TransferError> {
        self.add_bytes(header.size)?;
        self.has_root = true;
        let mut file = self.create(below, header.mode)?;
        let mut content = self.from.by_ref().take(header.size);
        let copied = io::copy(&mut content, &mut file).map_err(|source| write(below, source))?;
        if copied < header.size {
            return Err(TransferError::Malformed("it ends within a file"));
        }
        self.skip_padding(header.size)?;
        self.files.insert(below.as_bytes().to_vec(), header.size);
        self.done.files += 1;
        Ok(())
    }

    /// Copies a file that an earlier entry of the stream has.
    fn hard_link(
        &mut self,
        below: &RelPath,
        to: &[u8],
        header: &Header,
    ) -> Result<(), TransferError> {
        let to = RelPath::new(to)?;
        let of: Vec<&[u8]> = to.parts().skip(1).collect();
        let of = of.join(&b'/');
        let Some(size) = self.files.get(&of).copied().filter(|_| !below.is_root()) else {
            return Err(TransferError::Malformed("a hard link has no file"));
        };
        self.add_bytes(size)?;
        let of = RelPath::new(of)?;
        let (parent, name) = self.parent_of(&of)?;
        let (fd, _) = at::file(&parent, &name).map_err(|source| write(&of, source))?;
        let mut file = self.create(below, header.mode)?;
        io::copy(&mut File::from(fd), &mut file).map_err(|source| write(below, source))?;
        self.done.files += 1;
        Ok(())
    }

    fn create(&self, below: &RelPath, mode: u32) -> Result<File, TransferError> {
        let (parent, name) = self.parent_of(below)?;
        // The kernel applies the umask of the user.
        let mode = if mode & 0o100 == 0 { 0o666 } else { 0o777 };
        let created = at::create(&parent, &name, mode).map_err(|source| write(below, source))?;
        Ok(File::from(created))
    }

    /// Opens the directory that a path of the copy is in, and returns it with the name in it.
    fn parent_of(&self, below: &RelPath) -> Result<(OwnedFd, Vec<u8>), TransferError> {
        let target = self.target;
        let Some((parent, name)) = below.split() else {
            let parent = target.parent.as_fd().try_clone_to_owned();
            let parent = parent.map_err(|source| write(below, source))?;
            return Ok((parent, target.temporary.clone()));
        };
        let parent = at::child_dir(&target.parent, &target.temporary)
            .and_then(|root| at::dir(root, &parent))
            .map_err(|source| write(below, source))?;
        Ok((parent, name.to_vec()))
    }

    fn add_bytes(&mut self, size: u64) -> Result<(), TransferError> {
        let limit = self.limits.bytes;
        match self.done.bytes.checked_add(size).filter(|all| *all <= limit) {
            Some(all) => self.done.bytes = all,
            None => return Err(TransferError::TooLarge { limit }),
        }
        Ok(())
    }

    fn skip(&mut self, size: u64) -> Result<(), TransferError> {
        let skipped = io::copy(&mut self.from.by_ref().take(size), &mut io::sink());
        skipped.map_err(TransferError::Stream)?;
        self.skip_padding(size)
    }

    fn skip_padding(&mut self, size: u64) -> Result<(), TransferError> {
        let mut rest = vec![0; tar::padding(size).len()];
        self.from.read_exact(&mut rest).map_err(TransferError::Stream)
    }
}

fn write(below: &RelPath, source: io::Error) -> TransferError {
    TransferError::Write { path: below.as_bytes().to_vec(), source }
}

#[cfg(test)]
mod tests;
