//! What went over an interface, recorded by tcpdump into our memory: no file is left behind.

use std::time::Duration;

use super::error::{Result, RigError};
use super::host::Host;
use super::process::Process;

/// Bytes of the pcap file header, and of the header of each record in it.
const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;

/// How long tcpdump may take to begin and to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running capture; it ends when dropped.
pub struct Capture {
    process: Process,
    host: Host,
}

/// A frame as captured, from its link header on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// When it was captured, since the epoch.
    pub time: Duration,
    /// Its length on the wire.
    pub length: u32,
    /// The captured bytes, from the link header on.
    pub bytes: Vec<u8>,
}

impl Host {
    /// Records the frames that come and go on an interface; when this returns, none is missed any more.
    pub fn capture(&self, interface: &str) -> Result<Capture> {
        self.capture_with(interface, &[])
    }

    /// Records with further options of tcpdump and a filter, such as `["-Q", "in", "icmp or arp"]`.
    pub fn capture_with(&self, interface: &str, options: &[&str]) -> Result<Capture> {
        self.check_interface(interface)?;
        let tcpdump = ["tcpdump", "--immediate-mode", "-U", "-n", "-s", "0", "-w", "-", "-i", interface];
        let process = self.command(tcpdump).args(options).spawn()?;
        process.wait_for("listening on", PATIENCE)?;
        Ok(Capture { process, host: self.clone() })
    }
}

impl Capture {
    /// The frames up to now.
    pub fn frames(&self) -> Vec<Frame> {
        Records::new(&self.pcap()).collect()
    }

    /// Waits until `count` frames are there.
    pub fn wait_for(&self, count: usize, limit: Duration) -> Result<Vec<Frame>> {
        let enough = self
            .process
            .written()
            .wait_until(limit, |streams| Records::new(&streams.stdout).count() >= count);
        if enough {
            return Ok(self.frames());
        }
        let seen = self.frames().len();
        let mut failure = self.process.failure();
        // The capture itself is not text; what tcpdump makes of it is.
        failure.output.stdout = self.text().unwrap_or_default();
        Err(RigError::NotSeen(failure, format!("{count} frames within {limit:?}, only {seen}")))
    }

    /// The capture up to now as a pcap file.
    pub fn pcap(&self) -> Vec<u8> {
        self.process.written().lock().stdout.clone()
    }

    /// The capture up to now as tcpdump prints it: one frame a line with link header, without times.
    pub fn text(&self) -> Result<String> {
        let printer = self.host.outside(["tcpdump", "-n", "-e", "-t", "-r", "-"]);
        Ok(printer.input(whole_records(&self.pcap())).run()?.stdout)
    }

    /// Ends the capture; what was recorded can still be read.
    pub fn stop(&mut self) -> Result<()> {
        self.process.stop(PATIENCE).map(|_| ())
    }
}

/// Walks the records of a pcap file written on this machine; stops where a record is not complete.
struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    fn new(pcap: &'a [u8]) -> Records<'a> {
        Records { rest: pcap.get(FILE_HEADER..).unwrap_or_default() }
    }
}

impl Iterator for Records<'_> {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        let word = |at: usize| Some(u32::from_ne_bytes(self.rest.get(at..at + 4)?.try_into().ok()?));
        let (seconds, micros, captured, length) = (word(0)?, word(4)?, word(8)?, word(12)?);
        let end = RECORD_HEADER.checked_add(captured as usize)?;
        let bytes = self.rest.get(RECORD_HEADER..end)?.to_vec();
        self.rest = &self.rest[end..];
        Some(Frame {
            time: Duration::from_secs(seconds.into()) + Duration::from_micros(micros.into()),
            length,
            bytes,
        })
    }
}

/// A pcap file without the record that is just being written at its end.
fn whole_records(pcap: &[u8]) -> &[u8] {
    let mut records = Records::new(pcap);
    while records.next().is_some() {}
    &pcap[..pcap.len() - records.rest.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Vec<u8> {
        let mut pcap = vec![0; FILE_HEADER];
        for (length, fill) in [(3u32, 7u8), (60, 9)] {
            pcap.extend([1, 2, length, 100].map(u32::to_ne_bytes).concat());
            pcap.extend(vec![fill; length as usize]);
        }
        pcap
    }

    #[test]
    fn records_are_read_in_order() {
        let frames: Vec<Frame> = Records::new(&file()).collect();
        assert_eq!(frames.iter().map(|frame| frame.bytes.len()).collect::<Vec<_>>(), [3, 60]);
        assert_eq!(
            frames[0],
            Frame { time: Duration::from_micros(1_000_002), length: 100, bytes: vec![7; 3] }
        );
    }

    #[test]
    fn a_file_cut_anywhere_gives_its_whole_records() {
        let file = file();
        let first_end = FILE_HEADER + RECORD_HEADER + 3;
        for cut in 0..file.len() {
            let whole = if cut < first_end { cut.min(FILE_HEADER) } else { first_end };
            assert_eq!(Records::new(&file[..cut]).count(), usize::from(cut >= first_end), "{cut}");
            assert_eq!(whole_records(&file[..cut]).len(), whole, "{cut}");
        }
    }
}
