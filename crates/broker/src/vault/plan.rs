//! Searches a request for placeholders, and plans which secrets go where, or reports misuse.
//!
//! Pure. A placeholder is valid only once, in a declared slot of its secret, over TLS, in a request
//! that both the rule and the declaration cover. Anywhere else, in any encoding, it stops the
//! request; only in a body to a host of its secret it is masked, because an agent that has printed
//! its environment repeats the placeholder in all later bodies. A request that carries a secret of
//! the operator cannot carry another credential.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use belljar_model::net::{
    Method, PathPattern, Scheme, SecretDecl, SecretKind, SecretName, Slot, Target,
};
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::json;
use super::misuse::{Misuse, MisuseKind};
use super::placeholder_set::{Meaning, PlaceholderSet};
use super::sign::sigv4;
use super::spot::{self, Form, Spot};
use super::{Secret, Vault};
use crate::rules::Permit;
use crate::target::CanonicalPath;

/// The maximum size of a request body that must be buffered.
pub const MAX_BUFFERED: usize = 16 << 20;

/// The secrets that are inserted into one request, and where. Created by [`Vault::plan`], consumed
/// by [`Vault::inject`].
#[derive(Debug)]
#[must_use]
pub struct Plan {
    pub(super) target: Target,
    pub(super) now: SystemTime,
    pub(super) uses: Vec<Use>,
    /// The slots in the body that were not checked yet.
    unseen: Vec<(usize, String)>,
    body: BodyNeed,
    /// The names of the secrets whose placeholders are masked in the buffered body.
    pub(super) masked: Vec<String>,
    /// The placeholders of the box at the time of planning; later ones can differ.
    pub(super) placeholders: Arc<PlaceholderSet>,
}

/// How the body of a request must be handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyNeed {
    /// The body is streamed, while a guard searches it for placeholders.
    Guard,
    /// The body must be collected, at most [`MAX_BUFFERED`] bytes, and passed to
    /// [`Vault::plan_body`] and [`Vault::inject`].
    Buffer,
}

/// The use of one secret at one place of a request.
#[derive(Debug, Clone)]
pub(super) struct Use {
    pub(super) secret: usize,
    pub(super) meaning: Meaning,
    pub(super) place: Place,
}

#[derive(Debug, Clone)]
pub(super) enum Place {
    Slot(Slot, Spot),
    SigV4(sigv4::Scope),
    Hmac,
}

/// The name of a used secret and its slot in the request, for the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Used {
    pub name: SecretName,
    /// The slot of the secret as in its declaration, or `sigv4`, or `hmac:HEADER`.
    pub slot: String,
}

/// The headers that usually carry credentials; a request with a secret of the operator cannot carry
/// others (A20).
const CREDENTIALS: [&str; 9] = [
    "api-key",
    "authorization",
    "job-token",
    "private-token",
    "x-access-token",
    "x-amz-security-token",
    "x-api-key",
    "x-auth-token",
    "x-goog-api-key",
];
/// The query parameters that usually carry credentials.
const CREDENTIAL_PARAMETERS: [&str; 7] = [
    "access_token",
    "api_key",
    "apikey",
    "awsaccesskeyid",
    "x-amz-credential",
    "x-amz-security-token",
    "x-amz-signature",
];

impl Plan {
    /// Returns the used secrets, which are recorded before the request is sent.
    pub fn uses<'a>(&'a self, vault: &'a Vault) -> impl Iterator<Item = Used> + 'a {
        self.uses.iter().filter_map(|used| {
            let decl = &vault.secrets.get(used.secret)?.decl;
            Some(Used { name: decl.name.clone(), slot: used.place.name(decl) })
        })
    }

    /// Returns the names of the secrets whose placeholders are masked in the buffered body.
    pub fn masked(&self) -> &[String] {
        &self.masked
    }

    pub const fn body(&self) -> BodyNeed {
        self.body
    }

    /// Returns whether no secret is inserted into the request.
    pub fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }
}

impl Place {
    fn name(&self, decl: &SecretDecl) -> String {
        match (self, &decl.kind) {
            (Self::Slot(slot, _), _) => slot.to_string(),
            (Self::SigV4(_), _) => "sigv4".to_owned(),
            (Self::Hmac, SecretKind::Hmac { header, .. }) => format!("hmac:{header}"),
            (
                Self::Hmac,
                SecretKind::Token | SecretKind::SigV4 { .. } | SecretKind::OAuth2 { .. },
            ) => "hmac".to_owned(),
        }
    }
}

