//! Creates the plain user that runs tests when `cargo xtask test` runs as root.
//!
//! The user is created once and stays. A small script (the *runner*) switches to that user and starts
//! one program. Test binaries stay where cargo built them, because paths of the repository are compiled
//! into them. If the user cannot access a parent directory (a clone in the home of root, or in a
//! temporary directory with mode 0700), the runner mounts an empty directory over it in a new mount
//! namespace and bind-mounts the repository at its old path.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::shell::{program, read, root, run, succeeds, target_dir};

const NAME: &str = "belljar-test";
const HOME: &str = "/var/lib/belljar-test";
const LOCK: &str = "/run/belljar-test.lock";

/// A plain user for tests, with a script that runs programs as this user.
#[derive(Debug)]
pub(crate) struct User {
    /// The script: `runner PROGRAM ARG…` runs a program as the user.
    pub(crate) runner: PathBuf,
    /// A copy of the program under test, which the user can read but not write.
    pub(crate) belljar: PathBuf,
    /// A lock against two test runs at the same time, which would remove each other's files.
    _lock: File,
}

/// Creates the user if it does not exist, empties its directory and copies `belljar` into it.
pub(crate) fn prepare(belljar: &Path) -> Result<User> {
    if !succeeds(program("id").args(["-u", NAME])) {
        run(program("useradd").args(["--system", "--user-group", "--no-create-home"]).args([
            "--home-dir",
            HOME,
            "--shell",
            "/usr/sbin/nologin",
            NAME,
        ]))
        .with_context(|| format!("cannot create the user {NAME}"))?;
    }
    let uid: u32 = read(program("id").args(["-u", NAME]))?
        .trim()
        .parse()
        .context("cannot parse the output of id -u")?;
    let gid: u32 = read(program("id").args(["-g", NAME]))?
        .trim()
        .parse()
        .context("cannot parse the output of id -g")?;

    let lock = File::create(LOCK).with_context(|| format!("cannot open {LOCK}"))?;
    lock.lock().with_context(|| format!("cannot lock {LOCK}"))?;
    let base = Path::new(HOME);
    if base.exists() {
        std::fs::remove_dir_all(base).with_context(|| format!("cannot remove {HOME}"))?;
    }
    for (name, owner, mode) in [
        ("", 0, 0o755),
        ("bin", 0, 0o755),
        ("trees", 0, 0o700),
        ("home", uid, 0o700),
        ("tmp", uid, 0o700),
    ] {
        let dir = base.join(name);
        std::fs::create_dir_all(&dir)?;
        let group = if owner == 0 { 0 } else { gid };
        chown(&dir, Some(owner), Some(group))?;
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode))?;
    }
    let copy = base.join("bin/belljar");
    std::fs::copy(belljar, &copy).with_context(|| format!("cannot copy {}", belljar.display()))?;
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755))?;

    let runner = base.join("bin/run-as-user");
    let trees = [root().to_owned(), target_dir()?];
    let inaccessible: BTreeSet<PathBuf> =
        trees.iter().filter_map(|tree| inaccessible_parent(tree, uid, gid)).collect();
    std::fs::write(&runner, runner_script(uid, gid, &trees, &inaccessible))?;
    std::fs::set_permissions(&runner, std::fs::Permissions::from_mode(0o755))?;

    let user = User { runner, belljar: copy, _lock: lock };
    for tree in &trees {
        if !succeeds(program(&user.runner).args(["test", "-r"]).arg(tree)) {
            bail!(
                "the user {NAME} cannot read {}; run `chmod -R a+rX` on it and set the umask to 022",
                tree.display()
            );
        }
    }
    Ok(user)
}

/// Returns the topmost parent directory of `tree` that the user cannot enter, if any.
fn inaccessible_parent(tree: &Path, uid: u32, gid: u32) -> Option<PathBuf> {
    let mut parents: Vec<&Path> = tree.ancestors().skip(1).collect();
    parents.reverse();
    let become_user =
        [format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()];
    let can_enter = |dir: &Path| {
        succeeds(program("setpriv").args(&become_user).args(["--", "test", "-x"]).arg(dir))
    };
    parents.into_iter().find(|dir| !can_enter(dir)).map(Path::to_owned)
}

/// Returns the runner: a `sh` script that switches to the user and starts a program.
fn runner_script(
    uid: u32,
    gid: u32,
    trees: &[PathBuf],
    inaccessible: &BTreeSet<PathBuf>,
) -> String {
    let mounts =
        if inaccessible.is_empty() { String::new() } else { mount_lines(trees, inaccessible) };
    format!(
        r#"#!/bin/sh
# Written by xtask: runs one program as the test user.
set -eu
{mounts}export HOME={HOME}/home TMPDIR={HOME}/tmp USER={NAME} LOGNAME={NAME}
export BELLJAR_BIN={HOME}/bin/belljar BELLJAR_TEST_ROOT={HOME}/tmp
unset BELLJAR_UNVEILED BELLJAR_HOME XDG_RUNTIME_DIR XDG_STATE_HOME XDG_CONFIG_HOME
exec setpriv --reuid={uid} --regid={gid} --clear-groups -- "$@"
"#
    )
}

/// Returns script lines that restart the runner in a mount namespace in which the user can access the
/// trees.
fn mount_lines(trees: &[PathBuf], inaccessible: &BTreeSet<PathBuf>) -> String {
    let mut lines = vec![
        r#"if [ -z "${BELLJAR_UNVEILED:-}" ]; then"#.to_owned(),
        "    export BELLJAR_UNVEILED=1".to_owned(),
        r#"    exec unshare --mount --propagation private "$0" "$@""#.to_owned(),
        "fi".to_owned(),
        "here=$(pwd -P)".to_owned(),
    ];
    let numbered = || trees.iter().map(|tree| quoted(tree)).enumerate();
    lines.extend(numbered().map(|(number, tree)| {
        let saved = format!("{HOME}/trees/{number}");
        format!("mkdir -p {saved} && mount --bind {tree} {saved}")
    }));
    lines.extend(
        inaccessible.iter().map(|dir| format!("mount -t tmpfs -o mode=755 none {}", quoted(dir))),
    );
    lines.extend(numbered().map(|(number, tree)| {
        format!("mkdir -p {tree} && mount --bind {HOME}/trees/{number} {tree}")
    }));
    lines.push("cd \"$here\"\n".to_owned());
    lines.join("\n")
}

/// Quotes a path for `sh`.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runner_script_mounts_only_if_a_parent_directory_is_inaccessible() {
        let trees = [PathBuf::from("/srv/it's/tree")];
        let plain = runner_script(7, 8, &trees, &BTreeSet::new());
        assert!(!plain.contains("mount"), "{plain}");
        assert!(
            plain.ends_with("exec setpriv --reuid=7 --regid=8 --clear-groups -- \"$@\"\n"),
            "{plain}"
        );
        let mounts = runner_script(7, 8, &trees, &BTreeSet::from([PathBuf::from("/srv")]));
        assert!(mounts.contains(r"mkdir -p '/srv/it'\''s/tree' && mount --bind"), "{mounts}");
    }
}
