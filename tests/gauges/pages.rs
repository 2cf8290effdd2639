//! Compares pages for operators with the code: the table of gauges, the queries of the dashboard and the alerts, and the table of log
//! lines.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use redisson_lock_test::InMemoryRedis;
use tokio::time::{sleep, timeout};

use super::page::Page;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The parts of a cell in backquotes.
fn quoted(cell: &str) -> Vec<String> {
    let parts = cell.split('`').skip(1).step_by(2);
    parts.map(str::to_owned).collect()
}

/// The cells of the rows below the heading row `head`.
fn table(page: &str, head: &str) -> Vec<Vec<String>> {
    let (_, rows) = page
        .split_once(head)
        .unwrap_or_else(|| panic!("no table {head}"));
    let rows = rows
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let cells = |row: &str| {
        let row = row.replace("\\|", "/");
        let cells = row.trim_matches('|').split('|').map(str::trim);
        cells.map(str::to_owned).collect()
    };
    rows.map(cells).collect()
}

/// The exported metrics, each with its labels and their values.
type Shown = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn shown(text: &str) -> Shown {
    let mut shown = Shown::new();
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (series, _) = line.rsplit_once(' ').expect("a series and a number");
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let metric = shown.entry(name.to_owned()).or_default();
        for label in labels
            .trim_end_matches('}')
            .split(',')
            .filter(|label| !label.is_empty())
        {
            let (label, value) = label.split_once('=').expect("a label and a value");
            metric
                .entry(label.into())
                .or_default()
                .insert(value.trim_matches('"').into());
        }
    }
    shown
}

/// The metrics of clients that have acquired a lock and waited for it.
async fn exported() -> Shown {
    let (page, server) = (Page::new(), InMemoryRedis::new());
    let (one, other) = (
        server.client().await.unwrap(),
        server.client().await.unwrap(),
    );
    let held = one.reentrant_lock("a").lock().await.unwrap();
    let _led = one.fenced_lock("b").lock().await.unwrap();
    let lock = other.reentrant_lock("a");
    assert!(timeout(Duration::from_secs(6), lock.lock()).await.is_err());
    held.unlock().await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let text = page.text();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, _) = rest.split_once(' ').expect("a name and a sort");
            assert!(
                text.contains(&format!("# HELP {name} ")),
                "{name} is not described"
            );
        }
    }
    shown(&text)
}

#[tokio::test(start_paused = true)]
async fn the_table_of_gauges_matches_the_exporter() {
    let mut told = BTreeMap::new();
    let page = read("docs/metrics.md");
    for row in table(&page, "| name | sort | labels | counts |") {
        let labels: BTreeSet<_> = quoted(&row[2]).into_iter().collect();
        told.insert((quoted(&row[0])[0].clone(), row[1].clone()), labels);
    }
    let exported = exported().await;
    let mut shows = BTreeMap::new();
    for (name, labels) in &exported {
        let sort = match name {
            name if name.ends_with("_total") => "counter",
            name if name.ends_with("_bucket") => "histogram",
            name if name.ends_with("_sum") || name.ends_with("_count") => continue,
            _ => "gauge",
        };
        let labels = labels
            .keys()
            .filter(|label| *label != "le")
            .cloned()
            .collect();
        let name = name.trim_end_matches("_bucket").to_owned();
        shows.insert((name, sort.to_owned()), labels);
    }
    assert_eq!(told, shows);
    let values = table(&page, "| label | values |");
    let values: BTreeSet<_> = values.iter().flat_map(|row| quoted(&row[1])).collect();
    for (label, found) in exported
        .values()
        .flatten()
        .filter(|(label, _)| *label != "le")
    {
        for value in found {
            assert!(
                values.contains(value),
                "the page does not name {label} {value}"
            );
        }
    }
}

/// The functions and keywords of PromQL in the queries of the pages.
const WORDS: [&str; 9] = [
    "sum",
    "max",
    "by",
    "rate",
    "increase",
    "histogram_quantile",
    "m",
    "s",
    "__rate_interval",
];
/// The labels that Prometheus adds.
const ADDED: [&str; 2] = ["instance", "job"];

