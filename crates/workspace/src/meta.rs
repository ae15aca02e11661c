//! File metadata in portable types.

use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};

/// The type of a file.
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
    /// Returns the noun for the file type in messages, such as `directory`.
    pub const fn noun(self) -> &'static str {
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

/// A timestamp of the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Timestamp {
    pub secs: i64,
    pub nanos: u32,
}

/// The identity of a file, to detect that it was replaced or written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub dev: u64,
    pub ino: u64,
    pub size: u64,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
}

impl Identity {
    /// Returns whether both metadata describe the same inode with the same content. `ctime` is
    /// ignored because a rename changes it.
    pub(crate) fn same_content(&self, other: &Self) -> bool {
        let Self { dev, ino, size, mtime, ctime: _ } = *self;
        (dev, ino, size, mtime) == (other.dev, other.ino, other.size, other.mtime)
    }
}

/// The result of `stat` with uniform integer types.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meta {
    pub kind: FileKind,
    /// The permission bits including setuid, setgid and sticky, without type bits.
    pub mode: u32,
    pub identity: Identity,
    pub nlink: u64,
    pub uid: u32,
    pub gid: u32,
    /// The number of bytes that are allocated on disk, without holes.
    pub allocated: u64,
    /// Whether the file is the character device 0/0, which overlayfs uses as a whiteout.
    pub whiteout: bool,
}

impl Meta {
    pub(crate) const fn size(&self) -> u64 {
        self.identity.size
    }

    /// Returns whether the file has further hard links, which a change would affect.
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
                mtime: timestamp(stat.st_mtime, stat.st_mtime_nsec),
                ctime: timestamp(stat.st_ctime, stat.st_ctime_nsec),
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

fn timestamp(secs: i64, nanos: impl TryInto<u32>) -> Timestamp {
    Timestamp { secs, nanos: nanos.try_into().unwrap_or(0) }
}

/// Converts a field of `stat`, whose width and sign depend on the architecture. The values are
/// never negative.
fn unsigned(value: impl TryInto<u64>) -> u64 {
    value.try_into().unwrap_or(0)
}
