//! The server's cost of one acquisition, by the number of waiters (P-F9).

use testbed::Server;
use uuid::Uuid;

use super::{Line, PATIENCE};
use crate::scripts::{FAIR_ABANDON, FAIR_ACQUIRE, FAIR_RELEASE};

const WAITERS: [usize; 3] = [10, 1_000, 10_000];
const ROUNDS: usize = 100;

/// The shortest time of one script's calls, in microseconds of the server. Other programs on the machine
/// slow most calls, and so the median.
async fn shortest_of(server: &Server, script: &str, calls: impl AsyncFn(&str)) -> f64 {
    let sha: String = server.command(&["SCRIPT", "LOAD", script]).await;
    let () = server.command(&["SLOWLOG", "RESET"]).await;
    calls(&sha).await;
    let log: Vec<(u64, u64, u64, Vec<String>, String, String)> =
        server.command(&["SLOWLOG", "GET", "-1"]).await;
    let micros: Vec<u64> = log
        .into_iter()
        .filter(|entry| entry.3[0] == "EVALSHA" && entry.3[1] == sha)
        .map(|entry| entry.2)
        .collect();
    assert!(micros.len() >= ROUNDS, "{} calls", micros.len());
    *micros.iter().min().unwrap() as f64
}

/// The cost of one operation of each sort.
#[derive(Debug, Clone, Copy)]
struct Costs {
    granted: f64,
    refused_first: f64,
    refused_again: f64,
    released: f64,
    left: f64,
}

struct Crowd {
    line: Line,
    owners: Vec<String>,
}

impl Crowd {
    /// A queue of this many entries without live waiters.
    async fn of(waiters: usize) -> Self {
        let line = Line::new().await;
        let mut admin = line.witness.server.admin().await;
        let until = line.witness.now().await + 10 * PATIENCE;
        let owners: Vec<String> = (0..waiters + ROUNDS).map(owner).collect();
        for owners in owners[..waiters].chunks(1000) {
            let mut pipe = redis::pipe();
            for owner in owners {
                pipe.rpush(&line.queue, owner).ignore();
                pipe.zadd(&line.places, owner, until).ignore();
            }
            let () = pipe.query_async(&mut admin).await.unwrap();
        }
        let set = ["CONFIG", "SET", "slowlog-log-slower-than", "0"];
        let () = line.witness.ask(&set).await;
        let set = ["CONFIG", "SET", "slowlog-max-len", "10000"];
        let () = line.witness.ask(&set).await;
        Self { line, owners }
    }

    async fn acquire(&self, sha: &str, owner: &str, waited: &str) {
        let channel = format!("redisson_lock__channel:{{{}}}", self.line.name);
        let (queue, places) = (&self.line.queue, &self.line.places);
        let patience = PATIENCE.to_string();
        let words = [
            "EVALSHA",
            sha,
            "3",
            &self.line.name,
            queue,
            places,
            owner,
            "30000",
            "1",
            waited,
            "15000",
            &patience,
            &channel,
            "0",
        ];
        let _: redis::Value = self.line.witness.ask(&words).await;
    }

    async fn release(&self, sha: &str, owner: &str) {
        let channel = format!("redisson_lock__channel:{{{}}}", self.line.name);
        let (queue, places) = (&self.line.queue, &self.line.places);
        let words = [
            "EVALSHA",
            sha,
            "3",
            &self.line.name,
            queue,
            places,
            owner,
            "0",
            "0",
            "15000",
            &channel,
        ];
        let done: i64 = self.line.witness.ask(&words).await;
        assert_eq!(done, 0, "the lock was held");
    }

    async fn abandon(&self, sha: &str, owner: &str) {
        let channel = format!("redisson_lock__channel:{{{}}}", self.line.name);
        let (queue, places) = (&self.line.queue, &self.line.places);
        let words = ["EVALSHA", sha, "2", queue, places, owner, &channel];
        let done: i64 = self.line.witness.ask(&words).await;
        assert_eq!(done, 0);
    }

