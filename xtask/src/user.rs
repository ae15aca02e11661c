//! The plain user of this machine as whom half of the tests run.
//!
//! Root makes the user once and keeps it. A small script (the *runner*) becomes that user and
//! starts one program. Test binaries stay where cargo built them, because paths of the tree are
//! compiled into them; where a parent directory is closed to the user (a clone below root's home,
//! or in a 0700 temporary directory), the runner puts an open directory over it in a mount
//! namespace of its own and binds the tree back to its place.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::shell::{program, read, root, run, succeeds, target_dir};

const NAME: &str = "belljar-test";
const HOME: &str = "/var/lib/belljar-test";
const LOCK: &str = "/run/belljar-test.lock";

/// A user that exists, with a place of its own and a way to become it.
#[derive(Debug)]
pub(crate) struct User {
    /// Starts `runner PROGRAM ARG…` as the user.
    pub(crate) runner: PathBuf,
    /// The program under test, where the user can read but not write it.
    pub(crate) belljar: PathBuf,
    /// Held while the user is in use: two runs at once would empty each other's directory.
    _lock: File,
}

/// Makes the user if there is none, empties its directory and gives it a copy of `belljar`.
pub(crate) fn prepare(belljar: &Path) -> Result<User> {
    if !succeeds(program("id").args(["-u", NAME])) {
        run(program("useradd").args(["--system", "--user-group", "--no-create-home"]).args([
            "--home-dir",
            HOME,
            "--shell",
            "/usr/sbin/nologin",
            NAME,
        ]))
        .with_context(|| format!("make the user {NAME}"))?;
    }
    let uid: u32 = read(program("id").args(["-u", NAME]))?.trim().parse().context("id -u")?;
    let gid: u32 = read(program("id").args(["-g", NAME]))?.trim().parse().context("id -g")?;

    let lock = File::create(LOCK).with_context(|| format!("open {LOCK}"))?;
    lock.lock().with_context(|| format!("lock {LOCK}"))?;
    let base = Path::new(HOME);
    if base.exists() {
        std::fs::remove_dir_all(base).with_context(|| format!("empty {HOME}"))?;
    }
    for (name, owner, mode) in [
        ("", 0, 0o755),
        ("bin", 0, 0o755),
        ("stage", 0, 0o700),
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
    std::fs::copy(belljar, &copy).with_context(|| format!("copy {}", belljar.display()))?;
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755))?;

    let runner = base.join("bin/run-as-user");
    let trees = [root().to_owned(), target_dir()?];
    let closed: BTreeSet<PathBuf> =
        trees.iter().filter_map(|tree| closed_parent(tree, uid, gid)).collect();
    std::fs::write(&runner, script(uid, gid, &trees, &closed))?;
    std::fs::set_permissions(&runner, std::fs::Permissions::from_mode(0o755))?;

    let user = User { runner, belljar: copy, _lock: lock };
    for tree in &trees {
        if !succeeds(program(&user.runner).args(["test", "-r"]).arg(tree)) {
            bail!(
                "the user {NAME} cannot read {}: `chmod -R a+rX` it and set a umask of 022",
                tree.display()
            );
        }
    }
    Ok(user)
}

/// The outermost directory above `tree` that the user may not pass through.
fn closed_parent(tree: &Path, uid: u32, gid: u32) -> Option<PathBuf> {
    let mut parents: Vec<&Path> = tree.ancestors().skip(1).collect();
    parents.reverse();
    let become_user =
        [format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()];
    let passes = |dir: &Path| {
        succeeds(program("setpriv").args(&become_user).args(["--", "test", "-x"]).arg(dir))
    };
    parents.into_iter().find(|dir| !passes(dir)).map(Path::to_owned)
}

/// The runner: plain `sh`, so that it can be read and tried by hand.
fn script(uid: u32, gid: u32, trees: &[PathBuf], closed: &BTreeSet<PathBuf>) -> String {
    let unveil = if closed.is_empty() { String::new() } else { unveil(trees, closed) };
    format!(
        r#"#!/bin/sh
# Written by xtask: runs one program as the test user.
set -eu
{unveil}export HOME={HOME}/home TMPDIR={HOME}/tmp USER={NAME} LOGNAME={NAME}
export BELLJAR_BIN={HOME}/bin/belljar BELLJAR_TEST_ROOT={HOME}/tmp
unset BELLJAR_UNVEILED BELLJAR_HOME XDG_RUNTIME_DIR XDG_STATE_HOME XDG_CONFIG_HOME
exec setpriv --reuid={uid} --regid={gid} --clear-groups -- "$@"
"#
    )
}

/// Lines that start the runner again in a mount namespace where the trees can be reached.
fn unveil(trees: &[PathBuf], closed: &BTreeSet<PathBuf>) -> String {
    let mut lines = vec![
        r#"if [ -z "${BELLJAR_UNVEILED:-}" ]; then"#.to_owned(),
        "    export BELLJAR_UNVEILED=1".to_owned(),
        r#"    exec unshare --mount --propagation private "$0" "$@""#.to_owned(),
        "fi".to_owned(),
        "here=$(pwd -P)".to_owned(),
    ];
    let staged = || trees.iter().map(|tree| quoted(tree)).enumerate();
    lines.extend(staged().map(|(number, tree)| {
        let stage = format!("{HOME}/stage/{number}");
        format!("mkdir -p {stage} && mount --bind {tree} {stage}")
    }));
    lines.extend(
        closed.iter().map(|dir| format!("mount -t tmpfs -o mode=755 none {}", quoted(dir))),
    );
    lines.extend(staged().map(|(number, tree)| {
        format!("mkdir -p {tree} && mount --bind {HOME}/stage/{number} {tree}")
    }));
    lines.push("cd \"$here\"\n".to_owned());
    lines.join("\n")
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runner_mounts_only_when_a_parent_is_closed() {
        let trees = [PathBuf::from("/srv/it's/tree")];
        let open = script(7, 8, &trees, &BTreeSet::new());
        assert!(!open.contains("mount"), "{open}");
        assert!(
            open.ends_with("exec setpriv --reuid=7 --regid=8 --clear-groups -- \"$@\"\n"),
            "{open}"
        );
        let closed = script(7, 8, &trees, &BTreeSet::from([PathBuf::from("/srv")]));
        assert!(closed.contains(r"mkdir -p '/srv/it'\''s/tree' && mount --bind"), "{closed}");
    }
}
