//! A body that runs under a hold, of one lock or of a group.

use crate::{
    error::{Error, LostReason},
    owner::Owner,
    wire::Released,
};

/// A guard under which a body can run.
pub(crate) trait Protects {
    /// Completes with the reason when the hold is lost.
    fn loss(&self) -> impl Future<Output = LostReason> + Send;

    /// Returns the error for a loss with `reason`.
    fn loss_error(&self, reason: LostReason) -> Error;

    /// Releases the hold. Logs a failure, for a caller that discards the error.
    fn release_or_log(self) -> impl Future<Output = Result<Released, Error>> + Send;
}

/// Runs `body` as `owner` under the hold of `guard`, if there is one, and releases it.
pub(crate) async fn run_if_held<G: Protects, T: Send + 'static>(
    guard: Option<G>,
    owner: Owner,
    body: impl AsyncFnOnce(&G) -> T,
) -> Result<Option<T>, Error> {
    let Some(guard) = guard else {
        return Ok(None);
    };
    run_and_release(guard, owner, body).await.map(Some)
}

/// Runs `body` as `owner` under the hold of `guard`, and releases it.
pub(crate) async fn run_and_release<G: Protects, T: Send + 'static>(
    guard: G,
    owner: Owner,
    body: impl AsyncFnOnce(&G) -> T,
) -> Result<T, Error> {
    let done = run_under(&guard, owner, body).await?;
    release_after(guard, done).await
}

/// Runs `body` as `owner` until the hold is lost. The loss is checked before each poll of `body`.
pub(crate) async fn run_under<G: Protects, T>(
    guard: &G,
    owner: Owner,
    body: impl AsyncFnOnce(&G) -> T,
) -> Result<T, Error> {
    tokio::select! {
        biased;
        reason = guard.loss() => Err(guard.loss_error(reason)),
        // Called in the scope, because the work of `body` before its first poll is the owner's too.
        done = owner.scope(async { body(guard).await }) => Ok(done),
    }
}

/// Releases the hold of `guard`, and returns `done`, which a body has made under it. A loss keeps `done` in its error.
pub(crate) async fn release_after<T: Send + 'static>(
    guard: impl Protects,
    done: T,
) -> Result<T, Error> {
    match guard.release_or_log().await {
        Err(lost @ Error::Lost { .. }) => Err(lost.with_result(done)),
        // The body has run under the lock, so a failed release does not discard its result.
        _ => Ok(done),
    }
}
