//! Tests of parsing and printing names, patterns, rules and secrets.

use std::fmt::{Debug, Display};
use std::str::FromStr;
use std::time::Duration;

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;

/// Checks that a text is valid, prints as `expect`, and survives printing, JSON and frames.
#[track_caller]
fn accepted<T>(text: &str, expect: &str)
where
    T: FromStr<Err: Display> + Display + Debug + PartialEq + Serialize + DeserializeOwned,
{
    let value: T = text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"));
    assert_eq!(value.to_string(), expect);
    assert_eq!(expect.parse::<T>().ok().as_ref(), Some(&value));
    let json = serde_json::to_string(&value).unwrap();
    assert_eq!(serde_json::from_str::<T>(&json).unwrap(), value);
    let frame = postcard::to_allocvec(&value).unwrap();
    assert_eq!(postcard::from_bytes::<T>(&frame).unwrap(), value);
}

/// Checks that a text is refused, also in JSON and in a frame.
#[track_caller]
fn refused<T: FromStr + DeserializeOwned + Debug>(text: &str) {
    assert!(text.parse::<T>().is_err(), "{text:?} was accepted");
    let json = serde_json::to_string(text).unwrap();
    assert!(serde_json::from_str::<T>(&json).is_err(), "{text:?} was accepted in JSON");
    let frame = postcard::to_allocvec(text).unwrap();
    assert!(postcard::from_bytes::<T>(&frame).is_err(), "{text:?} was accepted in a frame");
}

#[test]
fn host_name_has_only_letters_digits_and_hyphens() {
    accepted::<Hostname>("api.github.com", "api.github.com");
    accepted::<Hostname>("API.GitHub.com", "api.github.com");
    accepted::<Hostname>("xn--bcher-kva.example", "xn--bcher-kva.example");
    accepted::<Hostname>("1password.com", "1password.com");
    accepted::<Hostname>("a", "a");
    accepted::<Hostname>(&format!("{}.com", "a".repeat(63)), &format!("{}.com", "a".repeat(63)));
    for text in [
        "",
        ".",
        "..",
        "a.",
        "a..b",
        ".a",
        "-a.com",
        "a-.com",
        "a b.com",
        "a_b.com",
        "a%2eb",
        "bücher.example",
        "a\0.com",
        "*.com",
        "user@host",
        "host:1",
        "host/",
        "[::1]",
        "a\n",
        "１.com",
        "a。com",
    ] {
        refused::<Hostname>(text);
    }
    refused::<Hostname>(&format!("{}.com", "a".repeat(64)));
    refused::<Hostname>(&"a.".repeat(127).trim_end_matches('.').repeat(2));
}

#[test]
fn a01_host_name_with_an_invalid_byte_is_refused() {
    let host = b"evil.allowed.com";
    for at in 0..=host.len() {
        for byte in 0..=u8::MAX {
            let mut bytes = host.to_vec();
            bytes.insert(at, byte);
            let Ok(text) = std::str::from_utf8(&bytes) else { continue };
            let parsed = text.parse::<Hostname>();
            let legal = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
            assert!(legal || parsed.is_err(), "{text:?}");
            // An accepted name contains the byte; nothing else than letter case was changed.
            if let Ok(name) = parsed {
                assert_eq!(name.as_str(), text.to_ascii_lowercase());
            }
            assert!(legal || text.parse::<Target>().is_err() || byte == b':', "{text:?}");
        }
    }
    // The name without the byte is valid.
    accepted::<Hostname>("evil.allowed.com", "evil.allowed.com");
}

#[test]
fn a08_address_in_a_non_canonical_form_is_refused() {
    accepted::<Target>("192.0.2.1", "192.0.2.1");
    accepted::<Target>("[2001:db8::1]", "[2001:db8::1]");
    accepted::<Target>("2001:DB8::1", "[2001:db8::1]");
    accepted::<Target>("::1", "[::1]");
    accepted::<Target>("localhost", "localhost");
    for text in [
        "0x7f.1",
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "127.1",
        "127.0.1",
        "127.0.0.01",
        "127.0.0.1.",
        "localhost.",
        "fe80::1%eth0",
        "[fe80::1%25eth0]",
        "[::1",
        "::1]",
        "[127.0.0.1]",
        "0:0:0:0:0:0:0:1",
        "2001:db8:0:0::1",
        "::ffff:7f00:1",
        "1.2.3.4.5",
        "256.1.1.1",
        "1.2.3",
        "127.0.0.0x1",
        "0x",
        "٣.٣.٣.٣",
        "127。0。0。1",
        "127.0.0.1:80",
        "[]",
        "[]:80",
    ] {
        refused::<Target>(text);
    }
}

