//! The privilege of this process, and the user ids of a box.
//!
//! Under root, every box gets a unique user id. An id-mapped mount shows the files of the workspace, so
//! that the files keep their owner on disk. Under a plain user, the payload has the id of that user, in
//! a user namespace without any other rights.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use belljar_sys::mount;
use rustix::mount::OpenTreeFlags;
use rustix::thread::CapabilitySet;

use crate::janitor::Janitor;

/// The privilege of this process on the host: root of the machine or rootless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// Belljar runs as root of the machine, with `CAP_SYS_ADMIN`.
    Root,
    /// Belljar runs as any other user, including root in a container with its own user namespace.
    Rootless,
}

/// The first host user id of boxes that root starts. No distribution assigns ids of this range.
const BOX_IDS: u32 = 0x7000_0000;

/// The user and group id of a box, inside the box and on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    pub inside: u32,
    pub outside_uid: u32,
    pub outside_gid: u32,
}

impl Privilege {
    /// Returns whether this process is root of the machine or rootless.
    pub fn of_this_process() -> Self {
        let admin = rustix::thread::capabilities(None)
            .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
        if is_root_of_the_machine() && admin { Self::Root } else { Self::Rootless }
    }

    /// Returns the user and group ids of a new box. Under root, `random` selects the id on the
    /// host.
    pub fn ids(self, inside: u32, random: u32) -> Ids {
        match self {
            Self::Root => {
                let own = BOX_IDS | (random & 0x00ff_ffff);
                Ids { inside, outside_uid: own, outside_gid: own }
            }
            Self::Rootless => Ids {
                inside,
                outside_uid: rustix::process::geteuid().as_raw(),
                outside_gid: rustix::process::getegid().as_raw(),
            },
        }
    }
}

/// Returns whether this process is uid 0 of the machine, as opposed to uid 0 of a user namespace.
fn is_root_of_the_machine() -> bool {
    let whole = || {
        std::fs::read_to_string("/proc/self/uid_map")
            .is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
    };
    rustix::process::geteuid().is_root() && whole()
}

/// Returns whether this process is root without `CAP_SYS_ADMIN`. Its payloads would be root on the
/// host.
pub(crate) fn is_root_without_capabilities(privilege: Privilege) -> bool {
    privilege == Privilege::Rootless && is_root_of_the_machine()
}

/// Writes the uid and gid maps of the user namespace of process `pid`.
pub(crate) fn write_maps(pid: i32, privilege: Privilege, ids: Ids) -> io::Result<()> {
    match privilege {
        Privilege::Root => {} // the child drops root's groups; "deny" would forbid that
        Privilege::Rootless => write_map(pid, "setgroups", "deny")?,
    }
    write_map(pid, "uid_map", &format!("{} {} 1", ids.inside, ids.outside_uid))?;
    write_map(pid, "gid_map", &format!("{} {} 1", ids.inside, ids.outside_gid))
}

fn write_map(pid: i32, file: &str, content: &str) -> io::Result<()> {
    std::fs::write(format!("/proc/{pid}/{file}"), content)
}

/// Creates detached id-mapped mounts, whose files the box owns in its own view. Only root can make
/// them.
#[derive(Debug)]
pub(crate) struct MappedTrees<'a> {
    ids: Ids,
    janitor: Option<&'a Janitor>,
    /// The user namespaces by file owner; usually one.
    namespaces: Vec<((u32, u32), OwnedFd)>,
}

impl<'a> MappedTrees<'a> {
    pub(crate) fn new(ids: Ids, janitor: Option<&'a Janitor>) -> Self {
        Self { ids, janitor, namespaces: Vec::new() }
    }

    /// Adds a user namespace for files of this owner that the janitor has already created.
    pub(crate) fn add(&mut self, owner: (u32, u32), namespace: OwnedFd) {
        self.namespaces.push((owner, namespace));
    }

    /// Returns an id-mapped clone of the mount at `place`. The box owns the files of its owner; all
    /// others belong to nobody.
    pub(crate) fn clone_of(&mut self, place: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let stat = rustix::fs::fstat(place)?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH
            | OpenTreeFlags::AT_RECURSIVE;
        let tree = rustix::mount::open_tree(place, "", flags)?;
        self.map(tree.as_fd(), (stat.st_uid, stat.st_gid))?;
        Ok(tree)
    }

    /// Maps the ids of a detached mount: the box owns the files of `owner`; all others belong to nobody.
    pub(crate) fn map(&mut self, tree: BorrowedFd<'_>, owner: (u32, u32)) -> io::Result<()> {
        if !self.namespaces.iter().any(|(of, _)| *of == owner) {
            let janitor = self.janitor.ok_or(io::ErrorKind::NotFound)?;
            janitor.request_namespace(owner, self.ids.outside())?;
            let namespace = janitor.receive()?.pop().ok_or(io::ErrorKind::NotFound)?;
            self.add(owner, namespace);
        }
        let namespace = self.namespaces.iter().find(|(of, _)| *of == owner);
        let (_, namespace) = namespace.ok_or(io::ErrorKind::NotFound)?;
        mount::map_ids(tree, namespace.as_fd())
    }
}

impl Ids {
    /// Returns the user and group id of the box on the host.
    pub(crate) fn outside(self) -> (u32, u32) {
        (self.outside_uid, self.outside_gid)
    }
}
