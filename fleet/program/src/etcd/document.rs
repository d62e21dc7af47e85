//! The file of a fleet's configuration (TOML): options of `artery router` that all machines have, and those
//! of each machine, which replace them.
//!
//! ```toml
//! [router]
//! service = ["192.0.2.1:80/tcp=web1=10.0.2.11,web2=10.0.2.12"]
//! [machine.m1]
//! port = ["eth1=10.0.1.1/24", "eth2=10.0.2.1/24"]
//! ```

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use toml::{Table, Value};

use crate::config::is_word;

/// Most bytes of a file: etcd takes requests of 1.5 MiB, and a revision has two of them.
const LONGEST: usize = 512 << 10;
/// The key of the number of the hash that members are chosen by.
const SEED: &str = "seed";

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
    #[serde(default)]
    router: Table,
    #[serde(default)]
    machine: BTreeMap<String, Table>,
}

impl Document {
    pub(crate) fn parse(text: &str) -> Result<Document> {
        ensure!(text.len() <= LONGEST, "it has {} bytes; at most {LONGEST} are possible", text.len());
        let document: Document = toml::from_str(text)?;
        ensure!(
            !document.machine.is_empty(),
            "it names no machine: write a section [machine.NAME] for each, as [machine.m1]"
        );
        for name in document.machine.keys() {
            ensure!(is_word(name), "[machine.{name:?}]: use letters, digits, '-', '_' and '.', at most 64");
        }
        Ok(document)
    }

    pub(crate) fn machines(&self) -> impl Iterator<Item = &str> {
        self.machine.keys().map(String::as_str)
    }

    /// The file of the router of a machine. The seed goes with services alone, which it is about.
    pub(crate) fn render(&self, machine: &str, seed: u64) -> Result<String> {
        let own = self.machine.get(machine);
        let own = own.with_context(|| format!("the file has no [machine.{machine}]"))?;
        let mut router = self.router.clone();
        router.extend(own.clone());
        if router.contains_key("service") && !router.contains_key(SEED) {
            router.insert(SEED.to_string(), Value::String(seed.to_string()));
        }
        toml::to_string(&router).context("it can't be written as a router's file")
    }

    /// A line for each value: `[SECTION] KEY = VALUE`.
    fn lines(&self) -> Vec<String> {
        let machines = self.machine.iter().map(|(name, table)| (format!("[machine.{name}]"), table));
        let sections = std::iter::once(("[router]".to_string(), &self.router)).chain(machines);
        let mut lines = Vec::new();
        for (section, table) in sections {
            if table.is_empty() {
                lines.push(section.clone());
            }
            for (key, value) in table {
                match value {
                    _ if key == SEED => lines.push(format!("{section} {SEED} = (secret)")),
                    Value::Array(items) => {
                        lines.extend(items.iter().map(|item| format!("{section} {key} = [{item}]")));
                    }
                    value => lines.push(format!("{section} {key} = {value}")),
                }
            }
        }
        lines
    }
}

/// The lines that go (`- `) and come (`+ `) between two files.
pub(crate) fn changes(from: Option<&Document>, to: &Document) -> Vec<String> {
    let mut gone = from.map_or(Vec::new(), Document::lines);
    let mut new = to.lines();
    // A value that a list has twice counts twice.
    gone.retain(|line| match new.iter().position(|other| other == line) {
        Some(at) => {
            new.remove(at);
            false
        }
        None => true,
    });
    let (gone, new) = (gone.into_iter().map(|line| format!("- {line}")), new.into_iter());
    gone.chain(new.map(|line| format!("+ {line}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
[router]
service = ["192.0.2.1:80/tcp=web1=10.0.2.11,web2=10.0.2.12"]
workers = 2
[machine.m1]
port = ["eth1=10.0.1.1/24", "eth2=10.0.2.1/24"]
[machine.m2]
port = ["eth1=10.0.1.2/24"]
workers = 4
"#;

    #[test]
    fn a_machine_has_the_common_options_and_its_own_which_replace_them() {
        let document = Document::parse(FILE).unwrap();
        let table: Table = document.render("m2", u64::MAX).unwrap().parse().unwrap();
        assert_eq!(table["workers"].as_integer(), Some(4));
        assert_eq!(table["port"].as_array().map(Vec::len), Some(1));
        assert_eq!(table["seed"].as_str(), Some("18446744073709551615"));
        assert!(table.contains_key("service"));
        let refusal = document.render("m3", 1).unwrap_err().to_string();
        assert_eq!(refusal, "the file has no [machine.m3]");
        // A seed of the file counts, and one without services says nothing.
        let with = Document::parse(&FILE.replace("workers = 2", "seed = 7")).unwrap();
        assert!(with.render("m1", 1).unwrap().contains("seed = 7"));
        let without = Document::parse("[machine.m1]\nno-host = true\n").unwrap();
        assert_eq!(without.render("m1", 1).unwrap(), "no-host = true\n");
    }

    #[test]
    fn what_is_no_file_of_a_fleet_is_refused() {
        for (text, part) in [
            ("", "it names no machine"),
            ("[router]\nworkers = 2\n", "it names no machine"),
            ("[machine.\"a/b\"]\n", "use letters"),
            ("[routers]\n[machine.m1]\n", "unknown field `routers`"),
            ("[machine]\nm1 = 7\n", "invalid type"),
            (&" ".repeat(LONGEST + 1), "at most"),
        ] {
            let said = format!("{:#}", Document::parse(text).unwrap_err());
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn changes_are_lines_of_sections_without_the_seed() {
        let from = Document::parse(&FILE.replace("workers = 2", "seed = 7")).unwrap();
        let to = FILE.replace(", \"eth2=10.0.2.1/24\"", "").replace("workers = 2", "seed = 8");
        assert_eq!(
            changes(Some(&from), &Document::parse(&to).unwrap()),
            ["- [machine.m1] port = [\"eth2=10.0.2.1/24\"]"]
        );
        assert_eq!(changes(Some(&from), &from), Vec::<String>::new());
        let first = changes(None, &Document::parse("[machine.m1]\n").unwrap());
        assert_eq!(first, ["+ [router]", "+ [machine.m1]"]);
    }
}
