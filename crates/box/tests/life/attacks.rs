//! Attacks through exec and persistent homes: ways out of the box and ways to outlive it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use belljar_box::view::HOME;
use belljar_box::{
    DiskLimiter, DiskUse, ExecChannel, ExecError, LayerSync, OverlayLayers, Program, Request,
    StartError,
};
use belljar_model::{Access, ByteSize, InForce, Layer, Mount, Reason};
use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::{Fixture, eventually, output_of, program, write};

/// Starts a process in `workdir` of the box and returns its working directory.
fn exec_pwd(channel: &ExecChannel, workdir: &str) -> Result<String, ExecError> {
    let spec = Program { workdir: Some(workdir.into()), ..program(&["pwd", "-P"]) };
    channel.exec(&spec).map(|process| output_of(process).out.trim_end().to_owned())
}

#[test]
fn c12_working_directory_of_an_exec_cannot_leave_the_box() {
    let fixture = Fixture::new();
    let outside = fixture.directory("outside");
    let outside = outside.to_str().unwrap();
    write(&fixture.path("w/sub/file"), "");
    symlink(outside, fixture.path("w/link")).unwrap();
    symlink(format!("/proc/1/root{outside}"), fixture.path("w/by-init")).unwrap();
    for workspace in [fixture.scratch("w"), fixture.overlay("w")] {
        let sandbox = fixture.start(&Request { workspace, ..fixture.request() });
        let channel = &sandbox.channel;
        for (workdir, place) in [
            ("/workspace/sub", "/workspace/sub"),
            ("sub", "/workspace/sub"),
            (".", "/workspace"),
            ("/", "/"),
        ] {
            assert_eq!(exec_pwd(channel, workdir).unwrap(), place, "{workdir}");
        }
        let up = format!("../../../../../../../..{outside}");
        for workdir in [outside, &up, "link", "by-init", "/proc/1/root", "/proc/1/cwd", "sub/file"]
        {
            let answer = exec_pwd(channel, workdir);
            assert!(matches!(answer, Err(ExecError::Workdir(_))), "{workdir}: {answer:?}");
        }
        // All descriptors of init lead into the box (CVE-2024-21626).
        for descriptor in 0..64 {
            for way in ["", "/..", "/../../../.."] {
                let workdir = format!("/proc/self/fd/{descriptor}{way}");
                if let Ok(place) = exec_pwd(channel, &workdir) {
                    assert!(
                        ["/dev/pts", "/dev", "/"].contains(&place.as_str()),
                        "{workdir}: {place}"
                    );
                    assert!(!sandbox.shell(&format!("test -e {outside}")).0);
                }
            }
        }
    }
    // Control: these directories exist outside the box.
    for path in [outside.into(), fixture.path("w/link"), PathBuf::from("/proc/self/root")] {
        assert!(fs::metadata(&path).is_ok_and(|meta| meta.is_dir()), "{}", path.display());
    }
}

#[test]
fn c12_working_directory_of_an_exec_grants_no_write_access() {
    let fixture = Fixture::new();
    let sandbox = fixture.start(&Request { workspace: fixture.scratch("w"), ..fixture.request() });
    for workdir in ["/usr", "/etc", "/", "/dev", "/proc/self"] {
        let spec = Program { workdir: Some(workdir.into()), ..program(&["touch", "mine"]) };
        assert_eq!(output_of(sandbox.channel.exec(&spec).unwrap()).exit, Some(1), "{workdir}");
    }
    let spec = Program { workdir: Some("/workspace".into()), ..program(&["touch", "mine"]) };
    assert_eq!(output_of(sandbox.channel.exec(&spec).unwrap()).exit, Some(0));
}

#[test]
fn c15_exec_process_has_only_its_three_standard_descriptors() {
    let fixture = Fixture::new();
    let probe = fixture.path("probe");
    let leaky = format!("exec 9</etc/passwd; {} descriptors", probe.display());
    let control = fixture.outside(&fixture.path(""), &leaky).out;
    assert!(control.contains("/etc/passwd"), "{control}");

    let sandbox = fixture.start(&fixture.request());
    let sleepers: Vec<_> = (0..8).map(|_| sandbox.spawn(&["sleep", "1000"])).collect();
    let first = sandbox.run(&["/probe", "descriptors"]);
    assert_eq!((first.out.as_str(), first.exit), ("ok\n", Some(0)));
    let spec = Program { terminal: Some((24, 80)), ..program(&["/probe", "descriptors"]) };
    let mut process = sandbox.channel.exec(&spec).unwrap();
    let Some(belljar_box::ExecStreams::Terminal(master)) = process.streams.take() else { panic!() };
    assert_eq!(crate::fixture::line(&mut fs::File::from(master)).trim_end(), "ok");
    drop(sleepers);
}

