//! Execs over the API: additional programs in running boxes, and their streams.

use belljar_gateway::Rate;
use serde_json::{Value, json};

use crate::gateway::{Login, TestGateway, problem, recorded};
use crate::socket::{Sent, TestSocket, of_login, of_token};

/// The number of bytes that a client can have without an acknowledgement.
const WINDOW: usize = 256 * 1024;
/// The number of bytes of a stream that are kept.
const KEPT: usize = 1 << 20;

async fn running_box(server: &TestGateway, login: &Login, name: &str) {
    let new = json!({ "name": name, "program": ["sleep", "600"] });
    let created = login.post(server, "/v1/boxes", &new).await;
    assert_eq!(created.status, 201, "{created:?}");
}

/// Starts an exec in the box `job` and returns its path.
async fn start(server: &TestGateway, login: &Login, new: &Value) -> String {
    let created = login.post(server, "/v1/boxes/job/execs", new).await;
    assert_eq!(created.status, 201, "{created:?}");
    let path = created.header("location").unwrap().to_owned();
    let exec: Value = serde_json::from_str(&created.body).unwrap();
    assert_eq!(path, format!("/v1/execs/{}", exec["id"].as_str().unwrap()));
    path
}

fn shell(script: &str) -> Value {
    json!({ "command": ["sh", "-c", script] })
}

async fn open(server: &TestGateway, login: &Login, path: &str) -> TestSocket {
    TestSocket::open(server, path, &of_login(login)).await
}

/// What a client has received of an exec.
#[derive(Debug, Default, PartialEq)]
struct Output {
    streams: [Vec<u8>; 2],
    /// The stream of each gap, with its ends.
    gaps: Vec<(Value, u64, u64)>,
    /// The message `exit`.
    exit: Option<Value>,
}

impl Output {
    /// Receives messages until the output satisfies a condition or the connection is closed. Acknowledges
    /// everything. Returns the code of the end.
    async fn receive(
        &mut self,
        socket: &mut TestSocket,
        is_enough: impl Fn(&Self) -> bool,
    ) -> Option<u16> {
        while !is_enough(self) {
            match socket.next().await {
                Sent::Data { channel, offset, data } => {
                    let stream = &mut self.streams[usize::from(channel) - 1];
                    let gap: u64 = self.gaps.iter().map(|(_, from, to)| to - from).sum();
                    assert_eq!(offset, stream.len() as u64 + gap, "without a hole");
                    stream.extend(data);
                    let received = stream.len() + usize::try_from(gap).unwrap();
                    let name = if channel == 1 { "out" } else { "err" };
                    socket.ack(name, received).await;
                }
                Sent::Control(control) => match control["type"].as_str().unwrap() {
                    "started" | "ack" => {}
                    "gap" => {
                        let at = |name: &str| control[name].as_u64().unwrap();
                        self.gaps.push((control["stream"].clone(), at("from"), at("to")));
                    }
                    "exit" => self.exit = Some(control),
                    other => panic!("{other}"),
                },
                Sent::Pong => {}
                Sent::Closed(code) => return Some(code),
            }
        }
        None
    }

    /// Receives everything until the end of the exec.
    async fn whole(socket: &mut TestSocket) -> Self {
        let mut output = Self::default();
        assert_eq!(output.receive(socket, |_| false).await, Some(1000), "{:?}", output.exit);
        output
    }

    fn text(&self) -> String {
        String::from_utf8(self.streams[0].clone()).unwrap()
    }
}

/// Waits until the program of an exec has ended, and returns the exec.
async fn ended(server: &TestGateway, login: &Login, path: &str) -> Value {
    loop {
        let exec = login.get(server, path).await;
        if !exec["end"].is_null() {
            return exec;
        }
        tokio::task::yield_now().await;
    }
}

