//! `artery-bench soak`: every product of ours runs for an hour between hosts under good and hostile traffic,
//! while its configuration is read again and replaced, its links go down and up, and its interfaces are
//! deleted and made again.
//!
//! Good traffic is numbered. What is lost of it needs a reason, which only a link gives that is down, up to
//! the first packet of each stream that arrives afterwards. Memory and descriptors must be at the end what
//! they were after the warm-up, and a process must run until it is asked to end, and log why it ends.

mod good;
mod hostile;
mod ledger;
mod product;
mod products;
mod report;
mod stalls;
mod usage;

use artery_rig::console::{print, progress};
use artery_rig::{Result, Rig, RigError};
use clap::Args;
use ledger::{Count, Excuses};
use product::{Event, Kind, Rates, SOON, Stand};
use products::{ALL, Make};
use report::{Outcome, table};
use stalls::Stalls;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use usage::{Samples, Usage};

/// How long packets may still be lost after a link came back: neighbors are resolved, and kernels report
/// links up to a second late.
const SETTLING: Duration = Duration::from_millis(1500);
/// Time between two lines that say how far it is.
const LINE: Duration = Duration::from_secs(60);

/// What to soak, and for how long.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Ten minutes instead of an hour
    #[arg(long)]
    quick: bool,
    /// How long, in seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(10..=1_000_000))]
    seconds: Option<u64>,
    /// Only these products, by name, with commas between
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = names())]
    only: Vec<String>,
    /// Say when what happens
    #[arg(short, long)]
    verbose: bool,
    /// Good datagrams of each stream in a second
    #[arg(long, value_name = "N", default_value_t = 200)]
    rate: u64,
    /// Hostile frames for each product in a second
    #[arg(long, value_name = "N", default_value_t = 1000)]
    hostile_rate: u64,
}

fn names() -> clap::builder::PossibleValuesParser {
    ALL.map(|(name, _)| name).to_vec().into()
}

impl Options {
    /// How long traffic flows.
    fn time(&self) -> Duration {
        Duration::from_secs(self.seconds.unwrap_or(if self.quick { 600 } else { 3600 }))
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == name)
    }
}

