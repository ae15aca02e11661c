//! The server `belljar serve`: one authenticated address for a person or a team.
//!
//! ```text
//! TCP, TLS ────┐                                   ┌─▶ /mcp     MCP, with the token of the client
//!              ├─▶ accept ─▶ hyper ─▶ head checks ─┤
//! local socket ┘    limits    HTTP/1.1             └─▶ routes ─▶ access, body ─▶ engine
//! ```
//! The accept loop is ours, because it limits connections, heads and writes. Every error response is a
//! [`problem::Problem`]. Every response has the security headers and the id of its request.

mod accept;
mod access;
mod app;
mod approver;
mod audit;
mod body;
mod box_list;
mod call;
mod devices;
mod drivers;
mod fair;
mod feed;
mod filter;
mod head;
mod headers;
mod idempotency;
mod identity;
mod jobs;
mod json;
mod known;
mod ledgers;
mod makers;
mod metrics;
pub(crate) mod oidc;
mod openapi;
mod page;
mod peer;
mod plan_request;
mod policies;
mod problem;
mod prover;
mod quotas;
mod rate;
mod revocation;
mod rights;
mod routes;
mod session;
mod signing;
mod stall;
pub(crate) mod store;
mod streams;
mod tenants;
mod webhooks;
mod websocket;
mod witness;

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use belljar_engine::network::roots;
use belljar_engine::scope::{Engine, Scoped};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::auth::token::Tokens;
use crate::error::ServeError;
use crate::http::HttpOptions;
use crate::http::gate::Gate;
use crate::http::names::AllowedNames;
use crate::mcp::service::Service;
use crate::tls::{ReloadableTls, TlsFiles};
use accept::Server;
use app::{App, Configured, PublicAddress};
use oidc::Oidc;
pub use prover::Prover;
use quotas::Quotas;
pub use rate::Rate;
use signing::SigningKey;
use store::{Store, TenantKey};

/// The configuration of the server.
#[derive(Debug)]
pub struct ServeOptions {
    /// The sockets that accept TCP connections.
    pub listeners: Vec<TcpListener>,
    /// The socket that accepts connections of local processes.
    pub local: UnixListener,
    pub tls: Option<TlsFiles>,
    /// The host names of the server in addition to the loopback names and its own address.
    pub hosts: Vec<String>,
    /// The tokens of the token file of MCP clients.
    pub mcp_tokens: Tokens,
    pub limits: ServeLimits,
    /// The attack suite, if the embedding program has one.
    pub prover: Option<Prover>,
}

/// The limits of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServeLimits {
    /// The maximum number of open connections of all clients.
    pub connections: usize,
    /// The maximum number of open connections of one source. The loopback interface is no source.
    pub per_source: usize,
    /// The timeout of a TLS handshake, of a request head, and so of an idle connection.
    pub head: Duration,
    /// The time that a write can wait for a client that does not read.
    pub write: Duration,
    /// The time that running requests have after the server was stopped.
    pub drain: Duration,
    /// The requests of one principal that change nothing. A tenant has four times as many.
    pub reads: Rate,
    /// The other requests of one principal.
    pub writes: Rate,
    /// The failed logins of one source.
    pub failed_logins: Rate,
    /// The time between two requests of a device for its token.
    pub device_poll: Duration,
    /// The time that a request to the identity provider has.
    pub provider: Duration,
    /// The number of boxes that start at once.
    pub starts: usize,
    /// The time after which the server looks whether the files of its certificate have changed.
    pub certificate_check: Duration,
    /// The time between two looks whether the runs of a tenant have a driver.
    pub drivers: Duration,
    /// The time between two checkpoints of the ledgers of tenants in the ledger `system`.
    pub checkpoints: Duration,
    /// The time between the first and the second attempt to send a webhook. It doubles each time.
    pub webhook_retry: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            per_source: 64,
            head: Duration::from_secs(10),
            write: Duration::from_secs(30),
            drain: Duration::from_secs(30),
            reads: Rate::per_second(50, 200),
            writes: Rate::per_second(10, 40),
            failed_logins: Rate::per_minute(5),
            device_poll: Duration::from_secs(5),
            provider: Duration::from_secs(10),
            starts: 4,
            certificate_check: Duration::from_secs(10),
            drivers: Duration::from_secs(5),
            checkpoints: Duration::from_secs(60 * 60),
            webhook_retry: Duration::from_secs(30),
        }
    }
}

/// How the embedding program controls a running server.
#[derive(Debug, Clone, Default)]
pub struct ServeControl {
    /// Stops the server after its running requests.
    pub stop: CancellationToken,
    /// Makes the server read its certificate again.
    pub reload: Arc<Notify>,
}

/// A server whose configuration is valid and whose sockets are open.
pub struct ReadyServer<S: Service> {
    server: Arc<Server<S>>,
    listeners: Vec<tokio::net::TcpListener>,
    local: tokio::net::UnixListener,
    gate: Arc<Gate<S>>,
    idle: Duration,
    certificate_check: Duration,
    url: String,
}

impl<S: Service> std::fmt::Debug for ReadyServer<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadyServer").finish_non_exhaustive()
    }
}

