//! Attacks with links, races, special files and huge trees in the workspace.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use crate::handoff::repository;
use crate::host::{snapshot, walk};
use crate::json;
use crate::lab::Lab;
use crate::trial::{Checks, During, Step, Trial};

/// Tests that symbolic links out of the workspace are not followed on the host.
pub(crate) fn c10(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let outside = lab.directory("c10-outside")?;
    fs::write(outside.join("precious.txt"), "precious\n").during("write a file")?;
    fs::create_dir(outside.join("sub")).during("create a directory")?;
    let before = snapshot(&outside);
    let away = outside.display();

    // Existing links of the operator, through which the box writes and deletes.
    let top = repository(lab, "c10")?;
    symlink(&outside, top.join("link")).during("create a symbolic link")?;
    symlink(outside.join("precious.txt"), top.join("file")).during("create a symbolic link")?;
    let through = lab.outside(&format!("write {}/link/control.txt x", top.display()))?;
    checks.control(through == "ok", format_args!("writing through the link: {through}"))?;
    fs::remove_file(outside.join("control.txt")).during("remove control.txt")?;
    for mode in ["direct", "overlay"] {
        let boxed = lab.boxed().workspace(&top).options(&["--mode", mode]);
        let script = "cd /workspace; echo x > link/new.txt; echo x > file; rm -rf link/sub link/precious.txt";
        boxed.run(&["/bin/sh", "-c", script])?;
        lab.belljar_in(&top, &["apply", "--yes"])?;
        checks.holds(snapshot(&outside) == before, format_args!("{mode}: a link was followed"))?;
    }

    // A directory that the box replaces by a link, with files below it.
    fs::create_dir(top.join("dir")).during("create a directory")?;
    fs::write(top.join("dir/a.txt"), "a\n").during("write a file")?;
    fs::set_permissions(top.join("dir"), fs::Permissions::from_mode(0o777))
        .during("set permissions")?;
    let script = format!(
        "cd /workspace; echo changed > dir/a.txt; rm -rf dir; ln -s {away} dir; ln -s {away}/precious.txt new"
    );
    lab.boxed().workspace(&top).run(&["/bin/sh", "-c", &script])?;
    lab.belljar_in(&top, &["diff"])?;
    lab.belljar_in(&top, &["apply", "--yes"])?;
    lab.belljar_in(
        &top,
        &["apply", "--yes", "--", "dir/a.txt", "dir/precious.txt", "../c10-outside"],
    )?;
    checks.holds(snapshot(&outside) == before, "a link that the box made was followed")?;

    // A directory that becomes a link on the host before the changes are applied.
    let top = repository(lab, "c10")?;
    fs::create_dir(top.join("dir")).during("create a directory")?;
    fs::set_permissions(top.join("dir"), fs::Permissions::from_mode(0o777))
        .during("set permissions")?;
    let script =
        "cd /workspace; echo new > dir/precious.txt; echo new > dir/other.txt; echo ok > fine.txt";
    lab.boxed().workspace(&top).run(&["/bin/sh", "-c", script])?;
    fs::remove_dir(top.join("dir")).during("remove a directory")?;
    symlink(&outside, top.join("dir")).during("create a symbolic link")?;
    lab.belljar_in(&top, &["apply", "--yes"])?;
    lab.belljar_in(&top, &["apply", "--yes", "--theirs", "dir/precious.txt"])?;
    lab.belljar_in(&top, &["apply", "--yes", "--", "fine.txt"])?;
    checks.holds(snapshot(&outside) == before, "`apply` followed a link that was created later")?;
    checks.control(top.join("fine.txt").exists(), "`apply` applied nothing")?;
    lab.belljar_in(&top, &["discard", "--yes"])?;
    checks.holds(snapshot(&outside) == before, "`discard` followed a link")?;
    checks.held()
}

