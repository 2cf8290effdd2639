//! Random commands, and random calls of the crate's scripts.

use std::fs;

use fastrand::Rng;

pub const KEYS: [&str; 4] = ["{a}:1", "{a}:2", "{a}:3", "{a}:4"];
pub const WORDS: [&str; 6] = ["0", "1", "3", "-2", "text", "mode"];
pub const LEASES: [&str; 4] = ["100000", "300000", "600000", "0"];
pub const OWNERS: [&str; 4] = [
    "11111111-1111-4111-8111-111111111111:4611686018427387905",
    "22222222-2222-4222-8222-222222222222:4611686018427387909",
    "22222222-2222-4222-8222-222222222222:4611686018427387913",
    // A Java thread.
    "33333333-3333-4333-8333-333333333333:42",
];

/// Commands with placeholders for arguments: `k`ey, `w`ord, `o`wner, `m`illiseconds, `i`ndex, `s`core. Other words are literal.
pub const COMMANDS: &[&str] = &[
    "GET k",
    "SET k w",
    "SET k w NX",
    "SET k w XX",
    "SET k w PX m",
    "SET k w NX PX m",
    "SET k w KEEPTTL",
    "SETNX k w",
    "PSETEX k m w",
    "INCR k",
    "INCRBY k i",
    "DECR k",
    "DECRBY k i",
    "DEL k",
    "DEL k k",
    "EXISTS k k",
    "TYPE k",
    "PTTL k",
    "PEXPIRE k m",
    "EXPIRE k 1000",
    "EXPIRE k -1",
    "EXPIRE k x",
    "PERSIST k",
    "HSET k w w",
    "HSET k w w o w",
    "HGET k w",
    "HMGET k w o w",
    "HDEL k w",
    "HDEL k w o",
    "HINCRBY k w i",
    "HINCRBY k o 1",
    "HEXISTS k w",
    "HEXISTS k o",
    "HLEN k",
    "HKEYS k",
    "HGETALL k",
    "LPUSH k w",
    "RPUSH k o w",
    "LPOP k",
    "RPOP k",
    "LLEN k",
    "LINDEX k i",
    "LRANGE k i i",
    "LREM k i w",
    "LPOS k w",
    "ZADD k s w",
    "ZADD k s o s w",
    "ZSCORE k w",
    "ZREM k w o",
    "ZCARD k",
    "ZINCRBY k s w",
    "ZRANGE k i i",
    "ZRANGE k i i WITHSCORES",
    "ZCOUNT k s s",
    "ZREMRANGEBYSCORE k s s",
    "ZRANGEBYSCORE k s s",
    "ZRANK k w",
    "PUBLISH k w",
    "ECHO w",
    "NOSUCH k",
    "HSET k",
    "EVALSHA 0000 0",
];

/// A script with its text and the names of its arguments.
pub struct Script {
    pub name: String,
    pub text: String,
    pub keys: usize,
    pub args: Vec<String>,
}

