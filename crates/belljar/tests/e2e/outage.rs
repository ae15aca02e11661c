//! Failure of the broker: a box without its broker has no network, and an overloaded broker recovers.

use belljar_testkit::{Authority, Lab, Upstream, descendants, kill};

use crate::lab;

/// Creates a lab whose default template allows one echo server, `api.example.com`.
fn lab_with_echo_server() -> (Lab, Upstream) {
    let (lab, authority) = (lab(), Authority::new());
    let upstream = Upstream::echo(&authority, &["api.example.com"]);
    let rule = format!(
        "[template.default]\nnet = \"restricted\"\n[[template.default.allow]]\n\
         host = \"api.example.com\"\nconnect = \"{}\"\n",
        upstream.address()
    );
    lab.configure_for(&authority, &rule);
    (lab, upstream)
}

/// Returns the process id of the broker of a supervisor, found by its process name.
fn broker_of(supervisor: i32) -> i32 {
    let is_broker = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(b"belljar-broker")
    };
    let mut found = descendants(supervisor).into_iter().map(|(pid, _)| pid).filter(is_broker);
    found.next().expect("a broker")
}

#[test]
fn a32_box_refuses_connections_at_once_after_its_broker_is_killed() {
    let (lab, upstream) = lab_with_echo_server();
    let fixed_address = "--resolve api.example.com:443:203.0.113.1 https://api.example.com/";
    // The address is fixed, so that the connection and not the DNS lookup fails.
    let script = format!(
        "open() {{ for port in 53 80 443; do (: < /dev/tcp/203.0.113.9/$port) 2> /dev/null && echo $port; done; }}; \
         echo open $(open); \
         while :; do curl -sS -m 20 -o /dev/null {fixed_address}; code=$?; [ $code = 0 ] || break; echo up; sleep 0.1; done; \
         echo down $code; curl -sS -o /dev/null https://api.example.com/; echo name $?; echo open $(open)"
    );
    let live = lab.bash(&script).start();
    live.wait_for_output("up\nup\n");
    kill(broker_of(live.pid()));
    let ended = live.wait();
    let out = ended.expect(0);
    assert!(out.starts_with("open 53 80 443\nup\n"), "{out}");
    // Exit code 7 is a refused connection. A request in progress may have been aborted instead.
    let down =
        out.lines().find(|line| line.starts_with("down")).expect("a line for the failed request");
    assert!(!down.ends_with(" 28"), "the connection is refused at once, without a timeout: {out}");
    assert!(out.ends_with("name 6\nopen"), "no name is resolved and no port is open: {out}");
    assert!(ended.err().contains("had no network"), "{}", ended.err());
    let before = upstream.received().len();
    let again = lab.bash(&format!("curl -sS -o /dev/null {fixed_address}; echo $?")).run();
    assert_eq!(again.expect(0), "0", "the next box has a broker of its own: {}", again.err());
    assert_eq!(upstream.received().len(), before + 1);
}

#[test]
fn run_with_too_few_descriptors_fails_before_it_starts_and_names_the_limit() {
    let (lab, _upstream) = lab_with_echo_server();
    let run = |limit: &str| {
        lab.belljar(["run", "--", "true"]).through(["prlimit", &format!("--nofile={limit}")]).run()
    };
    let refused = run("64:64");
    refused.fails_with(125, "at most 64 files can be open, and 128 are needed");
    assert!(refused.err().contains("ulimit -n 1024"), "{}", refused.err());
    run("128:128").expect(0);
}

#[test]
fn a32_broker_out_of_descriptors_serves_requests_again_when_connections_close() {
    let (lab, upstream) = lab_with_echo_server();
    let script = "hold() { for i in $(seq 100); do exec {fd}<>/dev/tcp/203.0.113.1/443; done; sleep 5; }; \
         hold & hold & hold & sleep 2; \
         curl -sS -m 2 -o /dev/null https://api.example.com/flooded; echo flooded $?; \
         curl -sS -m 2 -o /dev/null https://other.example.com/; echo other $?; \
         wait; curl -sS -m 30 -o /dev/null https://api.example.com/after; echo after $?";
    let options = ["run", "--files", "160", "--", "bash", "-c", script];
    let program = lab.belljar(options).through(["prlimit", "--nofile=160:160"]);
    let ended = program.run();
    let out = ended.expect(0);
    assert!(out.ends_with("after 0"), "{out} {}", ended.err());
    assert!(!out.contains("flooded 0"), "the broker did not run out of descriptors: {out}");
    assert!(out.contains("other 6"), "a host without a rule is denied: {out}");
    let paths: Vec<String> = upstream.received().into_iter().map(|r| r.path).collect();
    assert_eq!(paths, ["/after"]);
}
