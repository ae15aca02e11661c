//! Conversion of a template to the TOML text that describes it.

use toml::{Table, Value};

use crate::answer::AnswerTerms;
use crate::net::{Allow, Budget, HttpRule, Rule, RuleLimits, RuleMarks, RuleTarget, TcpRule, Tls};
use crate::template::Template;
use crate::time::Timeout;

impl Template {
    /// Returns the section of `belljar.toml` that describes this template, with every key.
    pub fn to_toml(&self) -> String {
        // Destructured without `..`, so that a new field cannot be forgotten.
        let Self {
            name,
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
            health,
        } = self;
        // Quoted, since a name can contain a dot.
        let mut section = format!("[template.{}]\n", Value::String(name.clone()));
        let mut put = |key: &str, value: Value| section.push_str(&format!("{key} = {value}\n"));
        put("mode", text(mode));
        put("net", text(net));
        put("record", text(record));
        put("mounts", list(mounts));
        if let Some(rootfs) = rootfs {
            put("rootfs", text(&rootfs.display()));
        }
        put("env", list(env));
        put("user", Value::Integer((*user).into()));
        put("memory", text(&limits.memory));
        put("cpus", text(&limits.cpus));
        put("pids", Value::Integer(limits.pids.into()));
        put("disk", text(&limits.disk));
        // TOML numbers are i64 and ours are u64; a number in quotes is valid too.
        put(
            "files",
            i64::try_from(limits.files).map_or_else(|_| text(&limits.files), Value::Integer),
        );
        put("output-limit", text(&limits.output));
        put("timeout", text(&Timeout(limits.timeout)));
        put("weaken", list(weaken));
        put("require", list(require));
        put("allow", Value::Array(allow.iter().map(allow_value).collect()));
        put("deny", Value::Array(deny.iter().map(deny_value).collect()));
        put("ask", Value::Array(ask.iter().map(ask_value).collect()));
        put("ask-timeout", text(ask_timeout));
        put("secrets", list(secrets));
        if let Some(health) = health {
            put("health", text(health));
        }
        if !budget.is_empty() {
            put("budget", budget_table(budget));
        }
        section
    }
}

fn allow_value(allow: &Allow) -> Value {
    match allow {
        Allow::Preset(name) => text(name),
        // The short form, if it means the same.
        Allow::Rule(rule) => match Rule::allow(&rule.what.to_string()) {
            Ok(same) if same == **rule => text(&rule.what),
            Ok(_) | Err(_) => long_form(rule, "allow"),
        },
    }
}

fn deny_value(rule: &Rule) -> Value {
    match Rule::deny(&rule.what.to_string()) {
        Ok(same) if same == *rule => text(&rule.what),
        Ok(_) | Err(_) => long_form(rule, "deny"),
    }
}

fn ask_value(rule: &Rule) -> Value {
    match Rule::ask(&rule.what.to_string()) {
        Ok(same) if same == *rule => text(&rule.what),
        Ok(_) | Err(_) => long_form(rule, "ask"),
    }
}

/// Returns the long TOML form of a rule, without keys that have their default.
fn long_form(rule: &Rule, verb: &str) -> Value {
    let mut table = Table::new();
    let mut put = |key: &str, value: Value| {
        table.insert(key.to_owned(), value);
    };
    if rule.id != format!("{verb} {}", rule.what) {
        put("name", text(&rule.id));
    }
    match &rule.what {
        RuleTarget::HostPort(port) => put("host-port", Value::Integer((*port).into())),
        RuleTarget::Tcp(TcpRule { target, port, connect }) => {
            put("tcp", text(&format!("{target}:{port}")));
            if let Some(connect) = connect {
                put("connect", text(connect));
            }
        }
        RuleTarget::Http(http) => put_http(&mut put, http),
    }
    let RuleMarks { untrusted, deny_when, answers } = &rule.marks;
    if *untrusted {
        put("untrusted", Value::Boolean(true));
    }
    if !deny_when.is_empty() {
        put("deny-when", list(deny_when));
    }
    if answers.operator {
        put("approver", text(&AnswerTerms::OPERATOR));
    }
    if answers.two_people {
        put("two-people", Value::Boolean(true));
    }
    Value::Table(table)
}

fn put_http(put: &mut impl FnMut(&str, Value), http: &HttpRule) {
    // Destructured without `..`, so that a new field cannot be forgotten.
    // Only Belljar names the server of a rule, so a file has no key for it.
    let HttpRule {
        host,
        ports,
        scheme,
        methods,
        paths,
        secrets,
        limits,
        tls,
        websocket,
        connect,
        model: _,
    } = http;
    put("host", text(host));
    if !ports.is_empty() {
        put(
            "ports",
            Value::Array(ports.iter().map(|port| Value::Integer((*port).into())).collect()),
        );
        put("scheme", text(scheme));
    }
    if let Some(methods) = methods {
        put("methods", list(methods));
    }
    if let Some(paths) = paths {
        put("paths", list(paths));
    }
    if !secrets.is_empty() {
        put("secrets", list(secrets));
    }
    if !limits.is_empty() {
        let RuleLimits { requests, upload, total } = limits;
        let entries = [
            ("requests", requests.map(|it| text(&it))),
            ("upload", upload.map(|it| text(&it))),
            ("total", total.map(|it| text(&it))),
        ];
        put("limits", table_of_present(entries));
    }
    if *tls != Tls::Intercept {
        put("tls", text(tls));
    }
    if *websocket {
        put("websocket", Value::Boolean(true));
    }
    if let Some(connect) = connect {
        put("connect", text(connect));
    }
}

fn budget_table(budget: &Budget) -> Value {
    let Budget { requests, bytes, tokens, money } = budget;
    table_of_present([
        ("requests", requests.map(|it| text(&it))),
        ("bytes", bytes.map(|it| text(&it))),
        ("tokens", tokens.map(|it| text(&it))),
        ("money", money.map(|it| text(&it))),
    ])
}

fn table_of_present<const N: usize>(entries: [(&str, Option<Value>); N]) -> Value {
    let entries = entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Value::Table(entries.collect())
}

fn text(value: &impl ToString) -> Value {
    Value::String(value.to_string())
}

fn list<T: ToString>(values: impl IntoIterator<Item = T>) -> Value {
    Value::Array(values.into_iter().map(|value| text(&value)).collect())
}
