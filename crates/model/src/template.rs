//! Templates: named descriptions of a box, and the overrides from flags and files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::choice::{Mode, Net, Record};
use crate::cpus::Cpus;
use crate::env::EnvVar;
use crate::layer::{Layer, Requirement};
use crate::limits::{LimitError, Limits};
use crate::mount::{Mount, anchor};
use crate::net::{Allow, Budget, Rule, RuleError, SecretName};
use crate::record::path_bytes;
use crate::size::ByteSize;
use crate::time::{AskTimeout, Timeout};

/// The name of the default template, which exists without a configuration file.
pub const DEFAULT_TEMPLATE: &str = "default";

/// A named description of a box: workspace mode, network, mounts, limits and rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct Template {
    pub name: String,
    pub mode: Mode,
    pub net: Net,
    pub record: Record,
    pub mounts: Vec<Mount>,
    /// The user's own root file system, used instead of the host's programs.
    #[serde(with = "path_bytes::option", default)]
    pub rootfs: Option<PathBuf>,
    pub env: Vec<EnvVar>,
    /// The user id inside the box.
    pub user: u32,
    pub limits: Limits,
    pub weaken: BTreeSet<Layer>,
    pub require: BTreeSet<Requirement>,
    /// The network destinations that are allowed; an empty list allows none.
    pub allow: Vec<Allow>,
    /// The network destinations that are refused; a match overrides `allow` and `ask`.
    pub deny: Vec<Rule>,
    /// The network destinations that need the operator's approval each time; a match overrides
    /// `allow`.
    pub ask: Vec<Rule>,
    pub ask_timeout: AskTimeout,
    /// The secrets for which the box gets placeholders; they apply to every rule that leads to
    /// their hosts.
    pub secrets: BTreeSet<SecretName>,
    /// The network budget of the whole run.
    pub budget: Budget,
    /// A shell command that runs regularly in a named box and reports whether the box is healthy.
    pub health: Option<String>,
}

impl Default for Template {
    fn default() -> Self {
        Self {
            name: DEFAULT_TEMPLATE.to_owned(),
            mode: Mode::Overlay,
            net: Net::None,
            record: Record::Hashes,
            mounts: Vec::new(),
            rootfs: None,
            env: Vec::new(),
            user: 1000,
            limits: Limits::default(),
            weaken: BTreeSet::new(),
            require: BTreeSet::new(),
            allow: Vec::new(),
            deny: Vec::new(),
            ask: Vec::new(),
            ask_timeout: AskTimeout::default(),
            secrets: BTreeSet::new(),
            budget: Budget::default(),
            health: None,
        }
    }
}

/// Values from flags or a file that replace or extend those of a template.
///
/// A field that is missing in JSON changes nothing. A variable without a value is read from the host
/// at each start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", default, deny_unknown_fields)]
pub struct Overrides {
    pub mode: Option<Mode>,
    pub net: Option<Net>,
    pub record: Option<Record>,
    pub mounts: Vec<Mount>,
    #[serde(with = "path_bytes::option")]
    pub rootfs: Option<PathBuf>,
    pub env: Vec<EnvVar>,
    pub user: Option<u32>,
    pub memory: Option<ByteSize>,
    pub cpus: Option<Cpus>,
    pub pids: Option<u32>,
    pub disk: Option<ByteSize>,
    pub files: Option<u64>,
    pub output: Option<ByteSize>,
    pub timeout: Option<Timeout>,
    pub weaken: Vec<Layer>,
    pub require: Vec<Requirement>,
    pub allow: Vec<Allow>,
    pub deny: Vec<Rule>,
    pub ask: Vec<Rule>,
    pub ask_timeout: Option<AskTimeout>,
    pub secrets: Vec<SecretName>,
    pub budget: Budget,
    pub health: Option<String>,
}

