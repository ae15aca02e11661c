//! Attacks on the output that people see, and through arguments and variables.

use std::fs;
use std::path::Path;

use crate::command::Ended;
use crate::handoff::repository;
use crate::lab::Lab;
use crate::trial::{Checks, During, Step, Trial};

/// Returns the name of the first control or hidden character in a text, if any.
fn hostile(text: &[u8]) -> Option<&'static str> {
    const SIGNS: &[(&[u8], &str)] = &[
        (b"\x1b", "an escape"),
        (b"\x07", "a bell"),
        (b"\x08", "a backspace"),
        (b"\xc2\x9b", "a C1 control"),
        (b"\xe2\x80\xae", "a right-to-left override"),
        (b"\xe2\x80\x8b", "a zero-width space"),
    ];
    let found = SIGNS.iter().find(|(sign, _)| crate::host::contains(text, sign));
    found.map(|(_, name)| *name)
}

/// Requires that the output of a command contains no terminal control characters.
fn clean(checks: &mut Checks, what: &str, ended: &Ended) -> Step {
    for output in [&ended.stdout, &ended.stderr] {
        let found = hostile(output);
        let shown = String::from_utf8_lossy(output).escape_debug().take(300).collect::<String>();
        checks.holds(found.is_none(), format_args!("{what} prints {found:?}: {shown}"))?;
    }
    Ok(())
}

/// Tests that every command escapes control characters in names and contents.
pub(crate) fn f13(lab: &Lab) -> Trial {
    const EVIL: &str = "evil\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}31m\u{202e}\u{200b}\u{8}";
    let mut checks = Checks::default();
    checks.control(
        hostile(EVIL.as_bytes()).is_some(),
        "the test does not detect its own control characters",
    )?;
    let top = repository(lab, "f13")?;
    let script = format!(
        "cd /workspace; printf '%s\\n' '{EVIL}' > text.txt; printf x > '{EVIL}'; \
         printf 'a\\000b\\033' > binary; ln -s '{EVIL}' link; mkdir '{EVIL}.d'; printf x > '{EVIL}.d/.envrc'"
    );
    let ended = lab.boxed().workspace(&top).run(&["/bin/sh", "-c", &script])?;
    checks.control(
        ended.code == Some(0),
        format_args!("cannot plant the files: {}", ended.stderr_text()),
    )?;
    let shown = lab.belljar_in(&top, &["diff"])?;
    checks.control(
        shown.stdout_text().contains("evil"),
        format_args!("`diff` does not show the names: {}", shown.stdout_text()),
    )?;
    for args in [
        &["diff"][..],
        &["diff", "--stat"],
        &["diff", "--json"],
        &["runs"],
        &["runs", "--json"],
        &["apply", "--yes", "--", EVIL],
        &["apply", "--yes", "--", "no\u{1b}[31msuch"],
        &["apply", "--yes"],
        &["discard", "--yes"],
        &["diff", "no\u{1b}[31msuch-run"],
        &[EVIL],
        &["run", "--template", EVIL, "--", "true"],
        &["run", "--weaken", EVIL, "--", "true"],
        &["run", "--mount", EVIL, "--", "true"],
        &["run", "--name", EVIL, "--", "true"],
        &["run", "--no-workspace", "--", EVIL],
        &["--config", EVIL, "template", "list"],
    ] {
        let ended = lab.belljar_in(&top, args)?;
        clean(&mut checks, &format!("`belljar {}`", args.join(" ").escape_debug()), &ended)?;
    }
    // A project file with control characters in keys and values, which error messages quote.
    for text in [
        "[template.\"e\\u001b[31m\"]\nweird = 1\n".to_owned(),
        "[template.default]\nmemory = \"\\u001b[2J\"\n".to_owned(),
        format!("[template.default]\n{EVIL} = 1\n"),
    ] {
        fs::write(top.join("belljar.toml"), text).during("write a project file")?;
        for args in [&["template", "check"][..], &["template", "list"], &["run", "--", "true"]] {
            clean(&mut checks, "a hostile belljar.toml", &lab.belljar_in(&top, args)?)?;
        }
    }
    checks.held()
}

/// Environment variables that make programs load, run or trust other files.
const STEERING: &[&str] = &[
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "BASH_ENV",
    "ENV",
    "NODE_OPTIONS",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PERL5OPT",
    "RUBYOPT",
    "JAVA_TOOL_OPTIONS",
    "GIT_DIR",
    "GIT_SSH_COMMAND",
    "GIT_CONFIG_COUNT",
    "GIT_EXTERNAL_DIFF",
    "EDITOR",
    "PAGER",
    "SSH_AUTH_SOCK",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "AWS_SECRET_ACCESS_KEY",
];

