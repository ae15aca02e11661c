//! Finds out who sends a request: a person with a session, the holder of a token, or the user of the local
//! socket.
//!
//! **Invariant:** only this module creates an [`Identity`], and with it the tenant of a request.

use std::net::IpAddr;

use belljar_model::caller::{Caller, ClientId, Principal, TenantId};
use http::header::{AUTHORIZATION, COOKIE, HOST, HeaderName, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Method};

use super::access::{Grant, Role, TokenKind};
use super::app::App;
use super::head::Entrance;
use super::problem::{Problem, ProblemKind};
use super::signing::{Purpose, SigningKey};
use super::store::{Millis, Store, TenantKey, TokenLimits, TokenRow};
use crate::auth::api_token::{self, ApiToken, TokenId};

/// The name of the cookie of a session. Browsers accept the prefix only from the host itself.
pub(crate) const COOKIE_NAME: &str = "__Host-belljar";

/// The header with the value that a page must send with every change.
const CSRF: HeaderName = HeaderName::from_static("x-belljar-csrf");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The time after which an unused session ends.
const IDLE: Millis = 8 * 60 * 60 * 1000;
/// The time after which an unused session on the loopback interface ends.
const LOOPBACK_IDLE: Millis = 30 * 24 * 60 * 60 * 1000;

const HOUR: Millis = 60 * 60 * 1000;
/// The time after which the unused token of a device expires.
pub(crate) const CLI_IDLE: Millis = 12 * HOUR;
/// The time after which the token of a device expires in any case.
const CLI_TIME: Millis = 30 * 24 * HOUR;
/// The time between two renewals of a token.
const CLI_RENEWAL: Millis = HOUR;

/// The sender of a request.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) caller: Caller,
    /// The role of the person, or of the maker of the token.
    pub(crate) role: Role,
    pub(crate) grant: Grant,
    pub(crate) credential: Credential,
    /// The limits of a token; people have none.
    pub(crate) limits: TokenLimits,
    /// The principals whose objects belong to the sender: a person owns the objects of their tokens too. An
    /// agent owns only its own objects.
    own: Vec<Principal>,
}

/// The credential of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Credential {
    LocalSocket,
    /// A session with its public id and the value against forged requests.
    Session {
        id: String,
        csrf: String,
        /// The time of the login.
        created: Millis,
        expires: Millis,
    },
    Token {
        id: TokenId,
        expires: Millis,
    },
}

impl Identity {
    /// The age of a login up to which its person may do acts that cannot be undone or give rights away.
    pub(crate) const RECENT: Millis = 10 * 60 * 1000;

    pub(crate) const fn tenant(&self) -> &TenantId {
        &self.caller.tenant
    }

    /// Returns the key of an object of the tenant.
    pub(crate) fn key<T>(&self, object: T) -> TenantKey<T> {
        TenantKey(self.caller.tenant.clone(), object)
    }

    /// Returns the identity of the user that runs the server.
    pub(crate) fn local(caller: Caller) -> Self {
        let (role, grant) = (Role::Owner, Grant::Person);
        let (credential, limits) = (Credential::LocalSocket, TokenLimits::default());
        Self { caller, role, grant, credential, limits, own: Vec::new() }
    }

    /// Refuses a sender whose login is too old for an act of the owner. A token is refused as well.
    pub(crate) fn check_login_age(&self, now: Millis) -> Result<(), Problem> {
        let is_recent = match &self.credential {
            Credential::LocalSocket => true,
            Credential::Session { created, .. } => now.saturating_sub(*created) < Self::RECENT,
            Credential::Token { .. } => false,
        };
        if is_recent {
            return Ok(());
        }
        let detail = "this operation needs a login of the last 10 minutes: log in again with the page \
                      /auth/oidc or with the link that `belljar login-link` prints, then repeat it";
        Err(Problem::new(ProblemKind::LOGIN_AGE, detail))
    }

    /// Returns the principals whose objects belong to the sender.
    pub(crate) fn principals(&self) -> impl Iterator<Item = &Principal> {
        std::iter::once(&self.caller.principal).chain(&self.own)
    }

    /// Refuses a token on a client outside of the networks of the token.
    pub(crate) fn check_network(&self, peer: Option<IpAddr>) -> Result<(), Problem> {
        let networks = &self.limits.networks;
        let is_in = |address| networks.iter().any(|network| network.contains(address));
        if networks.is_empty() || peer.is_some_and(is_in) {
            return Ok(());
        }
        let detail = "this token cannot be used from the address of this client; GET /v1/tokens \
                      lists the networks of a token";
        Err(Problem::new(ProblemKind::FORBIDDEN, detail))
    }

    /// Returns whether an object that this principal made belongs to the sender.
    pub(crate) fn owns(&self, maker: &Principal) -> bool {
        *maker == self.caller.principal || self.own.contains(maker)
    }
}