/// The output of `seq 1 COUNT`.
fn numbers(count: usize) -> Vec<u8> {
    (1..=count).flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

#[tokio::test]
async fn exec_reads_input_in_pieces_and_its_output_can_be_read_again_from_every_offset() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    running_box(&server, &login, "job").await;
    let script = "printf 'é %s\\n' \"$A\"; cat; echo done >&2; exit 7";
    let new = json!({ "command": ["sh", "-c", script], "env": { "A": "b" }, "workdir": "/" });
    let path = start(&server, &login, &new).await;
    let mut socket = open(&server, &login, &format!("{path}/stream")).await;
    assert_eq!(socket.control().await, json!({ "type": "started", "stdin_offset": 0 }));
    for (offset, piece) in [(0, "hel"), (3, "lo "), (1, "ello wor"), (9, "ld")] {
        socket.input(offset, piece.as_bytes()).await;
    }
    socket.send(json!({ "type": "eof" })).await;
    let output = Output::whole(&mut socket).await;
    assert_eq!(output.text(), "é b\nhello world");
    assert_eq!(output.streams[1], b"done\n");
    assert_eq!(output.exit, Some(json!({ "type": "exit", "code": 7 })));
    let exec = login.get(&server, &path).await;
    assert_eq!((&exec["box"], &exec["end"]["exit"]), (&json!("job"), &json!(7)), "{exec}");
    assert_eq!((&exec["maker"], &exec["stdin_offset"]), (&json!("user:1000"), &json!(11)));
    let length = output.streams[0].len();
    for offset in 0..=length {
        let again = format!("{path}/stream?out={offset}&err={}", offset.min(5));
        let mut socket = open(&server, &login, &again).await;
        let streams = [vec![0; offset], vec![0; offset.min(5)]];
        let mut rest = Output { streams, ..Output::default() };
        assert_eq!(rest.receive(&mut socket, |_| false).await, Some(1000));
        assert_eq!(rest.streams[0][offset..], output.streams[0][offset..]);
        assert_eq!(rest.streams[1][offset.min(5)..], output.streams[1][offset.min(5)..]);
        assert_eq!(rest.exit, output.exit);
    }
    let ahead = format!("{path}/stream?out={}", length + 1);
    let refused = TestSocket::refused(&server, &ahead, &of_login(&login)).await;
    problem(&refused, 409, "conflict");
}

#[tokio::test]
async fn output_that_no_client_reads_is_kept_up_to_a_limit_and_the_rest_is_a_gap() {
    let server =
        TestGateway::with(|options| options.limits.reads = Rate::per_second(10_000, 10_000)).await;
    let login = server.login("local").await;
    running_box(&server, &login, "job").await;
    let path = start(&server, &login, &shell("seq 1 300000")).await;
    let expected = numbers(300_000);
    ended(&server, &login, &path).await;
    let mut socket = open(&server, &login, &format!("{path}/stream?out=100")).await;
    let mut output = Output::default();
    output.streams[0] = vec![0; 100];
    assert_eq!(output.receive(&mut socket, |_| false).await, Some(1000));
    let start = expected.len() - KEPT;
    assert_eq!(output.gaps, [(json!("out"), 100, start as u64)]);
    assert_eq!(output.streams[0][100..], expected[start..]);
    assert_eq!(output.exit, Some(json!({ "type": "exit", "code": 0 })));
}

#[tokio::test]
async fn f14_client_without_acknowledgement_gets_the_window_and_no_more() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    running_box(&server, &login, "job").await;
    let path = start(&server, &login, &shell("seq 1 120000")).await;
    let mut socket = open(&server, &login, &format!("{path}/stream")).await;
    socket.control().await;
    let mut received = Vec::new();
    while received.len() < WINDOW {
        let next = socket.next().await;
        let Sent::Data { channel: 1, data, .. } = next else { panic!("{next:?}") };
        received.extend(data);
    }
    assert_eq!(received.len(), WINDOW);
    socket.ping().await;
    assert_eq!(socket.next().await, Sent::Pong, "the window is full");
    socket.ack("out", WINDOW).await;
    let mut output = Output::default();
    output.streams[0] = received;
    assert_eq!(output.receive(&mut socket, |_| false).await, Some(1000));
    assert_eq!(output.streams[0], numbers(120_000));
}

