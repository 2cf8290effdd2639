//! Lua 5.1, as in Redis.

mod calls;
mod errors;
mod message_pack;
mod replies;
mod sandbox;

use std::{cell::RefCell, collections::HashMap, fmt, mem};

use bytes::Bytes;
use foldhash::fast::FixedState;
use mlua::{BString, Either, Function, Lua, LuaString};

use super::{
    Data, Frame,
    cluster::{HashSlot, hash_slot},
};
use errors::Raised;

/// A SHA-1 in hexadecimal digits.
pub(crate) type Sha = [u8; 40];

/// The SHA-1 of a script.
pub(crate) fn sha_of(source: &[u8]) -> Sha {
    let mut sha = [0; 40];
    let digits = sha1_smol::Sha1::from(source).digest().to_string();
    sha.copy_from_slice(digits.as_bytes());
    sha
}

/// A Lua state with the scripts that it has compiled. The servers of a thread share it; one script runs at a time.
pub(crate) struct Interpreter {
    lua: Lua,
    run: Function,
    compiled: RefCell<HashMap<Sha, Function, FixedState>>,
    /// The SHA-1 of each source, which takes longer than most scripts.
    known: RefCell<HashMap<Bytes, Sha, FixedState>>,
}

thread_local! {
    /// One per thread, so that no call between a script and its server takes a mutex.
    static INTERPRETER: Interpreter = Interpreter::new();
    /// The state of the running script of this thread. It is not captured by the functions that scripts call, because these must be
    /// `Send` if another crate enables that feature of mlua.
    static STATE: RefCell<State> = RefCell::default();
}

impl fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interpreter").finish_non_exhaustive()
    }
}

/// The state of the running script.
#[derive(Default)]
struct State {
    data: Data,
    now: u64,
    /// Whether the script has written.
    wrote: bool,
    /// The slot of its keys, once it has any.
    slot: Option<HashSlot>,
}

/// A script to run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) sha: &'a Sha,
    pub(crate) source: &'a [u8],
    pub(crate) keys: &'a [&'a [u8]],
    pub(crate) args: &'a [&'a [u8]],
    pub(crate) now: u64,
}

/// Uses the state of this thread's script.
fn with_state<T>(used: impl FnOnce(&mut State) -> T) -> T {
    STATE.with_borrow_mut(used)
}

impl Interpreter {
    /// Creates a Lua state with the libraries of Redis's scripts.
    pub(crate) fn new() -> Self {
        Self::try_new().expect("the libraries of the in-memory Redis are valid Lua")
    }

    fn try_new() -> mlua::Result<Self> {
        let (lua, run) = sandbox::open()?;
        Ok(Self {
            lua,
            run,
            compiled: RefCell::default(),
            known: RefCell::default(),
        })
    }

    /// Uses the interpreter of this thread.
    pub(crate) fn with<T>(used: impl FnOnce(&Self) -> T) -> T {
        INTERPRETER.with(used)
    }

    /// Compiles a script. Returns the compiler's error for an invalid script.
    pub(crate) fn compile(&self, source: &[u8]) -> Result<(Sha, Bytes), String> {
        if let Some((source, sha)) = self.known.borrow().get_key_value(source) {
            return Ok((*sha, source.clone()));
        }
        let (sha, source) = (sha_of(source), Bytes::copy_from_slice(source));
        self.function(&sha, &source)?;
        self.known.borrow_mut().insert(source.clone(), sha);
        Ok((sha, source))
    }

    fn function(&self, sha: &Sha, source: &[u8]) -> Result<Function, String> {
        if let Some(function) = self.compiled.borrow().get(sha) {
            return Ok(function.clone());
        }
        let function = sandbox::compile(&self.lua, source).map_err(|error| {
            let message = errors::syntax_message(&error);
            format!("ERR Error compiling script (new function): {message}")
        })?;
        self.compiled.borrow_mut().insert(*sha, function.clone());
        Ok(function)
    }

    /// Runs a script on the data of a server.
    pub(crate) fn run(&self, data: &mut Data, run: &Run<'_>) -> Frame {
        let function = match self.function(run.sha, run.source) {
            Ok(function) => function,
            Err(message) => return Frame::Error(message),
        };
        let declared = run.keys.first().filter(|_| data.cluster.is_some());
        let slot = declared.map(|key| hash_slot(key));
        with_state(|state| {
            *state = State {
                data: mem::take(data),
                now: run.now,
                wrote: false,
                slot,
            }
        });
        let reply = self.call(&function, run);
        *data = with_state(|state| mem::take(&mut state.data));
        reply.unwrap_or_else(|error| Raised::from_lua(&error).into_reply(run))
    }

    fn call(&self, function: &Function, run: &Run<'_>) -> mlua::Result<Frame> {
        let keys = self
            .lua
            .create_sequence_from(run.keys.iter().map(|key| pushed(key)))?;
        let args = self
            .lua
            .create_sequence_from(run.args.iter().map(|arg| pushed(arg)))?;
        let (ran, reply): (bool, mlua::Value) = self.run.call((function, keys, args))?;
        if ran {
            return replies::to_frame(&reply);
        }
        Ok(Raised::from_handler(&reply).into_reply(run))
    }
}

/// Bytes in the form that is fastest for Lua.
fn pushed(bytes: &[u8]) -> Either<&str, BString> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Either::Left(text),
        Err(_) => Either::Right(BString::from(bytes)),
    }
}

/// The bytes of a Lua string.
fn bytes(text: &LuaString) -> Bytes {
    Bytes::copy_from_slice(&text.as_bytes())
}
