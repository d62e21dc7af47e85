//! The rights of the process that parses packets: only those that it needs from then on.
//!
//! [`enter`] is called when the configuration is read and the sockets are open, before any thread is started
//! that parses packets. It starts the helper, which does what needs rights later
//! ([`artery_device::privsep`]), and gives up: all capabilities, new privileges, files (Landlock) and system
//! calls (seccomp) but those that a router uses. Threads that are started later begin with that.
//! That is so unless `--no-sandbox` says otherwise; where the machine lacks a part of it, the router
//! says so and starts, unless `--sandbox` is given. [`Confined::lock`] is called when the elements are
//! made, before the first packet: from then on no files but those named so far, and those in folders
//! that were allowed, are opened.
//!
//! - `paths`: files, by Landlock
//! - `adopt`: what `artery adopt` may do, which has no helper
//! - `calls`: system calls, by seccomp
//! - `helper`: the process that keeps the rights
//! - `status`: what is in force, for `artery show security`
mod adopt;
mod calls;
mod helper;
mod paths;
mod status;

pub(crate) use adopt::confine_adopt;
pub(crate) use helper::{end, serve_if_helper, watch};
pub(crate) use paths::has_landlock;
pub(crate) use status::document;

use crate::output::{Output, without_numbers};
use crate::run_options::RunJob;
use anyhow::Context as _;
use artery_device::privsep::{self, HelperLife, HelperLimits};
use artery_lang::Ir;
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::CapabilitySet;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Options of a command that starts a router.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SandboxOptions {
    /// Start only where all rights can be given up before the first packet: capabilities, system calls, files
    /// that the configuration does not name. Without this option a router that can't give up some of them
    /// says so, and starts
    #[arg(long)]
    pub(crate) sandbox: bool,
    /// Keep all rights: for benchmarks, and to find out whether the sandbox is to blame
    #[arg(long, hide = true, conflicts_with_all = ["sandbox", "allow_path"])]
    pub(crate) no_sandbox: bool,
    /// Let a configuration that takes the place of the first use files in this folder, which the
    /// first did not name
    #[arg(long, value_name = "DIR", value_parser = folder)]
    pub(crate) allow_path: Vec<PathBuf>,
}

/// A folder that there is.
fn folder(text: &str) -> Result<PathBuf, String> {
    match std::fs::metadata(text) {
        Ok(found) if found.is_dir() => Ok(text.into()),
        Ok(_) => Err("is not a folder".into()),
        Err(error) => Err(without_numbers(&error.to_string())),
    }
}

/// Whether a router gets a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wanted {
    #[default]
    No,
    /// As far as this machine offers it.
    AsPossible,
    /// The router must have all of it to start.
    Whole,
}

/// Which sandbox a router gets; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sandbox {
    pub(crate) wanted: Wanted,
    /// Folders in which every file may be used.
    pub(crate) allow_path: Vec<PathBuf>,
    /// A folder that is listed again, and what names of the files in it begin with that are read.
    pub(crate) listed: Option<(PathBuf, Vec<String>)>,
    /// Files that a later configuration may write though the first did not: logs of packets.
    pub(crate) foreseen: Vec<PathBuf>,
}

impl Sandbox {
    /// The sandbox that options request.
    pub(crate) fn new(options: &SandboxOptions) -> Sandbox {
        let wanted = match (options.no_sandbox, options.sandbox) {
            (true, _) => Wanted::No,
            (false, false) => Wanted::AsPossible,
            (false, true) => Wanted::Whole,
        };
        Sandbox { wanted, allow_path: options.allow_path.clone(), ..Sandbox::default() }
    }

    fn limits(&self, ir: &Ir, removable: Vec<PathBuf>, new_ports: bool) -> HelperLimits {
        let (folder, starts) = self.listed.clone().unwrap_or_default();
        let foreseen = self.foreseen.iter().map(|file| (file.clone(), true));
        HelperLimits {
            files: foreseen.chain(files_of_scripts(ir)).collect(),
            removable,
            folders: self.allow_path.clone(),
            patterns: starts.into_iter().map(|start| (folder.clone(), start)).collect(),
            new_ports,
        }
    }
}

/// The restrictions that are in force in this process.
#[derive(Debug)]
struct InForce {
    /// What Landlock does, in words.
    paths: String,
    allow_path: Vec<PathBuf>,
}

static IN_FORCE: OnceLock<InForce> = OnceLock::new();

/// The rights are given up; the helper lives, if there is one.
pub(crate) struct Confined(Option<HelperLife>);

/// What Landlock does for a router without a helper.
const WITHOUT_HELPER: &str = "not used: the router was started without capabilities";

