//! Compares the server in memory with a real one: sends the same random commands and scripts to both, and compares answers, keys,
//! times to live and messages. `DIFFERENTIAL_ROUNDS` sets the number of rounds, `DIFFERENTIAL_SEED` the first seed.
//! `REDIS_SERVER` names another server than `redis-server`, such as Valkey.

mod answer;
mod words;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant, SystemTime},
};

use fastrand::Rng;
use futures_util::{Stream, StreamExt};
use redis::aio::MultiplexedConnection;
use redisson_lock_test::{
    InMemoryRedis,
    simulation::{Pushed, RawConnection},
};
use testbed::Server;
use tokio::time::timeout;

use answer::{Answer, agree, fields, of_memory, of_real};
use words::{COMMANDS, Script, Word, call, command, scripts, words_of};

/// Commands and scripts in a round. The key spaces are compared after every tenth.
const STEPS: usize = 100;
/// So many rounds call every command and script.
const ENOUGH: u64 = 60;

/// The two servers, and the messages that their subscribers receive.
struct Pair<R, M> {
    real: MultiplexedConnection,
    memory: RawConnection,
    heard: R,
    heard_in_memory: M,
    /// The server in memory and its subscriber end when they are dropped.
    _kept: (InMemoryRedis, RawConnection),
    /// The most time that passed from a command's sending to the first server until the second had executed it.
    longest: Duration,
}

impl<R, M> Pair<R, M>
where
    R: Stream<Item = (String, String)> + Unpin,
    M: Stream<Item = Pushed> + Unpin,
{
    async fn ask(&mut self, words: &[Word]) -> (Answer, Answer) {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        let sent = Instant::now();
        let real = match self.real.send_packed_command(&command).await {
            Ok(value) => of_real(value),
            Err(error) => {
                let code = error.code().unwrap_or_default().to_owned();
                Answer::Error(format!("{code} {}", error.detail().unwrap_or_default()))
            }
        };
        let name = String::from_utf8_lossy(&words[0]).into_owned();
        let name: &'static str = Box::leak(name.into_boxed_str());
        let memory = self.memory.send(name, &words[1..]).await;
        let memory = memory.expect("the connection is never disturbed");
        self.longest = self.longest.max(sent.elapsed());
        (real, of_memory(memory))
    }

    /// Sends a command to both, and compares the answers and the messages.
    async fn compare(&mut self, words: &[Word]) -> Result<Answer, String> {
        let (real, memory) = self.ask(words).await;
        let shown = words.iter().map(|word| match word.len() {
            ..=200 => String::from_utf8_lossy(word).into_owned(),
            _ => "<script>".to_owned(),
        });
        let shown: Vec<String> = shown.collect();
        // An end of a lease differs by the time between two executions, and so does the reading of what remains.
        let apart = 2 * self.longest.as_millis() as i64 + 5;
        if !agree(&real, &memory, apart) {
            return Err(format!("{shown:?}: {real:?}, in memory {memory:?}"));
        }
        // A message of the test marks the end of the messages of this command.
        self.ask(&words_of("PUBLISH end end")).await;
        let (mut real_heard, mut memory_heard) = (Vec::new(), Vec::new());
        let within = Duration::from_secs(10);
        while let Ok(Some((channel, payload))) = timeout(within, self.heard.next()).await {
            if channel == "end" {
                break;
            }
            real_heard.push((channel, payload));
        }
        while let Ok(Some(Pushed::Message {
            channel, payload, ..
        })) = timeout(within, self.heard_in_memory.next()).await
        {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            if channel == "end" {
                break;
            }
            memory_heard.push((text(&channel), text(&payload)));
        }
        if real_heard != memory_heard {
            return Err(format!(
                "{shown:?}: heard {real_heard:?}, in memory {memory_heard:?}"
            ));
        }
        Ok(real)
    }

    /// Compares all keys: type, value, and time to live.
    async fn compare_keys(&mut self) -> Result<(), String> {
        let mut lists = Vec::new();
        for answer in [self.ask(&words_of("KEYS *")).await] {
            for keys in [answer.0, answer.1] {
                let Answer::List(keys) = keys else {
                    panic!("{keys:?}")
                };
                let mut keys: Vec<_> = keys.into_iter().map(|key| format!("{key:?}")).collect();
                keys.sort();
                lists.push(keys);
            }
        }
        if lists[0] != lists[1] {
            return Err(format!("keys {:?}, in memory {:?}", lists[0], lists[1]));
        }
        for key in lists.swap_remove(0) {
            let key = key
                .trim_start_matches("Text(\"")
                .trim_end_matches("\")")
                .to_owned();
            let Answer::Text(kind) = self.compare(&words_of(&format!("TYPE {key}"))).await? else {
                continue;
            };
            self.compare(&words_of(&format!("PTTL {key}"))).await?;
            let read = match kind.as_str() {
                "string" => format!("GET {key}"),
                "list" => format!("LRANGE {key} 0 -1"),
                "zset" => format!("ZRANGE {key} 0 -1 WITHSCORES"),
                _ => format!("HLEN {key}"),
            };
            self.compare(&words_of(&read)).await?;
            if kind == "hash" {
                let (real, memory) = self.ask(&words_of(&format!("HGETALL {key}"))).await;
                let (real, memory) = (fields(real), fields(memory));
                if real != memory {
                    return Err(format!("{key}: {real:?}, in memory {memory:?}"));
                }
            }
        }
        Ok(())
    }
}

