//! What a trial needs on the host's side: listeners to be reached, processes to be seen, traces to be found.

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

/// A listener on the host's loopback, and how often it was reached.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) at: SocketAddr,
    reached: Arc<AtomicU32>,
}

impl Listener {
    pub(crate) fn tcp() -> Step<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").during("listen")?;
        let at = listener.local_addr().during("listen")?;
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
        let socket = UdpSocket::bind("127.0.0.1:0").during("listen")?;
        let at = socket.local_addr().during("listen")?;
        let reached = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&reached);
        thread::spawn(move || {
            let mut room = [0; 64];
            while socket.recv(&mut room).is_ok() {
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        Ok(Self { at, reached })
    }

    /// A Unix socket at a path, open to everybody; it answers `hello from the host`.
    pub(crate) fn path(path: &Path) -> Step<Arc<AtomicU32>> {
        use std::os::unix::fs::PermissionsExt;
        let listener = UnixListener::bind(path).during("listen")?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).during("open the socket")?;
        Ok(greet(listener))
    }

    /// The same without a path.
    pub(crate) fn abstract_name(name: &str) -> Step<Arc<AtomicU32>> {
        let address = UnixAddr::from_abstract_name(name).during("name a socket")?;
        Ok(greet(UnixListener::bind_addr(&address).during("listen")?))
    }

    pub(crate) fn times(&self) -> u32 {
        self.reached.load(Ordering::SeqCst)
    }

    /// Whether it was reached more often than that, given the moment that a datagram takes.
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
            let mut word = [0; 32];
            let greeted = stream.read(&mut word).and_then(|_| stream.write(b"hello from the host"));
            drop(greeted); // a caller that went away is none of our business
        }
    });
    reached
}

/// Long enough for a busy machine; what should not last must be made to last longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether something becomes true before long.
pub(crate) fn eventually(mut done: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if done() {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    done()
}

/// The processes of this machine whose command line has the mark in it.
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

/// The mounts of our own namespace that name this place.
pub(crate) fn mounts_of(place: &Path) -> Step<usize> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").during("read the mounts")?;
    let place = place.display().to_string();
    Ok(mounts.lines().filter(|line| line.contains(&place)).count())
}

/// The cgroups of the runs that this state directory knows of, dead or alive.
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

/// Everything beneath a directory; what cannot be read is passed over, links are not followed.
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

/// The files beneath a directory that have these bytes in their content or their name.
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

/// What a tree looks like: path, kind and mode, size, time of change and content.
pub(crate) fn picture(top: &Path) -> BTreeMap<PathBuf, String> {
    let look = |path: PathBuf| {
        let meta = fs::symlink_metadata(&path).ok()?;
        let content = match meta.is_file() {
            true => fs::read(&path).unwrap_or_default().escape_ascii().to_string(),
            false => fs::read_link(&path).map(|to| to.display().to_string()).unwrap_or_default(),
        };
        let line = format!("{:o} {} {}", meta.mode(), meta.ino(), content);
        Some((path, line))
    };
    walk(top).into_iter().filter_map(look).collect()
}
