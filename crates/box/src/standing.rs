//! Who we are on the host, and who the payload is to be.
//!
//! As root every box gets a user id of its own that nobody else on the machine has; files of the
//! workspace are shown through an id-mapped mount, so that on disk they keep their owner. As a plain
//! user the payload has that user's id, in a user namespace where it is worth nothing else.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use belljar_sys::{clone, mount, process};
use rustix::fs::{Mode, OFlags};
use rustix::mount::OpenTreeFlags;
use rustix::process::Signal;
use rustix::thread::CapabilitySet;

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
pub(crate) struct MappedTrees {
    outside: Ids,
    /// One user namespace per owner that was seen; usually one.
    namespaces: Vec<((u32, u32), OwnedFd)>,
}

impl MappedTrees {
    pub(crate) fn new(ids: Ids) -> Self {
        Self { outside: ids, namespaces: Vec::new() }
    }

    /// Clones the tree at `place`; files of its owner become the box's, all others nobody's.
    pub(crate) fn clone_of(&mut self, place: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let stat = rustix::fs::fstat(place)?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH
            | OpenTreeFlags::AT_RECURSIVE;
        let tree = rustix::mount::open_tree(place, "", flags)?;
        mount::map_ids(tree.as_fd(), self.namespace((stat.st_uid, stat.st_gid))?)?;
        Ok(tree)
    }

    fn namespace(&mut self, owner: (u32, u32)) -> io::Result<BorrowedFd<'_>> {
        let known = self.namespaces.iter().position(|(of, _)| *of == owner);
        let index = match known {
            Some(index) => index,
            None => {
                self.namespaces.push((owner, new_namespace(owner, self.outside)?));
                self.namespaces.len() - 1
            }
        };
        let (_, namespace) = self.namespaces.get(index).ok_or(io::ErrorKind::NotFound)?;
        Ok(namespace.as_fd())
    }
}

/// A user namespace in which `owner` on disk is the box's id.
fn new_namespace(owner: (u32, u32), ids: Ids) -> io::Result<OwnedFd> {
    let holder = clone::hold_user_namespace()?;
    let made = || -> io::Result<OwnedFd> {
        let pid = holder.pid;
        write_map(pid, "uid_map", &format!("{} {} 1", owner.0, ids.outside_uid))?;
        write_map(pid, "gid_map", &format!("{} {} 1", owner.1, ids.outside_gid))?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(format!("/proc/{pid}/ns/user"), flags, Mode::empty())?)
    };
    let made = made();
    rustix::process::pidfd_send_signal(&holder.pidfd, Signal::KILL)?;
    process::wait(holder.pid, true)?;
    made
}
