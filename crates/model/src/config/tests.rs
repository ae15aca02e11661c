mod golden;
mod marks;
mod network;

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::{ByteSize, Layer, Mode, Net, Record, Requirement, Timeout};

const FILE: &str = "/etc/belljar.toml";
const PROJECT: &str = "/p/belljar.toml";

fn operator(text: &str) -> Config {
    Config::parse(text, Path::new(FILE), Scope::Operator).unwrap()
}

fn project(text: &str) -> Config {
    Config::parse(text, Path::new(PROJECT), Scope::Project).unwrap()
}

#[track_caller]
fn refused(text: &str, expect: &str) {
    for scope in [Scope::Operator, Scope::Project] {
        let error = Config::parse(text, Path::new("belljar.toml"), scope).unwrap_err();
        assert_eq!(error.to_string(), expect);
    }
}

/// Checks the error for one line in the `default` template.
#[track_caller]
fn line_refused(line: &str, expect: &str) {
    refused(&format!("[template.default]\n{line}\n"), &format!("belljar.toml:2: {expect}"));
}

#[test]
fn config_file_can_set_every_field_of_a_template() {
    let config = operator(
        r#"
        [template.build]
        mode = "direct"
        net = "restricted"
        mounts = ["data:/data", "~/c:/c:rw", "/abs:/abs"]
        rootfs = "images/debian"
        env = ["CI=1", "LANG"]
        user = 0
        memory = "512MiB"
        cpus = 0.5
        pids = 64
        disk = "1G"
        files = 128
        output-limit = 1048576
        timeout = "none"
        weaken = ["time-namespace", "landlock"]
        require = ["cgroup"]
        [template.plain]
        "#,
    );
    assert_eq!(config.names(), ["build", "default", "plain"]);
    let build = config.template("build").unwrap();
    assert_eq!((build.mode, build.net, build.user), (Mode::Direct, Net::Restricted, 0));
    let mounts: Vec<_> = build.mounts.iter().map(ToString::to_string).collect();
    assert_eq!(mounts, ["/etc/data:/data:ro", "~/c:/c:rw", "/abs:/abs:ro"]);
    assert_eq!(build.rootfs.as_deref(), Some(Path::new("/etc/images/debian")));
    assert_eq!(build.env.iter().map(ToString::to_string).collect::<Vec<_>>(), ["CI=1", "LANG"]);
    let limits = serde_json::to_value(&build.limits).unwrap();
    assert_eq!(
        limits,
        serde_json::json!({"memory": "512MiB", "cpus": "0.5", "pids": 64, "disk": "1GiB",
            "files": 128, "output": "1MiB", "timeout": "none"})
    );
    assert_eq!(build.weaken, BTreeSet::from([Layer::TimeNamespace, Layer::Landlock]));
    assert_eq!(build.require, BTreeSet::from([Requirement::Cgroup]));
    let plain = Template { name: "plain".into(), ..Template::default() };
    assert_eq!(config.template("plain"), Some(plain));
    assert_eq!(config.template("default"), Some(Template::default()));
    assert_eq!(config.template("other"), None);
}

#[test]
fn config_without_a_file_has_the_default_template() {
    assert_eq!(Config::built_in().names(), ["default"]);
    assert_eq!(Config::built_in().template("default"), Some(Template::default()));
    assert_eq!(operator("").names(), ["default"]);
}

