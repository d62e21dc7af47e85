//! An element that stands for the world around the router: it makes every frame that comes in the next of many packets.
//!
//! Frames go round in the router; what is in them is new every time. So frames are as warm as those of a driver that
//! uses them again and again, and packets as different as those of as many flows. A packet is written in the time that
//! is measured, and what became of the frame's last one is looked at now and then.

use super::network::{Frame, was_forwarded};
use artery_engine::{Arg, Args, Batch, Class, Context, DropReason, Element, Handler, Read};
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
        Handler::read(
            "wrong",
            "frames that were not as they should be",
            &Read(|p: &mut Play, _, _| Ok(p.wrong.to_string())),
        ),
        Handler::read("count", "packets", &Read(|p: &mut Play, _, _| Ok(p.count.to_string()))),
    ],
    build: |args| Ok(Box::new(Play::new(args)?)),
    ..Class::DEFAULT
};

/// The packets, by number.
#[derive(Default)]
pub(super) struct Packets(Mutex<Vec<Arc<Vec<Frame>>>>);

impl Packets {
    /// Puts packets behind those there are.
    pub(super) fn put(&self, packets: Vec<Frame>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(packets));
    }
    fn get(&self, number: usize) -> Arc<Vec<Frame>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(number).cloned().unwrap_or_default()
    }
}

/// A frame of one in so many batches is looked at.
const SAMPLE: u64 = 16;

struct Play {
    packets: Arc<Vec<Frame>>,
    next: usize,
    limit: u64,
    count: u64,
    batches: u64,
    wrong: u64,
}

impl Play {
    fn new(args: &mut Args<'_>) -> Result<Play, artery_engine::ArgError> {
        let number: u32 = args.read("NUMBER")?;
        let limit: Option<u64> = args.read("LIMIT")?;
        let packets = args.resource::<Packets>().get(number as usize);
        Ok(Play { packets, next: 0, limit: limit.unwrap_or(u64::MAX), count: 0, batches: 0, wrong: 0 })
    }
}

impl Play {
    /// Looks at a frame of some batches, unless it was never played.
    #[inline]
    fn look(&mut self, batch: &Batch) {
        self.batches += 1;
        if self.batches.is_multiple_of(SAMPLE)
            && let Some(frame) = batch.iter().next().and_then(|packet| packet.data().first_chunk())
            && frame[0] != 0
            && !was_forwarded(frame)
        {
            self.wrong += 1;
        }
    }

    /// The next packets, up to `most` of them.
    #[inline]
    fn next(&mut self, most: usize) -> &[Frame] {
        let first = if self.next < self.packets.len() { self.next } else { 0 };
        self.next = self.packets.len().min(first + most);
        &self.packets[first..self.next]
    }
}

impl Element for Play {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        if self.count >= self.limit {
            cx.end();
            return cx.discard_all(batch, DropReason::Discarded);
        }
        self.look(batch);
        self.count += batch.len() as u64;
        let mut frames = batch.iter_mut();
        while frames.len() > 0 {
            let packets = self.next(frames.len());
            if packets.is_empty() {
                break;
            }
            for (with, packet) in packets.iter().zip(&mut frames) {
                if let Some(frame) = packet.data_mut().first_chunk_mut() {
                    *frame = with.0;
                }
            }
        }
        cx.send_all(0, batch);
    }
}
