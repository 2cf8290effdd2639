//! Sockets with TLS, by rustls.

use std::sync::Arc;

use tokio::net::TcpStream;

use super::{
    TlsSettings,
    files::Files,
    library::{TlsConnector, rustls::pki_types::ServerName},
    problem::refused,
};
use crate::{
    error::Error,
    redis::{
        connect_error::{ConnectError, ConnectErrorKind},
        endpoint::{Address, Socket},
    },
    tls_verification::TlsVerification,
};

/// How connections are encrypted.
#[derive(Clone)]
pub(crate) struct Tls {
    source: Source,
    /// A fred client's server may have its own name for TLS.
    own_name: Option<(Address, String)>,
    /// The name in all servers' certificates, if it is not the host.
    name: Option<String>,
}

#[derive(Clone)]
enum Source {
    /// A fred client's own settings.
    #[cfg_attr(
        not(feature = "fred"),
        expect(dead_code, reason = "only a fred client has them")
    )]
    ProgramTransport(TlsConnector),
    Files(Arc<Files>),
}

impl Tls {
    /// Trusts the authorities of the system. They are read at the first connection.
    pub(in crate::redis) fn of_the_system() -> Result<Self, Error> {
        Ok(Self::of_files(&TlsSettings::default()))
    }

    /// Connects by settings that the library already has.
    #[cfg(feature = "fred")]
    pub(super) fn given(connector: TlsConnector, own_name: Option<(Address, String)>) -> Self {
        Self {
            source: Source::ProgramTransport(connector),
            own_name,
            name: None,
        }
    }

    /// Loads the files of a client's settings.
    pub(in crate::redis) fn of_settings(settings: &TlsSettings) -> Result<Self, Error> {
        if let Some(name) = &settings.servers.name {
            ServerName::try_from(&**name).map_err(|_| {
                Error::config(format!(
                    "server_name {name:?} cannot be the name of a server"
                ))
            })?;
        }
        let tls = Self::of_files(settings);
        if let Source::Files(files) = &tls.source {
            files.current()?;
        }
        Ok(tls)
    }

    fn of_files(settings: &TlsSettings) -> Self {
        Self {
            source: Source::Files(Arc::new(Files::new(settings))),
            own_name: None,
            name: settings.servers.name.clone(),
        }
    }

    /// Starts TLS on `socket` with a server whose certificate is for `host`.
    pub(in crate::redis) async fn secure(
        &self,
        host: &str,
        port: u16,
        socket: TcpStream,
    ) -> Result<Box<dyn Socket>, ConnectError> {
        let own_name = self.own_name.as_ref();
        let own_name = own_name.filter(|((own, at), _)| own == host && *at == port);
        let name = own_name.map_or(host, |(_, name)| name);
        let name = self.name.as_deref().unwrap_or(name).to_owned();
        let name = self.checked(name)?;
        let connector = self.connector().await?;
        let secured = connector.connect(name.clone(), socket).await;
        Ok(Box::new(secured.map_err(|error| refused(&error, &name))?))
    }

    /// The name for the handshake. A host that cannot be in a certificate matters only if names are checked.
    fn checked(&self, name: String) -> Result<ServerName<'static>, ConnectError> {
        let unnamed = match &self.source {
            Source::Files(files) => files.verification != TlsVerification::Full,
            Source::ProgramTransport(_) => false,
        };
        match ServerName::try_from(name) {
            Err(_) if unnamed => Ok(ServerName::from(std::net::Ipv4Addr::UNSPECIFIED)),
            checked => checked.map_err(|error| other(&error.to_string())),
        }
    }

    /// Reads the files anew: certificates are replaced while the program runs.
    async fn connector(&self) -> Result<TlsConnector, ConnectError> {
        let files = match &self.source {
            Source::ProgramTransport(connector) => return Ok(connector.clone()),
            Source::Files(files) => files.clone(),
        };
        let reading = tokio::task::spawn_blocking(move || files.current());
        let read = reading.await.map_err(|error| other(&error.to_string()))?;
        let (connector, fault) = read.map_err(|error| ConnectError {
            kind: ConnectErrorKind::Config,
            details: match error {
                Error::Config { reason, .. } => reason,
                other => other.to_string(),
            },
        })?;
        if let Some(error) = fault {
            tracing::warn!(%error, "the TLS files cannot be used; connecting with the last good ones");
        }
        Ok(connector)
    }
}

fn other(details: &str) -> ConnectError {
    ConnectError {
        kind: ConnectErrorKind::Other,
        details: details.to_owned(),
    }
}
