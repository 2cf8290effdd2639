//! Names what is wrong with a certificate, and the remedy.

use crate::redis::connect_error::ConnectErrorKind;

/// What the server says about the client's certificate, by the alert in `details`.
pub(in crate::redis) fn of_alert(details: &str) -> Option<ConnectErrorKind> {
    let (_, alert) = details.split_once("alert: ")?;
    let word = alert
        .split(|character: char| !character.is_alphanumeric())
        .next();
    Some(match word? {
        "CertificateRequired" => ConnectErrorKind::Certificate {
            advice: "the server requires a client certificate: set `client_certificate` or `key_store`",
            is_lasting: true,
        },
        "CertificateExpired" => ConnectErrorKind::Certificate {
            advice: "the server says that the client's certificate has expired: renew the files of `client_certificate` or `key_store`",
            is_lasting: false,
        },
        "UnknownCA"
        | "BadCertificate"
        | "UnsupportedCertificate"
        | "CertificateRevoked"
        | "CertificateUnknown"
        | "AccessDenied" => ConnectErrorKind::Certificate {
            advice: "the server rejects the client's certificate: set `client_certificate` or `key_store` to one of an \
                     authority that the server trusts",
            is_lasting: true,
        },
        _ => ConnectErrorKind::Certificate {
            advice: "the server ended the TLS handshake: if it requires a client certificate, check `client_certificate` or `key_store`",
            is_lasting: false,
        },
    })
}

#[cfg(feature = "rustls")]
pub(super) use refusal::refused;

#[cfg(feature = "rustls")]
mod refusal {
    use std::io;

    use super::super::library::rustls::{
        CertificateError as Problem, Error::InvalidCertificate, pki_types::ServerName,
    };

    use crate::redis::connect_error::{ConnectError, ConnectErrorKind};

    /// Why the client refused the server's certificate, with advice.
    pub(in crate::redis::tls) fn refused(error: &io::Error, name: &ServerName<'_>) -> ConnectError {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        let Some(InvalidCertificate(problem)) = inner else {
            return ConnectError {
                kind: ConnectErrorKind::Other,
                details: error.to_string(),
            };
        };
        // Time and the server's operator correct these.
        let passing = match problem {
            Problem::Expired | Problem::ExpiredContext { .. } => Some(
                "the server's certificate has expired: renew it at the server, and check the clock of this machine",
            ),
            Problem::NotValidYet | Problem::NotValidYetContext { .. } => Some(
                "the server's certificate is not valid yet: check the clock of this machine and the certificate's dates",
            ),
            _ => None,
        };
        match passing {
            Some(advice) => ConnectError {
                kind: ConnectErrorKind::Certificate {
                    advice,
                    is_lasting: false,
                },
                details: error.to_string(),
            },
            None => ConnectError {
                kind: ConnectErrorKind::Config,
                details: format!("{} ({error})", remedy(problem, name)),
            },
        }
    }

    /// What to change. Retries do not correct these problems.
    fn remedy(problem: &Problem, name: &ServerName<'_>) -> String {
        let reason = match problem {
            Problem::NotValidForNameContext { presented, .. } if presented.is_empty() => {
                "the server's certificate has no subjectAltName, and a common name does not count: issue one with \
                 subjectAltName, or set `tls_verification` to `Ca`"
            }
            Problem::NotValidForName | Problem::NotValidForNameContext { .. } => {
                return format!(
                    "the server's certificate is not valid for {:?}: connect by a name in the certificate, or set \
                     `server_name` to one",
                    name.to_str()
                );
            }
            Problem::UnknownIssuer => {
                "the server's certificate is not signed by a trusted authority: set `ca_file` to the authority's PEM \
                 file, or `trust_store`"
            }
            Problem::BadSignature => {
                "the server's certificate is not signed by the key of its trusted authority, which another key of the \
                 same name may have replaced: set `ca_file` to the authority's present PEM file"
            }
            Problem::InvalidPurpose | Problem::InvalidPurposeContext { .. } => {
                "the server's certificate is not for servers: issue one with the extended key usage serverAuth"
            }
            Problem::Other(inner) => match &*format!("{:?}", inner.0) {
                "UnsupportedCertVersion" => {
                    "the server's certificate is of X.509 version 1, which cannot hold names: issue one of version 3 \
                     with subjectAltName"
                }
                "CaUsedAsEndEntity" => {
                    "the server's certificate is an authority's own: set `ca_file` to this certificate, or issue one \
                     for a server"
                }
                _ => "the server's certificate cannot be used: issue another one",
            },
            _ => "the server's certificate cannot be used: issue another one",
        };
        reason.to_owned()
    }
}
