//! The steps of a connection: its server executes commands, and its client receives replies and messages.

use std::time::Duration;

use bytes::Bytes;
use redisson_lock::transport::{Frame, Pushed};
use tokio::time::Instant;

use super::{PipeId, State};
use crate::{
    Address, Delivery,
    faults::{Delivering, Executed},
    pipe::{Arrival, Blocked, Request},
};

/// The time of a pipe's next step.
pub(super) enum Next {
    At(Instant),
    OnWake,
    Never,
}

impl State {
    /// Executes the commands that have arrived at the server.
    pub(super) fn execute_due(&mut self, pipe: PipeId, now: Instant) {
        let millis = self.millis(now);
        loop {
            let Some(found) = self.pipes.get_mut(&pipe) else {
                return;
            };
            let Some(host) = self.servers.get_mut(&found.address) else {
                return;
            };
            if !host.is_up || !host.server.is_connected(found.id) {
                found.requests.clear();
                found.blocked = None;
                found.end_at(now, "the server closed the connection");
                return;
            }
            if host.paused_until.is_some_and(|until| now < until) {
                return;
            }
            if found.blocked.is_some() {
                if self.unblock(pipe, now, millis) {
                    continue;
                }
                return;
            }
            let due = found.requests.front().map(|(due, _)| *due);
            if due.is_none_or(|due| due > now) {
                return;
            }
            let Some((_, request)) = found.requests.pop_front() else {
                return;
            };
            self.execute(pipe, request, now, millis);
        }
    }

    /// Replies to a `WAIT` that is over. Returns whether it is.
    fn unblock(&mut self, pipe: PipeId, now: Instant, millis: u64) -> bool {
        let acknowledged = self.acknowledged(pipe, now);
        let Some(found) = self.pipes.get_mut(&pipe) else {
            return false;
        };
        if found.end.is_none() {
            // A server discards the commands after a `WAIT` whose client has left.
            found.requests.clear();
            found.blocked = None;
            return true;
        }
        let is_over = found.blocked.as_ref().is_some_and(|blocked| {
            acknowledged >= blocked.wanted || blocked.until.is_some_and(|until| until <= now)
        });
        match found.blocked.take_if(|_| is_over) {
            Some(Blocked { request, .. }) => {
                let answer = Frame::Number(i64::try_from(acknowledged).unwrap_or(i64::MAX));
                self.answer(pipe, request, answer, now, millis);
                true
            }
            None => false,
        }
    }

    fn execute(&mut self, pipe: PipeId, request: Request, now: Instant, millis: u64) {
        let Some(found) = self.pipes.get(&pipe) else {
            return;
        };
        let (address, id) = (found.address.clone(), found.id);
        self.prepare(pipe, request.name, now);
        let Some(host) = self.servers.get_mut(&address) else {
            return;
        };
        let Request { name, args, .. } = &request;
        let writes = host.server.data.writes;
        let mut deliveries = Vec::new();
        let frame = match self.faults.refusal(name) {
            Some(refusal) => Frame::Error(refusal),
            None => host.server.execute(id, name, args, millis, &mut deliveries),
        };
        let killed = host.server.take_ended();
        let relayed = std::mem::take(&mut host.server.data.relayed);
        if host.server.data.writes != writes {
            self.replicate(&address, Some(pipe), now);
        }
        if let Some((wanted, until)) = Blocked::by(&request, &frame, now) {
            if let Some(found) = self.pipes.get_mut(&pipe) {
                found.blocked = Some(Blocked {
                    request,
                    wanted,
                    until,
                });
            }
            return;
        }
        for delivery in deliveries {
            self.deliver(&address, delivery, now);
        }
        for (channel, payload) in relayed {
            self.relay(&address, &channel, &payload, now);
        }
        self.answer(pipe, request, frame, now, millis);
        for other in self.pipes.values_mut() {
            if killed.contains(&other.id) && other.address == address {
                other.wake();
            }
        }
    }