#[test]
fn exec_process_has_the_restrictions_of_the_first_program() {
    let fixture = Fixture::new();
    let request = Request { argv: vec!["/probe".into(), "me".into()], ..fixture.request() };
    let mut sandbox = fixture.start(&Request {
        argv: vec!["sh".into(), "-c".into(), "/probe me; cat".into()],
        ..request
    });
    eventually("the first program has written its output", || fixture.output().ends_with('\n'));
    let restrictions = sandbox.run(&["/probe", "me"]).out;
    assert_eq!(fixture.output(), restrictions);
    assert!(restrictions.contains("seccomp") || restrictions.contains("Seccomp"), "{restrictions}");
    let control = fixture.outside(&fixture.path(""), "./probe me").out;
    assert_ne!(control, restrictions, "control: a program outside is less restricted");
    sandbox.close();
}

#[test]
fn d17_exec_processes_do_not_outlive_the_box() {
    let fixture = Fixture::new();
    let mark = |name: &str| format!("{name}-{}", fixture.path("").display());
    let lonely = mark("lonely");
    let probe = fixture.path("probe");
    let stays = format!("{} stubborn 300 {lonely} > /dev/null 2>&1", probe.display());
    assert_eq!(fixture.outside(&fixture.path(""), &stays).exit, Some(0));
    eventually("control: the process stays alive outside a box", || !marked(&lonely).is_empty());
    eventually("the control process is killed", || {
        let found = marked(&lonely);
        for pid in found.iter().filter_map(|pid| Pid::from_raw(*pid)) {
            kill_process(pid, Signal::KILL).ok(); // it can have ended since the list was read
        }
        // Twice: the first list can lack a process that another one was just forking.
        found.is_empty() && marked(&lonely).is_empty()
    });

    let mut sandbox = fixture.start(&fixture.request());
    let (left, loud) = (mark("left"), mark("loud"));
    // Without pipes, because the process would hold them open.
    let stays = format!("/probe stubborn 300 {left} > /dev/null");
    assert_eq!(sandbox.shell(&format!("{stays} 2>&1")), (true, String::new()));
    let process =
        sandbox.spawn(&["sh", "-c", &format!("trap '' TERM INT HUP; /probe sleep 300 {loud}; :")]);
    eventually("both processes run", || !marked(&left).is_empty() && !marked(&loud).is_empty());
    process.signal(15).unwrap();
    drop(process);
    assert!(!marked(&loud).is_empty(), "the process ignores SIGTERM and keeps running");
    sandbox.close();
    eventually("both processes have ended", || {
        marked(&left).is_empty() && marked(&loud).is_empty()
    });
}

/// Returns the ids of the processes that have `mark` as an argument.
fn marked(mark: &str) -> Vec<i32> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has_mark = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == mark.as_bytes())
    };
    pids.filter(has_mark).collect()
}

#[test]
fn d17_box_that_stops_its_processes_can_still_be_ended() {
    let fixture = Fixture::new();
    let mut sandbox = fixture.start(&fixture.request());
    let bully =
        "while :; do for p in /proc/[0-9]*; do kill -STOP ${p#/proc/}; done 2> /dev/null; done";
    let bully = sandbox.spawn(&[
        "sh",
        "-c",
        &format!("trap '' CONT; {}", bully.replace("kill", "[ ${p#/proc/} = $$ ] || kill")),
    ]);
    for _ in 0..20 {
        if let Ok(process) = sandbox.channel.exec(&program(&["sleep", "1000"])) {
            process.signal(9).unwrap();
            assert_eq!(process.wait().unwrap().signal, Some(9));
        }
    }
    assert!(!bully.is_over());
    bully.signal(9).unwrap();
    bully.wait().unwrap();
    // The first program was stopped too. The end of a pause resumes all processes.
    drop(sandbox.channel.pause().unwrap());
    assert_eq!(sandbox.close().exit, Some(0));
}

#[test]
fn c26_persistent_home_gives_no_access_to_other_belljar_state() {
    let fixture = Fixture::new();
    let state = fixture.directory("state");
    write(&fixture.path("state/vault"), "SECRET");
    write(&fixture.path("w/file"), "");
    let home = fixture.directory("state/boxes/a/home");
    symlink(&state, home.join("link")).unwrap();
    symlink("../../..", home.join("up")).unwrap();
    symlink(&state, fixture.path("w/link")).unwrap();
    symlink("../state", fixture.path("w/beside")).unwrap();
    let ways = [
        "home/link/vault",
        "home/up/vault",
        "home/../../../vault",
        "w/link/vault",
        "w/beside/vault",
    ];
    for way in ways {
        let host = way.replacen("home", home.to_str().unwrap(), 1);
        let host = if way.starts_with("home") { PathBuf::from(host) } else { fixture.path(way) };
        assert_eq!(fs::read_to_string(host).unwrap(), "SECRET", "control: {way}");
    }
    for workspace in [fixture.scratch("w"), fixture.overlay("w")] {
        let request =
            Request { home: fixture.home("state/boxes/a/home"), workspace, ..fixture.request() };
        let sandbox = fixture.start(&request);
        for way in ways {
            let inside = way.replacen("home", HOME, 1).replacen("w/", "/workspace/", 1);
            let (read, output) = sandbox.shell(&format!("cat {inside}"));
            assert!(!read && !output.contains("SECRET"), "{way}: {output}");
        }
    }
    // The state directory above the home is hidden in a workspace that contains it.
    let top = fixture.overlay("").map(|top| belljar_box::Workspace { layers: None, ..top });
    let sandbox = fixture.start(&Request { workspace: top, ..fixture.request() });
    assert_eq!(sandbox.shell("ls -A state; cat w/file"), (true, String::new()));
    drop(sandbox);
    // Neither the home nor a symbolic link to it can be mounted.
    symlink(&home, fixture.path("to-home")).unwrap();
    for source in [home, fixture.path("to-home"), fixture.path("w/link")] {
        let mut request = fixture.request();
        request
            .template
            .mounts
            .push(Mount::new(source, "/mnt/x".into(), Access::ReadWrite).unwrap());
        let error = fixture.try_start(&request).err().expect("the mount is refused");
        assert!(matches!(error, StartError::Prepare(_)), "{error}");
        assert!(error.to_string().contains("Belljar's own state"), "{error}");
    }
}

