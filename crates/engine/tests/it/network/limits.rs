//! Tests of rate limits, size limits and budgets, which the broker enforces with status 429 or 413.

use super::{
    Authority, Reply, TestEngine, Upstream, allow_rule, bash, engine_with_echo_server, log,
};

/// Runs a script and returns the status codes that it printed.
fn status_codes(engine: &TestEngine, script: &str) -> Vec<String> {
    bash(engine, script).succeeded().split_whitespace().map(str::to_owned).collect()
}

#[test]
fn requests_above_the_rate_limit_get_429_with_retry_after() {
    let (engine, _, upstream) = engine_with_echo_server("limits = { requests = \"2/h\" }");
    let get = "curl -sS -D- -o /dev/null https://api.example.com/ | grep -iE '^(HTTP|retry-after)'";
    let out = bash(&engine, &format!("for i in 1 2 3; do {get}; done")).succeeded();
    assert_eq!(out.matches(" 200").count(), 2, "{out}");
    assert_eq!(out.matches(" 429").count(), 1, "{out}");
    assert!(out.to_lowercase().contains("retry-after: "), "{out}");
    assert_eq!(upstream.received().len(), 2);
}

#[test]
fn requests_above_the_upload_limit_and_the_total_limit_are_refused() {
    let (engine, _, upstream) =
        engine_with_echo_server("limits = { upload = \"1KB\", total = \"6KB\" }");
    let post = |bytes: u32| {
        format!(
            "head -c {bytes} /dev/zero | tr '\\0' x | curl -sS -o /dev/null -w '%{{http_code}} ' --data-binary @- https://api.example.com/; "
        )
    };
    let got = status_codes(&engine, &format!("{}{}true", post(900), post(2000)));
    assert_eq!(got, ["200", "413"]);
    let many = status_codes(&engine, &format!("{}true", post(900).repeat(9)));
    assert!(many.contains(&"429".to_owned()) || many.contains(&"000".to_owned()), "{many:?}");
    let complete = upstream.received().iter().filter(|request| request.body.len() == 900).count();
    assert!((2..9).contains(&complete), "{complete}");
}

#[test]
fn model_calls_get_429_after_the_token_budget_is_spent() {
    let (engine, authority) = (TestEngine::new(), Authority::new());
    let upstream = Upstream::tls(&authority, &["api.anthropic.com"], |_| {
        let usage =
            r#"{"model":"claude-sonnet-4-5","usage":{"input_tokens":600,"output_tokens":300}}"#;
        Reply::new(200, usage).header("content-type", "application/json")
    });
    let rule = allow_rule("api.anthropic.com", &upstream, "");
    let budget = "[template.default.budget]\ntokens = 1000\n";
    engine.lab.configure_for(
        &authority,
        &format!("[template.default]\nnet = \"restricted\"\n{rule}\n{budget}"),
    );
    let call =
        "curl -sS -o /dev/null -w '%{http_code} ' -d '{}' https://api.anthropic.com/v1/messages; ";
    assert_eq!(status_codes(&engine, &format!("{}true", call.repeat(3))), ["200", "200", "429"]);
    let log = log(&engine);
    assert_eq!(
        log.matches("budget.spent").count(),
        4,
        "two events for tokens and two for money: {log}"
    );
    assert!(log.contains("\"total\":1800"), "{log}");
}
