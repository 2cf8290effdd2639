//! The servers of the command line: their addresses, logins and TLS settings.

use std::{env, fs::File, io::Read, path::Path};

use redisson_lock::{LockClient, LockClientBuilder, TlsVerification, probe::Probe};

use crate::{
    Failure,
    address_map::{self, Rule, mapped},
    cli::{Login, Options, Tls, Verification, announces, names_sentinels},
};

/// The longest password that is read from a file, in bytes.
const LONGEST_PASSWORD: u64 = 64 * 1024;

/// The variables with the passwords at the servers and at the sentinels.
pub const PASSWORDS: [&str; 2] = ["RLOCK_PASSWORD", "RLOCK_SENTINEL_PASSWORD"];

/// A user and its password. The user without a name is `""`.
type Credentials = (String, String);

/// The user that an option names, and the password.
type GivenLogin = (Option<String>, String);

/// The server options of the command line.
pub struct Servers {
    url: String,
    tls: Tls,
    map: Vec<Rule>,
    credentials: Option<Credentials>,
    of_sentinels: Option<Credentials>,
}

impl Servers {
    pub fn new(mut url: String, Options { login, tls, map }: Options) -> Result<Self, Failure> {
        if !map.is_empty() && !announces(&url) {
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
        let [of_servers, of_sentinels] = PASSWORDS;
        // Once: the file may be a pipe.
        let given = given_login(user, password_file.as_deref(), "", of_servers)?;
        let credentials = replacing(&mut url, given, with_password);
        // Without sentinels, an option is an error of the library, and a variable concerns further servers.
        let has_options = sentinel_user.is_some() || sentinel_password_file.is_some();
        let given = match has_options || names_sentinels(&url) {
            true => given_login(
                sentinel_user,
                sentinel_password_file.as_deref(),
                "sentinel-",
                of_sentinels,
            )?,
            false => None,
        };
        let of_sentinels = replacing(&mut url, given, with_sentinel_password);
        Ok(Self {
            url,
            tls,
            map,
            credentials,
            of_sentinels,
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
fn given_login(
    user: Option<String>,
    file: Option<&Path>,
    prefix: &str,
    variable: &str,
) -> Result<Option<GivenLogin>, Failure> {
    let password = match file {
        Some(file) => Some(read(file)?),
        None => match env::var(variable) {
            // Compose files set variables that have no value.
            Ok(password) => Some(password).filter(|password| !password.is_empty()),
            Err(env::VarError::NotPresent) => None,
            Err(env::VarError::NotUnicode(_)) => {
                return Err(Failure::usage(format!("{variable} is not UTF-8")));
            }
        },
    };
    match (user, password) {
        (user, Some(password)) => Ok(Some((user, password))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(Failure::usage(format!(
            "--{prefix}user needs a password: give --{prefix}password-file, or set {variable}"
        ))),
    }
}

/// Puts the password into a URL that names a user: the library refuses a user alone. Returns the login that replaces the URL's.
fn replacing(
    url: &mut String,
    given: Option<GivenLogin>,
    with_password: fn(&str, &str) -> Option<String>,
) -> Option<Credentials> {
    let (user, password) = given?;
    let completed = with_password(url, &password);
    let has_user = completed.is_some();
    *url = completed.unwrap_or_else(|| url.clone());
    match user {
        None if has_user => None,
        user => Some((user.unwrap_or_default(), password)),
    }
}

/// The URL with this password of its user; `None` without a user.
fn with_password(url: &str, password: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, behind) = rest.split_at(end);
    let (login, host) = authority.rsplit_once('@')?;
    let user = login.split(':').next().filter(|user| !user.is_empty())?;
    let password = encoded(password);
    Some(format!("{scheme}://{user}:{password}@{host}{behind}"))
}

/// The URL with this password of its user at the sentinels; `None` without such a user.
fn with_sentinel_password(url: &str, password: &str) -> Option<String> {
    let (front, query) = url.split_once('?')?;
    let is = |pair: &str, key: &str| pair.split('=').next() == Some(key);
    let kept = query
        .split('&')
        .filter(|pair| !is(pair, "sentinelPassword"));
    let kept: Vec<_> = kept.collect();
    kept.iter().find(|pair| is(pair, "sentinelUsername"))?;
    let (kept, password) = (kept.join("&"), encoded(password));
    Some(format!("{front}?{kept}&sentinelPassword={password}"))
}

/// Each byte as a percent escape.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
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