impl Vault {
    /// Determines the secrets to insert into a permitted request by its head.
    pub fn plan(&self, permit: &Permit, parts: &Parts, now: SystemTime) -> Result<Plan, Misuse> {
        let placeholders = self.placeholder_set();
        let search = Search { vault: self, placeholders: &placeholders, permit, parts };
        let mut uses = search.in_headers()?;
        uses.extend(search.in_query()?);
        search.check_rest(&uses)?;
        search.check_unique(&uses)?;
        search.check_other_credentials(&uses)?;
        uses.extend(search.signatures());
        let unseen = search.body_slots();
        let body = search.body_need(&uses, &unseen);
        let target = permit.target().clone();
        Ok(Plan { target, now, uses, unseen, body, masked: Vec::new(), placeholders })
    }

    /// Determines the secrets to insert into a buffered request body.
    pub fn plan_body(
        &self,
        permit: &Permit,
        parts: &Parts,
        plan: &mut Plan,
        body: &[u8],
    ) -> Result<(), Misuse> {
        let placeholders = Arc::clone(&plan.placeholders);
        let search = Search { vault: self, placeholders: &placeholders, permit, parts };
        let mut rest = body.to_vec();
        for (secret, pointer) in std::mem::take(&mut plan.unseen) {
            let Some(used) = search.in_body(secret, &pointer, body)? else { continue };
            if let Ok(Some(found)) = json::find(&rest, &pointer) {
                rest = json::cut(&rest, &found.span).unwrap_or_default();
            }
            // Two secrets can share a slot; the first one wins.
            let is_new =
                |it: &Use| !matches!(&it.place, Place::Slot(Slot::Json(at), _) if *at == pointer);
            if plan.uses.iter().all(is_new) {
                plan.uses.push(used);
            }
        }
        let guard = placeholders.guard(self.masked(permit.scheme(), permit.target()));
        if let Some(name) = guard.refused.text(&rest) {
            return Err(search.found(name, "the body"));
        }
        if let Some(masked) = guard.masked {
            let mut stream = masked.stream();
            let mut out = Vec::new();
            stream.push(&rest, &mut out);
            stream.finish(&mut out);
            plan.masked = stream.names().to_vec();
        }
        Ok(())
    }
}

/// The search of one request for placeholders.
struct Search<'a> {
    vault: &'a Vault,
    placeholders: &'a PlaceholderSet,
    permit: &'a Permit,
    parts: &'a Parts,
}

impl<'a> Search<'a> {
    fn in_headers(&self) -> Result<Vec<Use>, Misuse> {
        let mut uses = Vec::new();
        for (name, value) in &self.parts.headers {
            match self.in_header(name, value)? {
                Some(used) => uses.push(used),
                None => {
                    self.refuse_placeholder(value.as_bytes(), || format!("the header {name}"))?;
                }
            }
        }
        Ok(uses)
    }

    fn in_header(&self, name: &HeaderName, value: &HeaderValue) -> Result<Option<Use>, Misuse> {
        if let Some(used) = self.aws(name, value)? {
            return Ok(Some(used));
        }
        let Some((form, found)) = spot::in_header(value, |text| self.placeholders.get(text)) else {
            return Ok(None);
        };
        self.refuse_placeholder(form.rest().as_bytes(), || format!("the header {name}"))?;
        let Some(secret) = self.vault.secrets.get(found.secret) else { return Ok(None) };
        let slot = secret.decl.slots.iter().find(|slot| is_slot(slot, name, &form));
        let Some(slot) = slot.filter(|_| found.meaning.is_sent()) else {
            return Err(self.misplaced(secret, &format!("the header {name}")));
        };
        self.granted(secret)?;
        let spot = Spot::Header { name: name.clone(), form };
        let place = Place::Slot(slot.clone(), spot);
        Ok(Some(Use { secret: found.secret, meaning: found.meaning.clone(), place }))
    }

    /// Returns the use of an AWS key pair if the request was signed with its placeholder.
    fn aws(&self, name: &HeaderName, value: &HeaderValue) -> Result<Option<Use>, Misuse> {
        let claim = value.to_str().ok().and_then(sigv4::Claim::parse);
        let Some(claim) = claim.filter(|_| name == AUTHORIZATION) else { return Ok(None) };
        let Some(found) = self.placeholders.get(&claim.id) else { return Ok(None) };
        let Some(secret) = self.vault.secrets.get(found.secret) else { return Ok(None) };
        let SecretKind::SigV4 { region, service } = &secret.decl.kind else { return Ok(None) };
        self.granted(secret)?;
        let place = Place::SigV4(claim.scope(region.as_deref(), service.as_deref()));
        Ok(Some(Use { secret: found.secret, meaning: found.meaning.clone(), place }))
    }

