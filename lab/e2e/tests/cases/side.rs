//! One side of a comparison: Artery or the kernel, its links, and what came out of it.

use super::packet::router_mac;
use super::text::{CaseFile, Command, Counter, Line, Round, Show, Who, usual};
use super::{compare, packet};
use artery_rig::program::artery;
use artery_rig::{Endpoint, Host, Process, Result, RigError};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long Artery may take to claim its addresses and forward, or the kernel to have its links up.
const START: Duration = Duration::from_secs(20);
/// How often a fence is sent until the first one passes.
const RETRY: Duration = Duration::from_millis(100);
/// How long Artery may take to end.
const END: Duration = Duration::from_secs(10);

/// A frame that came out, and at which port.
pub(super) struct Output {
    pub(super) port: u8,
    pub(super) frame: Vec<u8>,
}

pub(super) struct Side {
    pub(super) who: Who,
    pub(super) host: Host,
    /// The hosts' ends of the links, by port from 1.
    pub(super) ends: Vec<Endpoint>,
    process: Option<Process>,
    /// Folder of files and of the control socket.
    folder: String,
    /// What came and no case has looked at yet.
    pub(super) outputs: Vec<Output>,
}

impl Side {
    pub(super) fn new(who: Who, host: Host) -> Side {
        Side { who, host, ends: Vec::new(), process: None, folder: String::new(), outputs: Vec::new() }
    }

    /// Starts what the file says, and returns before it forwards.
    pub(super) fn start(&mut self, file: &CaseFile, folder: &Path) -> Result<()> {
        self.folder = folder.display().to_string();
        let setup = &file.setup;
        if self.who == Who::Artery {
            let line = setup.artery.as_ref().expect("a file without it is refused");
            let is_router = line.text.starts_with("router");
            let neighbors = setup.neighbors.iter().filter(|_| is_router).map(|neighbor| {
                let mac = compare::mac(&neighbor.mac);
                format!(" --neighbor {}={}={mac}", neighbor.device, neighbor.address)
            });
            let command = format!("{}{}", line.text, neighbors.collect::<String>());
            let program = artery()?.display().to_string();
            let script = format!("cd {} && exec {program} {command} -u {}", self.folder, self.socket());
            self.process = Some(self.host.spawn(["sh", "-c", &script])?);
            return Ok(());
        }
        for line in &setup.kernel {
            self.shell(line)?;
        }
        for neighbor in &setup.neighbors {
            let (mac, device) = (compare::mac(&neighbor.mac), neighbor.device.as_str());
            let words = [
                "ip",
                "neigh",
                "replace",
                &neighbor.address,
                "lladdr",
                &mac,
                "dev",
                device,
                "nud",
                "permanent",
            ];
            self.host.run(words)?;
        }
        Ok(())
    }

    fn socket(&self) -> String {
        format!("{}/control", self.folder)
    }

    fn shell(&self, line: &Line) -> Result<()> {
        let script = format!("cd {} && {}", self.folder, line.text);
        self.host.run(["sh", "-c", &script]).map(drop)
    }

    /// Runs a command of a case that is about this side.
    pub(super) fn run(&self, command: &Command) -> Result<()> {
        match self.who {
            who if who != command.who => Ok(()),
            Who::Artery => self.ask(&command.line.text).map(drop),
            _ => self.shell(&command.line),
        }
    }

    /// What a command of Artery prints.
    fn ask(&self, words: &str) -> Result<String> {
        let program = artery()?.display().to_string();
        let script = format!("cd {} && exec {program} {words}", self.folder);
        let command = self.host.command(["sh", "-c", &script]).env("ARTERY_SOCKET", self.socket());
        Ok(command.run()?.stdout)
    }

    /// Reads a counter; one that nothing was counted for is 0.
    pub(super) fn counter(&self, counter: &Counter) -> Result<u64> {
        let unreadable = |text: &str| {
            let why = format!("line {}: {} is not a counter: {text}", counter.line, counter.name);
            RigError::System(why, std::io::ErrorKind::InvalidData.into())
        };
        if counter.name.contains('.') {
            let text = self.ask(&format!("handler {}", counter.name))?;
            return text.trim().parse().map_err(|_| unreadable(&text));
        }
        let text = self.ask("show drops --json")?;
        let json: Value = serde_json::from_str(&text).map_err(|_| unreadable(&text))?;
        let drops = json["drops"].as_array().ok_or_else(|| unreadable(&text))?;
        let of_reason = drops.iter().filter(|drop| drop["reason"] == counter.name.as_str());
        Ok(of_reason.filter_map(|drop| drop["count"].as_u64()).sum())
    }

    /// What `show` prints, if that is not what it must.
    pub(super) fn show(&self, show: &Show) -> Result<Option<String>> {
        let text = self.ask(&format!("show {}", show.command))?;
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let wanted = squeezed(&show.text);
        Ok((!text.lines().any(|line| squeezed(line).contains(&wanted))).then_some(text))
    }

    /// Waits until the fence passes for the first time.
    pub(super) fn until_ready(&mut self, file: &CaseFile) -> Result<()> {
        let deadline = Instant::now() + START;
        loop {
            self.outputs.clear();
            self.send(&file.setup.fence)?;
            if self.wait_fence(file, Instant::now() + RETRY)? {
                // Fences that were late must not be taken for that of a case.
                std::thread::sleep(RETRY);
                self.collect()?;
                self.outputs.clear();
                return Ok(());
            }
            let ended = self.process.as_mut().is_some_and(|process| !process.is_running());
            if ended || Instant::now() > deadline {
                return Err(self.not_ready(file));
            }
        }
    }

