//! Login with an identity provider: one of the test, which can say anything, and `oidc-provider` of npm.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use belljar_gateway::Rate;
use belljar_testkit::{Authority, Reply};
use serde_json::{Value, json};
use sha2::Digest as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::client::TestResponse;
use crate::gateway::{Login, TestGateway, lab, problem, recorded};
use crate::provider::{CLIENT, Key, Provider, message, symmetric};

/// The access of groups in the tests.
const ACCESS: &str = "[[oidc.access]]\ngroup = 'devs'\ntenant = 'local'\nrole = 'member'\n\
                      [[oidc.access]]\ngroup = 'ops'\ntenant = 'team-7'\nrole = 'operator'\n\
                      [[oidc.access]]\ngroup = 'ops'\ntenant = 'none'\nrole = 'owner'\n";

/// Starts a server that uses a provider. Failed logins are not limited.
async fn server(issuer: &str, more: &str) -> TestGateway {
    server_with(issuer, more, Rate::per_second(100_000, 100_000)).await
}

async fn server_with(issuer: &str, more: &str, failed_logins: Rate) -> TestGateway {
    let lab = lab();
    lab.configure(&format!(
        "{more}\n[oidc]\nissuer = '{issuer}'\nclient = '{CLIENT}'\nscopes = ['groups']\n{ACCESS}"
    ));
    TestGateway::on(lab, |options| options.limits.failed_logins = failed_logins).await
}

/// A login that a browser started.
struct Started {
    host: String,
    /// The cookie, written `NAME=VALUE`.
    cookie: String,
    /// The parameters that the provider received.
    query: BTreeMap<String, String>,
    /// The address of the provider.
    location: String,
}

/// Returns the public name of a server with its port.
async fn public_host(server: &TestGateway) -> String {
    let response = server.get("/auth/oidc").await;
    assert_eq!(response.status, 303, "{response:?}");
    let location = response.header("location").unwrap();
    let host = location.strip_prefix("http://").unwrap().strip_suffix("/auth/oidc").unwrap();
    host.to_owned()
}

async fn get(server: &TestGateway, host: &str, path: &str, cookie: &str) -> TestResponse {
    let (start, host) = (format!("GET {path} HTTP/1.1"), format!("Host: {host}"));
    let cookie = format!("Cookie: {cookie}");
    server.lines(&[&start, &host, &cookie]).await
}

/// Returns the cookies that a response sets, by name, with their whole headers.
fn cookies(response: &TestResponse) -> BTreeMap<String, String> {
    let lines = response.head.lines().filter_map(|line| line.split_once(": "));
    let set = lines.filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    set.map(|(_, value)| (value.split('=').next().unwrap().to_owned(), value.to_owned())).collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next().unwrap(), rest.next().unwrap()];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).unwrap()
}

async fn start(server: &TestGateway) -> Started {
    let host = public_host(server).await;
    let response = get(server, &host, "/auth/oidc", "a=b").await;
    assert_eq!(response.status, 303, "{response:?}");
    let set = cookies(&response)["__Host-belljar-login"].clone();
    for part in ["; Path=/;", "Secure", "HttpOnly", "SameSite=Lax", "Max-Age=600"] {
        assert!(set.contains(part), "{set}");
    }
    let cookie = set.split(';').next().unwrap().to_owned();
    let location = response.header("location").unwrap().to_owned();
    let (_, query) = location.split_once('?').unwrap();
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap());
    let query = pairs.map(|(name, value)| (name.to_owned(), decoded(value))).collect();
    Started { host, cookie, query, location }
}

impl Started {
    /// Returns the valid claims of an ID token for this login.
    fn claims(&self, provider: &Provider) -> Value {
        let now = now();
        json!({
            "iss": provider.issuer, "sub": "ada", "aud": CLIENT, "exp": now + 300, "iat": now,
            "nonce": self.query["nonce"], "groups": ["devs"],
        })
    }

    /// Sends the browser back to the server.
    async fn callback(&self, server: &TestGateway, query: &str) -> TestResponse {
        let query = query.replace("{state}", &self.query["state"]);
        get(server, &self.host, &format!("/auth/oidc/callback?{query}"), &self.cookie).await
    }

