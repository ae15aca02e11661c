//! Sends the webhooks of a server, with the client of the broker.

use belljar_broker::client::{Client, PrivateAddresses};
pub use belljar_broker::client::{ClientError, Endpoint, EndpointError};
use belljar_broker::dns::{Resolver, ResolverConf};

use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::network;
use crate::scope::Scoped;

/// Sends webhooks.
#[derive(Debug)]
pub struct WebhookClient(Client);

/// Whether a webhook can be sent to private addresses and to the machine itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    Public,
    Private,
}

impl WebhookClient {
    /// Creates a client with the root certificates of the configuration. Must be called in a runtime of tokio.
    pub fn new(state: &Scoped) -> Result<Self, EngineError> {
        let (config, _) = state.load_config(None)?;
        let roots = network::roots::of_config(&config, state.host())?;
        let resolver = Resolver::new(ResolverConf::system()).kind(ErrorKind::Broken)?;
        let client = Client::new(&roots, resolver, network::own_addresses());
        client.kind(ErrorKind::Broken).map(Self)
    }

    /// Sends a POST request and returns the status of the response. Follows no redirect.
    pub async fn post(
        &self,
        to: &Endpoint,
        reach: Reach,
        headers: &[(&'static str, String)],
        body: Vec<u8>,
    ) -> Result<u16, ClientError> {
        let private = match reach {
            Reach::Public => PrivateAddresses::Refused,
            Reach::Private => PrivateAddresses::Allowed,
        };
        self.0.post(to, private, headers, body).await
    }
}
