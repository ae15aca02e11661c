//! Checks of the policy of a tenant: it cannot use the host of the operator or a private network.
//!
//! The administrator of a tenant is not the operator of the machine. A policy that a tenant saves can
//! therefore describe boxes, rules and secrets, and nothing that Belljar does outside of a box.

use super::keys::Value;
use super::parse::Source;
use super::{ConfigError, Entry, Fault};
use crate::code::{Api, CodeConfig, McpServer, Transport};
use crate::env::EnvVar;
use crate::net::{Allow, PrivateTarget, Rule, SecretDecl};
use crate::permission::Permissions;
use crate::plan::ModelTier;
use crate::template::Overrides;

/// The sections that the policy of a tenant can have.
pub const SECTIONS: [&str; 8] =
    ["template", "permissions", "secret", "api", "mcp", "tier", "code", "test"];

/// A key with a value that only the operator can set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}`: {what}")]
pub struct OperatorKey {
    pub key: &'static str,
    what: String,
}

fn refused(key: &'static str, what: impl Into<String>) -> Result<(), OperatorKey> {
    Err(OperatorKey { key, what: what.into() })
}

impl Overrides {
    /// Returns an error if the overrides use the host or a private network, which only the operator can
    /// permit.
    pub fn check_tenant(&self) -> Result<(), OperatorKey> {
        // Destructured without `..`, so that a new key cannot be forgotten here. The operator limits memory,
        // CPUs and so on by the ceiling of the tenant.
        let Self {
            mode: _,
            net: _,
            record: _,
            mounts,
            rootfs,
            env,
            user,
            memory: _,
            cpus: _,
            pids: _,
            disk: _,
            files: _,
            output: _,
            timeout: _,
            weaken,
            require: _,
            allow,
            deny: _,
            ask,
            ask_timeout: _,
            secrets: _,
            budget: _,
            health: _,
        } = self;
        if let Some(mount) = mounts.first() {
            return refused("mounts", format!("the mount {mount} shows files of the host"));
        }
        if rootfs.is_some() {
            return refused("rootfs", "a root file system is a directory of the host");
        }
        env_without_host(env)?;
        if *user == Some(0) {
            return refused("user", "the user 0 is root in the box");
        }
        if let Some(layer) = weaken.first() {
            return refused("weaken", format!("the layer `{layer}` must stay in force"));
        }
        public_allow(allow)?;
        public_rules("ask", ask.iter())
    }
}

fn env_without_host(env: &[EnvVar]) -> Result<(), OperatorKey> {
    let inherited = env.iter().find(|variable| variable.value().is_none());
    inherited.map_or(Ok(()), |variable| {
        let name = variable.name();
        refused("env", format!("{name} would be read from the host; write {name}=VALUE"))
    })
}

/// Checks `allow` rules. All presets are on the public internet.
fn public_allow(allow: &[Allow]) -> Result<(), OperatorKey> {
    let rules = allow.iter().filter_map(|allow| match allow {
        Allow::Preset(_) => None,
        Allow::Rule(rule) => Some(&**rule),
    });
    public_rules("allow", rules)
}

fn public_rules<'r>(
    key: &'static str,
    mut rules: impl Iterator<Item = &'r Rule>,
) -> Result<(), OperatorKey> {
    let private = rules.find_map(|rule| Some((rule, rule.private_target()?)));
    private
        .map_or(Ok(()), |(rule, target)| refused(key, format!("the rule `{}` {target}", rule.id)))
}

fn public(key: &'static str, target: Option<PrivateTarget>) -> Result<(), OperatorKey> {
    target.map_or(Ok(()), |target| refused(key, format!("it {target}")))
}

