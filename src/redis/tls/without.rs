//! The library without the feature `rustls`.

use tokio::net::TcpStream;

use super::TlsSettings;
use crate::{
    error::Error,
    redis::{connect_error::ConnectError, endpoint::Socket},
};

/// Refuses TLS without the feature `rustls`: the client never connects in plain text instead (P-FR15). No value exists.
#[derive(Clone)]
pub(crate) enum Tls {}

impl Tls {
    pub(in crate::redis) fn of_the_system() -> Result<Self, Error> {
        Err(Error::config(
            "the URL requires TLS: enable the feature `rustls` of redisson-lock",
        ))
    }

    pub(in crate::redis) fn of_settings(_settings: &TlsSettings) -> Result<Self, Error> {
        Self::of_the_system()
    }

    pub(in crate::redis) async fn secure(
        &self,
        _host: &str,
        _port: u16,
        _socket: TcpStream,
    ) -> Result<Box<dyn Socket>, ConnectError> {
        match *self {}
    }
}
