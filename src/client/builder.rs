//! The builder of a client.

mod credentials_provider;
#[cfg(feature = "__simulation")]
mod direct;
mod resolver;
#[cfg(feature = "transport")]
mod transport;

use std::{fmt, path::PathBuf, pin::Pin, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::LockClient;
use crate::{
    config::Config,
    credentials::Credentials,
    endpoint_kind::EndpointKind,
    engine::EngineHandle,
    error::Error,
    protocol::Protocol,
    redis::{
        AddressMap, CredentialsProvider, Resolver, SecretFile, Target, TlsSettings, probe::Probe,
    },
    tls_verification::TlsVerification,
};

/// The pause between attempts to start.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// Settings for a new [`LockClient`]; made by [`LockClient::builder`].
#[must_use = "a builder connects in `build`"]
pub struct LockClientBuilder {
    /// How the servers were named, and the servers.
    source: Option<(&'static str, Result<Target, Error>)>,
    credentials: Option<Credentials>,
    sentinel_credentials: Option<Credentials>,
    credentials_provider: Option<CredentialsProvider>,
    address_map: Option<AddressMap>,
    resolver: Option<Resolver>,
    endpoint_kind: Option<EndpointKind>,
    lazy: bool,
    own_runtime: bool,
    tls: TlsSettings,
    protocol: Option<Protocol>,
    connect_timeout: Option<Duration>,
    retry_start: Duration,
    #[cfg(feature = "transport")]
    transport: Option<Arc<dyn crate::transport::Transport>>,
    config: Config,
}

impl LockClient {
    /// Connects to the server at `url`, with the default settings.
    ///
    /// | URL | server |
    /// | --- | --- |
    /// | `redis://[user:password@]host[:port][/database]`, `valkey://..` | over TCP |
    /// | `rediss://..`, `valkeys://..` | over TLS, with the feature `rustls` |
    /// | `redis-sentinel://[user:password@]host[:port]/service[/database][?node=host:port..]` | the master that sentinels name; `&sentinelUsername=`, `&sentinelPassword=` for the sentinels themselves |
    /// | `redis-replicated://[user:password@]host[:port][/database][?node=host:port..]` | whichever of the servers is a master |
    /// | `redis-cluster://[user:password@]host[:port][/database][?node=host:port..]` | a cluster; a database other than 0 needs Valkey 9 with `cluster-databases` |
    /// | `rediss-sentinel://..`, `rediss-replicated://..`, `rediss-cluster://..` | the same over TLS |
    /// | `unix://[user:password@localhost]/path/to/socket[?db=database]` | over a unix socket, on Unix |
    /// | `redis://..?endpoint=proxy`, `?endpoint=server` | see [`EndpointKind`](crate::EndpointKind) |
    ///
    /// Each may have the parameter `protocol=RESP2`, or `RESP3`, or `auto`: see [`protocol`](LockClientBuilder::protocol).
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for an invalid URL, and when the server refuses the user or password; [`Error::Unavailable`] when
    /// the attempt to connect fails, after 10 s at most ([`retry_start`](LockClientBuilder::retry_start) repeats it). On a
    /// cluster, one node that answers is enough. [`Error::Redis`] when the server refuses the connection for another reason. No
    /// error contains the URL.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes its connections.
    ///
    /// # Redisson
    ///
    /// `Redisson.create(config)` with `useSingleServer()`, `useSentinelServers()`, `useReplicatedServers()` or
    /// `useClusterServers()`.
    #[doc(alias(
        "create",
        "useSingleServer",
        "useSentinelServers",
        "useReplicatedServers",
        "useClusterServers"
    ))]
    pub async fn connect(url: impl AsRef<str>) -> Result<Self, Error> {
        Self::builder().url(url).build().await
    }

    /// Returns a builder of a client with other than the default settings.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), redisson_lock::Error> {
    /// use redisson_lock::{Config, LockClient};
    ///
    /// let client = LockClient::builder()
    ///     .url("redis://127.0.0.1:6379")
    ///     .config(Config::default())
    ///     .build()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder() -> LockClientBuilder {
        LockClientBuilder::new()
    }
}

