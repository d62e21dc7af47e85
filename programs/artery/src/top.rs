//! `artery top`: what a running `artery adopt` forwards past the kernel, and what it leaves to it; or what
//! goes through the ports of a router, and how long it waits there.
mod fleet;
mod router;
mod screen;
mod view;

use crate::adopt::Status;
use crate::control_socket::Client;
use crate::options::Reach;
use crate::options::values::{Period, period};
use crate::output::print_stdout;
use anyhow::Context as _;
use clap::Args;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use view::View;

/// The last lines of its help.
pub(crate) const EXAMPLES: &str = "Examples:
  artery top                           rates each second, until 'q'
  artery top --every 5
  artery top --once                    rates of one second as plain text, and the end
  artery top --fleet /run/artery-fleet.sock    with the machines of the router's fleet

Rates are packets and bits per second. IN and OUT are what was forwarded past the kernel; KERNEL is what came
by a port and was left to it, for the reasons below. IF IN and IF OUT are the kernel's own counters of the
interface, as 'ip -s link' shows them: whether they hold what went past the kernel depends on the path and the
driver.

Of a router (artery run, artery router, artery up) each port is shown. WAIT P50 and WAIT P99: so long at most
the oldest frame of a received batch had waited in the kernel's queue, in half and in 99 of 100 batches;
packet sockets only. Without -u and -p the program is the one at $ARTERY_SOCKET, or else at
/run/artery.sock.";

#[derive(Args)]
pub(crate) struct TopOptions {
    #[command(flatten)]
    reach: Reach,
    /// Print it once, as plain text
    #[arg(long)]
    once: bool,
    /// The time that rates are of, such as 5 (seconds) or 200ms
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = period)]
    every: Period,
    /// Show below what artery-fleet says at its status socket, such as /run/artery-fleet.sock
    #[arg(long, value_name = "SOCKET")]
    fleet: Option<PathBuf>,
}

/// Shows it once, or again and again.
pub(crate) fn command(options: &TopOptions) -> anyhow::Result<u8> {
    let mut source = Source::new(Client::connect(&options.reach)?, options.fleet.clone());
    let before = source.state()?;
    if options.once || !std::io::stdout().is_terminal() {
        std::thread::sleep(options.every.every);
        return print_stdout(&source.state()?.since(&before).text()).map(|()| 0);
    }
    screen::show(source, before, options.every.every).map(|()| 0)
}

/// The state at one time.
enum State {
    Adopt(Box<Status>),
    Router(router::Ports),
}

impl State {
    /// What happened since an earlier state of the same program.
    fn since(&self, before: &State) -> View {
        match (before, self) {
            (State::Adopt(before), State::Adopt(now)) => View::new(before, now),
            (State::Router(before), State::Router(now)) => now.since(before),
            _ => unreachable!("a source tells of one program"),
        }
    }
}

/// The source of the shown states.
struct Source {
    client: Client,
    /// Whether it is a router of elements.
    is_router: bool,
    fleet: Option<PathBuf>,
}

impl Source {
    fn new(mut client: Client, fleet: Option<PathBuf>) -> Source {
        let is_router = client.read("state").is_err();
        Source { client, is_router, fleet }
    }

    fn state(&mut self) -> anyhow::Result<State> {
        if self.is_router {
            return router::Ports::of(&mut self.client, self.fleet.as_deref()).map(State::Router);
        }
        let text = self.client.read("state")?;
        let status = serde_json::from_str(&text);
        status.map(State::Adopt).context("what it tells of itself makes no sense: is it of another version?")
    }
}
