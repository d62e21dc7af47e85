//! `artery up`: a switch or a router from the files that BSD would start it from.
use super::etc::MYGATE;
use super::folder::judge;
use super::machine::{Found, Map, Taken, find_interfaces};
use super::plan::{Plan, Wishes};
use super::rules::PFLOG;
use super::verdict::Judged;
use super::{text, verdict};
use crate::config_input::ConfigInput;
use crate::export::ExportSettings;
use crate::options::values::{device, file_size};
use crate::options::{ReportOptions, RunningOptions, map_devices, running_job};
use crate::output::{Output, print_stdout};
use crate::reload::{ConfigurationSource, Reread};
use crate::replace::SETTLED;
use crate::router::called;
use crate::run::run;
use crate::run_options::RunJob;
use crate::signals::EarlySignals;
use clap::{ArgAction, Args};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// The last lines of its help.
pub(crate) const EXAMPLES: &str = "Examples:
  artery up --etc conf/veb2021 --map cnmac0=eth1,cnmac1=eth2,cnmac2=eth3,cnmac3=eth4
  artery up --etc conf/veb2021 --switch bridge0 --dry-run     the plan, and what the machine lacks
  artery up --etc conf/firewall                             a router with a packet filter and NAT
  artery up --etc /mnt/openbsd/etc --print > switch.click   to go on from there

Read are hostname.veb0, hostname.bridge0 and their like, the files of their ports such as hostname.em0 and
hostname.vport0, and pf.conf. A file whose name ends with a star, as hostname.em*, is for all ports whose
names begin so and that have no file of their own. Ports are interfaces of the machine, which sees nothing of
what arrives there; vport0 and its like are made, and are the host's own ports of the switch. Where two
switches have the same ports the first starts, unless --switch names the other.

Interfaces that are no switch's ports and whose files give them addresses ('inet 192.0.2.1 255.255.255.0') are
ports of a router. Its routes are the gateways in mygate and the lines '!route add' of such files, pf.conf is
around it, and the host is reached at its addresses by artery0. A vport with an address is a port of the
router, too. --switch starts switches only.

Lines that can't be done, or only in another way, are shown before anything starts; 'artery import --explain'
shows all. Meanwhile 'artery ifconfig' looks into the switch and changes it, 'artery show' and 'route' do so
with the router. SIGHUP has the files read again, and the log of packets opened again; states and learned
addresses stay. With a mistake in a file all stays as it is.";

#[derive(Args)]
pub(crate) struct UpOptions {
    /// The folder with the files
    #[arg(long, value_name = "DIR", default_value = "/etc")]
    etc: PathBuf,
    /// Start this switch and those named so as well, no others, and no router
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    switch: Vec<String>,
    /// Take this machine's interface MACHINE for what the files call PORT
    #[arg(long, value_name = "PORT=MACHINE", value_delimiter = ',', value_parser = device)]
    map: Vec<(String, String)>,
    /// The host's interface to a router; artery0 if none is named
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Add the packets of rules with 'log' to this file, which tcpdump reads; otherwise to /var/log/pflog, if
    /// pf.conf has such rules
    #[arg(long, value_name = "FILE")]
    pflog: Option<PathBuf>,
    /// Rename that file to FILE.old, and start a new one, before it gets longer than SIZE; 0 for no limit
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = file_size)]
    pflog_max: String,
    /// Start though rules never apply, as their interface is not a port; each of them is warned of
    #[arg(long)]
    lenient: bool,
    /// Have the shell run the lines that begin with an exclamation mark, in order, once the switch is there
    #[arg(long)]
    run_commands: bool,
    /// Say what would be done, and what the machine lacks, and start nothing
    #[arg(long, conflicts_with = "print")]
    dry_run: bool,
    /// Print the configuration, and do not run it
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    running: RunningOptions,
    #[command(flatten)]
    pub(crate) report: ReportOptions,
    /// Print help
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
}

impl UpOptions {
    /// The folder with the files, and what the names of those begin with that are read.
    fn listed_folder(&self) -> (PathBuf, Vec<String>) {
        (self.etc.clone(), ["hostname.", "pf.conf", MYGATE].map(str::to_string).to_vec())
    }
}

/// Starts the switch, or says what it would be.
pub(crate) fn command(options: UpOptions) -> anyhow::Result<u8> {
    let voice = Output::from(options.report.log);
    let early = EarlySignals::watch(voice)?;
    let plan = read(&options)?;
    if options.dry_run {
        return dry_run(&plan, &options);
    }
    let refusals = plan.judged.iter().filter_map(Judged::refusal).collect::<Vec<_>>();
    if !refusals.is_empty() {
        return Ok(refused(voice, &refusals, "; 'artery import --explain' shows all lines"));
    }
    if options.print {
        return print_stdout(&text::configuration(&plan, &called())?).map(|()| 0);
    }
    let (nothing, mut mistakes) = (Taken::default(), Vec::new());
    let found = find_interfaces(&plan, &Map(&options.map), &nothing, &mut mistakes);
    if !mistakes.is_empty() {
        return Ok(refused(voice, &mistakes, ""));
    }
    let text = text::configuration(&found.measured(&plan), &called())?;
    warn(&plan, &options, &warnings(&plan, &options, &found));
    match found.claim_new(&nothing) {
        Ok(claims) => run(job(options, Taken::new(plan.clone(), claims), plan, text), early),
        Err(mistakes) => Ok(refused(voice, &mistakes, "")),
    }
}