/// The reason why a template is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error(transparent)]
    Limit(LimitError),
    #[error("the layer `{0}` cannot be weakened: every box needs it")]
    NotWeakenable(Layer),
    #[error("the layer `{0}` is both required and weakened")]
    RequiredAndWeakened(Requirement),
    #[error("two mounts have the target {}", .0.display())]
    MountedTwice(PathBuf),
    #[error("the variable {0} is given twice")]
    GivenTwice(String),
    #[error("the user id {0} is reserved; use another number")]
    NoSuchUser(u32),
    #[error("the root file system of the host cannot be the `rootfs` of a box")]
    HostRoot,
}

impl TemplateError {
    /// Returns the key of `belljar.toml` that causes the error.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Limit(LimitError::Memory) => "memory",
            Self::Limit(LimitError::Pids) => "pids",
            Self::Limit(LimitError::Disk) => "disk",
            Self::Limit(LimitError::Files) => "files",
            Self::NotWeakenable(_) => "weaken",
            Self::RequiredAndWeakened(_) => "require",
            Self::MountedTwice(_) => "mounts",
            Self::GivenTwice(_) => "env",
            Self::NoSuchUser(_) => "user",
            Self::HostRoot => "rootfs",
        }
    }
}

impl Template {
    /// Returns the template with the overrides applied.
    ///
    /// A mount replaces one on the same target, a variable one of the same name; layers to weaken,
    /// requirements, rules and secrets add up. If there are rules or secrets but no network level, the
    /// level becomes `restricted`.
    pub fn with(self, overrides: Overrides) -> Result<Self, TemplateError> {
        // Destructured without `..`, so that a new flag cannot be silently ignored.
        let Overrides {
            mode,
            net,
            record,
            mounts,
            rootfs,
            env,
            user,
            memory,
            cpus,
            pids,
            disk,
            files,
            output,
            timeout,
            weaken,
            require,
            allow,
            deny,
            ask,
            ask_timeout,
            secrets,
            budget,
            health,
        } = overrides;
        // A rule or a secret is useless without a network.
        let opened = !allow.is_empty() || !ask.is_empty() || !secrets.is_empty();
        let base_net = if opened { self.net.max(Net::Restricted) } else { self.net };
        let old = self.limits;
        let limits = Limits {
            memory: memory.unwrap_or(old.memory),
            cpus: cpus.unwrap_or(old.cpus),
            pids: pids.unwrap_or(old.pids),
            disk: disk.unwrap_or(old.disk),
            files: files.unwrap_or(old.files),
            output: output.unwrap_or(old.output),
            timeout: timeout.map_or(old.timeout, |Timeout(limit)| limit),
        };
        let template = Self {
            name: self.name,
            mode: mode.unwrap_or(self.mode),
            net: net.unwrap_or(base_net),
            record: record.unwrap_or(self.record),
            mounts: replace(self.mounts, mounts, |old, new| old.target() == new.target()),
            rootfs: rootfs.or(self.rootfs),
            env: replace(self.env, env, |old, new| old.name() == new.name()),
            user: user.unwrap_or(self.user),
            limits,
            weaken: self.weaken.into_iter().chain(weaken).collect(),
            require: self.require.into_iter().chain(require).collect(),
            allow: self.allow.into_iter().chain(allow).collect(),
            deny: self.deny.into_iter().chain(deny).collect(),
            ask: self.ask.into_iter().chain(ask).collect(),
            ask_timeout: ask_timeout.unwrap_or(self.ask_timeout),
            secrets: self.secrets.into_iter().chain(secrets).collect(),
            budget: budget.or(self.budget),
            health: health.or(self.health),
        };
        template.check()?;
        Ok(template)
    }

    /// Makes the operator's paths absolute; see [`anchor`].
    #[must_use]
    pub fn anchored(self, base: &Path, home: Option<&Path>) -> Self {
        Self {
            mounts: self.mounts.into_iter().map(|mount| mount.anchored(base, home)).collect(),
            rootfs: self.rootfs.map(|rootfs| anchor(&rootfs, base, home)),
            ..self
        }
    }

