//! Tests of tokens that are captured from responses.

use super::*;

use http::{HeaderMap, StatusCode};

const URL: &str = "https://api.example.com/oauth/token";
const TOKEN: &str = "issued-token-1234567890";

fn capturing(captures: &[&str]) -> Vault {
    let captures = captures.iter().map(|text| text.parse().unwrap()).collect();
    of(vec![SecretDecl { captures, ..token(&["header:authorization"]) }])
}

/// Returns a response of the upstream as the box receives it.
fn answer(
    vault: &Vault,
    status: StatusCode,
    headers: &[(&'static str, &str)],
    body: &str,
) -> Result<(HeaderMap, String), CaptureError> {
    let permit = permit(vault, URL, "POST");
    let captures = vault.captures(&permit, &head("POST", URL, &[])).expect("a capture");
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, value.parse().unwrap());
    }
    let mut body = body.as_bytes().to_vec();
    vault.capture(&captures, status, &mut map, Some(&mut body))?;
    Ok((map, String::from_utf8(body).unwrap()))
}

#[test]
fn b10_captured_token_becomes_a_usable_placeholder() {
    let vault = capturing(&["/oauth/token json:/access_token"]);
    let body = format!(r#"{{"access_token": "{TOKEN}", "expires_in": 3600, "again": "{TOKEN}"}}"#);
    let length = body.len().to_string();
    let (headers, seen) =
        answer(&vault, StatusCode::OK, &[("content-length", &length), ("x-t", TOKEN)], &body)
            .unwrap();
    assert!(!seen.contains(TOKEN), "{seen}");
    assert_eq!(headers["content-length"], seen.len().to_string().as_str());
    assert_eq!(headers["x-t"], "[belljar:s]");
    let json: serde_json::Value = serde_json::from_str(&seen).unwrap();
    assert_eq!(json["expires_in"], 3600);
    assert_eq!(json["again"], "[belljar:s]");
    let placeholder = json["access_token"].as_str().unwrap();
    assert!(placeholder.starts_with("bj_"));

    let bearer = format!("Bearer {placeholder}");
    let sent =
        send(&vault, "GET", "https://api.example.com/me", &[("authorization", &bearer)], b"");
    let (parts, _, injected) = sent.unwrap();
    assert_eq!(parts.headers["authorization"], format!("Bearer {TOKEN}").as_str());
    assert_eq!(injected.scrubber.text(TOKEN.as_bytes()).as_ref(), b"[belljar:s]");
    // The placeholder has the same bindings as the secret.
    let elsewhere = get(&vault, "https://evil.example.com/", &[("authorization", &bearer)]);
    misused(elsewhere, MisuseKind::OtherHost);
    misused(get(&vault, URL, &[("x-note", placeholder)]), MisuseKind::Elsewhere);
    // The list for the box contains only the initial placeholder.
    assert_eq!(vault.placeholders().len(), 1);
}

#[test]
fn b10_token_in_a_response_header_is_captured() {
    let vault = capturing(&["/oauth/** header:x-subject-token"]);
    let (headers, body) =
        answer(&vault, StatusCode::CREATED, &[("x-subject-token", TOKEN)], "plain").unwrap();
    assert_eq!(body, "plain");
    let placeholder = headers["x-subject-token"].to_str().unwrap();
    assert!(placeholder.starts_with("bj_"));
    let parts = get(&vault, URL, &[("authorization", placeholder)]).unwrap();
    assert_eq!(parts.headers["authorization"], TOKEN);
}

#[test]
fn b10_response_with_a_token_in_another_format_is_refused() {
    let vault = capturing(&["/oauth/token json:/access_token"]);
    for body in [
        format!("access_token={TOKEN}&token_type=bearer"),
        format!(r#"{{"access_token":"x","access_token":"{TOKEN}"}}"#),
        format!(r#"{{"access_token":"{TOKEN}"}} trailing"#),
    ] {
        let refused = answer(&vault, StatusCode::OK, &[], &body);
        assert!(matches!(refused, Err(CaptureError::NotJson { .. })), "{body}");
    }
    let short = answer(&vault, StatusCode::OK, &[], r#"{"access_token":"short"}"#);
    assert!(matches!(short, Err(CaptureError::Value { .. })));
}

#[test]
fn responses_without_a_token_to_capture_are_forwarded() {
    let vault = capturing(&["/oauth/token json:/access_token"]);
    for (status, body) in [
        (StatusCode::OK, r#"{"error":"authorization_pending"}"#),
        (StatusCode::OK, ""),
        (StatusCode::BAD_GATEWAY, "<html>sorry</html>"),
        (StatusCode::OK, r#"{"access_token":null}"#),
    ] {
        assert_eq!(answer(&vault, status, &[], body).unwrap().1, body);
    }
}

#[test]
fn token_captures_apply_only_to_their_path() {
    let vault = capturing(&["/oauth/token json:/access_token"]);
    let look = |url: &str| {
        let permit = permit(&vault, url, "GET");
        vault.captures(&permit, &head("GET", url, &[]))
    };
    assert!(look(URL).is_some_and(|captures| captures.needs_body()));
    assert!(look("https://api.example.com/oauth").is_none());
    assert!(look("https://bare.example.com/oauth/token").is_none());
    assert!(look("http://api.example.com/oauth/token").is_none());
}

#[test]
fn number_of_captured_tokens_is_bounded() {
    let vault = capturing(&["/oauth/token json:/access_token"]);
    let issue = |round: usize| {
        let body = format!(r#"{{"access_token":"{TOKEN}-{round}"}}"#);
        let json: serde_json::Value =
            serde_json::from_str(&answer(&vault, StatusCode::OK, &[], &body).unwrap().1).unwrap();
        json["access_token"].as_str().unwrap().to_owned()
    };
    let issued: Vec<String> = (0..placeholder_set::MAX_CAPTURED + 2).map(issue).collect();
    assert_eq!(vault.placeholder_set().all().len(), placeholder_set::MAX_CAPTURED + 1);
    let newest = issued.last().unwrap();
    assert!(get(&vault, URL, &[("authorization", newest)]).is_ok());
    let own = placeholder(&vault);
    assert!(
        get(&vault, URL, &[("authorization", &own)]).is_ok(),
        "the placeholder of the secret itself is never forgotten"
    );
    // A forgotten placeholder is an ordinary text.
    misused(get(&vault, URL, &[("authorization", &issued[0])]), MisuseKind::OwnCredential);
}
