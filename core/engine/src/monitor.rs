//! Monitor mode: what a port receives ends at a chosen point of its path, to measure what the path
//! up to there costs.
//!
//! Elements at such points call [`Context::drop_monitored`](crate::Context::drop_monitored), which costs one
//! load for a batch while no port is monitored. What a port has received is counted before, so that its
//! counters are the same in every mode.
use crate::arg_value::ArgValue;
use crate::names::Names;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

/// How far packets of a monitored port come. A point that is not on a packet's way is none: the
/// next one ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Out of the receive queue; no byte of the packet is read.
    L0,
    /// Until the EtherType was read.
    L1,
    /// Until the IP header was checked.
    L2,
    /// Until the route was looked up.
    L3,
    /// Until nothing is left to be done but to transmit.
    L4,
}

impl Level {
    /// All levels, the first point first.
    pub const ALL: [Level; 5] = [Level::L0, Level::L1, Level::L2, Level::L3, Level::L4];
}

/// What a port may be set to: `off`, or a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Monitor(pub Option<Level>);

impl fmt::Display for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("off"),
            Some(level) => write!(f, "l{}", level as u8),
        }
    }
}

impl FromStr for Monitor {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Monitor, &'static str> {
        let all = Level::ALL.into_iter().map(Some).chain([None]).map(Monitor);
        let meant = |monitor: &Monitor| monitor.to_string().eq_ignore_ascii_case(text);
        all.into_iter().find(meant).ok_or("'off', 'l0', 'l1', 'l2', 'l3' or 'l4'")
    }
}

impl ArgValue for Monitor {
    const EXAMPLE: &'static str = "l2";
    fn parse(text: &str, _: &Names) -> Result<Monitor, String> {
        text.parse().map_err(str::to_string)
    }
}

/// Stands for `off`; greater than every level.
const OFF: u8 = u8::MAX;

/// Which ports of a router are monitored. One for all graphs and workers.
pub struct Monitors {
    /// The first point at which any packets end.
    first: AtomicU8,
    /// By port: where its packets end. Made when the first is monitored.
    ports: OnceLock<Box<[AtomicU8]>>,
    /// Ports that are monitored, for writers of the levels.
    monitored: Mutex<Vec<u16>>,
}

impl Default for Monitors {
    fn default() -> Monitors {
        Monitors { first: AtomicU8::new(OFF), ports: OnceLock::new(), monitored: Mutex::default() }
    }
}

impl Monitors {
    /// Sets where packets that this port receives end. Workers see it with their next batch.
    pub fn set_monitor(&self, port: u16, monitor: Monitor) {
        let mut monitored = self.monitored.lock().unwrap_or_else(PoisonError::into_inner);
        monitored.retain(|other| *other != port);
        if monitor.0.is_some() {
            monitored.push(port);
        }
        let ports = match monitor.0 {
            Some(_) => Some(self.make_ports()),
            None => self.ports.get().map(|ports| &**ports),
        };
        if let Some(ports) = ports {
            ports[usize::from(port)].store(monitor.0.map_or(OFF, |level| level as u8), Relaxed);
        }
        let first = monitored.iter().map(|port| self.end_of(*port)).min();
        self.first.store(first.unwrap_or(OFF), Relaxed);
    }

    /// Where packets that this port receives end.
    #[inline]
    pub fn monitor_of(&self, port: u16) -> Monitor {
        if self.first.load(Relaxed) == OFF {
            return Monitor(None);
        }
        Monitor(Level::ALL.get(usize::from(self.end_of(port))).copied())
    }

    fn make_ports(&self) -> &[AtomicU8] {
        self.ports.get_or_init(|| (0..=u16::MAX).map(|_| AtomicU8::new(OFF)).collect())
    }

    #[inline]
    fn end_of(&self, port: u16) -> u8 {
        self.ports.get().map_or(OFF, |ports| ports[usize::from(port)].load(Relaxed))
    }

    /// Whether packets of any port end at this point or before it.
    #[inline]
    pub(crate) fn end_any(&self, at: Level) -> bool {
        self.first.load(Relaxed) <= at as u8
    }

    /// Whether packets of this port end at this point or before it.
    #[inline]
    pub(crate) fn ends_at(&self, port: u16, at: Level) -> bool {
        self.end_of(port) <= at as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_written_as_they_are_read() {
        for text in ["off", "l0", "l1", "l2", "l3", "l4"] {
            assert_eq!(text.parse::<Monitor>().unwrap().to_string(), text);
        }
        assert_eq!("L3".parse(), Ok(Monitor(Some(Level::L3))));
        for wrong in ["", "l5", "l", "on", "0"] {
            assert!(wrong.parse::<Monitor>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_port_ends_its_packets_at_its_level_and_at_every_later_point() {
        let monitors = Monitors::default();
        assert!(!monitors.end_any(Level::L4));
        monitors.set_monitor(7, Monitor(Some(Level::L2)));
        let ends = |port| Level::ALL.map(|at| monitors.ends_at(port, at));
        assert_eq!(ends(7), [false, false, true, true, true]);
        assert_eq!(ends(8), [false; 5]);
        assert_eq!(monitors.monitor_of(7), Monitor(Some(Level::L2)));
        assert_eq!(monitors.monitor_of(8), Monitor(None));
        assert_eq!(Level::ALL.map(|at| monitors.end_any(at)), ends(7));
    }

    #[test]
    fn the_first_point_follows_the_ports_that_are_monitored() {
        let monitors = Monitors::default();
        monitors.set_monitor(1, Monitor(Some(Level::L4)));
        monitors.set_monitor(65535, Monitor(Some(Level::L0)));
        assert!(monitors.end_any(Level::L0));
        monitors.set_monitor(65535, Monitor(None));
        assert!(!monitors.end_any(Level::L3) && monitors.end_any(Level::L4));
        monitors.set_monitor(1, Monitor(None));
        assert!(!monitors.end_any(Level::L4));
    }
}
