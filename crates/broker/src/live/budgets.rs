//! Budgets and limits, against programs that try to evade them.

use std::io::Read as _;

use belljar_model::net::{MicroUsd, RuleLimits, Tls};
use belljar_testkit::{Authority, Reply, Upstream};

use super::*;

const MODEL: &str = "api.openai.com";
const CALL: &str = "POST /v1/chat/completions";

/// Starts a broker whose run has a budget, with a rule for the server of a model.
fn with_budget(authority: &Authority, model: &Upstream, budget: Budget) -> Live {
    let allow = vec![rule_for(MODEL, model.address(), &[])];
    Live::start(authority, Policy { allow, budget, ..policy() })
}

fn tokens(tokens: u64) -> Budget {
    Budget { tokens: Some(tokens), ..Budget::default() }
}

/// Returns the status of a call of the model.
fn call(live: &Live, start: &str, body: &str) -> String {
    let answer = live.request_to(MODEL, start, &[("content-type", "application/json")], body);
    answer.get(9..12).unwrap_or_default().to_owned()
}

/// Waits until the total number of tokens of the run is charged, and returns the total.
fn spent(live: &Live, charges: usize) -> u64 {
    live.wait_all(|events| {
        let totals = events.iter().filter_map(|event| {
            let BrokerEvent::Spent { unit, total, .. } = event else { return None };
            (unit == "tokens").then_some(*total)
        });
        totals.collect::<Vec<u64>>().get(charges - 1).copied()
    })
}

#[test]
fn h16_model_call_without_reported_usage_costs_its_whole_reservation() {
    let authority = Authority::new();
    let model = Upstream::tls(&authority, &[MODEL], |_| {
        Reply::new(200, "data: {\"choices\":[]}\n\ndata: [DONE]\n\n")
            .header("content-type", "text/event-stream")
    });
    let live = with_budget(&authority, &model, tokens(10_000));
    let body = r#"{"model":"gpt-5","stream":true,"max_tokens":4000}"#;
    assert_eq!(call(&live, CALL, body), "200");
    assert_eq!(spent(&live, 1), 4025, "4000 tokens of output and the input");
    assert_eq!(call(&live, CALL, body), "200");
    assert_eq!(spent(&live, 2), 8050);
    assert_eq!(call(&live, CALL, body), "429", "too little is left");
    assert_eq!(model.received().len(), 2);
    // Control: without a budget, nothing is reserved.
    let free = with_budget(&authority, &model, Budget::default());
    assert!((0..4).all(|_| call(&free, CALL, body) == "200"));
}

