use belljar_model::net::Rule;

use super::*;
use crate::policy::render::flags;

/// Parses a target such as `GET https://a.example/x`, or a host name.
#[track_caller]
fn target(text: &str) -> AttemptTarget {
    let Some((method, url)) = text.split_once(' ') else {
        return AttemptTarget::Name(text.to_owned());
    };
    let (scheme, rest) = url.split_once("://").unwrap();
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let default_port = if scheme == "http" { 80 } else { 443 };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().unwrap()),
        _ => (authority, default_port),
    };
    let (method, scheme, host) = (method.to_owned(), scheme.to_owned(), host.to_owned());
    AttemptTarget::Request { method, scheme, host, port, path: path.to_owned() }
}

/// Returns an attempt that was denied because no rule allows it.
fn denied(text: &str) -> Attempt {
    denied_with(text, "no-rule")
}

/// Returns an attempt that was denied with this code.
fn denied_with(text: &str, code: &str) -> Attempt {
    Attempt { target: target(text), outcome: AttemptOutcome::Denied(code.to_owned()) }
}

/// Formats the learned rules as `--allow` takes them, with the first word of their remarks.
fn rule_texts(learned: &LearnedRules) -> Vec<String> {
    let text = |rule: &LearnedRule| {
        let http = match &rule.target {
            RuleTarget::Http(http) if http.websocket => format!("websocket {http}"),
            RuleTarget::Http(_) | RuleTarget::Tcp(_) | RuleTarget::HostPort(_) => {
                rule.target.to_string()
            }
        };
        match rule.remark {
            Some(remark) => format!("{http} # {}", remark.split([' ', ':']).next().unwrap()),
            None => http,
        }
    };
    learned.rules.iter().map(text).collect()
}

#[track_caller]
fn check_learned(attempts: &[&str], rules: &[&str]) {
    let attempts: Vec<Attempt> = attempts.iter().map(|text| denied(text)).collect();
    let learned = learn(&attempts, &no_rules());
    assert_eq!(rule_texts(&learned), rules);
    assert!(learned.rejected.is_empty() && learned.already_allowed.is_empty(), "{learned:?}");
}

#[test]
fn learn_keeps_methods_and_paths_of_the_attempts() {
    check_learned(&["GET https://a.example/x"], &["GET a.example/x"]);
    check_learned(&["GET https://a.example/x", "GET https://a.example/x"], &["GET a.example/x"]);
    check_learned(
        &["GET https://a.example/x", "HEAD https://a.example/x"],
        &["GET,HEAD a.example/x"],
    );
    // Paths with the same methods share a rule. No rule allows a pair of method and path that was not tried.
    check_learned(
        &["GET https://a.example/x", "POST https://a.example/y", "GET https://a.example/z"],
        &["GET a.example/x /z", "POST a.example/y"],
    );
    check_learned(
        &["GET https://a.example/x", "POST https://a.example/x", "GET https://a.example/z"],
        &["GET a.example/z", "GET,POST a.example/x"],
    );
    check_learned(
        &["GET https://a.example:8443/x", "GET http://a.example/x", "GET http://a.example:81/x"],
        &["GET a.example:8443/x", "GET http://a.example/x", "GET http://a.example:81/x"],
    );
    check_learned(
        &["GET https://b.example/", "GET https://a.example/"],
        &["GET a.example/", "GET b.example/"],
    );
    check_learned(&["GET https://a.example/%20x/it's"], &["GET a.example/%20x/it's"]);
}

#[test]
fn learn_replaces_more_than_five_paths_in_a_directory_by_a_pattern() {
    let below = |count: u32, dir: &str| -> Vec<String> {
        (0..count).map(|n| format!("GET https://a.example{dir}/{n}")).collect()
    };
    let texts = |attempts: &[String]| -> Vec<String> {
        let attempts: Vec<Attempt> = attempts.iter().map(|text| denied(text)).collect();
        rule_texts(&learn(&attempts, &no_rules()))
    };
    assert_eq!(texts(&below(5, "/d")), ["GET a.example/d/0 /d/1 /d/2 /d/3 /d/4"]);
    assert_eq!(texts(&below(6, "/d")), ["GET a.example/d/*"]);
    assert_eq!(texts(&below(6, "")), ["GET a.example/*"]);
    // Paths are counted per method and per directory.
    let mut mixed = below(6, "/d");
    mixed.push("POST https://a.example/d/0".to_owned());
    assert_eq!(texts(&mixed), ["GET a.example/d/*", "POST a.example/d/0"]);
    let mut two = below(3, "/d");
    two.extend(below(3, "/e"));
    assert_eq!(texts(&two), ["GET a.example/d/0 /d/1 /d/2 /e/0 /e/1 /e/2"]);
    let mut deep = below(6, "/d");
    deep.push("GET https://a.example/d/1/more".to_owned());
    assert_eq!(texts(&deep), ["GET a.example/d/* /d/1/more"]);
}

