//! Tokens that an upstream gives out.

use super::*;

use http::{HeaderMap, StatusCode};

const URL: &str = "https://api.example.com/oauth/token";
const TOKEN: &str = "issued-token-1234567890";

fn capturing(captures: &[&str]) -> Vault {
    let captures = captures.iter().map(|text| text.parse().unwrap()).collect();
    of(vec![SecretDecl { captures, ..token(&["header:authorization"]) }])
}

/// What the box gets to see of a response.
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
fn b10_a_token_in_a_response_becomes_a_placeholder_that_works() {
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
    // It is bound as the secret is.
    let elsewhere = get(&vault, "https://evil.example.com/", &[("authorization", &bearer)]);
    misused(elsewhere, MisuseKind::OtherHost);
    misused(get(&vault, URL, &[("x-note", placeholder)]), MisuseKind::Elsewhere);
    // The box is told of none but its own at the start.
    assert_eq!(vault.placeholders().len(), 1);
}

#[test]
fn b10_a_token_in_a_header_is_captured() {
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
fn b10_an_answer_in_another_form_is_held_back() {
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
fn answers_without_a_token_pass() {
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
fn only_responses_to_the_path_are_looked_into() {
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
fn captured_tokens_do_not_pile_up() {
    let vault = capturing(&["/oauth/token json:/access_token"]);
    let issue = |round: usize| {
        let body = format!(r#"{{"access_token":"{TOKEN}-{round}"}}"#);
        let json: serde_json::Value =
            serde_json::from_str(&answer(&vault, StatusCode::OK, &[], &body).unwrap().1).unwrap();
        json["access_token"].as_str().unwrap().to_owned()
    };
    let issued: Vec<String> = (0..held::MAX_CAPTURED + 2).map(issue).collect();
    assert_eq!(vault.held().all().len(), held::MAX_CAPTURED + 1);
    let newest = issued.last().unwrap();
    assert!(get(&vault, URL, &[("authorization", newest)]).is_ok());
    let own = placeholder(&vault);
    assert!(get(&vault, URL, &[("authorization", &own)]).is_ok(), "its own is never forgotten");
    // One that was forgotten is a text like any other.
    misused(get(&vault, URL, &[("authorization", &issued[0])]), MisuseKind::OwnCredential);
}