fn check_permissions(permissions: &Permissions) -> Result<(), OperatorKey> {
    // Rules that cannot be read are refused when the box is made.
    let allowed = permissions.allow.iter().filter_map(|it| it.net_allowed().ok().flatten());
    public_allow(&allowed.collect::<Vec<_>>())?;
    let asked = permissions.ask.iter().filter_map(|it| it.net_asked().ok().flatten());
    public_rules("ask", asked.collect::<Vec<_>>().iter())
}

fn check_api(api: &Api) -> Result<(), OperatorKey> {
    if api.types.is_some() {
        return refused("types", "the file is on the host");
    }
    if api.openapi.is_some() {
        return refused("openapi", "the file is on the host");
    }
    public_rules("allow", api.allow.iter())
}

fn check_server(server: &McpServer) -> Result<(), OperatorKey> {
    env_without_host(&server.env)?;
    public_allow(&server.allow)?;
    match &server.transport {
        // The command runs in a box.
        Transport::Command(_) => Ok(()),
        Transport::Url(url) => public("url", url.target().private_target()),
    }
}

fn check_tier(tier: &ModelTier) -> Result<(), OperatorKey> {
    if tier.connect.is_some() {
        return refused("connect", "it leads to a fixed address");
    }
    public("url", tier.url.as_ref().and_then(|url| url.target().private_target()))
}

fn check_code(code: &CodeConfig) -> Result<(), OperatorKey> {
    match code.libraries {
        Some(_) => refused("libraries", "the directory is on the host"),
        None => Ok(()),
    }
}

