//! What of the user's own settings for an agent goes into a new box: what a list names, and no more.
//!
//! Copies, so that nothing a box does reaches the user's own files. Links are left out: one may lead to
//! anything. The lists name instructions, never files that hold keys.

use std::io::Read as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::HomeFile;

const MOST_BYTES: u64 = 16 << 20;
const MOST_FILES: usize = 2000;

/// The files of a home that a list names, and what was left out.
pub fn collect(home: &Path, list: &[PathBuf]) -> (Vec<HomeFile>, Vec<String>) {
    let mut copy = Copy { home, files: Vec::new(), remarks: Vec::new(), left: MOST_BYTES };
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
    left: u64,
}

impl Copy<'_> {
    fn directory(&mut self, path: &Path) {
        let at = self.home.join(path);
        if !at.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            return;
        }
        let Ok(entries) = std::fs::read_dir(&at) else { return };
        let mut names: Vec<_> = entries.filter_map(|it| Some(it.ok()?.file_name())).collect();
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
            return self.leave_out(path, "not a plain file");
        }
        if self.files.len() >= MOST_FILES || meta.len() > self.left {
            return self.leave_out(path, "too much in all");
        }
        let nofollow = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let flags = i32::try_from(nofollow.bits()).unwrap_or_default();
        let mut content = Vec::new();
        let opened =
            std::fs::File::options().read(true).custom_flags(flags).open(self.home.join(path));
        let read = opened.and_then(|file| file.take(self.left).read_to_end(&mut content));
        if read.is_err() {
            return self.leave_out(path, "cannot be read");
        }
        let mode = if meta.permissions().mode() & 0o100 == 0 { 0o600 } else { 0o700 };
        self.left = self.left.saturating_sub(content.len() as u64);
        self.files.push(HomeFile { path: path.to_owned(), content, mode });
    }

    fn leave_out(&mut self, path: &Path, why: &str) {
        self.remarks.push(format!("~/{} is not copied into the box: {why}", path.display()));
    }
}
