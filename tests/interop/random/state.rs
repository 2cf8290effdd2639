//! What the server keeps of one lock, read in one script: each key's content, and its expiry to the millisecond.

use std::collections::BTreeMap;

use redis::aio::MultiplexedConnection;

/// A point in time of the server, in ms since 1970.
pub type At = i64;

/// An expiry, and the time of the first reading that shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    pub at: At,
    pub by: At,
}

#[derive(Clone, Debug)]
pub struct Key {
    pub content: String,
    pub expires: Option<Expiry>,
}

/// All keys of a lock at one time. Owners, permits and the lock have the same names in both plays.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub at: At,
    pub keys: BTreeMap<String, Key>,
}

/// The time, and of each key its name, its expiry, and its items, whose order counts in lists alone: the scores of a queue are times by
/// the rules of each client. A permit is a key of its own, whose score is its expiry, or endless. Keys that are private to one client
/// or to one request are left out.
const READ: &str = "
    local time, keys = redis.call('TIME'), {}
    local function hex(c) return string.format('%02x', c:byte()) end
    for _, name in ipairs(redis.call('KEYS', '*' .. ARGV[1] .. '*')) do
        local kind, items = redis.call('TYPE', name).ok, {}
        local private = name:find(':write_intent') or name:find(':attempt:') or name:find('redisson_unlock_latch')
        if kind == 'zset' and name:find(':timeout$') then
            local permits = redis.call('ZRANGE', name, 0, -1, 'WITHSCORES')
            for i = 1, #permits, 2 do
                local score = permits[i + 1] == '922337203685477' and -1 or math.floor(permits[i + 1])
                table.insert(keys, { name .. '/' .. permits[i]:gsub('.', hex), score, { 'a permit' } })
            end
        elseif not private then
            if kind == 'list' then items = { table.concat(redis.call('LRANGE', name, 0, -1), ' ') }
            elseif kind == 'zset' then items = redis.call('ZRANGE', name, 0, -1)
            elseif kind == 'string' then items = { redis.call('GET', name) }
            else
                local fields = redis.call('HGETALL', name)
                for i = 1, #fields, 2 do table.insert(items, fields[i] .. '=' .. fields[i + 1]) end
            end
            table.insert(keys, { name, redis.call('PEXPIRETIME', name), items })
        end
    end
    return { time[1] * 1000 + math.floor(time[2] / 1000), keys }";

impl Snapshot {
    /// The next reading.
    pub async fn next(&self, connection: &mut MultiplexedConnection, names: &Names) -> Self {
        let mut command = redis::cmd("EVAL");
        let answer = command.arg(READ).arg(0).arg(names.lock());
        let answer = answer.query_async(connection).await;
        let (at, keys): (At, Vec<(String, At, Vec<String>)>) = answer.expect("the server answers");
        let keys = keys.into_iter().map(|(name, expires, items)| {
            let mut items: Vec<_> = items.iter().map(|item| names.common(item)).collect();
            items.sort();
            let expires = Some(expires).filter(|&expires| expires >= 0);
            (names.common(&name), items.join(" "), expires)
        });
        self.followed_by(at, keys)
    }

    /// A reading after this one: an expiry that this one shows too was set before it.
    pub fn followed_by(
        &self,
        by: At,
        keys: impl Iterator<Item = (String, String, Option<At>)>,
    ) -> Self {
        let keys = keys.map(|(name, content, expires)| {
            let known = self.keys.get(&name).and_then(|key| key.expires);
            let known = known.filter(|known| Some(known.at) == expires);
            let expires = known.or(expires.map(|at| Expiry { at, by }));
            (name, Key { content, expires })
        });
        let keys = keys.collect();
        Self { at: by, keys }
    }

    /// The content of a key, `""` without it.
    pub fn content(&self, key: &str) -> &str {
        self.keys.get(key).map_or("", |key| &key.content)
    }

    /// Whether a key has an item that begins so.
    pub fn has(&self, key: &str, begin: &str) -> bool {
        let mut items = self.content(key).split(' ');
        items.any(|item| item.starts_with(begin))
    }
}

/// The names that differ from play to play, each with its common form: the lock's, owners', permits'.
#[derive(Debug)]
pub struct Names(Vec<(String, String)>);

impl Names {
    pub fn new(lock: String, mut owners: Vec<(String, String)>) -> Self {
        // An owner's number may have another one's as a prefix.
        owners.sort_by_key(|(owner, _)| std::cmp::Reverse(owner.len()));
        owners.insert(0, (lock, "NAME".to_owned()));
        Self(owners)
    }

    pub fn lock(&self) -> &str {
        &self.0[0].0
    }

    /// Notes the next permit.
    pub fn push(&mut self, id: &str) {
        let permits = self.0.iter().filter(|(_, common)| common.starts_with('#'));
        let common = format!("#{}", permits.count() + 1);
        self.0.push((id.to_owned(), common));
    }

    /// A text with the common names.
    pub fn common(&self, text: &str) -> String {
        let replaced = |text: String, (own, common): &(String, String)| text.replace(own, common);
        self.0.iter().fold(text.to_owned(), replaced)
    }

    /// A list of permits by their ids.
    pub fn permits(&self, list: &str) -> String {
        let known = |name: &str| self.0.iter().find(|(_, common)| common == name);
        let ids = list.split(',');
        let ids = ids.map(|name| known(name).map_or(name, |(id, _)| id));
        ids.collect::<Vec<_>>().join(",")
    }
}

#[test]
fn names_that_differ_have_common_forms() {
    let owners = [("id:5", "a"), ("id:51", "b")].map(|(owner, label)| (owner.into(), label.into()));
    let mut names = Names::new("pool:1".into(), owners.into());
    names.push("00ff");
    assert_eq!(
        names.common("{pool:1} id:51=1 id:5=2 00ff"),
        "{NAME} b=1 a=2 #1"
    );
    assert_eq!(names.permits("#1,#2"), "00ff,#2");
}
