//! Questions without an answer. Each has a named failure.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use belljar_testkit::Reply;
use belljar_wire::{InputSource, ModelInput, ModelJob, ModelOutput, ModelProtocol};
use belljar_worker::model::Limits;

use super::server::{ALL, Server, ask_job, events, half, quick, stream};

#[test]
fn server_that_never_answers_well_is_tried_six_times() {
    for protocol in ALL {
        for (reply, kind, expected) in [
            (Reply::new(500, "broken"), "unavailable", "500 Internal Server Error: broken"),
            (Reply::new(429, "").header("retry-after", "0"), "unavailable", "429"),
            (events(&half(protocol)), "cut_off", "ended before the answer"),
            (events(""), "cut_off", "ended before the answer"),
        ] {
            let server = Server::new(vec![reply]);
            let asked = server.ask(protocol);
            let (got, message) = asked.failure();
            assert_eq!(got, kind);
            assert!(message.contains(expected) && message.ends_with("tried 6 times"), "{message}");
            assert_eq!((server.requests(), asked.lines.len()), (6, 5));
        }
    }
}

#[test]
fn lost_connection_is_cut_off_in_mid_stream_and_unavailable_before() {
    for protocol in ALL {
        let part = half(protocol);
        let length = part.len();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
        let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n{length:x}\r\n{part}");
        for (response, kind) in [(chunked, "cut_off"), (String::new(), "unavailable")] {
            let (port, requests) = hang_up_after(response);
            let url = Some(format!("http://model.example.com:{port}"));
            let job = ModelJob { url, ..Server::new(vec![events("")]).job(protocol) };
            let asked = ask_job(&job, &quick());
            assert_eq!(asked.failure().0, kind, "{asked:?}");
            assert_eq!(requests.load(Ordering::SeqCst), 6);
        }
    }
}

/// Starts a server that sends these bytes after each request and closes the connection.
fn hang_up_after(response: String) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut request = BufReader::new(connection.try_clone().unwrap());
            let mut length = 0;
            loop {
                let mut line = String::new();
                request.read_line(&mut line).unwrap();
                let value = line.to_ascii_lowercase();
                if let Some(value) = value.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            // Unread bytes would make the kernel discard the response.
            request.read_exact(&mut vec![0; length]).unwrap();
            counter.fetch_add(1, Ordering::SeqCst);
            connection.write_all(response.as_bytes()).unwrap();
        }
    });
    (port, requests)
}

#[test]
fn final_failure_is_not_tried_again() {
    let too_long = "{\"error\":{\"message\":\"prompt is too long: 9 > 8\"}}";
    let context = "{\"error\":{\"message\":\"m\",\"code\":\"context_length_exceeded\"}}";
    let broker =
        |status: u16, code: &str| Reply::new(status, "belljar: reason\n").header("x-belljar", code);
    for protocol in ALL {
        for (reply, kind, expected) in [
            (Reply::new(401, "wrong key"), "bad_key", "401 Unauthorized: wrong key"),
            (Reply::new(403, ""), "bad_key", "403 Forbidden"),
            (Reply::new(400, "no"), "cannot_start", "400 Bad Request: no"),
            (Reply::new(404, "no model"), "cannot_start", "404 Not Found: no model"),
            (Reply::new(402, ""), "cannot_start", "402 Payment Required"),
            (Reply::new(405, ""), "cannot_start", "405 Method Not Allowed"),
            (Reply::new(422, ""), "cannot_start", "422 Unprocessable Entity"),
            (Reply::new(451, ""), "cannot_start", "451"),
            (Reply::new(400, too_long), "too_long", "prompt is too long"),
            (Reply::new(400, context), "too_long", "400"),
            (Reply::new(413, ""), "too_long", "413"),
            (Reply::new(302, "").header("location", "/x"), "cannot_start", "redirect"),
            (Reply::new(200, "{}").header("content-type", "application/json"), "invalid", "stream"),
            (events(&stream(protocol, "")), "invalid", "empty"),
            (events("data: nonsense\n\n"), "invalid", "not valid JSON"),
            (events(&refusal(protocol)), "refused", "refused to answer"),
            (events(&full(protocol)), "too_long", "reached the limit of tokens"),
            (events(&deep()), "invalid", "nested deeper than 64 levels"),
            (events(&long()), "invalid", "an event is longer than 1048576 bytes"),
            (broker(403, "no-rule"), "cannot_start", "reason"),
            (broker(429, "spent"), "over_budget", "reason"),
        ] {
            let server = Server::new(vec![reply]);
            let asked = server.ask(protocol);
            let (got, message) = asked.failure();
            assert_eq!(got, kind, "{message}");
            assert!(message.contains(expected), "{message}");
            assert_eq!(server.requests(), 1, "{message}");
        }
    }
}

fn refusal(protocol: ModelProtocol) -> String {
    match protocol {
        ModelProtocol::Anthropic => stream(protocol, "no").replace("end_turn", "refusal"),
        ModelProtocol::OpenAiChat => stream(protocol, "no").replace("\"content\"", "\"refusal\""),
        ModelProtocol::OpenAiResponses => {
            stream(protocol, "no").replace("output_text.delta", "refusal.delta")
        }
    }
}

/// Returns an answer that reached the limit of tokens.
fn full(protocol: ModelProtocol) -> String {
    let (end, limit) = match protocol {
        ModelProtocol::Anthropic => ("end_turn", "max_tokens"),
        ModelProtocol::OpenAiChat => ("\"finish_reason\":\"stop\"", "\"finish_reason\":\"length\""),
        ModelProtocol::OpenAiResponses => ("response.completed", "response.incomplete"),
    };
    stream(protocol, "unfinished").replace(end, limit)
}

