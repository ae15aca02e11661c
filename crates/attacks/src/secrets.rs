//! Ways to the operator's secrets.

use std::fs;
use std::path::Path;

use crate::boxed::words;
use crate::command::Program;
use crate::host::{contains, files_with};
use crate::lab::{Lab, random};
use crate::trial::{Checks, During, Step, Trial};

/// A value that occurs nowhere else.
pub(crate) fn canary() -> String {
    format!("canary-{:016x}{:016x}", random(), random())
}

/// A secret of the operator in every place where one lies around; then every trace of a run is searched.
pub(crate) fn b16(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let secret = canary();
    let (room, credentials) = (lab.room("b16")?, lab.home.join(".aws"));
    fs::create_dir_all(&credentials).during("make ~/.aws")?;
    fs::write(credentials.join("credentials"), &secret).during("write a secret")?;
    fs::write(room.join("notes.txt"), "nothing secret\n").during("write a file")?;

    // Control: what is handed over on purpose arrives, so the search below could find it.
    let boxed = lab.boxed().workspace(&room).operator_env("API_TOKEN", &secret);
    let given = boxed.clone().options(&["--env", "API_TOKEN"]).act("environment")?;
    checks.control(given.contains(&secret), format_args!("`--env API_TOKEN` gives: {given}"))?;

    for boxed in [boxed.clone(), boxed.clone().user("0"), boxed.direct(&room)] {
        let told = boxed.tell_act("environment")?;
        let said = [told.ended.stdout, told.ended.stderr].concat();
        checks.holds(
            !contains(&said, secret.as_bytes()),
            "the environment of a box has the secret",
        )?;
        let path = credentials.join("credentials");
        let read = boxed.act(&format!("read {}", path.display()))?;
        checks.exactly("~/.aws/credentials", &read, "errno ENOENT")?;
    }
    crash(lab, &room, &secret, &mut checks)?;
    for args in [&["runs", "--json"][..], &["runs"], &["diff"], &["doctor", "--json"]] {
        let program = lab.belljar(args).cwd(&room).env("API_TOKEN", &secret);
        let ended = program.run()?;
        let said = [ended.stdout, ended.stderr].concat();
        checks.holds(
            !contains(&said, secret.as_bytes()),
            format_args!("{args:?} shows the secret"),
        )?;
    }
    // Also the run that was given the secret on purpose must not have kept it.
    for place in [&lab.state, &room] {
        let found = files_with(place, &secret);
        checks.holds(found.is_empty(), format_args!("the secret is in {found:?}"))?;
    }
    checks.held()
}

/// A program that dies with the secret in its memory leaves no image of it.
fn crash(lab: &Lab, room: &Path, secret: &str, checks: &mut Checks) -> Step {
    let boxed = lab.boxed().workspace(room).operator_env("API_TOKEN", secret);
    let boxed = boxed.options(&["--env", "API_TOKEN"]);
    let script = "ulimit -c unlimited 2>/dev/null; cd /workspace; kill -SEGV $$; sleep 1";
    let ended = boxed.run(&["/bin/sh", "-c", script])?;
    checks
        .control(ended.code == Some(139), format_args!("the crash ended with {:?}", ended.code))?;
    // Nor is it handed to a program of the host: for a pipe as core_pattern a limit of zero means
    // nothing and a limit of one means no, so it is one and stays it. See coredump.c.
    let limits = "grep core /proc/self/limits; ulimit -c 0 && echo lowered";
    let limits = lab.boxed().run(&["/bin/sh", "-c", limits])?.stdout_text();
    let words: Vec<&str> = limits.split_whitespace().collect();
    let want = ["Max", "core", "file", "size", "1", "1", "bytes"];
    checks.holds(words == want, format_args!("the limit on core files: {limits}"))
}

/// The environment of whoever started the box, by way of /proc.
pub(crate) fn b17(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    let secret = canary();
    let sleeper =
        Program::new(&lab.probe).args(["sleep", "300"]).env("API_TOKEN", &secret).start()?;
    let environ = format!("read /proc/{}/environ", sleeper.pid());
    let outside = lab.outside(&environ)?;
    checks.control(outside.contains(&secret), format_args!("{environ}: {outside}"))?;

    for user in ["1000", "0"] {
        let boxed = lab.boxed().user(user).operator_env("API_TOKEN", &secret);
        // No process of the host has a number in the box's /proc.
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
        // The same for every process that the box can name, from a shell as from the probe.
        let script =
            "cat /proc/[0-9]*/environ /proc/[0-9]*/task/*/environ 2>/dev/null | tr '\\0' '\\n'";
        let all = boxed.run(&["/bin/sh", "-c", script])?;
        checks.holds(!contains(&all.stdout, secret.as_bytes()), "some environ has the secret")?;
        checks.control(contains(&all.stdout, b"PATH="), "the shell cannot even read its own")?;
    }
    checks.held()
}

/// The rule that forbids reading holds for every program, not for one tool.
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
        checks.control(shown || needs_root, format_args!("outside, `{way}` shows nothing"))?;
        for user in ["1000", "0"] {
            let inside = lab.boxed().user(user).run(&["/bin/sh", "-c", way])?;
            let said = [inside.stdout, inside.stderr].concat();
            checks.holds(!contains(&said, secret.as_bytes()), format_args!("`{way}` shows it"))?;
        }
    }
    let answer = lab.boxed().run(&words(&format!("read {path}")))?.line();
    checks.exactly("the probe", &answer, "errno ENOENT")?;
    checks.held()
}