#[test]
fn learn_rejects_paths_beyond_the_maximum_of_one_rule() {
    let many: Vec<Attempt> =
        (0..100).map(|n| denied(&format!("GET https://a.example/{n}/x"))).collect();
    let learned = learn(&many, &no_rules());
    assert_eq!(learned.rules.len(), 1);
    assert_eq!(flags(&learned.rules).len(), MAX_PATHS);
    assert_eq!(learned.rejected.len(), 100 - MAX_PATHS);
}

#[test]
fn learn_allows_only_reading_for_a_name_that_was_only_resolved() {
    check_learned(&["a.example"], &["GET,HEAD a.example # only"]);
    check_learned(&["a.example", "a.example."], &["GET,HEAD a.example # only"]);
    check_learned(
        &["x.a.example", "y.a.example"],
        &["GET,HEAD x.a.example # only", "GET,HEAD y.a.example # only"],
    );
    // The request makes the rule; the name lookup adds nothing.
    check_learned(&["a.example", "POST https://a.example/x"], &["POST a.example/x"]);
    check_learned(&["TLS https://a.example:8443"], &["GET,HEAD a.example:8443 # only"]);
    check_learned(&["TCP tcp://db.example:5432", "db.example"], &["tcp://db.example:5432"]);
}

#[test]
fn a03_a17_learned_rules_for_private_hosts_and_dns_resolvers_have_a_warning() {
    check_learned(&["GET https://10.0.0.5/x"], &["GET 10.0.0.5/x # PRIVATE"]);
    check_learned(&["GET https://[fd12::5]/x"], &["GET [fd12::5]/x # PRIVATE"]);
    check_learned(&["TCP tcp://192.168.1.1:22"], &["tcp://192.168.1.1:22 # PRIVATE"]);
    check_learned(&["db.internal"], &["GET,HEAD db.internal # PRIVATE"]);
    check_learned(&["GET https://dns.google/dns-query"], &["GET dns.google/dns-query # it"]);
    check_learned(&["GET https://93.184.215.14/x"], &["GET 93.184.215.14/x"]);
}

#[track_caller]
fn check_rejected(attempt: Attempt, why: &str) {
    let target = attempt.target.clone();
    let learned = learn(&[attempt], &no_rules());
    assert_eq!(learned.rules, [], "{target:?}");
    assert!(learned.rejected[&target].contains(why), "{learned:?}");
}

#[test]
fn learn_ignores_attempts_that_were_denied_by_alarms_or_limits() {
    let url = "POST https://a.example/x";
    for alarm in
        ["placeholder-elsewhere", "placeholder-to-other-host", "foreign-credential", "alarm"]
    {
        check_rejected(denied_with(url, alarm), "ALARM");
    }
    check_rejected(denied_with(url, "denied-by-rule"), "`deny`");
    check_rejected(denied_with(url, "spent"), "used up");
    check_rejected(denied_with(url, "private-address"), "private address");
    check_rejected(denied_with(url, ""), "does not say");
    for code in ["misdirected", "ambiguous-path", "header", "metadata", "of-the-future"] {
        check_rejected(denied_with(url, code), code);
    }
    for code in ["method", "path", "port", "scheme"] {
        assert_eq!(
            rule_texts(&learn(&[denied_with(url, code)], &no_rules())),
            ["POST a.example/x"]
        );
    }
    let socket = learn(&[denied_with("GET https://a.example/s", "websocket")], &no_rules());
    assert_eq!(rule_texts(&socket), ["websocket GET a.example/s"]);
    let dialled = learn(&[denied_with("GET https://10.0.0.5/x", "private-address")], &no_rules());
    assert_eq!(rule_texts(&dialled), ["GET 10.0.0.5/x # PRIVATE"]);
}

#[test]
fn learn_rejects_attempts_that_no_exact_rule_can_match() {
    check_rejected(denied("GET https://a.example/*"), "path");
    check_rejected(denied("GET https://a.example/a/../b"), "path");
    check_rejected(denied("GET https://a.example/[belljar:github]"), "path");
    check_rejected(denied("GET https://a.example/\u{1b}x"), "path");
    check_rejected(denied("get https://a.example/"), "upper case");
    check_rejected(denied("TRACE https://a.example/"), "no rule can allow");
    check_rejected(denied("GET https://*.example/"), "host");
    check_rejected(denied("*.example"), "name");
    check_rejected(denied("GET gopher://a.example/"), "protocol");
    check_rejected(denied("GET https://a.example:99999/"), "port");
    for own in ["127.0.0.1", "[::1]", "localhost", "x.localhost", HOST_NAME, "0.0.0.0"] {
        check_rejected(denied(&format!("GET https://{own}/")), "host-port");
    }
    check_rejected(denied("GET http://169.254.169.254/latest/meta-data/"), "metadata");
    check_rejected(denied("metadata.google.internal"), "metadata");
    check_rejected(denied("GET https://224.0.0.1/"), "multicast");
}

