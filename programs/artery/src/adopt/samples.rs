//! Samples of forwarded frames, which programs copy, for a collector and the kernel's PSAMPLE group.
use super::capture::monotonic_epoch;
use crate::export::{self, Export, Exporter};
use crate::metrics::Exposition;
use crate::output::Output;
use artery_adopt::Session;
use artery_adopt::fast::{CaptureVerdict, Captured};
use artery_common::packet_samples::{FrameStart, PacketSamples, SampledPacket};
use artery_engine::Resources;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often samples are taken from where programs put them.
const PERIOD: Duration = Duration::from_millis(250);
/// Where a frame has its type, or a tag.
const TYPE: usize = 12;
const TAG: usize = 4;

/// An export of samples that goes on until it is dropped.
pub(super) struct SampleExport {
    _export: Export,
    resources: Resources,
    samples: Arc<PacketSamples>,
    /// When samples were taken last.
    drained: Instant,
    /// Those that were overwritten by then.
    lost: u64,
}

impl SampleExport {
    pub(super) fn start(exporter: Exporter, voice: Output) -> anyhow::Result<SampleExport> {
        let resources = Resources::default();
        let samples = resources.get::<PacketSamples>();
        let export = exporter.start(&resources, voice)?;
        Ok(SampleExport { _export: export, resources, samples, drained: Instant::now(), lost: 0 })
    }

    /// Hands the samples over, if it is time; says when it is time again.
    pub(super) fn drain(&mut self, session: &mut Session, now: Instant) -> Duration {
        if let Some(rest) = PERIOD.checked_sub(now.saturating_duration_since(self.drained)) {
            return rest;
        }
        self.drained = now;
        self.collect_samples(session);
        PERIOD
    }

    /// Hands over what programs have copied since the last call.
    pub(super) fn collect_samples(&mut self, session: &mut Session) {
        let (frames, lost) = session.accelerator_mut().drain_samples();
        let links = session.accelerator().ports().map(|(link, port)| (port, link)).collect();
        let epoch = monotonic_epoch();
        self.samples.add_samples(frames.iter().filter_map(|frame| sampled(frame, &links, epoch)));
        self.samples.count_lost(lost - self.lost);
        self.lost = lost;
    }

    /// The metrics of the export, as the router has them.
    pub(super) fn metrics(&self) -> String {
        let mut text = Exposition::default();
        export::write_metrics(&self.resources, &mut text);
        text.into_text()
    }
}

/// The sample that a frame is, with the indexes of interfaces by the numbers of ports.
fn sampled(frame: &Captured, links: &BTreeMap<u32, u32>, epoch: u64) -> Option<SampledPacket> {
    let (start, time) =
        (FrameStart::new(&frame.bytes, frame.length), Duration::from_nanos(epoch + frame.time));
    let packet = SampledPacket::parse(ip_packet(&frame.bytes)?, start, time)?;
    let link = |port: u32| links.get(&port).copied().unwrap_or(0);
    let egress = match frame.verdict {
        CaptureVerdict::Forwarded(port) => link(port),
        CaptureVerdict::Kernel(_) => 0,
    };
    Some(SampledPacket { ingress: link(frame.port), egress, ..packet })
}

/// The packet in a frame, which may have tags.
fn ip_packet(frame: &[u8]) -> Option<&[u8]> {
    let mut at = TYPE;
    while let [0x81, 0] | [0x88, 0xa8] = frame.get(at..at + 2)? {
        at += TAG;
    }
    frame.get(at + 2..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_wire::build::{ether, ip4};

    #[test]
    fn a_sample_has_the_interfaces_of_its_ports_and_tags_are_skipped() {
        let packet = ip4().src("10.0.0.1").dst("10.0.0.2").udp(7, 53);
        let mut bytes = ether("02:00:00:00:00:01", "02:00:00:00:00:02").ip4(packet).bytes();
        let captured = |bytes: &[u8]| Captured {
            verdict: CaptureVerdict::Forwarded(2),
            port: 1,
            time: 5,
            length: bytes.len() as u32,
            bytes: bytes.to_vec(),
        };
        let links = [(1, 11), (2, 12)].into();
        let untagged = sampled(&captured(&bytes), &links, 1000).unwrap();
        assert_eq!((untagged.ingress, untagged.egress, untagged.time.as_nanos()), (11, 12, 1005));
        assert_eq!((untagged.ends[1].1, untagged.bytes), (53, 28));
        bytes.splice(12..12, [0x81, 0, 0, 7]);
        let tagged = sampled(&captured(&bytes), &links, 1000).unwrap();
        assert_eq!((tagged.frame.bytes(), tagged.frame.length as usize), (&bytes[..], bytes.len()));
        assert_eq!(SampledPacket { frame: untagged.frame, ..tagged }, untagged);
        assert_eq!(sampled(&captured(&bytes[..14]), &links, 1000), None);
    }
}
