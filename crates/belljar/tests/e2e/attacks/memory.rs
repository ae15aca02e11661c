//! Searches memory, files and output for a secret that the box used through the broker.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use belljar_testkit::{Reply, Upstream, descendants, is_root};
use serde_json::json;

use super::*;

/// Returns byte patterns of the secret in all encodings, independent of the neighbouring bytes.
fn secret_patterns() -> Vec<Vec<u8>> {
    let hex: String = SECRET_VALUE.bytes().map(|byte| format!("{byte:02x}")).collect();
    let percent: String = SECRET_VALUE.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let mut patterns = vec![
        SECRET_VALUE.as_bytes().to_vec(),
        SECRET_VALUE.bytes().rev().collect(),
        hex.to_ascii_uppercase().into_bytes(),
        hex.into_bytes(),
        percent.to_ascii_lowercase().into_bytes(),
        percent.into_bytes(),
    ];
    for before in ["", "a", "ab"] {
        let text = format!("{before}{SECRET_VALUE}");
        for coded in [STANDARD.encode(&text), URL_SAFE.encode(&text)] {
            // The ends of base64 depend on the neighbouring bytes.
            patterns.push(coded.as_bytes()[4..coded.len() - 6].to_vec());
        }
    }
    patterns
}

/// Tells whether bytes contain the secret in any encoding.
fn contains_secret(bytes: &[u8]) -> bool {
    // Searches for the first byte of a pattern first, because memory is large.
    secret_patterns().iter().any(|pattern| {
        let (first, rest) = pattern.split_first().unwrap();
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

/// Counts the files below a directory and collects those whose name or content has the secret.
fn find_secret(dir: &Path, seen: &mut usize, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            find_secret(&entry.path(), seen, found);
        } else if kind.is_file() {
            *seen += 1;
            let name = entry.path().display().to_string();
            if fs::read(entry.path()).is_ok_and(|bytes| contains_secret(&bytes))
                || contains_secret(name.as_bytes())
            {
                found.insert(name);
            }
        }
    }
}

/// Returns the writable memory, arguments and environment of a process, or `None` without permission.
fn process_memory(pid: i32) -> Option<Vec<Vec<u8>>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let mut file = fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut found = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw") && !line.contains("[vvar")) {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
        // Allocator arenas of 64 MiB are mostly empty: a page that was never used reads as zeroes.
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
fn b16_secret_value_is_found_only_in_the_memory_of_the_broker() {
    let authority = Authority::new();
    let api = Upstream::echo(&authority, &["api.example.com"]);
    let rules = [rule("api.example.com", api.address(), "secrets = [\"token\"]")];
    let lab = lab_with_secret(&authority, &rules, &token_section("\"api.example.com\"", ""));
    assert!(
        contains_secret(format!("x{}", STANDARD.encode(format!("ab{SECRET_VALUE}"))).as_bytes()),
        "control"
    );
    let script = r#"
headers = {"authorization": "Bearer " + os.environ["TOKEN"]}
got = [fetch("https://api.example.com/" + it, "POST", headers=headers, body=b"x" * 1000) for it in ("a", "b")]
wrong = fetch("https://api.example.com/?t=" + os.environ["TOKEN"], headers=headers)
open("answer", "w").write(json.dumps([got, wrong]))
print([it["status"] for it in got], wrong["status"], flush=True)
sys.stdin.read()
"#;
    lab.write("kit.py", KIT);
    let run = lab.belljar(["run", "--record", "bodies", "--", "/usr/bin/python3", "-c"]);
    let live = run.arg(format!("from kit import *\n{script}")).open_input().start();
    live.wait_for_output("[200, 200] 403");
    assert!(
        api.received().iter().all(|it| it.header("authorization").unwrap().contains(SECRET_VALUE))
    );
    let broker = broker_pid(live.pid());
    let processes: Vec<i32> = descendants(live.pid()).into_iter().map(|(pid, _)| pid).collect();
    let mut searched = 0;
    for pid in processes.into_iter().chain([live.pid()]) {
        let Some(pieces) = process_memory(pid) else {
            assert!(!is_root(), "root can read the memory of process {pid}");
            continue;
        };
        let is_found = pieces.iter().any(|piece| contains_secret(piece));
        // Control: the secret is found in the memory of the broker.
        assert_eq!(is_found, pid == broker, "process {pid}");
        searched += 1;
    }
    assert!(searched >= if is_root() { 4 } else { 1 }, "{searched}");
    let ended = live.wait();
    ended.expect(0);
    assert!(
        !contains_secret(&ended.stdout) && !contains_secret(&ended.stderr),
        "{} {}",
        ended.out(),
        ended.err()
    );
    let (mut seen, mut found) = (0, BTreeSet::new());
    find_secret(lab.dir(), &mut seen, &mut found);
    assert!(found.is_empty() && seen > 8, "{seen} files, with the secret: {found:?}");
    assert!(lab.state().join("vault/token.sealed").exists());
    for args in
        [["ledger", "log", "--json"], ["net", "log", "--json"], ["ledger", "export", "--json"]]
    {
        let ended = lab.belljar(args).run();
        assert!(!contains_secret(&ended.stdout) && !contains_secret(&ended.stderr), "{args:?}");
    }
    assert_eq!(ledger_events(&lab, "secret.used").len(), 2);
    // Control: the searched files include the one that the box wrote.
    let diff = lab.belljar(["diff"]).run();
    assert!(diff.out().contains("[belljar:token]"), "{}", diff.out());
}

#[test]
fn b22_renewed_refresh_token_is_found_only_in_the_memory_of_the_broker() {
    let authority = Authority::new();
    let api = Upstream::tls(&authority, &["api.example.com"], |received| {
        let answer = json!({"access_token": "an-access-token", "refresh_token": SECRET_VALUE});
        let answer = if received.path == "/token" { answer.to_string() } else { String::new() };
        Reply::new(200, answer).header("content-type", "application/json")
    });
    let rules = [rule("api.example.com", api.address(), "secrets = [\"token\"]")];
    let kind =
        "kind = \"oauth2\"\ntoken-url = \"https://api.example.com/token\"\nclient-id = \"me\"";
    let lab = lab_with_secret(&authority, &rules, &token_section("\"api.example.com\"", kind));
    let set = lab.belljar(["secret", "set", "token"]).input("the-refresh-token-9876543210");
    set.run().expect(0);
    let old = fs::read(lab.state().join("vault/token.sealed")).unwrap();
    lab.write("kit.py", KIT);
    let script = r#"from kit import *
headers = {"authorization": "Bearer " + os.environ["TOKEN"]}
print("got", fetch("https://api.example.com/me", headers=headers)["status"], flush=True)
sys.stdin.read()
"#;
    let run = lab.belljar(["run", "--", "/usr/bin/python3", "-c", script]);
    let live = run.open_input().start();
    live.wait_for_output("got 200");
    assert_ne!(fs::read(lab.state().join("vault/token.sealed")).unwrap(), old);
    let broker = broker_pid(live.pid());
    let processes: Vec<i32> = descendants(live.pid()).into_iter().map(|(pid, _)| pid).collect();
    let mut searched = 0;
    for pid in processes.into_iter().chain([live.pid()]) {
        let Some(pieces) = process_memory(pid) else {
            assert!(!is_root(), "root can read the memory of process {pid}");
            continue;
        };
        // Control: the token is found in the memory of the broker.
        assert_eq!(
            pieces.iter().any(|piece| contains_secret(piece)),
            pid == broker,
            "process {pid}"
        );
        searched += 1;
    }
    assert!(searched >= if is_root() { 4 } else { 1 }, "{searched}");
    let ended = live.wait();
    ended.expect(0);
    assert!(
        !contains_secret(&ended.stdout) && !contains_secret(&ended.stderr),
        "{} {}",
        ended.out(),
        ended.err()
    );
    let (mut seen, mut found) = (0, BTreeSet::new());
    find_secret(lab.dir(), &mut seen, &mut found);
    assert!(found.is_empty() && seen > 8, "{seen} files, with the secret: {found:?}");
    assert_eq!(ledger_events(&lab, "secret.renewed").len(), 1);
}