/// The names in a query that the exporter does not export.
fn unknown(query: &str, exported: &Shown) -> Vec<String> {
    let mut unknown = Vec::new();
    let mut metrics = Vec::new();
    let mut rest = query;
    let is_word = |char: char| char.is_ascii_alphanumeric() || char == '_';
    while let Some(begins) = rest.find(is_word) {
        let before = rest[..begins].chars().next_back();
        rest = &rest[begins..];
        let end = rest.find(|char| !is_word(char)).unwrap_or(rest.len());
        let word = &rest[..end];
        rest = &rest[end..];
        if word.starts_with(|char: char| char.is_ascii_digit())
            || before == Some('$') && WORDS.contains(&word)
        {
            continue;
        }
        if word == "by" {
            let (labels, behind) = rest.trim_start()[1..]
                .split_once(')')
                .expect("a list of labels");
            let later = exported
                .iter()
                .filter(|(name, _)| query.contains(name.as_str()));
            let known: BTreeSet<_> = later
                .flat_map(|(_, labels)| labels.keys().map(String::as_str))
                .collect();
            let new = labels
                .split(',')
                .map(str::trim)
                .filter(|label| !known.contains(label) && !ADDED.contains(label));
            unknown.extend(new.map(str::to_owned));
            rest = behind;
        } else if let Some(labels) = exported.get(word) {
            metrics.push(word);
            let Some(selectors) = rest.strip_prefix('{') else {
                continue;
            };
            let (selectors, behind) = selectors.split_once('}').expect("a list of selectors");
            for selector in selectors.split(',') {
                let (label, values) = selector.split_once(['=', '!']).expect("a label and values");
                let values = values.trim_matches(['=', '~', '"']).split('|');
                let known = labels.get(label);
                let new = values.filter(|value| !known.is_some_and(|known| known.contains(*value)));
                unknown.extend(new.map(|value| format!("{word} {label} {value}")));
            }
            rest = behind;
        } else if !WORDS.contains(&word) {
            unknown.push(word.to_owned());
        }
    }
    if metrics.is_empty() {
        unknown.push(format!("no metric in {query}"));
    }
    unknown
}

/// Every `expr` of a document, however deep.
fn queries(json: &serde_json::Value) -> Vec<String> {
    match json {
        serde_json::Value::Object(fields) => {
            let own = fields.get("expr").and_then(|query| query.as_str());
            let own = own.map(str::to_owned).into_iter();
            own.chain(fields.values().flat_map(queries)).collect()
        }
        serde_json::Value::Array(items) => items.iter().flat_map(queries).collect(),
        _ => Vec::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn every_query_names_exported_gauges() {
    let exported = exported().await;
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("docs/grafana-dashboard.json")).unwrap();
    let panels = queries(&dashboard);
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(
            !queries(panel).is_empty(),
            "{} has no query",
            panel["title"]
        );
    }
    let page = read("docs/metrics.md").replace(">-\n", "");
    let mut rules: Vec<String> = Vec::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((_, query)) = line.split_once("expr: ") else {
            continue;
        };
        let mut query = query.to_owned();
        while let Some(more) = lines.next_if(|line| line.starts_with("          ")) {
            query += more;
        }
        rules.push(query);
    }
    assert_eq!(rules.len(), page.matches("- alert:").count());
    for query in panels.iter().chain(&rules) {
        assert_eq!(unknown(query, &exported), [""; 0], "{query}");
    }
    for name in exported.keys() {
        let base = ["_sum", "_count", "_bucket"]
            .iter()
            .find_map(|end| name.strip_suffix(end));
        let base = base.unwrap_or(name);
        assert!(
            panels.iter().any(|query| query.contains(base)),
            "no panel shows {base}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_query_with_a_wrong_name_is_found() {
    let exported = exported().await;
    let wrong = [
        (
            "rate(redisson_lock_acquisition_total[5m])",
            "redisson_lock_acquisition_total",
        ),
        (
            "rate(redisson_lock_lost_total{cause=\"gone\"}[5m])",
            "redisson_lock_lost_total cause gone",
        ),
        (
            "rate(redisson_lock_lost_total{reason=~\"gone|away\"}[5m])",
            "redisson_lock_lost_total reason away",
        ),
        ("sum by (name) (redisson_lock_holders)", "name"),
    ];
    for (query, part) in wrong {
        assert!(
            unknown(query, &exported).contains(&part.to_owned()),
            "{query}"
        );
    }
}

/// A log line of the code, by its message: its levels and fields.
type Lines = BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)>;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The arguments of a macro, up to its closing parenthesis. Commas in texts and brackets separate nothing.
fn arguments(source: &str) -> Vec<String> {
    let (mut arguments, mut depth, mut in_text) = (vec![String::new()], 0, false);
    let mut chars = source.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' if in_text => match chars.next() {
                Some('\n') => {
                    let rest = chars.as_str().trim_start();
                    chars = rest.chars();
                    continue;
                }
                escaped => arguments.last_mut().unwrap().extend(escaped),
            },
            '"' => in_text = !in_text,
            '(' | '[' | '{' if !in_text => depth += 1,
            ')' if !in_text && depth == 0 => break,
            ')' | ']' | '}' if !in_text => depth -= 1,
            ',' if !in_text && depth == 0 => {
                arguments.push(String::new());
                continue;
            }
            _ => {}
        }
        arguments.last_mut().unwrap().push(char);
    }
    let arguments = arguments.iter().map(|argument| argument.trim().to_owned());
    arguments.filter(|argument| !argument.is_empty()).collect()
}