    fn in_query(&self) -> Result<Vec<Use>, Misuse> {
        let mut uses = Vec::new();
        for (key, value) in spot::parameters(&self.parts.uri) {
            let found = self.placeholders.get(&spot::decoded(value));
            let secret =
                found.and_then(|found| Some((found, self.vault.secrets.get(found.secret)?)));
            let Some((found, secret)) = secret else {
                self.refuse_placeholder(value.as_bytes(), || "the query".to_owned())?;
                self.refuse_placeholder(spot::decoded(value).as_bytes(), || {
                    "the query".to_owned()
                })?;
                continue;
            };
            let slot = Slot::Query(key.to_owned());
            if !secret.decl.slots.contains(&slot) || !found.meaning.is_sent() {
                return Err(self.misplaced(secret, "the query"));
            }
            self.granted(secret)?;
            let place = Place::Slot(slot, Spot::Query { name: key.to_owned() });
            uses.push(Use { secret: found.secret, meaning: found.meaning.clone(), place });
        }
        Ok(uses)
    }

    /// Returns an error if a placeholder is elsewhere in the head: in the path, in names, or across
    /// the query.
    fn check_rest(&self, uses: &[Use]) -> Result<(), Misuse> {
        let uri = &self.parts.uri;
        self.refuse_placeholder(uri.path().as_bytes(), || "the path".to_owned())?;
        self.refuse_placeholder(spot::decoded(uri.path()).as_bytes(), || "the path".to_owned())?;
        for (key, _) in spot::parameters(uri) {
            self.refuse_placeholder(key.as_bytes(), || "the query".to_owned())?;
        }
        for name in self.parts.headers.keys() {
            self.refuse_placeholder(name.as_str().as_bytes(), || {
                "the name of a header".to_owned()
            })?;
        }
        let in_query =
            uses.iter().any(|used| matches!(&used.place, Place::Slot(Slot::Query(_), _)));
        if !in_query {
            self.refuse_placeholder(uri.query().unwrap_or_default().as_bytes(), || {
                "the query".to_owned()
            })?;
        }
        Ok(())
    }

    /// Returns an error if a slot of the request contains more than one credential (B02).
    fn check_unique(&self, uses: &[Use]) -> Result<(), Misuse> {
        for used in uses {
            let Some(secret) = self.vault.secrets.get(used.secret) else { continue };
            let (count, place) = match &used.place {
                Place::Slot(_, Spot::Header { name, .. }) => {
                    (self.parts.headers.get_all(name).iter().count(), name.as_str())
                }
                Place::Slot(_, Spot::Query { name }) => {
                    let same = |(key, _): &(&str, &str)| spot::decoded(key) == *name;
                    (spot::parameters(&self.parts.uri).filter(same).count(), name.as_str())
                }
                Place::SigV4(_) => {
                    (self.parts.headers.get_all(AUTHORIZATION).iter().count(), "authorization")
                }
                Place::Slot(_, Spot::Json { .. }) | Place::Hmac => continue,
            };
            if count > 1 {
                let name = &secret.decl.name;
                let detail =
                    format!("{place} appears {count} times next to the placeholder of {name}");
                return Err(misuse(MisuseKind::Repeated, secret, detail));
            }
        }
        Ok(())
    }

