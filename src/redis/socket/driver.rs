//! The only task of a socket: it writes commands, reads frames, and gives each command its answer.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use bytes::{Buf, Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWrite},
    sync::{
        mpsc::{self, error::TrySendError},
        oneshot,
    },
};

use super::resp::{self, Decoded, Decoder, Garbage};
use crate::{
    redis::{
        connect_error::NOT_RESP, endpoint::Socket, handshake::Version, opener::LONGEST_PAYLOAD,
    },
    server_text,
    transport::{Frame, Pushed, TransportError},
};

/// The size of the read buffer.
const READ_AT_ONCE: usize = 8 << 10;
/// With more bytes than this waiting for the socket, the driver encodes no further commands.
const MOST_UNSENT: usize = 256 << 10;

/// A command, and the receiver of its answer.
pub(super) struct Request {
    pub(super) name: &'static str,
    pub(super) args: Vec<Bytes>,
    pub(super) answer: Answering,
}

type Answering = oneshot::Sender<Result<Frame, TransportError>>;

/// A command that was sent.
struct Pending {
    answer: Answering,
    /// The channels that the server must still confirm, one by one; `None` for a command with an answer.
    unconfirmed: Option<Unconfirmed>,
}

struct Unconfirmed {
    kind: &'static [u8],
    channels: Vec<Bytes>,
}

pub(super) struct Driver {
    socket: Box<dyn Socket>,
    requests: mpsc::UnboundedReceiver<Request>,
    pending: VecDeque<Pending>,
    unsent: BytesMut,
    is_flushed: bool,
    unread: BytesMut,
    decoder: Decoder,
    messages: Messages,
    /// In RESP2, messages look like answers. A connection that never subscribes receives no messages.
    has_messages_in_lists: bool,
    version: Version,
    /// The password, which a server may repeat.
    password: String,
}

impl Driver {
    pub(super) fn new(
        socket: Box<dyn Socket>,
        version: Version,
        password: String,
        requests: mpsc::UnboundedReceiver<Request>,
        messages: Messages,
    ) -> Self {
        Self {
            socket,
            requests,
            pending: VecDeque::new(),
            unsent: BytesMut::new(),
            is_flushed: true,
            unread: BytesMut::new(),
            decoder: Decoder::new(),
            messages,
            has_messages_in_lists: false,
            version,
            password,
        }
    }

    /// Moves bytes until the connection ends, and returns the reason.
    pub(super) async fn run(mut self) -> String {
        let reason = poll_fn(|context| self.poll(context)).await;
        let cause = TransportError::new(&*reason);
        self.requests.close();
        let unsent = std::iter::from_fn(|| Some(self.requests.try_recv().ok()?.answer));
        let pending = self.pending.drain(..).map(|pending| pending.answer);
        for answer in pending.chain(unsent) {
            let _ = answer.send(Err(cause.clone()));
        }
        reason
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<String> {
        // Reads first: a server's last error explains a failed write.
        match self.read(context) {
            Err(reason) => return Poll::Ready(reason),
            Ok(()) => self.take_up(context),
        }
        match self.write(context) {
            Err(reason) => Poll::Ready(reason),
            Ok(()) => Poll::Pending,
        }
    }

    /// Reads until no more data is available.
    fn read(&mut self, context: &mut Context<'_>) -> Result<(), String> {
        loop {
            self.unread.reserve(READ_AT_ONCE);
            let read = pin!(self.socket.read_buf(&mut self.unread)).poll(context);
            match read {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(0)) => return Err("the server closed the connection".into()),
                Poll::Ready(Err(error)) => return Err(failed(&error)),
                Poll::Ready(Ok(_)) => self.decode()?,
            }
        }
    }

    fn decode(&mut self) -> Result<(), String> {
        let garbage = |Garbage(what)| format!("{NOT_RESP}: {what}");
        while let Some(decoded) = self.decoder.decode(&mut self.unread).map_err(garbage)? {
            match decoded {
                Decoded::Push(frames) => self.pushed(&frames),
                Decoded::Reply(Frame::List(frames))
                    if self.has_messages_in_lists && is_pushed(&frames) =>
                {
                    self.pushed(&frames);
                }
                Decoded::Reply(frame) => self.answered(frame)?,
            }
        }
        Ok(())
    }

    fn answered(&mut self, frame: Frame) -> Result<(), String> {
        let confirms = |pending: &Pending| pending.unconfirmed.is_some();
        if self.pending.front().is_some_and(confirms) && !matches!(frame, Frame::Error(_)) {
            return Err(format!("{NOT_RESP}: it confirms no subscription"));
        }
        let Some(pending) = self.pending.pop_front() else {
            return Err(match frame {
                Frame::Error(message) => server_text::without(&[&self.password], &message),
                _ => format!("{NOT_RESP}: it belongs to no request"),
            });
        };
        let _ = pending.answer.send(Ok(frame));
        Ok(())
    }