#[test]
fn a09_wildcard_matches_whole_labels_only() {
    let matches = |pattern: &str, name: &str| {
        pattern.parse::<HostPattern>().unwrap().matches(&name.parse().unwrap())
    };
    assert!(matches("*.ex.com", "a.ex.com") && matches("*.ex.com", "a.b.ex.com"));
    assert!(matches("*.EX.com", "A.ex.COM"));
    for name in ["ex.com", "evil-ex.com", "evilex.com", "ex.com.evil.com", "a.ex.com.evil", "com"] {
        assert!(!matches("*.ex.com", name), "{name}");
    }
    assert!(matches("ex.com", "ex.com") && !matches("ex.com", "a.ex.com"));
    assert!(!matches("xn--ex-abc.com", "ex.com"));
    assert!(matches("10.0.0.5", "10.0.0.5") && !matches("10.0.0.5", "10.0.0.50"));
    for text in [
        "*",
        "*.",
        "**.ex.com",
        "*ex.com",
        "a.*.com",
        "a.*",
        "*.*.com",
        "*.10.0.0.1",
        "*.[::1]",
        "ex.com.",
        "*.ex.com.",
        "ex.c*m",
        "éx.com",
        "*.éx.com",
    ] {
        assert!(text.parse::<HostPattern>().is_err(), "{text}");
        assert!(HostPattern::for_deny(text).is_err(), "{text}");
    }
}

#[test]
fn a09_wildcard_over_names_of_unrelated_owners_is_refused() {
    for name in [
        "com",
        "co.uk",
        "github.io",
        "s3.amazonaws.com",
        "s3.eu-west-1.amazonaws.com",
        "ngrok.io",
        "workers.dev",
        "internal",
        "googleapis.com",
        "blob.core.windows.net",
    ] {
        let text = format!("*.{name}");
        let error = text.parse::<HostPattern>().unwrap_err();
        assert!(matches!(error, HostPatternError::Strangers(..)), "{text}: {error}");
        assert!(Rule::allow(&text).is_err(), "{text}");
        // A wildcard below one's own domain is valid, and a `deny` rule can be wide.
        assert!(format!("*.mine.{name}").parse::<HostPattern>().is_ok() || name.contains("amazon"));
        assert!(Rule::deny(&text).is_ok(), "{text}");
    }
}

#[test]
fn path_pattern_matches_a_path_segment_by_segment() {
    let matches = |pattern: &str, path: &str| pattern.parse::<PathPattern>().unwrap().matches(path);
    for (pattern, path, expect) in [
        ("/", "/", true),
        ("/", "/a", false),
        ("/**", "/", true),
        ("/**", "/a/b", true),
        ("/repos/acme/**", "/repos/acme", true),
        ("/repos/acme/**", "/repos/acme/", true),
        ("/repos/acme/**", "/repos/acme/x/y", true),
        ("/repos/acme/**", "/repos/acmex", false),
        ("/repos/acme/**", "/repos", false),
        ("/repos/*/issues", "/repos/a/issues", true),
        ("/repos/*/issues", "/repos/a/b/issues", false),
        ("/repos/*/issues", "/repos//issues", true),
        ("/a/**/z", "/a/z", true),
        ("/a/**/z", "/a/b/c/z", true),
        ("/a/**/z", "/a/b/c/zz", false),
        ("/*.tar.gz", "/x.tar.gz", true),
        ("/*.tar.gz", "/x.tar.gzz", false),
        ("/a*b*c", "/aXbYbZc", true),
        ("/a*b*c", "/aXbY", false),
        ("/A", "/a", false),
        ("/%c3%a9", "/%C3%A9", true),
    ] {
        assert_eq!(matches(pattern, path), expect, "{pattern} {path}");
    }
    for text in [
        "",
        "a",
        "a/b",
        "//",
        "/a//b",
        "/./a",
        "/..",
        "/a/../b",
        "/a?b",
        "/a#b",
        "/a***",
        "/a**",
        "/a b",
        "/é",
        "/a\\b",
        "/a;b",
        "/%41",
        "/%2e%2e",
        "/%",
        "/%4",
        "/%zz",
        "/%00",
        "/%+1",
        "/**/**/**/**/**",
    ] {
        refused::<PathPattern>(text);
    }
    accepted::<PathPattern>("/a/%2f/@x:y/**", "/a/%2F/@x:y/**");
}