    /// Returns an error if a request to the host of a secret carries other credentials (A20). An
    /// agent with a key of its own could send data to its own account.
    fn check_other_credentials(&self, uses: &[Use]) -> Result<(), Misuse> {
        let Some(first) = self.granted_secrets().next() else { return Ok(()) };
        let is_used = |name: &str| {
            uses.iter().any(|used| match &used.place {
                Place::Slot(_, Spot::Header { name: used, .. }) => used == name,
                Place::SigV4(_) => name == "authorization" || name == "x-amz-security-token",
                Place::Slot(_, Spot::Query { .. } | Spot::Json { .. }) | Place::Hmac => false,
            })
        };
        let own = |secret: &Secret, what: String| {
            let detail = format!(
                "{what} in a request to {} contains another credential than the placeholder of {}",
                self.permit.target(),
                secret.decl.name
            );
            Err(misuse(MisuseKind::OwnCredential, secret, detail))
        };
        for name in self.parts.headers.keys().map(HeaderName::as_str) {
            if is_used(name) {
                continue;
            }
            let of_slot = self.granted_secrets().find(|secret| {
                let mut slots = secret.decl.slots.iter();
                slots.any(|slot| matches!(slot, Slot::Header(slot) if slot == name))
            });
            let known = CREDENTIALS.contains(&name).then_some(first);
            if let Some(secret) = of_slot.or(known) {
                return own(secret, format!("the header {name}"));
            }
        }
        for (key, _) in spot::parameters(&self.parts.uri) {
            let key = spot::decoded(key);
            let used = |it: &Use| matches!(&it.place, Place::Slot(_, Spot::Query { name }) if *name == key);
            if uses.iter().any(used) {
                continue;
            }
            let slot = Slot::Query(key.clone());
            let of_slot = self.granted_secrets().find(|secret| secret.decl.slots.contains(&slot));
            let is_known = CREDENTIAL_PARAMETERS.contains(&key.to_ascii_lowercase().as_str());
            if let Some(secret) = of_slot.or(is_known.then_some(first)) {
                return own(secret, "the query".to_owned());
            }
        }
        Ok(())
    }

    /// Returns the HMAC signatures that must be added to this request.
    fn signatures(&self) -> Vec<Use> {
        let indexed = self.vault.secrets.iter().enumerate();
        let hmac = indexed.filter(|(_, secret)| {
            matches!(secret.decl.kind, SecretKind::Hmac { .. }) && self.granted(secret).is_ok()
        });
        let used = |(at, _)| Use { secret: at, meaning: Meaning::Key, place: Place::Hmac };
        hmac.map(used).collect()
    }

    /// Returns the slots in the body of this request, each with the index of its secret.
    fn body_slots(&self) -> Vec<(usize, String)> {
        let mut slots = Vec::new();
        for (at, secret) in self.vault.secrets.iter().enumerate() {
            for slot in &secret.decl.slots {
                if let Slot::Json(pointer) = slot
                    && is_json(&self.parts.headers)
                    && self.granted(secret).is_ok()
                {
                    slots.push((at, pointer.clone()));
                }
            }
        }
        slots
    }

    fn body_need(&self, uses: &[Use], unseen: &[(usize, String)]) -> BodyNeed {
        let needs = |used: &Use| match &used.place {
            Place::Slot(..) => false,
            Place::SigV4(_) => sigv4::needs_body(&self.parts.headers),
            Place::Hmac => self.vault.secrets.get(used.secret).is_some_and(Secret::signs_body),
        };
        if unseen.is_empty() && !uses.iter().any(needs) {
            BodyNeed::Guard
        } else {
            BodyNeed::Buffer
        }
    }

    /// Returns the use of a secret in a slot of a buffered body, if its placeholder is there.
    fn in_body(&self, at: usize, pointer: &str, body: &[u8]) -> Result<Option<Use>, Misuse> {
        let Some(secret) = self.vault.secrets.get(at) else { return Ok(None) };
        let found = match json::find(body, pointer) {
            Ok(found) => found,
            Err(json::JsonError::Malformed) => return Ok(None), // then the guard searches it like any other body
            Err(error @ json::JsonError::Twice) => {
                let detail = format!("{error} of {}", secret.decl.name);
                return Err(misuse(MisuseKind::Repeated, secret, detail));
            }
        };
        let Some(found) = found else { return Ok(None) };
        let own = || {
            let name = &secret.decl.name;
            let detail = format!(
                "{pointer} in the body contains another credential than the placeholder of {name}"
            );
            misuse(MisuseKind::OwnCredential, secret, detail)
        };
        let placeholder = self.placeholders.get(&found.text).ok_or_else(own)?;
        let of = self.vault.secrets.get(placeholder.secret).ok_or_else(own)?;
        let slot = Slot::Json(pointer.to_owned());
        if !of.decl.slots.contains(&slot) || !placeholder.meaning.is_sent() {
            return Err(self.misplaced(of, "the body"));
        }
        self.granted(of)?;
        let place = Place::Slot(slot, Spot::Json { pointer: pointer.to_owned() });
        Ok(Some(Use { secret: placeholder.secret, meaning: placeholder.meaning.clone(), place }))
    }