#[tokio::test]
async fn f14_client_that_breaks_the_protocol_is_disconnected_and_the_program_goes_on() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    running_box(&server, &login, "job").await;
    let path = start(&server, &login, &shell("sleep 600")).await;
    let stream = format!("{path}/stream");
    // More input than the program reads.
    let mut socket = open(&server, &login, &stream).await;
    socket.control().await;
    let piece = vec![b'x'; 64 * 1024];
    // The pipe of the program holds one piece more.
    for number in 0..7 {
        socket.input(number * piece.len(), &piece).await;
    }
    loop {
        let control = socket.control().await;
        if control["type"] == "error" {
            let detail = control["problem"]["detail"].as_str().unwrap();
            assert!(detail.contains("256 KiB"), "{control}");
            break;
        }
    }
    assert_eq!(socket.closed().await, 1002);
    for message in [
        json!({ "type": "ack", "stream": "out", "offset": 1 }),
        json!({ "type": "ack", "stream": "in", "offset": 0 }),
        json!({ "type": "resize", "rows": 0, "columns": 1 }),
        json!({ "type": "signal", "signal": 99 }),
        json!({ "type": "exit" }),
        json!([]),
    ] {
        let mut socket = open(&server, &login, &stream).await;
        socket.control().await;
        socket.send(message.clone()).await;
        assert_eq!(socket.closed().await, 1002, "{message}");
    }
    let mut socket = open(&server, &login, &stream).await;
    socket.control().await;
    socket.input(0, &[0; 64 * 1024 + 1]).await;
    assert_eq!(socket.closed().await, 1009);
    assert_eq!(login.get(&server, &path).await["end"], Value::Null, "it runs");
    open(&server, &login, &stream).await; // control: a client can connect again
}

#[tokio::test]
async fn exec_gets_signals_from_the_route_and_from_the_stream() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    running_box(&server, &login, "job").await;
    let path = start(&server, &login, &shell("sleep 600")).await;
    let signal = format!("{path}/signal");
    for (body, field) in
        [(json!({ "signal": 0 }), "/signal"), (json!({ "signal": "TERM" }), "/signal")]
    {
        let refused = login.post(&server, &signal, &body).await;
        assert_eq!(problem(&refused, 400, "invalid")["field"], field, "{body}");
    }
    let sent = login.post(&server, &signal, &json!({ "signal": 9 })).await;
    assert_eq!(sent.status, 204, "{sent:?}");
    let mut socket = open(&server, &login, &format!("{path}/stream")).await;
    let killed = Some(json!({ "type": "exit", "signal": 9 }));
    assert_eq!(Output::whole(&mut socket).await.exit, killed);
    let sent = login.post(&server, &signal, &json!({ "signal": 9 })).await;
    assert_eq!(sent.status, 204, "it has ended already: {sent:?}");
    let script = "trap 'exit 3' USR1; echo ready; while :; do sleep 0.02; done";
    let path = start(&server, &login, &shell(script)).await;
    let mut socket = open(&server, &login, &format!("{path}/stream")).await;
    let mut output = Output::default();
    output.receive(&mut socket, |output| output.text().contains("ready\n")).await;
    socket.send(json!({ "type": "signal", "signal": 10 })).await;
    assert_eq!(output.receive(&mut socket, |_| false).await, Some(1000));
    assert_eq!(output.exit, Some(json!({ "type": "exit", "code": 3 })));
    let acts = recorded(&server, "local", "access.changed");
    let of = |act: &str| acts.iter().filter(|it| it["act"] == act).count();
    assert_eq!((of("box.exec-started"), of("box.exec-signalled")), (2, 2), "{acts:?}");
}

#[tokio::test]
async fn exec_with_a_terminal_has_the_size_of_the_client() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    running_box(&server, &login, "job").await;
    let mut new = shell("stty size; read line; stty size; echo got $line");
    new["terminal"] = json!({ "rows": 30, "columns": 90 });
    let path = start(&server, &login, &new).await;
    assert_eq!(login.get(&server, &path).await["terminal"], true);
    let mut socket = open(&server, &login, &format!("{path}/stream")).await;
    let mut output = Output::default();
    output.receive(&mut socket, |output| output.text().contains("30 90")).await;
    socket.send(json!({ "type": "resize", "rows": 40, "columns": 100 })).await;
    socket.input(0, b"it\n").await;
    assert_eq!(output.receive(&mut socket, |_| false).await, Some(1000));
    let text = output.text();
    assert!(text.contains("40 100") && text.contains("got it"), "{text}");
    for size in [json!({ "rows": 0 }), json!({ "columns": 1001 }), json!({ "width": 1 })] {
        new["terminal"] = size;
        let refused = login.post(&server, "/v1/boxes/job/execs", &new).await;
        problem(&refused, 400, "invalid");
    }
}

