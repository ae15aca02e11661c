//! The certificate authority of one box.
//!
//! Its key is made when the box is, never leaves this process's memory (it has no serialised form at all), and is wiped by
//! the library that holds it. What it may sign is written into its own certificate: the names of the box's rules. So even a
//! broker that was led astray makes no certificate that a program in the box believes for another name.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use belljar_model::Net;
use belljar_model::net::{HostPattern, Hostname, HttpRule, Policy, Rule, Scheme, Target, Tls};
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyUsagePurpose, NameConstraints,
    PublicKeyData, SanType, SerialNumber, SignatureAlgorithm,
};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{Ticketer, sign::any_ecdsa_type};
use rustls::server::{NoServerSessionStorage, ProducesTickets};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::jks;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// A box whose clock runs behind must not find its own authority to be of the future.
const BACKDATED: Duration = DAY;
const AUTHORITY_LIVES: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const LEAF_LIVES: Duration = Duration::from_secs(10 * 24 * 60 * 60);
/// Leafs are kept in memory until one would have to be made anew, and never more than this many.
const MAX_LEAFS: usize = 512;
/// The longest common name that X.509 allows.
const MAX_COMMON_NAME: usize = 64;

/// For which names an authority may sign.
#[derive(Clone, Debug)]
pub enum Scope {
    /// Every name: `--net full`.
    Any,
    /// What the rules name, and nothing if there is nothing.
    Only(Vec<HostPattern>),
}

#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("no certificate is made for `{0}`: no rule of this box names it")]
    OutOfScope(Target),
    #[error("make a key for the box's certificates")]
    Key,
    #[error("make a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("set up TLS toward the box")]
    Tls(#[from] rustls::Error),
}

/// Signs the certificates that one box is shown.
pub struct Authority {
    scope: Scope,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, Signer>,
    born: SystemTime,
    leafs: Leafs,
}

/// What all leafs have in common, and those that were made.
struct Leafs {
    public: Signer,
    key: Arc<dyn rustls::sign::SigningKey>,
    provider: Arc<CryptoProvider>,
    tickets: Arc<dyn ProducesTickets>,
    made: Mutex<HashMap<Target, Leaf>>,
}

struct Leaf {
    config: Arc<ServerConfig>,
    renew: SystemTime,
    used: SystemTime,
}

impl Authority {
    pub fn new(scope: Scope, now: SystemTime) -> Result<Self, AuthorityError> {
        let signer = Signer::generate()?;
        let params = authority_params(&scope, now)?;
        let certificate = params.self_signed(&signer)?.der().clone();
        let issuer = Issuer::new(params, signer);
        Ok(Self { scope, certificate, issuer, born: now, leafs: Leafs::new()? })
    }

    /// The authority's own certificate, for the trust bundles of the box.
    pub fn der(&self) -> &[u8] {
        &self.certificate
    }

    /// The same as text.
    pub fn pem(&self) -> String {
        super::roots::to_pem(&self.certificate)
    }

    /// The same as a Java trust store (password `changeit`, as everywhere).
    pub fn jks(&self) -> Vec<u8> {
        jks::trust_store([self.der()], self.born)
    }

    /// What the broker shows to a client in the box that asks for `host`.
    pub fn server_config(
        &self,
        host: &Target,
        now: SystemTime,
    ) -> Result<Arc<ServerConfig>, AuthorityError> {
        if !self.scope.covers(host) {
            return Err(AuthorityError::OutOfScope(host.clone()));
        }
        if let Some(config) = self.leafs.get(host, now) {
            return Ok(config);
        }
        let config = Arc::new(self.leafs.config(self.leaf(host, now)?)?);
        self.leafs.put(host, &config, now);
        Ok(config)
    }

    fn leaf(
        &self,
        host: &Target,
        now: SystemTime,
    ) -> Result<CertificateDer<'static>, AuthorityError> {
        let mut params = params(now, LEAF_LIVES)?;
        // OpenSSL holds a common name with dots in it to the constraints on names, so an address is not put there.
        let common = host.name().map(Hostname::as_str).filter(|name| name.len() <= MAX_COMMON_NAME);
        params.distinguished_name.push(DnType::CommonName, common.unwrap_or("Belljar"));
        params.subject_alt_names = vec![match host {
            Target::Name(name) => SanType::DnsName(name.to_string().try_into()?),
            Target::Address(address) => SanType::IpAddress(*address),
        }];
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        Ok(params.signed_by(&self.leafs.public, &self.issuer)?.der().clone())
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("scope", &self.scope).finish_non_exhaustive()
    }
}

