//! The command line: verbs, options and exit codes.

use std::{env, ffi::OsString, path::PathBuf, time::Duration};

use clap::{
    Arg, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, parser::ValueSource,
};
use clap_complete::Shell;

use crate::address_map::Rule;

/// The hidden verb of the process that ends the command when the lock ends.
#[cfg(unix)]
pub const LEASH: &str = "__leash";
/// The hidden verb by which `rlock` ends itself by a signal.
#[cfg(unix)]
pub const DIE: &str = "__die";

const EXIT_CODES: &str = "\
Exit codes:
  0    done; with `run --if-held skip`, also if another owner holds the lock
  any  with `run`, the exit code of the command, or 128 + n if signal n ended it
  1    `doctor` found a warning
  2    `doctor` found a problem
  64   wrong usage
  69   Redis could not be reached, or cannot answer at the moment
  70   Redis refused a command, or another failure
  75   another owner holds the lock
  76   the lock was lost while the command ran
  126  the command could not be run
  127  the command was not found
  141  the reader of the output has closed the pipe";

/// Locks on Redis and Valkey, compatible with Redisson: run a command under a lock, list locks, force a lock open.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_CODES)]
pub struct Args {
    /// The server: redis://, rediss://, redis-sentinel://, redis-cluster://, redis-replicated://, unix://.
    #[arg(long, env = "REDIS_URL", hide_env_values = true, global = true)]
    pub url: Option<String>,

    /// Print one JSON object a line; `run` prints one at its end.
    #[arg(long, global = true)]
    pub json: bool,

    #[command(flatten)]
    pub options: Options,

    #[command(subcommand)]
    pub verb: Verb,
}

/// The options that concern sentinels alone, by their ids.
const OF_SENTINELS: [&str; 4] = [
    "sentinel_user",
    "sentinel_password_file",
    "sentinel_sni",
    "sentinel_tls_verification",
];

impl Args {
    /// Reads the command line and the variables. Ignores an empty variable: compose files set variables that have no value. Ignores
    /// variables for sentinels and nodes of a cluster if the URL names none: an environment may have them for further servers.
    pub fn read() -> Result<Self, clap::Error> {
        let is_empty = |arg: &Arg| {
            let value = arg.get_env().and_then(env::var_os);
            value.is_some_and(|value| value.is_empty())
        };
        let command = Self::command().mut_args(|arg| match is_empty(&arg) {
            true => arg.env(None::<&str>),
            false => arg,
        });
        let mut matches = command.try_get_matches().map_err(without_variables)?;
        let args = Self::from_arg_matches(&matches)?;
        let url = args.server().unwrap_or_default();
        let of_sentinels = OF_SENTINELS.into_iter().filter(|_| !names_sentinels(url));
        let map = (!announces(url)).then_some("map");
        for id in of_sentinels.chain(map) {
            if matches.value_source(id) == Some(ValueSource::EnvVariable) {
                let _ = matches.try_clear_id(id);
            }
        }
        Self::from_arg_matches(&matches)
    }

    /// The URL of the servers: the verb's own, or that of `--url`.
    pub fn server(&self) -> Option<&str> {
        let own = match &self.verb {
            Verb::Doctor { server, .. } | Verb::Bench { server, .. } => server.as_deref(),
            _ => None,
        };
        own.or(self.url.as_deref())
    }
}

/// Returns the error as it is without variables: the usage in an error shows each option that has a value as if it were required.
/// An error in a variable itself stays as it is.
fn without_variables(error: clap::Error) -> clap::Error {
    let bare = Args::command().mut_args(|arg| arg.env(None::<&str>));
    match bare.try_get_matches() {
        Err(bare) if error.use_stderr() && bare.kind() == error.kind() => bare,
        _ => error,
    }
}

/// Whether the URL names sentinels.
pub fn names_sentinels(url: &str) -> bool {
    is_of(url, "-sentinel")
}

/// Whether the URL names servers that announce the addresses of further ones.
pub fn announces(url: &str) -> bool {
    names_sentinels(url) || is_of(url, "-cluster")
}

