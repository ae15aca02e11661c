//! Tests of access tokens that the broker fetches.

use super::*;

use std::cell::Cell;
use std::convert::Infallible;
use std::time::Duration;

use belljar_model::net::{ClientAuth, Grant, TokenBody};
use http::StatusCode;

const URL: &str = "https://api.example.com/me";

fn oauth2(grant: Grant, auth: ClientAuth) -> Vault {
    let kind = SecretKind::OAuth2 {
        token_url: "https://login.example.com/token".parse().unwrap(),
        grant,
        client_id: Some("client id".to_owned()),
        client_secret: (grant == Grant::RefreshToken).then(|| name("client")),
        auth,
        body: TokenBody::Form,
        scope: Some("read write".to_owned()),
    };
    let decl = SecretDecl { kind, ..token(&["header:authorization"]) };
    let values = vec![(name("s"), value(REAL)), (name("client"), value("client+secret"))];
    Vault::new(vec![decl], values).unwrap()
}

fn block<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn fetched(status: StatusCode, body: &str) -> Fetched {
    Fetched { status, body: Zeroizing::new(body.as_bytes().to_vec()) }
}

/// Panics if a refresh token is stored, for tests in which none is replaced.
async fn must_not_store(_: SecretName, _: Option<Renewal>) -> bool {
    panic!("no refresh token must be stored")
}

/// Fetches access tokens at a given time and fills a request; returns the request that the upstream
/// sees.
fn ask(
    vault: &Vault,
    second: u64,
    answer: &str,
    asked: &Cell<usize>,
) -> Result<String, RefreshError> {
    let bearer = format!("Bearer {}", placeholder(vault));
    let permit = permit(vault, URL, "GET");
    let mut parts = head("GET", URL, &[("authorization", &bearer)]);
    let now = UNIX_EPOCH + Duration::from_secs(second);
    let plan = vault.plan(&permit, &parts, now).unwrap();
    let fetch = async |_: TokenRequest| {
        asked.set(asked.get() + 1);
        Ok::<_, Infallible>(fetched(StatusCode::OK, answer))
    };
    let fetch = |due| vault.fetch(due, &fetch, must_not_store);
    block(vault.refresh(&Recorded::for_test(), &plan, fetch))?;
    let injected = vault.inject(&permit, &Recorded::for_test(), plan, &mut parts, None).unwrap();
    assert_eq!(injected.scrubber.text(b"access-token-1").as_ref(), b"[belljar:s]");
    Ok(parts.headers["authorization"].to_str().unwrap().to_owned())
}

#[test]
fn b22_access_token_is_cached_and_renewed_before_it_expires() {
    let vault = oauth2(Grant::RefreshToken, ClientAuth::Body);
    let asked = Cell::new(0);
    let first = r#"{"access_token":"access-token-1","token_type":"Bearer","expires_in":3600}"#;
    let second = r#"{"access_token":"access-token-2","expires_in":"3600"}"#;
    assert_eq!(ask(&vault, 0, first, &asked).unwrap(), "Bearer access-token-1");
    assert_eq!(ask(&vault, 3539, second, &asked).unwrap(), "Bearer access-token-1");
    assert_eq!(asked.get(), 1);
    assert_eq!(ask(&vault, 3540, second, &asked).unwrap(), "Bearer access-token-2");
    assert_eq!(asked.get(), 2);
}

#[test]
fn request_without_an_access_token_is_refused() {
    let vault = oauth2(Grant::RefreshToken, ClientAuth::Body);
    let bearer = format!("Bearer {}", placeholder(&vault));
    let permit = permit(&vault, URL, "GET");
    let mut parts = head("GET", URL, &[("authorization", &bearer)]);
    let plan = vault.plan(&permit, &parts, UNIX_EPOCH).unwrap();
    let injected = vault.inject(&permit, &Recorded::for_test(), plan, &mut parts, None);
    assert!(matches!(injected, Err(InjectError::NoToken { .. })));
}

/// Returns two consecutive requests to the token server.
fn requests(vault: &Vault, answer: &str) -> Vec<(Option<String>, String)> {
    let secret = &vault.secrets[0];
    let mut seen = Vec::new();
    for _ in 0..2 {
        let request = secret.token_request().unwrap();
        assert_eq!(request.url.to_string(), "https://login.example.com/token");
        assert!(!format!("{request:?}").contains(REAL));
        let header = request.headers.get("authorization");
        let header = header.map(|value| value.to_str().unwrap().to_owned());
        seen.push((header, String::from_utf8(request.body.to_vec()).unwrap()));
        secret.parse_response(&fetched(StatusCode::OK, answer), UNIX_EPOCH).unwrap();
    }
    seen
}

