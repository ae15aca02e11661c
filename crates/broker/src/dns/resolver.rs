//! Resolves names with the upstream DNS servers, for the broker.
//!
//! Resolves a [`Hostname`] exactly as given, without search domains or local aliases. The servers
//! and the hosts file are read beforehand, because a locked-down broker has no file system. The
//! answers are untrusted: the caller checks each address, and dials only a checked address.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use belljar_model::net::Hostname;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;
use serde::{Deserialize, Serialize};

const RESOLV_CONF: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";
const DNS_PORT: u16 = 53;
/// The maximum number of DNS servers, as in the C library.
const MAX_SERVERS: usize = 3;
const MAX_ADDRESSES: usize = 16;
const MAX_HOSTS: usize = 10_000;
/// The timeout of one query to one DNS server.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(6);
/// The maximum time that a DNS answer is cached, even if its TTL is longer.
const MAX_TTL: Duration = Duration::from_secs(60);
const MAX_CACHED: u64 = 256;

/// The DNS servers and the entries of the hosts file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolverConf {
    servers: Vec<SocketAddr>,
    hosts: HashMap<Hostname, Vec<IpAddr>>,
}

impl ResolverConf {
    /// Reads the resolver configuration and the hosts file of this machine.
    pub fn system() -> Self {
        let text = |path| {
            let bytes = std::fs::read(path).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Self::new(servers(&text(RESOLV_CONF)), &text(HOSTS))
    }

    /// Creates a resolver configuration from DNS servers and the text of a hosts file.
    pub fn new(servers: Vec<SocketAddr>, hosts: &str) -> Self {
        Self { servers, hosts: parse_hosts(hosts) }
    }
}

/// Returns the DNS servers in a `resolv.conf`; without any, the local one, as in resolv.conf(5).
fn servers(text: &str) -> Vec<SocketAddr> {
    let mut servers = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if words.next() != Some("nameserver") {
            continue;
        }
        let Some(word) = words.next() else { continue };
        // A link-local address can contain its interface.
        let address = word.split('%').next().unwrap_or(word);
        servers.extend(address.parse::<IpAddr>().map(|address| SocketAddr::new(address, DNS_PORT)));
    }
    servers.truncate(MAX_SERVERS);
    if servers.is_empty() {
        servers.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), DNS_PORT));
    }
    servers
}

fn parse_hosts(text: &str) -> HashMap<Hostname, Vec<IpAddr>> {
    let mut hosts: HashMap<Hostname, Vec<IpAddr>> = HashMap::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(Ok(address)) = words.next().map(str::parse::<IpAddr>) else { continue };
        for name in words.filter_map(|word| word.parse::<Hostname>().ok()) {
            if hosts.len() < MAX_HOSTS || hosts.contains_key(&name) {
                let addresses = hosts.entry(name).or_default();
                if addresses.len() < MAX_ADDRESSES && !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
        }
    }
    hosts
}

#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error("cannot set up the DNS resolver: {0}")]
    Setup(String),
    #[error("the host name `{0}` has no address")]
    NoAddress(Hostname),
    #[error("no DNS server answered for `{0}` in time")]
    Timeout(Hostname),
    #[error("the DNS servers did not resolve `{0}`")]
    Failed(Hostname),
}

/// Resolves names to addresses with the upstream DNS servers.
pub struct Resolver {
    hosts: HashMap<Hostname, Vec<IpAddr>>,
    inner: TokioResolver,
    deadline: Duration,
}

impl Resolver {
    pub fn new(conf: ResolverConf) -> Result<Self, ResolveError> {
        let servers = conf.servers.iter().map(name_server).collect();
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        let mut builder =
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        configure(builder.options_mut());
        let inner = builder.build().map_err(|error| ResolveError::Setup(error.to_string()))?;
        Ok(Self { hosts: conf.hosts, inner, deadline: LOOKUP_TIMEOUT })
    }

    /// Resolves a name. Returns 1 to 16 addresses, IPv4 first, which the caller must check.
    pub async fn resolve(&self, name: &Hostname) -> Result<Vec<IpAddr>, ResolveError> {
        if let Some(addresses) = self.hosts.get(name) {
            return Ok(addresses.clone());
        }
        let failed = || ResolveError::Failed(name.clone());
        let mut absolute = Name::from_ascii(name.as_str()).map_err(|_| failed())?;
        absolute.set_fqdn(true);
        let found = match tokio::time::timeout(self.deadline, self.inner.lookup_ip(absolute)).await
        {
            Err(_) => return Err(ResolveError::Timeout(name.clone())),
            Ok(Err(error)) if error.is_no_records_found() => {
                return Err(ResolveError::NoAddress(name.clone()));
            }
            Ok(Err(hickory_resolver::net::NetError::Timeout)) => {
                return Err(ResolveError::Timeout(name.clone()));
            }
            // The text of the error can contain bytes of the answer.
            Ok(Err(_)) => return Err(failed()),
            Ok(Ok(found)) => found,
        };
        let mut addresses = Vec::new();
        for address in found.iter() {
            if addresses.len() < MAX_ADDRESSES && !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if addresses.is_empty() {
            return Err(ResolveError::NoAddress(name.clone()));
        }
        Ok(addresses)
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

fn name_server(server: &SocketAddr) -> NameServerConfig {
    let mut config = NameServerConfig::udp_and_tcp(server.ip());
    for connection in &mut config.connections {
        connection.port = server.port();
    }
    config
}

fn configure(options: &mut ResolverOpts) {
    options.ndots = 0;
    options.timeout = ATTEMPT_TIMEOUT;
    options.attempts = 1;
    options.edns0 = true;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.use_hosts_file = ResolveHosts::Never;
    options.cache_size = MAX_CACHED;
    options.positive_max_ttl = Some(MAX_TTL);
    options.negative_max_ttl = Some(MAX_TTL / 6);
}

#[cfg(test)]
mod tests;
