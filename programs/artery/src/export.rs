//! What leaves a router beside packets: records of flows and samples to a collector by IPFIX, and samples to
//! the kernel's PSAMPLE group. One thread sends what workers have recorded. It waits for the helper, briefly;
//! workers never wait for it.
use crate::ipfix::{self, IpfixSettings, MessageSender};
use crate::metrics::Exposition;
use crate::output::Output;
use crate::psample::{self, PsampleSettings, SampleTarget};
use anyhow::{Context as _, bail};
use artery_common::packet_samples::PacketSamples;
use artery_device::Interface;
use artery_engine::Resources;
use clap::Args;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often numbers of interfaces are read.
const INTERFACES: Duration = Duration::from_secs(1);
/// How often records are sent.
const PERIOD: Duration = Duration::from_millis(250);

/// Where flows and samples go to.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExportSettings {
    /// Export flows of services and states of pf rules with 'pflow' as IPFIX (RFC 7011) to a collector, port
    /// 4739 by default; keys are source=ADDR, domain=N (0), active=TIME, after which long flows are
    /// reported (60s), and sample=N, which exports one of N forwarded packets as well
    #[arg(long, value_name = "ADDR[:PORT][,KEY=VALUE]...")]
    pub(crate) ipfix: Option<IpfixSettings>,
    /// Send one of N forwarded packets to the kernel's PSAMPLE group, where sFlow agents such as hsflowd
    /// read; group=G numbers it (1)
    #[arg(long, value_name = "N[,group=G]")]
    pub(crate) psample: Option<PsampleSettings>,
}

impl ExportSettings {
    /// One of how many packets is sampled, if any.
    ///
    /// # Errors
    /// Two of these are given.
    fn interval(&self) -> anyhow::Result<Option<u32>> {
        let ipfix = self.ipfix.as_ref().and_then(|ipfix| ipfix.sample);
        let group = self.psample.as_ref().map(|psample| psample.interval);
        if let (Some(ipfix), Some(group)) = (ipfix, group)
            && ipfix != group
        {
            bail!(
                "--ipfix has sample={ipfix} and --psample has {group}: packets are sampled once for both; \
                 give both the same number"
            );
        }
        Ok(ipfix.or(group))
    }
}

/// What is exported, while nothing is sent yet.
pub(crate) struct Exporter {
    ipfix: Option<ipfix::Exporter>,
    psample: Option<psample::Exporter>,
    interval: Option<u32>,
}

impl Exporter {
    /// Opens what needs rights; None if nothing is to be exported.
    pub(crate) fn open(settings: &ExportSettings) -> anyhow::Result<Option<Exporter>> {
        let interval = settings.interval()?;
        let ipfix = settings.ipfix.as_ref().map(ipfix::Exporter::open).transpose()?;
        let psample = settings.psample.map(psample::Exporter::find).transpose()?;
        Ok((ipfix.is_some() || psample.is_some()).then_some(Exporter { ipfix, psample, interval }))
    }

    /// One of how many packets is sampled, if any.
    pub(crate) fn interval(&self) -> Option<u32> {
        self.interval
    }

    /// Has the workers record flows and samples, and sends them from now on.
    pub(crate) fn start(self, resources: &Resources, voice: Output) -> anyhow::Result<Export> {
        let samples = resources.get::<PacketSamples>();
        let target = self.psample.map(|group| group.start(resources, voice)).transpose()?;
        samples.turn_on(self.interval.unwrap_or(0));
        let ipfix = self.ipfix.map(|ipfix| ipfix.start(resources, voice));
        let mut targets = ExportTargets { samples, read: None, ipfix, psample: target };
        targets.read_interfaces();
        let (end, ends) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("export".into()).spawn(move || {
            while ends.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                targets.send_records();
            }
            targets.send_records();
        });
        let thread = thread.context("can't start a thread that exports flows and samples")?;
        Ok(Export { end: Some(end), thread: Some(thread) })
    }
}

/// What the thread sends, and where to.
struct ExportTargets {
    samples: Arc<PacketSamples>,
    /// When numbers of interfaces were read last.
    read: Option<Instant>,
    ipfix: Option<MessageSender>,
    psample: Option<SampleTarget>,
}

impl ExportTargets {
    fn read_interfaces(&mut self) {
        let is_sampled = self.samples.interval() > 0;
        if is_sampled && self.read.is_none_or(|read| read.elapsed() >= INTERFACES) {
            self.read = Some(Instant::now());
            let number_of = |name: &str| Interface::find(name).map_or(0, |interface| interface.index);
            self.samples.read_interfaces(number_of);
        }
    }

    fn send_records(&mut self) {
        self.read_interfaces();
        let samples = self.samples.drain_samples();
        if let Some(group) = &mut self.psample {
            group.send_samples(&samples, PERIOD);
        }
        if let Some(ipfix) = &mut self.ipfix {
            ipfix.send_records(&samples);
        }
    }
}

/// An export that goes on until it is dropped; what is recorded by then is sent.
pub(crate) struct Export {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Export {
    fn drop(&mut self) {
        drop(self.end.take());
        self.thread.take().map(JoinHandle::join);
    }
}

/// The metrics of a router's export, if it has one.
pub(crate) fn write_metrics(resources: &Resources, text: &mut Exposition) {
    ipfix::write_metrics(resources, text);
    psample::write_metrics(resources, text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_sampled_once_for_all_who_want_samples() {
        let interval = |ipfix: &str, psample: &str| {
            let ipfix = (!ipfix.is_empty()).then(|| ipfix.parse().unwrap());
            let psample = (!psample.is_empty()).then(|| psample.parse().unwrap());
            ExportSettings { ipfix, psample }.interval()
        };
        assert_eq!(interval("192.0.2.9", "").unwrap(), None);
        assert_eq!(interval("192.0.2.9,sample=7", "").unwrap(), Some(7));
        assert_eq!(interval("192.0.2.9", "9").unwrap(), Some(9));
        assert_eq!(interval("192.0.2.9,sample=7", "7,group=2").unwrap(), Some(7));
        let error = interval("192.0.2.9,sample=7", "9").unwrap_err().to_string();
        assert!(error.contains("sample=7 and --psample has 9"), "{error}");
    }
}