    /// Returns an error if values of the template contradict each other.
    pub fn check(&self) -> Result<(), TemplateError> {
        self.limits.check().map_err(TemplateError::Limit)?;
        if let Some(layer) = self.weaken.iter().find(|layer| !layer.weakenable()) {
            return Err(TemplateError::NotWeakenable(*layer));
        }
        if let Some(required) = self.require.iter().find(|it| self.weaken.contains(&it.layer())) {
            return Err(TemplateError::RequiredAndWeakened(*required));
        }
        if let Some(mount) = repeated(&self.mounts, Mount::target) {
            return Err(TemplateError::MountedTwice(mount.target().to_owned()));
        }
        if let Some(variable) = repeated(&self.env, EnvVar::name) {
            return Err(TemplateError::GivenTwice(variable.name().to_owned()));
        }
        if self.user == u32::MAX {
            // chown(2) and setresuid(2) take this id as "leave unchanged".
            return Err(TemplateError::NoSuchUser(self.user));
        }
        if self.rootfs.as_deref().is_some_and(is_host_root) {
            return Err(TemplateError::HostRoot);
        }
        Ok(())
    }
}

impl Overrides {
    /// Makes the operator's paths absolute; see [`anchor`].
    #[must_use]
    pub fn anchored(self, base: &Path, home: Option<&Path>) -> Self {
        Self {
            mounts: self.mounts.into_iter().map(|mount| mount.anchored(base, home)).collect(),
            rootfs: self.rootfs.map(|rootfs| anchor(&rootfs, base, home)),
            ..self
        }
    }

    /// Returns an error if a rule cannot be expressed in a file or by a flag.
    pub fn check(&self) -> Result<(), RuleError> {
        check_rules(&self.allow, &self.deny, &self.ask)
    }
}

fn check_rules(allow: &[Allow], deny: &[Rule], ask: &[Rule]) -> Result<(), RuleError> {
    allow.iter().try_for_each(Allow::check)?;
    deny.iter().try_for_each(Rule::check_deny)?;
    ask.iter().try_for_each(Rule::check_ask)
}

impl Serialize for Template {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

/// Deserializes a template, checks it, and refuses rules that no file can express.
impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let template = Self::deserialize(deserializer)?;
        template.check().map_err(serde::de::Error::custom)?;
        let rules = check_rules(&template.allow, &template.deny, &template.ask);
        rules.map_err(serde::de::Error::custom)?;
        Ok(template)
    }
}

impl Serialize for Overrides {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

/// Deserializes overrides and calls [`Overrides::check`].
impl<'de> Deserialize<'de> for Overrides {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let overrides = Self::deserialize(deserializer)?;
        overrides.check().map_err(serde::de::Error::custom)?;
        Ok(overrides)
    }
}

/// Returns whether a path is `/`, `//`, `/.` or empty; an empty path would mean the current
/// directory.
fn is_host_root(path: &Path) -> bool {
    path.as_os_str().is_empty() || (path.has_root() && path.components().count() == 1)
}

/// Returns `old` without the items that `new` replaces, followed by `new`.
fn replace<T>(old: Vec<T>, new: Vec<T>, same: impl Fn(&T, &T) -> bool) -> Vec<T> {
    let kept = old.into_iter().filter(|old| !new.iter().any(|new| same(old, new)));
    let mut all: Vec<T> = kept.collect();
    all.extend(new);
    all
}

