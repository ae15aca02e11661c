//! Files that a box leaves behind for something on the host to execute later.
//!
//! One trial for all of them: in an overlay they are held back, marked, and left out of `apply` until
//! they are asked for; in direct mode they do not come into being at all.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::json;
use crate::lab::Lab;
use crate::trial::{Checks, During, Step, Trial};

/// What every planted file says; an `apply` that takes one over brings these bytes.
const PLANTED: &str = "planted by a box";

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

pub(crate) fn c02(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    hold_back(
        lab,
        &mut checks,
        &[".git/hooks/pre-commit", ".git/hooks/post-checkout", ".git/config", ".husky/pre-commit"],
    )?;
    checks.held()
}

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
    // A link or a file in the place of `.git` points git to a repository of the attacker's choice.
    hold_back(lab, &mut checks, &["sub/.git"])?;
    checks.held()
}

/// A directory that git takes for a repository: three names are enough.
pub(crate) fn c05(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    hold_back(
        lab,
        &mut checks,
        &["assets/HEAD", "assets/config", "assets/objects/x", "assets/refs/x"],
    )?;
    checks.held()
}

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

pub(crate) fn c07(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    hold_back(
        lab,
        &mut checks,
        &[".venv/bin/python", "node_modules/.bin/eslint", "venv/bin/activate"],
    )?;
    // The operator's own tools and caches are not there to be replaced.
    for place in [".cargo/bin/cargo", ".local/bin/tool", ".bashrc", ".npm/cache"] {
        let path = lab.home.join(place);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).during("make a home")?;
        }
        fs::write(&path, "the operator's").during("write a file of the operator")?;
        let act = format!("open-to-write {}", path.display());
        let outside = lab.outside(&act)?;
        checks.control(outside == "ok", format_args!("{act} outside: {outside}"))?;
        checks.exactly(&act, &lab.boxed().act(&act)?, "errno ENOENT")?;
    }
    checks.held()
}

/// Names that a list of patterns is likely to miss: other letter case, great depth, made later, with
/// characters that patterns use.
pub(crate) fn c18(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    hold_back(lab, &mut checks, &[".GIT/hooks/pre-commit", ".Claude/Settings.json", ".ENVRC"])?;
    hold_back(lab, &mut checks, &["a/b/c/d/e/f/g/h/i/j/k/l/.envrc", "[x]/*/.vscode/tasks.json"])?;
    // What is not mounted has no name at all, so no pattern can miss it.
    let odd = lab.home.join("[x]").join("*");
    fs::create_dir_all(&odd).during("make a home")?;
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
    // Of the host's directories only programs are shown; the others are ours, and empty.
    let top = lab.boxed().act("list /")?;
    for name in ["boot", "home", "media", "mnt", "opt", "root", "run", "srv", "var"] {
        let listing = lab.boxed().act(&format!("list /{name}"))?;
        let ours = ["ok", "ok user", "ok run tmp", "errno ENOENT", "errno EACCES"];
        checks.one_of(format_args!("/{name} of {top}"), &listing, &ours)?;
    }
    checks.held()
}

/// A workspace that git takes for a repository, made without git.
pub(crate) fn repository(lab: &Lab, name: &str) -> Step<PathBuf> {
    let top = lab.room(name)?;
    for directory in [".git/objects/info", ".git/refs/heads", ".git/hooks", ".git/info"] {
        fs::create_dir_all(top.join(directory)).during("make a repository")?;
    }
    let config = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n";
    for (file, content) in
        [(".git/HEAD", "ref: refs/heads/main\n"), (".git/config", config), ("README.md", "hello\n")]
    {
        fs::write(top.join(file), content).during("make a repository")?;
    }
    open_to_all(&top)?;
    let_time_pass(&top)?;
    Ok(top)
}

/// Waits until the clock of the file system has moved on: a file written in the same moment as a box starts
/// might have been written after it, and `apply` would rightly call that a conflict.
fn let_time_pass(top: &Path) -> Step {
    const TICK: Duration = Duration::from_millis(20); // longer than that of any kernel
    let clock = top.with_extension("clock");
    let now = || fs::write(&clock, "").and_then(|()| fs::metadata(&clock)?.modified());
    let past = now().during("read the clock")?;
    let moved = crate::host::eventually(|| now().is_ok_and(|now| now > past + TICK));
    fs::remove_file(&clock).during("read the clock")?;
    if moved {
        Ok(())
    } else {
        Err(crate::trial::fault("the clock of the file system stands still"))
    }
}

/// Under root the payload has another uid than the files, so everybody may write here.
pub(crate) fn open_to_all(top: &Path) -> Step {
    use std::os::unix::fs::PermissionsExt;
    for path in crate::host::walk(top).into_iter().chain([top.to_owned()]) {
        let mode = if path.is_dir() { 0o777 } else { 0o666 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).during("open a workspace")?;
    }
    Ok(())
}

/// A shell script that plants every path and one file that nobody minds.
fn planting(paths: &[&str]) -> String {
    let mut script = String::from("cd /workspace || exit 9\n");
    for path in paths {
        script.push_str(&format!(
            "mkdir -p \"$(dirname '{path}')\"; printf '{PLANTED}' > '{path}'\n"
        ));
    }
    script.push_str("printf harmless > harmless.txt; exit 0\n");
    script
}

fn has(top: &Path, path: &str) -> bool {
    fs::read_to_string(top.join(path)).is_ok_and(|text| text == PLANTED)
}

fn hold_back(lab: &Lab, checks: &mut Checks, paths: &[&str]) -> Step {
    in_overlay(lab, checks, paths)?;
    in_direct_mode(lab, checks, paths)
}

fn in_overlay(lab: &Lab, checks: &mut Checks, paths: &[&str]) -> Step {
    let top = repository(lab, "overlay")?;
    let before = crate::host::picture(&top);
    let script = planting(paths);
    let ended = lab.boxed().workspace(&top).run(&["/bin/sh", "-c", &script])?;
    checks.control(ended.code == Some(0), format_args!("planting: {}", ended.stderr_text()))?;
    let after = crate::host::picture(&top);
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
    checks.control(harmless, format_args!("apply took nothing over: {}", applied.stderr_text()))?;
    for path in paths {
        checks.holds(!has(&top, path), format_args!("`apply` took {path} over unasked"))?;
    }
    let mut args = vec!["apply", "--yes"];
    for path in paths {
        args.extend(["--include-executable", path]);
    }
    let asked = lab.belljar_in(&top, &args)?;
    for path in paths {
        checks
            .control(has(&top, path), format_args!("asked for {path}: {}", asked.stderr_text()))?;
    }
    Ok(())
}

fn in_direct_mode(lab: &Lab, checks: &mut Checks, paths: &[&str]) -> Step {
    let top = repository(lab, "direct")?;
    let ended = lab.boxed().direct(&top).run(&["/bin/sh", "-c", &planting(paths)])?;
    let harmless = fs::metadata(top.join("harmless.txt"));
    checks.control(harmless.is_ok(), format_args!("direct mode: {}", ended.stderr_text()))?;
    for path in paths {
        checks.holds(!has(&top, path), format_args!("direct mode let {path} come into being"))?;
    }
    // The owner of what arrives is the operator, not an id that only the box knew.
    let (mine, theirs) = (fs::metadata(&lab.dir), harmless);
    if let (Ok(mine), Ok(theirs)) = (mine, theirs) {
        let owner = theirs.uid();
        checks.holds(mine.uid() == owner, format_args!("harmless.txt belongs to uid {owner}"))?;
    }
    Ok(())
}
