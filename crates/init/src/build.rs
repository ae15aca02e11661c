//! Builds the new root of a box from the steps of the plan and makes it the root.
//!
//! All operations use descriptors: sources are cloned as detached mount trees, targets are opened
//! beneath the new root without following symbolic links, and a source is moved onto its target. So the
//! content of a hostile directory cannot redirect a mount to the host (such as CVE-2026-87766).
//!
//! ```text
//! old root ◀─ staging (tmpfs over the old /proc): root/    the new root, a bind of this directory
//!                                                 covers/  empty files that hide entries of /proc
//!                                                 scratch, lower, layers: parts of overlays
//! ```
//! `pivot_root` makes `root/` the root. Detaching the old root also detaches the staging tmpfs, so the
//! kernel waits once instead of once per helper mount.

use std::cell::{Cell, RefCell};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use belljar_sys::mount::{self, attr};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};

use crate::plan::{Access, Bytes, LayerSync, Plan, RootKind, Scratch, Source, Stage, Step};
use crate::{Context, Failure, display, proc};

/// The maximum number of bytes that are copied from a host file. The staging tmpfs has four times
/// this size.
const MAX_APPENDED: u64 = 1 << 20;

/// The new root file system of a box while it is being built.
pub(crate) struct NewRoot<'a> {
    /// A tmpfs for mounts that are needed only while the root file system is built.
    pub(crate) staging: OwnedFd,
    pub(crate) root: OwnedFd,
    /// Whether the root becomes read-only at the end of the build.
    pub(crate) is_read_only: bool,
    trees: &'a [OwnedFd],
    /// The number of fixed files created so far, for unique names of their sources.
    fixed_files: Cell<usize>,
    /// The directory that was opened last, cached because consecutive steps often use the same
    /// directory.
    cached_directory: RefCell<Option<(Bytes, Rc<OwnedFd>)>>,
}

/// Builds the root file system that `plan` describes and makes it the root of this process.
pub(crate) fn build(plan: &Plan, trees: &[OwnedFd]) -> Result<(), Failure> {
    let new_root = NewRoot::open(plan, trees)?;
    for step in &plan.steps {
        new_root.perform(step)?;
    }
    if new_root.is_read_only {
        mount::set_mount_attributes(new_root.root.as_fd(), attr::READ_ONLY)
            .context(Stage::Root, || "cannot make the root read-only".to_owned())?;
    }
    new_root.enter()
}

impl<'a> NewRoot<'a> {
    /// Creates the staging tmpfs, the scratch tmpfs and the empty new root.
    fn open(plan: &Plan, trees: &'a [OwnedFd]) -> Result<Self, Failure> {
        let open = || -> io::Result<Self> {
            let staging =
                filesystem("tmpfs", &[("size", "4m"), ("nr_inodes", "4096"), ("mode", "755")])?;
            // `/proc` exists on every host and is no longer needed. A mount on the root itself would be
            // detached at the end instead of the old root, which would then stay.
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            rustix::mount::move_mount(&staging, "", CWD, "/proc", flags)?;
            for name in ["root", "covers", "scratch", "lower", "layers"] {
                rustix::fs::mkdirat(&staging, name, Mode::from_raw_mode(0o755))?;
            }
            proc::make_covers(&staging)?;
            let scratch = new_scratch(&plan.scratch)?;
            attach_to(scratch.as_fd(), open_beneath(&staging, b"scratch", OFlags::PATH)?.as_fd())?;
            let root = match &plan.root {
                RootKind::Empty => clone_beneath(&staging, b"root")?,
                RootKind::Directory(source) => {
                    let lower = open_source(source, trees)?;
                    mount::set_tree_attributes(lower.as_fd(), attr::NO_SUID | attr::NO_DEV)?;
                    attach_to(
                        lower.as_fd(),
                        open_beneath(&staging, b"lower", OFlags::PATH)?.as_fd(),
                    )?;
                    rustix::fs::mkdirat(&scratch, ".upper", Mode::from_raw_mode(0o755))?;
                    rustix::fs::mkdirat(&scratch, ".work", Mode::from_raw_mode(0o700))?;
                    // The upper layer is on a tmpfs, which has nothing to sync.
                    let upper = Upper::At("scratch/.upper", "scratch/.work", LayerSync::Real);
                    new_overlay(&staging, "rootfs", &upper)?
                }
            };
            attach_to(root.as_fd(), open_beneath(&staging, b"root", OFlags::PATH)?.as_fd())?;
            let is_read_only = matches!(plan.root, RootKind::Empty);
            let (fixed_files, cached_directory) = (Cell::new(0), RefCell::new(None));
            let new_root =
                Self { staging, root, is_read_only, trees, fixed_files, cached_directory };
            for (name, target, _) in &plan.scratch.at {
                let tree = clone_beneath(&scratch, name)?;
                new_root.attach(tree.as_fd(), target)?;
            }
            Ok(new_root)
        };
        open().context(Stage::Root, || "cannot make the new root".to_owned())
    }

