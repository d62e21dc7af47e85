//! `artery top`: what a running `artery adopt` forwards past the kernel, and what it leaves to it.
mod screen;
mod view;

use crate::adopt::Status;
use crate::cli::Reach;
use crate::cli::values::{Period, period};
use crate::control_socket::Client;
use crate::voice::print;
use anyhow::Context as _;
use clap::Args;
use std::io::IsTerminal as _;
use view::View;

/// The last lines of its help.
pub(crate) const EXAMPLES: &str = "Examples:
  artery top                           rates each second, until 'q'
  artery top --every 5
  artery top --once                    rates of one second as plain text, and the end

Rates are packets and bits per second. IN and OUT are what was forwarded past the kernel; KERNEL is what came by a port and
was left to it, for the reasons below. IF IN and IF OUT are the kernel's own counters of the interface, as 'ip -s link'
shows them: whether they hold what went past the kernel depends on the path and the driver. Without -u and -p the program
is the one at $ARTERY_SOCKET, or else at /run/artery.sock.";

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
}

/// Shows it once, or again and again.
pub(crate) fn command(options: &TopOptions) -> anyhow::Result<u8> {
    let mut source = Source(Client::connect(&options.reach)?);
    let before = source.status()?;
    if options.once || !std::io::stdout().is_terminal() {
        std::thread::sleep(options.every.every);
        return print(&View::new(&before, &source.status()?).text()).map(|()| 0);
    }
    screen::show(source, before, options.every.every).map(|()| 0)
}

/// Where what is shown comes from.
struct Source(Client);

impl Source {
    fn status(&mut self) -> anyhow::Result<Status> {
        let text = self.0.read("state").context(
            "this is no 'artery adopt'; 'artery netstat' and 'artery show' look into a router of elements",
        )?;
        serde_json::from_str(&text)
            .context("what it tells of itself makes no sense: is it of another version?")
    }
}