impl Source<'_> {
    pub(super) fn tenant_template(&self, entry: &Entry) -> Result<(), ConfigError> {
        entry.overrides.check_tenant().map_err(|error| {
            let line = entry.lines.line(error.key);
            self.of_operator(line, error)
        })
    }

    pub(super) fn tenant_permissions(
        &self,
        value: &Value<'_>,
        permissions: &Permissions,
    ) -> Result<(), ConfigError> {
        check_permissions(permissions).map_err(|error| self.of_operator_at(value, error))
    }

    pub(super) fn tenant_secret(
        &self,
        value: &Value<'_>,
        secret: &SecretDecl,
    ) -> Result<(), ConfigError> {
        let checked = public("hosts", secret.private_target());
        checked.map_err(|error| self.of_operator_at(value, error))
    }

    pub(super) fn tenant_api(&self, value: &Value<'_>, api: &Api) -> Result<(), ConfigError> {
        check_api(api).map_err(|error| self.of_operator_at(value, error))
    }

    pub(super) fn tenant_server(
        &self,
        value: &Value<'_>,
        server: &McpServer,
    ) -> Result<(), ConfigError> {
        check_server(server).map_err(|error| self.of_operator_at(value, error))
    }

    pub(super) fn tenant_tier(
        &self,
        value: &Value<'_>,
        tier: &ModelTier,
    ) -> Result<(), ConfigError> {
        check_tier(tier).map_err(|error| self.of_operator_at(value, error))
    }

    pub(super) fn tenant_code(
        &self,
        value: &Value<'_>,
        code: &CodeConfig,
    ) -> Result<(), ConfigError> {
        check_code(code).map_err(|error| self.of_operator_at(value, error))
    }

    /// Returns the error for a key in a table, with the line of the key.
    fn of_operator_at(&self, table: &Value<'_>, error: OperatorKey) -> ConfigError {
        let keys = table.get_ref().as_table().into_iter().flatten();
        let found = keys.map(|(key, _)| key).find(|key| key.get_ref() == error.key);
        let at = found.map_or(table.span().start, |key| key.span().start);
        self.of_operator(self.line(at), error)
    }

    fn of_operator(&self, line: usize, error: OperatorKey) -> ConfigError {
        ConfigError { file: self.file.to_owned(), line, fault: Fault::OperatorKey(error) }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::{Config, Scope};

    fn parse(text: &str, scope: Scope) -> Result<Config, String> {
        Config::parse(text, Path::new("policy.toml"), scope).map_err(|error| error.to_string())
    }

    /// Every key that only the operator can set, with the line of the key.
    const REFUSED: [(&str, &str); 32] = [
        ("[template.x]\nmounts = ['/etc:/data']", "2: `mounts`: the mount /etc:/data:ro shows"),
        ("[template.x]\nrootfs = '/srv/debian'", "2: `rootfs`: "),
        ("[template.x]\nenv = ['A=1', 'HOME']", "2: `env`: HOME would be read from the host"),
        ("[template.x]\nuser = 0", "2: `user`: the user 0 is root"),
        ("[template.x]\npids = 9\nweaken = ['seccomp']", "3: `weaken`: the layer `seccomp`"),
        ("[template.x]\nallow = ['host-port:22']", "2: `allow`: the rule `allow host-port:22`"),
        ("[template.x]\nallow = ['10.0.0.1']", "2: `allow`: the rule `allow 10.0.0.1`"),
        ("[template.x]\nallow = ['tcp://192.168.1.1:22']", "2: `allow`: "),
        ("[template.x]\nallow = ['git.corp.internal']", "2: `allow`: "),
        ("[template.x]\nallow = ['*.corp.internal']", "2: `allow`: "),
        ("[template.x]\nask = ['printer.lan']", "2: `ask`: "),
        ("[[template.x.allow]]\nhost = 'a.example'\nconnect = '1.2.3.4:443'", "`allow`: "),
        ("[[template.x.ask]]\nhost = 'a.example'\nconnect = '1.2.3.4:443'", "`ask`: "),
        ("[template.x.permissions]\nallow = ['Net(10.0.0.1)']", "2: `allow`: "),
        ("[permissions]\nask = ['Net(nas.local)']", "2: `ask`: "),
        ("[secret.s]\nhosts = ['vault.corp.internal']", "2: `hosts`: it leads to"),
        ("[secret.s]\nhosts = ['a.example', '10.0.0.7']", "2: `hosts`: it leads to"),
        (
            "[secret.s]\nhosts = ['a.example']\nkind = 'oauth2'\ntoken-url = 'https://10.0.0.1/t'",
            "2: `hosts`: it leads to 10.0.0.1",
        ),
        ("[api.a]\nhosts = ['a.example']\ntypes = 'a.d.ts'", "3: `types`: "),
        ("[api.a]\nhosts = ['a.example']\nopenapi = 'a.json'", "3: `openapi`: "),
        ("[api.a]\nallow = ['10.0.0.1']", "2: `allow`: "),
        ("[mcp.m]\ncommand = ['x']\nenv = ['HOME']", "3: `env`: "),
        ("[mcp.m]\nurl = 'http://192.168.1.1/'", "2: `url`: "),
        ("[mcp.m]\ncommand = ['x']\nallow = ['host-port:22']", "3: `allow`: "),
        (
            "[tier.t]\nprovider = 'openai-chat'\nmodel = 'm'\nurl = 'http://localhost:11434'",
            "4: `url`: ",
        ),
        (
            "[tier.t]\nprovider = 'openai-chat'\nmodel = 'm'\nurl = 'https://a.example'\nconnect = '10.0.0.1:1'",
            "5: `connect`: ",
        ),
        ("[code]\nlibraries = 'libs'", "2: `libraries`: "),
        ("[tls]\nroots = ['a.pem']", "1: `[tls]` is only valid in the operator's own file"),
        ("[dns]\nservers = ['10.0.0.1']", "1: `[dns]` is only valid in the operator's own file"),
        ("[proxy]\nurl = 'http://p:1'", "1: `[proxy]` is only valid in the operator's own file"),
        ("[vault]\nkey-command = ['x']", "1: `[vault]` is only valid in the operator's own file"),
        ("[serve]\nhost = 'a.example'", "1: `[serve]` is only valid in the operator's own file"),
    ];

    #[test]
    fn policy_of_a_tenant_cannot_use_the_host_or_a_private_network() {
        let more = [
            ("[schedule.s]\nplan = 'p'\ncron = '* * * * *'", "1: `[schedule]` is only valid"),
            ("[tenant.t]\nworkspaces = ['/srv']", "1: `[tenant]` is only valid"),
        ];
        for (text, expect) in REFUSED.into_iter().chain(more) {
            let error = parse(text, Scope::Tenant).unwrap_err();
            assert!(error.starts_with("policy.toml:") && error.contains(expect), "{text}: {error}");
            let control = parse(text, Scope::Operator);
            assert!(control.is_ok(), "control: {text}: {}", control.unwrap_err());
        }
    }

    #[test]
    fn policy_of_a_tenant_has_templates_rules_secrets_tiers_and_tests() {
        let text = "[template.agents]\nnet = 'full'\nmode = 'direct'\nmemory = '1GiB'\nenv = ['A=1']\nuser = 5\nrequire = ['cgroup']\nallow = ['github', '*.example.com', 'tcp://db.example.com:5432', '93.184.215.14']\ndeny = ['10.0.0.1', 'host-port:22', '*.internal']\nask = ['*.com']\nsecrets = ['github']\n[permissions]\ndeny = ['Read(.env)']\n[secret.s]\nhosts = ['a.example']\n[api.a]\nhosts = ['a.example']\n[mcp.m]\nurl = 'https://a.example/mcp'\n[tier.t]\nprovider = 'anthropic'\nmodel = 'm'\nsecret = 'anthropic'\n[code]\nyolo = true\n[[test]]\nrequest = 'a.example'\nexpect = 'deny'\n";
        let config = parse(text, Scope::Tenant).unwrap();
        assert_eq!(config.names(), ["agents", "default"]);
        let template = config.template("agents").unwrap();
        assert_eq!(template.policy(&config).unwrap().deny.len(), 3);
    }

    #[test]
    fn rules_from_any_source_are_checked_when_the_box_of_a_tenant_is_made() {
        let text = "[template.x]\nallow = ['a.example']\n";
        for (allow, is_private) in
            [("host-port:22", true), ("10.0.0.1", true), ("b.example", false)]
        {
            let overrides = crate::Overrides {
                allow: vec![allow.parse().unwrap()],
                ..crate::Overrides::default()
            };
            assert_eq!(overrides.check_tenant().is_err(), is_private, "{allow}");
            for (scope, is_refused) in [(Scope::Tenant, is_private), (Scope::Operator, false)] {
                let config = parse(text, scope).unwrap();
                let template = config.template("x").unwrap().with(overrides.clone()).unwrap();
                assert_eq!(template.policy(&config).is_err(), is_refused, "{allow} {scope:?}");
            }
        }
    }

    #[test]
    fn policy_of_a_tenant_has_the_certificates_dns_and_proxy_of_the_machine() {
        let operator = "[tls]\nroots = ['/a.pem']\n[dns]\nservers = ['10.0.0.1']\n[proxy]\nurl = 'http://p:1'\n[vault]\nkey-command = ['k']\n[template.x]\nmounts = ['/etc:/data']\n[tenant.t]\nlimits = { memory = '1GiB' }\n";
        let operator = parse(operator, Scope::Operator).unwrap();
        let own = parse("[template.own]\nmemory = '2GiB'\n", Scope::Tenant).unwrap();
        let config = own.on_machine_of(&operator);
        assert_eq!(config.names(), ["default", "own"], "no template of the operator");
        assert_eq!(config.roots(None).len() + config.name_servers().len(), 2);
        assert!(config.proxy().is_some() && config.key_command().is_some());
        let ceiling = operator.tenant_ceiling(&"t".parse().unwrap()).unwrap();
        let error = config.check_ceiling(&ceiling).unwrap_err().to_string();
        assert_eq!(
            error,
            "policy.toml:2: `memory` is 2GiB, but the operator of the server permits at most 1GiB"
        );
    }
}
