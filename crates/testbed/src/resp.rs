//! The framing of RESP2 and RESP3, without the meaning of frames.

use bytes::{Bytes, BytesMut};

const READ_SIZE: usize = 8 * 1024;

/// Bytes that are not RESP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

/// Splits one direction of a connection into whole frames, however the bytes arrive.
///
/// A frame is a request, or a reply or push with its nested elements and the attributes before it. Streamed types (`$?`, `*?`) are
/// refused: no server sends them.
#[derive(Debug)]
pub struct Frames {
    buffer: BytesMut,
    scanned: usize,
    /// The missing elements of the first frame in the buffer. Nesting only adds to this number, so it needs no stack.
    missing: u64,
    inline: bool,
}

impl Frames {
    /// For data of a client: also accepts inline commands (`PING\r\n`).
    pub fn of_client() -> Self {
        Self::new(true)
    }

    /// For data of a server.
    pub fn of_server() -> Self {
        Self::new(false)
    }

    fn new(inline: bool) -> Self {
        Self {
            buffer: BytesMut::new(),
            scanned: 0,
            missing: 1,
            inline,
        }
    }

    /// The buffer for arriving bytes, with free space.
    pub fn buffer(&mut self) -> &mut BytesMut {
        self.buffer.reserve(READ_SIZE);
        &mut self.buffer
    }

    /// The next complete frame; `None` until more bytes arrive.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, Malformed> {
        while self.missing > 0 {
            let inline = self.inline && self.scanned == 0;
            let Some(element) = element(&self.buffer[self.scanned..], inline)? else {
                return Ok(None);
            };
            self.scanned += element.length;
            let missing = (self.missing - 1).checked_add(element.children);
            self.missing = missing.ok_or_else(|| Malformed("too many elements".to_owned()))?;
        }
        let frame = self.buffer.split_to(self.scanned).freeze();
        (self.scanned, self.missing) = (0, 1);
        Ok(Some(frame))
    }
}

/// One element without its children: `length` bytes, after which `children` more elements belong to it.
#[derive(Debug)]
struct Element {
    length: usize,
    children: u64,
}

fn element(bytes: &[u8], inline: bool) -> Result<Option<Element>, Malformed> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return Ok(None);
    };
    let length = end + 1;
    let line = &bytes[..length];
    let (children, blob) = match line[0] {
        b'+' | b'-' | b':' | b',' | b'#' | b'(' | b'_' => (0, None),
        b'*' | b'~' | b'>' => (count(line)?.unwrap_or(0), None),
        b'%' => (doubled(line)?, None),
        // Attributes come before the element that they are about.
        b'|' => (doubled(line)?.saturating_add(1), None),
        b'$' | b'=' | b'!' => (0, count(line)?),
        _ if inline => (0, None),
        _ => return Err(malformed(line)),
    };
    let length = match blob {
        Some(size) => usize::try_from(size)
            .ok()
            .and_then(|size| (length + 2).checked_add(size)),
        None => Some(length),
    };
    let length = length.ok_or_else(|| malformed(line))?;
    Ok((bytes.len() >= length).then_some(Element { length, children }))
}

/// The number after the type byte; `None` stands for a null (`-1`).
fn count(line: &[u8]) -> Result<Option<u64>, Malformed> {
    let digits = line[1..].trim_ascii_end();
    if digits == b"-1" {
        return Ok(None);
    }
    let digits = str::from_utf8(digits).map_err(|_| malformed(line))?;
    digits.parse().map(Some).map_err(|_| malformed(line))
}

fn doubled(line: &[u8]) -> Result<u64, Malformed> {
    Ok(count(line)?.unwrap_or(0).saturating_mul(2))
}

fn malformed(line: &[u8]) -> Malformed {
    Malformed(String::from_utf8_lossy(line).into_owned())
}

/// A whole frame without the attributes before it.
pub fn without_attributes(frame: &[u8]) -> &[u8] {
    let mut rest = frame;
    while rest.first() == Some(&b'|') {
        let Ok(Some(Element { length, children })) = element(rest, false) else {
            return rest;
        };
        rest = skip(&rest[length..], children - 1);
    }
    rest
}

fn skip(bytes: &[u8], mut elements: u64) -> &[u8] {
    let mut rest = bytes;
    while elements > 0 {
        let Ok(Some(Element { length, children })) = element(rest, false) else {
            return rest;
        };
        rest = &rest[length..];
        elements = elements - 1 + children;
    }
    rest
}

/// A command as a client sends it.
pub fn request(words: &[Vec<u8>]) -> Vec<u8> {
    let mut frame = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        frame.extend(format!("${}\r\n", word.len()).bytes());
        frame.extend_from_slice(word);
        frame.extend_from_slice(b"\r\n");
    }
    frame
}

/// The strings that a whole frame begins with, up to `limit`: a request's command and arguments, a push's kind and channel.
pub fn words(frame: &[u8], limit: usize) -> Vec<&[u8]> {
    if !matches!(frame.first(), Some(b'*' | b'>')) {
        return frame
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty())
            .take(limit)
            .collect();
    }
    let mut words = Vec::new();
    let Ok(Some(Element { length, children })) = element(frame, false) else {
        return words;
    };
    let mut rest = &frame[length..];
    let limit = usize::try_from(children).unwrap_or(limit).min(limit);
    while words.len() < limit && rest.first() == Some(&b'$') {
        let Ok(Some(Element { length, .. })) = element(rest, false) else {
            return words;
        };
        words.push(content(&rest[..length]));
        rest = &rest[length..];
    }
    words
}

/// The text of a bulk string; empty for a null.
fn content(bulk: &[u8]) -> &[u8] {
    let start = bulk
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(bulk.len(), |end| end + 1);
    bulk.get(start..bulk.len().saturating_sub(2))
        .unwrap_or_default()
}

#[cfg(test)]
#[path = "resp_tests.rs"]
mod tests;