/// Returns the first item that has the same key as an earlier item.
fn repeated<'a, T, K: Ord + ?Sized + 'a>(
    items: &'a [T],
    key: impl Fn(&'a T) -> &'a K,
) -> Option<&'a T> {
    let mut seen = BTreeSet::new();
    items.iter().find(|item| !seen.insert(key(item)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    fn mount(text: &str) -> Mount {
        text.parse().unwrap()
    }

    fn var(text: &str) -> EnvVar {
        text.parse().unwrap()
    }

    #[track_caller]
    fn refused(overrides: Overrides, expect: &TemplateError) {
        assert_eq!(Template::default().with(overrides).as_ref(), Err(expect));
    }

    #[test]
    fn empty_overrides_do_not_change_a_template() {
        assert_eq!(Template::default().with(Overrides::default()), Ok(Template::default()));
        let Template {
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
        } = Template::default();
        assert_eq!(health, None);
        assert!(allow.is_empty() && deny.is_empty() && secrets.is_empty() && budget.is_empty());
        assert_eq!((ask, ask_timeout), (Vec::new(), AskTimeout::default()));
        assert_eq!((name.as_str(), mode, net, user), ("default", Mode::Overlay, Net::None, 1000));
        assert_eq!(record, Record::Hashes);
        assert!(mounts.is_empty() && env.is_empty() && weaken.is_empty() && require.is_empty());
        assert_eq!((rootfs, limits), (None, Limits::default()));
    }

    #[test]
    fn overrides_replace_values_and_extend_lists_of_a_template() {
        let base = Template {
            mounts: vec![mount("/a:/x:ro"), mount("/b:/y:ro")],
            env: vec![var("A=1"), var("B")],
            weaken: BTreeSet::from([Layer::TimeNamespace]),
            ..Template::default()
        };
        let overrides = Overrides {
            mode: Some(Mode::Direct),
            net: Some(Net::Full),
            mounts: vec![mount("/c:/x:rw")],
            env: vec![var("B=2"), var("C=3")],
            user: Some(0),
            memory: Some(ByteSize::mib(64)),
            timeout: Some(Timeout(None)),
            weaken: vec![Layer::Seccomp],
            require: vec![Requirement::Cgroup],
            ..Overrides::default()
        };
        let got = base.with(overrides).unwrap();
        assert_eq!((got.mode, got.net, got.user), (Mode::Direct, Net::Full, 0));
        assert_eq!(got.mounts, [mount("/b:/y:ro"), mount("/c:/x:rw")]);
        assert_eq!(got.env, [var("A=1"), var("B=2"), var("C=3")]);
        assert_eq!((got.limits.memory, got.limits.timeout), (ByteSize::mib(64), None));
        assert_eq!(got.limits.pids, 512);
        assert_eq!(got.weaken, BTreeSet::from([Layer::TimeNamespace, Layer::Seccomp]));
        assert_eq!(got.require, BTreeSet::from([Requirement::Cgroup]));
    }

    #[test]
    fn template_refuses_contradicting_overrides() {
        let overrides = Overrides::default;
        for layer in Layer::ALL.into_iter().filter(|layer| !layer.weakenable()) {
            refused(
                Overrides { weaken: vec![layer], ..overrides() },
                &TemplateError::NotWeakenable(layer),
            );
        }
        refused(
            Overrides {
                weaken: vec![Layer::Cgroup],
                require: vec![Requirement::Cgroup],
                ..overrides()
            },
            &TemplateError::RequiredAndWeakened(Requirement::Cgroup),
        );
        refused(
            Overrides { mounts: vec![mount("/a:/x"), mount("/b:/x:rw")], ..overrides() },
            &TemplateError::MountedTwice("/x".into()),
        );
        refused(
            Overrides { env: vec![var("A=1"), var("A")], ..overrides() },
            &TemplateError::GivenTwice("A".into()),
        );
        refused(
            Overrides { user: Some(u32::MAX), ..overrides() },
            &TemplateError::NoSuchUser(u32::MAX),
        );
        for path in ["/", "//", "/.", ""] {
            refused(
                Overrides { rootfs: Some(path.into()), ..overrides() },
                &TemplateError::HostRoot,
            );
        }
        refused(
            Overrides { pids: Some(1), ..overrides() },
            &TemplateError::Limit(LimitError::Pids),
        );
    }

    #[test]
    fn template_can_weaken_every_weakenable_layer() {
        for layer in Layer::ALL.into_iter().filter(|layer| layer.weakenable()) {
            let overrides = Overrides { weaken: vec![layer], ..Overrides::default() };
            assert!(Template::default().with(overrides).unwrap().weaken.contains(&layer));
        }
    }

    #[test]
    fn relative_paths_of_a_template_become_absolute() {
        let template = Template {
            mounts: vec![mount("data:/data"), mount("~/c:/c")],
            rootfs: Some("root".into()),
            ..Template::default()
        };
        let got = template.anchored(Path::new("/p"), Some(Path::new("/h")));
        assert_eq!(got.mounts, [mount("/p/data:/data"), mount("/h/c:/c")]);
        assert_eq!(got.rootfs.as_deref(), Some(Path::new("/p/root")));
    }

    #[test]
    fn overrides_accept_an_empty_object_and_refuse_an_unknown_field() {
        assert_eq!(serde_json::from_str::<Overrides>("{}").unwrap(), Overrides::default());
        let error = serde_json::from_str::<Overrides>(r#"{"memmory":"1GiB"}"#).unwrap_err();
        assert!(error.to_string().contains("memmory"), "{error}");
    }

    #[test]
    fn inherited_variable_of_a_template_has_no_value() {
        let overrides: Overrides = serde_json::from_str(r#"{"env":["A=","B"]}"#).unwrap();
        assert_eq!(overrides.env.iter().map(EnvVar::value).collect::<Vec<_>>(), [Some(""), None]);
        let text = serde_json::to_string(&overrides).unwrap();
        assert!(text.contains(r#""env":["A=","B"]"#), "{text}");
    }

    #[test]
    fn overrides_with_a_path_that_is_not_utf8_survive_a_round_trip() {
        let odd = PathBuf::from(std::ffi::OsString::from_vec(b"/a\xff:b".to_vec()));
        let overrides = Overrides {
            mounts: vec![
                Mount::new(odd.clone(), "/x".into(), crate::Access::ReadWrite).unwrap(),
                mount("/a:b:/y:ro"),
            ],
            rootfs: Some(odd),
            timeout: Some(Timeout(None)),
            ..Overrides::default()
        };
        let text = serde_json::to_string(&overrides).unwrap();
        assert_eq!(serde_json::from_str::<Overrides>(&text).unwrap(), overrides);
    }

    #[test]
    fn overrides_with_a_rule_that_no_file_can_express_are_refused() {
        let with = |list: &str, rule: &Rule, replace: (&str, &str)| {
            let rule = serde_json::to_string(rule).unwrap();
            let rule = if list == "allow" { format!(r#"{{"rule":{rule}}}"#) } else { rule };
            let text = format!(r#"{{"{list}":[{rule}]}}"#).replace(replace.0, replace.1);
            serde_json::from_str::<Overrides>(&text)
        };
        let rule = Rule::allow("GET a.example.com").unwrap();
        assert!(with("allow", &rule, ("", "")).is_ok());
        assert!(with("allow", &rule, ("a.example.com", "*.com")).is_err(), "too wide");
        assert!(with("allow", &rule, ("a.example.com", "localhost")).is_err(), "this machine");
        assert!(with("allow", &rule, ("\"GET\"", "\"CONNECT\"")).is_err(), "forbidden method");
        assert!(with("allow", &rule, ("methods", "method")).is_err(), "unknown field");
        assert!(with("allow", &rule, ("allow GET", "\\u001b[2J")).is_err(), "control character");
        let rule = Rule::deny("*.com").unwrap();
        assert!(with("deny", &rule, ("", "")).is_ok(), "a `deny` rule can be wide");
        assert!(with("deny", &rule, ("false", "true")).is_err(), "`websocket` in a `deny` rule");
        assert!(with("ask", &rule, ("false", "true")).is_err(), "`websocket` in an `ask` rule");
    }

    #[test]
    fn template_survives_a_round_trip_and_contradicting_options_are_refused() {
        let template = Template {
            mounts: vec![mount("/a:/x:ro")],
            env: vec![var("A=1"), var("B")],
            allow: vec!["pypi".parse().unwrap(), "GET a.example.com".parse().unwrap()],
            ..Template::default()
        };
        let text = serde_json::to_string(&template).unwrap();
        assert_eq!(serde_json::from_str::<Template>(&text).unwrap(), template);
        let bad = text.replace(r#""pids":512"#, r#""pids":1"#);
        assert!(serde_json::from_str::<Template>(&bad).is_err());
        let more = text.replacen('{', "{\"other\":1,", 1);
        assert!(serde_json::from_str::<Template>(&more).is_err());
    }
}
