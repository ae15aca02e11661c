//! Guests and kept homes as a way out, or as a way to stay.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use belljar_box::view::HOME;
use belljar_box::{Door, ExecError, Program, Request, StartError};
use belljar_model::{Access, Mount};
use rustix::process::{Pid, Signal, kill_process};

use crate::room::{Room, eventually, program, said, write};

/// Where a guest finds itself that was told to start in `workdir`.
fn stands_in(door: &Door, workdir: &str) -> Result<String, ExecError> {
    let wish = Program { workdir: Some(workdir.into()), ..program(&["pwd", "-P"]) };
    door.exec(&wish).map(|guest| said(guest).out.trim_end().to_owned())
}

#[test]
fn c12_a_guest_starts_inside_wherever_it_is_told_to() {
    let room = Room::new();
    let outside = room.directory("outside");
    let outside = outside.to_str().unwrap();
    write(&room.path("w/sub/file"), "");
    symlink(outside, room.path("w/link")).unwrap();
    symlink(format!("/proc/1/root{outside}"), room.path("w/by-init")).unwrap();
    for workspace in [room.scratch("w"), room.overlay("w")] {
        let standing = room.start(&Request { workspace, ..room.request() });
        let door = &standing.door;
        for (workdir, place) in [
            ("/workspace/sub", "/workspace/sub"),
            ("sub", "/workspace/sub"),
            (".", "/workspace"),
            ("/", "/"),
        ] {
            assert_eq!(stands_in(door, workdir).unwrap(), place, "{workdir}");
        }
        let up = format!("../../../../../../../..{outside}");
        for workdir in [outside, &up, "link", "by-init", "/proc/1/root", "/proc/1/cwd", "sub/file"]
        {
            let answer = stands_in(door, workdir);
            assert!(matches!(answer, Err(ExecError::Workdir(_))), "{workdir}: {answer:?}");
        }
        // Nothing that init holds open leads anywhere but into the box (CVE-2024-21626).
        for descriptor in 0..64 {
            for way in ["", "/..", "/../../../.."] {
                let workdir = format!("/proc/self/fd/{descriptor}{way}");
                if let Ok(place) = stands_in(door, &workdir) {
                    assert!(
                        ["/dev/pts", "/dev", "/"].contains(&place.as_str()),
                        "{workdir}: {place}"
                    );
                    assert!(!standing.shell(&format!("test -e {outside}")).0);
                }
            }
        }
    }
    // Control: all of these exist outside.
    for path in [outside.into(), room.path("w/link"), PathBuf::from("/proc/self/root")] {
        assert!(fs::metadata(&path).is_ok_and(|meta| meta.is_dir()), "{}", path.display());
    }
}

#[test]
fn c12_a_working_directory_gives_a_guest_no_right_to_write() {
    let room = Room::new();
    let standing = room.start(&Request { workspace: room.scratch("w"), ..room.request() });
    for workdir in ["/usr", "/etc", "/", "/dev", "/proc/self"] {
        let wish = Program { workdir: Some(workdir.into()), ..program(&["touch", "mine"]) };
        assert_eq!(said(standing.door.exec(&wish).unwrap()).exit, Some(1), "{workdir}");
    }
    let wish = Program { workdir: Some("/workspace".into()), ..program(&["touch", "mine"]) };
    assert_eq!(said(standing.door.exec(&wish).unwrap()).exit, Some(0));
}

#[test]
fn c15_a_guest_finds_no_descriptor_but_its_three() {
    let room = Room::new();
    let probe = room.path("probe");
    let leaky = format!("exec 9</etc/passwd; {} descriptors", probe.display());
    let control = room.outside(&room.path(""), &leaky).out;
    assert!(control.contains("/etc/passwd"), "{control}");

    let standing = room.start(&room.request());
    let sleepers: Vec<_> = (0..8).map(|_| standing.guest(&["sleep", "1000"])).collect();
    let first = standing.run(&["/probe", "descriptors"]);
    assert_eq!((first.out.as_str(), first.exit), ("ok\n", Some(0)));
    let wish = Program { terminal: Some((24, 80)), ..program(&["/probe", "descriptors"]) };
    let mut guest = standing.door.exec(&wish).unwrap();
    let Some(belljar_box::Ends::Terminal(master)) = guest.ends.take() else { panic!() };
    assert_eq!(crate::room::line(&mut fs::File::from(master)).trim_end(), "ok");
    drop(sleepers);
}

#[test]
fn a_guest_is_behind_the_locks_of_the_first_program() {
    let room = Room::new();
    let request = Request { argv: vec!["/probe".into(), "me".into()], ..room.request() };
    let mut standing = room.start(&Request {
        argv: vec!["sh".into(), "-c".into(), "/probe me; cat".into()],
        ..request
    });
    eventually("the first program has spoken", || room.output().ends_with('\n'));
    let guest = standing.run(&["/probe", "me"]).out;
    assert_eq!(room.output(), guest);
    assert!(guest.contains("seccomp") || guest.contains("Seccomp"), "{guest}");
    let control = room.outside(&room.path(""), "./probe me").out;
    assert_ne!(control, guest, "outside it is another");
    standing.close();
}

