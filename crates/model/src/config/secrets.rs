//! Parser for `[secret.NAME]`, which declares the use of a secret. The value is never in this file.

use super::keys::{
    BUDGET, Invalid, ParseValue, Value, fill, invalid, list, scalar, set, table, text,
};
use crate::net::{
    Budget, Capture, ClientAuth, Grant, HmacAlgorithm, HmacEncoding, HostPattern, Method,
    PathPattern, SecretDecl, SecretKind, SecretName, Shape, SignedMessage, Slot, TokenBody,
    TokenUrl, header_name,
};
use crate::plan::Label;

/// The parsed keys of a secret's declaration, before they are checked together.
#[derive(Debug, Default)]
struct Raw {
    hosts: Vec<HostPattern>,
    slots: Option<Vec<Slot>>,
    methods: Option<Vec<Method>>,
    paths: Option<Vec<PathPattern>>,
    shape: Option<Shape>,
    env: Option<String>,
    captures: Vec<Capture>,
    budget: Budget,
    deny_when: Vec<Label>,
    kind: Option<String>,
    region: Option<String>,
    service: Option<String>,
    header: Option<String>,
    algorithm: Option<HmacAlgorithm>,
    encoding: Option<HmacEncoding>,
    prefix: Option<String>,
    message: Option<SignedMessage>,
    timestamp_header: Option<String>,
    token_url: Option<TokenUrl>,
    grant: Option<Grant>,
    client_id: Option<String>,
    client_secret: Option<SecretName>,
    auth: Option<ClientAuth>,
    token_body: Option<TokenBody>,
    scope: Option<String>,
}

const KEYS: [(&str, ParseValue<Raw>); 25] = [
    ("hosts", |raw, value| fill(&mut raw.hosts, list(value))),
    ("slots", |raw, value| set(&mut raw.slots, list(value))),
    ("methods", |raw, value| set(&mut raw.methods, list(value))),
    ("paths", |raw, value| set(&mut raw.paths, list(value))),
    ("shape", |raw, value| set(&mut raw.shape, scalar(value))),
    ("env", |raw, value| set(&mut raw.env, text(value))),
    ("captures", |raw, value| fill(&mut raw.captures, list(value))),
    ("budget", |raw, value| table(&mut raw.budget, &BUDGET, value)),
    ("deny-when", |raw, value| fill(&mut raw.deny_when, list(value))),
    ("kind", |raw, value| set(&mut raw.kind, kind(value))),
    ("region", |raw, value| set(&mut raw.region, plain(value))),
    ("service", |raw, value| set(&mut raw.service, plain(value))),
    ("header", |raw, value| set(&mut raw.header, header(value))),
    ("algorithm", |raw, value| set(&mut raw.algorithm, scalar(value))),
    ("encoding", |raw, value| set(&mut raw.encoding, scalar(value))),
    ("prefix", |raw, value| set(&mut raw.prefix, plain(value))),
    ("message", |raw, value| set(&mut raw.message, scalar(value))),
    ("timestamp-header", |raw, value| set(&mut raw.timestamp_header, header(value))),
    ("token-url", |raw, value| set(&mut raw.token_url, scalar(value))),
    ("grant", |raw, value| set(&mut raw.grant, scalar(value))),
    ("client-id", |raw, value| set(&mut raw.client_id, plain(value))),
    ("client-secret", |raw, value| set(&mut raw.client_secret, scalar(value))),
    ("auth", |raw, value| set(&mut raw.auth, scalar(value))),
    ("token-body", |raw, value| set(&mut raw.token_body, scalar(value))),
    ("scope", |raw, value| set(&mut raw.scope, plain(value))),
];

