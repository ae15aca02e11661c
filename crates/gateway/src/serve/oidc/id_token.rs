//! Checks of ID tokens: the signature by a key of the provider, and the claims.
//!
//! **Invariant:** the algorithm of a signature is one of [`ALGORITHMS`], all with public keys, and the key is one
//! of the provider with the type of this algorithm. Nothing else in the head of a token has an effect.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Identified;
use crate::auth::api_token::is_same;

/// The accepted algorithms with their names.
const ALGORITHMS: [(&str, Algorithm); 4] = [
    ("RS256", Algorithm::RS256),
    ("PS256", Algorithm::PS256),
    ("ES256", Algorithm::ES256),
    ("EdDSA", Algorithm::EdDSA),
];

/// The difference between the clocks that is accepted, in seconds.
const SKEW: u64 = 60;
/// The maximum length of a token in bytes.
const MAX_TOKEN: usize = 64 * 1024;
/// The maximum number of keys of a provider that are used.
const MAX_KEYS: usize = 64;
/// The maximum length of the name of a person (OpenID Connect Core, section 2).
const MAX_SUBJECT: usize = 255;
/// The maximum number of groups of a person that are used.
const MAX_GROUPS: usize = 1000;

/// Why an ID token is refused. The texts continue "the ID token".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenFault {
    #[error("is malformed")]
    Malformed,
    #[error("is not signed with RS256, PS256, ES256 or EdDSA")]
    Algorithm,
    #[error("has critical extensions, which this server does not know")]
    Critical,
    #[error("is signed with a key that the identity provider does not list")]
    UnknownKey,
    #[error("has an invalid signature")]
    Signature,
    #[error("has another issuer")]
    Issuer,
    #[error("is for another client")]
    Audience,
    #[error("was issued to another client")]
    Party,
    #[error("has expired; check the clocks of both machines")]
    Expired,
    #[error("was issued in the future; check the clocks of both machines")]
    Future,
    #[error("is older than this login; check the clocks of both machines")]
    Old,
    #[error("belongs to another login")]
    Nonce,
    #[error("has no valid subject")]
    Subject,
    #[error("has no valid claim `{0}`")]
    Claim(&'static str),
}

/// The claims of a token with a valid signature.
#[derive(Debug)]
pub(super) struct Claims(Map<String, Value>);

/// A token whose signature was not checked.
pub(super) struct IdToken<'t> {
    /// The signed text: head and claims.
    message: &'t str,
    claims: &'t str,
    signature: &'t str,
    algorithm: Algorithm,
    key: Option<String>,
}

/// The part of the head that has an effect.
#[derive(Deserialize)]
struct Head {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

impl<'t> IdToken<'t> {
    pub(super) fn parse(token: &'t str) -> Result<Self, TokenFault> {
        if token.len() > MAX_TOKEN {
            return Err(TokenFault::Malformed);
        }
        let (message, signature) = token.rsplit_once('.').ok_or(TokenFault::Malformed)?;
        let (head, claims) = message.split_once('.').ok_or(TokenFault::Malformed)?;
        if claims.contains('.') {
            return Err(TokenFault::Malformed);
        }
        let head: Head = decoded(head).ok_or(TokenFault::Malformed)?;
        let algorithm = ALGORITHMS.iter().find(|(name, _)| *name == head.alg);
        let (_, algorithm) = *algorithm.ok_or(TokenFault::Algorithm)?;
        if head.crit.is_some() {
            return Err(TokenFault::Critical);
        }
        Ok(Self { message, claims, signature, algorithm, key: head.kid })
    }