#[test]
fn d16_end_of_an_overlay_syncs_no_file_system_of_the_host() {
    let fixture = Fixture::new();
    let options_with = |sync: LayerSync, name: &str| {
        let mut workspace = fixture.overlay(name).unwrap();
        let dir = workspace.layers.take().unwrap().dir;
        workspace.layers = Some(OverlayLayers { dir, sync, image: None });
        let request = Request { workspace: Some(workspace), ..fixture.request() };
        let mut sandbox = fixture.start(&request);
        let mounts = "grep ' /workspace ' /proc/self/mounts && echo more >> file && sync";
        let (done, options) = sandbox.shell(mounts);
        assert!(done, "{options}");
        assert_eq!(sandbox.close().exit, Some(0));
        options.contains("volatile")
    };
    assert!(!options_with(LayerSync::Real, "real"), "control: a named box syncs its layers");
    assert!(options_with(LayerSync::Skipped, "w"));
    // Overlayfs refuses to mount these layers again, unless its mark is removed.
    let mark = fixture.path("w.layers/work/work/incompat/volatile");
    assert!(
        fixture
            .outside(
                &fixture.path(""),
                &format!("chmod -R u+rwx w.layers/work; test -d {}", mark.display())
            )
            .exit
            == Some(0)
    );
    assert!(options_with(LayerSync::Skipped, "w"));
    assert_eq!(fs::read_to_string(fixture.path("w.layers/upper/file")).unwrap(), "more\nmore\n");
}

#[test]
fn d16_socket_buffers_count_against_the_memory_limit() {
    let fixture = Fixture::new();
    let mut request = fixture.request();
    request.template.limits.memory = ByteSize::mib(64);
    request.template.limits.files = 8192;
    for act in ["memory-tcp", "memory-udp"] {
        let control = format!("ulimit -n 8192 && ./probe {act} 209715200");
        let control = fixture.outside(&fixture.path(""), &control);
        assert_eq!(control.exit, Some(0), "control: on the host, {control:?}");
        let mut sandbox = fixture.start(&request);
        let little = sandbox.run(&["/probe", act, "1000000"]);
        assert_eq!(little.exit, Some(0), "control: below the limit, {little:?}");
        let much = sandbox.run(&["/probe", act, "209715200"]);
        let end = sandbox.close();
        let has_cgroup = end.layers.iter().any(|layer| {
            layer.layer == Layer::Cgroup && matches!(layer.state, InForce::InForce { .. })
        });
        // Without a cgroup nothing limits these buffers; the threat model says so.
        assert!(!has_cgroup || much.exit != Some(0), "{act}: {much:?}");
    }
}

#[test]
fn d16_deadline_does_not_wait_for_a_measurement_of_the_disk_that_never_ends() {
    let fixture = Fixture::new();
    let mut request = Request { workspace: fixture.overlay("w"), ..fixture.request() };
    request.template.limits.timeout = Some(Duration::from_secs(60));
    let (entered, measuring) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let counter = move |_| {
        entered.send(()).ok(); // only the first measurement is awaited
        released.recv().ok(); // blocks until the test ends
        Ok(DiskUse { bytes: 0, complete: true })
    };
    let full = |_| Ok(DiskUse { bytes: u64::MAX, complete: true });
    let mut control = fixture.start_limited(&request, DiskLimiter::Counter(Box::new(full)));
    assert_eq!(control.wait().reason, Reason::Disk, "control: measurements stop a box");
    request.workspace = fixture.overlay("w2");
    request.template.limits.timeout = Some(Duration::from_secs(1));
    let mut sandbox = fixture.start_limited(&request, DiskLimiter::Counter(Box::new(counter)));
    measuring.recv().expect("control: the measurement started");
    let end = sandbox.wait();
    assert_eq!(end.reason, Reason::Timeout);
    drop(release); // the measurement was blocked until here
}
