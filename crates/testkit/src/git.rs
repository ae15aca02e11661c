//! Plain git, as somebody at a terminal runs it, and what a directory holds before and after.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Git with these arguments, in a directory, with an identity and none of the user's settings.
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

/// Runs git and insists on success; its output, without whitespace at the end.
#[track_caller]
pub fn git(dir: &Path, args: &[&str]) -> String {
    let output = git_command(dir, args).output().expect("git is installed");
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// Writes a file below a directory, with the directories above it.
pub fn write_file(top: &Path, path: &str, content: &str) {
    let path = top.join(path);
    fs::create_dir_all(path.parent().expect("a file is in a directory")).expect("directories");
    fs::write(path, content).expect("a file");
}

/// Commits everything in a repository; the id of the commit.
#[track_caller]
pub fn commit(top: &Path, subject: &str) -> String {
    git(top, &["add", "-A"]);
    git(top, &["commit", "-q", "--allow-empty", "-m", subject]);
    git(top, &["rev-parse", "HEAD"])
}

/// Every file below a directory with its content, and the target of every link.
pub fn picture(top: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut rest = vec![top.to_owned()];
    while let Some(dir) = rest.pop() {
        for entry in fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("a directory").path();
            let kind = path.symlink_metadata().expect("a file").file_type();
            if kind.is_dir() {
                rest.push(path);
            } else if kind.is_symlink() {
                let target = fs::read_link(&path).expect("a link");
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
