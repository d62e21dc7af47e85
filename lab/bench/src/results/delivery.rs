//! How much of an experiment is wanted, in which form, and where: options that experiments share,
//! and what obeys them.
use super::{Measurement, Verdict, json_lines};
use anyhow::Context as _;
use artery_rig::console::{print, progress};
use artery_rig::machine::Machine;
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};

/// How much to measure, and how to print it.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Manner {
    /// Fewer and shorter runs
    #[arg(long)]
    pub quick: bool,
    /// Print JSON, one measurement a line
    #[arg(long)]
    pub json: bool,
}

/// The same, and where to write files.
#[derive(Args, Clone, Debug, Default)]
pub struct Delivery {
    /// How much is measured, and how it is printed.
    #[command(flatten)]
    pub manner: Manner,
    /// Write tables, figures and charts into this folder too
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// The same, of an experiment on a full feed.
#[derive(Args, Clone, Debug, Default)]
pub struct OnFeed {
    /// The full feed: text or an MRT dump, packed by gzip or not; without, a synthetic table
    /// of the Internet's shape
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,
    /// How it is measured, and where results go.
    #[command(flatten)]
    pub delivery: Delivery,
}

impl Manner {
    /// The plan that is wanted of two.
    pub fn plan<P>(self, full: P, quick: P) -> P {
        if self.quick { quick } else { full }
    }
}

impl Delivery {
    /// Prints the machine before the measurements. If standard output is closed, it fails at once,
    /// not at the end.
    pub fn begin(&self, machine: &Machine) -> anyhow::Result<()> {
        if self.manner.json { Ok(()) } else { Ok(print(&format!("{machine}\n"))?) }
    }

    /// Writes the requested files, even if standard output is closed, and prints.
    pub fn deliver(&self, findings: &impl Findings) -> anyhow::Result<()> {
        if let Some(folder) = &self.out {
            write_files(folder, files(findings)?)?;
        }
        let text = if self.manner.json { findings.json()? } else { findings.text() };
        Ok(print(text.trim_end())?)
    }
}

/// What an experiment has found.
pub trait Findings {
    /// The experiment's name, which files begin with.
    const NAME: &'static str;

    /// What was found, as Markdown.
    fn text(&self) -> String;

    /// Every figure that was measured.
    fn measurements(&self) -> Vec<Measurement>;

    /// The figures as JSON, one a line.
    fn json(&self) -> anyhow::Result<String> {
        json_lines(&self.measurements())
    }

    /// The paper's claims, each with its verdict.
    fn verdicts(&self) -> Vec<Verdict> {
        Vec::new()
    }

    /// Charts, by the names of their files.
    fn charts(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

fn files<F: Findings>(findings: &F) -> anyhow::Result<Vec<(String, String)>> {
    let mut files =
        vec![(format!("{}.jsonl", F::NAME), findings.json()?), (format!("{}.md", F::NAME), findings.text())];
    let verdicts = json_lines(&findings.verdicts())?;
    files.extend((!verdicts.is_empty()).then(|| (format!("{}.claims.jsonl", F::NAME), verdicts)));
    files.extend(findings.charts());
    Ok(files)
}

/// Writes files of a folder, which is made if need be.
pub fn write_files(folder: &Path, files: Vec<(String, String)>) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("can't make {}", folder.display()))?;
    for (name, text) in files {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("can't write {}", path.display()))?;
        progress(&format!("wrote {}", path.display()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Findings for Nothing {
        const NAME: &'static str = "nothing";
        fn text(&self) -> String {
            "# Nothing\n".to_string()
        }
        fn measurements(&self) -> Vec<Measurement> {
            vec![Measurement::of("nothing", "E1", "ns", &[1.0])]
        }
        fn charts(&self) -> Vec<(String, String)> {
            vec![("nothing.svg".to_string(), "<svg/>".to_string())]
        }
    }

    #[test]
    fn text_figures_and_charts_are_files_of_a_folder_that_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a").join("b");
        write_files(&out, files(&Nothing).unwrap()).unwrap();
        let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();
        assert_eq!((read("nothing.md").as_str(), read("nothing.svg").as_str()), ("# Nothing\n", "<svg/>"));
        assert_eq!(read("nothing.jsonl"), Nothing.json().unwrap());
        assert_eq!(Nothing.json().unwrap().lines().count(), 1);
        let unwritable = write_files(&out.join("nothing.md"), Vec::new()).unwrap_err().to_string();
        assert!(unwritable.starts_with("can't make "), "{unwritable}");
    }
}
