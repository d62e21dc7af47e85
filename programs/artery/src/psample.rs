//! Samples for the kernel's PSAMPLE group, where sFlow agents such as hsflowd read.
use crate::metrics::{Exposition, Kind};
use crate::options::values::sampling_interval;
use crate::output::Output;
use artery_common::packet_samples::{PacketSamples, SampledPacket};
use artery_device::{FrameSample, SampleGroup, SampleSender, system_message};
use artery_engine::Resources;
use std::io;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The group of hsflowd's examples.
const GROUP: u32 = 1;

/// Which samples are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PsampleSettings {
    /// One of so many forwarded packets.
    pub(crate) interval: u32,
    /// Number of the group among those of PSAMPLE, by which an agent tells samples apart.
    group: u32,
}

impl FromStr for PsampleSettings {
    type Err = String;

    fn from_str(text: &str) -> Result<PsampleSettings, String> {
        let mut parts = text.split(',');
        let interval = sampling_interval("", parts.next().unwrap_or_default())?;
        let mut settings = PsampleSettings { interval, group: GROUP };
        for part in parts {
            let group = part.strip_prefix("group=");
            let group =
                group.ok_or_else(|| format!("unknown '{part}'; behind the number may stand group="))?;
            settings.group =
                group.parse().map_err(|_| format!("group={group}: write a number below 4294967296"))?;
        }
        Ok(settings)
    }
}

/// The group of the kernel, while nothing is sent yet.
pub(crate) struct Exporter {
    settings: PsampleSettings,
    group: SampleGroup,
}

/// How many samples were sent, and how many could not be.
#[derive(Debug, Default)]
struct SampleCounts {
    sent: AtomicU64,
    unsent: AtomicU64,
}

/// The counts of a router, for its metrics.
#[derive(Default)]
struct Running(Mutex<Weak<SampleCounts>>);

impl Exporter {
    /// Finds the group, while this process has the right to send to it.
    pub(crate) fn find(settings: PsampleSettings) -> anyhow::Result<Exporter> {
        let group = SampleGroup::find().map_err(|error| anyhow::anyhow!("--psample: {error}"))?;
        Ok(Exporter { settings, group })
    }

    /// Opens a socket, here or in the helper.
    pub(crate) fn start(self, resources: &Resources, voice: Output) -> anyhow::Result<SampleTarget> {
        let counts = Arc::<SampleCounts>::default();
        let running = resources.get::<Running>();
        *running.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&counts);
        let sender = self.group.open().map_err(|error| anyhow::anyhow!("--psample: {error}"))?;
        Ok(SampleTarget { settings: self.settings, sender, counts, voice, sequence: 0, has_failed: false })
    }
}

/// Where samples are sent to.
pub(crate) struct SampleTarget {
    settings: PsampleSettings,
    sender: SampleSender,
    counts: Arc<SampleCounts>,
    voice: Output,
    sequence: u32,
    /// Whether some of the last samples could not be sent.
    has_failed: bool,
}

impl SampleTarget {
    /// Sends samples until `limit` has passed. Those that are left then are lost, as more wait by that time.
    pub(crate) fn send_samples(&mut self, samples: &[SampledPacket], limit: Duration) {
        let end = Instant::now() + limit;
        let mut failure = None;
        for (done, packet) in samples.iter().enumerate() {
            let PsampleSettings { interval, group } = self.settings;
            let sample = FrameSample {
                ingress: packet.ingress,
                egress: packet.egress,
                length: packet.frame.length,
                group,
                sequence: self.sequence,
                rate: interval,
                bytes: packet.frame.bytes(),
            };
            // Counted whether or not it was sent: an agent sees by it how many are missing.
            self.sequence = self.sequence.wrapping_add(1);
            let sent = self.sender.send(&sample);
            // The helper has had its time for this one, or for all.
            let is_late = Instant::now() >= end
                || sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
            match sent {
                Ok(()) => _ = self.counts.sent.fetch_add(1, Relaxed),
                Err(error) => {
                    self.counts.unsent.fetch_add(1, Relaxed);
                    failure = Some(error);
                }
            }
            let left = samples.len() - done - 1;
            if is_late && left > 0 {
                self.counts.unsent.fetch_add(left as u64, Relaxed);
                self.sequence = self.sequence.wrapping_add(left as u32);
                failure.get_or_insert(io::ErrorKind::TimedOut.into());
                break;
            }
        }
        if !samples.is_empty() {
            self.report_failure(failure.as_ref());
        }
    }

