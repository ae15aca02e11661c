//! Attacks that make tools of the host, including Belljar, act on behalf of the box.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::command::Program;
use crate::handoff::repository;
use crate::lab::Lab;
use crate::trial::{Checks, During, Step, Trial, Verdict};

/// Returns the path of the git program, if it is installed.
fn git() -> Option<PathBuf> {
    ["/usr/bin/git", "/usr/local/bin/git", "/bin/git"]
        .map(PathBuf::from)
        .into_iter()
        .find(|path| path.exists())
}

/// Returns a git configuration in which each setting runs a program that creates a file in `marks`.
fn hostile_config(marks: &Path) -> String {
    let mark = |name: &str| format!("touch {}/{name};", marks.display());
    format!(
        "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\
         \tfsmonitor = {fsmonitor} false\n\thooksPath = {hooks}\n\tpager = {pager} cat\n\
         \tsshCommand = {ssh} false\n\
         [diff]\n\texternal = {diff} true\n\
         [diff \"evil\"]\n\ttextconv = {textconv} cat\n\
         [filter \"evil\"]\n\tclean = {clean} cat\n\tsmudge = {smudge} cat\n\
         [merge \"evil\"]\n\tdriver = {merge} true\n\
         [alias]\n\tst = !{alias}\n",
        fsmonitor = mark("fsmonitor"),
        hooks = marks.join("hooks").display(),
        pager = mark("pager"),
        ssh = mark("ssh"),
        diff = mark("diff-external"),
        textconv = mark("textconv"),
        clean = mark("filter-clean"),
        smudge = mark("filter-smudge"),
        merge = mark("merge"),
        alias = mark("alias"),
    )
}

/// Writes the hostile git configuration, hooks, and attributes into a repository.
fn plant(top: &Path, marks: &Path) -> Step {
    use std::os::unix::fs::PermissionsExt;
    let hooks = marks.join("hooks");
    fs::create_dir_all(&hooks).during("create the hooks")?;
    for directory in [hooks, top.join(".git/hooks")] {
        for name in ["post-index-change", "pre-commit", "post-checkout", "reference-transaction"] {
            let hook = directory.join(name);
            let script = format!("#!/bin/sh\ntouch {}/hook\n", marks.display());
            fs::write(&hook, script).during("write a hook")?;
            fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).during("write a hook")?;
        }
    }
    fs::write(top.join(".git/config"), hostile_config(marks)).during("write the config")?;
    let attributes = "* filter=evil diff=evil merge=evil\n";
    fs::write(top.join(".gitattributes"), attributes).during("write the attributes")
}

