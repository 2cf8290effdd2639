//! One call of several operations.

use std::sync::Arc;

use futures_util::future::join_all;

use crate::{
    durability::Durability,
    gauges::Batches,
    redis::{Answered, CallError, Redis, batch_scope::NOT_SENT},
    wire::{
        Refusal,
        script::{Operation, Script},
    },
};

/// Runs operations in one call. Runs each operation alone if the server refuses the batch, or if its connection may lead to several
/// servers. A refused operation, such as one on a lock whose name the user has no right to, must not fail the rest.
pub(in crate::redis) async fn call_all(
    redis: &dyn Redis,
    script: &'static Script,
    operations: Vec<Operation>,
    durability: Durability,
) -> Vec<Result<Answered, CallError>> {
    let count = operations.len();
    Batches::new().sent(count);
    let operations: Arc<[Operation]> = operations.into();
    let error = match redis.call(script, operations.clone(), durability).await {
        Ok(replies) => return replies.into_iter().map(Ok).collect(),
        Err(error) => error,
    };
    if count == 1 || !may_concern_one_operation(&error) {
        return vec![Err(error); count];
    }
    // At the same time: one operation may wait for an unreachable node. No two concern the same field of a lock.
    let alone = operations.iter().map(async |operation| {
        let call = redis.call(script, Arc::new([operation.clone()]), durability);
        call.await?.pop().ok_or(CallError::Closed)
    });
    let answers = join_all(alone).await;
    if !is_unsent(&error) && answers.iter().all(Result::is_ok) {
        redis.refused_together(&operations);
    }
    answers
}

/// Whether the connection of the batch may lead to several servers.
fn is_unsent(error: &CallError) -> bool {
    matches!(error, CallError::Refused(Refusal::Failed { message }) if message == NOT_SENT)
}

/// Whether one operation may have caused the refusal of the whole batch: the user lacks a right to it, or its key is moving
/// to another node (P-R6).
fn may_concern_one_operation(error: &CallError) -> bool {
    match error {
        CallError::Refused(Refusal::Failed { .. }) => true,
        CallError::Refused(Refusal::Transient { message }) => message.starts_with("TRYAGAIN"),
        _ => false,
    }
}
