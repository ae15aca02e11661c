//! Attacks on the broker itself: access from the host, shared placeholders, disabled enforcement,
//! floods and exceeded limits.

use std::collections::BTreeSet;
use std::fs;

use belljar_testkit::{Upstream, Wire, is_root};
use serde_json::json;

use super::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Returns the inodes of the sockets that a process has open, or `None` without permission.
fn sockets(pid: i32) -> Option<BTreeSet<String>> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let links = links.map(|link| fs::read_link(link.unwrap().path()).unwrap_or_default());
    let inode = |link: std::path::PathBuf| {
        let link = link.to_str()?.to_owned();
        Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
    };
    Some(links.filter_map(inode).collect())
}

/// Returns the sockets of a process that other processes of the host can connect to.
fn listening_sockets(pid: i32) -> Vec<String> {
    let own = sockets(pid).unwrap_or_default();
    let mut found = Vec::new();
    for table in ["tcp", "tcp6", "udp", "udp6", "unix"] {
        // The test runs in the network namespace of the host.
        let text = fs::read_to_string(format!("/proc/self/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (inode, is_open) = match table {
                "unix" => (fields.get(6), fields.get(3) == Some(&"00010000")),
                "tcp" | "tcp6" => (fields.get(9), fields.get(3) == Some(&"0A")),
                _ => (fields.get(9), true),
            };
            if is_open && inode.is_some_and(|inode| own.contains(*inode)) {
                found.push(format!("{table} {line}"));
            }
        }
    }
    found
}

#[test]
fn a29_broker_has_no_socket_that_host_processes_can_connect_to() {
    let authority = Authority::new();
    let wire = Wire::tls(&authority, &["api.example.com"], |_| OK.to_vec());
    let lab = lab_with_rules(&authority, &[rule("api.example.com", wire.address(), "")]);
    let script = "print(fetch('https://api.example.com/')['status'], flush=True)\ninput()";
    let live = python_in_box(&lab, script).open_input().start();
    live.wait_for_output("200");
    let own = i32::try_from(std::process::id()).unwrap();
    assert!(
        !listening_sockets(own).is_empty(),
        "control: the listening sockets of this test are found"
    );
    let broker = broker_pid(live.pid());
    if is_root() {
        assert!(sockets(broker).unwrap().len() > 3, "the broker has the sockets of its box");
    } else {
        assert_eq!(sockets(broker), None, "only root can list the descriptors of the broker");
    }
    for pid in [broker, live.pid()] {
        assert_eq!(listening_sockets(pid), Vec::<String>::new());
    }
    live.wait();
    assert_eq!(ledger_events(&lab, "request.decided").len(), 1);
}

#[test]
fn a30_b14_placeholder_of_one_run_is_refused_in_another_run() {
    let authority = Authority::new();
    let api = Upstream::echo(&authority, &["api.example.com"]);
    let rules = [rule("api.example.com", api.address(), "secrets = [\"token\"]")];
    let lab = lab_with_secret(&authority, &rules, &token_section("\"api.example.com\"", ""));
    let ask = "def ask(token): got = fetch('https://api.example.com/', headers={'authorization': 'Bearer ' + token}); return [got['status'], got['belljar']]\n";
    let first = format!(
        "{ask}token = os.environ['TOKEN']\nprint(token, ask(token), flush=True)\n\
         sys.stdin.read()\nprint(ask(token))"
    );
    let live = python_in_box(&lab, &first).open_input().start();
    live.wait_for_output("[200, None]\n");
    let second = format!("{ask}print_json([ask(os.environ['TOKEN']), ask(input())])");
    let seen = live.output();
    let placeholder = seen.split(' ').next().unwrap().to_owned();
    assert!(placeholder.starts_with("ghp_") && placeholder.len() == 40, "{seen}");
    let both = parse_output(&python_in_box(&lab, &second).input(format!("{placeholder}\n")).run());
    assert_eq!(both, json!([[200, null], [403, "foreign-credential"]]));
    // The placeholder still works in its own box. After that box ended, it works nowhere.
    let ended = live.wait();
    assert!(ended.expect(0).ends_with("\n[200, None]"), "{}", ended.out());
    let after = parse_output(&python_in_box(&lab, &second).input(format!("{placeholder}\n")).run());
    assert_eq!(after, json!([[200, null], [403, "foreign-credential"]]));
    assert!(api.received().iter().all(|it| {
        it.header("authorization") == Some(format!("Bearer {SECRET_VALUE}").as_str())
    }));
    assert_alarm(&lab, "foreign-credential");
}

