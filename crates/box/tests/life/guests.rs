//! Programs that join a box: started behind the same locks, and gone with it.

use std::fs::{self, File};
use std::io::Write;

use belljar_box::view::HOME;
use belljar_box::{Ends, ExecError, GuestEnded, Program, Request};

use crate::room::{Room, Said, eventually, line, program, said};

#[test]
fn a_guest_has_streams_variables_and_an_end_of_its_own() {
    let room = Room::new();
    let mut standing = room.start(&room.request());
    let wish = Program {
        env: vec![("MORE".into(), "guest".into())],
        ..program(&["sh", "-c", "cat; echo $FROM $MORE; echo no >&2; exit 7"])
    };
    let mut guest = standing.door.exec(&wish).unwrap();
    let Some(Ends::Pipes { input, output, error }) = guest.ends.take() else { panic!() };
    assert!(!guest.is_over());
    File::from(input).write_all(b"hello\n").unwrap();
    assert_eq!(crate::room::all(output), "hello\nthe box guest\n");
    assert_eq!(crate::room::all(error), "no\n");
    assert_eq!(guest.wait().unwrap(), GuestEnded { exit: Some(7), signal: None });
    assert_eq!(guest.wait().unwrap(), GuestEnded { exit: Some(7), signal: None }, "again");
    guest.signal(15).unwrap();
    let over =
        Program { env: vec![("FROM".into(), "me".into())], ..program(&["printenv", "FROM"]) };
    assert_eq!(said(standing.door.exec(&over).unwrap()).out, "me\n");
    assert_eq!(standing.close().exit, Some(0));
}

#[test]
fn a_guest_gets_a_terminal_and_its_signals() {
    let room = Room::new();
    let standing = room.start(&room.request());
    let wish =
        Program { terminal: Some((33, 101)), ..program(&["sh", "-c", "tty; stty size; cat"]) };
    let mut guest = standing.door.exec(&wish).unwrap();
    let Some(Ends::Terminal(master)) = guest.ends.take() else { panic!() };
    let mut terminal = File::from(master);
    assert_eq!(line(&mut terminal).trim_end(), "/dev/pts/0");
    assert_eq!(line(&mut terminal).trim_end(), "33 101");
    // Between two of its commands a shell lets the key pass: once as an echo, once from `cat` itself.
    terminal.write_all(b"there\n").unwrap();
    assert_eq!(
        [line(&mut terminal), line(&mut terminal)].map(|it| it.trim_end().to_owned()),
        ["there"; 2]
    );
    terminal.write_all(b"\x03").unwrap();
    let ended = guest.wait().unwrap();
    assert!(ended.signal == Some(2) || ended.exit == Some(130), "{ended:?}");

    let sleeper = standing.guest(&["sleep", "1000"]);
    sleeper.signal(15).unwrap();
    assert_eq!(sleeper.wait().unwrap(), GuestEnded { exit: None, signal: Some(15) });
}

#[test]
fn what_cannot_be_started_says_why() {
    let room = Room::new();
    let standing = room.start(&room.request());
    let exec = |wish: &Program| standing.door.exec(wish).unwrap_err();
    assert!(matches!(exec(&program(&["no-such-program"])), ExecError::NotFound));
    assert!(matches!(exec(&program(&["/etc/passwd"])), ExecError::NotExecutable(_)));
    assert!(matches!(exec(&program(&[])), ExecError::NotFound));
    let nowhere = Program { workdir: Some("/nowhere".into()), ..program(&["true"]) };
    assert!(matches!(exec(&nowhere), ExecError::Workdir(_)));
    let long = "x".repeat(200_000);
    assert!(matches!(exec(&program(&["echo", &long])), ExecError::TooLong));
    let fits = "x".repeat(120_000);
    assert_eq!(standing.run(&["printf", "%s", &fits]).out, fits);
}

#[test]
fn a_door_to_a_box_that_is_gone_says_so() {
    let room = Room::new();
    let mut standing = room.start(&room.request());
    let guest = standing.guest(&["sleep", "1000"]);
    standing.close();
    assert_eq!(guest.wait().unwrap(), GuestEnded { exit: None, signal: Some(9) });
    assert!(matches!(standing.door.exec(&program(&["true"])), Err(ExecError::Gone)));
    assert!(standing.door.pause().is_err());
}

#[test]
fn many_guests_come_and_go_at_once() {
    let room = Room::new();
    let standing = room.start(&room.request());
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let standing = &standing;
            scope.spawn(move || {
                for turn in 0..10 {
                    let text = format!("{worker} {turn}");
                    let want =
                        Said { out: text.clone(), err: String::new(), exit: Some(0), signal: None };
                    assert_eq!(standing.run(&["printf", "%s", &text]), want);
                }
            });
        }
    });
}

#[test]
fn a_paused_box_stands_still_until_the_pause_is_dropped() {
    let room = Room::new();
    let request = Request { home: room.kept("home"), ..room.request() };
    let standing = room.start(&request);
    let count = "trap '' TERM INT HUP; n=0; while :; do n=$((n + 1)); echo $n > ~/count; done";
    let counter = standing.door.exec(&with_home(&["sh", "-c", count])).unwrap();
    let now = || fs::read_to_string(room.path("home/count")).unwrap_or_default();
    eventually("it counts", || now().len() > 2);

    let elsewhere = Room::new();
    let other = elsewhere.start(&elsewhere.request());
    let paused = standing.door.pause().unwrap();
    let before = now();
    let joined = std::thread::scope(|scope| {
        let late = scope.spawn(|| standing.run(&["echo", "late"]));
        // Control: meanwhile ten programs join and end in a box that is not paused.
        for _ in 0..10 {
            assert_eq!(other.run(&["true"]).exit, Some(0));
        }
        assert_eq!(now(), before);
        assert!(!late.is_finished(), "nothing joins a box that stands still");
        drop(paused);
        late.join().unwrap()
    });
    assert_eq!(joined.out, "late\n");
    eventually("it counts again", || now() != before && !now().is_empty());
    drop(standing.door.pause().unwrap());
    counter.signal(9).unwrap();
    assert_eq!(counter.wait().unwrap(), GuestEnded { exit: None, signal: Some(9) });
}

fn with_home(argv: &[&str]) -> Program {
    Program { env: vec![("HOME".into(), HOME.into())], ..program(argv) }
}

#[test]
fn a_box_that_forks_all_the_time_is_paused_too() {
    let room = Room::new();
    let standing = room.start(&room.request());
    let busy = "while :; do /bin/true; done";
    let busy: Vec<_> = (0..4).map(|_| standing.guest(&["sh", "-c", busy])).collect();
    for _ in 0..20 {
        drop(standing.door.pause().unwrap());
    }
    for guest in busy {
        assert!(!guest.is_over());
        guest.signal(9).unwrap();
    }
}

#[test]
fn there_is_room_for_so_many_guests_at_once() {
    let room = Room::new();
    let standing = room.start(&room.request());
    let mut guests: Vec<_> = (0..64).map(|_| standing.guest(&["sleep", "1000"])).collect();
    let refused = standing.door.exec(&program(&["true"])).unwrap_err();
    assert!(matches!(refused, ExecError::Refused { .. }), "{refused}");
    let leaving = guests.pop().unwrap();
    leaving.signal(9).unwrap();
    leaving.wait().unwrap();
    assert_eq!(standing.run(&["true"]).exit, Some(0));
}
