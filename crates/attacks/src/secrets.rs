//! Attacks on the operator's secrets.

use std::fs;
use std::path::Path;

use crate::boxed::probe_args;
use crate::command::Program;
use crate::host::{contains, eventually, files_with};
use crate::lab::{Lab, random};
use crate::trial::{Checks, During, Step, Trial};

/// Returns a unique secret value.
pub(crate) fn canary() -> String {
    format!("canary-{:016x}{:016x}", random(), random())
}

/// Tests that a secret in the operator's environment and files is in no trace of a run.
pub(crate) fn b16(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let secret = canary();
    let (work_dir, credentials) = (lab.directory("b16")?, lab.home.join(".aws"));
    fs::create_dir_all(&credentials).during("create ~/.aws")?;
    fs::write(credentials.join("credentials"), &secret).during("write a secret")?;
    fs::write(work_dir.join("notes.txt"), "nothing secret\n").during("write a file")?;

    // Control: a variable passed by `--env` arrives, so the search below can find it.
    let boxed = lab.boxed().workspace(&work_dir).operator_env("API_TOKEN", &secret);
    let given = boxed.clone().options(&["--env", "API_TOKEN"]).act("environment")?;
    checks.control(given.contains(&secret), format_args!("`--env API_TOKEN` passes: {given}"))?;

    for boxed in [boxed.clone(), boxed.clone().user("0"), boxed.direct(&work_dir)] {
        let result = boxed.act_json("environment")?;
        let output = [result.ended.stdout, result.ended.stderr].concat();
        checks.holds(
            !contains(&output, secret.as_bytes()),
            "the environment of a box contains the secret",
        )?;
        let path = credentials.join("credentials");
        let read = boxed.act(&format!("read {}", path.display()))?;
        checks.exactly("~/.aws/credentials", &read, "errno ENOENT")?;
    }
    crash(lab, &work_dir, &secret, &mut checks)?;
    for args in [&["runs", "--json"][..], &["runs"], &["diff"], &["doctor", "--json"]] {
        let program = lab.belljar(args).cwd(&work_dir).env("API_TOKEN", &secret);
        let ended = program.run()?;
        let output = [ended.stdout, ended.stderr].concat();
        checks.holds(
            !contains(&output, secret.as_bytes()),
            format_args!("{args:?} prints the secret"),
        )?;
    }
    // Even the run that received the secret must not record it.
    for place in [&lab.state, &work_dir] {
        let found = files_with(place, &secret);
        checks.holds(found.is_empty(), format_args!("the secret is in {found:?}"))?;
    }
    checks.held()
}

/// Checks that the crash of a program that has the secret leaves no core dump.
fn crash(lab: &Lab, work_dir: &Path, secret: &str, checks: &mut Checks) -> Step {
    let boxed = lab.boxed().workspace(work_dir).operator_env("API_TOKEN", secret);
    let boxed = boxed.options(&["--env", "API_TOKEN"]);
    let script = "ulimit -c unlimited 2>/dev/null; cd /workspace; kill -SEGV $$; sleep 1";
    let ended = boxed.run(&["/bin/sh", "-c", script])?;
    checks
        .control(ended.code == Some(139), format_args!("the crash ended with {:?}", ended.code))?;
    // No program of the host gets a core dump either: with a pipe as core_pattern, the kernel ignores a
    // limit of 0, but honors a limit of 1 (coredump.c). So the limit is 1 and cannot be changed.
    let limits = "grep core /proc/self/limits; ulimit -c 0 && echo lowered";
    let limits = lab.boxed().run(&["/bin/sh", "-c", limits])?.stdout_text();
    let words: Vec<&str> = limits.split_whitespace().collect();
    let want = ["Max", "core", "file", "size", "1", "1", "bytes"];
    checks.holds(words == want, format_args!("the core dump limit: {limits}"))
}

/// Tests that a box cannot read the environment of other processes through /proc.
pub(crate) fn b17(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let secret = canary();
    let sleeper =
        Program::new(&lab.probe).args(["sleep", "300"]).env("API_TOKEN", &secret).start()?;
    let environ = format!("read /proc/{}/environ", sleeper.pid());
    // The file is empty for a moment, until the kernel has loaded the program.
    let is_read = || lab.outside(&environ).is_ok_and(|outside| outside.contains(&secret));
    checks.control(eventually(is_read), format_args!("{environ} shows no secret"))?;

    for user in ["1000", "0"] {
        let boxed = lab.boxed().user(user).operator_env("API_TOKEN", &secret);
        // The box's /proc contains no process of the host.
        let pids = boxed.act("pids")?;
        checks.holds(
            pids.split_whitespace().count() <= 3,
            format_args!("/proc shows more than init and the probe: {pids}"),
        )?;
        let sleeper = boxed.act(&environ)?;
        checks.one_of(&environ, &sleeper, &["errno ENOENT", "errno EACCES", "errno EPERM"])?;
        for name in ["environ", "mem", "maps", "auxv", "stack"] {
            let act = format!("read /proc/1/{name}");
            let answer = boxed.act(&act)?;
            checks.one_of(&act, &answer, &["errno EACCES", "errno EPERM", "errno ENOENT"])?;
        }
        for name in ["exe", "cwd", "root"] {
            let act = format!("readlink /proc/1/{name}");
            let answer = boxed.act(&act)?;
            checks.one_of(&act, &answer, &["errno EACCES", "errno EPERM", "errno ENOENT"])?;
        }
        // A shell reads all processes of the box's /proc.
        let script =
            "cat /proc/[0-9]*/environ /proc/[0-9]*/task/*/environ 2>/dev/null | tr '\\0' '\\n'";
        let all = boxed.run(&["/bin/sh", "-c", script])?;
        checks.holds(
            !contains(&all.stdout, secret.as_bytes()),
            "an environ file contains the secret",
        )?;
        checks.control(
            contains(&all.stdout, b"PATH="),
            "the shell cannot read its own environ file",
        )?;
    }
    checks.held()
}

/// Tests that no program in a box can read the operator's secret files.
pub(crate) fn c19(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let secret = canary();
    let file = lab.home.join("secret.txt");
    fs::write(&file, format!("{secret}\n")).during("write a secret")?;
    let path = file.display();
    let ways = [
        format!("cat {path}"),
        format!("head -c 999 {path}"),
        format!("dd if={path}"),
        format!("while read line; do echo $line; done < {path}"),
        format!("cd \"$HOME\" && cp {path} x && cat x"),
        format!("cd \"$HOME\" && ln -sf {path} y && cat y"),
        format!("cat /proc/self/root{path}"),
        format!("cat /workspace/../..{path}"),
        format!("tar -cf - {path}"),
    ];
    for way in &ways {
        let outside = Program::new(Path::new("/bin/sh"))
            .args(["-c", way])
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &lab.dir)
            .cwd(&lab.dir)
            .run()?;
        let needs_root = way.contains("/workspace/..");
        let shown = contains(&outside.stdout, secret.as_bytes());
        checks.control(
            shown || needs_root,
            format_args!("outside a box `{way}` does not print the secret"),
        )?;
        for user in ["1000", "0"] {
            let inside = lab.boxed().user(user).run(&["/bin/sh", "-c", way])?;
            let output = [inside.stdout, inside.stderr].concat();
            checks.holds(
                !contains(&output, secret.as_bytes()),
                format_args!("`{way}` prints the secret"),
            )?;
        }
    }
    let answer = lab.boxed().run(&probe_args(&format!("read {path}")))?.line();
    checks.exactly("the probe", &answer, "errno ENOENT")?;
    checks.held()
}