#[test]
fn a31_settings_that_would_turn_off_enforcement_are_refused() {
    let authority = Authority::new();
    let api = Upstream::echo(&authority, &["api.example.com"]);
    let lab = lab();
    let rules = rule("api.example.com", api.address(), "");
    let run = |more: &str, in_rule: &str| {
        let text = format!("[template.default]\nnet = \"restricted\"\n{more}\n{rules}{in_rule}\n");
        lab.configure_for(&authority, &text);
        lab.bash("curl -sS -o /dev/null -w '%{http_code}' https://api.example.com/").run()
    };
    assert_eq!(run("", "").expect(0), "200");
    for key in ["mode = \"audit\"", "enforce = false", "audit = true", "dry-run = true"] {
        assert_eq!(run(key, "").code(), 2, "{key}");
    }
    for key in ["mode = \"audit\"", "enforce = false", "action = \"log\"", "audit = true"] {
        assert_eq!(run("", key).code(), 2, "{key}");
    }
    lab.configure("[template.default]\nnet = \"audit\"\n");
    lab.bash("true").run().fails_with(2, "net");
    lab.configure("");
    for flag in ["--audit", "--no-enforce", "--dry-run", "--permissive", "--net=audit"] {
        assert_eq!(lab.belljar(["run", flag, "--", "true"]).run().code(), 2, "{flag}");
    }
    // Control: rules are enforced by default.
    let denied = lab.belljar([
        "run",
        "--net",
        "restricted",
        "--",
        "curl",
        "-sS",
        "https://api.example.com/",
    ]);
    assert_eq!(denied.run().code(), 6);
    let names = ledger_events(&lab, "dns.decided");
    assert!(names.iter().any(|it| it["verdict"] == "deny"), "{names:#?}");
    assert_eq!(api.received().len(), 1);
}

/// Python functions that open many connections, send an incomplete message on each, and then make requests.
const FLOOD: &str = r#"
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

def flood(count, data):
    streams = []
    for at in range(count):
        made = socket.socket()
        made.setblocking(False)
        made.connect_ex((address, 443))
        streams.append(made)
    time.sleep(1)
    sent = 0
    for made in streams:
        try:
            sent += made.send(data) > 0
        except OSError:
            pass
    return streams, sent

address = socket.gethostbyname("api.example.com")
ask = lambda: fetch("https://api.example.com/")["status"]
other = lambda: fetch("https://other.example.com/", dial=address)["status"]
before = ask()
"#;

#[test]
fn a32_broker_recovers_from_a_connection_flood_and_still_denies_other_hosts() {
    let authority = Authority::new();
    let wire = Wire::tls(&authority, &["api.example.com"], |_| OK.to_vec());
    let lab = lab_with_rules(&authority, &[rule("api.example.com", wire.address(), "")]);
    let script = format!(
        r#"{FLOOD}
streams, sent = flood(2000, b"\x16\x03\x01")
for made in streams: made.close()
print_json([before, len(streams), sent > 100, retry_until_ok(ask), other(), ask()])
"#
    );
    let results = run_script(&lab, &script);
    assert_eq!(results, json!([200, 2000, true, 200, "tls", 200]));
    assert_eq!(wire.requests().len(), 3);
    assert_denied(&lab, "other.example.com", "misdirected");
}

