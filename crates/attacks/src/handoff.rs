//! Attacks with files that tools of the host execute later.
//!
//! All trials are alike: in overlay mode, `diff` marks such files and `apply` skips them unless they are
//! named explicitly; in direct mode they never reach the host.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::json;
use crate::lab::Lab;
use crate::trial::{Checks, During, Step, Trial};

/// The content of every file that a box plants.
const PLANTED: &str = "planted by a box";

/// Tests that `apply` holds back settings of agents.
pub(crate) fn c01(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    hold_back(
        lab,
        &mut checks,
        &[
            ".claude/settings.json",
            ".claude/settings.local.json",
            ".claude/hooks/start.sh",
            ".mcp.json",
            "CLAUDE.md",
            "AGENTS.md",
            ".cursor/mcp.json",
            ".gemini/settings.json",
        ],
    )?;
    checks.held()
}

/// Tests that `apply` holds back git hooks and git configuration.
pub(crate) fn c02(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    hold_back(
        lab,
        &mut checks,
        &[".git/hooks/pre-commit", ".git/hooks/post-checkout", ".git/config", ".husky/pre-commit"],
    )?;
    checks.held()
}

/// Tests that `apply` holds back internal files of git.
pub(crate) fn c04(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    hold_back(
        lab,
        &mut checks,
        &[
            ".git/modules/sub/hooks/post-checkout",
            ".git/modules/sub/config",
            ".git/config.worktree",
            ".git/info/attributes",
            ".git/objects/info/alternates",
            ".git/worktrees/other/gitdir",
            ".git/commondir",
            ".gitattributes",
            ".gitmodules",
        ],
    )?;
    // A file or link named `.git` can point git to a repository of the attacker.
    hold_back(lab, &mut checks, &["sub/.git"])?;
    checks.held()
}

/// Tests that `apply` holds back a bare repository that a box planted. Git recognizes one by three
/// names.
pub(crate) fn c05(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    hold_back(
        lab,
        &mut checks,
        &["assets/HEAD", "assets/config", "assets/objects/x", "assets/refs/x"],
    )?;
    checks.held()
}

/// Tests that `apply` holds back files of editors, shells, build tools and CI.
pub(crate) fn c06(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    hold_back(
        lab,
        &mut checks,
        &[
            ".vscode/tasks.json",
            ".vscode/settings.json",
            ".idea/workspace.xml",
            ".envrc",
            ".npmrc",
            "Makefile",
            "package.json",
            "pyproject.toml",
            "conftest.py",
            ".pre-commit-config.yaml",
            ".github/workflows/ci.yml",
            ".gitlab-ci.yml",
            "Dockerfile",
            ".devcontainer/devcontainer.json",
            "build.rs",
            ".cargo/config.toml",
        ],
    )?;
    checks.held()
}

/// Tests that `apply` holds back replaced interpreters and tools.
pub(crate) fn c07(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    hold_back(
        lab,
        &mut checks,
        &[".venv/bin/python", "node_modules/.bin/eslint", "venv/bin/activate"],
    )?;
    // The operator's tools and caches are not visible in a box.
    for place in [".cargo/bin/cargo", ".local/bin/tool", ".bashrc", ".npm/cache"] {
        let path = lab.home.join(place);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).during("create a directory")?;
        }
        fs::write(&path, "the operator's").during("write a file of the operator")?;
        let act = format!("open-to-write {}", path.display());
        let outside = lab.outside(&act)?;
        checks.control(outside == "ok", format_args!("{act} outside: {outside}"))?;
        checks.exactly(&act, &lab.boxed().act(&act)?, "errno ENOENT")?;
    }
    checks.held()
}

/// Tests that `apply` holds back risky files with unusual names: other case, deep paths, glob
/// characters.
pub(crate) fn c18(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    hold_back(lab, &mut checks, &[".GIT/hooks/pre-commit", ".Claude/Settings.json", ".ENVRC"])?;
    hold_back(lab, &mut checks, &["a/b/c/d/e/f/g/h/i/j/k/l/.envrc", "[x]/*/.vscode/tasks.json"])?;
    // Unmounted files do not exist inside, so no pattern can miss them.
    let odd = lab.home.join("[x]").join("*");
    fs::create_dir_all(&odd).during("create a directory")?;
    for name in [".env", "id_rsa", "*", "[a-z]", "..."] {
        let path = odd.join(name);
        fs::write(&path, "secret").during("write a secret")?;
        let act = format!("read {}", path.display());
        let outside = lab.outside(&act)?;
        checks.control(outside == "ok secret", format_args!("{act} outside: {outside}"))?;
        for user in ["1000", "0"] {
            checks.exactly(&act, &lab.boxed().user(user).act(&act)?, "errno ENOENT")?;
        }
    }
    // Only program directories of the host are visible; the others are empty directories of the box.
    let top = lab.boxed().act("list /")?;
    for name in ["boot", "home", "media", "mnt", "opt", "root", "run", "srv", "var"] {
        let listing = lab.boxed().act(&format!("list /{name}"))?;
        let ours = ["ok", "ok user", "ok run tmp", "errno ENOENT", "errno EACCES"];
        checks.one_of(format_args!("/{name} of {top}"), &listing, &ours)?;
    }
    checks.held()
}

