//! Attacks with a hostile root file system that redirects the setup of the box.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::command::Ended;
use crate::handoff::open_to_all;
use crate::host::snapshot;
use crate::lab::Lab;
use crate::trial::{Checks, During, Step, Trial};

/// Directories of a root file system that the setup of a box mounts on or writes to.
const TARGETS: &[&str] =
    &["proc", "dev", "tmp", "workspace", "home", "etc", "home/user", "dev/pts", "dev/shm"];

/// Creates a harmless root file system of empty directories, since the probe needs no library.
fn harmless(lab: &Lab) -> Step<PathBuf> {
    let top = lab.directory("rootfs")?;
    for name in ["proc", "dev", "tmp", "workspace", "home", "etc", "usr/bin"] {
        fs::create_dir_all(top.join(name)).during("create a root file system")?;
    }
    Ok(top)
}

fn run(lab: &Lab, rootfs: &Path, act: &[&str]) -> Step<Ended> {
    let workspace = lab.directory("workspace")?;
    lab.boxed().workspace(&workspace).option("--rootfs").option(rootfs).run(act)
}

/// Tests that links and files in place of mount targets in a root file system redirect no mount.
pub(crate) fn c13(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let whole = run(lab, &harmless(lab)?, &["/probe", "writable"])?;
    checks
        .control(whole.code == Some(0), format_args!("a harmless tree: {}", whole.stderr_text()))?;

    let outside = lab.directory("c13-outside")?;
    for name in ["file", "null", "user/x", "pts/x", "shm/x"] {
        let path = outside.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).during("create a directory")?;
        }
        fs::write(path, "precious").during("write a file")?;
    }
    open_to_all(&outside)?;
    let before = snapshot(&outside);
    let away = outside.display().to_string();
    let up = format!("../../../../../../../../../..{away}");
    for target in TARGETS {
        for link in [away.as_str(), &up, "/proc/self/root", "/proc/1/root", "..", "nowhere"] {
            let tree = harmless(lab)?;
            let place = tree.join(target);
            if place.is_dir() {
                fs::remove_dir_all(&place).during("remove a directory")?;
            }
            if let Some(parent) = place.parent() {
                fs::create_dir_all(parent).during("create a directory")?;
            }
            symlink(link, &place).during("create a symbolic link")?;
            let ended = run(lab, &tree, &["/probe", "writable"])?;
            // Either the box is refused, or it was built inside its own root.
            let sane = matches!(ended.code, Some(0 | 125));
            checks.holds(sane, format_args!("{target} -> {link}: {}", ended.stderr_text()))?;
            let same = snapshot(&outside) == before;
            checks.holds(
                same,
                format_args!("{target} -> {link}: the setup wrote outside the root"),
            )?;
        }
    }
    for target in TARGETS {
        let tree = harmless(lab)?;
        let place = tree.join(target);
        if place.is_dir() {
            fs::remove_dir_all(&place).during("remove a directory")?;
        }
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent).during("create a directory")?;
        }
        fs::write(&place, "a file").during("write a file")?;
        let ended = run(lab, &tree, &["/probe", "me"])?;
        let sane = matches!(ended.code, Some(0 | 125));
        checks.holds(sane, format_args!("{target} is a file: {}", ended.stderr_text()))?;
        let kept = fs::read_to_string(&place).is_ok_and(|text| text == "a file");
        checks.holds(kept, format_args!("the setup changed {target} on disk"))?;
    }
    checks.held()
}

/// Tests that device nodes and masked files of a box never come from its root file system.
pub(crate) fn c14(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let outside = lab.directory("c14-outside")?;
    let victim = outside.join("victim");
    fs::write(&victim, "precious").during("write a file")?;
    open_to_all(&outside)?;
    let whole = run(lab, &harmless(lab)?, &["/probe", "stat", "/dev/null"])?;
    checks
        .control(whole.code == Some(0), format_args!("a harmless tree: {}", whole.stderr_text()))?;
    let names = ["null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "pts"];
    for name in names {
        let tree = harmless(lab)?;
        symlink(&victim, tree.join("dev").join(name)).during("create a symbolic link")?;
        let tries = run(lab, &tree, &["/probe", "stat", "/dev/null"])?;
        let output = tries.line();
        let sane = tries.code == Some(125) || output.starts_with("ok character 1:3");
        checks.holds(sane, format_args!("/dev/{name} -> a file: {output}"))?;
        run(lab, &tree, &["/probe", "write", &format!("/dev/{name}"), "overwritten"])?;
        let kept = fs::read_to_string(&victim).is_ok_and(|text| text == "precious");
        checks.holds(kept, format_args!("/dev/{name} led to a file of the host"))?;
    }
    // Control, and the devices of a normal box.
    let direct = lab.outside(&format!("write {} precious", victim.display()))?;
    checks.control(direct == "ok", format_args!("cannot write the file outside: {direct}"))?;
    for (name, kind) in [
        ("null", "character 1:3"),
        ("zero", "character 1:5"),
        ("full", "character 1:7"),
        ("random", "character 1:8"),
        ("urandom", "character 1:9"),
        ("tty", "character 5:0"),
    ] {
        let answer = lab.boxed().act(&format!("stat /dev/{name}"))?;
        checks.holds(
            answer.starts_with(&format!("ok {kind}")),
            format_args!("/dev/{name}: {answer}"),
        )?;
    }
    // The real /proc covers a /proc of the root file system.
    let tree = harmless(lab)?;
    fs::create_dir_all(tree.join("proc/self/attr")).during("create a false /proc")?;
    fs::write(tree.join("proc/self/status"), "Seccomp:\t0\nCapEff:\tffff\n")
        .during("write a false /proc")?;
    let me = run(lab, &tree, &["/probe", "me"])?;
    let real = me.code == Some(125) || me.line().contains("Seccomp=2");
    checks.holds(real, format_args!("a false /proc is visible: {}", me.line()))?;
    checks.held()
}
