//! The globals of the scripts.

use mlua::{Function, Lua, LuaOptions, StdLib, Table, chunk::ChunkMode};

use super::{
    calls,
    errors::{self, PRELUDE_NAME},
    message_pack,
};

/// The definitions that are simpler in Lua than in Rust.
const PRELUDE: &str = include_str!("prelude.lua");

/// The names of Lua's library that scripts cannot use.
const HIDDEN: [&str; 8] = [
    "dofile", "loadfile", "print", "getfenv", "setfenv", "newproxy", "module", "require",
];

/// Opens a Lua state. The function runs a script with its keys and arguments, and returns whether it ran, and its
/// value or error.
pub(super) fn open() -> mlua::Result<(Lua, Function)> {
    let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH;
    let options = LuaOptions::new().catch_rust_panics(false);
    let lua = Lua::new_with(libraries, options)?;
    let globals = lua.globals();
    for name in HIDDEN {
        globals.raw_remove(name)?;
    }
    let natives = lua.create_table()?;
    globals.raw_set("redis", calls::library(&lua, &natives)?)?;
    globals.raw_set("cmsgpack", message_pack::library(&lua)?)?;
    natives.raw_set("handler", errors::handler(&lua)?)?;
    natives.raw_set("plain", errors::plain(&lua)?)?;
    let prelude = lua.load(PRELUDE).set_name(PRELUDE_NAME);
    let (run, environment): (Function, Table) = prelude.call(natives)?;
    lua.set_named_registry_value("environment", environment)?;
    Ok((lua, run))
}

/// Compiles a script.
pub(super) fn compile(lua: &Lua, source: &[u8]) -> mlua::Result<Function> {
    let environment: Table = lua.named_registry_value("environment")?;
    let chunk = lua.load(source).set_name("@user_script");
    let chunk = chunk.set_mode(ChunkMode::Text).set_environment(environment);
    chunk.into_function()
}
