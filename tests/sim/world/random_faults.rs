//! Random faults of the connections and the servers of a history.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fastrand::Rng;
use histories::{
    actor::Scene,
    log::{Side, Spot, What},
    profiles,
};
use redisson_lock_test::simulation::{Delivering, Ending, Executed, Fate, Faults, MasterChange};
use tokio::time::{Instant, sleep};

use crate::{
    campaign::refusals,
    world::{replica_faults, servers::World},
};

/// Connections belong to this many groups. Each group has its own fault.
const GROUPS: u64 = 3;
/// The delay of a command on a silent connection.
const FOR_EVER: Duration = Duration::from_secs(3_600);
/// More commands than any good history sends.
const MOST_COMMANDS: u64 = 100_000;

/// The fault of a group of connections.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ConnectionFault {
    Nothing,
    /// Commands are lost with their connections.
    LosesRequests,
    LosesReplies,
    /// Connections end, and their last commands are executed later.
    ExecutesLate,
    IsSlow(Duration),
    LosesMessages,
    SkipsMessages,
    Stalls,
    StallsReplies,
}

#[derive(Debug, Clone, Copy)]
struct Group {
    fault: ConnectionFault,
    until: Instant,
}

struct State {
    random: Rng,
    /// The longest delay of a command without a fault.
    slowest: Duration,
    groups: [Group; GROUPS as usize],
    /// The error that the server answers instead of executing a script.
    refusal: Option<&'static str>,
    commands: u64,
    /// How many operations were refused because another owner has the lock.
    refused: u64,
    /// The latest connection that has sent a command.
    latest: u64,
    /// The last silent connection of each group: earlier ones are silent too.
    silent: [u64; GROUPS as usize],
}

/// The faults of a history.
#[derive(Clone)]
pub struct RandomFaults {
    state: Arc<Mutex<State>>,
    scene: Arc<Scene>,
    /// Whether the log records each command.
    logs_commands: bool,
}