#[tokio::test]
async fn program_that_cannot_be_started_is_refused_and_leaves_no_exec() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    running_box(&server, &login, "job").await;
    for (new, status, kind, field) in [
        (json!({ "command": ["no-such-program"] }), 409, "wrong-state", "/command"),
        (json!({ "command": ["/etc/passwd"] }), 409, "wrong-state", "/command"),
        (json!({ "command": ["true"], "workdir": "/no/such" }), 409, "wrong-state", "/command"),
        (json!({ "command": [] }), 400, "invalid", "/command"),
        (json!({ "command": ["a\u{0}b"] }), 400, "invalid", "/command"),
        (json!({ "command": ["true", "x".repeat(140_000)] }), 400, "invalid", "/command"),
        (json!({ "command": ["true"], "workdir": "tmp" }), 400, "invalid", "/workdir"),
        (json!({ "command": ["true"], "env": { "A=B": "" } }), 400, "invalid", "/env/A=B"),
    ] {
        let refused = login.post(&server, "/v1/boxes/job/execs", &new).await;
        assert_eq!(problem(&refused, status, kind)["field"], field, "{new}");
    }
    start(&server, &login, &json!({ "command": ["true"] })).await; // control
    let database = rusqlite::Connection::open(server.lab.state().join("gateway.db")).unwrap();
    let count: i64 = database.query_row("SELECT count(*) FROM exec", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 1);
    let stopped = login.post(&server, "/v1/boxes/job/stop", &json!({ "now": true })).await;
    assert_eq!(stopped.status, 200, "{stopped:?}");
    let refused = login.post(&server, "/v1/boxes/job/execs", &shell("true")).await;
    problem(&refused, 409, "wrong-state");
}

#[tokio::test]
async fn exec_is_gone_after_its_box_has_stopped_was_started_again_or_was_removed() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    running_box(&server, &login, "job").await;
    let path = start(&server, &login, &shell("echo out; sleep 600")).await;
    let stream = format!("{path}/stream");
    let mut socket = open(&server, &login, &stream).await;
    let mut output = Output::default();
    output.receive(&mut socket, |output| output.text() == "out\n").await;
    for change in ["stop", "start"] {
        let body = if change == "stop" { json!({ "now": true }) } else { json!({}) };
        let changed = login.post(&server, &format!("/v1/boxes/job/{change}"), &body).await;
        assert_eq!(changed.status, 200, "{changed:?}");
        if change == "stop" {
            let code = output.receive(&mut socket, |_| false).await;
            assert!(matches!(code, Some(1000 | 4404)), "{code:?} {output:?}");
        }
        problem(&login.request(&server, "GET", &path).await, 410, "gone");
        let sent = login.post(&server, &format!("{path}/signal"), &json!({ "signal": 15 })).await;
        problem(&sent, 410, "gone");
        let refused = TestSocket::refused(&server, &stream, &of_login(&login)).await;
        problem(&refused, 410, "gone");
    }
    assert_eq!(login.delete(&server, "/v1/boxes/job", &[]).await.status, 204);
    problem(&login.request(&server, "GET", &path).await, 410, "gone");
    let other = format!("/v1/execs/{}", "0".repeat(32));
    problem(&login.request(&server, "GET", &other).await, 404, "not-found");
}

#[tokio::test]
async fn second_client_takes_the_stream_over() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    running_box(&server, &login, "job").await;
    let path = start(&server, &login, &shell("cat")).await;
    let stream = format!("{path}/stream");
    let mut first = open(&server, &login, &stream).await;
    first.control().await;
    let mut second = open(&server, &login, &stream).await;
    assert_eq!(first.closed().await, 4409);
    second.input(0, b"second").await;
    second.send(json!({ "type": "eof" })).await;
    assert_eq!(Output::whole(&mut second).await.text(), "second");
}

