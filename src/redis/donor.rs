//! Reads the configuration of a caller's fred client.

use std::sync::Arc;

use ::fred::{interfaces::ClientLike, types::config::ServerConfig as FredServer};

use super::{
    endpoint::Endpoint,
    fred::{self, FredClient},
    opener::ServerConfig,
    reconnect::KnownServers,
    socket::{Dialer, Sockets},
    target::Target,
    tls::Tls,
};
use crate::{error::Error, protocol::Protocol};

impl Target {
    pub(crate) fn donor(client: &FredClient) -> Result<Self, Error> {
        target_of(client)
    }
}

/// Copies the address, the credentials and the TLS settings of the caller's client. Its connections are not used.
fn target_of(donor: &FredClient) -> Result<Target, Error> {
    let config = donor.client_config();
    let sockets = Arc::new(Sockets {
        dialer: Dialer {
            tls: Tls::of_fred(&config)?,
            resolver: None,
        },
        provider: config.credential_provider.clone().map(fred::provider),
        wait: None,
    });
    let servers = KnownServers::new();
    let server = |endpoint| ServerConfig {
        servers: servers.clone(),
        opener: sockets.clone(),
        endpoint,
        username: config.username.clone(),
        password: config.password.clone(),
        database: config.database.map(u32::from),
        protocol: Protocol::Auto,
        connection_name: None,
    };
    let addresses = |hosts: &[::fred::types::config::Server]| {
        hosts
            .iter()
            .map(|server| (server.host.to_string(), server.port))
            .collect::<Vec<_>>()
    };
    Ok(match &config.server {
        FredServer::Centralized { server: at } => {
            Target::fixed(server(Endpoint::Tcp((at.host.to_string(), at.port))))
        }
        #[cfg(unix)]
        FredServer::Unix { path } => Target::fixed(server(Endpoint::Unix(path.clone()))),
        FredServer::Sentinel {
            hosts,
            service_name,
            ..
        } => Target::of_service(
            server(Endpoint::unknown()),
            service_name.clone(),
            (None, None),
            addresses(hosts),
        ),
        FredServer::Clustered { hosts, .. } => {
            Target::cluster(server(Endpoint::unknown()), addresses(hosts))
        }
    })
}

#[cfg(test)]
mod tests {
    use ::fred::types::{
        Builder,
        config::{Config, CredentialProvider, Server},
    };

    use std::pin::Pin;

    use super::*;
    use crate::{LockClient, error::Error};

    /// A source of passwords that change.
    #[derive(Debug)]
    struct Rotating;

    type Login = (Option<String>, Option<String>);

    impl CredentialProvider for Rotating {
        fn fetch<'a, 'b, 'c>(
            &'a self,
            _server: Option<&'b Server>,
        ) -> Pin<Box<dyn Future<Output = Result<Login, ::fred::error::Error>> + Send + 'c>>
        where
            'a: 'c,
            'b: 'c,
        {
            Box::pin(async { Ok((None, Some("of today".into()))) })
        }
    }

    #[tokio::test]
    async fn credentials_beside_a_provider_of_credentials_are_refused() {
        let settings = |config: Config| {
            let donor = Builder::from_config(config).build().unwrap();
            let builder = LockClient::builder().fred(&donor).credentials("", "s3cret");
            builder.into_target().map(drop)
        };
        assert_eq!(settings(Config::default()), Ok(()));
        let refused = settings(Config {
            credential_provider: Some(Arc::new(Rotating)),
            ..Config::default()
        });
        match refused {
            Err(Error::Config { reason }) => {
                assert!(reason.contains("`credentials`"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}
