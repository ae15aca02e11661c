use belljar_model::net::Rule;

use super::*;
use crate::policy::render::flags;

/// `GET https://a.example/x`, or a name alone.
#[track_caller]
fn tried(text: &str) -> Tried {
    let Some((method, url)) = text.split_once(' ') else { return Tried::Name(text.to_owned()) };
    let (scheme, rest) = url.split_once("://").unwrap();
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let usual = if scheme == "http" { 80 } else { 443 };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().unwrap()),
        _ => (authority, usual),
    };
    let (method, scheme, host) = (method.to_owned(), scheme.to_owned(), host.to_owned());
    Tried::Request { method, scheme, host, port, path: path.to_owned() }
}

fn denied(text: &str) -> Attempt {
    Attempt { what: tried(text), end: End::Denied("no-rule".to_owned()) }
}

fn with_code(text: &str, code: &str) -> Attempt {
    Attempt { what: tried(text), end: End::Denied(code.to_owned()) }
}

/// The rules as flags would say them, with their remarks.
fn told(learned: &LearnedRules) -> Vec<String> {
    let one = |rule: &Learned| {
        let http = match &rule.what {
            RuleTarget::Http(http) if http.websocket => format!("websocket {http}"),
            RuleTarget::Http(_) | RuleTarget::Tcp(_) | RuleTarget::HostPort(_) => {
                rule.what.to_string()
            }
        };
        match rule.remark {
            Some(remark) => format!("{http} # {}", remark.split([' ', ':']).next().unwrap()),
            None => http,
        }
    };
    learned.rules.iter().map(one).collect()
}

#[track_caller]
fn check(attempts: &[&str], rules: &[&str]) {
    let attempts: Vec<Attempt> = attempts.iter().map(|text| denied(text)).collect();
    let learned = learn(&attempts, &no_rules());
    assert_eq!(told(&learned), rules);
    assert!(learned.not.is_empty() && learned.known.is_empty(), "{learned:?}");
}

#[test]
fn methods_and_paths_are_as_they_were() {
    check(&["GET https://a.example/x"], &["GET a.example/x"]);
    check(&["GET https://a.example/x", "GET https://a.example/x"], &["GET a.example/x"]);
    check(&["GET https://a.example/x", "HEAD https://a.example/x"], &["GET,HEAD a.example/x"]);
    // What shares methods shares a rule; a rule never allows a pair that was not tried.
    check(
        &["GET https://a.example/x", "POST https://a.example/y", "GET https://a.example/z"],
        &["GET a.example/x /z", "POST a.example/y"],
    );
    check(
        &["GET https://a.example/x", "POST https://a.example/x", "GET https://a.example/z"],
        &["GET a.example/z", "GET,POST a.example/x"],
    );
    check(
        &["GET https://a.example:8443/x", "GET http://a.example/x", "GET http://a.example:81/x"],
        &["GET a.example:8443/x", "GET http://a.example/x", "GET http://a.example:81/x"],
    );
    check(
        &["GET https://b.example/", "GET https://a.example/"],
        &["GET a.example/", "GET b.example/"],
    );
    check(&["GET https://a.example/%20x/it's"], &["GET a.example/%20x/it's"]);
}

