//! Reads the settings of a caller's fred client: servers, credentials, TLS. No byte travels through that client. Only this file and
//! `tls/of_fred.rs` name the library.

use std::sync::Arc;

use ::fred::{
    interfaces::ClientLike,
    types::config::{CredentialProvider, Server, ServerConfig as FredServer},
};

use super::{
    credentials_provider::CredentialsProvider,
    endpoint::Endpoint,
    opener::ServerConfig,
    socket::{Dialer, Sockets},
    target::Target,
    tls::Tls,
};
use crate::{
    credentials::{Credentials, CredentialsRequest},
    error::Error,
};

pub(crate) use ::fred::clients::Client as FredClient;

impl Target {
    /// The servers of `client`, with its credentials and TLS settings.
    pub(crate) fn of_fred(client: &FredClient) -> Result<Self, Error> {
        target_of(client)
    }
}

fn target_of(client: &FredClient) -> Result<Target, Error> {
    let config = client.client_config();
    let sockets = Arc::new(Sockets {
        dialer: Dialer {
            tls: Tls::of_fred(&config)?,
            resolver: None,
        },
        provider: config.credential_provider.clone().map(provider),
        wait: None,
    });
    let server = |endpoint| ServerConfig {
        username: config.username.clone(),
        password: config.password.clone(),
        database: config.database.map(u32::from),
        ..ServerConfig::new(sockets.clone(), endpoint)
    };
    let addresses = |hosts: &[Server]| {
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

/// A fred client's own source of credentials.
fn provider(source: Arc<dyn CredentialProvider>) -> CredentialsProvider {
    CredentialsProvider::new(move |CredentialsRequest { host, port, .. }| {
        let source = source.clone();
        async move {
            let server = (port != 0).then(|| Server::new(host, port));
            let fetched = source.fetch(server.as_ref()).await;
            let (username, password) = fetched.map_err(|error| error.details().to_owned())?;
            let credentials = Credentials {
                username,
                password,
                end: None,
            };
            Ok::<_, String>(match source.refresh_interval() {
                Some(interval) => credentials.valid_for(interval),
                None => credentials,
            })
        }
    })
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use ::fred::types::{Builder, config::Config};

    use super::*;
    use crate::{LockClient, redis::hash_slot::hash_slot};

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
            let client = Builder::from_config(config).build().unwrap();
            let builder = LockClient::builder()
                .fred(&client)
                .credentials("", "s3cret");
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

    #[test]
    fn slots_are_those_of_fred() {
        for _ in 0..20_000 {
            let byte = || match fastrand::u8(..8) {
                0 => fastrand::u8(..),
                chosen => b"{}{}abc"[usize::from(chosen) - 1],
            };
            let key: Vec<u8> = std::iter::repeat_with(byte)
                .take(fastrand::usize(..12))
                .collect();
            let expected = ::fred::util::redis_keyslot(&key);
            assert_eq!(hash_slot(&key), expected, "{}", key.escape_ascii());
        }
    }
}
