//! A world in one line.

use std::fmt;

use super::world::{Client, World};
use crate::core::permits::attempts::Stage;

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} left", self.data.left, self.total)?;
        for (index, client) in self.clients.iter().enumerate() {
            write!(f, " | {index}:{client}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (_, grant) in self.pool.grants().all() {
            write!(f, " [{} {:?}]", grant.permits, grant.state)?;
        }
        for (key, attempt) in self.pool.attempts() {
            let stage = match attempt.stage {
                Stage::Queued => "queued".to_owned(),
                Stage::Sent(sent) if sent.is_outdated => "sent, outdated".to_owned(),
                Stage::Sent(_) => "sent".to_owned(),
                Stage::Resting { .. } => "resting".to_owned(),
            };
            let (kind, permits) = (attempt.kind, attempt.permits);
            write!(f, " ({}: {kind:?} {permits} {stage}", key.slot)?;
            if attempt.doubt.is_some() {
                write!(f, " in doubt")?;
            }
            write!(f, ")")?;
        }
        for (key, waiter) in self.pool.queue().all() {
            write!(f, " {key:?}={}:{:?}", waiter.permits, waiter.state)?;
        }
        let (left, is_sure) = self.pool.news();
        write!(f, " news {left}{}", if is_sure { "" } else { "?" })?;
        for (shown, what) in [
            (self.pool.listens(), "listens"),
            (!self.is_up, "DOWN"),
            (self.listens_again, "DEAF"),
            (self.is_reconnected, "NEW"),
            (self.is_refused, "REFUSED"),
        ] {
            if shown {
                write!(f, " {what}")?;
            }
        }
        let travels = [
            self.queued.len(),
            self.requests.len(),
            self.answers.len(),
            self.stream.len(),
            self.subscribing.len(),
        ];
        match travels.iter().any(|count| *count > 0) {
            true => write!(f, " on their way {travels:?}"),
            false => Ok(()),
        }
    }
}
