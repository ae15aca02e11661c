//! Installs the CA bundle of a box at every path and variable where programs look for one.
//!
//! Some programs read the bundle of their distribution, others a built-in bundle or the file that a
//! variable names. So all distribution paths are links to one file, and all known variables contain its
//! path. Paths and variables are data.

use std::path::Path;

use belljar_init::plan::Step;

use crate::request::Trust;
use crate::view::file;

/// The path of the CA bundle inside a box. All other bundle paths are links to it.
const BUNDLE: &str = "/etc/belljar/ca.pem";
/// The path of the Java key store with the same certificates inside a box.
const KEY_STORE: &str = "/etc/belljar/ca.jks";

/// The paths of CA bundles in distributions, each with the programs that read it.
const BUNDLES: [(&str, &str); 11] = [
    ("/etc/ssl/certs/ca-certificates.crt", "Debian, Ubuntu, Alpine, Arch; Go"),
    ("/etc/ssl/certs/ca-bundle.crt", "old names of Debian and Red Hat"),
    ("/etc/ssl/cert.pem", "Alpine, Arch: OpenSSL's default"),
    ("/etc/ssl/ca-bundle.pem", "SUSE"),
    ("/var/lib/ca-certificates/ca-bundle.pem", "SUSE, target of /etc/ssl/ca-bundle.pem"),
    ("/etc/pki/tls/certs/ca-bundle.crt", "Fedora, Red Hat"),
    ("/etc/pki/tls/cert.pem", "Fedora, Red Hat: OpenSSL's default"),
    ("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "Fedora, Red Hat"),
    ("/etc/pki/ca-trust/source/anchors/belljar.pem", "GnuTLS on Fedora, through p11-kit"),
    ("/etc/ca-certificates/extracted/tls-ca-bundle.pem", "Arch"),
    ("/etc/ca-certificates/trust-source/anchors/belljar.pem", "GnuTLS on Arch, through p11-kit"),
];

/// The paths of Java key stores, by distribution.
const KEY_STORES: [(&str, &str); 3] = [
    ("/etc/ssl/certs/java/cacerts", "Debian"),
    ("/etc/pki/java/cacerts", "Fedora"),
    ("/etc/pki/ca-trust/extracted/java/cacerts", "Fedora, target of /etc/pki/java/cacerts"),
];

/// The environment variables that contain the path of the CA bundle, each with the programs that
/// read it.
const VARIABLES: [(&str, &str); 19] = [
    ("SSL_CERT_FILE", "OpenSSL, Go, Ruby, httpx, uv, rustls-native-certs"),
    ("CURL_CA_BUNDLE", "curl, requests"),
    ("REQUESTS_CA_BUNDLE", "Python's requests"),
    ("GIT_SSL_CAINFO", "git"),
    ("NODE_EXTRA_CA_CERTS", "Node, Bun"),
    ("DENO_CERT", "Deno"),
    ("npm_config_cafile", "npm, pnpm"),
    ("YARN_HTTPS_CA_FILE_PATH", "Yarn 2 and later"),
    ("CARGO_HTTP_CAINFO", "cargo"),
    ("PIP_CERT", "pip"),
    ("PERL_LWP_SSL_CA_FILE", "Perl's LWP"),
    ("AWS_CA_BUNDLE", "the AWS command line and boto3"),
    ("CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", "gcloud"),
    ("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "gRPC's C core, Python and Ruby"),
    ("HTTPLIB2_CA_CERTS", "Python's httplib2"),
    ("BUNDLE_SSL_CA_CERT", "Ruby's bundler"),
    ("HEX_CACERTS_PATH", "Elixir's hex"),
    ("JULIA_SSL_CA_ROOTS_PATH", "Julia"),
    ("NIX_SSL_CERT_FILE", "nix"),
];

/// Returns the steps that create the CA bundle, the key store and the links to them.
pub(crate) fn steps(trust: &Trust) -> Vec<Step> {
    let hosts = BUNDLES.iter().map(|(path, _)| *path).find(|path| Path::new(path).is_file());
    let bundle = match hosts.filter(|_| trust.trust_host_cas) {
        Some(hosts) => Step::FileWithAppended {
            path: BUNDLE.into(),
            content: trust.ca_pem.clone(),
            appended: hosts.into(),
        },
        None => file(BUNDLE, trust.ca_pem.clone()),
    };
    let mut steps = vec![bundle, file(KEY_STORE, trust.jks.clone())];
    let link = |path: &str, target: &str| Step::ReplaceWithSymlink {
        path: path.into(),
        target: target.into(),
    };
    steps.extend(BUNDLES.iter().map(|(path, _)| link(path, BUNDLE)));
    steps.extend(KEY_STORES.iter().map(|(path, _)| link(path, KEY_STORE)));
    steps
}

/// Returns the environment variables that point programs to the CA bundle, with their values.
pub(crate) fn variables() -> impl Iterator<Item = (&'static str, String)> {
    let java = format!(
        "-Djavax.net.ssl.trustStore={KEY_STORE} -Djavax.net.ssl.trustStoreType=JKS \
         -Djavax.net.ssl.trustStorePassword=changeit"
    );
    let bundle = VARIABLES.iter().map(|(name, _)| (*name, BUNDLE.to_owned()));
    bundle.chain([("JAVA_TOOL_OPTIONS", java)])
}