/// A credential as the client sent it.
enum Shown<'a> {
    Nothing,
    Token(&'a str),
    Session(&'a str),
}

/// The result of a check of a credential.
pub(crate) enum Authenticated {
    /// The request has no credential.
    No,
    Yes(Box<Identity>),
    /// The credential is unknown, expired or revoked.
    Invalid,
}

/// Authenticates a request. Blocks, because it reads the database.
pub(crate) fn authenticate(
    app: &App,
    parts: &Parts,
    entrance: Entrance,
) -> Result<Authenticated, Problem> {
    if entrance == Entrance::LocalSocket {
        return Ok(Authenticated::Yes(Box::new(Identity::local(app.owner.clone()))));
    }
    let now = app.now();
    let found = match shown(&parts.headers)? {
        Shown::Nothing => return Ok(Authenticated::No),
        Shown::Token(text) => of_token(&app.store, text, now)?,
        Shown::Session(secret) => {
            let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
            let idle = if app.address.is_loopback { LOOPBACK_IDLE } else { IDLE };
            let host = host.unwrap_or_default();
            of_session(&app.store, &app.key, secret, host, (now, idle))?
        }
    };
    Ok(found.map_or(Authenticated::Invalid, |identity| Authenticated::Yes(Box::new(identity))))
}

/// Finds the credential of a request. Two credentials are refused, because they can contradict each other.
fn shown(headers: &HeaderMap) -> Result<Shown<'_>, Problem> {
    let refused = |detail: &str| Err(Problem::new(ProblemKind::BAD_REQUEST, detail));
    let token = match headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap_or_default()) {
        None => None,
        Some(value) => match value.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Some(token.trim()),
            _ => {
                let detail = "the header `Authorization` must be `Bearer TOKEN`";
                return Err(Problem::new(ProblemKind::UNAUTHENTICATED, detail));
            }
        },
    };
    let mut sessions = cookies(headers, COOKIE_NAME);
    let (session, second) = (sessions.next(), sessions.next());
    match (token, session, second) {
        (_, _, Some(_)) => refused("the cookie of the session occurs more than once"),
        (Some(_), Some(_), None) => refused("send a token or the cookie of a session, not both"),
        (Some(token), None, None) => Ok(Shown::Token(token)),
        (None, Some(session), None) => Ok(Shown::Session(session)),
        (None, None, None) => Ok(Shown::Nothing),
    }
}

/// Returns the values of all cookies with a name.
fn cookies<'h>(headers: &'h HeaderMap, wanted: &str) -> impl Iterator<Item = &'h str> {
    let sent = headers.get(COOKIE).map(|value| value.to_str().unwrap_or_default());
    let named = sent.unwrap_or_default().split(';');
    let named = named.filter_map(|pair| pair.trim().split_once('='));
    named.filter(move |(name, _)| *name == wanted).map(|(_, value)| value)
}

/// Returns the value of a cookie. `None` if the request has no such cookie, or several.
pub(crate) fn single_cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut found = cookies(headers, name);
    let (first, second) = (found.next(), found.next());
    first.filter(|_| second.is_none())
}

fn of_token(store: &Store, text: &str, now: Millis) -> Result<Option<Identity>, Problem> {
    let Some(token) = ApiToken::parse(text) else { return Ok(None) };
    let Some((row, role)) = store.token(&token.id)? else { return Ok(None) };
    let is_valid = api_token::is_same(&row.hash, &token.hash());
    if !is_valid || row.revoked.is_some() || row.expires <= now {
        return Ok(None);
    }
    let Ok(principal) = Principal::new(row.kind.principal(), &row.name) else { return Ok(None) };
    let maker = TenantKey(row.key.0.clone(), row.maker.clone());
    let own = match row.kind {
        TokenKind::Service | TokenKind::Cli => store.principals_of(&maker)?,
        TokenKind::Agent => Vec::new(),
    };
    let mut start = [0; 8];
    start.iter_mut().zip(&row.hash).for_each(|(to, from)| *to = *from);
    let client = Some(ClientId::of_token(api_token_client(start)));
    let expires = match row.kind {
        TokenKind::Cli => renewed(store, &row, now)?,
        TokenKind::Service | TokenKind::Agent => row.expires,
    };
    let caller = Caller { principal, tenant: row.key.0, session: None, client };
    let grant = Grant::Token(row.kind, row.scopes);
    let credential = Credential::Token { id: row.key.1, expires };
    Ok(Some(Identity { caller, role, grant, credential, limits: row.limits, own }))
}

/// Renews the token of a device that is used, and returns the time at which it expires.
fn renewed(store: &Store, row: &TokenRow, now: Millis) -> Result<Millis, Problem> {
    let Some(renewed) = renewal(row.created, row.expires, now) else { return Ok(row.expires) };
    store.renew(&row.key, renewed)?;
    Ok(renewed)
}

