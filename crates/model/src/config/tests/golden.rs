//! The text that is hashed as the policy in `run.created`. It must never change for the same rules, or
//! records of the same rules could not be compared across versions.

use std::fmt::Write as _;

use super::operator;
use crate::Template;
use crate::net::Policy;

/// The text of a configuration file that sets every key of a template, with rules of every form.
const EVERYTHING: &str = r#"
[template.all]
mode = "direct"
net = "restricted"
record = "bodies"
mounts = ["/data:/data", "/cache:/c:rw"]
rootfs = "/images/debian"
env = ["CI=1", "LANG"]
user = 7
memory = "512MiB"
cpus = 0.5
pids = 64
disk = "1G"
files = 128
output-limit = "1MiB"
timeout = "1h30m"
weaken = ["time-namespace", "landlock"]
require = ["cgroup"]
allow = [
  "pypi",
  "GET,POST https://api.example.com/v1/**",
  "tcp://db.internal:5432",
  "host-port:8080",
  { name = "uploads", host = "up.example.com", ports = [443, 8443], methods = ["PUT"], paths = ["/a/**", "/b"], secrets = ["token"], limits = { requests = "60/min", upload = "1MiB", total = "2MiB" }, websocket = true, connect = "192.0.2.1:443" },
  { host = "pinned.example.com", tls = "passthrough" },
]
deny = ["*.com", "DELETE api.example.com"]
ask = ["POST mail.example.com"]
ask-timeout = "30s"
secrets = ["token"]
budget = { requests = 10, bytes = "1GiB", tokens = 1000, money = "5 USD" }
health = "curl -f localhost"

[secret.token]
hosts = ["up.example.com"]
env = "TOKEN"
"#;

const TEMPLATE_TEXT: &str = include_str!("golden/template.toml");
const POLICY_TEXT: &str = include_str!("golden/policy.json");

fn everything() -> (Template, Policy) {
    let config = operator(EVERYTHING);
    let template = config.template("all").unwrap();
    let policy = template.policy(&config).unwrap();
    (template, policy)
}

#[test]
fn template_to_toml_of_every_field_is_unchanged() {
    let mut text = String::new();
    for template in [Template::default(), everything().0] {
        writeln!(text, "{}", template.to_toml()).unwrap();
    }
    assert_eq!(text, TEMPLATE_TEXT);
}

#[test]
fn policy_json_of_every_field_is_unchanged() {
    let (_, policy) = everything();
    let text = serde_json::to_string(&policy).unwrap();
    assert_eq!(format!("{text}\n"), POLICY_TEXT);
}

#[test]
fn policy_of_every_field_survives_postcard_and_json() {
    let (_, policy) = everything();
    let frame = postcard::to_allocvec(&policy).unwrap();
    assert_eq!(postcard::from_bytes::<Policy>(&frame).unwrap(), policy);
    assert_eq!(serde_json::from_str::<Policy>(POLICY_TEXT).unwrap(), policy);
}
