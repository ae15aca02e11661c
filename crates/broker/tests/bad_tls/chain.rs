//! Certificate chains, each with one defect.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints,
};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

pub(crate) const HOST: &str = "api.example.com";
const DAY: i64 = 24 * 60 * 60;

/// One test server: its certificate chain, the root of the client, and the expected error.
pub(crate) struct Case {
    pub(crate) what: &'static str,
    /// A part of the error that the broker must return.
    pub(crate) error: &'static str,
    chain: Vec<CertificateDer<'static>>,
    key: Vec<u8>,
    root: CertificateDer<'static>,
}

impl Case {
    pub(crate) fn root(&self) -> String {
        let text = base64::engine::general_purpose::STANDARD.encode(&self.root);
        format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
    }

    /// Serves every connection until the test ends.
    pub(crate) fn serve(&self) -> SocketAddr {
        let key = PrivateKeyDer::try_from(self.key.clone()).unwrap();
        let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).unwrap();
        // Used without a check, because a server does not verify its own certificate.
        let shown = SingleCertAndKey::from(CertifiedKey::new(self.chain.clone(), key));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(shown));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut stream = StreamOwned::new(server, stream);
                // A client that rejects the certificate closes the connection here.
                if stream.read(&mut [0; 100]).is_ok() {
                    drop(stream.write_all(b"hi"));
                }
            }
        });
        address
    }
}

/// A certificate with its key, which can sign other certificates.
struct Signer {
    params: CertificateParams,
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
}

fn at(days: i64) -> impl Fn(&mut CertificateParams) {
    move |params| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        let shift = Duration::from_secs((days.abs() * DAY).unsigned_abs());
        let start = if days < 0 { now - shift } else { now + shift };
        params.not_before = epoch + start;
        params.not_after = epoch + start + Duration::from_secs(20 * DAY.unsigned_abs());
    }
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    at(-1)(&mut params);
    params
}

