//! Limits and budgets: what is spent answers 429, or ends early.

use super::{Authority, Bench, Reply, Upstream, bash, log, rule, site};

fn codes(bench: &Bench, script: &str) -> Vec<String> {
    bash(bench, script).succeeded().split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_rate_is_kept_and_says_when_to_try_again() {
    let (bench, _, upstream) = site("limits = { requests = \"2/h\" }");
    let get = "curl -sS -D- -o /dev/null https://api.example.com/ | grep -iE '^(HTTP|retry-after)'";
    let out = bash(&bench, &format!("for i in 1 2 3; do {get}; done")).succeeded();
    assert_eq!(out.matches(" 200").count(), 2, "{out}");
    assert_eq!(out.matches(" 429").count(), 1, "{out}");
    assert!(out.to_lowercase().contains("retry-after: "), "{out}");
    assert_eq!(upstream.received().len(), 2);
}

#[test]
fn an_upload_and_a_total_are_cut_off() {
    let (bench, _, upstream) = site("limits = { upload = \"1KB\", total = \"6KB\" }");
    let post = |bytes: u32| {
        format!(
            "head -c {bytes} /dev/zero | tr '\\0' x | curl -sS -o /dev/null -w '%{{http_code}} ' --data-binary @- https://api.example.com/; "
        )
    };
    let got = codes(&bench, &format!("{}{}true", post(900), post(2000)));
    assert_eq!(got, ["200", "413"]);
    let many = codes(&bench, &format!("{}true", post(900).repeat(9)));
    assert!(many.contains(&"429".to_owned()) || many.contains(&"000".to_owned()), "{many:?}");
    let whole = upstream.received().iter().filter(|request| request.body.len() == 900).count();
    assert!((2..9).contains(&whole), "{whole}");
}

#[test]
fn tokens_of_a_model_are_counted_and_a_budget_ends_the_calls() {
    let (bench, authority) = (Bench::new(), Authority::new());
    let upstream = Upstream::tls(&authority, &["api.anthropic.com"], |_| {
        let usage =
            r#"{"model":"claude-sonnet-4-5","usage":{"input_tokens":600,"output_tokens":300}}"#;
        Reply::new(200, usage).header("content-type", "application/json")
    });
    let rule = rule("api.anthropic.com", &upstream, "");
    let budget = "[template.default.budget]\ntokens = 1000\n";
    bench.lab.configure_for(
        &authority,
        &format!("[template.default]\nnet = \"restricted\"\n{rule}\n{budget}"),
    );
    let call =
        "curl -sS -o /dev/null -w '%{http_code} ' -d '{}' https://api.anthropic.com/v1/messages; ";
    assert_eq!(codes(&bench, &format!("{}true", call.repeat(3))), ["200", "200", "429"]);
    let log = log(&bench);
    assert_eq!(log.matches("budget.spent").count(), 4, "tokens and money, twice: {log}");
    assert!(log.contains("\"total\":1800"), "{log}");
}
