//! A client for single requests that an operator configured, such as webhooks.
//!
//! It is as strict as the proxy of a box: HTTPS only, with verified certificates; one resolution of the name,
//! whose addresses are checked before one of them is dialled; and no private address, unless the operator
//! allows it for this request. It follows no redirect and reads no body.

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::str::FromStr;
use std::time::Duration;

use belljar_model::net::Target;
use bytes::Bytes;
use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::address::{Dialable, Filter, Private, Reach};
use crate::dns::{ResolveError, Resolver};
use crate::tls::{Roots, Upstream as Tls, UpstreamError as TlsError};

/// The time for a whole request, from the resolution of the name to the status of the response.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of addresses that are tried for a name.
const MAX_ADDRESSES: usize = 4;
/// The port of HTTPS.
const PORT: u16 = 443;

/// A client for single requests.
#[derive(Debug)]
pub struct Client {
    tls: Tls,
    resolver: Resolver,
    filter: Filter,
}

/// The URL of a request: `https://HOST[:PORT]/PATH[?QUERY]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    target: Target,
    port: u16,
    path: PathAndQuery,
}

/// Whether a request can reach private addresses and the machine itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrivateAddresses {
    Refused,
    /// The operator named the server. Metadata services are refused all the same.
    Allowed,
}

/// A text is not the URL of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("the URL must start with `https://`")]
    Scheme,
    #[error("the URL must not contain a user name, a password or a fragment")]
    Credentials,
    #[error("the host of the URL is not valid")]
    Host,
    #[error("the URL is not valid")]
    Malformed,
}

/// The reason why a request got no response.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{0}")]
    Resolve(ResolveError),
    #[error("{0}")]
    Private(Private),
    #[error("cannot connect to the server")]
    Connect,
    #[error("the TLS handshake failed, or the certificate of the server is not valid")]
    Tls,
    #[error("the server closed the connection, or its response is not HTTP")]
    Http,
    #[error("the server did not respond within {} s", TIMEOUT.as_secs())]
    Late,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        if text.contains('#') {
            return Err(EndpointError::Credentials);
        }
        let uri: Uri = text.parse().map_err(|_| EndpointError::Malformed)?;
        if uri.scheme_str() != Some("https") {
            return Err(EndpointError::Scheme);
        }
        let authority = uri.authority().ok_or(EndpointError::Host)?;
        if authority.as_str().contains('@') {
            return Err(EndpointError::Credentials);
        }
        let (host, port) = (authority.host(), authority.port());
        let is_port_valid = authority.as_str() == host || port.is_some();
        let port = port.map_or(PORT, |port| port.as_u16());
        if !is_port_valid || port == 0 {
            return Err(EndpointError::Host);
        }
        let target = host.to_ascii_lowercase().parse().map_err(|_| EndpointError::Host)?;
        let path = uri.path_and_query().cloned();
        Ok(Self { target, port, path: path.unwrap_or_else(|| PathAndQuery::from_static("/")) })
    }
}

impl Endpoint {
    /// Returns the host and the port, as in the header `Host`.
    pub fn authority(&self) -> String {
        match self.port {
            PORT => self.target.to_string(),
            port => format!("{}:{port}", self.target),
        }
    }
}

impl Client {
    /// Creates a client that verifies servers with these roots. `own` are the addresses of this machine.
    pub fn new(
        roots: &Roots,
        resolver: Resolver,
        own: impl IntoIterator<Item = IpAddr>,
    ) -> Result<Self, TlsError> {
        Ok(Self { tls: Tls::new(roots)?, resolver, filter: Filter::new(own) })
    }

