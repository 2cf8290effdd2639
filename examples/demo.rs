//! Two services contend for one lock, line by line: `make demo`.
//!
//! One service is Java with Redisson, the other is Rust with this crate. Without Java, both are Rust. Each is a process of its own, and
//! the demo starts its own Redis server. The exit code is 0 if the demo observed every printed event.

#[path = "../tests/interop/rust_peer.rs"]
mod rust_peer;

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rust_peer::Kinds;
use testbed::peer::{Answer, Peer};
use testbed::{Server, java};

const REDISSON: &str = "4.7.0";
const KINDS: Kinds = &[("reentrant", |client, name| {
    Box::new(client.reentrant_lock(name))
})];
const LOCK: &str = "order:42";
const CHANNEL: &str = "redisson_lock__channel:{order:42}";
const COUNTER: &str = "orders shipped";

/// The lease of a renewed hold, shorter than the default of 30 s, so that the demo is short.
const LEASE: Duration = Duration::from_secs(3);
/// A lease that does not end during the demo, so that only a message wakes the waiter.
const LONG_LEASE_MS: &str = "60000";
const WOKEN_WITHIN: Duration = Duration::from_secs(1);
const LATE_AT_MOST: Duration = Duration::from_secs(3);
/// The most difference of two clocks of one machine that count in ms.
const ROUNDING: Duration = Duration::from_millis(20);
const ENDS_WITHIN: Duration = Duration::from_secs(39);

/// The reason of a failure.
type Failure = String;

