//! A canary: a value that is used, then looked for everywhere.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use belljar_testkit::{Reply, Upstream, descendants, is_root};
use serde_json::json;

use super::*;

/// Texts by which the value would be known, whatever stands around it.
fn traces() -> Vec<Vec<u8>> {
    let hex: String = REAL.bytes().map(|byte| format!("{byte:02x}")).collect();
    let percent: String = REAL.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let mut traces = vec![
        REAL.as_bytes().to_vec(),
        REAL.bytes().rev().collect(),
        hex.to_ascii_uppercase().into_bytes(),
        hex.into_bytes(),
        percent.to_ascii_lowercase().into_bytes(),
        percent.into_bytes(),
    ];
    for before in ["", "a", "ab"] {
        let text = format!("{before}{REAL}");
        for coded in [STANDARD.encode(&text), URL_SAFE.encode(&text)] {
            // Without the ends, which depend on what is around.
            traces.push(coded.as_bytes()[4..coded.len() - 6].to_vec());
        }
    }
    traces
}

/// Whether a text tells the value.
fn tells(bytes: &[u8]) -> bool {
    // By their first bytes first: memory is large.
    traces().iter().any(|trace| {
        let (first, rest) = trace.split_first().unwrap();
        let mut left = bytes;
        while let Some(at) = left.iter().position(|byte| byte == first) {
            left = &left[at + 1..];
            if left.starts_with(rest) {
                return true;
            }
        }
        false
    })
}

/// All files below that tell it, and how many there are.
fn telling(dir: &Path, seen: &mut usize, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            telling(&entry.path(), seen, found);
        } else if kind.is_file() {
            *seen += 1;
            let name = entry.path().display().to_string();
            if fs::read(entry.path()).is_ok_and(|bytes| tells(&bytes)) || tells(name.as_bytes()) {
                found.insert(name);
            }
        }
    }
}

/// What a process has in memory that can be read and written, which is all that a value can be in;
/// and its arguments and environment. None if nobody may look.
fn memory(pid: i32) -> Option<Vec<Vec<u8>>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let mut file = fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut found = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw") && !line.contains("[vvar")) {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
        // Arenas are reserved in pieces of 64 MiB and mostly empty; a page that was never touched reads as none.
        let mut bytes = vec![0; usize::try_from((to - from).min(64 << 20)).unwrap()];
        if file.seek(SeekFrom::Start(from)).is_ok() && file.read_exact(&mut bytes).is_ok() {
            found.push(bytes);
        }
    }
    for name in ["cmdline", "environ"] {
        found.push(fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default());
    }
    Some(found)
}

