//! Tightening of the operator's templates by a project's file, which cannot loosen anything.
//!
//! A project's file is in the workspace, so the last box could have written it (threat C08). Numbers
//! and choices can only go down. `mounts` can make a mount read-only, but cannot add or remove one: an
//! operator's mount can be there to cover something. `env` can set variables that do not control other
//! programs (F15). `record` can go from `none` to `hashes`, never to less evidence or to contents.
//! `require` and `deny` add up. `weaken`, `allow` and `secrets` can only have fewer entries. `ask` stays
//! as it is. A budget can only shrink. Permissions can deny more and make the agent ask more. An empty
//! list allows nothing (A02).

use std::collections::BTreeSet;
use std::fmt::Display;

use super::parse::impossible;
use super::{Config, ConfigError, Entry, Fault};
use crate::choice::{Access, Record};
use crate::env::EnvVar;
use crate::layer::Layer;
use crate::limits::Limits;
use crate::mount::Mount;
use crate::net::{Allow, Budget, Rule, SecretName};
use crate::permission::Permissions;
use crate::template::{DEFAULT_TEMPLATE, Overrides, Template};
use crate::time::Timeout;

/// A value of a project or of a task that the operator does not permit.
pub(crate) struct Loosening {
    pub(crate) key: &'static str,
    pub(crate) project: String,
    pub(crate) operator: String,
}

pub(super) fn config(operator: &Config, project: &Config) -> Result<Config, ConfigError> {
    let mut tightened = operator.clone();
    // A project's file can only contain permissions that tighten; see `permissions::loosens`.
    tightened.permissions = tightened.permissions.and(&project.permissions);
    for (name, entry) in &project.templates {
        let base = operator.template(name).or_else(|| operator.template(DEFAULT_TEMPLATE));
        let base = Template { name: name.clone(), ..base.unwrap_or_default() };
        let is_set = |key: &str| entry.lines.has(key);
        let template = template(base, &entry.overrides, is_set).map_err(|loosening| {
            let Loosening { key, project: asked, operator } = loosening;
            ConfigError {
                file: project.file.clone(),
                line: entry.lines.line(key),
                fault: Fault::Loosens { template: name.clone(), key, project: asked, operator },
            }
        })?;
        template.check().map_err(|error| impossible(&project.file, name, &entry.lines, &error))?;
        let permissions = operator.permissions_of(name).and(&entry.permissions);
        tightened.templates.insert(name.clone(), Entry { template, permissions, ..entry.clone() });
    }
    Ok(tightened)
}

/// The overrides of a caller loosen a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is {asked}, but the template has {permitted}")]
pub struct LoosensTemplate {
    /// The key of `belljar.toml`.
    pub key: &'static str,
    pub asked: String,
    pub permitted: String,
}

impl Template {
    /// Returns an error if the overrides loosen this template. An empty list changes nothing.
    pub fn check_tightened(&self, overrides: &Overrides) -> Result<(), LoosensTemplate> {
        let is_set = |key: &str| match key {
            "allow" => !overrides.allow.is_empty(),
            "secrets" => !overrides.secrets.is_empty(),
            "weaken" => !overrides.weaken.is_empty(),
            _ => true,
        };
        template(self.clone(), overrides, is_set).map(drop).map_err(|loosening| {
            let Loosening { key, project: asked, operator: permitted } = loosening;
            LoosensTemplate { key, asked, permitted }
        })
    }
}

impl Config {
    /// Returns the permissions of the operator's template of this name, or else of `default`.
    fn permissions_of(&self, name: &str) -> Permissions {
        let entry = self.templates.get(name).or_else(|| self.templates.get(DEFAULT_TEMPLATE));
        entry.map(|entry| entry.permissions.clone()).unwrap_or_default()
    }
}

