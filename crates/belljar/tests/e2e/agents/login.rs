//! Agent logins: the tokens stay on the host, and boxes use placeholders.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use belljar_testkit::{Authority, Canary, Lab, Received, Reply, Upstream, eventually};
use serde_json::json;

use super::{define_own_agent, path_with_agent};
use crate::lab;

/// The definition of an agent with an OAuth login.
const AGENT: &str = r#"
allow = ["api.example.com"]
secrets = ["own-login"]
[login]
file = ".own/token.json"
secret = "own-login"
refresh = "/tokens/refresh"
access = "/tokens/access"
expires = "/tokens/expires"
keep = ["/plan"]
[secret.own-login]
kind = "oauth2"
hosts = ["api.example.com"]
token-url = "https://api.example.com/token"
token-body = "json"
client-id = "own"
"#;

#[test]
fn b20_box_uses_an_agent_login_without_having_its_tokens() {
    let (lab, authority) = (lab(), Authority::new());
    let (refresh, access) = (Canary::new(), Canary::new());
    let access_token = access.value().to_owned();
    let upstream = Upstream::tls(&authority, &["api.example.com"], move |received: &Received| {
        match received.path.as_str() {
            "/token" => {
                let answer = json!({"access_token": access_token, "token_type": "Bearer", "expires_in": 900});
                Reply::new(200, answer.to_string()).header("content-type", "application/json")
            }
            _ => Reply::new(200, "welcome"),
        }
    });
    let connect = upstream.address();
    lab.configure_for(
        &authority,
        &format!(
            "[[template.default.allow]]\nhost = \"api.example.com\"\nconnect = \"{connect}\"\n"
        ),
    );
    define_own_agent(&lab, AGENT);
    fs::create_dir(lab.home().join(".own")).unwrap();
    let file = json!({
        "plan": "large", "other": refresh.value(),
        "tokens": {"refresh": refresh.value(), "access": access.value(), "expires": 1},
    });
    fs::write(lab.home().join(".own/token.json"), file.to_string()).unwrap();
    let login = lab.belljar(["agent", "login", "own"]).run();
    login.expect(0);
    assert!(login.err().contains("log in again"), "{}", login.err());
    let script = "cat ~/.own/token.json; t=$(sed -n 's/.*\"access\": \"\\(.*\\)\".*/\\1/p' ~/.own/token.json); \
                  curl -sS -H \"authorization: Bearer $t\" https://api.example.com/me; \
                  (env; cat /proc/*/environ) > ~/seen 2>/dev/null; echo; echo end";
    let up = ["up", "task", "--no-tty", "--agent", "own", "--", "sh", "-c", script];
    lab.belljar(up).env("PATH", path_with_agent(&lab)).succeed();
    let dir = lab.state().join("boxes/task");
    let log = || fs::read_to_string(dir.join("output.log")).unwrap_or_default();
    eventually("the script has ended", || log().ends_with("end\n"));
    let text = log();
    assert!(text.contains("welcome") && text.contains("large"), "{text}");
    let requests = upstream.received();
    let paths: Vec<&str> = requests.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(paths, ["/token", "/me"], "{text}");
    let sent: serde_json::Value = serde_json::from_slice(&requests[0].body).unwrap();
    assert_eq!(sent["refresh_token"], refresh.value());
    assert!(access.is_in(requests[1].header("authorization").unwrap()));
    for bytes in [text.into_bytes(), fs::read(dir.join("home/seen")).unwrap()] {
        assert_eq!((refresh.found_in(&bytes), access.found_in(&bytes)), (None, None));
    }
    let kept = fs::read(lab.state().join("logins/own.json")).unwrap();
    assert_eq!((refresh.found_in(&kept), access.found_in(&kept)), (None, None));
    let ledger = lab.belljar(["ledger", "log", "--json"]).succeed();
    assert!(ledger.contains("secret.set") && refresh.found_in(ledger.as_bytes()).is_none());
    lab.belljar(["agent", "login", "gemini"])
        .run()
        .fails_with(2, "no login that Belljar can import");
}

