//! A connection, as a network sees it: what is on its way, in both directions.

use std::{collections::VecDeque, task::Waker, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::ConnectionId;
use crate::redis::{
    connection::{Frame, Pushed},
    endpoint::Address,
};

/// A connection, from its one end to the other.
pub(super) struct Pipe {
    pub(super) address: Address,
    /// What the server calls it.
    pub(super) id: ConnectionId,
    pub(super) requests: VecDeque<(Instant, Request)>,
    pub(super) arrivals: VecDeque<(Instant, Arrival)>,
    /// The `WAIT` that holds up the requests behind it.
    pub(super) blocked: Option<Blocked>,
    /// The master's offset after the last write of this connection.
    pub(super) written: u64,
    pub(super) messages: Option<mpsc::UnboundedSender<Pushed>>,
    /// Tells the client of the end. `None` once the client has closed the connection: the server still executes what was sent.
    pub(super) end: Option<oneshot::Sender<&'static str>>,
    /// The end is on its way to the client.
    pub(super) is_ending: bool,
    /// A command was lost, and with it all that the client sends behind it.
    pub(super) is_cut: bool,
    /// The answers of lost commands, which their callers miss only when the connection ends.
    pub(super) lost: Vec<oneshot::Sender<Frame>>,
    /// Of the task that moves what is on its way, while that task waits.
    pub(super) waker: Option<Waker>,
}

pub(super) struct Request {
    pub(super) name: &'static str,
    pub(super) args: Vec<Bytes>,
    /// Dropped, it says that the connection has ended.
    pub(super) answer: oneshot::Sender<Frame>,
    pub(super) is_answered: bool,
}

/// A `WAIT` for replicas that have not acknowledged yet.
pub(super) struct Blocked {
    pub(super) request: Request,
    /// How many replicas it waits for.
    pub(super) wanted: usize,
    /// `None`: it has no timeout.
    pub(super) until: Option<Instant>,
}

impl Blocked {
    /// The `WAIT` that such an answer leaves waiting; `None` for anything else.
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
    /// Has the task look at the connection that moves what is on its way.
    pub(super) fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Puts a command on its way to the server, behind those before it.
    pub(super) fn depart(&mut self, due: Instant, request: Request) {
        let due = self.requests.back().map_or(due, |(last, _)| due.max(*last));
        self.requests.push_back((due, request));
    }

    /// Puts something on its way to the client, behind what was before it.
    pub(super) fn arrive(&mut self, due: Instant, arrival: Arrival) {
        if self.end.is_some() {
            let due = self.arrivals.back().map_or(due, |(last, _)| due.max(*last));
            self.arrivals.push_back((due, arrival));
        }
    }

    /// Has the client find the connection ended, behind what is on its way.
    pub(super) fn end_at(&mut self, due: Instant, reason: &'static str) {
        if !std::mem::replace(&mut self.is_ending, true) {
            self.arrive(due, Arrival::End(reason));
        }
    }

    /// The first that has arrived at the client.
    pub(super) fn arrived(&mut self, now: Instant) -> Option<Arrival> {
        let (due, _) = self.arrivals.front()?;
        if *due > now {
            return None;
        }
        self.arrivals.pop_front().map(|(_, arrival)| arrival)
    }

    /// The client has left: nothing arrives there any more.
    pub(super) fn leave(&mut self) -> Option<oneshot::Sender<&'static str>> {
        self.arrivals.clear();
        self.lost.clear();
        self.messages = None;
        for (_, request) in &mut self.requests {
            // The caller learns that no answer will come.
            request.answer = oneshot::channel().0;
        }
        self.end.take()
    }
}
