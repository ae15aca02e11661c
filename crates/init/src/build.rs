//! Furnishes the new root and makes it the root.
//!
//! Everything is done by descriptor: sources are cloned as detached trees, targets are opened
//! beneath the new root without following a symlink, and one is moved onto the other. Nothing that
//! a hostile tree contains can redirect a mount to the host (CVE-2026-87766 and its kind).
//!
//! ```text
//! old root ◀─ stage (tmpfs over the old /proc): root/    the new root, a bind of this directory
//!                                               covers/  what hides entries of /proc
//!                                               scratch, lower, layers: what others are made from
//! ```
//! `pivot_root` makes `root/` the root; detaching the old root takes the stage with it, which is one
//! wait for the kernel instead of one per helper mount.

use std::cell::{Cell, RefCell};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use belljar_sys::mount::{self, attr};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};

use crate::plan::{Access, Bytes, Plan, RootKind, Scratch, Source, Stage, Step};
use crate::{During, Failure, proc, show};

/// So much of a file of the host is copied; the stage holds four times as much.
const MAX_JOINED: u64 = 1 << 20;

/// The new root while it is being furnished.
pub(crate) struct Site<'a> {
    pub(crate) stage: OwnedFd,
    pub(crate) root: OwnedFd,
    /// Whether the root is read-only once it is furnished.
    pub(crate) is_sealed: bool,
    trees: &'a [OwnedFd],
    /// So many files of our own are there.
    owned: Cell<usize>,
    /// The directory that was last written to; neighbours come one after the other.
    last: RefCell<Option<(Bytes, Rc<OwnedFd>)>>,
}

/// Builds the root that `plan` describes and moves into it.
pub(crate) fn build(plan: &Plan, trees: &[OwnedFd]) -> Result<(), Failure> {
    let site = Site::open(plan, trees)?;
    for step in &plan.steps {
        site.perform(step)?;
    }
    if site.is_sealed {
        mount::set_mount_attributes(site.root.as_fd(), attr::READ_ONLY)
            .during(Stage::Root, || "make the root read-only".to_owned())?;
    }
    site.enter()
}

impl<'a> Site<'a> {
    /// Sets the stage, the scratch space and the empty root.
    fn open(plan: &Plan, trees: &'a [OwnedFd]) -> Result<Self, Failure> {
        let open = || -> io::Result<Self> {
            let stage =
                filesystem("tmpfs", &[("size", "4m"), ("nr_inodes", "4096"), ("mode", "755")])?;
            // A place that exists everywhere and is no longer needed. Not the root itself: what is
            // stacked there would be detached in its stead at the end, and the old root would stay.
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            rustix::mount::move_mount(&stage, "", CWD, "/proc", flags)?;
            for name in ["root", "covers", "scratch", "lower", "layers"] {
                rustix::fs::mkdirat(&stage, name, Mode::from_raw_mode(0o755))?;
            }
            proc::make_covers(&stage)?;
            let scratch = new_scratch(&plan.scratch)?;
            attach_to(scratch.as_fd(), place(&stage, b"scratch", OFlags::PATH)?.as_fd())?;
            let root = match &plan.root {
                RootKind::Empty => clone_beneath(&stage, b"root")?,
                RootKind::Directory(source) => {
                    let lower = tree_of(source, trees)?;
                    mount::set_tree_attributes(lower.as_fd(), attr::NO_SUID | attr::NO_DEV)?;
                    attach_to(lower.as_fd(), place(&stage, b"lower", OFlags::PATH)?.as_fd())?;
                    rustix::fs::mkdirat(&scratch, ".upper", Mode::from_raw_mode(0o755))?;
                    rustix::fs::mkdirat(&scratch, ".work", Mode::from_raw_mode(0o700))?;
                    overlay_of(&stage, "rootfs", &Upper::At("scratch/.upper", "scratch/.work"))?
                }
            };
            attach_to(root.as_fd(), place(&stage, b"root", OFlags::PATH)?.as_fd())?;
            let is_sealed = matches!(plan.root, RootKind::Empty);
            let (owned, last) = (Cell::new(0), RefCell::new(None));
            let site = Self { stage, root, is_sealed, trees, owned, last };
            for (name, target, _) in &plan.scratch.at {
                let tree = clone_beneath(&scratch, name)?;
                site.attach(tree.as_fd(), target)?;
            }
            Ok(site)
        };
        open().during(Stage::Root, || "make the new root".to_owned())
    }

