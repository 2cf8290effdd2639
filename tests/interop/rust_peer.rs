//! The Rust counterpart of the Java peer: this program, started again, with the same protocol.
//!
//! Tests and the demo use it, so that both languages have a service in its own process that can be
//! killed.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use redisson_lock::{Config, Error, LockClient, Owner};
use serde_json::{Value, json};
use testbed::peer::{decode, encode};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub use any_lock::Failure;
use any_lock::{AnyGuard, AnyLock, Wait};

// The demo includes this file from another folder.
#[path = "any_lock.rs"]
mod any_lock;
#[path = "rust_synchronizers.rs"]
mod rust_synchronizers;

/// The constructors for the KIND of a lock argument `KIND:NAME`.
pub type Kinds = &'static [(&'static str, fn(&LockClient, &str) -> Box<dyn AnyLock>)];

/// Set in the environment of a peer: `<url> <url of the counters> <configuration in JSON>`.
const PEER_SETTINGS: &str = "REDISSON_LOCK_PEER";

/// A poll interval that no test reaches.
pub const NO_POLLS: Duration = Duration::from_secs(600);

/// A configuration.
pub fn settings(watchdog: Duration, max_poll_interval: Duration) -> Value {
    let [watchdog, max_poll_interval] =
        [watchdog, max_poll_interval].map(|time| time.as_millis() as u64);
    json!({ "lockWatchdogTimeout": watchdog, "maxPollInterval": max_poll_interval })
}

/// The command that starts this program again (with `args`) as a peer, with locks at `url` and
/// counters at `counting`.
pub fn command(url: &str, counting: &str, config: &Value, args: &[&str]) -> Command {
    let this = std::env::current_exe().expect("a program knows its path");
    let mut command = Command::new(this);
    command
        .args(args)
        .env(PEER_SETTINGS, format!("{url} {counting} {config}"));
    command
}

/// Serves as a peer until the end of the process, if [`command`] started it. Otherwise returns at
/// once.
pub fn serve_if_asked(kinds: Kinds) {
    let Ok(asked) = std::env::var(PEER_SETTINGS) else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be built");
    if let Err(error) = runtime.block_on(serve(&asked, kinds)) {
        eprintln!("the Rust peer: {error}");
        std::process::exit(1);
    }
}

async fn serve(asked: &str, kinds: Kinds) -> Result<(), Failure> {
    let words: Vec<&str> = asked.splitn(3, ' ').collect();
    let [url, counting, config] = words[..] else {
        return Err(format!("invalid {PEER_SETTINGS}: {asked}").into());
    };
    let config: Config = serde_json::from_str(config)?;
    let builder = LockClient::builder().url(url).config(config);
    let service = Arc::new(Service {
        client: builder.build().await?,
        redis: redis::Client::open(counting)?
            .get_multiplexed_async_connection()
            .await?,
        kinds,
    });
    let mut requests = requests();
    let mut labels: HashMap<String, (UnboundedSender<Request>, Arc<Notify>)> = HashMap::new();
    // A test harness may have begun a line.
    let ready = format!(
        "\nready {} {}",
        env!("CARGO_PKG_VERSION"),
        service.client.id()
    );
    say(&ready);
    while let Some(line) = requests.recv().await {
        let mut words = line.split(' ').map(decode);
        let (Some(id), Some(label), Some(verb)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let args: Vec<String> = words.collect();
        if verb == "interrupt" {
            // An interrupt drops the label's acquisition at once.
            if let Some((_, acquisition)) = args.first().and_then(|label| labels.get(label)) {
                acquisition.notify_waiters();
            }
            say(&format!("{id} ok"));
            continue;
        }
        let (label, _) = labels.entry(label).or_insert_with(|| {
            let interrupted = Arc::new(Notify::new());
            (
                Label::spawn(service.clone(), interrupted.clone()),
                interrupted,
            )
        });
        let _ = label.send(Request { id, verb, args });
    }
    // The parent process has ended, so this one ends like a crash.
    std::process::exit(137)
}

/// The lines of the standard input. A thread reads them, so the runtime cannot delay it.
fn requests() -> UnboundedReceiver<String> {
    let (sender, requests) = unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    requests
}

fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    // Without a reader of the output, the input has ended too.
    let _ = output.write_all(format!("{line}\n").as_bytes());
    let _ = output.flush();
}

/// The client and connections of one peer process.
struct Service {
    client: LockClient,
    redis: MultiplexedConnection,
    kinds: Kinds,
}

struct Request {
    id: String,
    verb: String,
    args: Vec<String>,
}

/// A label is one task, and thus one owner, as a label of the Java peer is one thread.
struct Label {
    service: Arc<Service>,
    guards: HashMap<String, Vec<Box<dyn AnyGuard>>>,
    interrupted: Arc<Notify>,
}

impl Label {
    fn spawn(service: Arc<Service>, interrupted: Arc<Notify>) -> UnboundedSender<Request> {
        let (sender, mut requests) = unbounded_channel::<Request>();
        tokio::spawn(async move {
            let mut label = Label {
                service,
                guards: HashMap::new(),
                interrupted,
            };
            while let Some(request) = requests.recv().await {
                let answer = match label.obey(&request).await {
                    Ok(values) if values.is_empty() => "ok".to_owned(),
                    Ok(values) => format!("ok {values}"),
                    Err(failure) => {
                        format!("err {} {}", class(&*failure), encode(&failure.to_string()))
                    }
                };
                say(&format!("{} {answer}", request.id));
            }
        });
        sender
    }