    /// Checks the signature, and returns the claims.
    pub(super) fn verified(&self, keys: &[Jwk]) -> Result<Claims, TokenFault> {
        let fits = |key: &&Jwk| {
            let is_named = self.key.is_none() || key.common.key_id == self.key;
            is_named && can_verify(key, self.algorithm)
        };
        let fitting: Vec<&Jwk> = keys.iter().filter(fits).collect();
        // Without a name the key is known only if there is no choice.
        if fitting.is_empty() || (self.key.is_none() && fitting.len() > 1) {
            return Err(TokenFault::UnknownKey);
        }
        let is_signed_by = |key: &&Jwk| {
            let message = self.message.as_bytes();
            DecodingKey::from_jwk(key).is_ok_and(|key| {
                let verify = jsonwebtoken::crypto::verify;
                verify(self.signature, message, &key, self.algorithm).unwrap_or(false)
            })
        };
        if !fitting.iter().any(is_signed_by) {
            return Err(TokenFault::Signature);
        }
        decoded(self.claims).map(Claims).ok_or(TokenFault::Malformed)
    }
}

fn decoded<T: for<'de> Deserialize<'de>>(part: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

/// Reads the keys of a provider. Keys of unknown types are skipped.
pub(super) fn keys(body: &[u8]) -> Option<Vec<Jwk>> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<Value>,
    }
    let Set { keys } = serde_json::from_slice(body).ok()?;
    let known = keys.into_iter().filter_map(|key| serde_json::from_value(key).ok());
    Some(known.take(MAX_KEYS).collect())
}

/// Returns whether a key is meant for signatures with an algorithm.
fn can_verify(key: &Jwk, algorithm: Algorithm) -> bool {
    let has_type = match (&key.algorithm, algorithm) {
        (AlgorithmParameters::RSA(_), Algorithm::RS256 | Algorithm::PS256) => true,
        (AlgorithmParameters::EllipticCurve(it), Algorithm::ES256) => {
            it.curve == EllipticCurve::P256
        }
        (AlgorithmParameters::OctetKeyPair(it), Algorithm::EdDSA) => {
            it.curve == EllipticCurve::Ed25519
        }
        _ => false,
    };
    let usage = key.common.public_key_use.as_ref();
    let is_for_signatures = usage.is_none_or(|usage| *usage == PublicKeyUse::Signature);
    let of_key = key.common.key_algorithm;
    has_type && is_for_signatures && of_key.is_none_or(|it| it == KeyAlgorithm::from(algorithm))
}

/// What the claims of a token must be. Times are in seconds since 1970.
pub(super) struct Expected<'e> {
    pub(super) issuer: &'e str,
    pub(super) client: &'e str,
    pub(super) nonce: &'e str,
    /// The claim with the groups of a person.
    pub(super) groups: &'e str,
    /// The time at which the login started.
    pub(super) started: u64,
    pub(super) now: u64,
}