    fn perform(&self, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Dir { path, mode } => {
                self.directory(path, *mode).during(Stage::Root, || format!("create {}", show(path)))
            }
            Step::Symlink { path, target } => self
                .symlink(path, target)
                .during(Stage::Root, || format!("create the link {}", show(path))),
            Step::File { path, content } => {
                self.file(path, content).during(Stage::Root, || format!("write {}", show(path)))
            }
            Step::Joined { path, content, behind } => self
                .joined(path, content, behind)
                .during(Stage::Root, || format!("write {}", show(path))),
            Step::Replace { path, target } => self
                .replace(path, target)
                .during(Stage::Root, || format!("put a link at {}", show(path))),
            Step::Bind { source, target, access, optional } => {
                match self.bind(source, target, *access) {
                    Err(error) if *optional && error.kind() == io::ErrorKind::NotFound => Ok(()),
                    done => done.during(Stage::Root, || format!("mount {}", show(target))),
                }
            }
            Step::Proc { mask } => {
                proc::mount(self, mask.as_ref()).during(Stage::Proc, || "mount /proc".to_owned())
            }
            Step::Hide { path } => {
                self.hide(path).during(Stage::Root, || format!("hide {}", show(path)))
            }
            Step::Mask { beneath, path, kind } => self
                .mask(beneath, path, *kind)
                .during(Stage::Workspace, || format!("mask {}", show(path))),
            Step::Own { path, content } => self
                .own(path, content, self.owned.replace(self.owned.get() + 1))
                .during(Stage::Root, || format!("put a file at {}", show(path))),
            Step::Devices => self.devices().during(Stage::Root, || "furnish /dev".to_owned()),
            Step::Show { source, target } => {
                self.show(source, target).during(Stage::Root, || format!("mount {}", show(target)))
            }
            Step::Overlay { lower, layers, target } => self
                .overlay(lower, layers, target)
                .during(Stage::Workspace, || format!("mount the overlay on {}", show(target))),
        }
    }

    /// Creates a directory and those above it that are missing.
    pub(crate) fn directory(&self, path: &[u8], mode: u32) -> io::Result<()> {
        let mut parent = place(&self.root, b"", OFlags::PATH | OFlags::DIRECTORY)?;
        let mut names = components(path).peekable();
        while let Some(name) = names.next() {
            let mode = if names.peek().is_none() { mode } else { 0o755 };
            match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(mode)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            parent = place(&parent, name, OFlags::PATH | OFlags::DIRECTORY)?;
        }
        Ok(())
    }

    /// The directory that holds `path`, made if missing, and the last name.
    fn parent(&self, path: &[u8]) -> io::Result<(Rc<OwnedFd>, Bytes)> {
        let path = relative(path);
        let slash = path.iter().rposition(|byte| *byte == b'/');
        let (parent, name) = slash.map_or((&b""[..], path), |at| path.split_at(at));
        let name = relative(name).to_vec();
        if let Some((last, directory)) = &*self.last.borrow()
            && last == parent
        {
            return Ok((Rc::clone(directory), name));
        }
        let open = || place(&self.root, parent, OFlags::PATH | OFlags::DIRECTORY);
        let directory = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.directory(parent, 0o755)?;
                open()?
            }
            found => found?,
        };
        let directory = Rc::new(directory);
        self.last.replace(Some((parent.to_vec(), Rc::clone(&directory))));
        Ok((directory, name))
    }

    /// Something was mounted or moved where we have written.
    pub(crate) fn forget(&self) {
        self.last.take();
    }

    fn symlink(&self, path: &[u8], target: &[u8]) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        match rustix::fs::symlinkat(target, &*parent, name.as_slice()) {
            Err(rustix::io::Errno::EXIST) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// As [`Self::symlink`], where a tree from a stranger may have links and files in the way. Only
    /// links and files make way: nothing that is mounted is touched.
    fn replace(&self, path: &[u8], target: &[u8]) -> io::Result<()> {
        let mut parent = place(&self.root, b"", OFlags::PATH | OFlags::DIRECTORY)?;
        let mut names = components(path).peekable();
        while let Some(name) = names.next() {
            let found = match rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => Some(FileType::from_raw_mode(stat.st_mode)),
                Err(rustix::io::Errno::NOENT) => None,
                Err(error) => return Err(error.into()),
            };
            let is_dir = found == Some(FileType::Directory);
            if found.is_some() && !is_dir {
                rustix::fs::unlinkat(&parent, name, AtFlags::empty())?;
            }
            if names.peek().is_none() {
                if !is_dir {
                    rustix::fs::symlinkat(target, &parent, name)?;
                }
                break;
            }
            if !is_dir {
                rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755))?;
            }
            parent = place(&parent, name, OFlags::PATH | OFlags::DIRECTORY)?;
        }
        self.forget(); // it may be one that was replaced
        Ok(())
    }

    fn file(&self, path: &[u8], content: &[u8]) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(0o444);
        let file = rustix::fs::openat(&*parent, name.as_slice(), flags | OFlags::CLOEXEC, mode)?;
        let mut rest = content;
        while !rest.is_empty() {
            let wrote = rustix::io::write(&file, rest)?;
            rest = rest.get(wrote..).unwrap_or_default();
        }
        Ok(())
    }

    fn joined(&self, path: &[u8], content: &[u8], behind: &[u8]) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let behind = std::fs::File::from(rustix::fs::open(behind, flags, Mode::empty())?);
        let mut all = content.to_vec();
        behind.take(MAX_JOINED).read_to_end(&mut all)?;
        self.file(path, &all)
    }

    fn bind(&self, source: &Source, target: &[u8], access: Access) -> io::Result<()> {
        let tree = tree_of(source, self.trees)?;
        let attributes = match access {
            Access::ReadOnly => attr::READ_ONLY | attr::NO_SUID | attr::NO_DEV,
            Access::ReadWrite => attr::NO_SUID | attr::NO_DEV,
            Access::Device => attr::NO_SUID | attr::NO_EXEC,
        };
        mount::set_tree_attributes(tree.as_fd(), attributes)?;
        self.attach(tree.as_fd(), target)
    }

    /// Moves a detached mount onto `target`, which is created in the likeness of the source.
    pub(crate) fn attach(&self, tree: BorrowedFd<'_>, target: &[u8]) -> io::Result<()> {
        let (parent, name) = self.parent(target)?;
        let stat = rustix::fs::statat(tree, "", AtFlags::EMPTY_PATH)?;
        let mode = Mode::from_raw_mode(0o755);
        let made = if FileType::from_raw_mode(stat.st_mode).is_dir() {
            rustix::fs::mkdirat(&*parent, name.as_slice(), mode)
        } else {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            rustix::fs::openat(&*parent, name.as_slice(), flags, mode).map(drop)
        };
        match made {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        // One name beneath a directory that is open: no link is followed.
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(tree, "", &*parent, name.as_slice(), flags)?;
        // What was mounted over, and all beneath it, is another directory from now on.
        self.last.borrow_mut().take_if(|(last, _)| last.starts_with(relative(target)));
        Ok(())
    }

    fn devices(&self) -> io::Result<()> {
        for name in ["null", "zero", "full", "random", "urandom", "tty"] {
            let target = format!("/dev/{name}").into_bytes();
            let source = Source::Path { path: target.clone(), identity: None };
            self.bind(&source, &target, Access::Device)?;
        }
        let pts = filesystem("devpts", &[("mode", "620"), ("ptmxmode", "666"), ("max", "64")])?;
        self.attach(pts.as_fd(), b"/dev/pts")?;
        let links = [
            ("/dev/ptmx", "pts/ptmx"),
            ("/dev/fd", "/proc/self/fd"),
            ("/dev/stdin", "/proc/self/fd/0"),
            ("/dev/stdout", "/proc/self/fd/1"),
            ("/dev/stderr", "/proc/self/fd/2"),
        ];
        links.iter().try_for_each(|(path, to)| self.symlink(path.as_bytes(), to.as_bytes()))
    }

    /// A regular file is bound as it is; there is nothing in it to connect to.
    fn show(&self, source: &Source, target: &[u8]) -> io::Result<()> {
        let tree = tree_of(source, self.trees)?;
        let stat = rustix::fs::statat(&tree, "", AtFlags::EMPTY_PATH)?;
        if !FileType::from_raw_mode(stat.st_mode).is_dir() {
            return self.bind(source, target, Access::ReadOnly);
        }
        attach_to(tree.as_fd(), place(&self.stage, b"lower", OFlags::PATH)?.as_fd())?;
        let overlay = overlay_of(&self.stage, "shown", &Upper::Nothing)?;
        mount::set_tree_attributes(overlay.as_fd(), attr::READ_ONLY)?;
        self.attach(overlay.as_fd(), target)
    }

    fn overlay(&self, lower: &Source, layers: &Source, target: &[u8]) -> io::Result<()> {
        // Overlayfs takes its layers by path, so they stand on the stage for a moment.
        for (name, source) in [("lower", lower), ("layers", layers)] {
            let tree = tree_of(source, self.trees)?;
            let at = place(&self.stage, name.as_bytes(), OFlags::PATH)?;
            attach_to(tree.as_fd(), at.as_fd())?;
        }
        let overlay =
            overlay_of(&self.stage, "workspace", &Upper::At("layers/upper", "layers/work"))?;
        self.attach(overlay.as_fd(), target)
    }

    /// Makes this the root and lets go of the old one, and of the stage with it.
    fn enter(self) -> Result<(), Failure> {
        let pivot = || -> io::Result<()> {
            rustix::process::fchdir(&self.root)?;
            // Stacks the old root on the new one, from where it can be detached without a path.
            rustix::process::pivot_root(".", ".")?;
            rustix::mount::unmount(".", UnmountFlags::DETACH)?;
            rustix::process::chdir("/")?;
            Ok(())
        };
        pivot().during(Stage::Root, || "enter the new root".to_owned())
    }
}

