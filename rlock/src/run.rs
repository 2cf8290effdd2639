//! `run`: runs a command while it holds a lock.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use redisson_lock::{Config, Error, Fenced, Guard, Kind as LockKind, Lock, LockClient, LostReason};
use serde_json::{Value, json};
use tokio::time::{interval, sleep_until};

use crate::{
    Done, Failure,
    cli::{IfHeld, Kind, Run},
    command::{Attended, Command},
    exit,
    locks::with_lock,
    out::say,
    signals::Signals,
};

/// The interval between two queries whether the server still has the hold.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The default time between SIGTERM and SIGKILL.
const KILL_AFTER: Duration = Duration::from_secs(2);
/// The time between SIGTERM and SIGKILL after a forced release, when another owner may have the lock.
const KILL_AFTER_FORCE: Duration = Duration::from_millis(500);

/// The fencing token of a guard; `None` unless the lock is fenced.
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

impl Run {
    /// Refuses contradictory options before the lock is acquired.
    pub fn check(&self) -> Result<(), Failure> {
        if self.wait.is_some() && self.if_held != IfHeld::Wait {
            return Err(Failure::usage(
                "--wait cannot be combined with --if-held skip or fail: remove one of them",
            ));
        }
        let longest = self.longest_kill_after();
        if self.kill_after.is_some_and(|wait| wait > longest) {
            return Err(Failure::usage(format!(
                "--kill-after must be at most {longest:?}, half of the lease: the command gets SIGTERM this long \
                 before the lease ends"
            )));
        }
        Ok(())
    }

    fn longest_kill_after(&self) -> Duration {
        self.lease
            .unwrap_or_else(|| Config::default().watchdog_lease)
            / 2
    }

    fn kill_after(&self) -> Duration {
        let default = KILL_AFTER.min(self.longest_kill_after());
        self.kill_after.unwrap_or(default)
    }
}

/// The object that `--json` prints at the end.
#[derive(Default)]
struct Report {
    outcome: &'static str,
    token: Option<i64>,
    waited: Duration,
    ran: Option<Duration>,
    lost_by: Option<String>,
}

impl Report {
    fn line(&self, asked: &Run, code: u8) -> Value {
        json!({
            "name": asked.name,
            "outcome": self.outcome,
            "exit_code": code,
            "token": self.token,
            "waited_ms": self.waited.as_millis() as u64,
            "ran_ms": self.ran.map(|ran| ran.as_millis() as u64),
            "lost_by": self.lost_by,
        })
    }
}

pub async fn run(client: &LockClient, asked: &Run, json: bool) -> Result<Done, Failure> {
    let mut report = Report::default();
    let done = with_lock!(client, asked.kind, &asked.name, |lock| run_under(
        lock,
        asked,
        &mut report
    )
    .await);
    let code = match &done {
        Ok(done) => done.code(),
        Err(failure) => failure.code,
    };
    if json && !report.outcome.is_empty() {
        // A closed output must not replace the exit code of the command.
        let _ = say(report.line(asked, code).to_string());
    }
    done
}

