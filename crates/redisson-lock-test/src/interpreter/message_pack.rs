//! The library `cmsgpack` of the scripts.

use mlua::{Lua, LuaString, MultiValue, Table, Value};
use rmp::{Marker, decode, encode};

use super::errors::at_line;

/// The deepest nesting; a deeper value is packed as nil.
const MOST_LEVELS: usize = 16;

const MISSING: &str = "Missing bytes in input.";
const BAD: &str = "Bad data format in input.";

/// Creates the table `cmsgpack`.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    library.raw_set("pack", lua.create_function(pack)?)?;
    library.raw_set("unpack", lua.create_function(unpack)?)?;
    Ok(library)
}

fn pack(lua: &Lua, values: MultiValue) -> mlua::Result<LuaString> {
    if values.is_empty() {
        return Err(at_line(
            lua,
            "bad argument #0 to 'pack' (MessagePack pack needs input.)",
        ));
    }
    let mut packed = Vec::new();
    for value in &values {
        write(&mut packed, value, 0)?;
    }
    lua.create_string(packed)
}

/// Ignores the results of the encoders, because writing to memory does not fail.
fn write(packed: &mut Vec<u8>, value: &Value, level: usize) -> mlua::Result<()> {
    match value {
        Value::String(text) => {
            let text = text.as_bytes();
            let _ = encode::write_str_len(packed, text.len() as u32);
            packed.extend_from_slice(&text);
        }
        Value::Integer(number) => drop(encode::write_sint(packed, *number)),
        Value::Number(number) => write_number(packed, *number),
        Value::Boolean(set) => drop(encode::write_bool(packed, *set)),
        Value::Table(table) if level < MOST_LEVELS => return write_table(packed, table, level),
        _ => drop(encode::write_nil(packed)),
    }
    Ok(())
}

fn write_number(packed: &mut Vec<u8>, number: f64) {
    let as_integer = number as i64;
    if number.is_finite() && as_integer as f64 == number {
        let _ = encode::write_sint(packed, as_integer);
    } else if f64::from(number as f32) == number {
        let _ = encode::write_f32(packed, number as f32);
    } else {
        let _ = encode::write_f64(packed, number);
    }
}

fn write_table(packed: &mut Vec<u8>, table: &Table, level: usize) -> mlua::Result<()> {
    let (mut count, mut highest, mut is_list) = (0_i64, 0, true);
    table.for_each(|key: Value, _: Value| {
        count += 1;
        match key {
            Value::Integer(index) if index > 0 => highest = highest.max(index),
            _ => is_list = false,
        }
        Ok(())
    })?;
    if is_list && highest == count {
        let _ = encode::write_array_len(packed, count as u32);
        for index in 1..=count {
            write(packed, &table.raw_get(index)?, level + 1)?;
        }
        return Ok(());
    }
    let _ = encode::write_map_len(packed, count as u32);
    table.for_each(|key: Value, value: Value| {
        write(packed, &key, level + 1)?;
        write(packed, &value, level + 1)
    })
}

fn unpack(lua: &Lua, input: MultiValue) -> mlua::Result<MultiValue> {
    let text = match input.front() {
        Some(Value::String(text)) => text.clone(),
        other => {
            let found = other.map_or("no value", Value::type_name);
            let message = format!("bad argument #1 to 'unpack' (string expected, got {found})");
            return Err(at_line(lua, &message));
        }
    };
    let text = text.as_bytes();
    let mut rest = &text[..];
    let mut values = Vec::new();
    while !rest.is_empty() {
        values.push(read(lua, &mut rest)?);
    }
    Ok(MultiValue::from_vec(values))
}

fn read(lua: &Lua, rest: &mut &[u8]) -> mlua::Result<Value> {
    let missing = || at_line(lua, MISSING);
    let marker = Marker::from_u8(*rest.first().ok_or_else(missing)?);
    Ok(match marker {
        Marker::Null | Marker::True | Marker::False => {
            *rest = &rest[1..];
            match marker {
                Marker::Null => Value::Nil,
                marker => Value::Boolean(marker == Marker::True),
            }
        }
        Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => {
            let length = decode::read_str_len(rest).map_err(|_| missing())?;
            text(lua, rest, length)?
        }
        Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => {
            let length = decode::read_bin_len(rest).map_err(|_| missing())?;
            text(lua, rest, length)?
        }
        Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => {
            let length = decode::read_array_len(rest).map_err(|_| missing())?;
            list(lua, rest, length)?
        }
        Marker::FixMap(_) | Marker::Map16 | Marker::Map32 => {
            let length = decode::read_map_len(rest).map_err(|_| missing())?;
            map(lua, rest, length)?
        }
        Marker::F32 => Value::Number(decode::read_f32(rest).map_err(|_| missing())?.into()),
        Marker::F64 => Value::Number(decode::read_f64(rest).map_err(|_| missing())?),
        Marker::U64 => Value::Number(decode::read_u64(rest).map_err(|_| missing())? as f64),
        Marker::Reserved
        | Marker::FixExt1
        | Marker::FixExt2
        | Marker::FixExt4
        | Marker::FixExt8
        | Marker::FixExt16
        | Marker::Ext8
        | Marker::Ext16
        | Marker::Ext32 => return Err(at_line(lua, BAD)),
        _ => Value::Number(decode::read_int::<i64, _>(rest).map_err(|_| missing())? as f64),
    })
}

fn text(lua: &Lua, rest: &mut &[u8], length: u32) -> mlua::Result<Value> {
    let split = rest.split_at_checked(length as usize);
    let (text, behind) = split.ok_or_else(|| at_line(lua, MISSING))?;
    *rest = behind;
    lua.create_string(text).map(Value::String)
}

fn list(lua: &Lua, rest: &mut &[u8], length: u32) -> mlua::Result<Value> {
    // Each element has at least one byte.
    let table = lua.create_table_with_capacity((length as usize).min(rest.len()), 0)?;
    for index in 1..=length {
        let value = read(lua, rest)?;
        table.raw_set(index, value)?;
    }
    Ok(Value::Table(table))
}

fn map(lua: &Lua, rest: &mut &[u8], length: u32) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(0, (length as usize).min(rest.len()))?;
    for _ in 0..length {
        let key = read(lua, rest)?;
        let value = read(lua, rest)?;
        table.raw_set(key, value)?;
    }
    Ok(Value::Table(table))
}
