//! Routers to run: configurations built in this process, and the program `artery` to be started as another.

use crate::RigError;
use anyhow::{Context as _, bail};
use artery_device::Interface;
use artery_elements::CLASSES;
use artery_engine::{Class, Classes, Handle, Problem, Router, RouterSettings};
use artery_lang::{Diagnostic, Ir, Options, Processing, Sources, check, compile};
use std::path::{Path, PathBuf};

/// A configuration that was compiled and checked.
pub struct Checked {
    ir: Ir,
    processing: Processing,
    classes: Classes,
}

/// Compiles and checks a configuration; the error shows every diagnostic, warnings too.
pub fn checked(name: &str, text: &str) -> anyhow::Result<Checked> {
    check_with(CLASSES, name, text)
}

/// The same with the caller's own classes beside all others.
pub fn checked_with(own: &[&'static Class], name: &str, text: &str) -> anyhow::Result<Checked> {
    // A process has few of these lists, and routers refer to them as long as they run.
    check_with(Classes([CLASSES.0, own].concat().leak()), name, text)
}

fn check_with(classes: Classes, name: &str, text: &str) -> anyhow::Result<Checked> {
    let mut sources = Sources::default();
    let file = sources.add_file(name, text);
    let (ir, mut diagnostics) = compile(&mut sources, file, &Options::default(), &classes);
    let (processing, more) = check(&ir, &classes);
    diagnostics.extend(more);
    if !diagnostics.is_empty() {
        let shown: Vec<String> = diagnostics.iter().map(|d: &Diagnostic| d.render(&sources)).collect();
        bail!("{name} is not clean:\n{}", shown.join("\n"));
    }
    Ok(Checked { ir, processing, classes })
}

impl Checked {
    /// Makes and starts the elements.
    pub fn build(&self, mut settings: RouterSettings) -> anyhow::Result<Router> {
        settings.names.set_device_lookup(Interface::mac_of);
        Router::build(&self.ir, &self.processing, self.classes, settings)
            .map_err(|found| self.complain(&found))
    }

    /// Puts it in the place of what a router runs.
    pub fn replace(&self, router: &Handle) -> anyhow::Result<()> {
        let replaced = router.replace_graph(&self.ir, &self.processing);
        replaced.map(|_| ()).map_err(|found| self.complain(&found))
    }

    /// Makes all elements and starts none, to see that their arguments are right.
    pub fn configure(&self, mut settings: RouterSettings) -> anyhow::Result<()> {
        settings.names.set_device_lookup(Interface::mac_of);
        let configured = Router::configure(&self.ir, &self.processing, self.classes, settings);
        let (_, warnings) = configured.map_err(|found| self.complain(&found))?;
        if warnings.is_empty() { Ok(()) } else { Err(self.complain(&warnings)) }
    }

    fn complain(&self, problems: &[Problem]) -> anyhow::Error {
        let element = |node: usize| &self.ir.nodes[node];
        let line = |problem: &Problem| match problem.node.map(element) {
            Some(node) => format!("{} :: {}: {}", node.name, node.class, problem.message),
            None => problem.message.clone(),
        };
        anyhow::anyhow!(problems.iter().map(line).collect::<Vec<_>>().join("\n"))
    }
}

/// The path of the program `artery`: `$ARTERY`, or beside this program, or beside the folder of a test. A
/// missing program fails the test instead of skipping it: somewhere the build of it was forgotten.
pub fn artery() -> Result<PathBuf, RigError> {
    let this = std::env::current_exe().unwrap_or_default();
    let beside = this.ancestors().skip(1).take(2).map(|folder| folder.join("artery"));
    let named = std::env::var_os("ARTERY").map(PathBuf::from);
    let found = match named {
        Some(path) => Some(path).filter(|path| path.is_file()),
        None => beside.into_iter().find(|path| path.is_file()),
    };
    let missing = "cannot find the program artery (cargo build -p artery, or set $ARTERY)";
    found.ok_or_else(|| RigError::System(missing.into(), std::io::ErrorKind::NotFound.into()))
}

/// The program that runs now, to be started again.
pub fn this() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("can't tell where this program is")
}

/// Where a tool is, along PATH.
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder: PathBuf| folder.join(name)).find(|path: &PathBuf| is_file(path))
}

fn is_file(path: &Path) -> bool {
    path.is_file()
}
