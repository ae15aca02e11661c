//! The lock around a broker: what is tried from inside, the same outside, and how it looks to others.

use belljar_testkit::{Live, is_root};
use rustix::io::Errno;

use crate::lab;

/// The answers to the trial, by act.
fn answers(out: &str) -> Vec<(String, String)> {
    let split = |line: &str| {
        let (act, answer) = line.split_once(" => ").expect("an act and its answer");
        (act.to_owned(), answer.to_owned())
    };
    out.lines().map(split).collect()
}

#[test]
fn a33_locked_down_broker_is_denied_every_operation_it_does_not_need() {
    let lab = lab();
    let inside = answers(&lab.belljar(["doctor", "--try-jail"]).succeed());
    let outside = answers(&lab.belljar(["doctor", "--try-jail", "--outside"]).succeed());
    let needed = [
        "make a TCP socket",
        "make a UDP socket over IPv6",
        "wait for many",
        "get random bytes",
        "get memory",
    ];
    assert_eq!(inside.len(), outside.len());
    assert!(inside.len() > 25, "{inside:?}");
    for ((act, answer), (same, control)) in inside.iter().zip(&outside) {
        assert_eq!(act, same);
        if needed.contains(&act.as_str()) {
            assert_eq!((answer.as_str(), control.as_str()), ("ok", "ok"), "{act}");
            continue;
        }
        let errno = if act.ends_with("socket") || act.contains("raw packets") {
            Errno::AFNOSUPPORT
        } else {
            Errno::PERM
        };
        assert_eq!(*answer, format!("errno {}", errno.raw_os_error()), "{act}");
        assert_ne!(answer, control, "{act}: the same outside, so this shows nothing");
    }
}

#[test]
fn a33_locked_down_broker_has_no_capabilities_and_cannot_be_inspected() {
    let lab = lab();
    let live = lab.belljar(["doctor", "--try-jail"]).open_input().start();
    live.says("get memory => ok");
    let status = of(&live, "status");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        line.trim_start_matches(':').split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(field(set), ["0000000000000000"], "{set}");
    }
    assert_eq!(field("NoNewPrivs"), ["1"]);
    assert_eq!(field("Seccomp"), ["2"]);
    assert_eq!(field("Threads"), ["1"]);
    let limits = of(&live, "limits");
    assert!(
        limits.lines().any(|line| line.starts_with("Max core file size        1 ")),
        "{limits}"
    );
    if is_root() {
        assert_eq!(field("CapBnd"), ["0000000000000000"]);
        let uids: Vec<u32> =
            field("Uid").iter().map(|uid| uid.parse().expect("a number")).collect();
        assert!(uids.iter().all(|uid| uid >> 24 == 0x71), "a user of its own: {uids:?}");
        assert!(field("Groups").is_empty());
    } else {
        // The same user, who could read every other process of his.
        let path = format!("/proc/{}/environ", live.pid());
        let refused = std::fs::read(path).expect_err("nobody looks into it");
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
        let own = std::fs::read(format!("/proc/{}/environ", std::process::id()));
        assert!(own.is_ok(), "and can read his own");
    }
    live.wait().expect(0);
}

fn of(live: &Live, name: &str) -> String {
    std::fs::read_to_string(format!("/proc/{}/{name}", live.pid())).expect(name)
}
