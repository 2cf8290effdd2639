//! Reads settings by their names, and lists the settings that were not read.

use std::{cell::RefCell, time::Duration};

use super::yaml::{Node, Value};
use crate::{config, error::Error};

/// Looks up the variable of a `${NAME}`.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A map of settings, and its path in the file.
pub(super) struct Section<'a> {
    path: String,
    entries: &'a [(String, Node)],
    /// The names that were looked up, whether the file has them or not.
    asked: RefCell<Vec<String>>,
    environment: Environment<'a>,
}

impl<'a> Section<'a> {
    pub(super) fn new(
        path: &str,
        node: &'a Node,
        environment: Environment<'a>,
    ) -> Result<Self, Error> {
        match &node.value {
            Value::Map(entries) => Ok(Self {
                path: path.to_owned(),
                entries,
                asked: RefCell::default(),
                environment,
            }),
            Value::Text(_) if path.is_empty() => Err(Error::config(
                "the file: it is a single text and has no settings; pass the content of the file, not its path",
            )),
            _ => Err(Error::config(format!(
                "{}: must contain settings, written as `name: value`",
                if path.is_empty() { "the file" } else { path }
            ))),
        }
    }

    /// The setting's path in the file.
    pub(super) fn path_of(&self, key: &str) -> String {
        match &*self.path {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }

    /// The error of a setting that cannot be used, with the reason.
    pub(super) fn error(&self, key: &str, reason: impl std::fmt::Display) -> Error {
        Error::config(format!("{}: {reason}", self.path_of(key)))
    }

    /// The value of `key`, unless it is null.
    pub(super) fn node(&self, key: &str) -> Option<&'a Node> {
        if !self.has_asked(key) {
            self.asked.borrow_mut().push(key.to_owned());
        }
        let (_, node) = self.entries.iter().find(|(name, _)| name == key)?;
        (node.value != Value::Null).then_some(node)
    }

    pub(super) fn section(&self, key: &str) -> Result<Option<Section<'a>>, Error> {
        let node = self.node(key);
        node.map(|node| Section::new(&self.path_of(key), node, self.environment))
            .transpose()
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<String>, Error> {
        self.node(key)
            .map(|node| self.text_of(key, node))
            .transpose()
    }

    pub(super) fn required(&self, key: &str) -> Result<String, Error> {
        self.text(key)?
            .ok_or_else(|| self.error(key, "the setting is missing"))
    }

    /// A list of texts, or a single one.
    pub(super) fn texts(&self, key: &str) -> Result<Vec<String>, Error> {
        let Some(node) = self.node(key) else {
            return Err(self.error(key, "the setting is missing"));
        };
        let nodes = match &node.value {
            Value::List(nodes) => nodes.iter().collect(),
            _ => vec![node],
        };
        let texts = nodes.into_iter().map(|node| self.text_of(key, node));
        texts.collect()
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<u64>, Error> {
        let parsed = |text: String| {
            whole(&text).ok_or_else(|| self.error(key, "the value must be a whole number"))
        };
        self.text(key)?.map(parsed).transpose()
    }

    /// A time in milliseconds, or with its unit.
    pub(super) fn time(&self, key: &str) -> Result<Option<Duration>, Error> {
        let parsed = |text: String| {
            let millis = whole(&text).map(Duration::from_millis);
            // A number that YAML lacks, such as 08, is no time either.
            let has_unit = text.trim().ends_with(char::is_alphabetic);
            let with_unit = || config::duration(&text).filter(|_| has_unit);
            millis.or_else(with_unit).ok_or_else(|| {
                self.error(
                    key,
                    "the value must be a time: write 30000, in milliseconds, or 30s",
                )
            })
        };
        self.text(key)?.map(parsed).transpose()
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, Error> {
        let parsed = |text: String| match &*text.trim().to_lowercase() {
            "true" | "yes" | "on" => Ok(true),
            "false" | "no" | "off" => Ok(false),
            _ => Err(self.error(key, "the value must be true or false")),
        };
        self.text(key)?.map(parsed).transpose()
    }

    /// The class that a setting names, without its package: Redisson has moved some.
    pub(super) fn class(&self, key: &str) -> Result<Option<&'a str>, Error> {
        let Some(node) = self.node(key) else {
            return Ok(None);
        };
        let class = node.tag.as_deref().and_then(|tag| tag.rsplit('.').next());
        // A mapper without its class would be ignored silently.
        let missing = || {
            self.error(
                key,
                "the class is missing: write `!<org.redisson.config.NAME>`",
            )
        };
        class.map(Some).ok_or_else(missing)
    }

    /// All entries, as texts.
    pub(super) fn pairs(&self) -> Result<Vec<(String, String)>, Error> {
        let pairs = self.entries.iter();
        pairs
            .map(|(key, node)| Ok((self.resolved(key, key)?, self.text_of(key, node)?)))
            .collect()
    }

    /// The names of all settings.
    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.entries.iter().map(|(key, _)| &**key)
    }

