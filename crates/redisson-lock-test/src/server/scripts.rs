//! Scripts of a server.

use bytes::Bytes;

use super::{
    super::{
        Failure, Frame, Outcome, Refusal,
        command::{Command, NO_SCRIPT, STALE},
        interpreter::{Interpreter, Run, Sha},
        number::parse_integer,
    },
    Caller,
    answers::ok,
};

const UNKNOWN: &str = "NOSCRIPT No matching script. Please use EVAL.";

pub(super) const COMMANDS: &[Command] = &[
    Command::session("script|load", 3, NO_SCRIPT | STALE, load),
    Command::session("script|exists", -3, NO_SCRIPT, exists),
    Command::session("script|flush", -2, NO_SCRIPT, flush),
];

/// Arguments of a command.
type Words<'a, 'b> = &'a [&'b [u8]];

/// The keys and the arguments of a script.
fn split<'a, 'b>(args: Words<'a, 'b>) -> Result<(Words<'a, 'b>, Words<'a, 'b>), Failure> {
    let keys = parse_integer(args[1])?;
    let rest = &args[2..];
    match usize::try_from(keys) {
        Ok(keys) if keys <= rest.len() => Ok(rest.split_at(keys)),
        Ok(_) => Err("ERR Number of keys can't be greater than number of args".into()),
        Err(_) => Err("ERR Number of keys can't be negative".into()),
    }
}

impl Caller<'_> {
    /// Compiles a script, so that `EVALSHA` finds it.
    fn learn(&mut self, source: &[u8]) -> Result<Sha, Failure> {
        let (sha, source) = Interpreter::with(|interpreter| interpreter.compile(source))?;
        self.server.scripts.entry(sha).or_insert(source);
        Ok(sha)
    }

    fn run(&mut self, sha: &Sha, keys: &[&[u8]], args: &[&[u8]]) -> Outcome {
        if self.server.data.refusal == Some(Refusal::MasterDown) {
            return Err(Refusal::MasterDown.message().into());
        }
        let source = self.server.scripts.get(sha).ok_or(UNKNOWN)?;
        // Each operation of the script fails in it. A client would repeat the operations of a refused call one by one.
        if self.server.settings.failing_scripts > 0 {
            self.server.settings.failing_scripts -= 1;
            self.server.data.refusal = Some(Refusal::Requested);
        }
        let run = Run {
            sha,
            source,
            keys,
            args,
            now: self.now,
        };
        let data = &mut self.server.data;
        Ok(Interpreter::with(|interpreter| interpreter.run(data, &run)))
    }
}

pub(super) fn eval(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    let (keys, rest) = split(args)?;
    let sha = caller.learn(args[0])?;
    caller.run(&sha, keys, rest)
}

pub(super) fn evalsha(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    let sha = sha(args[0]).ok_or(UNKNOWN)?;
    let (keys, rest) = split(args)?;
    caller.run(&sha, keys, rest)
}

/// Reads the digits of a SHA-1.
fn sha(digits: &[u8]) -> Option<Sha> {
    let mut sha = Sha::try_from(digits).ok()?;
    sha.make_ascii_lowercase();
    Some(sha)
}

fn load(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    let sha = caller.learn(args[0])?;
    Ok(Frame::Text(Bytes::copy_from_slice(&sha)))
}

fn exists(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    let known = |digits: &&[u8]| {
        let sha = sha(digits);
        sha.is_some_and(|sha| caller.server.scripts.contains_key(&sha))
    };
    let flags = args
        .iter()
        .map(|digits| Frame::Number(known(digits).into()));
    Ok(Frame::List(flags.collect()))
}

fn flush(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    match args {
        [] => {}
        [how] if how.eq_ignore_ascii_case(b"sync") || how.eq_ignore_ascii_case(b"async") => {}
        _ => return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into()),
    }
    caller.server.scripts.clear();
    Ok(ok())
}