/// Returns the template with the overrides, which can only tighten it.
///
/// `is_set` returns whether a key was given: an empty list allows nothing, a missing one changes
/// nothing.
pub(crate) fn template(
    base: Template,
    overrides: &Overrides,
    is_set: impl Fn(&str) -> bool,
) -> Result<Template, Loosening> {
    // Destructured without `..`, so that a new key cannot be forgotten.
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
    let old = base.limits;
    Ok(Template {
        name: base.name,
        mode: at_most("mode", *mode, base.mode)?,
        net: at_most("net", *net, base.net)?,
        record: match (record, base.record) {
            (None, base) => base,
            (Some(asked), base) if *asked == base => base,
            (Some(Record::Hashes), Record::None) => Record::Hashes,
            (Some(asked), base) => return Err(loosening("record", asked, base)),
        },
        mounts: mounts.iter().try_fold(base.mounts, tighten_mounts)?,
        rootfs: match rootfs {
            Some(asked) if base.rootfs.as_ref() != Some(asked) => {
                let operator =
                    base.rootfs.as_ref().map_or("none".into(), |path| path.display().to_string());
                return Err(Loosening {
                    key: "rootfs",
                    project: asked.display().to_string(),
                    operator,
                });
            }
            Some(_) | None => base.rootfs,
        },
        env: env.iter().try_fold(base.env, tighten_env)?,
        user: match user {
            Some(0) if base.user != 0 => return Err(loosening("user", 0, base.user)),
            Some(user) => *user,
            None => base.user,
        },
        limits: Limits {
            memory: at_most("memory", *memory, old.memory)?,
            cpus: at_most("cpus", *cpus, old.cpus)?,
            pids: at_most("pids", *pids, old.pids)?,
            disk: at_most("disk", *disk, old.disk)?,
            files: at_most("files", *files, old.files)?,
            output: at_most("output-limit", *output, old.output)?,
            timeout: match timeout {
                Some(asked) if asked.is_longer_than(Timeout(old.timeout)) => {
                    return Err(loosening("timeout", asked, Timeout(old.timeout)));
                }
                Some(Timeout(asked)) => *asked,
                None => old.timeout,
            },
        },
        weaken: if is_set("weaken") {
            subset_of_layers(weaken, &base.weaken)?
        } else {
            base.weaken
        },
        require: base.require.into_iter().chain(require.iter().copied()).collect(),
        allow: if is_set("allow") { subset_of_rules(allow, &base.allow)? } else { base.allow },
        deny: add_denied(base.deny, deny),
        ask: same_ask_rules(ask, base.ask)?,
        ask_timeout: at_most("ask-timeout", *ask_timeout, base.ask_timeout)?,
        secrets: if is_set("secrets") {
            subset_of_secrets(secrets, &base.secrets)?
        } else {
            base.secrets
        },
        budget: at_most_budget(budget, &base.budget)?,
        // The command runs in the box, where the project can run anything already.
        health: health.clone().or(base.health),
    })
}

fn loosening(key: &'static str, project: impl Display, operator: impl Display) -> Loosening {
    Loosening { key, project: project.to_string(), operator: operator.to_string() }
}

fn at_most<T: Ord + Display + Copy>(
    key: &'static str,
    asked: Option<T>,
    base: T,
) -> Result<T, Loosening> {
    match asked {
        Some(asked) if asked > base => Err(loosening(key, asked, base)),
        Some(asked) => Ok(asked),
        None => Ok(base),
    }
}

/// Returns `mounts` with the mount that the project requests made read-only, if the request is
/// read-only.
fn tighten_mounts(mounts: Vec<Mount>, asked: &Mount) -> Result<Vec<Mount>, Loosening> {
    let same = |mount: &Mount| mount.source() == asked.source() && mount.target() == asked.target();
    match mounts.iter().find(|mount| same(mount)) {
        None => Err(loosening("mounts", asked, "no such mount")),
        Some(mount) if asked.access() > mount.access() => Err(loosening("mounts", asked, mount)),
        Some(_) if asked.access() == Access::ReadWrite => Ok(mounts),
        Some(_) => Ok(mounts
            .into_iter()
            .map(|mount| if same(&mount) { mount.read_only() } else { mount })
            .collect()),
    }
}

/// Returns `env` with the variable that the project requests, or an error if that loosens the
/// operator's rules. Errors omit the operator's values, which can be secret.
fn tighten_env(mut env: Vec<EnvVar>, asked: &EnvVar) -> Result<Vec<EnvVar>, Loosening> {
    let name = asked.name();
    match env.iter().find(|variable| variable.name() == name) {
        Some(variable) if variable == asked => Ok(env),
        Some(_) => Err(loosening(
            "env",
            format!("{name} with another value"),
            format!("{name} already set"),
        )),
        None if asked.value().is_none() => {
            Err(loosening("env", format!("{name} inherited"), format!("{name} not inherited")))
        }
        None if asked.controls_programs() => {
            let asked = format!("{name}, which controls what other programs load, run or trust");
            Err(loosening("env", asked, format!("{name} not set")))
        }
        None => {
            env.push(asked.clone());
            Ok(env)
        }
    }
}