    /// Carries out one step of the plan.
    fn perform(&self, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Dir { path, mode } => self
                .directory(path, *mode)
                .context(Stage::Root, || format!("cannot create {}", display(path))),
            Step::Symlink { path, target } => self
                .symlink(path, target)
                .context(Stage::Root, || format!("cannot create symbolic link {}", display(path))),
            Step::File { path, content } => self
                .file(path, content)
                .context(Stage::Root, || format!("cannot write {}", display(path))),
            Step::FileWithAppended { path, content, appended } => self
                .file_with_appended(path, content, appended)
                .context(Stage::Root, || format!("cannot write {}", display(path))),
            Step::ReplaceWithSymlink { path, target } => self
                .replace_with_symlink(path, target)
                .context(Stage::Root, || format!("cannot create symbolic link {}", display(path))),
            Step::Bind { source, target, access, optional } => {
                match self.bind(source, target, *access) {
                    Err(error) if *optional && error.kind() == io::ErrorKind::NotFound => Ok(()),
                    done => {
                        done.context(Stage::Root, || format!("cannot mount {}", display(target)))
                    }
                }
            }
            Step::Proc { mask } => proc::mount(self, mask.as_ref())
                .context(Stage::Proc, || "cannot mount /proc".to_owned()),
            Step::Hide { path } => {
                self.hide(path).context(Stage::Root, || format!("cannot hide {}", display(path)))
            }
            Step::Mask { beneath, path, kind } => self
                .mask(beneath, path, *kind)
                .context(Stage::Workspace, || format!("cannot mask {}", display(path))),
            Step::FixedFile { path, content } => self
                .fixed_file(path, content, self.fixed_files.replace(self.fixed_files.get() + 1))
                .context(Stage::Root, || format!("cannot create fixed file {}", display(path))),
            Step::Devices => {
                self.devices().context(Stage::Root, || "cannot create /dev".to_owned())
            }
            Step::ReadOnlyOverlay { source, target } => self
                .read_only_overlay(source, target)
                .context(Stage::Root, || format!("cannot mount {}", display(target))),
            Step::Overlay { lower, layers, target, sync } => {
                self.overlay(lower, layers, target, *sync).context(Stage::Workspace, || {
                    format!("cannot mount an overlay on {}", display(target))
                })
            }
        }
    }

    /// Creates a directory of the new root and its missing parents.
    pub(crate) fn directory(&self, path: &[u8], mode: u32) -> io::Result<()> {
        let mut parent = open_beneath(&self.root, b"", OFlags::PATH | OFlags::DIRECTORY)?;
        let mut names = components(path).peekable();
        while let Some(name) = names.next() {
            let mode = if names.peek().is_none() { mode } else { 0o755 };
            match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(mode)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            parent = open_beneath(&parent, name, OFlags::PATH | OFlags::DIRECTORY)?;
        }
        Ok(())
    }

    /// Returns the parent directory of `path` in the new root, created if missing, and the last
    /// component.
    fn parent(&self, path: &[u8]) -> io::Result<(Rc<OwnedFd>, Bytes)> {
        let path = relative(path);
        let slash = path.iter().rposition(|byte| *byte == b'/');
        let (parent, name) = slash.map_or((&b""[..], path), |at| path.split_at(at));
        let name = relative(name).to_vec();
        if let Some((last, directory)) = &*self.cached_directory.borrow()
            && last == parent
        {
            return Ok((Rc::clone(directory), name));
        }
        let open = || open_beneath(&self.root, parent, OFlags::PATH | OFlags::DIRECTORY);
        let directory = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.directory(parent, 0o755)?;
                open()?
            }
            found => found?,
        };
        let directory = Rc::new(directory);
        self.cached_directory.replace(Some((parent.to_vec(), Rc::clone(&directory))));
        Ok((directory, name))
    }

    /// Drops the cached directory after a mount or rename, which can make it stale.
    pub(crate) fn drop_cached_directory(&self) {
        self.cached_directory.take();
    }

    fn symlink(&self, path: &[u8], target: &[u8]) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        match rustix::fs::symlinkat(target, &*parent, name.as_slice()) {
            Err(rustix::io::Errno::EXIST) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a symbolic link in an untrusted directory tree, replacing an existing file. Replaces
    /// files and symbolic links on the path, but no directories and no mounts.
    fn replace_with_symlink(&self, path: &[u8], target: &[u8]) -> io::Result<()> {
        let mut parent = open_beneath(&self.root, b"", OFlags::PATH | OFlags::DIRECTORY)?;
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
            parent = open_beneath(&parent, name, OFlags::PATH | OFlags::DIRECTORY)?;
        }
        self.drop_cached_directory(); // a replaced link could lead to it
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

    fn file_with_appended(&self, path: &[u8], content: &[u8], appended: &[u8]) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let appended = std::fs::File::from(rustix::fs::open(appended, flags, Mode::empty())?);
        let mut all = content.to_vec();
        appended.take(MAX_APPENDED).read_to_end(&mut all)?;
        self.file(path, &all)
    }

    fn bind(&self, source: &Source, target: &[u8], access: Access) -> io::Result<()> {
        let tree = open_source(source, self.trees)?;
        let attributes = match access {
            Access::ReadOnly => attr::READ_ONLY | attr::NO_SUID | attr::NO_DEV,
            Access::ReadWrite => attr::NO_SUID | attr::NO_DEV,
            Access::Device => attr::NO_SUID | attr::NO_EXEC,
        };
        mount::set_tree_attributes(tree.as_fd(), attributes)?;
        self.attach(tree.as_fd(), target)
    }

    /// Moves a detached mount onto `target`, which is created as a file or directory like the source.
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
        // A single component beneath an open directory: no symbolic link is followed.
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(tree, "", &*parent, name.as_slice(), flags)?;
        // The mount covers `target` and everything beneath it, so a cached directory there is stale.
        self.cached_directory.borrow_mut().take_if(|(last, _)| last.starts_with(relative(target)));
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

    /// Mounts a directory as a read-only overlay on `target` in the new root. A file is bind
    /// mounted, since it contains no sockets.
    fn read_only_overlay(&self, source: &Source, target: &[u8]) -> io::Result<()> {
        let tree = open_source(source, self.trees)?;
        let stat = rustix::fs::statat(&tree, "", AtFlags::EMPTY_PATH)?;
        if !FileType::from_raw_mode(stat.st_mode).is_dir() {
            return self.bind(source, target, Access::ReadOnly);
        }
        attach_to(tree.as_fd(), open_beneath(&self.staging, b"lower", OFlags::PATH)?.as_fd())?;
        let overlay = new_overlay(&self.staging, "shown", &Upper::None)?;
        mount::set_tree_attributes(overlay.as_fd(), attr::READ_ONLY)?;
        self.attach(overlay.as_fd(), target)
    }

    fn overlay(
        &self,
        lower: &Source,
        layers: &Source,
        target: &[u8],
        sync: LayerSync,
    ) -> io::Result<()> {
        // Overlayfs needs paths of its layers, so they are mounted on the staging tmpfs.
        for (name, source) in [("lower", lower), ("layers", layers)] {
            let tree = open_source(source, self.trees)?;
            let at = open_beneath(&self.staging, name.as_bytes(), OFlags::PATH)?;
            attach_to(tree.as_fd(), at.as_fd())?;
        }
        remove_volatile_mark(&self.staging)?;
        let upper = Upper::At("layers/upper", "layers/work", sync);
        let overlay = new_overlay(&self.staging, "workspace", &upper)?;
        self.attach(overlay.as_fd(), target)
    }

    /// Makes the new root the root of this process and detaches the old root.
    fn enter(self) -> Result<(), Failure> {
        let pivot = || -> io::Result<()> {
            rustix::process::fchdir(&self.root)?;
            // Mounts the old root on top of the new one, where it can be detached as `.`.
            rustix::process::pivot_root(".", ".")?;
            rustix::mount::unmount(".", UnmountFlags::DETACH)?;
            rustix::process::chdir("/")?;
            Ok(())
        };
        pivot().context(Stage::Root, || "cannot enter the new root".to_owned())
    }
}

