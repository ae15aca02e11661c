use std::time::{Duration, UNIX_EPOCH};

use super::*;

/// The AWS key pair of the published examples.
const SUITE: &str = "AKIDEXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const S3: &str = "AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// The time of the published examples: 2015-08-30 12:36:00.
const AT: u64 = 1_440_938_160;
const S3_AT: u64 = 1_369_353_600;

fn value(text: &str) -> Value {
    Value::new(Zeroizing::new(text.as_bytes().to_vec())).unwrap()
}

struct Case<'a> {
    keys: &'a str,
    at: u64,
    service: &'a str,
    method: &'a str,
    path: &'a str,
    query: &'a str,
    headers: &'a [(&'static str, &'a str)],
    body: Option<&'a [u8]>,
}

impl Default for Case<'_> {
    fn default() -> Self {
        Self {
            keys: SUITE,
            at: AT,
            service: "service",
            method: "GET",
            path: "/",
            query: "",
            headers: &[],
            body: Some(b""),
        }
    }
}

/// Signs a request that the box has signed with a placeholder.
fn signed(case: &Case<'_>) -> Result<HeaderMap, SigV4Error> {
    let names: Vec<&str> = case.headers.iter().map(|(name, _)| *name).collect();
    let old = format!(
        "{SCHEME} Credential=PLACEHOLDER/20000101/us-east-1/{}/aws4_request, SignedHeaders={}, Signature=00",
        case.service,
        names.join(";")
    );
    let claim = Claim::parse(&old).unwrap();
    assert_eq!(claim.id, "PLACEHOLDER");
    let mut headers = HeaderMap::new();
    let host = case.headers.iter().find(|(name, _)| *name == "host");
    let host = host.map_or("example.amazonaws.com", |(_, host)| host);
    for (name, value) in case.headers {
        headers.append(*name, value.parse().unwrap());
    }
    headers.insert(AUTHORIZATION, old.parse().unwrap());
    let request =
        Request { method: case.method, path: case.path, query: case.query, host, body: case.body };
    let value = value(case.keys);
    let keys = Keys::parse(&value).unwrap();
    let stamp = Stamp::at(UNIX_EPOCH + Duration::from_secs(case.at));
    sign(&keys, &claim.scope(None, None), &stamp, &request, &mut headers)?;
    Ok(headers)
}

#[track_caller]
fn check(case: &Case<'_>, names: &str, signature: &str) {
    let headers = signed(case).unwrap();
    let authorization = headers[AUTHORIZATION].to_str().unwrap();
    assert!(
        authorization.ends_with(&format!(", SignedHeaders={names}, Signature={signature}")),
        "{authorization}"
    );
    assert!(headers[AUTHORIZATION].is_sensitive());
}

#[test]
fn b22_aws_signatures_match_the_published_test_suite() {
    let base = Case::default;
    check(
        &base(),
        "host;x-amz-date",
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
    );
    check(
        &Case { query: "Param2=value2&Param1=value1", ..base() },
        "host;x-amz-date",
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    );
    check(
        &Case { method: "POST", ..base() },
        "host;x-amz-date",
        "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
    );
    check(
        &Case {
            method: "POST",
            headers: &[("content-type", "application/x-www-form-urlencoded")],
            body: Some(b"Param1=value1"),
            ..base()
        },
        "content-type;host;x-amz-date",
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
    );
    check(
        &Case {
            service: "iam",
            query: "Action=ListUsers&Version=2010-05-08",
            headers: &[
                ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
                ("host", "iam.amazonaws.com"),
            ],
            ..base()
        },
        "content-type;host;x-amz-date",
        "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
    );
}

