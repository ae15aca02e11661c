//! Logins: an agent's token file is taken into the vault, and boxes get one with placeholders.
//!
//! What goes into a box is made from the file by an allow-list: a placeholder for the access token, a
//! word in the place of the refresh token, a time that is far away, and what the agent's description
//! keeps. Tokens that say who somebody is lose their signature, without which nobody takes them.

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
use crate::scope::Scoped;
use crate::store::durable::{self, Links};
use crate::{record, secrets};

const MOST_BYTES: u64 = 256 << 10;
/// The year 2100, in milliseconds.
const FAR_AWAY: u64 = 4_102_444_800_000;
/// What stands in the place of a refresh token.
const HELD: &str = "held-on-the-host-by-belljar";
/// Stands for the time of the start.
const NOW: &str = "{{now}}";

/// Takes the login of an agent from its token file into the vault. Returns the name of the secret.
pub fn take_over(
    state: &Scoped,
    agent: &Agent,
    from: Option<&Path>,
) -> Result<SecretName, EngineError> {
    let Some(login) = &agent.login else {
        return Err(invalid(format!(
            "{} has no login that Belljar knows; `belljar secret set` stores a key for it",
            agent.title
        )));
    };
    // No core dump of us, and no other process of the operator looks into our memory.
    let kept = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    kept.context("keep the login out of core dumps").kind(ErrorKind::Broken)?;
    let file = match from {
        Some(file) => file.to_owned(),
        None => state
            .host()
            .user_home()
            .context("there is no HOME")
            .kind(ErrorKind::Broken)?
            .join(&login.file),
    };
    let taken = read(&file).and_then(|text| take(login, &text));
    let (refresh, shown) =
        taken.with_context(|| file.display().to_string()).kind(ErrorKind::Broken)?;
    let refresh = Secret::new(refresh).context("the refresh token").kind(ErrorKind::Broken)?;
    let config = state.load_config(None)?.0.with_secrets(agent.declared.clone());
    keep(state, &config, agent, login, &refresh)?;
    let text =
        serde_json::to_string_pretty(&shown).context("write the login").kind(ErrorKind::Broken)?;
    place(state, agent, &text).kind(ErrorKind::Broken)?;
    Ok(login.secret.clone())
}

/// Puts the refresh token into the vault, on record first.
fn keep(
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
    let declared = agent.declared.iter().find(|it| it.name == login.secret);
    let texts = |it: Option<Vec<String>>| it.unwrap_or_default();
    let event = SecretSet {
        name: login.secret.to_string(),
        hosts: texts(declared.map(|it| it.hosts.iter().map(ToString::to_string).collect())),
        slots: texts(declared.map(|it| it.slots.iter().map(ToString::to_string).collect())),
    };
    let recorded = ledger.record(Draft::new(event)).context("record that a login is kept");
    prepared.place(&recorded.kind(ErrorKind::Broken)?).kind(ErrorKind::Broken)
}

fn read(file: &Path) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let mut text = Zeroizing::new(Vec::with_capacity(1 << 16));
    std::fs::File::open(file)?.take(MOST_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

/// The refresh token of a token file, and what a box is shown of the file.
fn take(login: &Login, text: &[u8]) -> anyhow::Result<(Zeroizing<Vec<u8>>, Value)> {
    // Its errors quote nothing of the text.
    let Ok(file) = serde_json::from_slice::<Value>(text) else { bail!("not a JSON file") };
    let at = |pointer: &str| file.pointer(pointer).filter(|value| !value.is_null());
    let Some(refresh) = at(&login.refresh).and_then(Value::as_str) else {
        bail!("there is no refresh token in it; log in with the agent first");
    };
    let secret = Zeroizing::new(refresh.as_bytes().to_vec());
    let mut shown = Value::Object(Map::new());
    for pointer in &login.keep {
        if let Some(value) = at(pointer) {
            put(&mut shown, pointer, value.clone());
        }
    }
    for pointer in &login.identity {
        if let Some((said, _)) =
            at(pointer).and_then(Value::as_str).and_then(|it| it.rsplit_once('.'))
        {
            put(&mut shown, pointer, json!(format!("{said}.none")));
        }
    }
    put(&mut shown, &login.access, json!(format!("{{{{placeholder:{}}}}}", login.secret)));
    put(&mut shown, &login.refresh, json!(HELD));
    if let Some(pointer) = &login.expires {
        put(&mut shown, pointer, json!(FAR_AWAY));
    }
    if let Some(pointer) = &login.renewed {
        put(&mut shown, pointer, json!(NOW));
    }
    Ok((secret, shown))
}

/// Sets a value, with the objects above it.
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

fn file_of(state: &Scoped, agent: &Agent) -> PathBuf {
    state.store().layout().login(&agent.name)
}

fn place(state: &Scoped, agent: &Agent, text: &str) -> anyhow::Result<()> {
    let file = file_of(state, agent);
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let old = durable::read(&file, MOST_BYTES, Links::Refuse)?.unwrap_or_default();
    durable::replace(&file, &old, text, Links::Refuse)
        .with_context(|| format!("write {}", file.display()))
}

/// The token file that a box gets, if there is a login.
pub(super) fn shown(state: &Scoped, agent: &Agent) -> Option<Vec<u8>> {
    let text = durable::read(&file_of(state, agent), MOST_BYTES, Links::Refuse).ok()??;
    Some(text.replace(NOW, &rfc3339(state.clock().nanos())).into_bytes())
}

/// `2026-11-16T12:00:00.123456789Z`.
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
    fn b20_a_box_is_shown_a_login_without_a_token() {
        let file = json!({
            "mode": "plan", "api_key": "sk-REAL-key",
            "tokens": {
                "refresh_token": "REAL-refresh", "access_token": "REAL-access", "account": "a-1",
                "id_token": "aGVhZA.cGF5bG9hZA.REALsignature", "expires": 1,
            },
        });
        let (secret, shown) = take(&login(), file.to_string().as_bytes()).unwrap();
        assert_eq!(secret.as_slice(), b"REAL-refresh");
        let text = shown.to_string();
        assert!(!text.contains("REAL"), "{text}");
        assert_eq!(shown["tokens"]["access_token"], "{{placeholder:x-login}}");
        assert_eq!(shown["tokens"]["expires"], FAR_AWAY);
        assert_eq!(shown["tokens"]["id_token"], "aGVhZA.cGF5bG9hZA.none");
        assert_eq!((&shown["tokens"]["account"], &shown["mode"]), (&json!("a-1"), &json!("plan")));
        for bad in ["", "[]", "{}", r#"{"tokens": {"refresh_token": null}}"#, "REAL"] {
            let error = take(&login(), bad.as_bytes()).unwrap_err();
            assert!(!format!("{error:#}").contains("REAL"), "{error:#}");
        }
    }
}
