//! Imports the login of an agent: stores its refresh token in the vault and gives boxes placeholders.
//!
//! A box gets a new token file that contains only: a placeholder for the access token, a fixed text for the
//! refresh token, an expiry time in the far future, and the fields that the agent's description lists
//! under `keep`. Identity tokens lose their signature, so that no server accepts them.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use belljar_broker::vault::Value as Secret;
use belljar_broker::vault::store::Store;
use belljar_ledger::{Draft, SecretSet};
use belljar_model::agent::{Agent, Login};
use belljar_model::net::SecretName;
use rustix::process::DumpableBehavior;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::host::HostEnv;
use crate::scope::Scoped;
use crate::store::durable::{self, Links};
use crate::{record, secrets};

/// The maximum size of a token file in bytes.
const MAX_BYTES: u64 = 256 << 10;
/// The expiry time in the token file of a box: the year 2100, in milliseconds since 1970.
const FAR_FUTURE: u64 = 4_102_444_800_000;
/// The text that replaces the refresh token in the token file of a box.
const REFRESH_REPLACEMENT: &str = "held-on-the-host-by-belljar";
/// The text in a stored token file that is replaced by the current time when a box starts.
const NOW: &str = "{{now}}";

/// Imports the login of an agent from its token file into the vault. Returns the name of the secret.
pub fn import(
    state: &Scoped,
    agent: &Agent,
    from: Option<&Path>,
) -> Result<SecretName, EngineError> {
    let Some(login) = &agent.login else {
        return Err(invalid(format!(
            "{} has no login that Belljar can import; store an API key with `belljar secret set`",
            agent.title
        )));
    };
    // Disables core dumps, and access to the memory of this process by other processes of the user.
    let set = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    set.context("cannot disable core dumps of this process").kind(ErrorKind::Broken)?;
    let file = match from {
        Some(file) => file.to_owned(),
        None => state
            .user()
            .and_then(HostEnv::user_home)
            .context("cannot find the token file: HOME is not set; name the file with --from")
            .kind(ErrorKind::Broken)?
            .join(&login.file),
    };
    let split = read(&file).and_then(|text| split_login(login, &text));
    let (refresh, box_file) = split
        .with_context(|| format!("cannot import the login from {}", file.display()))
        .kind(ErrorKind::Broken)?;
    let refresh =
        Secret::new(refresh).context("the refresh token is invalid").kind(ErrorKind::Broken)?;
    let config = state.load_config(None)?.0.with_secrets(agent.declared.clone());
    store_refresh_token(state, &config, agent, login, &refresh)?;
    let text = serde_json::to_string_pretty(&box_file)
        .context("cannot write the token file for boxes as JSON")
        .kind(ErrorKind::Broken)?;
    write_box_file(state, agent, &text).kind(ErrorKind::Broken)?;
    Ok(login.secret.clone())
}

/// Records the new secret in the ledger, then stores the refresh token in the vault.
fn store_refresh_token(
    state: &Scoped,
    config: &belljar_model::Config,
    agent: &Agent,
    login: &Login,
    refresh: &Secret,
) -> Result<(), EngineError> {
    let ledger = record::open(state).kind(ErrorKind::Broken)?;
    let store = Store::create(state.home()).kind(ErrorKind::Broken)?;
    let key = secrets::key_or_new(config, &store).kind(ErrorKind::Broken)?;
    let prepared = store
        .prepare(&key, &login.secret, refresh, state.clock().nanos())
        .kind(ErrorKind::Broken)?;
    let declared = agent.declared.iter().find(|secret| secret.name == login.secret);
    let texts = |list: Option<Vec<String>>| list.unwrap_or_default();
    let event = SecretSet {
        name: login.secret.to_string(),
        hosts: texts(declared.map(|secret| secret.hosts.iter().map(ToString::to_string).collect())),
        slots: texts(declared.map(|secret| secret.slots.iter().map(ToString::to_string).collect())),
    };
    let recorded = ledger.record(Draft::new(event)).context("cannot record that a login is stored");
    prepared.place(&recorded.kind(ErrorKind::Broken)?).kind(ErrorKind::Broken)
}

fn read(file: &Path) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let mut text = Zeroizing::new(Vec::with_capacity(1 << 16));
    std::fs::File::open(file)?.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

