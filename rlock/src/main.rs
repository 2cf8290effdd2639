//! `rlock`: locks of Redisson's format from the command line.

mod address_map;
mod answers;
mod bench;
mod cli;
#[cfg(unix)]
mod command;
#[cfg(all(test, unix))]
mod ctrl_c;
mod doctor;
mod entry;
mod fleet;
#[cfg(unix)]
mod leash;
mod locks;
mod ls;
mod nodes;
mod out;
#[cfg_attr(not(unix), path = "run_refused.rs")]
mod run;
mod servers;
#[cfg_attr(not(unix), path = "ctrl_c.rs")]
mod signals;
mod table;
#[cfg(unix)]
mod terminal;
mod watch;

use std::{
    io::{Write, stderr, stdout},
    process::ExitCode,
};

use clap::{CommandFactory, error::ErrorKind};
use redisson_lock::Error;

use cli::{Args, Verb};
use servers::Servers;

/// The exit codes of `rlock` itself, from `sysexits.h` and the shells.
#[cfg_attr(not(unix), allow(dead_code, reason = "run has most of them"))]
mod exit {
    pub const USAGE: u8 = 64;
    pub const UNAVAILABLE: u8 = 69;
    pub const FAILED: u8 = 70;
    pub const BUSY: u8 = 75;
    pub const LOST: u8 = 76;
    pub const CANNOT_RUN: u8 = 126;
    pub const NOT_FOUND: u8 = 127;
    /// The code that a shell reports for a process that SIGPIPE ended.
    pub const BROKEN_PIPE: u8 = 141;
}

/// The options for the settings that errors of the library name.
const OPTIONS: [(&str, &str); 8] = [
    ("`address_map`", "--map"),
    ("`ca_file`", "--cacert"),
    ("`client_certificate` or `key_store`", "--cert and --key"),
    ("`server_name`", "--sni"),
    ("`tls_verification` to `Ca`", "--tls-verification to ca"),
    (
        "set `sentinelUsername` and `sentinelPassword`",
        "set --sentinel-user and --sentinel-password-file",
    ),
    (
        "user without a password: write",
        "user without a password: give --password-file or set RLOCK_PASSWORD, or write",
    ),
    (
        "without a sentinelPassword: set",
        "without a sentinelPassword: give --sentinel-password-file or set RLOCK_SENTINEL_PASSWORD, or set",
    ),
];

/// A failure: the exit code, and the message for standard error.
struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    fn silent(code: u8) -> Self {
        Self {
            code,
            message: String::new(),
        }
    }

    fn usage(message: impl Into<String>) -> Self {
        Self {
            code: exit::USAGE,
            message: message.into(),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Unavailable { .. } => exit::UNAVAILABLE,
            Error::Config { .. } | Error::InvalidName { .. } => exit::USAGE,
            Error::Lost { .. } => exit::LOST,
            _ => exit::FAILED,
        };
        let message = match &error {
            Error::WrongKind { .. } => format!("{error} (set it by --kind)"),
            _ => error.to_string(),
        };
        // What to do, in the words of the command line.
        let options = OPTIONS.iter();
        let message = options.fold(message, |text, (setting, option)| {
            text.replace(setting, option)
        });
        Self { code, message }
    }
}

fn main() -> ExitCode {
    play().into()
}

/// Returns the exit code.
fn play() -> u8 {
    let args = match Args::read() {
        Ok(args) => args,
        Err(error) => {
            // Help is printed to standard output, which may be closed.
            let _ = match error.kind() {
                // The error itself would list the hidden verbs.
                ErrorKind::MissingSubcommand => {
                    write!(stderr(), "{}", Args::command().render_help())
                }
                _ => error.print(),
            };
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => 0,
                _ => exit::USAGE,
            };
        }
    };
    let done = match args.verb {
        #[cfg(unix)]
        // Runs before any thread exists: a thread could receive the signals.
        Verb::Leash { kill_after_ms } => Ok(leash::hold(kill_after_ms)),
        #[cfg(unix)]
        Verb::Die { signal } => Ok(signals::die_by(signal)),
        Verb::Completions { shell } => completions(shell),
        Verb::Man { verb } => man(verb.as_deref()),
        _ => on_runtime(args),
    };
    done.unwrap_or_else(|Failure { code, message }| {
        if !message.is_empty() {
            out::complain(&message);
        }
        code
    })
}

fn completions(shell: clap_complete::Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "rlock", &mut script);
    print(&script)
}

fn man(verb: Option<&str>) -> Result<u8, Failure> {
    let mut command = Args::command();
    if let Some(verb) = verb {
        command.build();
        let found = command.find_subcommand(verb).cloned();
        let found = found.filter(|found| !found.is_hide_set());
        let found = found
            .ok_or_else(|| Failure::usage(format!("unknown verb {verb:?}: see rlock help")))?;
        command = found;
    }
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(command).render(&mut page);
    rendered.map_err(|error| Failure::usage(error.to_string()))?;
    print(&page)
}

fn print(text: &[u8]) -> Result<u8, Failure> {
    out::written(stdout().write_all(text).and_then(|()| stdout().flush()))?;
    Ok(0)
}

fn on_runtime(args: Args) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| Failure {
        code: exit::FAILED,
        message: format!("tokio cannot start: {error}"),
    })?;
    let done = runtime.block_on(at_server(args));
    runtime.shutdown_background();
    #[cfg(unix)]
    if let Ok(Done::ByKey(code)) = done {
        command::die_by_key(code);
    }
    done.map(|done| done.code())
}

/// The outcome of a verb that did not fail.
pub enum Done {
    Code(u8),
    /// The signal of a terminal key ended the command.
    #[cfg(unix)]
    ByKey(u8),
}

impl Done {
    fn code(&self) -> u8 {
        match self {
            Done::Code(code) => *code,
            #[cfg(unix)]
            Done::ByKey(code) => *code,
        }
    }
}

async fn at_server(args: Args) -> Result<Done, Failure> {
    if let Verb::Run(asked) = &args.verb {
        asked.check()?;
    }
    let Some(url) = args.server().map(str::to_owned) else {
        return Err(Failure::usage(
            "no server is given: use --url or REDIS_URL, for example redis://127.0.0.1:6379",
        ));
    };
    let json = args.json;
    let servers = Servers::new(url, args.options)?;
    match args.verb {
        Verb::Doctor { name, kinds, .. } => doctor::doctor(&servers, &name, &kinds, json).await,
        Verb::Watch { pattern, every } => watch::watch(&servers, &pattern, every, json).await,
        Verb::Bench { time, .. } => bench::bench(&servers, time, json).await,
        Verb::Ls { pattern, all } => ls::ls(&servers, &pattern, all, json).await,
        verb => with_client(&servers, verb, json).await,
    }
}

async fn with_client(servers: &Servers, verb: Verb, json: bool) -> Result<Done, Failure> {
    let client = servers.connect().await?;
    let done = match verb {
        #[cfg(unix)]
        Verb::Run(asked) => run::run(&client, &asked, json).await,
        Verb::Show { name, kind } => locks::show(servers, &client, &name, kind, json).await,
        Verb::Unlock {
            name, kind, yes, ..
        } => locks::unlock(servers, &client, &name, kind, yes, json).await,
        _ => Ok(Done::Code(0)),
    };
    client.shutdown_and_release().await;
    done
}
