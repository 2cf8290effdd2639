//! `rlock`: locks of Redisson's format from the command line.

mod cli;
mod command;
mod locks;
mod run;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, error::ErrorKind};
use redisson_lock::{Error, LockClient};

use cli::{Args, Verb};

/// Exit codes besides that of a command that was run, by sysexits.
mod exit {
    pub const USAGE: u8 = 64;
    pub const UNAVAILABLE: u8 = 69;
    pub const FAILED: u8 = 70;
    pub const BUSY: u8 = 75;
    pub const LOST: u8 = 76;
}

/// What ends the program, other than success: the exit code, and what is said before.
struct Failure {
    code: u8,
    message: String,
}

impl Failure {
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
        Self {
            code,
            message: error.to_string(),
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => exit::USAGE.into(),
            };
        }
    };
    match play(args).await {
        Ok(code) => code,
        Err(Failure { code, message }) => {
            eprintln!("rlock: {message}");
            code.into()
        }
    }
}

async fn play(args: Args) -> Result<ExitCode, Failure> {
    match args.verb {
        Verb::Completions { shell } => {
            let mut command = Args::command();
            clap_complete::generate(shell, &mut command, "rlock", &mut std::io::stdout());
            return Ok(ExitCode::SUCCESS);
        }
        Verb::Man => {
            let page = clap_mangen::Man::new(Args::command());
            let written = page.render(&mut std::io::stdout());
            return written
                .map(|()| ExitCode::SUCCESS)
                .map_err(|error| Failure::usage(error.to_string()));
        }
        _ => {}
    }
    let Some(url) = args.url else {
        return Err(Failure::usage(
            "which server? Give --url, or set REDIS_URL, for example redis://127.0.0.1:6379",
        ));
    };
    let client = LockClient::connect(&url).await?;
    let done = match args.verb {
        Verb::Run(asked) => run::run(&client, asked).await,
        Verb::Show { name, kind } => locks::show(&client, &name, kind, args.json).await,
        Verb::Unlock {
            name, kind, yes, ..
        } => locks::unlock(&client, &name, kind, yes, args.json).await,
        Verb::Completions { .. } | Verb::Man => Ok(ExitCode::SUCCESS),
    };
    client.shutdown_and_release().await;
    done
}