/// Parses the declaration of a secret; an error about the whole declaration is `Invalid::Here`.
pub(super) fn read(name: SecretName, value: &Value<'_>) -> Result<SecretDecl, Invalid> {
    let mut raw = Raw::default();
    table(&mut raw, &KEYS, value)?;
    let kind = raw.kind()?;
    let base = SecretDecl::token(name, raw.hosts);
    let secret = SecretDecl {
        slots: raw.slots.unwrap_or(base.slots),
        methods: raw.methods.map(|methods| methods.into_iter().collect()),
        paths: raw.paths,
        shape: raw.shape.unwrap_or(base.shape),
        env: raw.env,
        kind,
        captures: raw.captures,
        budget: raw.budget,
        deny_when: raw.deny_when.into_iter().collect(),
        ..SecretDecl { slots: Vec::new(), shape: Shape::default(), ..base }
    };
    secret.check().map_err(invalid)?;
    Ok(secret)
}

impl Raw {
    fn kind(&mut self) -> Result<SecretKind, Invalid> {
        let kind = self.kind.clone().unwrap_or_else(|| "token".to_owned());
        let keys = [
            ("sigv4", "region", self.region.is_some()),
            ("sigv4", "service", self.service.is_some()),
            ("hmac", "header", self.header.is_some()),
            ("hmac", "algorithm", self.algorithm.is_some()),
            ("hmac", "encoding", self.encoding.is_some()),
            ("hmac", "prefix", self.prefix.is_some()),
            ("hmac", "message", self.message.is_some()),
            ("hmac", "timestamp-header", self.timestamp_header.is_some()),
            ("oauth2", "token-url", self.token_url.is_some()),
            ("oauth2", "grant", self.grant.is_some()),
            ("oauth2", "client-id", self.client_id.is_some()),
            ("oauth2", "client-secret", self.client_secret.is_some()),
            ("oauth2", "auth", self.auth.is_some()),
            ("oauth2", "token-body", self.token_body.is_some()),
            ("oauth2", "scope", self.scope.is_some()),
        ];
        let stray = keys.into_iter().find(|(of, _, is_set)| *is_set && *of != kind);
        if let Some((of, key, _)) = stray {
            return Err(invalid(format!("`{key}` is only possible with `kind = \"{of}\"`")));
        }
        Ok(match kind.as_str() {
            "sigv4" => {
                SecretKind::SigV4 { region: self.region.take(), service: self.service.take() }
            }
            "hmac" => SecretKind::Hmac {
                header: needed("header", self.header.take())?,
                algorithm: self.algorithm.unwrap_or_default(),
                encoding: self.encoding.unwrap_or_default(),
                prefix: self.prefix.take().unwrap_or_default(),
                message: self.message.take().unwrap_or_default(),
                timestamp_header: self.timestamp_header.take(),
            },
            "oauth2" => SecretKind::OAuth2 {
                token_url: needed("token-url", self.token_url.take())?,
                grant: self.grant.unwrap_or_default(),
                client_id: self.client_id.take(),
                client_secret: self.client_secret.take(),
                auth: self.auth.unwrap_or_default(),
                body: self.token_body.unwrap_or_default(),
                scope: self.scope.take(),
            },
            _ => SecretKind::Token,
        })
    }
}

fn needed<T>(key: &str, value: Option<T>) -> Result<T, Invalid> {
    value.ok_or_else(|| invalid(format!("`{key}` is missing")))
}

fn kind(value: &Value<'_>) -> Result<String, Invalid> {
    let kind = text(value)?;
    if SecretKind::NAMES.contains(&kind.as_str()) {
        return Ok(kind);
    }
    Err(invalid(format!("must be one of {}", SecretKind::NAMES.join(", "))))
}

fn header(value: &Value<'_>) -> Result<String, Invalid> {
    header_name(&text(value)?).map_err(invalid)
}

/// Parses a text that the broker copies into a header or a form unchanged.
fn plain(value: &Value<'_>) -> Result<String, Invalid> {
    let text = text(value)?;
    if text.len() > 256 || !text.chars().all(|c| matches!(c, ' '..='~')) {
        return Err(invalid("must be one short line of plain characters"));
    }
    Ok(text)
}
