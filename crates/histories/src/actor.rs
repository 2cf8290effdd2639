//! A task of a history: it acquires and releases locks in every way that the API offers, at random.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use fastrand::Rng;
use redisson_lock::{Error, LockClient, Owner};
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    dropping::{Early, patiently, until},
    handle::{Asker, Boxed, Handle, Wait},
    held::{Held, Outer},
    inside::Inside,
    log::{HoldId, Log, Spot, Trouble, What},
    profiles::Profile,
    subjects::Subject,
};

/// The most nested holds of an owner.
const DEEPEST: usize = 4;
/// A future that is dropped early is dropped within this time.
const EARLY: Duration = Duration::from_millis(8);

/// What the actors of one history share.
pub struct Scene {
    pub subject: Subject,
    pub profile: Profile,
    pub names: Vec<String>,
    pub log: Log,
    /// The history lasts at least until then.
    pub least: Instant,
    /// A history with fewer holds than `enough` lasts until then, for example on a busy machine.
    pub most: Instant,
    pub enough: u64,
    /// Makes an owner for an episode that does not use the task's owner.
    pub new_owner: fn() -> Owner,
}

/// The clients of a history. A new client replaces one that shuts down.
#[derive(Default)]
pub struct Clients {
    present: Mutex<Vec<LockClient>>,
    replaced: AtomicU32,
}

impl Clients {
    pub fn new(clients: Vec<LockClient>) -> Self {
        Self {
            present: Mutex::new(clients),
            replaced: AtomicU32::new(0),
        }
    }

    fn present(&self) -> MutexGuard<'_, Vec<LockClient>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All clients, this one first.
    pub fn beginning_with(&self, first: usize) -> Vec<LockClient> {
        let mut clients = self.present().clone();
        let count = clients.len().max(1);
        clients.rotate_left(first % count);
        clients
    }

    /// Replaces a client, and returns it.
    pub fn replace(&self, which: usize, client: LockClient) -> LockClient {
        self.replaced.fetch_add(1, Relaxed);
        std::mem::replace(&mut self.present()[which], client)
    }
}

pub struct Actor {
    pub scene: Arc<Scene>,
    pub clients: Arc<Clients>,
    /// The index of its own client.
    pub own: usize,
    pub random: Rng,
    /// The most episodes that it plays.
    pub episodes: u32,
}

impl Scene {
    /// Whether tasks begin no further operations.
    pub fn is_over(&self) -> bool {
        let now = Instant::now();
        now >= self.least && (self.log.holds() >= self.enough || now >= self.most)
    }

    /// The bits of one name, or of those of a group.
    fn some_names(&self, random: &mut Rng) -> u32 {
        match self.subject.group {
            true => random.u32(1..1 << self.names.len()),
            false => 1 << random.usize(..self.names.len()),
        }
    }

    /// A lock of this history.
    pub fn handle(
        &self,
        clients: &[LockClient],
        spot: Spot,
        owner: Owner,
        lease: Option<Duration>,
    ) -> Box<dyn Handle> {
        let names = self.names.iter().map(String::as_str).enumerate();
        let names: Vec<_> = names
            .filter(|(index, _)| spot.names & 1 << index != 0)
            .collect();
        let mut sides = self.subject.sides.iter();
        let (_, make) = sides.find(|(side, _)| *side == spot.side).unwrap();
        make(Asker {
            clients,
            names: &names,
            owner,
            lease,
        })
    }
}

impl Actor {
    /// Plays episodes until the history is over. The seed alone determines them.
    pub async fn act(mut self) {
        let own = Owner::current();
        for _ in 0..self.episodes {
            if self.scene.is_over() {
                return;
            }
            let mut random = self.random.fork();
            let names = self.scene.some_names(&mut random);
            // An owner's identity contains its client's id, so after a replacement the same number is another owner.
            let is_own = random.bool() && self.clients.replaced.load(Relaxed) == 0;
            let episode = Episode {
                scene: &self.scene,
                clients: &self.clients.beginning_with(self.own),
                owner: if is_own {
                    own
                } else {
                    (self.scene.new_owner)()
                },
                names,
                random,
                held: Vec::new(),
                lost: Vec::new(),
            };
            episode.play().await;
        }
    }
}

