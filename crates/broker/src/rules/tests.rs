//! Tests of decisions, and of the texts of denials.

use belljar_model::net::{Allow, Budget, SecretDecl};
use belljar_model::{AskTimeout, Config, Overrides, Template};
use proptest::prelude::*;

use super::*;

fn rules(net: Net, allow: &[&str], deny: &[&str]) -> Rules {
    Rules::new(&Policy {
        net,
        allow: allow.iter().map(|text| Rule::allow(text).unwrap()).collect(),
        deny: deny.iter().map(|text| Rule::deny(text).unwrap()).collect(),
        ask: Vec::new(),
        ask_timeout: AskTimeout::default(),
        secrets: Vec::<SecretDecl>::new(),
        budget: Budget::default(),
        proxy: None,
    })
}

fn restricted(allow: &[&str]) -> Rules {
    rules(Net::Restricted, allow, &[])
}

/// Parses a request such as `GET https://a.example/x`, with an optional port.
fn request(text: &str) -> OutboundRequest {
    let (method, url) = text.split_once(' ').unwrap();
    let (scheme, rest) = url.split_once("://").unwrap();
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let scheme: Scheme = scheme.parse().unwrap();
    let (target, port) = belljar_model::net::authority(authority).unwrap();
    OutboundRequest {
        scheme,
        target,
        port: port.unwrap_or(scheme.port()),
        method: method.parse().unwrap(),
        path: CanonicalPath::parse(if path.is_empty() { "/" } else { path }).unwrap().0,
        upgrade: false,
    }
}

/// Checks which rule allows a request, or the reason code of its denial.
#[track_caller]
fn check(rules: &Rules, text: &str, expect: &str) {
    let got = match rules.check(&request(text)) {
        Ok(permit) => format!("by {}", permit.rule()),
        Err(denial) => denial.code.to_string(),
    };
    assert_eq!(got, expect, "{text}");
}

fn name(text: &str) -> Hostname {
    text.parse().unwrap()
}

fn target(text: &str) -> Target {
    text.parse().unwrap()
}

#[test]
fn first_matching_allow_rule_decides_about_a_request() {
    let rules = restricted(&["GET a.example/x/**", "a.example", "*.b.example:8443"]);
    check(&rules, "GET https://a.example/x/y", "by allow GET a.example/x/**");
    check(&rules, "POST https://a.example/x/y", "by allow a.example");
    check(&rules, "GET https://c.b.example:8443/", "by allow *.b.example:8443");
    check(&rules, "GET https://b.example:8443/", "no-rule");
    let permit = rules.check(&request("GET https://a.example/x")).unwrap();
    assert_eq!((permit.index(), permit.port(), permit.scheme()), (Some(0), 443, Scheme::Https));
    assert_eq!((permit.target(), permit.connect()), (&target("a.example"), None));
    assert_eq!(permit.reach(), Reach::Public);
    assert!(!permit.is_opaque() && permit.secrets().is_empty());
}

#[test]
fn connect_address_applies_to_all_rules_for_the_same_host() {
    let mut rules = restricted(&["GET a.example", "*.b.example", "GET http://a.example"]);
    let place = "10.1.2.3:8443".parse().unwrap();
    for host in ["a.example", "c.b.example"] {
        let http = HttpRule { connect: Some(place), ..HttpRule::https(host.parse().unwrap()) };
        rules.allow.push(Rule::allowing(None, RuleTarget::Http(http)).unwrap());
    }
    let check = |text: &str, rule: &str, expect| {
        let permit = rules.check(&request(text)).unwrap();
        assert_eq!((permit.rule(), permit.connect()), (rule, expect), "{text}");
    };
    check("GET https://a.example/", "allow GET a.example", Some(place));
    check("POST https://a.example/", "allow a.example", Some(place));
    check("GET http://a.example/", "allow GET http://a.example", None);
    check("GET https://c.b.example/", "allow *.b.example", None);
}

