//! Reads Markdown for the checks: prose without code, headings with their anchors, and links.

pub struct Heading {
    pub level: usize,
    pub anchor: String,
}

/// Lines outside of fenced code, numbered from one.
pub fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        (!in_code && !is_fence).then_some((index + 1, line))
    })
}

/// Headings with the anchors that GitHub and rustdoc give them.
pub fn headings(text: &str) -> Vec<Heading> {
    let mut headings = Vec::<Heading>::new();
    for (_, line) in lines(text) {
        let level = line.chars().take_while(|c| *c == '#').count();
        let Some(title) = line[level..].strip_prefix(' ').filter(|_| level > 0) else {
            continue;
        };
        let anchor: String = title
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        headings.push(Heading { level, anchor });
    }
    headings
}

/// The line without its inline code. A backtick without a partner is text.
pub fn without_code(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    let prose = parts.iter().enumerate().filter(|(index, _)| index % 2 == 0);
    prose.map(|(_, part)| *part).collect::<Vec<_>>().join("x")
}

/// The line without link targets: `[text](target)` and `[text][label]` become `[text]`, and a definition becomes empty.
pub fn without_targets(line: &str) -> String {
    if definition(line).is_some() {
        return String::new();
    }
    let mut parts = line.split(']');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = match part.chars().next() {
            Some('(') => part.split_once(')').map_or("", |(_, rest)| rest),
            // The label ends where the next part begins.
            Some('[') => "",
            _ => part,
        };
        text.push(']');
        text.push_str(rest);
    }
    text
}

/// Targets of inline links and of definitions (`[label]: target`).
pub fn targets(line: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find("](") {
        rest = &rest[at + 2..];
        let mut depth = 1;
        let end = rest.find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        let Some(end) = end else { break };
        targets.push(&rest[..end]);
        rest = &rest[end..];
    }
    targets.extend(definition(line).map(|(_, target)| target));
    targets
}

/// The label and target of a link definition (`[label]: target`).
pub fn definition(line: &str) -> Option<(&str, &str)> {
    let (label, rest) = line.strip_prefix('[')?.split_once(']')?;
    Some((label, rest.strip_prefix(": ")?.trim()))
}

/// The labels of reference links (`[text][label]`), and the labels that the page defines.
pub fn labels(text: &str) -> (Vec<(usize, &str)>, Vec<&str>) {
    let (mut used, mut defined) = (Vec::new(), Vec::new());
    for (number, line) in lines(text) {
        if let Some((label, _)) = definition(line) {
            defined.push(label);
            continue;
        }
        for (at, start) in line.match_indices("][") {
            let rest = &line[at + start.len()..];
            used.extend(rest.split_once(']').map(|(label, _)| (number, label)));
        }
    }
    (used, defined)
}

/// The tests that a line names in inline code, such as `tests/it/a.rs::name`, as path and name.
pub fn tests_in(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let code = line.split('`').skip(1).step_by(2);
    code.filter_map(|code| code.split_once("::"))
        .filter(|(path, _)| path.ends_with(".rs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_no_prose() {
        let text = "one\n```text\nwho\n```\ntwo `who` three\n";
        let prose: Vec<_> = lines(text)
            .map(|(number, line)| (number, without_code(line)))
            .collect();
        assert_eq!(
            prose,
            [(1, "one".to_owned()), (5, "two x three".to_owned())]
        );
    }

    #[test]
    fn anchors_are_those_of_github() {
        let anchors: Vec<_> = headings("# A `b_c`: d, e\n## x-y\n")
            .into_iter()
            .map(|heading| heading.anchor)
            .collect();
        assert_eq!(anchors, ["a-b_c-d-e", "x-y"]);
    }

    #[test]
    fn links_of_all_sorts_have_targets() {
        assert_eq!(
            targets("[a](b.md), ![c](d(e).svg) [f][g]"),
            ["b.md", "d(e).svg"]
        );
        assert_eq!(targets("[g]: h.md"), ["h.md"]);
        assert_eq!(targets("[g][h]: i"), [""; 0]);
        assert_eq!(labels("[a][b]\n[b]: c.md\n"), (vec![(1, "b")], vec!["b"]));
    }
}
