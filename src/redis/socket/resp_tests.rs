use proptest::prelude::*;

use super::*;

fn read(bytes: &[u8]) -> Result<Option<Decoded>, Garbage> {
    Decoder::new().decode(&mut BytesMut::from(bytes))
}

fn text(text: &str) -> Frame {
    Frame::Text(text.to_owned().into())
}

#[test]
fn a_command_is_an_array_of_strings_whatever_stands_in_them() {
    let mut out = BytesMut::new();
    let args = ["3", "AUTH", "app ", "pw\r\nSET injected 1\r\n"].map(Bytes::from);
    encode(&mut out, "HELLO", &args);
    let expected = "*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$4\r\napp \r\n$20\r\npw\r\nSET injected 1\r\n\r\n";
    assert_eq!(out, expected);
}

#[test]
fn values_of_both_versions_are_read() {
    let reply = |bytes: &str| match read(bytes.as_bytes()) {
        Ok(Some(Decoded::Reply(frame))) => frame,
        other => panic!("{bytes:?}: {other:?}"),
    };
    assert_eq!(reply("+OK\r\n"), Frame::Status("OK".into()));
    assert_eq!(reply("-ERR no\r\n"), Frame::Error("ERR no".into()));
    assert_eq!(reply("!6\r\nERR no\r\n"), Frame::Error("ERR no".into()));
    assert_eq!(reply(":-7\r\n"), Frame::Number(-7));
    assert_eq!(reply("$2\r\n\r\n\r\n"), text("\r\n"));
    assert_eq!(reply("=7\r\ntxt:a=b\r\n"), text("a=b"));
    for null in [
        "$-1\r\n", "*-1\r\n", "_\r\n", "#t\r\n", ",1.5\r\n", "(1\r\n",
    ] {
        assert_eq!(reply(null), Frame::Null, "{null:?}");
    }
    assert_eq!(reply("*0\r\n"), Frame::List(vec![]));
    let nested = "*2\r\n*1\r\n:1\r\n~1\r\n*0\r\n";
    let lists = vec![
        Frame::List(vec![Frame::Number(1)]),
        Frame::List(vec![Frame::List(vec![])]),
    ];
    assert_eq!(reply(nested), Frame::List(lists));
    let pair = (text("a"), Frame::List(vec![]));
    assert_eq!(reply("%1\r\n$1\r\na\r\n*0\r\n"), Frame::Map(vec![pair]));
    assert_eq!(
        reply("|1\r\n+ttl\r\n:1\r\n:2\r\n"),
        Frame::Number(2),
        "of an attribute nothing stays"
    );
    let push = vec![text("a"), Frame::Number(1)];
    assert_eq!(
        read(b">2\r\n$1\r\na\r\n:1\r\n"),
        Ok(Some(Decoded::Push(push)))
    );
}

#[test]
fn no_bytes_exhaust_the_stack_or_the_memory() {
    for nesting in ["*1\r\n", "%1\r\n+a\r\n", "~1\r\n", ">1\r\n", "|1\r\n+a\r\n"] {
        let bytes = nesting.repeat(1_000_000);
        let refused = Garbage("an answer is nested deeper than 32 levels");
        assert_eq!(read(bytes.as_bytes()), Err(refused), "{nesting:?}");
    }
    let large = Garbage("an answer is larger than 32 MiB");
    for header in [
        "$2147483647\r\n",
        "!33554433\r\n",
        "*2147483647\r\n",
        "*9223372036854775807\r\n",
        "%9223372036854775807\r\n",
        "|33554432\r\n",
    ] {
        assert_eq!(read(header.as_bytes()), Err(large), "{header:?}");
    }
    // Together the values exceed the limit; each alone does not.
    let string = format!("${}\r\n{}\r\n", 1 << 20, "x".repeat(1 << 20));
    let several = format!("*40\r\n{}", string.repeat(40));
    assert_eq!(read(several.as_bytes()), Err(large));
    let endless = format!("+{}", "x".repeat(LONGEST_LINE));
    assert_eq!(
        read(endless.as_bytes()),
        Err(Garbage("a line is longer than 64 KiB"))
    );
}

#[test]
fn the_size_limit_is_per_value_and_not_per_connection() {
    let string = format!("${}\r\n{}\r\n", MOST_BYTES / 2, "x".repeat(MOST_BYTES / 2));
    let mut bytes = BytesMut::from(string.repeat(3).as_bytes());
    let mut decoder = Decoder::new();
    for _ in 0..3 {
        assert!(matches!(decoder.decode(&mut bytes), Ok(Some(_))));
    }
    assert_eq!(decoder.decode(&mut bytes), Ok(None));
}

#[test]
fn bytes_that_are_not_resp_are_refused() {
    for garbage in [
        &b"HTTP/1.1 400 Bad Request\r\n"[..],
        b"SSH-2.0\r\n",
        b"\0",
        b"\r\n",
        b":x\r\n",
        b":\r\n",
        b"$-2\r\n",
        b"$?\r\n",
        b"*?\r\n",
        b"$2\r\nabcd",
        b"*1.5\r\n",
    ] {
        let read = read(garbage);
        assert!(read.is_err(), "{garbage:?}: {read:?}");
    }
}

fn frames() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(|number| format!(":{number}\r\n")),
        "[a-z\r\n]{0,20}".prop_map(|text| format!("${}\r\n{text}\r\n", text.len())),
        "[a-z ]{0,20}".prop_map(|text| format!("+{text}\r\n")),
        "[a-z ]{0,20}".prop_map(|text| format!("-{text}\r\n")),
        Just("_\r\n".to_owned()),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(|list| format!(
                "*{}\r\n{}",
                list.len(),
                list.concat()
            )),
            prop::collection::vec((inner.clone(), inner), 0..3).prop_map(|map| {
                let pairs: String = map
                    .iter()
                    .map(|(name, value)| format!("{name}{value}"))
                    .collect();
                format!("%{}\r\n{pairs}", map.len())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn values_are_the_same_however_they_arrive(frames in prop::collection::vec(frames(), 1..4), step in 1_usize..9) {
        let all = frames.concat();
        let mut whole = Vec::new();
        let (mut decoder, mut bytes) = (Decoder::new(), BytesMut::from(all.as_bytes()));
        while let Some(decoded) = decoder.decode(&mut bytes).unwrap() {
            whole.push(decoded);
        }
        prop_assert_eq!(whole.len(), frames.len());
        let (mut decoder, mut bytes, mut by_and_by) = (Decoder::new(), BytesMut::new(), Vec::new());
        for chunk in all.as_bytes().chunks(step) {
            bytes.extend_from_slice(chunk);
            while let Some(decoded) = decoder.decode(&mut bytes).unwrap() {
                by_and_by.push(decoded);
            }
        }
        prop_assert_eq!(by_and_by, whole);
    }
}
