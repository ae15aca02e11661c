//! A file with a file system of limited size, which holds the layers of one box.
//!
//! The kernel then enforces the disk limit: a write above it fails with `ENOSPC`, also for deleted files,
//! whoever holds them. Only root can mount such a file. All mounts are detached: they end with the last
//! process that uses them, so a kill leaves only the file, which can be opened again. A box never gets the
//! file or its device, only a mount, so the file system itself is written by the kernel alone.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use belljar_sys::loop_device::{self, LoopAccess};
use rustix::fs::{AtFlags, FlockOperation, Gid, Mode, OFlags, Uid};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

/// The programs that format an image; the first one that exists is used.
const FORMATTERS: [&str; 2] = ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"];
/// Bytes per inode, as on the tmpfs of a box.
const INODE_RATIO: &str = "4096";
/// Attempts to get a loop device that no other process takes at the same time.
const ATTEMPTS: u32 = 64;

/// A mounted image. Its mounts end when this value and the box are gone.
#[derive(Debug)]
pub struct LayerImage {
    path: PathBuf,
    /// The mount for the host, with the owners of the disk.
    host: OwnedFd,
    /// The mount for the box, whose owners are mapped.
    boxed: Arc<OwnedFd>,
}

/// The reason why an image cannot be used on this machine.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("mkfs.ext4 is not installed; install e2fsprogs")]
    NoFormatter,
    #[error("mkfs.ext4 failed: {output}")]
    Format { output: String },
    #[error("{doing} {}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is still in use by its box", path.display())]
    InUse { path: PathBuf },
}

impl LayerImage {
    /// Creates an image for `bytes` of files, with empty directories `upper` and `work`. All of them belong
    /// to `owner`, and `upper` has this mode. The file has another name until it is complete.
    pub fn create(
        path: &Path,
        bytes: u64,
        owner: (u32, u32),
        mode: u32,
    ) -> Result<Self, ImageError> {
        let incomplete = path.with_extension("new");
        let created = Self::format_and_mount(&incomplete, bytes).and_then(|image| {
            image.make_layers(owner, mode).map_err(failed("cannot create the layers in", path))?;
            fs::rename(&incomplete, path).map_err(failed("cannot rename", &incomplete))?;
            Ok(Self { path: path.to_owned(), ..image })
        });
        created.inspect_err(|_| {
            fs::remove_file(&incomplete).ok(); // the caller gets the first error
        })
    }

    /// Opens an image of a box that has ended, for reading only. `None` if no such file exists.
    pub fn open(path: &Path) -> Result<Option<Self>, ImageError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(failed("cannot open", path)(source)),
        };
        mount(path, &file, LoopAccess::ReadOnly).map(Some)
    }

    /// Returns the root of the image, with the directories `upper` and `work`.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.host.as_fd()
    }

    /// Returns the mount that the box uses.
    pub fn for_box(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.boxed)
    }

    /// Deletes the file. The mounts remain until they are closed.
    pub fn remove(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }

    fn format_and_mount(path: &Path, bytes: u64) -> Result<Self, ImageError> {
        let io = |doing| failed(doing, path);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(path).map_err(io("cannot create"))?;
        let size = bytes.saturating_add(overhead(bytes)) & !4095;
        file.set_len(size).map_err(io("cannot set the size of"))?;
        format(path)?;
        mount(path, &file, LoopAccess::ReadWrite)
    }

    fn make_layers(&self, (uid, gid): (u32, u32), mode: u32) -> io::Result<()> {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        for name in ["upper", "work"] {
            rustix::fs::mkdirat(&self.host, name, Mode::from_raw_mode(0o755))?;
            rustix::fs::chownat(&self.host, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        rustix::fs::chmodat(&self.host, "upper", Mode::from_raw_mode(mode), AtFlags::empty())?;
        Ok(rustix::fs::chownat(&self.host, ".", uid, gid, AtFlags::empty())?)
    }
}

/// Returns whether this machine can create images: the programs and devices exist.
pub(crate) fn check_support() -> Result<(), ImageError> {
    formatter()?;
    let control = Path::new("/dev/loop-control");
    File::open(control).map(drop).map_err(failed("cannot open", control))
}

fn failed<E: Into<io::Error>>(doing: &'static str, path: &Path) -> impl Fn(E) -> ImageError {
    move |source| ImageError::Io { doing, path: path.to_owned(), source: source.into() }
}

/// Returns the space that the file system needs for itself: inodes, tables, and the blocks that ext4 reserves for
/// its metadata (2 %, at most 16 MiB). Measured: the files of a box get 0.2 % less to 1 % more than `bytes` from
/// 16 MiB to 10 GiB, and 0.2 MiB more for 1 MiB.
fn overhead(bytes: u64) -> u64 {
    bytes / 15 + bytes / 4096 + (256 << 10) + (bytes / 48).min(17 << 20)
}

fn formatter() -> Result<&'static str, ImageError> {
    FORMATTERS.into_iter().find(|path| Path::new(path).exists()).ok_or(ImageError::NoFormatter)
}

