//! `artery capture`: frames that a running `artery adopt` forwards past the kernel, where the kernel's taps
//! see none, with the decision on each.
mod pcapng;

use crate::adopt::{Captured, Frame, Status};
use crate::control_socket::Client;
use crate::options::Reach;
use crate::options::values::{port, seconds};
use crate::output::{Output, OutputReader, print_on};
use crate::signals::end_flag;
use anyhow::{Context as _, bail};
use artery_wire::describe;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use pcapng::Writer;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The last lines of its help.
pub(crate) const EXAMPLES: &str = "Examples:
  artery capture                                a line for each frame, until SIGINT
  artery capture --ports eth0 --count 10
  artery capture -w frames.pcapng               then: tcpdump -r frames.pcapng
  artery capture -w - | wireshark -k -i -
  artery capture --all                          those that are left to the kernel, too, and why

Frames are shown as they came, up to 1984 bytes of each, of which a packet that is yet to be cut into segments
may have more. In a file the interface is the one that a frame came by, and what was decided of it is its
comment. While frames are captured another program forwards, which copies each; without it nothing is slower.
Frames that come faster than they are read are forwarded and not shown: their number is said at the end.";

/// From one question to the next.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Args)]
pub(crate) struct CaptureOptions {
    #[command(flatten)]
    reach: Reach,
    /// Only frames that came or left by one of these ports
    #[arg(long, value_name = "PORT", value_delimiter = ',', value_parser = port)]
    ports: Vec<String>,
    /// Frames that are left to the kernel, too
    #[arg(long)]
    all: bool,
    /// End after N frames
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this time, such as 5 (seconds) or 200ms
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Write frames to FILE in the format pcapng; `-` for standard output
    #[arg(short = 'w', long, value_name = "FILE")]
    write: Option<PathBuf>,
}

impl Frame {
    fn verdict(&self) -> String {
        match (&self.to, &self.reason) {
            (Some(to), _) => format!("forwarded to {to}"),
            (None, Some(reason)) => format!("left to the kernel: {reason}"),
            (None, None) => String::new(),
        }
    }

    fn is_at(&self, ports: &[String]) -> bool {
        let is_one = |name: &String| ports.contains(name);
        ports.is_empty() || is_one(&self.port) || self.to.as_ref().is_some_and(is_one)
    }

    fn line(&self, bytes: &[u8]) -> String {
        let time = crate::timestamp::rfc3339(self.time as f64 / 1e9);
        format!("{time} {}, {}: {}\n", self.port, self.verdict(), describe::frame(bytes))
    }
}

/// Where captured frames are written.
enum Target {
    Lines,
    File(Box<Writer>),
}

/// Captures frames until there are enough.
pub(crate) fn command(options: &CaptureOptions) -> anyhow::Result<u8> {
    let ends = end_flag()?;
    let mut client = Client::connect(&options.reach)?;
    refuse_unknown(&options.ports, &mut client)?;
    let mut target = match &options.write {
        None => Target::Lines,
        Some(path) => Target::File(Box::new(Writer::create(path)?)),
    };
    client.write_plain("capture", if options.all { "all" } else { "forwarded" }).context("can't capture")?;
    Output::for_terminal().print_info("capturing");
    let taken = capture_frames(options, &mut client, &mut target, &ends);
    // From here on no frames need to be copied.
    let _ = client.write_plain("capture", "end");
    let (count, lost) = taken?;
    if options.write.is_some() || lost > 0 {
        Output::for_terminal().print_info(&format!("{count} frames captured, {lost} lost"));
    }
    Ok(0)
}

/// Refuses ports that are not adopted, by which nothing would ever come.
fn refuse_unknown(ports: &[String], client: &mut Client) -> anyhow::Result<()> {
    let status: Status =
        serde_json::from_str(&client.read("state")?).context("what it says of its ports makes no sense")?;
    let known: Vec<&str> = status.ports.iter().map(|port| port.name.as_str()).collect();
    match ports.iter().find(|port| !known.contains(&port.as_str())) {
        Some(unknown) => bail!("{unknown} is not an adopted port; those are {}", known.join(", ")),
        None => Ok(()),
    }
}

/// Takes frames; says how many, and how many were lost.
fn capture_frames(
    options: &CaptureOptions,
    client: &mut Client,
    target: &mut Target,
    ends: &AtomicBool,
) -> anyhow::Result<(u64, u64)> {
    let deadline = options.timeout.map(|timeout| Instant::now() + timeout);
    let (mut count, mut lost) = (0, 0);
    loop {
        // Frames that arrived before the end are fetched once more.
        let is_over = ends.load(Relaxed) || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let captured: Captured = serde_json::from_str(&client.read("capture")?)
            .context("what it says of frames makes no sense")?;
        lost = captured.lost.max(lost);
        for frame in captured.frames.iter().filter(|frame| frame.is_at(&options.ports)) {
            if options.count.is_some_and(|most| count >= most) {
                break;
            }
            if write_frame(frame, target)? == OutputReader::Gone {
                return Ok((count, lost));
            }
            count += 1;
        }
        if let Target::File(writer) = target {
            writer.flush()?;
        }
        if is_over || options.count.is_some_and(|most| count >= most) {
            return Ok((count, lost));
        }
        std::thread::sleep(PAUSE);
    }
}

fn write_frame(frame: &Frame, target: &mut Target) -> anyhow::Result<OutputReader> {
    let bytes = BASE64_STANDARD.decode(&frame.bytes).context("what it says of a frame makes no sense")?;
    match target {
        Target::Lines => print_on(&frame.line(&bytes)),
        Target::File(writer) => {
            writer.write(&frame.port, frame.time, frame.length, &bytes, &frame.verdict())?;
            Ok(OutputReader::There)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(port: &str, to: Option<&str>) -> Frame {
        Frame {
            time: 1_500_000_000,
            port: port.into(),
            to: to.map(str::to_string),
            reason: to.is_none().then(|| "no-route".to_string()),
            length: 60,
            bytes: String::new(),
        }
    }

    #[test]
    fn frames_are_chosen_by_either_port_and_say_what_became_of_them() {
        let wanted = ["eth1".to_string()];
        assert!(frame("eth0", Some("eth1")).is_at(&wanted) && frame("eth1", None).is_at(&wanted));
        assert!(!frame("eth0", None).is_at(&wanted) && frame("eth0", None).is_at(&[]));
        assert_eq!(frame("eth0", None).verdict(), "left to the kernel: no-route");
        let line = frame("eth0", Some("eth1")).line(&[0xff; 14]);
        assert!(line.starts_with("1970-01-01T00:00:01.500000Z eth0, forwarded to eth1: "), "{line}");
    }
}
