//! Ports while they are adopted.
use super::capture::Captures;
use super::choice::Choice;
use super::explain::explain;
use super::facts::Facts;
use super::graph::Engine;
use super::kept::ExcludedPrefixes;
use super::news::{say_connection_lag, say_lag, say_path, say_shortage, say_unfollowed};
use super::rights;
use super::samples::SampleExport;
use super::status::Status;
use super::{AdoptOptions, Path as Wanted, notes_on_xdp, refusal};
use crate::control_socket::{Control, ControlSettings, Listeners, Names, Question, Questions};
use crate::export::{ExportSettings, Exporter};
use crate::metrics::{self, Http};
use crate::notify::Notifier;
use crate::options::default_socket;
use crate::output::Output;
use crate::sandbox::confine_adopt;
use crate::signals::EarlyHangup;
use anyhow::{Context as _, anyhow, ensure};
use artery_adopt::blockers::{Blocker, Bridging, Port};
use artery_adopt::fast::{self, Reason};
use artery_adopt::graph::Graph;
use artery_adopt::mirror;
use artery_adopt::{ConnectionKeeper, Established, EstablishedOptions, Session};
use artery_device::{Interface, PortClaim};
use rustix::thread::CapabilitySet;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The handlers of its control socket.
const HANDLERS: Names = &[
    ("version", "r"),
    ("state", "r"),
    ("metrics", "r"),
    ("report", "r"),
    ("reread", "w"),
    ("capture", "rw"),
    ("explain", "r+"),
];

/// Forwards until SIGINT or SIGTERM.
pub(super) fn run(facts: Vec<Facts>, options: &AdoptOptions, early: &EarlyHangup) -> anyhow::Result<u8> {
    let (asked, mut questions) = Questions::new(HANDLERS).context("can't wait for questions")?;
    let signals = Signals::watch(&questions, early).context("can't wait for signals")?;
    let voice = Output::from(options.log);
    let mut manager = Notifier::of_environment();
    let claims = claim_ports(&facts)?;
    let settings = options.control.settings(Vec::new());
    let control = control_sockets(options.socket.as_deref(), &settings, voice)?;
    let metrics = metrics::listen(&options.metrics)?;
    let exports = ExportSettings { ipfix: options.ipfix.clone(), psample: options.psample };
    let exporter = Exporter::open(&exports)?;
    let choice = Choice::of(&facts, options.path);
    // The program of the port that carries a VLAN forwards for it.
    let (facts, carried): (Vec<Facts>, Vec<Facts>) =
        facts.into_iter().partition(|facts| facts.carrier.is_none());
    let sockets = [control.files(), metrics.files()].concat();
    let (engine, graph) = engine(&facts, options.path, &sockets, voice)?;
    let mut session = match &engine {
        Some(engine) => {
            let modes =
                facts.iter().enumerate().map(|(number, facts)| (facts.port.clone(), engine.mode(number)));
            Session::open(&modes.collect::<Vec<_>>(), graph, Instant::now())?
        }
        None => open(&facts, &choice, options, voice)?,
    };
    if let Some(interval) = exporter.as_ref().and_then(Exporter::interval) {
        let begun = session.accelerator_mut().begin_sampling(interval);
        begun.map_err(|error| anyhow!("packets can't be sampled: {}", refusal(&error, options.verbose)))?;
    }
    say_ports(&session, &facts, &carried, &choice, voice);
    if let Some(error) = session.accelerator().uncounted_losses() {
        voice.log_event("note", &format!("frames lost after a redirect are not counted: {error}"), &[]);
    }
    let began = Instant::now();
    if engine.is_none() {
        // No thread was started yet, which would keep what it had.
        rights::drop_but(CapabilitySet::empty())?;
        let lack = confine_adopt(&sockets, false)?;
        lack.into_iter().for_each(|lack| voice.print_warning(lack));
    }
    // Their threads start with the remaining rights, as all others do.
    session.hold(claims.into_iter().map(PortClaim::serve).collect());
    let answers = Control::new(asked.clone(), None, settings.idle);
    control.serve(&answers, voice).context("can't answer questions")?;
    let of_this = move || asked.send_request("metrics", None).map_err(|error| error.to_string());
    metrics.serve(&Http(of_this), voice).context("can't answer questions")?;
    let mut samples = exporter.map(|exporter| SampleExport::start(exporter, voice)).transpose()?;
    voice.log_event("forwarding", "forwarding", &[]);
    let (mut rules, mut kept) = (Vec::new(), ExcludedPrefixes::default());
    say_rules(&session, &mut rules, voice);
    kept.report_changes(session.driver().mirror(), voice);
    let mut said = Said::default();
    said.renew(&session, voice);
    manager.ready(&summary(&session));
    let (mut wait, mut captures) = (Duration::ZERO, Captures::default());
    while !signals.stop.load(Relaxed) {
        ensure!(!engine.as_ref().is_some_and(Engine::has_ended), "the graph has ended; this is a defect");
        if session.wait(wait.min(manager.live(Instant::now())), questions.as_fd())? {
            questions
                .drain()
                .into_iter()
                .for_each(|question| answer(&mut session, &mut captures, samples.as_ref(), began, question));
        }
        if let Err(error) = captures.expire(&mut session, Instant::now()) {
            voice.log_event("note", &format!("programs that copy frames stay for now: {error}"), &[]);
        }
        if signals.reread.swap(false, Relaxed) {
            manager.reloading();
            voice.log_event("reread", "reading all tables and settings again", &[]);
            session.request_resync();
        }
        let (next, news) = session.poll(Instant::now())?;
        say_rules(&session, &mut rules, voice);
        kept.report_changes(session.driver().mirror(), voice);
        wait = next;
        if let Some(samples) = &mut samples {
            wait = wait.min(samples.drain(&mut session, Instant::now()));
        }
        say_path(&news, options.verbose, voice);
        say_lag(&news, voice);
        say_shortage(&news, voice);
        say_connection_lag(&news, voice);
        if let Some(why) = &news.uncompared {
            let said = format!(
                "connections that began before stay with the kernel, and are tried again each 10 s: reading \
                 its entries failed: {why}"
            );
            voice.log_event("uncompared", &said, &[]);
        }
        if let Some(why) = &news.unfollowed {
            say_unfollowed(why, voice);
        }
        if news.guards {
            said.renew(&session, voice);
            manager.status(&summary(&session));
        }
        if news.everything {
            manager.ready(&summary(&session));
        }
    }
    manager.stopping();
    voice.log_event("stopping", "the kernel forwards alone again", &[]);
    let report = report(&session);
    if let Some(samples) = &mut samples {
        samples.collect_samples(&mut session);
    }
    // Programs stop before the graph that they send to, and the ports are free after both. Where an error
    // ends it, the process ends, too: others may take the ports while the graph still runs, for as long.
    let claims = session.take_claims();
    drop(session);
    engine.map_or(Ok(()), Engine::end)?;
    drop(claims);
    voice.print_report(&report)?;
    Ok(0)
}