/// Creates a workspace that is a valid git repository, without running git.
pub(crate) fn repository(lab: &Lab, name: &str) -> Step<PathBuf> {
    let top = lab.directory(name)?;
    for directory in [".git/objects/info", ".git/refs/heads", ".git/hooks", ".git/info"] {
        fs::create_dir_all(top.join(directory)).during("create a repository")?;
    }
    let config = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n";
    for (file, content) in
        [(".git/HEAD", "ref: refs/heads/main\n"), (".git/config", config), ("README.md", "hello\n")]
    {
        fs::write(top.join(file), content).during("create a repository")?;
    }
    open_to_all(&top)?;
    wait_for_clock_tick(&top)?;
    Ok(top)
}

/// Waits until the file system gives new files a later modification time.
///
/// `apply` would report a conflict for a file with the same time as the start of the box.
fn wait_for_clock_tick(top: &Path) -> Step {
    const TICK: Duration = Duration::from_millis(20); // longer than the clock tick of any kernel
    let clock = top.with_extension("clock");
    let now = || fs::write(&clock, "").and_then(|()| fs::metadata(&clock)?.modified());
    let past = now().during("read the clock")?;
    let moved = crate::host::eventually(|| now().is_ok_and(|now| now > past + TICK));
    fs::remove_file(&clock).during("read the clock")?;
    if moved {
        Ok(())
    } else {
        Err(crate::trial::fault("the clock of the file system does not advance"))
    }
}

/// Makes a directory tree writable for all users, because a box of root writes with another user
/// id.
pub(crate) fn open_to_all(top: &Path) -> Step {
    use std::os::unix::fs::PermissionsExt;
    for path in crate::host::walk(top).into_iter().chain([top.to_owned()]) {
        let mode = if path.is_dir() { 0o777 } else { 0o666 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).during("set permissions")?;
    }
    Ok(())
}

/// Returns a shell script that writes a file at each path, and one harmless file.
fn plant_script(paths: &[&str]) -> String {
    let mut script = String::from("cd /workspace || exit 9\n");
    for path in paths {
        script.push_str(&format!(
            "mkdir -p \"$(dirname '{path}')\"; printf '{PLANTED}' > '{path}'\n"
        ));
    }
    script.push_str("printf harmless > harmless.txt; exit 0\n");
    script
}

fn is_planted(top: &Path, path: &str) -> bool {
    fs::read_to_string(top.join(path)).is_ok_and(|text| text == PLANTED)
}

/// Checks in overlay and direct mode that files planted by a box do not reach the host without
/// approval.
fn hold_back(lab: &Lab, checks: &mut Checks, paths: &[&str]) -> Step {
    in_overlay(lab, checks, paths)?;
    in_direct_mode(lab, checks, paths)
}

fn in_overlay(lab: &Lab, checks: &mut Checks, paths: &[&str]) -> Step {
    let top = repository(lab, "overlay")?;
    let before = crate::host::snapshot(&top);
    let script = plant_script(paths);
    let ended = lab.boxed().workspace(&top).run(&["/bin/sh", "-c", &script])?;
    checks.control(
        ended.code == Some(0),
        format_args!("cannot plant the files: {}", ended.stderr_text()),
    )?;
    let after = crate::host::snapshot(&top);
    checks.holds(before == after, "a box in overlay mode changed the workspace of the host")?;
    let changes = json::changes(lab, &top)?;
    for path in paths {
        let change = changes.iter().find(|change| change.path == *path);
        checks.control(change.is_some(), format_args!("`diff` does not show {path}"))?;
        let marked = change.is_some_and(|change| change.risky);
        checks.holds(marked, format_args!("`diff` does not mark {path}"))?;
    }
    let applied = lab.belljar_in(&top, &["apply", "--yes"])?;
    let harmless = top.join("harmless.txt").exists();
    checks.control(harmless, format_args!("`apply` applied nothing: {}", applied.stderr_text()))?;
    for path in paths {
        checks.holds(
            !is_planted(&top, path),
            format_args!("`apply` applied {path} without being asked"),
        )?;
    }
    let mut args = vec!["apply", "--yes"];
    for path in paths {
        args.extend(["--include-executable", path]);
    }
    let asked = lab.belljar_in(&top, &args)?;
    for path in paths {
        checks.control(
            is_planted(&top, path),
            format_args!("`--include-executable` does not apply {path}: {}", asked.stderr_text()),
        )?;
    }
    Ok(())
}

fn in_direct_mode(lab: &Lab, checks: &mut Checks, paths: &[&str]) -> Step {
    let top = repository(lab, "direct")?;
    let ended = lab.boxed().direct(&top).run(&["/bin/sh", "-c", &plant_script(paths)])?;
    let harmless = fs::metadata(top.join("harmless.txt"));
    checks.control(harmless.is_ok(), format_args!("direct mode: {}", ended.stderr_text()))?;
    for path in paths {
        checks.holds(
            !is_planted(&top, path),
            format_args!("direct mode created {path} on the host"),
        )?;
    }
    // The operator owns the applied files, not the user id of the box.
    let (mine, theirs) = (fs::metadata(&lab.dir), harmless);
    if let (Ok(mine), Ok(theirs)) = (mine, theirs) {
        let owner = theirs.uid();
        checks.holds(mine.uid() == owner, format_args!("harmless.txt belongs to uid {owner}"))?;
    }
    Ok(())
}