/// An empty real server, and one in memory.
async fn pair(
    server: &Server,
) -> Pair<impl Stream<Item = (String, String)> + Unpin, impl Stream<Item = Pushed> + Unpin> {
    let memory_server = InMemoryRedis::new();
    let started = Instant::now();
    memory_server.set_clock(SystemTime::now());
    let longest = started.elapsed();
    server.command::<()>(&["FLUSHALL"]).await;
    let client = redis::Client::open(server.url()).expect("a URL");
    let mut subscriber = client.get_async_pubsub().await.expect("the server is up");
    subscriber
        .psubscribe("*")
        .await
        .expect("the user may subscribe");
    let heard = subscriber.into_on_message().map(|message| {
        let payload: String = message.get_payload().expect("text");
        (message.get_channel_name().to_owned(), payload)
    });
    let listening = memory_server.raw().await.expect("the server is up");
    let heard_in_memory = listening.messages();
    listening
        .send("PSUBSCRIBE", &["*"])
        .await
        .expect("the connection is never disturbed");
    let memory = memory_server.raw().await.expect("the server is up");
    memory
        .send("HELLO", &["2"])
        .await
        .expect("the connection is never disturbed");
    Pair {
        real: server.admin().await,
        memory,
        heard: Box::pin(heard),
        heard_in_memory,
        _kept: (memory_server, listening),
        longest,
    }
}

async fn round(
    seed: u64,
    server: &Server,
    scripts: &[Script],
    done: &mut BTreeSet<String>,
) -> Result<(), String> {
    let mut random = Rng::with_seed(seed);
    let mut pair = pair(server).await;
    for step in 0..STEPS {
        let words = match random.u8(..10) {
            0..5 => command(&mut random),
            _ => {
                let script = &scripts[random.usize(..scripts.len())];
                call(&mut random, script)
            }
        };
        let is_called = |script: &&Script| {
            words
                .get(1)
                .is_some_and(|text| *text == script.text.as_bytes())
        };
        let name = match scripts.iter().find(is_called) {
            Some(script) => script.name.clone(),
            None => String::from_utf8_lossy(&words[0]).into_owned(),
        };
        let told =
            |difference| format!("DIFFERENTIAL_SEED={seed}, step {step}, {name}: {difference}");
        if !matches!(pair.compare(&words).await.map_err(told)?, Answer::Error(_)) {
            done.insert(name.clone());
        }
        if step % 10 == 9 {
            pair.compare_keys().await.map_err(told)?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_in_memory_server_answers_as_a_real_one() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let rounds = number("DIFFERENTIAL_ROUNDS").unwrap_or(ENOUGH);
    let first = number("DIFFERENTIAL_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    let server = Server::start().await;
    let (scripts, mut done) = (scripts(), BTreeSet::new());
    for seed in first..first + rounds {
        if let Err(difference) = round(seed, &server, &scripts, &mut done).await {
            panic!("{difference}");
        }
    }
    // Each command and script has succeeded at least once: refusals alone compare little.
    let commands = COMMANDS.iter().filter_map(|line| line.split(' ').next());
    let names = commands.chain(scripts.iter().map(|script| script.name.as_str()));
    let missing: Vec<&str> = names
        .filter(|name| !["NOSUCH", "EVALSHA"].contains(name) && !done.contains(*name))
        .collect();
    assert!(
        rounds < ENOUGH || missing.is_empty(),
        "never succeeded: {missing:?}"
    );
}

/// Scripts that fail, or that look at an error. None has a `redis.call` as a tail call: the server in memory names no line there,
/// because its `redis.call` is a function of Lua, for which Lua removes the caller's frame.
const FAILING_SCRIPTS: &[&str] = &[
    "local reply = redis.call('hget', 's', 'f') return reply",
    "return redis.pcall('hget', 's', 'f')",
    "local ok, e = pcall(redis.call, 'hget', 's', 'f') return {tostring(ok), type(e), tostring(e)}",
    "local ok, e = xpcall(function() return redis.call('hget', 's', 'f') end, function(e) return type(e) .. e.err end) return {tostring(ok), e}",
    "\nlocal f = function() redis.call('hget', 's', 'f') end\nf()",
    "local reply = redis.call('nosuch') return reply",
    "return redis.sha1hex()",
    "error('boo')",
    "error()",
    "error({err='a b'})",
    "string.find(nil)",
    "local a\na.b = 1",
    "x = 1",
    "return x",
    "return syn tax",
    "return cmsgpack.unpack()",
    "return cmsgpack.pack()",
];

#[tokio::test]
async fn failing_scripts_answer_as_on_a_real_server() {
    let server = Server::start().await;
    let mut pair = pair(&server).await;
    pair.compare(&words_of("SET s x")).await.unwrap();
    let mut differences = Vec::new();
    for script in FAILING_SCRIPTS {
        let words = ["EVAL", script, "0"].map(|word| word.as_bytes().to_vec());
        differences.extend(pair.compare(&words).await.err());
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
