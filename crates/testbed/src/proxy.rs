//! A TCP proxy before a server. It parses requests and replies, so it can lose either.

use std::io;
use std::net::{Ipv4Addr, TcpListener as StdListener};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use crate::conversation::{Answer, Conversation};
use crate::faults::{Fate, Faults};
use crate::resp::{Frames, Malformed};

/// Linux's shortest time until it retransmits a segment, if no later data reveals the loss.
const SENT_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// A plain-text proxy on a free loopback port. Dropping it closes the port and every connection.
///
/// It runs on its own thread, so a test that blocks or pauses its runtime does not delay the network.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    upstream: Arc<AtomicU16>,
    faults: Faults,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy before the server on a loopback port. The server may be down.
    pub async fn start(upstream_port: u16) -> Self {
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        listener
            .set_nonblocking(true)
            .expect("a listener can be made non-blocking");
        let port = listener
            .local_addr()
            .expect("a listener has an address")
            .port();
        let faults = Faults::default();
        let (stop, stopped) = oneshot::channel();
        let upstream = Arc::new(AtomicU16::new(upstream_port));
        let proxied = accept_all(listener, upstream.clone(), faults.clone());
        let thread = std::thread::Builder::new().name("proxy".to_owned());
        let thread = thread
            .spawn(move || run(proxied, stopped))
            .expect("a thread can be started");
        Self {
            port,
            upstream,
            faults,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// The port for clients.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `redis://127.0.0.1:port?endpoint=server`: names share calls, although the server sees another address than the client's.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}?endpoint=server", self.port)
    }

    /// Leads new connections to another server, like a host name with a new address. Open connections stay.
    pub fn lead_to(&self, upstream_port: u16) {
        self.upstream.store(upstream_port, Ordering::Relaxed);
    }

    /// A handle to the proxy's faults and counters.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // The thread has printed its panic, and a panic in `drop` would hide the test's own.
            let _ = thread.join();
        }
    }
}

fn run(proxied: impl Future<Output = ()>, stopped: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime can be started").block_on(async {
        tokio::select! {
            _ = stopped => {}
            () = proxied => {}
        }
    });
}

