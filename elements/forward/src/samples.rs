//! Samples of the frames that an element forwards, with the interfaces of their ports.
use crate::fast_path::LINK;
use crate::shared::SharedRouter;
use artery_common::packet_samples::{PacketSamples, SampledPacket, Sampler};
use artery_device::Interface;
use std::sync::Arc;

/// Samples frames of a router's ports.
pub(crate) struct PortSampler {
    sampler: Sampler,
    /// The kernel's numbers of the ports' interfaces, 0 for those that the kernel does not have.
    interfaces: Vec<u32>,
}

impl PortSampler {
    pub(crate) fn new(samples: Arc<PacketSamples>, router: &SharedRouter) -> PortSampler {
        let number = |name: &str| Interface::find(name).map_or(0, |interface| interface.index);
        let interfaces = router.lock_tables().ports().iter().map(|port| number(&port.name)).collect();
        PortSampler { sampler: Sampler::new(samples), interfaces }
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
        let interfaces = &self.interfaces;
        let number = |port: Option<usize>| port.and_then(|port| interfaces.get(port)).copied().unwrap_or(0);
        self.sampler.sample_batch(frames, |place, now| {
            let (bytes, came_by, leaves_by) = frame(place)?;
            let packet = SampledPacket::parse(bytes.get(LINK..)?, now)?;
            Some(SampledPacket { ingress: number(Some(came_by)), egress: number(leaves_by), ..packet })
        });
    }
}
