//! Questions with an answer, some of them after several tries.

use belljar_testkit::Reply;
use belljar_wire::{InputSource, ModelInput, ModelJob, ModelOutput, ModelProtocol, ModelUsage};
use serde_json::Value;

use super::server::{ALL, Server, ask_job, events, half, quick, stream};

#[test]
fn model_answers_with_text_model_and_usage() {
    for (protocol, path, key, value) in [
        (ModelProtocol::Anthropic, "/v1/messages", "x-api-key", "placeholder"),
        (ModelProtocol::OpenAiChat, "/v1/chat/completions", "authorization", "Bearer placeholder"),
        (ModelProtocol::OpenAiResponses, "/v1/responses", "authorization", "Bearer placeholder"),
    ] {
        let server = Server::new(vec![events(&stream(protocol, "hello"))]);
        let asked = server.ask(protocol);
        assert_eq!(asked.text(), "hello");
        let answer = asked.result.unwrap();
        let usage = ModelUsage { input: 7, output: 2, ..ModelUsage::default() };
        assert_eq!((answer.model.as_deref(), answer.usage), (Some("answering"), usage));
        assert_eq!((answer.turns, asked.lines.len()), (1, 0));
        let received = server.upstream.received();
        assert_eq!(received.len(), 1);
        assert_eq!((received[0].method.as_str(), received[0].path.as_str()), ("POST", path));
        assert_eq!(received[0].header(key), Some(value));
        let body: Value = serde_json::from_slice(&received[0].body).unwrap();
        assert_eq!((&body["model"], &body["stream"]), (&Value::from("m"), &Value::from(true)));
    }
}

#[test]
fn answer_in_single_bytes_is_read_from_a_real_connection() {
    for protocol in ALL {
        let mut reply = events("");
        reply.chunks = stream(protocol, "gr\u{fc}n").bytes().map(|byte| vec![byte]).collect();
        assert_eq!(Server::new(vec![reply]).ask(protocol).text(), "gr\u{fc}n");
    }
}

#[test]
fn failed_tries_are_repeated_and_their_text_is_discarded() {
    let error = "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n";
    for protocol in ALL {
        let whole = stream(protocol, "never seen");
        let first_event = whole.split_inclusive("\n\n").next().unwrap();
        for (reply, expected) in [
            (Reply::new(408, ""), "408 Request Timeout"),
            (Reply::new(409, ""), "409 Conflict"),
            (Reply::new(500, "{\"error\":{\"message\":\"broken\"}}"), "broken"),
            (Reply::new(502, ""), "502 Bad Gateway"),
            (Reply::new(503, ""), "503 Service Unavailable"),
            (Reply::new(504, ""), "504 Gateway Timeout"),
            (Reply::new(599, ""), "599"),
            (Reply::new(429, "busy").header("retry-after", "0"), "429 Too Many Requests"),
            (Reply::new(529, ""), "529"),
            (events(&half(protocol)), "ended before the answer"),
            (events(&(first_event.to_owned() + error)), "busy"),
            (
                Reply::new(502, "belljar: no connection\n").header("x-belljar", "upstream"),
                "no connection",
            ),
        ] {
            check(protocol, reply, expected);
        }
    }
}

#[track_caller]
fn check(protocol: ModelProtocol, failing: Reply, expected: &str) {
    let server = Server::new(vec![failing.clone(), failing, events(&stream(protocol, "hello"))]);
    let asked = server.ask(protocol);
    assert_eq!(asked.text(), "hello");
    assert_eq!(server.requests(), 3);
    assert_eq!(asked.lines.len(), 2, "{:?}", asked.lines);
    assert!(asked.lines.iter().all(|line| line.contains(expected)), "{:?}", asked.lines);
}

#[test]
fn retry_after_of_a_429_is_the_waiting_time() {
    let date = |seconds: u32| format!("Sun, 06 Nov 1994 08:49:{seconds:02} GMT");
    let limited = || Reply::new(429, "slow down");
    let server = Server::new(vec![
        limited().header("retry-after", "1"),
        limited().header("retry-after", &date(31)).header("date", &date(30)),
        events(&stream(ModelProtocol::Anthropic, "hello")),
    ]);
    let asked = server.ask(ModelProtocol::Anthropic);
    assert_eq!(asked.text(), "hello");
    let line = "the server responded 429 Too Many Requests: slow down; next try in 1 s";
    assert_eq!(asked.lines, [line, line]);
}

#[test]
fn json_answer_is_repaired_once() {
    for protocol in ALL {
        let server = Server::new(vec![
            events(&stream(protocol, "{\"a\":")),
            events(&stream(protocol, "```json\n{\"a\": 1}\n```")),
        ]);
        let job = ModelJob { output: ModelOutput::Json { schema: None }, ..server.job(protocol) };
        let asked = ask_job(&job, &quick());
        assert_eq!(asked.text(), "{\"a\": 1}");
        let answer = asked.result.unwrap();
        assert_eq!((answer.turns, answer.usage.input, answer.usage.output), (2, 14, 4));
        let second = String::from_utf8(server.upstream.received()[1].body.clone()).unwrap();
        assert!(second.contains("not valid JSON") && second.contains("{\\\"a\\\":"), "{second}");
    }
}

#[test]
fn json_answer_without_fault_needs_one_turn() {
    let server = Server::new(vec![events(&stream(ModelProtocol::Anthropic, "[1]"))]);
    let output = ModelOutput::Json { schema: Some("{}".to_owned()) };
    let job = ModelJob { output, ..server.job(ModelProtocol::Anthropic) };
    let asked = ask_job(&job, &quick());
    assert_eq!((asked.text(), server.requests()), ("[1]", 1));
}

#[test]
fn inputs_from_text_and_files_are_in_the_request() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("issue");
    std::fs::write(&path, "content of the file").unwrap();
    let server = Server::new(vec![events(&stream(ModelProtocol::Anthropic, "ok"))]);
    let input = |name: &str, source| ModelInput { name: name.to_owned(), source };
    let inputs = vec![
        input("note", InputSource::Text("content of the note".to_owned())),
        input("issue", InputSource::File(path.to_str().unwrap().to_owned())),
    ];
    let job = ModelJob { inputs, ..server.job(ModelProtocol::Anthropic) };
    assert_eq!(ask_job(&job, &quick()).text(), "ok");
    let body: Value = serde_json::from_slice(&server.upstream.received()[0].body).unwrap();
    let part = |at: usize| body["messages"][0]["content"][at]["text"].as_str().unwrap();
    assert!(part(1).contains("\ncontent of the note\n"), "{body}");
    assert!(part(2).contains("\ncontent of the file\n"), "{body}");
}
