//! `artery-bench engine`: what a hop costs, and our rate beside rivals on the same configuration text.
//!
//! Rivals run as processes, in turn with ours, on texts that differ in nothing. A process's rate is taken
//! from two runs with different numbers of packets, so that its start costs nothing. FastClick is looked for
//! in `$FASTCLICK`, DPDK's testpmd on the path; what is missing is left out and said.
use crate::results::{Manner, Measurement, Table, json_lines, number};
use anyhow::{Context as _, bail, ensure};
use artery_engine::{RouterSettings, Sink};
use artery_rig::console::{print, progress};
use artery_rig::machine::Machine;
use artery_rig::program::{artery, checked, tool};
use artery_wire::build::{ether, ip4};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// How long and how often to measure.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Runs of every row; the median counts.
    pub rounds: usize,
    /// Packets of a run of the fastest row; slower rows take a part of it.
    pub packets: u64,
}

impl Effort {
    /// Figures for `docs/benchmarks.md`: a few minutes.
    pub const FULL: Effort = Effort { rounds: 7, packets: 40_000_000 };
    /// Whether it works: seconds.
    pub const QUICK: Effort = Effort { rounds: 3, packets: 10_000_000 };
}

/// Measures all rows and prints them; as JSON lines on request.
pub fn run(manner: Manner) -> anyhow::Result<()> {
    let effort = manner.plan(Effort::FULL, Effort::QUICK);
    let mut report = Report { machine: Machine::here(), measurements: Vec::new(), notes: Vec::new() };
    light_elements(effort, &mut report)?;
    rivals(effort, &mut report)?;
    two_workers(effort, &mut report)?;
    if manner.json {
        return Ok(print(json_lines(&report.measurements)?.trim_end())?);
    }
    Ok(report.print()?)
}

/// What was measured so far.
struct Report {
    machine: Machine,
    measurements: Vec<Measurement>,
    notes: Vec<String>,
}

impl Report {
    fn add(&mut self, work: &str, who: &str, unit: &str, runs: &[f64]) {
        let measurement =
            Measurement::of("engine", who, unit, runs).param("work", work).cpu(&self.machine.cpu);
        progress(&format!("{work}: {who}: {} {unit}", number(measurement.value)));
        self.measurements.push(measurement);
    }
    /// Adds the median of the ratios of runs that followed one another.
    fn add_ratio(&mut self, work: &str, who: &str, ours: &[f64], theirs: &[f64]) {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
        self.add(work, who, "x", &ratios);
    }
    fn add_note(&mut self, note: &str) {
        self.notes.push(note.to_string());
    }
    fn print(&self) -> std::io::Result<()> {
        let mut table = Table::headed("work | who | median: | least: | greatest: | unit");
        for m in &self.measurements {
            let work = m.params.get("work").map_or("", String::as_str);
            table.row([work, &m.engine, &number(m.value), &number(m.min), &number(m.max), &m.unit]);
        }
        print(&format!("{table}\n{}", self.machine))?;
        self.notes.iter().try_for_each(|note| print(note))
    }
}

/// Chains of eight light elements, less the chain without them, per hop and packet.
fn light_elements(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    const CHAINS: [(&str, &str); 4] = [
        ("Null", "Null"),
        ("Paint", "Paint(3)"),
        ("Counter", "Counter"),
        ("Strip/Unstrip", "Strip(14) -> Unstrip(14)"),
    ];
    let packets = effort.packets / 5;
    for (name, elements) in CHAINS {
        let repeats = if elements.contains("->") { 4 } else { 8 };
        let chain = format!("{} -> ", vec![elements; repeats].join(" -> "));
        let mut hops = Vec::new();
        for _ in 0..effort.rounds {
            let bare = nanos_per_packet(&source_text("", packets), packets)?;
            hops.push((nanos_per_packet(&source_text(&chain, packets), packets)? - bare) / 8.0);
        }
        report.add("light element, batch 64, net of source and sink", name, "ns/hop", &hops);
    }
    Ok(())
}

fn source_text(chain: &str, packets: u64) -> String {
    format!(
        "InfiniteSource(LENGTH 60, LIMIT {packets}, STOP true, BURST 64, TIMESTAMP false) -> {chain}Discard;"
    )
}

/// Nanoseconds a packet takes in a router of this process.
fn nanos_per_packet(text: &str, packets: u64) -> anyhow::Result<f64> {
    let settings =
        RouterSettings { chatter: Sink::buffer(), output: Sink::buffer(), ..RouterSettings::default() };
    let router = checked("bench", text)?.build(settings)?;
    let finished = router.start().wait().map_err(anyhow::Error::msg)?;
    Ok(finished.ran.as_nanos() as f64 / packets as f64)
}

/// A configuration that both programs run, with `LIMIT` for the number of packets.
struct Work {
    name: &'static str,
    text: String,
    /// Which part of [`Effort::packets`] to run; none for packets from a file, which has one length.
    share: Option<u64>,
}