fn main() -> ExitCode {
    rust_peer::serve_if_asked(KINDS);
    // `main` prints a panic in one line.
    std::panic::set_hook(Box::new(|_| {}));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be built");
    // The drop of the runtime ends all tasks.
    match runtime.block_on(ended()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!("\ndemo: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn ended() -> Result<(), Failure> {
    tokio::select! {
        played = tokio::spawn(play()) => played.unwrap_or_else(|panic| {
            let panic = panic.into_panic();
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(text.unwrap_or("something panicked").to_owned())
        }),
        () = tokio::time::sleep(ENDS_WITHIN) => Err(format!("not at its end after {ENDS_WITHIN:?}")),
        _ = tokio::signal::ctrl_c() => Err("interrupted".to_owned()),
    }
}

async fn play() -> Result<(), Failure> {
    let start = Instant::now();
    let server = Server::start().await;
    let with_java = match std::env::var("INTEROP").as_deref() {
        Ok("skip") => Err("INTEROP=skip".to_owned()),
        _ => java::check(REDISSON),
    };
    if let Err(missing) = &with_java {
        println!("Without Java, with two Rust processes instead: {missing}.");
    }
    let languages = match with_java {
        Ok(()) => [Language::Java, Language::Rust("Rust")],
        Err(_) => [Language::Rust("Rust A"), Language::Rust("Rust B")],
    };
    let stage = Stage { server, start };
    let (one, other) = tokio::join!(stage.enter(languages[0]), stage.enter(languages[1]));
    println!(
        "Two services contend for the lock \"{LOCK}\" on one Redis (port {}):",
        stage.server.port()
    );
    one.introduce();
    other.introduce();
    println!("A holder's lease is {LEASE:?}; while it lives, it renews the lease every second.");

    stage.title("One holder at a time; the holder may acquire again");
    stage.exclusion(&one, &other).await?;
    stage.title("A release wakes the waiter by a message (no polling)");
    stage.wake_up(&one, &other).await?;
    stage.wake_up(&other, &one).await?;
    stage.title("A counter that only the lock protects: read, add one, write");
    stage.counter(&one, &other).await?;
    stage.title("A holder that works for longer than its lease");
    stage.renewal(&other, &one).await?;
    stage.title(&format!("A {} holder is killed", one.name));
    stage.crash(&one, &other).await?;
    let one = stage.enter(languages[0]).await;
    stage.say(&one, &format!("is started again (pid {})", one.peer.pid()));
    stage.title(&format!("A {} holder is killed", other.name));
    stage.crash(&other, &one).await?;

    println!(
        "\nEvery event was checked as it happened, in {:.1} s. No process is left running.",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

#[derive(Clone, Copy)]
enum Language {
    Java,
    Rust(&'static str),
}

/// A process that uses the lock.
struct Service {
    name: &'static str,
    library: &'static str,
    peer: Peer,
}

impl Service {
    fn introduce(&self) {
        let Self {
            name,
            library,
            peer,
        } = self;
        let (version, pid) = (peer.version(), peer.pid());
        println!(
            "  {name:7} {library} {version}, pid {pid}, client {}",
            peer.client_id()
        );
    }

    /// Sends a request to the service's worker at once. The future is the answer.
    fn ask(&self, verb: &str, args: &[&str]) -> impl Future<Output = Answer> + Send + use<> {
        let lock = format!("reentrant:{LOCK}");
        self.peer.ask("worker", &[&[verb, &lock], args].concat())
    }

    /// As [`ask`](Self::ask), but a refusal is a failure.
    async fn get(&self, verb: &str, args: &[&str]) -> Result<Vec<String>, Failure> {
        let failed = |refused| format!("{} could not {verb}: {refused}", self.name);
        self.ask(verb, args).await.map_err(failed)
    }

    /// Whether the worker gets the lock at once.
    async fn tries(&self) -> Result<bool, Failure> {
        Ok(self.get("trylock", &[]).await?[0] == "true")
    }
}

struct Stage {
    server: Server,
    start: Instant,
}

impl Stage {
    fn title(&self, title: &str) {
        println!("\n{title}");
    }

    fn say(&self, service: &Service, what: &str) {
        let at = self.start.elapsed().as_secs_f64();
        println!("{at:8.3} s  {:7} {what}", service.name);
    }

    async fn enter(&self, language: Language) -> Service {
        let url = self.server.url();
        match language {
            Language::Java => Service {
                name: "Java",
                library: "Redisson",
                peer: java::start(REDISSON, &url, Some(LEASE)).await,
            },
            Language::Rust(name) => Service {
                name,
                library: "redisson-lock",
                peer: {
                    let settings = rust_peer::settings(LEASE, rust_peer::NO_POLLS);
                    Peer::start(name, rust_peer::command(&url, &url, &settings, &[])).await
                },
            },
        }
    }

    async fn exclusion(&self, holder: &Service, other: &Service) -> Result<(), Failure> {
        holder.get("lock", &[]).await?;
        self.say(
            holder,
            &format!("takes the lock; {}", self.seen(holder, 1).await?),
        );
        holder.get("lock", &[]).await?;
        self.say(
            holder,
            &format!("takes it again; {}", self.seen(holder, 2).await?),
        );
        self.is_refused(other).await?;
        holder.get("unlock", &[]).await?;
        self.say(
            holder,
            &format!("unlocks once;   {}", self.seen(holder, 1).await?),
        );
        self.is_refused(other).await?;
        holder.get("unlock", &[]).await?;
        self.say(holder, "unlocks again; the lock is free");
        ensure(
            other.tries().await?,
            "the lock was not free after the last unlock",
        )?;
        self.say(
            other,
            &format!("takes the lock; {}", self.seen(other, 1).await?),
        );
        self.is_refused(holder).await?;
        other.get("unlock", &[]).await?;
        self.say(other, "unlocks; the lock is free");
        Ok(())
    }

    async fn is_refused(&self, service: &Service) -> Result<(), Failure> {
        let took = service.tries().await?;
        ensure(!took, &format!("{} took a lock that is held", service.name))?;
        self.say(service, "tries; refused, the lock is held");
        Ok(())
    }

    /// Checks that only `holder` has the lock on the server, with this number of holds. Returns a description.
    async fn seen(&self, holder: &Service, holds: u32) -> Result<String, Failure> {
        let fields: Vec<(String, u32)> = self.server.command(&["HGETALL", LOCK]).await;
        match &fields[..] {
            [(owner, count)] if owner.starts_with(holder.peer.client_id()) && *count == holds => {
                let number = owner.rsplit(':').next().unwrap_or_default();
                Ok(format!(
                    "holds: {holds} (in Redis: <{}>:{number} = {count})",
                    holder.name
                ))
            }
            _ => Err(format!(
                "{} should have {holds} holds, Redis has {fields:?}",
                holder.name
            )),
        }
    }

    async fn wake_up(&self, holder: &Service, waiter: &Service) -> Result<(), Failure> {
        holder.get("lock", &[LONG_LEASE_MS]).await?;
        self.say(holder, "takes the lock");
        let waiting = waiter.ask("lock", &[LONG_LEASE_MS]);
        self.waits(waiter).await?;
        let told = epoch();
        self.say(holder, "unlocks");
        holder.get("unlock", &[]).await?;
        let answer = tokio::time::timeout(LATE_AT_MOST, waiting).await;
        let answer = answer.map_err(|_| format!("{} is not woken", waiter.name))?;
        let woken = inside(waiter, answer)?.saturating_sub(told);
        self.say(
            waiter,
            &format!(
                "is woken and holds the lock, {} ms after the unlock began",
                woken.as_millis()
            ),
        );
        ensure(
            woken <= WOKEN_WITHIN,
            &format!("woken only after {woken:?}"),
        )?;
        waiter.get("unlock", &[]).await?;
        self.say(waiter, "unlocks");
        Ok(())
    }

    /// Waits until `waiter`, the only one, subscribes to the release.
    async fn waits(&self, waiter: &Service) -> Result<(), Failure> {
        let patience = Instant::now();
        loop {
            let listening: (String, u64) =
                self.server.command(&["PUBSUB", "NUMSUB", CHANNEL]).await;
            if listening.1 == 1 {
                // The waiter has subscribed; it retries once before it waits.
                tokio::time::sleep(Duration::from_millis(300)).await;
                self.say(waiter, "wants the lock: held, so it waits");
                return Ok(());
            }
            let patient = patience.elapsed() < LATE_AT_MOST;
            ensure(patient, &format!("{} does not wait", waiter.name))?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn counter(&self, one: &Service, other: &Service) -> Result<(), Failure> {
        const TIMES: usize = 50;
        let lock = format!("reentrant:{LOCK}");
        let times = TIMES.to_string();
        let words = ["work", &lock, COUNTER, &times];
        let mut working = Vec::new();
        for service in [one, other] {
            for worker in ["worker 1", "worker 2", "worker 3"] {
                working.push((service, service.peer.ask(worker, &words)));
            }
            self.say(
                service,
                &format!("3 workers begin: {TIMES} times lock, add one, unlock"),
            );
        }
        let expected = working.len() * TIMES;
        for (service, answer) in working {
            let worked = answer.await;
            worked.map_err(|refused| format!("{} could not work: {refused}", service.name))?;
        }
        let counted: usize = self.server.command(&["GET", COUNTER]).await;
        self.say(
            other,
            &format!("and {} are done; the counter says {counted}", one.name),
        );
        ensure(
            counted == expected,
            &format!("the counter should be {expected}: two owners held the lock at once"),
        )
    }

    async fn renewal(&self, holder: &Service, other: &Service) -> Result<(), Failure> {
        holder.get("lock", &[]).await?;
        self.say(holder, &format!("takes the lock, for {:?}", LEASE * 4 / 3));
        let (start, mut last, mut renewals) = (Instant::now(), i64::MAX, 0);
        while start.elapsed() < LEASE * 4 / 3 {
            let left: i64 = self.server.command(&["PTTL", LOCK]).await;
            ensure(left > 0, "the hold has ended although its holder lives")?;
            if left > last {
                renewals += 1;
                self.say(
                    holder,
                    &format!("has renewed its lease: {last} ms -> {left} ms"),
                );
                self.is_refused(other).await?;
            }
            last = left;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        ensure(renewals > 0, "the lease was never renewed")?;
        holder.get("unlock", &[]).await?;
        self.say(holder, "unlocks");
        Ok(())
    }

    async fn crash(&self, holder: &Service, waiter: &Service) -> Result<(), Failure> {
        holder.get("lock", &[]).await?;
        self.say(holder, "takes the lock");
        let waiting = waiter.ask("lock", &[]);
        self.waits(waiter).await?;
        let asked = epoch();
        let left: u64 = self.server.command(&["PTTL", LOCK]).await;
        holder.peer.kill();
        let killed = epoch();
        let ends = asked + Duration::from_millis(left);
        let left = ends.saturating_sub(killed).as_millis();
        self.say(
            holder,
            &format!("is killed while it holds the lock; its lease ends in {left} ms"),
        );
        let inside = inside(waiter, waiting.await)?;
        let after = inside.saturating_sub(killed);
        let early = inside + ROUNDING < ends;
        ensure(!early, "the dead holder's lease had not ended by then")?;
        ensure(
            after <= LEASE + LATE_AT_MOST,
            &format!("taken over only after {after:?}"),
        )?;
        let (ms, seen) = (after.as_millis(), self.seen(waiter, 1).await?);
        self.say(
            waiter,
            &format!("takes over {ms} ms after the kill; {seen}"),
        );
        waiter.get("unlock", &[]).await?;
        self.say(waiter, "unlocks");
        Ok(())
    }
}

/// The time at which the service acquired the lock, since 1970.
fn inside(service: &Service, answer: Answer) -> Result<Duration, Failure> {
    let failed = |refused| format!("{} could not take the lock: {refused}", service.name);
    let values = answer.map_err(failed)?;
    let inside = values.get(1).and_then(|ms| ms.parse().ok());
    let inside = inside.ok_or_else(|| format!("{} answered {values:?}", service.name))?;
    Ok(Duration::from_millis(inside))
}

fn epoch() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("the clock shows a time after 1970")
}

fn ensure(observed: bool, otherwise: &str) -> Result<(), Failure> {
    if observed {
        Ok(())
    } else {
        Err(otherwise.to_owned())
    }
}