/// The operations of one owner on one lock, until it has no hold left.
struct Episode<'a> {
    scene: &'a Scene,
    clients: &'a [LockClient],
    random: Rng,
    owner: Owner,
    names: u32,
    held: Vec<Held>,
    /// Guards whose holds are lost.
    lost: Vec<Held>,
}

/// A lock, its side, and the lease with which an owner acquires it.
struct Asked {
    spot: Spot,
    handle: Box<dyn Handle>,
    lease: Duration,
}

impl Episode<'_> {
    async fn play(mut self) {
        for _ in 0..self.random.u8(1..=6) {
            self.step().await;
            self.look_at_all().await;
        }
        while !self.held.is_empty() {
            self.end_one().await;
            self.look_at_all().await;
        }
        while !self.lost.is_empty() {
            self.end_lost().await;
        }
    }

    async fn step(&mut self) {
        let choice = self.random.u8(..100);
        if self.scene.profile.forced && choice < 4 {
            return self.force().await;
        }
        if !self.lost.is_empty() && self.one_in(3) {
            return self.end_lost().await;
        }
        match (choice, self.held.len()) {
            (_, 0) if choice < 80 => self.take().await,
            (_, 0) => self.run().await,
            (0..40, held) if held < DEEPEST => self.take().await,
            (40..50, _) => self.run().await,
            (50..55, _) => self.outstay().await,
            (55..75, _) => self.dwell().await,
            (75..85, _) => self.count().await,
            _ => self.end_one().await,
        }
    }

    /// A random side of the lock.
    fn spot(&mut self) -> Spot {
        let (side, _) = self.random.choice(self.scene.subject.sides).unwrap();
        Spot {
            owner: number(self.owner),
            names: self.names,
            side: *side,
        }
    }

    /// A random side of the lock, with a fixed lease or the watchdog's.
    fn asked(&mut self) -> Asked {
        let profile = self.scene.profile;
        let watched = profile.watchdog_lease;
        let lease = match self.random.u8(..10) {
            0..6 => None,
            6..9 => {
                let short = Duration::from_millis(self.random.u64(20..150));
                // A lease must outlast the way of the grant: else the client acquires and releases until the caller times out.
                let acknowledged = match profile.lag.is_zero() {
                    true => Duration::ZERO,
                    false => 2 * profile.lag + Duration::from_millis(10),
                };
                Some(short.max(acknowledged) + 10 * profile.delay)
            }
            // The length distinguishes this fixed lease from the watchdog's.
            _ => Some(watched - Duration::from_millis(1)),
        };
        let spot = self.spot();
        Asked {
            spot,
            handle: self.handle(spot, lease),
            lease: lease.unwrap_or(watched),
        }
    }

    fn handle(&self, spot: Spot, lease: Option<Duration>) -> Box<dyn Handle> {
        self.scene.handle(self.clients, spot, self.owner, lease)
    }

    fn note(&self, spot: Spot, what: What) {
        self.scene.log.note(spot, what);
    }

    fn one_in(&mut self, times: u32) -> bool {
        self.random.u32(..times) == 0
    }

    async fn take(&mut self) {
        let asked = self.asked();
        let wait = match self.random.u8(..10) {
            0..6 => Wait::Ever,
            6..8 => Wait::None,
            _ => Wait::For(Duration::from_micros(self.random.u64(..30_000))),
        };
        let early = self.early(5);
        let limited = !matches!(wait, Wait::Ever);
        let lease = asked.lease;
        self.note(asked.spot, What::Asks { limited, lease });
        let outer = Outer::new(&self.scene.log, &self.held);
        let taken = outer.watched(until(early, asked.handle.take(wait))).await;
        let what = match taken {
            Some(Ok(Ok(Some(guard)))) => {
                outer.look();
                let hold = self.scene.log.enters(asked.spot, asked.lease, &*guard);
                let lost = outer.into_lost();
                self.held.push(Held {
                    spot: asked.spot,
                    hold,
                    guard: Some(guard),
                });
                return self.let_go(lost).await;
            }
            Some(Ok(Ok(None))) => What::Refused,
            Some(Ok(Err(error))) => What::Failed(error.into()),
            Some(Err(hung)) => What::Failed(hung),
            None => What::Abandons,
        };
        let lost = outer.into_lost();
        self.note(asked.spot, what);
        self.let_go(lost).await;
    }

    async fn run(&mut self) {
        let asked = self.asked();
        let (pauses, early) = (self.pauses(), self.early(5));
        let outer = Outer::new(&self.scene.log, &self.held);
        let body = Inside {
            log: &self.scene.log,
            outer: &outer,
            spot: asked.spot,
            lease: asked.lease,
            pauses,
            hold: OnceLock::new(),
            over: OnceLock::new(),
        };
        let (limited, lease) = (false, asked.lease);
        self.note(asked.spot, What::Asks { limited, lease });
        let ran = outer.watched(until(early, asked.handle.run(&body))).await;
        let (hold, over) = (body.hold.get().copied(), body.over.get().is_some());
        let what = match (ran, hold) {
            (Some(Ok(Ok(()))), Some(hold)) => What::Ended { hold, how: None },
            (Some(Ok(Ok(()))), None) => What::Failed(Trouble::Other("no body was run".into())),
            (Some(Ok(Err(error))), Some(hold)) => ended(hold, error.into()),
            (Some(Ok(Err(error))), None) => What::Failed(error.into()),
            (Some(Err(hung)), _) => What::Failed(hung),
            (None, Some(hold)) if over => What::Ended { hold, how: None },
            (None, Some(hold)) => What::Drops { hold },
            (None, None) => What::Abandons,
        };
        let lost = outer.into_lost();
        if matches!(&what, What::Ended { how: Some(_), .. }) {
            self.forget_leaked(asked.spot).await;
        }
        self.note(asked.spot, what);
        self.let_go(lost).await;
    }

    /// Keeps the lock for a while and checks the guards, seldom for as long as several renewals.
    async fn dwell(&mut self) {
        for pause in self.pauses() {
            sleep(pause).await;
            self.look_at_all().await;
        }
    }

    /// Keeps the lock beyond the end of a fixed lease, unless that takes too long.
    async fn outstay(&mut self) {
        let longest = Instant::now() + self.scene.profile.long_stay;
        let ends = self.held.iter().filter_map(|held| held.guard.as_ref());
        let ends = ends.map(|guard| Instant::from_std(guard.valid_until()));
        if let Some(end) = ends.filter(|end| *end < longest).min() {
            sleep_until(end + Duration::from_micros(self.random.u64(..3_000))).await;
        }
    }

    fn pauses(&mut self) -> Vec<Duration> {
        let longest = if self.one_in(20) {
            self.scene.profile.long_stay
        } else {
            Duration::from_millis(2)
        };
        let micros = longest.as_micros() as u64 / 4;
        (0..4)
            .map(|_| Duration::from_micros(self.random.u64(..=micros)))
            .collect()
    }

    async fn count(&mut self) {
        let spot = self.spot();
        let handle = self.handle(spot, None);
        if let Some(counting) = handle.hold_count() {
            self.note(spot, What::Counts);
            let counted = patiently(counting).await;
            self.note(spot, What::Counted(counted));
        }
    }

    async fn force(&mut self) {
        let spot = self.spot();
        let handle = self.handle(spot, None);
        if let Some(forcing) = handle.force_unlock() {
            self.note(spot, What::Forces);
            let forced = patiently(forcing).await;
            self.note(spot, What::Forced(forced));
        }
    }

    async fn end_one(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.random.usize(..self.held.len());
        if self.held[at].guard.is_none() {
            return self.unlock_leaked(self.held[at].spot).await;
        }
        match self.random.u8(..10) {
            0..7 => {
                let Held { spot, hold, guard } = self.held.remove(at);
                self.note(spot, What::Ends { hold });
                let release = guard.unwrap().unlock();
                self.release(spot, hold, release).await;
            }
            7..9 => {
                let Held { spot, hold, guard } = self.held.remove(at);
                self.note(spot, What::Drops { hold });
                drop(guard);
            }
            _ => {
                let Held { spot, hold, guard } = &mut self.held[at];
                let (spot, hold) = (*spot, *hold);
                guard.take().unwrap().leak();
                self.note(spot, What::Leaks { hold });
            }
        }
    }

    /// Releases the latest leaked hold.
    async fn unlock_leaked(&mut self, spot: Spot) {
        let leaked = |held: &Held| held.spot == spot && held.guard.is_none();
        let Some(at) = self.held.iter().rposition(leaked) else {
            return;
        };
        let hold = self.held.remove(at).hold;
        let handle = self.handle(spot, None);
        self.note(spot, What::Ends { hold });
        self.release(spot, hold, handle.unlock()).await;
    }

    async fn release(
        &mut self,
        spot: Spot,
        hold: HoldId,
        release: Boxed<'_, Result<redisson_lock::Released, Error>>,
    ) {
        let early = self.early(8);
        let how = until(early, release).await;
        let how = how.map(|done| done.and_then(|released| released.map_err(Trouble::from)));
        if matches!(&how, Some(Err(Trouble::Lost(_) | Trouble::NotHeld))) {
            self.forget_leaked(spot).await;
        }
        self.note(spot, What::Ended { hold, how });
    }

    /// Checks all guards. Lost holds leave `held`.
    async fn look_at_all(&mut self) {
        let outer = Outer::new(&self.scene.log, &self.held);
        outer.look();
        let lost = outer.into_lost();
        self.let_go(lost).await;
    }

    /// Moves lost holds from `held` to `lost`.
    async fn let_go(&mut self, lost: Vec<HoldId>) {
        for hold in lost {
            let Some(at) = self.held.iter().position(|held| held.hold == hold) else {
                continue;
            };
            let held = self.held.remove(at);
            self.forget_leaked(held.spot).await;
            self.lost.push(held);
            if self.one_in(2) {
                self.end_lost().await;
            }
        }
    }

    /// Drops or unlocks the guard of a lost hold. Both must leave a later hold of the owner unchanged.
    async fn end_lost(&mut self) {
        let at = self.random.usize(..self.lost.len());
        let Held { spot, hold, guard } = self.lost.swap_remove(at);
        let Some(guard) = guard.filter(|_| self.one_in(2)) else {
            return;
        };
        let how = patiently(guard.unlock()).await;
        if !matches!(how, Err(Trouble::Lost(_))) {
            // The event breaks a rule: the unlock of a lost hold must fail.
            let how = Some(how);
            self.note(spot, What::Ended { hold, how });
        }
    }

    /// Leaked holds are lost with guarded ones. The unlock releases members of a group that may be left.
    async fn forget_leaked(&mut self, spot: Spot) {
        let handle = self.handle(spot, None);
        let leaked = |held: &mut Held| held.spot == spot && held.guard.is_none();
        for _ in self.held.extract_if(.., leaked) {
            let _ = patiently(handle.unlock()).await;
        }
    }

    /// Chooses, once in `times`, when a future is dropped early.
    fn early(&mut self, times: u32) -> Option<Early> {
        if !self.one_in(times) {
            return None;
        }
        Some(match self.random.bool() {
            true => Early::Polls(self.random.u32(1..9)),
            false => Early::Time(EARLY.mul_f64(self.random.f64())),
        })
    }
}

fn ended(hold: HoldId, trouble: Trouble) -> What {
    let how = Some(Err(trouble));
    What::Ended { hold, how }
}

pub fn number(owner: Owner) -> u64 {
    owner.to_string().parse().expect("an owner is a number")
}
