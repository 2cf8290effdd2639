//! What is under way between the clients and the server, and what happens when it arrives.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use model_server::{Message, Reply, Script};
use redisson_lock::direct::{CallError, Operation};
use redisson_lock_test::simulation::{Delivering, Ending, Executed, Frame};
use tokio::{sync::oneshot, time::Instant};

use super::{
    PendingCall, State,
    client::Answers,
    connections::{At, Side},
};

pub(super) enum Job {
    /// A call arrives at the server.
    Execute {
        at: At,
        call: u64,
        script: &'static Script,
        operations: Arc<[Operation]>,
        is_answered: bool,
    },
    /// The same for a subscription, or the end of one.
    Subscribe {
        at: At,
        channel: Bytes,
        on: bool,
        is_answered: bool,
    },
    /// An answer arrives at the client.
    Answer {
        at: At,
        call: u64,
        answers: Answers,
    },
    Confirm {
        at: At,
        channel: Bytes,
    },
    /// A message arrives at the client; `None` for the news that messages were lost.
    Message {
        at: At,
        message: Option<Message>,
    },
    /// The client notices the end of a connection.
    End {
        at: At,
    },
    /// The client connects anew.
    Connect {
        at: At,
    },
}

impl State {
    /// Runs the jobs that are due. Returns the time of the next one.
    pub(super) fn run_due(&mut self, now: Instant) -> Option<Instant> {
        self.set_clock(now);
        while let Some(next) = self.jobs.first_entry() {
            let (due, _) = *next.key();
            if due > now {
                return Some(due);
            }
            let job = next.remove();
            self.run(job, now);
        }
        None
    }

    pub(super) fn push(&mut self, due: Instant, job: Job) {
        self.last_job += 1;
        self.jobs.insert((due, self.last_job), job);
    }

    /// Sends a call. `None` without a connection.
    pub(super) fn send(
        &mut self,
        client: u64,
        script: &'static Script,
        operations: Arc<[Operation]>,
        now: Instant,
    ) -> Option<oneshot::Receiver<Answers>> {
        let link = self.links.get_mut(&client)?;
        let connection = link.connections[Side::Calls as usize];
        if !connection.is_up {
            return None;
        }
        link.last_call += 1;
        let call = link.last_call;
        let (answer, answered) = oneshot::channel();
        let pending = PendingCall {
            connection: connection.number,
            answer,
        };
        link.calls.insert(call, pending);
        let job = |at, is_answered| Job::Execute {
            at,
            call,
            script,
            operations,
            is_answered,
        };
        self.depart(client, Side::Calls, "EVALSHA", now, job);
        Some(answered)
    }

