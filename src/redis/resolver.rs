//! A program's own way from host names to addresses.

use std::{fmt, net::SocketAddr, sync::Arc};

use tokio::task::JoinSet;

use super::BoxFuture;

type Resolve = dyn Fn(String, u16) -> BoxFuture<Result<Vec<SocketAddr>, String>> + Send + Sync;

/// A program's own way from a host name to addresses.
#[derive(Clone)]
pub(crate) struct Resolver(Arc<Resolve>);

impl Resolver {
    pub(crate) fn new<F, Fut, E>(resolve: F) -> Self
    where
        F: Fn(String, u16) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<SocketAddr>, E>> + Send + 'static,
        E: fmt::Display,
    {
        let resolve = Arc::new(resolve);
        Self(Arc::new(move |host, port| {
            let resolve = resolve.clone();
            Box::pin(async move {
                let resolved = resolve(host, port).await;
                resolved.map_err(|error| error.to_string())
            })
        }))
    }

    /// Asks in a task of its own: the callback can panic. The task ends with the future.
    pub(super) async fn addresses(
        &self,
        host: String,
        port: u16,
    ) -> Result<Vec<SocketAddr>, String> {
        let mut asking = JoinSet::new();
        asking.spawn(self.0(host, port));
        let asked = asking.join_next().await;
        let panicked = || Err("the resolver panicked".to_owned());
        asked.and_then(Result::ok).unwrap_or_else(panicked)
    }
}
