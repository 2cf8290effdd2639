//! A server that sends the replies that a test wants, with or without a real server behind it.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use testbed::resp::{Frames, words};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// The reply to a command.
pub enum Fate {
    Answer(Vec<u8>),
    /// A string of this many bytes, sent piece by piece: the impostor needs neither memory nor time to build it.
    LongString(usize),
    /// The real server answers. Without one, a fixed reply completes the handshake.
    Pass,
    HangUp,
}

impl Fate {
    pub fn text(text: &str) -> Self {
        Fate::Answer(text.as_bytes().to_vec())
    }
}

pub struct Impostor {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

type Decide = dyn Fn(&[&[u8]]) -> Fate + Send + Sync;

impl Impostor {
    /// `decide` receives the words of each command. `upstream` is the port of the real server, if
    /// there is one.
    pub async fn start(
        upstream: Option<u16>,
        decide: impl Fn(&[&[u8]]) -> Fate + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, decide) = (connections.clone(), Arc::new(decide));
        let accepting = tokio::spawn(async move {
            // The connections end with this task.
            let mut serving = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                serving.spawn(serve(client, upstream, decide.clone()));
                while serving.try_join_next().is_some() {}
            }
        });
        Self {
            address,
            connections,
            accepting,
        }
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// How many connections were accepted.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve(mut client: TcpStream, upstream: Option<u16>, decide: Arc<Decide>) {
    let mut upstream = match upstream {
        Some(port) => Some(
            TcpStream::connect((Ipv4Addr::LOCALHOST, port))
                .await
                .unwrap(),
        ),
        None => None,
    };
    let (mut asked, mut answered) = (Frames::of_client(), Frames::of_server());
    loop {
        let Some(command) = next(&mut client, &mut asked).await else {
            return;
        };
        let answer = match (decide(&words(&command, 16)), &mut upstream) {
            (Fate::HangUp, _) => return,
            (Fate::Answer(answer), _) => answer,
            (Fate::LongString(length), _) => match write_string(&mut client, length).await {
                Ok(()) => continue,
                Err(_) => return,
            },
            (Fate::Pass, Some(upstream)) => {
                upstream.write_all(&command).await.unwrap();
                match next(upstream, &mut answered).await {
                    Some(answer) => answer,
                    None => return,
                }
            }
            (Fate::Pass, None) => small_talk(&words(&command, 16)),
        };
        if client.write_all(&answer).await.is_err() {
            return;
        }
    }
}

/// An error means that the client closed.
async fn write_string(client: &mut TcpStream, length: usize) -> std::io::Result<()> {
    let piece = [b'x'; 1 << 16];
    let head = format!("${length}\r\n");
    client.write_all(head.as_bytes()).await?;
    for start in (0..length).step_by(piece.len()) {
        let rest = length - start;
        client.write_all(&piece[..piece.len().min(rest)]).await?;
    }
    Ok(())
}

async fn next(stream: &mut TcpStream, frames: &mut Frames) -> Option<Vec<u8>> {
    loop {
        if let Some(frame) = frames.next_frame().ok()? {
            return Some(frame.to_vec());
        }
        if stream.read_buf(frames.buffer()).await.ok()? == 0 {
            return None;
        }
    }
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