#[tokio::test]
async fn streams_continue_with_equal_bytes_after_the_server_was_killed() {
    let mut server = TestGateway::mortal().await;
    let login = server.login("local").await;
    running_box(&server, &login, "job").await;
    let path =
        start(&server, &login, &shell("while read count; do seq 1 $count; done; exit 4")).await;
    let (round, rounds) = (b"20000\n", 4);
    let (mut output, mut sent) = (Output::default(), 0);
    for number in 0..rounds {
        let [out, err] = output.streams.each_ref().map(Vec::len);
        let stream = format!("{path}/stream?out={out}&err={err}");
        let mut socket = open(&server, &login, &stream).await;
        let started = socket.control().await;
        assert_eq!(started["stdin_offset"], sent, "the program has read everything");
        socket.input(sent, round).await;
        sent += round.len();
        // The server ends in the middle of the output of this round.
        let middle = numbers(20_000).len() * number + 30_000;
        output.receive(&mut socket, |output| output.streams[0].len() >= middle).await;
        server = server.killed().await;
        // The end of the server can be noticed by its tasks.
        let code = output.receive(&mut socket, |_| false).await;
        assert!(matches!(code, Some(1001 | 1006)), "{code:?}");
        let [out, err] = output.streams.each_ref().map(Vec::len);
        let stream = format!("{path}/stream?out={out}&err={err}");
        let mut socket = open(&server, &login, &stream).await;
        let whole = numbers(20_000).len() * (number + 1);
        output.receive(&mut socket, |output| output.streams[0].len() >= whole).await;
    }
    let out = output.streams[0].len();
    let mut socket = open(&server, &login, &format!("{path}/stream?out={out}")).await;
    socket.send(json!({ "type": "eof" })).await;
    assert_eq!(output.receive(&mut socket, |_| false).await, Some(1000));
    assert_eq!(output.streams[0], numbers(20_000).repeat(rounds));
    assert_eq!(output.exit, Some(json!({ "type": "exit", "code": 4 })));
}

#[tokio::test]
async fn repeated_start_with_the_same_key_starts_one_program() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    running_box(&server, &login, "job").await;
    let mut headers = login.headers().to_vec();
    headers.push("Idempotency-Key: once".to_owned());
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let path = "/v1/boxes/job/execs";
    let first = server.post_to(&login.host, path, &shell("true"), &headers).await;
    let second = server.post_to(&login.host, path, &shell("true"), &headers).await;
    assert_eq!((first.status, &first.body), (201, &second.body), "{second:?}");
    assert_eq!(second.header("idempotency-replayed"), Some("true"));
    assert_eq!(recorded(&server, "local", "box.exec").len(), 1);
    let other = server.post_to(&login.host, path, &shell("false"), &headers).await;
    problem(&other, 409, "key-reused");
}

#[tokio::test]
async fn f08_exec_of_another_tenant_or_principal_is_unknown() {
    let server = TestGateway::start().await;
    let new = json!({ "name": "team-7", "issuer": "https://id.example", "subject": "ada" });
    assert_eq!(server.local_post("/local/tenants", &new).await.status, 201);
    let (local, team) = (server.login("local").await, server.login("team-7").await);
    let member = server.login_as("local", "person:https://id.example#m", "member").await;
    let auditor = server.login_as("local", "person:https://id.example#a", "auditor").await;
    running_box(&server, &local, "job").await;
    let path = start(&server, &local, &shell("sleep 600")).await;
    for (login, status, kind) in
        [(&team, 404, "not-found"), (&member, 404, "not-found"), (&auditor, 403, "forbidden")]
    {
        let started = login.post(&server, "/v1/boxes/job/execs", &shell("true")).await;
        problem(&started, status, kind);
        problem(&login.request(&server, "GET", &path).await, status, kind);
        let sent = login.post(&server, &format!("{path}/signal"), &json!({ "signal": 9 })).await;
        problem(&sent, status, kind);
        let stream = format!("{path}/stream");
        let refused = TestSocket::refused(&server, &stream, &of_login(login)).await;
        problem(&refused, status, kind);
    }
    let operator = server.login_as("local", "person:https://id.example#o", "operator").await;
    assert_eq!(operator.get(&server, &path).await["end"], Value::Null, "control: it runs");
}