async fn run_under<K: LockKind>(
    lock: Lock<K>,
    asked: &Run,
    report: &mut Report,
) -> Result<Done, Failure>
where
    Guard<K>: Token,
{
    let lock = match asked.lease {
        Some(lease) => lock.with_lease(lease),
        None => lock,
    };
    let mut signals = Signals::new()?;
    let began = Instant::now();
    let taken = tokio::select! {
        taken = take(&lock, asked) => Ok(taken?),
        // A signal ended the wait: no hold is left and no command has started.
        code = signals.ending() => Err(code),
    };
    report.waited = began.elapsed();
    let guard = match taken {
        Ok(Some(guard)) => guard,
        Ok(None) => {
            report.outcome = "busy";
            return match asked.if_held {
                IfHeld::Skip => Ok(Done::Code(0)),
                IfHeld::Wait | IfHeld::Fail => Err(Failure {
                    code: exit::BUSY,
                    message: format!("another owner holds {:?}", asked.name),
                }),
            };
        }
        Err(code) => {
            report.outcome = "interrupted";
            return Ok(Done::Code(code));
        }
    };
    report.token = guard.fencing_token();
    signals.begin_command()?;
    let command = Command::start(
        &asked.command,
        report.token,
        asked.kill_after(),
        guard.valid_until(),
    )
    .await?;
    let began = Instant::now();
    let ended = attend(&lock, &guard, command, &mut signals, asked.kill_after()).await?;
    report.ran = Some(began.elapsed());
    let released = guard.unlock().await;
    let reason = match (&ended, &released) {
        (Ended::Lost(reason), _) => Some(*reason),
        (Ended::Done(_), Err(Error::Lost { reason, .. })) => Some(*reason),
        _ => None,
    };
    if let Some(reason) = reason {
        report.outcome = "lost";
        report.lost_by = Some(reason.to_string());
        return Err(lost(&asked.name, reason));
    }
    if let Err(error) = released {
        crate::out::complain(&format!(
            "the lock was not released and is free when its lease ends: {error}"
        ));
    }
    report.outcome = "done";
    match ended {
        Ended::Done(done) => Ok(done),
        Ended::Lost(reason) => Err(lost(&asked.name, reason)),
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

/// The outcome of [`attend`].
enum Ended {
    /// The command ended without having been told to.
    Done(Done),
    /// The lock was lost, or the command was told to end because the hold was about to expire.
    Lost(LostReason),
}

/// Waits for the command. The work of a command is unprotected once another owner may have the lock. So the command gets SIGTERM
/// `kill_after` before the hold expires, and SIGKILL when it does.
async fn attend<K: LockKind>(
    lock: &Lock<K>,
    guard: &Guard<K>,
    mut command: Command,
    signals: &mut Signals,
    kill_after: Duration,
) -> Result<Ended, Failure> {
    let after_force = kill_after.min(KILL_AFTER_FORCE);
    let mut told = false;
    let mut ticks = interval(LOOK_EVERY);
    let mut gone = pin!(is_gone(lock));
    loop {
        // A renewal moves the end of the hold.
        let valid_until = guard.valid_until();
        command.extend(valid_until).await;
        let tell_at = valid_until
            .checked_sub(kill_after)
            .unwrap_or_else(Instant::now);
        tokio::select! {
            biased;
            reason = guard.lost() => {
                // After an expiry, another owner can enter at any moment. After a forced release, it may be inside already.
                match reason {
                    LostReason::Expired => command.kill().await,
                    _ => command.end_within(after_force, signals).await,
                }
                return Ok(Ended::Lost(reason));
            }
            attended = command.attend(signals) => match attended {
                Ok(Attended::Ended(status)) if !told => {
                    return Ok(Ended::Done(command.ended(status).await));
                }
                // The command had received SIGTERM, and its children may still run.
                Ok(Attended::Ended(_)) => {
                    command.kill().await;
                    return Ok(Ended::Lost(LostReason::Expired));
                }
                // The lease may have ended while `rlock` was stopped.
                Ok(Attended::Resumed) if Instant::now() < guard.valid_until() => command.resume(),
                Ok(Attended::Resumed) => {
                    command.kill().await;
                    return Ok(Ended::Lost(LostReason::Expired));
                }
                Err(error) => return Err(Failure {
                    code: exit::FAILED,
                    message: format!("waiting for the command failed: {error}"),
                }),
            },
            () = &mut gone => {
                command.end_within(after_force, signals).await;
                return Ok(Ended::Lost(LostReason::Gone));
            }
            () = sleep_until(tell_at.into()), if !told => {
                if guard.valid_until() <= valid_until {
                    told = true;
                    command.terminate();
                }
            }
            _ = ticks.tick() => {}
        }
    }
}

/// Completes when the server no longer has the hold. Renewals would find that later, and a fixed lease has no renewals.
async fn is_gone<K: LockKind>(lock: &Lock<K>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if lock.is_held().await == Ok(false) {
            return;
        }
    }
}