impl LockClientBuilder {
    pub(crate) fn new() -> Self {
        Self {
            source: None,
            credentials: None,
            sentinel_credentials: None,
            credentials_provider: None,
            address_map: None,
            resolver: None,
            endpoint_kind: None,
            lazy: false,
            own_runtime: false,
            tls: TlsSettings::default(),
            protocol: None,
            connect_timeout: None,
            retry_start: Duration::ZERO,
            #[cfg(feature = "transport")]
            transport: None,
            config: Config::default(),
        }
    }

    /// Refuses two ways of naming the servers: the client cannot know which one is meant.
    fn named_by(mut self, by: &'static str, target: Result<Target, Error>) -> Self {
        let target = match &self.source {
            Some((first, _)) if *first != by => Err(Error::config(format!(
                "`{first}` and `{by}` both name servers: set only one of them"
            ))),
            _ => target,
        };
        self.source = Some((by, target));
        self
    }

    /// Connects to the server at `url`: see [`LockClient::connect`].
    pub fn url(self, url: impl AsRef<str>) -> Self {
        let target = Target::url(url.as_ref());
        self.named_by("url", target)
    }

    /// Connects to the master of `service` that the sentinels `nodes` name, each as `host:port`, or by TLS as
    /// `rediss://host:port`. All nodes or none use TLS: a mixture is [`Error::Config`](crate::Error::Config).
    ///
    /// # Redisson
    ///
    /// `useSentinelServers().setMasterName(service).addSentinelAddress(nodes)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(password: String) -> Result<(), redisson_lock::Error> {
    /// let client = redisson_lock::LockClient::builder()
    ///     .sentinel("mymaster", ["sentinel-1:26379", "sentinel-2:26379", "sentinel-3:26379"])
    ///     .credentials("app", password)
    ///     .build()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "useSentinelServers")]
    pub fn sentinel(
        self,
        service: impl AsRef<str>,
        nodes: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Self {
        let target = Target::sentinel(service.as_ref(), nodes);
        self.named_by("sentinel", target)
    }

    /// Connects to whichever of the servers `nodes` is the master, each as `host:port`, or by TLS as `rediss://host:port`.
    ///
    /// # Redisson
    ///
    /// `useReplicatedServers().addNodeAddress(nodes)`.
    #[doc(alias = "useReplicatedServers")]
    pub fn replicated(self, nodes: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let target = Target::several("replicated", &[], nodes);
        self.named_by("replicated", target)
    }

    /// Connects to the cluster of which `nodes` are some, each as `host:port`, or by TLS as `rediss://host:port`.
    ///
    /// # Redisson
    ///
    /// `useClusterServers().addNodeAddress(nodes)`.
    #[doc(alias = "useClusterServers")]
    pub fn cluster(self, nodes: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let target = Target::several("cluster", &[], nodes);
        self.named_by("cluster", target)
    }

    /// Connects to the servers as this user, instead of the URL's. The user without a name is `""`.
    /// [`Error::Config`] in [`build`](Self::build) beside a fred client with a credential provider.
    pub fn credentials(mut self, username: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials = Some(Credentials::new(username, password));
        self
    }

    /// Logs in to the sentinels as this user: sentinels have users of their own. The user without a name is `""`.
    /// [`Error::Config`] in [`build`](Self::build) without sentinels.
    pub fn sentinel_credentials(
        mut self,
        username: impl Into<String>,
        password: impl Into<String>,
    ) -> Self {
        self.sentinel_credentials = Some(Credentials::new(username, password));
        self
    }

    /// Connects to the servers of a fred client, with its credentials and TLS settings.
    ///
    /// The fred client's own connections are not used: locks need connections that no other code blocks or reconfigures.
    /// [`Error::Config`] in [`build`](Self::build) if its TLS is by native-tls, or the feature `rustls` is missing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use fred::types::{Builder, config::Config};
    /// use redisson_lock::LockClient;
    ///
    /// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
    /// let data = Builder::from_config(Config::from_url("redis://127.0.0.1:6379")?).build()?;
    /// let locks = LockClient::builder().fred(&data).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "fred")]
    pub fn fred(self, client: &crate::redis::FredClient) -> Self {
        let target = Target::of_fred(client);
        self.named_by("fred", target)
    }

    /// Maps the address that a node announces to the address at which this client reaches it, as behind a NAT.
    ///
    /// Sentinels announce the addresses of the master and of the other sentinels; nodes of a cluster announce those of the
    /// other nodes. `map` receives the host and port, and returns those to connect to. It has no effect on servers that the
    /// URL names.
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

    #[cfg(feature = "redisson-yaml")]
    pub(crate) fn target(self, target: Target) -> Self {
        self.named_by("a given server", Ok(target))
    }

    /// The servers, without passwords.
    #[cfg(all(test, feature = "redisson-yaml"))]
    pub(crate) fn shown(&self) -> String {
        let (_, target) = self.source.as_ref().expect("it has a server");
        let shown = target.as_ref().expect("it is one that can be");
        let user = self
            .credentials
            .as_ref()
            .and_then(|login| login.username.clone());
        let files = match self.tls.is_empty() {
            true => String::new(),
            false => format!(" {:?}", self.tls),
        };
        let password = self.credentials.as_ref().map_or("", |_| " with a password");
        format!("{shown:?} as {user:?}{password}{files}")
    }

    /// Sets what answers at the address of a URL. Default: [`EndpointKind::Auto`], or the URL's `?endpoint=`.
    ///
    /// Other kinds are [`Error::Config`](crate::Error::Config) in [`build`](Self::build) with sentinels and with the nodes of a
    /// cluster. [`EndpointKind::Server`] is allowed with `replicated`.
    ///
    /// # Redisson
    ///
    /// None: each acquisition and each release names one lock. Renewals of several locks share a script.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), redisson_lock::Error> {
    /// use redisson_lock::{EndpointKind, LockClient};
    ///
    /// // One end point of a clustered database: Redis Enterprise, Azure, Tair in proxy mode, Envoy.
    /// let client = LockClient::builder()
    ///     .url("redis://redis.internal:10000")
    ///     .endpoint_kind(EndpointKind::Proxy)
    ///     .build()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn endpoint_kind(mut self, kind: EndpointKind) -> Self {
        self.endpoint_kind = Some(kind);
        self
    }

