//! The waiters of one client: `src/engine/room.rs`, and the tables that its mutex guards.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use loom::{future::block_on, thread};
use tokio::time::Instant;

use super::{
    echoes::Ticket,
    room::{Signal, WaitingRoom},
    room_queue::WaiterId,
    waiters::Waiters,
    yielding::Neighbours,
};
use crate::{
    config::Config,
    owner::Owner,
    sync::{Clock, Mutex, explore, lock},
    wire::{LockProtocol, LockSpec, message::Wake, reentrant::Reentrant, sealed::Known},
};

const POLL_INTERVAL: u64 = 5;

/// A client, and a server with one lock, which another client holds at first.
#[derive(Clone)]
struct Model {
    room: Arc<WaitingRoom<()>>,
    spec: Arc<LockSpec>,
    is_held: Arc<Mutex<bool>>,
    /// The client's commands: `true` subscribes, `false` unsubscribes.
    subscriptions: Arc<Mutex<Vec<bool>>>,
}

fn now() -> Instant {
    Clock::get().now()
}

impl Model {
    fn new() -> Self {
        let wire: &'static dyn LockProtocol = Reentrant::PROTOCOL;
        let spec = wire.spec("a".into(), &Config::default());
        let subscriptions = Arc::new(Mutex::new(Vec::new()));
        let notified = subscriptions.clone();
        let waiters = Waiters::new(Duration::from_secs(POLL_INTERVAL), true);
        Self {
            room: Arc::new(WaitingRoom::new(waiters, move |_| {
                lock(&notified).push(false)
            })),
            spec: Arc::new(spec),
            is_held: Arc::new(Mutex::new(true)),
            subscriptions,
        }
    }

    /// Adds a subscribed waiter.
    fn join(&self) -> Waiter {
        let signal = Signal::<()>::new(Owner::new());
        let id = self.room.change(|waiters| {
            lock(&self.subscriptions).push(true);
            waiters.join(&self.spec, signal.clone())
        });
        self.room.waiters().record_subscription(&self.spec, true);
        let model = self.clone();
        Waiter { model, id, signal }
    }

    /// Adds a waiter that was refused and sleeps.
    fn parked(&self) -> Waiter {
        let waiter = self.join();
        assert!(!waiter.ask() && !waiter.refuse());
        waiter
    }

    /// The holder releases the lock.
    fn release(&self) {
        *lock(&self.is_held) = false;
    }

    /// Releases and publishes the message in one step. Returns whether there is a subscriber.
    fn release_and_publish(&self) -> bool {
        let mut is_held = lock(&self.is_held);
        *is_held = false;
        lock(&self.subscriptions).last() == Some(&true)
    }

    /// The message of a release arrives.
    fn deliver_message(&self) {
        let channel = &self.spec.channel;
        self.room
            .notify(|waiters| waiters.handle_message(channel, Wake::One, now()));
    }

    /// This client is about to send a release.
    fn begin_release(&self) -> Option<Ticket> {
        self.room.waiters().begin_release(&self.spec, now())
    }

    /// A thread that reports the loss of the client's hold, and whether the client still has it.
    fn lose(&self) -> (Arc<Mutex<bool>>, thread::JoinHandle<()>) {
        let (model, has) = (self.clone(), Arc::new(Mutex::new(true)));
        let held = has.clone();
        let losing = thread::spawn(move || {
            *lock(&held) = false;
            let lost = |waiters: &mut Waiters<_>| waiters.record_loss(&model.spec, now());
            model.room.change_and_notify(lost);
        });
        (has, losing)
    }

    /// The server's answer to a release of this client arrives.
    fn finish_release(&self, ticket: Option<Ticket>) {
        let (heard, leaving) = (Some(Neighbours::None), (false, false));
        self.room.change_and_notify(|waiters| {
            waiters.finish_release(&self.spec, ticket, heard, leaving, now())
        });
    }
}

struct Waiter {
    model: Model,
    id: WaiterId,
    signal: Arc<Signal<()>>,
}

impl Waiter {
    /// Asks the server. Returns whether it granted the lock.
    fn ask(&self) -> bool {
        let Model {
            room,
            spec,
            is_held,
            ..
        } = &self.model;
        room.waiters().begin_attempt(spec, self.id);
        !std::mem::replace(&mut *lock(is_held), true)
    }

    /// The refusal arrives. Returns whether to ask again at once.
    fn refuse(&self) -> bool {
        self.refuse_for(30)
    }

    /// As [`refuse`](Self::refuse), when the holder's lease has so many seconds left.
    fn refuse_for(&self, seconds: u64) -> bool {
        let remaining = Some(Duration::from_secs(seconds));
        let Model { room, spec, .. } = &self.model;
        room.record_refusal(spec, self.id, remaining, now())
    }

    /// Waits for the lock, and leaves. After a lost wake-up it waits without end, which loom reports as a deadlock.
    fn wait(self) {
        while !self.ask() {
            if !self.refuse() {
                block_on(self.signal.notified());
            }
        }
        self.leave(true);
    }

    /// As [`wait`](Self::wait), for a waiter that was refused and sleeps.
    fn wait_again(self) {
        block_on(self.signal.notified());
        self.wait();
    }

