use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::net::{Allow, Method, Rule, RuleTarget, SecretName};
use crate::{ByteSize, Config, Net, Scope};

const SECRET: &str = "[secret.forge]\nhosts = [\"api.forge.example\"]\n";

fn parsed(text: &str) -> Config {
    Config::parse(text, Path::new("/etc/belljar.toml"), Scope::Operator).unwrap()
}

#[track_caller]
fn refused_file(text: &str, expect: &str) {
    let error = Config::parse(text, Path::new("b.toml"), Scope::Operator).unwrap_err();
    assert_eq!(error.to_string(), format!("b.toml:{expect}"));
}

/// Checks the error for one additional line in a valid `[api.NAME]` section.
#[track_caller]
fn refused_line(line: &str, expect: &str) {
    refused_file(&format!("[api.forge]\nhosts = [\"api.forge.example\"]\n{line}\n"), expect);
}

fn boxed(config: &Config) -> CodeBox {
    config.code().template(config, Selection::All).unwrap()
}

fn names(names: &[&str]) -> BTreeSet<ApiName> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

/// Returns the ids of a template's `allow` rules, with their secrets.
fn rules(template: &crate::Template) -> Vec<(String, Vec<String>)> {
    let of = |allow: &Allow| match allow {
        Allow::Preset(name) => (name.to_string(), Vec::new()),
        Allow::Rule(rule) => {
            let secrets = rule.http().map(|http| &http.secrets);
            let secrets = secrets.into_iter().flatten().map(SecretName::to_string).collect();
            (rule.id.clone(), secrets)
        }
    };
    template.allow.iter().map(of).collect()
}

#[test]
fn config_file_can_set_every_field_of_services_servers_and_code() {
    let config = parsed(
        r#"
        [api.forge]
        description = "The forge"
        allow = ["GET,POST https://api.forge.example/repos/acme/**"]
        hosts = ["uploads.forge.example"]
        secrets = ["forge"]
        restricted-methods = ["DELETE", "PUT"]
        reference = "https://docs.forge.example"
        base-url = "https://api.forge.example/v3/"
        types = "forge.d.ts"
        openapi = "~/forge.json"
        examples = ["await apis.forge.get('/x')"]
        [mcp.files]
        command = ["npx", "-y", "@x/files"]
        env = ["K=V"]
        template = "files"
        secrets = ["forge"]
        allow = ["npm"]
        timeout = "45s"
        [mcp.remote]
        url = "https://mcp.example.com/mcp"
        [code]
        template = "default"
        warm = 0
        libraries = "libs"
        timeout = "5s"
        max-timeout = "1m"
        output = "2MiB"
        "#,
    );
    let forge = &config.apis()[&"forge".parse().unwrap()];
    assert_eq!(forge.description.as_deref(), Some("The forge"));
    let allowed: Vec<String> = forge.allow.iter().map(|rule| rule.what.to_string()).collect();
    assert_eq!(allowed, ["GET,POST api.forge.example/repos/acme/**", "uploads.forge.example"]);
    assert_eq!(forge.secrets, BTreeSet::from(["forge".parse().unwrap()]));
    let restricted: Vec<&str> = forge.restricted.iter().map(Method::as_str).collect();
    assert_eq!((restricted, forge.yolo), (vec!["DELETE", "PUT"], false));
    assert_eq!(forge.base().unwrap().to_string(), "https://api.forge.example/v3");
    assert_eq!(forge.types(None).as_deref(), Some(Path::new("/etc/forge.d.ts")));
    assert_eq!(forge.openapi(Some(Path::new("/h"))).as_deref(), Some(Path::new("/h/forge.json")));
    assert_eq!(forge.examples, ["await apis.forge.get('/x')"]);

    let files = &config.servers()[&"files".parse().unwrap()];
    let argv = ["npx", "-y", "@x/files"].map(str::to_owned).to_vec();
    assert_eq!(files.transport, Transport::Command(argv));
    assert_eq!((files.template.as_deref(), files.timeout.as_secs()), (Some("files"), 45));
    let remote = &config.servers()[&"remote".parse().unwrap()];
    assert_eq!(remote.transport, Transport::Url("https://mcp.example.com/mcp".parse().unwrap()));
    assert_eq!(remote.timeout, McpServer::TIMEOUT);

    let code = config.code();
    assert_eq!((code.template.as_deref(), code.warm, code.yolo), (Some("default"), 0, false));
    assert_eq!(code.libraries(None).as_deref(), Some(Path::new("/etc/libs")));
    assert_eq!((code.timeout, code.max_timeout), (Duration::from_secs(5), Duration::from_secs(60)));
    assert_eq!(code.output, ByteSize::mib(2));
    assert_eq!(*Config::built_in().code(), CodeConfig::default());
}

