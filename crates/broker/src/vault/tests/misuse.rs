//! Tests of misuses that stop a request.

use super::*;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use proptest::prelude::*;

const URL: &str = "https://api.example.com/v1/items";

#[test]
fn b01_placeholder_outside_its_slots_stops_the_request() {
    let vault = vault(&["header:authorization"]);
    let p = placeholder(&vault);
    for url in [
        format!("{URL}?q={p}"),
        format!("{URL}?{p}"),
        format!("{URL}?{p}=1"),
        format!("{URL}?q=before{p}after"),
        format!("https://api.example.com/v1/{p}"),
        format!("{URL}?q={}", STANDARD.encode(&p).replace('=', "%3D")),
        format!("{URL}?q={}", URL_SAFE_NO_PAD.encode(format!("x{p}"))),
        format!("{URL}?q={}", p.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>()),
    ] {
        misused(get(&vault, &url, &[]), MisuseKind::Elsewhere);
    }
    for header in ["x-note", "x-api-key", "accept", "if-match"] {
        misused(get(&vault, URL, &[(header, &p)]), MisuseKind::Elsewhere);
    }
    for text in [
        format!("{p} {p}"),
        format!("Bearer {p}x"),
        format!("Bearer x{p}"),
        format!("Bearer {p}, Bearer {p}"),
        format!("Basic {}", STANDARD.encode(format!("{p}:{p}"))),
        format!("Basic {}", STANDARD.encode(format!("u:x{p}"))),
        hex::encode(&p),
    ] {
        misused(get(&vault, URL, &[("authorization", &text)]), MisuseKind::Elsewhere);
    }
}