/// Tests that `apply` writes to no other directory while a directory is swapped for a symbolic link
/// in a loop.
pub(crate) fn c11(lab: &Lab) -> Trial {
    const FILES: u32 = 500;
    const ENOUGH: u32 = 100;
    let mut checks = Checks::default();
    let outside = lab.directory("c11-outside")?;
    let top = repository(lab, "c11")?;
    let (dir, link) = (top.join("dir"), lab.dir.join("c11-link"));
    fs::create_dir(&dir).during("create a directory")?;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).during("set permissions")?;
    symlink(&outside, &link).during("create a symbolic link")?;
    let script = format!(
        "cd /workspace/dir; i=0; while [ $i -lt {FILES} ]; do echo x > $i; i=$((i+1)); done"
    );
    let made = lab.boxed().workspace(&top).run(&["/bin/sh", "-c", &script])?;
    checks.control(
        made.code == Some(0),
        format_args!("cannot create the files: {}", made.stderr_text()),
    )?;

    let (stop, swaps) = (AtomicBool::new(false), AtomicU32::new(0));
    let apart = lab.dir.join("c11-apart");
    let applied = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // Swap the directory for the link, and back.
                let away = fs::rename(&dir, &apart).and_then(|()| fs::rename(&link, &dir));
                let back = fs::rename(&dir, &link).and_then(|()| fs::rename(&apart, &dir));
                if away.and(back).is_ok() {
                    swaps.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let mut last = Ok(0);
        for round in 0..100 {
            // On a busy machine the swapping thread needs more time.
            if round >= 3 && swaps.load(Ordering::Relaxed) > ENOUGH {
                break;
            }
            last = lab.belljar_in(&top, &["apply", "--yes"]).map(|ended| ended.stdout.len());
        }
        stop.store(true, Ordering::Relaxed);
        last
    });
    applied?;
    let swaps = swaps.load(Ordering::Relaxed);
    checks.control(swaps > ENOUGH, format_args!("only {swaps} swaps during apply"))?;
    let escaped = walk(&outside).len();
    checks.holds(escaped == 0, format_args!("{escaped} files were written through the link"))?;
    // Without the race, the remaining files are applied.
    lab.belljar_in(&top, &["apply", "--yes"])?;
    let arrived = walk(&dir).len();
    checks.control(arrived > 0, "`apply` applied nothing")?;
    checks.note(format_args!("{swaps} swaps, {arrived} files applied, none outside"));
    checks.held()
}

/// Tests that links and renames cannot change protected files in direct mode.
pub(crate) fn c17(lab: &Lab) -> Trial {
    const SCRIPTS: &[&str] = &[
        "ln .git/config alias && echo evil >> alias",
        "ln .git/config alias && rm .git/config && mv alias .git/config && echo evil >> .git/config",
        "mv .git old; mkdir .git; echo evil > .git/config",
        "cp -a .git new && echo evil > new/config && rm -rf .git && mv new .git",
        "mv .git/hooks hooks; ln -s ../hooks .git/hooks; echo evil > hooks/pre-commit",
        "rm -rf .git; ln -s plain .git; echo evil > plain/config; mkdir plain/hooks",
        "rm -f .git/config; mkfifo .git/config",
        "echo evil > .git/hooks/pre-commit; chmod 755 .git/hooks/pre-commit",
        "rm -rf .git",
    ];
    let mut checks = Checks::default();
    for script in SCRIPTS {
        let top = repository(lab, "c17")?;
        fs::create_dir(top.join("plain")).during("create a directory")?;
        let anybody = fs::Permissions::from_mode(0o777);
        fs::set_permissions(top.join("plain"), anybody).during("set permissions")?;
        let git = top.join(".git");
        let before = snapshot(&git);
        for user in ["1000", "0"] {
            let script =
                format!("cd /workspace; {{ {script}; }} 2>/dev/null; echo fine > done.txt; :");
            let boxed = lab.boxed().direct(&top).user(user);
            let ended = boxed.run(&["/bin/sh", "-c", &script])?;
            let took = fs::read_to_string(top.join("done.txt")).is_ok_and(|text| text == "fine\n");
            checks.control(took, format_args!("`{script}`: {}", ended.stderr_text()))?;
            fs::remove_file(top.join("done.txt")).during("remove done.txt")?;
            let kept = fs::symlink_metadata(&git).is_ok_and(|meta| meta.is_dir());
            checks.holds(kept, format_args!("`{script}` as uid {user} removed .git"))?;
            let same = snapshot(&git) == before;
            checks.holds(same, format_args!("`{script}` as uid {user} changed .git"))?;
        }
    }
    // Control: the same acts succeed outside a box.
    let free = repository(lab, "c17")?;
    let here = |name: &str| free.join(name).display().to_string();
    for act in [
        format!("link {} {}", here(".git/config"), here("alias")),
        format!("rename {} {}", here(".git/hooks"), here("hooks")),
        format!("unlink {}", here(".git/config")),
    ] {
        let outside = lab.outside(&act)?;
        checks.control(outside == "ok", format_args!("{act} outside: {outside}"))?;
    }
    checks.held()
}