    /// Whether [`build`](Self::build) connects in the background, and succeeds although the server cannot be reached.
    /// Default: false.
    ///
    /// Until there is a connection, operations wait for one as in any outage, and a member of a [`RedLock`](crate::RedLock)
    /// counts as unreachable: a process starts although one of five servers is down. Operations report a wrong user or
    /// password at the end of their time, as `build` does without this setting, and the log does at once. At least one node of a cluster must still answer: it has the map of the slots.
    ///
    /// # Redisson
    ///
    /// `Config.setLazyInitialization(true)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), redisson_lock::Error> {
    /// use redisson_lock::{LockClient, RedLock};
    ///
    /// let mut locks = Vec::new();
    /// for host in ["redis-1", "redis-2", "redis-3"] {
    ///     let client = LockClient::builder().url(format!("redis://{host}:6379")).lazy(true).build().await?;
    ///     locks.push(client.reentrant_lock("job"));
    /// }
    /// let guard = RedLock::of(locks).lock().await?;
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lazy(mut self, lazy: bool) -> Self {
        self.lazy = lazy;
        self
    }

    /// Trusts the authorities in this PEM file instead of the system's, for a `rediss://` server. A self-signed certificate
    /// is its own authority. Needs the feature `rustls`. The client reads the files of its TLS settings for each connection,
    /// and connects with the last usable ones while they are unusable.
    ///
    /// # Redisson
    ///
    /// `sslTruststore`, in PEM.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), redisson_lock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = redisson_lock::LockClient::builder()
    ///     .url("rediss://redis.internal:6380")
    ///     .ca_file("/etc/redis/ca.pem")
    ///     .client_certificate("/etc/app/client.pem", "/etc/app/client.key")
    ///     .connect_timeout(Duration::from_secs(2))
    ///     .retry_start(Duration::from_secs(60))
    ///     .build()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn ca_file(self, file: impl Into<PathBuf>) -> Self {
        self.trusting("ca_file", file.into(), None)
    }

    /// Trusts the authorities in this key store, in place of a [`ca_file`](Self::ca_file): in PKCS#12 or JKS, which need the
    /// feature `keystore`, or in PEM.
    ///
    /// The authorities are the certificates that Java trusts. In a file without any, as `openssl pkcs12 -export -nokeys` writes
    /// it, they are all certificates. An empty password stands for none: it reads certificates that are not encrypted, without
    /// proof that they are unchanged.
    ///
    /// # Redisson
    ///
    /// `sslTruststore` and `sslTruststorePassword`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(password: String) -> Result<(), redisson_lock::Error> {
    /// let client = redisson_lock::LockClient::builder()
    ///     .url("rediss://redis.internal:6380")
    ///     .trust_store("/etc/redis/trust.p12", password.clone())
    ///     .key_store("/etc/app/client.p12", password)
    ///     .build()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn trust_store(self, file: impl Into<PathBuf>, password: impl Into<String>) -> Self {
        self.trusting("trust_store", file.into(), Some(password.into()))
    }

    /// The authorities, in the file of `setting`.
    pub(crate) fn trusting(
        mut self,
        setting: &'static str,
        path: PathBuf,
        password: Option<String>,
    ) -> Self {
        self.tls.ca = Some(SecretFile {
            setting,
            path,
            password,
        });
        self
    }

    /// Presents this certificate to servers that request one. The chain and its key are in PEM, in two files or in one that
    /// is given twice. Without a [`ca_file`](Self::ca_file), the client trusts the authorities of the system. A URL without TLS is
    /// [`Error::Config`](crate::Error::Config).
    ///
    /// # Redisson
    ///
    /// `sslKeystore`, with the certificate and the key in PEM.
    pub fn client_certificate(
        self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        let (certificate, key) = (certificate.into(), Some(key.into()));
        self.presenting("client_certificate", certificate, key, None)
    }

    /// Presents a certificate of this key store, in place of a [`client_certificate`](Self::client_certificate): in PKCS#12 or
    /// JKS, which need the feature `keystore`, or in PEM. The password is that of the store and of its keys.
    ///
    /// Of several keys, the client uses the first that is of an authority that the server names, or else the first.
    ///
    /// # Redisson
    ///
    /// `sslKeystore` and `sslKeystorePassword`.
    pub fn key_store(self, file: impl Into<PathBuf>, password: impl Into<String>) -> Self {
        self.presenting("key_store", file.into(), None, Some(password.into()))
    }

    /// The client's certificate, in the file of `setting`, and its key, there or in a file of its own.
    pub(crate) fn presenting(
        mut self,
        setting: &'static str,
        path: PathBuf,
        key: Option<PathBuf>,
        password: Option<String>,
    ) -> Self {
        let certificate = SecretFile {
            setting,
            path,
            password,
        };
        self.tls.identity = Some((certificate, key));
        self
    }

    /// Expects certificates for this name, whatever the host: for servers behind a tunnel, or nodes that announce IP
    /// addresses. Sentinels too, without a [`sentinel_server_name`](Self::sentinel_server_name).
    ///
    /// # Redisson
    ///
    /// None; `sslVerificationMode: CA_ONLY` checks no name at all.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.tls.servers.name = Some(name.into());
        self
    }

    /// Expects sentinels to have certificates for this name. [`Error::Config`] in [`build`](Self::build) without sentinels.
    ///
    /// # Redisson
    ///
    /// None.
    pub fn sentinel_server_name(mut self, name: impl Into<String>) -> Self {
        self.tls.sentinels.name = Some(name.into());
        self
    }

    /// How the certificates of servers are checked, and those of sentinels without a
    /// [`sentinel_tls_verification`](Self::sentinel_tls_verification). Default: [`TlsVerification::Full`]. The client logs a
    /// warning for [`TlsVerification::None`]. A URL without TLS is [`Error::Config`].
    ///
    /// # Redisson
    ///
    /// `sslVerificationMode`, with `STRICT`, `CA_ONLY` and `NONE`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), redisson_lock::Error> {
    /// use redisson_lock::{LockClient, TlsVerification};
    ///
    /// let client = LockClient::builder()
    ///     .url("rediss-cluster://10.0.0.1:6379")
    ///     .ca_file("/etc/redis/ca.pem")
    ///     .tls_verification(TlsVerification::Ca)
    ///     .build()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn tls_verification(mut self, verification: TlsVerification) -> Self {
        self.tls.servers.verification = Some(verification);
        self
    }

    /// How the certificates of sentinels are checked. [`Error::Config`] in [`build`](Self::build) without sentinels.
    ///
    /// # Redisson
    ///
    /// None: `sslVerificationMode` is for both.
    pub fn sentinel_tls_verification(mut self, verification: TlsVerification) -> Self {
        self.tls.sentinels.verification = Some(verification);
        self
    }

    /// The version of the protocol, instead of the URL's. Default: [`Protocol::Auto`].
    ///
    /// By default the client tries RESP3, and RESP2 where the server refuses `HELLO` in any words, answers it oddly or closes
    /// the connection. The time for one connection covers both. A refused user or password is not sent a second time. While
    /// connections in RESP2 succeed, the client repeats the refused `HELLO` with the first connection after a minute.
    ///
    /// # Redisson
    ///
    /// `Config.setProtocol(Protocol.RESP2)`, Redisson's default.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), redisson_lock::Error> {
    /// use redisson_lock::{LockClient, Protocol};
    ///
    /// let client = LockClient::builder().url("redis://proxy:6379").protocol(Protocol::Resp2).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = Some(protocol);
        self
    }

    /// How long one connection may take to open, TLS and login included. Default and maximum: 5 s; 1.5 s behind sentinels,
    /// in a replicated set-up and for nodes of a cluster; 1 s for a sentinel itself. A longer time is cut to the maximum. Zero is
    /// [`Error::Config`](crate::Error::Config).
    ///
    /// # Redisson
    ///
    /// `connectTimeout`, by default 10 s.
    pub fn connect_timeout(mut self, wait: Duration) -> Self {
        self.connect_timeout = Some(wait);
        self
    }

    /// For how long [`build`](Self::build) retries while the server cannot be reached, as when both start at the same time.
    /// Default: zero, one attempt. The first attempt has its whole time; a later one ends with this time. An
    /// address, password or certificate that is certainly wrong is an error at once.
    /// [`lazy`](Self::lazy) does not wait at all.
    ///
    /// # Redisson
    ///
    /// None: `Redisson.create` fails after `retryAttempts`.
    pub fn retry_start(mut self, wait: Duration) -> Self {
        self.retry_start = wait;
        self
    }

    /// Whether the client's tasks run on a thread of their own, with a runtime of its own. Default: false, the runtime that
    /// calls [`build`](Self::build).
    ///
    /// On its own thread, the client renews its holds in time even if the program's executor is blocked. It outlives the
    /// runtime that built it: one client in a static serves several runtimes, such as one per `#[tokio::test]`. The cost is
    /// a thread, and a switch of threads with each answer. When the last use of such a client is dropped, the drop waits
    /// for the queued releases, for up to a second.
    ///
    /// The futures of locks and guards still need a tokio runtime, for their timers. A program without one uses the module
    /// `blocking` (feature `blocking`), or enters a runtime with [`tokio::runtime::Runtime::enter`].
    ///
    /// # Redisson
    ///
    /// None: Redisson always has threads of its own.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), redisson_lock::Error> {
    /// let client = redisson_lock::LockClient::builder()
    ///     .url("redis://127.0.0.1:6379")
    ///     .own_runtime(true)
    ///     .build()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn own_runtime(mut self, own: bool) -> Self {
        self.own_runtime = own;
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
    /// As [`LockClient::connect`]; [`Error::Config`] also for invalid settings, and without a server.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes its connections.
    pub async fn build(self) -> Result<LockClient, Error> {
        let (own_runtime, retry_start) = (self.own_runtime, self.retry_start);
        let (target, config) = self.into_target()?;
        let until = Instant::now() + retry_start;
        let start = async || {
            let (target, config) = (target.clone(), config.clone());
            match own_runtime {
                true => EngineHandle::start_on_own_thread(target, config).await,
                false => EngineHandle::start(target, config).await,
            }
        };
        let mut started = start().await;
        while let Err(Error::Unavailable { .. }) = &started
            && Instant::now() < until
        {
            let again = async {
                tokio::time::sleep(RETRY_PAUSE).await;
                start().await
            };
            match tokio::time::timeout_at(until, again).await {
                Ok(again) => started = again,
                Err(_) => break,
            }
        }
        started.map(LockClient::new)
    }

    /// The servers and the settings.
    pub(crate) fn into_target(self) -> Result<(Target, Config), Error> {
        let Some((_, target)) = self.source else {
            return Err(Error::config(match cfg!(feature = "fred") {
                true => {
                    "no server is set: call `url`, `sentinel`, `replicated`, `cluster` or `fred`"
                }
                false => "no server is set: call `url`, `sentinel`, `replicated` or `cluster`",
            }));
        };
        let mut target = target?;
        #[cfg(feature = "transport")]
        if let Some(transport) = self.transport {
            transport::reach(
                &mut target,
                transport,
                [
                    ("credentials_provider", self.credentials_provider.is_some()),
                    ("resolver", self.resolver.is_some()),
                    ("TLS", !self.tls.is_empty()),
                ],
            )?;
        }
        if let Some(provider) = self.credentials_provider {
            credentials_provider::check_alone(&self.credentials, &self.sentinel_credentials)?;
            target.log_in_by(provider)?;
        }
        if let Some(credentials) = self.credentials {
            target.log_in_as(credentials)?;
        }
        if let Some(credentials) = self.sentinel_credentials {
            target.ask_sentinels_as(credentials)?;
        }
        if let Some(map) = self.address_map {
            target.map_addresses(map);
        }
        if let Some(resolver) = self.resolver {
            target.resolve_by(resolver);
        }
        if let Some(protocol) = self.protocol {
            target.speak(protocol);
        }
        if let Some(kind) = self.endpoint_kind {
            target.set_endpoint_kind(kind)?;
        }
        target.lazy = self.lazy;
        if self.connect_timeout.is_some_and(|wait| wait.is_zero()) {
            return Err(Error::config(
                "connect_timeout is 0 ms: set more, or omit it for the default of 5 s",
            ));
        }
        target.open_on(&self.tls, self.connect_timeout)?;
        Ok((target, self.config))
    }
}

