//! Samples of the frames that an element forwards, with the interfaces of their ports.
use crate::fast_path::LINK;
use crate::shared::SharedRouter;
use artery_common::packet_samples::{FrameStart, PacketSamples, SampledPacket, Sampler};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Samples frames of a router's ports.
pub(crate) struct PortSampler {
    sampler: Sampler,
    /// The kernel's numbers of the ports' interfaces.
    interfaces: Vec<Arc<AtomicU32>>,
}

impl PortSampler {
    pub(crate) fn new(samples: Arc<PacketSamples>, router: &SharedRouter) -> PortSampler {
        // The tables are locked only for this: packets wait for them.
        let ports = router.lock_tables().ports();
        let interfaces = ports.iter().map(|port| samples.interface(&port.name)).collect();
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
        let PortSampler { sampler, interfaces } = self;
        sampler.sample_batch(frames, |place, now| {
            let interface = |port: Option<usize>| port.and_then(|port| interfaces.get(port));
            let number = |port: Option<usize>| interface(port).map_or(0, |number| number.load(Relaxed));
            let (bytes, came_by, leaves_by) = frame(place)?;
            let frame = FrameStart::new(bytes, bytes.len() as u32);
            let packet = SampledPacket::parse(bytes.get(LINK..)?, frame, now)?;
            Some(SampledPacket { ingress: number(Some(came_by)), egress: number(leaves_by), ..packet })
        });
    }
}
