//! The words of the command line.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// What this program calls the process that ends a command with its lock.
pub const LEASH: &str = "__leash";
/// What it calls itself to end by a signal.
pub const DIE: &str = "__die";

const EXIT_CODES: &str = "\
Exit codes:
  0    done; with `run`, the code of the command, and 128 + n if signal n ended it
  1    `doctor` warns of something
  2    `doctor` has found a problem
  64   wrong usage
  69   Redis could not be reached
  70   Redis refused, or something else failed
  75   another owner has the lock
  76   the lock was lost while the command ran
  126  the command could not be run
  127  the command was not found
  141  nothing reads the output any more";

/// Locks on Redis and Valkey that exclude Redisson's: run a command under one, look at one, force one open.
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
    pub tls: Tls,

    #[command(subcommand)]
    pub verb: Verb,
}

/// What a server that is connected to by TLS is to be shown, and to show.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "TLS")]
pub struct Tls {
    /// The authority that has signed the server's certificate, as PEM; otherwise those of the system.
    #[arg(long, value_name = "FILE", env = "RLOCK_CA_FILE", global = true)]
    pub ca_file: Option<PathBuf>,
    /// This client's certificate, as PEM.
    #[arg(long, value_name = "FILE", env = "RLOCK_CERT_FILE", global = true)]
    pub cert_file: Option<PathBuf>,
    /// The key of this client's certificate, as PEM.
    #[arg(long, value_name = "FILE", env = "RLOCK_KEY_FILE", global = true)]
    pub key_file: Option<PathBuf>,
    /// The name in the server's certificate, if it is not the host of the URL.
    #[arg(long, value_name = "NAME", env = "RLOCK_SERVER_NAME", global = true)]
    pub server_name: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a command while the lock is held.
    Run(Run),
    /// Show whether a lock is taken, and what is left of its lease.
    Show {
        /// The name of the lock.
        name: String,
        /// What the services that use it take it for.
        #[arg(long, value_enum, default_value_t)]
        kind: Kind,
    },
    /// List the locks that are held, or waited for, with their holders.
    Ls {
        /// The names to list, as a pattern of Redis: `*`, `?`, `[ab]`.
        #[arg(default_value = "*")]
        pattern: String,
        /// Name keys too that are no locks.
        #[arg(long)]
        all: bool,
    },
    /// Free a lock, no matter which owner has it. Its holder learns of it at its next renewal.
    Unlock {
        /// The name of the lock.
        name: String,
        /// What the services that use it take it for.
        #[arg(long, value_enum, default_value_t)]
        kind: Kind,
        /// Free the lock although this program does not hold it: there is no other way to use this command.
        #[arg(long, required = true)]
        force: bool,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
    /// Watch locks being taken and released: a table on a terminal (q ends it), and otherwise lines.
    Watch {
        /// The names to watch, as a pattern of Redis: `*`, `?`, `[ab]`.
        #[arg(default_value = "*")]
        pattern: String,
        /// How often to look. What is taken and released in between is not seen.
        #[arg(long, value_parser = humantime::parse_duration, default_value = "1s")]
        every: Duration,
    },
    /// Measure how fast locks are from here, on names that begin with `rlock:bench:`.
    Bench {
        /// The server, instead of --url.
        server: Option<String>,
        /// How long to measure each row.
        #[arg(long, value_parser = humantime::parse_duration, default_value = "2s")]
        time: Duration,
    },
    /// Look whether the servers are set up so that locks are safe. Exits with 0, with 1 after a warning, 2 after a problem.
    Doctor {
        /// The server, instead of --url.
        server: Option<String>,
        /// The name of a lock that is taken for a moment, and that rights are looked at for.
        #[arg(long, default_value = "rlock:doctor")]
        name: String,
        /// A kind that is in use: lacking rights for it are a problem. Can be given several times; by default, all are looked at.
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
    #[command(name = LEASH, hide = true)]
    Leash { kill_after_ms: u64 },
    #[command(name = DIE, hide = true)]
    Die { signal: i32 },
}

#[derive(Debug, clap::Args)]
pub struct Run {
    /// The name of the lock.
    pub name: String,

    /// The kind of lock. With `fenced`, the command finds the fencing token in RLOCK_TOKEN.
    #[arg(long, value_enum, default_value_t)]
    pub kind: Kind,

    /// How long to wait for the lock, for example 10s; for ever by default.
    #[arg(long, value_parser = humantime::parse_duration)]
    pub wait: Option<Duration>,

    /// A fixed lease, for example 5m. By default the lock is renewed for as long as the command runs.
    #[arg(long, value_parser = humantime::parse_duration)]
    pub lease: Option<Duration>,

    /// What to do if another owner has the lock.
    #[arg(long, value_enum, default_value_t)]
    pub if_held: IfHeld,

    /// How long the command has to end after SIGTERM, before SIGKILL: at most half of the lease. By default 2s, or half of a
    /// shorter lease. If the lock was forced open, at most 500ms, as another owner may have it.
    #[arg(long, value_parser = humantime::parse_duration)]
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
    /// Wait, for as long as --wait says; then exit with 75.
    #[default]
    Wait,
    /// Do not run the command, and exit with 0.
    Skip,
    /// Do not run the command, and exit with 75.
    Fail,
}
