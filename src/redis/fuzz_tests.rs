//! Bytes and texts of peers at random, one target for each parser: none panics, and none takes memory without bound.
//!
//! Inputs are valid ones with random changes, so that they come as far as a parser goes. `FUZZ_SECONDS` is the time of each
//! target (`make soak`), `FUZZ_SEED` the number of a first input: a failure says its own.

use std::{
    fmt,
    hint::black_box,
    time::{Duration, Instant},
};

use bytes::BytesMut;

#[cfg(feature = "keystore")]
use super::tls;
use super::{
    client_info::{ConnectionIdentity, Identity, Subscriptions},
    cluster::fuzz as slots,
    frame,
    locator::fuzz as sentinels,
    socket::{Decoded, Decoder},
    url,
};
use crate::{
    server_text,
    transport::Frame,
    wire::{Refusal, message, packed},
};

/// What a target may have grown by, all in all.
const MOST_GROWN: usize = 256 << 20;

fn memory() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident = pages
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    resident.unwrap_or_default() * 4096
}

/// Names the input when the target panics.
struct Input<'a>(u64, &'a [u8]);

impl Drop for Input<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{self}");
        }
    }
}

impl fmt::Display for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(seed, bytes) = self;
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(500)]);
        write!(f, "FUZZ_SEED={seed}: {} bytes, {shown:?}", bytes.len())
    }
}

fn variable(name: &str, default: u64) -> u64 {
    let set = std::env::var(name).ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs `target` on changed `seeds` for as long as is asked for.
fn fuzz(seeds: &[&[u8]], words: &[&[u8]], mut target: impl FnMut(&[u8])) {
    let seconds = variable("FUZZ_SECONDS", 1);
    let until = Instant::now() + Duration::from_secs(seconds);
    let (first, before) = (variable("FUZZ_SEED", 1), memory());
    let mut number = first;
    while number == first || Instant::now() < until {
        let mut random = fastrand::Rng::with_seed(number);
        let input = changed(&mut random, seeds, words);
        let input = Input(number, &input);
        target(input.1);
        number += 1;
    }
    let grown = memory().saturating_sub(before);
    println!(
        "{} inputs in {seconds} s, {} MiB grown",
        number - first,
        grown >> 20
    );
    assert!(grown < MOST_GROWN, "{grown} bytes");
}

fn changed(random: &mut fastrand::Rng, seeds: &[&[u8]], words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = seeds[random.usize(..seeds.len())].to_vec();
    for _ in 0..random.usize(..12) {
        let at = random.usize(..=bytes.len());
        match random.u8(..7) {
            0 => bytes.insert(at, random.u8(..)),
            1 if at < bytes.len() => bytes[at] = random.u8(..),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 => bytes.truncate(at),
            4 => {
                let word = words[random.usize(..words.len())];
                bytes.splice(at..at, word.iter().copied());
            }
            5 => {
                let seed = seeds[random.usize(..seeds.len())];
                bytes.splice(at..at, seed.iter().copied());
            }
            // Many tokens of one kind, as an attacker sends them to exhaust a resource.
            _ => {
                let word = words[random.usize(..words.len())].repeat(random.usize(..2_000));
                bytes.splice(at..at, word);
            }
        }
    }
    bytes
}

const FRAMES: [&[u8]; 9] = [
    b"+OK\r\n",
    b"-ERR unknown command 'x', with args beginning with: 'y'\r\n",
    b":-42\r\n",
    b"$5\r\nhello\r\n",
    b"*3\r\n:0\r\n*2\r\n:1\r\n:300\r\n$3\r\nabc\r\n",
    b"%2\r\n+server\r\n+redis\r\n+proto\r\n:3\r\n",
    b">3\r\n+message\r\n+channel\r\n+0\r\n",
    b"=8\r\ntxt:id=7\r\n",
    b"|1\r\n+ttl\r\n:1\r\n_\r\n",
];

const MARKS: [&[u8]; 14] = [
    b"\r\n",
    b"*1\r\n",
    b"%1\r\n",
    b"$-1\r\n",
    b"*-1\r\n",
    b">1\r\n",
    b"$1000000000\r\n",
    b"*1000000\r\n",
    b"_\r\n",
    b"#t\r\n",
    b"~2\r\n",
    b"!3\r\n",
    b"18446744073709551615",
    b"-9223372036854775808",
];

/// All that is made of an answer.
fn read(frame: Frame) {
    black_box(frame::error(&frame));
    black_box(frame::text(&frame));
    black_box(frame::maps(&frame));
    black_box(frame::acknowledgements(&frame));
    black_box(frame::list_len_at(&frame, 2));
    black_box(ConnectionIdentity::read(&frame));
    sentinels::read(&frame);
    for operations in [1, 3] {
        if let Ok(replies) = frame::replies(frame.clone(), operations) {
            for reply in replies {
                let _ = black_box(reply.outcome());
            }
        }
    }
}

#[test]
fn frames_and_replies() {
    fuzz(&FRAMES, &MARKS, |bytes| {
        let (mut decoder, mut unread) = (Decoder::new(), BytesMut::from(bytes));
        while let Ok(Some(decoded)) = decoder.decode(&mut unread) {
            match decoded {
                Decoded::Reply(frame) => read(frame),
                Decoded::Push(frames) => frames.into_iter().for_each(read),
            }
        }
    });
}

#[test]
fn packed_replies_and_messages() {
    let seeds: [&[u8]; 4] = [
        b"\x93\x00\x92\x01\xcd\x01\x2c\xa1x",
        b"\x91\x92\x00\x92\xff\x02",
        b"0",
        b"\xdc\x00\x01\x00",
    ];
    let words: [&[u8]; 5] = [
        b"\x91",
        b"\xdd\xff\xff\xff\xff",
        b"\xdb\x7f\xff\xff\xff",
        b"\x92\x00",
        b"\xd3",
    ];
    fuzz(&seeds, &words, |bytes| {
        for operations in [1, 3] {
            black_box(packed::replies(bytes, operations));
        }
        black_box(message::read(bytes));
    });
}

#[cfg(feature = "keystore")]
#[test]
fn key_stores() {
    let seeds: [&[u8]; 3] = [
        b"\xfe\xed\xfe\xed\0\0\0\x02\0\0\0\x01\0\0\0\x01\0\x01a\0\0\0\0\0\0\0\0\0\0\0\x02\x30\0\0\0\0\x01\0\x04X509\0\0\0\x01x\
          01234567890123456789",
        b"\x30\x27\x02\x01\x03\x30\x22\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01\xa0\x15\x04\x13\x30\x11\x30\x0f\x06\x09\x2a\x86\x48\
          \x86\xf7\x0d\x01\x07\x01\xa0\x02\x04\x00",
        b"\x30\x0b\x02\x01\x03\x30\x00\x30\x04\x02\x02\x7f\xff",
    ];
    let words: [&[u8]; 7] = [
        b"\x30\x84\xff\xff\xff\xff",
        b"\x30\x80",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\0\0\0\x01",
        b"\x04\x00",
        b"\xa1\x03\x02\x01\x05",
    ];
    fuzz(&seeds, &words, tls::fuzz::read);
}

#[test]
fn urls() {
    let seeds: [&[u8]; 6] = [
        b"redis://app:s3cret@host:6380/3",
        b"rediss://[::1]",
        b"redis-sentinel://u:p@a:1/service/2?node=b:2&sentinelUsername=x&sentinelPassword=s3cret",
        b"redis-cluster://:p@a?node=[::1]:7",
        b"redis-replicated://a/1?node=b",
        b"unix://:s3cret@localhost/run/redis.sock?db=2",
    ];
    let words: [&[u8]; 15] = [
        b"%", b"%zz", b"%00", b"@", b":", b"/", b"?", b"#", b"&", b"=", b"[", b"node=", b"\\",
        b"/../", b"%2E",
    ];
    fuzz(&seeds, &words, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let (service, nodes) = text.split_once('?').unwrap_or_default();
        let listed = url::of_nodes("sentinel", [service], nodes.split('&'));
        for target in [url::parse(&text), listed] {
            match target {
                Ok(target) => drop(black_box(format!("{target:?}"))),
                // An error shows only schemes.
                Err(error) => assert!(error.to_string().len() < 1_000 + text.len(), "{error}"),
            }
        }
    });
}