    /// Ends the login with this ID token.
    async fn end(&self, server: &TestGateway, provider: &Provider, token: &str) -> TestResponse {
        provider.set_token(token);
        self.callback(server, "code=c0de&state={state}").await
    }
}

/// Returns the session that a login started.
async fn session(server: &TestGateway, host: &str, response: &TestResponse) -> Login {
    assert_eq!(response.status, 200, "{response:?}");
    let cookies = cookies(response);
    let set = &cookies["__Host-belljar"];
    assert!(set.contains("SameSite=Strict") && set.contains("HttpOnly"), "{set}");
    assert!(cookies["__Host-belljar-login"].contains("Max-Age=0"), "{cookies:?}");
    let cookie = set.split(';').next().unwrap().to_owned();
    Login::of_cookie(server, host.to_owned(), cookie).await
}

/// Logs a person in with these groups, and returns the response of the last step.
async fn log_in(
    server: &TestGateway,
    provider: &Provider,
    key: &Key,
    who: (&str, &[&str]),
) -> (Started, TestResponse) {
    let started = start(server).await;
    let mut claims = started.claims(provider);
    (claims["sub"], claims["groups"]) = (json!(who.0), json!(who.1));
    let response = started.end(server, provider, &key.sign(&claims)).await;
    (started, response)
}

#[tokio::test]
async fn login_with_an_identity_provider_uses_pkce_and_starts_a_session() {
    let key = Key::ec("k1");
    let provider = Provider::start(&[&key]);
    let server = server(&provider.issuer, "").await;
    let started = start(&server).await;
    let query = &started.query;
    assert!(started.location.starts_with(&format!("{}/authorize?", provider.issuer)));
    assert_eq!(
        (query["response_type"].as_str(), query["scope"].as_str()),
        ("code", "openid groups")
    );
    let redirect = format!("http://{}/auth/oidc/callback", started.host);
    assert_eq!((&query["redirect_uri"], query["client_id"].as_str()), (&redirect, CLIENT));
    assert_eq!(query["code_challenge_method"], "S256");
    let response = started.end(&server, &provider, &key.sign(&started.claims(&provider))).await;
    assert!(response.body.contains("http-equiv=\"refresh\""), "{response:?}");
    assert!(!response.body.contains("<script"), "{response:?}");
    let login = session(&server, &started.host, &response).await;
    let me = login.get(&server, "/v1/me").await;
    let principal = format!("person:{}#ada", provider.issuer);
    assert_eq!(
        (me["principal"].as_str(), me["role"].as_str()),
        (Some(&*principal), Some("member"))
    );
    assert_eq!((me["tenant"].as_str(), &me["tenants"]), (Some("local"), &json!(["local"])));
    let requests = provider.received("/token");
    let form = String::from_utf8(requests[0].body.clone()).unwrap();
    let field = |name: &str| {
        let pairs = form.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(known, _)| *known == name).map(|(_, value)| decoded(value)).next()
    };
    assert_eq!(field("code").as_deref(), Some("c0de"));
    assert_eq!(field("redirect_uri"), Some(redirect));
    assert_eq!((field("client_id").as_deref(), field("client_secret")), (Some(CLIENT), None));
    let verifier = field("code_verifier").unwrap();
    let challenge = URL_SAFE_NO_PAD.encode(sha2::Sha256::digest(verifier.as_bytes()));
    assert_eq!(challenge, query["code_challenge"]);
    assert!(!started.cookie.contains(&verifier) && !started.location.contains(&verifier));
    let recorded = recorded(&server, "local", "access.changed");
    assert!(recorded.iter().any(|it| it["act"] == "user.added" && it["by"] == principal));
}

/// Makes a token for a login, from the key of the provider and valid claims.
type Forge = fn(&Keys, Value) -> String;

struct Keys {
    ec: Key,
    ed: Key,
    rsa: Key,
    /// A key that the provider does not have.
    other: Key,
}

impl Keys {
    fn new() -> Self {
        let (ec, ed, rsa) = (Key::ec("ec"), Key::ed("ed"), Key::rsa("rsa"));
        Self { ec, ed, rsa, other: Key::ec("other") }
    }
}

fn with(keys: &Keys, mut claims: Value, name: &str, value: Value) -> String {
    claims[name] = value;
    keys.ec.sign(&claims)
}

fn without(keys: &Keys, mut claims: Value, name: &str) -> String {
    claims.as_object_mut().unwrap().remove(name);
    keys.ec.sign(&claims)
}

