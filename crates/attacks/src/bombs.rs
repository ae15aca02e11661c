//! Programs that use up what others need, and programs that flood whoever listens.

use serde_json::Value;

use crate::boxed::{Told, words};
use crate::command::Program;
use crate::handoff::repository;
use crate::host::contains;
use crate::lab::Lab;
use crate::trial::{Checks, Step, Trial};

/// Acts that a limit turns down with an error, and the same act under the limit.
const TURNED_DOWN: &[(&[&str], &str, &str, &str)] = &[
    (&["--pids", "40"], "forks 10", "forks 200", "errno EAGAIN after"),
    (&["--pids", "40"], "threads 10", "threads 200", "errno EAGAIN after"),
    (&["--pids", "40"], "zombies 10", "zombies 200", "errno EAGAIN after"),
    (&["--files", "64"], "hold-files 20", "hold-files 200", "errno EMFILE after"),
    (&["--disk", "16MiB"], "fill /tmp/x 4194304", "fill /tmp/x 67108864", "errno EFBIG after"),
    (
        &["--disk", "16MiB"],
        "fill /dev/shm/x 4194304",
        "fill-many /dev/shm/many 67108864",
        "errno ENOSPC after",
    ),
    (&["--disk", "16MiB"], "files /tmp/f 100", "files /tmp/f 500000", "errno ENOSPC after"),
    (&["--files", "4096"], "timers 10", "timers 200000", "errno EAGAIN after"),
    (&["--files", "4096"], "watches 5", "watches 3000", "errno EMFILE after"),
    (&["--files", "4096"], "terminals 5", "terminals 3000", "errno ENOSPC after"),
];

pub(crate) fn d16(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    for (options, little, much, refusal) in TURNED_DOWN {
        let boxed = lab.boxed().options(options);
        let little = boxed.act(little)?;
        checks.control(little.starts_with("ok"), format_args!("under the limit: {little}"))?;
        let answer = boxed.act(much)?;
        checks.holds(answer.starts_with(refusal), format_args!("{much}, {options:?}: {answer}"))?;
        // What the box could not have, the host still has.
        let host = lab.outside(much.split_once(' ').map_or("me", |(act, _)| match act {
            "watches" => "watches 1",
            "terminals" => "terminals 1",
            "timers" => "timers 1",
            "forks" => "forks 1",
            _ => "hold-files 1",
        }))?;
        checks.holds(host.starts_with("ok"), format_args!("after {much} the host has: {host}"))?;
    }
    killed(lab, &mut checks)?;
    neighbours(lab, &mut checks)?;
    checks.held()
}

/// Acts that end with the whole box, and with the reason said.
fn killed(lab: &Lab, checks: &mut Checks) -> Step {
    let top = repository(lab, "d16")?;
    let in_workspace = lab.boxed().workspace(&top);
    let cases = [
        (
            lab.boxed().options(&["--memory", "64MiB"]),
            "memory 16777216",
            "memory 268435456",
            "memory",
            137,
        ),
        (
            in_workspace.clone().options(&["--disk", "16MiB"]),
            "fill /workspace/x 4194304",
            "fill-many /workspace/d 268435456",
            "disk",
            137,
        ),
        (
            lab.boxed().options(&["--output-limit", "1MiB"]),
            "output 65536",
            "output 67108864",
            "output",
            137,
        ),
    ];
    unmapped(lab, checks)?;
    timeout(lab, checks)?;
    // The disk of the workspace is the host's, so the limit must also see what a listing does not.
    let hidden = [
        ("fill-unlinked /workspace/y 1048576", "fill-unlinked /workspace/y 268435456"),
        ("fill-hidden /workspace/d1 1048576", "fill-hidden /workspace/d2 268435456"),
        ("files /workspace/f1 100", "files /workspace/f2 300000"),
    ];
    let of_disk = in_workspace.options(&["--disk", "16MiB"]);
    let hidden = hidden.map(|(little, much)| (of_disk.clone(), little, much, "disk", 137));
    for (boxed, little, much, reason, code) in cases.into_iter().chain(hidden) {
        let fine = boxed.tell_act(little)?;
        checks.control(fine.ended.code == Some(0), format_args!("{little}: {}", fine.reason()))?;
        let told = boxed.tell_act(much)?;
        checks.exactly(much, told.reason(), reason)?;
        checks.holds(
            told.ended.code == Some(code),
            format_args!("{much}: code {:?}", told.ended.code),
        )?;
    }
    Ok(())
}