#[test]
fn b22_aws_signatures_match_the_published_s3_examples() {
    let host = ("host", "examplebucket.s3.amazonaws.com");
    let hash = ("x-amz-content-sha256", EMPTY);
    let base = || Case { keys: S3, at: S3_AT, service: "s3", ..Case::default() };
    check(
        &Case { path: "/test.txt", headers: &[host, hash, ("range", "bytes=0-9")], ..base() },
        "host;range;x-amz-content-sha256;x-amz-date",
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    );
    check(
        &Case { query: "lifecycle", headers: &[host, hash], ..base() },
        "host;x-amz-content-sha256;x-amz-date",
        "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
    );
    check(
        &Case { query: "max-keys=2&prefix=J", headers: &[host, hash], ..base() },
        "host;x-amz-content-sha256;x-amz-date",
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
    );
    check(
        &Case {
            method: "PUT",
            path: "/test%24file.text",
            headers: &[
                host,
                ("date", "Fri, 24 May 2013 00:00:00 GMT"),
                ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            ],
            body: Some(b"Welcome to Amazon S3."),
            ..base()
        },
        "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
    );
}

#[test]
fn b22_aws_signature_ignores_the_time_and_session_token_of_the_box() {
    let case = Case {
        headers: &[("x-amz-date", "20990101T000000Z"), ("x-amz-security-token", "of-the-box")],
        ..Case::default()
    };
    let headers = signed(&case).unwrap();
    assert_eq!(headers["x-amz-date"], "20150830T123600Z");
    assert!(!headers.contains_key("x-amz-security-token"));
    let session = format!("{SUITE}:real-session-token");
    let headers = signed(&Case { keys: &session, ..case }).unwrap();
    assert_eq!(headers["x-amz-security-token"], "real-session-token");
    assert!(headers["x-amz-security-token"].is_sensitive());
    let authorization = headers[AUTHORIZATION].to_str().unwrap();
    assert!(authorization.contains("SignedHeaders=host;x-amz-date;x-amz-security-token,"));
    assert!(authorization.contains("Credential=AKIDEXAMPLE/20150830/us-east-1/"));
}

#[test]
fn aws_signature_encodes_the_path_once_for_s3_and_twice_otherwise() {
    assert_eq!(canonical_path("/a%20b/c+d", "s3"), "/a%20b/c%2Bd");
    assert_eq!(canonical_path("/a%20b/c+d", "iam"), "/a%2520b/c%2Bd");
    assert_eq!(canonical_path("", "iam"), "/");
    assert_eq!(canonical_query("b=2&a=x%20y&a=1&c"), "a=1&a=x%20y&b=2&c=");
    assert_eq!(trim_all("  a   b\t c "), "a b c");
}

#[test]
fn aws_signature_of_a_request_without_host_or_body_is_refused() {
    let with = |hash| Case {
        headers: Box::leak(Box::new([("x-amz-content-sha256", hash)])),
        ..Case::default()
    };
    let chunked = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
    assert_eq!(signed(&with(chunked)).unwrap_err(), SigV4Error::Chunked);
    assert_eq!(signed(&with("nonsense")).unwrap_err(), SigV4Error::Hash);
    assert!(signed(&with("UNSIGNED-PAYLOAD")).is_ok());
    assert!(signed(&Case { body: None, ..with(EMPTY) }).is_ok());
    assert_eq!(signed(&Case { body: None, ..Case::default() }).unwrap_err(), SigV4Error::NoBody);
}

#[test]
fn malformed_aws_key_pairs_are_refused() {
    for text in [
        "AKIDEXAMPLE",
        "AKIDEXAMPLE:short",
        "a:wJalrXUtnFEMI/K7MDENG",
        "AKID/EXAMPLE:wJalrXUtnFEMI/K7MDENG",
    ] {
        assert!(Keys::parse(&value(text)).is_none(), "{text}");
    }
}

#[test]
fn malformed_aws_authorization_headers_are_refused() {
    for text in [
        "",
        "AWS4-HMAC-SHA256",
        "AWS4-HMAC-SHA256 ",
        "AWS4-HMAC-SHA256 Credential=",
        "AWS4-HMAC-SHA256 Credential=A/B/C/D/aws4_request",
        "AWS4-HMAC-SHA256 Credential=A/B/C/D/other, SignedHeaders=host",
        "AWS4-HMAC-SHA256 Credential=A/B/C/D\n/aws4_request, SignedHeaders=host",
        "AWS4-HMAC-SHA256 Credential=A/B/C/D/aws4_request, Credential=E/B/C/D/aws4_request, SignedHeaders=host",
    ] {
        assert_eq!(Claim::parse(text), None, "{text}");
    }
}