#[test]
fn b16_a_canary_is_nowhere_but_sealed() {
    let authority = Authority::new();
    let api = Upstream::echo(&authority, &["api.example.com"]);
    let rules = [rule("api.example.com", api.address(), "secrets = [\"token\"]")];
    let lab = with_secret(&authority, &rules, &secret("\"api.example.com\"", ""));
    assert!(tells(format!("x{}", STANDARD.encode(format!("ab{REAL}"))).as_bytes()), "control");
    let script = r#"
ours = {"authorization": "Bearer " + os.environ["TOKEN"]}
got = [fetch("https://api.example.com/" + it, "POST", headers=ours, body=b"x" * 1000) for it in ("a", "b")]
wrong = fetch("https://api.example.com/?t=" + os.environ["TOKEN"], headers=ours)
open("answer", "w").write(json.dumps([got, wrong]))
print([it["status"] for it in got], wrong["status"], flush=True)
sys.stdin.read()
"#;
    lab.write("kit.py", KIT);
    let run = lab.belljar(["run", "--record", "bodies", "--", "/usr/bin/python3", "-c"]);
    let live = run.arg(format!("from kit import *\n{script}")).open_input().start();
    live.says("[200, 200] 403");
    assert!(api.received().iter().all(|it| it.header("authorization").unwrap().contains(REAL)));
    let broker = broker_of(live.pid());
    let family: Vec<i32> = descendants(live.pid()).into_iter().map(|(pid, _)| pid).collect();
    let mut looked = 0;
    for pid in family.into_iter().chain([live.pid()]) {
        let Some(pieces) = memory(pid) else {
            assert!(!is_root(), "root can look into {pid}");
            continue;
        };
        let told = pieces.iter().any(|piece| tells(piece));
        // Control: where it must be, it is found.
        assert_eq!(told, pid == broker, "process {pid}");
        looked += 1;
    }
    assert!(looked >= if is_root() { 4 } else { 1 }, "{looked}");
    let ended = live.wait();
    ended.expect(0);
    assert!(!tells(&ended.stdout) && !tells(&ended.stderr), "{} {}", ended.out(), ended.err());
    let (mut seen, mut found) = (0, BTreeSet::new());
    telling(lab.dir(), &mut seen, &mut found);
    assert!(found.is_empty() && seen > 8, "{seen} files, of which tell it: {found:?}");
    assert!(lab.state().join("vault/token.sealed").exists());
    for args in
        [["ledger", "log", "--json"], ["net", "log", "--json"], ["ledger", "export", "--json"]]
    {
        let said = lab.belljar(args).run();
        assert!(!tells(&said.stdout) && !tells(&said.stderr), "{args:?}");
    }
    assert_eq!(record(&lab, "secret.used").len(), 2);
    // Control: what the box wrote is among the files that were looked at.
    let answer = lab.belljar(["diff"]).run();
    assert!(answer.out().contains("[belljar:token]"), "{}", answer.out());
}

#[test]
fn b22_a_new_refresh_token_is_in_no_memory_but_the_brokers_and_in_no_file() {
    let authority = Authority::new();
    let api = Upstream::tls(&authority, &["api.example.com"], |received| {
        let answer = json!({"access_token": "an-access-token", "refresh_token": REAL});
        let answer = if received.path == "/token" { answer.to_string() } else { String::new() };
        Reply::new(200, answer).header("content-type", "application/json")
    });
    let rules = [rule("api.example.com", api.address(), "secrets = [\"token\"]")];
    let kind =
        "kind = \"oauth2\"\ntoken-url = \"https://api.example.com/token\"\nclient-id = \"me\"";
    let lab = with_secret(&authority, &rules, &secret("\"api.example.com\"", kind));
    let set = lab.belljar(["secret", "set", "token"]).input("the-refresh-token-9876543210");
    set.run().expect(0);
    let old = fs::read(lab.state().join("vault/token.sealed")).unwrap();
    lab.write("kit.py", KIT);
    let script = r#"from kit import *
ours = {"authorization": "Bearer " + os.environ["TOKEN"]}
print("got", fetch("https://api.example.com/me", headers=ours)["status"], flush=True)
sys.stdin.read()
"#;
    let run = lab.belljar(["run", "--", "/usr/bin/python3", "-c", script]);
    let live = run.open_input().start();
    live.says("got 200");
    assert_ne!(fs::read(lab.state().join("vault/token.sealed")).unwrap(), old);
    let broker = broker_of(live.pid());
    let family: Vec<i32> = descendants(live.pid()).into_iter().map(|(pid, _)| pid).collect();
    let mut looked = 0;
    for pid in family.into_iter().chain([live.pid()]) {
        let Some(pieces) = memory(pid) else {
            assert!(!is_root(), "root can look into {pid}");
            continue;
        };
        // Control: where it must be, it is found.
        assert_eq!(pieces.iter().any(|piece| tells(piece)), pid == broker, "process {pid}");
        looked += 1;
    }
    assert!(looked >= if is_root() { 4 } else { 1 }, "{looked}");
    let ended = live.wait();
    ended.expect(0);
    assert!(!tells(&ended.stdout) && !tells(&ended.stderr), "{} {}", ended.out(), ended.err());
    let (mut seen, mut found) = (0, BTreeSet::new());
    telling(lab.dir(), &mut seen, &mut found);
    assert!(found.is_empty() && seen > 8, "{seen} files, of which tell it: {found:?}");
    assert_eq!(record(&lab, "secret.renewed").len(), 1);
}
