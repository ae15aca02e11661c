//! The certificate authority of one box.
//!
//! Its key is generated with the box, never leaves the memory of this process (it has no serialized
//! form), and is wiped by its library. Its certificate is constrained to the names of the box's
//! rules. So even a compromised broker cannot create a certificate for another name that programs
//! in the box accept.

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
/// The time by which the validity of a certificate starts early, for a box whose clock is slow.
const BACKDATED: Duration = DAY;
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const LEAF_LIFETIME: Duration = Duration::from_secs(10 * 24 * 60 * 60);
/// The maximum number of leaf certificates that are kept in memory.
const MAX_LEAFS: usize = 512;
/// The maximum length of a common name in X.509.
const MAX_COMMON_NAME: usize = 64;

/// The host names for which a certificate authority can sign.
#[derive(Clone, Debug)]
pub enum Scope {
    /// The authority can sign for every name, for `--net full`.
    Any,
    /// The authority can sign for the names in the rules; the list can be empty.
    Only(Vec<HostPattern>),
}

#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("cannot create a certificate for `{0}`: no rule of this box names the host")]
    OutOfScope(Target),
    #[error("cannot generate a key for the box's certificates")]
    Key,
    #[error("cannot create a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot set up TLS for the box")]
    Tls(#[from] rustls::Error),
}

/// The certificate authority of one box, which signs a leaf certificate per host.
pub struct Authority {
    scope: Scope,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, Signer>,
    created: SystemTime,
    leafs: Leafs,
}

/// The key of all leaf certificates, and a cache of the certificates.
struct Leafs {
    public: Signer,
    key: Arc<dyn rustls::sign::SigningKey>,
    provider: Arc<CryptoProvider>,
    tickets: Arc<dyn ProducesTickets>,
    cached: Mutex<HashMap<Target, Leaf>>,
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
        Ok(Self { scope, certificate, issuer, created: now, leafs: Leafs::new()? })
    }

    /// Returns the authority's own certificate (DER), for the trust bundles of the box.
    pub fn der(&self) -> &[u8] {
        &self.certificate
    }

    /// Returns the authority's own certificate in PEM.
    pub fn pem(&self) -> String {
        super::roots::to_pem(&self.certificate)
    }

    /// Returns the authority's own certificate as a Java trust store (password `changeit`, the
    /// usual default).
    pub fn jks(&self) -> Vec<u8> {
        jks::trust_store([self.der()], self.created)
    }

    /// Returns the TLS configuration for a client in the box that connects to `host`.
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
        let mut params = params(now, LEAF_LIFETIME)?;
        // OpenSSL applies name constraints to a common name with dots, so an address is not used
        // there.
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
            cached: Mutex::default(),
        })
    }

    fn config(&self, leaf: CertificateDer<'static>) -> Result<ServerConfig, AuthorityError> {
        let certified = CertifiedKey::new(vec![leaf], Arc::clone(&self.key));
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Tickets need no memory of the broker, however many hosts and clients there are.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Arc::clone(&self.tickets);
        config.send_tls13_tickets = 1;
        Ok(config)
    }

    fn get(&self, host: &Target, now: SystemTime) -> Option<Arc<ServerConfig>> {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let leaf = cached.get_mut(host).filter(|leaf| now < leaf.renew)?;
        leaf.used = now;
        Some(Arc::clone(&leaf.config))
    }

    fn put(&self, host: &Target, config: &Arc<ServerConfig>, now: SystemTime) {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.len() >= MAX_LEAFS && !cached.contains_key(host) {
            let oldest =
                cached.iter().min_by_key(|(_, leaf)| leaf.used).map(|(host, _)| host.clone());
            if let Some(oldest) = oldest {
                cached.remove(&oldest);
            }
        }
        let leaf = Leaf { config: Arc::clone(config), renew: now + LEAF_LIFETIME / 2, used: now };
        cached.insert(host.clone(), leaf);
    }
}

impl Scope {
    /// Returns the names for which the authority of a box with this policy can sign.
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
                    permitted.push(GeneralSubtree::IpAddress(single_address(*address)));
                }
                // In name constraints, a name includes all names below it.
                Some(Target::Name(_)) | None => {
                    names = true;
                    let name = pattern.to_string();
                    let name = name.strip_prefix("*.").unwrap_or(&name);
                    permitted.push(GeneralSubtree::DnsName(name.to_owned()));
                }
            }
        }
        // A kind of name without a constraint is unrestricted, so a kind without a rule is excluded
        // entirely.
        let mut excluded = Vec::new();
        if !names {
            excluded.push(GeneralSubtree::DnsName(String::new()));
        }
        if !addresses {
            excluded.push(GeneralSubtree::IpAddress(all_addresses(Ipv4Addr::UNSPECIFIED.into())));
            excluded.push(GeneralSubtree::IpAddress(all_addresses(Ipv6Addr::UNSPECIFIED.into())));
        }
        Some(NameConstraints { permitted_subtrees: permitted, excluded_subtrees: excluded })
    }
}

fn single_address(address: IpAddr) -> CidrSubnet {
    CidrSubnet::from_addr_prefix(address, if address.is_ipv4() { 32 } else { 128 })
}

fn all_addresses(zero: IpAddr) -> CidrSubnet {
    CidrSubnet::from_addr_prefix(zero, 0)
}

fn authority_params(scope: &Scope, now: SystemTime) -> Result<CertificateParams, AuthorityError> {
    let mut params = params(now, AUTHORITY_LIFETIME)?;
    // Each authority has a unique name, because clients look up an issuer by name.
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

fn params(now: SystemTime, lifetime: Duration) -> Result<CertificateParams, AuthorityError> {
    let mut serial = [0; 16];
    rand::fill(&mut serial).map_err(|_| AuthorityError::Key)?;
    // Positive and of fixed length.
    if let Some(first) = serial.first_mut() {
        *first = *first & 0x3f | 0x40;
    }
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut params = CertificateParams::default();
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.not_before = epoch + since.saturating_sub(BACKDATED);
    params.not_after = epoch + since + lifetime;
    params.distinguished_name = DistinguishedName::new();
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

/// A key pair that is generated in memory and never imported or exported.
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
