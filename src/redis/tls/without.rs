//! The library without the feature `rustls`.

use ::fred::types::config::Config;
use tokio::net::TcpStream;

use super::TlsSettings;
use crate::{
    error::Error,
    redis::{
        connect_error::{ConnectError, ConnectErrorKind},
        endpoint::Socket,
    },
};

/// Refuses TLS without the feature `rustls`: the client never connects in plain text instead (P-FR15).
#[derive(Clone)]
pub(crate) struct Tls;

impl Tls {
    pub(in crate::redis) fn of_the_system() -> Result<Self, Error> {
        Err(Error::config(
            "the URL requires TLS: enable the feature `rustls` of redisson-lock",
        ))
    }

    pub(in crate::redis) fn of_settings(_settings: &TlsSettings) -> Result<Self, Error> {
        Self::of_the_system()
    }

    pub(in crate::redis) fn of_donor(_config: &Config) -> Option<Self> {
        Some(Self)
    }

    pub(in crate::redis) async fn secure(
        &self,
        _host: &str,
        _port: u16,
        _socket: TcpStream,
    ) -> Result<Box<dyn Socket>, ConnectError> {
        Err(ConnectError {
            kind: ConnectErrorKind::Config,
            details: "the fred client requires TLS: enable the feature `rustls` of redisson-lock"
                .into(),
        })
    }
}