#[test]
fn invalid_service_is_refused_with_its_line() {
    refused_file(
        "[api.forge]\n",
        "1: api `forge`: `allow` and `hosts` are missing; one of them must name the hosts",
    );
    refused_file(
        "[api.Forge]\nhosts = ['a.example']",
        "1: api `Forge`: invalid name; use 1 to 64 characters of a-z, 0-9, `-` and `_`, and start with a letter",
    );
    refused_file(
        "[api.then]\nhosts = ['a.example']",
        "1: api `then`: the name is reserved in JavaScript programs; choose another name",
    );
    refused_file(
        "[api.a-b]\nhosts = ['a.example']\n[api.a_b]\nhosts = ['a.example']",
        "3: api `a_b`: programs cannot distinguish it from `a-b`; rename one of them",
    );
    refused_file("api = 1", "1: `api = 1`: must be a table; write `[api.NAME]`");
    refused_line("host = 'x.example'", "3: unknown key `host`; did you mean `hosts`?");
    refused_line(
        "restricted_methods = ['GET']",
        "3: unknown key `restricted_methods`; did you mean `restricted-methods`?",
    );
    refused_line(
        "restricted-methods = ['delete']",
        "3: `'delete'` in `restricted-methods`: HTTP methods must be upper case, for example GET",
    );
    refused_line("yolo = 1", "3: `yolo = 1`: must be true or false");
    refused_line(
        "base-url = 'api.forge.example'",
        "3: `base-url = 'api.forge.example'`: invalid URL; write https://HOST or https://HOST/PATH",
    );
    refused_line(
        "base-url = 'https://u:p@api.forge.example'",
        "3: `base-url = 'https://u:p@api.forge.example'`: invalid URL; write https://HOST or https://HOST/PATH",
    );
    refused_line(
        "base-url = 'https://api.forge.example/?q'",
        "3: `base-url = 'https://api.forge.example/?q'`: the path of the base URL must have plain characters, without `?` and `#`",
    );
    refused_line(
        "base-url = 'https://other.example'",
        "1: api `forge`: invalid `base-url`: no rule of this api allows https://other.example",
    );
    refused_line(
        "base-url = 'http://api.forge.example'",
        "1: api `forge`: invalid `base-url`: no rule of this api allows http://api.forge.example",
    );
    refused_line("openapi = ''", "3: `openapi = ''`: the path is empty");
    refused_line("examples = 'x'", "3: `examples = 'x'`: must be a list of strings");
    refused_line(
        &format!("description = '{}'", "x".repeat(2001)),
        &format!("3: `description = '{}…`: must have at most 2000 characters", "x".repeat(59)),
    );
    refused_file(
        "[api.db]\nallow = ['tcp://db.example:5432']\nrestricted-methods = ['DELETE']",
        "1: api `db`: `restricted-methods`: `tcp://db.example:5432` hides the method of a request; use an intercepted HTTP rule instead",
    );
    refused_file(
        "[api.old]\nallow = ['http://old.example']\nsecrets = ['github']",
        "1: api `old`: invalid `secrets`: no rule of this api is intercepted, so no request can carry a secret",
    );
}

#[test]
fn invalid_server_or_code_section_is_refused_with_its_line() {
    refused_file("[mcp.x]\n", "1: mcp `x`: exactly one of `command` and `url` must be set");
    refused_file(
        "[mcp.x]\ncommand = ['a']\nurl = 'https://a.example'",
        "1: mcp `x`: exactly one of `command` and `url` must be set",
    );
    refused_file(
        "[mcp.x]\ncommand = []",
        "2: `command = []`: the program is missing; write a list of the program and its arguments",
    );
    refused_file("[mcp.x]\ncomand = ['a']", "2: unknown key `comand`; did you mean `command`?");
    refused_file(
        "[mcp.x]\nurl = 'https://a.example'\nenv = ['A=1']",
        "1: mcp `x`: `env` needs `command`; a server with `url` takes no variables",
    );
    refused_file(
        "[mcp.x]\nurl = 'https://a.example'\nallow = ['b.example']",
        "1: mcp `x`: invalid `url`: no rule in `allow` allows https://a.example",
    );
    refused_file("[code]\ntimeout = 'none'", "2: `timeout = 'none'`: must be from 1s to 1d");
    refused_file(
        "[code]\ntimeout = 0",
        "2: `timeout = 0`: a timeout of zero would kill every program at once; write \"none\" for no timeout",
    );
    refused_file(
        "[code]\ntimeout = '2m'\nmax-timeout = '1m'",
        "1: section `code`: `timeout` is 2m, but `max-timeout` is 1m",
    );
    refused_file("[code]\nwarm = 65", "2: `warm = 65`: at most 64 boxes can be kept ready");
    refused_file("[code]\nwrm = 1", "2: unknown key `wrm`; did you mean `warm`?");
    refused_file("[cod]\nwarm = 1", "1: unknown key `cod`; did you mean `code`?");
}