#[test]
fn b01_placeholder_in_a_body_without_slot_is_masked_only_toward_hosts_of_its_secret() {
    let other = SecretDecl {
        hosts: vec!["evil.example.com".parse().unwrap()],
        ..SecretDecl::token(name("t"), Vec::new())
    };
    let vault = of(vec![token(&["header:authorization"]), other]);
    let body = format!(r#"{{"text":"{}"}}"#, placeholder(&vault));
    let guard = |url: &str| {
        let permit = permit(&vault, url, "POST");
        vault.body_guard(permit.scheme(), permit.target())
    };
    let own = guard(URL);
    let masked = own.masked.unwrap().text(body.as_bytes()).into_owned();
    assert_eq!(String::from_utf8(masked).unwrap(), r#"{"text":"[belljar:s]"}"#);
    assert_eq!(own.refused.text(body.as_bytes()), None);
    // The host of another secret, a host without a secret, and plain HTTP.
    for url in ["https://evil.example.com/", "https://bare.example.com/", "http://api.example.com/"]
    {
        let guard = guard(url);
        assert_eq!(guard.refused.text(body.as_bytes()), Some("s"), "{url}");
        let is_masked =
            |masked: &Scrubber| masked.text(body.as_bytes()).as_ref() != body.as_bytes();
        assert!(!guard.masked.as_ref().is_some_and(is_masked), "{url}");
    }
}

#[test]
fn b02_body_slot_matches_only_its_json_pointer() {
    let vault = vault(&["json:/auth/token"]);
    let p = placeholder(&vault);
    let post = |body: String| {
        send(&vault, "POST", URL, &[("content-type", "application/json")], body.as_bytes())
    };
    assert!(post(format!(r#"{{"auth":{{"token":"{p}"}}}}"#)).is_ok(), "the control");
    let (m, encoded) = ("[belljar:s]", URL_SAFE_NO_PAD.encode(format!("xyz{p}")));
    for (body, sent) in [
        (
            format!(r#"{{"auth":{{"token":"{p}"}},"text":"{p}"}}"#),
            format!(r#"{{"auth":{{"token":"{REAL}"}},"text":"{m}"}}"#),
        ),
        (
            format!(r#"{{"auth":{{"token":"{p}","also":"{p}"}}}}"#),
            format!(r#"{{"auth":{{"token":"{REAL}","also":"{m}"}}}}"#),
        ),
        (format!(r#"{{"text":"{p}"}}"#), format!(r#"{{"text":"{m}"}}"#)),
        (format!(r#"{{"auth":{{"{p}":1}}}}"#), format!(r#"{{"auth":{{"{m}":1}}}}"#)),
        (
            format!(r#"{{"auth":{{"token":["{p}"]}}}}"#),
            format!(r#"{{"auth":{{"token":["{m}"]}}}}"#),
        ),
        (format!("not json at all: {p}"), format!("not json at all: {m}")),
        (
            format!(r#"{{"auth":{{"token":"{p}"}},"text":"{encoded}"}}"#),
            format!(r#"{{"auth":{{"token":"{REAL}"}},"text":"eHl6{m}"}}"#),
        ),
    ] {
        let (parts, masked, _) = post(body).unwrap();
        assert_eq!(String::from_utf8(masked).unwrap(), sent);
        assert!(!parts.headers.contains_key("content-length"));
    }
    misused(post(format!(r#"{{"auth":{{"token":"x","token":"{p}"}}}}"#)), MisuseKind::Repeated);
    misused(post(format!(r#"{{"auth":{{"token":"x{p}"}}}}"#)), MisuseKind::OwnCredential);
    misused(post(r#"{"auth":{"token":"of my own"}}"#.to_owned()), MisuseKind::OwnCredential);
}

#[test]
fn b02_slot_with_two_credentials_is_refused() {
    let vault = vault(&["header:authorization", "query:key"]);
    let p = placeholder(&vault);
    let bearer = format!("Bearer {p}");
    for other in [bearer.as_str(), "Bearer of-my-own", "", "Basic YTpi"] {
        for both in [
            [("authorization", bearer.as_str()), ("authorization", other)],
            [("authorization", other), ("authorization", bearer.as_str())],
        ] {
            misused(get(&vault, URL, &both), MisuseKind::Repeated);
        }
    }
    for query in [format!("key={p}&key={p}"), format!("key={p}&key=x"), format!("k%65y=x&key={p}")]
    {
        misused(get(&vault, &format!("{URL}?{query}"), &[]), MisuseKind::Repeated);
    }
}

#[test]
fn b03_placeholder_in_logged_or_forwarded_headers_is_refused() {
    let vault = vault(&["header:authorization"]);
    let p = placeholder(&vault);
    for sink in
        ["cookie", "referer", "user-agent", "x-forwarded-for", "origin", "forwarded", "via", "from"]
    {
        for text in [p.clone(), format!("a=b; c={p}"), format!("Bearer {p}")] {
            misused(get(&vault, URL, &[(sink, &text)]), MisuseKind::Elsewhere);
        }
    }
}

#[test]
fn b12_b15_placeholder_to_another_host_stops_the_request() {
    let vault = vault(&["header:authorization", "query:key"]);
    let p = placeholder(&vault);
    // The rule for evil.example.com adds the secret, but its declaration does not cover the host.
    for host in ["evil.example.com", "bare.example.com"] {
        let url = format!("https://{host}/");
        let bearer = format!("Bearer {p}");
        misused(get(&vault, &url, &[("authorization", &bearer)]), MisuseKind::OtherHost);
        misused(get(&vault, &format!("{url}?key={p}"), &[]), MisuseKind::OtherHost);
        misused(get(&vault, &format!("{url}{p}"), &[]), MisuseKind::OtherHost);
        misused(get(&vault, &url, &[("x-note", &STANDARD.encode(&p))]), MisuseKind::OtherHost);
        // The Host header does not influence the decision.
        let headers = [("host", "api.example.com"), ("authorization", bearer.as_str())];
        misused(get(&vault, &url, &headers), MisuseKind::OtherHost);
    }
}

#[test]
fn b13_secrets_are_never_sent_over_plain_http() {
    let vault = vault(&["header:authorization", "query:key"]);
    let p = placeholder(&vault);
    let url = "http://api.example.com/";
    misused(get(&vault, url, &[("authorization", &p)]), MisuseKind::PlainHttp);
    misused(get(&vault, &format!("{url}?key={p}"), &[]), MisuseKind::PlainHttp);
    assert!(get(&vault, url, &[("accept", "*/*")]).is_ok(), "the control");
}

#[test]
fn secret_is_inserted_only_into_requests_that_its_declaration_covers() {
    let decl = SecretDecl {
        methods: Some(["GET".parse().unwrap()].into()),
        paths: Some(vec!["/v1/**".parse().unwrap()]),
        ..token(&["header:authorization"])
    };
    let vault = of(vec![decl]);
    let bearer = format!("Bearer {}", placeholder(&vault));
    let headers = [("authorization", bearer.as_str())];
    assert!(get(&vault, URL, &headers).is_ok());
    misused(get(&vault, "https://api.example.com/v2", &headers), MisuseKind::NotGranted);
    misused(send(&vault, "DELETE", URL, &headers, b""), MisuseKind::NotGranted);
    // A server can read this path as two segments, so both readings must be allowed.
    let paths = Some(vec!["/v1/*".parse().unwrap()]);
    let vault = of(vec![SecretDecl { paths, ..token(&["header:authorization"]) }]);
    let bearer = format!("Bearer {}", placeholder(&vault));
    let headers = [("authorization", bearer.as_str())];
    assert!(get(&vault, "https://api.example.com/v1/a", &headers).is_ok(), "the control");
    let slashed = get(&vault, "https://api.example.com/v1/a%2Fadmin", &headers);
    misused(slashed, MisuseKind::NotGranted);
    // The declaration covers this host, but no rule adds the secret.
    let decl = SecretDecl {
        hosts: vec!["bare.example.com".parse().unwrap()],
        ..token(&["header:authorization"])
    };
    let vault = of(vec![decl]);
    let bearer = format!("Bearer {}", placeholder(&vault));
    let refused = get(&vault, "https://bare.example.com/", &[("authorization", &bearer)]);
    misused(refused, MisuseKind::NotGranted);
}

#[test]
fn a20_other_credentials_to_the_host_of_a_secret_are_refused() {
    let vault = vault(&["header:x-api-key", "query:key"]);
    let p = placeholder(&vault);
    for headers in [
        [("x-api-key", "sk-of-the-attacker"), ("accept", "*/*")],
        [("authorization", "Bearer sk-of-the-attacker"), ("accept", "*/*")],
        [("authorization", "Basic YTpi"), ("x-api-key", p.as_str())],
        [("x-goog-api-key", "of-the-attacker"), ("x-api-key", p.as_str())],
        [("x-api-key", ""), ("accept", "*/*")],
    ] {
        misused(get(&vault, URL, &headers), MisuseKind::OwnCredential);
    }
    for query in ["key=own", "access_token=own", "API_KEY=own", "k%65y=own", "X-Amz-Signature=00"] {
        misused(get(&vault, &format!("{URL}?{query}"), &[]), MisuseKind::OwnCredential);
    }
    // To hosts without a secret, programs can send their own credentials.
    let bare = "https://bare.example.com/?key=own";
    assert!(get(&vault, bare, &[("authorization", "Bearer own")]).is_ok());
    assert!(get(&vault, URL, &[("x-api-key", &p)]).is_ok(), "the control");
}

#[test]
fn error_about_a_misused_placeholder_names_the_secret_but_not_its_value() {
    let vault = vault(&["header:authorization"]);
    let p = placeholder(&vault);
    let misuse = get(&vault, URL, &[("x-note", &p)]).unwrap_err();
    assert_eq!(misuse.kind.name(), "placeholder-elsewhere");
    assert_eq!(misuse.secret, name("s"));
    assert_eq!(
        misuse.detail,
        "the placeholder of s is in the header x-note, which is not a slot of s"
    );
    let misuse = get(&vault, &format!("{URL}?q={p}"), &[]).unwrap_err();
    assert!(!misuse.to_string().contains(&p), "{misuse}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Checks that the value fills the whole slot or is not sent, with any text around the
    /// placeholder.
    #[test]
    fn b01_text_around_a_placeholder_does_not_leak_the_secret_value(
        before in "[ -~]{0,12}", after in "[ -~]{0,12}", header in "[a-z][a-z-]{0,11}",
    ) {
        let vault = vault(&["header:authorization"]);
        let text = format!("{before}{}{after}", placeholder(&vault));
        let permit = permit(&vault, URL, "GET");
        for name in [header.as_str(), "authorization"] {
            let Ok(request) = http::Request::builder().uri(URL).header(name, &text).body(()) else { continue };
            let mut parts = request.into_parts().0;
            let Ok(plan) = vault.plan(&permit, &parts, UNIX_EPOCH) else { continue };
            let injected = vault.inject(&permit, &Recorded::for_test(), plan, &mut parts, None);
            prop_assert!(injected.is_ok());
            prop_assert_eq!(name, "authorization");
            let word = before.trim_end_matches(' ');
            prop_assert!(after.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'));
        }
    }
}