#[test]
fn invalid_config_value_is_refused_with_file_line_and_key() {
    refused(
        "# a comment\n\n[template.a]\n\n\nmode = \"overlay\"\nmemory = \"2 gigs\"\n",
        "belljar.toml:7: `memory = \"2 gigs\"`: invalid size; write for example \"512MiB\" or \"2GiB\"",
    );
    line_refused("memory = true", "`memory = true`: must be a string or a number");
    line_refused("memory = 0", "`memory = 0`: a size cannot be zero; write the intended size");
    line_refused(
        "timeout = 0",
        "`timeout = 0`: a timeout of zero would kill every program at once; write \"none\" for no timeout",
    );
    line_refused(
        "mode = \"rw\"",
        "`mode = \"rw\"`: unknown mode; write `overlay`, `direct` or `read-only`",
    );
    line_refused(
        "net = \"\"",
        "`net = \"\"`: unknown network level; write `none`, `restricted` or `full`",
    );
    line_refused("pids = 1.5", "`pids = 1.5`: must be a whole number, and not too large");
    line_refused("pids = -1", "`pids = -1`: must be a whole number, and not too large");
    line_refused(
        "user = 4294967296",
        "`user = 4294967296`: must be a whole number, and not too large",
    );
    line_refused(
        "cpus = inf",
        "`cpus = inf`: invalid number of CPUs; write for example \"2\" or \"0.5\"",
    );
    line_refused("rootfs = 5", "`rootfs = 5`: must be a string");
    line_refused("rootfs = \"\"", "`rootfs = \"\"`: the path is empty");
    line_refused("env = \"A\"", "`env = \"A\"`: must be a list of strings");
    line_refused("env = [1]", "`1` in `env`: must be a string");
    line_refused(
        "require = [\"seccomp\"]",
        "`\"seccomp\"` in `require`: unknown requirement; the only one is `cgroup`",
    );
    refused(
        "[template.a]\nmounts = [\n  \"/a:/b\",\n  \"/c:d\",\n]\n",
        "belljar.toml:4: `\"/c:d\"` in `mounts`: the target of the mount must be an absolute path without `.`, `..` or `//`",
    );
}

#[test]
fn unknown_config_key_is_refused_with_a_suggestion() {
    line_refused("memroy = \"1G\"", "unknown key `memroy`; did you mean `memory`?");
    line_refused(
        "output_limit = \"1G\"",
        "unknown key `output_limit`; did you mean `output-limit`?",
    );
    line_refused("weakens = []", "unknown key `weakens`; did you mean `weaken`?");
    line_refused(
        "sandbox = false",
        "unknown key `sandbox`; the keys are mode, net, record, mounts, rootfs, env, user, memory, cpus, pids, disk, \
         files, output-limit, timeout, weaken, require, allow, deny, ask, ask-timeout, secrets, \
         budget, health, permissions",
    );
    refused("[templates.a]\n", "belljar.toml:1: unknown key `templates`; did you mean `template`?");
    refused(
        "x = 1\n",
        "belljar.toml:1: unknown key `x`; the keys are template, permissions, secret, api, mcp, tier, schedule, tenant, code, test, serve, oidc, tls, dns, proxy, vault",
    );
}

#[test]
fn malformed_config_file_is_refused_with_its_line() {
    for (text, line) in
        [("[template.a\n", 1), ("\n\nmode =\n", 3), ("[template.a]\npids=1\npids=2\n", 3)]
    {
        let error = Config::parse(text, Path::new("belljar.toml"), Scope::Operator).unwrap_err();
        assert_eq!(error.line, line, "{error}");
        assert!(matches!(error.fault, Fault::Syntax { .. }), "{error}");
        assert!(!error.to_string().contains('\n'));
    }
    refused(
        "template = 5\n",
        "belljar.toml:1: `template = 5`: must be a table; write `[template.NAME]`",
    );
    refused(
        "template.a = \"x\"\n",
        "belljar.toml:1: `template.a = \"x\"`: must be a table; write `[template.NAME]`",
    );
    refused(
        "[template.\"../x\"]\n",
        "belljar.toml:1: template `../x`: invalid name; use 1 to 63 characters of a-z, 0-9, `-`, `_` \
         and `.`, and start with a letter or digit",
    );
}