#[test]
fn c08_project_file_with_services_servers_or_code_is_refused() {
    for (section, text) in [
        ("api", "[api.x]\nhosts = [\"evil.example\"]"),
        ("mcp", "[mcp.x]\ncommand = [\"evil\"]"),
        ("code", "[code]\nyolo = true"),
    ] {
        let parse = |scope| Config::parse(text, Path::new("b.toml"), scope);
        assert!(parse(Scope::Operator).is_ok(), "the operator's file may have it");
        let expect = format!(
            "b.toml:1: `[{section}]` is only valid in the operator's own file; remove it from this file"
        );
        assert_eq!(parse(Scope::Project).unwrap_err().to_string(), expect);
    }
    let operator = parsed("[api.x]\nhosts = ['a.example']\n[code]\nwarm = 7");
    let project =
        Config::parse("[template.code]\nmemory = '64MiB'", Path::new("p"), Scope::Project);
    let tightened = operator.tighten(&project.unwrap()).unwrap();
    assert_eq!((tightened.apis().len(), tightened.code().warm), (1, 7));
    assert_eq!(boxed(&tightened).template.limits.memory, ByteSize::mib(512));
}

#[test]
fn code_box_without_services_has_no_network() {
    let CodeBox { template, remarks } = boxed(&Config::built_in());
    assert_eq!((template.name.as_str(), template.net), ("code", Net::None));
    assert_eq!((template.limits.memory, template.limits.pids), (ByteSize::mib(512), 64));
    assert_eq!(template.limits.timeout, Some(Duration::from_secs(30)));
    assert!(template.allow.is_empty() && template.deny.is_empty() && remarks.is_empty());
}

#[test]
fn code_box_allows_the_rules_of_a_service_with_its_secrets_and_denies_restricted_methods() {
    let config = parsed(&format!(
        "{SECRET}[api.forge]\nallow = ['GET,DELETE https://api.forge.example/a/**', 'cdn.example']\n\
         secrets = ['forge']\nrestricted-methods = ['DELETE']\n\
         [api.other]\nhosts = ['api.forge.example']\n"
    ));
    let CodeBox { template, remarks } = boxed(&config);
    assert_eq!((template.net, remarks), (Net::Restricted, vec![]));
    // Only the service's own rule for the host carries the secret.
    let plain = |id: &str| (id.to_owned(), Vec::<String>::new());
    assert_eq!(
        rules(&template),
        [
            ("api forge: DELETE,GET api.forge.example/a/**".to_owned(), vec!["forge".to_owned()]),
            plain("api forge: cdn.example"),
            plain("api other: api.forge.example"),
        ]
    );
    let denied: Vec<String> = template.deny.iter().map(|rule| rule.what.to_string()).collect();
    assert_eq!(denied, ["DELETE api.forge.example/a/**", "DELETE cdn.example"]);
    assert_eq!(template.deny[0].id, "api forge: DELETE restricted on api.forge.example");
    let policy = template.policy(&config).unwrap();
    assert_eq!(policy.secrets.len(), 1);
    assert!(template.secrets.is_empty());
}

#[test]
fn code_box_can_reach_only_the_selected_services() {
    let config = parsed("[api.a]\nhosts = ['a.example']\n[api.b]\nhosts = ['b.example']\n");
    let of = |only: &BTreeSet<ApiName>| config.code().template(&config, Selection::Only(only));
    assert_eq!(rules(&of(&names(&["b"])).unwrap().template), [("api b: b.example".into(), vec![])]);
    let none = of(&names(&[])).unwrap().template;
    assert_eq!((none.net, none.allow.len()), (Net::None, 0));
    assert_eq!(
        of(&names(&["a", "c"])).unwrap_err().to_string(),
        "there is no api `c`; the apis are a, b"
    );
    let empty = Config::built_in();
    let unknown = empty.code().template(&empty, Selection::Only(&names(&["c"]))).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "there is no api `c`; none is declared; write `[api.NAME]` into your belljar.toml"
    );
}

