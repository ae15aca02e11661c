//! Tests of the host of a request, for each combination of sources.

use http::Request;

use super::*;

fn parts(uri: &str, hosts: &[&str]) -> Parts {
    let request = hosts.iter().fold(Request::get(uri), |request, host| request.header(HOST, *host));
    request.body(()).unwrap().into_parts().0
}

#[track_caller]
fn check(uri: &str, hosts: &[&str], known: &[&str], port: u16) -> Result<Target, Misdirected> {
    let known: Vec<Target> = known.iter().map(|name| name.parse().unwrap()).collect();
    let known: Vec<&Target> = known.iter().collect();
    authority(&parts(uri, hosts), Scheme::Https, &known, port)
}

fn target(text: &str) -> Target {
    text.parse().unwrap()
}

#[test]
fn equal_hosts_in_all_places_are_accepted() {
    for (uri, hosts) in [
        ("/", &["a.example"][..]),
        ("/", &["A.Example"]),
        ("/", &["a.example:443"]),
        ("https://a.example/", &[]),
        ("https://a.example/", &["a.example"]),
        ("https://A.example:443/", &["a.example"]),
    ] {
        let got = check(uri, hosts, &["a.example", "a.example"], 443);
        assert_eq!(got, Ok(target("a.example")), "{uri} {hosts:?}");
    }
    assert_eq!(check("/", &["a.example:8443"], &["a.example"], 8443), Ok(target("a.example")));
    assert_eq!(check("/", &["[2001:db8::1]:8443"], &[], 8443), Ok(target("[2001:db8::1]")));
    assert_eq!(check("/", &["192.0.2.1"], &[], 443), Ok(target("192.0.2.1")));
}

#[test]
fn a13_request_for_another_host_than_the_connection_is_refused() {
    for (uri, hosts, known) in [
        ("/", &["other.example"][..], &["a.example"][..]),
        ("https://other.example/", &[], &["a.example"]),
        ("https://other.example/", &["other.example"], &["a.example"]),
        ("/", &["a.example"], &["a.example", "other.example"]),
        ("/", &["x.a.example"], &["a.example"]),
        ("/", &["192.0.2.1"], &["a.example"]),
    ] {
        let error = check(uri, hosts, known, 443).unwrap_err();
        assert!(matches!(error, Misdirected::Connection { .. }), "{uri} {hosts:?} {known:?}");
        assert_eq!(error.status(), 421);
    }
    let error = check("/", &["a.example:8443"], &["a.example"], 443).unwrap_err();
    assert_eq!(
        (error.status(), error),
        (421, Misdirected::Port { request: 8443, connection: 443 })
    );
    let error = check("/", &["a.example"], &["a.example"], 8443).unwrap_err();
    assert_eq!(error, Misdirected::Port { request: 443, connection: 8443 });
}

#[test]
fn a25_missing_duplicate_or_malformed_host_is_refused() {
    let status = |result: Result<Target, Misdirected>| result.unwrap_err().status();
    for (uri, hosts) in [
        ("/", &[][..]),
        ("/", &["a.example", "a.example"]),
        ("/", &["a.example", "b.example"]),
        ("https://a.example/", &["b.example"]),
        ("https://a.example/", &["a.example:8443"]),
        ("http://a.example/", &["a.example"]),
        ("/", &["user@a.example"]),
        ("/", &["user:pass@a.example"]),
        ("/", &["a.example@evil.example"]),
        ("/", &[""]),
        ("/", &["a.example."]),
        ("/", &["a.example:"]),
        ("/", &["a.example:443:443"]),
        ("/", &["a.example:0443"]),
        ("/", &["a.example:+443"]),
        ("/", &["a.example:99999"]),
        ("/", &["a.example/x"]),
        ("/", &["a.example b.example"]),
        ("/", &["a.example,b.example"]),
        ("/", &["a_b.example"]),
        ("/", &["127.1"]),
        ("/", &["0x7f000001"]),
        ("/", &["2001:db8::1"]),
        ("/", &["[fe80::1%25eth0]"]),
    ] {
        assert_eq!(status(check(uri, hosts, &["a.example"], 443)), 400, "{uri} {hosts:?}");
    }
    let mut odd = parts("/", &[]);
    odd.headers.insert(HOST, http::HeaderValue::from_bytes(b"a.example\xff").unwrap());
    assert_eq!(authority(&odd, Scheme::Https, &[], 443), Err(Misdirected::NotText));
    // Control: one plain host is accepted.
    assert!(check("/", &["a.example"], &["a.example"], 443).is_ok());
}