    async fn obey(&mut self, request: &Request) -> Result<String, Failure> {
        if request.verb == "threadid" {
            return Ok(Owner::current().to_string());
        }
        if request.verb == "sync" {
            return rust_synchronizers::call(&self.service.client, &request.args).await;
        }
        let name = request.args.first().ok_or("the lock is missing")?;
        let lock = self.service.lock(name)?;
        let number = |index: usize| -> Result<Option<u64>, Failure> {
            Ok(request
                .args
                .get(index)
                .map(|word| word.parse())
                .transpose()?)
        };
        let millis = |index: usize| Ok::<_, Failure>(number(index)?.map(Duration::from_millis));
        Ok(match &request.verb[..] {
            "lock" => self.take(name, &*lock, Wait::Forever, millis(1)?).await?,
            "trylock" => {
                let wait = millis(1)?.map_or(Wait::None, Wait::For);
                self.take(name, &*lock, wait, millis(2)?).await?
            }
            "unlock" => {
                match self.latest_guard(name) {
                    Some(guard) => guard.unlock().await?,
                    None => lock.unlock().await?,
                }
                String::new()
            }
            "drop" => {
                drop(self.latest_guard(name).ok_or("there is no guard")?);
                String::new()
            }
            "islost" => {
                let guards = self.guards.get(name);
                let guard = guards.and_then(|guards| guards.last());
                guard.ok_or("there is no guard")?.is_lost().to_string()
            }
            "forceunlock" => lock.force_unlock().await?.to_string(),
            "islocked" => lock.is_locked().await?.to_string(),
            "isheld" => lock.is_held().await?.to_string(),
            "holdcount" => lock.hold_count().await?.to_string(),
            "ttl" => match lock.remaining_lease().await? {
                Some(left) => left.as_millis().to_string(),
                None => "-2".to_owned(),
            },
            verb @ ("work" | "watch") => {
                let counter = request.args.get(1).ok_or("the counter is missing")?;
                let times = number(2)?.ok_or("the number of times is missing")?;
                match verb {
                    "work" => self.service.work(&*lock, counter, times).await?,
                    _ => self.service.watch(&*lock, counter, times).await?,
                }
            }
            verb => return Err(format!("unknown verb {verb}").into()),
        })
    }

    async fn take(
        &mut self,
        name: &str,
        lock: &dyn AnyLock,
        wait: Wait,
        lease: Option<Duration>,
    ) -> Result<String, Failure> {
        let start = Instant::now();
        let guard = tokio::select! {
            guard = lock.take(wait, lease) => guard?,
            () = self.interrupted.notified() => return Err("interrupted".into()),
        };
        let (inside, elapsed) = (epoch_ms(), start.elapsed().as_millis());
        let held = guard.is_some();
        let token = guard.as_ref().and_then(|guard| guard.token());
        let token = token.map_or(String::new(), |token| format!(" {token}"));
        self.guards
            .entry(name.to_owned())
            .or_default()
            .extend(guard);
        Ok(format!("{held} {inside} {elapsed}{token}"))
    }

    fn latest_guard(&mut self, name: &str) -> Option<Box<dyn AnyGuard>> {
        self.guards.get_mut(name)?.pop()
    }
}

impl Service {
    async fn work(&self, lock: &dyn AnyLock, counter: &str, times: u64) -> Result<String, Failure> {
        let mut redis = self.redis.clone();
        let start = Instant::now();
        for _ in 0..times {
            let guard = lock
                .take(Wait::Forever, None)
                .await?
                .ok_or("not acquired")?;
            let value: Option<u64> = redis.get(counter).await?;
            let () = redis.set(counter, value.unwrap_or(0) + 1).await?;
            guard.unlock().await?;
        }
        Ok(start.elapsed().as_millis().to_string())
    }

    /// Reads a counter twice under the lock. Returns how often it changed in between.
    async fn watch(
        &self,
        lock: &dyn AnyLock,
        counter: &str,
        times: u64,
    ) -> Result<String, Failure> {
        let mut redis = self.redis.clone();
        let mut changed = 0;
        for _ in 0..times {
            let guard = lock
                .take(Wait::Forever, None)
                .await?
                .ok_or("not acquired")?;
            let before: Option<u64> = redis.get(counter).await?;
            tokio::time::sleep(Duration::from_millis(1)).await;
            let after: Option<u64> = redis.get(counter).await?;
            changed += u32::from(before != after);
            guard.unlock().await?;
        }
        Ok(changed.to_string())
    }

    fn lock(&self, lock: &str) -> Result<Box<dyn AnyLock>, Failure> {
        let (kind, name) = lock.split_once(':').ok_or("a lock is KIND:NAME")?;
        let made = self.kinds.iter().find(|(known, _)| *known == kind);
        let (_, make) = made.ok_or_else(|| format!("unknown kind in {lock}"))?;
        Ok(make(&self.client, name))
    }
}

fn class(failure: &(dyn std::error::Error + Send + Sync + 'static)) -> String {
    let shown = failure.downcast_ref().map(|error: &Error| {
        let shown = format!("{error:?}");
        let end = shown.find(|c: char| !c.is_alphanumeric());
        shown[..end.unwrap_or(shown.len())].to_owned()
    });
    shown.unwrap_or_else(|| "Failure".to_owned())
}

fn epoch_ms() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("it is later than 1970").as_millis()
}
