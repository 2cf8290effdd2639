//! Clients that shut down in the middle of a history, and the clients that take their places.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use redisson_lock::{Config, ShutdownReport};
use tokio::time::sleep;

use crate::{
    played::{
        actor::{Clients, Scene},
        profiles::{CALM, Profile},
    },
    world::World,
};

pub const NAME: &str = "closings";

/// Leases that end soon, as those of a client that does not release what it holds have to be waited for.
pub const CLOSINGS: Profile = Profile {
    watchdog_lease: Duration::from_millis(600),
    ..CALM
};

/// The longest pause before a client shuts down.
const PAUSE: Duration = Duration::from_millis(150);
/// For how long the server may keep a hold that the client counts as ended: clocks differ.
const CLOCKS_DIFFER: Duration = Duration::from_millis(20);

/// Shuts clients down until the history is over.
pub struct Closings {
    pub world: World,
    /// Of the clients that come.
    pub config: Config,
    pub scene: Arc<Scene>,
    pub clients: Arc<Clients>,
    pub random: Rng,
}

impl Closings {
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
            let report = match self.random.bool() {
                true => client.shutdown().await,
                false => client.shutdown_and_release().await,
            };
            let listed = report.unreleased.len();
            let told = format!("client {} is shut down, and lists {listed}", client.id());
            self.scene.log.weather(told);
            if let Some(rule) = self.differs(&report, &client.id().to_string()) {
                self.scene.log.breaks(rule);
            }
        }
    }

    /// Compares a report with the server, which keeps what is listed and nothing else of the client.
    fn differs(&self, report: &ShutdownReport, client: &str) -> Option<String> {
        // A majority may have been granted without one of its locks, which have other names.
        if !self.scene.subject.exact {
            return None;
        }
        let mut names = self.scene.names.iter();
        names.find_map(|name| self.differs_at(name, report, client))
    }

    /// What is left of an owner's lease: of a reader, the longest of its own, as the lock may have other readers.
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
        let listed = report.unreleased.iter().filter(|hold| &*hold.name == name);
        let listed: u64 = listed.map(|hold| u64::from(hold.holds)).sum();
        let mut holders = self.world.holders(name);
        holders.retain(|(owner, _)| owner.starts_with(client));
        let is_over =
            |(owner, holds): &(String, u64)| self.left(name, owner, *holds) <= CLOCKS_DIFFER;
        let count = |holders: &[(String, u64)]| holders.iter().map(|(_, holds)| holds).sum::<u64>();
        let kept = count(&holders);
        // The server keeps the field of a hold that has ended by its lease, beside a longer hold of its owner.
        let mut live = holders.clone();
        live.retain(|holder| !is_over(holder));
        (listed < count(&live) || listed > kept).then(|| {
            format!(
                "a client that was shut down listed {listed} holds of {name}, and the server keeps {kept}: {:?} and {holders:?}",
                report.unreleased
            )
        })
    }
}