/// As [`build`](LockClientBuilder::build): `LockClient::builder().url(..).await`.
impl IntoFuture for LockClientBuilder {
    type Output = Result<LockClient, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.build())
    }
}

impl fmt::Debug for LockClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClientBuilder")
            .field("tls", &self.tls)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Probe {
    /// The servers of `builder`, with its connection settings. Opens no connection yet.
    ///
    /// # Errors
    ///
    /// [`Error::Config`].
    pub fn of_builder(builder: LockClientBuilder) -> Result<Self, Error> {
        builder.into_target().map(|(target, _)| Self::of(target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_builder_can_be_awaited() {
        let refused = LockClient::builder().config(Config::default()).await;
        assert!(matches!(refused, Err(Error::Config { .. })), "{refused:?}");
    }

    #[cfg(not(unix))]
    #[test]
    fn a_unix_socket_is_refused() {
        for url in [
            "unix:///run/redis.sock",
            "valkey+unix://:s3cret@localhost/a?db=3",
        ] {
            match LockClientBuilder::new().url(url).into_target().map(drop) {
                Err(Error::Config { reason }) => {
                    assert!(reason.contains("redis://host:port"), "{reason}");
                    assert!(!reason.contains("s3cret"), "{reason}");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn sentinel_credentials_without_sentinels_are_refused() {
        let settings = |builder: LockClientBuilder| {
            let target = builder
                .sentinel_credentials("watch", "s3cret")
                .into_target();
            target.map(drop)
        };
        let new = LockClientBuilder::new;
        for builder in [
            new().url("redis://a"),
            new().replicated(["a:1"]),
            new().cluster(["a:1"]),
        ] {
            match settings(builder) {
                Err(Error::Config { reason }) => {
                    assert!(reason.contains("`sentinel_credentials`"), "{reason}");
                    assert!(!reason.contains("s3cret"), "{reason}");
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(settings(new().url("redis-sentinel://a/mymaster")), Ok(()));
        assert_eq!(settings(new().sentinel("mymaster", ["a:1"])), Ok(()));
    }
}