#[test]
fn template_with_contradicting_values_is_refused() {
    line_refused(
        "weaken = [\"namespaces\"]",
        "`weaken` of template `default`: the layer `namespaces` cannot be weakened: every box needs it",
    );
    refused(
        "[template.a]\nweaken = [\"cgroup\"]\nrequire = [\"cgroup\"]\n",
        "belljar.toml:3: `require` of template `a`: the layer `cgroup` is both required and weakened",
    );
    line_refused(
        "mounts = [\"/a:/x\", \"/b:/x\"]",
        "`mounts` of template `default`: two mounts have the target /x",
    );
    line_refused(
        "env = [\"A=1\", \"A\"]",
        "`env` of template `default`: the variable A is given twice",
    );
    line_refused(
        "user = 4294967295",
        "`user` of template `default`: the user id 4294967295 is reserved; use another number",
    );
    line_refused(
        "rootfs = \"/\"",
        "`rootfs` of template `default`: the root file system of the host cannot be the `rootfs` of a box",
    );
    line_refused(
        "memory = \"1MiB\"",
        "`memory` of template `default`: the memory limit must be at least 16MiB, or no program can start",
    );
}

#[test]
fn f13_error_about_a_hostile_file_is_safe_to_print() {
    for text in [
        "\"\\u001b[2J\" = 1\n",
        "[template.a]\nmode = \"\u{202e}x\"\n",
        "[template.\"a\\u0007\"]\n",
        "[template.a]\nenv = [\"\u{200b}\"]\n",
    ] {
        let error =
            Config::parse(text, Path::new("a\u{1b}/belljar.toml"), Scope::Project).unwrap_err();
        let shown = error.to_string();
        assert!(!shown.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{200b}', '\n']), "{shown:?}");
    }
}

const OPERATOR: &str = r#"
    [template.default]
    mode = "overlay"
    net = "restricted"
    mounts = ["/cache:/cache:rw", "/empty:/workspace/keys:ro"]
    env = ["CI=1", "LANG"]
    memory = "1GiB"
    timeout = "5m"
    weaken = ["time-namespace", "cgroup"]
    [template.free]
    timeout = "none"
    user = 0
"#;

#[track_caller]
fn tightened(text: &str) -> Template {
    operator(OPERATOR).tighten(&project(text)).unwrap().template("default").unwrap()
}

#[track_caller]
fn loosens(line: &str, expect: &str) {
    let text = format!("[template.default]\n{line}\n");
    let error = operator(OPERATOR).tighten(&project(&text)).unwrap_err();
    assert_eq!(error.to_string(), format!("/p/belljar.toml:2: {expect}"), "{line}");
}

#[test]
fn c08_project_can_tighten_every_field() {
    let got = tightened(
        "[template.default]\nmode = \"read-only\"\nnet = \"none\"\nmounts = [\"/cache:/cache:ro\"]\n\
         env = [\"DEBUG=1\", \"CI=1\", \"LANG\"]\nmemory = \"512MiB\"\ncpus = 1\npids = 10\n\
         timeout = \"10s\"\nweaken = []\nrequire = [\"cgroup\"]\nuser = 1001\n",
    );
    assert_eq!((got.mode, got.net, got.user), (Mode::ReadOnly, Net::None, 1001));
    let mounts: Vec<_> = got.mounts.iter().map(ToString::to_string).collect();
    assert_eq!(mounts, ["/cache:/cache:ro", "/empty:/workspace/keys:ro"]);
    let env: Vec<_> = got.env.iter().map(ToString::to_string).collect();
    assert_eq!(env, ["CI=1", "LANG", "DEBUG=1"]);
    assert_eq!(got.limits.memory, ByteSize::mib(512));
    assert_eq!(Timeout(got.limits.timeout).to_string(), "10s");
    assert!(got.weaken.is_empty());
    assert_eq!(got.require, BTreeSet::from([Requirement::Cgroup]));
}

#[test]
fn c08_missing_keys_of_a_project_keep_the_operators_values() {
    let base = operator(OPERATOR).template("default").unwrap();
    assert_eq!(tightened(""), base);
    assert_eq!(tightened("[template.default]\n"), base);
    assert_eq!(tightened("[template.other]\nmemory = \"64MiB\"\n"), base);
    let both =
        operator(OPERATOR).tighten(&project("[template.other]\nmemory = \"64MiB\"\n")).unwrap();
    assert_eq!(both.names(), ["default", "free", "other"]);
    let other = both.template("other").unwrap();
    assert_eq!((other.limits.memory, other.net), (ByteSize::mib(64), base.net));
    assert_eq!(both.template("free"), operator(OPERATOR).template("free"));
}

#[test]
fn c08_project_cannot_loosen_any_field() {
    let may = "a project may only tighten";
    for (line, expect) in [
        ("mode = \"direct\"", "`mode` of template `default`: direct, but the operator has overlay"),
        ("net = \"full\"", "`net` of template `default`: full, but the operator has restricted"),
        ("memory = \"2GiB\"", "`memory` of template `default`: 2GiB, but the operator has 1GiB"),
        ("cpus = 2.001", "`cpus` of template `default`: 2.001, but the operator has 2"),
        ("pids = 513", "`pids` of template `default`: 513, but the operator has 512"),
        ("disk = \"3GiB\"", "`disk` of template `default`: 3GiB, but the operator has 2GiB"),
        ("files = 4097", "`files` of template `default`: 4097, but the operator has 4096"),
        (
            "output-limit = \"1G\"",
            "`output-limit` of template `default`: 1GiB, but the operator has 256MiB",
        ),
        ("timeout = \"6m\"", "`timeout` of template `default`: 6m, but the operator has 5m"),
        ("timeout = \"none\"", "`timeout` of template `default`: none, but the operator has 5m"),
        ("user = 0", "`user` of template `default`: 0, but the operator has 1000"),
        ("rootfs = \"/r\"", "`rootfs` of template `default`: /r, but the operator has none"),
        (
            "mounts = [\"/:/host\"]",
            "`mounts` of template `default`: /:/host:ro, but the operator has no such mount",
        ),
        (
            "mounts = [\"/etc:/cache:ro\"]",
            "`mounts` of template `default`: /etc:/cache:ro, but the operator has no such mount",
        ),
        (
            "mounts = [\"/empty:/workspace/keys:rw\"]",
            "`mounts` of template `default`: /empty:/workspace/keys:rw, but the operator has /empty:/workspace/keys:ro",
        ),
        (
            "env = [\"AWS\"]",
            "`env` of template `default`: AWS inherited, but the operator has AWS not inherited",
        ),
        (
            "env = [\"CI=2\"]",
            "`env` of template `default`: CI with another value, but the operator has CI already set",
        ),
        (
            "env = [\"CI\"]",
            "`env` of template `default`: CI with another value, but the operator has CI already set",
        ),
        (
            "env = [\"LANG=C\"]",
            "`env` of template `default`: LANG with another value, but the operator has LANG already set",
        ),
        (
            "weaken = [\"seccomp\"]",
            "`weaken` of template `default`: seccomp weakened, but the operator has seccomp in force",
        ),
    ] {
        loosens(line, &format!("{expect}; {may}"));
    }
}

#[test]
fn f15_project_cannot_set_variables_that_control_other_programs() {
    for name in ["LD_PRELOAD", "BASH_ENV", "NODE_OPTIONS", "GIT_SSH_COMMAND", "PATH", "https_proxy"]
    {
        loosens(
            &format!("env = [\"{name}=x\"]"),
            &format!(
                "`env` of template `default`: {name}, which controls what other programs load, run or \
                 trust, but the operator has {name} not set; a project may only tighten"
            ),
        );
    }
}

#[test]
fn c08_project_with_contradicting_values_is_refused() {
    let text = "[template.default]\nrequire = [\"cgroup\"]\n";
    let error = operator(OPERATOR).tighten(&project(text)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/p/belljar.toml:2: `require` of template `default`: the layer `cgroup` is both required and weakened"
    );
}

#[test]
fn c08_project_file_without_an_operator_file_defines_no_templates() {
    let project = project("[template.default]\nmode = \"direct\"\n[template.x]\n");
    assert_eq!(project.names(), ["default", "x"]);
    assert_eq!(project.template("default"), None);
    assert_eq!(project.template("x"), None);
}

#[test]
fn a02_template_with_an_empty_allow_list_allows_no_request() {
    let keys = ["mounts", "env", "weaken", "require"];
    let full = r#"mounts = ["/a:/a:rw"]
        env = ["A", "B=1"]
        weaken = ["landlock"]
    "#;
    for chosen in 0..1_u32 << keys.len() {
        let empty: String = keys
            .iter()
            .enumerate()
            .filter(|(place, _)| chosen & (1 << place) != 0)
            .map(|(_, key)| format!("{key} = []\n"))
            .collect();
        let empty = format!("[template.default]\n{empty}");
        // With an operator's file: nothing is mounted, inherited or weakened.
        assert_eq!(operator(&empty).template("default"), Some(Template::default()), "{empty}");
        // With a project's file: nothing is added to the operator's values, and no mount or variable
        // that could be there for protection is removed.
        let base = operator(&format!("[template.default]\n{full}"));
        let got = base.tighten(&project(&empty)).unwrap().template("default").unwrap();
        let base = base.template("default").unwrap();
        assert_eq!((&got.mounts, &got.env), (&base.mounts, &base.env), "{empty}");
        assert!(got.weaken.is_subset(&base.weaken) && got.require.is_empty(), "{empty}");
        assert_eq!(got.weaken.is_empty(), empty.contains("weaken"), "{empty}");
        // An empty list on top of an empty list stays empty.
        let got = Config::built_in().tighten(&project(&empty)).unwrap().template("default");
        assert_eq!(got, Some(Template::default()), "{empty}");
    }
}

/// Generates the lines of a template, each key with the given probability.
fn lines(chance: f64) -> impl Strategy<Value = String> {
    let mode = prop::sample::select(&["read-only", "overlay", "direct"][..]);
    let net = prop::sample::select(&["none", "restricted", "full"][..]);
    let record = prop::sample::select(&["none", "hashes", "bodies"][..]);
    let mounts = prop::sample::subsequence(vec!["/a:/a", "/b:/b:rw", "/c:/c:ro", "/c:/d"], 0..=4);
    let env = prop::sample::subsequence(vec!["A", "B=1", "C=x", "PATH=/x", "LD_PRELOAD=y"], 0..=5);
    let weaken =
        prop::sample::subsequence(vec!["seccomp", "landlock", "cgroup", "self-test"], 0..=4);
    let require = prop::sample::subsequence(vec!["cgroup"], 0..=1);
    let rootfs = prop::sample::select(&["/r", "/s"][..]);
    let number = |key: &'static str, low: u64| {
        prop::option::weighted(chance, low..low + 5)
            .prop_map(move |n| n.map_or(String::new(), |n| format!("{key} = {n}\n")))
    };
    let quoted = |key: &'static str, value: Option<&str>| {
        value.map_or(String::new(), |value| format!("{key} = \"{value}\"\n"))
    };
    let list = |key: &'static str, values: Option<Vec<&str>>| {
        values.map_or(String::new(), |values| format!("{key} = {values:?}\n"))
    };
    let timeout = prop::sample::select(&["1s", "10m", "2h", "none"][..]);
    let choices = (
        prop::option::weighted(chance, mode),
        prop::option::weighted(chance, net),
        prop::option::weighted(chance, record),
        prop::option::weighted(chance, rootfs),
        prop::option::weighted(chance, timeout),
    )
        .prop_map(move |(mode, net, record, rootfs, timeout)| {
            [
                quoted("mode", mode),
                quoted("net", net),
                quoted("record", record),
                quoted("rootfs", rootfs),
                quoted("timeout", timeout),
            ]
            .concat()
        });
    let lists = (
        prop::option::weighted(chance, mounts),
        prop::option::weighted(chance, env),
        prop::option::weighted(chance, weaken),
        prop::option::weighted(chance, require),
    )
        .prop_map(move |(mounts, env, weaken, require)| {
            [
                list("mounts", mounts),
                list("env", env),
                list("weaken", weaken),
                list("require", require),
            ]
            .concat()
        });
    let numbers = (
        number("user", 0),
        number("memory", 2_147_483_646),
        number("cpus", 1),
        number("pids", 510),
        number("disk", 2_147_483_646),
        number("files", 4094),
        number("output-limit", 1),
    )
        .prop_map(|(a, b, c, d, e, f, g)| [a, b, c, d, e, f, g].concat());
    let network = network_lines(chance);
    (choices, lists, numbers, network)
        .prop_map(|(a, b, c, d)| format!("[template.default]\n{a}{b}{c}{d}"))
}

