//! The lockdown of the broker process: operations from inside and outside of it, and its privileges.

use belljar_testkit::{Live, is_root};
use rustix::io::Errno;

use crate::lab;

/// Parses the output of `doctor --try-jail` into operations and their results.
fn parse_results(out: &str) -> Vec<(String, String)> {
    let split = |line: &str| {
        let (operation, result) = line.split_once(" => ").expect("an operation and its result");
        (operation.to_owned(), result.to_owned())
    };
    out.lines().map(split).collect()
}

#[test]
fn a33_locked_down_broker_is_denied_every_operation_it_does_not_need() {
    let lab = lab();
    let inside = parse_results(&lab.belljar(["doctor", "--try-jail"]).succeed());
    let outside = parse_results(&lab.belljar(["doctor", "--try-jail", "--outside"]).succeed());
    let needed = [
        "make a TCP socket",
        "make a UDP socket over IPv6",
        "create an epoll instance",
        "get random bytes",
        "get memory",
    ];
    assert_eq!(inside.len(), outside.len());
    assert!(inside.len() > 25, "{inside:?}");
    for ((operation, result), (same, control)) in inside.iter().zip(&outside) {
        assert_eq!(operation, same);
        if needed.contains(&operation.as_str()) {
            assert_eq!((result.as_str(), control.as_str()), ("ok", "ok"), "{operation}");
            continue;
        }
        let errno = if operation.ends_with("socket") || operation.contains("raw packets") {
            Errno::AFNOSUPPORT
        } else {
            Errno::PERM
        };
        assert_eq!(*result, format!("errno {}", errno.raw_os_error()), "{operation}");
        assert_ne!(result, control, "{operation}: also refused outside of the lockdown");
    }
}

#[test]
fn a33_locked_down_broker_has_no_capabilities_and_cannot_be_inspected() {
    let lab = lab();
    let live = lab.belljar(["doctor", "--try-jail"]).open_input().start();
    live.wait_for_output("get memory => ok");
    let status = proc_file(&live, "status");
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
    let limits = proc_file(&live, "limits");
    assert!(
        limits.lines().any(|line| line.starts_with("Max core file size        1 ")),
        "{limits}"
    );
    if is_root() {
        assert_eq!(field("CapBnd"), ["0000000000000000"]);
        let uids: Vec<u32> =
            field("Uid").iter().map(|uid| uid.parse().expect("a number")).collect();
        assert!(
            uids.iter().all(|uid| uid >> 24 == 0x71),
            "the broker has its own user id: {uids:?}"
        );
        assert!(field("Groups").is_empty());
    } else {
        // A user can normally read the environment of the user's own processes.
        let path = format!("/proc/{}/environ", live.pid());
        let refused = std::fs::read(path).expect_err("permission denied");
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
        let own = std::fs::read(format!("/proc/{}/environ", std::process::id()));
        assert!(own.is_ok(), "control: the test can read its own environment");
    }
    live.wait().expect(0);
}

/// Returns a file of `/proc/PID` of a running process.
fn proc_file(live: &Live, name: &str) -> String {
    std::fs::read_to_string(format!("/proc/{}/{name}", live.pid())).expect(name)
}