/// Gives up the rights of this thread, and so of all that it starts, if the job requests it. `removable` are
/// files that are removed at the end.
///
/// A router that is started without capabilities has none to give up, and its user's files are its own: it
/// needs no helper, and only its system calls are restricted, unless the whole sandbox is required.
pub(crate) fn enter(job: &RunJob, ir: &Ir, removable: Vec<PathBuf>) -> anyhow::Result<Option<Confined>> {
    let sandbox = &job.sandbox;
    if sandbox.wanted == Wanted::No || job.quit || ir.nodes.is_empty() {
        return Ok(None);
    }
    let policy = Policy { wanted: sandbox.wanted, voice: job.voice };
    let mut life = None;
    if sandbox.wanted == Wanted::Whole || !permitted().is_empty() {
        life = policy.settle(start_helper(sandbox.limits(ir, removable, job.may_change())))?;
        if life.is_none() {
            return Ok(None);
        }
    }
    let kept = privsep::limit_capabilities(kept(ir), CapabilitySet::empty());
    policy.settle(kept.context("can't give capabilities up"))?;
    policy.settle(rustix::thread::set_no_new_privs(true).context("can't give up new privileges"))?;
    let paths = if life.is_some() { restrict_files(sandbox, policy)? } else { WITHOUT_HELPER.to_string() };
    policy.settle(calls::restrict(calls::Process::Router))?;
    // Entered once a process.
    let _ = IN_FORCE.set(InForce { paths, allow_path: sandbox.allow_path.clone() });
    Ok(Some(Confined(life)))
}

/// The capabilities that this process has or may take.
fn permitted() -> CapabilitySet {
    rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted)
}

/// What a router keeps: nothing, but where the limit of locked memory could not be raised, as without
/// CAP_SYS_RESOURCE in some containers, the right to lock more for AF_XDP. It gives no other access.
fn kept(ir: &Ir) -> CapabilitySet {
    let has_devices = ir.nodes.iter().any(|node| node.class.ends_with("Device"));
    match has_devices && getrlimit(Resource::Memlock).current.is_some() {
        true => permitted().intersection(CapabilitySet::IPC_LOCK),
        false => CapabilitySet::empty(),
    }
}

fn start_helper(limits: HelperLimits) -> anyhow::Result<HelperLife> {
    // The limit of locked memory, which AF_XDP counts against, can't be raised later.
    let unlimited = Rlimit { current: None, maximum: None };
    let _ = setrlimit(Resource::Memlock, unlimited);
    privsep::start(limits, helper::spawn).context("can't start the helper process of the sandbox")
}

fn restrict_files(sandbox: &Sandbox, policy: Policy) -> anyhow::Result<String> {
    let listed = sandbox.listed.as_ref().map(|(folder, _)| folder.as_path());
    let Some(paths) = policy.settle(paths::restrict(listed))? else {
        return Ok("not enforced".to_string());
    };
    if let Some(lack) = paths.lack() {
        policy.settle(Err::<(), _>(anyhow::anyhow!(lack)))?;
    }
    Ok(paths.to_string())
}

/// What to do where a part of the sandbox can't be put in force.
#[derive(Clone, Copy)]
struct Policy {
    wanted: Wanted,
    voice: Output,
}

impl Policy {
    /// Says that a part is missing, or has the start fail.
    fn settle<T>(self, part: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
        match part {
            Ok(part) => Ok(Some(part)),
            Err(error) if self.wanted == Wanted::Whole => {
                Err(error.context("--sandbox demands the whole sandbox"))
            }
            Err(error) => {
                self.voice.print_warning(&format!("{error:#}; the router starts all the same"));
                Ok(None)
            }
        }
    }
}

impl Confined {
    /// From now on no more files belong to the configuration.
    pub(crate) fn lock(self, voice: Output) -> Option<HelperLife> {
        let locked = privsep::helper().map(|helper| helper.lock());
        if let Some(Err(error)) = locked {
            voice.print_warning(&error.to_string());
        }
        self.0
    }
}

/// Classes whose elements open files that handlers name, while the router runs.
const SCRIPTS: [&str; 2] = ["Script", "DriverManager"];

/// Words of scripts, each of which may be a file name.
fn files_of_scripts(ir: &Ir) -> Vec<(PathBuf, bool)> {
    let scripts = ir.nodes.iter().filter(|node| SCRIPTS.contains(&node.class.as_str()));
    let is_between = |c: char| c.is_whitespace() || ",;()\"'>{}".contains(c);
    let words = scripts.flat_map(|node| node.config.split(is_between)).filter(|word| !word.is_empty());
    words.map(|word| (PathBuf::from(word), true)).collect()
}
