//! Limits attempts to connect, and their log lines, for a server that is down or that closes accepted connections.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{
    address_order::AddressOrder, connect_error::ConnectErrorKind, endpoint::Endpoint,
    handshake::Handshake,
};
use crate::{
    error::{Cause, Error},
    gauges::Connections,
    hash::HashMap,
    protocol::Protocol,
    rate_limit::RateLimit,
};

/// The pause after the first failed attempt. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause between two attempts to connect to one server, before the random part is added.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause while a caller waits for the connection, after attempts that did not reach the server, and so cost it nothing.
const LONGEST_AWAITED_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause after short-lived connections of one purpose. There are two purposes, which together make at most one
/// attempt a second.
const LONGEST_REST: Duration = Duration::from_secs(2);
/// A connection that lasts this long counts as proved, used or not.
const PROVEN_AFTER: Duration = Duration::from_secs(10);
/// A proved connection that lasts this long is replaced at once. A server may close each connection after its first answer.
const STEADY_AFTER: Duration = Duration::from_secs(1);
/// A connection that answers this often is replaced at once, too. A lossy network breaks busy connections within a second.
const STEADY_ANSWERS: u32 = 4;
/// The most consecutive connections that are replaced at once although they were proved and not steady.
const MOST_BRIEF: u32 = 3;
/// The longest pause after later ones. They did work, and a caller may wait for the next.
const LONGEST_BRIEF_REST: Duration = Duration::from_millis(100);
/// How long a client does not repeat a `HELLO` that the server has refused.
const HELLO_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// How long a client tries a single handshake with a server that has closed the connections of all.
const CLOSE_AGAIN_AFTER: Duration = Duration::from_secs(15);
/// How often a continuing outage is logged again.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// The most lines about connections that one client logs in a minute.
const MOST_LINES: u32 = 5;
/// The most unused servers that are remembered.
const MOST_REMEMBERED: usize = 64;

/// A pause that grows with the `number` of earlier ones. A random part of up to half of it keeps clients that lost their
/// server together from reconnecting together.
fn pause(number: u32, longest: Duration) -> Duration {
    let doubled = FIRST_PAUSE * 2_u32.pow(number.min(16));
    doubled.min(longest).mul_f64(1.0 + fastrand::f64() / 2.0)
}

/// The pause of one purpose after so many attempts in a row that ended before they reached the server.
pub(super) fn pause_after(number: u32) -> Duration {
    match number.checked_sub(1) {
        None => Duration::ZERO,
        Some(earlier) => pause(earlier, LONGEST_PAUSE),
    }
}

/// The servers that one client connects to.
pub(crate) struct KnownServers {
    known: Mutex<HashMap<Endpoint, Arc<KnownServer>>>,
    lines: RateLimit,
}