/// Soaks all products side by side, prints a table, and fails if a product does.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let products: Vec<_> = ALL.into_iter().filter(|(name, _)| options.wants(name)).collect();
    let rates = Rates { good: options.rate.max(1), hostile: options.hostile_rate.max(1) };
    progress(&format!("{} products for {} s", products.len(), options.time().as_secs()));
    let outcomes = Mutex::new(Vec::new());
    let stalls = Stalls::watch();
    thread::scope(|scope| {
        for (name, make) in products {
            let (outcomes, stalls) = (&outcomes, &stalls);
            scope.spawn(move || {
                let outcome = soak((name, make), rates, options, stalls)
                    .unwrap_or_else(|error| Outcome::failed(name, format!("the rig: {error}")));
                progress(&format!("{name}: {}", outcome.verdict()));
                outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
            });
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    stalls.end();
    outcomes.sort_by_key(|outcome| ALL.iter().position(|(name, _)| *name == outcome.name));
    print(&table(&outcomes).to_string())?;
    let failed: Vec<_> = outcomes.iter().filter(|outcome| !outcome.failures.is_empty()).collect();
    for outcome in &failed {
        for failure in &outcome.failures {
            print(&format!("{}: {failure}", outcome.name))?;
        }
    }
    print(&format!("the machine ran no programs for {:.1} s", stalls.total().as_secs_f64()))?;
    if let Some(why) = stalls.excess(options.time()) {
        anyhow::bail!(why);
    }
    anyhow::ensure!(failed.is_empty(), "{} of {} products failed the soak", failed.len(), outcomes.len());
    Ok(())
}

fn soak(
    (name, make): (&'static str, Make),
    rates: Rates,
    options: &Options,
    stalls: &Arc<Stalls>,
) -> Result<Outcome> {
    let time = options.time();
    let rig = Rig::new(name)?;
    let mut stand = make(&rig, rates, stalls.began())?;
    let mut course = Course {
        name,
        began: Instant::now(),
        is_verbose: options.verbose,
        calm: calm(time),
        ..Course::new(stalls)
    };
    let mut next_line = LINE;
    let mut turn = 0;
    while course.began.elapsed() < time && course.failures.is_empty() {
        for number in 0..stand.events.len() {
            if course.began.elapsed() >= time {
                break;
            }
            course.pass(&mut stand, number, turn);
            if !course.failures.is_empty() {
                break;
            }
            if course.began.elapsed() > next_line {
                next_line += LINE;
                progress(&course.line(&stand));
            }
        }
        turn += 1;
    }
    Ok(course.end(stand))
}

/// Time between two events, of a soak of this length: in most of an hour no loss is excused.
fn calm(whole: Duration) -> Duration {
    (whole / 200).clamp(Duration::from_millis(700), Duration::from_secs(5))
}

/// What has happened to one product up to now.
struct Course {
    name: &'static str,
    is_verbose: bool,
    calm: Duration,
    /// When ledgers began, and when the first event was due.
    ledgers: Instant,
    began: Instant,
    excuses: Excuses,
    stalls: Arc<Stalls>,
    samples: Samples,
    events: [u64; 4],
    failures: Vec<String>,
}

impl Course {
    fn new(stalls: &Arc<Stalls>) -> Course {
        let ledgers = stalls.began();
        Course {
            stalls: stalls.clone(),
            name: "",
            is_verbose: false,
            calm: Duration::ZERO,
            ledgers,
            began: ledgers,
            excuses: Excuses::default(),
            samples: Samples::default(),
            events: [0; 4],
            failures: Vec::new(),
        }
    }

    /// Lets one thing happen, and waits until all is calm again.
    fn pass(&mut self, stand: &mut Stand, number: usize, turn: usize) {
        let Event { name, kind, act } = &mut stand.events[number];
        let (name, kind) = (*name, *kind);
        if kind.may_lose() {
            self.excuses.begin(self.ledgers.elapsed());
        }
        let start = self.began.elapsed();
        let done = act(&stand.net, &mut stand.process, turn);
        self.events[kind as usize] += 1;
        if let Err(error) = done {
            self.failures.push(format!("{name}: {error}"));
            return;
        }
        if kind.may_lose() {
            self.recover(stand, name);
        }
        if self.is_verbose {
            let (from, to) = (start.as_secs_f64(), self.began.elapsed().as_secs_f64());
            progress(&format!("{}: {from:.2} s to {to:.2} s: {name}", self.name));
        }
        thread::sleep(self.calm);
        if !stand.process.is_running() {
            self.failures.push(format!(
                "after \"{name}\" it ended by itself: {}",
                RigError::Failed(stand.process.failure())
            ));
            return;
        }
        self.samples.add(self.began.elapsed(), Usage::of(stand.process.id()));
    }

    /// Waits until each stream has arrived again; until a little later losses are excused.
    fn recover(&mut self, stand: &Stand, name: &str) {
        let (done, deadline) = (self.ledgers.elapsed(), Instant::now() + SOON);
        let is_back = || stand.streams.iter().all(|stream| stream.ledger.has_arrived_since(done));
        while !is_back() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
        for stream in stand.streams.iter().filter(|stream| !stream.ledger.has_arrived_since(done)) {
            self.failures.push(format!("{name}: {} do not arrive within {SOON:?}", stream.name));
        }
        if self.is_verbose {
            let time = (self.ledgers.elapsed() - done).as_secs_f64();
            progress(&format!("{}: good packets arrive {time:.2} s after \"{name}\"", self.name));
        }
        thread::sleep(SETTLING);
        self.excuses.end(self.ledgers.elapsed());
    }

    /// How far it is, in a line.
    fn line(&self, stand: &Stand) -> String {
        let counts = stand.streams.iter().map(|stream| stream.ledger.count(&self.excuses, &self.stalls));
        let (mut received, mut lost) = (0, 0);
        for count in counts {
            received += count.received;
            lost += count.lost.len();
        }
        let usage = Usage::of(stand.process.id());
        format!(
            "{} after {} s: {received} good packets received, {lost} lost without a reason, {} kB, {} \
             descriptors",
            self.name,
            self.began.elapsed().as_secs(),
            usage.resident,
            usage.descriptors
        )
    }

    /// Ends traffic, then the process, and judges.
    fn end(mut self, mut stand: Stand) -> Outcome {
        let (first, last) = self.samples.ends(self.began.elapsed());
        self.stop_traffic(&mut stand);
        let counts: Vec<Count> =
            stand.streams.iter().map(|stream| stream.ledger.count(&self.excuses, &self.stalls)).collect();
        for (stream, count) in stand.streams.iter().zip(&counts) {
            self.failures.extend(report::losses(&stream.name, count, self.began - self.ledgers));
        }
        self.failures.extend(last.excess(first));
        self.say_end(&mut stand);
        let sum = |of: fn(&Count) -> u64| counts.iter().map(of).sum();
        let hostile = stand.attackers.iter().map(|attacker| attacker.sent.load(Relaxed)).sum();
        let exchanges = stand.connections.iter().map(|one| one.exchanges.load(Relaxed)).sum();
        Outcome {
            name: self.name,
            sent: sum(|count| count.sent),
            received: sum(|count| count.received),
            excused: sum(|count| count.excused),
            stalled: sum(|count| count.stalled),
            excused_time: self.excuses.total(),
            exchanges,
            hostile,
            reloads: self.events[Kind::Reload as usize],
            replacements: self.events[Kind::Replacement as usize],
            flaps: self.events[Kind::Flap as usize],
            remakes: self.events[Kind::Remake as usize],
            first,
            last,
            failures: self.failures,
        }
    }

    fn stop_traffic(&mut self, stand: &mut Stand) {
        stand.attackers.iter_mut().for_each(|attacker| attacker.stop());
        stand.streams.iter_mut().for_each(|stream| stream.stop());
        for connection in &mut stand.connections {
            if let Err(error) = connection.stop() {
                let exchanges = connection.exchanges.load(Relaxed);
                self.failures.push(format!("a connection broke after {exchanges} exchanges: {error}"));
            }
        }
        // What is under way arrives, or is lost.
        thread::sleep(Duration::from_millis(2500));
    }

    /// Signals the process to end, which it does with a clean exit and a reason.
    fn say_end(&mut self, stand: &mut Stand) {
        if !stand.process.is_running() {
            return;
        }
        match stand.process.stop(SOON) {
            Err(error @ RigError::TimedOut(..)) => {
                self.failures.push(format!("SIGTERM does not end it: {error}"))
            }
            Err(error) => self.failures.push(error.to_string()),
            Ok(output) => self.failures.extend(report::bad_end(&output, stand.last_words)),
        }
    }
}
