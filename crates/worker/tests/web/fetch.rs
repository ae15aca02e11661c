//! `fetch` with real servers.

use std::sync::{Arc, OnceLock};

use belljar_testkit::{Received, Reply, Upstream};
use serde_json::json;

use super::page::{check, evaluate, run};

/// Starts an HTTP server that returns each request as JSON, and returns it with its URL.
fn echo() -> (Upstream, String) {
    serve(|request| {
        Reply::new(200, request.to_json().to_string()).header("content-type", "application/json")
    })
}

fn serve(handler: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> (Upstream, String) {
    let upstream = Upstream::plain(handler);
    let url = format!("https://api.example.com:{}", upstream.address().port());
    (upstream, url)
}

#[test]
fn fetch_sends_the_request_to_the_broker_in_absolute_form() {
    let wire = belljar_testkit::Wire::plain(|_| {
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_vec()
    });
    let url = format!("https://api.example.com:{}/a%20b?c=d#e", wire.address().port());
    assert_eq!(
        evaluate(&format!(
            "return await (await fetch('{url}', {{headers: {{'X-A': '\\xe4'}}}})).text()"
        )),
        "ok"
    );
    let [request] = &wire.requests()[..] else { panic!("one request") };
    let port = wire.address().port();
    assert!(
        request.starts_with(&format!("GET https://api.example.com:{port}/a%20b?c=d HTTP/1.1\r\n")),
        "{request}"
    );
    for line in [
        &format!("host: api.example.com:{port}"),
        "accept-encoding: identity",
        "accept: */*",
        "user-agent: Belljar/",
    ] {
        assert!(request.contains(&format!("\r\n{line}")), "{line} in {request}");
    }
    assert!(!request.contains("content-length"), "{request}");
}

#[test]
fn fetch_response_has_status_headers_and_url() {
    let (_upstream, url) = serve(|_| {
        Reply::new(404, "gone").header("x-a", "1").header("x-a", "2").header("set-cookie", "s")
    });
    let given = evaluate(&format!(
        "const r = await fetch('{url}/p#f'); return [r.ok, r.status, r.statusText, r.headers.get('x-a'), r.headers.getSetCookie(), r.url, r.redirected, r.type, await r.text()]"
    ));
    let expected =
        json!([false, 404, "Not Found", "1, 2", ["s"], format!("{url}/p"), false, "basic", "gone"]);
    assert_eq!(given, expected);
}

#[test]
fn fetch_sends_request_bodies_of_every_type() {
    let (upstream, url) = echo();
    for (body, expected, kind) in [
        ("'h\u{e4}'", "h\u{e4}".as_bytes().to_vec(), "text/plain;charset=UTF-8"),
        ("new Uint8Array([0, 255, 1])", vec![0, 255, 1], ""),
        ("new Uint8Array([1, 2, 3]).subarray(1).buffer", vec![1, 2, 3], ""),
        ("new Blob(['b'], {type: 'x/y'})", b"b".to_vec(), "x/y"),
        (
            "new URLSearchParams({a: '1 2'})",
            b"a=1+2".to_vec(),
            "application/x-www-form-urlencoded;charset=UTF-8",
        ),
        ("JSON.stringify({a: 1})", b"{\"a\":1}".to_vec(), "text/plain;charset=UTF-8"),
        (
            "new ReadableStream({start(c) { c.enqueue(new Uint8Array([97])); c.enqueue(new Uint8Array([98])); c.close() }})",
            b"ab".to_vec(),
            "",
        ),
        ("(async function* () { yield 'x'; yield new Uint8Array([121]) })()", b"xy".to_vec(), ""),
    ] {
        evaluate(&format!(
            "const r = await fetch('{url}/', {{method: 'POST', body: {body}}}); await r.json()"
        ));
        let received = upstream.received().pop().unwrap();
        assert_eq!(received.body, expected, "{body}");
        assert_eq!(received.header("content-type").unwrap_or_default(), kind, "{body}");
    }
    evaluate(&format!("await (await fetch('{url}/', {{method: 'POST'}})).text()"));
    assert_eq!(upstream.received().pop().unwrap().header("content-length"), Some("0"));
}

#[test]
fn fetch_overrides_connection_headers() {
    let (upstream, url) = echo();
    evaluate(&format!(
        "await (await fetch('{url}/', {{headers: {{host: 'other.example.com', connection: 'upgrade', upgrade: 'x', 'transfer-encoding': 'chunked', 'content-length': '9', 'accept-encoding': 'br', 'user-agent': 'mine'}}}})).text()"
    ));
    let received = upstream.received().pop().unwrap();
    let port = upstream.address().port();
    assert_eq!(received.header("host"), Some(&*format!("api.example.com:{port}")));
    assert_eq!(received.header("accept-encoding"), Some("identity"));
    assert_eq!(received.header("user-agent"), Some("mine"));
    for name in ["connection", "upgrade", "transfer-encoding", "content-length"] {
        assert_eq!(received.header(name), None, "{name}");
    }
}

#[test]
fn fetch_follows_redirects_as_browsers_do() {
    let (upstream, url) = serve(|request| {
        let to = |status: u16, place: &str| Reply::new(status, "").header("location", place);
        let path = request.path.clone();
        match path.trim_start_matches('/').split_once('/') {
            Some(("to", rest)) => to(rest.parse().unwrap(), "/end"),
            Some(("loop", _)) => to(302, "/loop/x"),
            Some(("bad", _)) => to(302, "ftp://x/"),
            Some(("none", _)) => Reply::new(302, "here"),
            _ => Reply::new(200, request.to_json().to_string()),
        }
    });
    let mut got = Vec::new();
    for status in [301, 302, 303, 307, 308] {
        for method in ["GET", "POST", "PUT"] {
            let body =
                if method == "GET" { "" } else { ", body: 'b', headers: {'content-type': 'x/y'}" };
            let it = evaluate(&format!(
                "const r = await fetch('{url}/to/{status}', {{method: '{method}'{body}}}); const j = await r.json(); \
                 return [r.redirected, j.method, j.body, j.headers.filter((h) => h[0] === 'content-type').length]"
            ));
            got.push(format!("{status} {method} {it}"));
        }
    }
    let expected = [
        "301 GET [true,\"GET\",\"\",0]",
        "301 POST [true,\"GET\",\"\",0]",
        "301 PUT [true,\"PUT\",\"b\",1]",
        "302 GET [true,\"GET\",\"\",0]",
        "302 POST [true,\"GET\",\"\",0]",
        "302 PUT [true,\"PUT\",\"b\",1]",
        "303 GET [true,\"GET\",\"\",0]",
        "303 POST [true,\"GET\",\"\",0]",
        "303 PUT [true,\"GET\",\"\",0]",
        "307 GET [true,\"GET\",\"\",0]",
        "307 POST [true,\"POST\",\"b\",1]",
        "307 PUT [true,\"PUT\",\"b\",1]",
        "308 GET [true,\"GET\",\"\",0]",
        "308 POST [true,\"POST\",\"b\",1]",
        "308 PUT [true,\"PUT\",\"b\",1]",
    ];
    assert_eq!(got, expected);
    let before = upstream.received().len();
    check(&[(
        &format!("fetch('{url}/loop/x')"),
        "!TypeError: the request was redirected more than 20 times",
    )]);
    assert_eq!(upstream.received().len() - before, 21);
    check(&[
        (&format!("fetch('{url}/to/302', {{redirect: 'error'}})"), "!TypeError"),
        (
            &format!(
                "fetch('{url}/to/302', {{redirect: 'manual'}}).then((r) => [r.status, r.headers.get('location')])"
            ),
            r#"[302,"/end"]"#,
        ),
        (&format!("fetch('{url}/bad/x')"), "!TypeError: cannot follow the redirect to ftp://x/"),
        (&format!("fetch('{url}/none/x').then((r) => r.text())"), r#""here""#),
        (
            &format!(
                "fetch('{url}/to/307', {{method: 'POST', body: ReadableStream.from([new Uint8Array(1)])}})"
            ),
            "!TypeError: cannot follow the redirect: the request body was a stream",
        ),
    ]);
}

#[test]
fn fetch_removes_credentials_on_redirects_to_another_origin() {
    let (other, elsewhere) = echo();
    let (_upstream, url) = serve(move |request| match request.path.as_str() {
        "/away" => Reply::new(302, "").header("location", &format!("{elsewhere}/x")),
        "/here" => Reply::new(302, "").header("location", "/x"),
        _ => Reply::new(200, request.to_json().to_string()),
    });
    let headers = "{headers: {authorization: 'Bearer x', cookie: 'c=d', 'x-kept': '1'}}";
    let ask = |path: &str| {
        evaluate(&format!(
            "const r = await fetch('{url}{path}', {headers}); return Object.keys(Object.fromEntries((await r.json()).headers))"
        ))
    };
    let here = ask("/here");
    let away = ask("/away");
    let has =
        |list: &serde_json::Value, name: &str| list.as_array().unwrap().iter().any(|it| it == name);
    for (name, follows) in [("authorization", false), ("cookie", false), ("x-kept", true)] {
        assert!(has(&here, name), "{name} in {here}");
        assert_eq!(has(&away, name), follows, "{name} in {away}");
    }
    assert_eq!(other.received().len(), 1);
}

#[test]
fn broker_refusal_is_an_error_with_the_brokers_message() {
    let (_upstream, url) = serve(|request| {
        let json = request.header("accept").is_some_and(|it| it.contains("json"));
        let text = if json {
            r#"{"error":{"type":"no-rule","message":"no rule allows it; --allow x","rule":null},"by":"belljar"}"#
        } else {
            "belljar: no rule allows it; --allow x\n"
        };
        Reply::new(429, text).header("x-belljar", "no-rule").header("retry-after", "7")
    });
    for headers in ["{}", "{accept: 'application/json'}"] {
        let given = evaluate(&format!(
            "try {{ await fetch('{url}/', {{headers: {headers}}}) }} catch (e) {{ return [e instanceof TypeError, e.message, e.cause] }}"
        ));
        let cause = json!({"code": "no-rule", "status": 429, "retryAfter": 7});
        assert_eq!(given, json!([true, "no rule allows it; --allow x", cause]));
    }
}

#[test]
fn unreachable_broker_error_names_the_missing_rule() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let error = run(&format!("await fetch('https://x.example.com:{port}/')")).unwrap_err();
    assert_eq!(
        error,
        format!(
            "TypeError: no rule of this box allows https://x.example.com:{port}, or the box has no network"
        )
    );
}

#[test]
fn fetch_reuses_connections() {
    let wire = belljar_testkit::Wire::plain(|_| {
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_vec()
    });
    let url = format!("https://api.example.com:{}", wire.address().port());
    let given = evaluate(&format!(
        "const out = []; for (let i = 0; i < 5; i++) out.push(await (await fetch('{url}/' + i)).text()); return out"
    ));
    assert_eq!(given, json!(["ok", "ok", "ok", "ok", "ok"]));
    assert_eq!((wire.connections(), wire.requests().len()), (1, 5));
}

#[test]
fn fetch_reconnects_when_an_idle_connection_was_closed() {
    let wire = belljar_testkit::Wire::plain(|_| {
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok".to_vec()
    });
    let url = format!("https://api.example.com:{}", wire.address().port());
    let given = evaluate(&format!(
        "const out = []; for (let i = 0; i < 3; i++) out.push(await (await fetch('{url}/' + i)).text()); return out"
    ));
    assert_eq!(given, json!(["ok", "ok", "ok"]));
}

#[test]
fn response_body_can_be_read_in_chunks_and_completely() {
    let (_upstream, url) = serve(|request| match request.path.as_str() {
        "/big" => Reply::new(
            200,
            (0..3_000_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect::<Vec<u8>>(),
        ),
        _ => Reply {
            chunks: vec![b"one ".to_vec(), b"two ".to_vec(), b"three".to_vec()],
            pause: std::time::Duration::from_millis(5),
            ..Reply::new(200, "")
        },
    });
    let given = evaluate(&format!(
        "const big = await (await fetch('{url}/big')).bytes(); let wrong = 0; for (let i = 0; i < big.length; i += 97) wrong += big[i] !== i % 251;
         const pieces = []; for await (const it of (await fetch('{url}/slow')).body) pieces.push(new TextDecoder().decode(it));
         const lines = []; for await (const it of (await fetch('{url}/slow')).body.pipeThrough(new TextDecoderStream())) lines.push(it);
         return [big.length, wrong, pieces.length > 1, pieces.join(''), lines.join('')]"
    ));
    assert_eq!(given, json!([3_000_000, 0, true, "one two three", "one two three"]));
}

#[test]
fn abort_signal_stops_the_request_and_the_body() {
    let (_upstream, url) = serve(|request| match request.path.as_str() {
        "/never" => Reply {
            chunks: vec![b"one".to_vec(), b"two".to_vec()],
            pause: std::time::Duration::from_secs(600),
            ..Reply::new(200, "")
        },
        _ => Reply::new(200, "ok"),
    });
    check(&[
        (
            &format!("fetch('{url}/', {{signal: AbortSignal.abort()}})"),
            "!AbortError: The signal has been aborted",
        ),
        (
            &format!(
                "fetch('{url}/never', {{signal: AbortSignal.timeout(50)}}).then((r) => r.text())"
            ),
            "!TimeoutError: Signal timed out.",
        ),
        (
            &format!(
                "(async () => {{ const c = new AbortController(); const r = await fetch('{url}/never', {{signal: c.signal}}); const reader = r.body.getReader(); const first = await reader.read(); const next = reader.read(); c.abort(new RangeError('mine')); \
                      try {{ await next }} catch (e) {{ return [first.value.length, e.name, e.message] }} }})()"
            ),
            r#"[3,"RangeError","mine"]"#,
        ),
        (
            &format!(
                "(async () => {{ const c = new AbortController(); const p = fetch('{url}/never', {{signal: c.signal}}); c.abort('why'); try {{ await p }} catch (e) {{ return e }} }})()"
            ),
            r#""why""#,
        ),
        (
            &format!(
                "(async () => {{ const r = await fetch('{url}/never'); await r.body.cancel(); return r.bodyUsed }})()"
            ),
            "true",
        ),
    ]);
}

#[test]
fn fetch_returns_an_empty_body_for_responses_without_a_body() {
    let (_upstream, url) = serve(|request| match request.path.as_str() {
        "/204" => Reply { chunks: Vec::new(), ..Reply::new(204, "") },
        _ => Reply::new(200, "body"),
    });
    check(&[
        (
            &format!("fetch('{url}/204').then(async (r) => [r.status, r.body, await r.text()])"),
            r#"[204,null,""]"#,
        ),
        (
            &format!(
                "fetch('{url}/', {{method: 'HEAD'}}).then(async (r) => [r.status, r.body, await r.text()])"
            ),
            r#"[200,null,""]"#,
        ),
        (
            &format!(
                "fetch('{url}/').then(async (r) => {{ const c = r.clone(); return [await r.text(), await c.text()] }})"
            ),
            r#"["body","body"]"#,
        ),
    ]);
}

#[test]
fn concurrent_fetch_requests_get_their_own_responses() {
    let (_upstream, url) = serve(|request| Reply::new(200, request.path.clone()));
    let given = evaluate(&format!(
        "const all = await Promise.all(Array.from({{length: 40}}, (_, i) => fetch('{url}/' + i).then((r) => r.text()))); return all.every((it, i) => it === '/' + i)"
    ));
    assert_eq!(given, json!(true));
}

#[test]
fn fetch_closes_responses_that_are_not_read() {
    let (port, open) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
    let (known_port, counted) = (Arc::clone(&port), Arc::clone(&open));
    let wire = belljar_testkit::Wire::plain(move |request| {
        let is_last = request.starts_with(b"GET https://api.example.com:")
            && request.windows(5).any(|it| it == b"/last");
        if is_last {
            counted.set(connections_to(*known_port.get().unwrap())).unwrap();
        }
        let body = if is_last { "end" } else { &"x".repeat(100_000) };
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
    });
    port.set(wire.address().port()).unwrap();
    let url = format!("https://api.example.com:{}", wire.address().port());
    // More requests than the broker allows at the same time.
    let given = evaluate(&format!(
        "for (let i = 0; i < 700; i++) {{ const r = await fetch('{url}/' + i); if (!r.ok) return i; }} return await (await fetch('{url}/last')).text()"
    ));
    assert_eq!(given, json!("end"));
    let open = *open.get().unwrap();
    assert!((1..64).contains(&open), "{open} open responses");
}

/// Returns the number of established connections whose remote port is `port`.
fn connections_to(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let end = format!(":{port:04X}");
    let is_open = |line: &&str| {
        let mut fields = line.split_whitespace().skip(2);
        fields.next().is_some_and(|remote| remote.ends_with(&end)) && fields.next() == Some("01")
    };
    table.lines().filter(is_open).count()
}

#[test]
fn request_and_response_bodies_respect_backpressure() {
    use std::io::{Read as _, Write as _};
    let (_echo, elsewhere) = echo();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://api.example.com:{}", listener.local_addr().unwrap().port());
    let server = std::thread::spawn(move || {
        // Reads only the headers, then responds.
        let (mut first, _) = listener.accept().unwrap();
        let mut head = [0; 64];
        first.read_exact(&mut head).unwrap();
        first.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
        // Sends as much as the client accepts.
        let (mut second, _) = listener.accept().unwrap();
        second.read_exact(&mut head).unwrap();
        second.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let mut sent = 0_usize;
        while sent < 512 << 20 && second.write_all(&[b'x'; 65536]).is_ok() {
            sent += 65536;
        }
        sent
    });
    let made = evaluate(&format!(
        "let made = 0; const body = new ReadableStream({{pull(c) {{ made++; c.enqueue(new Uint8Array(65536)) }}}}, {{highWaterMark: 0}}); \
         const answer = await fetch('{url}/', {{method: 'POST', body}}); await answer.text(); \
         const reader = (await fetch('{url}/')).body.getReader(); await reader.read(); \
         for (let i = 0; i < 50; i++) await (await fetch('{elsewhere}/')).text(); \
         await reader.cancel(); return made"
    ));
    let made = made.as_u64().unwrap();
    assert!((1..2000).contains(&made), "{made} pieces were made");
    let sent = server.join().unwrap();
    assert!(sent < 64 << 20, "{sent} bytes were taken");
}