#[test]
fn more_than_five_below_a_directory_are_all_of_it() {
    let below = |count: u32, dir: &str| -> Vec<String> {
        (0..count).map(|n| format!("GET https://a.example{dir}/{n}")).collect()
    };
    let texts = |attempts: &[String]| -> Vec<String> {
        let attempts: Vec<Attempt> = attempts.iter().map(|text| denied(text)).collect();
        told(&learn(&attempts, &no_rules()))
    };
    assert_eq!(texts(&below(5, "/d")), ["GET a.example/d/0 /d/1 /d/2 /d/3 /d/4"]);
    assert_eq!(texts(&below(6, "/d")), ["GET a.example/d/*"]);
    assert_eq!(texts(&below(6, "")), ["GET a.example/*"]);
    // Each method by itself, and each directory.
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
fn too_many_paths_are_left_to_a_person() {
    let many: Vec<Attempt> =
        (0..100).map(|n| denied(&format!("GET https://a.example/{n}/x"))).collect();
    let learned = learn(&many, &no_rules());
    assert_eq!(learned.rules.len(), 1);
    assert_eq!(flags(&learned.rules).len(), MOST_PATHS);
    assert_eq!(learned.not.len(), 100 - MOST_PATHS);
}

#[test]
fn a_name_alone_is_opened_for_reading_and_never_wider() {
    check(&["a.example"], &["GET,HEAD a.example # only"]);
    check(&["a.example", "a.example."], &["GET,HEAD a.example # only"]);
    check(
        &["x.a.example", "y.a.example"],
        &["GET,HEAD x.a.example # only", "GET,HEAD y.a.example # only"],
    );
    // What was wanted there is known: the name needs nothing more.
    check(&["a.example", "POST https://a.example/x"], &["POST a.example/x"]);
    check(&["TLS https://a.example:8443"], &["GET,HEAD a.example:8443 # only"]);
    check(&["TCP tcp://db.example:5432", "db.example"], &["tcp://db.example:5432"]);
}

#[test]
fn a03_a17_private_and_hiding_places_are_never_opened_without_saying_so() {
    check(&["GET https://10.0.0.5/x"], &["GET 10.0.0.5/x # PRIVATE"]);
    check(&["GET https://[fd12::5]/x"], &["GET [fd12::5]/x # PRIVATE"]);
    check(&["TCP tcp://192.168.1.1:22"], &["tcp://192.168.1.1:22 # PRIVATE"]);
    check(&["db.internal"], &["GET,HEAD db.internal # PRIVATE"]);
    check(&["GET https://dns.google/dns-query"], &["GET dns.google/dns-query # it"]);
    check(&["GET https://93.184.215.14/x"], &["GET 93.184.215.14/x"]);
}

#[track_caller]
fn refused(attempt: Attempt, why: &str) {
    let what = attempt.what.clone();
    let learned = learn(&[attempt], &no_rules());
    assert_eq!(learned.rules, [], "{what:?}");
    assert!(learned.not[&what].contains(why), "{learned:?}");
}

#[test]
fn alarms_limits_and_every_other_refusal_teach_nothing() {
    let url = "POST https://a.example/x";
    for alarm in
        ["placeholder-elsewhere", "placeholder-to-other-host", "foreign-credential", "alarm"]
    {
        refused(with_code(url, alarm), "ALARM");
    }
    refused(with_code(url, "denied-by-rule"), "`deny`");
    refused(with_code(url, "spent"), "used up");
    refused(with_code(url, "private-address"), "private address");
    refused(with_code(url, ""), "does not say");
    for code in ["misdirected", "ambiguous-path", "header", "metadata", "of-the-future"] {
        refused(with_code(url, code), code);
    }
    for code in ["method", "path", "port", "scheme"] {
        assert_eq!(told(&learn(&[with_code(url, code)], &no_rules())), ["POST a.example/x"]);
    }
    let socket = learn(&[with_code("GET https://a.example/s", "websocket")], &no_rules());
    assert_eq!(told(&socket), ["websocket GET a.example/s"]);
    let dialled = learn(&[with_code("GET https://10.0.0.5/x", "private-address")], &no_rules());
    assert_eq!(told(&dialled), ["GET 10.0.0.5/x # PRIVATE"]);
}

#[test]
fn what_no_rule_can_name_alone_is_not_learnt() {
    refused(denied("GET https://a.example/*"), "path");
    refused(denied("GET https://a.example/a/../b"), "path");
    refused(denied("GET https://a.example/[belljar:github]"), "path");
    refused(denied("GET https://a.example/\u{1b}x"), "path");
    refused(denied("get https://a.example/"), "upper case");
    refused(denied("TRACE https://a.example/"), "no rule can allow");
    refused(denied("GET https://*.example/"), "host");
    refused(denied("*.example"), "name");
    refused(denied("GET gopher://a.example/"), "protocol");
    refused(denied("GET https://a.example:99999/"), "port");
    for own in ["127.0.0.1", "[::1]", "localhost", "x.localhost", HOST_NAME, "0.0.0.0"] {
        refused(denied(&format!("GET https://{own}/")), "host-port");
    }
    refused(denied("GET http://169.254.169.254/latest/meta-data/"), "metadata");
    refused(denied("metadata.google.internal"), "metadata");
    refused(denied("GET https://224.0.0.1/"), "multicast");
}

#[test]
fn what_the_template_says_by_now_counts() {
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
    assert_eq!(told(&learned), ["GET a.example/y"]);
    let known: Vec<Tried> =
        [&attempts[0], &attempts[2], &attempts[4]].map(|attempt| attempt.what.clone()).to_vec();
    assert_eq!(learned.known.into_iter().collect::<BTreeSet<_>>(), known.into_iter().collect());
    assert_eq!(learned.not.len(), 3, "{:?}", learned.not);
    assert!(learned.not.values().all(|why| why == DENIED));
}

/// A box with exactly the rules that were learnt.
fn taught(learned: &LearnedRules) -> Rules {
    let rule = |learnt: &Learned| Rule::allowing(None, learnt.what.clone()).unwrap();
    Rules::new(&Policy { allow: learned.rules.iter().map(rule).collect(), ..no_rules() })
}

proptest::proptest! {
    /// With the learned rules everything goes through that they were learnt from, and of
    /// neighbouring requests only what lies in a directory where many were asked for.
    #[test]
    fn the_rules_allow_what_was_tried_and_no_other_host_method_or_directory(
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
        let rules = taught(&learned);
        let goes = |text: &str| {
            let wish = wish(&tried(text), &End::Full).unwrap();
            decided(&wish, &rules).is_ok()
        };
        for one in &tries {
            proptest::prop_assert!(goes(&url(one)), "{} {:?}", url(one), told(&learned));
        }
        let directory = |path: &str| path.rsplit_once('/').unwrap().0.to_owned();
        let same_place = |one: &&(u8, u8, String, u16)| {
            (one.0, one.1, one.3) == (other.0, other.1, other.3)
        };
        let siblings: BTreeSet<&String> = tries
            .iter()
            .filter(same_place)
            .map(|one| &one.2)
            .filter(|path| directory(path) == directory(&other.2))
            .collect();
        let expect = siblings.contains(&other.2) || siblings.len() > DIFFERENT;
        proptest::prop_assert_eq!(goes(&url(&other)), expect, "{}", url(&other));
    }

    #[test]
    fn whatever_a_box_asked_for_no_rule_is_wild_or_wrong(
        name in ".{0,40}", method in ".{0,8}", host in ".{0,40}", path in ".{0,40}",
        port in 0..70_000_u64,
    ) {
        let request = |scheme: &str| Tried::Request {
            method: method.clone(),
            scheme: scheme.to_owned(),
            host: host.clone(),
            port,
            path: path.clone(),
        };
        let tried = [Tried::Name(name), request("https"), request("tcp"), request("x")];
        let attempts = tried.map(|what| Attempt { what, end: End::Full });
        let learned = learn(&attempts, &no_rules());
        let _rules = taught(&learned);
        for flag in flags(&learned.rules) {
            proptest::prop_assert!(!flag.contains('*'), "{}", flag);
            proptest::prop_assert!(Rule::allow(&flag).is_ok(), "{}", flag);
        }
    }
}
