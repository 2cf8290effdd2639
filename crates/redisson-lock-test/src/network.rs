//! Connections to in-memory servers.
//!
//! A connection's task replaces the network and the server's event loop: it executes commands that have arrived at the server, and
//! delivers replies and messages that have arrived at the client, each in the order of sending. Everything else happens under one
//! mutex, at the time of tokio's clock.

mod event_loop;

use std::{
    collections::{BTreeMap, VecDeque},
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

use bytes::Bytes;
use redisson_lock::transport::{BoxFuture, Frame, Link, Transport, TransportError};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};

use super::{
    Address, ConnectionId, Server,
    faults::{Calm, Ending, Faults},
    line::{Leave, Line},
    pipe::{Pipe, Request},
    replication::Replication,
};
use event_loop::Next;

/// The time of every server's clock when its network is created, in milliseconds since 1970.
const EPOCH: u64 = 1_700_000_000_000;

/// Servers, and the connections to them.
#[derive(Clone)]
pub(crate) struct Network(Arc<Mutex<State>>);

pub(crate) struct State {
    pub(super) servers: BTreeMap<Address, Host>,
    /// The servers to which addresses and names lead. Without it, each address leads to its server.
    pub(super) routes: Option<BTreeMap<Address, Address>>,
    pub(super) faults: Box<dyn Faults>,
    began: Instant,
    /// The servers' time then, in milliseconds since 1970.
    epoch: u64,
    pub(super) pipes: BTreeMap<PipeId, Pipe>,
    opened: u64,
    /// The replication from masters to replicas, if there are any.
    pub(super) replication: Option<Replication>,
}

/// A server, and whether it can be reached.
pub(super) struct Host {
    pub(super) server: Server,
    pub(super) is_up: bool,
    /// The session of the test itself.
    own: ConnectionId,
    /// The server executes nothing before this time.
    pub(super) paused_until: Option<Instant>,
}

/// The number of a connection within its network.
pub(crate) type PipeId = u64;

impl Network {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            servers: BTreeMap::new(),
            routes: None,
            faults: Box::new(Calm),
            began: Instant::now(),
            epoch: EPOCH,
            pipes: BTreeMap::new(),
            opened: 0,
            replication: None,
        })))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a connection, and starts its task.
    pub(super) async fn dial(
        &self,
        address: &Address,
    ) -> Result<(Line, BoxFuture<'static, TransportError>), TransportError> {
        let delay = self.state().faults.connecting();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let (end, told) = oneshot::channel();
        let opened = self.state().open(address, end);
        let pipe = opened.ok_or_else(|| TransportError::new("connection refused"))?;
        tokio::spawn(drive(self.clone(), pipe));
        let line = Line {
            network: self.clone(),
            pipe,
        };
        let leave = Leave(line.clone());
        let ended: BoxFuture<'static, TransportError> = Box::pin(async move {
            let _leave = leave;
            TransportError::new(told.await.unwrap_or("the connection ended"))
        });
        Ok((line, ended))
    }

    /// Runs the due steps of a connection, and sets the wake-up of its task.
    fn step(&self, pipe: PipeId, waker: &Waker) -> Next {
        let now = Instant::now();
        let mut state = self.state();
        // Taken before the step: the step itself sees any change that happens meanwhile, so it needs no wake-up.
        let kept = state
            .pipes
            .get_mut(&pipe)
            .and_then(|pipe| pipe.waker.take());
        state.execute_due(pipe, now);
        let next = state.hand_out_due(pipe, now);
        if let Some(found) = state.pipes.get_mut(&pipe) {
            let kept = kept.filter(|kept| kept.will_wake(waker));
            found.waker = kept.or_else(|| Some(waker.clone()));
        }
        next
    }
}

async fn drive(network: Network, pipe: PipeId) {
    let mut sleep = pin!(None);
    poll_fn(|context| {
        loop {
            match network.step(pipe, context.waker()) {
                Next::OnWake => {
                    sleep.set(None);
                    return Poll::Pending;
                }
                Next::At(due) => sleep.set(Some(sleep_until(due))),
                Next::Never => return Poll::Ready(()),
            }
            if let Some(sleep) = sleep.as_mut().as_pin_mut()
                && sleep.poll(context).is_pending()
            {
                return Poll::Pending;
            }
        }
    })
    .await;
}

impl Transport for Network {
    fn connect(&self, host: &str, port: u16) -> BoxFuture<'static, Result<Link, TransportError>> {
        let (network, address) = (self.clone(), (host.to_owned(), port));
        Box::pin(async move {
            let (line, ended) = network.dial(&address).await?;
            Ok(Link::new(line, ended))
        })
    }

    /// Each runtime has its own clock, which may be paused.
    fn is_in_process(&self) -> bool {
        true
    }
}