/// Claims ports before anything is attached to them. Another `artery adopt` may hold them; this one
/// then takes them over.
fn claim_ports(facts: &[Facts]) -> anyhow::Result<Vec<PortClaim>> {
    let claim = |facts: &Facts| Ok(PortClaim::shared(&Interface::find(&facts.port.name)?)?);
    facts.iter().map(claim).collect()
}

/// The graph, if it is wanted, and what passes the kernel's routes to it.
fn engine(
    facts: &[Facts],
    path: Option<Wanted>,
    sockets: &[PathBuf],
    voice: Output,
) -> anyhow::Result<(Option<Engine>, Option<Graph>)> {
    let Some(Wanted::Graph) = path else { return Ok((None, None)) };
    // Its threads start with the remaining rights, which must do for the sockets that it sends by.
    rights::drop_but(CapabilitySet::NET_RAW)?;
    let lack = confine_adopt(sockets, true)?;
    lack.into_iter().for_each(|lack| voice.print_warning(lack));
    let (engine, graph) = Engine::start(facts, voice)?;
    Ok((Some(engine), Some(graph)))
}

/// Adopts ports by the first path that the kernel takes, and reports why it does not take a better one. A
/// port is reported only once it is adopted: one whose tc program the kernel refuses stays with the kernel,
/// unless the user asked for that path. Where no path is left, programs without connections are tried, which
/// are shorter.
fn open(facts: &[Facts], choice: &Choice, options: &AdoptOptions, voice: Output) -> anyhow::Result<Session> {
    let mut ports: Vec<&Facts> = facts.iter().collect();
    let (which, existing) = (options.established().into(), options.established_existing);
    let mut established = EstablishedOptions { which, existing };
    let mut refused_with_connections: Option<String> = None;
    let mut paths = choice.paths.iter();
    let mut path = *paths.next().context("there is always a path")?;
    loop {
        let modes: Vec<_> = ports.iter().map(|facts| (facts.port.clone(), path.mode())).collect();
        let error = match Session::open_with(&modes, None, established, Instant::now()) {
            Ok(session) => {
                if let Some(why) = refused_with_connections.take() {
                    say_unfollowed(&why, voice);
                }
                let Some(flaw) = flaw_of_xdp(&session) else { return Ok(session) };
                let next = paths.as_slice().first().filter(|_| options.path.is_none());
                let Some(next) = next else {
                    ensure!(session.broken_pair().is_none(), "{flaw}; '--path tc' needs no driver's help");
                    return Ok(session);
                };
                voice.log_event("refused", &format!("{flaw}; so all ports go {}", next.in_words()), &[]);
                path = *next;
                paths.next();
                continue;
            }
            Err(error) => error,
        };
        let artery_adopt::Error::Fast(refused, cause) = &error else { return Err(error.into()) };
        let said = match refused {
            Some(port) => format!("{port}: not {}: {}", path.in_words(), refusal(cause, options.verbose)),
            None => refusal(cause, options.verbose),
        };
        let is_final = options.path.is_some() || !cause.is_refusal();
        match paths.next() {
            Some(next) if !is_final => {
                path = *next;
                log_refusal(voice, cause, &format!("{said}; so all ports go {}", path.in_words()));
            }
            _ if !cause.verifier().is_empty() && established.which != Established::InKernel => {
                (established.which, refused_with_connections) = (Established::InKernel, Some(said));
                paths = choice.paths.iter();
                path = *paths.next().context("there is always a path")?;
            }
            _ => {
                // It was not for them.
                (established.which, refused_with_connections) = (which, None);
                ports.retain(|facts| !is_final && refused.as_ref() != Some(&facts.port.name));
                anyhow::ensure!(!ports.is_empty() && refused.is_some(), "{said}");
                log_refusal(voice, cause, &format!("{said}; so it stays with the kernel"));
            }
        }
    }
}