/// A program that runs configurations.
struct Contender {
    name: &'static str,
    program: PathBuf,
    args: &'static [&'static str],
}

fn rivals(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("a folder for configurations")?;
    let mut contenders = vec![Contender { name: "artery", program: artery()?, args: &["run"] }];
    match std::env::var_os("FASTCLICK") {
        Some(program) => contenders.push(Contender { name: "FastClick", program: program.into(), args: &[] }),
        None => report.add_note("FastClick left out: set $FASTCLICK to its click program"),
    }
    if tool("dpdk-testpmd").is_none() {
        report.add_note("DPDK's testpmd left out: not installed, so column y is empty");
    }
    for work in works(folder.path())? {
        let mut rates = vec![Vec::new(); contenders.len()];
        let mut yardstick = Vec::new();
        for _ in 0..effort.rounds {
            for (contender, rates) in contenders.iter().zip(&mut rates) {
                rates.push(contender.rate(&work, effort, folder.path())?);
            }
            if work.share == Some(1) {
                yardstick.extend(macswap_rate());
            }
        }
        for (contender, rates) in contenders.iter().zip(&rates) {
            report.add(work.name, contender.name, "Mpps", rates);
        }
        if let [ours, theirs] = &rates[..] {
            report.add_ratio(work.name, "artery / FastClick", ours, theirs);
        }
        if !yardstick.is_empty() {
            report.add(work.name, "y: testpmd macswap on null ports", "Mpps", &yardstick);
            report.add_ratio(work.name, "artery / y", &rates[0], &yardstick);
        }
    }
    Ok(())
}

fn works(folder: &Path) -> anyhow::Result<Vec<Work>> {
    let frame = ether("00:00:c0:00:00:02", "00:00:c0:00:00:01")
        .ip4(ip4().src("10.0.0.1").dst("10.2.0.2").ttl(64).udp(1234, 4321).payload([0; 18]))
        .bytes();
    let data: String = frame.iter().map(|byte| format!("{byte:02x} ")).collect();
    let pcap = folder.join("replay.pcap");
    write_pcap(&pcap, REPLAYED)?;
    let source =
        format!("InfiniteSource(DATA \\<{data}>, LIMIT LIMIT, STOP true, BURST 64, TIMESTAMP false)");
    let replay = format!("FromDump({}, STOP true)", pcap.display());
    Ok(vec![
        Work {
            name: "source -> discard",
            text: source_text("", 0).replace("LIMIT 0", "LIMIT LIMIT"),
            share: Some(1),
        },
        Work { name: "short router, 5 routes", text: short_router(&source), share: Some(4) },
        Work { name: "pcap replay through it", text: short_router(&replay), share: None },
    ])
}

/// Packets of the file.
const REPLAYED: u64 = 1_000_000;

fn short_router(source: &str) -> String {
    let way = |n: usize| {
        format!(
            "rt[{n}] -> d{n} :: DecIPTTL -> EtherEncap(0x0800, 1:1:1:1:1:{n}, 2:2:2:2:2:{n}) -> Discard; \
             d{n}[1] -> Discard;\n"
        )
    };
    format!(
        "{source} -> c :: Classifier(12/0800, -) -> Strip(14) -> CheckIPHeader
    -> rt :: LinearIPLookup(10.0.0.1/32 0, 10.1.0.0/16 1, 10.2.0.0/16 2, 10.3.0.0/16 3, 0.0.0.0/0 4);
c[1] -> Discard; rt[0] -> Discard;\n{}{}{}{}",
        way(1),
        way(2),
        way(3),
        way(4)
    )
}

/// A file of UDP packets to hosts behind all five routes.
fn write_pcap(path: &Path, packets: u64) -> anyhow::Result<()> {
    use artery_device::{LinkType, PcapOptions, PcapWriter};
    let options = PcapOptions { link_type: LinkType::ETHER, ..PcapOptions::default() };
    let mut writer = PcapWriter::create(&path.display().to_string(), options)?;
    for n in 0..packets {
        let dst = [10, (n % 4) as u8, (n >> 8) as u8, n as u8];
        let ip = ip4().src("10.9.0.1").dst(dst).ttl(64).udp(1234, 4321).payload([0; 18]);
        let frame = ether("00:00:c0:00:00:02", "00:00:c0:00:00:01").ip4(ip).bytes();
        writer.write(
            artery_packet::Time::new(1_700_000_000, n as u32 % 1_000_000),
            frame.len() as u32,
            &frame,
        )?;
    }
    writer.flush()?;
    Ok(())
}

