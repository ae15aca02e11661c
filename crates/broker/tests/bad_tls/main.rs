//! Upstreams that must not be believed, each behind a real socket, and good ones as the control (A34).
//!
//! What a browser's user would be warned of, a box's program is never even shown: the broker refuses first, whatever the
//! program thinks of certificates.
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

    /// Connects as the broker does, and asks for the server's greeting.
    fn greet(config: Arc<ClientConfig>, server: SocketAddr, name: &str) -> io::Result<String> {
        let target: Target = name.parse().unwrap();
        let client =
            ClientConnection::new(config, Upstream::server_name(&target).unwrap()).unwrap();
        let stream = TcpStream::connect(server)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut stream = StreamOwned::new(client, stream);
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut said = [0; 2];
        stream.read_exact(&mut said)?;
        Ok(String::from_utf8_lossy(&said).into_owned())
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
        assert_eq!(any, http1, "the protocol does not matter");
        any
    }

    #[test]
    fn a34_upstreams_that_prove_who_they_are_are_believed() {
        for case in chain::good() {
            assert_eq!(outcome(&case).as_deref(), Ok("hi"), "{}", case.what);
        }
    }

    #[test]
    fn a34_no_bad_certificate_is_believed() {
        for case in chain::bad() {
            let error = outcome(&case).expect_err(case.what);
            assert!(error.contains(case.error), "{}: {error}", case.what);
        }
    }

    #[test]
    fn a34_a_session_does_not_outlive_what_was_proved_for_it() {
        // The first connection is remembered for its name only; a resumed one is to that name again.
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
    fn a34_without_roots_nobody_is_believed() {
        assert!(Upstream::new(&Roots::none()).is_err());
    }

    #[test]
    fn a34_no_old_protocol_weak_key_or_broken_hash_is_taken() {
        for case in old::cases() {
            let server = case.serve();
            let said = greet(upstream(&server.root).any(), server.address, chain::HOST);
            let said = said.map_err(|error| error.to_string());
            match case.error {
                None => assert_eq!(said.as_deref(), Ok("HT"), "{}: the control", case.what),
                Some(expected) => {
                    let error = said.expect_err(case.what);
                    assert!(error.contains(expected), "{}: {error}", case.what);
                    assert!(
                        server.would_be_taken_by_others(),
                        "{}: nobody takes it, so it proves nothing",
                        case.what
                    );
                }
            }
        }
    }
}