impl Leafs {
    fn new() -> Result<Self, AuthorityError> {
        let public = Signer::generate()?;
        let document = public.key.to_pkcs8v1().map_err(|_| AuthorityError::Key)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(document.as_ref()));
        Ok(Self {
            key: any_ecdsa_type(&key)?,
            public,
            provider: Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
            tickets: Ticketer::new()?,
            made: Mutex::default(),
        })
    }

    fn config(&self, leaf: CertificateDer<'static>) -> Result<ServerConfig, AuthorityError> {
        let certified = CertifiedKey::new(vec![leaf], Arc::clone(&self.key));
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Tickets need no memory of ours however many hosts and clients there are.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Arc::clone(&self.tickets);
        config.send_tls13_tickets = 1;
        Ok(config)
    }

    fn get(&self, host: &Target, now: SystemTime) -> Option<Arc<ServerConfig>> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let leaf = made.get_mut(host).filter(|leaf| now < leaf.renew)?;
        leaf.used = now;
        Some(Arc::clone(&leaf.config))
    }

    fn put(&self, host: &Target, config: &Arc<ServerConfig>, now: SystemTime) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.len() >= MAX_LEAFS && !made.contains_key(host) {
            let oldest =
                made.iter().min_by_key(|(_, leaf)| leaf.used).map(|(host, _)| host.clone());
            if let Some(oldest) = oldest {
                made.remove(&oldest);
            }
        }
        let leaf = Leaf { config: Arc::clone(config), renew: now + LEAF_LIVES / 2, used: now };
        made.insert(host.clone(), leaf);
    }
}

impl Scope {
    /// What the broker may have to show certificates for.
    pub fn of(policy: &Policy) -> Self {
        if policy.net == Net::Full {
            return Self::Any;
        }
        let shown = |rule: &HttpRule| rule.scheme == Scheme::Https && rule.tls == Tls::Intercept;
        let rules = policy
            .allow
            .iter()
            .chain(&policy.ask)
            .filter_map(Rule::http)
            .filter(|rule| shown(rule));
        Self::Only(rules.map(|rule| rule.host.clone()).collect())
    }

    fn covers(&self, host: &Target) -> bool {
        match self {
            Self::Any => true,
            Self::Only(patterns) => patterns.iter().any(|pattern| pattern.matches(host)),
        }
    }

    fn constraints(&self) -> Option<NameConstraints> {
        let Self::Only(patterns) = self else { return None };
        let mut permitted = Vec::new();
        let (mut names, mut addresses) = (false, false);
        for pattern in patterns {
            match pattern.target() {
                Some(Target::Address(address)) => {
                    addresses = true;
                    permitted.push(GeneralSubtree::IpAddress(one(*address)));
                }
                // A name stands for itself and all below it, in certificates.
                Some(Target::Name(_)) | None => {
                    names = true;
                    let name = pattern.to_string();
                    let name = name.strip_prefix("*.").unwrap_or(&name);
                    permitted.push(GeneralSubtree::DnsName(name.to_owned()));
                }
            }
        }
        // What is not mentioned is not constrained, so a kind without any rule is excluded as a whole.
        let mut excluded = Vec::new();
        if !names {
            excluded.push(GeneralSubtree::DnsName(String::new()));
        }
        if !addresses {
            excluded.push(GeneralSubtree::IpAddress(all(Ipv4Addr::UNSPECIFIED.into())));
            excluded.push(GeneralSubtree::IpAddress(all(Ipv6Addr::UNSPECIFIED.into())));
        }
        Some(NameConstraints { permitted_subtrees: permitted, excluded_subtrees: excluded })
    }
}

fn one(address: IpAddr) -> CidrSubnet {
    CidrSubnet::from_addr_prefix(address, if address.is_ipv4() { 32 } else { 128 })
}

fn all(zero: IpAddr) -> CidrSubnet {
    CidrSubnet::from_addr_prefix(zero, 0)
}

fn authority_params(scope: &Scope, now: SystemTime) -> Result<CertificateParams, AuthorityError> {
    let mut params = params(now, AUTHORITY_LIVES)?;
    // Every box's authority has a name of its own: clients look an issuer up by name.
    let mut id = [0; 4];
    rand::fill(&mut id).map_err(|_| AuthorityError::Key)?;
    let id = u32::from_be_bytes(id);
    params.distinguished_name.push(DnType::OrganizationName, "Belljar");
    params.distinguished_name.push(DnType::CommonName, format!("Belljar box {id:08x}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.name_constraints = scope.constraints();
    Ok(params)
}

fn params(now: SystemTime, lives: Duration) -> Result<CertificateParams, AuthorityError> {
    let mut serial = [0; 16];
    rand::fill(&mut serial).map_err(|_| AuthorityError::Key)?;
    // Positive and of one length, whatever was drawn.
    if let Some(first) = serial.first_mut() {
        *first = *first & 0x3f | 0x40;
    }
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut params = CertificateParams::default();
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.not_before = epoch + since.saturating_sub(BACKDATED);
    params.not_after = epoch + since + lives;
    params.distinguished_name = DistinguishedName::new();
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

/// A key that was never anything but a key: not read from bytes, not written to any.
struct Signer {
    key: EcdsaKeyPair,
}

impl Signer {
    fn generate() -> Result<Self, AuthorityError> {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING);
        Ok(Self { key: key.map_err(|_| AuthorityError::Key)? })
    }
}

impl PublicKeyData for Signer {
    fn der_bytes(&self) -> &[u8] {
        self.key.public_key().as_ref()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

impl rcgen::SigningKey for Signer {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let signature = self.key.sign(&SystemRandom::new(), message);
        Ok(signature.map_err(|_| rcgen::Error::RingUnspecified)?.as_ref().to_vec())
    }
}

#[cfg(test)]
mod tests;
