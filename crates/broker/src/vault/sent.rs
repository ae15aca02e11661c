//! Which values went toward which host: those, and no others, are taken out of what it answers.
//!
//! Scrubbing more would let a box ask an upstream to repeat guesses and see which of them vanish (B09).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use belljar_model::net::Target;

use super::value::Value;
use crate::scrub::Scrubber;

/// Tokens of one host that are remembered at once, beside the secrets themselves; the oldest goes first.
const MAX_TOKENS: usize = 16;

/// A value that went toward a host, or came from it.
#[derive(Debug, Clone)]
pub(super) struct Travelled {
    pub(super) name: String,
    pub(super) value: Arc<Value>,
    pub(super) kind: Lasting,
}

/// How long a value is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lasting {
    /// As long as the box. Never forgotten, or a box could make us forget it.
    Secret,
    /// Until there is a new one.
    Token,
}

#[derive(Debug, Default)]
pub(super) struct Sent(Mutex<BTreeMap<Target, Host>>);

#[derive(Debug)]
struct Host {
    values: Vec<Travelled>,
    scrubber: Scrubber,
}

impl Sent {
    /// Remembers what goes toward a host; what to take out of its answers now.
    pub(super) fn add(&self, target: &Target, values: Vec<Travelled>) -> Scrubber {
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
            let is_known = |known: &Travelled| known.value.expose() == new.value.expose();
            if !host.values.iter().any(is_known) {
                host.values.push(new);
            }
        }
        if host.values.len() > before {
            let is_token = |it: &Travelled| it.kind == Lasting::Token;
            let tokens = host.values.iter().filter(|it| is_token(it)).count();
            let mut surplus = tokens.saturating_sub(MAX_TOKENS);
            host.values.retain(|it| {
                let goes = surplus > 0 && is_token(it);
                surplus -= usize::from(goes);
                !goes
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

fn scrubber(values: &[Travelled]) -> Scrubber {
    let values: Vec<(String, &[u8])> =
        values.iter().map(|it| (it.name.clone(), it.value.expose())).collect();
    Scrubber::new(&values).expect("a value has at least as many bytes as a scrubber asks for")
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;

    fn values(texts: &[(&str, Lasting)]) -> Vec<Travelled> {
        let travelled = |(text, kind): &(&str, Lasting)| Travelled {
            name: "s".to_owned(),
            value: Arc::new(Value::new(Zeroizing::new(text.as_bytes().to_vec())).unwrap()),
            kind: *kind,
        };
        texts.iter().map(travelled).collect()
    }

    #[test]
    fn b09_only_what_went_to_a_host_is_taken_out_of_its_answers() {
        let sent = Sent::default();
        let (one, other) = ("one.example.com".parse().unwrap(), "two.example.com".parse().unwrap());
        assert!(sent.scrubber(&one).is_empty());
        assert!(sent.add(&one, Vec::new()).is_empty());
        sent.add(&one, values(&[("canary-one", Lasting::Secret)]));
        let scrubber = sent.add(&one, values(&[("canary-two", Lasting::Token)]));
        let text = b"canary-one canary-two canary-three";
        assert_eq!(scrubber.text(text).as_ref(), b"[belljar:s] [belljar:s] canary-three");
        assert_eq!(sent.scrubber(&one).text(text), scrubber.text(text));
        assert_eq!(sent.scrubber(&other).text(text).as_ref(), text);
    }

    #[test]
    fn b04_many_tokens_do_not_pile_up_nor_push_a_secret_out() {
        let sent = Sent::default();
        let host = "one.example.com".parse().unwrap();
        sent.add(&host, values(&[("canary-secret", Lasting::Secret)]));
        for round in 0..MAX_TOKENS + 2 {
            sent.add(&host, values(&[(&format!("canary-{round:04}"), Lasting::Token)]));
        }
        assert_eq!(sent.0.lock().unwrap()[&host].values.len(), MAX_TOKENS + 1);
        let scrubber = sent.scrubber(&host);
        assert_eq!(scrubber.text(b"canary-0017").as_ref(), b"[belljar:s]");
        assert_eq!(scrubber.text(b"canary-secret").as_ref(), b"[belljar:s]");
        assert_eq!(scrubber.text(b"canary-0000").as_ref(), b"canary-0000");
    }
}