impl RandomFaults {
    pub fn new(mut random: Rng, scene: Arc<Scene>, logs_commands: bool) -> Self {
        let calm = Group {
            fault: ConnectionFault::Nothing,
            until: Instant::now(),
        };
        let near = Duration::from_millis(random.choice([0, 1, 1, 3]).unwrap_or(0));
        let slowest = scene.profile.delay.max(near);
        let state = State {
            random,
            slowest,
            groups: [calm; GROUPS as usize],
            refusal: None,
            commands: 0,
            refused: 0,
            latest: 0,
            silent: [0; GROUPS as usize],
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            scene,
            logs_commands,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many commands the servers have executed.
    pub fn commands(&self) -> u64 {
        self.state().commands
    }

    /// How many operations were refused because another owner has the lock.
    pub fn refused(&self) -> u64 {
        self.state().refused
    }

    /// Disturbs a group of connections or, seldom, the server until the history is over, each time for up to `longest`.
    pub async fn inject(&self, server: &World, longest: Duration) {
        while !self.scene.is_over() {
            let pause = longest.mul_f64(self.state().random.f64() / 4.0);
            sleep(pause).await;
            let lasting = longest.mul_f64(self.state().random.f64());
            self.disturb(server, lasting);
            sleep(lasting).await;
            self.heal(server);
        }
    }

    fn heal(&self, server: &World) {
        server.start();
        server.set_full(false);
        let mut state = self.state();
        state.refusal = None;
        for group in &mut state.groups {
            group.fault = ConnectionFault::Nothing;
        }
        drop(state);
        self.scene.log.fault("healed".into());
    }

    fn disturb(&self, server: &World, lasting: Duration) {
        let mut state = self.state();
        if let World::Replicas(replicas) = server
            && state.random.bool()
        {
            let mut random = state.random.fork();
            drop(state);
            let profile = &self.scene.profile;
            let line = replica_faults::disturb(replicas, profile, lasting, &mut random);
            return self.scene.log.fault(line);
        }
        if self.scene.profile.fault_kinds == profiles::FaultKinds::Memory {
            let is_full = state.one_in(4);
            drop(state);
            server.set_full(is_full);
            let memory = if is_full { "no memory" } else { "memory" };
            let line = format!("the server has {memory} for {lasting:?}");
            return self.scene.log.fault(line);
        }
        let at = state.random.usize(..GROUPS as usize);
        let slow = Duration::from_millis(state.random.u64(1..30));
        let refusals = [
            "LOADING Redis is loading the dataset in memory",
            "BUSY Redis is busy running a script.",
            "MASTERDOWN Link with MASTER is down.",
        ];
        if self.scene.profile.fault_kinds == profiles::FaultKinds::Silences {
            state.silent[at] = state.latest;
            drop(state);
            let line = format!("group {at}: falls silent, another group after {lasting:?}");
            return self.scene.log.fault(line);
        }
        let kind = match (state.random.u8(..12), self.scene.profile.fault_kinds) {
            // A client notices skipped messages; lost ones it does not.
            (4, profiles::FaultKinds::Told) => 5,
            // Masters fail one at a time.
            (10, _) if matches!(server, World::Replicas(_)) => 9,
            (kind, _) => kind,
        };
        let (what, fault) = match kind {
            0 => ("commands are lost", ConnectionFault::LosesRequests),
            1 => ("answers are lost", ConnectionFault::LosesReplies),
            2 => ("commands are executed late", ConnectionFault::ExecutesLate),
            3 => ("slow", ConnectionFault::IsSlow(slow)),
            4 => ("messages are lost", ConnectionFault::LosesMessages),
            5 => ("messages are skipped", ConnectionFault::SkipsMessages),
            6 => ("stalled", ConnectionFault::Stalls),
            7 => ("answers are stalled", ConnectionFault::StallsReplies),
            8 => ("scripts are forgotten", ConnectionFault::Nothing),
            9 => ("connections are cut", ConnectionFault::Nothing),
            10 => ("the server is stopped", ConnectionFault::Nothing),
            _ => ("the server refuses", ConnectionFault::Nothing),
        };
        state.groups[at] = Group {
            fault,
            until: Instant::now() + lasting,
        };
        if what == "the server refuses" {
            state.refusal = state.random.choice(refusals);
        }
        drop(state);
        match what {
            "scripts are forgotten" => server.forget_scripts(),
            "connections are cut" => server.disconnect(at),
            "the server is stopped" => server.stop(at),
            _ => {}
        }
        self.scene
            .log
            .fault(format!("group {at}: {what} for {lasting:?}"));
    }
}

impl State {
    fn group(&self, connection: u64) -> Group {
        self.groups[(connection % GROUPS) as usize]
    }

    fn delay(&mut self) -> Duration {
        self.slowest.mul_f64(self.random.f64())
    }

    fn is_silent(&self, connection: u64) -> bool {
        connection <= self.silent[(connection % GROUPS) as usize]
    }

    fn one_in(&mut self, times: u32) -> bool {
        self.random.u32(..times) == 0
    }
}

impl Faults for RandomFaults {
    fn connecting(&mut self) -> Duration {
        self.state().delay()
    }

    fn sending(&mut self, connection: u64, _command: &'static str) -> Fate {
        let mut state = self.state();
        state.latest = state.latest.max(connection);
        if state.is_silent(connection) {
            return Fate {
                delay: FOR_EVER,
                ending: None,
            };
        }
        let Group { fault, until } = state.group(connection);
        let delay = state.delay();
        let rest = || until.saturating_duration_since(Instant::now());
        let (extra, ending) = match fault {
            ConnectionFault::LosesRequests if state.one_in(5) => {
                (Duration::ZERO, Some(Ending::Unsent))
            }
            ConnectionFault::LosesReplies if state.one_in(5) => {
                (Duration::ZERO, Some(Ending::Unanswered))
            }
            ConnectionFault::ExecutesLate if state.one_in(5) => {
                (rest().mul_f64(state.random.f64()), Some(Ending::Unheard))
            }
            ConnectionFault::IsSlow(slow) => (slow, None),
            ConnectionFault::Stalls => (rest(), None),
            _ => (Duration::ZERO, None),
        };
        Fate {
            delay: delay + extra,
            ending,
        }
    }

    fn refusal(&mut self, command: &'static str) -> Option<String> {
        let refusal = self.state().refusal.filter(|_| command.starts_with("EVAL"));
        refusal.map(str::to_owned)
    }

    fn answering(&mut self, connection: u64) -> Duration {
        let mut state = self.state();
        let Group { fault, until } = state.group(connection);
        let delay = state.delay();
        match fault {
            ConnectionFault::StallsReplies => {
                until.saturating_duration_since(Instant::now()) + delay
            }
            _ => delay,
        }
    }

    fn delivering(&mut self, connection: u64) -> Delivering {
        let mut state = self.state();
        match state.group(connection).fault {
            _ if state.is_silent(connection) => Delivering::Never,
            ConnectionFault::LosesMessages => Delivering::Never,
            ConnectionFault::SkipsMessages => Delivering::Missed,
            _ => Delivering::After(state.delay()),
        }
    }

    fn executed(&mut self, executed: &Executed<'_>) {
        let mut state = self.state();
        state.commands += 1;
        if executed.command.starts_with("EVAL") {
            state.refused += refusals::refusals(executed.answer);
        }
        // If answers take no time, a client that sends attempts without a pause stops the clock.
        assert!(
            state.commands < MOST_COMMANDS,
            "a client sends attempts without a pause"
        );
        drop(state);
        if self.logs_commands {
            self.scene.log.fault(story(executed));
        }
    }

    fn master_changed(&mut self, change: &MasterChange) {
        let names = self.scene.names.iter().enumerate();
        let (what, names) = match change {
            MasterChange::Promoted { differing } => {
                let differs = |name: &str| differing.iter().any(|key| key.contains(name));
                let names = names.filter(|(_, name)| differs(name));
                (What::Promoted, names.map(|(index, _)| 1 << index).sum())
            }
            MasterChange::OldMasterServes => (What::Splits, u32::MAX),
            MasterChange::OldMasterGone => (What::Joins, u32::MAX),
        };
        let (owner, side) = (0, Side::Alone);
        self.scene.log.note(Spot { owner, names, side }, what);
    }
}

/// A command as a line of the story.
fn story(executed: &Executed<'_>) -> String {
    let mut line = format!("  {} <- {}", executed.connection, executed.command);
    for (index, arg) in executed.args.iter().enumerate() {
        let text = String::from_utf8_lossy(arg);
        line.push(' ');
        match executed.command {
            "EVAL" if index == 0 => line.push_str(subject(&text)),
            // A SHA-1, or the name of a script with a model.
            "EVALSHA" if index == 0 && text.len() == 40 => line.push_str(&text[..8]),
            _ => line.push_str(&text),
        }
    }
    format!("{line} = {:?}", executed.answer)
}

/// The sentence that says what a script does: the first of the last comment that names keys.
fn subject(script: &str) -> &str {
    let before = script
        .rsplit_once("\n-- KEYS")
        .map_or(script, |(before, _)| before);
    let mut sentence = before;
    for line in before.lines().rev() {
        match line.strip_prefix("-- ") {
            Some(comment) => sentence = comment,
            None if line == "--" => {}
            None => break,
        }
    }
    sentence
}