#[test]
fn a02_requests_without_a_matching_rule_are_denied() {
    for net in [Net::None, Net::Restricted] {
        let rules = rules(net, &[], &[]);
        assert!(rules.check(&request("GET https://a.example/")).is_err());
        assert!(rules.name(&name("a.example")).is_err());
        assert!(rules.tcp(&target("a.example"), 443).is_err());
        assert!(matches!(rules.tls(&name("a.example"), 443), Handling::Refuse(_)));
    }
    assert_eq!(rules(Net::None, &["a.example"], &[]).ports(), BTreeSet::new());
    check(&rules(Net::None, &["a.example"], &[]), "GET https://a.example/", "no-network");
    // Control: a matching rule allows the request.
    check(&restricted(&["a.example"]), "GET https://a.example/", "by allow a.example");
}

proptest! {
    #[test]
    fn a02_templates_without_a_matching_rule_deny_every_request(
        net in prop::sample::select(vec![None, Some(Net::None), Some(Net::Restricted)]),
        allow in prop::sample::subsequence(
            vec!["pypi", "npm", "b.example", "*.c.example", "tcp://d.internal:1", "host-port:5432"], 0..=6),
        deny in prop::sample::subsequence(vec!["b.example", "*.c.example", "GET a.example"], 0..=3),
    ) {
        let said = Overrides {
            net,
            allow: allow.iter().map(|text| text.parse::<Allow>().unwrap()).collect(),
            deny: deny.iter().map(|text| Rule::deny(text).unwrap()).collect(),
            ..Overrides::default()
        };
        let template = Template::default().with(said).unwrap();
        let rules = Rules::new(&template.policy(&Config::built_in()).unwrap());
        for port in [443, 80, 22, 5432] {
            let asked = request(&format!("GET https://a.example:{port}/"));
            prop_assert!(rules.check(&asked).is_err());
            prop_assert!(rules.tcp(&target("a.example"), port).is_err());
            prop_assert!(matches!(rules.tls(&name("a.example"), port), Handling::Refuse(_)));
        }
        prop_assert!(rules.name(&name("a.example")).is_err());
    }

    #[test]
    fn a09_wildcard_rule_allows_only_subdomains(left in "[a-z-]{0,6}\\.?", right in "(\\.[a-z]{1,5})?") {
        let rules = restricted(&["*.ex.example"]);
        let text = format!("{left}ex.example{right}");
        if let Ok(host) = text.parse::<Hostname>() {
            let below = right.is_empty() && left.ends_with('.') && left.len() > 1;
            prop_assert_eq!(rules.name(&host).is_ok(), below, "{}", text);
            let asked = OutboundRequest { target: Target::Name(host), ..request("GET https://a.example/") };
            prop_assert_eq!(rules.check(&asked).is_ok(), below, "{}", text);
        }
    }

    #[test]
    fn deny_rule_overrides_any_allow_rule(
        allow in prop::sample::subsequence(vec!["a.example", "GET a.example/x", "*.a.example", "pypi.org"], 0..=4),
        method in prop::sample::select(vec!["GET", "POST"]),
        full: bool,
    ) {
        let net = if full { Net::Full } else { Net::Restricted };
        let with = rules(net, &allow, &["a.example"]);
        let asked = request(&format!("{method} https://a.example/x"));
        prop_assert_eq!(with.check(&asked).unwrap_err().code, Code::DeniedByRule);
        // Control: without the deny rule, the allow rules decide.
        let free = full || allow.contains(&"a.example") || (method == "GET" && allow.contains(&"GET a.example/x"));
        prop_assert_eq!(rules(net, &allow, &[]).check(&asked).is_ok(), free);
    }
}

#[test]
fn a06_metadata_services_are_denied_even_if_a_rule_allows_them() {
    let listed = [
        "metadata.google.internal",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "instance-data",
        "metadata.goog",
    ];
    let mut texts: Vec<String> = listed.iter().map(|host| format!("https://{host}")).collect();
    texts.extend(listed.iter().map(|host| format!("http://{host}")));
    texts.extend(listed.iter().map(|host| format!("tcp://{host}:80")));
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    for net in [Net::Restricted, Net::Full] {
        let rules = rules(net, &texts, &[]);
        for host in listed {
            check(&rules, &format!("GET https://{host}/"), "metadata");
            check(&rules, &format!("GET http://{host}/"), "metadata");
            assert_eq!(rules.tcp(&target(host), 80).unwrap_err().code, Code::Metadata);
            if let Target::Name(name) = target(host) {
                assert_eq!(rules.name(&name).unwrap_err().code, Code::Metadata);
                assert!(matches!(rules.tls(&name, 443), Handling::Refuse(_)));
            }
        }
    }
    // A rule for another name cannot connect there either.
    let to = Some("169.254.169.254:80".parse().unwrap());
    let http = HttpRule { connect: to, ..HttpRule::https("a.example".parse().unwrap()) };
    let rule = Rule::allowing(None, RuleTarget::Http(http)).unwrap();
    let mut rules = restricted(&[]);
    rules.allow.push(rule);
    check(&rules, "GET https://a.example/", "metadata");
    // Control: a rule can allow other private addresses.
    check(&restricted(&["10.0.0.1"]), "GET https://10.0.0.1/", "by allow 10.0.0.1");
}