#[test]
fn h16_model_call_with_reported_usage_costs_its_usage() {
    let authority = Authority::new();
    let model = Upstream::tls(&authority, &[MODEL], |received| match received.path.as_str() {
        "/v1/responses" => Reply::new(429, "{}"),
        _ => Reply::new(200, r#"{"usage":{"prompt_tokens":7,"completion_tokens":3}}"#),
    });
    let live = with_budget(&authority, &model, tokens(5000));
    for round in 1..=20 {
        assert_eq!(call(&live, CALL, r#"{"max_tokens":4000}"#), "200");
        assert_eq!(spent(&live, round), 10 * u64::try_from(round).unwrap());
    }
    // A refusal of the provider costs nothing.
    for _ in 0..3 {
        assert_eq!(call(&live, "POST /v1/responses", r#"{"max_output_tokens":4000}"#), "429");
    }
    assert_eq!(model.received().len(), 23);
    let money = Budget { money: Some(MicroUsd(1_000_000)), ..Budget::default() };
    let live = with_budget(&authority, &model, money);
    let expensive = r#"{"model":"gpt-5","max_tokens":900000}"#;
    assert_eq!(call(&live, CALL, expensive), "429", "the output can cost 9 USD");
    assert_eq!(call(&live, CALL, r#"{"model":"gpt-5","max_tokens":9000}"#), "200");
}

#[test]
fn h16_client_that_hangs_up_pays_the_whole_reservation() {
    let authority = Authority::new();
    let model = Upstream::tls(&authority, &[MODEL], |_| {
        let mut reply = Reply::new(200, "").header("content-type", "text/event-stream");
        let usage = "data: {\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":0}}\n\n";
        // The events never end, so the client decides when the response is over.
        reply.chunks = std::iter::repeat_n(usage.as_bytes().to_vec(), 1 << 20).collect();
        reply
    });
    let live = with_budget(&authority, &model, tokens(6000));
    let body = r#"{"stream":true,"max_tokens":5000}"#;
    let mut stream = live.connect_to(MODEL);
    let length = body.len();
    write!(stream, "{CALL} HTTP/1.1\r\nhost: {MODEL}\r\ncontent-length: {length}\r\n\r\n{body}")
        .unwrap();
    let mut seen = [0; 1000];
    stream.read_exact(&mut seen).unwrap();
    drop(stream);
    assert_eq!(spent(&live, 1), 5017);
}

#[test]
fn h16_requests_that_run_at_once_cannot_exceed_a_budget_together() {
    let authority = Authority::new();
    let model = Upstream::tls(&authority, &[MODEL], |_| {
        let mut reply = Reply::new(200, "").header("content-type", "text/event-stream");
        reply.chunks = std::iter::repeat_n(b"data: {}\n\n".to_vec(), 1 << 20).collect();
        reply
    });
    let live = with_budget(&authority, &model, tokens(10_000));
    let body = r#"{"max_tokens":4000}"#;
    let start = || {
        let (mut stream, length) = (live.connect_to(MODEL), body.len());
        write!(
            stream,
            "{CALL} HTTP/1.1\r\nhost: {MODEL}\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        (stream, String::from_utf8_lossy(&status[9..]).into_owned())
    };
    let running: Vec<_> = (0..4).map(|_| start()).collect();
    let codes: Vec<&str> = running.iter().map(|(_, code)| code.as_str()).collect();
    assert_eq!(codes, ["200", "200", "429", "429"]);
}

#[test]
fn h16_request_that_cannot_be_metered_is_refused_under_a_token_budget() {
    let authority = Authority::new();
    let model = Upstream::tls(&authority, &[MODEL, HOST], |_| Reply::new(200, "{}"));
    let live = with_budget(&authority, &model, tokens(1_000_000));
    let uncountable = |start: &str, headers: &[(&str, &str)], body: &str| {
        let answer = live.request_to(MODEL, start, headers, body);
        answer.contains("x-belljar: uncountable")
    };
    assert!(uncountable("POST /v1/images/generations", &[], "{}"));
    assert!(uncountable("POST /v1/audio/speech", &[], "{}"));
    assert!(uncountable(CALL, &[("content-encoding", "gzip")], "{}"));
    assert!(uncountable(CALL, &[], "not json"));
    let upgrade = [("upgrade", "websocket"), ("sec-websocket-version", "13")];
    assert!(uncountable("GET /v1/realtime", &upgrade, ""));
    assert_eq!(model.received().len(), 0);
    assert_eq!(call(&live, "GET /v1/models", ""), "200", "control: a request without cost");
    assert_eq!(call(&live, CALL, "{}"), "200", "control: a request with a known cost");
    // A secret with such a budget is for models only.
    let mut policy = token_policy(model.address());
    policy.secrets[0].budget = tokens(1000);
    let live = Live::start(&authority, policy);
    let bearer = format!("Bearer {}", live.placeholder());
    let answer = live.request("POST /", &[("authorization", &bearer)], "{}");
    assert!(answer.contains("x-belljar: uncountable"), "{answer}");
    assert!(live.request("POST /", &[], "{}").contains("200 OK"), "control: without the secret");
}

/// Starts a server that sends `size` bytes to every client, after one byte of the client.
fn blob(size: usize) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                if stream.read_exact(&mut [0]).is_ok() {
                    stream.write_all(&vec![b'x'; size]).ok(); // the client can have disconnected
                }
            });
        }
    });
    address
}

