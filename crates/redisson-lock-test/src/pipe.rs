//! The data in flight on a connection, in both directions.

use std::{collections::VecDeque, task::Waker, time::Duration};

use bytes::Bytes;
use redisson_lock::transport::{Frame, Pushed};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::ConnectionId;
use crate::Address;

/// A connection with both ends.
pub(super) struct Pipe {
    pub(super) address: Address,
    /// Its id at the server.
    pub(super) id: ConnectionId,
    pub(super) requests: VecDeque<(Instant, Request)>,
    pub(super) arrivals: VecDeque<(Instant, Arrival)>,
    /// The `WAIT` that delays later requests.
    pub(super) blocked: Option<Blocked>,
    /// The master's offset after the last write of this connection.
    pub(super) written: u64,
    pub(super) messages: Option<mpsc::UnboundedSender<Pushed>>,
    /// Reports the end to the client. `None` after the client has closed the connection: the server still executes sent commands.
    pub(super) end: Option<oneshot::Sender<&'static str>>,
    /// The end is on its way to the client.
    pub(super) is_ending: bool,
    /// A command was lost; all later commands of the client are lost too.
    pub(super) is_cut: bool,
    /// The reply channels of lost commands, which end with the connection.
    pub(super) lost: Vec<oneshot::Sender<Frame>>,
    /// The waker of the connection's task, while that task waits.
    pub(super) waker: Option<Waker>,
}

pub(super) struct Request {
    pub(super) name: &'static str,
    pub(super) args: Vec<Bytes>,
    /// Dropping it reports the end of the connection.
    pub(super) answer: oneshot::Sender<Frame>,
    pub(super) is_answered: bool,
}

/// A `WAIT` for replicas that have not acknowledged yet.
pub(super) struct Blocked {
    pub(super) request: Request,
    /// The number of replicas that it waits for.
    pub(super) wanted: usize,
    /// `None` without a timeout.
    pub(super) until: Option<Instant>,
}

impl Blocked {
    /// The pending `WAIT` of a reply; `None` for any other reply.
    pub(super) fn by(
        request: &Request,
        answer: &Frame,
        now: Instant,
    ) -> Option<(usize, Option<Instant>)> {
        let Frame::Number(acknowledged) = answer else {
            return None;
        };
        let number = |arg: &Bytes| std::str::from_utf8(arg).ok()?.parse::<u64>().ok();
        let [wanted, millis] = &request.args[..] else {
            return None;
        };
        let wanted = number(wanted)
            .filter(|wanted| request.name == "WAIT" && *acknowledged < *wanted as i64)?;
        let timeout = number(millis).filter(|millis| *millis > 0);
        Some((
            wanted as usize,
            timeout.map(|millis| now + Duration::from_millis(millis)),
        ))
    }
}

pub(super) enum Arrival {
    Reply(oneshot::Sender<Frame>, Frame),
    Message(Pushed),
    End(&'static str),
}

impl Pipe {
    /// Wakes the connection's task.
    pub(super) fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Sends a command to the server, after earlier ones.
    pub(super) fn depart(&mut self, due: Instant, request: Request) {
        let due = self.requests.back().map_or(due, |(last, _)| due.max(*last));
        self.requests.push_back((due, request));
    }

    /// Sends data to the client, after earlier data.
    pub(super) fn arrive(&mut self, due: Instant, arrival: Arrival) {
        if self.end.is_some() {
            let due = self.arrivals.back().map_or(due, |(last, _)| due.max(*last));
            self.arrivals.push_back((due, arrival));
        }
    }

    /// Ends the connection at the client, after the data in flight.
    pub(super) fn end_at(&mut self, due: Instant, reason: &'static str) {
        if !std::mem::replace(&mut self.is_ending, true) {
            self.arrive(due, Arrival::End(reason));
        }
    }

    /// The next item that has arrived at the client.
    pub(super) fn arrived(&mut self, now: Instant) -> Option<Arrival> {
        let (due, _) = self.arrivals.front()?;
        if *due > now {
            return None;
        }
        self.arrivals.pop_front().map(|(_, arrival)| arrival)
    }

    /// The client has left: nothing is delivered any more.
    pub(super) fn leave(&mut self) -> Option<oneshot::Sender<&'static str>> {
        self.arrivals.clear();
        self.lost.clear();
        self.messages = None;
        for (_, request) in &mut self.requests {
            // Ends the reply channel: the caller learns that no reply comes.
            request.answer = oneshot::channel().0;
        }
        self.end.take()
    }
}