/// Returns the names of the files in `marks` that programs started by git have created.
fn fired(marks: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(marks)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Tests that diff, apply and discard do not run programs from git settings.
pub(crate) fn c03(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let marks = lab.directory("marks")?;
    let top = repository(lab, "c03")?;
    let run_git = |args: &[&str]| -> Step {
        let Some(git) = git() else { return Ok(()) };
        let program = Program::new(&git).env("HOME", &lab.home).env("GIT_CONFIG_NOSYSTEM", "1");
        let path = "/usr/local/bin:/usr/bin:/bin";
        program.env("PATH", path).cwd(&top).args(args).run().map(|_| ())
    };
    // An index with a file, so that the drivers have input.
    run_git(&["add", "README.md"])?;
    plant(&top, &marks)?;

    for mode in ["overlay", "direct"] {
        let boxed = lab.boxed().workspace(&top).options(&["--mode", mode]);
        let script = "cd /workspace; echo changed >> README.md; echo new > new.txt; exit 0";
        let ended = boxed.run(&["/bin/sh", "-c", script])?;
        checks.control(ended.code == Some(0), format_args!("{mode}: {}", ended.stderr_text()))?;
        checks
            .holds(fired(&marks).is_empty(), format_args!("`run` executed {:?}", fired(&marks)))?;
        for args in [
            &["diff"][..],
            &["diff", "--stat"],
            &["diff", "--json"],
            &["runs"],
            &["apply", "--yes", "--", "new.txt"],
            &["apply", "--yes"],
        ] {
            lab.belljar_in(&top, args)?;
            let fired = fired(&marks);
            checks
                .holds(fired.is_empty(), format_args!("`belljar {args:?}` executed {fired:?}"))?;
        }
        let taken = fs::read_to_string(top.join("new.txt")).is_ok_and(|text| text == "new\n");
        checks.control(taken, format_args!("{mode}: no change was applied"))?;
        fs::remove_file(top.join("new.txt")).during("remove new.txt")?;
        lab.boxed().workspace(&top).run(&["/bin/sh", "-c", script])?;
        lab.belljar_in(&top, &["discard", "--yes"])?;
        checks.holds(
            fired(&marks).is_empty(),
            format_args!("discard executed {:?}", fired(&marks)),
        )?;
    }
    if git().is_none() {
        let why = "git is not installed, so the control cannot run".to_owned();
        return Ok(Verdict::NotHere { why });
    }
    run_git(&["status"])?;
    run_git(&["diff"])?;
    let fired = fired(&marks);
    checks.control(fired.len() >= 2, format_args!("git itself executes only {fired:?}"))?;
    checks.note(format_args!("git itself executes {}", fired.join(", ")));
    checks.held()
}

/// Tests that a project's `belljar.toml` cannot weaken the box.
pub(crate) fn c08(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let asks = [
        "weaken = [\"seccomp\"]",
        "mode = \"direct\"",
        "mounts = [\"/etc:/host:ro\"]",
        "env = [\"LD_PRELOAD=/workspace/evil.so\"]",
        "memory = \"64GiB\"",
        "timeout = \"none\"",
        "net = \"full\"",
        "rootfs = \"/workspace\"",
        "enabled = false",
        "sandbox = false",
    ];
    for ask in asks {
        let top = repository(lab, "c08")?;
        let text = format!("[template.default]\n{ask}\n");
        fs::write(top.join("belljar.toml"), &text).during("write a project file")?;
        let ended = lab.boxed().workspace(&top).cwd(&top).run(&["/probe", "me"])?;
        let refused = ended.code == Some(2) && ended.stdout.is_empty();
        let named = ended.stderr_text().contains("belljar.toml");
        checks.holds(
            refused && named,
            format_args!("`{ask}`: code {:?}: {}", ended.code, ended.stderr_text().trim_end()),
        )?;
    }
    odd_files(lab, &mut checks)?;
    // Control: the operator's file can weaken the box, and the project file can tighten it.
    let top = repository(lab, "c08")?;
    let config = top.join("operator.toml");
    let text = "[template.default]\nweaken = [\"seccomp\"]\n";
    fs::write(&config, text).during("write a config")?;
    let result = lab.boxed().option("--config").option(config).act_json("me")?;
    checks.control(
        result.layer("seccomp") == "weakened",
        format_args!("the operator's file is ignored: {}", result.layer("seccomp")),
    )?;
    let text = "[template.default]\npids = 7\n";
    fs::write(top.join("belljar.toml"), text).during("write a project file")?;
    let forks = lab.boxed().workspace(&top).cwd(&top).act("forks 20")?;
    checks.control(
        !forks.starts_with("ok"),
        format_args!("a tighter project file is ignored: {forks}"),
    )?;
    checks.held()
}

/// Checks that a pipe, link or directory in place of the project's `belljar.toml` is refused.
fn odd_files(lab: &Lab, checks: &mut Checks) -> Step {
    let secret = lab.home.join("operator.secret");
    fs::write(&secret, "api-key-of-the-operator").during("write a secret")?;
    type Plant<'a> = (&'a str, Box<dyn Fn(&Path) -> Step + 'a>);
    let link = |to: PathBuf| move |at: &Path| symlink(&to, at).during("create a symbolic link");
    let plants: [Plant<'_>; 4] = [
        ("a pipe", Box::new(|at| lab.outside(&format!("mknod {} p 0 0", at.display())).map(drop))),
        ("a link to /dev/zero", Box::new(link(PathBuf::from("/dev/zero")))),
        ("a link to a secret", Box::new(link(secret))),
        ("a directory", Box::new(|at| fs::create_dir(at).during("create a directory"))),
    ];
    for (what, plant) in plants {
        let top = repository(lab, "c08")?;
        plant(&top.join("belljar.toml"))?;
        let ended = lab.boxed().workspace(&top).cwd(&top).run(&["/probe", "me"])?;
        let output = ended.stderr_text();
        checks.holds(ended.code == Some(2), format_args!("{what}: {:?} {output}", ended.code))?;
        checks.holds(
            !output.contains("api-key"),
            format_args!("{what}: the message contains the secret: {output}"),
        )?;
    }
    Ok(())
}

/// Tests that no command line option turns the isolation of a box off.
pub(crate) fn c09(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let flags = [
        "--no-sandbox",
        "--disable-sandbox",
        "--dangerously-disable-sandbox",
        "--unsafe",
        "--privileged",
        "--off",
        "--host",
        "--net=host",
        "--mode=host",
        "--cap-add=ALL",
        "--weaken=all",
        "--weaken=namespaces",
        "--weaken=no-new-privs",
    ];
    for flag in flags {
        let ended = lab.boxed().option(flag).run(&["/probe", "me"])?;
        checks.holds(ended.code == Some(2), format_args!("`{flag}`: code {:?}", ended.code))?;
    }
    // Arguments after `--` belong to the program, even if they look like options of Belljar.
    let result = lab.boxed().run_json(&["/probe", "me", "--weaken", "seccomp"])?;
    checks.exactly("an option after the program", result.layer("seccomp"), "in_force")?;
    // Inside a box, Belljar can be started, but cannot build a box.
    let boxed = lab.boxed().mount(&lab.belljar, "/belljar:ro");
    let inner = ["/belljar", "run", "--no-workspace", "--", "/bin/true"];
    let nested = boxed.run(&inner)?;
    checks.holds(
        nested.code == Some(125),
        format_args!("Belljar in a box: code {:?}, {}", nested.code, nested.stderr_text()),
    )?;
    let version = boxed.run(&["/belljar", "--version"])?;
    checks.control(version.code == Some(0), format_args!("{}", version.stderr_text()))?;
    // The state of other runs is not visible.
    let state = format!("list {}", lab.state.display());
    checks
        .control(lab.outside(&state)?.starts_with("ok"), "the state directory cannot be listed")?;
    checks.exactly(&state, &lab.boxed().act(&state)?, "errno ENOENT")?;
    checks.held()
}

/// Tests that a box cannot replace the project's `belljar.toml` that limits it.
pub(crate) fn c20(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let top = repository(lab, "c20")?;
    fs::write(top.join("belljar.toml"), "[template.default]\npids = 64\n")
        .during("write a file")?;
    let script = "cd /workspace; mv belljar.toml old.toml; \
                  printf '[template.default]\\npids = 4096\\n' > belljar.toml; exit 0";
    let mut kept = |how: &str| {
        let text = fs::read_to_string(top.join("belljar.toml")).unwrap_or_default();
        checks.exactly(how, &text, "[template.default]\npids = 64\n")
    };
    for mode in ["overlay", "direct"] {
        let boxed = lab.boxed().workspace(&top).cwd(&top).options(&["--mode", mode]);
        boxed.run(&["/bin/sh", "-c", script])?;
        kept(&format!("belljar.toml after a run in {mode} mode"))?;
        lab.belljar_in(&top, &["apply", "--yes"])?;
        kept("belljar.toml after apply")?;
    }
    let asked = ["apply", "--yes", "--include-executable", "belljar.toml"];
    let applied = lab.belljar_in(&top, &asked)?;
    let text = fs::read_to_string(top.join("belljar.toml")).unwrap_or_default();
    checks.control(
        text.contains("4096"),
        format_args!("`--include-executable` does not apply the file: {}", applied.stderr_text()),
    )?;
    fs::write(top.join("belljar.toml"), "[template.default]\npids = 64\n")
        .during("restore belljar.toml")?;
    // The box sees no file that contains the policy of a run.
    let listing = lab.boxed().direct(&top).run(&["/bin/ls", "-a", "/workspace", "/tmp"])?;
    let listing = listing.stdout_text();
    checks.control(listing.contains("README.md"), format_args!("ls prints {listing}"))?;
    let strange = listing.lines().find(|line| line.contains("belljar") && *line != "belljar.toml");
    checks.holds(strange.is_none(), format_args!("the box sees {strange:?}"))?;
    checks.held()
}

/// Tests that a box cannot replace a Belljar program in a writable directory.
pub(crate) fn c21(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let top = repository(lab, "c21")?;
    let own = top.join("bin");
    fs::create_dir(&own).during("create a directory")?;
    let installed = own.join("belljar");
    fs::copy(&lab.belljar, &installed).during("install belljar")?;
    let original = fs::read(&installed).during("read belljar")?;
    let run = |options: &[&str], workspace: Option<&Path>| -> Step<(Option<i32>, String)> {
        let probe = format!("{}:/probe:ro", lab.probe.display());
        let program = Program::new(&installed)
            .env("HOME", &lab.home)
            .env("BELLJAR_HOME", &lab.state)
            .cwd(&lab.dir)
            .args(["run", "--mount", &probe])
            .args(options);
        let program = match workspace {
            Some(workspace) => program.arg("--workspace").arg(workspace),
            None => program.arg("--no-workspace"),
        };
        let script = "for place in /workspace/bin /workspace /own; do \
                      rm -f $place/belljar; cp /probe $place/belljar; done 2>/dev/null; echo ran";
        let ended = program.args(["--", "/bin/sh", "-c", script]).run()?;
        Ok((ended.code, ended.stdout_text() + &ended.stderr_text()))
    };
    let mount = format!("{}:/own:rw", own.display());
    let (direct, mounted) = (["--mode", "direct"], ["--mount", mount.as_str()]);
    let ways = [(&direct, Some(top.as_path())), (&direct, Some(own.as_path())), (&mounted, None)];
    for (options, workspace) in ways {
        let (code, output) = run(options, workspace)?;
        let refused = matches!(code, Some(2 | 125)) && !output.contains("ran");
        let same = fs::read(&installed).is_ok_and(|now| now == original);
        checks.holds(
            same,
            format_args!("{options:?}, {workspace:?}: belljar was replaced: {output}"),
        )?;
        checks.holds(refused || same, format_args!("{options:?}: code {code:?}: {output}"))?;
    }
    // Control: boxes start if the program is read-only or in another directory.
    let elsewhere = repository(lab, "c21")?;
    for (mode, workspace) in [("overlay", &top), ("read-only", &top), ("direct", &elsewhere)] {
        let (code, output) = run(&["--mode", mode], Some(workspace))?;
        checks.control(code == Some(0), format_args!("{mode}: code {code:?}: {output}"))?;
    }
    checks.held()
}
