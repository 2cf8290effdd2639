//! The scripts of `src/wire`, read when the tests run.

use std::{collections::BTreeMap, fs, path::Path};

use bytes::Bytes;
use model_server::Operation;

/// A script, its model, and what its arguments are.
pub(super) struct Script {
    pub(super) model: &'static model_server::Script,
    text: Bytes,
    /// The names of its keys and arguments; an argument without a use has none.
    pub(super) parts: Vec<String>,
}

impl Script {
    /// The arguments of `EVAL`.
    pub(super) fn words(&self, operations: &[Operation]) -> Vec<Bytes> {
        let keys = self.model.keys;
        let count = (keys * operations.len()).to_string();
        let keys_of_all = operations.iter().flat_map(|parts| &parts[..keys]);
        let args_of_all = operations.iter().flat_map(|parts| &parts[keys..]);
        let words = [self.text.clone(), count.into()].into_iter();
        words
            .chain(keys_of_all.chain(args_of_all).cloned())
            .collect()
    }
}

/// The files of `lua/`, and those that each script consists of.
pub(super) struct Sources {
    pub(super) files: BTreeMap<String, String>,
    scripts: Vec<Vec<String>>,
}

/// The files of a folder of the repository with this ending, by name.
pub(super) fn files(folder: &str, ending: &str) -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = fs::read_dir(root.join(folder)).expect("a folder of the repository");
    let paths = files.map(|file| file.expect("a file").path());
    let paths = paths.filter(|path| path.extension().is_some_and(|its| its == ending));
    paths
        .map(|path| {
            let name = path.file_stem().expect("a name").to_string_lossy();
            let text = fs::read_to_string(&path).expect("a text");
            (name.into_owned(), text)
        })
        .collect()
}

impl Sources {
    pub(super) fn read() -> Self {
        let mut wire = files("src/wire", "rs");
        // It defines the macro.
        wire.remove("script");
        let calls = wire
            .values()
            .flat_map(|text| text.split("script!(").skip(1));
        let scripts = calls.map(|call| {
            let (call, _) = call.split_once(')').expect("the end of a call");
            let names = call.split('"').skip(1).step_by(2);
            names.map(str::to_owned).collect()
        });
        Self {
            scripts: scripts.collect(),
            files: files("lua", "lua"),
        }
    }

    /// The names of the scripts' operations.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.scripts
            .iter()
            .filter_map(|names| names.last().cloned())
    }

    pub(super) fn scripts(&self) -> Vec<Script> {
        self.scripts
            .iter()
            .map(|names| self.script(names))
            .collect()
    }

    /// The scripts for which a choice of their files is true.
    pub(super) fn scripts_with(&self, choice: impl Fn(&[String]) -> bool) -> Vec<Script> {
        let chosen = self.scripts.iter().filter(|names| choice(names));
        chosen.map(|names| self.script(names)).collect()
    }

    fn script(&self, names: &[String]) -> Script {
        let name = names.last().expect("an operation");
        let files = names.iter().map(|name| &self.files[name][..]);
        let text = [&self.files["batch"]].map(|text| &text[..]).into_iter();
        let text = text.chain(files).chain([&self.files["run"][..]]);
        let model = model_server::Script::named(name);
        Script {
            model: model.unwrap_or_else(|| panic!("lua/{name}.lua has no model")),
            text: text.collect::<String>().into(),
            parts: parts_of(&self.files[name]),
        }
    }
}

/// The names of an operation's keys and arguments, by the file's comment and by the head of its function.
fn parts_of(text: &str) -> Vec<String> {
    let line = |begins: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(begins));
        line.unwrap_or_else(|| panic!("no {begins:?} in {text}"))
    };
    let numbers = line("local keys, args = ").split(", ");
    let numbers: Vec<usize> = numbers
        .map(|text| text.parse().expect("a number"))
        .collect();
    let (_, keys) = text.split_once("-- KEYS  ").expect("a list of keys");
    let (keys, _) = keys.split_once("\n-- ARGV").expect("a list of arguments");
    let keys = keys.replace("\n--", "");
    let keys = keys
        .split("; ")
        .map(|key| key.split(':').next().expect("a part"));
    let mut parts: Vec<String> = keys.map(|key| key.trim().to_owned()).collect();
    assert_eq!(parts.len(), numbers[0], "{parts:?}");
    let args = line("local function operation(k")
        .trim_end_matches(')')
        .split(", ");
    parts.extend(args.skip(1).map(str::to_owned));
    parts.resize(numbers[0] + numbers[1], String::new());
    parts
}
