//! The lock that keeps two hosts from using one ledger at the same time.
//!
//! A state directory on a network file system can be mounted on several hosts. The locks between
//! processes may work there, but the shared memory of the index, the process ids of the boxes and the
//! order of uptimes do not. Every process that can append therefore holds a shared lock on the file
//! `host`, which names one host. A process of another host takes the file over if no process holds
//! the lock: after a restart of the host, or if the directory was moved.
//!
//! A file system that does not share locks between hosts cannot be protected in this way.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::FlockOperation;

use crate::log::read_at;

/// The shared lock of a process on the file `host`, held until it is dropped.
#[derive(Debug)]
pub(super) struct HostLock(
    #[expect(dead_code, reason = "closing the file releases the lock")] File,
);

/// The result of taking the lock.
#[derive(Debug)]
pub(super) enum Taken {
    Locked(HostLock),
    /// Processes of the host with this name hold the lock.
    OtherHost {
        name: String,
    },
}

/// The maximum number of bytes of the file that are read.
const MAX_HOST: usize = 512;

impl HostLock {
    /// Takes the lock for the host with this boot id. The caller holds the lock of the ledger, so no
    /// other process takes the file over at the same time.
    pub(super) fn take(path: &Path, boot: [u8; 16]) -> io::Result<Taken> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        let file = options.open(path).or_else(|_| options.create(true).open(path))?;
        let id = hex::encode(boot);
        flock(&file, FlockOperation::LockShared)?;
        let text = content(&file)?;
        let (found, name) = text.split_once(' ').unwrap_or_default();
        if found == id {
            return Ok(Taken::Locked(Self(file)));
        }
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Taken::OtherHost { name: name.trim_end().to_owned() });
            }
            Err(error) => return Err(error),
        }
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        file.set_len(0)?;
        file.write_all_at(format!("{id} {name}\n").as_bytes(), 0)?;
        flock(&file, FlockOperation::LockShared)?;
        Ok(Taken::Locked(Self(file)))
    }
}

fn content(file: &File) -> io::Result<String> {
    let mut bytes = [0; MAX_HOST];
    let count = read_at(file, &mut bytes, 0)?;
    Ok(String::from_utf8_lossy(bytes.get(..count).unwrap_or_default()).into_owned())
}

fn flock(file: &File, operation: FlockOperation) -> io::Result<()> {
    rustix::io::retry_on_intr(|| rustix::fs::flock(file, operation)).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn take(path: &Path, boot: u8) -> Result<HostLock, String> {
        match HostLock::take(path, [boot; 16]).unwrap() {
            Taken::Locked(lock) => Ok(lock),
            Taken::OtherHost { name } => Err(name),
        }
    }

    #[test]
    fn h04_second_host_is_refused_until_the_processes_of_the_first_host_ended() {
        let home = TempDir::new().unwrap();
        let path = home.path().join("host");
        let (first, second) = (take(&path, 1).unwrap(), take(&path, 1).unwrap());
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        assert_eq!(take(&path, 2).unwrap_err(), name);
        drop(first);
        assert_eq!(take(&path, 2).unwrap_err(), name);
        drop(second);
        let other = take(&path, 2).unwrap();
        assert_eq!(take(&path, 1).unwrap_err(), name, "the file names the second host now");
        drop((other, take(&path, 2).unwrap()));
    }
}