/// Creates an ext4 file system in a new file. Nothing is zeroed: a new file reads as zeros.
#[expect(
    clippy::disallowed_methods,
    reason = "the formatter has a fixed path and no input of a box"
)]
fn format(path: &Path) -> Result<(), ImageError> {
    let formatted = Command::new(formatter()?)
        .args(["-q", "-F", "-m", "0", "-b", "4096", "-i", INODE_RATIO])
        .args(["-O", "^has_journal,^resize_inode", "-E", "lazy_itable_init=1,nodiscard"])
        .arg(path)
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(failed("cannot format", path))?;
    if formatted.status.success() {
        return Ok(());
    }
    let output = String::from_utf8_lossy(&formatted.stderr).trim().to_owned();
    Err(ImageError::Format { output })
}

/// Mounts an image twice, detached.
///
/// The loop device holds the open file and its lock, until the last mount is gone. So the lock shows whether
/// a box still writes to the image.
fn mount(path: &Path, file: &File, access: LoopAccess) -> Result<LayerImage, ImageError> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => {
            return Err(ImageError::InUse { path: path.to_owned() });
        }
        locked => locked.map_err(failed("cannot lock", path))?,
    }
    let (device, name) =
        attach(file, access).map_err(failed("cannot attach a loop device to", path))?;
    let mount = || file_system(&name, access).map_err(failed("cannot mount", path));
    let (host, boxed) = (mount()?, Arc::new(mount()?));
    drop(device); // the mounts keep the device
    Ok(LayerImage { path: path.to_owned(), host, boxed })
}

/// Returns an open loop device with this file, and its path.
fn attach(file: &File, access: LoopAccess) -> io::Result<(OwnedFd, String)> {
    let open = |path: &str| rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let control = open("/dev/loop-control")?;
    let mut attempt = 0;
    loop {
        let path = format!("/dev/loop{}", loop_device::find_free(control.as_fd())?);
        let device = open(&path)?;
        match loop_device::configure(device.as_fd(), file.as_fd(), access) {
            // Another process took the device first.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && attempt < ATTEMPTS => {
                attempt += 1;
            }
            done => return done.map(|()| (device, path)),
        }
    }
}

/// Returns a new detached mount of the ext4 file system on a device.
fn file_system(device: &str, access: LoopAccess) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&context, "source", device)?;
    rustix::mount::fsconfig_set_string(&context, "errors", "remount-ro")?;
    rustix::mount::fsconfig_set_flag(&context, "noinit_itable")?; // else the kernel writes all inodes
    rustix::mount::fsconfig_set_flag(&context, "nobarrier")?; // the end of the box waits for no disk
    if access == LoopAccess::ReadOnly {
        rustix::mount::fsconfig_set_flag(&context, "ro")?;
    }
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}
