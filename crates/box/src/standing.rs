//! Who we are on the host, and who the payload is to be.
//!
//! As root every box gets a user id of its own that nobody else on the machine has; files of the
//! workspace are shown through an id-mapped mount, so that on disk they keep their owner. As a plain
//! user the payload has that user's id, in a user namespace where it is worth nothing else.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use belljar_sys::mount;
use rustix::mount::OpenTreeFlags;
use rustix::thread::CapabilitySet;

use crate::janitor::Janitor;

/// What the host lets us do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Root of the machine.
    Root,
    /// Anybody else, including root of a container with its own user namespace.
    Rootless,
}

/// First of the user ids given to the boxes of root: a range that no distribution hands out.
const BOX_IDS: u32 = 0x7000_0000;

/// How ids inside the box relate to those of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    pub inside: u32,
    pub outside_uid: u32,
    pub outside_gid: u32,
}

impl Standing {
    /// Looks at this process.
    pub fn of_this_process() -> Self {
        let admin = rustix::thread::capabilities(None)
            .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
        if is_root_of_the_machine() && admin { Self::Root } else { Self::Rootless }
    }

    /// The ids of a new box. `random` tells the boxes of root apart.
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

/// Whether our user id is the machine's own 0, not that of a container's user namespace.
fn is_root_of_the_machine() -> bool {
    let whole = || {
        std::fs::read_to_string("/proc/self/uid_map")
            .is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
    };
    rustix::process::geteuid().is_root() && whole()
}

/// Root without its powers could start a box, but only one whose payload is root too.
pub(crate) fn is_powerless_root(standing: Standing) -> bool {
    standing == Standing::Rootless && is_root_of_the_machine()
}

/// Writes the id maps of the user namespace that `pid` is in.
pub(crate) fn write_maps(pid: i32, standing: Standing, ids: Ids) -> io::Result<()> {
    match standing {
        Standing::Root => {} // the child drops root's groups, which "deny" would forbid
        Standing::Rootless => write_map(pid, "setgroups", "deny")?,
    }
    write_map(pid, "uid_map", &format!("{} {} 1", ids.inside, ids.outside_uid))?;
    write_map(pid, "gid_map", &format!("{} {} 1", ids.inside, ids.outside_gid))
}

fn write_map(pid: i32, file: &str, content: &str) -> io::Result<()> {
    std::fs::write(format!("/proc/{pid}/{file}"), content)
}

/// Detached mounts whose files belong, for the box, to the box. Only for root.
#[derive(Debug)]
pub(crate) struct MappedTrees<'a> {
    ids: Ids,
    janitor: Option<&'a Janitor>,
    /// One user namespace per owner that was seen; usually one.
    namespaces: Vec<((u32, u32), OwnedFd)>,
}

impl<'a> MappedTrees<'a> {
    pub(crate) fn new(ids: Ids, janitor: Option<&'a Janitor>) -> Self {
        Self { ids, janitor, namespaces: Vec::new() }
    }

    /// Takes a namespace that was asked for beforehand.
    pub(crate) fn add(&mut self, owner: (u32, u32), namespace: OwnedFd) {
        self.namespaces.push((owner, namespace));
    }

    /// Clones the tree at `place`; files of its owner become the box's, all others nobody's.
    pub(crate) fn clone_of(&mut self, place: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let stat = rustix::fs::fstat(place)?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH
            | OpenTreeFlags::AT_RECURSIVE;
        let tree = rustix::mount::open_tree(place, "", flags)?;
        let owner = (stat.st_uid, stat.st_gid);
        if !self.namespaces.iter().any(|(of, _)| *of == owner) {
            let janitor = self.janitor.ok_or(io::ErrorKind::NotFound)?;
            janitor.ask_namespace(owner, self.ids.outside())?;
            let namespace = janitor.answer()?.pop().ok_or(io::ErrorKind::NotFound)?;
            self.add(owner, namespace);
        }
        let namespace = self.namespaces.iter().find(|(of, _)| *of == owner);
        let (_, namespace) = namespace.ok_or(io::ErrorKind::NotFound)?;
        mount::map_ids(tree.as_fd(), namespace.as_fd())?;
        Ok(tree)
    }
}

impl Ids {
    /// User and group on the host.
    pub(crate) fn outside(self) -> (u32, u32) {
        (self.outside_uid, self.outside_gid)
    }
}
