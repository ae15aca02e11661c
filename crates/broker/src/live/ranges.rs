//! Range requests to hosts with secrets, with a real client that resumes downloads.

use std::process::Command;

use belljar_testkit::{Authority, Received, Reply, Upstream};

use super::*;

/// Returns a server whose resource `/file` is `content`, with support for ranges.
fn file_server(authority: &Authority, content: Vec<u8>) -> Upstream {
    Upstream::tls(authority, &[HOST], move |received| {
        let total = content.len();
        let whole = || {
            Reply::new(200, content.clone())
                .header("accept-ranges", "bytes")
                .header("etag", "\"v1\"")
                .header("content-length", &total.to_string())
        };
        let Some(range) = received.header("range") else { return whole() };
        let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let (first, last) = match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) => (first, last.min(total - 1)),
            (Ok(first), Err(_)) => (first, total - 1),
            (Err(_), Ok(count)) => (total.saturating_sub(count), total - 1),
            (Err(_), Err(_)) => return whole(),
        };
        if first >= total {
            return Reply::new(416, "").header("content-range", &format!("bytes */{total}"));
        }
        Reply::new(206, content[first..=last].to_vec())
            .header("etag", "\"v1\"")
            .header("content-range", &format!("bytes {first}-{last}/{total}"))
    })
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at * 31 % 251).unwrap()).collect()
}

/// Runs curl as a client in the box would.
#[expect(clippy::disallowed_methods, reason = "a test starts a real client")]
fn curl(live: &Live, folder: &std::path::Path, arguments: &[&str]) -> std::process::Output {
    std::fs::write(folder.join("ca.pem"), &live.certificate).unwrap();
    Command::new("curl")
        .current_dir(folder)
        .args(["--silent", "--show-error", "--fail", "--cacert", "ca.pem", "--connect-to"])
        .arg(format!("{HOST}:443:{}", live.address))
        .arg("--header")
        .arg(format!("authorization: Bearer {}", live.placeholder()))
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn b08_client_resumes_a_download_from_the_host_of_a_secret_without_corruption() {
    let (authority, content) = (Authority::new(), content(3 << 20));
    let server = file_server(&authority, content.clone());
    let live = Live::start(&authority, token_policy(server.address()));
    let folder = tempfile::tempdir().unwrap();
    let url = format!("https://{HOST}/file");
    // Parts of a download in any order, as programs that use several connections fetch them.
    let mut joined = Vec::new();
    for range in ["0-999", "1000-1048576", "1048577-"] {
        let out = curl(&live, folder.path(), &["--range", range, &url]);
        assert!(out.status.success(), "{range}: {}", String::from_utf8_lossy(&out.stderr));
        joined.extend(out.stdout);
    }
    assert!(joined == content, "{} of {} bytes", joined.len(), content.len());
    let last = curl(&live, folder.path(), &["--range", "-5000", &url]).stdout;
    assert!(last == content[content.len() - 5000..]);
    // A download that stopped in the middle.
    std::fs::write(folder.path().join("out"), &content[..1_234_567]).unwrap();
    let out = curl(&live, folder.path(), &["--continue-at", "-", "--output", "out", &url]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(std::fs::read(folder.path().join("out")).unwrap() == content);
    // The server was asked for more than the client.
    let ranges: Vec<String> =
        server.received().iter().filter_map(|it| it.header("range").map(str::to_owned)).collect();
    assert_eq!(ranges.len(), 5);
    assert!(!ranges.contains(&"bytes=1000-1048576".to_owned()), "{ranges:?}");
}

#[test]
fn b06_secret_that_is_split_over_two_ranges_does_not_reach_the_client() {
    let authority = Authority::new();
    let mut file = content(100_000);
    file.splice(50_000..50_000, SECRET.bytes());
    let server = file_server(&authority, file.clone());
    let live = Live::start(&authority, token_policy(server.address()));
    let folder = tempfile::tempdir().unwrap();
    let url = format!("https://{HOST}/file");
    let get = |range: &str| curl(&live, folder.path(), &["--range", range, &url]);
    for range in ["49000-50019", "50020-51000", "50039-", "-50020", "50020-50021"] {
        let out = get(range);
        assert!(!out.status.success(), "{range}: the client must see an error");
        let positions = out.stdout.len();
        let seen = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(positions <= 1000 && !seen.contains("TheReal"), "{range}: {seen}");
    }
    let error = live.error();
    assert!(error.contains("part of the secret `token`"), "{error}");
    // Control: ranges beside the secret arrive unchanged.
    assert!(get("0-49999").stdout == file[..50_000]);
    assert!(get("50040-").stdout == file[50_040..]);
    // After a response with a replaced secret, positions differ, so ranges are refused.
    assert!(live.get("/file", &[]).contains("[belljar:token]"));
    let refused = live.get("/file", &[("range", "bytes=10-20")]);
    assert!(
        refused.starts_with("HTTP/1.1 400 ") && refused.contains("x-belljar: range"),
        "{refused}"
    );
}

#[test]
fn b06_ranges_that_cannot_be_searched_are_refused() {
    let authority = Authority::new();
    let server = Upstream::tls(&authority, &[HOST], |received: &Received| {
        match received.path.as_str() {
            // A part without the bytes around it.
            "/small" => Reply::new(206, "x").header("content-range", "bytes 500-500/10000"),
            "/packed" => Reply::new(206, "x".repeat(100))
                .header("content-encoding", "gzip")
                .header("content-range", "bytes 0-99/100"),
            "/unknown" => Reply::new(206, "x").header("content-range", "bytes 0-0/*"),
            "/short" => Reply::new(206, "x").header("content-range", "bytes 0-99/100"),
            _ => Reply::new(200, "whole"),
        }
    });
    let live = Live::start(&authority, token_policy(server.address()));
    let status = |path: &str, range: &str| live.get(path, &[("range", range)])[9..12].to_owned();
    assert_eq!(status("/small", "bytes=500-500"), "502");
    assert_eq!(status("/packed", "bytes=0-99"), "502");
    assert_eq!(status("/unknown", "bytes=0-0"), "502");
    let cut = live.get("/short", &[("range", "bytes=0-99")]);
    // The connection can end before or after the head of the response is sent.
    assert!(cut.is_empty() || cut.ends_with("\r\n\r\n"), "a wrong length is cut off: {cut}");
    live.wait(|event| {
        let BrokerEvent::Finished(finished) = event else { return None };
        finished.error.as_ref().filter(|error| error.contains("has another length")).map(drop)
    });
    for range in
        ["bytes=0-1,5-9", "bytes=9-1", "bytes=", "bytes=-0", "lines=1-2", "bytes=0-1\u{e4}"]
    {
        assert_eq!(status("/", range), "400", "{range}");
    }
    assert_eq!(server.received().len(), 4, "refused ranges are not sent");
    // Control: a server can ignore a range.
    assert!(live.get("/", &[("range", "bytes=2-")]).contains("whole"));
}
