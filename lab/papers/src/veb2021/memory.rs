//! In memory, where the switch is all there is: what the old bridge forwards on its one thread, beside the
//! new switch on one worker and on two.
//!
//! Data goes one way and acknowledgments the other, as in the experiment, between hosts that are an
//! [element](super::ends). The old bridge always asks pf; the new switch does not, or with link1.

use super::bridge::BRIDGE;
use super::ends::ENDS;
use super::way::PF;
use anyhow::Context as _;
use artery_engine::{Handle, RouterSettings, Sink};
use artery_lang::args::quote;
use artery_rig::program::checked_with;
use clap::{Args, ValueEnum};
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

/// What frames go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Switch {
    /// The old bridge, with pf
    Bridge,
    /// The new switch, veb(4)
    Veb,
    /// The new switch, with pf
    VebLink1,
}

/// The switch to measure, and its frames.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Memory {
    /// What frames go through
    pub(super) switch: Switch,
    /// How many hosts there are, half of them behind either port
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=20_000))]
    pub(super) hosts: u32,
    /// How many workers there are; the old bridge uses one of them
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(super) workers: u8,
    /// How long it is measured, in milliseconds
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 1000,
        value_parser = clap::value_parser!(u64).range(1..=60_000)
    )]
    pub(super) millis: u64,
}

/// What is measured: the two hosts of 2021, and a thousand.
pub(super) const IN_MEMORY: [(Switch, u8, u32); 8] = [
    (Switch::Bridge, 1, 2),
    (Switch::Veb, 1, 2),
    (Switch::Veb, 2, 2),
    (Switch::VebLink1, 1, 2),
    (Switch::Bridge, 1, 1000),
    (Switch::Veb, 1, 1000),
    (Switch::Veb, 2, 1000),
    (Switch::VebLink1, 1, 1000),
];

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.switch {
            Switch::Bridge => "bridge, one thread",
            Switch::Veb if self.workers == 1 => "veb, one worker",
            Switch::Veb => "veb, two workers",
            Switch::VebLink1 => "veb+link1, one worker",
        };
        write!(f, "{name}, {} hosts", self.hosts)
    }
}

impl Memory {
    /// The command line that passes it to a child process.
    pub(super) fn words(&self) -> Vec<String> {
        let name = self.switch.to_possible_value().map_or(String::new(), |value| value.get_name().into());
        let Memory { hosts, workers, millis, .. } = self;
        let options = [("hosts", u64::from(*hosts)), ("workers", u64::from(*workers)), ("millis", *millis)];
        let options = options.into_iter().flat_map(|(name, value)| [format!("--{name}"), value.to_string()]);
        [name].into_iter().chain(options).collect()
    }

    /// Millions of frames of data a second.
    pub(super) fn rate(&self) -> anyhow::Result<f64> {
        let settings = RouterSettings {
            workers: self.workers.into(),
            affinity: Some(0),
            frames: (8 * self.hosts as usize + 4096, 2),
            chatter: Sink::buffer(),
            output: Sink::buffer(),
            ..RouterSettings::default()
        };
        let rules = tempfile::NamedTempFile::new().context("a file of rules")?;
        std::fs::write(&rules, PF).context("a file of rules")?;
        let text = self.text(&rules.path().display().to_string());
        let router = checked_with(&[&BRIDGE, &ENDS], "memory", &text)?.build(settings)?;
        router.accept_calls();
        let running = router.start();
        let handle = running.handle();
        let measured = self.measure(&handle);
        handle.write_handler("stop", "true")?;
        running.wait().map_err(|worker| anyhow::anyhow!("{worker} panicked"))?;
        measured
    }

    fn text(&self, rules: &str) -> String {
        let (hosts, rules) = (self.hosts, quote(rules));
        let switch = match self.switch {
            Switch::Bridge => format!("Bridge(MAXADDR {hosts}, PF {rules})"),
            Switch::Veb => format!("Veb(PORT p0, PORT p1, MAXADDR {hosts})"),
            Switch::VebLink1 => format!("Veb(PORT p0, PORT p1, MAXADDR {hosts}, LINK1 true, PF {rules})"),
        };
        format!(
            "ends :: Ends({}); ends -> switch :: {switch}; ends[1] -> [1] switch;
             switch -> ends; switch[1] -> [1] ends;",
            hosts / 2
        )
    }

    fn measure(&self, handle: &Handle) -> anyhow::Result<f64> {
        let time = Duration::from_millis(self.millis);
        let data = || -> anyhow::Result<f64> { Ok(handle.read_handler("ends.data", "")?.trim().parse()?) };
        thread::sleep(time / 4);
        let (start, before) = (Instant::now(), data()?);
        thread::sleep(time);
        Ok((data()? - before) / start.elapsed().as_secs_f64() / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_goes_through_all_of_them_on_one_worker_and_on_two() {
        for switch in [Switch::Bridge, Switch::Veb, Switch::VebLink1] {
            for (workers, hosts) in [(1, 2), (2, 600)] {
                let memory = Memory { switch, hosts, workers, millis: 40 };
                assert!(memory.rate().unwrap() > 0.0, "{memory:?}");
            }
        }
    }

    #[test]
    fn a_child_is_told_everything() {
        #[derive(clap::Parser)]
        struct Child {
            #[command(flatten)]
            memory: Memory,
        }
        let memory = Memory { switch: Switch::VebLink1, hosts: 7, workers: 2, millis: 9 };
        let words = ["child".to_string()].into_iter().chain(memory.words());
        assert_eq!(<Child as clap::Parser>::parse_from(words).memory, memory);
    }
}
