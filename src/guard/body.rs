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
        done = owner.scope(body(guard)) => Ok(done),
    }
}

/// Returns `done`, which a body has made under a hold, given the result of the hold's release. A loss keeps `done` in its error.
pub(crate) fn after_release<T: Send + 'static>(
    released: Result<Released, Error>,
    done: T,
) -> Result<T, Error> {
    match released {
        Err(lost @ Error::Lost { .. }) => Err(lost.with_result(done)),
        // The body has run under the lock, so a failed release does not discard its result.
        _ => Ok(done),
    }
}