/// Generates lines with rules, secrets and budgets in the short and the long form.
fn network_lines(chance: f64) -> impl Strategy<Value = String> {
    let allow = vec![
        "\"pypi\"",
        "\"a.example\"",
        "\"GET,POST a.example/x/**\"",
        "\"tcp://10.0.0.1:5432\"",
        "\"host-port:5432\"",
        "{ host = \"b.example\", secrets = [\"s\"], connect = \"10.0.0.1:443\" }",
        "{ host = \"b.example\", limits = { requests = \"6/min\", upload = \"1MB\" } }",
        "{ host = \"*.c.example\", ports = [443, 8443], paths = [\"/a\", \"/b\"], websocket = true }",
        "{ name = \"pinned\", host = \"d.example\", tls = \"passthrough\" }",
        "{ preset = \"npm\" }",
        "{ tcp = \"db.internal:1\", connect = \"10.0.0.1:1\" }",
        "\"http://e.example\"",
    ];
    let deny = vec![
        "\"*.github.io\"",
        "\"POST a.example\"",
        "\"tcp://10.0.0.1:22\"",
        "{ host = \"a.example\", ports = [443, 80], methods = [\"PUT\"] }",
        "{ name = \"no\", host = \"e.example\", scheme = \"https\" }",
    ];
    let ask = vec![
        "\"DELETE a.example/**\"",
        "\"*.github.io\"",
        "\"tcp://10.0.0.1:5432\"",
        "{ host = \"b.example\", secrets = [\"s\"], connect = \"10.0.0.1:443\" }",
        "{ name = \"pinned\", host = \"d.example\", tls = \"passthrough\" }",
    ];
    let secrets = vec!["\"github\"", "\"s\""];
    let some = move |key: &'static str, values: Vec<&'static str>| {
        let count = values.len();
        let several = prop::sample::subsequence(values, 0..=count);
        prop::option::weighted(chance, several).prop_map(move |values| {
            values.map_or(String::new(), |values| format!("{key} = [{}]\n", values.join(", ")))
        })
    };
    let budget = prop::option::weighted(chance, (1_u64..5, 1_u64..5)).prop_map(|budget| {
        budget.map_or(String::new(), |(requests, money)| {
            format!("budget = {{ requests = {requests}, money = \"{money} USD\" }}\n")
        })
    });
    let asks =
        (some("ask", ask), prop::option::weighted(chance, 1_u64..9)).prop_map(|(ask, time)| {
            time.map_or(ask.clone(), |time| format!("{ask}ask-timeout = \"{time}m\"\n"))
        });
    (some("allow", allow), some("deny", deny), some("secrets", secrets), budget, asks)
        .prop_map(|(a, b, c, d, e)| [a, b, c, d, e].concat())
}

