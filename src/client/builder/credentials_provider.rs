//! Credentials that a program's callback gives for each connection.

use std::fmt;

use super::LockClientBuilder;
use crate::{
    credentials::{Credentials, CredentialsRequest},
    error::Error,
    redis::CredentialsProvider,
};

impl LockClientBuilder {
    /// Asks `provider` for the user and password of every connection, instead of the URL's: for tokens that end, and for
    /// passwords that change.
    ///
    /// The client asks it for each connection of each kind: of scripts, of messages, to replicas, to nodes of a cluster and to
    /// sentinels, after each reconnection too. It calls `provider` for several connections at a time, so cache a token that is
    /// expensive to make. Credentials with an end ([`Credentials::valid_for`]) are asked for again before it, and the open
    /// connection logs in anew (`AUTH`); holds and waiters do not notice. In RESP2, a connection with subscriptions accepts no
    /// `AUTH`: a new one takes its place.
    ///
    /// A call counts in the time for one connection, [`connect_timeout`](Self::connect_timeout). A call that returns an error,
    /// panics or takes longer is one failed attempt of that connection, which the client repeats; other connections go on. An
    /// open connection keeps its login meanwhile. A late call goes on for up to 5 s, so that it can fill a cache. The call runs on the client's runtime, in a task of its own: use
    /// [`tokio::task::spawn_blocking`] for code that blocks. No log line and no error contains a password that it returned, but
    /// they show the text of its errors.
    ///
    /// Beside `credentials`, `sentinel_credentials` or a fred client with a credential provider, it is [`Error::Config`] in
    /// [`build`](Self::build).
    ///
    /// # Redisson
    ///
    /// `credentialsResolver`, with `credentialsReapplyInterval`.
    ///
    /// # Examples
    ///
    /// ElastiCache and MemoryDB with IAM: a token is a presigned URL, valid for 15 minutes.
    ///
    /// ```no_run
    /// # async fn presigned_url(user: &str, cache: &str) -> Result<String, std::io::Error> { Ok(format!("{cache}/{user}")) }
    /// # async fn example() -> Result<(), redisson_lock::Error> {
    /// use std::time::Duration;
    ///
    /// use redisson_lock::{Credentials, LockClient};
    ///
    /// let client = LockClient::builder()
    ///     .url("rediss-cluster://clustercfg.locks.example.cache.amazonaws.com:6379")
    ///     .credentials_provider(|_| async {
    ///         // Signed on this machine, by aws-sigv4 and the role of the instance.
    ///         let token = presigned_url("app", "locks").await?;
    ///         let valid = Duration::from_secs(15 * 60);
    ///         Ok::<_, std::io::Error>(Credentials::new("app", token).valid_for(valid))
    ///     })
    ///     .build()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Azure with Entra ID: the user is the object id of the principal. `azure_identity` caches its tokens.
    ///
    /// ```no_run
    /// # #[derive(Clone)] struct Token { secret: String, expires_on: std::time::SystemTime }
    /// # #[derive(Clone)] struct Identity(Token);
    /// # impl Identity { async fn get_token(&self, _: &[&str]) -> Result<Token, std::io::Error> { Ok(self.0.clone()) } }
    /// # async fn example(identity: Identity, object_id: String) -> Result<(), redisson_lock::Error> {
    /// use std::time::SystemTime;
    ///
    /// use redisson_lock::{Credentials, LockClient};
    ///
    /// let client = LockClient::builder()
    ///     .url("rediss://locks.redis.cache.windows.net:6380")
    ///     .credentials_provider(move |_| {
    ///         let (identity, user) = (identity.clone(), object_id.clone());
    ///         async move {
    ///             let token = identity.get_token(&["https://redis.azure.com/.default"]).await?;
    ///             let left = token.expires_on.duration_since(SystemTime::now()).unwrap_or_default();
    ///             Ok::<_, std::io::Error>(Credentials::new(user, token.secret).valid_for(left))
    ///         }
    ///     })
    ///     .build()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A password in a file that is rotated, with a password of their own for the sentinels:
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), redisson_lock::Error> {
    /// use redisson_lock::{Credentials, LockClient};
    ///
    /// let client = LockClient::builder()
    ///     .sentinel("mymaster", ["sentinel-1:26379", "sentinel-2:26379"])
    ///     .credentials_provider(|request| async move {
    ///         let file = if request.is_sentinel { "/run/secrets/sentinel" } else { "/run/secrets/redis" };
    ///         let password = tokio::fs::read_to_string(file).await?;
    ///         Ok::<_, std::io::Error>(Credentials::new("app", password.trim_end()))
    ///     })
    ///     .build()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "credentialsResolver")]
    pub fn credentials_provider<F, Fut, E>(mut self, provider: F) -> Self
    where
        F: Fn(CredentialsRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: fmt::Display,
    {
        self.credentials_provider = Some(CredentialsProvider::new(provider));
        self
    }
}

/// Refuses fixed credentials beside a provider: the client cannot know which ones are meant.
pub(super) fn check_alone(
    credentials: &Option<Credentials>,
    of_sentinels: &Option<Credentials>,
) -> Result<(), Error> {
    let other = match (credentials, of_sentinels) {
        (None, None) => return Ok(()),
        (Some(_), _) => "credentials",
        (None, Some(_)) => "sentinel_credentials",
    };
    Err(Error::config(format!(
        "`{other}` and `credentials_provider` are both set: have the provider return these credentials too"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_beside_fixed_credentials_is_refused() {
        let new = || {
            LockClientBuilder::new()
                .url("redis-sentinel://a/mymaster")
                .credentials_provider(|_| async { Ok::<_, String>(Credentials::none()) })
        };
        assert!(new().into_target().is_ok());
        for (builder, name) in [
            (new().credentials("app", "s3cret"), "`credentials`"),
            (
                new().sentinel_credentials("app", "s3cret"),
                "`sentinel_credentials`",
            ),
        ] {
            match builder.into_target().map(drop) {
                Err(Error::Config { reason }) => {
                    assert!(reason.contains(name), "{reason}");
                    assert!(!reason.contains("s3cret"), "{reason}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
