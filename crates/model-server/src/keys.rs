//! The keys of a server: their values and expiries.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use foldhash::fast::FixedState;

use crate::{Step, Stop};

/// The remaining time of a key that does not exist.
pub(crate) const GONE: i64 = -2;

/// Keys with values and expiries, at the time of a clock that the caller sets.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    entries: HashMap<Bytes, Entry, FixedState>,
    now: i64,
    /// Whether the server refuses commands that may need memory, as the first write of a call.
    pub is_full: bool,
    wrote: bool,
}

#[derive(Debug, Clone)]
struct Entry {
    value: Value,
    /// The last millisecond of its life.
    ends: Option<i64>,
}

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A string.
    Text(Bytes),
    /// Fields and their values.
    Hash(Vec<(Bytes, Bytes)>),
    /// A list.
    List(VecDeque<Bytes>),
    /// Scores and members, in their order.
    Sorted(Vec<(f64, Bytes)>),
}

/// A type of value.
pub(crate) trait Content: Default {
    fn of(value: &mut Value) -> Option<&mut Self>;
    fn into_value(self) -> Value;
    fn is_over(&self) -> bool;
}

macro_rules! content {
    ($type:ty, $variant:ident, $is_over:expr) => {
        impl Content for $type {
            fn of(value: &mut Value) -> Option<&mut Self> {
                match value {
                    Value::$variant(content) => Some(content),
                    _ => None,
                }
            }

            fn into_value(self) -> Value {
                Value::$variant(self)
            }

            fn is_over(&self) -> bool {
                let is_over: fn(&Self) -> bool = $is_over;
                is_over(self)
            }
        }
    };
}

type Fields = Vec<(Bytes, Bytes)>;
type List = VecDeque<Bytes>;
type Sorted = Vec<(f64, Bytes)>;

// An empty string stays.
content!(Bytes, Text, |_| false);
content!(Fields, Hash, Vec::is_empty);
content!(List, List, VecDeque::is_empty);
content!(Sorted, Sorted, Vec::is_empty);

impl Keys {
    /// The clock, in milliseconds since 1970.
    pub fn now(&self) -> i64 {
        self.now
    }

    /// Sets the clock.
    pub fn set_now(&mut self, now: i64) {
        self.now = now;
    }

    pub(crate) fn begin_call(&mut self) {
        self.wrote = false;
    }

    /// Whether the last call wrote: `WAIT` counts the last write of a connection.
    pub fn wrote(&self) -> bool {
        self.wrote
    }

    /// The live keys with their values and the last milliseconds of their lives, in no order.
    pub fn all(&self) -> impl Iterator<Item = (&Bytes, &Value, Option<i64>)> {
        let entries = self.entries.iter();
        let all = entries.map(|(key, entry)| (key, &entry.value, entry.ends));
        all.filter(|(.., ends)| ends.is_none_or(|ends| self.now <= ends))
    }

    /// The live value of a key, and the last millisecond of its life.
    pub fn get(&self, key: &[u8]) -> Option<(&Value, Option<i64>)> {
        let entry = self.entries.get(key)?;
        let is_live = entry.ends.is_none_or(|ends| self.now <= ends);
        is_live.then_some((&entry.value, entry.ends))
    }

    /// Sets a key, as another program would.
    pub fn put(&mut self, key: Bytes, value: Value, ends: Option<i64>) {
        self.entries.insert(key, Entry { value, ends });
    }

    /// Removes a key, as another program would. Returns whether it existed.
    pub fn take(&mut self, key: &[u8]) -> bool {
        let existed = self.get(key).is_some();
        self.entries.remove(key);
        existed
    }

    /// Begins a write. A full server refuses one that may need memory, if it is the first of its call.
    fn write(&mut self, grows: bool) -> Step<()> {
        if grows && self.is_full && !self.wrote {
            const REFUSED: &str = "OOM command not allowed when used memory > 'maxmemory'.";
            return Err(Stop::Failed(REFUSED));
        }
        self.wrote = true;
        Ok(())
    }

