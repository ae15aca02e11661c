//! Tracks which values were sent to which host. Only those values are removed from the responses of
//! the host.
//!
//! Removing other values would let a box send guesses to an upstream that echoes them, and see
//! which ones are removed (B09).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use belljar_model::net::Target;

use super::value::Value;
use crate::scrub::Scrubber;

/// The maximum number of tokens remembered per host, besides the secrets; the oldest is dropped
/// first.
const MAX_TOKENS: usize = 16;

/// A value that was sent to a host or received from it, and must be removed from responses.
#[derive(Debug, Clone)]
pub(super) struct SentValue {
    pub(super) name: String,
    pub(super) value: Arc<Value>,
    pub(super) kind: Lifetime,
}

/// How long the broker remembers a value that it removes from responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lifetime {
    /// The value is remembered as long as the box exists, so that the box cannot make the broker
    /// forget a secret.
    Secret,
    /// The value is remembered until newer tokens replace it.
    Token,
}

#[derive(Debug, Default)]
pub(super) struct Sent(Mutex<BTreeMap<Target, Host>>);

#[derive(Debug)]
struct Host {
    values: Vec<SentValue>,
    scrubber: Scrubber,
}

impl Sent {
    /// Remembers values that are sent to a host; returns the scrubber for its responses.
    pub(super) fn add(&self, target: &Target, values: Vec<SentValue>) -> Scrubber {
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(host) = hosts.get_mut(target) else {
            if values.is_empty() {
                return none();
            }
            let host = Host { scrubber: scrubber(&values), values };
            let scrubber = host.scrubber.clone();
            hosts.insert(target.clone(), host);
            return scrubber;
        };
        let before = host.values.len();
        for new in values {
            let is_known = |known: &SentValue| known.value.expose() == new.value.expose();
            if !host.values.iter().any(is_known) {
                host.values.push(new);
            }
        }
        if host.values.len() > before {
            let is_token = |it: &SentValue| it.kind == Lifetime::Token;
            let tokens = host.values.iter().filter(|it| is_token(it)).count();
            let mut surplus = tokens.saturating_sub(MAX_TOKENS);
            host.values.retain(|it| {
                let is_dropped = surplus > 0 && is_token(it);
                surplus -= usize::from(is_dropped);
                !is_dropped
            });
            host.scrubber = scrubber(&host.values);
        }
        host.scrubber.clone()
    }

    pub(super) fn scrubber(&self, target: &Target) -> Scrubber {
        let hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.get(target).map_or_else(none, |host| host.scrubber.clone())
    }
}

fn none() -> Scrubber {
    scrubber(&[])
}

fn scrubber(values: &[SentValue]) -> Scrubber {
    let values: Vec<(String, &[u8])> =
        values.iter().map(|it| (it.name.clone(), it.value.expose())).collect();
    Scrubber::new(&values).expect("a value has the minimum length of a scrubber")
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;

    fn values(texts: &[(&str, Lifetime)]) -> Vec<SentValue> {
        let sent_value = |(text, kind): &(&str, Lifetime)| SentValue {
            name: "s".to_owned(),
            value: Arc::new(Value::new(Zeroizing::new(text.as_bytes().to_vec())).unwrap()),
            kind: *kind,
        };
        texts.iter().map(sent_value).collect()
    }

    #[test]
    fn b09_scrubber_removes_only_values_sent_to_the_host() {
        let sent = Sent::default();
        let (one, other) = ("one.example.com".parse().unwrap(), "two.example.com".parse().unwrap());
        assert!(sent.scrubber(&one).is_empty());
        assert!(sent.add(&one, Vec::new()).is_empty());
        sent.add(&one, values(&[("canary-one", Lifetime::Secret)]));
        let scrubber = sent.add(&one, values(&[("canary-two", Lifetime::Token)]));
        let text = b"canary-one canary-two canary-three";
        assert_eq!(scrubber.text(text).as_ref(), b"[belljar:s] [belljar:s] canary-three");
        assert_eq!(sent.scrubber(&one).text(text), scrubber.text(text));
        assert_eq!(sent.scrubber(&other).text(text).as_ref(), text);
    }

    #[test]
    fn b04_remembered_tokens_are_bounded_and_do_not_evict_secrets() {
        let sent = Sent::default();
        let host = "one.example.com".parse().unwrap();
        sent.add(&host, values(&[("canary-secret", Lifetime::Secret)]));
        for round in 0..MAX_TOKENS + 2 {
            sent.add(&host, values(&[(&format!("canary-{round:04}"), Lifetime::Token)]));
        }
        assert_eq!(sent.0.lock().unwrap()[&host].values.len(), MAX_TOKENS + 1);
        let scrubber = sent.scrubber(&host);
        assert_eq!(scrubber.text(b"canary-0017").as_ref(), b"[belljar:s]");
        assert_eq!(scrubber.text(b"canary-secret").as_ref(), b"[belljar:s]");
        assert_eq!(scrubber.text(b"canary-0000").as_ref(), b"canary-0000");
    }
}