/// Tests that a box can neither create nor use set-user-id files and devices.
pub(crate) fn c22(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let work_dir = lab.directory("c22")?;
    let control = format!("copy-setuid {} {}/copy", lab.probe.display(), work_dir.display());
    let outside = lab.outside(&control)?;
    checks.control(outside == "ok", format_args!("{control}: {outside}"))?;
    for user in ["1000", "0"] {
        let top = repository(lab, "c22")?;
        let acts = [
            "copy-setuid /probe /tmp/copy",
            "copy-setuid /probe /workspace/copy",
            "create /workspace/new 4755",
            "create /workspace/new 2755",
            "chmod /workspace/README.md 6755",
            "setxattr /workspace/README.md security.capability",
            "mknod /workspace/null c 1 3",
            "mknod /tmp/disk b 8 0",
        ];
        for mode in ["overlay", "direct"] {
            let boxed = lab.boxed().user(user).workspace(&top).options(&["--mode", mode]);
            for (act, answer) in acts.iter().zip(boxed.acts(&acts)?) {
                checks.exactly(
                    format_args!("{act} as uid {user}, {mode}"),
                    &answer,
                    "errno EPERM",
                )?;
            }
            lab.belljar_in(&top, &["apply", "--yes"])?;
            let raised = walk(&top).into_iter().find(|path| {
                fs::symlink_metadata(path).is_ok_and(|meta| meta.mode() & 0o6000 != 0)
            });
            checks
                .holds(raised.is_none(), format_args!("{raised:?} is set-user-id on the host"))?;
        }
    }
    prepared(lab, &work_dir, &mut checks)?;
    checks.held()
}

/// Checks that a box cannot use a set-user-id program and a device node that root of the host
/// created.
fn prepared(lab: &Lab, work_dir: &Path, checks: &mut Checks) -> Step {
    if !lab.root {
        checks.unproven("only root can create a set-user-id file of another user");
        return Ok(());
    }
    let run = format!("as 65534 {}/copy me", work_dir.display());
    let outside = lab.outside(&run)?;
    checks.control(outside.contains("Uid=65534,0,0,0"), format_args!("{run}: {outside}"))?;
    let made = lab.outside(&format!("mknod {}/zero c 1 5", work_dir.display()))?;
    let opened = lab.outside(&format!("open {}/zero", work_dir.display()))?;
    checks
        .control(made == "ok" && opened == "ok", format_args!("a device node: {made}, {opened}"))?;
    for access in ["ro", "rw"] {
        let boxed = lab.boxed().mount(work_dir, &format!("/prepared:{access}"));
        let inside = boxed.run(&["/prepared/copy", "me"])?.line();
        checks.holds(
            inside.contains("Uid=1000,1000,1000,1000")
                && inside.contains("CapEff=0000000000000000"),
            format_args!("the set-user-id copy runs as {inside}"),
        )?;
        let node = boxed.act("open /prepared/zero")?;
        checks.exactly("a device node in a mount", &node, "errno EACCES")?;
    }
    Ok(())
}

/// Tests that `diff` and `apply` handle huge trees and special files, and apply only regular files.
pub(crate) fn c23(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let top = repository(lab, "c23")?;
    let acts = [
        "mknod /workspace/pipe p 0 0",
        "bind /workspace/socket",
        "files /workspace/many 2000",
        "deep /workspace 300",
        "named /workspace 0a1b5d323b6576696c07",
        "named /workspace fffe2e747874",
        "named /workspace 2d2d666f726365",
        "symlink ../../../../../../etc/passwd /workspace/slip",
        "write /workspace/plain.txt plain",
    ];
    let answers = lab.boxed().workspace(&top).acts(&acts)?;
    for (act, answer) in acts.iter().zip(&answers) {
        checks.control(answer.starts_with("ok"), format_args!("{act}: {answer}"))?;
    }
    // A sparse file of eight exbibytes, and one that is larger than the limit.
    for bytes in ["9223372036854775807", "1099511627776"] {
        let act = format!("sparse /workspace/huge {bytes}");
        let answer = lab.boxed().workspace(&top).act(&act)?;
        let stopped = ["errno EFBIG", "errno EINVAL", "killed SIGXFSZ"].contains(&answer.as_str())
            || answer.starts_with("no output, code Some(1");
        checks.holds(stopped, format_args!("{act}: {answer}"))?;
        lab.belljar_in(&top, &["discard", "--yes"])?;
    }
    let changes = json::changes(lab, &top)?;
    checks.control(changes.len() > 2000, format_args!("`diff` shows {} changes", changes.len()))?;
    let diff = lab.belljar_in(&top, &["diff"])?;
    let clean = !diff.stdout.contains(&0x1b) && !diff.stdout.contains(&7);
    checks.holds(clean, "`diff` prints a control character of a file name")?;
    let applied = lab.belljar_in(&top, &["apply", "--yes"])?;
    let plain = fs::read_to_string(top.join("plain.txt")).is_ok_and(|text| text == "plain");
    checks.control(plain, format_args!("`apply` applied nothing: {}", applied.stderr_text()))?;
    for name in ["pipe", "socket"] {
        let there = fs::symlink_metadata(top.join(name)).is_ok();
        checks.holds(!there, format_args!("`apply` created a {name} on the host"))?;
    }
    checks.held()
}
