//! Measures files without a name that the processes of a box hold: deleted files and memory files.
//!
//! Some holders cannot be measured: a descriptor in a message that no process received, and for a plain user
//! a mapping. The result says so.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::processes;

/// Files without a name that the processes of a box hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Size of deleted files on disk.
    pub(crate) disk_bytes: u64,
    /// Size of memory files (memfd), which resident sizes do not include.
    pub(crate) memory_bytes: u64,
    /// Whether the box has holders that cannot be measured.
    pub(crate) is_incomplete: bool,
}

/// Measures the files that the processes of a box hold by a descriptor or by a mapping.
pub(crate) fn measure(init: i32) -> Held {
    let mut held = Held::default();
    let mut seen = HashSet::new();
    for pid in processes::descendants(init) {
        let entries = fs::read_dir(format!("/proc/{pid}/fd"));
        for link in entries.into_iter().flatten().flatten().map(|entry| entry.path()) {
            let Ok(meta) = fs::metadata(&link) else { continue };
            held.count(&link, &meta, &mut seen);
            if meta.file_type().is_socket() {
                held.is_incomplete |= holds_descriptors(&link);
            }
        }
        for range in deleted_mappings(&fs::read(format!("/proc/{pid}/maps")).unwrap_or_default()) {
            let link = PathBuf::from(format!("/proc/{pid}/map_files/{range}"));
            match fs::metadata(&link) {
                Ok(meta) => held.count(&link, &meta, &mut seen),
                // Only root can follow these links.
                Err(error) => held.is_incomplete |= error.kind() != io::ErrorKind::NotFound,
            }
        }
    }
    held
}

impl Held {
    fn count(&mut self, link: &Path, meta: &fs::Metadata, seen: &mut HashSet<(u64, u64)>) {
        let is_unnamed = meta.is_file() && meta.nlink() == 0;
        if !is_unnamed || !seen.insert((meta.dev(), meta.ino())) {
            return;
        }
        let bytes = meta.blocks() * 512;
        if !is_in_memory(link) {
            self.disk_bytes += bytes;
        } else if fs::read_link(link)
            .is_ok_and(|to| to.as_os_str().as_bytes().starts_with(b"/memfd:"))
        {
            self.memory_bytes += bytes; // other files in memory are on a tmpfs of limited size
        }
    }
}

/// Whether descriptors wait in the queue of a local socket, see proc_pid_fdinfo(5).
fn holds_descriptors(socket: &Path) -> bool {
    let info = socket.to_string_lossy().replace("/fd/", "/fdinfo/");
    let info = fs::read_to_string(info).unwrap_or_default();
    let count = info.lines().find_map(|line| line.strip_prefix("scm_fds:"));
    count.is_some_and(|count| count.trim() != "0")
}

/// Returns the address ranges of mapped files that were deleted, from proc_pid_maps(5), without those that
/// are in memory by their path.
fn deleted_mappings(maps: &[u8]) -> Vec<String> {
    const IN_MEMORY: [&str; 4] = ["/memfd:", "/dev/", "/SYSV", "/tmp/"];
    let maps = String::from_utf8_lossy(maps);
    let deleted = maps.lines().filter_map(|line| {
        let path = line.get(line.find('/')?..)?.strip_suffix(" (deleted)")?;
        let is_in_memory = IN_MEMORY.iter().any(|prefix| path.starts_with(prefix));
        (!is_in_memory).then(|| line.split(' ').next().unwrap_or_default().to_owned())
    });
    deleted.collect()
}

fn is_in_memory(path: &Path) -> bool {
    const TMPFS: rustix::fs::FsWord = 0x0102_1994;
    rustix::fs::statfs(path).is_ok_and(|stat| stat.f_type == TMPFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_mappings_are_those_of_files_on_disk() {
        let maps = b"\
7f00-7f10 r--s 00000000 00:2d 12  /workspace/a b (deleted)
7f10-7f20 r--s 00000000 00:2d 13  /workspace/kept
7f20-7f30 rw-s 00000000 00:01 14  /memfd:x (deleted)
7f30-7f40 rw-s 00000000 00:01 15  /dev/zero (deleted)
7f40-7f50 rw-p 00000000 00:00 0
7f50-7f60 rw-p 00000000 00:00 0   [heap]
";
        assert_eq!(deleted_mappings(maps), ["7f00-7f10"]);
    }
}