/// Opens a path beneath `dir` without following symbolic links or leaving `dir`.
pub(crate) fn open_beneath(dir: &OwnedFd, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let path = if path.is_empty() { b"." } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve)?)
}

/// Returns a detached mount of a new file system of this type with these options.
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

/// Returns a detached mount of the scratch tmpfs with its directories.
fn new_scratch(scratch: &Scratch) -> io::Result<OwnedFd> {
    let (bytes, inodes) = (scratch.bytes.to_string(), scratch.inodes.to_string());
    let options = [("size", bytes.as_str()), ("nr_inodes", &inodes), ("mode", "755")];
    let made = filesystem("tmpfs", &options)?;
    for (name, _, mode) in &scratch.at {
        let mode = Mode::from_raw_mode(*mode);
        rustix::fs::mkdirat(&made, name.as_slice(), mode)?;
        rustix::fs::chmodat(&made, name.as_slice(), mode, AtFlags::empty())?; // regardless of the umask
    }
    Ok(made)
}

/// The upper layer of an overlay.
enum Upper<'a> {
    /// The overlay stores changes in this upper directory, with this work directory, and whether the overlay syncs them.
    At(&'a str, &'a str, LayerSync),
    /// No upper layer. An overlay needs two layers, so an empty directory is added below.
    None,
}

