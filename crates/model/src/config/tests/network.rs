//! Tests of rules, secrets and machine settings in a file.

use super::*;
use crate::net::{
    Allow, HostPattern, HttpRule, MicroUsd, PresetName, Rule, RuleTarget, Scheme, SecretKind,
    SecretName, Slot, Tls, preset,
};
use crate::{EnvVar, Overrides, PolicyError};

fn secret(text: &str) -> SecretName {
    text.parse().unwrap()
}

/// Returns the ids of a template's rules, each with its secrets.
fn rule_ids(config: &Config, template: &str) -> Vec<String> {
    let policy = config.template(template).unwrap().policy(config).unwrap();
    let text = |rule: &Rule| {
        let secrets = rule.http().map(|http| http.secrets.clone()).unwrap_or_default();
        let secrets: Vec<&str> = secrets.iter().map(SecretName::as_str).collect();
        format!("{} [{}]", rule.id, secrets.join(" "))
    };
    policy.allow.iter().map(text).collect()
}

#[test]
fn config_file_can_set_every_field_of_the_network() {
    let config = operator(
        r#"
        [secret.github]
        hosts = ["api.github.com"]
        slots = ["header:authorization"]
        shape = "ghp_{36}"
        env = "GITHUB_TOKEN"
        budget = { money = "$5" }

        [[template.default.allow]]
        host = "api.github.com"
        methods = ["GET", "POST"]
        paths = ["/repos/acme/**"]
        secrets = ["github"]
        limits = { requests = "60/min", upload = "10MB", total = "500MB" }

        [[template.default.allow]]
        preset = "pypi"

        [[template.default.allow]]
        name = "the forge"
        host = "*.corp.example"
        ports = [443, 8443]
        connect = "10.1.2.3:443"
        websocket = true

        [[template.default.allow]]
        tcp = "db.internal:5432"

        [[template.default.allow]]
        host-port = 5432

        [[template.default.deny]]
        host = "*.github.io"

        [template.default.budget]
        requests = 1000
        bytes = "1GB"
        tokens = 100000
        money = "2.50 USD"

        [template.short]
        allow = ["npm", "GET api.github.com/repos/acme/**", "tcp://10.0.0.5:22", "host-port:80"]
        deny = ["gist.github.com"]
        secrets = ["github"]

        [tls]
        roots = ["corp.pem", "/etc/ssl/x.pem", "~/own.pem"]
        [proxy]
        url = "http://proxy.corp.example:3128"
        [vault]
        key-command = ["pass", "show", "belljar"]
        "#,
    );
    let template = config.template("default").unwrap();
    assert_eq!(template.net, Net::Restricted, "rules need a network");
    assert_eq!(template.budget.money, Some(MicroUsd(2_500_000)));
    let Allow::Rule(first) = &template.allow[0] else { panic!("{:?}", template.allow) };
    let http = first.http().unwrap();
    assert_eq!(first.id, "allow GET,POST api.github.com/repos/acme/**");
    assert_eq!(
        (http.scheme, http.tls, http.ports.as_slice()),
        (Scheme::Https, Tls::Intercept, &[443][..])
    );
    assert_eq!(http.limits.requests.unwrap().to_string(), "60/min");
    assert_eq!(template.allow[1], Allow::Preset("pypi".parse().unwrap()));
    assert_eq!(template.deny[0].id, "deny *.github.io");
    assert_eq!(
        rule_ids(&config, "default"),
        [
            "allow GET,POST api.github.com/repos/acme/** [github]",
            "preset pypi: GET,HEAD pypi.org []",
            "preset pypi: GET,HEAD files.pythonhosted.org []",
            "the forge []",
            "allow tcp://db.internal:5432 []",
            "allow host-port:5432 []",
        ]
    );
    assert_eq!(
        rule_ids(&config, "short"),
        [
            "preset npm: GET,HEAD registry.npmjs.org []",
            "preset npm: GET,HEAD registry.yarnpkg.com []",
            "allow GET api.github.com/repos/acme/** [github]",
            "allow tcp://10.0.0.5:22 []",
            "allow host-port:80 []",
        ]
    );
    let declared = config.secret(&secret("github")).unwrap();
    assert_eq!(
        declared.hosts,
        ["api.github.com".parse::<HostPattern>().unwrap()],
        "not the preset's"
    );
    assert_eq!(declared.slots, [Slot::Header("authorization".into())]);
    assert_eq!(declared.budget.money, Some(MicroUsd(5_000_000)));
    assert!(config.secret(&secret("openai")).is_some(), "a preset declares it");
    assert_eq!(config.declared_secrets().collect::<Vec<_>>(), [&secret("github")]);
    let home = Some(Path::new("/h"));
    assert_eq!(
        config.roots(home),
        ["/etc/corp.pem", "/etc/ssl/x.pem", "/h/own.pem"].map(std::path::PathBuf::from)
    );
    assert_eq!(config.proxy().unwrap().to_string(), "http://proxy.corp.example:3128");
    assert_eq!(config.key_command().unwrap(), ["pass", "show", "belljar"]);
    let policy = template.policy(&config).unwrap();
    assert_eq!(policy.proxy.as_ref(), config.proxy());
    assert_eq!(policy.secrets.len(), 1);
}

