//! Encodes commands and decodes values of RESP, versions 2 and 3. Pure.
//!
//! The reader has its own stack and a budget: no bytes of a peer can exhaust the thread's stack or the process's memory.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::{server_text, transport::Frame};

/// The deepest nesting of a value. Answers to the commands of this crate have at most six levels.
const DEEPEST: usize = 32;
/// The most memory of one value.
pub(super) const MOST_BYTES: usize = 32 << 20;
/// The most bytes of a line: a number, a short text or an error.
const LONGEST_LINE: usize = 64 << 10;
/// The most elements that a list reserves at once, whatever length it claims.
const MOST_AT_ONCE: usize = 64;

/// Writes one command as an array of strings.
pub(super) fn encode(out: &mut BytesMut, name: &str, args: &[Bytes]) {
    header(out, b'*', 1 + args.len());
    string(out, name.as_bytes());
    for arg in args {
        string(out, arg);
    }
}

fn string(out: &mut BytesMut, text: &[u8]) {
    header(out, b'$', text.len());
    out.put_slice(text);
    out.put_slice(b"\r\n");
}

fn header(out: &mut BytesMut, marker: u8, mut number: usize) {
    // The marker, 20 digits at most, and the end of the line: written at once.
    let mut text = [0; 23];
    text[21..].copy_from_slice(b"\r\n");
    let mut first = 21;
    loop {
        first -= 1;
        text[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    first -= 1;
    text[first] = marker;
    out.put_slice(&text[first..]);
}

/// A complete value.
#[derive(Debug, PartialEq)]
pub(in crate::redis) enum Decoded {
    /// The answer to a command.
    Reply(Frame),
    /// Data without a request.
    Push(Vec<Frame>),
}

/// The bytes are not RESP, or exceed the limits. No later byte can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) struct Garbage(pub(super) &'static str);

/// Reads values from bytes that arrive bit by bit.
#[derive(Debug)]
pub(in crate::redis) struct Decoder {
    /// The lists and maps that are not complete, outermost first.
    open: Vec<Collection>,
    /// The remaining memory of the value.
    left: usize,
}

#[derive(Debug)]
struct Collection {
    kind: Kind,
    missing: usize,
    frames: Vec<Frame>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    List,
    Map,
    Push,
    /// An attribute of the next value, which no command of this crate requests.
    Attribute,
}

/// The first token of the bytes.
enum Token {
    Frame(Frame),
    /// This many frames follow.
    Begin(Kind, usize),
}

impl Decoder {
    pub(in crate::redis) fn new() -> Self {
        Self {
            open: Vec::new(),
            left: MOST_BYTES,
        }
    }

    /// The next value, if it has arrived completely. Removes the read bytes from `bytes`.
    pub(in crate::redis) fn decode(
        &mut self,
        bytes: &mut BytesMut,
    ) -> Result<Option<Decoded>, Garbage> {
        while let Some(token) = self.token(bytes)? {
            self.take(size_of::<Frame>())?;
            let decoded = match token {
                Token::Frame(frame) => self.complete(frame),
                Token::Begin(kind, frames) => self.begin(kind, frames)?,
            };
            if decoded.is_some() {
                self.left = MOST_BYTES;
                return Ok(decoded);
            }
        }
        Ok(None)
    }

    fn take(&mut self, bytes: usize) -> Result<(), Garbage> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or(Garbage("an answer is larger than 32 MiB"))?;
        Ok(())
    }

    fn begin(&mut self, kind: Kind, frames: usize) -> Result<Option<Decoded>, Garbage> {
        if self.open.len() == DEEPEST {
            return Err(Garbage("an answer is nested deeper than 32 levels"));
        }
        self.open.push(Collection {
            kind,
            missing: frames,
            frames: Vec::with_capacity(frames.min(MOST_AT_ONCE)),
        });
        Ok(match frames {
            0 => self.close(),
            _ => None,
        })
    }

    /// Adds a frame to the innermost collection. Returns the value that it completes.
    fn complete(&mut self, frame: Frame) -> Option<Decoded> {
        let Some(around) = self.open.last_mut() else {
            return Some(Decoded::Reply(frame));
        };
        around.frames.push(frame);
        around.missing -= 1;
        match around.missing {
            0 => self.close(),
            _ => None,
        }
    }

    /// Closes the innermost collection, which is complete.
    ///
    /// The recursion with `complete` is as deep as the collections are nested.
    fn close(&mut self) -> Option<Decoded> {
        let Collection { kind, frames, .. } = self.open.pop()?;
        match kind {
            Kind::Attribute => None,
            Kind::Push if self.open.is_empty() => Some(Decoded::Push(frames)),
            Kind::List | Kind::Push => self.complete(Frame::List(frames)),
            Kind::Map => {
                let mut frames = frames.into_iter();
                let pairs = std::iter::from_fn(|| Some((frames.next()?, frames.next()?)));
                self.complete(Frame::Map(pairs.collect()))
            }
        }
    }

    /// Removes one token from `bytes`, if it has arrived.
    fn token(&mut self, bytes: &mut BytesMut) -> Result<Option<Token>, Garbage> {
        let Some(&marker) = bytes.first() else {
            return Ok(None);
        };
        if !b"+-:$*_#,(!=%~>|".contains(&marker) {
            return Err(Garbage("unknown type marker"));
        }
        let Some(length) = line_length(bytes)? else {
            return Ok(None);
        };
        let line = &bytes[1..=length];
        let behind = length + 3;
        let token = match marker {
            b'$' | b'!' | b'=' => match size(line)? {
                None => Token::Frame(Frame::Null),
                Some(size) => return self.string(bytes, marker, behind, size),
            },
            b'*' | b'~' | b'>' | b'%' | b'|' => match size(line)? {
                None => Token::Frame(Frame::Null),
                Some(size) => self.collection(marker, size)?,
            },
            b':' => Token::Frame(Frame::Number(
                number(line).ok_or(Garbage("invalid number"))?,
            )),
            b'+' | b'-' => {
                let frame = text(marker, line);
                self.take(length)?;
                Token::Frame(frame)
            }
            // No command of this crate has an answer of another type.
            _ => Token::Frame(Frame::Null),
        };
        bytes.advance(behind);
        Ok(Some(token))
    }

    fn collection(&self, marker: u8, size: usize) -> Result<Token, Garbage> {
        let (kind, each) = match marker {
            b'>' => (Kind::Push, 1),
            b'%' => (Kind::Map, 2),
            b'|' => (Kind::Attribute, 2),
            _ => (Kind::List, 1),
        };
        // Refuse a collection that cannot become complete.
        match size.checked_mul(each) {
            Some(frames) if frames <= self.left / size_of::<Frame>() => {
                Ok(Token::Begin(kind, frames))
            }
            _ => Err(Garbage("an answer is larger than 32 MiB")),
        }
    }

    /// Removes a string of `size` bytes and its header from `bytes`, if it has arrived.
    fn string(
        &mut self,
        bytes: &mut BytesMut,
        marker: u8,
        header: usize,
        size: usize,
    ) -> Result<Option<Token>, Garbage> {
        if size > self.left {
            return Err(Garbage("an answer is larger than 32 MiB"));
        }
        let end = header + size;
        if bytes.len() < end + 2 {
            return Ok(None);
        }
        if bytes[end..end + 2] != *b"\r\n" {
            return Err(Garbage("a string is longer than its declared length"));
        }
        self.take(size)?;
        let frame = text(marker, &bytes[header..end]);
        bytes.advance(end + 2);
        Ok(Some(Token::Frame(frame)))
    }
}

/// Copies: a small text must not keep a large buffer.
fn text(marker: u8, text: &[u8]) -> Frame {
    match marker {
        b'-' | b'!' => Frame::Error(server_text::shown(&String::from_utf8_lossy(text))),
        b'+' => Frame::Status(Bytes::copy_from_slice(text)),
        // The first four bytes name the format of the text.
        b'=' => Frame::Text(Bytes::copy_from_slice(text.get(4..).unwrap_or_default())),
        _ => Frame::Text(Bytes::copy_from_slice(text)),
    }
}

/// The length of the first line, without its marker and its end.
fn line_length(bytes: &[u8]) -> Result<Option<usize>, Garbage> {
    let line = &bytes[1..bytes.len().min(LONGEST_LINE)];
    match line.windows(2).position(|end| end == b"\r\n") {
        None if bytes.len() >= LONGEST_LINE => Err(Garbage("a line is longer than 64 KiB")),
        found => Ok(found),
    }
}

fn number(line: &[u8]) -> Option<i64> {
    std::str::from_utf8(line).ok()?.parse().ok()
}

/// A length; `None` for RESP2's absent value. The crate requests no streamed values, so their lengths are not read.
fn size(line: &[u8]) -> Result<Option<usize>, Garbage> {
    match number(line) {
        Some(-1) => Ok(None),
        size => match size.map(usize::try_from) {
            Some(Ok(size)) => Ok(Some(size)),
            _ => Err(Garbage("invalid length")),
        },
    }
}

#[cfg(test)]
#[path = "resp_tests.rs"]
mod tests;
