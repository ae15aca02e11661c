//! Who can use a broker, what it does when it is overrun, and that it always decides.

use std::collections::BTreeSet;
use std::fs;

use belljar_testkit::{Upstream, Wire, is_root};
use serde_json::json;

use super::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// The inodes of the sockets that a process has open; none if nobody may look.
fn sockets(pid: i32) -> Option<BTreeSet<String>> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let links = links.map(|link| fs::read_link(link.unwrap().path()).unwrap_or_default());
    let inode = |link: std::path::PathBuf| {
        let link = link.to_str()?.to_owned();
        Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
    };
    Some(links.filter_map(inode).collect())
}

/// Those of them that somebody on the host could connect to.
fn listening(pid: i32) -> Vec<String> {
    let own = sockets(pid).unwrap_or_default();
    let mut found = Vec::new();
    for table in ["tcp", "tcp6", "udp", "udp6", "unix"] {
        // As this test's own namespace has it: that of the host.
        let text = fs::read_to_string(format!("/proc/self/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (inode, open) = match table {
                "unix" => (words.get(6), words.get(3) == Some(&"00010000")),
                "tcp" | "tcp6" => (words.get(9), words.get(3) == Some(&"0A")),
                _ => (words.get(9), true),
            };
            if open && inode.is_some_and(|inode| own.contains(*inode)) {
                found.push(format!("{table} {line}"));
            }
        }
    }
    found
}

#[test]
fn a29_nobody_on_the_host_can_speak_to_a_broker() {
    let authority = Authority::new();
    let wire = Wire::tls(&authority, &["api.example.com"], |_| OK.to_vec());
    let lab = site(&authority, &[rule("api.example.com", wire.address(), "")]);
    let script = "print(fetch('https://api.example.com/')['status'], flush=True)\ninput()";
    let live = python(&lab, script).open_input().start();
    live.says("200");
    let own = i32::try_from(std::process::id()).unwrap();
    assert!(!listening(own).is_empty(), "control: the servers of this test are found");
    let broker = broker_of(live.pid());
    if is_root() {
        assert!(sockets(broker).unwrap().len() > 3, "it has sockets, those of the box");
    } else {
        assert_eq!(sockets(broker), None, "nobody but root may look");
    }
    for pid in [broker, live.pid()] {
        assert_eq!(listening(pid), Vec::<String>::new());
    }
    live.wait();
    assert_eq!(record(&lab, "request.decided").len(), 1);
}

#[test]
fn a30_b14_what_one_box_was_given_is_worth_nothing_in_another() {
    let authority = Authority::new();
    let api = Upstream::echo(&authority, &["api.example.com"]);
    let rules = [rule("api.example.com", api.address(), "secrets = [\"token\"]")];
    let lab = with_secret(&authority, &rules, &secret("\"api.example.com\"", ""));
    let ask = "def ask(token): got = fetch('https://api.example.com/', headers={'authorization': 'Bearer ' + token}); return [got['status'], got['belljar']]\n";
    let first = format!(
        "{ask}token = os.environ['TOKEN']\nprint(token, ask(token), flush=True)\n\
         sys.stdin.read()\nprint(ask(token))"
    );
    let live = python(&lab, &first).open_input().start();
    live.says("[200, None]\n");
    let second = format!("{ask}tell([ask(os.environ['TOKEN']), ask(input())])");
    let seen = live.heard();
    let placeholder = seen.split(' ').next().unwrap().to_owned();
    assert!(placeholder.starts_with("ghp_") && placeholder.len() == 40, "{seen}");
    let both = read(&python(&lab, &second).input(format!("{placeholder}\n")).run());
    assert_eq!(both, json!([[200, null], [403, "foreign-credential"]]));
    // In its own box it still works; after the end of that, nowhere.
    let ended = live.wait();
    assert!(ended.expect(0).ends_with("\n[200, None]"), "{}", ended.out());
    let after = read(&python(&lab, &second).input(format!("{placeholder}\n")).run());
    assert_eq!(after, json!([[200, null], [403, "foreign-credential"]]));
    assert!(
        api.received()
            .iter()
            .all(|it| { it.header("authorization") == Some(format!("Bearer {REAL}").as_str()) })
    );
    alarmed(&lab, "foreign-credential");
}

#[test]
fn a31_nothing_turns_enforcement_into_watching() {
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
    lab.bash("true").run().complains(2, "net");
    lab.configure("");
    for flag in ["--audit", "--no-enforce", "--dry-run", "--permissive", "--net=audit"] {
        assert_eq!(lab.belljar(["run", flag, "--", "true"]).run().code(), 2, "{flag}");
    }
    // And the default is to enforce, whatever is left out.
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
    let names = record(&lab, "dns.decided");
    assert!(names.iter().any(|it| it["verdict"] == "deny"), "{names:#?}");
    assert_eq!(api.received().len(), 1);
}

/// Opens as many connections as it is told, says half a word on each, and looks what still works.
const FLOOD: &str = r#"
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

