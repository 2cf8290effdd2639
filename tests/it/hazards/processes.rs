//! Processes that stop, die and compete. Each child process runs this test binary again: see
//! [`child_process_holds_and_releases`].

use std::{
    env,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};

use redisson_lock::{Error, Guard, Kind, Lock, LockClient};
use testbed::{Child, Server, eventually, unique_name};
use tokio::{
    io::{AsyncBufReadExt, BufReader, stdin},
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};

use crate::contract::subjects::{Fair, Read, Reentrant, Simple, Write};

use super::stage::{
    GENEROUS, Locks, PROMPT, Subject, all_done, connect, let_pass, nothing_left, pttl, scripts,
    watched,
};

const URL: &str = "HAZARDS_CHILD_URL";
const KIND: &str = "HAZARDS_CHILD_KIND";
const LEASE: &str = "HAZARDS_CHILD_LEASE";
/// The prefix of a child's answers, which tells them from lines of the test harness.
const ANSWER: &str = "> ";

/// Runs itself as the child process that the tests below start, stop and kill.
#[test]
fn child_process_holds_and_releases() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        match env::var(URL) {
            Ok(url) => serve(&url).await,
            Err(_) => holds_and_releases().await,
        }
    });
}

async fn holds_and_releases() {
    let server = Server::start().await;
    let name = unique_name("child");
    let mut peer = Peer::start::<Reentrant>(&server, Duration::from_secs(60)).await;
    assert_eq!(peer.ask(&format!("lock {name}")).await, "locked");
    assert!(pttl(&server, &name).await > 30_000);
    assert_eq!(peer.ask("unlock").await, "done");
    nothing_left(&server, PROMPT).await;
}

/// The child process: executes the commands that it reads.
async fn serve(url: &str) {
    let kind = env::var(KIND).expect("a kind");
    let lease = env::var(LEASE).expect("a lease").parse().expect("in ms");
    let mut config = watched(Duration::from_millis(lease));
    config.max_poll_interval = Duration::from_secs(300);
    let client = connect(url, config).await;
    match kind.as_str() {
        Reentrant::NAME => obey::<Reentrant>(client).await,
        Fair::NAME => obey::<Fair>(client).await,
        Read::NAME => obey::<Read>(client).await,
        Write::NAME => obey::<Write>(client).await,
        Simple::NAME => obey::<Simple>(client).await,
        other => panic!("unknown kind `{other}`"),
    }
}

/// The child's guard and its running body.
struct Work<S: Subject> {
    guard: Option<Guard<S::Kind>>,
    body: Option<JoinHandle<Result<(), Error>>>,
    steps: Arc<Steps>,
}

#[derive(Default)]
struct Steps {
    held: AtomicU64,
    lost: AtomicU64,
}

async fn obey<S: Subject>(client: LockClient) {
    // The harness has begun a line.
    println!("\n{ANSWER}ready");
    let mut work = Work::<S> {
        guard: None,
        body: None,
        steps: Arc::default(),
    };
    let mut lines = BufReader::new(stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let (verb, name) = line.split_once(' ').unwrap_or((&line, ""));
        println!(
            "{ANSWER}{}",
            work.answer(verb, client.kind::<S>(name)).await
        );
    }
}

impl<S: Subject> Work<S> {
    async fn answer(&mut self, verb: &str, lock: Lock<S::Kind>) -> String {
        match verb {
            "lock" => {
                self.guard = Some(lock.lock().await.expect("the lock is free"));
                "locked".into()
            }
            "lost?" => format!("lost {}", self.guard.as_ref().expect("held").is_lost()),
            "unlock" => outcome(self.guard.take().expect("held").unlock().await),
            "run" => {
                self.body = Some(tokio::spawn(run(lock, self.steps.clone())));
                "running".into()
            }
            "steps" => self.steps.held.load(SeqCst).to_string(),
            "ran" => {
                let ran = self.body.take().expect("it runs").await;
                let lost = self.steps.lost.load(SeqCst);
                format!("{} with {lost} steps after the loss", outcome(ran.unwrap()))
            }
            "crowd" => crowd(lock).await,
            other => panic!("unknown command `{other}`"),
        }
    }
}