pub fn lua(name: &str) -> String {
    let path = format!("{}/lua/{name}.lua", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(path).expect("a script")
}

/// Files with shared functions, in the order in which they precede an operation.
const SHARED: [&str; 9] = [
    "batch",
    "read_write",
    "expiry",
    "shorten",
    "attempts",
    "number",
    "clock",
    "owners",
    "permits",
];

/// The scripts of all kinds, each after all shared functions.
pub fn scripts() -> Vec<Script> {
    let folder = format!("{}/lua", env!("CARGO_MANIFEST_DIR"));
    let files = fs::read_dir(folder)
        .expect("the scripts")
        .map(|file| file.expect("a file").file_name());
    let mut names: Vec<String> = files
        .filter_map(|name| name.to_str()?.strip_suffix(".lua").map(str::to_owned))
        .collect();
    names.retain(|name| lua(name).contains("local function operation("));
    names.sort();
    names.into_iter().map(script).collect()
}

pub fn script(name: String) -> Script {
    let own = lua(&name);
    let shared = SHARED.map(lua).concat();
    let head = own
        .lines()
        .find_map(|line| line.strip_prefix("local keys, args = "))
        .expect("the line with the numbers of keys and arguments");
    let keys = head
        .split(',')
        .next()
        .and_then(|keys| keys.parse().ok())
        .expect("the number of keys");
    let names = own
        .lines()
        .find_map(|line| line.strip_prefix("local function operation(k"))
        .expect("the head of `operation`");
    let args = names
        .trim_end_matches(')')
        .split(',')
        .map(str::trim)
        .filter(|arg| !arg.is_empty());
    Script {
        args: args.map(str::to_owned).collect(),
        text: [shared, own, lua("run")].concat(),
        keys,
        name,
    }
}

/// A random argument of a script, by the argument's name.
pub fn argument(random: &mut Rng, name: &str) -> String {
    let pick = |random: &mut Rng, from: &[&str]| {
        random.choice(from).copied().unwrap_or_default().to_owned()
    };
    match name {
        "owner" => pick(random, &OWNERS),
        "lease" => pick(random, &LEASES[..3]),
        "holds" => random.u8(0..4).to_string(),
        "channel" | "base" => "{a}:1".to_owned(),
        "waited" => pick(random, &["-1", "0", "20000"]),
        "place" => "150000".to_owned(),
        "timeout" => "3000000".to_owned(),
        "length" => pick(random, &["0", "200000"]),
        "permits" => random.i8(-2..4).to_string(),
        "value" | "attempt" => random.u8(1..5).to_string(),
        "ids" => pick(
            random,
            &[
                "0000000000000000",
                "1111111111111111",
                "00000000000000001111111111111111",
            ],
        ),
        "lasts" => "1200000".to_owned(),
        "mark" => "42".to_owned(),
        _ => random.u8(0..2).to_string(),
    }
}

pub type Word = Vec<u8>;

pub fn words_of(line: &str) -> Vec<Word> {
    line.split(' ')
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

/// A random command.
pub fn command(random: &mut Rng) -> Vec<Word> {
    let line = random.choice(COMMANDS).copied().unwrap_or_default();
    // Most commands use the key of their own type: on another key they only meet the wrong type.
    let kind = match line.as_bytes().first() {
        Some(b'H') => 1,
        Some(b'L' | b'R') => 2,
        Some(b'Z') => 3,
        _ => random.usize(..4),
    };
    let usual = random.u8(..8) > 0;
    let mut pick = |from: &[&str]| random.choice(from).copied().unwrap_or_default().to_owned();
    line.split(' ')
        .map(|word| match word {
            "k" if usual => KEYS[kind].to_owned(),
            "k" => pick(&KEYS),
            "w" => pick(&WORDS),
            "o" => pick(&OWNERS),
            "m" => pick(&LEASES[..3]),
            "i" => pick(&["0", "1", "-1", "2", "100", "x"]),
            "s" => pick(&["0", "1", "2.5", "-3", "1000", "x"]),
            own => own.to_owned(),
        })
        .map(String::into_bytes)
        .collect()
}

/// A call with one or several operations of a script. The arguments of several operations are packed in half of the calls.
pub fn call(random: &mut Rng, script: &Script) -> Vec<Word> {
    let operations = if random.u8(..4) == 0 {
        random.usize(2..4)
    } else {
        1
    };
    let mut words = vec!["EVAL".to_owned(), script.text.clone()];
    words.push((operations * script.keys).to_string());
    for _ in 0..operations {
        let own = ["{a}:1", "{a}:2"][random.usize(..2)];
        words.push(own.to_owned());
        words.extend((1..script.keys).map(|key| format!("{own}:{key}")));
    }
    let args: Vec<String> = (0..operations)
        .flat_map(|_| &script.args)
        .map(|arg| argument(random, arg))
        .collect();
    let packed = operations > 1 && random.bool();
    let (plain, packed) = match packed {
        true => (Vec::new(), Some(pack(&args))),
        false => (args, None),
    };
    let words = words.into_iter().chain(plain).map(String::into_bytes);
    words.chain(packed).collect()
}

/// The arguments as a MessagePack list.
pub fn pack(args: &[String]) -> Word {
    let mut list = Vec::new();
    rmp::encode::write_array_len(&mut list, args.len() as u32).expect("memory");
    for arg in args {
        rmp::encode::write_str(&mut list, arg).expect("memory");
    }
    list
}
