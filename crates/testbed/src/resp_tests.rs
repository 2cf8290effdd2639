use super::*;

/// Every type, nested, and pushes and attributes between replies.
const REPLIES: &[&str] = &[
    "+OK\r\n",
    "-ERR no\r\n",
    ":-12\r\n",
    "$-1\r\n",
    "$0\r\n\r\n",
    "$7\r\nab\r\ncd*\r\n",
    "*-1\r\n",
    "*0\r\n",
    "*2\r\n*2\r\n:1\r\n*0\r\n$2\r\n>1\r\n",
    "_\r\n",
    "#t\r\n",
    ",1.5\r\n",
    "(123456789012345678901234567890\r\n",
    "!8\r\nERR a\r\nb\r\n",
    "=5\r\ntxt:a\r\n",
    "~2\r\n+a\r\n%1\r\n+k\r\n*2\r\n:1\r\n:2\r\n",
    "%2\r\n+a\r\n$-1\r\n+b\r\n~1\r\n:3\r\n",
    ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\n\r\n\r\n",
    "|1\r\n+ttl\r\n:3\r\n*1\r\n|1\r\n+in\r\n+side\r\n:7\r\n",
    ":42\r\n",
];

const REQUESTS: &[&str] = &[
    "*1\r\n$4\r\nPING\r\n",
    "PING\r\n",
    "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$6\r\na\r\n*1b\r\n",
    "\r\n",
    "EXISTS a\tb\n",
    "*0\r\n",
    "*2\r\n$3\r\nGET\r\n$0\r\n\r\n",
];

fn split(mut frames: Frames, parts: &[&[u8]]) -> Vec<Bytes> {
    let mut whole = Vec::new();
    for part in parts {
        frames.buffer().extend_from_slice(part);
        while let Some(frame) = frames.next_frame().expect("it is RESP") {
            whole.push(frame);
        }
    }
    assert!(frames.buffer().is_empty(), "bytes left over");
    whole
}

fn every_cut_gives(frames: impl Fn() -> Frames, expected: &[&str]) {
    let stream = expected.concat();
    let stream = stream.as_bytes();
    for cut in 0..=stream.len() {
        let (head, tail) = stream.split_at(cut);
        assert_eq!(split(frames(), &[head, tail]), expected, "cut at {cut}");
    }
    let single: Vec<&[u8]> = stream.chunks(1).collect();
    assert_eq!(split(frames(), &single), expected, "byte by byte");
}

#[test]
fn replies_cut_at_every_byte_are_split_alike() {
    every_cut_gives(Frames::of_server, REPLIES);
}

#[test]
fn requests_cut_at_every_byte_are_split_alike() {
    every_cut_gives(Frames::of_client, REQUESTS);
}

#[test]
fn bytes_that_are_not_resp_are_refused() {
    for bad in [
        "PING\r\n",
        "$x\r\n",
        "*1\r\nx\r\n",
        "*?\r\n",
        "%18446744073709551615\r\n%2\r\n",
        "$18446744073709551615\r\n",
    ] {
        let mut frames = Frames::of_server();
        frames.buffer().extend_from_slice(bad.as_bytes());
        assert!(frames.next_frame().is_err(), "{bad:?}");
    }
}

#[test]
fn an_inline_command_does_not_hide_in_an_array() {
    let mut frames = Frames::of_client();
    frames
        .buffer()
        .extend_from_slice(b"*2\r\n$3\r\nGET\r\nkey\r\n");
    assert!(frames.next_frame().is_err());
}

#[test]
fn words_are_the_leading_strings() {
    let words_of = |frame: &'static str, limit| -> Vec<&str> {
        let words = words(frame.as_bytes(), limit);
        words
            .into_iter()
            .map(|word| str::from_utf8(word).expect("it is UTF-8"))
            .collect()
    };
    assert_eq!(
        words_of("*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n", 9),
        ["GET", "a\r\nb"]
    );
    assert_eq!(words_of("*2\r\n$3\r\nGET\r\n$1\r\na\r\n", 1), ["GET"]);
    assert_eq!(words_of("*1\r\n$4\r\nPING\r\n$4\r\nnext\r\n", 9), ["PING"]);
    assert_eq!(
        words_of(">3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n", 9),
        ["unsubscribe", ""]
    );
    assert_eq!(words_of("EXISTS  a b\r\n", 2), ["EXISTS", "a"]);
    assert_eq!(words_of("*1\r\n*1\r\n$1\r\na\r\n", 9), [""; 0]);
}

#[test]
fn attributes_are_skipped() {
    let body = |frame: &'static str| {
        str::from_utf8(without_attributes(frame.as_bytes())).expect("it is UTF-8")
    };
    assert_eq!(
        body("|1\r\n+a\r\n*2\r\n:1\r\n:2\r\n>1\r\n+x\r\n"),
        ">1\r\n+x\r\n"
    );
    assert_eq!(body("|1\r\n+a\r\n+b\r\n|1\r\n+c\r\n+d\r\n:1\r\n"), ":1\r\n");
    assert_eq!(body(":1\r\n"), ":1\r\n");
}
