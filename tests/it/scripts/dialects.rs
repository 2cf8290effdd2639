//! Servers whose Lua is newer, or lacks a library.

use std::sync::atomic::{AtomicUsize, Ordering};

use redisson_lock::Config;
use testbed::{Fate, Impostor, Part, Server};

use super::lives::Lives;
use crate::witness::connect;

/// In front of a script, makes these 5.1 functions absent or as strict as those of Lua 5.4. (Of
/// strings with numbers, the greater one is another in 5.4.)
const STRICT: &str = "
local table = { unpack = unpack, concat = table.concat }
local unpack, cmsgpack, loadstring, setfenv, getfenv, newproxy = nil, nil, nil, nil, nil, nil
local lax, math = math, { floor = math.floor, abs = math.abs }
for _, name in ipairs({ 'max', 'min' }) do
  math[name] = function(...)
    for _, number in ipairs({ ... }) do
      assert(type(number) == 'number', 'attempt to compare a number with a string')
    end
    return lax[name](...)
  end
end
";

/// A server that runs every script behind [`STRICT`].
#[derive(Default)]
struct Newer {
    /// The calls with a packed list of arguments.
    refused: AtomicUsize,
}

impl Part for &'static Newer {
    fn command(&self, _connection: usize, words: &[&[u8]]) -> Fate {
        match words {
            [b"EVALSHA", ..] => Fate::text("-NOSCRIPT No matching script.\r\n"),
            [b"EVAL", text, rest @ ..] => {
                let text = [STRICT.as_bytes(), text].concat();
                let rest = rest.iter().map(|word| word.to_vec());
                Fate::PassInstead([b"EVAL".to_vec(), text].into_iter().chain(rest).collect())
            }
            _ => Fate::Pass,
        }
    }

    fn reply(&self, _connection: usize, _words: &[&[u8]], reply: Vec<u8>) -> Vec<u8> {
        if reply.starts_with(b"-") && String::from_utf8_lossy(&reply).contains("cmsgpack") {
            self.refused.fetch_add(1, Ordering::SeqCst);
        }
        reply
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_run_without_unpack_cmsgpack_and_numbers_in_strings() {
    let server = Server::start().await;
    let newer: &'static Newer = Box::leak(Box::default());
    let impostor = Impostor::play(Some(server.port()), newer).await;
    // The man in the middle hides the address, so the server does not prove itself, and calls would not be joined.
    let url = format!("{}?endpoint=server", impostor.url());
    let connect = async || connect(&url, Config::default()).await;
    let (one, other) = (connect().await, connect().await);
    let server = &server;
    Lives { server, one, other }.all().await;
    // Then the client knows. A few calls may be under way together.
    let refused = newer.refused.load(Ordering::SeqCst);
    assert!((1..=10).contains(&refused), "{refused}");
}
