//! Whom the programs of a box with a network believe: one file, under every name it is looked for.
//!
//! No single place suffices. Programs read the bundle of their distribution, or one that was built into
//! them, or what a variable of their own names; so the file is linked to from all of the first kind,
//! and all of the others are set. Kept as data.

use std::path::Path;

use belljar_init::plan::Step;

use crate::request::Trust;
use crate::view::file;

/// The one file. Everything else leads here.
const BUNDLE: &str = "/etc/belljar/ca.pem";
/// The same for Java.
const KEY_STORE: &str = "/etc/belljar/ca.jks";

/// Where distributions have their bundle.
const BUNDLES: [(&str, &str); 11] = [
    ("/etc/ssl/certs/ca-certificates.crt", "Debian, Ubuntu, Alpine, Arch; Go"),
    ("/etc/ssl/certs/ca-bundle.crt", "old names of Debian and Red Hat"),
    ("/etc/ssl/cert.pem", "Alpine, Arch, OpenSSL's own default there"),
    ("/etc/ssl/ca-bundle.pem", "SUSE"),
    ("/var/lib/ca-certificates/ca-bundle.pem", "SUSE, where the former leads"),
    ("/etc/pki/tls/certs/ca-bundle.crt", "Fedora, Red Hat"),
    ("/etc/pki/tls/cert.pem", "Fedora, Red Hat: OpenSSL's default"),
    ("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "Fedora, Red Hat"),
    ("/etc/pki/ca-trust/source/anchors/belljar.pem", "p11-kit on Fedora, so GnuTLS"),
    ("/etc/ca-certificates/extracted/tls-ca-bundle.pem", "Arch"),
    ("/etc/ca-certificates/trust-source/anchors/belljar.pem", "p11-kit on Arch"),
];

/// Where distributions have the key store of their Java.
const KEY_STORES: [(&str, &str); 3] = [
    ("/etc/ssl/certs/java/cacerts", "Debian"),
    ("/etc/pki/java/cacerts", "Fedora"),
    ("/etc/pki/ca-trust/extracted/java/cacerts", "Fedora, where the former leads"),
];

/// Variables that name the bundle, and who reads them.
const VARIABLES: [(&str, &str); 19] = [
    ("SSL_CERT_FILE", "OpenSSL, Go, Ruby, httpx, uv, rustls-native-certs"),
    ("CURL_CA_BUNDLE", "curl, requests"),
    ("REQUESTS_CA_BUNDLE", "Python's requests"),
    ("GIT_SSL_CAINFO", "git"),
    ("NODE_EXTRA_CA_CERTS", "Node, Bun"),
    ("DENO_CERT", "Deno"),
    ("npm_config_cafile", "npm, pnpm"),
    ("YARN_HTTPS_CA_FILE_PATH", "Yarn since 2"),
    ("CARGO_HTTP_CAINFO", "cargo"),
    ("PIP_CERT", "pip"),
    ("PERL_LWP_SSL_CA_FILE", "Perl's LWP"),
    ("AWS_CA_BUNDLE", "the AWS command line and boto3"),
    ("CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", "gcloud"),
    ("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "gRPC's C core, so its Python and Ruby"),
    ("HTTPLIB2_CA_CERTS", "Python's httplib2"),
    ("BUNDLE_SSL_CA_CERT", "Ruby's bundler"),
    ("HEX_CACERTS_PATH", "Elixir's hex"),
    ("JULIA_SSL_CA_ROOTS_PATH", "Julia"),
    ("NIX_SSL_CERT_FILE", "nix"),
];

/// The files and the links to them.
pub(crate) fn steps(trust: &Trust) -> Vec<Step> {
    let hosts = BUNDLES.iter().map(|(path, _)| *path).find(|path| Path::new(path).is_file());
    let bundle = match hosts.filter(|_| trust.and_the_hosts) {
        Some(hosts) => Step::Joined {
            path: BUNDLE.into(),
            content: trust.ca_pem.clone(),
            behind: hosts.into(),
        },
        None => file(BUNDLE, trust.ca_pem.clone()),
    };
    let mut steps = vec![bundle, file(KEY_STORE, trust.jks.clone())];
    let link =
        |path: &str, target: &str| Step::Replace { path: path.into(), target: target.into() };
    steps.extend(BUNDLES.iter().map(|(path, _)| link(path, BUNDLE)));
    steps.extend(KEY_STORES.iter().map(|(path, _)| link(path, KEY_STORE)));
    steps
}

/// The variables and their values.
pub(crate) fn variables() -> impl Iterator<Item = (&'static str, String)> {
    let java = format!(
        "-Djavax.net.ssl.trustStore={KEY_STORE} -Djavax.net.ssl.trustStoreType=JKS \
         -Djavax.net.ssl.trustStorePassword=changeit"
    );
    let bundle = VARIABLES.iter().map(|(name, _)| (*name, BUNDLE.to_owned()));
    bundle.chain([("JAVA_TOOL_OPTIONS", java)])
}