def flood(count, words):
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
            sent += made.send(words) > 0
        except OSError:
            pass
    return streams, sent

address = socket.gethostbyname("api.example.com")
ask = lambda: fetch("https://api.example.com/")["status"]
other = lambda: fetch("https://other.example.com/", dial=address)["status"]
before = ask()
"#;

#[test]
fn a32_a_flood_of_connections_opens_nothing_and_passes() {
    let authority = Authority::new();
    let wire = Wire::tls(&authority, &["api.example.com"], |_| OK.to_vec());
    let lab = site(&authority, &[rule("api.example.com", wire.address(), "")]);
    let script = format!(
        r#"{FLOOD}
streams, sent = flood(2000, b"\x16\x03\x01")
for made in streams: made.close()
tell([before, len(streams), sent > 100, once_answered(ask), other(), ask()])
"#
    );
    let told = told(&lab, &script);
    assert_eq!(told, json!([200, 2000, true, 200, "tls", 200]));
    assert_eq!(wire.requests().len(), 3);
    on_record(&lab, "other.example.com", "misdirected");
}

#[test]
fn a32_slow_heads_hold_up_nobody_else() {
    let authority = Authority::new();
    let wire = Wire::tls(&authority, &["api.example.com"], |_| OK.to_vec());
    let lab = site(&authority, &[rule("api.example.com", wire.address(), "")]);
    let script = r#"
def slow(_):
    stream = tls("api.example.com")
    stream.sendall(b"GET / HTTP/1.1\r\nhost: api.exa")
    return stream
ask = lambda: fetch("https://api.example.com/")["status"]
before = ask()
streams = at_once(slow, range(100))
began = time.monotonic()
during = ask()
took = time.monotonic() - began
for stream in streams: stream.send(b"m")
tell([before, during, took < 10, ask(), fetch("https://other.example.com/", dial="203.0.113.7")["status"]])
"#;
    assert_eq!(told(&lab, script), json!([200, 200, true, 200, "tls"]));
    assert_eq!((wire.requests().len(), wire.rest().len()), (3, 0));
    on_record(&lab, "other.example.com", "no-rule");
}

#[test]
fn a32_bodies_that_must_be_read_first_do_not_fill_the_memory() {
    let authority = Authority::new();
    let api = Upstream::echo(&authority, &["api.example.com"]);
    let rules = [rule("api.example.com", api.address(), "secrets = [\"token\"]")];
    let declared = secret("\"api.example.com\"", "").replace("header:authorization", "json:/key");
    let lab = with_secret(&authority, &rules, &declared);
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
streams = at_once(stall, range(60), most=60)
print("full", flush=True)
sys.stdin.read()
for stream in streams: stream.close()
tell([before, once_answered(ask)])
"#;
    let live = python(&lab, script).open_input().start();
    live.says("full");
    let status = fs::read_to_string(format!("/proc/{}/status", broker_of(live.pid()))).unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let most: u64 = most.trim().trim_end_matches(" kB").parse().unwrap();
    let ended = live.wait();
    assert!(ended.expect(0).ends_with("[200, 200]"), "{}", ended.out());
    assert!(most < 400_000, "{most} kB for sixty bodies of 16 MB");
    assert!(api.received().iter().all(|it| it.body.ends_with(format!("{REAL}\"}}").as_bytes())));
    assert_eq!(record(&lab, "secret.used").len(), 2);
}

#[test]
fn a36_what_leaves_is_bounded_and_seen() {
    let authority = Authority::new();
    let api = Upstream::tls(&authority, &["api.example.com"], |_| {
        belljar_testkit::Reply::new(200, vec![b'x'; 30_000])
    });
    let rules = [rule(
        "api.example.com",
        api.address(),
        "limits = { upload = \"10KB\", total = \"100KB\" }",
    )];
    let lab = site(&authority, &rules);
    let script = r#"
ask = lambda size: fetch("https://api.example.com/", "POST", body=b"y" * size)
small, large = ask(1000), ask(200_000)
after = [ask(1000) for _ in range(5)]
tell([small["status"], large["status"], [it["status"] for it in after], after[-1].get("belljar")])
"#;
    let told = told(&lab, script);
    assert_eq!((&told[0], &told[1]), (&json!(200), &json!(413)), "{told}");
    let after = told[2].as_array().unwrap();
    assert_eq!((&after[0], &after[4]), (&json!(200), &json!(429)), "{told}");
    assert_eq!(told[3], "spent", "{told}");
    assert!(api.received().iter().all(|it| it.body.len() <= 10_240), "{told}");
    // Every byte of it is in the record, whatever it was good for.
    let finished = record(&lab, "request.finished");
    let sent: u64 = finished.iter().filter_map(|it| it["sent_bytes"].as_u64()).sum();
    let received: u64 = finished.iter().filter_map(|it| it["received_bytes"].as_u64()).sum();
    assert!(sent >= 2000 && received >= 60_000, "{finished:#?}");
    on_record(&lab, "api.example.com", "spent");
}
