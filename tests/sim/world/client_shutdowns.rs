//! Shuts clients down during a history, and replaces them.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use histories::{
    actor::{Clients, Scene},
    profiles::{CALM, Profile},
};
use redisson_lock::{Config, ShutdownReport, Unreleased};
use tokio::time::{Instant, sleep};

use crate::world::servers::World;

pub const NAME: &str = "closings";

/// Leases are short, because waiters must outwait the holds that a client leaves.
pub const CLOSINGS: Profile = Profile {
    watchdog_lease: Duration::from_millis(600),
    ..CALM
};

/// The longest pause before a client shuts down.
const PAUSE: Duration = Duration::from_millis(150);
/// How long the server may keep a hold after its validity has ended in the client.
const CLOCKS_DIFFER: Duration = Duration::from_millis(20);

/// Shuts clients down until the history is over.
pub struct ClientShutdowns {
    pub world: World,
    /// The configuration of the new clients.
    pub config: Config,
    pub scene: Arc<Scene>,
    pub clients: Arc<Clients>,
    pub random: Rng,
}

impl ClientShutdowns {
    pub async fn run(mut self) {
        loop {
            sleep(PAUSE.mul_f64(self.random.f64())).await;
            if self.scene.is_over() {
                return;
            }
            let next = self.world.client_with(self.config.clone()).await;
            let which = self.random.usize(..self.clients.beginning_with(0).len());
            let client = self.clients.replace(which, next.expect("the server is up"));
            self.scene.log.closes();
            let began = Instant::now().into_std();
            let report = match self.random.bool() {
                true => client.shutdown().await,
                false => client.shutdown_and_release().await,
            };
            let listed = report.unreleased.len();
            let line = format!("client {} is shut down, and lists {listed}", client.id());
            self.scene.log.fault(line);
            if let Some(old) = report.unreleased.iter().find(|hold| hold.until <= began) {
                let rule = format!(
                    "a client that was shut down listed a hold that had ended before: {old:?}"
                );
                self.scene.log.breaks(rule);
            }
            if let Some(rule) = self.differs(&report, &client.id().to_string()) {
                self.scene.log.breaks(rule);
            }
        }
    }

    /// Compares a report with the server, which must keep every listed hold that is valid, and no live hold that is not listed.
    fn differs(&self, report: &ShutdownReport, client: &str) -> Option<String> {
        // A majority may lack one of its locks, and the report uses the names of the members.
        if !self.scene.subject.exact {
            return None;
        }
        let mut names = self.scene.names.iter();
        names.find_map(|name| self.differs_at(name, report, client))
    }

    /// The rest of an owner's lease. For a reader, that is its longest marker: the key's expiry may be that of another reader.
    fn left(&self, name: &str, owner: &str, holds: u64) -> Duration {
        let marker = |hold| format!("{{{name}}}:{owner}:rwlock_timeout:{hold}");
        let leases = (1..=holds).filter_map(|hold| self.world.remaining_lease(&marker(hold)));
        let of_lock = || self.world.remaining_lease(name).unwrap_or_default();
        match self.scene.subject.name {
            "read_write" if !owner.ends_with(":write") => leases.max().unwrap_or_default(),
            _ => of_lock(),
        }
    }

    fn differs_at(&self, name: &str, report: &ShutdownReport, client: &str) -> Option<String> {
        let listed = || report.unreleased.iter().filter(|hold| &*hold.name == name);
        let holds = |hold: &Unreleased| u64::from(hold.holds);
        let all: u64 = listed().map(holds).sum();
        // The server may or may not keep a hold whose validity has ended during the shutdown.
        let is_valid = |hold: &&Unreleased| hold.until > Instant::now().into_std();
        let valid: u64 = listed().filter(is_valid).map(holds).sum();
        let mut holders = self.world.holders(name);
        holders.retain(|(owner, _)| owner.starts_with(client));
        let is_over =
            |(owner, holds): &(String, u64)| self.left(name, owner, *holds) <= CLOCKS_DIFFER;
        let count = |holders: &[(String, u64)]| holders.iter().map(|(_, holds)| holds).sum::<u64>();
        let kept = count(&holders);
        // The field of an expired hold stays on the server beside a longer hold of the same owner. A write hold has no lease of its own
        // there: beside a read hold it may be over.
        let reads = |owner: &str| holders.iter().any(|(reader, _)| reader == owner);
        let may_be_over = |holder: &(String, u64)| {
            is_over(holder) || holder.0.strip_suffix(":write").is_some_and(reads)
        };
        let mut live = holders.clone();
        live.retain(|holder| !may_be_over(holder));
        // The report lists each of the readers that share a field of the server.
        let readers_share =
            self.scene.subject.name == "read_write" && !self.config.local_hand_off.is_zero();
        let lists_too_many = match readers_share {
            true => valid > 0 && kept == 0,
            false => valid > kept,
        };
        (all < count(&live) || lists_too_many).then(|| {
            format!(
                "a client that was shut down listed {all} holds of {name}, {valid} of them valid, and the server keeps {kept}: {:?} and {holders:?}",
                report.unreleased
            )
        })
    }
}
