//! The TLS settings of a caller's fred client.

use ::fred::types::config::Config;

use super::Tls;
#[cfg(feature = "rustls")]
use super::library::TlsConnector as OurConnector;
use crate::error::Error;

impl Tls {
    /// None for a client without TLS. The client's features of fred decide which libraries its settings may be of.
    #[cfg(feature = "rustls")]
    pub(in crate::redis) fn of_fred(config: &Config) -> Result<Option<Self>, Error> {
        use ::fred::types::config::{ServerConfig, TlsConnector};

        let Some(tls) = &config.tls else {
            return Ok(None);
        };
        let own_name = match &config.server {
            ServerConfig::Centralized { server } => {
                let address = (server.host.to_string(), server.port);
                let name = server.tls_server_name.as_ref();
                name.map(|name| (address, name.to_string()))
            }
            _ => None,
        };
        match &tls.connector {
            TlsConnector::Rustls(connector) => Ok(Some(Self::given(ours(connector), own_name))),
            #[allow(
                unreachable_patterns,
                reason = "the caller's features of fred may enable another TLS library"
            )]
            _ => Err(Error::config(
                "the fred client uses TLS by native-tls, whose settings cannot be read: build it with a rustls connector, or name \
                 the servers by `url`, with `ca_file` and `client_certificate`",
            )),
        }
    }

    #[cfg(not(feature = "rustls"))]
    pub(in crate::redis) fn of_fred(config: &Config) -> Result<Option<Self>, Error> {
        match config.uses_tls() {
            true => Err(Error::config(
                "the fred client requires TLS: enable the feature `rustls` of redisson-lock",
            )),
            false => Ok(None),
        }
    }
}

/// The connector of a fred that is built with this crate's version of rustls. fred's public API shows its own version, so a minor version
/// of fred keeps it; a build with one that does not stops here, with the remedy.
#[cfg(feature = "rustls")]
fn ours(connector: &impl OfThisRustls) -> OurConnector {
    connector.connector()
}

#[cfg(feature = "rustls")]
#[diagnostic::on_unimplemented(
    message = "this version of fred has another rustls than redisson-lock, which cannot use its connectors",
    label = "a connector of fred's rustls",
    note = "build with a fred that redisson-lock knows: `cargo update fred --precise 10.1.0`",
    note = "or leave out the feature `fred` of redisson-lock: `default-features = false, features = [\"rustls\", \"serde\"]`"
)]
trait OfThisRustls {
    fn connector(&self) -> OurConnector;
}

#[cfg(feature = "rustls")]
impl OfThisRustls for OurConnector {
    fn connector(&self) -> OurConnector {
        self.clone()
    }
}
