//! Collects the files of the user's home directory that are copied into a new box for an agent.
//!
//! Only files that the agent's description lists are copied. The box gets copies, so that it cannot change
//! the user's own files. Symbolic links are not copied, because they can lead to any file. The lists name
//! files with instructions, never files with keys.

use std::io::Read as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::HomeFile;

/// The maximum size of all copied files in bytes.
const MAX_BYTES: u64 = 16 << 20;
const MAX_FILES: usize = 2000;

/// Reads the listed files of a home directory. Also returns a remark for each file that was skipped.
pub fn collect(home: &Path, list: &[PathBuf]) -> (Vec<HomeFile>, Vec<String>) {
    let mut copy = Copy { home, files: Vec::new(), remarks: Vec::new(), bytes_left: MAX_BYTES };
    for path in list {
        match path.to_str().and_then(|path| path.strip_suffix("/**")) {
            Some(dir) => copy.directory(Path::new(dir)),
            None => copy.file(path),
        }
    }
    (copy.files, copy.remarks)
}

struct Copy<'a> {
    home: &'a Path,
    files: Vec<HomeFile>,
    remarks: Vec<String>,
    bytes_left: u64,
}

impl Copy<'_> {
    fn directory(&mut self, path: &Path) {
        let at = self.home.join(path);
        if !at.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            return;
        }
        let Ok(entries) = std::fs::read_dir(&at) else { return };
        let mut names: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
        names.sort();
        for name in names {
            let path = path.join(name);
            match self.home.join(&path).symlink_metadata() {
                Ok(meta) if meta.is_dir() => self.directory(&path),
                Ok(_) => self.file(&path),
                Err(_) => {}
            }
        }
    }

    fn file(&mut self, path: &Path) {
        let Ok(meta) = self.home.join(path).symlink_metadata() else { return };
        if !meta.is_file() {
            return self.skip(path, "not a regular file");
        }
        if self.files.len() >= MAX_FILES || meta.len() > self.bytes_left {
            return self.skip(path, "the listed files exceed 16 MiB or 2000 files");
        }
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let flags = i32::try_from(flags.bits()).unwrap_or_default();
        let mut content = Vec::new();
        let opened =
            std::fs::File::options().read(true).custom_flags(flags).open(self.home.join(path));
        let read = opened.and_then(|file| file.take(self.bytes_left).read_to_end(&mut content));
        if read.is_err() {
            return self.skip(path, "cannot be read");
        }
        let mode = if meta.permissions().mode() & 0o100 == 0 { 0o600 } else { 0o700 };
        self.bytes_left = self.bytes_left.saturating_sub(content.len() as u64);
        self.files.push(HomeFile { path: path.to_owned(), content, mode });
    }

    fn skip(&mut self, path: &Path, why: &str) {
        self.remarks.push(format!("~/{} is not copied into the box: {why}", path.display()));
    }
}
