//! `artery-fleet` mirrors the exceptions of a balancer's flows between the machines of a fleet, and announces
//! its machine to the network.
//! `docs/fleet.md` is its manual.

mod announce;
mod config;
mod control;
mod envelope;
mod etcd;
mod follow;
mod hand_over;
mod import;
mod leave;
mod mesh;
mod owner;
mod peers;
mod probe;
mod records;
mod service_address;
mod status;

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow};
use clap::{Parser, Subcommand};
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use announce::{Announcement, Announcing};
use config::Config;
use etcd::{Membership, RouterConfiguration, View};
use follow::Own;
use import::{ImportCounts, Importer};
use mesh::{Local, Mesh};
use peers::Peers;
use probe::{Health, probe_router};
use status::Answers;

/// Says to zenoh how many threads it has; it is read when the first session opens.
const ZENOH_RUNTIME: &str = "ZENOH_RUNTIME";

/// Mirrors the exceptions of a balancer's flows between machines.
#[derive(Parser)]
#[command(name = "artery-fleet", version)]
struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Follows the router of this machine, and exchanges exceptions with peers
    Run {
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Has this machine leave: it is withdrawn, peers get all exceptions, and `artery-fleet run` ends
    Leave {
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Leaves also while no peer is present
        #[arg(long)]
        without_peers: bool,
        /// How many seconds to wait for it
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        #[arg(value_parser = clap::value_parser!(u64).range(1..=86400))]
        limit: u64,
    },
    /// Has the routers of all machines take a file, by etcd; undone everywhere if one of them can't
    Apply {
        /// The file with the options of the routers (TOML)
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Undo it after TIME, such as 60s, unless 'artery-fleet confirm' is run before
        #[arg(long, value_name = "TIME", value_parser = confirmation)]
        confirm: Option<Duration>,
    },
    /// Confirms what 'artery-fleet apply --confirm' has applied
    Confirm {
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Shows what a file would change; status 1 if there is anything
    Diff {
        /// The file with the options of the routers (TOML)
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Shows machines and peers, the configuration's revision, and what was sent, received and refused
    Status {
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Prints a line of JSON
        #[arg(long)]
        json: bool,
    },
}

/// The time after which a revision is undone unless it is confirmed.
fn confirmation(text: &str) -> Result<Duration, String> {
    let seconds = text.strip_suffix('s').unwrap_or(text).parse().ok();
    let seconds = seconds.filter(|seconds| (5..=86_400).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| "write a time from 5s to 86400s, such as 60s".to_string())
}

fn main() -> ExitCode {
    let done = match Options::parse().action {
        Action::Apply { file, config, confirm } => {
            Config::read(&config).and_then(|config| etcd::change::apply(&config, &file, confirm))
        }
        Action::Confirm { config } => Config::read(&config).and_then(|config| etcd::change::confirm(&config)),
        Action::Diff { file, config } => {
            match Config::read(&config).and_then(|config| etcd::change::diff(&config, &file)) {
                Ok(true) => return ExitCode::FAILURE,
                done => done.map(drop),
            }
        }
        Action::Run { config } => Config::read(&config).and_then(run),
        Action::Status { config, json } => Config::read(&config)
            .and_then(|config| status::ask(&config.status, json))
            .map(|text| print!("{text}")),
        Action::Leave { config, without_peers, limit } => Config::read(&config)
            .and_then(|config| leave::request(&config.status, without_peers, Duration::from_secs(limit))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("artery-fleet: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(config: Config) -> Result<()> {
    if std::env::var_os(ZENOH_RUNTIME).is_none() {
        return Err(start_again_with_threads(&config));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let done = runtime.block_on(mirror(Arc::new(config)));
    // An answer that a peer does not read is not waited for.
    runtime.shutdown_background();
    done
}

/// Starts this program again with zenoh's threads in its environment. A running process can't change its own
/// safely. Returns only if that failed.
fn start_again_with_threads(config: &Config) -> anyhow::Error {
    let threads = mesh::threads(config);
    let one = format!("(worker_threads: {threads})");
    let runtime = format!("(rx: {one}, tx: {one}, net: {one})");
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return anyhow::Error::new(error).context("can't find this program's file"),
    };
    let error = Command::new(program).args(std::env::args_os().skip(1)).env(ZENOH_RUNTIME, runtime).exec();
    anyhow::Error::new(error).context("can't start with zenoh's threads set")
}

async fn mirror(config: Arc<Config>) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let actuator = config.announce.as_ref().map(announce::open_actuator).transpose()?;
    let listener = status::listen(&config.status)?;
    let (inbox, outbox) = import::queues();
    let local = Local {
        own: Arc::new(Own::new()?),
        peers: Arc::new(Peers::new(&config.machine, config.refresh())),
        counts: Arc::new(ImportCounts::default()),
        inbox,
        config: config.clone(),
        announcement: Arc::new(Announcement::new()),
        view: config.etcd.as_ref().map(|etcd| Arc::new(View::new(etcd.lease()))),
    };
    let mesh = Mesh::open(local.clone()).await?;
    let mut importer = Importer::new(config.clone(), local.peers.clone(), local.counts.clone());
    let runtime = Handle::current();
    let ended = Arc::new(Notify::new());
    start_thread("import", &ended, move || importer.run(outbox, &runtime))?;
    let (publisher, following) = (mesh.publisher().await?, local.clone());
    let follow = move || following.own.follow(&following.config, &following.peers, &publisher);
    start_thread("follow", &ended, follow)?;
    let (mut membership, configuring) = open_etcd(&local, &mesh)?.unzip();
    if let Some(configuring) = configuring {
        start_thread("configure", &ended, move || configuring.run())?;
    }
    let announcing = announce_on(&local, actuator, &ended)?;
    let announcement = local.announcement.clone();
    let answers = Answers::new();
    let result = tokio::select! {
        () = mesh.fetch_on() => Ok(()),
        () = follow_etcd(&mut membership) => Ok(()),
        () = answers.serve(listener, local) => Ok(()),
        () = mesh.hand_over() => { answers.finish().await; Ok(()) }
        // What is announced stays so: another process goes on with it, as after an upgrade.
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        () = ended.notified() => Err(anyhow!("a thread ended; what it was for can't be done without it")),
    };
    // It ends a call of the announcing command that is under way.
    announcement.end();
    let _ = announcing.join();
    // It may be gone already.
    let _ = std::fs::remove_file(&config.status);
    if let Some(membership) = &mut membership {
        membership.leave().await;
    }
    mesh.close().await;
    result
}

/// What follows etcd, and what gives the router its configuration; none without etcd.
fn open_etcd(local: &Local, mesh: &Mesh) -> Result<Option<(Membership, RouterConfiguration)>> {
    let (config, view) = (&local.config, local.view.clone());
    let Some((etcd, view)) = config.etcd.as_ref().zip(view) else { return Ok(None) };
    let (to_router, from_membership) = etcd::channels();
    let membership =
        Membership::new(config, etcd, new_run()?, view, to_router, local.announcement.reports())?;
    let configuring =
        RouterConfiguration::new(config.clone(), etcd.clone(), from_membership, mesh.confirmations());
    Ok(Some((membership, configuring)))
}

async fn follow_etcd(membership: &mut Option<Membership>) {
    match membership {
        Some(membership) => membership.run().await,
        None => std::future::pending().await,
    }
}

/// Starts a thread that is to run as long as the process: if it ends, `ended` says so.
fn start_thread(
    name: &str,
    ended: &Arc<Notify>,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>> {
    struct Notice(Arc<Notify>);
    impl Drop for Notice {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let notice = Notice(ended.clone());
    let body = move || {
        let _notice = notice;
        work();
    };
    Ok(std::thread::Builder::new().name(name.into()).spawn(body)?)
}

/// Announces and withdraws this machine, and asks the router whether it answers, on threads of
/// their own, so that nothing delays them.
fn announce_on(
    local: &Local,
    actuator: Option<Box<dyn announce::Actuator>>,
    ended: &Arc<Notify>,
) -> Result<JoinHandle<()>> {
    let health = Arc::new(Health::default());
    if let Some(announce) = &local.config.announce {
        let (config, health) = (local.config.clone(), health.clone());
        let timeout = Duration::from_millis(announce.router_timeout_ms);
        let probe = move || probe_router(&config.control, &config.balancer, timeout, &health);
        start_thread("probe", ended, probe)?;
    }
    let announcing = Announcing::new(local, actuator, health);
    start_thread("announce", ended, move || announcing.run())
}

/// A number that tells what this machine sends from now on from all before.
fn new_run() -> Result<u64> {
    let since =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).context("the clock is before 1970")?;
    Ok(since.as_nanos() as u64)
}
