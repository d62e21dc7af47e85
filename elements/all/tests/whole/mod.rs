//! Whole routers, run to their end.
#![allow(dead_code, reason = "each test file uses a part of this")]
use artery_elements::CLASSES;
use artery_engine::router::{Finished, Router, RouterSettings};
use artery_engine::{Sink, Time};
use artery_lang::{Options, Sources, check, compile};

/// Runs a configuration to its end.
#[track_caller]
pub(crate) fn finish(text: &str, settings: &RouterSettings) -> Finished {
    let mut sources = Sources::default();
    let file = sources.add_file("test", text);
    let (ir, mut diagnostics) = compile(&mut sources, file, &Options::default(), &CLASSES);
    let (processing, more) = check(&ir, &CLASSES);
    diagnostics.extend(more);
    assert!(diagnostics.is_empty(), "{}", diagnostics.iter().map(|d| d.render(&sources)).collect::<String>());
    let router = Router::build(&ir, &processing, CLASSES, settings.clone());
    router.unwrap_or_else(|problems| panic!("{problems:?}")).start().wait().expect("no worker panics")
}

/// The same in simulated time; returns the output and the messages.
#[track_caller]
pub(crate) fn simulate(text: &str) -> (String, String) {
    let settings = RouterSettings {
        chatter: Sink::buffer(),
        output: Sink::buffer(),
        frames: (1024, 4),
        simulated: Some(Time::new(1_000_000_000, 0)),
        ..RouterSettings::default()
    };
    finish(text, &settings);
    (settings.output.drain_text(), settings.chatter.drain_text())
}