    /// Handles a push: a message, or the confirmation of a subscription.
    fn pushed(&mut self, frames: &[Frame]) {
        let (Some(kind), Some(channel)) = (frames.first().and_then(text), frames.get(1)) else {
            return;
        };
        let Some(channel) = text(channel) else {
            return;
        };
        if let b"message" | b"smessage" = &kind[..] {
            let payload = frames
                .get(2)
                .and_then(text)
                .map_or(&b""[..], |payload| payload);
            if payload.len() > LONGEST_PAYLOAD {
                return;
            }
            // Copies: a slice would keep the whole read buffer, which may have held a long answer.
            let [channel, payload] = [&channel[..], payload].map(Bytes::copy_from_slice);
            return self.messages.pass_on(Pushed::message(channel, payload));
        }
        let Some(unconfirmed) = self.pending.front_mut().and_then(|pending| {
            let unconfirmed = pending.unconfirmed.as_mut();
            unconfirmed.filter(|unconfirmed| *unconfirmed.kind == kind[..])
        }) else {
            return;
        };
        // A subscription that the server ends by itself looks the same. It confirms nothing unless a command asked for it.
        let mut channels = unconfirmed.channels.iter();
        let Some(index) = channels.position(|unconfirmed| unconfirmed == channel) else {
            return;
        };
        unconfirmed.channels.swap_remove(index);
        if unconfirmed.channels.is_empty()
            && let Some(pending) = self.pending.pop_front()
        {
            let _ = pending.answer.send(Ok(Frame::Null));
        }
    }

    /// Encodes all received commands for the socket.
    fn take_up(&mut self, context: &mut Context<'_>) {
        while self.unsent.len() < MOST_UNSENT
            && let Poll::Ready(Some(request)) = self.requests.poll_recv(context)
        {
            self.encode(request);
        }
    }

    fn encode(&mut self, request: Request) {
        let Request { name, args, answer } = request;
        // The caller has gone, so the command need not be sent.
        if answer.is_closed() {
            return;
        }
        resp::encode(&mut self.unsent, name, &args);
        if let ("AUTH", Some(password)) = (name, args.last()) {
            self.password = String::from_utf8_lossy(password).into_owned();
        }
        let unconfirmed = confirmation(name).map(|kind| Unconfirmed {
            kind,
            channels: args,
        });
        self.has_messages_in_lists |= unconfirmed.is_some() && self.version == Version::Resp2;
        self.pending.push_back(Pending {
            answer,
            unconfirmed,
        });
    }

    fn write(&mut self, context: &mut Context<'_>) -> Result<(), String> {
        while !self.unsent.is_empty() {
            match Pin::new(&mut self.socket).poll_write(context, &self.unsent) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(0)) => return Err("the server closed the connection".into()),
                Poll::Ready(Err(error)) => return Err(failed(&error)),
                Poll::Ready(Ok(written)) => {
                    self.is_flushed = false;
                    self.unsent.advance(written);
                    self.take_up(context);
                }
            }
        }
        if !self.is_flushed {
            match Pin::new(&mut self.socket).poll_flush(context) {
                Poll::Pending => {}
                Poll::Ready(Err(error)) => return Err(failed(&error)),
                Poll::Ready(Ok(())) => self.is_flushed = true,
            }
        }
        Ok(())
    }
}

fn failed(error: &std::io::Error) -> String {
    server_text::shown(&error.to_string())
}

fn text(frame: &Frame) -> Option<&Bytes> {
    match frame {
        Frame::Text(text) | Frame::Status(text) => Some(text),
        _ => None,
    }
}

/// The server's name for the confirmation of one channel.
fn confirmation(name: &str) -> Option<&'static [u8]> {
    Some(match name {
        "SUBSCRIBE" => b"subscribe",
        "UNSUBSCRIBE" => b"unsubscribe",
        "SSUBSCRIBE" => b"ssubscribe",
        "SUNSUBSCRIBE" => b"sunsubscribe",
        _ => return None,
    })
}

/// Whether a subscriber's list in RESP2 corresponds to a push of RESP3. The answer to a `PING` has two parts.
fn is_pushed(frames: &[Frame]) -> bool {
    let kinds: [&[u8]; 6] = [
        b"message",
        b"smessage",
        b"subscribe",
        b"unsubscribe",
        b"ssubscribe",
        b"sunsubscribe",
    ];
    let kind = frames.first().and_then(text);
    frames.len() == 3 && kind.is_some_and(|kind| kinds.contains(&&kind[..]))
}

/// The sender for the messages of a connection.
pub(super) struct Messages {
    queue: mpsc::Sender<Pushed>,
    /// The queue was full.
    missed: Arc<AtomicBool>,
}

/// The receiver of these messages.
pub(super) struct Received {
    queue: mpsc::Receiver<Pushed>,
    missed: Arc<AtomicBool>,
}

/// A queue of `room` messages.
pub(super) fn messages(room: usize) -> (Messages, Received) {
    let (sender, receiver) = mpsc::channel(room.max(1));
    let missed = Arc::new(AtomicBool::new(false));
    let messages = Messages {
        queue: sender,
        missed: missed.clone(),
    };
    let received = Received {
        queue: receiver,
        missed,
    };
    (messages, received)
}

impl Messages {
    /// Drops a message for which there is no room, and notifies the receiver of the loss.
    fn pass_on(&self, pushed: Pushed) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(pushed) {
            self.missed.store(true, Ordering::SeqCst);
            // The queue may be empty by now, so that no message would lead the receiver to check for a loss.
            let _ = self.queue.try_send(Pushed::Missed);
        }
    }
}

impl Received {
    pub(super) async fn next(&mut self) -> Option<Pushed> {
        if self.missed.swap(false, Ordering::SeqCst) {
            return Some(Pushed::Missed);
        }
        self.queue.recv().await
    }
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