#[test]
fn d17_guests_do_not_outlive_the_box() {
    let room = Room::new();
    let mark = |name: &str| format!("{name}-{}", room.path("").display());
    let lonely = mark("lonely");
    let probe = room.path("probe");
    let stays = format!("{} stubborn 300 {lonely} > /dev/null 2>&1", probe.display());
    assert_eq!(room.outside(&room.path(""), &stays).exit, Some(0));
    eventually("control: outside it stays", || !marked(&lonely).is_empty());
    eventually("it was killed at last", || {
        let found = marked(&lonely);
        for pid in found.iter().filter_map(|pid| Pid::from_raw(*pid)) {
            kill_process(pid, Signal::KILL).ok(); // one of its parents may have ended meanwhile
        }
        // Twice: one that was being forked by another, which ended, is not in the first list.
        found.is_empty() && marked(&lonely).is_empty()
    });

    let mut standing = room.start(&room.request());
    let (left, loud) = (mark("left"), mark("loud"));
    // Not through pipes: it would hold them open.
    let stays = format!("/probe stubborn 300 {left} > /dev/null");
    assert_eq!(standing.shell(&format!("{stays} 2>&1")), (true, String::new()));
    let guest =
        standing.guest(&["sh", "-c", &format!("trap '' TERM INT HUP; /probe sleep 300 {loud}; :")]);
    eventually("both are there", || !marked(&left).is_empty() && !marked(&loud).is_empty());
    guest.signal(15).unwrap();
    drop(guest);
    assert!(!marked(&loud).is_empty(), "it does not listen, and nobody insists");
    standing.close();
    eventually("both are gone", || marked(&left).is_empty() && marked(&loud).is_empty());
}

/// The processes whose arguments name a mark.
fn marked(mark: &str) -> Vec<i32> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let names = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == mark.as_bytes())
    };
    pids.filter(names).collect()
}

#[test]
fn d17_a_box_that_stops_its_guests_does_not_stop_its_end() {
    let room = Room::new();
    let mut standing = room.start(&room.request());
    let bully =
        "while :; do for p in /proc/[0-9]*; do kill -STOP ${p#/proc/}; done 2> /dev/null; done";
    let bully = standing.guest(&[
        "sh",
        "-c",
        &format!("trap '' CONT; {}", bully.replace("kill", "[ ${p#/proc/} = $$ ] || kill")),
    ]);
    for _ in 0..20 {
        if let Ok(guest) = standing.door.exec(&program(&["sleep", "1000"])) {
            guest.signal(9).unwrap();
            assert_eq!(guest.wait().unwrap().signal, Some(9));
        }
    }
    assert!(!bully.is_over());
    bully.signal(9).unwrap();
    bully.wait().unwrap();
    // The first program was stopped too; it goes on when everybody does.
    drop(standing.door.pause().unwrap());
    assert_eq!(standing.close().exit, Some(0));
}

#[test]
fn c26_a_kept_home_leads_to_nothing_else_of_our_state() {
    let room = Room::new();
    let state = room.directory("state");
    write(&room.path("state/vault"), "SECRET");
    write(&room.path("w/file"), "");
    let home = room.directory("state/boxes/a/home");
    symlink(&state, home.join("link")).unwrap();
    symlink("../../..", home.join("up")).unwrap();
    symlink(&state, room.path("w/link")).unwrap();
    symlink("../state", room.path("w/beside")).unwrap();
    let ways = [
        "home/link/vault",
        "home/up/vault",
        "home/../../../vault",
        "w/link/vault",
        "w/beside/vault",
    ];
    for way in ways {
        let host = way.replacen("home", home.to_str().unwrap(), 1);
        let host = if way.starts_with("home") { PathBuf::from(host) } else { room.path(way) };
        assert_eq!(fs::read_to_string(host).unwrap(), "SECRET", "control: {way}");
    }
    for workspace in [room.scratch("w"), room.overlay("w")] {
        let request =
            Request { home: room.kept("state/boxes/a/home"), workspace, ..room.request() };
        let standing = room.start(&request);
        for way in ways {
            let inside = way.replacen("home", HOME, 1).replacen("w/", "/workspace/", 1);
            let (read, told) = standing.shell(&format!("cat {inside}"));
            assert!(!read && !told.contains("SECRET"), "{way}: {told}");
        }
    }
    // What is above the home, seen through a workspace, is hidden as ever.
    let top = room.overlay("").map(|top| belljar_box::Workspace { layers: None, ..top });
    let standing = room.start(&Request { workspace: top, ..room.request() });
    assert_eq!(standing.shell("ls -A state; cat w/file"), (true, String::new()));
    drop(standing);
    // And neither the home nor a link to it can be mounted by name.
    symlink(&home, room.path("to-home")).unwrap();
    for source in [home, room.path("to-home"), room.path("w/link")] {
        let mut request = room.request();
        request
            .template
            .mounts
            .push(Mount::new(source, "/mnt/x".into(), Access::ReadWrite).unwrap());
        let error = room.try_start(&request).err().expect("it is refused");
        assert!(matches!(error, StartError::Prepare(_)), "{error}");
        assert!(error.to_string().contains("Belljar's own state"), "{error}");
    }
}