/// Opens a place beneath `dir` without following anything that could lead out of it.
pub(crate) fn place(dir: &OwnedFd, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let path = if path.is_empty() { b"." } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve)?)
}

/// A new instance of a file system with these options, not mounted anywhere yet.
pub(crate) fn filesystem(kind: &str, options: &[(&str, &str)]) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(&context, *key, *value)?;
    }
    rustix::mount::fsconfig_create(&context)?;
    let kind_only = match kind {
        "devpts" => MountAttrFlags::MOUNT_ATTR_NOEXEC,
        "proc" => MountAttrFlags::MOUNT_ATTR_NOEXEC | MountAttrFlags::MOUNT_ATTR_NODEV,
        _ => MountAttrFlags::MOUNT_ATTR_NODEV,
    };
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | kind_only;
    Ok(rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

fn new_scratch(scratch: &Scratch) -> io::Result<OwnedFd> {
    let (bytes, inodes) = (scratch.bytes.to_string(), scratch.inodes.to_string());
    let options = [("size", bytes.as_str()), ("nr_inodes", &inodes), ("mode", "755")];
    let made = filesystem("tmpfs", &options)?;
    for (name, _, mode) in &scratch.at {
        let mode = Mode::from_raw_mode(*mode);
        rustix::fs::mkdirat(&made, name.as_slice(), mode)?;
        rustix::fs::chmodat(&made, name.as_slice(), mode, AtFlags::empty())?; // past the umask
    }
    Ok(made)
}

/// What lies above the lower layer of an overlay.
enum Upper<'a> {
    /// The upper and the work directory.
    At(&'a str, &'a str),
    /// Nothing: an overlay must have two layers, so an empty one goes below.
    Nothing,
}