#[test]
fn methods_rates_and_money_are_parsed_and_printed() {
    accepted::<Method>("GET", "GET");
    accepted::<Method>("VERSION-CONTROL", "VERSION-CONTROL");
    for text in ["", "get", "Get", "GET ", "G\0T", "-GET", "GET,POST", "ÄT", "*"] {
        refused::<Method>(text);
    }
    accepted::<Rate>("60/min", "60/min");
    accepted::<Rate>("60/m", "60/min");
    accepted::<Rate>("5/s", "5/s");
    accepted::<Rate>("10000/day", "10000/day");
    accepted::<Rate>("3/10s", "3/10s");
    assert_eq!("90/h".parse::<Rate>(), Ok(Rate { count: 90, per: Duration::from_secs(3600) }));
    for text in ["", "60", "/min", "60/", "0/min", "60/0s", "-1/s", "1.5/s", "60/week", "60 /min"] {
        refused::<Rate>(text);
    }
    accepted::<MicroUsd>("5 USD", "5 USD");
    accepted::<MicroUsd>("$5", "5 USD");
    accepted::<MicroUsd>("0.5USD", "0.50 USD");
    accepted::<MicroUsd>("$0.000001", "0.000001 USD");
    for text in ["", "5", "$", "$5 USD", "5 EUR", "-5 USD", "$0.0000001", "$1e3", "$1,5"] {
        refused::<MicroUsd>(text);
    }
}

#[test]
fn slots_placeholder_formats_and_captures_are_parsed_and_printed() {
    accepted::<Slot>("header:Authorization", "header:authorization");
    accepted::<Slot>("basic", "basic");
    accepted::<Slot>("query:key", "query:key");
    accepted::<Slot>("json:/auth/~1x", "json:/auth/~1x");
    for text in [
        "",
        "header",
        "header:",
        "header:a b",
        "header:Cookie",
        "header:referer",
        "header:host",
        "header:x-forwarded-for",
        "header:User-Agent",
        "query:",
        "query:a=b",
        "json:",
        "json:a",
        "json:/~2",
        "body",
        "basic:",
    ] {
        refused::<Slot>(text);
    }
    accepted::<Shape>("ghp_{36}", "ghp_{36}");
    accepted::<Shape>("sk-ant-api03-{93}AA", "sk-ant-api03-{93}AA");
    accepted::<Shape>("{10}.{10}", "{10}.{10}");
    assert_eq!("ghp_{36}".parse::<Shape>().unwrap().len(), 40);
    assert_eq!(Shape::default().to_string(), "bj_{40}");
    for text in [
        "",
        "abc",
        "{}",
        "{0}",
        "{19}",
        "ghp_{36",
        "ghp_36}",
        "{a}",
        "{{20}}",
        "{1025}",
        "a b{20}",
        "a\n{20}",
        "a:b{20}",
        "{99999999999999999999999}",
        "{020}",
        "é{20}",
        "a\"{20}",
        "{9}{9}",
    ] {
        refused::<Shape>(text);
    }
    accepted::<Capture>("/oauth/token json:/access_token", "/oauth/token json:/access_token");
    accepted::<Capture>("/login header:X-Token", "/login header:x-token");
    for text in ["", "/a", "/a ", "a json:/x", "/a json:x", "/a query:x", "/a basic"] {
        refused::<Capture>(text);
    }
    accepted::<SecretName>("github", "github");
    accepted::<SecretName>("1-a_b", "1-a_b");
    for text in ["", "-a", "_a", "A", "a.b", "a/b", "a b", &"a".repeat(65), "é"] {
        refused::<SecretName>(text);
    }
}