/// Splits an agent's token file into the refresh token and the token file that boxes get.
fn split_login(login: &Login, text: &[u8]) -> anyhow::Result<(Zeroizing<Vec<u8>>, Value)> {
    // The error of the parser is not passed on, because it could quote a token.
    let Ok(file) = serde_json::from_slice::<Value>(text) else {
        bail!("the file is not valid JSON")
    };
    let at = |pointer: &str| file.pointer(pointer).filter(|value| !value.is_null());
    let Some(refresh) = at(&login.refresh).and_then(Value::as_str) else {
        bail!("the file has no refresh token; log in with the agent first");
    };
    let secret = Zeroizing::new(refresh.as_bytes().to_vec());
    let mut box_file = Value::Object(Map::new());
    for pointer in &login.keep {
        if let Some(value) = at(pointer) {
            put(&mut box_file, pointer, value.clone());
        }
    }
    for pointer in &login.identity {
        let token = at(pointer).and_then(Value::as_str);
        if let Some((claims, _signature)) = token.and_then(|token| token.rsplit_once('.')) {
            put(&mut box_file, pointer, json!(format!("{claims}.none")));
        }
    }
    put(&mut box_file, &login.access, json!(format!("{{{{placeholder:{}}}}}", login.secret)));
    put(&mut box_file, &login.refresh, json!(REFRESH_REPLACEMENT));
    if let Some(pointer) = &login.expires {
        put(&mut box_file, pointer, json!(FAR_FUTURE));
    }
    if let Some(pointer) = &login.renewed {
        put(&mut box_file, pointer, json!(NOW));
    }
    Ok((secret, box_file))
}

/// Sets the value at a JSON pointer. Creates missing parent objects.
fn put(root: &mut Value, pointer: &str, value: Value) {
    let mut at = root;
    for name in pointer.split('/').skip(1) {
        let name = name.replace("~1", "/").replace("~0", "~");
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        let Value::Object(object) = at else { return };
        at = object.entry(name).or_insert(Value::Null);
    }
    *at = value;
}

/// Returns the path of the stored token file that boxes get.
fn box_file_path(state: &Scoped, agent: &Agent) -> PathBuf {
    state.store().layout().login(&agent.name)
}

fn write_box_file(state: &Scoped, agent: &Agent, text: &str) -> anyhow::Result<()> {
    let file = box_file_path(state, agent);
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let old = durable::read(&file, MAX_BYTES, Links::Refuse)?.unwrap_or_default();
    durable::replace(&file, &old, text, Links::Refuse)
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Returns the token file that a box gets for an agent, or `None` if no login was imported.
pub(super) fn box_file(state: &Scoped, agent: &Agent) -> Option<Vec<u8>> {
    let text = durable::read(&box_file_path(state, agent), MAX_BYTES, Links::Refuse).ok()??;
    Some(text.replace(NOW, &rfc3339(state.clock().nanos())).into_bytes())
}

/// Formats a time in nanoseconds since 1970 as `2026-11-16T12:00:00.123456789Z`.
fn rfc3339(nanos: u64) -> String {
    let moment = jiff::Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or_default();
    format!("{moment:.9}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login() -> Login {
        let pointer = |text: &str| text.to_owned();
        Login {
            file: "x.json".into(),
            secret: "x-login".parse().unwrap(),
            refresh: pointer("/tokens/refresh_token"),
            access: pointer("/tokens/access_token"),
            expires: Some(pointer("/tokens/expires")),
            renewed: Some(pointer("/renewed")),
            identity: vec![pointer("/tokens/id_token")],
            keep: vec![pointer("/tokens/account"), pointer("/mode")],
        }
    }

    #[test]
    fn b20_token_file_of_a_box_contains_no_real_token() {
        let file = json!({
            "mode": "plan", "api_key": "sk-REAL-key",
            "tokens": {
                "refresh_token": "REAL-refresh", "access_token": "REAL-access", "account": "a-1",
                "id_token": "aGVhZA.cGF5bG9hZA.REALsignature", "expires": 1,
            },
        });
        let (secret, box_file) = split_login(&login(), file.to_string().as_bytes()).unwrap();
        assert_eq!(secret.as_slice(), b"REAL-refresh");
        let text = box_file.to_string();
        assert!(!text.contains("REAL"), "{text}");
        assert_eq!(box_file["tokens"]["access_token"], "{{placeholder:x-login}}");
        assert_eq!(box_file["tokens"]["expires"], FAR_FUTURE);
        assert_eq!(box_file["tokens"]["id_token"], "aGVhZA.cGF5bG9hZA.none");
        assert_eq!(
            (&box_file["tokens"]["account"], &box_file["mode"]),
            (&json!("a-1"), &json!("plan"))
        );
        for bad in ["", "[]", "{}", r#"{"tokens": {"refresh_token": null}}"#, "REAL"] {
            let error = split_login(&login(), bad.as_bytes()).unwrap_err();
            assert!(!format!("{error:#}").contains("REAL"), "{error:#}");
        }
    }
}
