//! An element that simulates the network around the router: it rewrites every arriving frame to the
//! next of many packets.
//!
//! Frames go round in the router; what is in them is new every time. So frames are as warm as those of a
//! driver that uses them again and again, and packets as different as those of as many flows. A packet
//! is written in the time that is measured, and what became of the frame's last one is sampled. Only
//! that by which packets differ is kept of each: whole ones would be fetched from memory, which a driver
//! lets the card do.

use super::hosts::was_switched;
use super::network::{FRAME, Frame, was_forwarded};
use anyhow::Context as _;
use artery_engine::{Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Handler, Packet, Show};
use std::slice::IterMut;
use std::sync::{Arc, Mutex, PoisonError};

/// The class; no configuration outside this experiment has one.
pub(super) static PLAY: Class = Class {
    name: "Play",
    group: "lab",
    summary: "makes frames the next of many packets",
    manual: "Expects frames that the router has sent.",
    example: "Idle -> Play(0) -> Discard;",
    processing: "h/h",
    args: &[
        Arg::required("NUMBER", "number", "whose packets"),
        Arg::optional("LIMIT", "packets", "", "after how many packets the run ends; never if not given"),
    ],
    handlers: &[
        Handler::read("wrong", "frames that were not as they should be", &Show(|p: &mut Play| p.wrong)),
        Handler::read("count", "packets", &Show(|p: &mut Play| p.count)),
    ],
    build: |args| Ok(Box::new(Play::new(args)?)),
    ..Class::DEFAULT
};

/// Packets of which each differs from the first in these bytes at most: `N` from byte `AT` on.
struct Series<const AT: usize, const N: usize> {
    first: [u8; FRAME],
    differ: Vec<[u8; N]>,
}

impl<const AT: usize, const N: usize> Series<AT, N> {
    fn new(packets: &[Frame]) -> Option<Series<AT, N>> {
        let first = packets.first()?.0;
        let part = |packet: &Frame| {
            let part = *packet.0[AT..].first_chunk::<N>()?;
            let mut expected = first;
            expected[AT..AT + N].copy_from_slice(&part);
            (expected == packet.0).then_some(part)
        };
        Some(Series { first, differ: packets.iter().map(part).collect::<Option<_>>()? })
    }

    /// Writes the packets from this number on to frames, as many as there are of both. Returns
    /// the next one's number.
    #[inline]
    fn write(&self, from: usize, frames: &mut IterMut<'_, Packet>) -> usize {
        let rest = self.differ.get(from..).unwrap_or_default();
        let count = rest.len().min(frames.len());
        for (part, packet) in rest[..count].iter().zip(frames) {
            if let Some(frame) = packet.data_mut().first_chunk_mut::<FRAME>() {
                *frame = self.first;
                frame[AT..AT + N].copy_from_slice(part);
            }
        }
        from + count
    }
}

/// The packets of a worker, by what differs in them: from identification to checksum of UDP, from version to
/// destination, in both addresses of the link, or in these and all up to the checksum of UDP or to the
/// destination of IPv6.
enum Packets {
    Link(Series<0, 12>),
    LinkAndV4(Series<0, 42>),
    LinkAndV6(Series<0, 54>),
    V4(Series<18, 24>),
    V6(Series<14, 40>),
}

impl Packets {
    fn write(&self, from: usize, frames: &mut IterMut<'_, Packet>) -> usize {
        match self {
            Packets::Link(series) => series.write(from, frames),
            Packets::LinkAndV4(series) => series.write(from, frames),
            Packets::LinkAndV6(series) => series.write(from, frames),
            Packets::V4(packets) => packets.write(from, frames),
            Packets::V6(packets) => packets.write(from, frames),
        }
    }
    /// Whether a frame is as it must be when it has been sent.
    fn is_done(&self, frame: &[u8; FRAME]) -> bool {
        match self {
            Packets::V4(_) | Packets::V6(_) => was_forwarded(frame),
            _ => was_switched(frame),
        }
    }
    fn len(&self) -> usize {
        match self {
            Packets::Link(frames) => frames.differ.len(),
            Packets::LinkAndV4(frames) => frames.differ.len(),
            Packets::LinkAndV6(frames) => frames.differ.len(),
            Packets::V4(packets) => packets.differ.len(),
            Packets::V6(packets) => packets.differ.len(),
        }
    }
}

/// The packets of all workers.
#[derive(Default)]
pub(super) struct Library(Mutex<Vec<Arc<Packets>>>);

impl Library {
    /// Puts a worker's packets behind those of others.
    pub(super) fn add_packets(&self, packets: &[Frame]) -> anyhow::Result<()> {
        let all = Series::new(packets)
            .map(Packets::V4)
            .or_else(|| Series::new(packets).map(Packets::V6))
            .or_else(|| Series::new(packets).map(Packets::Link))
            .or_else(|| Series::new(packets).map(Packets::LinkAndV4))
            .or_else(|| Series::new(packets).map(Packets::LinkAndV6))
            .context("packets differ in more")?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(all));
        Ok(())
    }
    fn get(&self, number: usize) -> Option<Arc<Packets>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(number).cloned()
    }
}

/// One frame of so many batches is checked.
const SAMPLE: u64 = 16;

struct Play {
    packets: Arc<Packets>,
    next: usize,
    limit: u64,
    count: u64,
    batches: u64,
    wrong: u64,
}

impl Play {
    fn new(args: &mut Args<'_>) -> Result<Play, ArgError> {
        let number: u32 = args.read("NUMBER")?;
        let limit: Option<u64> = args.read("LIMIT")?;
        let packets = args.resource::<Library>().get(number as usize);
        let packets = packets.ok_or_else(|| ArgError::wrong(format!("there are no packets {number}")))?;
        Ok(Play { packets, next: 0, limit: limit.unwrap_or(u64::MAX), count: 0, batches: 0, wrong: 0 })
    }
}

impl Play {
    /// Looks at a frame of some batches, unless it was never played.
    #[inline]
    fn check_frame(&mut self, batch: &Batch) {
        self.batches += 1;
        if self.batches.is_multiple_of(SAMPLE)
            && let Some(frame) = batch.iter().next().and_then(|packet| packet.data().first_chunk())
            && frame[0] != 0
            && !self.packets.is_done(frame)
        {
            self.wrong += 1;
        }
    }
}

impl Element for Play {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        if self.count >= self.limit {
            cx.end_run();
            return cx.discard_all(batch, DropReason::Discarded);
        }
        self.check_frame(batch);
        self.count += batch.len() as u64;
        let mut frames = batch.iter_mut();
        while frames.len() > 0 {
            self.next = if self.next < self.packets.len() { self.next } else { 0 };
            self.next = self.packets.write(self.next, &mut frames);
        }
        cx.send_all(0, batch);
    }
}
