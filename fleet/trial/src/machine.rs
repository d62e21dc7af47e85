//! A machine of the fleet: a process that carries out orders from its standard input, a line each.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::{Instant, sleep, sleep_until};

use crate::clock::now_us;
use crate::mirror::{Inbox, Mirror, MirrorOptions};
use crate::orders::{Answer, Order, Publish};
use crate::own::Own;
use crate::replica::Replica;

/// After a repair that failed the next try waits for so long.
const RETRY: Duration = Duration::from_millis(200);

#[derive(Clone)]
struct Machine {
    mirror: Arc<Mirror>,
    own: Arc<Own>,
    replica: Arc<Replica>,
}

/// Runs a machine until its standard input ends.
pub(crate) async fn run(options: &MirrorOptions) -> Result<()> {
    let own = Arc::new(Own::new(options.machine, now_us()));
    let replica = Arc::new(Replica::new(options.machine));
    let (behind, losses) = mpsc::unbounded_channel();
    let inbox = Inbox { own: own.clone(), replica: replica.clone(), behind };
    let mirror = Arc::new(Mirror::start(options, inbox).await?);
    let machine = Machine { mirror, own, replica };
    tokio::spawn(machine.clone().repair(losses));
    answer(&Answer::Ready)?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let order = serde_json::from_str(&line).with_context(|| format!("cannot read the order {line}"))?;
        let machine = machine.clone();
        tokio::spawn(async move {
            let outcome = machine.carry_out(order).await;
            answer(&outcome.unwrap_or_else(|error| Answer::Failed(format!("{error:#}"))))
        });
    }
    Ok(())
}

fn answer(answer: &Answer) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{}", serde_json::to_string(answer)?)?;
    Ok(stdout.flush()?)
}

impl Machine {
    async fn carry_out(&self, order: Order) -> Result<Answer> {
        match order {
            Order::Publish(publish) => Ok(self.publish(publish).await),
            Order::Load { records } => {
                self.own.fill(records);
                self.mirror.store(&self.own).await?;
                Ok(Answer::Loaded)
            }
            Order::Join { from } => {
                let start = Instant::now();
                self.mirror.fetch(from).await?;
                Ok(Answer::Joined { records: self.replica.len(), seconds: start.elapsed().as_secs_f64() })
            }
            Order::Report => Ok(Answer::Report(self.replica.report(self.own.len()))),
        }
    }

    /// Publishes by the clock: a batch counts as sent at the time when it was due, so that a publisher that
    /// had to wait does not hide how late its records are.
    async fn publish(&self, order: Publish) -> Answer {
        let (start, start_us) = (Instant::now(), now_us());
        let end = Duration::from_secs_f64(order.seconds);
        let (mut records, mut refused, mut longest_wait) = (0, 0, Duration::ZERO);
        for batches in 0_u64.. {
            let due = match order.rate {
                Some(rate) => {
                    Duration::from_secs_f64((batches * u64::from(order.batch)) as f64 / f64::from(rate))
                }
                None => start.elapsed(),
            };
            if due >= end || start.elapsed() >= end * 2 {
                break;
            }
            sleep_until(start + due).await;
            let batch = self.own.next_batch(order.batch, start_us + due.as_micros() as u64);
            let begun = Instant::now();
            match self.mirror.publish(batch).await {
                Ok(()) => records += u64::from(order.batch),
                Err(_) => refused += 1,
            }
            longest_wait = longest_wait.max(begun.elapsed());
        }
        Answer::Published { records, longest_wait_us: longest_wait.as_micros() as u64, refused }
    }

    /// Fetches the state of machines whose batches are missing, until nothing is missing any more.
    async fn repair(self, mut losses: UnboundedReceiver<u32>) {
        while let Some(machine) = losses.recv().await {
            while self.replica.is_behind(machine) {
                if let Err(error) = self.mirror.fetch(machine).await {
                    eprintln!("cannot fetch the state of machine {machine}: {error:#}");
                    self.replica.count_failed_repair();
                    sleep(RETRY).await;
                }
            }
        }
    }
}