#[test]
fn config_file_can_set_every_field_of_signing_secrets() {
    let config = operator(
        r#"
        [secret.aws]
        hosts = ["sts.eu-west-1.amazonaws.com"]
        kind = "sigv4"
        region = "eu-west-1"
        [secret.hook]
        hosts = ["hooks.example"]
        kind = "hmac"
        header = "X-Signature"
        message = "{timestamp}.{body}"
        timestamp-header = "X-Time"
        prefix = "sha256="
        [secret.google]
        hosts = ["*.drive.example"]
        kind = "oauth2"
        token-url = "https://oauth2.googleapis.com/token"
        client-id = "me"
        client-secret = "hook"
        captures = ["/login json:/token"]
        "#,
    );
    let kind = |name: &str| config.secret(&secret(name)).unwrap().kind.clone();
    assert_eq!(kind("aws"), SecretKind::SigV4 { region: Some("eu-west-1".into()), service: None });
    assert!(
        matches!(kind("hook"), SecretKind::Hmac { header, prefix, .. } if header == "x-signature" && prefix == "sha256=")
    );
    assert!(
        matches!(kind("google"), SecretKind::OAuth2 { client_secret: Some(name), .. } if name == secret("hook"))
    );
}

/// Checks the error for the whole text of an operator's file.
#[track_caller]
fn refused_file(text: &str, expect: &str) {
    let error = Config::parse(text, Path::new("belljar.toml"), Scope::Operator).unwrap_err();
    assert_eq!(error.to_string(), format!("belljar.toml:{expect}"));
}