/// Returns the number of bytes that a raw connection of the box receives.
fn receive(live: &Live) -> usize {
    let mut stream = TcpStream::connect(live.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(b"x").unwrap();
    read_all(&mut stream).len()
}

#[test]
fn h16_budgets_cover_raw_connections() {
    let authority = Authority::new();
    let dialled = "203.0.113.7:5432";
    let mut rule = Rule::allow(&format!("tcp://{dialled}")).unwrap();
    if let RuleTarget::Tcp(tcp) = &mut rule.what {
        tcp.connect = Some(blob(5 << 20));
    }
    let start = |budget: Budget| {
        let policy = Policy { allow: vec![rule.clone()], budget, ..policy() };
        Live::start_with(&authority, policy, Vec::new(), dialled)
    };
    assert_eq!(receive(&start(Budget::default())), 5 << 20, "control: without a budget");
    let live = start(Budget { bytes: Some("100KB".parse().unwrap()), ..Budget::default() });
    let received = receive(&live);
    assert!(received <= 100_000, "{received}");
    let error = live.error();
    assert!(error.contains("has used up its"), "{error}");
    assert_eq!(receive(&live), 0, "the budget stays used up");
    let live = start(Budget { requests: Some(3), ..Budget::default() });
    let received: Vec<usize> = (0..5).map(|_| receive(&live)).collect();
    assert_eq!(received, [5 << 20, 5 << 20, 5 << 20, 0, 0]);
    assert!(live.denial().starts_with("spent: "));
}

#[test]
fn h16_limits_and_budgets_cover_tls_passthrough() {
    let authority = Authority::new();
    let server =
        Upstream::tls(&authority, &[MODEL, HOST], |_| Reply::new(200, vec![b'x'; 1 << 20]));
    let start = |host: &str, limits: RuleLimits, budget: Budget| {
        let mut rule = rule_for(host, server.address(), &[]);
        if let RuleTarget::Http(http) = &mut rule.what {
            (http.tls, http.websocket, http.limits) = (Tls::Passthrough, false, limits);
        }
        Live::start(&authority, Policy { allow: vec![rule], budget, ..policy() })
    };
    let (none, free) = (RuleLimits::default(), Budget::default());
    // The client trusts the authority of the server, because the broker does not intercept.
    let get = |live: &Live, host: &str, body: usize| {
        let trusting = Live { certificate: authority.pem().as_bytes().to_vec(), ..live.clone() };
        let request = || trusting.request_to(host, "POST /", &[], &"b".repeat(body)).len();
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(request)).unwrap_or(0)
    };
    assert!(get(&start(HOST, none, free), HOST, 1) > 1 << 20, "control: without a limit");
    let total = RuleLimits { total: Some("100KB".parse().unwrap()), ..none };
    assert!(get(&start(HOST, total, free), HOST, 1) < 100_000);
    let upload = RuleLimits { upload: Some("20KB".parse().unwrap()), ..none };
    let live = start(HOST, upload, free);
    assert!(get(&live, HOST, 1) > 1 << 20, "control: a small request");
    assert_eq!(get(&live, HOST, 100_000), 0);
    let rate = RuleLimits { requests: Some("2/h".parse().unwrap()), ..none };
    let live = start(HOST, rate, free);
    let received: Vec<bool> = (0..4).map(|_| get(&live, HOST, 1) > 0).collect();
    assert_eq!(received, [true, true, false, false]);
    let budget = Budget { bytes: Some("100KB".parse().unwrap()), ..free };
    assert!(get(&start(HOST, none, budget), HOST, 1) < 100_000);
    // What a model uses is not visible in a forwarded connection.
    assert!(get(&start(MODEL, none, free), MODEL, 1) > 1 << 20, "control: without a budget");
    assert_eq!(get(&start(MODEL, none, tokens(1000)), MODEL, 1), 0);
}
