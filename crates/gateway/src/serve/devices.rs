//! Logins of devices (RFC 8628): a program without a browser gets a token that a person permits in a browser.
//!
//! ```text
//! program ── POST /auth/device ─────────────────────▶ device code, user code
//! person ─── /device, user code ────────────────────▶ permits or denies
//! program ── POST /auth/device/token, device code ──▶ token
//! ```
//! Logins that have not ended are in memory only. After a restart of the server, the program starts again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_model::caller::Principal;

use super::access::Scope;
use super::store::{Millis, TenantKey};
use crate::auth::api_token::is_same;

/// The time in which a login must end.
pub(crate) const LOGIN_TIME: Millis = 10 * 60 * 1000;
/// The maximum number of logins that have not ended.
const MAX_LOGINS: usize = 256;
/// The maximum number of logins from one address that have not ended.
const MAX_LOGINS_PER_SOURCE: usize = 16;

/// The letters of user codes: no vowels, so that no words appear, and none that look alike.
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
/// The number of letters of a user code.
pub(crate) const USER_CODE: usize = 8;

/// What a program asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeviceRequest {
    pub(crate) name: String,
    /// The scopes of the token. Without scopes, the person decides.
    pub(crate) scopes: Vec<Scope>,
    /// The address of the program.
    pub(crate) from: String,
}

/// The answer of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeviceAnswer {
    Denied,
    Permitted { person: TenantKey<Principal>, scopes: Vec<Scope> },
}

#[derive(Debug)]
struct DeviceLogin {
    code_hash: [u8; 32],
    user_code: String,
    request: DeviceRequest,
    expires: Millis,
    /// The time of the last request for the token.
    polled: Option<Millis>,
    answer: Option<DeviceAnswer>,
}

/// The state of a login, as the program sees it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Polled {
    /// The code is wrong, has expired or was used.
    Unknown,
    /// The program asks more often than permitted.
    TooSoon,
    Waiting,
    Denied,
    Permitted {
        request: DeviceRequest,
        person: TenantKey<Principal>,
        scopes: Vec<Scope>,
    },
}

/// There are too many logins that have not ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooManyLogins;

/// The logins that have not ended.
#[derive(Debug)]
pub(crate) struct DeviceLogins {
    logins: Mutex<Vec<DeviceLogin>>,
    /// The minimum time between two requests for one token.
    interval: Duration,
}

impl DeviceLogins {
    pub(crate) const fn new(interval: Duration) -> Self {
        Self { logins: Mutex::new(Vec::new()), interval }
    }

    pub(crate) const fn interval(&self) -> Duration {
        self.interval
    }

    /// Adds a login. `random` makes the user code, which it returns.
    pub(crate) fn start(
        &self,
        code_hash: [u8; 32],
        random: [u8; USER_CODE],
        request: DeviceRequest,
        now: Millis,
    ) -> Result<String, TooManyLogins> {
        let mut logins = self.current(now);
        let of_source = logins.iter().filter(|login| login.request.from == request.from).count();
        if logins.len() >= MAX_LOGINS || of_source >= MAX_LOGINS_PER_SOURCE {
            return Err(TooManyLogins);
        }
        let letter = |byte: u8| LETTERS.get(usize::from(byte) % LETTERS.len()).copied();
        let user_code: String = random.into_iter().filter_map(letter).map(char::from).collect();
        if logins.iter().any(|login| login.user_code == user_code) {
            return Err(TooManyLogins); // one in 25 thousand million; the program tries again
        }
        let expires = now.saturating_add(LOGIN_TIME);
        let (polled, answer) = (None, None);
        let shown = user_code.clone();
        logins.push(DeviceLogin { code_hash, user_code, request, expires, polled, answer });
        Ok(shown)
    }

    /// Finds a login that waits for an answer. Returns it with the time at which it expires.
    pub(crate) fn find(&self, user_code: &str, now: Millis) -> Option<(DeviceRequest, Millis)> {
        let mut logins = self.current(now);
        let login = waiting(&mut logins, user_code)?;
        Some((login.request.clone(), login.expires))
    }

    /// Answers a login. Returns `false` if no such login waits for an answer.
    pub(crate) fn answer(&self, user_code: &str, answer: DeviceAnswer, now: Millis) -> bool {
        let mut logins = self.current(now);
        let found = waiting(&mut logins, user_code);
        found.map(|login| login.answer = Some(answer)).is_some()
    }