#[test]
fn invalid_network_setting_is_refused_with_its_line() {
    let rule = |line: &str| format!("[[template.x.allow]]\nhost = \"a.example\"\n{line}\n");
    refused_file(&rule("metods = [\"GET\"]"), "3: unknown key `metods`; did you mean `methods`?");
    refused_file(
        &rule("methods = [\"GET\", \"get\"]"),
        "3: `\"get\"` in `methods`: HTTP methods must be upper case, for example GET",
    );
    refused_file(
        &rule("paths = [\"/a\", \"b\"]"),
        "3: `\"b\"` in `paths`: a path must begin with `/`",
    );
    refused_file(
        &rule("limits = { requests = \"lots\" }"),
        "3: `requests = \"lots\"`: invalid rate; write for example \"60/min\", \"5/s\", \"1000/h\" or \"10000/day\"",
    );
    refused_file(
        &rule("limits = { upload = \"1MB\", speed = 1 }"),
        "3: unknown key `speed`; the keys are requests, upload, total",
    );
    refused_file(
        &rule("connect = \"a.example:1\""),
        "3: `connect = \"a.example:1\"`: must be an address with a port; write for example \"10.1.2.3:443\"",
    );
    refused_file(
        &rule("port = 70000"),
        "3: `port = 70000`: must be a whole number, and not too large",
    );
    refused_file(&rule("websocket = 1"), "3: `websocket = 1`: must be true or false");
    refused_file(
        &rule("preset = \"pypi\""),
        "1: `[[template.x.allow]]` in `allow`: `preset` cannot be combined with other keys; write its rules out to change them",
    );
    refused_file(
        &rule("tcp = \"a.example:1\""),
        "1: `[[template.x.allow]]` in `allow`: a rule needs exactly one of `host`, `tcp`, `host-port` and `preset`",
    );
    refused_file(
        &rule("scheme = \"http\"\nsecrets = [\"s\"]"),
        "1: `[[template.x.allow]]` in `allow`: invalid `secrets`: a rule for plain HTTP cannot carry a secret; use HTTPS",
    );
    refused_file(
        "[template.x]\nallow = [\"a.example\",\n  \"*.github.io\"]",
        "3: `\"*.github.io\"` in `allow`: invalid `host`: the wildcard *.github.io would match hosts of unrelated owners: every customer of that service has a name there; list the hosts one by one",
    );
    refused_file(
        "[template.x]\nallow = [\"pipy\"]",
        "2: `\"pipy\"` in `allow`: unknown preset; the presets are anthropic, openai, gemini, github, pypi, npm, crates, debian, git-https",
    );
    refused_file(
        "[template.x]\nallow = \"pypi\"",
        "2: `allow = \"pypi\"`: must be a list of rules",
    );
    refused_file(
        "[template.x]\ndeny = [\"pypi\", { preset = \"npm\" }]",
        "2: `{ preset = \"npm\" }` in `deny`: `preset` is not possible in a `deny` rule",
    );
    refused_file(
        "[template.x.budget]\nmoney = \"five\"",
        "2: `money = \"five\"`: invalid amount of money; write for example \"5 USD\" or \"$0.50\"",
    );
    refused_file(
        "[template.x]\nsecrets = [\"A\"]",
        "2: `\"A\"` in `secrets`: invalid secret name; use 1 to 64 characters of a-z, 0-9, `-` and `_`, and start with a letter or digit",
    );
    refused_file(
        "[secret.A]\nhosts = []",
        "1: secret `A`: invalid secret name; use 1 to 64 characters of a-z, 0-9, `-` and `_`, and start with a letter or digit",
    );
    refused_file(
        "\n[secret.a]\nenv = \"A\"",
        "2: secret `a`: `hosts` is missing; list the hosts that may get the secret",
    );
    refused_file(
        "[secret.a]\nhosts = [\"a.example\"]\nregion = \"x\"",
        "1: secret `a`: `region` is only possible with `kind = \"sigv4\"`",
    );
    refused_file(
        "[secret.a]\nhosts = [\"a.example\"]\nkind = \"hmac\"",
        "1: secret `a`: `header` is missing",
    );
    refused_file(
        "[secret.a]\nhosts = [\"a.example\"]\nshape = \"x{3}\"",
        "3: `shape = \"x{3}\"`: at least 20 random characters are needed, or the placeholder could be guessed",
    );
    refused_file(
        "[secret.a]\nhosts = [\"a.example\"]\nslots = [\"header:cookie\"]",
        "3: `\"header:cookie\"` in `slots`: invalid slot: servers store, forward or log this header, so it cannot hold a secret",
    );
    refused_file(
        "[secret.a]\nvalue = \"hunter2\"",
        "2: unknown key `value`; the keys are hosts, slots, methods, paths, shape, env, captures, budget, deny-when, kind, region, service, header, algorithm, encoding, prefix, message, timestamp-header, token-url, grant, client-id, client-secret, auth, token-body, scope",
    );
    refused_file(
        "[proxy]\nurl = \"http://u:p@p:1\"",
        "2: `url = \"http://u:p@p:1\"`: a proxy with a password is not supported; remove the part up to `@`",
    );
    refused_file(
        "[vault]\nkey-command = \"echo $HOME\"",
        "2: `key-command = \"echo $HOME\"`: the command is not run by a shell; write a list of the program and its arguments",
    );
    refused_file("[tls]\nroots = \"x\"", "2: `roots = \"x\"`: must be a list of strings");
    refused_file("tls = 1", "1: `tls = 1`: must be a table");
}

#[test]
fn c08_project_file_with_secrets_roots_or_a_proxy_is_refused() {
    for (section, text) in [
        ("secret", "[secret.github]\nhosts = [\"evil.example\"]"),
        ("tls", "[tls]\nroots = [\"evil.pem\"]"),
        ("proxy", "[proxy]\nurl = \"http://evil.example:1\""),
        ("dns", "[dns]\nservers = [\"192.0.2.1\"]"),
        ("vault", "[vault]\nkey-command = [\"evil\"]"),
        ("serve", "[serve]\nlisten = \"192.0.2.1:80\""),
    ] {
        let parse = |scope| Config::parse(text, Path::new("belljar.toml"), scope);
        assert!(parse(Scope::Operator).is_ok(), "the operator's file may have it");
        let expect = format!(
            "belljar.toml:1: `[{section}]` is only valid in the operator's own file; remove it from this file"
        );
        assert_eq!(parse(Scope::Project).unwrap_err().to_string(), expect);
    }
}

