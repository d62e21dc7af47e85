//! What the process that parses packets may do: nothing that it does not need from then on.
//!
//! [`enter`] is called when the configuration is read and the sockets are open, before any thread is started
//! that parses packets. It starts the helper, which does what needs rights later
//! ([`artery_device::privsep`]), and gives up: all capabilities, new privileges, files (Landlock) and system
//! calls (seccomp) but those that a router uses. Threads that are started later begin with that.
//! [`Confined::lock`] is called when the elements are made, before the first packet: from then on no files
//! but those named so far, and those in folders that were allowed, are opened.
//!
//! - `paths`: files, by Landlock
//! - `calls`: system calls, by seccomp
//! - `helper`: the process that keeps the rights
//! - `status`: what is in force, for `artery show security`
mod calls;
mod helper;
mod paths;
mod status;

pub(crate) use helper::{serve_if_helper, watch};
pub(crate) use paths::has_landlock;
pub(crate) use status::document;

use crate::job::Job;
use crate::voice::Voice;
use anyhow::Context as _;
use artery_device::privsep::{self, Life, Limits};
use artery_lang::Ir;
use clap::Args;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::path::PathBuf;
use std::sync::OnceLock;

/// Options of a command that starts a router.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SandboxOptions {
    /// Give up all rights before the first packet: capabilities, system calls, files that the configuration does
    /// not name. A helper process does what needs them later. Not with --host-ports yet
    #[arg(long)]
    pub(crate) sandbox: bool,
    /// With --sandbox: let a configuration that takes the place of the first use files in this folder, which
    /// the first did not name
    #[arg(long, value_name = "DIR", requires = "sandbox")]
    pub(crate) allow_path: Vec<PathBuf>,
}

/// Which sandbox a router gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sandbox {
    /// Whether it gets one.
    pub(crate) is_wanted: bool,
    /// Folders in which every file may be used.
    pub(crate) allow_path: Vec<PathBuf>,
    /// A folder that is listed again, and what names of the files in it begin with that are read.
    pub(crate) listed: Option<(PathBuf, Vec<String>)>,
}

impl Sandbox {
    /// The one that options ask for.
    pub(crate) fn new(options: &SandboxOptions) -> Sandbox {
        let allow_path = options.allow_path.clone();
        Sandbox { is_wanted: options.sandbox, allow_path, listed: None }
    }

    fn limits(&self, ir: &Ir, removable: Vec<PathBuf>, new_ports: bool) -> Limits {
        let (folder, starts) = self.listed.clone().unwrap_or_default();
        Limits {
            files: files_of_scripts(ir),
            removable,
            folders: self.allow_path.clone(),
            patterns: starts.into_iter().map(|start| (folder.clone(), start)).collect(),
            new_ports,
        }
    }
}

/// What was put in force in this process.
#[derive(Debug)]
struct InForce {
    /// What Landlock does, in words.
    paths: String,
    allow_path: Vec<PathBuf>,
}

static IN_FORCE: OnceLock<InForce> = OnceLock::new();

/// The rights are given up; the helper lives.
pub(crate) struct Confined(Life);

/// Gives up the rights of this thread, and so of all that it starts, if the job says so. `removable` are
/// files that are removed at the end.
pub(crate) fn enter(job: &Job, ir: &Ir, removable: Vec<PathBuf>) -> anyhow::Result<Option<Confined>> {
    let sandbox = &job.sandbox;
    if !sandbox.is_wanted || job.quit || ir.nodes.is_empty() {
        return Ok(None);
    }
    // The limit of locked memory, which AF_XDP counts against, can't be raised later.
    let unlimited = Rlimit { current: None, maximum: None };
    let _ = setrlimit(Resource::Memlock, unlimited);
    let limits = sandbox.limits(ir, removable, job.may_change());
    let life =
        privsep::start(limits, helper::spawn).context("can't start the helper process of the sandbox")?;
    privsep::drop_capabilities().context("can't give capabilities up")?;
    rustix::thread::set_no_new_privs(true).context("can't give up new privileges")?;
    let paths = paths::restrict(sandbox.listed.as_ref().map(|(folder, _)| folder.as_path()))?;
    if let Some(lack) = paths.lack() {
        job.voice.warning(lack);
    }
    calls::restrict(calls::Process::Router)?;
    let allow_path = sandbox.allow_path.clone();
    // Entered once a process.
    let _ = IN_FORCE.set(InForce { paths: paths.to_string(), allow_path });
    Ok(Some(Confined(life)))
}

impl Confined {
    /// From now on no more files become those of the configuration.
    pub(crate) fn lock(self, voice: Voice) -> Option<Life> {
        let locked = privsep::helper().map(|helper| helper.lock());
        if let Some(Err(error)) = locked {
            voice.warning(&error.to_string());
        }
        Some(self.0)
    }
}

/// Classes whose elements open files that handlers name, while the router runs.
const SCRIPTS: [&str; 2] = ["Script", "DriverManager"];

/// Words of scripts, each of which may be the name of a file.
fn files_of_scripts(ir: &Ir) -> Vec<(PathBuf, bool)> {
    let scripts = ir.nodes.iter().filter(|node| SCRIPTS.contains(&node.class.as_str()));
    let is_between = |c: char| c.is_whitespace() || ",;()\"'>{}".contains(c);
    let words = scripts.flat_map(|node| node.config.split(is_between)).filter(|word| !word.is_empty());
    words.map(|word| (PathBuf::from(word), true)).collect()
}
