//! Tests of injection into all kinds of slots.

use super::*;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

#[test]
fn b11_placeholder_is_replaced_in_every_form_of_authorization() {
    let vault = vault(&["header:authorization"]);
    let p = placeholder(&vault);
    for (box_says, upstream_sees) in [
        (format!("Bearer {p}"), format!("Bearer {REAL}")),
        (format!("token {p}"), format!("token {REAL}")),
        (p.clone(), REAL.to_owned()),
        (basic("x-access-token", &p), basic("x-access-token", REAL)),
        (basic(&p, "x-oauth-basic"), basic(REAL, "x-oauth-basic")),
    ] {
        let headers = [("authorization", box_says.as_str()), ("accept", "*/*")];
        let parts = get(&vault, "https://api.example.com/a?b=c", &headers).unwrap();
        assert_eq!(parts.headers["authorization"], upstream_sees.as_str());
        assert!(parts.headers["authorization"].is_sensitive());
        assert_eq!(parts.headers["accept"], "*/*");
        assert_eq!(parts.uri, "https://api.example.com/a?b=c");
    }
}

#[test]
fn b11_basic_slot_accepts_only_basic_authentication() {
    let vault = vault(&["basic"]);
    let p = placeholder(&vault);
    let parts = get(&vault, "https://api.example.com/", &[("authorization", &basic("u", &p))]);
    assert_eq!(parts.unwrap().headers["authorization"], basic("u", REAL).as_str());
    let bearer = format!("Bearer {p}");
    let refused = get(&vault, "https://api.example.com/", &[("authorization", &bearer)]);
    misused(refused, MisuseKind::Elsewhere);
}

#[test]
fn declared_header_and_query_slots_are_filled_with_the_secret() {
    let vault = vault(&["header:x-api-key", "query:key"]);
    let p = placeholder(&vault);
    let parts = get(&vault, "https://api.example.com/", &[("x-api-key", &p)]).unwrap();
    assert_eq!(parts.headers["x-api-key"], REAL);
    let parts = get(&vault, &format!("https://api.example.com/v1?a=b&key={p}&c"), &[]).unwrap();
    assert_eq!(parts.uri.query().unwrap(), format!("a=b&key={REAL}&c"));
}

#[test]
fn secret_value_in_a_query_parameter_is_percent_encoded() {
    let decl = token(&["query:key"]);
    let vault = Vault::new(vec![decl], vec![(name("s"), value("a&b=c d/e+f"))]).unwrap();
    let url = format!("https://api.example.com/v1?key={}", placeholder(&vault));
    let parts = get(&vault, &url, &[]).unwrap();
    assert_eq!(parts.uri.query().unwrap(), "key=a%26b%3Dc%20d%2Fe%2Bf");
}

#[test]
fn json_slot_in_the_request_body_is_filled_with_the_secret() {
    let vault = vault(&["json:/auth/token"]);
    let p = placeholder(&vault);
    let body = format!(r#"{{"n": 1.10, "auth": {{"token": "{p}"}}, "z": 12345678901234567890}}"#);
    let length = body.len().to_string();
    let headers =
        [("content-type", "application/json; charset=utf-8"), ("content-length", &length)];
    let (parts, sent, injected) =
        send(&vault, "POST", "https://api.example.com/", &headers, body.as_bytes()).unwrap();
    assert_eq!(String::from_utf8(sent.clone()).unwrap(), body.replace(&p, REAL));
    assert_eq!(parts.headers["content-length"], sent.len().to_string().as_str());
    assert_eq!(injected.used, [Used { name: name("s"), slot: "json:/auth/token".to_owned() }]);
}

#[test]
fn request_without_placeholders_is_not_changed() {
    let vault = vault(&["header:authorization", "json:/token"]);
    let headers = [("accept", "text/html"), ("content-type", "application/json")];
    let body = br#"{"token_count": 3}"#;
    let (parts, sent, injected) =
        send(&vault, "POST", "https://api.example.com/x?y=z", &headers, body).unwrap();
    assert_eq!(sent, body);
    assert_eq!(parts.headers.len(), 2);
    assert!(injected.used.is_empty() && injected.names.is_empty());
    assert!(!injected.scrubber.is_empty(), "a bound secret is removed although it was not sent");
}

#[test]
fn b04_value_is_removed_from_responses_of_its_hosts_before_its_first_use() {
    let vault = vault(&["header:authorization"]);
    let host = "api.example.com".parse().unwrap();
    let echo = format!("you said {REAL}");
    assert_eq!(vault.scrubber(&host).text(echo.as_bytes()).as_ref(), b"you said [belljar:s]");
    let other = "bare.example.com".parse().unwrap();
    assert_eq!(vault.scrubber(&other).text(echo.as_bytes()).as_ref(), echo.as_bytes());
}

#[test]
fn two_secrets_with_the_same_slot_can_be_used_in_one_request() {
    let second = SecretDecl {
        name: name("t"),
        slots: vec!["header:authorization".parse().unwrap(), "query:key".parse().unwrap()],
        ..token(&[])
    };
    let decls = vec![token(&["header:authorization"]), second];
    let values = vec![(name("s"), value("value-of-s")), (name("t"), value("value-of-t"))];
    let vault = Vault::new(decls, values).unwrap();
    let texts: Vec<String> = vault.placeholders().into_iter().map(|(.., text)| text).collect();
    let [s, t] = texts.try_into().unwrap();
    let url = format!("https://api.example.com/?key={t}");
    let parts = get(&vault, &url, &[("authorization", &format!("Bearer {s}"))]).unwrap();
    assert_eq!(parts.headers["authorization"], "Bearer value-of-s");
    assert_eq!(parts.uri.query().unwrap(), "key=value-of-t");
    let parts = get(&vault, "https://api.example.com/", &[("authorization", &t)]).unwrap();
    assert_eq!(parts.headers["authorization"], "value-of-t");
    // The first secret has no slot in the query.
    let url = format!("https://api.example.com/?key={s}");
    misused(get(&vault, &url, &[]), MisuseKind::Elsewhere);
}

#[test]
fn secret_is_not_inserted_into_a_request_that_changed_after_planning() {
    let vault = vault(&["header:authorization"]);
    let bearer = format!("Bearer {}", placeholder(&vault));
    let url = "https://api.example.com/";
    let permit = permit(&vault, url, "GET");
    let plan = |parts: &Parts| vault.plan(&permit, parts, UNIX_EPOCH).unwrap();
    let inject = |permit: &Permit, plan, mut parts| {
        vault.inject(permit, &Recorded::for_test(), plan, &mut parts, None)
    };
    let parts = head("GET", url, &[("authorization", &bearer)]);
    let changed = inject(&permit, plan(&parts), head("GET", url, &[("authorization", "Bearer x")]));
    assert!(matches!(changed, Err(InjectError::Changed { .. })));
    let other = super::permit(&vault, "https://bare.example.com/", "GET");
    let planned = plan(&parts);
    assert_eq!(inject(&other, planned, parts).unwrap_err(), InjectError::OtherRequest);
}