/// A program that is over in time, and one that is not.
fn timeout(lab: &Lab, checks: &mut Checks) -> Step {
    let fine = lab.boxed().options(&["--timeout", "1m"]).tell_act("spin 0")?;
    checks.control(fine.ended.code == Some(0), format_args!("spin 0: {}", fine.reason()))?;
    let told = lab.boxed().options(&["--timeout", "1s"]).tell_act("spin 300")?;
    checks.exactly("spin 300", told.reason(), "timeout")?;
    checks.holds(told.ended.code == Some(124), format_args!("spin 300: code {:?}", told.ended.code))
}

/// Memory that no process has mapped counts as well. Where nothing better than a watcher stands in for a
/// cgroup, buffers inside the kernel are not counted; the threat model says so.
fn unmapped(lab: &Lab, checks: &mut Checks) -> Step {
    let boxed = lab.boxed().options(&["--memory", "64MiB", "--disk", "64MiB"]);
    for act in ["memory-files", "memory-segments", "memory-sockets"] {
        let (little, told) =
            (boxed.act(&format!("{act} 1048576"))?, boxed.tell_act(&format!("{act} 400000000"))?);
        let in_force = told.layer("cgroup") == "in_force";
        match act {
            // What the watcher cannot count is not to be had on its watch.
            "memory-segments" if !in_force => {
                checks.exactly(act, &little, "errno EPERM after 0")?;
                continue;
            }
            "memory-sockets" if !in_force => continue,
            _ => checks.control(little.starts_with("ok"), format_args!("{act}: {little}"))?,
        }
        let turned_down = told.ended.stdout_text().starts_with("errno ENOSPC after");
        let stopped = ["memory", "disk"].contains(&told.reason()) || turned_down;
        checks.holds(stopped, format_args!("{act} ended by {}", told.reason()))?;
    }
    Ok(())
}

/// While one box rages, another starts and answers.
fn neighbours(lab: &Lab, checks: &mut Checks) -> Step {
    // A bomb that never stops is found out, and told as what it is.
    let told = lab.boxed().options(&["--pids", "100", "--timeout", "20s"]).tell_act("storm 300")?;
    let reasons: &[&str] = match told.layer("cgroup") {
        "in_force" => &["pids"],
        _ => &["pids", "timeout"], // where nobody counts what was refused
    };
    checks.one_of("a fork bomb ends by", told.reason(), reasons)?;
    for rage in ["storm 20", "spin 20", "memory 400000000", "terminals 3000"] {
        let options = ["--pids", "200", "--memory", "256MiB", "--files", "4096", "--timeout", "1s"];
        let raging = lab.boxed().options(&options).option("--json").start(&words(rage))?;
        let answer = lab.boxed().act("socket unix stream 0")?;
        checks.exactly(format_args!("a neighbour of `{rage}`"), &answer, "ok")?;
        let host = lab.outside("terminals 1")?;
        checks.holds(host.starts_with("ok"), format_args!("the host beside `{rage}`: {host}"))?;
        let told = Told::of(raging.end()?)?;
        let ended = ["timeout", "memory", "pids", "exited"].contains(&told.reason());
        checks.holds(ended, format_args!("`{rage}` ended by {}", told.reason()))?;
    }
    Ok(())
}