#[test]
fn maps_of_slots() {
    let seeds: [&[u8]; 3] = [
        b"aaa 10.0.0.1:7001@17001,one.example myself,master - 0 0 3 connected 0-8191 [7->-bbb]\n",
        b"bbb 10.0.0.2:7002@17002,,shard-id=1f master - 0 1700000000000 2 connected 8192-16382 16383\n",
        b"ccc ::1:7003@17003 slave aaa 0 1700000000000 3 connected\n",
    ];
    let words: [&[u8]; 8] = [
        b"\n",
        b" ",
        b"0-16383",
        b"16384",
        b"-",
        b"18446744073709551615",
        b"master",
        b"@",
    ];
    let mut map = slots::map();
    fuzz(&seeds, &words, |bytes| {
        slots::hear(&mut map, &String::from_utf8_lossy(bytes))
    });
}

#[test]
fn words_about_connections() {
    let seeds: [&[u8]; 3] = [
        b"id=7 addr=127.0.0.1:51764 laddr=127.0.0.1:6379 fd=8 name= age=0 sub=12 psub=0 ssub=3",
        b"@user_script: 12: -READONLY You can't write against a read only replica.",
        b"MOVED 3999 127.0.0.1:6381",
    ];
    let words: [&[u8]; 6] = [
        b" ",
        b"=",
        b": -",
        b", with args beginning with: ",
        b"\x1b[31m",
        b"id=",
    ];
    fuzz(&seeds, &words, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        black_box(Identity::read(&text));
        black_box(Subscriptions::read(&text));
        black_box(Refusal::from_message(text.clone().into_owned()));
        slots::redirected(&text);
        let shown = server_text::shown(&text);
        assert!(!shown.contains(char::is_control), "{shown:?}");
        assert!(shown.len() < 3_100, "{shown}");
    });
}
