//! The servers of the command line: their addresses, logins and TLS settings.

use std::{env, fs::File, io::Read, path::Path};

use redisson_lock::{LockClient, LockClientBuilder, TlsVerification, probe::Probe};

use crate::{
    Failure,
    address_map::{self, Rule, mapped},
    cli::{Login, Options, Tls, Verification},
};

/// The longest password that is read from a file, in bytes.
const LONGEST_PASSWORD: u64 = 64 * 1024;

/// A user and its password. The user without a name is `""`.
type Credentials = (String, String);

/// The server options of the command line.
pub struct Servers {
    url: String,
    tls: Tls,
    map: Vec<Rule>,
    credentials: Option<Credentials>,
    of_sentinels: Option<Credentials>,
}

impl Servers {
    pub fn new(url: String, Options { login, tls, map }: Options) -> Result<Self, Failure> {
        let scheme = url.split("://").next().unwrap_or_default();
        if !map.is_empty()
            && !["-sentinel", "-cluster"]
                .iter()
                .any(|end| scheme.ends_with(end))
        {
            return Err(Failure::usage(
                "--map translates what sentinels and nodes of a cluster announce, and this URL has neither: give the URL the \
                 address that this machine can reach",
            ));
        }
        address_map::check(&map).map_err(Failure::usage)?;
        let Login {
            user,
            password_file,
            sentinel_user,
            sentinel_password_file,
        } = login;
        Ok(Self {
            url,
            tls,
            map,
            // Once: the file may be a pipe.
            credentials: credentials(user, password_file.as_deref(), "")?,
            of_sentinels: credentials(
                sentinel_user,
                sentinel_password_file.as_deref(),
                "sentinel-",
            )?,
        })
    }

    pub fn builder(&self) -> Result<LockClientBuilder, Failure> {
        let mut builder = self.tls.on(LockClient::builder().url(&self.url))?;
        if let Some((user, password)) = &self.credentials {
            builder = builder.credentials(user, password);
        }
        if let Some((user, password)) = &self.of_sentinels {
            builder = builder.sentinel_credentials(user, password);
        }
        if !self.map.is_empty() {
            let map = self.map.clone();
            builder = builder.address_map(move |host, port| mapped(&map, host, port));
        }
        Ok(builder)
    }

    pub async fn connect(&self) -> Result<LockClient, Failure> {
        Ok(self.builder()?.build().await?)
    }

    pub fn probe(&self) -> Result<Probe, Failure> {
        Ok(Probe::of_builder(self.builder()?)?)
    }
}

impl Tls {
    fn on(&self, mut builder: LockClientBuilder) -> Result<LockClientBuilder, Failure> {
        if let Some(file) = &self.cacert {
            builder = builder.ca_file(file);
        }
        match (&self.cert, &self.key) {
            (Some(certificate), Some(key)) => {
                builder = builder.client_certificate(certificate, key);
            }
            (None, None) => {}
            _ => {
                return Err(Failure::usage(
                    "a client certificate needs its key: give both --cert and --key, or neither",
                ));
            }
        }
        if let Some(name) = &self.sni {
            builder = builder.server_name(name);
        }
        if let Some(name) = &self.sentinel_sni {
            builder = builder.sentinel_server_name(name);
        }
        let insecure = self.insecure.then_some(Verification::None);
        if let Some(verification) = insecure.or(self.tls_verification) {
            builder = builder.tls_verification(verification.into());
        }
        if let Some(verification) = self.sentinel_tls_verification {
            builder = builder.sentinel_tls_verification(verification.into());
        }
        Ok(builder)
    }
}

impl From<Verification> for TlsVerification {
    fn from(verification: Verification) -> Self {
        match verification {
            Verification::Full => Self::Full,
            Verification::Ca => Self::Ca,
            Verification::None => Self::None,
        }
    }
}

/// The login of options that begin with `prefix`. `None` leaves the login of the URL.
fn credentials(
    user: Option<String>,
    file: Option<&Path>,
    prefix: &str,
) -> Result<Option<Credentials>, Failure> {
    let variable = format!("RLOCK_{}PASSWORD", prefix.to_uppercase().replace('-', "_"));
    let password = match file {
        Some(file) => Some(read(file)?),
        None => match env::var(&variable) {
            Ok(password) => Some(password),
            Err(env::VarError::NotPresent) => None,
            Err(env::VarError::NotUnicode(_)) => {
                return Err(Failure::usage(format!("{variable} is not UTF-8")));
            }
        },
    };
    match (user, password) {
        (user, Some(password)) => Ok(Some((user.unwrap_or_default(), password))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(Failure::usage(format!(
            "--{prefix}user needs a password: give --{prefix}password-file, or set {variable}"
        ))),
    }
}

/// The content of the file without a last line break.
fn read(file: &Path) -> Result<String, Failure> {
    let mut password = String::new();
    let opened = File::open(file).and_then(|opened| {
        opened
            .take(LONGEST_PASSWORD + 1)
            .read_to_string(&mut password)
    });
    let problem = match opened {
        Err(error) => error.to_string(),
        Ok(length) if length as u64 > LONGEST_PASSWORD => "it is longer than 64 KiB".into(),
        Ok(_) if password.trim().is_empty() => "it is empty".into(),
        Ok(_) => {
            let line = password.strip_suffix('\n').unwrap_or(&password);
            return Ok(line.strip_suffix('\r').unwrap_or(line).to_owned());
        }
    };
    Err(Failure::usage(format!(
        "the password cannot be read from {}: {problem}",
        file.display()
    )))
}