impl KnownServers {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            known: Mutex::default(),
            lines: RateLimit::new(MOST_LINES),
        })
    }

    /// As [`RateLimit::may_log_about`], for lines about connections.
    pub(super) fn may_log_about(&self, reason: &str) -> Option<u64> {
        self.lines.may_log_about(reason)
    }

    /// The attempts to connect to the server at `endpoint`, for all purposes.
    pub(super) fn at(&self, endpoint: &Endpoint) -> Arc<KnownServer> {
        let mut known = lock(&self.known);
        if known.len() > MOST_REMEMBERED {
            known.retain(|_, attempts| Arc::strong_count(attempts) > 1);
        }
        known.entry(endpoint.clone()).or_default().clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The attempts to connect to one server.
#[derive(Default)]
pub(super) struct KnownServer {
    state: Mutex<InVain>,
    reached: Notify,
    handshakes: Mutex<Handshakes>,
    pub(super) address_order: AddressOrder,
}

/// The fate of the handshakes with one server.
#[derive(Default)]
struct Handshakes {
    /// The handshake that the server accepted after it had refused `HELLO`, and when it refused that.
    instead_of_hello: Option<(Handshake, Instant)>,
    /// When the server closed the connections of all handshakes.
    closed: Option<Instant>,
}

#[derive(Default)]
struct InVain {
    number: u32,
    /// When the next attempt may begin.
    next: Option<Instant>,
    /// When it may begin if a caller waits; `None` if the last attempt reached the server, which is spared then.
    next_if_awaited: Option<Instant>,
}

/// The callers that wait for a connection.
#[derive(Default)]
pub(super) struct Callers {
    waiting: AtomicUsize,
    came: Notify,
}

impl Callers {
    /// Counts a caller until the drop of what it returns.
    pub(super) fn wait(&self) -> WaitingCaller<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.came.notify_waiters();
        WaitingCaller(self)
    }

    fn any(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

/// A caller that waits for a connection.
#[must_use]
pub(super) struct WaitingCaller<'a>(&'a Callers);

impl Drop for WaitingCaller<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl KnownServer {
    /// Completes when an attempt may begin, which is sooner while any of the `callers` waits. The attempt counts as failed until the
    /// server is [`reached`](Self::reached).
    pub(super) async fn turn(&self, callers: &Callers) -> Turn<'_> {
        loop {
            let (reached, came) = (self.reached.notified(), callers.came.notified());
            let Err(next) = self.take_turn(callers.any()) else {
                return Turn(self);
            };
            tokio::select! {
                () = sleep_until(next) => {}
                // A success of another purpose shows that the server is reachable.
                () = reached => {}
                // The pause becomes shorter.
                () = came => {}
            }
        }
    }

    /// Takes a turn back: other purposes need not wait for it.
    fn not_made(&self) {
        let mut state = lock(&self.state);
        state.number = state.number.saturating_sub(1);
        let again = Instant::now() + pause(state.number, LONGEST_PAUSE);
        state.next = state.next.map(|next| next.min(again));
    }

    /// As [`turn`](Self::turn), but does not wait.
    pub(super) fn has_turn(&self) -> bool {
        self.take_turn(false).is_ok()
    }

    fn take_turn(&self, is_awaited: bool) -> Result<(), Instant> {
        let now = Instant::now();
        let mut state = lock(&self.state);
        let sooner = state.next_if_awaited.filter(|_| is_awaited);
        match sooner.or(state.next) {
            Some(next) if now < next => Err(next),
            _ => {
                state.next = Some(now + pause(state.number, LONGEST_PAUSE));
                state.next_if_awaited = None;
                state.number += 1;
                Ok(())
            }
        }
    }

    /// The attempt under way has reached no server. The next one may begin sooner if a caller waits.
    fn reached_nothing(&self) {
        let mut state = lock(&self.state);
        let sooner = Instant::now() + pause(state.number, LONGEST_AWAITED_PAUSE);
        state.next_if_awaited = state.next.map(|next| next.min(sooner));
    }

    /// The handshakes for the next connection. A refused `HELLO` is not repeated for [`HELLO_AGAIN_AFTER`], unless a connection
    /// fails meanwhile: another server may be there now.
    pub(super) fn handshakes(&self, protocol: Protocol) -> &'static [Handshake] {
        match lock(&self.handshakes).instead_of_hello {
            Some((accepted, at)) if at.elapsed() < HELLO_AGAIN_AFTER => accepted.onwards(),
            _ => Handshake::of(protocol),
        }
    }

    /// Whether the next handshake follows when the server closes the connection on one. A load balancer without a server
    /// closes every connection: each attempt would open three.
    pub(super) fn follows_a_close(&self) -> bool {
        let closed = lock(&self.handshakes).closed;
        closed.is_none_or(|at| at.elapsed() >= CLOSE_AGAIN_AFTER)
    }

    /// A connection was opened by this handshake, or failed.
    pub(super) fn shook_hands(&self, result: Result<Handshake, ConnectErrorKind>) {
        let is_followed = self.follows_a_close();
        let mut handshakes = lock(&self.handshakes);
        let now = Instant::now();
        match result {
            // The server was not asked.
            Err(ConnectErrorKind::Provider) => return,
            Err(ConnectErrorKind::Closed) if is_followed => handshakes.closed = Some(now),
            Err(_) => {}
            Ok(_) => handshakes.closed = None,
        }
        handshakes.instead_of_hello = match (result, handshakes.instead_of_hello) {
            // A balancer without a server closes each connection. The server may be the same later.
            (Err(ConnectErrorKind::Closed), kept) => kept,
            (Err(_) | Ok(Handshake::Hello), _) => None,
            (Ok(accepted), Some((_, at))) if at.elapsed() < HELLO_AGAIN_AFTER => {
                Some((accepted, at))
            }
            (Ok(accepted), _) => Some((accepted, now)),
        };
    }

    /// The server has accepted one of this client's connections.
    pub(super) fn reached(&self) {
        *lock(&self.state) = InVain::default();
        self.reached.notify_waiters();
    }
}

/// A turn to connect. A drop takes it back: the attempt was given up, or did not reach the server.
#[must_use]
pub(super) struct Turn<'a>(&'a KnownServer);

impl Turn<'_> {
    /// The server was asked, unless the attempt `failed` before that.
    pub(super) fn end(self, failed: Option<ConnectErrorKind>) {
        if failed == Some(ConnectErrorKind::Network) {
            self.0.reached_nothing();
        }
        std::mem::forget(self);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.not_made();
    }
}

/// Why the server does not answer; empty while it does.
#[derive(Clone, Default)]
pub(super) struct Trouble {
    cause: Arc<Mutex<Option<Arc<Cause>>>>,
    refused_start: Arc<Mutex<Option<Error>>>,
}

impl Trouble {
    pub(super) fn cause(&self) -> Option<Arc<Cause>> {
        lock(&self.cause).clone()
    }

    fn set(&self, cause: Option<Arc<Cause>>) {
        *lock(&self.cause) = cause;
    }

