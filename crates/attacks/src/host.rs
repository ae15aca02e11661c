//! Helpers for the host's side of a trial: listeners, process search, file search.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::trial::{During, Step};

/// A listening socket on the host's loopback that counts connections or datagrams.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) at: SocketAddr,
    reached: Arc<AtomicU32>,
}

impl Listener {
    pub(crate) fn tcp() -> Step<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").during("listen on a socket")?;
        let at = listener.local_addr().during("listen on a socket")?;
        let reached = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&reached);
        thread::spawn(move || {
            for _ in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        Ok(Self { at, reached })
    }

    pub(crate) fn udp() -> Step<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0").during("listen on a socket")?;
        let at = socket.local_addr().during("listen on a socket")?;
        let reached = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&reached);
        thread::spawn(move || {
            let mut buffer = [0; 64];
            while socket.recv(&mut buffer).is_ok() {
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        Ok(Self { at, reached })
    }

    /// Listens on a Unix socket at a path, with access for all users, and counts connections. It
    /// replies `hello from the host`.
    pub(crate) fn path(path: &Path) -> Step<Arc<AtomicU32>> {
        use std::os::unix::fs::PermissionsExt;
        let listener = UnixListener::bind(path).during("listen on a socket")?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).during("set permissions")?;
        Ok(greet(listener))
    }

    /// Listens on an abstract Unix socket of the host and counts connections. It replies `hello
    /// from the host`.
    pub(crate) fn abstract_name(name: &str) -> Step<Arc<AtomicU32>> {
        let address = UnixAddr::from_abstract_name(name).during("create a socket address")?;
        Ok(greet(UnixListener::bind_addr(&address).during("listen on a socket")?))
    }

    pub(crate) fn times(&self) -> u32 {
        self.reached.load(Ordering::SeqCst)
    }

    /// Waits until the listener has counted more than `times` connections. Returns false after a
    /// timeout.
    pub(crate) fn more_than(&self, times: u32) -> bool {
        eventually(|| self.times() > times)
    }
}

fn greet(listener: UnixListener) -> Arc<AtomicU32> {
    let reached = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&reached);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::SeqCst);
            let mut request = [0; 32];
            let greeted =
                stream.read(&mut request).and_then(|_| stream.write(b"hello from the host"));
            drop(greeted); // the client can have disconnected
        }
    });
    reached
}

/// Timeout of [`eventually`]; long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until the condition `done` holds, and returns false after a timeout. Returns false after a
/// timeout.
pub(crate) fn eventually(mut done: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + TIMEOUT;
    while Instant::now() < until {
        if done() {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    done()
}

/// Returns the ids of all processes whose command line contains `mark`.
pub(crate) fn marked(mark: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            contains(&line, mark.as_bytes())
        })
        .collect()
}

pub(crate) fn contains(text: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && text.windows(part.len()).any(|window| window == part)
}

/// Returns the number of mounts in the host's mount namespace that refer to a path.
pub(crate) fn mounts_of(place: &Path) -> Step<usize> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").during("read the mounts")?;
    let place = place.display().to_string();
    Ok(mounts.lines().filter(|line| line.contains(&place)).count())
}

/// Returns the existing cgroups of all runs in a state directory.
pub(crate) fn cgroups_of(state: &Path) -> Vec<PathBuf> {
    let runs: Vec<String> = fs::read_dir(state.join("runs"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| format!("belljar-{}", entry.file_name().display()))
        .collect();
    let of_ours = |path: &PathBuf| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| runs.iter().any(|run| run == name))
    };
    walk(Path::new("/sys/fs/cgroup")).into_iter().filter(of_ours).collect()
}

/// Returns all paths below a directory. Skips unreadable directories and does not follow links.
pub(crate) fn walk(top: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found
}

/// Returns the files below a directory whose content or name contains `part`.
pub(crate) fn files_with(top: &Path, part: &str) -> Vec<PathBuf> {
    walk(top)
        .into_iter()
        .filter(|path| {
            let name = path.as_os_str().as_encoded_bytes();
            let is_file = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file());
            contains(name, part.as_bytes())
                || (is_file && contains(&fs::read(path).unwrap_or_default(), part.as_bytes()))
        })
        .collect()
}

/// Returns the state of a directory tree: mode, inode and content of every path.
pub(crate) fn snapshot(top: &Path) -> BTreeMap<PathBuf, String> {
    let describe = |path: PathBuf| {
        let meta = fs::symlink_metadata(&path).ok()?;
        let content = match meta.is_file() {
            true => fs::read(&path).unwrap_or_default().escape_ascii().to_string(),
            false => fs::read_link(&path).map(|to| to.display().to_string()).unwrap_or_default(),
        };
        let line = format!("{:o} {} {}", meta.mode(), meta.ino(), content);
        Some((path, line))
    };
    walk(top).into_iter().filter_map(describe).collect()
}
