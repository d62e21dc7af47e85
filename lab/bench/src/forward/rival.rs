//! FastClick on the same routes and packets, where it is installed.

use super::case::Traffic;
use super::plan::Plan;
use anyhow::{Context as _, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// How often the packets are in the file: so many take longer than a start varies.
const TIMES: usize = 4;

/// FastClick's program, if its location is given.
pub(super) struct FastClick {
    program: PathBuf,
    /// The configuration after the source.
    text: String,
    pcap: PathBuf,
    packets: usize,
    folder: PathBuf,
}

impl FastClick {
    /// A router for IPv4 packets of this traffic.
    pub(super) fn new(plan: &Plan, traffic: Traffic) -> Option<anyhow::Result<FastClick>> {
        let program = PathBuf::from(std::env::var_os("FASTCLICK")?);
        let (case, _) = plan.full(4, traffic)?;
        Some(FastClick::with(program, plan, &case))
    }

    fn with(program: PathBuf, plan: &Plan, case: &super::Case) -> anyhow::Result<FastClick> {
        let table = case.table.as_deref().context("a full router has a table")?;
        let routes: String = fs::read_to_string(table)?
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(prefix, hop)| format!(",\n{prefix} {hop} 0"))
            .collect();
        let frames = super::network::frames(case, 0)?;
        let pcap = plan.folder().join("packets.pcap");
        super::network::write_pcap(&pcap, &frames, TIMES)?;
        let text = format!(
            " -> Strip(14) -> CheckIPHeader -> rt :: DirectIPLookup(198.18.0.1/32 0{routes});
rt[0] -> d :: DecIPTTL -> EtherEncap(0x0800, 02:00:00:00:02:01, 02:01:00:00:00:01) -> Discard; \
             d[1] -> Discard;\n"
        );
        Ok(FastClick { program, text, pcap, packets: TIMES * frames.len(), folder: plan.folder().into() })
    }

    /// Millions of packets a second, replayed from a file; the start is taken from a
    /// router that does nothing.
    pub(super) fn rate(&self) -> anyhow::Result<f64> {
        let FastClick { text, pcap, .. } = self;
        let idle = self.seconds(&format!("Idle{text}DriverManager(stop);\n"))?;
        let busy = self.seconds(&format!("FromDump({}, STOP true){text}", pcap.display()))?;
        ensure!(busy > idle, "FastClick took no longer with packets than without");
        Ok(self.packets as f64 / (busy - idle) / 1e6)
    }

    fn seconds(&self, text: &str) -> anyhow::Result<f64> {
        let file = self.folder.join("fastclick.click");
        fs::write(&file, text)?;
        let start = Instant::now();
        let mut command = Command::new(&self.program);
        let output = command.arg(&file).stdin(Stdio::null()).output().context("starting FastClick")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "FastClick failed: {said}");
        Ok(start.elapsed().as_secs_f64())
    }
}