#[test]
fn c08_project_can_remove_rules_and_deny_more() {
    let operator = operator(
        r#"
        [template.default]
        allow = ["pypi", "a.example", { host = "b.example", secrets = ["github"], connect = "10.0.0.1:443" }]
        deny = ["x.example"]
        secrets = ["github"]
        budget = { requests = 10 }
        "#,
    );
    let base = operator.template("default").unwrap();
    let tightened = |text: &str| {
        let text = format!("[template.default]\n{text}\n");
        operator.tighten(&project(&text)).map(|config| config.template("default").unwrap())
    };
    let got = tightened("deny = [\"y.example\"]").unwrap();
    assert_eq!((got.deny.len(), &got.allow), (2, &base.allow));
    assert!(tightened("allow = []").unwrap().allow.is_empty(), "an empty list allows nothing");
    assert!(tightened("secrets = []").unwrap().secrets.is_empty());
    assert_eq!(
        tightened("allow = [\"b.example\"]").unwrap().allow,
        base.allow[2..],
        "the operator's own rule"
    );
    assert_eq!(
        tightened("budget = { requests = 5, tokens = 1 }").unwrap().budget.requests,
        Some(5)
    );
    for text in [
        "allow = [\"npm\"]",
        "allow = [\"c.example\"]",
        "allow = [\"http://a.example\"]",
        "allow = [\"a.example:8443\"]",
        "allow = [{ host = \"a.example\", secrets = [\"github\"] }]",
        "allow = [{ host = \"a.example\", connect = \"10.0.0.2:443\" }]",
        "allow = [{ host = \"b.example\", connect = \"10.0.0.2:443\" }]",
        "allow = [{ host = \"a.example\", tls = \"passthrough\" }]",
        "allow = [\"tcp://a.example:443\"]",
        "allow = [\"host-port:22\"]",
        "secrets = [\"openai\"]",
        "budget = { requests = 11 }",
        "net = \"full\"",
    ] {
        let error = tightened(text).unwrap_err();
        assert!(matches!(error.fault, Fault::Loosens { .. }), "{text}: {error}");
        assert_eq!(error.line, 2, "{text}");
    }
    // Without any rules of the operator, a project's file allows nothing.
    let error = Config::built_in().tighten(&project("[template.default]\nallow = [\"pypi\"]\n"));
    assert!(error.is_err());
}

#[test]
fn network_flags_add_rules_to_a_template_and_turn_on_the_network() {
    let overrides = |allow: &[&str], secrets: &[&str]| Overrides {
        allow: allow.iter().map(|text| text.parse().unwrap()).collect(),
        secrets: secrets.iter().map(|text| secret(text)).collect(),
        ..Overrides::default()
    };
    let with = |overrides: Overrides| Template::default().with(overrides).unwrap();
    assert_eq!(with(Overrides::default()).net, Net::None);
    assert_eq!(with(overrides(&["pypi"], &[])).net, Net::Restricted);
    assert_eq!(with(overrides(&[], &["github"])).net, Net::Restricted);
    assert_eq!(
        with(Overrides { net: Some(Net::None), ..overrides(&["pypi"], &[]) }).net,
        Net::None
    );
    let full = Template { net: Net::Full, ..Template::default() };
    assert_eq!(full.with(overrides(&["pypi"], &[])).unwrap().net, Net::Full);
    let twice = with(overrides(&["pypi"], &[])).with(overrides(&["a.example"], &[])).unwrap();
    assert_eq!(twice.allow.len(), 2);
}

