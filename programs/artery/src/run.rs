//! Running a router from its configuration to its exit status.
mod options;

pub(crate) use options::RunOptions;

use crate::ask::print_handlers;
use crate::classes::classes;
use crate::control_socket::{Control, Listeners, Service};
use crate::export::Exporter;
use crate::host_commands::Commands;
use crate::load::load;
use crate::metrics::{self, Http, of_router};
use crate::notify::{Notifier, start_watchdog};
use crate::output::{Output, print_stdout};
use crate::reload::Reloader;
use crate::replace::Replacer;
use crate::report;
use crate::run_options::RunJob;
use crate::sandbox::{self, Confined};
use crate::signals::{EarlySignals, Watcher};
use artery_common::ROUTER_HANDLERS;
use artery_device::{Interface, Ports};
use artery_engine::{Finished, Handle, HandlerError, Router, RouterSettings};
use artery_firewall::LogFiles;
use artery_lang::args;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The status that a shell reports of a filter whose reader went away.
const KILLED_BY_SIGPIPE: u8 = 128 + 13;

/// Carries out a run; gives the exit status. `early` is what came before.
pub(crate) fn run(job: RunJob, early: EarlySignals) -> anyhow::Result<u8> {
    let status = run_until_end(job, early);
    // All ports are closed.
    sandbox::end();
    status
}

fn run_until_end(job: RunJob, early: EarlySignals) -> anyhow::Result<u8> {
    let voice = job.voice;
    let Some(Prepared { router, listeners, exporter, confined, commands }) = prepare(&job)? else {
        return Ok(1);
    };
    let is_empty = router.plan().is_empty();
    let mut status = write_flat(&job, router.plan().flat())?;
    let clock = report::Stopwatch::start();
    let mut finished = match job.quit || is_empty {
        true => router.finish(),
        false => drive(&job, router, &listeners, Beginning { early, exporter, confined, commands })?,
    };
    if is_empty && !job.quit {
        voice.print_warning(&format!("{}: configuration has no elements, exiting", job.input.name()));
    }
    drop(listeners);
    if job.time {
        print_stdout(&clock.read())?;
    }
    if finished.was_unread() {
        return Ok(KILLED_BY_SIGPIPE);
    }
    if finished.has_failed() {
        status = 1;
    }
    let errors = print_handlers(&mut finished, &job.handlers, voice);
    errors.iter().for_each(|error| voice.print_error(error));
    if !errors.is_empty() {
        status = 1;
    }
    if job.stats.is_some() || job.settings.profile || job.json {
        report::at_the_end(&finished, job.settings.profile, job.json, voice);
    }
    Ok(match &job.exit_handler {
        Some(handler) => exit_value(&mut finished, handler, voice),
        None => status,
    })
}

/// The sockets that a router can be queried by.
#[derive(Default)]
struct Sockets {
    control: Listeners,
    metrics: Listeners,
}

impl Sockets {
    fn open(job: &RunJob) -> anyhow::Result<Sockets> {
        Ok(Sockets { control: Listeners::open(&job.control)?, metrics: metrics::listen(&job.metrics)? })
    }

    /// The files that go with the router.
    fn files(&self) -> Vec<PathBuf> {
        [self.control.files(), self.metrics.files()].concat()
    }
}

/// Reads and builds everything; None if that failed, after printing why. Nothing has run then.
fn prepare(job: &RunJob) -> anyhow::Result<Option<Prepared>> {
    let voice = job.voice;
    let text = match job.input.read() {
        Ok(text) => text,
        Err(error) => {
            voice.print_error(&error);
            return Ok(None);
        }
    };
    let mut loaded = load(&job.input.name(), &text, &job.reading);
    let listeners = if loaded.has_errors() { Sockets::default() } else { Sockets::open(job)? };
    if !loaded.has_errors() {
        let exporter = Exporter::open(&job.exports)?;
        let chatter = match (voice, &job.source) {
            (_, Some(_)) => voice.product_sink(),
            (Output::Json, None) => voice.element_sink(),
            _ => job.settings.chatter.clone(),
        };
        let mut settings = RouterSettings {
            chatter,
            replaceable: job.allow_replace,
            handlers: ROUTER_HANDLERS,
            ..job.settings.clone()
        };
        settings.names.set_device_lookup(Interface::mac_of);
        // Their shells start with all rights.
        let commands = Commands::hold(&job.commands, job.voice);
        let confined = sandbox::enter(job, &loaded.ir, listeners.files())?;
        match Router::build(&loaded.ir, &loaded.processing, classes(), settings) {
            Ok(mut router) => {
                router.plan().set_source(text);
                loaded.problems = std::mem::take(&mut router.warnings);
                voice.complain_of(&voice.format_faults(&loaded));
                loaded.say_unused_variables(voice);
                return Ok(Some(Prepared { router, listeners, exporter, confined, commands }));
            }
            Err(problems) => loaded.problems = problems,
        }
    }
    voice.complain_of(&voice.format_faults(&loaded));
    if voice.is_own() {
        voice.print_error(&format!(
            "{}: {}; nothing was started",
            job.input.name(),
            loaded.error_count_in_words()
        ));
    }
    Ok(None)
}

/// A router that was built.
struct Prepared {
    router: Router,
    listeners: Sockets,
    exporter: Option<Exporter>,
    confined: Option<Confined>,
    commands: Commands,
}

/// What there is before a router runs.
struct Beginning {
    early: EarlySignals,
    exporter: Option<Exporter>,
    confined: Option<Confined>,
    commands: Commands,
}