/// Returns a detached overlay mount of the directory `lower` and `upper`. Paths are relative to the
/// staging tmpfs.
fn new_overlay(staging: &OwnedFd, name: &str, upper: &Upper<'_>) -> io::Result<OwnedFd> {
    rustix::process::fchdir(staging)?;
    let context = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let options = match upper {
        Upper::At(upper, work, _) => {
            vec![("lowerdir", "lower"), ("upperdir", upper), ("workdir", work)]
        }
        Upper::None => vec![("lowerdir", "lower:covers/.dir")],
    };
    rustix::mount::fsconfig_set_string(&context, "source", name)?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(&context, key, value)?;
    }
    // Overlayfs stores its metadata in user.* attributes; trusted.* needs privileges on the host.
    rustix::mount::fsconfig_set_flag(&context, "userxattr")?;
    if matches!(upper, Upper::At(_, _, LayerSync::Skipped)) {
        rustix::mount::fsconfig_set_flag(&context, "volatile")?;
    }
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Removes the mark that an overlay with the option `volatile` leaves in its work directory.
///
/// Overlayfs refuses to mount marked layers again, because files in them can be incomplete after a crash of
/// the host. Only the layers of a session are mounted again, and their changes are compared and synced at the
/// end of the session, whatever they contain.
fn remove_volatile_mark(staging: &OwnedFd) -> io::Result<()> {
    const MARK: &str = "layers/work/work/incompat/volatile";
    for (path, flags) in
        [(format!("{MARK}/dirty"), AtFlags::empty()), (MARK.to_owned(), AtFlags::REMOVEDIR)]
    {
        match rustix::fs::unlinkat(staging, path, flags) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns a detached mount of a mount source. Fails with `ESTALE` if a host path has another
/// identity.
fn open_source(source: &Source, trees: &[OwnedFd]) -> io::Result<OwnedFd> {
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
                // The path was replaced after the supervisor checked it.
                return Err(rustix::io::Errno::STALE.into());
            }
            Ok(tree)
        }
    }
}

/// Returns a detached clone of the mount of a file or directory beneath `dir`.
pub(crate) fn clone_beneath(dir: &OwnedFd, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Ok(rustix::mount::open_tree(dir, name, flags)?)
}

/// Moves a detached mount onto an open file or directory.
pub(crate) fn attach_to(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(tree, "", target, "", flags)?)
}

/// Returns the path without its leading slash, for system calls relative to a directory.
pub(crate) fn relative(path: &[u8]) -> &[u8] {
    path.strip_prefix(b"/").unwrap_or(path)
}

/// Returns the nonempty components of a path.
pub(crate) fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}