    /// Polls the notification once. Returns whether the waiter is woken.
    fn is_notified(&self) -> bool {
        let notified = pin!(self.signal.notified());
        notified
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    fn leave(&self, granted: bool) {
        self.leave_while(granted, || granted);
    }

    /// As [`leave`](Self::leave), when the client may have lost the lock since the grant.
    fn leave_while(&self, granted: bool, is_held: impl FnOnce() -> bool) {
        let until = granted.then(|| now() + Duration::from_secs(30));
        let Model { room, spec, .. } = &self.model;
        let _ = room.leave(spec, self.id, &self.signal, until, is_held, now());
    }
}

/// The lock is released while a waiter subscribes, asks, is refused and goes to sleep.
pub fn released_before_the_sleep() {
    explore(None, || {
        let model = Model::new();
        let waiter = model.clone();
        let waiting = thread::spawn(move || waiter.join().wait());
        model.release();
        model.deliver_message();
        waiting.join().unwrap();
    });
}

/// A message wakes a waiter that leaves at the same time: the next waiter is woken.
pub fn waiter_leaves_while_it_is_notified() {
    explore(Some(3), || {
        let model = Model::new();
        let (goes, waits) = (model.parked(), model.parked());
        let going = thread::spawn(move || {
            goes.is_notified();
            goes.leave(false);
        });
        let waiting = thread::spawn(move || waits.wait_again());
        model.release();
        model.deliver_message();
        going.join().unwrap();
        waiting.join().unwrap();
    });
}

/// As above, while the attempts of both waiters are under way. The leaving waiter releases a grant.
pub fn waiter_leaves_during_its_attempt() {
    explore(Some(3), || {
        let model = Model::new();
        let (goes, waits) = (model.join(), model.join());
        let going = thread::spawn(move || {
            let granted = goes.ask();
            goes.leave(false);
            if granted {
                goes.model.release();
                goes.model.deliver_message();
            }
        });
        let waiting = thread::spawn(move || waits.wait());
        model.release();
        model.deliver_message();
        going.join().unwrap();
        waiting.join().unwrap();
    });
}

/// Two messages arrive at the same time: two of three waiters are woken.
pub fn two_messages() {
    explore(None, || {
        let model = Model::new();
        let waiters = [model.parked(), model.parked(), model.parked()];
        let other = model.clone();
        let telling = thread::spawn(move || other.deliver_message());
        model.deliver_message();
        telling.join().unwrap();
        let notified = waiters.iter().filter(|waiter| waiter.is_notified()).count();
        assert_eq!(notified, 2, "each message wakes one waiter");
    });
}

/// A message arrives while the first of three waiters leaves: exactly one of the other two is woken.
pub fn message_while_a_waiter_leaves() {
    explore(None, || {
        let model = Model::new();
        let (goes, others) = (model.parked(), [model.parked(), model.parked()]);
        let going = thread::spawn(move || goes.leave(false));
        model.deliver_message();
        going.join().unwrap();
        let notified = others.iter().filter(|waiter| waiter.is_notified()).count();
        assert_eq!(notified, 1, "a message wakes one waiter");
    });
}

/// The echo of this client's release wakes no waiter, whenever it arrives. The next message wakes one.
pub fn release_and_its_echo() {
    explore(Some(3), || {
        let model = Model::new();
        let waiter = model.parked();
        let ticket = model.begin_release();
        let other = model.clone();
        let echo = thread::spawn(move || other.deliver_message());
        model.finish_release(ticket);
        echo.join().unwrap();
        assert!(!waiter.is_notified(), "the echo woke the waiter");
        model.release();
        model.deliver_message();
        assert!(waiter.is_notified(), "the next release woke no waiter");
    });
}

/// A refusal moves the next poll to an earlier time while the polling task goes to sleep. The task wakes in time.
pub fn polled_earlier() {
    explore(Some(3), || {
        let model = Model::new();
        let first = model.parked();
        let polling = model.clone();
        let polling = thread::spawn(move || {
            block_on(polling.room.due());
            polling.room.notify_due(now());
        });
        let second = model.join();
        assert!(!second.ask() && !second.refuse_for(1));
        let clock = Clock::get();
        clock.advance(clock.at(2));
        polling.join().unwrap();
        assert!(first.is_notified(), "the first waiter does not poll");
    });
}

/// A grant is lost while its waiter leaves: the client does not stay subscribed.
pub fn grant_is_lost_while_its_waiter_leaves() {
    explore(None, || {
        let model = Model::new();
        let waiter = model.parked();
        let (has, losing) = model.lose();
        waiter.leave_while(true, || *lock(&has));
        losing.join().unwrap();
        assert_eq!(lock(&model.subscriptions).last(), Some(&false));
        assert!(!model.room.is_awaited());
    });
}

/// A grant is lost while it is recorded, to a client that stays subscribed for a moment after its last release.
pub fn grant_is_lost_while_it_is_recorded() {
    explore(None, || {
        let model = Model::new();
        model.parked().leave(true);
        let ticket = model.begin_release();
        let heard = Some(Neighbours::Listening(1));
        let released = |waiters: &mut Waiters<_>| {
            waiters.finish_release(&model.spec, ticket, heard, (true, true), now())
        };
        model.room.change_and_notify(released);
        assert_eq!(lock(&model.subscriptions).last(), Some(&true));
        let (has, losing) = model.lose();
        let mut waiters = model.room.waiters();
        waiters.record_grant(&model.spec, || *lock(&has), now());
        drop(waiters);
        losing.join().unwrap();
        let later = now() + Duration::from_secs(POLL_INTERVAL);
        model.room.notify_due(later);
        assert_eq!(lock(&model.subscriptions).last(), Some(&false));
    });
}

/// The last waiter leaves while another one joins: the subscription lasts exactly as long as any waiter.
pub fn last_goes_while_another_joins() {
    explore(None, || {
        let model = Model::new();
        let last = model.parked();
        let going = thread::spawn(move || last.leave(false));
        let waiter = model.join();
        going.join().unwrap();
        assert_eq!(lock(&model.subscriptions).last(), Some(&true));
        assert!(model.room.is_awaited());
        waiter.leave(false);
        assert_eq!(lock(&model.subscriptions).last(), Some(&false));
        assert!(!model.room.is_awaited());
    });
}
