//! The values that are removed from responses.
//!
//! Every secret is armed from the start: its values are removed from all responses of every host
//! that it is bound to, whether or not this box has used the secret. A token that is fetched or
//! captured later is armed like its secret, also in responses and WebSockets that are already open.
//!
//! **Invariant:** an armed value stays armed as long as the box exists, so a box cannot make the
//! broker forget one. The number of tokens is limited; a token that cannot be armed is not used.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::value::Value;
use crate::scrub::Scrubber;

/// The maximum number of fetched and captured tokens of one box. It bounds the memory that a box
/// can take with logins, and is far above what a box needs in weeks.
pub(super) const MAX_TOKENS: usize = 1024;

/// The error for a token beyond the limit, which must neither be used nor reach the box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this box has received {MAX_TOKENS} tokens, and no more can be removed from responses; restart the box"
)]
pub struct TooManyTokens;

/// All values that are removed from responses, each with the index of its secret.
#[derive(Debug, Default)]
pub(super) struct Armed(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    values: Vec<(usize, Arc<Value>)>,
    tokens: usize,
    /// The scrubbers that are in use, by the indices of their secrets.
    scrubbers: HashMap<Vec<usize>, Scrubber>,
}

impl Armed {
    /// Arms the values of secrets, each with the index of its secret.
    pub(super) fn new(values: Vec<(usize, Arc<Value>)>) -> Self {
        Self(Mutex::new(State { values, ..State::default() }))
    }

    /// Arms a token of a secret, also in responses that are being forwarded.
    pub(super) fn add(
        &self,
        secret: usize,
        token: &Arc<Value>,
        names: &[String],
    ) -> Result<(), TooManyTokens> {
        let state = &mut *self.state();
        let is_known =
            |(own, known): &(usize, Arc<Value>)| *own == secret && known.expose() == token.expose();
        if state.values.iter().any(is_known) {
            return Ok(());
        }
        if state.tokens >= MAX_TOKENS {
            return Err(TooManyTokens);
        }
        state.tokens += 1;
        state.values.push((secret, Arc::clone(token)));
        for (secrets, scrubber) in state.scrubbers.iter().filter(|(it, _)| it.contains(&secret)) {
            scrubber.replace(&scrubber_of(&state.values, secrets, names));
        }
        Ok(())
    }

    /// Returns the scrubber for the responses of a host that these secrets are bound to.
    pub(super) fn scrubber(&self, secrets: Vec<usize>, names: &[String]) -> Scrubber {
        let state = &mut *self.state();
        if let Some(scrubber) = state.scrubbers.get(&secrets) {
            return scrubber.clone();
        }
        let scrubber = scrubber_of(&state.values, &secrets, names);
        state.scrubbers.insert(secrets, scrubber.clone());
        scrubber
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn scrubber_of(values: &[(usize, Arc<Value>)], secrets: &[usize], names: &[String]) -> Scrubber {
    let bound = values.iter().filter(|(secret, _)| secrets.contains(secret));
    let name = |at: usize| names.get(at).cloned().unwrap_or_default();
    let values: Vec<(String, &[u8])> =
        bound.map(|(secret, value)| (name(*secret), value.expose())).collect();
    Scrubber::new(&values).expect("a value has the minimum length of a scrubber")
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;

    fn value(text: &str) -> Arc<Value> {
        Arc::new(Value::new(Zeroizing::new(text.as_bytes().to_vec())).unwrap())
    }

    fn names() -> Vec<String> {
        vec!["one".to_owned(), "two".to_owned()]
    }

    #[test]
    fn b09_scrubber_removes_the_values_of_its_secrets_only() {
        let armed = Armed::new(vec![(0, value("canary-one")), (1, value("canary-two"))]);
        let text = b"canary-one canary-two canary-three";
        let seen = |secrets: &[usize]| {
            let scrubber = armed.scrubber(secrets.to_vec(), &names());
            String::from_utf8(scrubber.text(text).into_owned()).unwrap()
        };
        assert_eq!(seen(&[0]), "[belljar:one] canary-two canary-three");
        assert_eq!(seen(&[0, 1]), "[belljar:one] [belljar:two] canary-three");
        assert_eq!(seen(&[]).as_bytes(), text);
        assert!(armed.scrubber(Vec::new(), &names()).is_empty());
    }

    #[test]
    fn b04_token_is_removed_from_streams_that_began_before_it() {
        let armed = Armed::new(vec![(0, value("canary-one"))]);
        let mut stream = armed.scrubber(vec![0], &names()).stream();
        let mut seen = Vec::new();
        stream.push(b"before canary-token-7, ", &mut seen);
        armed.add(0, &value("canary-token-7"), &names()).unwrap();
        stream.push(b"after canary-token-7", &mut seen);
        stream.finish(&mut seen);
        // The first part was sent before the broker knew the token.
        assert_eq!(seen, b"before canary-token-7, after [belljar:one]");
    }

    #[test]
    fn b04_no_armed_value_is_forgotten_and_the_number_of_tokens_is_bounded() {
        let armed = Armed::new(vec![(0, value("canary-secret"))]);
        for round in 0..MAX_TOKENS {
            armed.add(0, &value(&format!("canary-{round:06}")), &names()).unwrap();
        }
        assert_eq!(armed.add(0, &value("canary-too-many"), &names()), Err(TooManyTokens));
        assert_eq!(armed.add(0, &value("canary-000000"), &names()), Ok(()), "a known token");
        let scrubber = armed.scrubber(vec![0], &names());
        for known in ["canary-secret", "canary-000000", "canary-001023"] {
            assert_eq!(scrubber.text(known.as_bytes()).as_ref(), b"[belljar:one]", "{known}");
        }
    }
}