fn is_of(url: &str, set_up: &str) -> bool {
    let scheme = url.split("://").next().unwrap_or_default();
    scheme.to_lowercase().ends_with(set_up)
}

/// How to reach the servers.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Where this machine reaches a server that sentinels or nodes of a cluster announce. FROM and TO are host:port, or a host, which
    /// keeps the port; `*` is every host. Repeatable. In the variable, commas separate translations.
    #[arg(
        long,
        value_name = "FROM=TO",
        env = "RLOCK_MAP",
        value_delimiter = ',',
        global = true
    )]
    pub map: Vec<Rule>,

    #[command(flatten)]
    pub login: Login,

    #[command(flatten)]
    pub tls: Tls,
}

/// The login, instead of the URL's. A password alone is for the user of the URL. No option takes a password, which other users of the machine could read.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Login")]
pub struct Login {
    /// The user, whose password is in --password-file or RLOCK_PASSWORD.
    #[arg(long, value_name = "NAME", env = "RLOCK_USER", global = true)]
    pub user: Option<String>,
    /// The file with the password, before RLOCK_PASSWORD.
    #[arg(long, value_name = "FILE", env = "RLOCK_PASSWORD_FILE", global = true)]
    pub password_file: Option<PathBuf>,
    /// The user at the sentinels, whose password is in --sentinel-password-file or RLOCK_SENTINEL_PASSWORD.
    #[arg(long, value_name = "NAME", env = "RLOCK_SENTINEL_USER", global = true)]
    pub sentinel_user: Option<String>,
    /// The file with the password for the sentinels, before RLOCK_SENTINEL_PASSWORD.
    #[arg(
        long,
        value_name = "FILE",
        env = "RLOCK_SENTINEL_PASSWORD_FILE",
        global = true
    )]
    pub sentinel_password_file: Option<PathBuf>,
}

/// The settings of TLS connections, under redis-cli's names.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "TLS")]
pub struct Tls {
    /// The authority that signed the server's certificate, as PEM. The default is the system's authorities.
    #[arg(long, value_name = "FILE", env = "RLOCK_CACERT", global = true)]
    pub cacert: Option<PathBuf>,
    /// This client's certificate, as PEM.
    #[arg(long, value_name = "FILE", env = "RLOCK_CERT", global = true)]
    pub cert: Option<PathBuf>,
    /// The key of this client's certificate, as PEM.
    #[arg(long, value_name = "FILE", env = "RLOCK_KEY", global = true)]
    pub key: Option<PathBuf>,
    /// The name in the server's certificate, if it is not the host to which rlock connects.
    #[arg(long, value_name = "NAME", env = "RLOCK_SNI", global = true)]
    pub sni: Option<String>,
    /// The same for the sentinels.
    #[arg(long, value_name = "NAME", env = "RLOCK_SENTINEL_SNI", global = true)]
    pub sentinel_sni: Option<String>,
    /// How far the server's certificate is checked.
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        env = "RLOCK_TLS_VERIFICATION",
        global = true
    )]
    pub tls_verification: Option<Verification>,
    /// The same for the sentinels.
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        env = "RLOCK_SENTINEL_TLS_VERIFICATION",
        global = true
    )]
    pub sentinel_tls_verification: Option<Verification>,
    /// The same as --tls-verification none. Overrules another --tls-verification and its variable.
    #[arg(long, global = true)]
    pub insecure: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Verification {
    /// Authority, dates and name.
    Full,
    /// Authority and dates, under any name: for a tunnel to several servers.
    Ca,
    /// Nothing: any machine on the way can read the password and change the locks.
    None,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a command while holding the lock.
    Run(Run),
    /// Show whether a lock is held, and the rest of its lease.
    Show {
        /// The name of the lock.
        name: String,
        /// The kind of the lock. By default, the kind that its data show.
        #[arg(long, value_enum)]
        kind: Option<Kind>,
    },
    /// List the locks that are held or have waiters, with their holders.
    Ls {
        /// The names to list, as a pattern of Redis: `*`, `?`, `[ab]`.
        #[arg(default_value = "*")]
        pattern: String,
        /// Also list keys that are not locks.
        #[arg(long)]
        all: bool,
    },
    /// Free a lock, no matter which owner has it. A holder with a renewed lease learns of it at its next renewal, other holders
    /// later.
    Unlock {
        /// The name of the lock.
        name: String,
        /// The kind of the lock. By default, the kind that its data show.
        #[arg(long, value_enum)]
        kind: Option<Kind>,
        /// Confirm that the lock of another owner is freed. Always required.
        #[arg(long, required = true)]
        force: bool,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
    },
    /// Watch acquisitions and releases: as a table on a terminal (q ends it), otherwise as lines.
    Watch {
        /// The names to watch, as a pattern of Redis: `*`, `?`, `[ab]`.
        #[arg(default_value = "*")]
        pattern: String,
        /// The interval between two scans. A lock acquired and released in between is not shown.
        #[arg(long, value_parser = duration, default_value = "1s")]
        every: Duration,
    },
    /// Measure how fast locks are from this machine, on names that begin with `rlock:bench:`.
    Bench {
        /// The server, instead of --url.
        server: Option<String>,
        /// The measuring time of each row.
        #[arg(long, value_parser = positive, default_value = "2s")]
        time: Duration,
    },
    /// Check that the servers are set up for safe locks. Exits with 0, with 1 after a warning, with 2 after a problem.
    Doctor {
        /// The server, instead of --url.
        server: Option<String>,
        /// The name of the lock that the check acquires and for which it checks the rights.
        #[arg(long, default_value = "rlock:doctor")]
        name: String,
        /// A kind that is in use: missing rights for it are a problem. Repeatable; by default all kinds are checked.
        #[arg(long = "kind", value_enum)]
        kinds: Vec<Kind>,
    },
    /// Print a completion script.
    Completions {
        /// The shell to complete for.
        shell: Shell,
    },
    /// Print the manual page, or that of a verb.
    Man {
        /// The verb.
        verb: Option<String>,
    },
    #[cfg(unix)]
    #[command(name = LEASH, hide = true)]
    Leash { kill_after_ms: u64 },
    #[cfg(unix)]
    #[command(name = DIE, hide = true)]
    Die { signal: i32 },
}