fn now() -> u64 {
    let time = belljar_testkit::wall_clock().duration_since(std::time::UNIX_EPOCH);
    time.unwrap().as_secs()
}

/// Forged tokens, with a part of the reason for their refusal.
const FORGED: [(&str, &str, Forge); 34] = [
    ("another nonce", "another login", |k, c| with(k, c, "nonce", json!("x"))),
    ("no nonce", "`nonce`", |k, c| without(k, c, "nonce")),
    ("an empty nonce", "another login", |k, c| with(k, c, "nonce", json!(""))),
    ("another audience", "another client", |k, c| with(k, c, "aud", json!("other"))),
    ("an empty audience", "another client", |k, c| with(k, c, "aud", json!([]))),
    ("no audience", "`aud`", |k, c| without(k, c, "aud")),
    ("a second audience", "`azp`", |k, c| with(k, c, "aud", json!([CLIENT, "other"]))),
    ("another party", "issued to another client", |k, c| with(k, c, "azp", json!("other"))),
    ("another issuer", "another issuer", |k, c| with(k, c, "iss", json!("https://evil.example"))),
    ("a longer issuer", "another issuer", |k, mut c| {
        c["iss"] = json!(format!("{}/", c["iss"].as_str().unwrap()));
        k.ec.sign(&c)
    }),
    ("no issuer", "`iss`", |k, c| without(k, c, "iss")),
    ("expired", "expired", |k, c| with(k, c, "exp", json!(now() - 61))),
    ("no expiry", "`exp`", |k, c| without(k, c, "exp")),
    ("an expiry as text", "`exp`", |k, c| with(k, c, "exp", json!("9999999999"))),
    ("issued in the future", "in the future", |k, c| with(k, c, "iat", json!(now() + 120))),
    ("issued before the login", "older", |k, c| with(k, c, "iat", json!(now() - 120))),
    ("no time of issue", "`iat`", |k, c| without(k, c, "iat")),
    ("not valid yet", "in the future", |k, c| with(k, c, "nbf", json!(now() + 120))),
    ("no subject", "`sub`", |k, c| without(k, c, "sub")),
    ("an empty subject", "subject", |k, c| with(k, c, "sub", json!(""))),
    ("a subject with a space", "subject", |k, c| with(k, c, "sub", json!("ada b"))),
    ("another key with the same name", "signature", |k, c| {
        k.other.sign_as(&json!({ "alg": "ES256", "kid": "ec" }), &c)
    }),
    ("an unknown key", "does not list", |k, c| k.other.sign(&c)),
    ("a key of another type", "does not list", |k, c| {
        k.rsa.sign_as(&json!({ "alg": "RS256", "kid": "ec" }), &c)
    }),
    ("the algorithm of another key", "does not list", |k, c| {
        k.ec.sign_as(&json!({ "alg": "RS256", "kid": "ec" }), &c)
    }),
    ("no signature", "not signed", |_, c| format!("{}.", message(&json!({ "alg": "none" }), &c))),
    ("an empty signature", "signature", |_, c| {
        format!("{}.", message(&json!({ "alg": "ES256", "kid": "ec" }), &c))
    }),
    ("HS256 with the RSA key", "not signed", |k, c| symmetric(&k.rsa.public_bytes(), "rsa", &c)),
    ("HS256 with the EC key", "not signed", |k, c| symmetric(&k.ec.public_bytes(), "ec", &c)),
    ("another algorithm", "not signed", |k, c| {
        k.rsa.sign_as(&json!({ "alg": "RS512", "kid": "rsa" }), &c)
    }),
    ("its own key", "does not list", |k, c| {
        let key = json!({ "kty": "EC", "crv": "P-256", "x": "x", "y": "y" });
        k.other.sign_as(&json!({ "alg": "ES256", "kid": "other", "jwk": key }), &c)
    }),
    ("critical extensions", "critical", |k, c| {
        k.ec.sign_as(&json!({ "alg": "ES256", "kid": "ec", "crit": ["b64"], "b64": false }), &c)
    }),
    ("changed claims", "signature", |k, c| {
        let signed = k.ec.sign(&c);
        let (_, signature) = signed.rsplit_once('.').unwrap();
        let mut changed = c.clone();
        changed["sub"] = json!("eve");
        format!(
            "{}.{signature}",
            message(&json!({ "alg": "ES256", "kid": "ec", "typ": "JWT" }), &changed)
        )
    }),
    ("no token", "malformed", |_, _| "a.b".to_owned()),
];

