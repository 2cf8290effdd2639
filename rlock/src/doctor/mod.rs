//! `doctor`: checks that the servers are set up for safe locks.

mod commands;
mod messages;
mod rights;
mod server;
mod topology;

use redisson_lock::probe::SetUp;
use serde_json::json;

use crate::{Done, Failure, cli::Kind, fleet::Fleet, out::say, servers::Servers, table::Paint};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Fine,
    /// An observation that requires no action.
    Note,
    /// A guarantee is weaker than it could be.
    Warning,
    /// Locks do not work, or do not exclude other clients.
    Problem,
}

impl Level {
    fn text(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }

    fn painted(self) -> String {
        let padded = format!("{:7}", self.text());
        match self {
            Self::Fine => Paint::Green.on(&padded),
            Self::Note => padded,
            Self::Warning => Paint::Yellow.on(&padded),
            Self::Problem => Paint::Red.on(&padded),
        }
    }

    /// The exit code if this is the worst finding.
    fn code(self) -> u8 {
        match self {
            Self::Fine | Self::Note => 0,
            Self::Warning => 1,
            Self::Problem => 2,
        }
    }
}

/// A finding, and the remedy.
#[derive(Debug)]
pub struct Finding {
    pub level: Level,
    /// The subject of the check, in one word.
    pub about: &'static str,
    pub says: String,
    pub to_do: Option<String>,
}

/// All findings so far.
#[derive(Default)]
pub struct Findings(Vec<Finding>);

impl Findings {
    pub fn fine(&mut self, about: &'static str, says: impl Into<String>) {
        self.push(Level::Fine, about, says, None);
    }

    pub fn note(&mut self, about: &'static str, says: impl Into<String>) {
        self.push(Level::Note, about, says, None);
    }

    pub fn advise(&mut self, about: &'static str, says: impl Into<String>, to_do: &str) {
        self.push(Level::Note, about, says, Some(to_do.to_owned()));
    }

    pub fn warn(&mut self, about: &'static str, says: impl Into<String>, to_do: &str) {
        self.push(Level::Warning, about, says, Some(to_do.to_owned()));
    }

    pub fn problem(&mut self, about: &'static str, says: impl Into<String>, to_do: &str) {
        self.push(Level::Problem, about, says, Some(to_do.to_owned()));
    }

    fn push(
        &mut self,
        level: Level,
        about: &'static str,
        says: impl Into<String>,
        to_do: Option<String>,
    ) {
        self.0.push(Finding {
            level,
            about,
            says: says.into(),
            to_do,
        });
    }

    fn worst(&self) -> Level {
        let levels = self.0.iter().map(|finding| finding.level);
        levels.max().unwrap_or(Level::Fine)
    }
}

pub async fn doctor(
    servers: &Servers,
    name: &str,
    kinds: &[Kind],
    json: bool,
) -> Result<Done, Failure> {
    let probe = servers.probe()?;
    let mut findings = Findings::default();
    let mut fleet = Fleet::connect(&probe).await?;
    match probe.set_up() {
        SetUp::Sentinel(service) => topology::sentinels(&probe, service, &mut findings).await?,
        SetUp::Cluster => topology::cluster(&probe, &mut fleet, &mut findings).await?,
        SetUp::Single | SetUp::Replicated => {}
    }
    let mut clocks = server::Clocks::default();
    for master in &mut fleet.masters {
        server::look(&probe, master, &mut findings, &mut clocks).await?;
    }
    clocks.compare(&mut findings);
    commands::look(&probe, name, &mut findings).await?;
    if let Some(first) = fleet.masters.first_mut() {
        rights::look(&probe, first, name, kinds, &mut findings).await?;
    }
    messages::look(servers, name, &mut findings).await?;
    tell(&findings, json)
}

fn tell(findings: &Findings, json: bool) -> Result<Done, Failure> {
    for Finding {
        level,
        about,
        says,
        to_do,
    } in &findings.0
    {
        if json {
            let told = json!({
                "level": level.text(),
                "about": about,
                "finding": says,
                "to_do": to_do,
            });
            say(told.to_string())?;
            continue;
        }
        say(format!("{}  {about}: {says}", level.painted()))?;
        if let Some(to_do) = to_do {
            say(format!("         {to_do}"))?;
        }
    }
    let worst = findings.worst();
    if !json {
        let count = |level| {
            findings
                .0
                .iter()
                .filter(|found| found.level == level)
                .count()
        };
        let (problems, warnings) = (count(Level::Problem), count(Level::Warning));
        say(format!("problems: {problems}, warnings: {warnings}"))?;
    }
    Ok(Done::Code(worst.code()))
}