/// Checks field by field, independently of the code under test, that `new` allows no more than `old`.
fn check_not_looser(new: &Template, old: &Template) -> Result<(), TestCaseError> {
    let Template {
        name: _,
        mode,
        net,
        record,
        mounts,
        rootfs,
        env,
        user,
        limits,
        weaken,
        require,
        allow,
        deny,
        ask,
        ask_timeout,
        secrets,
        budget,
        health: _, // runs in the box
    } = new;
    prop_assert_eq!(ask, &old.ask);
    prop_assert!(*ask_timeout <= old.ask_timeout);
    prop_assert!(allow.iter().all(|rule| old.allow.contains(rule)));
    prop_assert!(old.deny.iter().all(|rule| deny.contains(rule)));
    prop_assert!(secrets.is_subset(&old.secrets));
    let below = |new: Option<u64>, old: Option<u64>| {
        old.is_none_or(|old| new.is_some_and(|new| new <= old))
    };
    prop_assert!(below(budget.requests, old.budget.requests));
    prop_assert!(below(budget.money.map(|it| it.0), old.budget.money.map(|it| it.0)));
    prop_assert!(*mode <= old.mode && *net <= old.net);
    // The project cannot reduce the recorded evidence, nor record contents.
    prop_assert!(*record == old.record || (*record, old.record) == (Record::Hashes, Record::None));
    prop_assert_eq!(mounts.len(), old.mounts.len());
    for (new, old) in mounts.iter().zip(&old.mounts) {
        prop_assert_eq!((new.source(), new.target()), (old.source(), old.target()));
        prop_assert!(new.access() <= old.access());
    }
    prop_assert_eq!(rootfs, &old.rootfs);
    prop_assert!(old.env.iter().all(|variable| env.contains(variable)));
    let added = env.iter().filter(|variable| !old.env.contains(variable));
    for variable in added {
        prop_assert!(variable.value().is_some() && !variable.controls_programs());
    }
    prop_assert!(*user != 0 || old.user == 0);
    let max = |timeout: Option<std::time::Duration>| timeout.unwrap_or(std::time::Duration::MAX);
    prop_assert!(limits.memory <= old.limits.memory && limits.cpus <= old.limits.cpus);
    prop_assert!(limits.pids <= old.limits.pids && limits.disk <= old.limits.disk);
    prop_assert!(limits.files <= old.limits.files && limits.output <= old.limits.output);
    prop_assert!(max(limits.timeout) <= max(old.limits.timeout));
    prop_assert!(weaken.is_subset(&old.weaken) && require.is_superset(&old.require));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn c08_no_project_file_loosens_any_operator_file(theirs in lines(0.5), ours in lines(0.2)) {
        let parse = |text: &str, scope| Config::parse(text, Path::new("/p/b.toml"), scope);
        if let (Ok(operator), Ok(project)) = (parse(&theirs, Scope::Operator), parse(&ours, Scope::Project))
            && let Ok(got) = operator.tighten(&project)
        {
            let (new, old) = (got.template("default").unwrap(), operator.template("default").unwrap());
            check_not_looser(&new, &old)?;
            prop_assert!(new.check().is_ok());
            // Setting the operator's own values again does not loosen anything.
            prop_assert_eq!(got.tighten(&project).unwrap().template("default"), Some(new));
        }
    }

}

