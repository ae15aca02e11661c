//! Tests of signing keys, which are never sent.

use super::*;

use std::time::{Duration, SystemTime};

const PAIR: &str = "AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn aws() -> Vault {
    let decl = SecretDecl {
        hosts: vec!["bucket.s3.amazonaws.com".parse().unwrap()],
        kind: SecretKind::SigV4 { region: None, service: None },
        ..token(&["header:authorization"])
    };
    Vault::new(vec![decl], vec![(name("s"), value(PAIR))]).unwrap()
}

fn hmac(message: &str) -> Vault {
    let kind = SecretKind::Hmac {
        header: "x-signature".to_owned(),
        algorithm: belljar_model::net::HmacAlgorithm::Sha256,
        encoding: belljar_model::net::HmacEncoding::Hex,
        prefix: "sha256=".to_owned(),
        message: message.parse().unwrap(),
        timestamp_header: Some("x-timestamp".to_owned()),
    };
    of(vec![SecretDecl { kind, ..token(&["header:authorization"]) }])
}

#[test]
fn b22_request_signed_with_placeholders_is_signed_again() {
    let vault = aws();
    let given = vault.placeholders();
    let [(_, id_variable, id), (_, key_variable, key)] = given.as_slice() else { panic!() };
    assert_eq!(id_variable.as_deref(), Some("AWS_ACCESS_KEY_ID"));
    assert_eq!(key_variable.as_deref(), Some("AWS_SECRET_ACCESS_KEY"));
    let old = format!(
        "AWS4-HMAC-SHA256 Credential={id}/20130524/us-east-1/s3/aws4_request, SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, Signature=00"
    );
    let url = "https://bucket.s3.amazonaws.com/test.txt";
    let headers = [
        ("host", "bucket.s3.amazonaws.com"),
        ("authorization", old.as_str()),
        ("range", "bytes=0-9"),
        ("x-amz-content-sha256", EMPTY),
        ("x-amz-date", "20130524T000000Z"),
    ];
    let permit = permit(&vault, url, "GET");
    let mut parts = head("GET", url, &headers);
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_369_353_600);
    let plan = vault.plan(&permit, &parts, at).unwrap();
    assert_eq!(plan.body(), BodyNeed::Guard, "the request contains the hash of the body");
    let used: Vec<Used> = plan.uses(&vault).collect();
    assert_eq!(used, [Used { name: name("s"), slot: "sigv4".to_owned() }]);
    let injected = vault.inject(&permit, &Recorded::for_test(), plan, &mut parts, None).unwrap();
    let authorization = parts.headers["authorization"].to_str().unwrap();
    assert!(
        authorization
            .starts_with("AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/"),
        "{authorization}"
    );
    assert!(!authorization.contains(id.as_str()) && !authorization.contains(key.as_str()));
    let (pair_id, pair_key) = PAIR.split_once(':').unwrap();
    let echo = format!("{pair_id} {pair_key}");
    let clean = injected.scrubber.text(echo.as_bytes()).into_owned();
    assert_eq!(String::from_utf8(clean).unwrap(), format!("{pair_id} [belljar:s]"));
    assert_eq!(parts.headers["range"], "bytes=0-9");
    // The placeholder of the secret key must not appear in a request.
    let refused = get(&vault, url, &[("authorization", key)]);
    misused(refused, MisuseKind::Elsewhere);
    misused(get(&vault, url, &[("authorization", id)]), MisuseKind::Elsewhere);
    let presigned =
        format!("{url}?X-Amz-Credential={id}%2F20130524%2Fus-east-1%2Fs3%2Faws4_request");
    misused(get(&vault, &presigned, &[]), MisuseKind::Elsewhere);
}

#[test]
fn b22_session_token_is_removed_from_responses() {
    let decl = SecretDecl {
        hosts: vec!["bucket.s3.amazonaws.com".parse().unwrap()],
        kind: SecretKind::SigV4 { region: None, service: None },
        ..token(&["header:authorization"])
    };
    let session = format!("{PAIR}:token-of-the-session");
    let vault = Vault::new(vec![decl], vec![(name("s"), value(&session))]).unwrap();
    let old = format!(
        "AWS4-HMAC-SHA256 Credential={}/20130524/us-east-1/s3/aws4_request, SignedHeaders=host;range, Signature=00",
        placeholder(&vault)
    );
    let url = "https://bucket.s3.amazonaws.com/test.txt";
    let headers = [("authorization", old.as_str()), ("range", "bytes=0-9")];
    let (parts, _, injected) = send(&vault, "GET", url, &headers, b"").unwrap();
    assert_eq!(parts.headers["x-amz-security-token"], "token-of-the-session");
    let answer = injected.scrubber.text(b"<Token>token-of-the-session");
    assert_eq!(answer.as_ref(), b"<Token>[belljar:s]");
    assert_eq!(parts.headers["range"], "bytes=0-9");
    let authorization = parts.headers["authorization"].to_str().unwrap();
    assert!(authorization.contains("SignedHeaders=host;range;"), "{authorization}");
}

#[test]
fn b22_signature_of_another_account_is_refused() {
    let vault = aws();
    let own = "AWS4-HMAC-SHA256 Credential=AKIAATTACKERATTACKER/20130524/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=00";
    let url = "https://bucket.s3.amazonaws.com/test.txt";
    misused(get(&vault, url, &[("authorization", own)]), MisuseKind::OwnCredential);
}

#[test]
fn b22_every_covered_request_gets_an_hmac() {
    let vault = hmac("{timestamp}.{body}");
    let url = "https://api.example.com/hook";
    let (parts, _, injected) =
        send(&vault, "POST", url, &[("x-signature", "sha256=of-the-box")], b"payload").unwrap();
    assert_eq!(parts.headers["x-timestamp"], "0");
    // printf '0.payload' | openssl dgst -sha256 -hmac real-value-of-the-secret
    let expect = "sha256=cc0c20af708f764c77758b833071b701bcb0c745d90244e12c2aa207e0087826";
    assert_eq!(parts.headers["x-signature"], expect);
    assert_eq!(injected.used, [Used { name: name("s"), slot: "hmac:x-signature".to_owned() }]);
    let elsewhere = get(&vault, "https://bare.example.com/", &[]).unwrap();
    assert!(!elsewhere.headers.contains_key("x-signature"));
    // The placeholder of a signing key is never sent.
    let p = placeholder(&vault);
    misused(get(&vault, url, &[("authorization", &p)]), MisuseKind::Elsewhere);
}

#[test]
fn hmac_that_covers_only_the_head_needs_no_body() {
    let vault = hmac("{method} {path}");
    let permit = permit(&vault, "https://api.example.com/a", "GET");
    let plan = vault.plan(&permit, &head("GET", "https://api.example.com/a", &[]), UNIX_EPOCH);
    assert_eq!(plan.unwrap().body(), BodyNeed::Guard);
}

#[test]
fn sigv4_secret_without_a_key_pair_is_refused() {
    let decl = SecretDecl {
        kind: SecretKind::SigV4 { region: None, service: None },
        ..token(&["header:authorization"])
    };
    let refused = Vault::new(vec![decl], vec![(name("s"), value("only-one-part"))]);
    assert!(matches!(refused, Err(VaultError::Kind { source: KindError::SigV4, .. })));
}
