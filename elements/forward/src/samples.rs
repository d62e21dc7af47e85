//! Samples of the frames that an element forwards, with the interfaces of their ports.
use crate::fast_path::LINK;
use crate::shared::SharedRouter;
use artery_common::packet_samples::{FrameStart, PacketSamples, SampledPacket, Sampler};
use artery_device::Interface;
use std::sync::Arc;
use std::time::Duration;

/// How long numbers of interfaces are used.
const VALID: Duration = Duration::from_secs(10);

/// Samples frames of a router's ports.
pub(crate) struct PortSampler {
    sampler: Sampler,
    /// Names of the ports, by their numbers.
    names: Vec<String>,
    /// The kernel's numbers of the ports' interfaces, 0 for those that the kernel does not have.
    interfaces: Vec<u32>,
    /// When these were read: an interface that is made again has another number.
    read: Option<Duration>,
}

impl PortSampler {
    pub(crate) fn new(samples: Arc<PacketSamples>, router: &SharedRouter) -> PortSampler {
        let names = router.lock_tables().ports().iter().map(|port| port.name.to_string()).collect();
        PortSampler { sampler: Sampler::new(samples), names, interfaces: Vec::new(), read: None }
    }

    /// See [`Sampler::is_due`].
    #[inline]
    pub(crate) fn is_due(&mut self, frames: usize) -> bool {
        self.sampler.is_due(frames)
    }

    /// Samples a batch of so many frames: `frame` has the bytes of the frame at a place, the port it came by,
    /// and the one it leaves by, if it is forwarded at once.
    pub(crate) fn sample_batch<'a>(
        &mut self,
        frames: usize,
        frame: impl Fn(usize) -> Option<(&'a [u8], usize, Option<usize>)>,
    ) {
        let PortSampler { sampler, names, interfaces, read } = self;
        sampler.sample_batch(frames, |place, now| {
            if read.is_none_or(|read| now.saturating_sub(read) >= VALID) {
                let number = |name: &String| Interface::find(name).map_or(0, |interface| interface.index);
                (*interfaces, *read) = (names.iter().map(number).collect(), Some(now));
            }
            let number =
                |port: Option<usize>| port.and_then(|port| interfaces.get(port)).copied().unwrap_or(0);
            let (bytes, came_by, leaves_by) = frame(place)?;
            let frame = FrameStart::new(bytes, bytes.len() as u32);
            let packet = SampledPacket::parse(bytes.get(LINK..)?, frame, now)?;
            Some(SampledPacket { ingress: number(Some(came_by)), egress: number(leaves_by), ..packet })
        });
    }
}
