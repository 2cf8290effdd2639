//! The latch: waits for an opening.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::{
    super::{Engine, detach::Caller, request::Deadline, runtime},
    attempts,
    operation::unexpected_answer,
    remaining::Remaining,
    waiters::{State, Wanted},
    waiting::Waiting,
};
use crate::{
    error::{Error, NO_ANSWER},
    wire::{
        latch,
        reply::{Detail, Outcome},
        sync_spec::SyncSpec,
    },
};

impl Engine {
    /// Waits until a latch has been open at some moment since the call. Returns whether it was.
    pub(crate) async fn wait_for_opening(
        self: &Arc<Self>,
        spec: &Arc<SyncSpec>,
        deadline: Deadline,
    ) -> Result<bool, Error> {
        runtime::check()?;
        let synchronizers = &self.synchronizers;
        let mark = attempts::mark();
        let wanted = Wanted::Opening {
            mark,
            is_marked: false,
        };
        let mut waiting = match deadline {
            Deadline::Once => None,
            _ => Some(Waiting::begin(self, spec, wanted)),
        };
        let mut was_closed = false;
        loop {
            if let Some(waiting) = &mut waiting {
                match waiting.notified(deadline).await {
                    Some(State::Over) => return Ok(true),
                    Some(_) => waiting.begin_attempt(),
                    None if was_closed => return Ok(false),
                    None => return Err(self.no_answer(spec, NO_ANSWER)),
                }
            }
            self.check_accepts()?;
            let caller = Caller::default();
            let look = self.until_answered(spec, latch::look(spec, mark), Some(&caller), None);
            let looked = timeout_at(self.answer_deadline(deadline), look).await;
            match looked.map(|looked| looked.map(|answer| answer.outcome)) {
                Ok(Ok(Outcome::Done(Detail::Number(count)))) if count <= 0 => {
                    synchronizers.waiters().record_open(spec, Instant::now());
                    return Ok(true);
                }
                Ok(Ok(Outcome::Done(Detail::Number(_)))) => match &waiting {
                    Some(waiting) => {
                        was_closed = true;
                        waiting.record_refusal(Remaining::plain(0));
                    }
                    None => return Ok(false),
                },
                Ok(Ok(other)) => return Err(unexpected_answer(other)),
                Ok(Err(error)) => return Err(error),
                Err(_) if was_closed && deadline.is_over() => return Ok(false),
                Err(_) => return Err(self.no_reply(spec, &caller)),
            }
        }
    }
}