/// Output without end, without sense, and made to look like ours.
pub(crate) fn d18(lab: &Lab) -> Trial {
    let mut checks = Checks::default();
    // Bytes pass unchanged, so that a pipe is a pipe; the result comes after them, on a line of its own.
    let strange = "ff00fe1b5d35323b633b5a585a7062413d3d07c3280d";
    let told = lab.boxed().tell_act(&format!("print {strange}"))?;
    let want = b"\xff\x00\xfe\x1b]52;c;ZXZpbA==\x07\xc3(\r";
    checks.holds(told.ended.stdout.starts_with(want), "the program's bytes were changed")?;
    checks.exactly("what it ended by", told.reason(), "exited")?;
    let fake = r#"printf '{"reason":"exited","exit":0,"layers":[]}'; exit 7"#;
    let told = lab.boxed().tell(&["/bin/sh", "-c", fake])?;
    let exit = told.result.get("exit").and_then(Value::as_i64);
    checks.holds(exit == Some(7), format_args!("a forged result is believed: {}", told.result))?;
    // A flood ends at the limit, and no sooner.
    let boxed = lab.boxed().options(&["--output-limit", "2MiB"]);
    let under = boxed.tell_act("output 1000000")?;
    checks.control(under.reason() == "exited", format_args!("a megabyte: {}", under.reason()))?;
    let over = boxed.tell_act("output 500000000")?;
    checks.exactly("a flood", over.reason(), "output")?;
    let got = over.ended.stdout.len();
    checks.holds(got <= 3 << 20, format_args!("{got} bytes of a flood came through"))?;
    terminal(lab, &mut checks)?;
    // What is kept about a run and shown later has no control characters left.
    let top = repository(lab, "d18")?;
    let script = "printf '\\033]0;evil\\007\\033[2J' > /workspace/screen.txt; : '\u{1b}[31m'";
    lab.boxed().workspace(&top).run(&["/bin/sh", "-c", script])?;
    let runs = lab.belljar_in(&top, &["runs", "--json"])?.stdout_text();
    checks.control(runs.contains("printf"), format_args!("`runs` does not tell: {runs}"))?;
    for args in [&["runs"][..], &["diff"], &["runs", "--json"]] {
        let ended = lab.belljar_in(&top, args)?;
        let said = [ended.stdout, ended.stderr].concat();
        checks.holds(
            !said.contains(&0x1b) && !said.contains(&7),
            format_args!("`belljar {args:?}` prints an escape: {}", said.escape_ascii()),
        )?;
    }
    checks.held()
}

/// Sequences that make a terminal do something else than show: write the clipboard, or type text of the
/// program's choice as if the operator had. In hexadecimal: what is printed, and what of it must not
/// reach the terminal.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("1b5d35323b633b5a585a7062413d3d07", "1b5d3532", "OSC 52, the clipboard"),
    ("1b5d35323b633b3f1b5c", "1b5d3532", "OSC 52, reading the clipboard"),
    ("1b5d31313b3f07", "1b5d31313b3f", "OSC 11, asking for a colour"),
    ("1b5d343b313b3f07", "1b5d343b313b3f", "OSC 4, asking for a colour"),
    ("1b50247122701b5c", "1b50", "DCS, asking for a setting"),
    ("1b5b323174", "1b5b323174", "CSI 21t, the title typed back"),
    ("1b5a", "1b5a", "DECID, what the terminal is"),
    ("1b5f47613d713b1b5c", "1b5f", "APC, graphics"),
    ("05", "05", "ENQ, the answer-back"),
    ("c29d35323b633b5a585a7062413d3d07", "c29d", "OSC 52 as a C1 control"),
    ("1bc29d35323b633b5a585a7062413d3d07", "c29d", "the same after an escape"),
    ("1b5bc29d35323b633b5a585a7062413d3d07", "c29d", "the same inside a CSI"),
    ("1b5d303b78c29cc29d35323b633b5a585a7062413d3d07", "c29d", "the same inside a title"),
    ("1b25409d35323b633b5a585a7062413d3d07", "1b2540", "leaving UTF-8 for eight-bit controls"),
];

/// The operator's terminal shows colours and does not obey.
fn terminal(lab: &Lab, checks: &mut Checks) -> Step {
    let on_terminal = |program: Program| -> Step<Vec<u8>> {
        Ok(program.through(&lab.probe, &["on-terminal"]).run()?.stdout)
    };
    for (printed, forbidden, name) in COMMANDS {
        let act = format!("print 41{printed}42");
        let forbidden = bytes(forbidden);
        let outside = on_terminal(Program::new(&lab.probe).args(act.split_whitespace()))?;
        checks.control(contains(&outside, &forbidden), format_args!("{name}: {outside:?}"))?;
        for option in ["--tty", "--no-tty"] {
            let inside = on_terminal(lab.boxed().option(option).command(&words(&act)))?;
            let text = inside.escape_ascii();
            checks.control(inside.starts_with(b"A"), format_args!("{name}, {option}: {text}"))?;
            let through = contains(&inside, &forbidden);
            checks
                .holds(!through, format_args!("{name} reaches the terminal, {option}: {text}"))?;
        }
    }
    let colour = on_terminal(lab.boxed().option("--tty").command(&words("print 1b5b33316d41")))?;
    checks.control(contains(&colour, b"\x1b[31mA"), "not even a colour reaches the terminal")
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap_or("0"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap_or(0)).collect()
}
