//! The MCP client of a tool server. It notices that the server's list of tools changed, before it
//! processes any later message.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rmcp::handler::client::ClientHandler;
use rmcp::model::{ClientConfig, Implementation, JsonRpcMessage, ServerNotification};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

/// A shared flag that is set when the list of a server's tools has changed.
#[derive(Clone, Debug, Default)]
pub(super) struct StaleFlag(Arc<AtomicBool>);

impl StaleFlag {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn clear(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A transport that sets a [`StaleFlag`] when the server reports a change of its tools. The SDK handles
/// notifications in separate tasks, which a later response can overtake. This transport sees all messages
/// in their order.
#[derive(Debug)]
pub(super) struct WatchedTransport<T> {
    pub(super) inner: T,
    pub(super) stale: StaleFlag,
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for WatchedTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.inner.receive().await?;
        if let JsonRpcMessage::Notification(received) = &message
            && matches!(received.notification, ServerNotification::ToolListChangedNotification(_))
        {
            self.stale.0.store(true, Ordering::Release);
        }
        Some(message)
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}

/// The identity of Belljar as an MCP client. It offers no capabilities to servers.
#[derive(Clone, Debug)]
pub(super) struct McpClient;

impl ClientHandler for McpClient {
    fn get_info(&self) -> ClientConfig {
        let version = env!("CARGO_PKG_VERSION");
        ClientConfig::new(Default::default(), Implementation::new("belljar", version))
    }
}
