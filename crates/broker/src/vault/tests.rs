use std::time::UNIX_EPOCH;

use belljar_model::net::{Budget, Policy, Rule, RuleTarget, Scheme};
use belljar_model::{AskTimeout, Net};
use http::request::Parts;

use super::*;
use crate::record::Recorded;
use crate::rules::{OutboundRequest, Permit, Rules};
use crate::target::CanonicalPath;

mod captures;
mod misuse;
mod signers;
mod slots;
mod tokens;

const REAL: &str = "real-value-of-the-secret";

fn name(text: &str) -> SecretName {
    text.parse().unwrap()
}

fn value(text: &str) -> Value {
    Value::new(Zeroizing::new(text.as_bytes().to_vec())).unwrap()
}

/// Returns the declaration of a token named `s` for one host, with these slots.
fn token(slots: &[&str]) -> SecretDecl {
    let slots = slots.iter().map(|slot| slot.parse().unwrap()).collect();
    SecretDecl { slots, ..SecretDecl::token(name("s"), vec!["api.example.com".parse().unwrap()]) }
}

fn of(decls: Vec<SecretDecl>) -> Vault {
    let values = decls.iter().map(|decl| (decl.name.clone(), value(REAL))).collect();
    Vault::new(decls, values).unwrap()
}

fn vault(slots: &[&str]) -> Vault {
    of(vec![token(slots)])
}

/// Returns the placeholder of the only secret in the vault.
fn placeholder(vault: &Vault) -> String {
    vault.placeholders().remove(0).2
}

/// Returns a permit by rules that insert all secrets for api.example.com and allow everything else.
fn permit(vault: &Vault, url: &str, method: &str) -> Permit {
    let uri: http::Uri = url.parse().unwrap();
    let scheme = if uri.scheme_str() == Some("http") { Scheme::Http } else { Scheme::Https };
    let secrets: Vec<&str> = vault.names.iter().map(String::as_str).collect();
    let rule = |text: &str, secrets: &[&str]| {
        let mut rule = Rule::allow(text).unwrap();
        if let RuleTarget::Http(http) = &mut rule.what {
            http.secrets = secrets.iter().map(|name| name.parse().unwrap()).collect();
        }
        rule
    };
    let allow = vec![
        rule("api.example.com", &secrets),
        rule("http://api.example.com", &secrets),
        rule("bucket.s3.amazonaws.com", &secrets),
        rule("bare.example.com", &[]),
        rule("evil.example.com", &secrets),
    ];
    let policy = Policy {
        net: Net::Restricted,
        allow,
        deny: Vec::new(),
        ask: Vec::new(),
        ask_timeout: AskTimeout::default(),
        secrets: Vec::new(),
        budget: Budget::default(),
        proxy: None,
    };
    let request = OutboundRequest {
        scheme,
        target: uri.host().unwrap().parse().unwrap(),
        port: uri.port_u16().unwrap_or(scheme.port()),
        method: method.parse().unwrap(),
        path: CanonicalPath::parse(uri.path()).unwrap().0,
        upgrade: false,
    };
    Rules::new(&policy).check(&request).unwrap()
}

/// Returns the head of a request.
fn head(method: &str, url: &str, headers: &[(&str, &str)]) -> Parts {
    let mut request = http::Request::builder().method(method).uri(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

/// Returns a request after its secrets were inserted, with its body if any.
fn send(
    vault: &Vault,
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<(Parts, Vec<u8>, Injected), Misuse> {
    let permit = permit(vault, url, method);
    let mut parts = head(method, url, headers);
    let mut body = body.to_vec();
    let mut plan = vault.plan(&permit, &parts, UNIX_EPOCH)?;
    let whole = match plan.body() {
        BodyNeed::Guard => {
            assert_eq!(vault.finder().text(&body), None, "the guard must not stop this body");
            None
        }
        BodyNeed::Buffer => {
            vault.plan_body(&permit, &parts, &mut plan, &body)?;
            Some(&mut body)
        }
    };
    let injected = vault.inject(&permit, &Recorded::for_test(), plan, &mut parts, whole).unwrap();
    Ok((parts, body, injected))
}

fn get(vault: &Vault, url: &str, headers: &[(&str, &str)]) -> Result<Parts, Misuse> {
    send(vault, "GET", url, headers, b"").map(|(parts, ..)| parts)
}

#[track_caller]
fn misused(result: Result<impl std::fmt::Debug, Misuse>, kind: MisuseKind) {
    let misuse = result.expect_err("a misuse");
    assert_eq!(misuse.kind, kind, "{misuse}");
    assert!(!misuse.detail.contains(REAL), "{misuse}");
}

#[test]
fn b14_placeholder_of_another_box_is_refused() {
    let (one, other) = (vault(&["header:authorization"]), vault(&["header:authorization"]));
    assert_ne!(placeholder(&one), placeholder(&other));
    assert!(placeholder(&one).starts_with("bj_"));
    // In another box, the text is not a placeholder but a foreign credential.
    let bearer = format!("Bearer {}", placeholder(&one));
    let replayed = get(&other, "https://api.example.com/", &[("authorization", &bearer)]);
    misused(replayed, MisuseKind::OwnCredential);
}

#[test]
fn b03_slots_in_logged_or_forwarded_headers_are_refused() {
    for sink in ["cookie", "referer", "user-agent", "x-forwarded-for", "origin", "forwarded", "via"]
    {
        assert!(format!("header:{sink}").parse::<Slot>().is_err(), "{sink}");
        let decl = SecretDecl { slots: vec![Slot::Header(sink.to_owned())], ..token(&[]) };
        let refused = Vault::new(vec![decl], vec![(name("s"), value(REAL))]);
        assert!(matches!(refused, Err(VaultError::Slot { .. })), "{sink}");
    }
}

#[test]
fn vault_without_the_value_of_a_secret_is_refused() {
    let none = Vault::new(vec![token(&["basic"])], Vec::new());
    assert!(none.unwrap_err().to_string().contains("belljar secret set s"));
    let twice = vec![token(&["basic"]), token(&["basic"])];
    let twice = Vault::new(twice, vec![(name("s"), value(REAL))]);
    assert!(matches!(twice, Err(VaultError::Twice { .. })));
    let without_random = |_: &mut [u8]| Err(NoRandom);
    let values = vec![(name("s"), value(REAL))];
    let none = Vault::with_random(vec![token(&["basic"])], values, without_random);
    assert!(matches!(none, Err(VaultError::Random(_))));
}

#[test]
fn b16_debug_output_of_the_vault_contains_no_value() {
    let vault = vault(&["header:authorization", "query:key"]);
    let bearer = format!("Bearer {}", placeholder(&vault));
    let sent = send(&vault, "GET", "https://api.example.com/", &[("authorization", &bearer)], b"");
    let (parts, _, injected) = sent.unwrap();
    for text in [format!("{vault:?}"), format!("{injected:?}"), format!("{:?}", parts.headers)] {
        assert!(!text.contains(REAL), "{text}");
    }
    assert!(injected.scrubber.text(REAL.as_bytes()).starts_with(b"[belljar:s]"));
}