    fn not_ready(&self, file: &CaseFile) -> RigError {
        let missing: Vec<String> = self
            .missing_of_fence(file)
            .into_iter()
            .map(|(port, frame)| format!("p{port}: {}", packet::describe(&frame, usual(port, false), &[])))
            .collect();
        let came: Vec<String> = self.outputs.iter().map(|output| compare::line(output, file)).collect();
        let what = format!("the fence:\nmissing {}\ncame {}", missing.join("\n"), came.join("\n"));
        match &self.process {
            Some(process) => RigError::NotSeen(process.failure(), what),
            None => RigError::System(format!("the kernel: {what}"), std::io::ErrorKind::TimedOut.into()),
        }
    }

    /// Sends what a round has going in, port by port in the order of lines.
    pub(super) fn send(&mut self, round: &Round) -> Result<()> {
        for input in &round.inputs {
            self.ends[usize::from(input.port) - 1].send(&[&input.frame])?;
        }
        Ok(())
    }

    /// Reads what has come.
    pub(super) fn collect(&mut self) -> Result<()> {
        for (port, end) in (1..).zip(&mut self.ends) {
            let frames = end.received()?.into_iter().filter(|frame| !is_housekeeping(frame));
            self.outputs.extend(frames.map(|frame| Output { port, frame }));
        }
        Ok(())
    }

    /// Waits until the fence has passed, and takes it out; says whether it has.
    pub(super) fn wait_fence(&mut self, file: &CaseFile, deadline: Instant) -> Result<bool> {
        self.wait(deadline, |side| side.missing_of_fence(file).is_empty())?;
        if !self.missing_of_fence(file).is_empty() {
            return Ok(false);
        }
        let who = self.who;
        for expected in file.setup.fence.outputs.iter().filter(|expected| expected.who.includes(who)) {
            let is_it = |output: &Output| compare::is_same(output, expected.port, &expected.frame, file);
            let place = self.outputs.iter().position(is_it).expect("nothing of the fence is missing");
            self.outputs.remove(place);
        }
        Ok(true)
    }

    fn missing_of_fence(&self, file: &CaseFile) -> Vec<(u8, Vec<u8>)> {
        let fence = file.setup.fence.outputs.iter().filter(|expected| expected.who.includes(self.who));
        fence
            .filter(|expected| {
                !self
                    .outputs
                    .iter()
                    .any(|output| compare::is_same(output, expected.port, &expected.frame, file))
            })
            .map(|expected| (expected.port, expected.frame.clone()))
            .collect()
    }

    /// Reads what comes until it is enough, or it is too late.
    pub(super) fn wait(&mut self, deadline: Instant, enough: impl Fn(&Side) -> bool) -> Result<()> {
        loop {
            self.collect()?;
            if enough(self) || Instant::now() >= deadline {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends Artery, which must end cleanly.
    pub(super) fn end(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        let output = process.stop(END)?;
        if output.code() == Some(0) && !output.stderr.contains("panicked") {
            return Ok(());
        }
        Err(RigError::Failed(process.failure()))
    }
}

/// Whether a frame is what a router sends by itself at its start and from time to time: probes and
/// announcements of its addresses (RFC 5227, RFC 4862), its memberships of groups, solicitations of routers.
fn is_housekeeping(frame: &[u8]) -> bool {
    let frame = &without_tag(frame)[..];
    let is_own = (1..=packet::MOST_PORTS).any(|port| frame.get(6..12) == Some(&router_mac(port).0[..]));
    is_own && (is_address_claim(frame) || is_icmp6_housekeeping(frame))
}

/// A frame without its first tag.
fn without_tag(frame: &[u8]) -> Vec<u8> {
    let is_tagged = frame.get(12..14) == Some(&[0x81, 0]);
    let rest = frame.get(if is_tagged { 16 } else { 12 }..).unwrap_or_default();
    [frame.get(..12).unwrap_or_default(), rest].concat()
}

fn is_address_claim(frame: &[u8]) -> bool {
    let is_request = frame.get(12..22) == Some(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    let (sender, target) = (frame.get(28..32), frame.get(38..42));
    is_request && (sender == target || sender == Some(&[0; 4]))
}

fn is_icmp6_housekeeping(frame: &[u8]) -> bool {
    let Some(packet) = frame[12..].strip_prefix(&[0x86, 0xdd]) else { return false };
    let is_multicast = packet.get(24) == Some(&0xff);
    // A report of memberships comes behind a hop-by-hop header of 8 bytes.
    let kind = match packet.get(6) {
        Some(0) if packet.get(40) == Some(&58) => packet.get(48),
        Some(58) => packet.get(40),
        _ => None,
    };
    let is_unspecified = packet.get(8..24) == Some(&[0; 16]);
    is_multicast
        && match kind {
            Some(131 | 132 | 133 | 143) => true,
            Some(135) => is_unspecified,
            // Unsolicited: the S flag is clear.
            Some(136) => packet.get(44).is_some_and(|flags| flags & 0x40 == 0),
            _ => false,
        }
}
