//! Tests of limits at their exact bounds, and of usage in the providers' formats.

use std::time::{Duration, Instant};

use belljar_model::net::{Budget, MicroUsd, Policy, Rule, RuleTarget, SecretDecl, SecretName};
use belljar_model::{AskTimeout, Net};
use proptest::prelude::*;

use super::*;
use crate::rules::{OutboundRequest, Rules};
use crate::target::CanonicalPath;

/// Returns the meter of a run with one rule and one secret, and a permit for one request.
fn run(limits: RuleLimits, secret: Budget, run: Budget) -> (Meter, Permit, SecretName) {
    let mut rule = Rule::allow("api.openai.com").unwrap();
    if let RuleTarget::Http(http) = &mut rule.what {
        http.limits = limits;
    }
    let name: SecretName = "openai".parse().unwrap();
    let hosts = vec!["api.openai.com".parse().unwrap()];
    let decl = SecretDecl { budget: secret, ..SecretDecl::token(name.clone(), hosts) };
    let policy = Policy {
        net: Net::Restricted,
        allow: vec![rule],
        deny: Vec::new(),
        ask: Vec::new(),
        ask_timeout: AskTimeout::default(),
        secrets: vec![decl],
        budget: run,
        proxy: None,
    };
    let request = OutboundRequest {
        scheme: "https".parse().unwrap(),
        target: "api.openai.com".parse().unwrap(),
        port: 443,
        method: "POST".parse().unwrap(),
        path: CanonicalPath::parse("/v1/responses").unwrap().0,
        upgrade: false,
    };
    let permit = Rules::new(&policy).check(&request).unwrap();
    (Meter::new(&policy, Prices::default()), permit, name)
}

fn budget(set: impl FnOnce(&mut Budget)) -> Budget {
    let mut budget = Budget::default();
    set(&mut budget);
    budget
}

#[test]
fn meter_without_limits_allows_all_requests() {
    let (mut meter, permit, name) =
        run(RuleLimits::default(), Budget::default(), Budget::default());
    let now = Instant::now();
    for _ in 0..1000 {
        let charge = meter.request(&permit, [&name], None, now).unwrap();
        meter.bytes(&charge, u64::MAX / 2).unwrap();
    }
    assert_eq!(meter.run().requests, 1000);
    assert_eq!(meter.secret(&name).unwrap().bytes, u64::MAX);
}

#[test]
fn rate_limit_allows_a_burst_and_then_the_sustained_rate() {
    let limits = RuleLimits { requests: Some("60/min".parse().unwrap()), ..Default::default() };
    let (mut meter, permit, _) = run(limits, Budget::default(), Budget::default());
    let start = Instant::now();
    for _ in 0..60 {
        meter.request(&permit, [], None, start).unwrap();
    }
    let spent = meter.request(&permit, [], None, start).unwrap_err();
    assert_eq!((spent.code(), spent.retry_after()), ("rate", Some(Duration::from_secs(1))));
    assert_eq!(
        spent.to_string(),
        "the rule `allow api.openai.com` allows 60/min requests; try again in 2 s"
    );
    // Refused requests were not counted.
    assert_eq!(meter.run().requests, 60);
    let almost = start + Duration::from_millis(999);
    assert!(meter.request(&permit, [], None, almost).is_err());
    let second = start + Duration::from_secs(1);
    assert!(meter.request(&permit, [], None, second).is_ok());
    assert!(meter.request(&permit, [], None, second).is_err());
    // A clock that is set back allows no extra request.
    assert!(meter.request(&permit, [], None, start).is_err());
    let later = start + Duration::from_secs(3600);
    assert_eq!((0..100).filter(|_| meter.request(&permit, [], None, later).is_ok()).count(), 60);
}

#[test]
fn total_byte_limit_of_a_rule_stops_bodies_and_requests() {
    let limits = RuleLimits { total: Some("1000B".parse().unwrap()), ..Default::default() };
    let (mut meter, permit, _) = run(limits, Budget::default(), Budget::default());
    let now = Instant::now();
    let charge = meter.request(&permit, [], None, now).unwrap();
    meter.bytes(&charge, 1000).unwrap();
    let spent = meter.bytes(&charge, 1).unwrap_err();
    assert!(
        spent.to_string().starts_with("the rule `allow api.openai.com` has used up"),
        "{spent}"
    );
    assert_eq!(meter.request(&permit, [], None, now).unwrap_err(), spent);
}