/// Why ports can't do all by XDP though their drivers took its programs. Some report that they send
/// redirected frames once they have a program, and some report it and do not.
fn flaw_of_xdp(session: &Session) -> Option<String> {
    let unsent = session.without_redirect().next();
    let said = unsent.map(|port| format!("{}: its driver does not send what XDP redirects", port.name));
    let untaken = |(from, to)| {
        format!("{to}: its driver took none of the frames from {from} that XDP redirected to it as a probe")
    };
    session.broken_pair().map(untaken).or(said)
}

/// Says that the kernel did not take a program; programs that read it get the verifier's last
/// lines in any case.
fn log_refusal(voice: Output, cause: &fast::Error, said: &str) {
    let verifier = cause.verifier().join("\n");
    voice.log_event("refused", said, &[("verifier", &verifier)]);
}

/// Reports the path that each port's packets take, and notes on it.
fn say_ports(session: &Session, facts: &[Facts], carried: &[Facts], choice: &Choice, voice: Output) {
    for facts in facts {
        let name = &facts.port.name;
        if facts.port.bridging == Bridging::Bridge {
            let said = format!("{name}: a bridge, by its members");
            voice.log_event("port", &said, &[("port", name)]);
        }
        if facts.port.is_tunnel() {
            let said = format!("{name}: a tunnel, what leaves and arrives by it");
            voice.log_event("port", &said, &[("port", name)]);
        }
        let Some(mode) = session.accelerator().mode(facts.port.index) else { continue };
        let path = Wanted::from(mode);
        let words = path.in_words();
        let why = match (&facts.bridge, choice.why(facts)) {
            (Some(bridge), _) => format!(", with {bridge}, whose member it is"),
            (None, Some(why)) => format!(": {why}"),
            (None, None) => String::new(),
        };
        voice.log_event("port", &format!("{name}: {words}{why}"), &[("port", name), ("path", path.name())]);
    }
    for facts in carried {
        let (name, carrier) = (&facts.port.name, facts.carrier.as_deref().unwrap_or_default());
        let said = format!("{name}: with {carrier}, whose VLAN it is");
        voice.log_event("port", &said, &[("port", name), ("carrier", carrier)]);
    }
    let first = facts.iter().find_map(|facts| session.accelerator().mode(facts.port.index));
    let notes = first.map_or_else(Vec::new, |mode| notes_on_xdp(facts, mode.into()));
    notes.iter().for_each(|note| voice.log_event("note", note, &[]));
}

/// What signals have requested.
#[derive(Default)]
struct Signals {
    stop: Arc<AtomicBool>,
    reread: Arc<AtomicBool>,
}