proptest! {
    #[test]
    fn project_file_with_the_values_of_the_operator_is_accepted(text in lines(0.5)) {
        let parse = |scope| Config::parse(&text, Path::new("/p/b.toml"), scope);
        if let (Ok(operator), Ok(project)) = (parse(Scope::Operator), parse(Scope::Project)) {
            let same = operator.tighten(&project).unwrap();
            prop_assert_eq!(same.template("default"), operator.template("default"));
        }
    }

    #[test]
    fn template_survives_a_round_trip_through_toml(text in lines(0.5)) {
        if let Ok(config) = Config::parse(&text, Path::new("/p/b.toml"), Scope::Operator) {
            let template = config.template("default").unwrap();
            prop_assert_eq!(operator(&template.to_toml()).template("default"), Some(template));
        }
    }

    #[test]
    fn any_template_value_and_path_survives_a_round_trip_through_toml(value in "(?s)[^\0]*", path in "/[^\0]+") {
        let template = Template {
            env: vec![crate::EnvVar::new("A", Some(&value)).unwrap()],
            mounts: vec![crate::Mount::new(path.clone().into(), "/m".into(), crate::Access::ReadOnly).unwrap()],
            rootfs: Some(path.into()),
            ..Template::default()
        };
        if template.check().is_ok() {
            prop_assert_eq!(operator(&template.to_toml()).template("default"), Some(template));
        }
    }

    #[test]
    fn config_parser_never_panics(text in "(\\[template\\.[a-z]\\]\n)?([a-z]{1,8} ?= ?.{0,20}\n){0,4}|(?s).*") {
        for scope in [Scope::Operator, Scope::Project] {
            if let Err(error) = Config::parse(&text, Path::new("b.toml"), scope) {
                prop_assert!(error.line >= 1 && error.line <= text.lines().count() + 1);
                prop_assert!(!error.to_string().contains('\n'));
            }
        }
    }
}
