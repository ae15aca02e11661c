//! Checks that the paths of a plan that a model wrote lead to files inside of its directory.
//!
//! [`Plan::check_authored`](belljar_model::plan::Plan::check_authored) has checked their text. Here the kernel
//! resolves each path below the directory and refuses every link: the target of a link could be outside, or
//! could have credentials.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use belljar_model::display::safe;
use belljar_model::plan::PlanPath;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// The number of attempts to resolve a path while other processes rename files.
const MAX_TRIES: usize = 128;

/// Returns a fault for each path that is missing, is a link, or is not a file or directory as it must be. Each
/// fault has the line of the path.
pub(super) fn faults(dir: &Path, paths: &[PlanPath]) -> io::Result<Vec<(usize, String)>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(dir, flags, Mode::empty())?;
    let fault = |path: &PlanPath| {
        let reason = fault(&dir, path)?;
        let PlanPath { path, purpose, of, line } = path;
        let path = safe(path.as_os_str().as_encoded_bytes());
        Some((*line, format!("{of}: {} `{path}`: {reason}", purpose.name())))
    };
    Ok(paths.iter().filter_map(fault).collect())
}

fn fault(dir: impl AsFd, path: &PlanPath) -> Option<String> {
    let kind = match kind(dir, &path.path) {
        Ok(kind) => kind,
        Err(Errno::LOOP) => {
            return Some("is a link or is behind one; name the file itself".to_owned());
        }
        Err(Errno::NOENT | Errno::NOTDIR) => return Some("does not exist".to_owned()),
        Err(Errno::XDEV) => return Some("is outside of the directory".to_owned()),
        Err(error) => return Some(format!("cannot be opened: {error}")),
    };
    match path.purpose.is_directory() {
        true if kind != FileType::Directory => Some("must be a directory".to_owned()),
        false if kind != FileType::RegularFile => Some("must be a regular file".to_owned()),
        _ => None,
    }
}

/// Returns the type of the file at a path below a directory, without following links.
fn kind(dir: impl AsFd, path: &Path) -> Result<FileType, Errno> {
    // With NOFOLLOW, a link at the end of the path would be opened instead of refused.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    for _ in 0..MAX_TRIES {
        match rustix::fs::openat2(&dir, path, flags, Mode::empty(), resolve) {
            // openat2(2): EAGAIN means that a rename raced with the lookup.
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error),
            Ok(file) => {
                let stat = rustix::fs::fstat(file)?;
                return Ok(FileType::from_raw_mode(stat.st_mode));
            }
        }
    }
    Err(Errno::AGAIN)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use belljar_model::plan::PathPurpose;

    use super::*;

    #[test]
    fn h14_links_missing_files_and_wrong_types_are_refused_and_files_inside_are_accepted() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("docs")).unwrap();
        fs::write(at("docs/issue.md"), "").unwrap();
        fs::write(outside.path().join("private.md"), "").unwrap();
        symlink(outside.path().join("private.md"), at("out.md")).unwrap();
        symlink(outside.path(), at("away")).unwrap();
        symlink("docs/issue.md", at("inside.md")).unwrap();
        let link = "is a link or is behind one; name the file itself";
        for (path, purpose, expected) in [
            ("docs/issue.md", PathPurpose::Input, None),
            ("./docs/../docs/issue.md", PathPurpose::Input, None),
            (".", PathPurpose::Workspace, None),
            ("docs", PathPurpose::Repository, None),
            ("out.md", PathPurpose::Prompt, Some(link)),
            ("away/private.md", PathPurpose::Input, Some(link)),
            ("away", PathPurpose::Overlay, Some(link)),
            ("inside.md", PathPurpose::Schema, Some(link)),
            ("docs/missing.md", PathPurpose::Program, Some("does not exist")),
            ("docs", PathPurpose::Input, Some("must be a regular file")),
            ("docs/issue.md", PathPurpose::Workspace, Some("must be a directory")),
            ("../private.md", PathPurpose::Input, Some("is outside of the directory")),
            ("/etc/passwd", PathPurpose::Input, Some("is outside of the directory")),
        ] {
            let named = PlanPath { path: path.into(), purpose, of: "task `a`".into(), line: 7 };
            let found = faults(dir.path(), &[named]).unwrap();
            let purpose = purpose.name();
            let expected =
                expected.map(|reason| (7, format!("task `a`: {purpose} `{path}`: {reason}")));
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        }
    }
}