fn deep() -> String {
    format!("data: {{\"a\":{}{}}}\n\n", "[".repeat(64), "]".repeat(64))
}

fn long() -> String {
    format!("data: {{\"a\":\"{}\"}}\n\n", "x".repeat(1 << 20))
}

#[test]
fn endless_answer_ends_at_its_maximum_size() {
    for protocol in ALL {
        let text = "x".repeat(1000);
        let whole = stream(protocol, &text);
        let event = whole.split_inclusive("\n\n").find(|it| it.contains(&text)).unwrap();
        let mut reply = events("");
        // Much more than the client reads.
        reply.chunks = vec![event.repeat(64).into_bytes(); 600];
        let server = Server::new(vec![reply]);
        let asked = server.ask(protocol);
        let (kind, message) = asked.failure();
        assert_eq!((kind, message), ("too_long", "the answer is longer than 16777216 bytes"));
        assert_eq!(server.requests(), 1);
    }
}

#[test]
fn endless_stream_without_text_ends_at_the_deadline() {
    let mut reply = events("");
    reply.chunks = vec![b": ping\n\n".to_vec(); 100_000];
    reply.pause = Duration::from_millis(10);
    let server = Server::new(vec![reply]);
    // Long enough for the start of the stream on a busy machine.
    let limits = Limits { deadline: Duration::from_secs(3), ..quick() };
    let asked = ask_job(&server.job(ModelProtocol::Anthropic), &limits);
    assert_eq!(asked.failure(), ("cut_off", "the answer did not end within 3 s"));
}

#[test]
fn silent_server_is_tried_again() {
    for protocol in ALL {
        let mut reply = events(&half(protocol));
        reply.pause = Duration::from_secs(600);
        let server = Server::new(vec![reply, events(&stream(protocol, "hello"))]);
        let limits = Limits { silence: Duration::from_millis(500), ..quick() };
        let asked = ask_job(&server.job(protocol), &limits);
        assert_eq!(asked.text(), "hello");
        assert!(asked.lines[0].starts_with("the server sent nothing for 0.5 s"), "{asked:?}");
    }
}

#[test]
fn server_that_accepts_a_request_and_sends_nothing_is_tried_six_times() {
    for protocol in ALL {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        std::thread::spawn(move || {
            let mut open = Vec::new(); // a closed connection would not be silent
            for connection in listener.incoming() {
                open.push(connection.unwrap());
                counter.fetch_add(1, Ordering::SeqCst);
            }
        });
        let url = Some(format!("http://model.example.com:{port}"));
        let job = ModelJob { url, ..Server::new(vec![events("")]).job(protocol) };
        let limits = Limits { silence: Duration::from_millis(100), ..quick() };
        let asked = ask_job(&job, &limits);
        let (kind, message) = asked.failure();
        assert_eq!(kind, "unavailable");
        assert_eq!(message, "the server sent nothing for 0.1 s; tried 6 times");
        assert_eq!(connections.load(Ordering::SeqCst), 6);
    }
}

#[test]
fn long_retry_after_is_shortened_to_its_maximum() {
    for protocol in ALL {
        let busy = Reply::new(429, "").header("retry-after", "86400");
        let server = Server::new(vec![busy, events(&stream(protocol, "hello"))]);
        let limits = Limits { max_retry_after: Duration::from_millis(2), ..quick() };
        let asked = ask_job(&server.job(protocol), &limits);
        assert_eq!(asked.text(), "hello");
        assert!(asked.lines[0].ends_with("; next try in 0.002 s"), "{asked:?}");
    }
}

#[test]
fn wait_beyond_the_deadline_fails_at_once() {
    let server = Server::new(vec![Reply::new(429, "").header("retry-after", "3600")]);
    let limits = Limits { deadline: Duration::from_secs(500), ..quick() };
    let asked = ask_job(&server.job(ModelProtocol::Anthropic), &limits);
    let (kind, message) = asked.failure();
    assert_eq!(kind, "unavailable");
    assert!(message.ends_with("the next try would be after the deadline"), "{message}");
}

#[test]
fn json_that_is_still_wrong_after_one_repair_is_invalid() {
    for protocol in ALL {
        let server = Server::new(vec![events(&stream(protocol, "no JSON"))]);
        let job = ModelJob { output: ModelOutput::Json { schema: None }, ..server.job(protocol) };
        let asked = ask_job(&job, &quick());
        assert_eq!(asked.failure().0, "invalid");
        assert_eq!(server.requests(), 2);
    }
}

#[test]
fn job_that_cannot_be_carried_out_sends_no_request() {
    let server = Server::new(vec![events("")]);
    let job = || server.job(ModelProtocol::Anthropic);
    let input = |source| vec![ModelInput { name: "x".to_owned(), source }];
    let missing = input(InputSource::File("/nonexistent/file".to_owned()));
    let long = input(InputSource::Text("abc".to_owned()));
    for (job, kind, expected) in [
        (ModelJob { url: Some("nonsense".to_owned()), ..job() }, "cannot_start", "not valid"),
        (ModelJob { url: Some("file:///x".to_owned()), ..job() }, "cannot_start", "only http:"),
        (ModelJob { key_variable: Some("OTHER".to_owned()), ..job() }, "bad_key", "`OTHER`"),
        (ModelJob { inputs: missing, ..job() }, "cannot_start", "cannot read the input `x`"),
        (ModelJob { inputs: long, ..job() }, "too_long", "the inputs are longer than 2 bytes"),
    ] {
        let asked = ask_job(&job, &Limits { inputs: 2, ..quick() });
        let (got, message) = asked.failure();
        assert_eq!(got, kind, "{message}");
        assert!(message.contains(expected), "{message}");
    }
    assert_eq!(server.requests(), 0);
}