#[tokio::test]
async fn f11_forged_id_tokens_are_refused_with_the_reason() {
    let keys = Keys::new();
    let provider = Provider::start(&[&keys.ec, &keys.ed, &keys.rsa]);
    let server = server(&provider.issuer, "").await;
    for (name, reason, forge) in FORGED {
        let started = start(&server).await;
        let token = forge(&keys, started.claims(&provider));
        let response = started.end(&server, &provider, &token).await;
        let problem = problem(&response, 403, "login-refused");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.starts_with("the ID token") && detail.contains(reason), "{name}: {detail}");
        assert!(cookies(&response).is_empty(), "{name}: {response:?}");
    }
    // The valid tokens of every accepted algorithm.
    let valid: [Forge; 5] = [
        |k, c| k.ec.sign(&c),
        |k, c| k.ed.sign(&c),
        |k, c| k.rsa.sign(&c),
        |k, c| k.rsa.sign_as(&json!({ "alg": "PS256", "kid": "rsa" }), &c),
        |k, c| k.ec.sign_as(&json!({ "alg": "ES256" }), &c),
    ];
    for (number, sign) in valid.into_iter().enumerate() {
        let started = start(&server).await;
        let token = sign(&keys, started.claims(&provider));
        let response = started.end(&server, &provider, &token).await;
        assert_eq!(response.status, 200, "control {number}: {response:?}");
    }
    let read = provider.received("/keys").len();
    assert!(read <= 6, "tokens with unknown keys make the server read the keys {read} times");
}

