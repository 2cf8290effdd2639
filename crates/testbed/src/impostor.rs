//! A man in the middle that understands commands and replies, with or without real servers behind it.

use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinHandle,
};

use crate::resp::{Frames, request, without_attributes, words};

/// What happens to a command.
#[derive(Debug)]
pub enum Fate {
    /// The impostor answers these bytes.
    Answer(Vec<u8>),
    /// The impostor answers these bytes and closes the connection.
    LastAnswer(Vec<u8>),
    /// A string of this many bytes, sent piece by piece: the impostor needs neither memory nor time to build it.
    LongString(usize),
    /// The real server answers. Without one, a fixed reply completes the handshake.
    Pass,
    /// The real server answers these words instead.
    PassInstead(Vec<Vec<u8>>),
    /// The server at this loopback port answers.
    PassTo(u16),
    /// The command is never answered.
    Silence,
    /// The connection closes.
    HangUp,
}

impl Fate {
    /// An answer of these bytes.
    pub fn text(text: &str) -> Self {
        Fate::Answer(text.as_bytes().to_vec())
    }
}

/// What an impostor does.
///
/// Connections are counted from 0, in the order in which they are accepted.
pub trait Part: Send + Sync + 'static {
    /// The fate of a command of a connection.
    fn command(&self, connection: usize, words: &[&[u8]]) -> Fate;

    /// The reply that a client receives in place of a real server's. Confirmations of subscriptions and pushed messages do
    /// not come here.
    fn reply(&self, _connection: usize, _words: &[&[u8]], reply: Vec<u8>) -> Vec<u8> {
        reply
    }
}

/// A part that only decides on commands.
struct Decide<F>(F);

impl<F: Fn(&[&[u8]]) -> Fate + Send + Sync + 'static> Part for Decide<F> {
    fn command(&self, _connection: usize, words: &[&[u8]]) -> Fate {
        (self.0)(words)
    }
}

/// A server that plays a [`Part`] on a free loopback port. Dropping it closes the port and every connection.
#[derive(Debug)]
pub struct Impostor {
    /// The address for clients.
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Impostor {
    /// `decide` receives the words of each command. `upstream` is the loopback port of the real server, if there is one.
    pub async fn start(
        upstream: Option<u16>,
        decide: impl Fn(&[&[u8]]) -> Fate + Send + Sync + 'static,
    ) -> Self {
        Self::play(upstream, Decide(decide)).await
    }

    /// `upstream` is the loopback port of the real server, if there is one.
    pub async fn play(upstream: Option<u16>, part: impl Part) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port is free");
        let address = listener.local_addr().expect("a listener has an address");
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, part) = (connections.clone(), Arc::new(part));
        let accepting = tokio::spawn(async move {
            // The connections end with this task.
            let mut serving = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let part = part.clone();
                serving.spawn(async move {
                    let (from_client, to_client) = client.into_split();
                    let mut served = Served::new(number, upstream, &*part, to_client);
                    // An end of either side ends the connection.
                    let _ = served.serve(from_client).await;
                });
                while serving.try_join_next().is_some() {}
            }
        });
        Self {
            address,
            connections,
            accepting,
        }
    }

    /// `redis://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// The port for clients.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// How many connections were accepted.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// One side has ended.
struct Ended;

/// A frame from the server at a port; `None` when that server has closed.
type FromServer = (u16, Option<Vec<u8>>);

struct Served<'a, P: Part> {
    number: usize,
    upstream: Option<u16>,
    part: &'a P,
    client: OwnedWriteHalf,
    servers: HashMap<u16, OwnedWriteHalf>,
    read: UnboundedSender<FromServer>,
    frames: UnboundedReceiver<FromServer>,
}

impl<'a, P: Part> Served<'a, P> {
    fn new(number: usize, upstream: Option<u16>, part: &'a P, client: OwnedWriteHalf) -> Self {
        let (read, frames) = unbounded_channel();
        Self {
            number,
            upstream,
            part,
            client,
            servers: HashMap::new(),
            read,
            frames,
        }
    }

    async fn serve(&mut self, from_client: OwnedReadHalf) -> Result<(), Ended> {
        let (read, mut commands) = unbounded_channel();
        let _reading = Reading::start(from_client, Frames::of_client(), 0, read);
        loop {
            tokio::select! {
                command = commands.recv() => {
                    let (_, command) = command.ok_or(Ended)?;
                    self.play(command.ok_or(Ended)?).await?;
                }
                frame = self.frames.recv() => {
                    let (_, frame) = frame.ok_or(Ended)?;
                    self.write(&frame.ok_or(Ended)?).await?;
                }
            }
        }
    }