    /// The settings that were not looked up.
    pub(super) fn unread(&self) -> impl Iterator<Item = String> {
        self.unread_keys().map(|key| self.path_of(key))
    }

    /// Refuses an unread setting that is a mistake: it belongs to `other` (the section around this one or within it), or
    /// resembles the name of a missing setting. Redisson refuses every unknown name.
    pub(super) fn check_names(&self, other: &Section<'_>) -> Result<(), Error> {
        for key in self.unread_keys() {
            if other.has_asked(key) {
                return Err(match &*self.path {
                    "" => self.error(key, format!("the setting belongs in {}", other.path)),
                    path => {
                        self.error(key, format!("the setting belongs beside {path}, not in it"))
                    }
                });
            }
            let asked = self.asked.borrow();
            let mut missing = asked
                .iter()
                .filter(|name| self.entries.iter().all(|(key, _)| key != *name));
            if let Some(meant) = missing.find(|name| is_nearly(key, name)) {
                return Err(self.error(key, format!("unknown setting; did you mean {meant}?")));
            }
        }
        Ok(())
    }

    fn has_asked(&self, key: &str) -> bool {
        self.asked.borrow().iter().any(|name| name == key)
    }

    fn unread_keys(&self) -> impl Iterator<Item = &'a str> {
        let keys = self.entries.iter().map(|(key, _)| &**key);
        keys.filter(|key| !self.has_asked(key))
    }

    fn text_of(&self, key: &str, node: &Node) -> Result<String, Error> {
        match &node.value {
            Value::Text(text) => self.resolved(key, text),
            _ => Err(self.error(key, "the value must be a single text or number")),
        }
    }

    /// `text` with the values of `${NAME}` and `${NAME:-default}`.
    fn resolved(&self, key: &str, text: &str) -> Result<String, Error> {
        let mut resolved = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((variable, behind)) = after.split_once('}') else {
                return Err(self.error(key, "a `${` has no closing `}`"));
            };
            let (name, default) = match variable.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (variable, None),
            };
            let value = (self.environment)(name).or(default.map(str::to_owned));
            let value = value.ok_or_else(|| {
                // A part of a password may look like a variable.
                let may_be_secret = key.to_lowercase().contains("password") || text.contains('@');
                let is_part = !before.is_empty() || !behind.is_empty();
                let name = if may_be_secret && is_part { ".." } else { name };
                let told = format!(
                    "the environment variable of `${{{name}}}` is not set: set it, or write `${{{name}:-default}}`"
                );
                self.error(key, told)
            })?;
            resolved.push_str(before);
            resolved.push_str(&value);
            rest = behind;
        }
        resolved.push_str(rest);
        Ok(resolved)
    }
}

/// A whole number of YAML 1.1, which Redisson reads: `3_000`, `0x10`, `0b11`, `010` with base 8, `1:30` with base 60.
fn whole(text: &str) -> Option<u64> {
    let text = text.trim().replace('_', "");
    let digits = text.strip_prefix('+').unwrap_or(&text);
    let of_base = |digits: &str, base| {
        let is_plain = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(base));
        is_plain.then(|| u64::from_str_radix(digits, base).ok())?
    };
    if let Some(digits) = digits.strip_prefix("0x") {
        of_base(digits, 16)
    } else if let Some(digits) = digits.strip_prefix("0b") {
        of_base(digits, 2)
    } else if digits.len() > 1 && digits.starts_with('0') {
        of_base(&digits[1..], 8)
    } else {
        let mut parts = digits.split(':').map(|part| of_base(part, 10));
        parts.try_fold(0_u64, |sum, part| sum.checked_mul(60)?.checked_add(part?))
    }
}

/// Whether `key` is `name` with one or two typing errors.
fn is_nearly(key: &str, name: &str) -> bool {
    let [key, name] = [key, name].map(str::to_lowercase);
    strsim::damerau_levenshtein(&key, &name) <= 2
}
