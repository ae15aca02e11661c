//! Runs git in a test repository, and reads the content of whole directories.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns a git command that runs in `dir`, with a test identity and without the settings of the
/// user.
pub fn git_command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("git");
    command
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*")
        .env("GIT_AUTHOR_NAME", "T")
        .env("GIT_AUTHOR_EMAIL", "t@t")
        .env("GIT_COMMITTER_NAME", "T")
        .env("GIT_COMMITTER_EMAIL", "t@t");
    command
}

/// Runs git and returns its output without trailing whitespace. Panics if git fails.
#[track_caller]
pub fn git(dir: &Path, args: &[&str]) -> String {
    let output = git_command(dir, args).output().expect("cannot start git");
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// Writes a file beneath a directory and creates its parent directories.
pub fn write_file(top: &Path, path: &str, content: &str) {
    let path = top.join(path);
    fs::create_dir_all(path.parent().expect("the path has a parent"))
        .expect("cannot create directories");
    fs::write(path, content).expect("cannot write a file");
}

/// Commits all changes of a repository and returns the id of the commit.
#[track_caller]
pub fn commit(top: &Path, subject: &str) -> String {
    git(top, &["add", "-A"]);
    git(top, &["commit", "-q", "--allow-empty", "-m", subject]);
    git(top, &["rev-parse", "HEAD"])
}

/// Returns every file beneath a directory with its content, and every symbolic link with its target.
pub fn read_tree(top: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut rest = vec![top.to_owned()];
    while let Some(dir) = rest.pop() {
        for entry in fs::read_dir(dir).expect("cannot read a directory") {
            let path = entry.expect("cannot read a directory").path();
            let kind = path.symlink_metadata().expect("cannot stat a file").file_type();
            if kind.is_dir() {
                rest.push(path);
            } else if kind.is_symlink() {
                let target = fs::read_link(&path).expect("cannot read a symbolic link");
                found.push((path, target.into_os_string().into_encoded_bytes()));
            } else {
                let content = fs::read(&path).unwrap_or_default();
                found.push((path, content));
            }
        }
    }
    found.sort();
    found
}