    /// Says when samples begin to fail, and when they are sent again.
    fn report_failure(&mut self, error: Option<&io::Error>) {
        match (error, self.has_failed) {
            (Some(error), false) => self.voice.print_warning(&format!(
                "samples can't be sent to PSAMPLE: {}; they are lost until they can",
                system_message(error)
            )),
            (None, true) => self.voice.print_warning("samples are sent to PSAMPLE again"),
            _ => {}
        }
        self.has_failed = error.is_some();
    }
}

/// The metrics of a router's samples, if it sends any.
pub(crate) fn write_metrics(resources: &Resources, text: &mut Exposition) {
    let running = resources.get::<Running>();
    let counts = running.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
    let Some(counts) = counts else { return };
    let sent = counts.sent.load(Relaxed);
    text.single(
        "artery_psample_samples_total",
        Kind::Counter,
        "Samples that were sent to the kernel's PSAMPLE group, or to the helper for it.",
        sent,
    );
    let name = "artery_psample_lost_samples_total";
    text.family(name, Kind::Counter, "Samples that were not sent: too many waited, or sending failed.");
    text.sample(name, &[("reason", "queue")], resources.get::<PacketSamples>().lost_samples());
    text.sample(name, &[("reason", "send")], counts.unsent.load(Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_common::packet_samples::FrameStart;
    use artery_wire::IpProtocol;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn samples_that_find_no_time_are_counted_and_the_next_ones_are_sent() {
        let (helper, socket) = UnixDatagram::pair().unwrap();
        // One that would wait is late at once.
        socket.set_nonblocking(true).unwrap();
        helper.set_nonblocking(true).unwrap();
        let mut target = SampleTarget {
            settings: "1".parse().unwrap(),
            sender: SampleSender::Helper(socket.into()),
            counts: Arc::default(),
            voice: Output::for_terminal(),
            sequence: 0,
            has_failed: false,
        };
        let packet = SampledPacket {
            ends: [([10, 0, 0, 1].into(), 7), ([10, 0, 0, 2].into(), 9)],
            protocol: IpProtocol::UDP,
            tos: 0,
            tcp_flags: 0,
            bytes: 60,
            ingress: 0,
            egress: 0,
            time: Duration::ZERO,
            frame: FrameStart::new(&[7; 74], 74),
        };
        let samples = vec![packet; 3000];
        let mut send = |count: usize, limit| {
            target.send_samples(&samples[..count], limit);
            let received = std::iter::from_fn(|| helper.recv(&mut [0; 2000]).ok()).count() as u64;
            let counts = (target.counts.sent.load(Relaxed), target.counts.unsent.load(Relaxed));
            (received, counts, target.sequence, target.has_failed)
        };
        assert_eq!(send(3, Duration::ZERO), (1, (1, 2), 3, true), "the first takes all of the time");
        assert_eq!(send(1, Duration::ZERO), (1, (2, 2), 4, false), "none is left");
        let long = Duration::from_secs(60);
        assert_eq!(send(3, long), (3, (5, 2), 7, false));
        let (received, (sent, unsent), sequence, has_failed) = send(3000, long);
        assert!(received < 3000 && has_failed, "the helper reads none meanwhile");
        assert_eq!((sent, sent + unsent, sequence), (5 + received, 3007, 3007));
        assert_eq!(send(0, long), (0, (sent, unsent), 3007, true), "nothing was tried");
    }

    #[test]
    fn samples_have_an_interval_and_a_group() {
        let parsed = |text: &str| text.parse::<PsampleSettings>();
        assert_eq!(parsed("1000"), Ok(PsampleSettings { interval: 1000, group: 1 }));
        assert_eq!(parsed("1,group=7"), Ok(PsampleSettings { interval: 1, group: 7 }));
        for (wrong, what) in [
            ("", "write of how many packets one is sampled"),
            ("0", "0: write of how many"),
            ("sample=5", "write of how many"),
            ("5,group=-1", "group=-1: write a number"),
            ("5,domain=1", "unknown 'domain=1'"),
        ] {
            let error = parsed(wrong).unwrap_err();
            assert!(error.contains(what), "{wrong}: {error}");
        }
    }
}
