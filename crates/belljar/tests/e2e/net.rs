//! The network of a box, with real programs in the box and test servers outside of it.

mod secrets;

use belljar_testkit::{Authority, Lab, Reply, Upstream};

use crate::lab;

/// Returns a rule of the default template that allows a host and connects it to a test server.
fn rule(host: &str, upstream: &Upstream, more: &str) -> String {
    let connect = upstream.address();
    format!("[[template.default.allow]]\nhost = {host:?}\nconnect = \"{connect}\"\n{more}\n")
}

/// Creates a lab whose default template allows one echo server, `api.example.com`.
fn lab_with_echo_server(more: &str) -> (Lab, Authority, Upstream) {
    let (lab, authority) = (lab(), Authority::new());
    let upstream = Upstream::echo(&authority, &["api.example.com"]);
    let rule = rule("api.example.com", &upstream, more);
    lab.configure_for(&authority, &format!("[template.default]\nnet = \"restricted\"\n{rule}"));
    (lab, authority, upstream)
}

#[test]
fn sigterm_to_the_process_group_keeps_the_network_until_the_program_ends() {
    let (lab, _, upstream) = lab_with_echo_server("");
    lab.write(
        "late.sh",
        "trap 'curl -sS https://api.example.com/late; exit 7' TERM; echo ready; sleep 60 & wait",
    );
    let script = r#"trap : TERM
"$BELLJAR" run -- bash late.sh > "$HOME/out" &
until grep -q ready "$HOME/out"; do sleep 0.01; done
kill -TERM 0
wait $!"#;
    let ended = lab.program("setsid").args(["--wait", "bash", "-c", script]).run();
    ended.expect(7);
    let paths: Vec<String> = upstream.received().into_iter().map(|it| it.path).collect();
    assert_eq!(paths, ["/late"], "{}", ended.err());
    assert!(!ended.err().contains("broker ended"), "{}", ended.err());
}

#[test]
fn a32_box_has_no_network_after_its_broker_is_killed() {
    let (lab, _, upstream) = lab_with_echo_server("");
    let script = "curl -sS -o /dev/null https://api.example.com/ && echo one; read -r; \
                  curl -sS -m 5 -o /dev/null https://api.example.com/; echo $?";
    let live = lab.bash(script).open_input().start();
    live.wait_for_output("one");
    let broker = belljar_testkit::descendants(live.pid())
        .into_iter()
        .find(|(pid, _)| {
            std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|name| name.starts_with("belljar-broker"))
        })
        .expect("a broker");
    belljar_testkit::kill(broker.0);
    // The signal is handled later on a busy machine, and until then the broker serves requests.
    belljar_testkit::eventually("the broker has ended", || !belljar_testkit::is_alive(&broker));
    let ended = live.wait();
    let out = ended.out();
    assert!(out.trim_end().ends_with('6') || out.trim_end().ends_with('7'), "{out}");
    assert_eq!(upstream.received().len(), 1);
    assert!(ended.err().contains("no network"), "{}", ended.err());
    let log = lab.belljar(["ledger", "log", "--json"]).run().expect(0);
    assert!(log.contains("broker-gone"), "{log}");
}