impl Signals {
    /// From now on signals set flags, and wake the thread that waits for requests.
    fn watch(questions: &Questions, early: &EarlyHangup) -> std::io::Result<Signals> {
        let signals = Signals::default();
        for signal in [SIGINT, SIGTERM] {
            // The second one, should the first not be followed.
            signal_hook::flag::register_conditional_default(signal, signals.stop.clone())?;
        }
        for (signal, flag) in [(SIGINT, &signals.stop), (SIGTERM, &signals.stop), (SIGHUP, &signals.reread)] {
            // What is registered first runs first: the thread that is woken finds the flag set.
            signal_hook::flag::register(signal, flag.clone())?;
            signal_hook::low_level::pipe::register(signal, questions.ringer()?)?;
        }
        if early.has_come() {
            signals.reread.store(true, Relaxed);
        }
        Ok(signals)
    }
}

/// Opens the control socket. If the default path is in use, adopting goes on without a socket; a path that
/// the user named must work.
fn control_sockets(
    path: Option<&Path>,
    settings: &ControlSettings,
    voice: Output,
) -> anyhow::Result<Listeners> {
    let mut listeners = Listeners::default();
    let usual = default_socket();
    match (listeners.add_unix(path.unwrap_or(&usual), settings.read_group.as_ref()), path) {
        (Ok(()), _) => {}
        (Err(error), Some(_)) => return Err(error),
        (Err(error), None) => {
            voice.print_info(&format!("{error:#}; so 'artery top' can't look into this one"))
        }
    }
    Ok(listeners)
}

fn answer(
    session: &mut Session,
    captures: &mut Captures,
    samples: Option<&SampleExport>,
    began: Instant,
    question: Question,
) {
    let status = |session: &Session| Status::find(session, began).map_err(|error| format!("{error:#}"));
    let answer = match question.handler.as_str() {
        "version" => Ok(env!("CARGO_PKG_VERSION").to_string()),
        "state" => status(session).and_then(|status| {
            serde_json::to_string(&status).map_err(|error| format!("can't be written: {error}"))
        }),
        "metrics" => status(session)
            .map(|status| status.metrics() + &samples.map(SampleExport::metrics).unwrap_or_default()),
        "report" => Ok(report(session)),
        "reread" => {
            session.request_resync();
            Ok(String::new())
        }
        "capture" => match &question.value {
            Some(wanted) => captures.set(session, wanted),
            None => captures.drain_frames(session),
        },
        "explain" => explain(session, question.value.as_deref().unwrap_or_default()),
        other => Err(format!("no handler named '{other}'")),
    };
    question.answer(answer);
}

/// What the service manager shows.
fn summary(session: &Session) -> String {
    let is_routed = |port: &&Port| !matches!(port.bridging, Bridging::Member(_));
    let names: Vec<&str> = session.ports().iter().filter(is_routed).map(|port| port.name.as_str()).collect();
    let guards = session.blockers().len();
    let kept = if guards == 0 { String::new() } else { format!("; guards that keep traffic: {guards}") };
    format!("forwarding between {}{kept}", names.join(", "))
}

/// Reports which routing rules keep traffic with the kernel, if they differ from those in `said`.
fn say_rules(session: &Session, said: &mut Vec<mirror::ExclusionReason>, voice: Output) {
    let mirror = session.driver().mirror();
    if mirror.exclusion_reasons().eq(said.iter()) {
        return;
    }
    *said = mirror.exclusion_reasons().cloned().collect();
    said.iter().for_each(|reason| voice.log_event("rule", &reason.to_string(), &[]));
    if said.is_empty() {
        voice.log_event("unruled", "no routing rule keeps traffic with the kernel any more", &[]);
    }
}

/// What was last reported: blockers, ports without redirect, or without multi-buffer frames, and
/// ports that are gone.
#[derive(Default)]
struct Said {
    blockers: Option<Vec<Blocker>>,
    without_redirect: Vec<Port>,
    without_multi_buffer: Vec<Port>,
    gone: Vec<Port>,
}