#[derive(Debug, clap::Args)]
#[cfg_attr(not(unix), allow(dead_code, reason = "run is refused"))]
pub struct Run {
    /// The name of the lock.
    pub name: String,

    /// The kind of the lock. With `fenced`, RLOCK_TOKEN has the fencing token.
    #[arg(long, value_enum, default_value_t)]
    pub kind: Kind,

    /// The longest wait for the lock, for example 10s; a bare number means seconds. By default it has no limit.
    #[arg(long, value_parser = duration)]
    pub wait: Option<Duration>,

    /// A fixed lease, for example 5m. By default the lock is renewed as long as the command runs.
    #[arg(long, value_parser = duration)]
    pub lease: Option<Duration>,

    /// What to do if another owner holds the lock.
    #[arg(long, value_enum, default_value_t)]
    pub if_held: IfHeld,

    /// The time between SIGTERM and SIGKILL, at most half of the lease. By default 2s, or half of a shorter lease. If the lock
    /// was forced open, at most 500ms, because another owner may have it.
    #[arg(long, value_parser = duration)]
    pub kill_after: Option<Duration>,

    /// The command, and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    #[default]
    Reentrant,
    Fair,
    Fenced,
    Read,
    Write,
    Simple,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum IfHeld {
    /// Wait as long as --wait allows, then exit with 75.
    #[default]
    Wait,
    /// Do not run the command, and exit with 0.
    Skip,
    /// Do not run the command, and exit with 75.
    Fail,
}

/// Parses a duration. A bare number means seconds, as for `flock(1)` and `timeout(1)`.
fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok();
    if let Some(seconds) = seconds {
        return Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string());
    }
    humantime::parse_duration(text).map_err(|error| error.to_string())
}

/// Parses a duration that is not zero.
fn positive(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    match duration.is_zero() {
        true => Err("it must be longer than zero".to_owned()),
        false => Ok(duration),
    }
}
