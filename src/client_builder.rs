//! How a client is made.

use std::fmt;

use crate::{
    client::LockClient,
    config::Config,
    engine::EngineHandle,
    error::Error,
    redis::{FredClient, Target},
};

/// Settings for a new [`LockClient`]; made by [`LockClient::builder`].
#[must_use = "nothing is connected before `build`"]
pub struct LockClientBuilder {
    source: Option<Result<Target, Error>>,
    config: Config,
}

impl LockClientBuilder {
    pub(crate) fn new() -> Self {
        Self {
            source: None,
            config: Config::default(),
        }
    }

    /// Connects to the server at `url`: see [`LockClient::connect`].
    pub fn url(mut self, url: impl AsRef<str>) -> Self {
        self.source = Some(Target::url(url.as_ref()));
        self
    }

    /// Connects to the server that a fred client is made for, with its credentials and TLS settings.
    ///
    /// The client's own connections are not used: locks need some that nothing else blocks or reconfigures.
    pub fn fred(mut self, client: &FredClient) -> Self {
        self.source = Some(Target::donor(client));
        self
    }

    /// Uses these settings.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// As [`LockClient::connect`]; [`Error::Config`] also for settings that cannot work, and without a server to
    /// connect to.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was open.
    pub async fn build(self) -> Result<LockClient, Error> {
        let target = self.source.unwrap_or_else(|| {
            Err(Error::config(
                "no server to connect to: give a `url` or a `fred` client",
            ))
        })?;
        let engine = EngineHandle::start(target, self.config).await?;
        Ok(LockClient::new(engine))
    }
}

impl fmt::Debug for LockClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClientBuilder")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