#[tokio::test]
async fn f17_streams_are_closed_when_their_token_is_revoked_or_expires() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let scopes = ["boxes:read", "boxes:write"];
    let token = login.token(&server, &scopes).await;
    running_box(&server, &login, "job").await;
    let path = start(&server, &login, &shell("cat")).await;
    let stream = format!("{path}/stream");
    let mut exec = TestSocket::open(&server, &stream, &of_token(&server, &token)).await;
    exec.control().await;
    let mut screen =
        TestSocket::open(&server, "/v1/boxes/job/screen", &of_token(&server, &token)).await;
    let id = token.split('_').nth(1).unwrap();
    let revoke = format!("/v1/tokens/{id}");
    let revoked = login.delete(&server, &revoke, &["If-Match: \"1\""]).await;
    assert_eq!(revoked.status, 204, "{revoked:?}");
    assert_eq!(exec.closed().await, 4403);
    assert_eq!(screen.closed().await, 4403);
    let refused = TestSocket::refused(&server, &stream, &of_token(&server, &token)).await;
    problem(&refused, 401, "unauthenticated");
    // Control: the stream of another credential is open, and the program runs.
    let mut other = open(&server, &login, &stream).await;
    let token = login.token(&server, &["boxes:write"]).await;
    let database = rusqlite::Connection::open(server.lab.state().join("gateway.db")).unwrap();
    database.busy_timeout(belljar_testkit::DEADLINE).unwrap();
    let now = belljar_testkit::wall_clock().duration_since(std::time::UNIX_EPOCH).unwrap();
    let soon = i64::try_from(now.as_millis()).unwrap() + 3000;
    database.execute("UPDATE token SET expires = ?1 WHERE revoked IS NULL", [soon]).unwrap();
    let path = "/v1/boxes/job/screen?view=true";
    let mut screen = TestSocket::open(&server, path, &of_token(&server, &token)).await;
    assert_eq!(screen.closed().await, 4401);
    other.send(json!({ "type": "eof" })).await;
    assert_eq!(Output::whole(&mut other).await.exit, Some(json!({ "type": "exit", "code": 0 })));
}

#[tokio::test]
async fn f17_stream_of_a_person_is_closed_when_the_person_logs_out_or_loses_the_role() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    running_box(&server, &login, "job").await;
    let path = start(&server, &login, &shell("sleep 600")).await;
    let stream = format!("{path}/stream");
    let operator = server.login_as("local", "person:https://id.example#o", "operator").await;
    let mut socket = open(&server, &operator, &stream).await;
    let logged_out = operator.post(&server, "/auth/logout", &json!({})).await;
    assert_eq!(logged_out.status, 204, "{logged_out:?}");
    assert_eq!(socket.closed().await, 4403);
    let admin = server.login_as("local", "person:https://id.example#a", "admin").await;
    let mut socket = open(&server, &admin, &stream).await;
    let database = rusqlite::Connection::open(server.lab.state().join("gateway.db")).unwrap();
    database.busy_timeout(belljar_testkit::DEADLINE).unwrap();
    let sql = "UPDATE principal SET role = 'member' WHERE role = 'admin'";
    assert_eq!(database.execute(sql, []).unwrap(), 1);
    assert_eq!(socket.closed().await, 4403);
    let refused = TestSocket::refused(&server, &stream, &of_login(&admin)).await;
    problem(&refused, 404, "not-found");
}

#[tokio::test]
async fn f14_principal_has_at_most_16_open_sockets() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    running_box(&server, &login, "job").await;
    let path = start(&server, &login, &shell("sleep 600")).await;
    let screen = "/v1/boxes/job/screen?view=true";
    let mut sockets = Vec::new();
    for _ in 0..16 {
        sockets.push(open(&server, &login, screen).await);
    }
    let stream = format!("{path}/stream");
    let refused = TestSocket::refused(&server, &stream, &of_login(&login)).await;
    problem(&refused, 429, "too-many-requests");
    drop(sockets);
    loop {
        let response =
            TestSocket::refused(&server, &format!("{path}/stream?out=1"), &of_login(&login)).await;
        if response.status == 409 {
            break; // control: the client is ahead of the program, but may connect
        }
        problem(&response, 429, "too-many-requests");
    }
}