#[test]
fn yolo_setting_adds_a_remark_about_unrestricted_access() {
    let api = "[api.a]\nallow = ['DELETE a.example/x']\nrestricted-methods = ['DELETE']\n";
    let open = boxed(&parsed(&format!("{api}yolo = true\n")));
    assert_eq!(open.remarks, ["api `a`: DELETE is not restricted (`yolo = true`)"]);
    assert!(open.template.deny.is_empty());
    let full = boxed(&parsed(&format!("{api}[code]\nyolo = true\n")));
    assert_eq!(full.remarks, ["programs can reach every public host (`[code] yolo = true`)"]);
    assert_eq!(full.template.net, Net::Full);
    // On a full network, the paths and ports of a rule do not limit requests.
    assert_eq!(full.template.deny[0].what.to_string(), "DELETE a.example");
    assert!(full.template.deny[0].http().unwrap().ports.is_empty());
    assert_eq!(boxed(&parsed(api)).remarks, Vec::<String>::new(), "without yolo");
}

#[test]
fn code_box_can_use_a_template_of_the_operator() {
    let text = "[template.mine]\nmemory = '1GiB'\nallow = ['own.example']\n[code]\ntemplate = 'mine'\n[api.a]\nhosts = ['a.example']\n";
    let template = boxed(&parsed(text)).template;
    assert_eq!((template.name.as_str(), template.limits.memory), ("mine", ByteSize::mib(1024)));
    let ids: Vec<String> = rules(&template).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["allow own.example", "api a: a.example"]);
    let config = parsed("[code]\ntemplate = 'none'\n");
    let error = config.code().template(&config, Selection::All).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid `[code] template`: there is no template `none`; the templates are default"
    );
}

#[test]
fn service_with_a_secret_that_no_rule_can_carry_is_refused() {
    let refused = |text: &str| {
        let config = parsed(text);
        config.code().template(&config, Selection::All).unwrap_err().to_string()
    };
    let unknown = refused("[api.a]\nhosts = ['a.example']\nsecrets = ['nope']\n");
    assert!(unknown.starts_with(
        "the declaration of api `a` is invalid: there is no secret `nope`: write `[secret.nope]`"
    ));
    assert_eq!(
        refused(&format!("{SECRET}[api.a]\nhosts = ['a.example']\nsecrets = ['forge']\n")),
        "api `a`: secret `forge` is for api.forge.example, but no rule of this api allows these hosts"
    );
}

#[test]
fn base_url_of_a_service_is_its_first_host_by_default() {
    for (allow, expect) in [
        ("'a.example'", Some("https://a.example")),
        ("'*.a.example', 'GET b.example:8443/x'", Some("https://b.example:8443")),
        ("'http://a.example'", Some("http://a.example")),
        ("'host-port:8080'", Some("http://host.belljar.internal:8080")),
        ("'*.a.example'", None),
    ] {
        let config = parsed(&format!("[api.a]\nallow = [{allow}]"));
        let base = config.apis().values().next().unwrap().base().map(|base| base.to_string());
        assert_eq!(base.as_deref(), expect, "{allow}");
    }
}

#[test]
fn preset_in_a_service_is_replaced_by_its_rules() {
    let config = parsed("[api.npm]\nallow = ['npm']\n");
    let api = config.apis().values().next().unwrap();
    assert!(!api.allow.is_empty());
    assert!(api.allow.iter().all(|rule: &Rule| matches!(rule.what, RuleTarget::Http(_))));
}

#[test]
fn f15_service_names_with_special_meaning_are_refused() {
    for bad in ["", "A", "1a", "-a", "_a", "a.b", "a/b", "..", "a b", "é", "constructor", "a\n"] {
        assert!(bad.parse::<ApiName>().is_err(), "{bad:?}");
        assert!(bad.parse::<SkillName>().is_err(), "{bad:?}");
        assert!(bad.parse::<ServerName>().is_err(), "{bad:?}");
    }
    assert!("a".repeat(65).parse::<SkillName>().is_err());
    let good: SkillName = "a-b_1".parse().unwrap();
    assert_eq!((good.as_str(), good.identifier().as_str()), ("a-b_1", "a_b_1"));
}
