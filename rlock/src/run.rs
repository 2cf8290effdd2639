//! `run`: a command while a lock is held.

use std::{process::ExitCode, time::Duration};

use redisson_lock::{Error, Fenced, Guard, Kind as LockKind, Lock, LockClient, LostReason};
use tokio::time::{Instant, sleep_until};

use crate::{
    Failure,
    cli::{IfHeld, Kind, Run},
    command::{Command, Ended, Signals},
    exit,
    locks::with_lock,
};

/// How often the server is asked whether the lock is still held.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What a fenced lock's guard shows, and no other's.
trait Token {
    fn fencing_token(&self) -> Option<i64> {
        None
    }
}

impl Token for Guard<redisson_lock::Reentrant> {}
impl Token for Guard<redisson_lock::Fair> {}
impl Token for Guard<redisson_lock::Read> {}
impl Token for Guard<redisson_lock::Write> {}
impl Token for Guard<redisson_lock::Simple> {}
impl Token for Guard<Fenced> {
    fn fencing_token(&self) -> Option<i64> {
        Some(self.token())
    }
}

pub async fn run(client: &LockClient, asked: Run) -> Result<ExitCode, Failure> {
    with_lock!(client, asked.kind, &asked.name, |lock| run_under(
        lock, &asked
    )
    .await)
}

async fn run_under<K: LockKind>(lock: Lock<K>, asked: &Run) -> Result<ExitCode, Failure>
where
    Guard<K>: Token,
{
    let lock = match asked.lease {
        Some(lease) => lock.with_lease(lease),
        None => lock,
    };
    let mut signals = Signals::new()?;
    let guard = tokio::select! {
        taken = take(&lock, asked) => taken?,
        // Nothing is held, and nothing was begun.
        signal = signals.next() => return Ok(signal.exit_code()),
    };
    let Some(guard) = guard else {
        return match asked.if_held {
            IfHeld::Skip => Ok(ExitCode::SUCCESS),
            IfHeld::Wait | IfHeld::Fail => Err(Failure {
                code: exit::BUSY,
                message: format!("another owner has {:?}", asked.name),
            }),
        };
    };
    let left = Instant::from_std(guard.valid_until()).saturating_duration_since(Instant::now());
    // A lease that is renewed is renewed after a third of it.
    let longest = if asked.lease.is_some() {
        left
    } else {
        left / 2
    };
    if longest <= asked.kill_after {
        return Err(Failure::usage(format!(
            "--kill-after has to be shorter than {longest:?}: the command is told to end so long before the lease ends"
        )));
    }
    let mut command = Command::start(&asked.command, guard.fencing_token())?;
    let ended = attend(&lock, &guard, &mut command, &mut signals, asked.kill_after).await?;
    match (ended, guard.unlock().await) {
        (Ended::Lost(reason), _) => Err(lost(&asked.name, reason)),
        (Ended::Done(_), Err(Error::Lost { reason, .. })) => Err(lost(&asked.name, reason)),
        (Ended::Done(code), Err(error)) => {
            eprintln!("rlock: the lock was not released, and ends with its lease: {error}");
            Ok(code)
        }
        (Ended::Done(code), Ok(_)) => Ok(code),
    }
}

async fn take<K: LockKind>(lock: &Lock<K>, asked: &Run) -> Result<Option<Guard<K>>, Error> {
    match (asked.if_held, asked.wait) {
        (IfHeld::Wait, None) => lock.lock().await.map(Some),
        (IfHeld::Wait, Some(wait)) => lock.try_lock_for(wait).await,
        (IfHeld::Skip | IfHeld::Fail, _) => lock.try_lock().await,
    }
}

fn lost(name: &str, reason: LostReason) -> Failure {
    Failure {
        code: exit::LOST,
        message: format!("the lock {name:?} was lost while the command ran: {reason}"),
    }
}

/// Waits for the command. Whatever it still does when the lock is another owner's would be unprotected: it is told to end before
/// that, and ended.
async fn attend<K: LockKind>(
    lock: &Lock<K>,
    guard: &Guard<K>,
    command: &mut Command,
    signals: &mut Signals,
    kill_after: Duration,
) -> Result<Ended, Failure> {
    let mut told = false;
    loop {
        // A lease that is renewed moves on.
        let valid_until = Instant::from_std(guard.valid_until());
        let tell_at = valid_until
            .checked_sub(kill_after)
            .unwrap_or_else(Instant::now);
        tokio::select! {
            biased;
            code = command.ended() => {
                if !told {
                    return Ok(Ended::Done(code?));
                }
                // It was cut short, and what it has started may still be at work.
                command.kill().await;
                return Ok(Ended::Lost(LostReason::Expired));
            }
            signal = signals.next() => command.pass_on(signal),
            reason = guard.lost() => {
                // With its lease, it is another's in a moment; forced open, it may be already.
                match reason {
                    LostReason::Expired => command.kill().await,
                    _ => command.end_within(kill_after).await,
                }
                return Ok(Ended::Lost(reason));
            }
            () = is_gone(lock) => {
                command.end_within(kill_after).await;
                return Ok(Ended::Lost(LostReason::Gone));
            }
            () = sleep_until(tell_at), if !told => {
                if Instant::from_std(guard.valid_until()) <= valid_until {
                    told = true;
                    command.terminate();
                }
            }
        }
    }
}

/// Completes when the server does not have the hold any more, which renewals would notice later, and fixed leases never.
async fn is_gone<K: LockKind>(lock: &Lock<K>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if lock.is_held().await == Ok(false) {
            return;
        }
    }
}
