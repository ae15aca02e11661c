//! The files of running boxes over the API.

use belljar_testkit::DEADLINE;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::TestResponse;
use crate::gateway::{Login, TestGateway, problem, recorded};

const BYTES: &str = "Content-Type: application/octet-stream";

/// A response whose body need not be text.
struct Download {
    response: TestResponse,
    body: Vec<u8>,
}

/// Sends a request with bytes as its body.
async fn send(
    server: &TestGateway,
    login: &Login,
    start: &str,
    headers: &[&str],
    body: &[u8],
) -> Download {
    let mut head = format!("{start} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", login.host);
    for line in login.headers().iter().map(String::as_str).chain(headers.iter().copied()) {
        head.push_str(&format!("{line}\r\n"));
    }
    if !start.starts_with("GET") {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    stream.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
    // A server that refuses early does not read everything.
    stream.write_all(body).await.ok();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.ok();
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let body = bytes.split_off(end);
    let text = String::from_utf8_lossy(&body);
    let whole = [bytes.as_slice(), text.as_bytes()].concat();
    Download { response: TestResponse::whole(whole.as_slice()).await, body }
}

async fn put(server: &TestGateway, login: &Login, path: &str, body: &[u8]) -> TestResponse {
    send(server, login, &format!("PUT {path}"), &[BYTES], body).await.response
}

async fn get(server: &TestGateway, login: &Login, path: &str, headers: &[&str]) -> Download {
    send(server, login, &format!("GET {path}"), headers, b"").await
}

/// Starts a box that runs a shell script. The path of its files is `/v1/boxes/NAME/files`.
async fn start(server: &TestGateway, login: &Login, name: &str, script: &str) -> String {
    let program = json!(["/bin/sh", "-c", format!("{script}; exec sleep 600")]);
    let new = json!({ "name": name, "program": program });
    let created = login.post(server, "/v1/boxes", &new).await;
    assert_eq!(created.status, 201, "{created:?}");
    format!("/v1/boxes/{name}/files")
}

/// Waits until the script of a box has written a file.
async fn wait_for(server: &TestGateway, login: &Login, path: &str) {
    let end = tokio::time::Instant::now() + DEADLINE;
    while get(server, login, path, &[]).await.response.status != 200 {
        assert!(tokio::time::Instant::now() < end, "{path} does not appear");
    }
}

fn json_of(response: &TestResponse) -> Value {
    serde_json::from_str(&response.body).unwrap_or_else(|_| panic!("{response:?}"))
}

#[tokio::test]
async fn file_is_written_replaced_read_in_parts_and_removed() {
    let server = TestGateway::unlimited().await;
    let login = server.login("local").await;
    let files = start(&server, &login, "job", "true").await;
    let path = format!("{files}/tmp/new/dir/data.bin");
    let data: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();
    assert_eq!(put(&server, &login, &path, b"first").await.status, 201);
    assert_eq!(put(&server, &login, &path, &data).await.status, 204, "replaced");
    let whole = get(&server, &login, &path, &[]).await;
    assert_eq!(whole.response.status, 200);
    assert!(whole.body == data, "{} bytes", whole.body.len());
    for (range, part, text) in [
        ("bytes=0-9", &data[..10], "bytes 0-9/200000"),
        ("bytes=199990-", &data[199_990..], "bytes 199990-199999/200000"),
        ("bytes=-3", &data[199_997..], "bytes 199997-199999/200000"),
        ("bytes=70000-199999", &data[70_000..], "bytes 70000-199999/200000"),
    ] {
        let got = get(&server, &login, &path, &[&format!("Range: {range}")]).await;
        assert_eq!(got.response.status, 206, "{range}");
        assert_eq!(got.response.header("content-range"), Some(text));
        assert!(got.body == part, "{range}: {} bytes", got.body.len());
    }
    let missing = get(&server, &login, &path, &["Range: bytes=200000-"]).await;
    problem(&missing.response, 416, "range");
    let (write, only_new) = (format!("PUT {path}"), [BYTES, "If-None-Match: *"]);
    let kept = send(&server, &login, &write, &only_new, b"x").await;
    problem(&kept.response, 412, "stale");
    assert_eq!(login.delete(&server, &path, &[]).await.status, 204);
    problem(&get(&server, &login, &path, &[]).await.response, 404, "not-found");
    problem(&login.delete(&server, &path, &[]).await, 404, "not-found");
    let new = send(&server, &login, &write, &only_new, b"").await;
    assert_eq!(new.response.status, 201);
    assert_eq!(get(&server, &login, &path, &[]).await.body, b"");
    let acts: Vec<Value> = recorded(&server, "local", "access.changed");
    let count = |act: &str| acts.iter().filter(|event| event["act"] == act).count();
    assert_eq!((count("box.file-written"), count("box.file-removed")), (4, 2));
}

#[tokio::test]
async fn directory_is_listed_in_pages_with_names_of_any_bytes() {
    let server = TestGateway::unlimited().await;
    let login = server.login("local").await;
    let script = "mkdir -p /tmp/d/sub && ln -s /nowhere /tmp/d/link && echo 12345 > /tmp/d/file \
                  && touch /tmp/ready";
    let files = start(&server, &login, "job", script).await;
    wait_for(&server, &login, &format!("{files}/tmp/ready")).await;
    for name in ["a%20b%25", "%ff%3Cx%3E", "z"] {
        let made = put(&server, &login, &format!("{files}/tmp/d/{name}"), b"xy").await;
        assert_eq!(made.status, 201, "{name} {made:?}");
    }
    let directory = format!("{files}/tmp/d");
    let (mut entries, mut next) = (Vec::new(), Value::Null);
    loop {
        let cursor = next.as_str().map(|next| format!("&cursor={next}")).unwrap_or_default();
        let page = get(&server, &login, &format!("{directory}?limit=2{cursor}"), &[]).await;
        let page = json_of(&page.response);
        let items = page["items"].as_array().unwrap().clone();
        assert!((1..=2).contains(&items.len()), "{page}");
        entries.extend(items);
        next = page["next"].clone();
        if next.is_null() {
            break;
        }
    }
    let shown: Vec<(&str, &str, u64)> = entries
        .iter()
        .map(|entry| {
            let path = entry["path"].as_str().unwrap();
            (path, entry["kind"].as_str().unwrap(), entry["size"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(
        (shown[0], shown[1], shown[4], shown[5]),
        (
            ("tmp/d/a%20b%25", "file", 2),
            ("tmp/d/file", "file", 6),
            ("tmp/d/z", "file", 2),
            ("tmp/d/%FF%3Cx%3E", "file", 2)
        )
    );
    assert_eq!((shown[2].1, shown[3].1), ("symlink", "directory"));
    assert_eq!(
        (entries[5]["path_b64"].as_str(), entries[4].get("path_b64")),
        (Some("/zx4Pg=="), None)
    );
    for entry in &entries {
        let path = format!("{files}/{}", entry["path"].as_str().unwrap());
        let status = get(&server, &login, &path, &[]).await.response.status;
        assert_eq!(status, if entry["kind"] == "symlink" { 404 } else { 200 }, "{entry}");
    }
    let root = get(&server, &login, &format!("{files}/tmp/"), &[]).await;
    assert_eq!(root.response.status, 200, "a slash at the end");
}

#[tokio::test]
async fn f12_file_of_a_box_is_sent_as_a_download_that_runs_nothing() {
    let server = TestGateway::unlimited().await;
    let login = server.login("local").await;
    let files = start(&server, &login, "job", "true").await;
    let path = format!("{files}/tmp/page.html");
    let page = b"<script>alert(1)</script>";
    assert_eq!(put(&server, &login, &path, page).await.status, 201);
    let got = get(&server, &login, &path, &[]).await;
    assert_eq!(got.body, page);
    for (name, value) in [
        ("content-type", "application/octet-stream"),
        ("content-disposition", "attachment"),
        ("content-security-policy", "sandbox"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(got.response.header(name), Some(value));
    }
    let other = get(&server, &login, "/v1/me", &[]).await.response;
    let policy = other.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'"), "control: {policy}");
}

#[tokio::test]
async fn a24_name_or_link_of_a_box_is_resolved_inside_the_box_only() {
    let server = TestGateway::unlimited().await;
    let login = server.login("local").await;
    let secret = server.lab.dir().join("secret");
    std::fs::write(&secret, "of the host").unwrap();
    let script = format!(
        "echo inside > /tmp/own; ln -s /tmp/own /tmp/good; ln -s {0} /tmp/bad; ln -s {1} /tmp/out; \
         ln -s /../../../../..{0} /tmp/up; touch /tmp/ready",
        secret.display(),
        server.lab.dir().display(),
    );
    let files = start(&server, &login, "job", &script).await;
    wait_for(&server, &login, &format!("{files}/tmp/ready")).await;
    let good = get(&server, &login, &format!("{files}/tmp/good"), &[]).await;
    assert_eq!(good.body, b"inside\n", "control: links are followed");
    assert_eq!(std::fs::read(&secret).unwrap(), b"of the host", "control: the file exists");
    for path in ["tmp/bad", "tmp/up", "tmp/out/secret", &secret.to_str().unwrap()[1..]] {
        let got = get(&server, &login, &format!("{files}/{path}"), &[]).await;
        problem(&got.response, 404, "not-found");
    }
    // A write does not follow a link, and creates directories only in the box.
    for path in ["tmp/bad", "tmp/good"] {
        let written = put(&server, &login, &format!("{files}/{path}"), b"changed").await;
        assert_eq!(written.status, 204, "{path} {written:?}");
    }
    let through = put(&server, &login, &format!("{files}/tmp/out/secret"), b"changed").await;
    assert!([201, 403, 404, 409].contains(&through.status), "{through:?}");
    assert_eq!(std::fs::read(&secret).unwrap(), b"of the host");
    assert_eq!(get(&server, &login, &format!("{files}/tmp/own"), &[]).await.body, b"inside\n");
    for path in ["tmp/../etc/passwd", "tmp%2fown", "tmp//own", "tmp/%2e%2e/x", "a%00", "a%5cb"] {
        let got = get(&server, &login, &format!("{files}/{path}"), &[]).await;
        problem(&got.response, 400, "bad-request");
    }
}

#[tokio::test]
async fn request_that_a_box_cannot_carry_out_is_refused_with_its_reason() {
    let server = TestGateway::unlimited().await;
    let login = server.login("local").await;
    let files =
        start(&server, &login, "job", "mkdir /tmp/full; touch /tmp/full/x; mkfifo /tmp/p").await;
    wait_for(&server, &login, &format!("{files}/tmp/full/x")).await;
    let request = |start: String, headers: &'static [&'static str], body: &'static [u8]| {
        let (server, login) = (&server, &login);
        async move { send(server, login, &start, headers, body).await.response }
    };
    for (start, status, kind) in [
        (format!("PUT {files}/tmp/full"), 409, "wrong-state"),
        (format!("DELETE {files}/tmp/full"), 409, "wrong-state"),
        (format!("GET {files}/dev/null"), 409, "wrong-state"),
        (format!("GET {files}/tmp/none"), 404, "not-found"),
        (format!("PUT {files}/tmp/full/x/below"), 404, "not-found"),
        (format!("PUT {files}/usr/bin/new"), 403, "forbidden"),
        (format!("GET {files}/tmp?limit=201"), 400, "invalid"),
    ] {
        let headers: &[&str] = if start.starts_with("PUT") { &[BYTES] } else { &[] };
        let body: &[u8] = if start.starts_with("PUT") { b"data" } else { b"" };
        problem(&request(start, headers, body).await, status, kind);
    }
    let typed = request(format!("PUT {files}/tmp/x"), &["Content-Type: text/html"], b"data").await;
    problem(&typed, 415, "media-type");
    let lines = [format!("PUT {files}/tmp/x HTTP/1.1"), format!("Host: {}", login.host)];
    let own = login.headers();
    let mut lines: Vec<&str> = lines.iter().chain(&own).map(String::as_str).collect();
    lines.extend([BYTES, "Content-Length: 67108865"]);
    problem(&server.lines(&lines).await, 413, "too-large");
    *lines.last_mut().unwrap() = "Content-Length: 10";
    let cut = server.lines_with(&lines, "12345").await;
    problem(&cut, 408, "timeout");
    problem(&request(format!("GET {files}/tmp/x"), &[], b"").await, 404, "not-found");
    assert_eq!(
        put(&server, &login, &format!("{files}/tmp/x"), b"data").await.status,
        201,
        "control"
    );
    let stopped = login.post(&server, "/v1/boxes/job/stop", &json!({ "now": true })).await;
    assert_eq!(stopped.status, 200);
    problem(&request(format!("GET {files}/tmp/x"), &[], b"").await, 409, "wrong-state");
}

#[tokio::test]
async fn f11_auditor_and_member_get_no_file_of_anothers_box() {
    let server = TestGateway::unlimited().await;
    let login = server.login("local").await;
    let files = start(&server, &login, "job", "true").await;
    let path = format!("{files}/etc/passwd");
    assert_eq!(get(&server, &login, &path, &[]).await.response.status, 200, "control");
    for (role, status, kind) in [("auditor", 403, "forbidden"), ("member", 404, "not-found")] {
        let who = format!("person:https://id.example#{role}");
        let other = server.login_as("local", &who, role).await;
        problem(&get(&server, &other, &path, &[]).await.response, status, kind);
        problem(&put(&server, &other, &path, b"x").await, status, kind);
        problem(&other.delete(&server, &path, &[]).await, status, kind);
    }
}