fn log_lines() -> Lines {
    let mut paths = Vec::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut paths,
    );
    let mut lines = Lines::new();
    for path in paths {
        let source = fs::read_to_string(&path).unwrap();
        for level in ["error", "warn", "info", "debug", "trace"] {
            for begins in source.split(&format!("tracing::{level}!(")).skip(1) {
                let mut fields = arguments(begins);
                // `name:` names the event and is no field.
                fields.retain(|field| !field.starts_with("name: "));
                let message = fields.pop().unwrap();
                let message = message.trim_matches('"').to_owned();
                // A function that logs a parameter: its callers have the messages.
                let messages = match message == "{what}" {
                    true => source
                        .split("self.tell(")
                        .skip(1)
                        .map(|told| arguments(told)[0].trim_matches('"').to_owned())
                        .collect(),
                    false => vec![message],
                };
                for message in messages {
                    let (levels, names) = lines.entry(message).or_default();
                    levels.insert(level.to_uppercase());
                    let name = |field: &String| {
                        field
                            .split('=')
                            .next()
                            .unwrap()
                            .trim_matches(['%', '?', ' '])
                            .to_owned()
                    };
                    names.extend(fields.iter().map(name));
                }
            }
        }
    }
    lines
}

#[test]
fn the_table_of_log_lines_matches_the_code() {
    let mut told = Lines::new();
    for row in table(
        &read("docs/operations.md"),
        "| line | level | fields | meaning, and what to do |",
    ) {
        let levels = row[1].split(", ").map(str::to_owned).collect();
        told.insert(
            quoted(&row[0])[0].clone(),
            (levels, quoted(&row[2]).into_iter().collect()),
        );
        assert!(row[3].len() > 20, "{row:?}");
    }
    let logged = log_lines();
    assert!(logged.len() > 15, "{logged:?}");
    let all: BTreeSet<_> = told.keys().chain(logged.keys()).collect();
    let differ = all
        .into_iter()
        .filter(|line| told.get(*line) != logged.get(*line));
    let differ: Vec<_> = differ
        .map(|line| (line, told.get(line), logged.get(line)))
        .collect();
    assert!(differ.is_empty(), "page and code differ: {differ:#?}");
}

/// The test above finds only macros that are called as `tracing::level!`.
#[test]
fn all_log_lines_are_written_alike() {
    let mut paths = Vec::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut paths,
    );
    for path in paths {
        let source = fs::read_to_string(&path).unwrap();
        let others = [
            "use tracing::{warn",
            "use tracing::warn",
            "use tracing::debug",
            "use tracing::info",
            "tracing::event!",
            " log::",
        ];
        let found: Vec<_> = others
            .iter()
            .filter(|other| source.contains(**other))
            .collect();
        assert!(found.is_empty(), "{}: {found:?}", path.display());
    }
}