#[test]
fn a08_unusual_spellings_of_an_ip_address_match_no_rule() {
    // The parser refuses these texts both as a target and in a rule.
    for text in
        ["0x7f.1", "2130706433", "0177.0.0.1", "127.1", "localhost.", "fe80::1%eth0", "0.0.0.0"]
    {
        assert!(text.parse::<Target>().is_err() || text == "0.0.0.0", "{text}");
        assert!(Rule::allow(text).is_err(), "{text}");
    }
    let full = rules(Net::Full, &[], &[]);
    for text in
        ["0.0.0.0", "[::]", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[fe80::1]", "10.0.0.1"]
    {
        check(&full, &format!("GET https://{text}/"), "private-address");
    }
    check(&full, "GET https://localhost/", "private-name");
    check(&full, "GET https://8.8.4.5/", "by net full");
}

#[test]
fn a11_network_rule_applies_to_its_port_only() {
    let rules = restricted(&["a.example", "b.example:8443", "http://c.example"]);
    check(&rules, "GET https://a.example/", "by allow a.example");
    for port in [22, 25, 80, 8080, 8443] {
        check(&rules, &format!("GET https://a.example:{port}/"), "port");
        assert_eq!(rules.tcp(&target("a.example"), port).unwrap_err().code, Code::NoRule);
    }
    check(&rules, "GET https://b.example/", "port");
    check(&rules, "GET https://b.example:8443/", "by allow b.example:8443");
    assert_eq!(rules.tcp(&target("a.example"), 443).unwrap_err().code, Code::NoRule, "not raw");
    assert_eq!(rules.ports(), BTreeSet::from([80, 443, 8443]));
}

#[test]
fn a12_rules_decide_the_same_for_plain_and_encrypted_requests() {
    for scheme in ["https", "http"] {
        for (allowed, denied) in [("https", "http"), ("http", "https")] {
            let rule = format!("GET {allowed}://a.example/x/**");
            let rules = restricted(&[&rule]);
            let here = scheme == allowed;
            let expect = |yes: &str, no: &str| if here { yes.to_owned() } else { no.to_owned() };
            let by = Rule::allow(&rule).unwrap().id;
            check(
                &rules,
                &format!("GET {scheme}://a.example/x/y"),
                &expect(&format!("by {by}"), "scheme"),
            );
            check(&rules, &format!("POST {scheme}://a.example/x/y"), &expect("method", "scheme"));
            check(&rules, &format!("GET {scheme}://a.example/y"), &expect("path", "scheme"));
            check(&rules, &format!("GET {denied}://b.example/x"), "no-rule");
        }
        // A deny rule applies to both schemes.
        let with = rules(Net::Full, &["a.example", "http://a.example"], &["POST a.example"]);
        check(&with, &format!("POST {scheme}://a.example/"), "denied-by-rule");
        assert!(with.check(&request(&format!("GET {scheme}://a.example/"))).is_ok());
    }
}

#[test]
fn a17_public_dns_resolvers_are_denied_unless_a_rule_names_them() {
    let full = rules(Net::Full, &[], &[]);
    for host in [
        "dns.google",
        "cloudflare-dns.com",
        "mozilla.cloudflare-dns.com",
        "dns.quad9.net",
        "abc123.dns.nextdns.io",
        "one.one.one.one",
    ] {
        check(&full, &format!("GET https://{host}/dns-query"), "hidden-dns");
        assert_eq!(full.name(&name(host)).unwrap_err().code, Code::HiddenDns, "{host}");
        assert!(matches!(full.tls(&name(host), 443), Handling::Refuse(_)));
    }
    for host in ["1.1.1.1", "8.8.8.8", "[2606:4700:4700::1111]"] {
        check(&full, &format!("GET https://{host}/dns-query"), "hidden-dns");
    }
    for port in [53, 853, 5353, 5355] {
        assert_eq!(full.tcp(&target("a.example"), port).unwrap_err().code, Code::HiddenDns);
    }
    // Controls: an ordinary name, and a resolver that a rule names.
    check(&full, "GET https://a.example/dns-query", "by net full");
    check(
        &rules(Net::Full, &["dns.google"], &[]),
        "GET https://dns.google/",
        "by allow dns.google",
    );
}

#[test]
fn a20_presets_do_not_allow_to_publish_packages() {
    let said = Overrides {
        allow: ["pypi", "npm", "crates", "debian", "git-https"]
            .map(|it| it.parse().unwrap())
            .to_vec(),
        ..Overrides::default()
    };
    let template = Template::default().with(said).unwrap();
    let rules = Rules::new(&template.policy(&Config::built_in()).unwrap());
    for text in [
        "GET https://pypi.org/simple/requests/",
        "GET https://files.pythonhosted.org/packages/x.whl",
        "GET https://registry.npmjs.org/@types%2fnode",
        "GET https://index.crates.io/se/rd/serde",
        "GET https://static.crates.io/crates/serde/serde-1.0.0.crate",
        "GET http://deb.debian.org/debian/dists/stable/InRelease",
        "GET https://github.com/acme/x.git/info/refs",
        "POST https://github.com/acme/x.git/git-upload-pack",
        "POST https://gitlab.com/a/b/c.git/git-upload-pack",
    ] {
        assert!(rules.check(&request(text)).is_ok(), "{text}");
    }
    for text in [
        "POST https://upload.pypi.org/legacy/",
        "POST https://pypi.org/legacy/",
        "PUT https://registry.npmjs.org/evil",
        "POST https://registry.npmjs.org/-/npm/v1/security/advisories/bulk",
        "PUT https://crates.io/api/v1/crates/new",
        "POST http://deb.debian.org/",
        "POST https://github.com/acme/x.git/git-receive-pack",
        "GET https://github.com/login",
    ] {
        assert!(rules.check(&request(text)).is_err(), "{text}");
    }
    let github = Overrides { allow: vec!["github".parse().unwrap()], ..Overrides::default() };
    let template = Template::default().with(github).unwrap();
    let rules = Rules::new(&template.policy(&Config::built_in()).unwrap());
    for text in [
        "POST https://api.github.com/repos/acme/x/issues",
        "POST https://github.com/acme/x/git-receive-pack",
    ] {
        assert!(rules.check(&request(text)).is_ok(), "{text}");
    }
    for text in [
        "POST https://api.github.com/gists",
        "POST https://gist.github.com/",
        "POST https://github.com/acme/x",
    ] {
        assert!(rules.check(&request(text)).is_err(), "{text}");
    }
}

#[test]
fn a26_methods_that_echo_or_tunnel_are_never_allowed() {
    for net in [Net::Restricted, Net::Full] {
        let rules = rules(net, &["a.example"], &[]);
        for method in ["TRACE", "TRACK", "CONNECT", "DEBUG"] {
            let denial =
                rules.check(&request(&format!("{method} https://a.example/"))).unwrap_err();
            assert_eq!((denial.code, denial.code.status()), (Code::MethodForbidden, 405));
        }
        assert!(rules.check(&request("OPTIONS https://a.example/")).is_ok());
    }
}

#[test]
fn a27_websocket_needs_a_rule_with_websocket_enabled() {
    let upgrade = OutboundRequest { upgrade: true, ..request("GET https://a.example/") };
    let mut rules = restricted(&["a.example"]);
    assert_eq!(rules.check(&upgrade).unwrap_err().code, Code::WebSocket);
    if let RuleTarget::Http(http) = &mut rules.allow[0].what {
        http.websocket = true;
    }
    assert!(rules.check(&upgrade).is_ok());
}

#[test]
fn b13_plain_http_and_forwarded_tls_carry_no_secret() {
    let with_secret = |scheme, tls| {
        let http = HttpRule {
            scheme,
            tls,
            ports: vec![443],
            secrets: BTreeSet::from(["s".parse().unwrap()]),
            ..HttpRule::https("a.example".parse().unwrap())
        };
        // Built by hand, because the parser already refuses such a rule.
        let mut rules = restricted(&[]);
        rules.allow.push(Rule {
            id: "x".into(),
            what: RuleTarget::Http(http),
            marks: Default::default(),
        });
        rules
    };
    let plain = with_secret(Scheme::Http, Tls::Intercept);
    assert!(plain.check(&request("GET http://a.example:443/")).unwrap().secrets().is_empty());
    match with_secret(Scheme::Https, Tls::Passthrough).tls(&name("a.example"), 443) {
        Handling::Passthrough(permit) => assert!(permit.secrets().is_empty() && permit.is_opaque()),
        other @ (Handling::Intercept | Handling::Refuse(_)) => panic!("{other:?}"),
    }
    let seen = with_secret(Scheme::Https, Tls::Intercept);
    assert_eq!(seen.check(&request("GET https://a.example/")).unwrap().secrets().len(), 1);
}

#[test]
fn host_name_resolves_if_any_rule_allows_part_of_the_host() {
    let rules = rules(
        Net::Restricted,
        &["GET a.example/x", "*.b.example", "tcp://db.internal:5432", "host-port:5432"],
        &["c.b.example", "POST d.b.example", "e.b.example:80"],
    );
    for host in ["a.example", "x.b.example", "db.internal", HOST_NAME, "d.b.example", "e.b.example"]
    {
        assert!(rules.name(&name(host)).is_ok(), "{host}");
    }
    for host in ["b.example", "c.b.example", "x.example", "x.db.internal", "localhost"] {
        assert!(rules.name(&name(host)).is_err(), "{host}");
    }
}

#[test]
fn raw_tcp_connections_need_a_tcp_rule() {
    let rules = rules(
        Net::Restricted,
        &[
            "tcp://db.internal:5432",
            "tcp://10.0.0.5:22",
            "tcp://pub.example:22",
            "host-port:8080",
            "a.example",
        ],
        &["tcp://10.0.0.5:23", "GET pub.example/x"],
    );
    let permit = rules.tcp(&target("db.internal"), 5432).unwrap();
    assert_eq!((permit.reach(), permit.connect(), permit.by_rule()), (Reach::Named, None, true));
    assert_eq!(rules.tcp(&target("10.0.0.5"), 22).unwrap().reach(), Reach::Named);
    let host = rules.tcp(&target(HOST_NAME), 8080).unwrap();
    assert_eq!(host.connect(), Some("127.0.0.1:8080".parse().unwrap()));
    for (host, port) in [
        ("db.internal", 5433),
        ("10.0.0.6", 22),
        ("a.example", 443),
        (HOST_NAME, 8081),
        ("localhost", 8080),
    ] {
        assert_eq!(rules.tcp(&target(host), port).unwrap_err().code, Code::NoRule, "{host}:{port}");
    }
    // A rule that denies some requests denies raw connections, where requests are not visible.
    assert_eq!(rules.tcp(&target("pub.example"), 22).unwrap_err().code, Code::DeniedByRule);
    assert_eq!(rules.ports(), BTreeSet::from([22, 80, 443, 5432, 8080]));
    let public = restricted(&["tcp://pub.example:22"]);
    assert_eq!(public.tcp(&target("pub.example"), 22).unwrap().reach(), Reach::Public);
}

#[test]
fn tls_is_intercepted_unless_a_rule_sets_passthrough() {
    let pinned =
        HttpRule { tls: Tls::Passthrough, ..HttpRule::https("p.example".parse().unwrap()) };
    let mut with = rules(Net::Restricted, &["a.example"], &["POST q.example"]);
    with.allow.push(Rule::allowing(None, RuleTarget::Http(pinned.clone())).unwrap());
    let pinned = HttpRule { host: "q.example".parse().unwrap(), ..pinned };
    with.allow.push(Rule::allowing(None, RuleTarget::Http(pinned)).unwrap());
    assert_eq!(with.tls(&name("a.example"), 443), Handling::Intercept);
    assert!(matches!(with.tls(&name("a.example"), 8443), Handling::Refuse(_)));
    match with.tls(&name("p.example"), 443) {
        Handling::Passthrough(permit) => assert_eq!(permit.rule(), "allow p.example"),
        other @ (Handling::Intercept | Handling::Refuse(_)) => panic!("{other:?}"),
    }
    // A passthrough rule allows no intercepted request, and a partial deny rule refuses the
    // connection.
    check(&with, "GET https://p.example/", "no-rule");
    assert!(matches!(with.tls(&name("q.example"), 443), Handling::Refuse(_)));
    let full = rules(Net::Full, &[], &["POST b.example"]);
    assert_eq!(full.tls(&name("a.example"), 443), Handling::Intercept);
    assert!(matches!(full.tls(&name("a.example"), 993), Handling::Passthrough(_)));
    assert_eq!(full.tls(&name("b.example"), 993), Handling::Intercept);
}

#[test]
fn full_network_allows_public_targets_except_denied_ones() {
    let full = rules(Net::Full, &["tcp://10.0.0.1:5432"], &["*.evil.example"]);
    check(&full, "DELETE https://a.example:9999/x", "by net full");
    check(&full, "GET http://a.example/", "by net full");
    check(&full, "GET https://x.evil.example/", "denied-by-rule");
    check(&full, "GET https://intranet/", "private-name");
    check(&full, "GET https://wiki.corp.internal/", "private-name");
    check(&full, "GET https://10.0.0.1/", "private-address");
    assert!(full.tcp(&target("10.0.0.1"), 5432).is_ok());
    assert_eq!(full.tcp(&target("10.0.0.1"), 5433).unwrap_err().code, Code::PrivateAddress);
    let permit = full.tcp(&target("a.example"), 22).unwrap();
    assert_eq!(
        (permit.rule(), permit.by_rule(), permit.reach()),
        ("net full", false, Reach::Public)
    );
}

#[test]
fn denial_contains_a_hint_how_to_allow_the_request() {
    let rules = restricted(&["GET a.example/x/**", "b.example"]);
    let denial_text = |text: &str| {
        let denial = rules.check(&request(text)).unwrap_err();
        format!("{denial} | {}", denial.hint)
    };
    assert_eq!(
        denial_text("GET https://api.github.com/repos/x"),
        "GET https://api.github.com/repos/x: no rule allows it | belljar run --allow 'GET api.github.com/repos/x'"
    );
    assert_eq!(
        denial_text("POST https://a.example/x"),
        "POST https://a.example/x: a rule allows the host, but not this method (allow GET a.example/x/**) | belljar run --allow 'POST a.example/x'"
    );
    assert_eq!(
        denial_text("GET http://b.example:8080/"),
        "GET http://b.example:8080/: a rule allows the host, but not over this scheme (allow b.example) | belljar run --allow 'GET http://b.example:8080/'"
    );
    for text in
        ["GET https://c.example:8443/a%20b?q", "PUT http://c.example/", "GET https://10.0.0.1/"]
    {
        let denial = rules.check(&request(text.split('?').next().unwrap())).unwrap_err();
        let rule = denial.hint.split('\'').nth(1).unwrap();
        let allowed = restricted(&[rule]);
        assert!(
            allowed.check(&request(text.split('?').next().unwrap())).is_ok(),
            "{}",
            denial.hint
        );
    }
    let long = format!("GET https://c.example/{}", "a".repeat(300));
    let denial = rules.check(&request(&long)).unwrap_err();
    assert!(denial.hint.len() < 300);
    let rule = denial.hint.split('\'').nth(1).unwrap();
    assert!(restricted(&[rule]).check(&request(&long)).is_ok(), "{}", denial.hint);
    for at in 196..=202 {
        let long = format!("GET https://c.example/{}%2F{}", "a".repeat(at), "b/".repeat(9));
        let hint = rules.check(&request(&long)).unwrap_err().hint;
        let rule = hint.split('\'').nth(1).unwrap();
        assert!(restricted(&[rule]).check(&request(&long)).is_ok(), "{hint}");
    }
    let hint = rules.tcp(&target("db.internal"), 5432).unwrap_err().hint;
    assert_eq!(hint, "belljar run --allow 'tcp://db.internal:5432'");
    let hint = rules.tcp(&target(HOST_NAME), 80).unwrap_err().hint;
    assert_eq!(hint, "belljar run --allow 'host-port:80'");
    assert_eq!(rules.name(&name("c.example")).unwrap_err().hint, "belljar run --allow 'c.example'");
}

#[test]
fn g02_hint_quotes_a_path_from_the_box_and_adds_no_wildcard() {
    let rules = restricted(&[]);
    let hint = |text: &str| rules.check(&request(text)).unwrap_err().hint;
    assert_eq!(
        hint("GET https://c.example/a'&$(reboot)&'"),
        r"belljar run --allow 'GET c.example/a'\''&$(reboot)&'\'''"
    );
    let wide = hint("GET https://c.example/**");
    assert_eq!(wide, "belljar run --allow 'GET c.example/%2A%2A'");
    let allowed = restricted(&["GET c.example/%2A%2A"]);
    assert!(allowed.check(&request("GET https://c.example/**")).is_ok());
    assert!(allowed.check(&request("GET https://c.example/other")).is_err());
}

#[test]
fn permit_contains_the_secrets_of_all_matching_rules() {
    let secret =
        |text: &str| BTreeSet::from([text.parse::<belljar_model::net::SecretName>().unwrap()]);
    let mut rules = restricted(&["a.example", "GET a.example/x", "POST a.example"]);
    for (rule, name) in rules.allow.iter_mut().zip(["one", "two", "three"]) {
        if let RuleTarget::Http(http) = &mut rule.what {
            http.secrets = secret(name);
        }
    }
    let names = |text: &str| {
        let permit = rules.check(&request(text)).unwrap();
        permit.secrets().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names("GET https://a.example/x"), "one two");
    assert_eq!(names("POST https://a.example/x"), "one three");
    assert_eq!(names("GET https://a.example/y"), "one");
}

fn asking(net: Net, allow: &[&str], ask: &[&str], deny: &[&str]) -> Rules {
    let mut rules = rules(net, allow, deny);
    rules.ask = ask.iter().map(|text| Rule::ask(text).unwrap()).collect();
    rules
}

/// Checks which rule allows a request and which rule asks, or the reason code of its denial.
#[track_caller]
fn asks(rules: &Rules, text: &str, expect: &str) {
    let got = match rules.check(&request(text)) {
        Ok(permit) => format!("by {} {:?}", permit.rule(), permit.asks()),
        Err(denial) => denial.code.to_string(),
    };
    assert_eq!(got, expect, "{text}");
}

#[test]
fn deny_rules_override_ask_rules_and_ask_rules_override_allow_rules() {
    let rules = asking(
        Net::Restricted,
        &["a.example", "b.example"],
        &["POST,DELETE a.example", "c.example/x/**"],
        &["DELETE a.example"],
    );
    asks(&rules, "GET https://a.example/", "by allow a.example None");
    let asked = "by allow a.example Some(\"ask DELETE,POST a.example\")";
    asks(&rules, "POST https://a.example/", asked);
    asks(&rules, "DELETE https://a.example/", "denied-by-rule");
    // An ask rule permits a request that no allow rule permits, also without a port in the rule.
    let asked = "by ask c.example/x/** Some(\"ask c.example/x/**\")";
    asks(&rules, "GET https://c.example/x/y", asked);
    asks(&rules, "GET http://c.example:8080/x/y", asked);
    asks(&rules, "GET https://c.example/y", "no-rule");
    assert!(rules.name(&name("c.example")).is_ok(), "the name resolves");
    let none = asking(Net::None, &[], &["c.example"], &[]);
    asks(&none, "GET https://c.example/", "no-network");
    let metadata = asking(Net::Restricted, &[], &["169.254.169.254"], &[]);
    asks(&metadata, "GET http://169.254.169.254/", "metadata");
}

#[test]
fn ask_rule_matches_the_same_requests_as_a_deny_rule() {
    let rules = asking(Net::Full, &[], &["a.example/admin/**"], &[]);
    for text in [
        "GET https://a.example/admin/x",
        "GET http://a.example/admin/x",
        "GET https://a.example:8443/admin/x",
        "GET https://a.example/admin%2Fx",
    ] {
        let permit = rules.check(&request(text)).unwrap();
        assert!(permit.asks().is_some(), "{text}");
    }
    assert_eq!(rules.check(&request("GET https://a.example/x")).unwrap().asks(), None);
    // The requests inside raw TCP and forwarded TLS are not visible, so the whole connection needs
    // approval.
    assert!(rules.tcp(&target("a.example"), 8443).unwrap().asks().is_some());
    assert!(rules.tcp(&target("b.example"), 8443).unwrap().asks().is_none());
    assert_eq!(rules.tls(&name("a.example"), 8443), Handling::Intercept);
}

#[test]
fn ask_rule_applies_to_whole_raw_and_forwarded_connections() {
    let tcp = asking(Net::Restricted, &[], &["tcp://db.internal:5432", "host-port:99"], &[]);
    let permit = tcp.tcp(&target("db.internal"), 5432).unwrap();
    assert_eq!((permit.asks(), permit.by_rule()), (Some("ask tcp://db.internal:5432"), true));
    assert!(tcp.tcp(&target("db.internal"), 5433).is_err());
    assert!(tcp.tcp(&target(HOST_NAME), 99).unwrap().asks().is_some());
    let mut pinned = asking(Net::Restricted, &["a.example"], &["a.example", "b.example"], &[]);
    for rule in pinned.allow.iter_mut().chain(&mut pinned.ask) {
        if let RuleTarget::Http(http) = &mut rule.what {
            http.tls = Tls::Passthrough;
        }
    }
    for host in ["a.example", "b.example"] {
        let Handling::Passthrough(permit) = pinned.tls(&name(host), 443) else { panic!("{host}") };
        assert!(permit.asks().is_some() && permit.is_opaque(), "{host}");
    }
}

#[test]
fn ask_permit_contains_only_secrets_of_matching_rules() {
    let mut rules = asking(Net::Restricted, &["a.example"], &["POST a.example", "b.example"], &[]);
    let add_secret = |rule: &mut Rule, secret: &str| {
        let RuleTarget::Http(http) = &mut rule.what else { panic!() };
        http.secrets.insert(secret.parse().unwrap());
    };
    add_secret(&mut rules.allow[0], "one");
    add_secret(&mut rules.ask[0], "two");
    add_secret(&mut rules.ask[1], "three");
    let secrets = |text: &str| {
        let permit = rules.check(&request(text)).unwrap();
        permit.secrets().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(secrets("GET https://a.example/"), "one");
    assert_eq!(secrets("POST https://a.example/"), "one two");
    assert_eq!(secrets("GET https://b.example/"), "three");
    assert_eq!(secrets("GET http://b.example/"), "", "never in clear");
}

#[test]
fn policy_change_keeps_numbers_of_unchanged_rules() {
    let policy = |allow: &[&str]| Policy {
        net: Net::Restricted,
        allow: allow.iter().map(|text| Rule::allow(text).unwrap()).collect(),
        deny: Vec::new(),
        ask: Vec::new(),
        ask_timeout: AskTimeout::default(),
        secrets: Vec::new(),
        budget: Budget::default(),
        proxy: None,
    };
    let index = |rules: &Rules, host: &str| {
        rules
            .check(&request(&format!("GET https://{host}/")))
            .ok()
            .and_then(|permit| permit.index())
    };
    let first = Rules::new(&policy(&["a.example", "b.example", "c.example"]));
    let second = first.followed_by(&policy(&["c.example", "a.example"]));
    assert_eq!((index(&second, "a.example"), index(&second, "c.example")), (Some(0), Some(2)));
    assert_eq!(index(&second, "b.example"), None);
    let third = second.followed_by(&policy(&["d.example", "b.example"]));
    assert_eq!((index(&third, "d.example"), index(&third, "b.example")), (Some(3), Some(4)));
    let fourth = third.followed_by(&policy(&[])).followed_by(&policy(&["e.example"]));
    assert_eq!(index(&fourth, "e.example"), Some(5), "numbers are never reused");
}
