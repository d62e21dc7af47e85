//! Copies of frames: all of a capture, and samples.
use super::super::capture::{CaptureRings, Captured, Copied};
use super::super::error::Error;
use super::Accelerator;
use artery_device::bpf;

impl Accelerator {
    /// Begins to copy frames that are forwarded, with `has_all` those that go to the kernel, too.
    pub fn begin_capture(&mut self, has_all: bool) -> Result<(), Error> {
        self.end_capture()?;
        self.capture = Some(CaptureRings::new(if has_all { Copied::All } else { Copied::Forwarded })?);
        let begun = self.replace_all_programs();
        if begun.is_err() {
            self.end_capture()?;
        }
        begun
    }

    /// Loads programs that copy no frames, and frees the rings.
    pub fn end_capture(&mut self) -> Result<(), Error> {
        let Some(capture) = self.capture.take() else { return Ok(()) };
        let replaced = self.replace_all_programs();
        bpf::wait_for_runs().map_err(Error::Waiting)?;
        drop(capture);
        replaced
    }

    /// The frames that were copied since the last call, and how many were lost since the first.
    pub fn drain_captured(&mut self) -> (Vec<Captured>, u64) {
        self.capture.as_mut().map_or((Vec::new(), 0), |capture| (capture.drain_frames(), capture.lost()))
    }

    /// Has one of so many forwarded frames copied from now on, with the first 192 bytes of each.
    pub fn begin_sampling(&mut self, interval: u32) -> Result<(), Error> {
        self.samples = Some(CaptureRings::new(Copied::Sampled(interval))?);
        self.replace_all_programs()
    }

    /// The frames that were sampled since the last call, and how many were lost since the first.
    pub fn drain_samples(&mut self) -> (Vec<Captured>, u64) {
        self.samples.as_mut().map_or((Vec::new(), 0), |samples| (samples.drain_frames(), samples.lost()))
    }
}
