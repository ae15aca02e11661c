//! Hears that a server's tools are not what they were, before anything that comes behind that word.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rmcp::handler::client::ClientHandler;
use rmcp::model::{ClientConfig, Implementation, JsonRpcMessage, ServerNotification};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

/// Whether a list of tools is to be asked for anew.
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

/// Messages as they come in. The SDK hands notifications to tasks of their own, which an answer that
/// comes later may overtake: so they are looked at here, in their order.
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
        if let JsonRpcMessage::Notification(heard) = &message
            && matches!(heard.notification, ServerNotification::ToolListChangedNotification(_))
        {
            self.stale.0.store(true, Ordering::Release);
        }
        Some(message)
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}

/// Who we are to a server. It may ask us for nothing.
#[derive(Clone, Debug)]
pub(super) struct McpClient;

impl ClientHandler for McpClient {
    fn get_info(&self) -> ClientConfig {
        let version = env!("CARGO_PKG_VERSION");
        ClientConfig::new(Default::default(), Implementation::new("belljar", version))
    }
}