    async fn measure(&self) -> Costs {
        let server = &self.line.witness.server;
        let waiters = self.owners.len() - ROUNDS;
        let (queued, arrivals) = self.owners.split_at(waiters);
        let () = self
            .line
            .witness
            .ask(&["HSET", &self.line.name, "another", "1"])
            .await;
        let refused_first = shortest_of(server, FAIR_ACQUIRE, async |sha| {
            for owner in arrivals {
                self.acquire(sha, owner, "0").await;
            }
        });
        let refused_first = refused_first.await;
        let refused_again = shortest_of(server, FAIR_ACQUIRE, async |sha| {
            for round in 0..ROUNDS {
                // The head of the queue may cost less.
                let place = waiters / 2 + (round * 7919) % (waiters / 2);
                self.acquire(sha, &queued[place], "5000").await;
            }
        });
        let refused_again = refused_again.await;
        let left = shortest_of(server, FAIR_ABANDON, async |sha| {
            for owner in arrivals {
                self.abandon(sha, owner).await;
            }
        });
        let left = left.await;
        let () = self.line.witness.ask(&["DEL", &self.line.name]).await;
        let (granted, released) = self.hand_off(&queued[..waiters.min(ROUNDS)]).await;
        Costs {
            granted,
            refused_first,
            refused_again,
            released,
            left,
        }
    }

    /// Each owner in turn acquires the lock, releases it and joins the queue again.
    async fn hand_off(&self, owners: &[String]) -> (f64, f64) {
        let server = &self.line.witness.server;
        let release: String = server.command(&["SCRIPT", "LOAD", FAIR_RELEASE]).await;
        let granted = shortest_of(server, FAIR_ACQUIRE, async |sha| {
            for owner in owners.iter().cycle().take(ROUNDS) {
                self.acquire(sha, owner, "0").await;
                self.release(&release, owner).await;
                let () = self
                    .line
                    .witness
                    .ask(&["RPUSH", &self.line.queue, owner])
                    .await;
                let until = (self.line.witness.now().await + PATIENCE).to_string();
                let words = ["ZADD", &self.line.places, &until, owner];
                let () = self.line.witness.ask(&words).await;
            }
        });
        let granted = granted.await;
        let released = shortest_of(server, FAIR_RELEASE, async |sha| {
            let acquire: String = server.command(&["SCRIPT", "LOAD", FAIR_ACQUIRE]).await;
            for _ in 0..ROUNDS {
                let head: String = self
                    .line
                    .witness
                    .ask(&["LINDEX", &self.line.queue, "0"])
                    .await;
                self.acquire(&acquire, &head, "0").await;
                self.release(sha, &head).await;
                let () = self
                    .line
                    .witness
                    .ask(&["RPUSH", &self.line.queue, &head])
                    .await;
                let until = (self.line.witness.now().await + PATIENCE).to_string();
                let words = ["ZADD", &self.line.places, &until, &head];
                let () = self.line.witness.ask(&words).await;
            }
        });
        (granted, released.await)
    }
}

/// An owner of this crate: the number has 19 digits.
fn owner(number: usize) -> String {
    let client = Uuid::from_u128(4 << 76 | 8 << 60 | 7);
    format!("{client}:{}", (1_u64 << 62) + number as u64)
}

/// Each grant of Redisson updates every score: 16 ms of the server with 10,000 waiters, 187 ms with
/// 100,000 (measured). With a thousand times the waiters, a script of this crate may cost a few
/// times as much, because a sorted set does.
#[tokio::test]
async fn p_f9_an_acquisition_costs_little_more_however_many_wait() {
    let mut all = Vec::new();
    for waiters in WAITERS {
        let costs = Crowd::of(waiters).await.measure().await;
        println!("{waiters:6} waiters, us: {costs:?}");
        all.push(costs);
    }
    let grows = |what: &str, cost: fn(&Costs) -> f64, times: f64| {
        let (few, many) = (cost(&all[0]), cost(&all[2]));
        assert!(
            many < few * times,
            "{what}: {few} us with {} waiters, {many} us with {}",
            WAITERS[0],
            WAITERS[2]
        );
    };
    grows("a grant", |costs| costs.granted, 10.0);
    grows("a first refusal", |costs| costs.refused_first, 10.0);
    grows("a further refusal", |costs| costs.refused_again, 10.0);
    grows("a release", |costs| costs.released, 10.0);
    // A waiter that leaves searches for its entry, which costs a little for each earlier entry.
    grows("leaving", |costs| costs.left, 200.0);
}