    /// Subscribes to a wanted channel, or ends a subscription.
    pub(super) fn subscribe(&mut self, client: u64, channel: Bytes, on: bool, now: Instant) {
        let is_up = self.connection(client, Side::Subscriptions);
        if is_up.is_some_and(|connection| connection.is_up) {
            let name = if on { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
            let job = |at, is_answered| Job::Subscribe {
                at,
                channel,
                on,
                is_answered,
            };
            self.depart(client, Side::Subscriptions, name, now, job);
        }
    }

    /// Sends a request on a connection that is up, with the fate that the faults give it.
    fn depart(
        &mut self,
        client: u64,
        side: Side,
        name: &'static str,
        now: Instant,
        job: impl FnOnce(At, bool) -> Job,
    ) {
        let Some(connection) = self.connection(client, side) else {
            return;
        };
        let (number, is_cut) = (connection.number, connection.is_cut);
        let fate = self.faults.sending(number, name);
        let at = At {
            client,
            side,
            number,
        };
        let due = self.after(at, 0, now + fate.delay);
        match fate.ending {
            _ if is_cut => {}
            Some(Ending::Unsent) => {
                if let Some(connection) = self.present(at) {
                    connection.is_cut = true;
                }
                self.push(due, Job::End { at });
            }
            Some(Ending::Unheard) => {
                self.push(now, Job::End { at });
                self.push(due, job(at, false));
            }
            Some(Ending::Unanswered) => self.push(due, job(at, false)),
            None => self.push(due, job(at, true)),
        }
    }

    /// The time `due`, or that of the last request (0) or arrival (1) of a connection if it is later.
    fn after(&mut self, at: At, way: usize, due: Instant) -> Instant {
        match self.present(at) {
            None => due,
            Some(connection) => {
                let last = &mut connection.last[way];
                *last = due.max(*last);
                *last
            }
        }
    }

    /// Has an answer of the server, or the end of the connection, arrive at the client.
    fn answer(&mut self, at: At, is_answered: bool, now: Instant, job: Job) {
        let due = now + self.faults.answering(at.number);
        let due = self.after(at, 1, due);
        self.push(due, if is_answered { job } else { Job::End { at } });
    }

    fn run(&mut self, job: Job, now: Instant) {
        match job {
            Job::Execute {
                at,
                call,
                script,
                operations,
                is_answered,
            } if self.is_served(at) => {
                let answers = self.execute(at, script, &operations, now);
                self.answer(at, is_answered, now, Job::Answer { at, call, answers });
            }
            Job::Subscribe {
                at,
                channel,
                on,
                is_answered,
            } if self.is_served(at) => {
                match on {
                    true => self.server.subscribe(at.client, channel.clone()),
                    false => self.server.unsubscribe(at.client, &channel),
                }
                if on || !is_answered {
                    self.answer(at, is_answered, now, Job::Confirm { at, channel });
                }
            }
            Job::Answer { at, call, answers } if self.is_up(at) => {
                let link = self.links.get_mut(&at.client);
                if let Some(pending) = link.and_then(|link| link.calls.remove(&call)) {
                    let _ = pending.answer.send(answers);
                }
            }
            Job::Confirm { at, channel } if self.is_up(at) => self.confirm(at, &channel),
            Job::Message { at, message } if self.is_up(at) => {
                if let Some(link) = self.links.get(&at.client) {
                    match message {
                        Some(Message {
                            channel, payload, ..
                        }) => link.events.message(channel, payload),
                        None => link.events.missed(),
                    }
                }
            }
            Job::End { at } => self.end(at, now),
            Job::Connect { at } => self.connect(at, now),
            _ => {}
        }
    }

    fn execute(
        &mut self,
        at: At,
        script: &'static Script,
        operations: &Arc<[Operation]>,
        now: Instant,
    ) -> Answers {
        if let Some(message) = self.faults.refusal("EVALSHA") {
            return Err(CallError::refused(message));
        }
        let replies = self.server.call(script, operations);
        self.observe(at, script, operations, &replies, now);
        for message in std::mem::take(&mut self.server.messages) {
            self.deliver(message, now);
        }
        Ok(replies)
    }

    /// Shows a call to the observer of commands.
    fn observe(
        &mut self,
        at: At,
        script: &Script,
        operations: &[Operation],
        replies: &[Reply],
        now: Instant,
    ) {
        let name = Bytes::from_static(script.name.as_bytes());
        let args: Vec<Bytes> = std::iter::once(name)
            .chain(operations.iter().flatten().cloned())
            .collect();
        let frames = replies.iter().map(super::client::frame);
        let answer = Frame::List(frames.collect());
        let millis = self.millis(now) as u64;
        self.faults.executed(&Executed {
            connection: at.number,
            command: "EVALSHA",
            args: &args,
            answer: &answer,
            millis,
        });
    }

    fn deliver(&mut self, message: Message, now: Instant) {
        let client = message.to;
        let Some(connection) = self.connection(client, Side::Subscriptions) else {
            return;
        };
        let at = At {
            client,
            side: Side::Subscriptions,
            number: connection.number,
        };
        let (message, delay) = match self.faults.delivering(at.number) {
            Delivering::After(delay) => (Some(message), delay),
            Delivering::Missed => (None, Duration::ZERO),
            Delivering::Never => return,
        };
        let due = self.after(at, 1, now + delay);
        self.push(due, Job::Message { at, message });
    }

    fn confirm(&mut self, at: At, channel: &Bytes) {
        let Some(link) = self.links.get_mut(&at.client) else {
            return;
        };
        let waiting = link.channels.get_mut(channel).map(std::mem::take);
        for waiting in waiting.into_iter().flatten() {
            let _ = waiting.send(());
        }
        if link.restoring > 0 {
            link.restoring -= 1;
            if link.restoring == 0 {
                link.events.missed();
            }
        }
    }
}
