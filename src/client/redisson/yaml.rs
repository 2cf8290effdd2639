//! A tree of YAML, limited to the features of a configuration file.

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};

use crate::{error::Error, hash::HashMap};

/// The deepest tree that is read.
const DEEPEST: usize = 32;
/// The most values that are read: aliases of aliases could grow a short file without a bound.
const MOST_NODES: usize = 10_000;
/// The key of YAML 1.1 whose value is merged into its map.
const MERGE: &str = "<<";

/// A value and its tag. Redisson writes a Java class as a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) tag: Option<String>,
    pub(super) value: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Null,
    /// The text as written: the reader of a setting parses numbers and booleans.
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// Reads the documents. Errors contain the line, and no text of the file.
pub(super) fn documents(text: &str) -> Result<Vec<Node>, Error> {
    // Editors of Windows begin a file with this mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut events = Events {
        parser: Parser::new_from_str(text),
        anchors: HashMap::default(),
        nodes: 0,
    };
    let mut documents = Vec::new();
    loop {
        let (event, span) = events.next()?;
        match event {
            Event::StreamEnd => return Ok(documents),
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            event => documents.push(events.node(event, span, 0)?),
        }
    }
}

struct Events<'a> {
    parser: Parser<'a, StrInput<'a>>,
    /// The values that aliases may name.
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

impl<'a> Events<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Error> {
        match self.parser.next() {
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
        let (value, anchor, tag) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_null = style == ScalarStyle::Plain
                    && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let value = match is_null {
                    true => Value::Null,
                    false => Value::Text(text.into_owned()),
                };
                (value, anchor, tag)
            }
            Event::SequenceStart(anchor, tag) => (self.list(depth)?, anchor, tag),
            Event::MappingStart(anchor, tag) => (self.map(depth)?, anchor, tag),
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned();
                // An alias within its own anchor would have no end.
                let node = node.ok_or_else(|| at(span, "an alias names no earlier value"))?;
                self.count(node.size(), span)?;
                return Ok(node);
            }
            _ => return Err(at(span, "a value is expected")),
        };
        self.count(1, span)?;
        let tag = tag.map(|tag| name(&tag));
        let node = Node { tag, value };
        // 0 means that the value has no anchor.
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn count(&mut self, nodes: usize, span: Span) -> Result<(), Error> {
        self.nodes += nodes;
        match self.nodes > MOST_NODES {
            true => Err(at(span, "it has too many values")),
            false => Ok(()),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, Error> {
        let mut list = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::List(list)),
                (event, span) => list.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, Error> {
        let mut map: Vec<(String, Node)> = Vec::new();
        let mut merged = Vec::new();
        loop {
            let (key, span) = match self.next()? {
                (Event::MappingEnd, _) => break,
                (Event::Scalar(key, ..), span) => (key.into_owned(), span),
                (_, span) => return Err(at(span, "a key is not a text")),
            };
            if map.iter().any(|(known, _)| *known == key) {
                return Err(at(span, &format!("{key} occurs twice")));
            }
            let (event, at_value) = self.next()?;
            let node = self.node(event, at_value, depth + 1)?;
            match (key == MERGE, node.value) {
                (true, Value::Map(entries)) => merged.extend(entries),
                (true, Value::List(nodes)) => {
                    for node in nodes {
                        let Value::Map(entries) = node.value else {
                            return Err(at(at_value, "<< merges maps only"));
                        };
                        merged.extend(entries);
                    }
                }
                (true, _) => return Err(at(at_value, "<< merges maps only")),
                (false, value) => map.push((key, Node { value, ..node })),
            }
        }
        // The map's own entries come before merged ones, and of those the first.
        for (key, node) in merged {
            if map.iter().all(|(known, _)| *known != key) {
                map.push((key, node));
            }
        }
        Ok(Value::Map(map))
    }
}

impl Node {
    /// The number of values in the tree.
    fn size(&self) -> usize {
        1 + match &self.value {
            Value::Null | Value::Text(_) => 0,
            Value::List(nodes) => nodes.iter().map(Node::size).sum(),
            Value::Map(entries) => entries.iter().map(|(_, node)| node.size()).sum(),
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
