//! The block of Redisson's YAML in a configuration file of Spring Boot.

use super::{
    section::Environment,
    yaml::{self, Node, Value},
};
use crate::error::Error;

/// Where Spring Boot's starter of Redisson reads its block.
const BLOCKS: [&str; 2] = ["spring.redis.redisson", "spring.data.redis.redisson"];
/// The deepest nesting of placeholders that is resolved.
const DEEPEST: usize = 8;

/// The settings in `text`: those of a file of Redisson, or of the block in a file of Spring Boot.
pub(super) fn settings(text: &str, environment: Environment<'_>) -> Result<Node, Error> {
    let mut documents = yaml::documents(text)?;
    let mut found = None;
    for document in &documents {
        for path in BLOCKS {
            let Some(block) = block(document, path)? else {
                continue;
            };
            if found.is_some() {
                return Err(Error::config(format!(
                    "{path}.config: the file has a second block of Redisson: keep one"
                )));
            }
            let look_up = |name: &str| variable(environment, name).or_else(|| own(document, name));
            found = Some(resolved(&block, &look_up, 0).ok_or_else(|| {
                Error::config(format!(
                    "{path}.config: a `${{..}}` names no environment variable and no setting of the file: set it, or write \
                     `${{NAME:default}}`"
                ))
            })?);
        }
    }
    if let Some(block) = found {
        documents = yaml::documents(&block)?;
    }
    match documents.len() {
        0 => Err(Error::config("the YAML is empty")),
        1 => Ok(documents.remove(0)),
        _ => Err(Error::config(
            "the YAML contains a second document: keep one",
        )),
    }
}

/// The text of a block.
fn block(document: &Node, path: &str) -> Result<Option<String>, Error> {
    let refusal =
        |setting: &str, told: &str| Err(Error::config(format!("{path}.{setting}: {told}")));
    match at(document, &format!("{path}.config")).map(|node| &node.value) {
        Some(Value::Text(text)) if text.starts_with("classpath:") || text.starts_with("file:") => {
            refusal(
                "config",
                "the settings are in another file: pass the content of that file",
            )
        }
        Some(Value::Text(text)) => Ok(Some(text.clone())),
        Some(_) => refusal("config", "the block must be a text: write `config: |`"),
        None if at(document, &format!("{path}.file")).is_some() => refusal(
            "file",
            "the settings are in another file: pass the content of that file",
        ),
        None => Ok(None),
    }
}

/// The value at a path. Spring writes a path as nested keys, as one key, or as anything between.
fn at<'a>(node: &'a Node, path: &str) -> Option<&'a Node> {
    let Value::Map(entries) = &node.value else {
        return None;
    };
    entries.iter().find_map(|(key, node)| {
        let rest = path.strip_prefix(key.as_str())?;
        match rest.strip_prefix('.') {
            Some(rest) => at(node, rest),
            None => rest.is_empty().then_some(node),
        }
    })
}

/// The variable of a placeholder. Spring also finds `spring.redis.host` as `SPRING_REDIS_HOST`.
fn variable(environment: Environment<'_>, name: &str) -> Option<String> {
    let relaxed = || {
        let name = name.replace('.', "_").replace('-', "");
        environment(&name.to_uppercase())
    };
    environment(name).or_else(relaxed)
}

/// A setting of the file itself.
fn own(document: &Node, name: &str) -> Option<String> {
    match &at(document, name)?.value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    }
}

/// `text` with the values of Spring's placeholders, `${name}` and `${name:default}`, which may be nested; `None` if one has no
/// value.
fn resolved(text: &str, look_up: &dyn Fn(&str) -> Option<String>, depth: usize) -> Option<String> {
    if depth > DEEPEST {
        return None;
    }
    let mut resolved_text = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some(end) = closing(after) else {
            break;
        };
        let (name, default) = match after[..end].split_once(':') {
            Some((name, default)) => (name, Some(default)),
            None => (&after[..end], None),
        };
        let value = look_up(name).or(default.map(str::to_owned))?;
        resolved_text.push_str(before);
        resolved_text.push_str(&resolved(&value, look_up, depth + 1)?);
        rest = &after[end + 1..];
    }
    Some(resolved_text + rest)
}

/// The place of the brace that closes a placeholder.
fn closing(text: &str) -> Option<usize> {
    let mut open = 0;
    for (place, letter) in text.char_indices() {
        match letter {
            '{' => open += 1,
            '}' if open == 0 => return Some(place),
            '}' => open -= 1,
            _ => {}
        }
    }
    None
}