impl Contender {
    /// Millions of packets a second, from a long run less a short one.
    fn rate(&self, work: &Work, effort: Effort, folder: &Path) -> anyhow::Result<f64> {
        let Some(share) = work.share else {
            // The start is taken from a router that does nothing.
            let idle = self.seconds("Idle -> Discard; DriverManager(stop);", folder)?;
            let replay = self.seconds(&work.text, folder)?;
            return Ok(REPLAYED as f64 / (replay - idle) / 1e6);
        };
        let packets = effort.packets / share;
        let text = |n: u64| work.text.replace("LIMIT LIMIT", &format!("LIMIT {n}"));
        let few = packets / 20;
        let short = self.seconds(&text(few), folder)?;
        let long = self.seconds(&text(packets), folder)?;
        ensure!(long > short, "{} took no longer for 20 times the packets", self.name);
        Ok((packets - few) as f64 / (long - short) / 1e6)
    }

    fn seconds(&self, text: &str, folder: &Path) -> anyhow::Result<f64> {
        let file = folder.join("bench.click");
        std::fs::write(&file, text).context("writing a configuration")?;
        let mut command = Command::new(&self.program);
        command.args(self.args).arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
        let start = Instant::now();
        let output = command.output().with_context(|| format!("starting {}", self.program.display()))?;
        let seconds = start.elapsed().as_secs_f64();
        if !output.status.success() {
            bail!("{} failed on:\n{text}\n{}", self.name, String::from_utf8_lossy(&output.stderr));
        }
        Ok(seconds)
    }
}

/// Mpps of DPDK's testpmd in macswap mode between two null ports, where it is installed and
/// may have huge pages.
pub(crate) fn macswap_rate() -> Option<f64> {
    let testpmd = tool("dpdk-testpmd")?;
    let pages = HugePages::at_least(256)?;
    let prefix = format!("--file-prefix=artery{}", std::process::id());
    let args = [
        "-s",
        "INT",
        "6",
        testpmd.to_str()?,
        "-l",
        "0,1",
        "--no-pci",
        "--in-memory",
        &prefix,
        "--vdev",
        "net_null0,size=64",
        "--vdev",
        "net_null1,size=64",
        "--",
        "--forward-mode=macswap",
        "--auto-start",
        "--stats-period=1",
        "--burst=32",
        "--no-mlockall",
    ];
    let output = Command::new("timeout").args(args).stdin(Stdio::null()).output().ok()?;
    drop(pages);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rates =
        text.lines().filter_map(|line| line.split_once("Tx-pps:")?.1.split_whitespace().next()?.parse().ok());
    let mut rates: Vec<f64> = rates.filter(|rate| *rate > 0.0).map(|rate: f64| rate / 1e6).collect();
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied()
}

/// Huge pages for as long as this lives; afterwards as many as there were.
pub(crate) struct HugePages(Option<String>);

const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";

impl HugePages {
    pub(crate) fn at_least(pages: u64) -> Option<HugePages> {
        let before = std::fs::read_to_string(HUGE_PAGES).ok()?;
        if before.trim().parse::<u64>().ok()? >= pages {
            return Some(HugePages(None));
        }
        std::fs::write(HUGE_PAGES, (2 * pages).to_string()).ok()?;
        Some(HugePages(Some(before)))
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // Nothing is lost if the pages stay.
            let _ = std::fs::write(HUGE_PAGES, before);
        }
    }
}

/// Two chains on two workers of one process, beside two processes with one chain each.
fn two_workers(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("a folder for configurations")?;
    let packets = effort.packets / 2;
    let chain = |name: &str| {
        format!(
            "{name} :: InfiniteSource(LENGTH 60, LIMIT {packets}) -> Counter -> Strip(14) -> Unstrip(14) -> \
             Paint(1) -> Discard;\n"
        )
    };
    let wait = "DriverManager(wait);";
    let (one, both) = (folder.path().join("one.click"), folder.path().join("both.click"));
    std::fs::write(&one, format!("{}{wait}", chain("a")))?;
    std::fs::write(&both, format!("{}{}StaticThreadSched(a 0, b 1);{wait}", chain("a"), chain("b")))?;
    let artery = artery()?;
    let (mut together, mut apart) = (Vec::new(), Vec::new());
    for _ in 0..effort.rounds {
        let run = |args: &[&str], file: &Path| {
            let mut command = Command::new(&artery);
            command.arg("run").args(args).arg(file).stdin(Stdio::null()).stdout(Stdio::null()).spawn()
        };
        let start = Instant::now();
        ensure!(run(&["--workers", "2", "--affinity"], &both)?.wait()?.success(), "two workers failed");
        together.push(2.0 * packets as f64 / start.elapsed().as_secs_f64() / 1e6);
        let start = Instant::now();
        let mut processes = [run(&["--affinity=0"], &one)?, run(&["--affinity=1"], &one)?];
        for process in &mut processes {
            ensure!(process.wait()?.success(), "a process failed");
        }
        apart.push(2.0 * packets as f64 / start.elapsed().as_secs_f64() / 1e6);
    }
    report.add("two chains", "two workers", "Mpps", &together);
    report.add("two chains", "two processes", "Mpps", &apart);
    report.add_ratio("two chains", "two workers / two processes", &together, &apart);
    Ok(())
}
