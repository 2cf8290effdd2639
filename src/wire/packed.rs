//! The arguments of several operations in one MessagePack list, and their replies in another. The scripts read and write
//! them by the server's library `cmsgpack`. Client and server process one list faster than as many single arguments and
//! replies.

use bytes::Bytes;
use rmp::{Marker, decode, encode};

use super::reply::{Detail, Reply};

/// Packs arguments into a list.
pub(super) fn list<'a>(args: impl Iterator<Item = &'a Bytes> + Clone) -> Bytes {
    // The longest header has five bytes.
    let room = args.clone().map(|arg| 5 + arg.len()).sum::<usize>() + 5;
    let mut list = Vec::with_capacity(room);
    // Writing to memory does not fail.
    let _ = encode::write_array_len(&mut list, args.clone().count() as u32);
    for arg in args {
        match arg.len() {
            // Nearly all: the marker is the length.
            length @ ..32 => list.push(Marker::FixStr(length as u8).to_u8()),
            length => {
                let _ = encode::write_str_len(&mut list, length as u32);
            }
        }
        list.extend_from_slice(arg);
    }
    list.into()
}

/// Unpacks the replies to `operations` operations; `None` if the bytes are not a valid list of that length.
pub(crate) fn replies(mut list: &[u8], operations: usize) -> Option<Vec<Reply>> {
    let replies = read(&mut list, operations);
    replies.filter(|_| list.is_empty())
}

/// Refuses another length before it reads an element: each byte of a hostile list could become a [`Reply`].
fn read(rest: &mut &[u8], operations: usize) -> Option<Vec<Reply>> {
    let count = decode::read_array_len(rest).ok()?;
    if count as usize != operations {
        return None;
    }
    (0..count).map(|_| reply(rest)).collect()
}

fn reply(rest: &mut &[u8]) -> Option<Reply> {
    let (status, detail) = if begins_list(rest)? {
        let pair = decode::read_array_len(rest).ok()? == 2;
        (number(rest).filter(|_| pair)?, detail(rest)?)
    } else {
        (number(rest)?, Detail::Nothing)
    };
    Some(Reply { status, detail })
}

fn detail(rest: &mut &[u8]) -> Option<Detail> {
    match Marker::from_u8(*rest.first()?) {
        Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => {
            let length = decode::read_str_len(rest).ok()?;
            let (text, behind) = rest.split_at_checked(length as usize)?;
            *rest = behind;
            Some(Detail::Text(String::from_utf8_lossy(text).into_owned()))
        }
        _ if begins_list(rest)? => {
            let count = decode::read_array_len(rest).ok()?;
            let numbers: Option<_> = (0..count).map(|_| number(rest)).collect();
            numbers.map(Detail::Numbers)
        }
        _ => number(rest).map(Detail::Number),
    }
}

fn begins_list(rest: &[u8]) -> Option<bool> {
    let marker = Marker::from_u8(*rest.first()?);
    Some(matches!(
        marker,
        Marker::FixArray(_) | Marker::Array16 | Marker::Array32
    ))
}

fn number(rest: &mut &[u8]) -> Option<i64> {
    decode::read_int(rest).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reply_of(status: i64, detail: Detail) -> Reply {
        Reply { status, detail }
    }

    #[test]
    fn a_reply_is_a_status_with_or_without_a_detail() {
        let list = b"\x94\x00\x92\x03\xa6string\x92\x00\x92\xff\x02\x92\x01\xcd\x75\x30";
        assert_eq!(
            replies(list, 4).unwrap(),
            [
                reply_of(0, Detail::Nothing),
                reply_of(3, Detail::Text("string".into())),
                reply_of(0, Detail::Numbers(vec![-1, 2])),
                reply_of(1, Detail::Number(30_000)),
            ]
        );
    }

    #[test]
    fn odd_lists_are_refused() {
        for odd in [
            &b""[..],
            b"0",
            b"\x92\x00",
            b"\x91\x00\x00",
            b"\x91\x93\x00\x00\x00",
            b"\x91\x92\x03\xa6str",
            b"\x91\xc0",
        ] {
            for operations in [1, 2] {
                assert_eq!(replies(odd, operations), None, "{odd:?}");
            }
        }
    }

    #[test]
    fn list_of_another_length_is_refused_before_its_elements_are_read() {
        for operations in [0, 2, 4] {
            let mut rest = &b"\x93\x00\x00\x00"[..];
            assert_eq!(read(&mut rest, operations), None);
            assert_eq!(rest, b"\x00\x00\x00", "{operations}");
        }
    }

    proptest! {
        #[test]
        fn a_written_list_can_be_read(args in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..40)) {
            let args: Vec<Bytes> = args.into_iter().map(Bytes::from).collect();
            let list = list(args.iter());
            let mut rest = &list[..];
            prop_assert_eq!(decode::read_array_len(&mut rest).unwrap() as usize, args.len());
            for arg in &args {
                let length = decode::read_str_len(&mut rest).unwrap() as usize;
                prop_assert_eq!(&rest[..length], &arg[..]);
                rest = &rest[length..];
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn nothing_that_a_server_sends_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            for operations in [1, 3] {
                let _ = replies(&bytes, operations);
            }
        }
    }
}