    /// Returns the state of a login. A login that was answered ends.
    pub(crate) fn poll(&self, code_hash: [u8; 32], now: Millis) -> Polled {
        let mut logins = self.current(now);
        let position = logins.iter().position(|login| is_same(&login.code_hash, &code_hash));
        let Some(position) = position else { return Polled::Unknown };
        let Some(login) = logins.get_mut(position) else { return Polled::Unknown };
        let interval = u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX);
        let is_too_soon = |last| now < last + interval;
        if login.polled.replace(now).is_some_and(is_too_soon) {
            return Polled::TooSoon;
        }
        if login.answer.is_none() {
            return Polled::Waiting;
        }
        let DeviceLogin { request, answer, .. } = logins.swap_remove(position);
        match answer {
            Some(DeviceAnswer::Permitted { person, scopes }) => {
                Polled::Permitted { request, person, scopes }
            }
            Some(DeviceAnswer::Denied) | None => Polled::Denied,
        }
    }

    /// Returns the logins without those that have expired.
    fn current(&self, now: Millis) -> MutexGuard<'_, Vec<DeviceLogin>> {
        let mut logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        logins.retain(|login| now < login.expires);
        logins
    }
}

/// Returns the letters of a user code that a person typed, in which case and separators do not count.
fn letters(typed: &str) -> String {
    typed.chars().filter(char::is_ascii_alphabetic).map(|c| c.to_ascii_uppercase()).collect()
}

fn waiting<'a>(logins: &'a mut [DeviceLogin], typed: &str) -> Option<&'a mut DeviceLogin> {
    let code = letters(typed);
    logins.iter_mut().find(|login| login.user_code == code && login.answer.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Millis = 1000;

    fn logins() -> DeviceLogins {
        DeviceLogins::new(Duration::from_secs(5))
    }

    fn request(from: &str) -> DeviceRequest {
        DeviceRequest { name: "laptop".to_owned(), scopes: Vec::new(), from: from.to_owned() }
    }

    fn permitted() -> DeviceAnswer {
        let person = TenantKey("team-7".parse().unwrap(), "person:https://id#a".parse().unwrap());
        DeviceAnswer::Permitted { person, scopes: vec![Scope::BoxesRead] }
    }

    #[test]
    fn permitted_login_is_returned_once() {
        let logins = logins();
        let code = logins.start([1; 32], *b"abcdefgh", request("10.0.0.1"), 0).unwrap();
        assert_eq!(code.len(), USER_CODE);
        let typed = format!(" {}-{}", code[..4].to_ascii_lowercase(), &code[4..]);
        assert_eq!(logins.find(&typed, 0), Some((request("10.0.0.1"), LOGIN_TIME)));
        assert_eq!(logins.poll([1; 32], 0), Polled::Waiting);
        assert!(logins.answer(&typed, permitted(), SECOND));
        assert!(!logins.answer(&typed, DeviceAnswer::Denied, SECOND), "it is answered");
        assert_eq!(logins.find(&typed, SECOND), None);
        let DeviceAnswer::Permitted { person, scopes } = permitted() else { unreachable!() };
        let expect = Polled::Permitted { request: request("10.0.0.1"), person, scopes };
        assert_eq!(logins.poll([1; 32], 5 * SECOND), expect);
        assert_eq!(logins.poll([1; 32], 10 * SECOND), Polled::Unknown);
    }

    #[test]
    fn denied_expired_and_wrong_codes_give_no_token() {
        let logins = logins();
        let code = logins.start([1; 32], [0; 8], request("a"), 0).unwrap();
        assert_eq!(logins.poll([2; 32], 0), Polled::Unknown);
        assert!(logins.answer(&code, DeviceAnswer::Denied, 0));
        assert_eq!(logins.poll([1; 32], 0), Polled::Denied);
        assert_eq!(logins.poll([1; 32], 0), Polled::Unknown);
        let code = logins.start([3; 32], [0; 8], request("a"), 0).unwrap();
        assert!(logins.find(&code, LOGIN_TIME - 1).is_some(), "control");
        assert!(!logins.answer(&code, permitted(), LOGIN_TIME));
        assert_eq!(logins.poll([3; 32], LOGIN_TIME), Polled::Unknown);
    }

    #[test]
    fn f14_program_that_asks_too_often_or_starts_too_many_logins_is_refused() {
        let logins = logins();
        logins.start([1; 32], [0; 8], request("a"), 0).unwrap();
        assert_eq!(logins.poll([1; 32], 0), Polled::Waiting);
        assert_eq!(logins.poll([1; 32], 4 * SECOND), Polled::TooSoon);
        assert_eq!(logins.poll([1; 32], 9 * SECOND), Polled::Waiting);
        let same = logins.start([2; 32], [0; 8], request("a"), 0);
        assert_eq!(same, Err(TooManyLogins), "two logins never have the same user code");
        let start = |number: u8, from: &str| {
            logins.start([number; 32], [number, number / 20, 1, 1, 1, 1, 1, 1], request(from), 0)
        };
        for number in 1..16 {
            start(number, "a").unwrap();
        }
        assert_eq!(start(16, "a"), Err(TooManyLogins));
        assert!(start(17, "b").is_ok(), "control: another address");
    }
}