async fn accept_all(listener: StdListener, upstream: Arc<AtomicU16>, faults: Faults) {
    let listener = TcpListener::from_std(listener).expect("the listener is good");
    loop {
        match listener.accept().await {
            Ok(_) if faults.refuses() => {}
            Ok((client, _)) => {
                let upstream = upstream.load(Ordering::Relaxed);
                drop(tokio::spawn(serve(client, upstream, faults.clone())));
            }
            // Out of file descriptors, most likely.
            Err(error) => {
                eprintln!("proxy: {error}");
                sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// Runs one connection until either side closes it or a fault cuts it. Closes both sides on return.
async fn serve(client: TcpStream, upstream: u16, faults: Faults) {
    let mut open = faults.open();
    // The relay owns both sockets: one that is not polled keeps them open.
    if let Some(Err(error)) = open.pass(relay(client, upstream, &faults)).await
        && error.kind() == io::ErrorKind::InvalidData
    {
        eprintln!("proxy: connection cut: {error}");
    }
}

async fn relay(mut client: TcpStream, upstream: u16, faults: &Faults) -> io::Result<()> {
    faults.requests_move().await;
    // The handshake of TCP.
    sleep(faults.latency() + faults.reply_latency()).await;
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, upstream)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let relayed = Relayed {
        faults,
        conversation: Mutex::default(),
    };
    let conversation = &relayed.conversation;
    let (sender, arrivals) = unbounded_channel();
    let requests = async {
        tokio::try_join!(
            read_requests(from_client, sender, faults),
            forward_requests(arrivals, to_server, faults, conversation),
        )
    };
    let (sender, arrivals) = unbounded_channel();
    let replies = async {
        tokio::try_join!(
            read_replies(from_server, sender, faults),
            forward_replies(arrivals, to_client, faults, conversation),
        )
    };
    tokio::select! {
        ended = requests => ended.map(drop),
        ended = replies => ended.map(drop),
    }
}

/// A conversation. Its end loses the replies that are to be lost and have not come.
struct Relayed<'a> {
    faults: &'a Faults,
    conversation: Mutex<Conversation>,
}

impl Drop for Relayed<'_> {
    fn drop(&mut self) {
        self.faults.ended(lock(&self.conversation).unanswered());
    }
}

/// Requests that arrived together, and the time at which they are due at the server.
struct Arrival {
    due: Option<Instant>,
    requests: Vec<Bytes>,
}

/// The bytes of one read of the server's connection, and the time at which they are due at the client.
struct Sent {
    due: Option<Instant>,
    bytes: BytesMut,
}

fn due(latency: Duration) -> Option<Instant> {
    (!latency.is_zero()).then(|| Instant::now() + latency)
}

async fn read_requests(
    mut client: ReadHalf<'_>,
    arrivals: UnboundedSender<Arrival>,
    faults: &Faults,
) -> io::Result<()> {
    let mut frames = Frames::of_client();
    // After the client's end or an error, the connection goes on until its requests are forwarded.
    while client.read_buf(frames.buffer()).await.unwrap_or(0) > 0 {
        let mut requests = Vec::new();
        while let Some(request) = frames.next_frame().map_err(invalid)? {
            requests.push(request);
        }
        let due = due(faults.latency());
        if arrivals.send(Arrival { due, requests }).is_err() {
            break;
        }
    }
    Ok(())
}

async fn forward_requests(
    mut arrivals: UnboundedReceiver<Arrival>,
    mut server: WriteHalf<'_>,
    faults: &Faults,
    conversation: &Mutex<Conversation>,
) -> io::Result<()> {
    let mut out = BytesMut::new();
    while let Some(Arrival { due, requests }) = arrivals.recv().await {
        if let Some(due) = due {
            sleep_until(due).await;
        }
        retransmitted(faults).await;
        faults.requests_move().await;
        let lost = requests
            .iter()
            .any(|request| !admit(request, &mut out, faults, conversation));
        server.write_all_buf(&mut out).await?;
        if lost {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
    }
    Ok(())
}

/// Waits for the retransmission, if the segment is lost.
async fn retransmitted(faults: &Faults) {
    if faults.loses_segment() {
        sleep(SENT_AGAIN_AFTER).await;
    }
}

/// Forwards a request to the server. Returns `false` if it is lost.
fn admit(
    request: &Bytes,
    out: &mut BytesMut,
    faults: &Faults,
    conversation: &Mutex<Conversation>,
) -> bool {
    let fate = faults.fate(request);
    if fate == Fate::LoseRequest {
        return false;
    }
    lock(conversation).asked(request, fate);
    out.extend_from_slice(request);
    true
}

async fn read_replies(
    mut server: ReadHalf<'_>,
    arrivals: UnboundedSender<Sent>,
    faults: &Faults,
) -> io::Result<()> {
    let mut bytes = BytesMut::new();
    // After the server's end, and after an error, the bytes that it sent before still arrive.
    while server.read_buf(&mut bytes).await.unwrap_or(0) > 0 {
        let due = due(faults.reply_latency());
        let bytes = bytes.split();
        if arrivals.send(Sent { due, bytes }).is_err() {
            break;
        }
    }
    Ok(())
}

/// Waits for the next bytes. Without a latency, takes all bytes read meanwhile: a lost segment delays them together.
async fn arrived(arrivals: &mut UnboundedReceiver<Sent>, buffer: &mut BytesMut) -> bool {
    let mut next = arrivals.recv().await;
    let any = next.is_some();
    while let Some(Sent { due, bytes }) = next {
        buffer.extend_from_slice(&bytes);
        if let Some(due) = due {
            sleep_until(due).await;
            break;
        }
        next = arrivals.try_recv().ok();
    }
    any
}

async fn forward_replies(
    mut arrivals: UnboundedReceiver<Sent>,
    mut client: WriteHalf<'_>,
    faults: &Faults,
    conversation: &Mutex<Conversation>,
) -> io::Result<()> {
    let mut frames = Frames::of_server();
    let mut out = BytesMut::new();
    while arrived(&mut arrivals, frames.buffer()).await {
        retransmitted(faults).await;
        faults.replies_move().await;
        let mut lost = false;
        while !lost && let Some(frame) = frames.next_frame().map_err(invalid)? {
            match lock(conversation).answered(&frame) {
                Answer::Reply(fate) if faults.loses_reply(fate, &frame) => lost = true,
                Answer::Message if faults.mutes() => {}
                _ => out.extend_from_slice(&frame),
            }
        }
        // Replies before the lost one still arrive.
        client.write_all_buf(&mut out).await?;
        if lost {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
    }
    Ok(())
}

fn lock(conversation: &Mutex<Conversation>) -> std::sync::MutexGuard<'_, Conversation> {
    conversation.lock().unwrap_or_else(PoisonError::into_inner)
}

fn invalid(Malformed(line): Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not RESP: {line:?}"))
}