fn authority(name: &str) -> CertificateParams {
    let mut params = named(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn leaf() -> CertificateParams {
    let mut params = named("leaf");
    params.subject_alt_names = vec![rcgen::SanType::DnsName(HOST.try_into().unwrap())];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

fn root(name: &str) -> Signer {
    let (params, key) = (authority(name), KeyPair::generate().unwrap());
    let der = params.self_signed(&key).unwrap().der().clone();
    Signer { issuer: Issuer::new(params.clone(), key), params, der }
}

impl Signer {
    fn sign(&self, params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let der = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        Self { issuer: Issuer::new(params.clone(), key), params, der }
    }

    fn key(&self) -> Vec<u8> {
        self.issuer.key().serialize_der()
    }
}

fn case(what: &'static str, error: &'static str, root: &Signer, shown: &[&Signer]) -> Case {
    let chain = shown.iter().map(|signer| signer.der.clone()).collect();
    Case { what, error, chain, key: shown[0].key(), root: root.der.clone() }
}

/// Returns a test case with one certificate, changed from a valid one.
fn changed(
    what: &'static str,
    error: &'static str,
    change: impl Fn(&mut CertificateParams),
) -> Case {
    let root = root("root");
    let mut params = leaf();
    change(&mut params);
    case(what, error, &root, &[&root.sign(params)])
}

/// Returns a test case with an intermediate authority, changed from a valid one.
fn between(
    what: &'static str,
    error: &'static str,
    change: impl Fn(&mut CertificateParams),
) -> Case {
    let root = root("root");
    let mut params = authority("between");
    change(&mut params);
    let between = root.sign(params);
    case(what, error, &root, &[&between.sign(leaf()), &between])
}

fn permit(names: &[&str]) -> Option<NameConstraints> {
    let permitted_subtrees =
        names.iter().map(|name| GeneralSubtree::DnsName((*name).to_owned())).collect();
    Some(NameConstraints { permitted_subtrees, excluded_subtrees: vec![] })
}

fn names(names: &[&str]) -> impl Fn(&mut CertificateParams) {
    let names: Vec<_> =
        CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
            .unwrap()
            .subject_alt_names;
    move |params| params.subject_alt_names.clone_from(&names)
}

pub(crate) fn good() -> Vec<Case> {
    vec![
        changed("a plain certificate", "", |_| {}),
        changed("a wildcard", "", names(&["*.example.com"])),
        changed("no purpose given", "", |params| params.extended_key_usages.clear()),
        between("an intermediate authority", "", |_| {}),
        between("an intermediate authority that is allowed to sign for this name", "", |params| {
            params.name_constraints = permit(&["example.com"]);
        }),
    ]
}

pub(crate) fn bad() -> Vec<Case> {
    let mut cases = vec![
        changed("expired", "certificate expired", at(-30)),
        changed("not yet valid", "certificate not valid yet", at(2)),
        changed("another host", "not valid for name", names(&["other.example.com"])),
        changed(
            "a wildcard of another depth",
            "not valid for name",
            names(&["*.com", "*.a.example.com"]),
        ),
        changed("an address instead of a name", "not valid for name", names(&["127.0.0.1"])),
        changed("the name only as common name", "not valid for name", |params| {
            params.subject_alt_names.clear();
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, HOST);
        }),
        changed(
            "a client's certificate",
            "certificate does not allow extended key usage",
            |params| {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            },
        ),
        changed("a mail certificate", "certificate does not allow extended key usage", |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::EmailProtection];
        }),
        changed("an authority as the server certificate", "CaUsedAsEndEntity", |params| {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }),
        changed("an unknown critical extension", "UnsupportedCriticalExtension", |params| {
            let mut extension =
                CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 4711], vec![5, 0]);
            extension.set_criticality(true);
            params.custom_extensions = vec![extension];
        }),
        between("an expired intermediate authority", "certificate expired", at(-30)),
        between("an intermediate authority for other names", "NameConstraintViolation", |params| {
            params.name_constraints = permit(&["other.example"]);
        }),
        between(
            "an intermediate authority that excludes this name",
            "NameConstraintViolation",
            |params| {
                let excluded_subtrees = vec![GeneralSubtree::DnsName("example.com".to_owned())];
                params.name_constraints =
                    Some(NameConstraints { permitted_subtrees: vec![], excluded_subtrees });
            },
        ),
        between(
            "signed by a certificate that is not an authority",
            "EndEntityUsedAsCa",
            |params| {
                params.is_ca = IsCa::ExplicitNoCa;
                params.key_usages.clear();
            },
        ),
    ];
    cases.extend(wrong_issuers());
    cases
}

/// Returns the test cases with a wrong issuer.
fn wrong_issuers() -> Vec<Case> {
    let (known, stranger) = (root("known"), root("stranger"));
    let own = KeyPair::generate().unwrap();
    let alone = leaf();
    let self_signed = Signer {
        der: alone.self_signed(&own).unwrap().der().clone(),
        issuer: Issuer::new(alone.clone(), own),
        params: alone,
    };
    // Has the name of the known root, but another key.
    let forger = Signer {
        der: known.der.clone(),
        issuer: Issuer::new(known.params.clone(), KeyPair::generate().unwrap()),
        params: known.params.clone(),
    };
    let between = known.sign(authority("between"));
    let below = between.sign(leaf());
    let mut narrow = authority("narrow");
    narrow.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let narrow = known.sign(narrow);
    let deeper = narrow.sign(authority("deeper"));
    vec![
        case("a stranger's root", "UnknownIssuer", &known, &[&stranger.sign(leaf())]),
        case(
            "a stranger's root, shown as well",
            "UnknownIssuer",
            &known,
            &[&stranger.sign(leaf()), &stranger],
        ),
        case("self-signed", "UnknownIssuer", &known, &[&self_signed]),
        case("a forged signature", "BadSignature", &known, &[&forger.sign(leaf())]),
        case("a missing intermediate authority", "UnknownIssuer", &known, &[&below]),
        case(
            "deeper than allowed",
            "PathLenConstraintViolated",
            &known,
            &[&deeper.sign(leaf()), &deeper, &narrow],
        ),
    ]
}
