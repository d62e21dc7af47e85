//! Processes on hosts of the trial: machines that take orders, and servers; and what they use.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::orders::{Answer, Order, Publish, Report};

/// No order takes longer.
const PATIENCE: Duration = Duration::from_secs(180);

/// The kernel counts processor time in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// A running program, killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    name: String,
}

/// What a process has used.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) resident_kib: u64,
    pub(crate) cpu: Duration,
}

impl Process {
    /// Starts a program whose messages go to a file of `folder`.
    pub(crate) fn start(words: &[String], name: &str, folder: &Path, takes_orders: bool) -> Result<Process> {
        let log = File::create(folder.join(format!("{name}.log"))).context("cannot write a log")?;
        let pipe = |log: File| if takes_orders { Stdio::piped() } else { log.into() };
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).kill_on_drop(true);
        command.stdin(if takes_orders { Stdio::piped() } else { Stdio::null() });
        command.stdout(pipe(log.try_clone()?)).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {}", words.join(" ")))?;
        Ok(Process { child, name: name.into() })
    }

    /// Kills the program as `kill -9` does, and waits for its end.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.with_context(|| format!("cannot kill {}", self.name))
    }

    /// Kills the program unless it has ended, and waits for its end.
    pub(crate) async fn end(&mut self) {
        // An error says that it has ended already.
        let _ = self.child.kill().await;
    }

    /// Stops the program (SIGSTOP), or has it go on.
    pub(crate) fn pause(&self, is_paused: bool) -> Result<()> {
        let signal = if is_paused { "-STOP" } else { "-CONT" };
        let status = std::process::Command::new("kill").args([signal, &self.id()?.to_string()]).status();
        if !status.context("cannot run kill")?.success() {
            bail!("cannot send {signal} to {}", self.name);
        }
        Ok(())
    }

    /// Memory that it has now, and processor time since its start.
    pub(crate) fn usage(&self) -> Result<Usage> {
        let folder = Path::new("/proc").join(self.id()?.to_string());
        let read =
            |file| fs::read_to_string(folder.join(file)).with_context(|| format!("{} has ended", self.name));
        let (status, stat) = (read("status")?, read("stat")?);
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident_kib =
            resident.and_then(|text| text.split_whitespace().next()?.parse().ok()).unwrap_or(0);
        // proc(5): fields 14 and 15, counted from behind the name, which may have blanks.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks: u32 = fields.skip(11).take(2).filter_map(|field| field.parse::<u32>().ok()).sum();
        Ok(Usage { resident_kib, cpu: TICK * ticks })
    }

    fn id(&self) -> Result<u32> {
        self.child.id().with_context(|| format!("{} has ended; see its log", self.name))
    }
}

/// A machine that takes orders.
pub(crate) struct Machine {
    pub(crate) process: Process,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// Answers that came while another one was awaited.
    early: VecDeque<Answer>,
}

impl Machine {
    /// Starts a machine and waits until it is ready.
    pub(crate) async fn start(words: &[String], name: &str, folder: &Path) -> Result<Machine> {
        let mut process = Process::start(words, name, folder, true)?;
        let pipes = process.child.stdin.take().zip(process.child.stdout.take());
        let (orders, answers) = pipes.context("a machine has no pipes")?;
        let answers = BufReader::new(answers).lines();
        let mut machine = Machine { process, orders, answers, early: VecDeque::new() };
        machine.wait_for(|answer| matches!(answer, Answer::Ready).then_some(())).await?;
        Ok(machine)
    }

    /// Starts a stream of records, which goes on while other orders are given.
    pub(crate) async fn publish(&mut self, publish: Publish) -> Result<()> {
        self.order(&Order::Publish(publish)).await
    }

    /// Waits for the end of a stream: records, the longest wait in microseconds, and refused batches.
    pub(crate) async fn published(&mut self) -> Result<(u64, u64, u64)> {
        let ended = |answer: &Answer| match answer {
            Answer::Published { records, longest_wait_us, refused } => {
                Some((*records, *longest_wait_us, *refused))
            }
            _ => None,
        };
        self.wait_for(ended).await
    }

    /// Makes records that joiners find.
    pub(crate) async fn load(&mut self, records: u64) -> Result<()> {
        self.order(&Order::Load { records }).await?;
        self.wait_for(|answer| matches!(answer, Answer::Loaded).then_some(())).await
    }

    /// Fetches the state of another machine: records, and seconds.
    pub(crate) async fn join(&mut self, from: u32) -> Result<(u64, f64)> {
        self.order(&Order::Join { from }).await?;
        let joined = |answer: &Answer| match answer {
            Answer::Joined { records, seconds } => Some((*records, *seconds)),
            _ => None,
        };
        self.wait_for(joined).await
    }

    /// What the machine has seen; its lag is counted from here on.
    pub(crate) async fn report(&mut self) -> Result<Report> {
        self.order(&Order::Report).await?;
        let told = |answer: &Answer| match answer {
            Answer::Report(report) => Some(report.clone()),
            _ => None,
        };
        self.wait_for(told).await
    }

    async fn order(&mut self, order: &Order) -> Result<()> {
        let line = serde_json::to_string(order)? + "\n";
        let sent = self.orders.write_all(line.as_bytes()).await;
        sent.with_context(|| format!("{} takes no orders", self.process.name))
    }

    async fn wait_for<T>(&mut self, wanted: impl Fn(&Answer) -> Option<T>) -> Result<T> {
        if let Some(at) = self.early.iter().position(|answer| wanted(answer).is_some()) {
            let found = self.early.remove(at);
            return found.and_then(|answer| wanted(&answer)).context("an answer is gone");
        }
        loop {
            let line = timeout(PATIENCE, self.answers.next_line()).await;
            let line = line.with_context(|| format!("{} does not answer", self.process.name))??;
            let line = line.with_context(|| format!("{} has ended; see its log", self.process.name))?;
            match serde_json::from_str(&line).with_context(|| format!("cannot read the answer {line}"))? {
                Answer::Failed(why) => bail!("{}: {why}", self.process.name),
                answer => match wanted(&answer) {
                    Some(found) => return Ok(found),
                    None => self.early.push_back(answer),
                },
            }
        }
    }
}