/// Returns the new time at which the token of a device expires. `None` if it stays the same, so that the row is not
/// written for every request.
fn renewal(created: Millis, expires: Millis, now: Millis) -> Option<Millis> {
    let renewed = now.saturating_add(CLI_IDLE).min(created.saturating_add(CLI_TIME));
    (renewed >= expires.saturating_add(CLI_RENEWAL)).then_some(renewed)
}

/// Returns the digest for the id of a client. It does not reveal a part of the stored hash.
fn api_token_client(hash: [u8; 8]) -> [u8; 8] {
    let digest = api_token::hash(&format!("belljar client id\n{}", hex::encode(hash)));
    let mut start = [0; 8];
    start.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
    start
}

fn of_session(
    store: &Store,
    key: &SigningKey,
    secret: &str,
    host: &str,
    (now, idle): (Millis, Millis),
) -> Result<Option<Identity>, Problem> {
    let hash = api_token::hash(secret);
    let Some((row, role)) = store.session(hash, now, idle)? else { return Ok(None) };
    if !row.host.eq_ignore_ascii_case(host) {
        return Ok(None);
    }
    let own = store.principals_of(&row.owner)?;
    let TenantKey(tenant, principal) = row.owner;
    let caller = Caller { principal, tenant, session: None, client: None };
    let csrf = key.sign(Purpose::Csrf, &hash);
    let (created, expires) = (row.created, row.expires);
    let credential = Credential::Session { id: row.id, csrf, created, expires };
    let limits = TokenLimits::default();
    Ok(Some(Identity { caller, role, grant: Grant::Person, credential, limits, own }))
}

/// Refuses a change under a session unless a page of this server sent it.
pub(crate) fn check_forgery(parts: &Parts, identity: &Identity) -> Result<(), Problem> {
    let Credential::Session { csrf, .. } = &identity.credential else { return Ok(()) };
    if matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    let header =
        |name: &HeaderName| parts.headers.get(name).map(|it| it.to_str().unwrap_or_default());
    let is_same_site = header(&FETCH_SITE).is_none_or(|site| site == "same-origin");
    let shown = header(&CSRF).unwrap_or_default();
    // The check of the head has compared `Origin` with the host.
    let has_origin = parts.headers.contains_key(ORIGIN);
    if has_origin && is_same_site && api_token::is_same(csrf.as_bytes(), shown.as_bytes()) {
        return Ok(());
    }
    let detail =
        "a change needs the headers `Origin` and `X-Belljar-Csrf`; /v1/me returns the value";
    Err(Problem::new(ProblemKind::FORGED, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECENT: Millis = Identity::RECENT;

    #[test]
    fn f17_token_with_networks_is_refused_on_other_clients() {
        let mut who = Identity::local(Caller::local(1000));
        let check = |who: &Identity, peer: &str| who.check_network(Some(peer.parse().unwrap()));
        check(&who, "192.0.2.1").unwrap();
        who.limits.networks = vec!["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()];
        for peer in ["10.9.9.9", "::ffff:10.1.1.1", "::1"] {
            check(&who, peer).unwrap();
        }
        for peer in ["192.0.2.1", "::2"] {
            assert_eq!(check(&who, peer).unwrap_err().kind, ProblemKind::FORBIDDEN, "{peer}");
        }
        who.check_network(None).unwrap_err();
    }

    #[test]
    fn f17_token_of_a_device_is_renewed_while_it_is_used_and_for_30_days_at_most() {
        assert_eq!(renewal(0, CLI_IDLE, HOUR - 1), None);
        assert_eq!(renewal(0, CLI_IDLE, HOUR), Some(CLI_IDLE + HOUR));
        let (last, end) = (CLI_TIME - 11 * HOUR, CLI_TIME);
        assert_eq!(renewal(0, CLI_TIME - 2 * HOUR, last), Some(end));
        assert_eq!(renewal(0, end, CLI_TIME - 1), None);
    }

    #[test]
    fn cookie_that_occurs_twice_has_no_value() {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, "a=1; b=2; a=3".parse().unwrap());
        assert_eq!(single_cookie(&headers, "b"), Some("2"));
        assert_eq!((single_cookie(&headers, "a"), single_cookie(&headers, "c")), (None, None));
    }

    #[test]
    fn f17_acts_of_the_owner_need_a_login_of_the_last_10_minutes() {
        let mut who = Identity::local(Caller::local(1000));
        who.check_login_age(RECENT * 9).unwrap();
        who.credential = Credential::Session {
            id: String::new(),
            csrf: String::new(),
            created: RECENT,
            expires: RECENT * 99,
        };
        who.check_login_age(RECENT * 2 - 1).unwrap();
        let problem = who.check_login_age(RECENT * 2).unwrap_err();
        assert_eq!(problem.kind, ProblemKind::LOGIN_AGE);
        let id = TokenId::parse("0123abcd").unwrap();
        who.credential = Credential::Token { id, expires: RECENT };
        assert_eq!(who.check_login_age(0).unwrap_err().kind, ProblemKind::LOGIN_AGE);
    }
}
