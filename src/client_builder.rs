//! How a client is made.

use std::{fmt, sync::Arc};

use crate::{
    client::LockClient,
    config::Config,
    engine::EngineHandle,
    error::Error,
    redis::{AddressMap, FredClient, Target},
};

/// Settings for a new [`LockClient`]; made by [`LockClient::builder`].
#[must_use = "nothing is connected before `build`"]
pub struct LockClientBuilder {
    source: Option<Result<Target, Error>>,
    address_map: Option<AddressMap>,
    config: Config,
}

impl LockClientBuilder {
    pub(crate) fn new() -> Self {
        Self {
            source: None,
            address_map: None,
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

    /// Says at which address a node is reached from here that announces itself by another one, as behind a NAT.
    ///
    /// Sentinels announce where the master and the other sentinels are, nodes of a cluster where the others are; `map` gets
    /// the host and port and gives those to connect to. It has no effect on servers that the URL names.
    ///
    /// # Redisson
    ///
    /// `natMapper`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), redisson_lock::Error> {
    /// let client = redisson_lock::LockClient::builder()
    ///     .url("redis-sentinel://gateway:26379/mymaster")
    ///     .address_map(|_host, port| ("gateway".into(), port))
    ///     .build()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn address_map(
        mut self,
        map: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static,
    ) -> Self {
        self.address_map = Some(Arc::new(map));
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
        let mut target = self.source.unwrap_or_else(|| {
            Err(Error::config(
                "no server to connect to: give a `url` or a `fred` client",
            ))
        })?;
        if let Some(map) = self.address_map {
            target.map_addresses(map);
        }
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
