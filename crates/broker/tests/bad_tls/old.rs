//! Servers that rustls cannot provide: old protocols, weak keys and broken hashes, served by
//! OpenSSL.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::chain::HOST;

/// The OpenSSL cipher setting that accepts insecure parameters.
const ANYTHING: &str = "DEFAULT:@SECLEVEL=0";

pub(crate) struct Case {
    pub(crate) what: &'static str,
    /// A part of the error that the broker must return; `None` for the control.
    pub(crate) error: Option<&'static str>,
    key: &'static [&'static str],
    hash: &'static str,
    server: &'static [&'static str],
}

const EC: &[&str] = &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
const RSA: &[&str] = &["-newkey", "rsa:2048"];
const WEAK_RSA: &[&str] = &["-newkey", "rsa:1024"];

pub(crate) fn cases() -> Vec<Case> {
    let case = |what, error, key, hash, server| Case { what, error, key, hash, server };
    vec![
        case("TLS 1.3", None, EC, "-sha256", &["-tls1_3"]),
        case("TLS 1.2", None, RSA, "-sha256", &["-tls1_2"]),
        case("TLS 1.1", Some("ProtocolVersion"), RSA, "-sha256", &["-tls1_1", "-cipher", ANYTHING]),
        case("TLS 1.0", Some("ProtocolVersion"), RSA, "-sha256", &["-tls1", "-cipher", ANYTHING]),
        case(
            "a key of 1024 bits",
            Some("BadSignature"),
            WEAK_RSA,
            "-sha256",
            &["-cipher", ANYTHING],
        ),
        case(
            "a certificate with SHA-1",
            Some("UnsupportedSignatureAlgorithm"),
            RSA,
            "-sha1",
            &["-cipher", ANYTHING],
        ),
        case(
            "a key exchange without forward secrecy",
            Some("HandshakeFailure"),
            RSA,
            "-sha256",
            &["-tls1_2", "-cipher", "AES128-GCM-SHA256"],
        ),
        case(
            "ciphers of yesterday",
            Some("HandshakeFailure"),
            RSA,
            "-sha256",
            &["-tls1_2", "-cipher", "ECDHE-RSA-AES128-SHA:@SECLEVEL=0"],
        ),
        case(
            "no certificate at all",
            Some("HandshakeFailure"),
            RSA,
            "-sha256",
            &["-tls1_2", "-nocert", "-cipher", "aNULL:@SECLEVEL=0"],
        ),
    ]
}

/// A running server, which is stopped when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) root: String,
    child: Child,
    dir: TempDir,
}

impl Case {
    pub(crate) fn serve(&self) -> Server {
        let dir = tempfile::tempdir().unwrap();
        self.make(dir.path());
        // The port was free a moment ago; if it is taken now, the server exits with an error.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new("openssl")
            .args(["s_server", "-quiet", "-www", "-accept", &address.to_string()])
            .args(["-cert", "leaf.pem", "-key", "leaf.key"])
            .args(self.server)
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let root = std::fs::read_to_string(dir.path().join("ca.pem")).unwrap();
        let mut server = Server { address, root, child, dir };
        server.wait();
        server
    }

    /// Creates a certificate authority and a certificate signed by it.
    fn make(&self, dir: &Path) {
        let run = |arguments: &[&str]| {
            let output = Command::new("openssl").args(arguments).current_dir(dir).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        let common = ["req", "-nodes", "-days", "2"];
        let ca = ["-x509", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=root"];
        run(&[&common[..], RSA, &ca].concat());
        let leaf = ["-keyout", "leaf.key", "-out", "leaf.csr", "-subj", "/CN=leaf"];
        run(&[&common[..2], self.key, &leaf].concat());
        std::fs::write(dir.join("names"), format!("subjectAltName=DNS:{HOST}\n")).unwrap();
        let sign =
            ["x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "1"];
        let rest = ["-CAcreateserial", "-extfile", "names", "-out", "leaf.pem", self.hash];
        run(&[&sign[..], &rest].concat());
    }
}

impl Server {
    fn wait(&mut self) {
        let start = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            assert!(self.child.try_wait().unwrap().is_none(), "the server exited");
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "the server does not accept connections"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns whether a permissive OpenSSL client gets a response, as a control.
    pub(crate) fn is_accepted_by_openssl(&self) -> bool {
        let output = Command::new("openssl")
            .args(["s_client", "-connect", &self.address.to_string(), "-servername", HOST])
            .args(["-cipher", "ALL:@SECLEVEL=0", "-min_protocol", "TLSv1"])
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        text.contains("New, ") && !text.contains("New, (NONE)")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server can already have exited.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