#[test]
fn meter_counts_requests_towards_the_budgets_of_secret_and_run() {
    let now = Instant::now();
    let two = budget(|budget| budget.requests = Some(2));
    let (mut meter, permit, name) = run(RuleLimits::default(), two, Budget::default());
    for _ in 0..2 {
        meter.request(&permit, [&name], None, now).unwrap();
    }
    let spent = meter.request(&permit, [&name], None, now).unwrap_err();
    assert_eq!(
        spent.to_string(),
        "the secret `openai` has used up its limit of 2 requests; raise the limit in the operator's belljar.toml"
    );
    assert_eq!((spent.code(), spent.retry_after()), ("spent", None));
    meter
        .request(&permit, [], None, now)
        .expect("a request without the secret is not charged to it");

    let (mut meter, permit, name) = run(RuleLimits::default(), Budget::default(), two);
    meter.request(&permit, [&name], None, now).unwrap();
    meter.request(&permit, [], None, now).unwrap();
    let spent = meter.request(&permit, [], None, now).unwrap_err();
    assert!(matches!(spent, Spent::All { owner: Owner::Run, .. }));

    let bytes = budget(|budget| budget.bytes = Some("10B".parse().unwrap()));
    let (mut meter, permit, name) = run(RuleLimits::default(), bytes, Budget::default());
    let charge = meter.request(&permit, [&name], None, now).unwrap();
    assert!(meter.bytes(&charge, 10).is_ok() && meter.bytes(&charge, 1).is_err());
    assert_eq!(meter.run().bytes, 11, "transferred bytes are counted");
}

#[test]
fn meter_refuses_the_next_request_after_a_token_or_money_budget_is_exceeded() {
    let now = Instant::now();
    let usage = Usage {
        model: Some("gpt-5-2025-08-07".into()),
        input: 800,
        output: 200,
        ..Default::default()
    };
    for (limit, text) in [
        (budget(|budget| budget.tokens = Some(1000)), "1000 tokens"),
        (budget(|budget| budget.money = Some(MicroUsd(3000))), "0.003 USD"),
    ] {
        let (mut meter, permit, name) = run(RuleLimits::default(), limit, Budget::default());
        let charge = meter.request(&permit, [&name], None, now).unwrap();
        let charged = meter.settle(&charge, Outcome::Used(Provider::OpenAi.into(), &usage));
        // 800 tokens at 1.25 and 200 tokens at 10 dollars per million.
        assert_eq!(meter.run().money, MicroUsd(3000));
        let owner = Owner::Secret(name.clone());
        assert_eq!(
            charged[0],
            Charged { owner: owner.clone(), unit: "tokens", amount: 1000, total: 1000 }
        );
        assert_eq!(charged[1], Charged { owner, unit: "microusd", amount: 3000, total: 3000 });
        assert_eq!(charged.len(), 4, "and the run's");
        let spent = meter.request(&permit, [&name], None, now).unwrap_err();
        assert!(spent.to_string().contains(text), "{spent}");
    }
}

#[track_caller]
fn observe(provider: Provider, content_type: &str, answer: &str) -> Option<Usage> {
    let mut whole = Observer::new(provider, Some(content_type.as_bytes()));
    whole.push(answer.as_bytes());
    let mut pieces = Observer::new(provider, Some(content_type.as_bytes()));
    answer.as_bytes().chunks(1).for_each(|byte| pieces.push(byte));
    assert_eq!(whole.usage(), pieces.usage(), "the split into pieces does not matter");
    whole.usage()
}

fn usage(model: &str, [input, cache_read, cache_write, output]: [u64; 4]) -> Option<Usage> {
    Some(Usage { model: Some(model.into()), input, cache_read, cache_write, output })
}

const SSE: &str = "text/event-stream; charset=utf-8";

#[test]
fn token_usage_of_anthropic_responses_is_parsed() {
    let answer = r#"{"id":"msg_1","type":"message","model":"claude-sonnet-4-5-20250929",
        "content":[{"type":"text","text":"\"usage\":{\"input_tokens\":999999}"}],
        "usage":{"input_tokens":12,"cache_creation_input_tokens":7,"cache_read_input_tokens":5,"output_tokens":34}}"#;
    let parsed = observe(Provider::Anthropic, "application/json", answer);
    assert_eq!(parsed, usage("claude-sonnet-4-5-20250929", [12, 5, 7, 34]));

    let events = "event: message_start\n\
        data: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-haiku-4-5\",\"usage\":{\"input_tokens\":25,\"cache_read_input_tokens\":3,\"output_tokens\":1}}}\n\n\
        event: content_block_delta\n\
        data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"usage\"}}\n\n\
        : a comment\r\n\r\n\
        event: message_delta\r\n\
        data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}\r\n\r\n";
    assert_eq!(
        observe(Provider::Anthropic, SSE, events),
        usage("claude-haiku-4-5", [25, 3, 0, 15])
    );
}

#[test]
fn token_usage_of_openai_responses_is_parsed() {
    let chat = r#"{"object":"chat.completion","model":"gpt-4o-2024-08-06","choices":[{"message":{"content":"{"}}],
        "usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":40},"completion_tokens_details":{"reasoning_tokens":9}}}"#;
    let parsed = observe(Provider::OpenAi, "application/json", chat);
    assert_eq!(parsed, usage("gpt-4o-2024-08-06", [60, 40, 0, 20]));
    let responses = "event: response.created\n\
        data: {\"type\":\"response.created\",\"response\":{\"model\":\"gpt-5\",\"usage\":null}}\n\n\
        event: response.completed\n\
        data: {\"type\":\"response.completed\",\"response\":{\"model\":\"gpt-5\",\"usage\":{\"input_tokens\":36,\"input_tokens_details\":{\"cached_tokens\":6},\"output_tokens\":87}}}\n\n";
    assert_eq!(observe(Provider::OpenAi, SSE, responses), usage("gpt-5", [30, 6, 0, 87]));
    let silent = "data: {\"model\":\"gpt-5\",\"choices\":[],\"usage\":null}\n\ndata: [DONE]\n\n";
    assert_eq!(observe(Provider::OpenAi, SSE, silent), None);
}