    fn entry(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let now = self.now;
        let is_over = self.entries.get(key)?.ends.is_some_and(|ends| now > ends);
        if is_over {
            self.entries.remove(key);
            return None;
        }
        self.entries.get_mut(key)
    }

    fn read<C: Content>(&mut self, key: &[u8]) -> Step<Option<&mut C>> {
        match self.entry(key) {
            None => Ok(None),
            Some(entry) => C::of(&mut entry.value).map(Some).ok_or(Stop::WrongType),
        }
    }

    /// Changes a value, which is made if it is missing, and removed if it is empty afterwards. An expiry stays.
    fn change<C: Content, T>(&mut self, key: &Bytes, change: impl FnOnce(&mut C) -> T) -> Step<T> {
        if self.entry(key).is_none() {
            let mut made = C::default();
            let result = change(&mut made);
            if !made.is_over() {
                self.put(key.clone(), made.into_value(), None);
            }
            return Ok(result);
        }
        let content = self.read::<C>(key)?.ok_or(Stop::WrongType)?;
        let (result, is_over) = (change(content), content.is_over());
        if is_over {
            self.entries.remove(key);
        }
        Ok(result)
    }

    pub(crate) fn type_of(&mut self, key: &[u8]) -> Option<&'static str> {
        Some(match self.entry(key)?.value {
            Value::Text(_) => "string",
            Value::Hash(_) => "hash",
            Value::List(_) => "list",
            Value::Sorted(_) => "zset",
        })
    }

    pub(crate) fn exists(&mut self, key: &[u8]) -> bool {
        self.entry(key).is_some()
    }

    /// The remaining milliseconds: -1 without an expiry, [`GONE`] without the key.
    pub(crate) fn pttl(&mut self, key: &[u8]) -> i64 {
        let now = self.now;
        let entry = self.entry(key);
        entry.map_or(GONE, |entry| entry.ends.map_or(-1, |ends| ends - now))
    }

    /// Sets an expiry, and deletes the key if it is over. Returns whether there was a key.
    pub(crate) fn pexpire(&mut self, key: &[u8], millis: i64) -> bool {
        self.wrote = true;
        let now = self.now;
        let Some(entry) = self.entry(key) else {
            return false;
        };
        entry.ends = Some(now + millis);
        if millis <= 0 {
            self.entries.remove(key);
        }
        true
    }

    pub(crate) fn persist(&mut self, key: &[u8]) {
        self.wrote = true;
        if let Some(entry) = self.entry(key) {
            entry.ends = None;
        }
    }

    pub(crate) fn del(&mut self, key: &[u8]) {
        self.wrote = true;
        self.entries.remove(key);
    }

    pub(crate) fn text(&mut self, key: &[u8]) -> Step<Option<Bytes>> {
        Ok(self.read::<Bytes>(key)?.cloned())
    }

    /// Sets a string without an expiry, or with one of that many milliseconds.
    pub(crate) fn set(&mut self, key: &Bytes, text: Bytes, millis: Option<i64>) -> Step<()> {
        self.write(true)?;
        if millis.is_some_and(|millis| millis <= 0) {
            return Err(Stop::Failed("ERR invalid expire time in 'set' command"));
        }
        let ends = millis.map(|millis| self.now + millis);
        self.put(key.clone(), Value::Text(text), ends);
        Ok(())
    }

    /// Sets a string with an expiry, if there is no key. Returns whether it did.
    pub(crate) fn set_new(&mut self, key: &Bytes, text: Bytes, millis: i64) -> Step<bool> {
        self.write(true)?;
        if self.exists(key) {
            return Ok(false);
        }
        self.set(key, text, Some(millis))?;
        Ok(true)
    }

    /// Sets a string, and keeps the expiry of its key.
    pub(crate) fn set_kept(&mut self, key: &Bytes, text: Bytes) -> Step<()> {
        self.write(true)?;
        let ends = self.entry(key).and_then(|entry| entry.ends);
        self.put(key.clone(), Value::Text(text), ends);
        Ok(())
    }

    pub(crate) fn add(&mut self, key: &Bytes, by: i64) -> Step<i64> {
        self.write(true)?;
        const REFUSED: Stop = Stop::Failed("ERR value is not an integer or out of range");
        const OVERFLOW: Stop = Stop::Failed("ERR increment or decrement would overflow");
        let text = self.text(key)?.unwrap_or(Bytes::from_static(b"0"));
        let number = str::from_utf8(&text).ok().and_then(|text| {
            let number: i64 = text.parse().ok()?;
            (number.to_string() == text).then_some(number)
        });
        let sum = number.ok_or(REFUSED)?.checked_add(by).ok_or(OVERFLOW)?;
        self.change(key, |text: &mut Bytes| *text = sum.to_string().into())?;
        Ok(sum)
    }

    pub(crate) fn hget(&mut self, key: &[u8], field: &[u8]) -> Step<Option<Bytes>> {
        let fields = self.read::<Fields>(key)?;
        Ok(fields.and_then(|fields| {
            let found = fields.iter().find(|(name, _)| name == field);
            found.map(|(_, value)| value.clone())
        }))
    }

    /// All fields and values.
    pub(crate) fn fields(&mut self, key: &[u8]) -> Step<Fields> {
        Ok(self.read::<Fields>(key)?.cloned().unwrap_or_default())
    }

    pub(crate) fn hset(&mut self, key: &Bytes, field: &Bytes, value: &Bytes) -> Step<()> {
        self.write(true)?;
        let (field, value) = (field.clone(), value.clone());
        self.change(key, |fields: &mut Fields| {
            match fields.iter_mut().find(|(name, _)| *name == field) {
                Some((_, present)) => *present = value,
                None => fields.push((field, value)),
            }
        })
    }

    pub(crate) fn hdel(&mut self, key: &Bytes, field: &[u8]) -> Step<()> {
        self.write(false)?;
        self.change(key, |fields: &mut Fields| {
            fields.retain(|(name, _)| name != field);
        })
    }

    /// The list, its head first.
    pub(crate) fn list(&mut self, key: &[u8]) -> Step<&[Bytes]> {
        let list = self.read::<List>(key)?;
        Ok(list.map_or(&[][..], |list| list.make_contiguous()))
    }

    pub(crate) fn head(&mut self, key: &[u8]) -> Step<Option<Bytes>> {
        Ok(self
            .read::<List>(key)?
            .and_then(|list| list.front().cloned()))
    }

    pub(crate) fn push(&mut self, key: &Bytes, element: &Bytes, at_front: bool) -> Step<()> {
        self.write(true)?;
        let element = element.clone();
        self.change(key, |list: &mut List| match at_front {
            true => list.push_front(element),
            false => list.push_back(element),
        })
    }

    pub(crate) fn lpop(&mut self, key: &Bytes) -> Step<()> {
        self.write(false)?;
        self.change(key, |list: &mut List| drop(list.pop_front()))
    }

    pub(crate) fn lrem(&mut self, key: &Bytes, element: &[u8]) -> Step<()> {
        self.write(false)?;
        self.change(key, |list: &mut List| list.retain(|other| other != element))
    }

    /// The scores and members of a sorted set, in their order.
    pub(crate) fn sorted(&mut self, key: &[u8]) -> Step<&[(f64, Bytes)]> {
        Ok(self.read::<Sorted>(key)?.map_or(&[][..], |set| set))
    }

    pub(crate) fn zscore(&mut self, key: &[u8], member: &[u8]) -> Step<Option<f64>> {
        let set = self.sorted(key)?;
        let found = set.iter().find(|(_, other)| other == member);
        Ok(found.map(|(score, _)| *score))
    }

    pub(crate) fn zadd(&mut self, key: &Bytes, score: f64, member: &Bytes) -> Step<()> {
        self.write(true)?;
        let member = member.clone();
        self.change(key, |set: &mut Sorted| {
            set.retain(|(_, other)| *other != member);
            let at = set.partition_point(|(other, name)| (*other, name) < (score, &member));
            set.insert(at, (score, member));
        })
    }

    pub(crate) fn zrem(&mut self, key: &Bytes, member: &[u8]) -> Step<()> {
        self.write(false)?;
        self.change(key, |set: &mut Sorted| {
            set.retain(|(_, other)| other != member);
        })
    }
}