/// Starts a server that accepts each refresh token once and responds with the next one.
fn rotating_server(authority: &Authority, tokens: &[Canary], access: &Canary) -> Upstream {
    let tokens: Vec<String> = tokens.iter().map(|it| it.value().to_owned()).collect();
    let (access, next) = (access.value().to_owned(), AtomicUsize::new(0));
    Upstream::tls(authority, &["api.example.com"], move |received: &Received| {
        if received.path != "/token" {
            return Reply::new(200, "welcome");
        }
        let sent: serde_json::Value = serde_json::from_slice(&received.body).unwrap();
        let at = next.load(Ordering::SeqCst);
        let (status, answer) = match sent["refresh_token"] == tokens[at] {
            true => {
                next.store(at + 1, Ordering::SeqCst);
                (200, json!({"access_token": access, "refresh_token": tokens[at + 1]}))
            }
            false => (400, json!({"error": "invalid_grant"})),
        };
        Reply::new(status, answer.to_string()).header("content-type", "application/json")
    })
}

/// Creates a box that makes one request with the login, and returns its output.
fn use_login(lab: &Lab, name: &str) -> String {
    let script = "t=$(sed -n 's/.*\"access\": \"\\(.*\\)\".*/\\1/p' ~/.own/token.json); \
                  curl -sS -H \"authorization: Bearer $t\" https://api.example.com/me; echo; echo end";
    let up = ["up", name, "--no-tty", "--agent", "own", "--", "sh", "-c", script];
    lab.belljar(up).env("PATH", path_with_agent(lab)).succeed();
    let file = lab.state().join("boxes").join(name).join("output.log");
    let log = || fs::read_to_string(&file).unwrap_or_default();
    eventually("the script has ended", || log().ends_with("end\n"));
    lab.belljar(["stop", "--now", name]).run();
    log()
}

/// Collects the paths and contents of all files below a directory.
fn collect_files(dir: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            collect_files(&entry.path(), found);
        } else if kind.is_file() {
            let content = fs::read(entry.path()).unwrap_or_default();
            found.push((entry.path().display().to_string(), content));
        }
    }
}

#[test]
fn b22_rotated_refresh_token_of_an_agent_login_works_in_later_boxes() {
    let (lab, authority) = (lab(), Authority::new());
    let (tokens, access) = ([Canary::new(), Canary::new(), Canary::new()], Canary::new());
    let upstream = rotating_server(&authority, &tokens, &access);
    let connect = upstream.address();
    let rule = "[[template.default.allow]]\nhost = \"api.example.com\"";
    lab.configure_for(&authority, &format!("{rule}\nconnect = \"{connect}\"\n"));
    define_own_agent(&lab, AGENT);
    fs::create_dir(lab.home().join(".own")).unwrap();
    let file = json!({"tokens": {"refresh": tokens[0].value(), "access": access.value()}});
    let token_file = lab.home().join(".own/token.json");
    fs::write(&token_file, file.to_string()).unwrap();
    lab.belljar(["agent", "login", "own"]).run().expect(0);
    fs::remove_file(&token_file).unwrap();
    for (at, name) in ["first", "second"].into_iter().enumerate() {
        let log = use_login(&lab, name);
        assert!(log.contains("welcome"), "{log}");
        let requests = upstream.received();
        assert_eq!(requests.len(), 2 * (at + 1));
        let sent: serde_json::Value = serde_json::from_slice(&requests[2 * at].body).unwrap();
        assert_eq!(sent["refresh_token"], tokens[at].value(), "{name}");
    }
    let ledger = lab.belljar(["ledger", "log", "--json", "--limit", "1000"]).succeed();
    assert_eq!(ledger.matches("secret.renewed").count(), 2, "{ledger}");
    let mut all = vec![("ledger log".to_owned(), ledger.into_bytes())];
    collect_files(lab.dir(), &mut all);
    assert!(all.iter().any(|(name, _)| name.ends_with("own-login.sealed")));
    for (name, content) in &all {
        let is_in = tokens.iter().chain([&access]).any(|it| it.found_in(content).is_some());
        assert!(!is_in, "{name}");
    }
    // Control: the server refuses an old token, and the response names the command to log in.
    lab.belljar(["secret", "set", "own-login"]).input(tokens[0].value()).run().expect(0);
    let log = use_login(&lab, "third");
    assert!(!log.contains("welcome") && log.contains("belljar agent login"), "{log}");
}