    /// The last error, if it is final and there has been no connection yet.
    pub(super) fn refused_start(&self) -> Option<Error> {
        lock(&self.refused_start).clone()
    }
}

/// The fate of the connections of one purpose.
pub(super) struct ConnectLog {
    purpose: &'static str,
    servers: Arc<KnownServers>,
    pub(super) trouble: Trouble,
    /// The number of consecutive connections that ended before they were proved.
    short_lived: u32,
    /// The number of connections that were proved and not steady, since the last steady one.
    brief: u32,
    /// Since when there has been no proved connection.
    since: Option<Instant>,
    /// The reasons that were logged, and when.
    logged: Vec<(String, Instant)>,
    /// Why a connection ended whose successor is not known yet.
    broken: Option<String>,
    lost: u64,
    failed: u64,
    has_connected: bool,
    gauges: Connections,
}

impl ConnectLog {
    pub(super) fn new(purpose: &'static str, servers: &Arc<KnownServers>) -> Self {
        Self {
            purpose,
            servers: servers.clone(),
            trouble: Trouble::default(),
            short_lived: 0,
            brief: 0,
            since: None,
            logged: Vec::new(),
            broken: None,
            lost: 0,
            failed: 0,
            has_connected: false,
            gauges: Connections::new(purpose),
        }
    }

    /// A connection has ended that `lasted` so long and gave so many `answers`. Returns how long to wait before the next one.
    pub(super) fn lost(
        &mut self,
        server: &dyn fmt::Display,
        reason: &str,
        answers: u32,
        lasted: Duration,
    ) -> Duration {
        self.lost += 1;
        self.has_connected = true;
        self.gauges.record_loss();
        self.trouble.set(Some(Arc::new(Cause::connection(reason))));
        self.since.get_or_insert_with(Instant::now);
        self.broken = Some(reason.to_owned());
        tracing::debug!(%server, purpose = self.purpose, reason, "the connection to Redis broke; connecting again");
        if answers == 0 && lasted < PROVEN_AFTER {
            self.short_lived += 1;
            return pause(self.short_lived, LONGEST_REST);
        }
        self.short_lived = 0;
        let is_steady = lasted >= STEADY_AFTER || answers >= STEADY_ANSWERS;
        self.brief = if is_steady { 0 } else { self.brief + 1 };
        match self.brief.checked_sub(MOST_BRIEF) {
            None | Some(0) => Duration::ZERO,
            Some(number) => pause(number, LONGEST_BRIEF_REST),
        }
    }

    /// An attempt to connect failed.
    pub(super) fn failed(&mut self, server: &dyn fmt::Display, error: &Error) {
        self.failed += 1;
        self.gauges.record_failure();
        self.trouble.set(Some(error.cause()));
        if !self.has_connected {
            let is_final = !error.is_unavailable();
            *lock(&self.trouble.refused_start) = is_final.then(|| error.clone());
        }
        // The failure tells more than the end of the connection before it, which a changed password may have caused.
        self.broken = None;
        self.tell("cannot connect to Redis", server, error);
    }

    /// There is a connection, which has proved nothing yet.
    pub(super) fn connected(&mut self, server: &dyn fmt::Display) {
        self.has_connected = true;
        *lock(&self.trouble.refused_start) = None;
        if let Some(reason) = self.broken.take() {
            self.tell(
                "the connection to Redis broke and was replaced",
                server,
                reason,
            );
        }
    }

    fn tell(&mut self, what: &str, server: &dyn fmt::Display, reason: impl fmt::Display) {
        let now = Instant::now();
        self.since.get_or_insert(now);
        let reason = reason.to_string();
        self.logged.retain(|(_, at)| now < *at + TELL_EVERY);
        let is_due = self.logged.iter().all(|(logged, _)| *logged != reason);
        let Self {
            purpose,
            lost,
            failed,
            ..
        } = self;
        if is_due && let Some(suppressed) = self.servers.lines.may_log_about(&reason) {
            tracing::warn!(%server, purpose, reason, lost, failed, suppressed, "{what}");
            self.logged.push((reason, now));
        } else {
            tracing::debug!(%server, purpose, reason, lost, failed, "{what}");
        }
    }

    /// The present connection is proved.
    pub(super) fn is_proven(&mut self, server: &dyn fmt::Display) {
        self.trouble.set(None);
        let Some(since) = self.since.take() else {
            return;
        };
        self.gauges.record_recovery();
        let (after, lost, failed, purpose) =
            (since.elapsed(), self.lost, self.failed, self.purpose);
        if !std::mem::take(&mut self.logged).is_empty()
            && let Some(suppressed) = self.servers.lines.may_log()
        {
            tracing::info!(%server, purpose, ?after, lost, failed, suppressed, "connected to Redis again");
        }
        (self.lost, self.failed) = (0, 0);
    }
}

#[cfg(test)]
mod tests;