#[test]
fn signers_and_proxies_are_parsed_and_printed() {
    accepted::<SignedMessage>("{timestamp}.{body}", "{timestamp}.{body}");
    accepted::<SignedMessage>("{method}\n{path}\n", "{method}\n{path}\n");
    for text in ["", "x", "{timestamp}", "{host}", "{Body}", "{body", "body}", "{}"] {
        refused::<SignedMessage>(text);
    }
    accepted::<TokenUrl>(
        "https://oauth2.googleapis.com/token",
        "https://oauth2.googleapis.com/token",
    );
    accepted::<TokenUrl>("https://h.example:8443", "https://h.example:8443/");
    for text in [
        "",
        "http://a/",
        "https://",
        "https://a/?b",
        "https://u@a/",
        "https://a:0/",
        "https://a/../b",
    ] {
        refused::<TokenUrl>(text);
    }
    accepted::<Proxy>("http://proxy.corp:3128", "http://proxy.corp:3128");
    accepted::<Proxy>("http://10.0.0.1:3128/", "http://10.0.0.1:3128");
    accepted::<Proxy>("http://[::1]:1", "http://[::1]:1");
    for text in ["", "proxy:1", "https://p:1", "http://p", "http://u:p@p:1", "http://p:99999"] {
        refused::<Proxy>(text);
    }
}

