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
    /// Whether the box has holders of files on disk that cannot be measured.
    pub(crate) is_incomplete: bool,
    /// Whether the box has mappings of memory files that cannot be measured.
    pub(crate) hides_memory: bool,
}

/// Measures the files that the processes of a box hold by a descriptor or by a mapping.
pub(crate) fn measure(init: i32) -> Held {
    let mut held = Held::default();
    let mut seen = HashSet::new();
    let processes = processes::descendants(init);
    for pid in &processes {
        let entries = fs::read_dir(format!("/proc/{pid}/fd"));
        for link in entries.into_iter().flatten().flatten().map(|entry| entry.path()) {
            let Ok(meta) = fs::metadata(&link) else { continue };
            held.count(&link, &meta, &mut seen);
            if meta.file_type().is_socket() {
                held.is_incomplete |= holds_descriptors(&link);
            }
        }
    }
    for pid in &processes {
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        for mapping in deleted_mappings(&String::from_utf8_lossy(&maps)) {
            if mapping.is_memory && seen.iter().any(|(_, inode)| *inode == mapping.inode) {
                continue; // a process holds it by a descriptor too
            }
            let link = PathBuf::from(format!("/proc/{pid}/map_files/{}", mapping.range));
            match fs::metadata(&link) {
                Ok(meta) => held.count(&link, &meta, &mut seen),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // Only root can follow these links.
                Err(_) if mapping.is_memory => held.hides_memory = true,
                Err(_) => held.is_incomplete = true,
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

/// A mapping of a file without a name.
#[derive(Debug, PartialEq, Eq)]
struct Mapping<'a> {
    /// The addresses, as in the names of proc_pid_map_files(5).
    range: &'a str,
    inode: u64,
    /// Whether it is a memory file (memfd). Otherwise it is a deleted file on disk.
    is_memory: bool,
}

/// Returns the mappings of deleted files on disk and of memory files, from proc_pid_maps(5).
fn deleted_mappings(maps: &str) -> Vec<Mapping<'_>> {
    // Resident sizes and the size of a tmpfs limit these.
    const OTHER_MEMORY: [&str; 3] = ["/dev/", "/SYSV", "/tmp/"];
    let deleted = maps.lines().filter_map(|line| {
        let path = line.get(line.find('/')?..)?.strip_suffix(" (deleted)")?;
        let mut fields = line.split(' ');
        let (range, inode) = (fields.next()?, fields.nth(3)?.parse().ok()?);
        let is_memory = path.starts_with("/memfd:");
        let is_other = OTHER_MEMORY.iter().any(|prefix| path.starts_with(prefix));
        (!is_other).then_some(Mapping { range, inode, is_memory })
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
    fn deleted_mappings_are_those_of_files_on_disk_and_of_memory_files() {
        let maps = "\
7f00-7f10 r--s 00000000 00:2d 12  /workspace/a b (deleted)
7f10-7f20 r--s 00000000 00:2d 13  /workspace/kept
7f20-7f30 rw-s 00000000 00:01 14  /memfd:x (deleted)
7f30-7f40 rw-s 00000000 00:01 15  /dev/zero (deleted)
7f40-7f50 rw-p 00000000 00:00 0
7f50-7f60 rw-p 00000000 00:00 0   [heap]
";
        let file = Mapping { range: "7f00-7f10", inode: 12, is_memory: false };
        let memory = Mapping { range: "7f20-7f30", inode: 14, is_memory: true };
        assert_eq!(deleted_mappings(maps), [file, memory]);
    }
}