#[test]
fn b22_token_requests_conform_to_rfc_6749() {
    let rotating = r#"{"access_token":"access-token","refresh_token":"rotated-token"}"#;
    let vault = oauth2(Grant::RefreshToken, ClientAuth::Body);
    let client = "scope=read%20write&client_id=client%20id&client_secret=client%2Bsecret";
    let body = |token: &str| format!("grant_type=refresh_token&refresh_token={token}&{client}");
    let expect = [(None, body(REAL)), (None, body("rotated-token"))];
    assert_eq!(requests(&vault, rotating), expect);

    let vault = oauth2(Grant::ClientCredentials, ClientAuth::Basic);
    // printf 'client%%20id:real-value-of-the-secret' | base64
    let basic = "Basic Y2xpZW50JTIwaWQ6cmVhbC12YWx1ZS1vZi10aGUtc2VjcmV0".to_owned();
    let body = "grant_type=client_credentials&scope=read%20write".to_owned();
    let expect = (Some(basic), body);
    assert_eq!(requests(&vault, r#"{"access_token":"access-token"}"#), [expect.clone(), expect]);
}

#[test]
fn refused_and_malformed_token_responses_are_errors() {
    let vault = oauth2(Grant::RefreshToken, ClientAuth::Body);
    let take = |status, body: &str| {
        let error =
            vault.secrets[0].parse_response(&fetched(status, body), UNIX_EPOCH).unwrap_err();
        assert!(vault.secrets[0].token.current(UNIX_EPOCH).is_none());
        error.to_string()
    };
    let refused =
        take(StatusCode::BAD_REQUEST, r#"{"error":"invalid_grant","error_description":"x"}"#);
    assert!(refused.contains("belljar agent login"), "{refused}");
    let refused = take(StatusCode::UNAUTHORIZED, r#"{"error":"invalid_client"}"#);
    assert!(refused.ends_with("401 Unauthorized, invalid_client"), "{refused}");
    let hostile = take(StatusCode::BAD_REQUEST, r#"{"error":"\u001b[2J real"}"#);
    assert!(hostile.ends_with("400 Bad Request"), "{hostile}");
    for body in [
        "",
        "access_token=x",
        r#"{"token_type":"bearer"}"#,
        r#"{"access_token":"access-token","token_type":"mac"}"#,
        r#"{"access_token":"access-token\n"}"#,
    ] {
        assert!(take(StatusCode::OK, body).contains("does not conform"), "{body}");
    }
    assert!(take(StatusCode::OK, r#"{"access_token":"short"}"#).contains("cannot be used"));
    assert!(take(StatusCode::FOUND, "").contains("302"));
}

#[test]
fn concurrent_requests_fetch_one_access_token() {
    let vault = oauth2(Grant::RefreshToken, ClientAuth::Body);
    let bearer = format!("Bearer {}", placeholder(&vault));
    let permit = permit(&vault, URL, "GET");
    let parts = head("GET", URL, &[("authorization", &bearer)]);
    let asked = Cell::new(0);
    let fetch = async |_: TokenRequest| {
        asked.set(asked.get() + 1);
        tokio::task::yield_now().await;
        Ok::<_, Infallible>(fetched(StatusCode::OK, r#"{"access_token":"access-token"}"#))
    };
    let plans: Vec<Plan> =
        (0..3).map(|_| vault.plan(&permit, &parts, UNIX_EPOCH).unwrap()).collect();
    let recorded = Recorded::for_test();
    block(async {
        let fetch = |due| vault.fetch(due, &fetch, must_not_store);
        let one = vault.refresh(&recorded, &plans[0], &fetch);
        let two = vault.refresh(&recorded, &plans[1], &fetch);
        let three = vault.refresh(&recorded, &plans[2], &fetch);
        let (one, two, three) = tokio::join!(one, two, three);
        assert!(one.is_ok() && two.is_ok() && three.is_ok());
    });
    assert_eq!(asked.get(), 1);
}

/// Returns a vault that stored the secret `s` at time 7, with its key.
fn renewing(grant: Grant) -> (tempfile::TempDir, store::Store, Vault) {
    let home = tempfile::tempdir().unwrap();
    let store = store::Store::create(home.path()).unwrap();
    let vault = oauth2(grant, ClientAuth::Body);
    let vault = vault.renewing(Some(store.key().unwrap()), &[(name("s"), 7)]);
    (home, store, vault)
}

/// Fetches access tokens at a given time; returns each renewal, and whether an access token existed
/// then.
fn renew(vault: &Vault, second: u64, answer: &str, stored: bool) -> Vec<(Option<Renewal>, bool)> {
    let bearer = format!("Bearer {}", placeholder(vault));
    let parts = head("GET", URL, &[("authorization", &bearer)]);
    let now = UNIX_EPOCH + Duration::from_secs(second);
    let plan = vault.plan(&permit(vault, URL, "GET"), &parts, now).unwrap();
    let fetch = async |_: TokenRequest| Ok::<_, Infallible>(fetched(StatusCode::OK, answer));
    let kept = std::cell::RefCell::new(Vec::new());
    let keep = async |_: SecretName, renewal: Option<Renewal>| {
        tokio::task::yield_now().await;
        kept.borrow_mut().push((renewal, vault.secrets[0].token.current(now).is_some()));
        stored
    };
    let fetch = |due| vault.fetch(due, &fetch, &keep);
    block(vault.refresh(&Recorded::for_test(), &plan, fetch)).unwrap();
    assert!(vault.secrets[0].token.current(now).is_some(), "the access token is valid either way");
    kept.into_inner()
}

#[test]
fn b22_new_refresh_token_is_stored_before_its_access_token_is_used() {
    let (_home, store, vault) = renewing(Grant::RefreshToken);
    let answer = |count| {
        format!(
            r#"{{"access_token":"access-{count}","refresh_token":"rotated-{count}","expires_in":10}}"#
        )
    };
    let sealed = |second, count: u32, stored| {
        let mut kept = renew(&vault, second, &answer(count), stored);
        let Some((Some(renewal), false)) = kept.pop() else { panic!("{kept:?}") };
        let Renewal { name: own, mut sealed, replaces } = renewal;
        let rotated = format!("rotated-{count}");
        assert!(!sealed.windows(rotated.len()).any(|window| window == rotated.as_bytes()));
        let open = sealed::open(&store.key().unwrap(), &own, &mut sealed).unwrap();
        assert_eq!(open.value.expose(), rotated.as_bytes());
        (own.to_string(), replaces, open.set_at)
    };
    let own = || "s".to_owned();
    let nanos = 1_000_000_000;
    assert_eq!(sealed(100, 1, true), (own(), 7, 100 * nanos));
    // A token that could not be stored is not the predecessor of the next one.
    assert_eq!(sealed(200, 2, false), (own(), 100 * nanos, 200 * nanos));
    assert_eq!(sealed(300, 3, true), (own(), 100 * nanos, 300 * nanos));
    let body = vault.secrets[0].token_request().unwrap().body;
    assert!(String::from_utf8(body.to_vec()).unwrap().contains("refresh_token=rotated-3&"));
    assert!(
        renew(&vault, 400, &answer(3), true).is_empty(),
        "an equal refresh token is not a renewal"
    );
}

#[test]
fn vault_keeps_the_key_only_for_refresh_tokens() {
    let (_home, _store, vault) = renewing(Grant::RefreshToken);
    assert!(vault.key.is_some());
    let (_home, store, vault) = renewing(Grant::ClientCredentials);
    assert!(vault.key.is_none());
    let rotating = r#"{"access_token":"access-token","refresh_token":"rotated-token"}"#;
    assert!(renew(&vault, 0, rotating, true).is_empty());
    let other = of(vec![token(&["basic"])]).renewing(Some(store.key().unwrap()), &[]);
    assert!(other.key.is_none());
    // Without a key, no renewal can be sealed, and the callback gets `None`.
    let unsealed = oauth2(Grant::RefreshToken, ClientAuth::Body);
    assert!(matches!(renew(&unsealed, 0, rotating, false)[..], [(None, false)]));
}

#[test]
fn token_request_is_json_if_the_secret_declares_json() {
    let kind = SecretKind::OAuth2 {
        token_url: "https://login.example.com/token".parse().unwrap(),
        grant: Grant::RefreshToken,
        client_id: Some("a \"client\"".to_owned()),
        client_secret: None,
        auth: ClientAuth::Body,
        body: TokenBody::Json,
        scope: None,
    };
    let decl = SecretDecl { kind, ..token(&["header:authorization"]) };
    let vault = Vault::new(vec![decl], vec![(name("s"), value(REAL))]).unwrap();
    let request = vault.secrets[0].token_request().unwrap();
    assert_eq!(request.headers["content-type"], "application/json");
    let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
    let expect = serde_json::json!({
        "grant_type": "refresh_token", "refresh_token": REAL, "client_id": "a \"client\"",
    });
    assert_eq!(body, expect);
}
