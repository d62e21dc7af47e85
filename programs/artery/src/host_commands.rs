//! Commands of the host that a configuration has, run once its router forwards.
use crate::output::Output;
use std::io::{self, Write as _};
use std::process::{Child, Command, Stdio};

/// What a shell waits for on its standard input before it runs a command. Without it, as when the router
/// ends, it runs none.
const GO: &[u8] = b"\n";

/// A command, and the shell that waits to run it. Shells are started before the router gives its rights up.
struct Held {
    place: String,
    text: String,
    shell: io::Result<Child>,
}

/// Commands that wait for their router.
pub(crate) struct Commands {
    held: Vec<Held>,
    output: Output,
}

impl Commands {
    /// Starts a shell for each of these, which are a place and a command.
    pub(crate) fn hold(commands: &[(String, String)], voice: Output) -> Commands {
        let hold = |(place, text): &(String, String)| {
            let script = format!("read -r go && {{ {text}\n}}");
            let shell = Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn();
            Held { place: place.clone(), text: text.clone(), shell }
        };
        Commands { held: commands.iter().map(hold).collect(), output: voice }
    }

    /// Runs them in order on a thread of their own; one that fails is reported, and the next is run.
    pub(crate) fn run(self) {
        let Commands { held, output: voice } = self;
        if held.is_empty() {
            return;
        }
        let work = move || held.into_iter().for_each(|held| run(held, voice));
        if let Err(error) = std::thread::Builder::new().name("commands".to_string()).spawn(work) {
            voice.print_warning(&format!("no command is run: {error}"));
        }
    }
}

fn run(Held { place, text, shell }: Held, voice: Output) {
    voice.print_info(&format!("{place}: runs {text}"));
    match shell.and_then(let_go) {
        Ok(status) if status.success() => {}
        Ok(status) => voice.print_warning(&format!("{place}: {text}: {status}")),
        Err(error) => voice.print_warning(&format!("{place}: can't run sh: {error}")),
    }
}

/// Has a shell run its command, with nothing more to read, and waits for its end.
fn let_go(mut shell: Child) -> io::Result<std::process::ExitStatus> {
    if let Some(mut input) = shell.stdin.take() {
        input.write_all(GO)?;
    }
    shell.wait()
}
