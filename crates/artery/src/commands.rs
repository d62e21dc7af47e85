//! Commands of the host that a configuration asks for, run once its router forwards.
use crate::voice::Voice;
use std::process::{Command, Stdio};

/// Runs them one after the other, aside; one that fails is said, and the next is run.
pub(crate) fn run(commands: Vec<(String, String)>, voice: Voice) {
    if commands.is_empty() {
        return;
    }
    let work = move || commands.iter().for_each(|(place, text)| one(place, text, voice));
    if let Err(error) = std::thread::Builder::new().name("commands".to_string()).spawn(work) {
        voice.warning(&format!("no command is run: {error}"));
    }
}

fn one(place: &str, text: &str, voice: Voice) {
    voice.say(&format!("{place}: runs {text}"));
    match Command::new("sh").args(["-c", text]).stdin(Stdio::null()).status() {
        Ok(status) if status.success() => {}
        Ok(status) => voice.warning(&format!("{place}: {text}: {status}")),
        Err(error) => voice.warning(&format!("{place}: can't run sh: {error}")),
    }
}