    /// Forwards a message to the running nodes of a cluster.
    fn relay(&mut self, from: &Address, channel: &[u8], payload: &Bytes, now: Instant) {
        let mut deliveries = Vec::new();
        let others = self
            .servers
            .iter()
            .filter(|(to, host)| host.is_up && *to != from);
        for (address, host) in others {
            let mut of_node = Vec::new();
            let subscriptions = &host.server.data.subscriptions;
            subscriptions.deliver(channel, payload, false, &mut of_node);
            deliveries.extend(
                of_node
                    .into_iter()
                    .map(|delivery| (address.clone(), delivery)),
            );
        }
        for (address, delivery) in deliveries {
            self.deliver(&address, delivery, now);
        }
    }

    /// Sends the reply to a request.
    fn answer(&mut self, pipe: PipeId, request: Request, frame: Frame, now: Instant, millis: u64) {
        self.faults.executed(&Executed {
            connection: pipe,
            command: request.name,
            args: &request.args,
            answer: &frame,
            millis,
        });
        let frame = self.faults.answer(request.name, frame);
        let delay = self.faults.answering(pipe);
        let Some(found) = self.pipes.get_mut(&pipe) else {
            return;
        };
        match request.is_answered {
            true => found.arrive(now + delay, Arrival::Reply(request.answer, frame)),
            false => found.end_at(now + delay, "the connection was cut"),
        }
    }

    pub(super) fn deliver(&mut self, address: &Address, delivery: Delivery, now: Instant) {
        let receiver = self
            .pipes
            .iter_mut()
            .find(|(_, pipe)| pipe.id == delivery.connection && pipe.address == *address);
        let Some((id, pipe)) = receiver else { return };
        let message = Pushed::message(delivery.channel, delivery.payload);
        let (pushed, delay) = match self.faults.delivering(*id) {
            Delivering::After(delay) => (message, delay),
            Delivering::Missed => (Pushed::Missed, Duration::ZERO),
            Delivering::Never => return,
        };
        // A server that hangs passes no message of another node on.
        let paused = self.servers.get(address).and_then(|host| host.paused_until);
        let sent = paused.map_or(now, |until| until.max(now));
        pipe.arrive(sent + delay, Arrival::Message(pushed));
        pipe.wake();
    }

    /// Delivers replies and messages that have arrived at the client.
    pub(super) fn hand_out_due(&mut self, pipe: PipeId, now: Instant) -> Next {
        let Some(found) = self.pipes.get_mut(&pipe) else {
            return Next::Never;
        };
        while let Some(arrival) = found.arrived(now) {
            match arrival {
                Arrival::Reply(answer, frame) => drop(answer.send(frame)),
                Arrival::Message(pushed) => {
                    if let Some(messages) = &found.messages {
                        let _ = messages.send(pushed);
                    }
                }
                Arrival::End(reason) => {
                    if let Some(end) = found.leave() {
                        let _ = end.send(reason);
                    }
                }
            }
        }
        let paused = self
            .servers
            .get(&found.address)
            .and_then(|host| host.paused_until);
        let request = match &found.blocked {
            Some(blocked) => earliest(
                blocked.until,
                self.replication.as_mut().and_then(|replication| {
                    replication.expected(&found.address, found.written, blocked.wanted)
                }),
            ),
            None => found.requests.front().map(|(due, _)| *due),
        };
        let request = request.map(|due| paused.map_or(due, |paused| due.max(paused)));
        let arrival = found.arrivals.front().map(|(due, _)| *due);
        match [request, arrival].into_iter().flatten().min() {
            Some(due) => Next::At(due),
            None if found.end.is_none() && found.blocked.is_none() => {
                self.close(pipe);
                Next::Never
            }
            None => Next::OnWake,
        }
    }

    fn close(&mut self, pipe: PipeId) {
        if let Some(closed) = self.pipes.remove(&pipe)
            && let Some(host) = self.servers.get_mut(&closed.address)
        {
            host.server.close(closed.id);
        }
    }
}

fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    [one, other].into_iter().flatten().min()
}