/// Runs the router until it ends.
fn drive(
    job: &RunJob,
    router: Router,
    listeners: &Sockets,
    beginning: Beginning,
) -> anyhow::Result<Finished> {
    let Beginning { early, exporter, confined, commands } = beginning;
    if !listeners.control.is_empty() || job.allow_replace {
        router.accept_calls();
    }
    let life = confined.and_then(|confined| confined.lock(job.voice));
    let running = router.start();
    let handle = running.handle();
    handle.resources().get::<LogFiles>().report_faults_to(job.voice.product_sink());
    let export = exporter.map(|exporter| exporter.start(&handle.resources(), job.voice)).transpose()?;
    let replacer = Replacer::new(handle.clone(), job.reading.clone(), job.voice);
    let manager = Arc::new(Notifier::of_environment());
    let source = job.source.clone().unwrap_or_else(|| Arc::new(job.input.clone()));
    let own = source.handlers(&replacer);
    let reloader = Reloader {
        handle: handle.clone(),
        replacer: replacer.clone(),
        source,
        manager: manager.clone(),
        voice: job.voice,
    };
    // What Click prints is known, and where a report is to be JSON that is all there is.
    let is_wanted = job.voice == Output::Json || (job.voice.is_own() && !job.json);
    let voice = is_wanted.then_some(job.voice);
    if is_wanted || !job.voice.is_own() {
        listeners.control.say_access(job.voice);
    }
    let has_lost_helper = Arc::new(AtomicBool::new(false));
    if let Some(life) = life {
        sandbox::watch(life, handle.clone(), job.voice, has_lost_helper.clone())?;
    }
    let watcher = Watcher::start(handle.clone(), reloader.start()?, early, voice)?;
    let hotconfig = job.allow_replace.then_some(replacer);
    if let Some(replacer) = hotconfig.clone() {
        handle.on_replacement(move |text| replacer.replace_later(text));
    }
    let service = Service::new(handle.clone(), hotconfig, own);
    let control = Control::new(service, listeners.control.token(), job.control.idle);
    listeners.control.serve(&control, job.voice)?;
    let (measured, mode) = (handle.clone(), job.mode);
    listeners.metrics.serve(&Http(move || of_router(&measured, mode)), job.voice)?;
    commands.run();
    start_watchdog(handle.clone())?;
    if manager.is_there() {
        // Workers that have begun to forward answer; one that takes long to begin is waited for.
        while !handle.is_responsive() && !handle.has_ended() && !running.has_ended() {}
        manager.ready("forwarding");
    }
    let table =
        job.stats.map(|every| report::LiveTable::start(handle.clone(), every, job.voice)).transpose()?;
    let (began, has_ports) = (Instant::now(), !handle.resources().get::<Ports>().list().is_empty());
    let finished = running.wait().map_err(|worker| anyhow::anyhow!("{worker} failed; this is a defect"));
    manager.stopping();
    drop(export);
    table.into_iter().for_each(report::LiveTable::end);
    watcher.end()?;
    let is_service = has_ports
        || job.source.is_some()
        || job.allow_replace
        || !listeners.control.is_empty()
        || !listeners.metrics.is_empty();
    if let Some(voice) = voice {
        say_end(&handle, began.elapsed(), is_service, voice);
    }
    anyhow::ensure!(!has_lost_helper.load(Relaxed), "the router ended since its helper process did");
    finished
}

/// Says after what time and why the run has ended. A run without ports and sockets is silent: it
/// has done its work.
fn say_end(handle: &Handle, ran: Duration, is_service: bool, voice: Output) {
    if is_service || voice == Output::Json {
        let why = handle.end_reason().map_or_else(|| "all is done".to_string(), |reason| reason.text);
        let ran = format!("{:.3}", ran.as_secs_f64());
        voice.log_event(
            "ended",
            &format!("ended after {ran} s: {why}"),
            &[("reason", &why), ("seconds", &ran)],
        );
    }
}

/// Writes the flat configuration where it is wanted; gives the exit status so far.
fn write_flat(job: &RunJob, flat: &str) -> anyhow::Result<u8> {
    let path = match job.output.as_deref() {
        None => return Ok(0),
        Some("-") => return print_stdout(flat).map(|()| 0),
        Some(path) => path,
    };
    match artery_device::files::create(path).and_then(|mut file| file.write_all(flat.as_bytes())) {
        Ok(()) => Ok(0),
        Err(error) => {
            job.voice.print_error(&format!("{path}: {}", artery_device::system_message(&error)));
            Ok(1)
        }
    }
}

/// The exit status that the value of `HANDLER [PARAMETERS]` means.
fn exit_value(finished: &mut Finished, call: &str, voice: Output) -> u8 {
    let (handler, parameters) = args::shift_word(call);
    let value = match finished.read_handler(handler, parameters) {
        Ok(value) => args::strip_comments(&value),
        Err(error) => {
            voice.print_error(&match error {
                HandlerError::NoElement(name) => format!("no element named '{name}'"),
                HandlerError::NoHandler(_) | HandlerError::NotReadable(_) => {
                    format!("no '{handler}' read handler")
                }
                other => other.to_string(),
            });
            return 255;
        }
    };
    match (args::parse_signed(&value), args::parse_bool(&value)) {
        (Ok(number), _) => number as u8,
        (_, Some(holds)) => u8::from(!holds),
        _ => {
            voice.print_error("exit handler value should be integer");
            255
        }
    }
}