#[test]
fn secrets_of_a_template_apply_to_the_rules_that_lead_to_their_hosts() {
    let config = Config::built_in();
    let policy = |net: Option<Net>, allow: &[&str], secrets: &[&str]| {
        let overrides = Overrides {
            net,
            allow: allow.iter().map(|text| text.parse().unwrap()).collect(),
            secrets: secrets.iter().map(|text| secret(text)).collect(),
            ..Overrides::default()
        };
        Template::default().with(overrides).unwrap().policy(&config)
    };
    let carries = |policy: &crate::net::Policy| -> Vec<String> {
        let with = policy
            .allow
            .iter()
            .filter(|rule| rule.http().is_some_and(|http| !http.secrets.is_empty()));
        with.map(|rule| rule.id.clone()).collect()
    };
    let got = policy(None, &["api.github.com", "a.example", "http://api.github.com"], &["github"])
        .unwrap();
    assert_eq!(carries(&got), ["allow api.github.com"]);
    assert_eq!(got.secrets.len(), 1);
    let got = policy(None, &["*.github.com"], &["github"]).unwrap();
    assert_eq!(carries(&got), ["allow *.github.com"]);
    let got = policy(Some(Net::Full), &[], &["github"]).unwrap();
    assert_eq!(carries(&got).len(), 3);
    assert!(matches!(
        policy(None, &["a.example"], &["github"]),
        Err(PolicyError::Unreachable { .. })
    ));
    let error = policy(None, &["a.example"], &["nope"]).unwrap_err();
    assert!(
        error.to_string().contains("[secret.nope]") && error.to_string().contains("github"),
        "{error}"
    );
    // Two secrets with the same variable, or a variable that is already set.
    let own = operator(
        "[secret.a]\nhosts = [\"a.example\"]\nenv = \"T\"\n[secret.b]\nhosts = [\"a.example\"]\nenv = \"T\"\n\
         [template.default]\nallow = [\"a.example\"]\nsecrets = [\"a\", \"b\"]\n",
    );
    let template = own.template("default").unwrap();
    assert!(matches!(template.policy(&own), Err(PolicyError::SameVariable { .. })));
    let template = Template {
        secrets: [secret("a")].into(),
        env: vec!["T=1".parse::<EnvVar>().unwrap()],
        ..template
    };
    assert!(matches!(template.policy(&own), Err(PolicyError::GivenToo { .. })));
}

#[test]
fn every_preset_has_valid_rules_and_secrets() {
    for name in PresetName::all() {
        let preset = preset(name.as_str()).unwrap_or_else(|| panic!("{name} does not parse"));
        assert!(!preset.rules.is_empty() && !preset.about.is_empty());
        for rule in &preset.rules {
            let http: &HttpRule = rule.http().unwrap();
            assert!(rule.id.starts_with(&format!("preset {name}: ")), "{}", rule.id);
            assert!(http.secrets.is_empty() && http.connect.is_none());
            assert_eq!(
                Rule::allowing(Some(rule.id.clone()), RuleTarget::Http(http.clone())).as_ref(),
                Ok(rule)
            );
        }
        for secret in &preset.secrets {
            secret.check().unwrap();
            assert!(secret.env.is_some());
            let leads = |host: &HostPattern| {
                preset
                    .rules
                    .iter()
                    .any(|rule| rule.http().is_some_and(|http| http.host.overlaps(host)))
            };
            assert!(secret.hosts.iter().all(leads), "{name}");
        }
    }
    assert!(preset("nope").is_none());
    for registry in ["pypi", "npm", "crates", "debian"] {
        for rule in preset(registry).unwrap().rules {
            let methods = rule.http().unwrap().methods.clone().unwrap();
            assert!(methods.iter().all(crate::net::Method::is_safe), "{}", rule.id);
        }
    }
}

#[test]
fn every_preset_is_documented_with_its_rules() {
    let page = include_str!("../../../../../docs/presets.md");
    let (mut text, mut missing) = (String::new(), Vec::new());
    for name in PresetName::all() {
        let preset = name.preset().unwrap();
        let mut lines = vec![format!("## {name}"), format!("For {}.", preset.about)];
        for rule in &preset.rules {
            lines.push(format!("- `{}`", rule.what));
        }
        for secret in &preset.secrets {
            let slots: Vec<String> = secret.slots.iter().map(|slot| format!("`{slot}`")).collect();
            let hosts: Vec<String> = secret.hosts.iter().map(|host| format!("`{host}`")).collect();
            lines.push(format!(
                "- secret `{}`: to {}, in {}; placeholder `{}` in `{}`",
                secret.name,
                hosts.join(", "),
                slots.join(", "),
                secret.shape,
                secret.env.as_deref().unwrap_or_default(),
            ));
        }
        missing.extend(lines.iter().filter(|line| !page.lines().any(|it| it == *line)).cloned());
        text.push_str(&format!("{}\n\n", lines.join("\n")));
    }
    assert!(missing.is_empty(), "not in docs/presets.md: {missing:#?}\n{text}");
}
