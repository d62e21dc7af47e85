//! Parsers of values on the command line, with messages for wrong ones.
use artery_firewall::FileSize;
use artery_lang::args;
use artery_wire::EtherAddr;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A number from `LEAST` to `MOST`.
pub(crate) fn number<const LEAST: u16, const MOST: u16>(text: &str) -> Result<u16, String> {
    let number = text.parse().ok().filter(|n| (LEAST..=MOST).contains(n));
    number.ok_or_else(|| format!("write a number from {LEAST} to {MOST}"))
}

/// The number of a processor that this machine has.
pub(crate) fn processor(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "write the number of a processor".to_string()).and_then(check_processor)
}

/// Refuses a processor that this machine has not.
pub(crate) fn check_processor(n: usize) -> Result<usize, String> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let last = processors - 1;
    if n < processors { Ok(n) } else { Err(format!("processors are numbered from 0 to {last} here")) }
}

/// Parses a time such as `5`, `0.5` or `200ms`.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let nanos = args::parse_seconds(text);
    nanos.map(Duration::from_nanos).map_err(|_| "write a time, such as 5 (seconds), 0.5 or 200ms".to_string())
}

/// The length of a file, as elements take it.
pub(crate) fn file_size(text: &str) -> Result<String, String> {
    let size: Result<FileSize, String> = text.parse();
    size.map(|_| text.to_string()).map_err(|wanted| format!("write {wanted}"))
}

/// The word for a time without end; `--awake` without a time means it.
pub(crate) const ALWAYS: &str = "always";

/// A time to wait awake.
pub(crate) fn awake_time(text: &str) -> Result<Duration, String> {
    if text == ALWAYS { Ok(Duration::MAX) } else { seconds(text) }
}

/// Parses an IPv4 or IPv6 address.
pub(crate) fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| "write an address, such as 10.9.1.2 or 2001:db8::9".to_string())
}

/// An IP address with a TCP port, which is `PORT` where it is left out.
pub(crate) fn address_with_port<const PORT: u16>(text: &str) -> Result<SocketAddr, String> {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let alone = || inner.parse().ok().map(|address: IpAddr| SocketAddr::new(address, PORT));
    text.parse().ok().or_else(alone).ok_or_else(|| {
        format!("write an address, perhaps with a port, such as 127.0.0.1:{PORT} or [::1]:{PORT}")
    })
}

/// The name of a port, one word.
pub(crate) fn port(text: &str) -> Result<String, String> {
    match text.is_empty() || text.contains(char::is_whitespace) {
        true => Err("write the name of a port, or 'host'; 'artery show ports' lists them".to_string()),
        false => Ok(text.to_string()),
    }
}

/// The Ethernet address of a neighbor; not all zeros.
pub(crate) fn station(text: &str) -> Result<EtherAddr, String> {
    match text.parse() {
        Ok(EtherAddr::ZERO) => Err(format!("{text} is not a MAC address; write it as 02:00:00:00:00:09")),
        Ok(link) => Ok(link),
        Err(_) => Err(format!("'{text}' is not a valid Ethernet address; write it as 02:00:00:00:00:09")),
    }
}

/// What the configuration calls a device, and what the machine does.
pub(crate) fn device(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((config, machine)) if !config.is_empty() && !machine.is_empty() => {
            Ok((config.to_string(), machine.to_string()))
        }
        _ => Err("write CONFIG=MACHINE, as in eth0=veth1".to_string()),
    }
}

/// Seconds, or a part of one.
pub(crate) fn wait(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let is_sound = |wait: &Duration| (Duration::from_millis(1)..=Duration::from_secs(86_400)).contains(wait);
    seconds.filter(is_sound).ok_or_else(|| "a wait is a number of seconds, from 0.001 to 86400".to_string())
}

/// How often something is shown.
#[derive(Clone, Copy)]
pub(crate) struct Period {
    pub(crate) every: Duration,
    has_unit: bool,
}

impl Period {
    const SHORTEST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(86_400);
    /// From this on, a time without a unit was perhaps meant in milliseconds.
    const DOUBTFUL: Duration = Duration::from_secs(100);

    /// A hint for users who may have meant milliseconds.
    pub(crate) fn unit_hint(self) -> Option<String> {
        let seconds = self.every.as_secs();
        let doubtful = !self.has_unit && self.every >= Period::DOUBTFUL;
        doubtful.then(|| {
            format!(
                "--stats={seconds} shows counters every {seconds} seconds; write {seconds}s if you mean \
                 that, or {seconds}ms for milliseconds"
            )
        })
    }
}

/// Parses a [`Period`] from 50 ms to a day.
pub(crate) fn period(text: &str) -> Result<Period, String> {
    let every = seconds(text)?;
    if !(Period::SHORTEST..=Period::LONGEST).contains(&every) {
        return Err("write a time from 50ms to 1day; without a unit it is in seconds".to_string());
    }
    Ok(Period { every, has_unit: text.ends_with(|c: char| c.is_ascii_alphabetic()) })
}

/// Most packets of which one is sampled.
const MOST_SAMPLED_OF: u32 = 16_777_216;

/// Of how many packets one is sampled. `key` is what stands before the value.
pub(crate) fn sampling_interval(key: &str, value: &str) -> Result<u32, String> {
    let interval = value.parse().ok().filter(|interval| (1..=MOST_SAMPLED_OF).contains(interval));
    interval.ok_or_else(|| {
        format!(
            "{key}{value}: write of how many packets one is sampled, 1 to {MOST_SAMPLED_OF}, such as 1000"
        )
    })
}