fn outcome<T>(result: Result<T, Error>) -> String {
    match result {
        Ok(_) => "done".into(),
        Err(Error::Lost { .. }) => "lost".into(),
        Err(other) => format!("{other:?}"),
    }
}

/// A body that never ends, and counts its steps before and after the loss.
async fn run<K: Kind>(lock: Lock<K>, steps: Arc<Steps>) -> Result<(), Error> {
    let body = async |guard: &Guard<K>| {
        loop {
            let step = if guard.is_lost() {
                &steps.lost
            } else {
                &steps.held
            };
            step.fetch_add(1, SeqCst);
            sleep(Duration::from_millis(10)).await;
        }
    };
    lock.run(body).await
}

const CROWD: usize = 25;

/// Tasks that acquire and release the lock once each.
async fn crowd<K: Kind>(lock: Lock<K>) -> String {
    let mut tasks = JoinSet::new();
    for _ in 0..CROWD {
        let lock = lock.clone();
        tasks.spawn(async move { lock.lock().await?.unlock().await });
    }
    for unlocked in all_done(tasks).await {
        let _ = unlocked.expect("no error");
    }
    "all acquired it".into()
}

/// The parent's side: sends commands to a child and reads its answers.
struct Peer(Child);

impl Peer {
    async fn start<S: Subject>(server: &Server, lease: Duration) -> Self {
        let mut command = Command::new(env::current_exe().expect("this binary"));
        command
            .args([
                "--exact",
                "hazards::processes::child_process_holds_and_releases",
            ])
            .args(["--nocapture", "--test-threads=1"])
            .env(URL, server.url())
            .env(KIND, S::NAME)
            .env(LEASE, lease.as_millis().to_string());
        let mut peer = Self(Child::spawn(command));
        assert_eq!(peer.answer().await, "ready");
        peer
    }

    async fn answer(&mut self) -> String {
        loop {
            let line = self.0.line(GENEROUS).await;
            if let Some(answer) = line.strip_prefix(ANSWER) {
                return answer.to_owned();
            }
        }
    }

    async fn ask(&mut self, line: &str) -> String {
        self.0.send_line(line);
        self.answer().await
    }
}

pub async fn p_r9_a_stopped_process_sees_its_loss_first<S: Subject>() {
    let server = Server::start().await;
    let client = connect(&server.url(), watched(Duration::from_secs(60))).await;
    let [name, body] = [unique_name("stopped"), unique_name("stopped")];
    let mut peer = Peer::start::<S>(&server, Duration::from_secs(3)).await;
    assert_eq!(peer.ask(&format!("lock {name}")).await, "locked");
    assert_eq!(peer.ask(&format!("run {body}")).await, "running");
    while peer.ask("steps").await == "0" {}
    assert_eq!(peer.ask("lost?").await, "lost false");
    peer.0.pause();
    let mut guards = Vec::new();
    for name in [&name, &body] {
        let got = timeout(GENEROUS, client.rival::<S>(name).lock()).await;
        guards.push(got.expect("the lease expires").unwrap());
    }
    let hash = async || server.command::<Vec<u8>>(&["DUMP", &name]).await;
    let before = hash().await;
    peer.0.send_line("lost?");
    peer.0.resume();
    assert_eq!(peer.answer().await, "lost true");
    assert_eq!(peer.ask("unlock").await, "lost");
    assert_eq!(peer.ask("ran").await, "lost with 0 steps after the loss");
    assert_eq!(hash().await, before);
    assert!(pttl(&server, &name).await > 30_000);
    for guard in guards {
        let _ = guard.unlock().await.expect("the hold is still valid");
    }
    nothing_left(&server, PROMPT).await;
}