    async fn play(&mut self, command: Vec<u8>) -> Result<(), Ended> {
        let said = words(&command, usize::MAX);
        let mut instead = None;
        let port = match self.part.command(self.number, &said) {
            Fate::HangUp => return Err(Ended),
            Fate::Silence => return Ok(()),
            Fate::Answer(answer) => return self.write(&answer).await,
            Fate::LastAnswer(answer) => {
                self.write(&answer).await?;
                return Err(Ended);
            }
            Fate::LongString(length) => return self.write_string(length).await,
            Fate::PassTo(port) => Some(port),
            Fate::PassInstead(words) => {
                instead = Some(request(&words));
                self.upstream
            }
            Fate::Pass => self.upstream,
        };
        let Some(port) = port else {
            return self.write(&small_talk(&said)).await;
        };
        self.pass(port, instead.as_ref().unwrap_or(&command))
            .await?;
        if confirms_by_channel(&said) {
            return Ok(());
        }
        let reply = self.reply_of(port).await?;
        let reply = self.part.reply(self.number, &said, reply);
        self.write(&reply).await
    }

    async fn pass(&mut self, port: u16, command: &[u8]) -> Result<(), Ended> {
        if !self.servers.contains_key(&port) {
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
            let (from_server, to_server) = server.map_err(|_| Ended)?.into_split();
            // The reader ends with the server or with this receiver.
            Reading::start(from_server, Frames::of_server(), port, self.read.clone()).detach();
            self.servers.insert(port, to_server);
        }
        let server = self.servers.get_mut(&port).ok_or(Ended)?;
        server.write_all(command).await.map_err(|_| Ended)
    }

    /// The next frame of the server at `port` that is an answer. All other frames go to the client.
    async fn reply_of(&mut self, port: u16) -> Result<Vec<u8>, Ended> {
        loop {
            let (from, frame) = self.frames.recv().await.ok_or(Ended)?;
            let frame = frame.ok_or(Ended)?;
            if from == port && !is_pushed(&frame) {
                return Ok(frame);
            }
            self.write(&frame).await?;
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        self.client.write_all(bytes).await.map_err(|_| Ended)
    }

    async fn write_string(&mut self, length: usize) -> Result<(), Ended> {
        let piece = [b'x'; 1 << 16];
        self.write(format!("${length}\r\n").as_bytes()).await?;
        for start in (0..length).step_by(piece.len()) {
            let rest = length - start;
            self.write(&piece[..piece.len().min(rest)]).await?;
        }
        Ok(())
    }
}

/// A task that reads one direction of a connection. It ends with this value.
struct Reading(Option<JoinHandle<()>>);

impl Reading {
    fn start(
        mut stream: OwnedReadHalf,
        mut frames: Frames,
        port: u16,
        read: UnboundedSender<FromServer>,
    ) -> Self {
        Self(Some(tokio::spawn(async move {
            tokio::select! {
                () = read.closed() => {}
                () = async {
                    while let Some(frame) = next(&mut stream, &mut frames).await {
                        let _ = read.send((port, Some(frame)));
                    }
                    let _ = read.send((port, None));
                } => {}
            }
        })))
    }

    fn detach(mut self) {
        self.0 = None;
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

async fn next(stream: &mut OwnedReadHalf, frames: &mut Frames) -> Option<Vec<u8>> {
    loop {
        if let Some(frame) = frames.next_frame().ok()? {
            return Some(frame.to_vec());
        }
        if stream.read_buf(frames.buffer()).await.ok()? == 0 {
            return None;
        }
    }
}

/// Whether the server answers by a frame for each channel, which may come at any time.
fn confirms_by_channel(command: &[&[u8]]) -> bool {
    let name = command.first().map(|name| name.to_ascii_uppercase());
    name.is_some_and(|name| name.ends_with(b"SUBSCRIBE"))
}

/// Whether a frame of a server answers no command of the impostor's.
fn is_pushed(frame: &[u8]) -> bool {
    let frame = without_attributes(frame);
    let kind = words(frame, 1);
    let is_about_channels = kind.first().is_some_and(|kind| {
        kind.ends_with(b"message") || kind.ends_with(b"subscribe") || kind.ends_with(b"SUBSCRIBE")
    });
    frame.starts_with(b">") || (frame.starts_with(b"*") && is_about_channels)
}

/// The replies to the first commands of every client.
fn small_talk(command: &[&[u8]]) -> Vec<u8> {
    match command {
        [b"HELLO", ..] => b"%1\r\n+server\r\n+redis\r\n".to_vec(),
        [b"CLIENT", b"INFO"] => b"+id=7 addr=127.0.0.1:1 sub=0 ssub=0\r\n".to_vec(),
        [b"PING", number] => [b"+", *number, b"\r\n"].concat(),
        _ => b"+OK\r\n".to_vec(),
    }
}