/// An overlay of `lower` and what is above it, all named relative to the stage.
fn overlay_of(stage: &OwnedFd, name: &str, upper: &Upper<'_>) -> io::Result<OwnedFd> {
    rustix::process::fchdir(stage)?;
    let context = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let options = match upper {
        Upper::At(upper, work) => {
            vec![("lowerdir", "lower"), ("upperdir", upper), ("workdir", work)]
        }
        Upper::Nothing => vec![("lowerdir", "lower:covers/.dir")],
    };
    rustix::mount::fsconfig_set_string(&context, "source", name)?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(&context, key, value)?;
    }
    // Bookkeeping in user.* attributes: the ones for root are out of reach in a user namespace.
    rustix::mount::fsconfig_set_flag(&context, "userxattr")?;
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// The detached mount that a source stands for.
fn tree_of(source: &Source, trees: &[OwnedFd]) -> io::Result<OwnedFd> {
    match source {
        Source::Descriptor(index) => {
            let index = usize::try_from(*index).map_err(io::Error::other)?;
            trees.get(index).ok_or(io::ErrorKind::InvalidInput)?.try_clone()
        }
        Source::Path { path, identity } => {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_RECURSIVE;
            let tree = rustix::mount::open_tree(CWD, path.as_slice(), flags)?;
            let stat = rustix::fs::statat(&tree, "", AtFlags::EMPTY_PATH)?;
            if identity.is_some_and(|expected| (stat.st_dev, stat.st_ino) != expected) {
                // Somebody has put something else there since the supervisor looked.
                return Err(rustix::io::Errno::STALE.into());
            }
            Ok(tree)
        }
    }
}

/// A detached copy of one directory or file of a mount of ours.
pub(crate) fn clone_beneath(dir: &OwnedFd, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Ok(rustix::mount::open_tree(dir, name, flags)?)
}

pub(crate) fn attach_to(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(tree, "", target, "", flags)?)
}

/// The same path without the leading slash, as the *at calls want it.
pub(crate) fn relative(path: &[u8]) -> &[u8] {
    path.strip_prefix(b"/").unwrap_or(path)
}

pub(crate) fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}
