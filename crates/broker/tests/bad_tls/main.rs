//! Upstreams with invalid certificates or protocols, each behind a real socket, and valid ones as
//! the control (A34).
//!
//! The broker refuses such an upstream before a program in the box sees it, even if the program
//! does not verify certificates.
#![expect(clippy::disallowed_methods, reason = "tests read the clock and start a server")]

#[cfg(test)]
mod chain;
#[cfg(test)]
mod old;

#[cfg(test)]
mod tests {
    use std::io::{self, Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::Arc;
    use std::time::Duration;

    use belljar_broker::tls::{Roots, Upstream};
    use belljar_model::net::Target;
    use rustls::{ClientConfig, ClientConnection, StreamOwned};

    use crate::chain::{self, Case};
    use crate::old;

    /// Connects to a server with the broker's TLS settings and returns the server's greeting.
    fn greet(config: Arc<ClientConfig>, server: SocketAddr, name: &str) -> io::Result<String> {
        let target: Target = name.parse().unwrap();
        let client =
            ClientConnection::new(config, Upstream::server_name(&target).unwrap()).unwrap();
        let stream = TcpStream::connect(server)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut stream = StreamOwned::new(client, stream);
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut greeting = [0; 2];
        stream.read_exact(&mut greeting)?;
        Ok(String::from_utf8_lossy(&greeting).into_owned())
    }

    fn upstream(root: &str) -> Upstream {
        let mut roots = Roots::none();
        roots.add_pem(root.as_bytes(), "the test's root").unwrap();
        Upstream::new(&roots).unwrap()
    }

    fn outcome(case: &Case) -> Result<String, String> {
        let server = case.serve();
        let upstream = upstream(&case.root());
        let both = [upstream.any(), upstream.http1()]
            .map(|config| greet(config, server, chain::HOST).map_err(|error| error.to_string()));
        let [any, http1] = both;
        // The error of an expired certificate contains the current second.
        let text = |outcome: &Result<String, String>| {
            let text = outcome.as_ref().unwrap_or_else(|error| error).to_owned();
            text.split(|c: char| c.is_ascii_digit()).collect::<String>()
        };
        assert_eq!(any.is_ok(), http1.is_ok(), "the protocol does not influence the result");
        assert_eq!(text(&any), text(&http1), "the protocol does not influence the result");
        any
    }

    #[test]
    fn a34_upstreams_with_valid_certificates_are_accepted() {
        for case in chain::good() {
            assert_eq!(outcome(&case).as_deref(), Ok("hi"), "{}", case.what);
        }
    }

    #[test]
    fn a34_upstreams_with_invalid_certificates_are_rejected() {
        for case in chain::bad() {
            let error = outcome(&case).expect_err(case.what);
            assert!(error.contains(case.error), "{}: {error}", case.what);
        }
    }

    #[test]
    fn a34_cached_tls_session_is_not_used_for_another_host_name() {
        // A session is cached for its own name only.
        let case = chain::good().into_iter().next().unwrap();
        let (server, upstream) = (case.serve(), upstream(&case.root()));
        for _ in 0..3 {
            assert_eq!(greet(upstream.any(), server, chain::HOST).unwrap(), "hi");
            let error = greet(upstream.any(), server, "other.example").unwrap_err().to_string();
            assert!(
                error.contains("NotValidForName") || error.contains("not valid for name"),
                "{error}"
            );
        }
    }

    #[test]
    fn a34_upstreams_are_rejected_without_any_root_certificate() {
        assert!(Upstream::new(&Roots::none()).is_err());
    }

    #[test]
    fn a34_upstreams_with_old_protocols_weak_keys_or_broken_hashes_are_rejected() {
        for case in old::cases() {
            let server = case.serve();
            let greeting = greet(upstream(&server.root).any(), server.address, chain::HOST);
            let greeting = greeting.map_err(|error| error.to_string());
            match case.error {
                None => assert_eq!(greeting.as_deref(), Ok("HT"), "{}: control", case.what),
                Some(expected) => {
                    let error = greeting.expect_err(case.what);
                    assert!(error.contains(expected), "{}: {error}", case.what);
                    assert!(
                        server.is_accepted_by_openssl(),
                        "{}: no client accepts the server, so the test proves nothing",
                        case.what
                    );
                }
            }
        }
    }
}