    /// Returns the secrets of the rule that are bound to this host.
    fn granted_secrets(&self) -> impl Iterator<Item = &'a Secret> {
        let (rule, target) = (self.permit.secrets(), self.permit.target());
        let granted = move |it: &&Secret| rule.contains(&it.decl.name) && it.decl.is_for(target);
        self.vault.secrets.iter().filter(granted)
    }

    /// Returns an error if this request cannot carry the secret.
    fn granted(&self, secret: &Secret) -> Result<(), Misuse> {
        let decl = &secret.decl;
        let (name, target) = (&decl.name, self.permit.target());
        let refuse = |kind, why: fmt::Arguments<'_>| {
            Err(misuse(kind, secret, format!("the placeholder of {name} {why}")))
        };
        if !decl.is_for(target) {
            return refuse(
                MisuseKind::OtherHost,
                format_args!("was sent to {target}, which {name} is not bound to"),
            );
        }
        if self.permit.scheme() != Scheme::Https {
            return refuse(MisuseKind::PlainHttp, format_args!("was sent to {target} without TLS"));
        }
        if !self.permit.secrets().contains(name) {
            let rule = self.permit.rule();
            return refuse(
                MisuseKind::NotGranted,
                format_args!("is in a request of the rule `{rule}`, which does not add {name}"),
            );
        }
        let method = self.parts.method.as_str().parse::<Method>();
        let path = CanonicalPath::parse(self.parts.uri.path());
        let covers = |method: &Method| {
            let is_path = |pattern: &PathPattern| {
                path.as_ref().is_ok_and(|(path, _)| path.allowed_by(pattern))
            };
            decl.covers(target, method, is_path)
        };
        if !method.as_ref().is_ok_and(covers) {
            return refuse(
                MisuseKind::NotGranted,
                format_args!("is in a request whose method or path {name} does not cover"),
            );
        }
        Ok(())
    }

    /// Returns an error if the bytes contain a placeholder in any encoding.
    fn refuse_placeholder(&self, bytes: &[u8], place: impl Fn() -> String) -> Result<(), Misuse> {
        match self.placeholders.finder().text(bytes) {
            Some(name) => Err(self.found(name, &place())),
            None => Ok(()),
        }
    }

    /// Returns the error for a placeholder that was found outside all slots.
    fn found(&self, name: &str, place: &str) -> Misuse {
        match self.vault.secrets.iter().find(|secret| secret.decl.name.as_str() == name) {
            Some(secret) => self.misplaced(secret, place),
            None => unreachable!("the finder contains only placeholders of secrets"),
        }
    }

    fn misplaced(&self, secret: &Secret, place: &str) -> Misuse {
        let (name, target) = (&secret.decl.name, self.permit.target());
        if !secret.decl.is_for(target) {
            let detail = format!(
                "the placeholder of {name} is in {place} of a request to {target}, which {name} is not bound to"
            );
            return misuse(MisuseKind::OtherHost, secret, detail);
        }
        let detail =
            format!("the placeholder of {name} is in {place}, which is not a slot of {name}");
        misuse(MisuseKind::Elsewhere, secret, detail)
    }
}

impl Meaning {
    /// Returns whether the placeholder is replaced by a value in the request.
    const fn is_sent(&self) -> bool {
        match self {
            Self::Own | Self::Captured(_) => true,
            Self::AccessId | Self::Key => false,
        }
    }
}

fn misuse(kind: MisuseKind, secret: &Secret, detail: String) -> Misuse {
    Misuse { kind, secret: secret.decl.name.clone(), detail }
}

/// Returns whether a header of the request is this slot.
fn is_slot(slot: &Slot, name: &HeaderName, form: &Form) -> bool {
    match slot {
        Slot::Header(slot) => slot == name.as_str() && (!form.is_basic() || *name == AUTHORIZATION),
        Slot::Basic => *name == AUTHORIZATION && form.is_basic(),
        Slot::Query(_) | Slot::Json(_) => false,
    }
}

/// Returns whether the request body is uncompressed JSON. A compressed body has no slots, and is
/// searched as it is.
fn is_json(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = text(CONTENT_TYPE).split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let packed = !matches!(text(CONTENT_ENCODING), "" | "identity");
    (kind == "application/json" || kind.ends_with("+json")) && !packed
}

/// Returns the names of the used secrets, whose budgets are charged.
pub(super) fn names(vault: &Vault, uses: Vec<Use>) -> BTreeSet<SecretName> {
    let of = |used: Use| Some(vault.secrets.get(used.secret)?.decl.name.clone());
    uses.into_iter().filter_map(of).collect()
}