#[test]
fn a32_broker_serves_requests_while_other_request_heads_are_incomplete() {
    let authority = Authority::new();
    let wire = Wire::tls(&authority, &["api.example.com"], |_| OK.to_vec());
    let lab = lab_with_rules(&authority, &[rule("api.example.com", wire.address(), "")]);
    let script = r#"
def slow(_):
    stream = tls("api.example.com")
    stream.sendall(b"GET / HTTP/1.1\r\nhost: api.exa")
    return stream
ask = lambda: fetch("https://api.example.com/")["status"]
before = ask()
streams = in_parallel(slow, range(100))
began = time.monotonic()
during = ask()
took = time.monotonic() - began
for stream in streams: stream.send(b"m")
print_json([before, during, took < 10, ask(), fetch("https://other.example.com/", dial="203.0.113.7")["status"]])
"#;
    assert_eq!(run_script(&lab, script), json!([200, 200, true, 200, "tls"]));
    assert_eq!((wire.requests().len(), wire.incomplete_requests().len()), (3, 0));
    assert_denied(&lab, "other.example.com", "no-rule");
}

#[test]
fn a32_broker_memory_stays_bounded_while_it_buffers_many_large_bodies() {
    let authority = Authority::new();
    let api = Upstream::echo(&authority, &["api.example.com"]);
    let rules = [rule("api.example.com", api.address(), "secrets = [\"token\"]")];
    let declared =
        token_section("\"api.example.com\"", "").replace("header:authorization", "json:/key");
    let lab = lab_with_secret(&authority, &rules, &declared);
    let script = r#"
kind = {"content-type": "application/json"}
ask = lambda: fetch("https://api.example.com/", "POST", kind, json.dumps({"key": os.environ["TOKEN"]}))["status"]
before = ask()
def stall(_):
    stream = tls("api.example.com")
    stream.sendall(b"POST / HTTP/1.1\r\nhost: api.example.com\r\ncontent-type: application/json\r\ncontent-length: 16000000\r\n\r\n")
    stream.settimeout(4)
    try:
        for _ in range(15):
            stream.sendall(b" " * 1000000)
    except OSError:
        pass
    return stream
streams = in_parallel(stall, range(60), threads=60)
print("full", flush=True)
sys.stdin.read()
for stream in streams: stream.close()
print_json([before, retry_until_ok(ask)])
"#;
    let live = python_in_box(&lab, script).open_input().start();
    live.wait_for_output("full");
    let status = fs::read_to_string(format!("/proc/{}/status", broker_pid(live.pid()))).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    let ended = live.wait();
    assert!(ended.expect(0).ends_with("[200, 200]"), "{}", ended.out());
    assert!(peak < 400_000, "the broker used {peak} kB for sixty bodies of 16 MB");
    assert!(
        api.received().iter().all(|it| it.body.ends_with(format!("{SECRET_VALUE}\"}}").as_bytes()))
    );
    assert_eq!(ledger_events(&lab, "secret.used").len(), 2);
}

#[test]
fn a36_broker_enforces_upload_and_total_byte_limits_and_records_byte_counts() {
    let authority = Authority::new();
    let api = Upstream::tls(&authority, &["api.example.com"], |_| {
        belljar_testkit::Reply::new(200, vec![b'x'; 30_000])
    });
    let rules = [rule(
        "api.example.com",
        api.address(),
        "limits = { upload = \"10KB\", total = \"100KB\" }",
    )];
    let lab = lab_with_rules(&authority, &rules);
    let script = r#"
ask = lambda size: fetch("https://api.example.com/", "POST", body=b"y" * size)
small, large = ask(1000), ask(200_000)
after = [ask(1000) for _ in range(5)]
print_json([small["status"], large["status"], [it["status"] for it in after], after[-1].get("belljar")])
"#;
    let results = run_script(&lab, script);
    assert_eq!((&results[0], &results[1]), (&json!(200), &json!(413)), "{results}");
    let after = results[2].as_array().unwrap();
    assert_eq!((&after[0], &after[4]), (&json!(200), &json!(429)), "{results}");
    assert_eq!(results[3], "spent", "{results}");
    assert!(api.received().iter().all(|it| it.body.len() <= 10_240), "{results}");
    // The ledger counts the bytes of allowed and of refused requests.
    let finished = ledger_events(&lab, "request.finished");
    let sent: u64 = finished.iter().filter_map(|it| it["sent_bytes"].as_u64()).sum();
    let received: u64 = finished.iter().filter_map(|it| it["received_bytes"].as_u64()).sum();
    assert!(sent >= 2000 && received >= 60_000, "{finished:#?}");
    assert_denied(&lab, "api.example.com", "spent");
}
