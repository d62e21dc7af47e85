//! Samples of frames for the kernel's PSAMPLE group `packets` (linux/psample.h), where sFlow agents such as
//! hsflowd read what the kernel has sampled: the same messages, from this process or from its helper.
use crate::DeviceError;
use crate::privsep::{self, Request};
use artery_netlink::build::attribute;
use artery_netlink::genetlink::{Group, GroupSender};
use rustix::fd::OwnedFd;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::thread::{CapabilitySet, capabilities};
use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes of a frame in a sample, at most: what sFlow takes by default.
pub const SAMPLE_BYTES: usize = 128;
/// Length of a sample's numbers as the helper gets them.
const NUMBERS: usize = 24;
const NAME: &str = "PSAMPLE";
const CAPABILITY: &str = "CAP_NET_ADMIN";
/// How long a sample waits for the helper. Workers don't wait for that.
const LONGEST_WAIT: Duration = Duration::from_millis(50);
/// Where there is no such family.
const MISSING: &str = "the kernel has no such group; load its module by 'modprobe psample'";

/// Attributes of a sample (PSAMPLE_ATTR_…).
const IIFINDEX: u16 = 0;
const OIFINDEX: u16 = 1;
const ORIGSIZE: u16 = 2;
const SAMPLE_GROUP: u16 = 3;
const GROUP_SEQ: u16 = 4;
const SAMPLE_RATE: u16 = 5;
const DATA: u16 = 6;

/// A frame that was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSample<'b> {
    /// The kernel's number of the interface it came by, 0 if not known.
    pub ingress: u32,
    /// The same of the one it leaves by.
    pub egress: u32,
    /// Length of the whole frame, from the link header on.
    pub length: u32,
    /// Number of the group among those of PSAMPLE.
    pub group: u32,
    /// Counts the samples of a group.
    pub sequence: u32,
    /// One of so many frames is sampled.
    pub rate: u32,
    /// The first bytes of the frame.
    pub bytes: &'b [u8],
}

impl<'b> FrameSample<'b> {
    fn attributes(&self) -> Vec<Vec<u8>> {
        let interfaces = [(IIFINDEX, self.ingress), (OIFINDEX, self.egress)];
        // The kernel writes sixteen bits of these, and none of those it doesn't know.
        let known = interfaces.into_iter().filter(|(_, number)| *number != 0);
        let interfaces = known.map(|(kind, number)| attribute(kind, &(number as u16).to_ne_bytes()));
        let numbers = [
            (ORIGSIZE, self.length),
            (SAMPLE_GROUP, self.group),
            (GROUP_SEQ, self.sequence),
            (SAMPLE_RATE, self.rate),
        ];
        let numbers = numbers.into_iter().map(|(kind, number)| attribute(kind, &number.to_ne_bytes()));
        interfaces.chain(numbers).chain([attribute(DATA, self.bytes)]).collect()
    }

    fn encode(&self) -> Vec<u8> {
        let numbers = [self.ingress, self.egress, self.length, self.group, self.sequence, self.rate];
        let mut bytes: Vec<u8> = numbers.into_iter().flat_map(u32::to_ne_bytes).collect();
        bytes.extend_from_slice(self.bytes);
        bytes
    }

    /// None unless the bytes are what [`FrameSample::encode`] writes.
    fn decode(message: &'b [u8]) -> Option<FrameSample<'b>> {
        let (numbers, bytes) = message.split_first_chunk::<NUMBERS>()?;
        let number = |at: usize| numbers.get(4 * at..)?.first_chunk().copied().map(u32::from_ne_bytes);
        let [ingress, egress, length] = [number(0)?, number(1)?, number(2)?];
        let [group, sequence, rate] = [number(3)?, number(4)?, number(5)?];
        let sample = FrameSample { ingress, egress, length, group, sequence, rate, bytes };
        (bytes.len() <= SAMPLE_BYTES).then_some(sample)
    }
}

/// The group that samples are sent to, before this process gives up its rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleGroup(Group);

impl SampleGroup {
    /// Finds the group by the names of its family and itself.
    ///
    /// # Errors
    /// The kernel has none, or this process may not send to it.
    pub fn find() -> Result<SampleGroup, DeviceError> {
        let refused = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => DeviceError::Refused { name: NAME.into(), why: MISSING.into() },
            _ => failed("finding its group of netlink", error),
        };
        let group = Group::find("psample", "packets").map_err(refused)?;
        let may_send = capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::NET_ADMIN));
        if !may_send {
            let (name, doing) = (NAME.to_owned(), "sending samples");
            return Err(DeviceError::NotPermitted { name, doing, capability: Some(CAPABILITY) });
        }
        Ok(SampleGroup(group))
    }

    /// Opens the way to it: by the helper, if this process has one.
    pub fn open(self) -> Result<SampleSender, DeviceError> {
        match privsep::helper() {
            Some(helper) => {
                let ((), socket) = helper.descriptor(NAME, &Request::SampleGroup)?;
                let limited = set_socket_timeout(&socket, Timeout::Send, Some(LONGEST_WAIT));
                limited.map_err(|error| failed("setting up a socket", error.into()))?;
                Ok(SampleSender::Helper(socket))
            }
            None => self.sender().map(SampleSender::Own),
        }
    }

    fn sender(self) -> Result<GroupSender, DeviceError> {
        GroupSender::open(self.0).map_err(|error| failed("opening a socket", error))
    }
}