/// Tests that arguments, names and variables are passed literally, without a shell.
pub(crate) fn f15(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let mark = lab.dir.join("f15-mark");
    let boxed = STEERING.iter().filter(|name| !name.starts_with("LD_")).fold(
        lab.boxed(),
        // A program that executes one of these variables creates the mark.
        |boxed, name| boxed.operator_env(*name, format!("touch {}", mark.display())),
    );
    let seen = boxed.act("environment")?;
    for name in STEERING {
        checks.holds(!has_variable(&seen, name), format_args!("{name} is inherited: {seen}"))?;
    }
    let passed = boxed.clone().options(&["--env", "EDITOR"]).act("environment")?;
    checks.control(
        has_variable(&passed, "EDITOR"),
        format_args!("`--env EDITOR` does not pass the variable: {passed}"),
    )?;

    // Arguments with shell syntax stay unchanged.
    let odd = ["$(touch /tmp/x)", "`id`", "; id", "a b", "", "-n", "--", "*", "\\", "'\"", "\n"];
    for word in odd {
        let program = ["/bin/sh", "-c", "printf '%s|' \"$#\" \"$1\"", "sh", word];
        let ended = lab.boxed().run(&program)?;
        checks.exactly(
            format_args!("the argument {word:?}"),
            &ended.stdout_text(),
            &format!("1|{word}|"),
        )?;
    }
    // Names that could be taken for options, paths or commands.
    for name in ["../escape", "a/b", "-rf", "$(id)", "a b", ".", "..", "x\ny", ""] {
        let option = format!("--name={name}");
        let ended = lab.boxed().option(option).run(&["/probe", "me"])?;
        checks.holds(ended.code == Some(2), format_args!("--name {name:?}: {:?}", ended.code))?;
    }
    for env in ["=x", "A B=1", "LD_PRELOAD\u{0}", "1A=x", "A-B=x", "a\nb=x"] {
        if env.contains('\0') {
            continue; // no program can be started with a NUL byte
        }
        let ended = lab.boxed().options(&["--env", env]).run(&["/probe", "me"])?;
        checks.holds(ended.code == Some(2), format_args!("--env {env:?}: {:?}", ended.code))?;
    }
    project_files(lab, &mut checks)?;
    let pager =
        boxed.workspace(&repository(lab, "f15")?).run(&["/probe", "write", "/workspace/x", "y"])?;
    checks.control(pager.code == Some(0), format_args!("{}", pager.stderr_text()))?;
    checks.holds(!mark.exists(), "a variable of the operator was executed as a command")?;
    checks.held()
}

fn has_variable(answer: &str, name: &str) -> bool {
    let list = answer.strip_prefix("ok ").unwrap_or(answer);
    list.split('\u{1f}').any(|pair| pair.split('=').next() == Some(name))
}

/// Checks that a project's `belljar.toml` cannot set dangerous variables, and the operator's file
/// can.
fn project_files(lab: &Lab, checks: &mut Checks) -> Step {
    let run = |top: &Path| lab.boxed().workspace(top).cwd(top).run(&["/probe", "environment"]);
    for name in ["LD_PRELOAD", "BASH_ENV", "NODE_OPTIONS", "GIT_SSH_COMMAND", "PATH"] {
        let top = repository(lab, "f15")?;
        let text = format!("[template.default]\nenv = [\"{name}=/workspace/evil\"]\n");
        fs::write(top.join("belljar.toml"), &text).during("write a project file")?;
        let ended = run(&top)?;
        let seen = ended.stdout_text();
        checks.holds(
            ended.code == Some(2) && !seen.contains("/workspace/evil"),
            format_args!("a project sets {name}: code {:?} {seen}", ended.code),
        )?;
    }
    let top = repository(lab, "f15")?;
    let config = lab.dir.join("f15.toml");
    fs::write(&config, "[template.default]\nenv = [\"COLOUR=blue\"]\n").during("write a config")?;
    let boxed = lab.boxed().workspace(&top).option("--config").option(config);
    let seen = boxed.act("environment")?;
    checks.control(has_variable(&seen, "COLOUR"), format_args!("the operator's file: {seen}"))
}
