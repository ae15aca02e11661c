//! An identity provider of a test, which says what the test wants, and ID tokens with any content.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RSA_PSS_SHA256, RsaKeyPair,
};
use aws_lc_rs::{hmac, rand::SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use belljar_testkit::{Authority, Received, Reply, Upstream};
use serde_json::{Value, json};

/// The client id of Belljar at the provider.
pub(crate) const CLIENT: &str = "belljar";

/// A provider that returns the replies of the test.
pub(crate) struct Provider {
    pub(crate) issuer: String,
    upstream: Upstream,
    replies: Arc<Mutex<BTreeMap<String, Reply>>>,
}

impl Provider {
    /// Starts a provider without TLS that has these keys.
    pub(crate) fn start(keys: &[&Key]) -> Self {
        let replies = Arc::default();
        let upstream = Upstream::plain(handler(&replies));
        let issuer = format!("http://127.0.0.1:{}", upstream.address().port());
        Self::with(issuer, upstream, replies, keys)
    }

    /// Starts a provider with TLS.
    pub(crate) fn tls(authority: &Authority, keys: &[&Key]) -> Self {
        let replies = Arc::default();
        let upstream = Upstream::tls(authority, &["localhost"], handler(&replies));
        let issuer = format!("https://localhost:{}", upstream.address().port());
        Self::with(issuer, upstream, replies, keys)
    }

    fn with(
        issuer: String,
        upstream: Upstream,
        replies: Arc<Mutex<BTreeMap<String, Reply>>>,
        keys: &[&Key],
    ) -> Self {
        let provider = Self { issuer, upstream, replies };
        provider.describe(|_| ());
        provider.set_keys(keys);
        provider
    }

    /// Sets the description of the provider, after a change.
    pub(crate) fn describe(&self, change: impl FnOnce(&mut Value)) {
        let issuer = &self.issuer;
        let mut description = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "jwks_uri": format!("{issuer}/keys"),
        });
        change(&mut description);
        self.reply("/.well-known/openid-configuration", Reply::new(200, description.to_string()));
    }

    pub(crate) fn set_keys(&self, keys: &[&Key]) {
        let keys: Vec<Value> = keys.iter().map(|key| key.public()).collect();
        self.reply("/keys", Reply::new(200, json!({ "keys": keys }).to_string()));
    }

    /// Sets the ID token that the token endpoint returns.
    pub(crate) fn set_token(&self, token: &str) {
        let body = json!({ "id_token": token, "access_token": "a", "token_type": "Bearer" });
        self.reply("/token", Reply::new(200, body.to_string()));
    }

    pub(crate) fn reply(&self, path: &str, reply: Reply) {
        self.replies.lock().unwrap().insert(path.to_owned(), reply);
    }

    /// Returns the requests for a path.
    pub(crate) fn received(&self, path: &str) -> Vec<Received> {
        let all = self.upstream.received().into_iter();
        all.filter(|received| received.path == path).collect()
    }
}

fn handler(
    replies: &Arc<Mutex<BTreeMap<String, Reply>>>,
) -> impl Fn(&Received) -> Reply + Send + Sync + 'static {
    let replies = Arc::clone(replies);
    move |received| {
        let known = replies.lock().unwrap().get(&received.path).cloned();
        known.unwrap_or_else(|| Reply::new(404, "not found"))
    }
}

/// A key of a provider.
pub(crate) struct Key {
    pub(crate) id: String,
    pair: Pair,
}

enum Pair {
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Rsa(Box<RsaKeyPair>),
}

impl Key {
    pub(crate) fn ec(id: &str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        Self { id: id.to_owned(), pair: Pair::Ec(pair) }
    }

    pub(crate) fn ed(id: &str) -> Self {
        Self { id: id.to_owned(), pair: Pair::Ed(Ed25519KeyPair::generate().unwrap()) }
    }

    pub(crate) fn rsa(id: &str) -> Self {
        let pair = Box::new(RsaKeyPair::generate(KeySize::Rsa2048).unwrap());
        Self { id: id.to_owned(), pair: Pair::Rsa(pair) }
    }

    /// Returns the public key as a JWK.
    fn public(&self) -> Value {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let id = &self.id;
        match &self.pair {
            Pair::Ec(pair) => {
                let point = pair.public_key().as_ref();
                let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
                json!({ "kid": id, "kty": "EC", "crv": "P-256", "x": x, "y": y, "use": "sig" })
            }
            Pair::Ed(pair) => {
                let x = encode(pair.public_key().as_ref());
                json!({ "kid": id, "kty": "OKP", "crv": "Ed25519", "x": x })
            }
            Pair::Rsa(_) => {
                let (n, e) = self.rsa_numbers();
                json!({ "kid": id, "kty": "RSA", "n": encode(&n), "e": encode(&e) })
            }
        }
    }

    /// Returns the modulus and the exponent of a public key, from its DER form of fixed length.
    fn rsa_numbers(&self) -> (Vec<u8>, Vec<u8>) {
        let Pair::Rsa(pair) = &self.pair else { panic!("no RSA key") };
        let der = pair.public_key().as_ref();
        assert_eq!((der.len(), &der[265..267]), (270, &[2, 3][..]));
        (der[9..265].to_vec(), der[267..].to_vec())
    }

    /// The bytes of the public key, which an attacker uses as a symmetric key.
    pub(crate) fn public_bytes(&self) -> Vec<u8> {
        match &self.pair {
            Pair::Ec(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Ed(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Rsa(pair) => pair.public_key().as_ref().to_vec(),
        }
    }

    /// Returns a token with these claims, signed with this key.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let algorithm = match &self.pair {
            Pair::Ec(_) => "ES256",
            Pair::Ed(_) => "EdDSA",
            Pair::Rsa(_) => "RS256",
        };
        self.sign_as(&json!({ "alg": algorithm, "kid": self.id, "typ": "JWT" }), claims)
    }

    /// Returns a token with this head. The signature is that of its algorithm, if the key has it.
    pub(crate) fn sign_as(&self, head: &Value, claims: &Value) -> String {
        let message = message(head, claims);
        let random = SystemRandom::new();
        let signature = match &self.pair {
            Pair::Ec(pair) => pair.sign(&random, message.as_bytes()).unwrap().as_ref().to_vec(),
            Pair::Ed(pair) => pair.sign(message.as_bytes()).as_ref().to_vec(),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                let bytes = message.as_bytes();
                if head["alg"] == "PS256" {
                    pair.sign(&RSA_PSS_SHA256, &random, bytes, &mut signature).unwrap();
                } else {
                    pair.sign(&RSA_PKCS1_SHA256, &random, bytes, &mut signature).unwrap();
                }
                signature
            }
        };
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// Returns the text of a token that is signed.
pub(crate) fn message(head: &Value, claims: &Value) -> String {
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", encode(head), encode(claims))
}

/// Returns a token that is signed with a symmetric key.
pub(crate) fn symmetric(secret: &[u8], id: &str, claims: &Value) -> String {
    let message = message(&json!({ "alg": "HS256", "kid": id }), claims);
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag))
}
