//! Ports while they are adopted.
use super::facts::Facts;
use crate::voice::{Voice, print};
use anyhow::Context as _;
use artery_adopt::Session;
use artery_adopt::fast::{Counters, Mode, Reason};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Forwards until SIGINT or SIGTERM.
pub(super) fn run(facts: Vec<Facts>, mode: Option<Mode>) -> anyhow::Result<u8> {
    let (stop, signals) = UnixStream::pair().context("can't wait for signals")?;
    for signal in [SIGINT, SIGTERM] {
        let end = signals.try_clone().context("can't wait for signals")?;
        signal_hook::low_level::pipe::register(signal, end).context("can't wait for signals")?;
    }
    let voice = Voice::artery();
    let mut ports = Vec::new();
    for facts in facts {
        let mode = mode.unwrap_or_else(|| facts.mode());
        voice.say(&format!("{}: {}", facts.port.name, in_words(mode, &facts)));
        ports.push((facts.port, mode));
    }
    let mut session = Session::open(&ports, Instant::now())?;
    voice.say("forwarding");
    say_rules(&session);
    say_guards(&session);
    let mut wait = Duration::ZERO;
    while !session.wait(wait, stop.as_fd())? {
        let (next, news) = session.turn(Instant::now())?;
        wait = next;
        if news.guards {
            say_guards(&session);
        }
    }
    print(&report(&session))?;
    Ok(0)
}

/// How a port's packets are forwarded, and why not by its driver.
fn in_words(mode: Mode, facts: &Facts) -> String {
    let path = match mode {
        Mode::Native => return "by XDP, in its driver".to_owned(),
        Mode::Generic => "by XDP, in the kernel in its driver's place",
        Mode::Tc => "by tc",
    };
    facts.why().map_or_else(|| path.to_owned(), |why| format!("{path}: {why}"))
}

fn say_rules(session: &Session) {
    session.driver().mirror().reasons().for_each(|reason| Voice::artery().say(&reason.to_string()));
}

fn say_guards(session: &Session) {
    let voice = Voice::artery();
    for port in session.deaf() {
        voice.say(&format!(
            "{}: what leaves there stays with the kernel: its driver sends redirected frames only once the other end joins \
             frames ('ethtool -K DEV gro on' there) or has an XDP program",
            port.name
        ));
    }
    match session.guards() {
        [] => voice.say("nothing keeps traffic between these ports in the kernel"),
        guards => guards.iter().for_each(|guard| voice.say(&guard.to_string())),
    }
}

/// What was forwarded, and why the rest was not.
fn report(session: &Session) -> String {
    let Counters { kernel, ports } = session.accelerator().counters();
    let mut text = String::new();
    for port in session.ports() {
        let Some(number) = session.accelerator().port(port.index) else { continue };
        let [received, received_bytes, sent, sent_bytes] = ports[number as usize];
        text += &format!(
            "{}: {received} packets ({received_bytes} bytes) forwarded from it, {sent} ({sent_bytes}) to it\n",
            port.name
        );
    }
    for (reason, count) in Reason::ALL.iter().zip(kernel).filter(|(_, count)| *count > 0) {
        text += &format!("{count} frames went to the kernel: {}\n", reason.name());
    }
    text
}