#[tokio::test]
async fn f17_answer_is_valid_only_once_and_only_for_the_login_of_this_browser() {
    let key = Key::ec("k1");
    let provider = Provider::start(&[&key]);
    let server = server(&provider.issuer, "").await;
    let (victim, other) = (start(&server).await, start(&server).await);
    let state = &other.query["state"];
    provider.set_token(&key.sign(&victim.claims(&provider)));
    for query in [
        format!("code=c&state={state}"),
        "code=c".to_owned(),
        "code=c&state=".to_owned(),
        "code=c&state=x".to_owned(),
    ] {
        problem(&victim.callback(&server, &query).await, 410, "gone");
    }
    let path = format!("/auth/oidc/callback?code=c&state={}", victim.query["state"]);
    for cookie in ["a=b".to_owned(), other.cookie.clone(), format!("{0}; {0}", victim.cookie)] {
        problem(&get(&server, &victim.host, &path, &cookie).await, 410, "gone");
    }
    let twice = victim.callback(&server, "code=c&state={state}&state={state}").await;
    problem(&twice, 400, "invalid");
    assert!(provider.received("/token").is_empty(), "no code was used");
    let response = victim.callback(&server, "code=c&state={state}").await;
    assert_eq!(response.status, 200, "control: {response:?}");
    let again = victim.callback(&server, "code=c&state={state}").await;
    problem(&again, 410, "gone");
    assert_eq!(provider.received("/token").len(), 1, "the code is not used again");
    // The ID token of one login is not valid for another.
    let used = key.sign(&victim.claims(&provider));
    let refused = other.end(&server, &provider, &used).await;
    let detail = problem(&refused, 403, "login-refused")["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("another login"), "{detail}");
}

#[tokio::test]
async fn f17_session_is_new_at_login_and_a_code_is_no_credential_elsewhere() {
    let key = Key::ec("k1");
    let provider = Provider::start(&[&key]);
    let server = server(&provider.issuer, "").await;
    let started = start(&server).await;
    provider.set_token(&key.sign(&started.claims(&provider)));
    let chosen = "a".repeat(43);
    let cookie = format!("{}; __Host-belljar={chosen}", started.cookie);
    let path = format!("/auth/oidc/callback?code=c&state={}", started.query["state"]);
    let response = get(&server, &started.host, &path, &cookie).await;
    let login = session(&server, &started.host, &response).await;
    assert!(!login.cookie.contains(&chosen), "the session has a secret of its own");
    let fixed = get(&server, &started.host, "/v1/me", &format!("__Host-belljar={chosen}")).await;
    problem(&fixed, 401, "unauthenticated");
    let elsewhere = get(&server, &started.host, "/auth/oidc?code=c", "a=b").await;
    problem(&elsewhere, 400, "token-in-url");
    let token = get(&server, &started.host, "/auth/oidc/callback?token=c", "a=b").await;
    problem(&token, 400, "token-in-url");
}

#[tokio::test]
async fn f11_answer_of_another_issuer_or_with_an_error_is_refused() {
    let key = Key::ec("k1");
    let provider = Provider::start(&[&key]);
    let issuer = provider.issuer.clone();
    provider.describe(|it| it["authorization_response_iss_parameter_supported"] = json!(true));
    let server = server(&issuer, "").await;
    for (query, reason) in [
        ("code=c&state={state}", "not one of the configured"),
        ("code=c&state={state}&iss=https%3A%2F%2Fevil.example", "not one of the configured"),
        ("error=access_denied&state={state}&iss={iss}", "answered `access_denied`"),
        ("error=%3Cb%3E&state={state}&iss={iss}", "answered `b`"),
        ("state={state}&iss={iss}", "no code"),
    ] {
        let started = start(&server).await;
        let response = started.callback(&server, &query.replace("{iss}", &issuer)).await;
        let problem = problem(&response, 403, "login-refused");
        assert!(problem["detail"].as_str().unwrap().contains(reason), "{query}: {problem}");
    }
    let started = start(&server).await;
    provider.set_token(&key.sign(&started.claims(&provider)));
    let query = format!("code=c&state={{state}}&iss={issuer}&session_state=x");
    let response = started.callback(&server, &query).await;
    assert_eq!(response.status, 200, "control: {response:?}");
}

#[tokio::test]
async fn f11_groups_decide_who_enters_which_tenant_with_which_role() {
    let key = Key::ec("k1");
    let provider = Provider::start(&[&key]);
    let server = server(&provider.issuer, "").await;
    let team = json!({ "name": "team-7", "issuer": provider.issuer, "subject": "boss" });
    assert_eq!(server.local_post("/local/tenants", &team).await.status, 201);
    let (_, refused) = log_in(&server, &provider, &key, ("eve", &["DEVS", "x"])).await;
    problem(&refused, 403, "login-refused");
    let refused = recorded(&server, "system", "access.changed");
    assert!(refused.iter().any(|it| it["act"] == "login.refused"), "{refused:?}");
    // The first owner of a tenant needs no group.
    let (started, entered) = log_in(&server, &provider, &key, ("boss", &[])).await;
    let boss = session(&server, &started.host, &entered).await;
    let me = boss.get(&server, "/v1/me").await;
    assert_eq!((me["tenant"].as_str(), me["role"].as_str()), (Some("team-7"), Some("owner")));
    // A person with several groups has several tenants, and only those that exist.
    let (started, entered) = log_in(&server, &provider, &key, ("ada", &["devs", "ops"])).await;
    let ada = session(&server, &started.host, &entered).await;
    assert_eq!(ada.get(&server, "/v1/me").await["tenants"], json!(["local", "team-7"]));
    // Without the group, the person has no tenant, and no session of the person is valid.
    let (_, refused) = log_in(&server, &provider, &key, ("ada", &["other"])).await;
    problem(&refused, 403, "login-refused");
    problem(&ada.request(&server, "GET", "/v1/me").await, 401, "unauthenticated");
    let people = boss.get(&server, "/v1/users?q=state:left").await;
    let ids: Vec<&str> = people["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["principal"].as_str())
        .collect();
    assert_eq!(ids, [format!("person:{}#ada", provider.issuer)]);
    let (_, entered) = log_in(&server, &provider, &key, ("ada", &["ops"])).await;
    assert_eq!(entered.status, 200, "control: the group is back {entered:?}");
}

#[tokio::test]
async fn person_switches_between_own_tenants_with_a_new_session_of_the_same_age() {
    let key = Key::ec("k1");
    let provider = Provider::start(&[&key]);
    let server = server(&provider.issuer, "").await;
    for (name, subject) in [("team-7", "boss"), ("team-8", "boss"), ("team-9", "other")] {
        let team = json!({ "name": name, "issuer": provider.issuer, "subject": subject });
        assert_eq!(server.local_post("/local/tenants", &team).await.status, 201);
    }
    let (started, entered) = log_in(&server, &provider, &key, ("boss", &[])).await;
    let first = session(&server, &started.host, &entered).await;
    first.age(&server, 11);
    let me = first.get(&server, "/v1/me").await;
    let other = if me["tenant"] == "team-7" { "team-8" } else { "team-7" };
    for tenant in ["team-9", "none", "local"] {
        let body = json!({ "tenant": tenant });
        problem(&first.post(&server, "/auth/tenant", &body).await, 404, "not-found");
    }
    let switched = first.post(&server, "/auth/tenant", &json!({ "tenant": other })).await;
    assert_eq!(switched.status, 204, "{switched:?}");
    let cookie = cookies(&switched)["__Host-belljar"].split(';').next().unwrap().to_owned();
    assert_ne!(cookie, first.cookie);
    problem(&first.request(&server, "GET", "/v1/me").await, 401, "unauthenticated");
    let second = Login::of_cookie(&server, first.host.clone(), cookie).await;
    let again = second.get(&server, "/v1/me").await;
    assert_eq!((again["tenant"].as_str(), again["role"].as_str()), (Some(other), Some("owner")));
    assert_eq!(again["recent_until"], me["recent_until"], "a switch is no login");
    let redact = json!({ "events": [], "reason": "a test" });
    problem(&second.post(&server, "/v1/ledger/redact", &redact).await, 403, "login-too-old");
    let (started, entered) = log_in(&server, &provider, &key, ("boss", &[])).await;
    let third = session(&server, &started.host, &entered).await;
    assert_eq!(third.get(&server, "/v1/me").await["tenant"], other, "the tenant of the last use");
    let token = json!({ "name": "ci", "kind": "service", "scopes": ["boxes:read"] });
    assert_eq!(third.post(&server, "/v1/tokens", &token).await.status, 201, "the first event");
    let done = third.post(&server, "/v1/ledger/redact", &redact).await;
    assert_eq!(done.status, 200, "control: a recent login {done:?}");
}

#[tokio::test]
async fn rotated_keys_are_read_again_once_for_a_token_with_an_unknown_key() {
    let (old, new) = (Key::ec("old"), Key::ec("new"));
    let provider = Provider::start(&[&old]);
    let server = server(&provider.issuer, "").await;
    let (_, first) = log_in(&server, &provider, &old, ("ada", &["devs"])).await;
    assert_eq!(first.status, 200, "{first:?}");
    assert_eq!(provider.received("/keys").len(), 1);
    provider.set_keys(&[&new]);
    let (_, second) = log_in(&server, &provider, &new, ("ada", &["devs"])).await;
    assert_eq!(second.status, 200, "{second:?}");
    let (_, third) = log_in(&server, &provider, &new, ("ada", &["devs"])).await;
    assert_eq!((third.status, provider.received("/keys").len()), (200, 2));
    let (_, removed) = log_in(&server, &provider, &old, ("ada", &["devs"])).await;
    problem(&removed, 403, "login-refused");
}

#[tokio::test]
async fn provider_that_does_not_work_is_named_in_the_problem() {
    let key = Key::ec("k1");
    let provider = Provider::start(&[&key]);
    let server = server(&provider.issuer, "").await;
    let description = "/.well-known/openid-configuration";
    let huge = vec![b' '; 300 * 1024];
    for (reply, reason) in [
        (Reply::new(302, "").header("location", "https://evil.example/"), "redirect"),
        (Reply::new(500, "no"), "500"),
        (Reply::new(200, "{"), "no valid description"),
        (Reply::new(200, huge), "more than 256 KiB"),
    ] {
        provider.reply(description, reply);
        let host = public_host(&server).await;
        let response = get(&server, &host, "/auth/oidc", "a=b").await;
        let problem = problem(&response, 502, "identity-provider");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(&provider.issuer) && detail.contains(reason), "{detail}");
    }
    for (change, reason) in [
        ((|it| it["issuer"] = json!("https://other.example")) as fn(&mut Value), "another name"),
        (|it| it["token_endpoint"] = json!("http://id.example/token"), "without https"),
    ] {
        provider.describe(change);
        let host = public_host(&server).await;
        let response = get(&server, &host, "/auth/oidc", "a=b").await;
        let problem = problem(&response, 502, "identity-provider");
        assert!(problem["detail"].as_str().unwrap().contains(reason), "{problem}");
    }
    provider.describe(|_| ());
    for (reply, status, kind, reason) in [
        (Reply::new(400, r#"{"error":"invalid_grant"}"#), 403, "login-refused", "log in again"),
        (Reply::new(401, r#"{"error":"invalid_client"}"#), 502, "identity-provider", "`client`"),
        (Reply::new(200, "{}"), 502, "identity-provider", "no ID token"),
        (Reply::new(503, "busy"), 502, "identity-provider", "503"),
    ] {
        let started = start(&server).await;
        provider.reply("/token", reply);
        let response = started.callback(&server, "code=c&state={state}").await;
        let problem = problem(&response, status, kind);
        assert!(problem["detail"].as_str().unwrap().contains(reason), "{problem}");
    }
    provider.reply("/keys", Reply::new(200, "no keys"));
    let (_, response) = log_in(&server, &provider, &key, ("ada", &["devs"])).await;
    problem(&response, 502, "identity-provider");
    provider.set_keys(&[&key]);
    let (_, response) = log_in(&server, &provider, &key, ("ada", &["devs"])).await;
    assert_eq!(response.status, 200, "control: {response:?}");
}

#[tokio::test]
async fn provider_that_is_down_or_slow_is_a_temporary_problem() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let issuer = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let down = server(&issuer, "").await;
    let host = public_host(&down).await;
    let response = get(&down, &host, "/auth/oidc", "a=b").await;
    let detail = problem(&response, 502, "identity-provider")["detail"].to_string();
    assert!(detail.contains("cannot be reached"), "{detail}");
    assert!(response.header("retry-after").is_some(), "{response:?}");

    let provider = Provider::start(&[]);
    let mut slow = Reply::new(200, "{");
    (slow.chunks, slow.pause) = (vec![b"{".to_vec(), b"}".to_vec()], Duration::from_secs(600));
    provider.reply("/.well-known/openid-configuration", slow);
    let lab = lab();
    lab.configure(&format!("[oidc]\nissuer = '{}'\nclient = 'x'\n", provider.issuer));
    let limit = Duration::from_millis(50);
    let server = TestGateway::on(lab, |options| options.limits.provider = limit).await;
    let host = public_host(&server).await;
    let response = get(&server, &host, "/auth/oidc", "a=b").await;
    let detail = problem(&response, 502, "identity-provider")["detail"].to_string();
    assert!(detail.contains("in time"), "{detail}");
}

#[tokio::test]
async fn provider_with_tls_is_verified_with_the_roots_of_the_configuration() {
    let key = Key::ec("k1");
    let authority = Authority::new();
    let provider = Provider::tls(&authority, &[&key]);
    let unknown = server(&provider.issuer, "").await;
    let host = public_host(&unknown).await;
    let response = get(&unknown, &host, "/auth/oidc", "a=b").await;
    let detail = problem(&response, 502, "identity-provider")["detail"].to_string();
    assert!(detail.contains("certificate"), "{detail}");
    let roots = tempfile::tempdir().unwrap();
    let file = roots.path().join("roots.pem");
    std::fs::write(&file, authority.pem()).unwrap();
    let tls = format!("[tls]\nroots = ['{}']", file.display());
    let server = server(&provider.issuer, &tls).await;
    let (_, response) = log_in(&server, &provider, &key, ("ada", &["devs"])).await;
    assert_eq!(response.status, 200, "{response:?}");
}

#[tokio::test]
async fn f14_failed_logins_with_the_provider_are_limited() {
    let provider = Provider::start(&[]);
    let server = server_with(&provider.issuer, "", Rate::per_minute(5)).await;
    let started = start(&server).await;
    for _ in 0..5 {
        problem(&started.callback(&server, "code=c&state=x").await, 410, "gone");
    }
    let refused = started.callback(&server, "code=c&state=x").await;
    problem(&refused, 429, "too-many-requests");
}

#[tokio::test]
async fn server_without_a_provider_names_the_login_link() {
    let server = TestGateway::start().await;
    for path in ["/auth/oidc", "/auth/oidc/callback?state=x"] {
        let problem = problem(&server.get(path).await, 404, "not-found");
        assert!(problem["detail"].as_str().unwrap().contains("login-link"), "{problem}");
    }
    assert!(!server.get("/login").await.body.contains("/auth/oidc"));
    let provider = Provider::start(&[]);
    let with = self::server(&provider.issuer, "").await;
    assert!(with.get("/login").await.body.contains("/auth/oidc"), "control");
}

/// `oidc-provider` of npm in a Node of its own.
struct Npm {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    issuer: String,
}

impl Npm {
    #[expect(clippy::disallowed_methods, reason = "the test starts another program")]
    fn start() -> Self {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let clients = target.join("clients");
        let (node, dir) = (clients.join("typescript/node_modules/.bin/node"), clients.join("oidc"));
        for path in [&node, &dir] {
            assert!(path.exists(), "no {}: `cargo xtask test` installs it", path.display());
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/provider.mjs");
        let mut command = Command::new(node);
        command.arg(script).arg(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut npm = Self { child, input, output: BufReader::new(output), issuer: String::new() };
        npm.issuer = npm.line();
        npm
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Makes the provider new, with new keys, for a client with this address.
    fn configure(&mut self, host: &str, algorithm: &str, secret: Option<&str>) {
        let redirect = format!("http://{host}/auth/oidc/callback");
        let line = json!({ "redirect": redirect, "algorithm": algorithm, "secret": secret });
        writeln!(self.input, "{line}").unwrap();
        assert_eq!(self.line(), "ready");
    }

    /// Follows the redirects of the provider as a browser does, and returns the address of the server that the
    /// provider sends the browser back to.
    async fn authorize(&self, location: &str, account: &str) -> String {
        let mut jar = BTreeMap::new();
        let mut location = location.to_owned();
        while let Some(path) = location.strip_prefix(&self.issuer) {
            let host = self.issuer.strip_prefix("http://").unwrap();
            let sent: Vec<String> =
                jar.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let head = format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {}\r\nX-Account: {account}\r\n\
                 Connection: close\r\n\r\n",
                sent.join("; ")
            );
            let mut stream = TcpStream::connect(host).await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
            let response = TestResponse::whole(stream).await;
            let next = response.header("location").unwrap_or_else(|| panic!("{response:?}"));
            location = match next.strip_prefix('/') {
                Some(path) => format!("{}/{path}", self.issuer),
                None => next.to_owned(),
            };
            for (name, set) in cookies(&response) {
                let value = set.split(';').next().unwrap().split_once('=').unwrap().1.to_owned();
                jar.insert(name, value);
            }
        }
        location
    }

    async fn log_in(&self, server: &TestGateway, account: &str) -> (Started, TestResponse) {
        let started = start(server).await;
        let back = self.authorize(&started.location, account).await;
        let (_, query) =
            back.split_once("/auth/oidc/callback?").unwrap_or_else(|| panic!("{back}"));
        let response = started.callback(server, query).await;
        (started, response)
    }
}

impl Drop for Npm {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[tokio::test]
async fn login_works_with_oidc_provider_of_npm_in_all_algorithms_and_after_new_keys() {
    let mut npm = Npm::start();
    let secrets = tempfile::tempdir().unwrap();
    let file = secrets.path().join("secret");
    std::fs::write(&file, "s3cret/+ %\n").unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, private).unwrap();
    for secret in [None, Some("s3cret/+ %")] {
        let lab = lab();
        let setting = secret.map(|_| format!("secret-file = '{}'\n", file.display()));
        lab.configure(&format!(
            "[oidc]\nissuer = '{}'\nclient = '{CLIENT}'\nscopes = ['groups']\n{}{ACCESS}",
            npm.issuer,
            setting.unwrap_or_default()
        ));
        let server = TestGateway::on(lab, |_| ()).await;
        let host = public_host(&server).await;
        for algorithm in ["RS256", "PS256", "ES256", "EdDSA"] {
            npm.configure(&host, algorithm, secret);
            let (started, response) = npm.log_in(&server, "ada").await;
            assert_eq!(response.status, 200, "{algorithm} {secret:?}: {response:?}");
            let login = session(&server, &started.host, &response).await;
            assert_eq!(login.get(&server, "/v1/me").await["role"], "member");
        }
        let (_, response) = npm.log_in(&server, "eve").await;
        problem(&response, 403, "login-refused");
    }
}