#[track_caller]
fn allow(text: &str, expect: &str) {
    let rule = Rule::allow(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(rule.id, format!("allow {expect}"));
    let frame = postcard::to_allocvec(&rule).unwrap();
    assert_eq!(postcard::from_bytes::<Rule>(&frame).unwrap(), rule);
    let json = serde_json::to_string(&rule).unwrap();
    assert_eq!(serde_json::from_str::<Rule>(&json).unwrap(), rule);
    assert_eq!(Rule::allow(expect).unwrap(), rule, "the printed rule parses to the same rule");
}

#[test]
fn network_rules_in_the_short_form_are_parsed_and_printed() {
    allow("api.github.com", "api.github.com");
    allow("https://api.github.com:443", "api.github.com");
    allow("*.example.com:8443", "*.example.com:8443");
    allow("GET,POST https://api.github.com/repos/acme/**", "GET,POST api.github.com/repos/acme/**");
    allow("POST,GET api.github.com", "GET,POST api.github.com");
    allow("http://deb.debian.org", "http://deb.debian.org");
    allow("deb.debian.org:80", "http://deb.debian.org");
    allow("http://h.example:8080/x", "http://h.example:8080/x");
    allow("tcp://db.internal:5432", "tcp://db.internal:5432");
    allow("tcp://[2001:db8::1]:22", "tcp://[2001:db8::1]:22");
    allow("host-port:5432", "host-port:5432");
    allow("[2001:db8::1]:8443", "[2001:db8::1]:8443");
    allow("registry.npmjs.org/@types/*", "registry.npmjs.org/@types/*");
    for text in [
        "",
        " ",
        "*",
        "https://",
        "ftp://a.com",
        "a.com:0",
        "a.com:99999",
        "a.com:+1",
        "a.com:",
        "u@a.com",
        "get a.com",
        "GET a.com b.com",
        "TRACE a.com",
        "CONNECT a.com",
        "a.com/../b",
        "a.com?x",
        "tcp://a.com",
        "tcp://*.a.com:1",
        "tcp://a.com:0",
        "tcp://127.0.0.1:1",
        "tcp://localhost:1",
        "host-port:",
        "host-port:0",
        "host-port:65536",
        "host-port:05",
        "127.0.0.1",
        "[::1]",
        "localhost",
        "x.localhost",
        "host.belljar.internal",
        "0.0.0.0",
    ] {
        assert!(Rule::allow(text).is_err(), "{text:?} was accepted");
    }
    let deny = |text: &str| Rule::deny(text).unwrap();
    assert!(deny("evil.com").http().unwrap().ports.is_empty());
    assert_eq!(deny("http://evil.com").http().unwrap().ports, [80]);
    assert_eq!(deny("evil.com:8443").http().unwrap().ports, [8443]);
    assert_eq!(deny("*.github.io").id, "deny *.github.io");
}

#[test]
fn rule_with_contradicting_parts_is_refused() {
    let base = || HttpRule::https("a.example".parse().unwrap());
    let secret = || std::collections::BTreeSet::from(["s".parse().unwrap()]);
    let refused = |http: HttpRule, expect: RuleError| {
        assert_eq!(Rule::allowing(None, RuleTarget::Http(http)), Err(expect));
    };
    assert!(
        Rule::allowing(None, RuleTarget::Http(HttpRule { secrets: secret(), ..base() })).is_ok()
    );
    refused(
        HttpRule { scheme: Scheme::Http, secrets: secret(), ..base() },
        RuleError::SecretOverHttp,
    );
    let blind = || HttpRule { tls: Tls::Passthrough, ..base() };
    refused(HttpRule { secrets: secret(), ..blind() }, RuleError::Passthrough("secrets"));
    refused(
        HttpRule { paths: Some(vec!["/a".parse().unwrap()]), ..blind() },
        RuleError::Passthrough("paths"),
    );
    refused(HttpRule { methods: Some([].into()), ..base() }, RuleError::NoMethods);
    refused(HttpRule { paths: Some(vec![]), ..base() }, RuleError::NoPaths);
    refused(HttpRule { ports: vec![], ..base() }, RuleError::NoPorts);
    refused(HttpRule { connect: Some("0.0.0.0:1".parse().unwrap()), ..base() }, RuleError::Connect);
    refused(HttpRule { connect: Some("1.2.3.4:0".parse().unwrap()), ..base() }, RuleError::Connect);
    let deny = HttpRule { connect: Some("1.2.3.4:1".parse().unwrap()), ..base() };
    assert_eq!(Rule::denying(None, RuleTarget::Http(deny)), Err(RuleError::InDeny("connect")));
    assert_eq!(HttpRule::scheme_of(&[80]), Ok(Scheme::Http));
    assert_eq!(HttpRule::scheme_of(&[443, 8443]), Ok(Scheme::Https));
    assert_eq!(HttpRule::scheme_of(&[80, 443]), Err(RuleError::MixedPorts));
}

proptest! {
    #[test]
    fn network_parsers_never_panic_on_any_text(text in "(\\PC|[\\x00-\\x20]|[a-z0-9.*:/%{}@-]){0,40}") {
        if let Ok(name) = text.parse::<Hostname>() {
            prop_assert_eq!(name.to_string().parse(), Ok(name));
        }
        if let Ok(target) = text.parse::<Target>() {
            prop_assert_eq!(target.to_string().parse(), Ok(target));
        }
        if let Ok(pattern) = text.parse::<HostPattern>() {
            prop_assert_eq!(pattern.to_string().parse(), Ok(pattern));
        }
        if let Ok(pattern) = text.parse::<PathPattern>() {
            prop_assert_eq!(pattern.to_string().parse(), Ok(pattern));
        }
        if let Ok(shape) = text.parse::<Shape>() {
            prop_assert_eq!(shape.to_string().parse(), Ok(shape));
        }
        if let Ok(rule) = Rule::allow(&text) {
            prop_assert_eq!(Rule::allow(&rule.what.to_string()), Ok(rule));
        }
        Rule::deny(&text).ok();
        text.parse::<Slot>().ok();
        text.parse::<Capture>().ok();
        text.parse::<SignedMessage>().ok();
    }

    #[test]
    fn a09_wildcard_matches_names_that_end_with_its_labels(
        parent in "[a-z]{1,5}\\.[a-z]{1,5}\\.example",
        left in "([a-z]{1,3}\\.){0,3}",
        junk in "[a-z-]{0,3}",
    ) {
        let pattern = format!("*.{parent}").parse::<HostPattern>().unwrap();
        let name = format!("{left}{junk}{parent}");
        let Ok(target) = name.parse::<Target>() else { return Ok(()) };
        let parent: Vec<&str> = parent.split('.').collect();
        let labels: Vec<&str> = name.split('.').collect();
        let expect = labels.len() > parent.len() && labels.ends_with(&parent);
        prop_assert_eq!(pattern.matches(&target), expect);
    }
}
