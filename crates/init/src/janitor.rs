//! The janitor: a process that creates the cgroups of a box and removes them when the supervisor ends.
//!
//! If a supervisor is killed, the kernel kills its box but does not remove its cgroups. So the janitor,
//! which survives the supervisor, creates and removes them; a responsible process always exists.
//! The janitor also creates the user namespaces for id-mapped mounts. It works while the supervisor starts
//! init.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use belljar_sys::clone::{self, CONTROL_FD};
use belljar_sys::process;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::plan::Bytes;
use crate::wire;

/// A request from the supervisor to the janitor. Answered by a [`JanitorResponse`].
#[derive(Debug, Serialize, Deserialize)]
pub enum JanitorRequest {
    /// Asks for the creation of these cgroups. The response carries one descriptor per cgroup, see
    /// [`CgroupSpec::join_file`].
    Cgroups(Vec<CgroupSpec>),
    /// Asks for a user namespace that maps the ids `owner` of files on disk to the ids `outside`.
    /// The response carries its descriptor.
    Namespace { owner: (u32, u32), outside: (u32, u32) },
}

/// A cgroup to create, with its settings.
#[derive(Debug, Serialize, Deserialize)]
pub struct CgroupSpec {
    pub path: Bytes,
    /// The values to write to settings files of the cgroup.
    pub files: Vec<Setting>,
    /// The file through which a process joins the cgroup, if needed. With `None` the response
    /// carries the directory.
    pub join_file: Option<String>,
}

/// One value to write to a settings file of a cgroup.
#[derive(Debug, Serialize, Deserialize)]
pub struct Setting {
    pub file: String,
    pub value: String,
    /// Whether a failure to write is ignored, because some kernels lack the file.
    pub optional: bool,
}

/// The response to one [`JanitorRequest`], which carries descriptors.
#[derive(Debug, Serialize, Deserialize)]
pub enum JanitorResponse {
    Done,
    Failed { errno: i32 },
}

/// Runs as the janitor: serves the supervisor until it closes the socket, then removes the cgroups.
pub fn run() -> ExitCode {
    let Ok(control) = belljar_sys::exec::adopt(CONTROL_FD) else { return ExitCode::from(2) };
    // SIGINT and SIGHUP from the terminal must reach only the supervisor.
    rustix::process::setsid().ok();
    let mut created = Vec::new();
    loop {
        match wire::receive::<JanitorRequest>(control.as_fd(), wire::MAX_SMALL_MESSAGE) {
            Ok(Some((JanitorRequest::Cgroups(cgroups), _))) => {
                let joins = create_all(&cgroups, &mut created);
                respond(control.as_fd(), joins);
            }
            Ok(Some((JanitorRequest::Namespace { owner, outside }, _))) => {
                respond(
                    control.as_fd(),
                    namespace(owner, outside).map(|namespace| vec![namespace]),
                );
            }
            Ok(None) | Err(_) => {
                created.iter().for_each(|directory: &PathBuf| remove(directory));
                return ExitCode::SUCCESS;
            }
        }
    }
}

/// Sends the response to one request, with descriptors if it succeeded.
fn respond(control: BorrowedFd<'_>, with: io::Result<Vec<OwnedFd>>) {
    let (response, descriptors) = match with {
        Ok(descriptors) => (JanitorResponse::Done, descriptors),
        Err(error) => {
            (JanitorResponse::Failed { errno: error.raw_os_error().unwrap_or(0) }, Vec::new())
        }
    };
    let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    // If the supervisor has exited, the next receive returns `None`.
    wire::send(control, &response, &borrowed).ok();
}

/// Creates the cgroups. Adds each path to `created` first, so that a partial failure is cleaned up.
fn create_all(cgroups: &[CgroupSpec], created: &mut Vec<PathBuf>) -> io::Result<Vec<OwnedFd>> {
    cgroups
        .iter()
        .map(|cgroup| {
            let path = PathBuf::from(OsString::from_vec(cgroup.path.clone()));
            created.push(path.clone());
            create(&path, cgroup)
        })
        .collect()
}

/// Creates one cgroup. Returns the descriptor through which a process joins it.
fn create(path: &Path, cgroup: &CgroupSpec) -> io::Result<OwnedFd> {
    std::fs::create_dir(path)?;
    for setting in &cgroup.files {
        match std::fs::write(path.join(&setting.file), &setting.value) {
            Err(_) if setting.optional => {}
            written => written?,
        }
    }
    match &cgroup.join_file {
        Some(file) => Ok(std::fs::File::options().write(true).open(path.join(file))?.into()),
        None => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            Ok(rustix::fs::open(path, flags, Mode::empty())?)
        }
    }
}

/// Returns a new user namespace that maps one user id and one group id. A temporary process holds
/// it open.
fn namespace(owner: (u32, u32), outside: (u32, u32)) -> io::Result<OwnedFd> {
    let holder = clone::hold_user_namespace()?;
    let pid = holder.pid;
    let open = || -> io::Result<OwnedFd> {
        std::fs::write(format!("/proc/{pid}/uid_map"), format!("{} {} 1", owner.0, outside.0))?;
        std::fs::write(format!("/proc/{pid}/gid_map"), format!("{} {} 1", owner.1, outside.1))?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(format!("/proc/{pid}/ns/user"), flags, Mode::empty())?)
    };
    let opened = open();
    rustix::process::pidfd_send_signal(&holder.pidfd, Signal::KILL)?;
    process::wait(pid, true)?;
    opened
}

/// Kills all processes of a cgroup and removes it. Gives up after ten seconds.
pub fn remove(directory: &Path) {
    const ATTEMPTS: u32 = 500; // ten seconds with the pause below
    for _ in 0..ATTEMPTS {
        match rustix::fs::rmdir(directory) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => return,
            Err(_) => kill_all(directory),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Kills all processes of a cgroup: at once (v2), or one by one from its list (v1).
fn kill_all(directory: &Path) {
    if std::fs::write(directory.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    let members = std::fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    for pid in members.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
        rustix::process::kill_process(pid, Signal::KILL).ok(); // the process can have exited already
    }
}
