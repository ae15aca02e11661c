//! The server of `belljar serve`: routes for monitoring, headers, MCP, TLS and the end of the server.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use belljar_gateway::{
    Rate, ReadyServer, ServeControl, ServeError, ServeLimits, ServeOptions, TlsFiles,
};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::client::{TestResponse, call, initialize, until};
use crate::gateway::{TestGateway, lab, open, problem};
use crate::server::DemoService;

#[tokio::test]
async fn healthz_and_readyz_answer_with_security_headers() {
    let server = TestGateway::start().await;
    for path in ["/healthz", "/readyz"] {
        let response = server.get(path).await;
        assert_eq!((response.status, response.body.as_str()), (200, r#"{"status":"ok"}"#));
        for (name, value) in [
            ("content-type", "application/json"),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(response.header(name), Some(value), "{response:?}");
        }
        let policy = response.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{policy}");
        assert_eq!(response.header("strict-transport-security"), None, "{response:?}");
        assert_eq!(response.header("x-request-id").map(str::len), Some(16));
    }
    let (one, two) = (server.get("/healthz").await, server.get("/healthz").await);
    assert_ne!(one.header("x-request-id"), two.header("x-request-id"));
}

#[tokio::test]
async fn readyz_answers_503_while_the_ledger_cannot_be_opened() {
    let server = TestGateway::start().await;
    std::fs::write(server.lab.state().join("ledger"), "a file instead of a directory").unwrap();
    let response = server.get("/readyz").await;
    let problem = problem(&response, 503, "unavailable");
    assert_eq!(problem["retry_after"], 5);
    assert_eq!(response.header("retry-after"), Some("5"));
    assert_eq!(server.get("/healthz").await.status, 200, "control: the server lives");
}

#[tokio::test]
async fn unknown_path_and_wrong_method_are_answered_with_a_problem() {
    let server = TestGateway::start().await;
    for path in ["/nothing", "/healthz/", "/V1/boxes"] {
        problem(&server.get(path).await, 404, "not-found");
    }
    let response = server.lines(&["DELETE /healthz HTTP/1.1", "Host: {host}"]).await;
    problem(&response, 405, "method-not-allowed");
    assert_eq!(response.header("allow"), Some("GET,HEAD"), "{response:?}");
}

#[tokio::test]
async fn metrics_are_served_on_the_local_socket_and_need_a_credential_elsewhere() {
    let server = TestGateway::start().await;
    server.get("/healthz").await;
    problem(&server.get("/metrics").await, 401, "unauthenticated");
    let response = server.local(&["GET /metrics HTTP/1.1", "Host: localhost"]).await;
    assert_eq!(response.status, 200, "{response:?}");
    for line in [
        r#"belljar_http_requests_total{route="/healthz",method="GET",status="200"} 1"#,
        r#"belljar_http_requests_total{route="/metrics",method="GET",status="401"} 1"#,
    ] {
        assert!(response.body.lines().any(|it| it == line), "{line}: {}", response.body);
    }
}

#[tokio::test]
async fn f07_local_socket_refuses_other_users_and_other_hosts() {
    let server = TestGateway::start().await;
    let control = server.local(&["GET /healthz HTTP/1.1", "Host: localhost"]).await;
    assert_eq!(control.status, 200);
    let foreign = server.local(&["GET /healthz HTTP/1.1", "Host: evil.example"]).await;
    problem(&foreign, 421, "misdirected");
    if !rustix::process::geteuid().is_root() {
        return belljar_testkit::skip("only root can connect as another user");
    }
    // Without the modes of directory and socket, only the check of the server remains.
    let socket = server.lab.state().join("server/socket");
    for (path, mode) in [
        (server.lab.dir(), 0o755),
        (&server.lab.state(), 0o755),
        (&server.lab.state().join("server"), 0o755),
        (&socket, 0o666),
    ] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    let connect = move || -> io::Result<String> {
        let nobody = rustix::process::Uid::from_raw(65534);
        rustix::thread::set_thread_uid(nobody)?;
        let mut stream = std::os::unix::net::UnixStream::connect(socket)?;
        let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        io::Write::write_all(&mut stream, request.as_bytes()).ok();
        let mut text = String::new();
        io::Read::read_to_string(&mut stream, &mut text).ok();
        Ok(text)
    };
    let thread = std::thread::spawn(connect);
    let answer = tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap();
    assert_eq!(answer.unwrap(), "", "the connection is closed without a response");
}

#[tokio::test]
async fn mcp_clients_use_the_server_with_a_token_of_the_token_file() {
    let mut server = TestGateway::start().await;
    let body = initialize("2025-11-25").to_string();
    let length = format!("Content-Length: {}", body.len());
    let lines = ["POST /mcp HTTP/1.1", "Host: {host}", "Content-Type: application/json", &length];
    let refused = server.lines_with(&lines, &body).await;
    problem(&refused, 401, "unauthenticated");
    assert!(refused.header("www-authenticate").unwrap().starts_with("Bearer"), "{refused:?}");
    let token = format!("Authorization: Bearer {}", server.token.expose());
    let lines: Vec<&str> = lines.into_iter().chain([token.as_str()]).collect();
    let response = server.lines_with(&lines, &body).await;
    assert_eq!(response.rpc()["result"]["protocolVersion"], "2025-11-25", "{response:?}");
    let session = format!("Mcp-Session-Id: {}", response.header("mcp-session-id").unwrap());
    let body = call(2, "whoami").to_string();
    let length = format!("Content-Length: {}", body.len());
    let lines = [
        "POST /mcp HTTP/1.1",
        "Host: {host}",
        "Content-Type: application/json",
        &length,
        &token,
        &session,
    ];
    let response = server.lines_with(&lines, &body).await;
    assert_eq!(response.status, 200, "{response:?}");
    assert!(server.events.recv().await.unwrap().ends_with("whoami"));
}

#[tokio::test]
async fn stopped_server_completes_running_requests_and_accepts_no_new_ones() {
    let server = TestGateway::start().await;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n",
        server.host(),
        server.token.expose(),
    );
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server asks for the body when the handler of the request reads it.
    assert!(until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 100 "));
    server.control.stop.cancel();
    while TcpStream::connect(server.addr).await.is_ok() {
        tokio::task::yield_now().await;
    }
    stream.write_all(b"[]").await.unwrap();
    let response = TestResponse::whole(stream).await;
    assert!(response.body.contains("batches are not supported"), "{response:?}");
    server.ended().await;
}

/// A certificate authority of a test and the files of a certificate.
struct TestCertificate {
    certificate: CertificateDer<'static>,
    files: TlsFiles,
}

fn certificate(dir: &std::path::Path) -> TestCertificate {
    let made = rcgen::generate_simple_self_signed(vec!["belljar.example".to_owned()]).unwrap();
    let files = TlsFiles { certificate: dir.join("cert.pem"), key: dir.join("key.pem") };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    TestCertificate { certificate: made.cert.der().clone(), files }
}

/// Sends a request over TLS to a server that must have this certificate.
async fn over_tls(
    server: &TestGateway,
    trusted: &CertificateDer<'static>,
) -> io::Result<TestResponse> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(server.addr).await?;
    let name = ServerName::try_from("belljar.example").unwrap();
    let mut stream = TlsConnector::from(Arc::new(client)).connect(name, stream).await?;
    let request = "GET /healthz HTTP/1.1\r\nHost: belljar.example\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    Ok(TestResponse::whole(bytes.as_slice()).await)
}

#[tokio::test]
async fn certificate_is_replaced_on_reload_and_a_broken_one_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let first = certificate(dir.path());
    let files = first.files.clone();
    let server = TestGateway::with(|options| {
        options.tls = Some(files);
        options.hosts = vec!["belljar.example".to_owned()];
    })
    .await;
    let response = over_tls(&server, &first.certificate).await.unwrap();
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(response.header("strict-transport-security"), Some("max-age=31536000"));

    let second = certificate(dir.path());
    server.control.reload.notify_one();
    while over_tls(&server, &second.certificate).await.is_err() {}
    over_tls(&server, &first.certificate).await.unwrap_err();

    std::fs::write(&second.files.certificate, "broken").unwrap();
    server.control.reload.notify_one();
    // The server reads requests of the network while it handles the reload, so ask more than once.
    for _ in 0..5 {
        assert_eq!(over_tls(&server, &second.certificate).await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn changed_certificate_is_read_without_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    let first = certificate(dir.path());
    let files = first.files.clone();
    let server = TestGateway::with(|options| {
        options.tls = Some(files);
        options.hosts = vec!["belljar.example".to_owned()];
        options.limits.certificate_check = Duration::from_millis(1);
    })
    .await;
    assert_eq!(over_tls(&server, &first.certificate).await.unwrap().status, 200, "control");
    let second = certificate(dir.path());
    while over_tls(&server, &second.certificate).await.is_err() {}
    over_tls(&server, &first.certificate).await.unwrap_err();
}

#[tokio::test]
async fn f14_requests_of_one_principal_are_limited_and_headers_show_what_is_left() {
    let server = TestGateway::with(|options| {
        options.limits.reads = Rate { burst: 2, interval: Duration::from_secs(3600) };
    })
    .await;
    let other = server.login("local").await; // its first request reads /v1/me
    let token = other.token(&server, &["boxes:read"]).await;
    for left in [1, 0] {
        let response = server.with_token(&token, "/v1/boxes").await;
        assert_eq!(response.status, 200, "{response:?}");
        assert_eq!(response.header("ratelimit-policy"), Some("\"reads\";q=2;w=7200"));
        let state = response.header("ratelimit").unwrap();
        assert!(state.starts_with(&format!("\"reads\";r={left};t=")), "{state}");
    }
    let refused = server.with_token(&token, "/v1/boxes").await;
    let problem = problem(&refused, 429, "too-many-requests");
    let wait = problem["retry_after"].as_u64().unwrap();
    assert!((3590..=3600).contains(&wait), "{wait}");
    assert_eq!(refused.header("retry-after"), Some(wait.to_string().as_str()));
    assert!(refused.header("ratelimit").unwrap().starts_with("\"reads\";r=0;t="), "{refused:?}");
    assert_eq!(other.get(&server, "/v1/boxes").await["next"], serde_json::Value::Null, "control");
}

/// Tries to create a server with a changed configuration.
fn refused(change: impl FnOnce(&mut ServeOptions)) -> ServeError {
    let lab = lab();
    let (engine, state) = open(&lab);
    let lock = belljar_engine::server::ServerLock::acquire(&state).unwrap();
    let mut options = ServeOptions {
        listeners: vec![std::net::TcpListener::bind("127.0.0.1:0").unwrap()],
        local: lock.bind_socket(&state).unwrap(),
        tls: None,
        hosts: Vec::new(),
        mcp_tokens: belljar_gateway::Tokens::new([&belljar_gateway::Token::generate().unwrap()]),
        limits: ServeLimits::default(),
        prover: None,
    };
    change(&mut options);
    let (demo, _events) = DemoService::new();
    ReadyServer::new(engine, state, &demo, options, &ServeControl::default()).unwrap_err()
}

#[tokio::test]
async fn f17_server_refuses_an_address_of_other_machines_without_tls_and_bad_certificates() {
    let public = || vec![std::net::TcpListener::bind("0.0.0.0:0").unwrap()];
    let error = refused(|options| options.listeners = public());
    assert!(matches!(error, ServeError::TlsRequired(_)), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let made = certificate(dir.path()).files;
    let missing = TlsFiles { certificate: dir.path().join("missing.pem"), ..made.clone() };
    let error = refused(|options| options.tls = Some(missing));
    assert!(error.to_string().contains("missing.pem"), "{error}");
    let error = refused(|options| {
        options.tls = Some(made.clone());
        options.hosts = vec!["other.example".to_owned()];
    });
    assert!(matches!(error, ServeError::WrongCertificate { .. }), "{error}");
    std::fs::write(&made.certificate, "no certificate").unwrap();
    let error = refused(|options| options.tls = Some(made));
    assert!(error.to_string().contains("cert.pem"), "{error}");
    let error = refused(|options| options.tls = Some(expired(dir.path())));
    assert!(matches!(error, ServeError::Validity { .. }), "{error}");
    assert!(error.to_string().contains("is not valid now"), "{error}");
}

/// Writes a certificate that expired a year ago.
fn expired(dir: &std::path::Path) -> TlsFiles {
    let mut parameters = rcgen::CertificateParams::new(vec!["belljar.example".to_owned()]).unwrap();
    parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(2025, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let files = TlsFiles { certificate: dir.join("old.pem"), key: dir.join("old-key.pem") };
    std::fs::write(&files.certificate, parameters.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(&files.key, key.serialize_pem()).unwrap();
    files
}