fn subset_of_layers(asked: &[Layer], base: &BTreeSet<Layer>) -> Result<BTreeSet<Layer>, Loosening> {
    match asked.iter().find(|layer| !base.contains(layer)) {
        Some(layer) => {
            Err(loosening("weaken", format!("{layer} weakened"), format!("{layer} in force")))
        }
        None => Ok(asked.iter().copied().collect()),
    }
}

/// Returns the operator's rules that the project lists; a project cannot add rules.
fn subset_of_rules(asked: &[Allow], base: &[Allow]) -> Result<Vec<Allow>, Loosening> {
    let mut kept = Vec::new();
    for asked in asked {
        let Some(rule) = base.iter().find(|rule| names_rule(asked, rule)) else {
            let asked = match asked {
                Allow::Preset(name) => name.to_string(),
                Allow::Rule(rule) => rule.what.to_string(),
            };
            return Err(loosening("allow", asked, "no such rule"));
        };
        kept.push(with_marks_of(asked, rule));
    }
    Ok(kept)
}

/// Returns the rule of the operator with its marks and those of the project, which can only restrict.
fn with_marks_of(asked: &Allow, rule: &Allow) -> Allow {
    match (asked, rule) {
        (Allow::Rule(asked), Allow::Rule(rule)) => {
            let marks = rule.marks.and(&asked.marks);
            Allow::Rule(Box::new(Rule::clone(rule).with_marks(marks)))
        }
        (Allow::Preset(_), rule) | (Allow::Rule(_), rule @ Allow::Preset(_)) => rule.clone(),
    }
}

/// Returns whether the project's rule names this rule of the operator.
///
/// It does if the rules are equal, or if it is the operator's rule without additional settings.
fn names_rule(asked: &Allow, rule: &Allow) -> bool {
    match (asked, rule) {
        (Allow::Rule(asked), Allow::Rule(rule)) => {
            let plain = Rule::allow(&rule.what.to_string());
            asked.what == rule.what || plain.is_ok_and(|plain| plain.what == asked.what)
        }
        (asked, rule) => asked == rule,
    }
}

fn add_denied(mut base: Vec<Rule>, asked: &[Rule]) -> Vec<Rule> {
    for rule in asked {
        if !base.contains(rule) {
            base.push(rule.clone());
        }
    }
    base
}

/// Returns the operator's `ask` rules, or an error if the project has another one.
///
/// Fewer rules would allow requests without approval; more would ask about hosts unknown to the
/// operator.
fn same_ask_rules(asked: &[Rule], base: Vec<Rule>) -> Result<Vec<Rule>, Loosening> {
    let is_known =
        |asked: &&Rule| base.iter().any(|rule| (&rule.id, &rule.what) == (&asked.id, &asked.what));
    match asked.iter().find(|rule| !is_known(rule)) {
        Some(rule) => Err(loosening("ask", &rule.what, "no such rule")),
        None => Ok(base),
    }
}

fn subset_of_secrets(
    asked: &[SecretName],
    base: &BTreeSet<SecretName>,
) -> Result<BTreeSet<SecretName>, Loosening> {
    match asked.iter().find(|name| !base.contains(name)) {
        Some(name) => Err(loosening("secrets", name, "no such entry")),
        None => Ok(asked.iter().cloned().collect()),
    }
}

fn at_most_budget(asked: &Budget, base: &Budget) -> Result<Budget, Loosening> {
    Ok(Budget {
        requests: at_most_limit("requests", asked.requests, base.requests)?,
        bytes: at_most_limit("bytes", asked.bytes, base.bytes)?,
        tokens: at_most_limit("tokens", asked.tokens, base.tokens)?,
        money: at_most_limit("money", asked.money, base.money)?,
    })
}

fn at_most_limit<T: Ord + Display + Copy>(
    what: &str,
    asked: Option<T>,
    base: Option<T>,
) -> Result<Option<T>, Loosening> {
    match (asked, base) {
        (Some(asked), Some(base)) if asked > base => {
            Err(loosening("budget", format!("{what} = {asked}"), format!("{what} = {base}")))
        }
        (Some(asked), Some(_) | None) => Ok(Some(asked)),
        (None, base) => Ok(base),
    }
}
