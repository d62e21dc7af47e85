//! The elements' manual: a list, pages as text, and the same pages as Markdown files.
use crate::classes::classes;
use crate::output::{print_stderr, print_stdout};
use crate::spelling::nearest;
use anyhow::{Context as _, bail};
use artery_engine::Class;
use clap::Args;
use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;

mod page;

#[derive(Args)]
pub(crate) struct ElementsOptions {
    /// Show the manual page of this class
    pub(crate) name: Option<String>,
    /// Write all pages into this folder
    #[arg(long, value_name = "DIR", conflicts_with = "name")]
    pub(crate) markdown: Option<PathBuf>,
    /// With --markdown: write nothing, fail if a page is out of date
    #[arg(long, requires = "markdown")]
    pub(crate) check: bool,
    /// List as JSON
    #[arg(long, conflicts_with = "markdown")]
    pub(crate) json: bool,
}

/// Lists elements, shows a page, or writes all pages.
pub(crate) fn command(options: &ElementsOptions) -> anyhow::Result<u8> {
    match (&options.markdown, &options.name) {
        (Some(folder), _) if options.check => check_pages(folder),
        (Some(folder), _) => write_pages(folder),
        (None, Some(name)) => show(name, options.json),
        (None, None) if options.json => {
            let all: Vec<_> = sorted_classes().into_iter().map(page::json).collect();
            print_stdout(&format!(
                "{:#}\n",
                serde_json::json!({ "schema_version": 1, "version": crate::report::VERSION, "elements": all })
            ))?;
            Ok(0)
        }
        (None, None) => {
            print_stdout(&list())?;
            Ok(0)
        }
    }
}

/// Shows the page of an element.
pub(crate) fn show(name: &str, as_json: bool) -> anyhow::Result<u8> {
    let class = find(name)?;
    match as_json {
        true => print_stdout(&format!("{:#}\n", page::json(class)))?,
        false => print_stdout(&page::text(class))?,
    }
    Ok(0)
}

/// The class of this name, in whatever case.
fn find(name: &str) -> anyhow::Result<&'static Class> {
    let other_case = || {
        let names = |class: &&Class| {
            std::iter::once(&class.name).chain(class.aliases).any(|n| n.eq_ignore_ascii_case(name))
        };
        sorted_classes().into_iter().find(names)
    };
    if let Some(class) = classes().find_class(name).or_else(other_case) {
        return Ok(class);
    }
    let names =
        sorted_classes().into_iter().flat_map(|class| std::iter::once(&class.name).chain(class.aliases));
    match nearest(name, names.copied()) {
        Some(other) => bail!("no element class '{name}'; did you mean '{other}'?"),
        None => bail!("no element class '{name}'; 'artery elements' lists all"),
    }
}

/// All classes by name.
fn sorted_classes() -> Vec<&'static Class> {
    let mut all = classes().0.to_vec();
    all.sort_by_key(|class| class.name.to_lowercase());
    all
}

/// Groups in alphabetical order, with their classes.
fn groups() -> BTreeMap<&'static str, Vec<&'static Class>> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for class in sorted_classes() {
        groups.entry(class.group).or_default().push(class);
    }
    groups
}

fn list() -> String {
    let width = sorted_classes().iter().map(|class| class.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (group, classes) in groups() {
        text += &format!("{group}\n");
        for class in classes {
            text += &format!("  {:<width$}  {}\n", class.name, class.summary);
        }
        text += "\n";
    }
    text + "'artery help NAME' shows the page of one.\n"
}

/// The files of the manual, by name.
fn pages() -> BTreeMap<String, String> {
    let mut pages: BTreeMap<String, String> = sorted_classes()
        .into_iter()
        .map(|class| (format!("{}.md", class.name), page::markdown(class)))
        .collect();
    let mut index = "# Elements\n".to_string();
    for (group, classes) in groups() {
        index += &format!("\n## {group}\n\n");
        for class in classes {
            index += &format!("- [{0}]({0}.md): {1}\n", class.name, class.summary);
        }
    }
    pages.insert("README.md".to_string(), index);
    pages
}

fn write_pages(folder: &Path) -> anyhow::Result<u8> {
    std::fs::create_dir_all(folder).with_context(|| format!("can't make {}", folder.display()))?;
    for (name, text) in pages() {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("can't write {}", path.display()))?;
    }
    for name in superfluous(folder)? {
        let path = folder.join(name);
        std::fs::remove_file(&path).with_context(|| format!("can't remove {}", path.display()))?;
    }
    Ok(0)
}

/// Pages in `folder` of classes that do not exist.
fn superfluous(folder: &Path) -> anyhow::Result<Vec<String>> {
    let known = pages();
    let entries = std::fs::read_dir(folder).with_context(|| format!("can't read {}", folder.display()))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> =
        names.filter(|name| name.ends_with(".md") && !known.contains_key(name)).collect();
    names.sort();
    Ok(names)
}

/// Pages that are out of date in `folder`, a line for each.
fn drift(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut all = Vec::new();
    for (name, text) in pages() {
        match std::fs::read_to_string(folder.join(&name)) {
            Ok(found) if found == text => {}
            Ok(_) => all.push(format!("{name} is out of date")),
            Err(_) => all.push(format!("{name} is missing")),
        }
    }
    all.extend(superfluous(folder)?.into_iter().map(|name| format!("{name} is of no element")));
    Ok(all)
}

fn check_pages(folder: &Path) -> anyhow::Result<u8> {
    let drift = drift(folder)?;
    for line in &drift {
        print_stderr(&format!("{line}\n"));
    }
    if drift.is_empty() {
        return Ok(0);
    }
    print_stderr(&format!("run 'artery elements --markdown {}'\n", folder.display()));
    Ok(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `UPDATE_EXPECT=1 cargo test -p artery` rewrites the pages.
    #[test]
    fn the_pages_in_the_repository_are_those_of_the_elements() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/elements");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            write_pages(&folder).unwrap();
        }
        assert_eq!(drift(&folder).unwrap(), [""; 0], "UPDATE_EXPECT=1 cargo test -p artery updates them");
    }

    #[test]
    fn every_class_has_a_complete_page() {
        for class in sorted_classes() {
            let text = page::text(class);
            for part in [class.name, class.summary, class.example.trim(), class.ports] {
                assert!(!part.is_empty() && !class.manual.is_empty(), "{} lacks something", class.name);
            }
            assert!(class.args.iter().all(|arg| text.contains(arg.name) && !arg.doc.is_empty()), "{text}");
            assert!(class.handlers.iter().all(|h| text.contains(h.name) && !h.doc.is_empty()), "{text}");
        }
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_nearest() {
        let error = |name: &str| find(name).err().map(|error| error.to_string());
        assert_eq!(error("Couter").unwrap(), "no element class 'Couter'; did you mean 'Counter'?");
        assert!(error("Zzzzzzzzz").unwrap().contains("lists all"));
        assert_eq!(error("counter"), None);
    }
}
