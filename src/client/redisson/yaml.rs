//! A tree of YAML, limited to the features of a configuration file.

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};

use crate::error::Error;

/// The deepest tree that is read.
const DEEPEST: usize = 32;

/// A value and its tag. Redisson writes a Java class as a tag.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) tag: Option<String>,
    pub(super) value: Value,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Value {
    Null,
    /// The text as written: the reader of a setting parses numbers and booleans.
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// Reads one document. Errors contain the line, and no text of the file.
pub(super) fn parse(text: &str) -> Result<Node, Error> {
    let mut events = Events(Parser::new_from_str(text));
    let mut document = None;
    loop {
        let (event, span) = events.next()?;
        match event {
            Event::StreamEnd => break,
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            _ if document.is_some() => return Err(at(span, "it contains a second document")),
            event => document = Some(events.node(event, span, 0)?),
        }
    }
    document.ok_or_else(|| Error::config("the YAML is empty"))
}

struct Events<'a>(Parser<'a, StrInput<'a>>);

impl<'a> Events<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Error> {
        match self.0.next() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => {
                let marker = error.marker();
                Err(Error::config(format!(
                    "the YAML cannot be read: line {}, column {}: {}",
                    marker.line(),
                    marker.col() + 1,
                    error.info()
                )))
            }
            None => Err(Error::config(
                "the YAML ends before its last value is complete",
            )),
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, Error> {
        if depth > DEEPEST {
            return Err(at(span, "it is nested too deeply"));
        }
        let named = |tag: Option<_>| tag.map(|tag: std::borrow::Cow<'_, Tag>| name(&tag));
        match event {
            Event::Scalar(text, style, _, tag) => {
                let is_null = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null");
                Ok(Node {
                    tag: named(tag),
                    value: match is_null {
                        true => Value::Null,
                        false => Value::Text(text.into_owned()),
                    },
                })
            }
            Event::SequenceStart(_, tag) => {
                let mut list = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break,
                        (event, span) => list.push(self.node(event, span, depth + 1)?),
                    }
                }
                Ok(Node {
                    tag: named(tag),
                    value: Value::List(list),
                })
            }
            Event::MappingStart(_, tag) => {
                let mut map: Vec<(String, Node)> = Vec::new();
                loop {
                    let (key, spec) = match self.next()? {
                        (Event::MappingEnd, _) => break,
                        (Event::Scalar(key, ..), spec) => (key.into_owned(), spec),
                        (_, span) => return Err(at(span, "a key is not a text")),
                    };
                    if map.iter().any(|(known, _)| *known == key) {
                        return Err(at(spec, &format!("{key} occurs twice")));
                    }
                    let (event, span) = self.next()?;
                    map.push((key, self.node(event, span, depth + 1)?));
                }
                Ok(Node {
                    tag: named(tag),
                    value: Value::Map(map),
                })
            }
            Event::Alias(_) => Err(at(span, "aliases (*name) are not supported")),
            _ => Err(at(span, "a value is expected")),
        }
    }
}

/// The class that a tag names.
fn name(tag: &Tag) -> String {
    let text = format!("{}{}", tag.handle, tag.suffix);
    text.trim_start_matches('!').to_owned()
}

fn at(span: Span, what: &str) -> Error {
    Error::config(format!(
        "the YAML cannot be read: line {}: {what}",
        span.start.line()
    ))
}