#[test]
fn learn_skips_attempts_that_the_current_template_decides() {
    let rule = |text: &str| Rule::allow(text).unwrap();
    let allow = vec![rule("GET a.example/x"), rule("b.example"), rule("tcp://c.example:22")];
    let deny = vec![Rule::deny("bad.example").unwrap(), Rule::deny("b.example/no").unwrap()];
    let policy = Policy { net: Net::None, allow, deny, ..no_rules() };
    let attempts = [
        "GET https://a.example/x",
        "GET https://a.example/y",
        "b.example",
        "GET https://b.example/no",
        "TCP tcp://c.example:22",
        "bad.example",
        "GET https://bad.example/x",
    ]
    .map(denied);
    let learned = learn(&attempts, &policy);
    assert_eq!(rule_texts(&learned), ["GET a.example/y"]);
    let known: Vec<AttemptTarget> =
        [&attempts[0], &attempts[2], &attempts[4]].map(|attempt| attempt.target.clone()).to_vec();
    assert_eq!(
        learned.already_allowed.into_iter().collect::<BTreeSet<_>>(),
        known.into_iter().collect()
    );
    assert_eq!(learned.rejected.len(), 3, "{:?}", learned.rejected);
    assert!(learned.rejected.values().all(|why| why == DENIED));
}

/// Returns rules that allow exactly what was learned.
fn rules_of(learned: &LearnedRules) -> Rules {
    let rule = |rule: &LearnedRule| Rule::allowing(None, rule.target.clone()).unwrap();
    Rules::new(&Policy { allow: learned.rules.iter().map(rule).collect(), ..no_rules() })
}

proptest::proptest! {
    /// Learned rules allow every request that they were learned from. Of other requests they allow only those
    /// in a directory with many requests.
    #[test]
    fn learned_rules_allow_the_attempts_and_no_other_host_method_or_directory(
        tries in proptest::collection::vec((0..3_u8, 0..3_u8, "/[a-c]/[a-h]", 0..2_u16), 1..30),
        other in (0..4_u8, 0..4_u8, "/[a-d]/[a-i]", 0..2_u16),
    ) {
        const METHODS: [&str; 4] = ["GET", "POST", "PUT", "DELETE"];
        let url = |(host, method, path, port): &(u8, u8, String, u16)| {
            let method = METHODS[usize::from(*method)];
            format!("{method} https://h{host}.example:{}{path}", 443 + port)
        };
        let attempts: Vec<Attempt> = tries.iter().map(|one| denied(&url(one))).collect();
        let learned = learn(&attempts, &no_rules());
        let rules = rules_of(&learned);
        let is_allowed = |text: &str| {
            let candidate =
                candidate(&target(text), &AttemptOutcome::AllowedByFullNet).unwrap();
            decide(&candidate, &rules).is_ok()
        };
        for one in &tries {
            proptest::prop_assert!(is_allowed(&url(one)), "{} {:?}", url(one), rule_texts(&learned));
        }
        let directory = |path: &str| path.rsplit_once('/').unwrap().0.to_owned();
        let same_endpoint = |one: &&(u8, u8, String, u16)| {
            (one.0, one.1, one.3) == (other.0, other.1, other.3)
        };
        let siblings: BTreeSet<&String> = tries
            .iter()
            .filter(same_endpoint)
            .map(|one| &one.2)
            .filter(|path| directory(path) == directory(&other.2))
            .collect();
        let expect = siblings.contains(&other.2) || siblings.len() > MAX_SIBLINGS;
        proptest::prop_assert_eq!(is_allowed(&url(&other)), expect, "{}", url(&other));
    }

    #[test]
    fn learned_rules_of_any_attempts_are_valid_and_have_no_wildcard(
        name in ".{0,40}", method in ".{0,8}", host in ".{0,40}", path in ".{0,40}",
        port in 0..70_000_u64,
    ) {
        let request = |scheme: &str| AttemptTarget::Request {
            method: method.clone(),
            scheme: scheme.to_owned(),
            host: host.clone(),
            port,
            path: path.clone(),
        };
        let targets = [AttemptTarget::Name(name), request("https"), request("tcp"), request("x")];
        let attempts = targets.map(|target| Attempt {
            target,
            outcome: AttemptOutcome::AllowedByFullNet,
        });
        let learned = learn(&attempts, &no_rules());
        let _rules = rules_of(&learned);
        for flag in flags(&learned.rules) {
            proptest::prop_assert!(!flag.contains('*'), "{}", flag);
            proptest::prop_assert!(Rule::allow(&flag).is_ok(), "{}", flag);
        }
    }
}
