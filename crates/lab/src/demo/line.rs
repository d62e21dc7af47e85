//! The second part: the program as a router between two hosts. Needs root, for the hosts are network namespaces.

use super::heading;
use crate::conf::ROUTER;
use crate::program;
use crate::rig::{Line, Process, Rig, RigError, Signal, Throughput};
use anyhow::ensure;
use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long the router may take to begin and to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the table of counters is new.
const REFRESH: Duration = Duration::from_millis(500);
/// Where the other host is.
const FAR: &str = "10.0.2.2";

pub(super) fn show() -> anyhow::Result<()> {
    // Before the heading: what is skipped has none.
    let rig = Rig::new("demo")?;
    let artery = program::artery()?;
    heading("2. A router between two hosts");
    say!(
        "Three network namespaces: a 10.0.1.2 -- r 10.0.1.1, 10.0.2.1 -- b 10.0.2.2. Linux does not forward in r;"
    );
    say!("`artery run conf/router.click` does. Everything vanishes at the end, also when interrupted.\n");
    let line = rig.line()?;
    let command = line.r.command([artery]).args(["run", "-e", ROUTER, "--stats=0.5"]);
    let mut router = command.spawn()?;
    wait_until_it_forwards(&line, &mut router)?;
    ping(&line)?;
    trace(&line)?;
    transfer(&line, &router)?;
    stop(&line, router)
}

fn wait_until_it_forwards(line: &Line, router: &mut Process) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while line.a.ping(FAR, 1)?.received == 0 {
        if !router.is_running() || Instant::now() > deadline {
            return Err(RigError::NotSeen(router.failure(), "that it forwards".into()).into());
        }
    }
    Ok(())
}

fn ping(line: &Line) -> anyhow::Result<()> {
    say!("$ ping -c 5 {FAR}     from a, through the router, to b");
    let report = line.a.ping(FAR, 5)?;
    say!("{}", report.text.trim());
    ensure!(report.lost() == 0, "{} of {} pings were lost", report.lost(), report.sent);
    say!("\n$ ping -c 2 10.0.1.1     the router answers itself");
    let report = line.a.ping("10.0.1.1", 2)?;
    ensure!(report.lost() == 0, "the router does not answer ping");
    say!("{}", report.text.trim());
    Ok(())
}

fn trace(line: &Line) -> anyhow::Result<()> {
    say!("\n$ traceroute {FAR}     the router is the first hop: it answers for packets that expire");
    let trace = line.a.run(["traceroute", "-n", "-q", "1", "-w", "1", FAR])?.stdout;
    say!("{}", trace.trim_end());
    ensure!(trace.contains("10.0.1.1") && trace.contains(FAR), "traceroute does not show the way");
    Ok(())
}

fn transfer(line: &Line, router: &Process) -> anyhow::Result<()> {
    say!("\n$ iperf3 -c {FAR} -t 3     TCP through the router, while it counts\n");
    let done = AtomicBool::new(false);
    let measured: Result<Throughput, RigError> = thread::scope(|scope| {
        let transfer = scope.spawn(|| {
            let measured = line.a.iperf3(&line.b, FAR, &["-t", "3"]);
            done.store(true, Ordering::Relaxed);
            measured
        });
        let mut screen = Screen::default();
        while !done.load(Ordering::Relaxed) {
            thread::sleep(REFRESH);
            screen.show(&last_table(&router.stderr_so_far()));
        }
        screen.keep();
        transfer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let throughput = measured?;
    say!("\nTCP: {:.2} Gbit/s through the router", throughput.bits_per_second / 1e9);
    ensure!(throughput.bits_per_second > 1e6, "TCP hardly gets through");
    Ok(())
}

fn stop(line: &Line, mut router: Process) -> anyhow::Result<()> {
    say!("\nInterrupting the router (SIGINT): it gives the interfaces back to Linux.");
    router.signal(Signal::INT);
    let output = router.wait(PATIENCE)?;
    ensure!(output.code() == Some(0), "the router ended with {:?}:\n{}", output.status, output.stderr);
    let report = line.a.ping("10.0.1.1", 2)?;
    ensure!(report.lost() == 0, "r does not answer once the router has gone");
    say!("r itself answers ping again.");
    Ok(())
}

/// The last whole table of counters in what the router wrote, without elements that saw nothing.
fn last_table(stderr: &str) -> Vec<String> {
    let mut tables = stderr.rmatch_indices("element ").map(|(at, _)| at);
    let begins_line = |at: &usize| stderr[..*at].is_empty() || stderr[..*at].ends_with('\n');
    let Some(start) = tables.find(begins_line) else { return Vec::new() };
    let saw_something = |line: &&str| {
        let packets = line.split(" :: ").nth(1).and_then(|rest| rest.split_whitespace().nth(1));
        packets != Some("0")
    };
    stderr[start..].lines().filter(saw_something).map(str::to_owned).collect()
}

/// A part of the terminal that is written anew; elsewhere, only the last state is written.
#[derive(Default)]
struct Screen {
    lines: Vec<String>,
    shown: usize,
}

impl Screen {
    fn show(&mut self, lines: &[String]) {
        if lines.is_empty() {
            return;
        }
        self.lines = lines.to_vec();
        if std::io::stdout().is_terminal() {
            self.draw();
        }
    }
    fn draw(&mut self) {
        let mut out = std::io::stdout().lock();
        if self.shown > 0 {
            drop(write!(out, "\x1b[{}A\x1b[J", self.shown));
        }
        self.lines.iter().for_each(|line| drop(writeln!(out, "{line}")));
        self.shown = self.lines.len();
    }
    /// Leaves the last state where it is.
    fn keep(&mut self) {
        if !std::io::stdout().is_terminal() {
            self.draw();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_table_is_shown_without_idle_elements() {
        let stderr = "started\nelement      packets\na :: Null  5  0.1\nelement      packets\na :: Null  7  0.1\nelement/x :: Null  0  0.0\n";
        assert_eq!(last_table(stderr), ["element      packets", "a :: Null  7  0.1"]);
        assert!(last_table("no table yet\n").is_empty());
    }
}
