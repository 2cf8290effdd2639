//! The Rust counterpart of the Java peer: this program, started once more, obeying the same protocol.
//!
//! The tests and the demo use it, so that on both sides there is a service in a process of its own, which can be killed.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use redisson_lock::{Config, Error, Guard, Kind, Lock, LockClient, Owner};
use testbed::peer::{decode, encode};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What the KIND of a lock argument `KIND:NAME` means.
pub type Kinds = &'static [(&'static str, fn(&LockClient, &str) -> Box<dyn AnyLock>)];

/// Set in the environment of a process that is to be a peer: `<redis url> <watchdog ms> <poll floor ms>`.
const TO_BE_ONE: &str = "REDISSON_LOCK_PEER";

/// This program, to be started again (with `args`) as a peer. Its poll floor is so long that none of its waits ends by it.
pub fn command(url: &str, watchdog: Duration, args: &[&str]) -> Command {
    let this = std::env::current_exe().expect("a program knows its path");
    let mut command = Command::new(this);
    let poll_floor = Duration::from_secs(600);
    let (watchdog, poll_floor) = (watchdog.as_millis(), poll_floor.as_millis());
    command
        .args(args)
        .env(TO_BE_ONE, format!("{url} {watchdog} {poll_floor}"));
    command
}

/// Is a peer, to the end of the process, if the program was started by [`command`]; else does nothing.
pub fn serve_if_asked(kinds: Kinds) {
    let Ok(asked) = std::env::var(TO_BE_ONE) else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be built");
    if let Err(error) = runtime.block_on(serve(&asked, kinds)) {
        eprintln!("the Rust peer: {error}");
        std::process::exit(1);
    }
}

async fn serve(asked: &str, kinds: Kinds) -> Result<(), Failure> {
    let words: Vec<&str> = asked.split(' ').collect();
    let [url, watchdog, poll_floor] = words[..] else {
        return Err(format!("{TO_BE_ONE} is not understood: {asked}").into());
    };
    let mut config = Config::default();
    config.watchdog_lease = Duration::from_millis(watchdog.parse()?);
    config.poll_floor = Duration::from_millis(poll_floor.parse()?);
    let builder = LockClient::builder().url(url).config(config);
    let service = Arc::new(Service {
        client: builder.build().await?,
        redis: redis::Client::open(url)?
            .get_multiplexed_async_connection()
            .await?,
        kinds,
    });
    let mut requests = requests();
    let mut labels: HashMap<String, UnboundedSender<Request>> = HashMap::new();
    // A line of its own, after whatever a test harness has begun to write.
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
        let label = labels
            .entry(label)
            .or_insert_with(|| Label::spawn(service.clone()));
        let _ = label.send(Request {
            id,
            verb,
            args: words.collect(),
        });
    }
    // Like a crash: who has started us is gone.
    std::process::exit(137)
}

/// The lines of the standard input. A thread reads them, which nothing in the runtime can hold up.
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
    // Nobody to tell: then the input ends as well.
    let _ = output.write_all(format!("{line}\n").as_bytes());
    let _ = output.flush();
}

/// What one process of ours has.
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

/// What a label is: one task, and with it one owner, as a label of the Java peer is one thread.
struct Label {
    service: Arc<Service>,
    guards: HashMap<String, Vec<Box<dyn AnyGuard>>>,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Label {
    fn spawn(service: Arc<Service>) -> UnboundedSender<Request> {
        let (sender, mut requests) = unbounded_channel::<Request>();
        tokio::spawn(async move {
            let mut label = Label {
                service,
                guards: HashMap::new(),
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
            "work" => {
                let counter = request.args.get(1).ok_or("the counter is missing")?;
                let times = number(2)?.ok_or("the number of times is missing")?;
                self.service.work(&*lock, counter, times).await?
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
        let guard = lock.take(wait, lease).await?;
        let (inside, elapsed) = (epoch_ms(), start.elapsed().as_millis());
        let held = guard.is_some();
        self.guards
            .entry(name.to_owned())
            .or_default()
            .extend(guard);
        Ok(format!("{held} {inside} {elapsed}"))
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
            let guard = lock.take(Wait::Forever, None).await?.ok_or("not taken")?;
            let value: Option<u64> = redis.get(counter).await?;
            let () = redis.set(counter, value.unwrap_or(0) + 1).await?;
            guard.unlock().await?;
        }
        Ok(start.elapsed().as_millis().to_string())
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

/// How long an acquisition waits.
#[derive(Clone, Copy)]
pub enum Wait {
    None,
    For(Duration),
    Forever,
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A lock of any kind.
pub trait AnyLock: Send + Sync {
    fn take(&self, wait: Wait, lease: Option<Duration>) -> Boxed<'_, Option<Box<dyn AnyGuard>>>;
    fn unlock(&self) -> Boxed<'_, ()>;
    fn force_unlock(&self) -> Boxed<'_, bool>;
    fn is_locked(&self) -> Boxed<'_, bool>;
    fn is_held(&self) -> Boxed<'_, bool>;
    fn hold_count(&self) -> Boxed<'_, u32>;
    fn remaining_lease(&self) -> Boxed<'_, Option<Duration>>;
}

/// A guard of a lock of any kind.
pub trait AnyGuard: Send {
    fn unlock(self: Box<Self>) -> Boxed<'static, ()>;
    fn is_lost(&self) -> bool;
}

impl<K: Kind> AnyLock for Lock<K> {
    fn take(&self, wait: Wait, lease: Option<Duration>) -> Boxed<'_, Option<Box<dyn AnyGuard>>> {
        Box::pin(async move {
            let leased = lease.map(|lease| self.with_lease(lease));
            let lock = leased.as_ref().unwrap_or(self);
            let guard = match wait {
                Wait::None => lock.try_lock().await?,
                Wait::For(wait) => lock.try_lock_for(wait).await?,
                Wait::Forever => Some(lock.lock().await?),
            };
            Ok(guard.map(|guard| Box::new(guard) as Box<dyn AnyGuard>))
        })
    }

    fn unlock(&self) -> Boxed<'_, ()> {
        Box::pin(async { Lock::unlock(self).await.map(drop) })
    }

    fn force_unlock(&self) -> Boxed<'_, bool> {
        Box::pin(Lock::force_unlock(self))
    }

    fn is_locked(&self) -> Boxed<'_, bool> {
        Box::pin(Lock::is_locked(self))
    }

    fn is_held(&self) -> Boxed<'_, bool> {
        Box::pin(Lock::is_held(self))
    }

    fn hold_count(&self) -> Boxed<'_, u32> {
        Box::pin(Lock::hold_count(self))
    }

    fn remaining_lease(&self) -> Boxed<'_, Option<Duration>> {
        Box::pin(Lock::remaining_lease(self))
    }
}

impl<K: Kind> AnyGuard for Guard<K> {
    fn unlock(self: Box<Self>) -> Boxed<'static, ()> {
        Box::pin(async { Guard::unlock(*self).await.map(drop) })
    }

    fn is_lost(&self) -> bool {
        Guard::is_lost(self)
    }
}
