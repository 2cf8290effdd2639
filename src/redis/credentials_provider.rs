//! A program's source of credentials, asked for each connection.

use std::{fmt, sync::Arc};

use tokio::time::{Instant, timeout, timeout_at};

use super::{
    BoxFuture,
    connect_error::{ConnectError, ConnectErrorKind},
    endpoint::Endpoint,
    time_limits::CREDENTIALS_WAIT,
};
use crate::{
    credentials::{Credentials, CredentialsRequest},
    server_text,
};

type Provide = dyn Fn(CredentialsRequest) -> BoxFuture<Result<Credentials, String>> + Send + Sync;

/// A program's source of credentials.
#[derive(Clone)]
pub(crate) struct CredentialsProvider(Arc<Provide>);

impl CredentialsProvider {
    pub(crate) fn new<F, Fut, E>(provide: F) -> Self
    where
        F: Fn(CredentialsRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: fmt::Display,
    {
        let provide = Arc::new(provide);
        Self(Arc::new(move |request| {
            let provide = provide.clone();
            Box::pin(async move {
                let provided = provide(request).await;
                provided.map_err(|error| error.to_string())
            })
        }))
    }

    /// The credentials for the server at `endpoint`. The callback runs in a task of its own: it can panic, it can block its thread,
    /// and a late call can still fill a cache.
    pub(super) async fn credentials(
        &self,
        endpoint: &Endpoint,
        is_sentinel: bool,
        deadline: Instant,
    ) -> Result<Credentials, ConnectError> {
        let (host, port) = match endpoint {
            Endpoint::Tcp((host, port)) => (host.clone(), *port),
            Endpoint::Unix(path) => (path.to_string_lossy().into_owned(), 0),
        };
        let request = CredentialsRequest {
            host,
            port,
            is_sentinel,
        };
        let provide = self.0.clone();
        let task = tokio::spawn(async move { timeout(CREDENTIALS_WAIT, provide(request)).await });
        let details = match timeout_at(deadline, task).await {
            Ok(Ok(Ok(Ok(credentials)))) => return Ok(credentials),
            Ok(Ok(Ok(Err(reason)))) => server_text::shown(&reason),
            Ok(Err(_)) => "it panicked".to_owned(),
            Ok(Ok(Err(_))) | Err(_) => {
                "it did not answer within the time for one connection".to_owned()
            }
        };
        Err(ConnectError {
            kind: ConnectErrorKind::Provider,
            details,
        })
    }
}