/// After the stop, the holder calls `unlock` first, without a look at the guard.
pub async fn p_r9_a_late_unlock_harms_no_successor<S: Subject>() {
    let server = Server::start().await;
    let client = connect(&server.url(), watched(Duration::from_secs(60))).await;
    let name = unique_name("stopped");
    let mut peer = Peer::start::<S>(&server, Duration::from_secs(2)).await;
    assert_eq!(peer.ask(&format!("lock {name}")).await, "locked");
    peer.0.pause();
    let lock = client.rival::<S>(&name);
    let guard = timeout(GENEROUS, lock.lock()).await.unwrap().unwrap();
    server.reset_calls().await;
    peer.0.send_line("unlock");
    peer.0.resume();
    assert_eq!(peer.answer().await, "lost");
    assert_eq!(
        server.calls().await.get("publish"),
        None,
        "no waiter is woken"
    );
    assert_eq!(lock.hold_count().await, Ok(1));
    let _ = guard.unlock().await.expect("the hold is still valid");
    nothing_left(&server, PROMPT).await;
}

pub async fn a_killed_holder_is_followed_when_its_lease_ends<S: Subject>() {
    let server = Server::start().await;
    let mut config = watched(Duration::from_secs(60));
    // Without messages and polls, the waiter knows only the lease that its refusal reported.
    config.max_poll_interval = Duration::from_secs(300);
    let client = connect(&server.url(), config).await;
    let name = unique_name("killed");
    let mut peer = Peer::start::<S>(&server, Duration::from_secs(3)).await;
    assert_eq!(peer.ask(&format!("lock {name}")).await, "locked");
    let lock = client.rival::<S>(&name);
    let waiting = tokio::spawn(async move {
        let guard = lock.lock().await.expect("the lock is acquired in the end");
        (SystemTime::now(), guard)
    });
    eventually("the task waits", GENEROUS, async || {
        scripts(&server).await >= 3
    })
    .await;
    peer.0.kill();
    let expires: u64 = server.command(&["PEXPIRETIME", &name]).await;
    let expires = SystemTime::UNIX_EPOCH + Duration::from_millis(expires);
    let (entered, guard) = timeout(GENEROUS, waiting).await.unwrap().unwrap();
    let late = entered
        .duration_since(expires)
        .expect("not before the lease is over");
    assert!(late < PROMPT, "{late:?} after the lease");
    let _ = guard.unlock().await.unwrap();
    nothing_left(&server, PROMPT).await;
}

async fn listeners(server: &Server, name: &str) -> u64 {
    let channel = format!("redisson_lock__channel:{{{name}}}");
    let (_, count): (String, u64) = server.command(&["PUBSUB", "NUMSUB", &channel]).await;
    count
}

pub async fn p_w9_a_hundred_waiters_in_four_processes_cost_few_scripts<S: Subject>() {
    let server = Server::start().await;
    let client = connect(&server.url(), watched(Duration::from_secs(300))).await;
    let name = unique_name("crowd");
    let guard = client.kind::<S>(&name).lock().await.unwrap();
    let mut peers = Vec::new();
    for _ in 0..4 {
        let mut peer = Peer::start::<S>(&server, Duration::from_secs(300)).await;
        peer.0.send_line(&format!("crowd {name}"));
        peers.push(peer);
    }
    eventually("all four clients listen", GENEROUS, async || {
        listeners(&server, &name).await == 4
    })
    .await;
    eventually("no client sends requests", GENEROUS, async || {
        let asked = scripts(&server).await;
        let_pass(Duration::from_millis(300)).await;
        scripts(&server).await == asked
    })
    .await;
    server.reset_calls().await;
    let _ = guard.unlock().await.unwrap();
    for peer in &mut peers {
        assert_eq!(peer.answer().await, "all acquired it");
    }
    let hand_offs = 4 * CROWD as u64;
    // Several attempts can share one script. Each attempt runs one PTTL, so both are counted.
    let costs = [scripts(&server).await, server.calls().await["pttl"]];
    println!("{costs:?} scripts and attempts for {hand_offs} hand-offs");
    for cost in costs {
        assert!(cost <= 12 * hand_offs, "{costs:?}");
    }
    nothing_left(&server, PROMPT).await;
}