impl<S: Service> ReadyServer<S> {
    /// Checks the configuration of a server. `state` is the scope of the user that runs the server, in the
    /// tenant `local`. Must be called in a runtime of tokio.
    pub fn new(
        engine: Engine,
        state: Scoped,
        service: &Arc<S>,
        options: ServeOptions,
        control: &ServeControl,
    ) -> Result<Self, ServeError> {
        let tls = options
            .tls
            .clone()
            .map(|files| ReloadableTls::read(files, options.hosts.clone(), state.clock()));
        let tls = tls.transpose()?;
        for listener in &options.listeners {
            check_encrypted(listener.local_addr().map_err(ServeError::Listen)?, tls.is_some())?;
        }
        let store = Store::open(&state.store().layout().gateway_database())?;
        let installation = store.installation()?;
        let owner = state.caller().clone();
        let local = TenantKey(owner.tenant.clone(), owner.principal.clone());
        store.create_tenant(&local, state.clock().millis())?;
        let address = address(&options, &installation.name)?;
        let hosts: Vec<String> = options.hosts.iter().cloned().chain([installation.name]).collect();
        let names = AllowedNames::new(&hosts, &[])?;
        let mcp = HttpOptions::new(options.mcp_tokens, owner);
        let idle = mcp.limits.idle;
        let gate = Arc::new(Gate::new(service, &mcp, &control.stop)?);
        let url = address.url.clone();
        let key = SigningKey::new(&installation.key);
        let oidc = provider(&state, &address, options.limits.provider)?;
        let configured = Configured { quotas: Quotas::new(&state)?, oidc };
        let app = App::new(
            engine,
            state,
            store,
            key,
            address,
            (options.limits, options.prover, configured),
            control.stop.clone(),
        );
        if policies::restore(&app).is_err() {
            tracing::error!(
                "a saved policy cannot be written; it is tried again at the next start"
            );
        }
        let server = Server::new(
            Arc::new(app),
            Arc::clone(&gate),
            names,
            tls,
            options.limits,
            control.stop.clone(),
        );
        let listeners = options.listeners.into_iter().map(|listener| {
            listener.set_nonblocking(true)?;
            tokio::net::TcpListener::from_std(listener)
        });
        let listeners = listeners.collect::<Result<_, _>>().map_err(ServeError::Listen)?;
        options.local.set_nonblocking(true).map_err(ServeError::Listen)?;
        let local =
            tokio::net::UnixListener::from_std(options.local).map_err(ServeError::Listen)?;
        let certificate_check = options.limits.certificate_check;
        Ok(Self { server: Arc::new(server), listeners, local, gate, idle, certificate_check, url })
    }

    /// Returns the address that people use for the server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Makes a link that logs the owner of the tenant `local` in. `None` if that cannot be recorded.
    pub fn login_link(&self) -> Option<Zeroizing<String>> {
        self.server.login_link()
    }

    /// Serves until the server is stopped and its running requests have ended.
    pub async fn run(self, control: ServeControl) {
        let reload = async {
            loop {
                let changed = tokio::time::sleep(self.certificate_check);
                tokio::select! {
                    () = control.reload.notified() => self.server.reload_tls(),
                    () = changed => self.server.reload_changed_tls(),
                }
            }
        };
        let serving = async {
            tokio::join!(
                self.server.run(self.listeners, self.local),
                self.server.witness(),
                self.server.keep_drivers(),
                self.server.end_revoked_streams(),
                self.server.webhooks(),
            );
        };
        tokio::select! {
            () = serving => {}
            () = crate::http::expire(&self.gate, self.idle) => {}
            () = reload => {}
        }
        self.gate.close_all().await;
    }
}

/// Prepares the login with the identity provider of the operator's file, if it has one.
fn provider(
    state: &Scoped,
    address: &PublicAddress,
    time: Duration,
) -> Result<Option<Oidc>, ServeError> {
    let config = state.load_operator_config()?;
    let Some(settings) = config.oidc() else { return Ok(None) };
    let roots = roots::certificates(&config, state.host())?;
    Ok(Some(Oidc::new(settings.clone(), (roots, time), &address.url)?))
}

/// Refuses an address that other machines can reach, unless the server has a certificate.
fn check_encrypted(address: SocketAddr, has_tls: bool) -> Result<(), ServeError> {
    if has_tls || address.ip().to_canonical().is_loopback() {
        Ok(())
    } else {
        Err(ServeError::TlsRequired(address))
    }
}

/// Returns the address that people use. Without a public name it is the random name of the installation.
fn address(options: &ServeOptions, own_name: &str) -> Result<PublicAddress, ServeError> {
    let first = options.listeners.first().map(TcpListener::local_addr);
    let first = first.transpose().map_err(ServeError::Listen)?;
    let (scheme, standard) = if options.tls.is_some() { ("https", 443) } else { ("http", 80) };
    let port = first.map_or(standard, |address| address.port());
    let name = options.hosts.first().map_or(own_name, String::as_str).to_ascii_lowercase();
    let host = if port == standard { name } else { format!("{name}:{port}") };
    let is_loopback = first.is_none_or(|address| address.ip().to_canonical().is_loopback());
    Ok(PublicAddress { url: format!("{scheme}://{host}"), host, is_loopback })
}
