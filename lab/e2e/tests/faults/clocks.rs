//! The machine's time of day is set, years forward and back, while a product runs: timers use the monotonic
//! clock, which can't be set.
//!
//! A preloaded library simulates the machine's clock, since a test must not set the real one. Calls that
//! bypass libc only read the times of packets.

use super::bed::{ALL, Bed, Product, on_the_bed};
use crate::support::{SOON, end, until};
use artery_rig::{Command, Result, Skip, Traffic};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

const YEAR: i64 = 365 * 86_400;

/// A time of day that can be set.
struct TimeOfDay(File);

impl TimeOfDay {
    /// Has a command see it.
    fn shown_to(bed: &Bed, command: Command) -> Result<(TimeOfDay, Command)> {
        let (library, step) = (bed.path("clock.so"), bed.path("step"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/clock.c");
        let mut cc = std::process::Command::new("cc");
        let made = cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
        if !made.is_ok_and(|status| status.success()) {
            return Err(Skip::MissingTool("cc".into()).into());
        }
        let file = File::create(&step).expect("a file");
        let time = TimeOfDay(file);
        time.set(0);
        Ok((time, command.env("LD_PRELOAD", library).env("CLOCK_STEP", step)))
    }

    /// Sets it to so many seconds from what it is.
    fn set(&self, seconds: i64) {
        self.0.write_all_at(&seconds.to_ne_bytes(), 0).expect("a file that can be written");
    }
}

#[test]
fn a_time_of_day_that_is_set_years_forward_and_back_changes_nothing() {
    for product in ALL {
        on_the_bed("clocks", product, stepped);
    }
}

fn stepped(bed: &Bed) -> Result<()> {
    let (time, command) = TimeOfDay::shown_to(bed, bed.command()?.args(["--log", "json"]))?;
    let mut process = command.spawn()?;
    bed.until_forwarded(&mut process)?;
    let mut line = bed.connect()?;
    line.echo();
    for years in [10, -10, 0] {
        time.set(years * YEAR);
        let report = Traffic::between(&bed.a, &bed.b, bed.far()).frames(500).rate(1000).run()?;
        assert_eq!(report.received, report.sent, "{:?}, {years} years: {report}", bed.product);
        line.echo();
    }
    time.set(10 * YEAR);
    let year = |text: &str| -> Option<u64> {
        let last: serde_json::Value = serde_json::from_str(text.lines().last()?).ok()?;
        last["time"].as_str()?.get(..4)?.parse().ok()
    };
    let before = year(&process.stderr_so_far()).expect("a line with a time");
    let said = end(process)?.stderr;
    let after = year(&said).unwrap_or_else(|| panic!("no time: {said}"));
    assert!(after >= before + 9, "the process saw the time of day that was set: {said}");
    Ok(())
}

#[test]
fn routes_of_the_host_are_followed_after_the_time_of_day_was_set() {
    on_the_bed("clocks-routes", Product::Router, |bed| {
        let words = bed.words()?;
        let (time, command) = TimeOfDay::shown_to(bed, bed.r.command(words).args(["--log", "json"]))?;
        let file = bed.path("r.toml");
        let text = std::fs::read_to_string(&file).expect("the configuration");
        std::fs::write(&file, format!("{text}host-ports = true\n")).expect("a file");
        let mut process = command.spawn()?;
        bed.until_forwarded(&mut process)?;
        bed.b.address("lo", "10.9.0.1/32")?.address("lo", "10.8.0.1/32")?;
        for (years, network) in [(10, 9), (-10, 8)] {
            // A gateway without a neighbor entry yet.
            let gateway = format!("10.0.2.{network}");
            bed.b.address("eth0", &format!("{gateway}/24"))?;
            time.set(years * YEAR);
            let prefix = format!("10.{network}.0.0/16");
            until(SOON, || {
                Ok(bed.r.command(["ip", "route", "replace", &prefix, "via", &gateway]).output()?.succeeded())
            })?;
            let address = format!("10.{network}.0.1");
            until(SOON, || Ok(bed.a.ping(&address, 2)?.received == 2))?;
            bed.assert_whole()?;
        }
        end(process).map(drop)
    });
}
