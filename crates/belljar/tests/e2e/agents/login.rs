//! Logins: the tokens stay on the host, and a box works with placeholders for them.

use std::fs;

use belljar_testkit::{Authority, Canary, Received, Reply, Upstream, eventually};
use serde_json::json;

use super::{own_agent, path};
use crate::lab;

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
fn b20_a_login_is_used_by_a_box_that_never_has_it() {
    let (lab, authority) = (lab(), Authority::new());
    let (refresh, access) = (Canary::new(), Canary::new());
    let given = access.value().to_owned();
    let upstream =
        Upstream::tls(&authority, &["api.example.com"], move |received: &Received| match received
            .path
            .as_str()
        {
            "/token" => {
                let answer =
                    json!({"access_token": given, "token_type": "Bearer", "expires_in": 900});
                Reply::new(200, answer.to_string()).header("content-type", "application/json")
            }
            _ => Reply::new(200, "welcome"),
        });
    let connect = upstream.address();
    lab.configure_for(
        &authority,
        &format!(
            "[[template.default.allow]]\nhost = \"api.example.com\"\nconnect = \"{connect}\"\n"
        ),
    );
    own_agent(&lab, AGENT);
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
    lab.belljar(up).env("PATH", path(&lab)).succeed();
    let dir = lab.state().join("boxes/task");
    let log = || fs::read_to_string(dir.join("output.log")).unwrap_or_default();
    eventually("the script has ended", || log().ends_with("end\n"));
    let text = log();
    assert!(text.contains("welcome") && text.contains("large"), "{text}");
    let asked = upstream.received();
    let paths: Vec<&str> = asked.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(paths, ["/token", "/me"], "{text}");
    let said: serde_json::Value = serde_json::from_slice(&asked[0].body).unwrap();
    assert_eq!(said["refresh_token"], refresh.value());
    assert!(access.is_in(asked[1].header("authorization").unwrap()));
    for bytes in [text.into_bytes(), fs::read(dir.join("home/seen")).unwrap()] {
        assert_eq!((refresh.found_in(&bytes), access.found_in(&bytes)), (None, None));
    }
    let kept = fs::read(lab.state().join("logins/own.json")).unwrap();
    assert_eq!((refresh.found_in(&kept), access.found_in(&kept)), (None, None));
    let ledger = lab.belljar(["ledger", "log", "--json"]).succeed();
    assert!(ledger.contains("secret.set") && refresh.found_in(ledger.as_bytes()).is_none());
    lab.belljar(["agent", "login", "gemini"]).run().complains(2, "no login that Belljar knows");
}