impl Said {
    /// Reports what has changed since the last report.
    fn renew(&mut self, session: &Session, voice: Output) {
        let gone: Vec<Port> = session.gone().cloned().collect();
        for port in new(&gone, &self.gone) {
            let then = match session.adopts_returned() {
                true => "one of that name that comes back is adopted again",
                false => {
                    "should one come back, the kernel forwards its traffic until 'artery adopt' is started \
                     again"
                }
            };
            let said = format!("{}: the interface is gone; {then}", port.name);
            voice.log_event("gone", &said, &[("port", &port.name)]);
        }
        let without_redirect: Vec<Port> = session.without_redirect().cloned().collect();
        for port in new(&without_redirect, &self.without_redirect) {
            let said = format!(
                "{}: what leaves there stays with the kernel: its driver does not send what XDP redirects. \
                 Of a virtual link, have the other end join frames ('ethtool -K DEV gro on' there); \
                 otherwise adopt all ports by tc ('--path tc')",
                port.name
            );
            voice.log_event("deaf", &said, &[("port", &port.name)]);
        }
        for port in new(&self.without_redirect, &without_redirect)
            .filter(|port| gone.iter().all(|gone| gone.index != port.index))
        {
            let said = match session.is_by_xdp() {
                true => "its driver sends what XDP redirects, so that what leaves there is forwarded",
                false => "what leaves there is forwarded by tc",
            };
            let said = format!("{}: {said}", port.name);
            voice.log_event("hearing", &said, &[("port", &port.name)]);
        }
        let without_multi_buffer: Vec<Port> = session.without_multi_buffer().cloned().collect();
        for port in new(&without_multi_buffer, &self.without_multi_buffer) {
            let said = format!(
                "{}: multi-buffer frames that leave there stay with the kernel: its driver does not send \
                 those that XDP redirects, or the kernel does not report that it does (Linux 6.3 does); \
                 '--path tc' forwards them",
                port.name
            );
            voice.log_event("multi-buffer", &said, &[("port", &port.name)]);
        }
        let is_as_before = without_redirect.is_empty() == self.without_redirect.is_empty();
        if !is_as_before || self.blockers.as_deref() != Some(session.blockers()) {
            let is_all = without_redirect.is_empty();
            let mirror = session.driver().mirror();
            let names_others =
                mirror.exclusion_reasons().next().is_some() || mirror.excluded_prefixes().next().is_some();
            say_guards(session.blockers(), is_all, names_others, voice);
        }
        *self = Said {
            blockers: Some(session.blockers().to_vec()),
            without_redirect,
            without_multi_buffer,
            gone,
        };
    }
}

/// Those of some ports that are not among others.
fn new<'p>(ports: &'p [Port], others: &[Port]) -> impl Iterator<Item = &'p Port> {
    ports.iter().filter(|port| others.iter().all(|other| other.index != port.index))
}

/// Says what keeps traffic, beside rules and prefixes if some of those were named.
fn say_guards(guards: &[Blocker], is_all: bool, names_others: bool, voice: Output) {
    match guards {
        [] if is_all => {
            let what = if names_others { "nothing else" } else { "nothing" };
            let said = format!("{what} keeps traffic between these ports in the kernel");
            voice.log_event("unguarded", &said, &[]);
        }
        guards => guards.iter().for_each(|guard| {
            voice.log_event("guard", &guard.to_string(), &[("what", &guard.what), ("remedy", &guard.remedy)]);
        }),
    }
}

/// A report of what was forwarded, and why the rest was not.
fn report(session: &Session) -> String {
    let counters = session.accelerator().counters();
    let mut text = String::new();
    for port in session.ports() {
        let Some(counted) = session.port_counters(port) else { continue };
        text += &format!(
            "{}: {} packets ({} bytes) forwarded from it, {} ({}) to it\n",
            port.name, counted.received, counted.received_bytes, counted.sent, counted.sent_bytes
        );
        if counted.established > 0 {
            text += &format!(
                "{}: {} of these past rules, of established connections\n",
                port.name, counted.established
            );
        }
        if counted.lost > 0 {
            text += &format!("{}: {} packets lost\n", port.name, counted.lost);
        }
        if counted.dropped > 0 {
            text +=
                &format!("{}: {} packets lost that its driver did not take\n", port.name, counted.dropped);
        }
    }
    if let Some(connections) = session.connections() {
        text += &format!("{} connections go past rules at the end\n", connections.forwarded);
        if connections.existing > 0 {
            text +=
                &format!("{} connections that began before are compared each second\n", connections.existing);
        }
        for (by, count) in ConnectionKeeper::ALL.iter().zip(connections.kept).filter(|(_, count)| *count > 0)
        {
            text += &format!("{count} connections stay with the kernel: {}\n", by.meaning());
        }
    }
    for (reason, count) in Reason::ALL.iter().zip(counters.kernel()).filter(|(_, count)| *count > 0) {
        let frames = if count == 1 { "frame" } else { "frames" };
        text += &format!("{count} {frames} went to the kernel: {}\n", reason.name());
    }
    text
}