impl Expected<'_> {
    /// Checks the claims, and returns the person that they describe.
    pub(super) fn check(&self, Claims(claims): &Claims) -> Result<Identified, TokenFault> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        if text("iss").ok_or(TokenFault::Claim("iss"))? != self.issuer {
            return Err(TokenFault::Issuer);
        }
        self.check_audience(claims)?;
        self.check_times(claims)?;
        let nonce = text("nonce").ok_or(TokenFault::Claim("nonce"))?;
        if !is_same(nonce.as_bytes(), self.nonce.as_bytes()) {
            return Err(TokenFault::Nonce);
        }
        let subject = text("sub").ok_or(TokenFault::Claim("sub"))?;
        let is_visible = subject.bytes().all(|byte| byte.is_ascii_graphic());
        if !(1..=MAX_SUBJECT).contains(&subject.len()) || !is_visible {
            return Err(TokenFault::Subject);
        }
        Ok(Identified { subject: subject.to_owned(), groups: self.groups(claims) })
    }

    fn check_audience(&self, claims: &Map<String, Value>) -> Result<(), TokenFault> {
        let audience = match claims.get("aud") {
            Some(Value::String(one)) => vec![one.as_str()],
            Some(Value::Array(several)) => {
                let texts = several.iter().map(Value::as_str).collect::<Option<_>>();
                texts.ok_or(TokenFault::Claim("aud"))?
            }
            _ => return Err(TokenFault::Claim("aud")),
        };
        if !audience.contains(&self.client) {
            return Err(TokenFault::Audience);
        }
        match claims.get("azp") {
            None if audience.len() > 1 => Err(TokenFault::Claim("azp")),
            None => Ok(()),
            Some(party) if party.as_str() == Some(self.client) => Ok(()),
            Some(_) => Err(TokenFault::Party),
        }
    }

    fn check_times(&self, claims: &Map<String, Value>) -> Result<(), TokenFault> {
        let time = |name: &'static str| {
            claims.get(name).and_then(Value::as_u64).ok_or(TokenFault::Claim(name))
        };
        let latest = self.now.saturating_add(SKEW);
        if time("exp")?.saturating_add(SKEW) <= self.now {
            return Err(TokenFault::Expired);
        }
        let issued = time("iat")?;
        if issued > latest {
            return Err(TokenFault::Future);
        }
        if issued.saturating_add(SKEW) < self.started {
            return Err(TokenFault::Old);
        }
        if claims.contains_key("nbf") && time("nbf")? > latest {
            return Err(TokenFault::Future);
        }
        Ok(())
    }

    /// Returns the groups of the person: a text or a list of texts.
    fn groups(&self, claims: &Map<String, Value>) -> Vec<String> {
        match claims.get(self.groups) {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(several)) => {
                let texts = several.iter().filter_map(Value::as_str).take(MAX_GROUPS);
                texts.map(str::to_owned).collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const EXPECTED: Expected<'static> = Expected {
        issuer: "https://id.example",
        client: "belljar",
        nonce: "n",
        groups: "groups",
        started: 1000,
        now: 1010,
    };

    fn claims() -> Value {
        json!({
            "iss": "https://id.example", "sub": "ada", "aud": "belljar", "exp": 1300, "iat": 1005,
            "nonce": "n", "groups": ["a", 1, "b"],
        })
    }

    fn check(claims: Value) -> Result<Identified, TokenFault> {
        let Value::Object(claims) = claims else { panic!("no object") };
        EXPECTED.check(&Claims(claims))
    }

    #[test]
    fn f11_claims_of_another_issuer_client_login_or_time_are_refused() {
        let valid = check(claims()).unwrap();
        let groups = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(valid, Identified { subject: "ada".to_owned(), groups });
        use TokenFault as Fault;
        for (name, value, fault) in [
            ("iss", json!("https://id.example/"), Fault::Issuer),
            ("iss", json!(["https://id.example"]), Fault::Claim("iss")),
            ("aud", json!("other"), Fault::Audience),
            ("aud", json!(["other"]), Fault::Audience),
            ("aud", json!(["belljar", 1]), Fault::Claim("aud")),
            ("aud", json!(["belljar", "other"]), Fault::Claim("azp")),
            ("aud", json!(null), Fault::Claim("aud")),
            ("azp", json!("other"), Fault::Party),
            ("azp", json!(null), Fault::Party),
            ("exp", json!(950), Fault::Expired),
            ("exp", json!("1300"), Fault::Claim("exp")),
            ("exp", json!(-1), Fault::Claim("exp")),
            ("iat", json!(1071), Fault::Future),
            ("iat", json!(939), Fault::Old),
            ("nbf", json!(1071), Fault::Future),
            ("nonce", json!("m"), Fault::Nonce),
            ("nonce", json!(""), Fault::Nonce),
            ("sub", json!(""), Fault::Subject),
            ("sub", json!("a b"), Fault::Subject),
            ("sub", json!("a".repeat(256)), Fault::Subject),
            ("sub", json!(7), Fault::Claim("sub")),
        ] {
            let mut changed = claims();
            changed[name] = value.clone();
            assert_eq!(check(changed), Err(fault), "{name} = {value}");
        }
        for name in ["iss", "aud", "exp", "iat", "nonce", "sub"] {
            let mut missing = claims();
            missing.as_object_mut().unwrap().remove(name);
            assert_eq!(check(missing), Err(Fault::Claim(name)), "{name}");
        }
    }

    #[test]
    fn clocks_can_differ_by_60_seconds() {
        for (name, value) in
            [("exp", json!(951)), ("iat", json!(1070)), ("iat", json!(940)), ("nbf", json!(1070))]
        {
            let mut changed = claims();
            changed[name] = value.clone();
            assert!(check(changed).is_ok(), "{name} = {value}");
        }
        let mut several = claims();
        (several["aud"], several["azp"]) = (json!(["belljar", "other"]), json!("belljar"));
        assert!(check(several).is_ok(), "several audiences and this client as the party");
    }

    #[test]
    fn groups_are_a_text_or_a_list_or_missing() {
        for (value, groups) in
            [(json!("a"), vec!["a"]), (json!(["a"]), vec!["a"]), (json!({ "a": 1 }), vec![])]
        {
            let mut changed = claims();
            changed["groups"] = value;
            assert_eq!(check(changed).unwrap().groups, groups);
        }
    }

    #[test]
    fn f11_head_of_a_token_cannot_choose_its_key_or_a_symmetric_algorithm() {
        let token = |head: Value| {
            let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
            format!("{}.{}.x", encode(&head), encode(&claims()))
        };
        for alg in ["none", "None", "HS256", "HS512", "RS384", "RS512", "ES384", "rs256", ""] {
            let fault = IdToken::parse(&token(json!({ "alg": alg }))).err();
            assert_eq!(fault, Some(TokenFault::Algorithm), "{alg}");
        }
        let critical = token(json!({ "alg": "ES256", "crit": ["b64"] }));
        assert_eq!(IdToken::parse(&critical).err(), Some(TokenFault::Critical));
        let own = json!({ "kty": "OKP", "crv": "Ed25519", "x": "x" });
        let own = token(json!({ "alg": "EdDSA", "jwk": own, "jku": "https://evil.example" }));
        assert_eq!(IdToken::parse(&own).unwrap().verified(&[]).err(), Some(TokenFault::UnknownKey));
        for text in ["", ".", "..", "a.b", "a.b.c", "a.b.c.d", &"a".repeat(MAX_TOKEN + 1)] {
            assert_eq!(IdToken::parse(text).err(), Some(TokenFault::Malformed), "{text}");
        }
    }

    #[test]
    fn key_is_used_only_for_signatures_of_its_own_type_and_algorithm() {
        let key = |value: Value| {
            let set = json!({ "keys": [value] });
            keys(set.to_string().as_bytes()).unwrap()
        };
        let fits = |value: Value| {
            let parsed = key(value);
            let of = |(name, algorithm): &(&'static str, Algorithm)| {
                parsed.iter().any(|key| can_verify(key, *algorithm)).then_some(*name)
            };
            ALGORITHMS.iter().filter_map(of).collect::<Vec<_>>()
        };
        let rsa = json!({ "kty": "RSA", "n": "AQAB", "e": "AQAB" });
        assert_eq!(fits(rsa.clone()), ["RS256", "PS256"]);
        let with = |name: &str, value: &str| {
            let mut key = rsa.clone();
            key[name] = json!(value);
            fits(key)
        };
        assert_eq!(with("alg", "PS256"), ["PS256"]);
        assert_eq!(with("alg", "RS512"), [""; 0]);
        assert_eq!(with("use", "enc"), [""; 0]);
        assert_eq!(with("use", "sig"), ["RS256", "PS256"]);
        let ec = |curve: &str| json!({ "kty": "EC", "crv": curve, "x": "x", "y": "y" });
        assert_eq!((fits(ec("P-256")), fits(ec("P-384"))), (vec!["ES256"], vec![]));
        assert_eq!(fits(json!({ "kty": "OKP", "crv": "Ed25519", "x": "x" })), ["EdDSA"]);
        assert_eq!(fits(json!({ "kty": "oct", "k": "AQAB" })), [""; 0]);
        assert_eq!(fits(json!({ "kty": "new" })), [""; 0]);
        assert!(keys(b"{}").is_none() && keys(b"[]").is_none());
    }
}
