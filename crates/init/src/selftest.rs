//! Self-test of a box: tries forbidden operations in the payload's process before exec.
//!
//! A kernel, a distribution patch or a bug of Belljar can leave a layer silently inactive. So each active
//! layer is tested, and the box does not start if a forbidden operation succeeds.

use std::io;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags};
use rustix::mount::MountFlags;
use rustix::net::{AddressFamily, SocketType};

use crate::Failure;
use crate::plan::{Plan, RootKind, Stage};

/// Returns an error if Landlock is not enforced: without Landlock any user can create a device node
/// 0:0.
pub(crate) fn landlock_holds() -> Result<(), Failure> {
    let path = "/tmp/.belljar-self-test";
    match rustix::fs::mknodat(CWD, path, FileType::CharacterDevice, Mode::empty(), 0) {
        Err(rustix::io::Errno::ACCESS) => Ok(()),
        outcome => {
            Err(failed("self-test failed: Landlock allows creating a device node", outcome.err()))
        }
    }
}

/// Returns an error if a layer other than Landlock is not enforced, in the payload's process just
/// before exec.
pub(crate) fn run(plan: &Plan) -> Result<(), Failure> {
    let capabilities = rustix::thread::capabilities(None)
        .map_err(|e| failed("cannot read the capabilities", Some(e)))?;
    let none =
        (capabilities.effective | capabilities.permitted | capabilities.inheritable).is_empty();
    expect(none, "the process still has a capability")?;
    expect(rustix::thread::no_new_privs().unwrap_or(false), "no_new_privs is off")?;
    expect(root_is_uncovered(), "the old root is still mounted")?;
    refused("/proc/1/environ can be read", open("/proc/1/environ", OFlags::RDONLY))?;
    if matches!(plan.root, RootKind::Empty) {
        refused("/usr can be written", open("/usr/.belljar", OFlags::CREATE | OFlags::WRONLY))?;
    }
    let mounted = rustix::mount::mount("none", "/tmp", "tmpfs", MountFlags::empty(), None);
    refused("a tmpfs can be mounted", mounted)?;
    refused("chroot succeeds", rustix::process::chroot("/tmp"))?;
    if plan.seccomp.is_some() {
        let netlink = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None);
        refused("a netlink socket can be created", netlink)?;
        let handle = rustix::mount::fsopen("tmpfs", rustix::mount::FsOpenFlags::empty());
        refused("fsopen succeeds", handle)?;
    }
    expect(!leaks_descriptors(), "a descriptor of init stays open after exec")
}

/// Returns whether no other mount covers the root; `/..` would then be the covering mount.
fn root_is_uncovered() -> bool {
    let mount = |path: &str| {
        let wanted = StatxFlags::MNT_ID | StatxFlags::INO;
        let stat = rustix::fs::statx(CWD, path, AtFlags::empty(), wanted).ok()?;
        Some((stat.stx_mnt_id, stat.stx_ino))
    };
    mount("/").is_some_and(|root| mount("/..") == Some(root))
}

fn open(path: &str, flags: OFlags) -> rustix::io::Result<std::os::fd::OwnedFd> {
    rustix::fs::openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty())
}

#[expect(clippy::needless_pass_by_value, reason = "an unexpected descriptor is closed")]
/// Returns the error `what` if a forbidden operation succeeded.
fn refused<T>(what: &str, outcome: rustix::io::Result<T>) -> Result<(), Failure> {
    expect(outcome.is_err(), what)
}

/// Returns the error `otherwise` unless the condition holds.
fn expect(holds: bool, otherwise: &str) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(failed(&format!("self-test failed: {otherwise}"), None)) }
}

fn failed(what: &str, error: Option<rustix::io::Errno>) -> Failure {
    let errno = error.map_or(0, |error| io::Error::from(error).raw_os_error().unwrap_or(0));
    Failure { stage: Stage::SelfTest, what: what.to_owned(), errno }
}

/// Returns whether a descriptor other than the three streams stays open after exec.
fn leaks_descriptors() -> bool {
    const CLOSE_ON_EXEC: u32 = 0o2_000_000;
    let survives = |name: std::ffi::OsString| {
        let path = std::path::Path::new("/proc/self/fdinfo").join(name);
        let Ok(info) = std::fs::read_to_string(path) else { return false }; // already closed
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
        flags.is_none_or(|flags| flags & CLOSE_ON_EXEC == 0)
    };
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return true };
    let names = open.flatten().map(|entry| entry.file_name());
    names.filter(|name| !["0", "1", "2"].iter().any(|stream| name == *stream)).any(survives)
}
