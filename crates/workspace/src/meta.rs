//! What one `stat` says about a file, in our own words.

use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};

/// What kind of thing a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    Device,
}

impl FileKind {
    /// The word people use for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Symlink => "symbolic link",
            Self::Fifo => "named pipe",
            Self::Socket => "socket",
            Self::Device => "device",
        }
    }
}

/// A moment as the file system keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment {
    pub secs: i64,
    pub nanos: u32,
}

/// Enough about a file to notice that it is another one, or was written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub dev: u64,
    pub ino: u64,
    pub size: u64,
    pub mtime: Moment,
    pub ctime: Moment,
}

impl Identity {
    /// The same inode with the same bytes. A rename moves `ctime`, so it is left out.
    pub(crate) fn same_content(&self, other: &Self) -> bool {
        let Self { dev, ino, size, mtime, ctime: _ } = *self;
        (dev, ino, size, mtime) == (other.dev, other.ino, other.size, other.mtime)
    }
}

/// One `stat`, with the kernel's varying integer widths evened out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meta {
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky; no type bits.
    pub mode: u32,
    pub identity: Identity,
    pub nlink: u64,
    pub uid: u32,
    pub gid: u32,
    /// Bytes really allocated, holes left out.
    pub allocated: u64,
    /// A character device 0/0: what overlayfs leaves where something was deleted.
    pub whiteout: bool,
}

impl Meta {
    pub(crate) const fn size(&self) -> u64 {
        self.identity.size
    }

    /// Whether the file has other names, which a change to it would reach.
    pub(crate) fn is_shared(&self) -> bool {
        self.kind != FileKind::Directory && self.nlink > 1
    }

    pub(crate) const fn inode(&self) -> (u64, u64) {
        (self.identity.dev, self.identity.ino)
    }
}

impl From<Stat> for Meta {
    fn from(stat: Stat) -> Self {
        let raw = FileType::from_raw_mode(stat.st_mode);
        Self {
            kind: kind_of(raw),
            mode: stat.st_mode & 0o7777,
            identity: Identity {
                dev: unsigned(stat.st_dev),
                ino: unsigned(stat.st_ino),
                size: unsigned(stat.st_size),
                mtime: moment(stat.st_mtime, stat.st_mtime_nsec),
                ctime: moment(stat.st_ctime, stat.st_ctime_nsec),
            },
            nlink: unsigned(stat.st_nlink),
            uid: stat.st_uid,
            gid: stat.st_gid,
            allocated: unsigned(stat.st_blocks).saturating_mul(512),
            whiteout: raw == FileType::CharacterDevice && unsigned(stat.st_rdev) == 0,
        }
    }
}

fn kind_of(raw: FileType) -> FileKind {
    match raw {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => FileKind::Device,
    }
}

fn moment(secs: i64, nanos: impl TryInto<u32>) -> Moment {
    Moment { secs, nanos: nanos.try_into().unwrap_or(0) }
}

/// The fields of `stat` differ in width and sign between architectures; none is ever negative.
fn unsigned(value: impl TryInto<u64>) -> u64 {
    value.try_into().unwrap_or(0)
}