impl State {
    /// The time of the servers.
    pub(super) fn millis(&self, now: Instant) -> u64 {
        self.epoch + now.saturating_duration_since(self.began).as_millis() as u64
    }

    pub(super) fn add(&mut self, address: Address, mut server: Server) {
        let own = server.open("10.0.0.2:10000", EPOCH);
        let host = Host {
            server,
            own,
            is_up: true,
            paused_until: None,
        };
        self.servers.insert(address, host);
    }

    pub(super) fn set_millis(&mut self, millis: u64) {
        (self.began, self.epoch) = (Instant::now(), millis);
    }

    /// Runs a command of the test itself.
    pub(super) fn run(&mut self, address: &Address, name: &str, args: &[Bytes]) -> Frame {
        let now = Instant::now();
        let millis = self.millis(now);
        let Some(host) = self.servers.get_mut(address) else {
            return Frame::Null;
        };
        let mut deliveries = Vec::new();
        let answer = host
            .server
            .execute(host.own, name, args, millis, &mut deliveries);
        for delivery in deliveries {
            self.deliver(address, delivery, now);
        }
        answer
    }

    pub(super) fn set_up(&mut self, address: &Address, is_up: bool) {
        if let Some(host) = self.servers.get_mut(address) {
            host.is_up = is_up;
        }
    }

    fn open(&mut self, address: &Address, end: oneshot::Sender<&'static str>) -> Option<PipeId> {
        let millis = self.millis(Instant::now());
        let routes = self.routes.as_ref();
        let address = routes.map_or(Some(address), |routes| routes.get(address))?;
        let host = self.servers.get_mut(address).filter(|host| host.is_up)?;
        self.opened += 1;
        let pipe = self.opened;
        let id = host
            .server
            .open(&format!("10.0.0.1:{}", 10_000 + pipe % 50_000), millis);
        let opened = Pipe {
            address: address.clone(),
            id,
            requests: VecDeque::new(),
            arrivals: VecDeque::new(),
            blocked: None,
            written: 0,
            messages: None,
            end: Some(end),
            is_ending: false,
            is_cut: false,
            lost: Vec::new(),
            waker: None,
        };
        self.pipes.insert(pipe, opened);
        Some(pipe)
    }

    /// Sends a command. `None` if the connection has ended.
    pub(super) fn send(
        &mut self,
        pipe: PipeId,
        name: &'static str,
        args: Vec<Bytes>,
    ) -> Option<oneshot::Receiver<Frame>> {
        let now = Instant::now();
        let found = self.pipes.get_mut(&pipe)?;
        let fate = self.faults.sending(pipe, name);
        let (answer, answered) = oneshot::channel();
        let request = Request {
            name,
            args,
            answer,
            is_answered: fate.ending.is_none(),
        };
        match fate.ending {
            _ if found.is_cut => found.lost.push(request.answer),
            Some(Ending::Unsent) => {
                found.is_cut = true;
                found.lost.push(request.answer);
                found.end_at(now + fate.delay, "the connection was cut");
            }
            Some(Ending::Unheard) => {
                found.end_at(now, "the connection was cut");
                found.depart(now + fate.delay, request);
            }
            Some(Ending::Unanswered) | None => found.depart(now + fate.delay, request),
        }
        found.wake();
        Some(answered)
    }

    /// Deletes the data of a server, and ends its connections.
    pub(super) fn restart(&mut self, address: &Address) {
        self.disconnect(Some(address));
        if let Some(host) = self.servers.get_mut(address) {
            host.server.restart_empty();
            host.own = host.server.open("10.0.0.2:10000", EPOCH);
        }
    }

    /// Ends all connections to a server, or to all, from the server's side.
    pub(super) fn disconnect(&mut self, address: Option<&Address>) {
        let now = Instant::now();
        for pipe in self.pipes.values_mut() {
            if address.is_none_or(|address| pipe.address == *address) {
                if let Some(host) = self.servers.get_mut(&pipe.address) {
                    host.server.close(pipe.id);
                }
                pipe.requests.clear();
                pipe.blocked = None;
                pipe.end_at(now, "the server closed the connection");
                pipe.wake();
            }
        }
    }

    /// The number of open connections of clients.
    pub(super) fn connections(&self) -> usize {
        self.pipes
            .values()
            .filter(|pipe| pipe.end.is_some())
            .count()
    }
}
