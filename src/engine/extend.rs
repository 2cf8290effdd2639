//! Extension of a hold at its holder's request, and the leader's entry of an election.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    Engine, attempt::replication_error, hold_guard::HoldGuard, hold_set::HoldId, refusal_error,
    retry::Retry, runtime, tenure::Tenure, time_limits::TRANSIENT_PAUSE,
};
use crate::{
    error::Error,
    redis::Answered,
    timers,
    wire::{Lease, LockSpec, Request, election, presence},
};

impl HoldGuard {
    /// Extends the hold to `lease` from now on, unless it lasts longer anyway.
    pub(crate) async fn extend(&self, lease: Lease) -> Result<(), Error> {
        runtime::check()?;
        let (engine, tenure) = (self.engine(), self.tenure());
        let spec = &tenure.spec;
        let durability = tenure.durability(engine.batcher.replicas(spec));
        let until = Instant::now() + engine.config.command_wait;
        let extending = engine
            .clone()
            .extend(tenure.clone(), self.id(), lease, until);
        engine.finish_within(spec, durability, extending).await
    }

    /// Records the holder as the leader of the election, with its token and `identity`.
    pub(crate) async fn announce(&self, token: i64, identity: &str) -> Result<(), Error> {
        let (engine, tenure) = (self.engine(), self.tenure());
        let spec = &tenure.spec;
        let request = election::announce(spec, &tenure.entry().field, token, identity);
        let reply = engine.call(spec, request, true).await?;
        engine.lose_if_absent(tenure, presence(reply))
    }
}

impl Engine {
    async fn extend(
        self: Arc<Self>,
        tenure: Arc<Tenure>,
        id: HoldId,
        lease: Lease,
        until: Instant,
    ) -> Result<(), Error> {
        match tenure.is_lent() {
            true => {
                let engine = self.clone();
                let extending = Box::pin(engine.extend_with_op_lock(tenure, id, lease, until));
                self.run_as_task(extending).await
            }
            false => self.extend_with_op_lock(tenure, id, lease, until).await,
        }
    }

    async fn extend_with_op_lock(
        self: Arc<Self>,
        tenure: Arc<Tenure>,
        id: HoldId,
        lease: Lease,
        until: Instant,
    ) -> Result<(), Error> {
        let _op_lock = tenure.entry().take_op_lock().await;
        let reconnections = self.wakeups.reconnections();
        let sent = Instant::now();
        if let Some(reason) = tenure.lost_reason(sent) {
            return Err(tenure.lost_error(reason));
        }
        // Marked before the send: the server may execute the request although its answer is lost.
        tenure.set_server_may_keep_it();
        let spec = &tenure.spec;
        let request = spec
            .protocol
            .renew(spec, &tenure.entry().field, Some(&lease));
        let answered = self.send_extension(&tenure, request, until).await?;
        if let Some(short) = answered.acknowledged.as_ref().filter(|by| !by.is_enough()) {
            return Err(replication_error(spec, short));
        }
        self.lose_if_absent(&tenure, presence(answered.reply))?;
        if let Err(reason) = tenure.record_extension(id, sent, &lease) {
            return Err(tenure.lost_error(reason));
        }
        self.watch(&tenure);
        self.verify_since(reconnections, &tenure);
        Ok(())
    }

    /// Sends an extension until it is answered. Gives up at `until`, but not during a sending: the
    /// server may yet execute it, and would extend the owner's next hold. The caller has the
    /// operation lock, which keeps that hold back.
    async fn send_extension(
        &self,
        tenure: &Tenure,
        request: Request,
        until: Instant,
    ) -> Result<Answered, Error> {
        let spec = &tenure.spec;
        let durability = tenure.durability(self.batcher.replicas(spec));
        let mut retry = Retry::default();
        loop {
            // An unsent request must not keep the operation lock until there is a connection.
            let ready = self.batcher.ready(spec, durability);
            let ready = timers::timeout_at(until, self.closed.run_until_cancelled(ready));
            match ready.await {
                Ok(Some(())) => {}
                Ok(None) => return Err(self.closed_error()),
                Err(_) => return Err(self.timeout_error(spec, durability)),
            }
            let error = match self.send(&request, durability).await {
                Ok(answered) => return Ok(answered),
                Err(_) if self.is_closed() => return Err(self.closed_error()),
                Err(error) => error,
            };
            let again = retry.again(&spec.name, error)?;
            // The caller still gets this error, which names the cause.
            let latest = until - TRANSIENT_PAUSE;
            if Instant::now() >= latest {
                return Err(self.last_error(&spec.key, &spec.name, again));
            }
            let _ = timers::timeout_at(latest, again.pause()).await;
            if let Some(reason) = tenure.lost_reason(Instant::now()) {
                return Err(tenure.lost_error(reason));
            }
        }
    }

    /// The leader of the election at `spec`: a token and an identity.
    pub(crate) async fn leader(&self, spec: &LockSpec) -> Result<Option<(i64, String)>, Error> {
        self.wait_for_dropped_guards(&spec.name).await;
        let reply = self.call(spec, election::leader(spec), true).await?;
        election::led_by(reply).map_err(|refusal| refusal_error(&spec.name, refusal))
    }

    /// Logs the `error` of a campaign that its candidate repeats.
    pub(crate) fn log_failed_campaign(&self, name: &str, error: &Error) {
        match self.log_limits.campaigns.may_log_about(error) {
            Some(suppressed) => {
                tracing::warn!(%name, %error, suppressed, "a campaign failed; the candidate campaigns again")
            }
            None => {
                tracing::debug!(%name, %error, "a campaign failed; the candidate campaigns again")
            }
        }
    }
}