/// The way that samples take.
pub enum SampleSender {
    /// A socket of this process.
    Own(GroupSender),
    /// A socket of the helper's, by a connection to it.
    Helper(OwnedFd),
}

impl SampleSender {
    /// Sends a sample, which is lost if no process listens, as those of the kernel are. It waits for the
    /// helper, if that sends it, for 50 ms at most, and does not say whether the kernel took it
    /// from the helper.
    pub fn send(&self, sample: &FrameSample<'_>) -> io::Result<()> {
        match self {
            SampleSender::Own(group) => send_to(group, sample),
            SampleSender::Helper(socket) => {
                Ok(send(socket, &sample.encode(), SendFlags::NOSIGNAL).map(drop)?)
            }
        }
    }
}

fn failed(doing: &'static str, error: io::Error) -> DeviceError {
    DeviceError::from_io(NAME, doing, CAPABILITY, &error)
}

fn send_to(group: &GroupSender, sample: &FrameSample<'_>) -> io::Result<()> {
    const SAMPLE: u8 = 0;
    group.send(SAMPLE, &sample.attributes())
}

/// Sends what comes by a socket, on a thread of its own, until the other end is closed.
pub(crate) fn serve_samples(socket: OwnedFd) -> Result<JoinHandle<()>, DeviceError> {
    let group = SampleGroup::find()?.sender()?;
    let body = move || {
        let mut message = [0; NUMBERS + SAMPLE_BYTES + 1];
        loop {
            match recv(&socket, &mut message[..], RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR) => {}
                Ok((_, length @ 1..)) => {
                    // Other messages, and samples for which a listener has no room, are lost.
                    let sample = message.get(..length).and_then(FrameSample::decode);
                    let _ = sample.map(|sample| send_to(&group, &sample));
                }
                _ => return,
            }
        }
    };
    let thread = std::thread::Builder::new().name("psample".into()).spawn(body);
    thread.map_err(|error| failed("starting a thread", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: FrameSample<'_> = FrameSample {
        ingress: 3,
        egress: 0,
        length: 1514,
        group: 1,
        sequence: 9,
        rate: 1000,
        bytes: &[7; 5],
    };

    #[test]
    fn a_sample_is_what_the_kernel_writes() {
        let expected: [&[u8]; 6] = [
            &[6, 0, 0, 0, 3, 0, 0, 0],
            &[8, 0, 2, 0, 0xea, 5, 0, 0],
            &[8, 0, 3, 0, 1, 0, 0, 0],
            &[8, 0, 4, 0, 9, 0, 0, 0],
            &[8, 0, 5, 0, 0xe8, 3, 0, 0],
            &[9, 0, 6, 0, 7, 7, 7, 7, 7, 0, 0, 0],
        ];
        assert_eq!(SAMPLE.attributes(), expected);
    }

    #[test]
    fn the_helper_understands_what_was_sent_and_nothing_else() {
        let bytes = SAMPLE.encode();
        assert_eq!(FrameSample::decode(&bytes), Some(SAMPLE));
        for length in 0..NUMBERS {
            assert_eq!(FrameSample::decode(&bytes[..length]), None, "{length}");
        }
        let long = FrameSample { bytes: &[0; SAMPLE_BYTES + 1], ..SAMPLE }.encode();
        assert_eq!(FrameSample::decode(&long), None);
    }

    #[test]
    fn a_kernel_without_the_group_is_said_with_the_remedy() {
        match SampleGroup::find() {
            Ok(_) | Err(DeviceError::NotPermitted { .. }) => {}
            Err(error) => assert!(error.to_string().contains("modprobe psample"), "{error}"),
        }
    }
}