/// Reads the files, and checks their lines.
fn read(options: &UpOptions) -> anyhow::Result<Plan> {
    let wishes = Wishes {
        switches: options.switch.clone(),
        workers: options.running.workers,
        host: options.host.clone(),
        runs_commands: options.run_commands,
        is_lenient: options.lenient,
        pflog: options.pflog.as_ref().map(|log| log.display().to_string()),
        pflog_max: options.pflog_max.clone(),
    };
    judge(&options.etc, &wishes)
}

/// The files of a running switch.
struct Files {
    options: Arc<UpOptions>,
    taken: Arc<Mutex<Taken>>,
}

impl ConfigurationSource for Files {
    fn reread(&self) -> Result<Reread, Vec<String>> {
        let plan = read(&self.options).map_err(|error| vec![format!("{error:#}")])?;
        let mut mistakes = plan.judged.iter().filter_map(Judged::refusal).collect::<Vec<_>>();
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let found = find_interfaces(&plan, &Map(&self.options.map), &taken, &mut mistakes);
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let text = text::configuration(&found.measured(&plan), &called());
        let text = text.map_err(|error| vec![error.to_string()])?;
        let (claims, wanted) = (found.claim_new(&taken)?, found.indices());
        let mut warnings = taken.warnings(&plan, self.options.run_commands);
        warnings.extend(found.warnings());
        drop(taken);
        let taken = self.taken.clone();
        let accepted = move || {
            taken.lock().unwrap_or_else(PoisonError::into_inner).change(plan, wanted, claims);
            release_later(taken);
        };
        let name = ConfigInput::Text(String::new()).name();
        Ok(Reread { warnings, accepted: Box::new(accepted), ..Reread::new(name, text) })
    }
}

/// Releases the interfaces that are no longer ports, once these are closed.
fn release_later(taken: Arc<Mutex<Taken>>) {
    let release = move || {
        std::thread::sleep(2 * SETTLED);
        taken.lock().unwrap_or_else(PoisonError::into_inner).release();
    };
    // Without a thread they are kept until the next reload.
    let _ = std::thread::Builder::new().name("release".to_string()).spawn(release);
}

/// Reports mistakes; gives the exit status.
fn refused(voice: Output, mistakes: &[String], hint: &str) -> u8 {
    voice.complain_of(&voice.format_mistakes(mistakes));
    let s = if mistakes.len() == 1 { "" } else { "s" };
    voice.print_error(&format!("{} mistake{s}; nothing was started{hint}", mistakes.len()));
    1
}

/// Warns of approximations, and of what the user should know before the switch starts.
fn warn(plan: &Plan, options: &UpOptions, of_machine: &[String]) {
    let voice = Output::from(options.report.log);
    plan.approximations().iter().for_each(|how| voice.print_warning(how));
    plan.notes.iter().for_each(|note| voice.print_info(&format!("{}: {}", note.file, note.text)));
    of_machine.iter().for_each(|warning| voice.print_warning(warning));
    options.report.unit_hint().into_iter().for_each(|doubt| voice.print_warning(&doubt));
}

/// What the machine has that a start should not hide.
fn warnings(plan: &Plan, options: &UpOptions, found: &Found<'_>) -> Vec<String> {
    let map = Map(&options.map);
    let of_router = plan.router.iter().flat_map(|router| router.warnings(|name| map.machine(name)));
    found.warnings().into_iter().chain(of_router).collect()
}

/// Prints what would be done; the status says whether it could be.
fn dry_run(plan: &Plan, options: &UpOptions) -> anyhow::Result<u8> {
    let mut mistakes = Vec::new();
    let found = find_interfaces(plan, &Map(&options.map), &Taken::default(), &mut mistakes);
    let commands = plan.shell.iter().map(|shell| format!("{}: command: {}\n", shell.place, shell.text));
    let text = verdict::text(&plan.judged, &plan.notes) + &found.text() + &commands.collect::<String>();
    print_stdout(&text)?;
    let voice = Output::from(options.report.log);
    warnings(plan, options, &found).iter().for_each(|warning| voice.print_warning(warning));
    voice.complain_of(&voice.format_mistakes(&mistakes));
    let is_refused = plan.judged.iter().any(Judged::is_refused);
    Ok(u8::from(is_refused || !mistakes.is_empty()))
}

fn job(options: UpOptions, taken: Taken, plan: Plan, text: String) -> RunJob {
    let options = Arc::new(options);
    let files = Files { options: options.clone(), taken: Arc::new(Mutex::new(taken)) };
    let pflog = options.pflog.clone().unwrap_or_else(|| PFLOG.into());
    let mut job = running_job(text, Arc::new(files), &options.running, &options.report, pflog);
    job.mode = "up";
    map_devices(&options.map, &mut job.settings);
    let commands = plan.shell.into_iter().filter(|_| options.run_commands);
    job.commands = commands.map(|shell| (shell.place.to_string(), shell.text)).collect();
    job.sandbox.listed = Some(options.listed_folder());
    job.exports = ExportSettings { ipfix: plan.ipfix, psample: None };
    job
}