#[test]
fn token_usage_of_gemini_responses_is_parsed() {
    let stream = r#"[{"candidates":[],"usageMetadata":{"promptTokenCount":8,"candidatesTokenCount":1},"modelVersion":"gemini-2.5-pro"},
        {"usageMetadata":{"promptTokenCount":8,"cachedContentTokenCount":2,"candidatesTokenCount":11,"thoughtsTokenCount":4},"modelVersion":"gemini-2.5-pro"}]"#;
    let parsed = observe(Provider::Gemini, "application/json", stream);
    assert_eq!(parsed, usage("gemini-2.5-pro", [6, 2, 0, 15]));
}

#[test]
fn model_provider_is_detected_by_the_host_name() {
    let of = |host: &str| Provider::of(&host.parse().unwrap());
    assert_eq!(of("api.anthropic.com"), Some(Provider::Anthropic));
    assert_eq!(of("api.openai.com"), Some(Provider::OpenAi));
    assert_eq!(of("acme.openai.azure.com"), Some(Provider::OpenAi));
    assert_eq!(of("generativelanguage.googleapis.com"), Some(Provider::Gemini));
    assert_eq!(of("api.openai.com.example.org"), None);
}

#[test]
fn usage_observer_uses_bounded_memory_for_deep_and_long_responses() {
    let deep = format!("{}1{}", "[{\"a\":".repeat(100_000), "}]".repeat(100_000));
    let long = "x".repeat(1 << 20);
    let answer = format!(
        "{{\"a\":{deep},\"{long}\":\"{long}\",\"b\":{},\"model\":\"gpt-5\",\"usage\":{{\"prompt_tokens\":3}}}}",
        "9".repeat(1000)
    );
    let parsed = observe(Provider::OpenAi, "application/json", &answer);
    assert_eq!(parsed, usage("gpt-5", [3, 0, 0, 0]));
}

#[test]
fn model_prices_of_the_operator_replace_bundled_prices() {
    let prices = Prices::default();
    assert_eq!(prices.as_of().len(), "2026-01-01".len());
    let million =
        |model: &str| Usage { model: Some(model.into()), output: 1_000_000, ..Default::default() };
    let cost =
        |prices: &Prices, provider, model| prices.cost(provider, &million(model)).to_string();
    assert_eq!(cost(&prices, Provider::Anthropic, "claude-opus-4-5-20251101"), "25 USD");
    assert_eq!(cost(&prices, Provider::Anthropic, "claude-opus-4-20250514"), "75 USD");
    assert_eq!(cost(&prices, Provider::OpenAi, "gpt-5-mini-2025-08-07"), "2 USD");
    // An unknown model has the highest price.
    assert_eq!(cost(&prices, Provider::Anthropic, "claude-unheard-of"), "75 USD");
    assert_eq!(
        prices.cost(Provider::Gemini, &Usage { input: 1, ..Default::default() }),
        MicroUsd(4)
    );

    let own = Prices::parse(
        r#"{"as_of":"2026-11-16","models":[{"provider":"anthropic","model":"claude-unheard","input":"$1","output":"$2"}]}"#,
    );
    let prices = prices.with(own.unwrap());
    assert_eq!(cost(&prices, Provider::Anthropic, "claude-unheard-of"), "2 USD");
    assert!(Prices::parse(r#"{"as_of":"","models":[{"provider":"x"}]}"#).is_err());
}

proptest! {
    #[test]
    fn usage_observer_does_not_panic_on_random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for content_type in [SSE, "application/json"] {
            let mut observer = Observer::new(Provider::OpenAi, Some(content_type.as_bytes()));
            observer.push(&bytes);
            let parsed = observer.usage().is_some();
            prop_assert!(!parsed || bytes.windows(5).any(|window| window == b"usage"));
        }
    }

    /// Checks that the number of allowed requests never exceeds the burst plus the refill.
    #[test]
    fn rate_limit_is_kept_for_any_pattern_of_requests(gaps in prop::collection::vec(0_u64..400, 1..200)) {
        let rate = "10/s".parse().unwrap();
        let mut bucket = rate::TokenBucket::new(rate);
        let start = Instant::now();
        let (mut now, mut taken) = (start, 0_u64);
        for gap in gaps {
            now += Duration::from_millis(gap);
            taken += u64::from(bucket.take(now).is_ok());
            let since = u64::try_from(now.duration_since(start).as_millis()).unwrap();
            prop_assert!(taken <= 10 + since / 100);
        }
    }
}
