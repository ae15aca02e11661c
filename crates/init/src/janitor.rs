//! Does, beside the supervisor, what outlives it or can be done meanwhile.
//!
//! It makes the cgroups of a box and removes them when the supervisor is done, or can no longer do it:
//! a supervisor that is killed takes its box with it, but not those directories. Who makes them answers
//! for them, so that there is no moment in which nobody does. It also holds, for a moment, the user
//! namespaces that id-mapped mounts are described by. While it works, the supervisor starts init.

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

/// What the supervisor asks for. Each is answered by [`Answer`].
#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    /// Make these cgroups; the descriptors of their doors come back.
    Cgroups(Vec<Directory>),
    /// Make a user namespace in which `owner` (of files on disk) is `outside`; it comes back.
    Namespace { owner: (u32, u32), outside: (u32, u32) },
}

/// One cgroup.
#[derive(Debug, Serialize, Deserialize)]
pub struct Directory {
    pub path: Bytes,
    /// What to write where, and whether the kernel may lack the file.
    pub files: Vec<Setting>,
    /// The file by which a process joins, or nothing for the directory itself.
    pub door: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Setting {
    pub file: String,
    pub value: String,
    pub optional: bool,
}

/// What came of one [`Ask`]; descriptors beside it.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Here,
    Failed { errno: i32 },
}

/// Serves the supervisor until it is done or gone, and then removes what it made for it.
pub fn run() -> ExitCode {
    let Ok(control) = belljar_sys::exec::adopt(CONTROL_FD) else { return ExitCode::from(2) };
    // Ctrl-C in the terminal is for the supervisor, and so is a hang-up.
    rustix::process::setsid().ok();
    let mut made = Vec::new();
    loop {
        match wire::receive::<Ask>(control.as_fd(), wire::MAX_WORD) {
            Ok(Some((Ask::Cgroups(directories), _))) => {
                let doors = make_all(&directories, &mut made);
                answer(control.as_fd(), doors);
            }
            Ok(Some((Ask::Namespace { owner, outside }, _))) => {
                answer(control.as_fd(), namespace(owner, outside).map(|namespace| vec![namespace]));
            }
            Ok(None) | Err(_) => {
                made.iter().for_each(|directory: &PathBuf| remove(directory));
                return ExitCode::SUCCESS;
            }
        }
    }
}

fn answer(control: BorrowedFd<'_>, with: io::Result<Vec<OwnedFd>>) {
    let (word, descriptors) = match with {
        Ok(descriptors) => (Answer::Here, descriptors),
        Err(error) => (Answer::Failed { errno: error.raw_os_error().unwrap_or(0) }, Vec::new()),
    };
    let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    // A supervisor that is gone shows at the next receive.
    wire::send(control, &word, &borrowed).ok();
}

/// Makes the cgroups, noting each in `made` before it exists.
fn make_all(directories: &[Directory], made: &mut Vec<PathBuf>) -> io::Result<Vec<OwnedFd>> {
    directories
        .iter()
        .map(|directory| {
            let path = PathBuf::from(OsString::from_vec(directory.path.clone()));
            made.push(path.clone());
            make(&path, directory)
        })
        .collect()
}

fn make(path: &Path, directory: &Directory) -> io::Result<OwnedFd> {
    std::fs::create_dir(path)?;
    for setting in &directory.files {
        match std::fs::write(path.join(&setting.file), &setting.value) {
            Err(_) if setting.optional => {}
            written => written?,
        }
    }
    match &directory.door {
        Some(file) => Ok(std::fs::File::options().write(true).open(path.join(file))?.into()),
        None => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            Ok(rustix::fs::open(path, flags, Mode::empty())?)
        }
    }
}

/// A user namespace with one id in it. The process that it takes to make one ends at once.
fn namespace(owner: (u32, u32), outside: (u32, u32)) -> io::Result<OwnedFd> {
    let holder = clone::hold_user_namespace()?;
    let pid = holder.pid;
    let made = || -> io::Result<OwnedFd> {
        std::fs::write(format!("/proc/{pid}/uid_map"), format!("{} {} 1", owner.0, outside.0))?;
        std::fs::write(format!("/proc/{pid}/gid_map"), format!("{} {} 1", owner.1, outside.1))?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(format!("/proc/{pid}/ns/user"), flags, Mode::empty())?)
    };
    let made = made();
    rustix::process::pidfd_send_signal(&holder.pidfd, Signal::KILL)?;
    process::wait(pid, true)?;
    made
}

/// Kills what is left in a cgroup and removes it, as long as that takes within a bound.
pub fn remove(directory: &Path) {
    const ATTEMPTS: u32 = 500; // with the pause below: ten seconds
    for _ in 0..ATTEMPTS {
        match rustix::fs::rmdir(directory) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => return,
            Err(_) => kill_all(directory),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn kill_all(directory: &Path) {
    if std::fs::write(directory.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    let members = std::fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    for pid in members.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
        rustix::process::kill_process(pid, Signal::KILL).ok(); // it may be gone already
    }
}