    /// Sends a POST request and returns the status of the response.
    pub async fn post(
        &self,
        to: &Endpoint,
        private: PrivateAddresses,
        headers: &[(&'static str, String)],
        body: Vec<u8>,
    ) -> Result<u16, ClientError> {
        let exchange = async {
            let stream = connect(&self.addresses(to, private).await?).await?;
            let name = Tls::server_name(&to.target).map_err(|_| ClientError::Tls)?;
            let connector = TlsConnector::from(self.tls.http1());
            let stream = connector.connect(name, stream).await.map_err(|_| ClientError::Tls)?;
            let (mut sender, connection) =
                http1::handshake(TokioIo::new(stream)).await.map_err(|_| ClientError::Http)?;
            let request = request(to, headers, body).ok_or(ClientError::Http)?;
            let (mut connection, mut response) =
                (pin!(connection), pin!(sender.send_request(request)));
            let response = tokio::select! {
                biased;
                response = &mut response => response,
                _ = &mut connection => response.await,
            };
            response.map(|response| response.status().as_u16()).map_err(|_| ClientError::Http)
        };
        tokio::time::timeout(TIMEOUT, exchange).await.unwrap_or(Err(ClientError::Late))
    }

    /// Resolves the host once, and returns its addresses if all of them can be dialled: a name with public and
    /// private addresses is an attempt at DNS rebinding.
    async fn addresses(
        &self,
        to: &Endpoint,
        private: PrivateAddresses,
    ) -> Result<Vec<SocketAddr>, ClientError> {
        let found = match &to.target {
            Target::Address(address) => vec![*address],
            Target::Name(name) => {
                self.resolver.resolve(name).await.map_err(ClientError::Resolve)?
            }
        };
        let check = |address: IpAddr| -> Result<SocketAddr, ClientError> {
            let address = SocketAddr::new(address, to.port);
            let checked: Result<Dialable, Private> = match private {
                PrivateAddresses::Refused => self.filter.check(address.ip(), Reach::Public),
                PrivateAddresses::Allowed => self.filter.check_connect(address),
            };
            checked.map(|it| SocketAddr::new(it.ip(), to.port)).map_err(ClientError::Private)
        };
        let checked: Vec<SocketAddr> = found.into_iter().map(check).collect::<Result<_, _>>()?;
        Ok(checked.into_iter().take(MAX_ADDRESSES).collect())
    }
}

async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, ClientError> {
    for address in addresses {
        if let Ok(stream) = TcpStream::connect(address).await {
            return Ok(stream);
        }
    }
    Err(ClientError::Connect)
}

fn request(
    to: &Endpoint,
    headers: &[(&'static str, String)],
    body: Vec<u8>,
) -> Option<Request<Full<Bytes>>> {
    let mut request = Request::new(Full::new(Bytes::from(body)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from(to.path.clone());
    request.headers_mut().insert(HOST, HeaderValue::try_from(to.authority()).ok()?);
    for (name, value) in headers {
        let (name, value) = (HeaderName::from_static(name), HeaderValue::try_from(value).ok()?);
        request.headers_mut().insert(name, value);
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::ResolverConf;

    #[test]
    fn endpoint_is_an_https_url_without_credentials_and_fragment() {
        let endpoint = |text: &str| text.parse::<Endpoint>();
        assert_eq!(endpoint("https://Hooks.Example").unwrap().authority(), "hooks.example");
        let full = endpoint("https://hooks.example:8443/a?b=c").unwrap();
        assert_eq!(
            (full.authority().as_str(), full.path.as_str()),
            ("hooks.example:8443", "/a?b=c")
        );
        assert_eq!(endpoint("https://[::1]:1/").unwrap().authority(), "[::1]:1");
        for (text, error) in [
            ("http://a.example/", EndpointError::Scheme),
            ("a.example", EndpointError::Scheme),
            ("https://u:p@a.example/", EndpointError::Credentials),
            ("https://a.example/#b", EndpointError::Credentials),
            ("https://127.1/", EndpointError::Host),
            ("https://0x7f000001/", EndpointError::Host),
            ("https://a.example:0/", EndpointError::Host),
            ("https:///x", EndpointError::Malformed),
            ("https://a example/", EndpointError::Malformed),
        ] {
            assert_eq!(endpoint(text), Err(error), "{text}");
        }
    }

    fn client(hosts: &str) -> Client {
        let authority = belljar_testkit::Authority::new();
        let mut roots = Roots::none();
        roots.add_pem(authority.pem().as_bytes(), "test").unwrap();
        let resolver = Resolver::new(ResolverConf::new(Vec::new(), hosts)).unwrap();
        Client::new(&roots, resolver, ["192.0.2.7".parse().unwrap()]).unwrap()
    }

    #[tokio::test]
    async fn a03_private_address_or_name_of_one_is_refused_unless_allowed() {
        let hosts = "127.0.0.1 own.example\n8.8.8.8 mixed.example\n10.0.0.1 mixed.example\n\
                     169.254.169.254 cloud.example\n8.8.8.8 public.example\n";
        let client = client(hosts);
        for (host, is_allowed) in [
            ("own.example", true),
            ("mixed.example", true),
            ("127.0.0.1", true),
            ("10.1.2.3", true),
            ("[::1]", true),
            ("cloud.example", false),
            ("169.254.169.254", false),
            ("0.0.0.0", false),
        ] {
            let to: Endpoint = format!("https://{host}/").parse().unwrap();
            let refused = client.addresses(&to, PrivateAddresses::Refused).await;
            assert!(matches!(refused, Err(ClientError::Private(_))), "{host} {refused:?}");
            let allowed = client.addresses(&to, PrivateAddresses::Allowed).await;
            assert_eq!(allowed.is_ok(), is_allowed, "{host} {allowed:?}");
        }
        let public: Endpoint = "https://public.example/".parse().unwrap();
        let found = client.addresses(&public, PrivateAddresses::Refused).await.unwrap();
        assert_eq!(found, ["8.8.8.8:443".parse().unwrap()], "control");
    }
}
